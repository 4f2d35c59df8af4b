from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from cluster.config import SystemConfig, load_config
from cluster.config_errors import keys_at
from cluster.config_text import config_text
from cluster.errors import ConfigError


def write(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(write(folder, text))
    return str(caught.value).replace(f"{folder}/config.yaml: ", "")


def test_file_values_reach_the_packages_own_configs(tmp_path: Path) -> None:
    text = "port: 9000\nverifier: {engine: {page_tokens: 32}}\npolicy: {gammas: [3]}\n"
    config = load_config(write(tmp_path, text))
    assert config.port == 9000
    assert config.verifier.engine.page_tokens == 32
    assert config.policy.gammas == (3,)
    assert config.model == "smollm2"


def test_options_go_before_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "port: 9000\nray: {num_cpus: 3}\n")
    config = load_config(path, {"port": 9001, "ray.address": "auto", "host": None})
    assert (config.port, config.ray.address, config.ray.num_cpus) == (9001, "auto", 3)
    assert config.host == "127.0.0.1"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_config(write(tmp_path, "")) == SystemConfig()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("prot: 1", "prot: unknown key; did you mean port?"),
        (
            "verifier: {engine: {pagetokens: 3}}",
            "verifier.engine.pagetokens: unknown key; did you mean page_tokens?",
        ),
        ("drafters: {mine: {metod: x}}", "drafters.mine.metod: unknown key; did you mean method?"),
        ("ray: {zzzzzz: 1}", "ray.zzzzzz: unknown key"),
        ("port: many", "port: input should be a valid integer"),
        ("port: 0", "port: input should be greater than or equal to 1, found 0"),
        ("verifier: 3", "verifier: input should be a valid dictionary"),
        ("drafters: {a b: {}}", "drafters.a b: a drafter's name is an identifier"),
        ("drafters: {a: {method: prompt_lokup}}", "drafters.a: unknown drafting method"),
        ("policy: {learner: ucb_spec}", "policy: "),
        (
            "policy: {learner: batch_table, params: {drafter: suffix}}",
            "policy: drafter of learner 'batch_table': unknown drafter 'suffix'",
        ),
        ("- 1", "expected keys and values, found list"),
    ],
)
def test_a_fault_is_one_line_that_begins_with_its_path(
    tmp_path: Path, text: str, line: str
) -> None:
    said = complaint(tmp_path, text)
    assert said.startswith(line)
    assert "\n" not in said


def test_every_fault_is_reported(tmp_path: Path) -> None:
    assert len(complaint(tmp_path, "prot: 1\nport: 0\nhots: x").splitlines()) == 3


@pytest.mark.parametrize("text", ["a: b: c", "\t- x", "!!python/object:os.system {}"])
def test_what_is_not_plain_yaml_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    assert "is not YAML" in complaint(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        load_config(tmp_path / "nowhere.yaml")


def test_an_option_over_a_broken_section_still_names_the_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="verifier: input should be"):
        load_config(write(tmp_path, "verifier: 3"), {"verifier.num_replicas": 2})


def test_folders_expand_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("BANDITSERVE_CACHE", raising=False)
    config = SystemConfig.model_validate({"state_dir": "~/state"})
    assert config.state_dir == Path("/somewhere/state")
    assert config.cache_dir == Path("/somewhere/.cache/banditserve")
    assert SystemConfig().state_dir == Path("/somewhere/.local/state/banditserve")


def test_the_environment_says_where_models_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANDITSERVE_CACHE", "/elsewhere")
    assert SystemConfig().cache_dir == Path("/elsewhere")


def test_the_written_configuration_reads_back_and_explains_every_key() -> None:
    config = SystemConfig(port=9000)
    text = config_text(config)
    assert SystemConfig.model_validate(yaml.safe_load(text)) == config
    lines = text.splitlines()
    for before, line in pairwise(lines):
        is_a_users_key = line == "  prompt_lookup:"
        if not line.lstrip().startswith("#") and not is_a_users_key:
            assert before.lstrip().startswith("#"), f"no comment above {line!r}"


def test_configurations_do_not_change() -> None:
    with pytest.raises(ValidationError):
        SystemConfig().port = 1


def test_keys_are_found_through_mappings_the_user_names() -> None:
    assert "method" in keys_at(SystemConfig, ["drafters", "anything"])
    assert "page_tokens" in keys_at(SystemConfig, ["verifier", "engine"])
    assert keys_at(SystemConfig, ["nothing"]) == []
