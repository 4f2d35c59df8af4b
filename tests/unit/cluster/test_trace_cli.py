"""``banditserve policy record`` with a small model and its tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from cluster.cli.app import main
from cluster.traces.files import read_trace
from tests.unit.models.small_tokenizers import byte_level
from tests.unit.models.tiny_models import SHAPE


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "small"
    tokenizer = byte_level()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SHAPE, "vocab_size": len(tokenizer)}))
    model.generation_config = GenerationConfig(eos_token_id=2, pad_token_id=0)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def prompts(folder: Path) -> Path:
    rows = [
        {"id": f"{kind}{index}", "workload": "w", "category": kind, "turns": [f"say {index} again"]}
        for kind in ("a", "b")
        for index in range(3)
    ]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["banditserve", "policy", "record", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_records_prompts(
    model_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    out = tmp_path / "trace.npz"
    options = ("--model", model_folder, "--max-tokens", 12, "--max-draft", 4)
    assert run(monkeypatch, prompts(tmp_path), out, *options) == 0
    text = capsys.readouterr().out
    assert text.startswith("Recording ...\n")
    assert f"{out}: 4 replies of small, " in text
    trace = read_trace(out)
    assert [request.id for request in trace.requests] == ["a0", "a1", "b0", "b1"]
    assert {"prompt_lookup", "suffix"} <= set(trace.versions)
    assert (trace.model, trace.max_tokens, trace.max_size) == ("small", 12, 4)
    assert all(request.features.route == "chat" for request in trace.requests)
    assert all(times > 0 for times in trace.step_times.ms)


def test_prompts_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, tmp_path / "out") == 2
    assert capsys.readouterr().err.startswith(f"error: no prompts in {tmp_path}: expected")
    assert run(monkeypatch, tmp_path / "none.jsonl", tmp_path / "out") == 2
    assert "cannot read the prompts in" in capsys.readouterr().err
