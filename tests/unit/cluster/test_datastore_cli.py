"""``banditserve datastore``, with a small tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cluster.cli.app import main
from drafters.datastore.store import Datastore
from tests.unit.models.small_tokenizers import TEXT, byte_level, metaspace


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers") / "tiny"
    byte_level().save_pretrained(folder)
    return folder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capsys)


class Run:
    """Runs the command line: returns exit code, output and errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        line = ["banditserve", "datastore", *map(str, arguments)]
        self._monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err


def corpus(folder: Path) -> list[Path]:
    text, lines = folder / "a.txt", folder / "b.jsonl"
    text.write_text("\n".join(TEXT))
    rows = [{"body": TEXT[0]}, {"token_ids": [5, 6, 7, 8]}]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [text, lines]


def test_builds_and_says_what_is_in_it(tmp_path: Path, tokenizer_folder: Path, run: Run) -> None:
    out = tmp_path / "out"
    code, text, errors = run(
        "build", out, *corpus(tmp_path), "--tokenizer", tokenizer_folder, "--field", "body"
    )
    assert (code, errors) == (0, "")
    assert text.startswith("Building the datastore ...\n")
    assert "documents:     3\n" in text
    datastore = Datastore(out)
    assert f"checksum:      {datastore.header.checksum[:16]}" in text
    assert datastore.longest_match((5, 6, 7), 3).num_occurrences == 1
    quick = byte_level().encode("The quick brown", add_special_tokens=False)
    assert datastore.longest_match(quick[:10], 2).num_occurrences == 2
    for option in ((), ("--verify",)):
        code, shown, errors = run("info", out, *option)
        assert (code, errors) == (0, "")
        assert shown.endswith(text[text.index("datastore:") :])


def test_what_cannot_be_is_one_line(tmp_path: Path, tokenizer_folder: Path, run: Run) -> None:
    empty, wrong, foreign = (tmp_path / name for name in ("e.txt", "w.jsonl", "f.jsonl"))
    empty.write_text("")
    wrong.write_text('{"text": "a"}\n{"text": ')
    foreign.write_text('{"token_ids": [3, 49151]}')
    out = tmp_path / "out"
    for arguments, message in (
        ((out, "/no/such"), "no input at /no/such: expected a file, found none"),
        ((out, empty), f"nothing to build {out} from: expected tokens, found none"),
        ((out, wrong), f"{wrong}:2 is not JSON: "),
        ((out, foreign), f"{foreign}:1: expected token ids of 0..339 as tiny's tokenizer makes"),
        ((empty, wrong), f"{empty} is no datastore and is not replaced"),
        ((tmp_path / "no" / "out", wrong), f"cannot write {tmp_path}/no/out: expected a folder"),
    ):
        code, _, errors = run("build", *arguments, "--model", tokenizer_folder)
        assert code == 2
        assert errors.startswith(f"error: {message}")
        assert errors.count("\n") == 1
    assert not out.exists()
    code, _, errors = run("build", out, wrong, "--model", tmp_path)
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith(f"error: no model at {tmp_path}")
    code, _, errors = run("info", wrong)
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith(f"error: {wrong} is no datastore: expected it to begin with")
    for option in ((), ("--verify",)):
        code, _, errors = run("info", out, *option)
        assert code == 2
        assert errors == f"error: cannot read the datastore {out}: No such file or directory\n"


def test_other_tokenizers_have_other_fingerprints(
    tmp_path: Path, tokenizer_folder: Path, run: Run
) -> None:
    other = tmp_path / "other"
    metaspace().save_pretrained(other)
    fingerprints = []
    for number, folder in enumerate((tokenizer_folder, tokenizer_folder, other)):
        out = tmp_path / str(number)
        assert run("build", out, *corpus(tmp_path)[:1], "--model", folder)[0] == 0
        fingerprints.append(Datastore(out).header.tokenizer_fingerprint)
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
