"""API keys from a file: what a secret of a cluster is mounted as."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicas.ingress.access import Keys, read_keys


def test_keys_of_the_file_are_further_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\n\n  two \n")
    assert read_keys(["zero"], str(path)) == ("zero", "one", "two")
    assert Keys(read_keys([], str(path))).authorize("Bearer two")


def test_without_a_file_there_are_those_of_the_configuration() -> None:
    assert read_keys(["zero"], "") == ("zero",)


def test_a_file_without_keys_does_not_let_everybody_in(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("\n \n")
    with pytest.raises(ValueError, match="expected API keys, one a line, found none"):
        read_keys([], str(path))


def test_a_file_that_is_not_there_does_not_let_everybody_in(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_keys([], str(tmp_path / "keys"))
