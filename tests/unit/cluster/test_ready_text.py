from __future__ import annotations

import ast
import json
import shlex

import pytest

from cluster.banner import base_url, ready_text
from cluster.config import SystemConfig
from replicas.config import IngressConfig


def text_of(config: SystemConfig) -> str:
    return ready_text(config, "smollm2", "private", "private")


def test_the_curl_line_is_one_line_of_shell_with_json() -> None:
    [line] = [line for line in text_of(SystemConfig(port=9)).splitlines() if "curl" in line]
    words = shlex.split(line)
    assert words[:2] == ["curl", "http://127.0.0.1:9/v1/chat/completions"]
    body = json.loads(words[words.index("-d") + 1])
    assert body["model"] == "smollm2"


def test_the_snippet_is_python() -> None:
    text = text_of(SystemConfig())
    ast.parse(text[text.index("from openai") : text.index("\nEOF")])


def test_a_key_that_is_needed_is_in_both() -> None:
    text = text_of(SystemConfig(ingress=IngressConfig(api_keys=("s3cret",))))
    assert "Authorization: Bearer s3cret" in text
    assert 'api_key="s3cret"' in text


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_the_address_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    assert base_url(SystemConfig(host=host)) == url
