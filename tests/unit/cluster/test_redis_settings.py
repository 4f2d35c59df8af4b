"""The Redis of a configuration: where its password comes from, and that it is not printed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from cluster.config import load_config
from cluster.config_text import config_text
from cluster.errors import ConfigError

SECRET = "very secret"
NAME = "BANDITSERVE_REDIS_PASSWORD"


def written(tmp_path: Path, **redis: object) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"redis": redis}))
    return path


def test_the_password_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME, SECRET)
    assert load_config().redis.password is None, "a private Redis has its own"
    assert load_config(written(tmp_path, url="redis://h")).redis.password == SecretStr(SECRET)
    options = {"redis.url": "redis://h"}
    assert load_config(None, options).redis.password == SecretStr(SECRET)
    for other in (
        {"url": "redis://:given@h"},
        {"url": "redis://h", "password": "given"},
        {"url": "redis://h", "password_file": "/f"},
    ):
        assert load_config(written(tmp_path, **other)).redis.password != SecretStr(SECRET)


def test_a_printed_configuration_hides_it_and_cannot_be_mistaken(tmp_path: Path) -> None:
    system = load_config(written(tmp_path, url=f"redis://:{SECRET}@h", sentinel_password=SECRET))
    text = config_text(system)
    assert SECRET not in text
    path = tmp_path / "printed.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="redis: password: it is hidden where it is printed"):
        load_config(path)


def test_errors_name_the_key_but_not_the_password(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"redis\.url: not a Redis URL: expected one of"
    ) as caught:
        load_config(written(tmp_path, url=f"http://:{SECRET}@h"))
    assert SECRET not in str(caught.value)
    with pytest.raises(ConfigError, match=r"redis\.urll: unknown key; did you mean url"):
        load_config(written(tmp_path, urll="redis://h"))
