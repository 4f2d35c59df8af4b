"""Build the development environment: a virtual environment with everything that the lock pins.

Runs on the machine's own Python with nothing installed, so it uses the standard library only. It
shows what pip is doing and how many bytes have come, and repeats pip's words only when pip fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LINE_PERIOD_S = 10.0  # between lines where there is no terminal


def fail(message: str) -> None:
    """End with one clear line."""
    raise SystemExit(f"error: {message}")


def has_module(name: str) -> bool:
    """Whether this Python can run ``-m name``."""
    probe = [sys.executable, "-c", f"import {name}"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def create(venv: Path) -> list[str]:
    """Create ``venv`` and return the pip command that installs into it."""
    if has_module("ensurepip"):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        return [str(venv / "bin" / "python"), "-m", "pip"]
    if not has_module("pip"):
        fail(
            "this Python has neither ensurepip nor pip, so no environment can be made; "
            "on Debian: apt-get install python3-venv"
        )
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)], check=True
    )
    return [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]


def num_bytes(folder: Path) -> int:
    """Bytes of the packages that pip has downloaded into its temporary folder."""
    total = 0
    for path in folder.glob("pip-unpack-*/*"):
        try:
            total += path.stat().st_size
        except OSError:  # pip moved it meanwhile
            continue
    return total


class Progress:
    """Says what goes on: one line that renews itself on a terminal, else a line now and then."""

    def __init__(self, venv: Path, downloads: Path, num_packages: int) -> None:
        self._venv, self._downloads, self._num_packages = venv, downloads, num_packages
        self._started = time.monotonic()
        self._num_found = 0
        self._doing = "looking"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def heard(self, line: str) -> None:
        """Take note of a line that pip printed."""
        if line.startswith("Collecting "):
            self._num_found += 1
            self._doing = "fetching " + line.split()[1].split("==")[0]
        elif line.startswith("Installing collected packages"):
            self._doing = "installing"

    def close(self) -> None:
        """Stop showing."""
        self._done.set()
        self._thread.join()
        if sys.stdout.isatty():
            print("\r\x1b[K", end="")

    def _text(self) -> str:
        count = self._num_found
        if self._doing == "installing":
            pattern = "lib/python*/site-packages/*.dist-info"
            count = len(list(self._venv.glob(pattern)))
        mib = num_bytes(self._downloads) / 2**20
        seconds = time.monotonic() - self._started
        counted = f"{count}/{self._num_packages} packages"
        return f"  {counted}, {mib:.0f} MiB, {seconds:.0f} s: {self._doing}"

    def _run(self) -> None:
        terminal = sys.stdout.isatty()
        while not self._done.wait(0.5 if terminal else LINE_PERIOD_S):
            if terminal:
                width = shutil.get_terminal_size().columns - 1
                print("\r\x1b[K" + self._text()[:width], end="", flush=True)
            else:
                print(self._text(), flush=True)


def install(pip: list[str], venv: Path) -> None:
    """Install the lock and this project, editable."""
    num_packages = sum("==" in line for line in LOCK.read_text().splitlines())
    common = ["install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    common += ["--no-compile"]  # what is imported is compiled then; all of it takes minutes
    commands = (
        [*pip, *common, "-r", str(LOCK)],
        [*pip, *common, "--no-deps", "--no-build-isolation", "-e", str(ROOT)],
    )
    with tempfile.TemporaryDirectory(dir=venv) as temporary:
        progress = Progress(venv, Path(temporary), num_packages)
        try:
            for command in commands:
                run(command, temporary, progress)
        finally:
            progress.close()


def run(command: list[str], temporary: str, progress: Progress) -> None:
    """Run pip, showing its progress; on failure print all that it said and end."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": temporary},
        cwd=ROOT,
    )
    said: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        progress.heard(line)
    if process.wait() != 0:
        progress.close()
        print("".join(said))
        fail(f"pip failed with exit code {process.returncode}: {' '.join(command)}")


def main() -> None:
    """Build the environment in the folder given."""
    if not (3, 11) <= sys.version_info[:2] <= (3, 12):
        fail(f"Python 3.11 or 3.12 is needed, this is {sys.version.split()[0]}")
    venv = Path(sys.argv[1]).resolve()
    print(f"Making the environment in {venv.name} with Python {sys.version.split()[0]}", flush=True)
    started = time.monotonic()
    install(create(venv), venv)
    print(f"Environment ready after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
