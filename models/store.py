"""The model store: from a model's name to a complete folder of it on this machine.

An entry is built in a temporary folder beside its place and renamed into it when all of it is on
disk, so an entry that is there is whole, whenever a process was killed. A lock file lets one
process at a time build an entry; the others wait and then find it.

Where the files come from is the business of ``models.sources``.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from models.durable import flush
from models.errors import ModelError, UnknownModelError
from models.progress import ModelProgress, QuietProgress
from models.sources import fetch_from_hub, fetch_smollm2

DEFAULT_MODEL = "smollm2"
MANIFEST = "banditserve.json"
_LAYOUT = 2
"""Counts the ways in which entries were written; those of another one are fetched anew."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on this machine, ready to load.

    Attributes:
        path: Folder of config, safetensors weights and tokenizer.
        name: What API and statistics call the model.
        source: Where it came from, in words.
    """

    path: Path
    name: str
    source: str


def resolve_model(
    name_or_path: str, cache_dir: Path, progress: ModelProgress | None = None
) -> ModelFolder:
    """Return the folder of a model, fetching it into the cache where it is not there yet.

    Args:
        name_or_path: ``smollm2``, a name on the Hugging Face hub, or a local folder.
        cache_dir: The cache; safe to share among processes.
        progress: Told of everything that takes long.

    Raises:
        UnknownModelError: If there is no such folder, or no such model on the hub.
        ModelError: If the model cannot be fetched or has no usable weights.
    """
    progress = progress or QuietProgress()
    if name_or_path == DEFAULT_MODEL:
        return _cached(DEFAULT_MODEL, cache_dir, fetch_smollm2, progress)
    if _is_path(name_or_path):
        return _local(Path(name_or_path).expanduser())
    if not _HUB_NAME.fullmatch(name_or_path):
        raise UnknownModelError(
            f"unknown model {name_or_path!r}: expected {DEFAULT_MODEL!r}, a name on the Hugging "
            "Face hub like 'owner/model', or a local folder"
        )

    def fetch(folder: Path, progress: ModelProgress) -> str:
        return fetch_from_hub(name_or_path, folder, progress)

    return _cached(name_or_path, cache_dir, fetch, progress)


def served_name(name_or_path: str) -> str:
    """Return what a model is called once it is served, without looking for it."""
    if name_or_path != DEFAULT_MODEL and _is_path(name_or_path):
        return Path(name_or_path).expanduser().resolve().name
    return name_or_path


def list_models(cache_dir: Path) -> list[ModelFolder]:
    """Return the complete models in the cache, by name."""
    found = (_read_entry(path) for path in sorted((cache_dir / "models").glob("*")))
    return [entry for entry in found if entry is not None]


def _is_path(name_or_path: str) -> bool:
    return name_or_path.startswith(("/", "./", "../", "~")) or Path(name_or_path).is_dir()


def _local(path: Path) -> ModelFolder:
    if not path.is_dir():
        raise UnknownModelError(f"no model at {path}: expected a folder, found none")
    for wanted, pattern in (("config.json", "config.json"), ("weights", "*.safetensors")):
        if not any(path.glob(pattern)):
            raise UnknownModelError(f"no model at {path}: expected {wanted} in it, found none")
    path = path.resolve()
    return ModelFolder(path, path.name, "local folder")


def _cached(
    name: str,
    cache_dir: Path,
    fetch: Callable[[Path, ModelProgress], str],
    progress: ModelProgress,
) -> ModelFolder:
    models = cache_dir / "models"
    place = models / name.replace("/", "--")
    if entry := _read_entry(place):
        return entry
    try:
        models.mkdir(parents=True, exist_ok=True)
        with _locked(models / f".{place.name}.lock", progress):
            if entry := _read_entry(place):
                return entry
            return _build(name, place, fetch, progress)
    except OSError as error:
        raise ModelError(f"cannot keep model {name!r} in {models}: {error}") from error


def _build(
    name: str,
    place: Path,
    fetch: Callable[[Path, ModelProgress], str],
    progress: ModelProgress,
) -> ModelFolder:
    """Build an entry and put it in its place. Call with the entry's lock held."""
    for leftover in (place, *place.parent.glob(f".{place.name}.*.tmp")):
        shutil.rmtree(leftover, ignore_errors=True)
    stage = place.parent / f".{place.name}.{os.getpid()}.tmp"
    stage.mkdir()
    try:
        source = fetch(stage, progress)
        sizes = {path.name: path.stat().st_size for path in stage.iterdir() if path.is_file()}
        folder = ModelFolder(place, name, source)
        manifest = {**asdict(folder), "path": place.name, "layout": _LAYOUT, "sizes": sizes}
        (stage / MANIFEST).write_text(json.dumps(manifest, indent=1))
        with progress.task("Writing the model to disk"):
            _flush(stage)
        stage.rename(place)
        flush(place.parent)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return folder


def _read_entry(place: Path) -> ModelFolder | None:
    """Return the entry, or None if there is none or a file of it is missing or cut short."""
    try:
        manifest = json.loads((place / MANIFEST).read_text())
        sizes = {name: (place / name).stat().st_size for name in manifest["sizes"]}
        if (
            place.name.startswith(".")
            or manifest["layout"] != _LAYOUT
            or sizes != manifest["sizes"]
        ):
            return None
        return ModelFolder(place, str(manifest["name"]), str(manifest["source"]))
    except (OSError, ValueError, KeyError):
        return None


@contextmanager
def _locked(path: Path, progress: ModelProgress) -> Iterator[None]:
    """Hold the lock file; the system lets go of it when the process ends, however it ends."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.task("Waiting for another process to fetch the model"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        flush(path)
    flush(folder)
