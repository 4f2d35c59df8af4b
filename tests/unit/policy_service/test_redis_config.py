"""Addresses, credentials and that no secret shows."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool

from policy_service.errors import PolicyConfigError
from policy_service.redis_pool.address import RedisAddress, parse_address
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.connection import Credentials, connect
from policy_service.redis_pool.store import RedisStore

SECRET = "s3cr/t@:%"
QUOTED = "s3cr%2Ft%40%3A%25"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", RedisAddress("server", False, (("h", 6379),))),
        ("rediss://h:1/3", RedisAddress("server", True, (("h", 1),), 3)),
        ("redis://[::1]:7", RedisAddress("server", False, (("::1", 7),))),
        ("redis://[::1]", RedisAddress("server", False, (("::1", 6379),))),
        ("unix:///a/b?db=2", RedisAddress("server", False, (), 2, path="/a/b")),
        (
            "redis+sentinel://a:1,b/main/2",
            RedisAddress("sentinel", False, (("a", 1), ("b", 26379)), 2, "main"),
        ),
        ("rediss+cluster://a,b:2", RedisAddress("cluster", True, (("a", 6379), ("b", 2)))),
    ],
)
def test_addresses(url: str, address: RedisAddress) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://h:port",
        "redis://h:0",
        "redis://",
        "redis://a,b",
        "redis://h/x",
        "redis://h/0/1",
        "redis://h?ssl_cert_reqs=none",
        "redis+sentinel://a",
        "redis+cluster://a/1",
        "unix://relative",
        "unix:///a?password=x",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValidationError, match="not a Redis URL"):
        RedisConfig(url=url)


def test_a_password_in_the_address_is_taken_out_of_it_and_shows_nowhere() -> None:
    config = RedisConfig(url=f"rediss://me:{QUOTED}@h:1/0")
    assert (config.url, config.username) == ("rediss://h:1/0", "me")
    assert config.password is not None
    assert config.password.get_secret_value() == SECRET
    for text in (repr(config), str(config), config.model_dump_json(), str(config.model_dump())):
        assert SECRET not in text
        assert QUOTED not in text
    assert pickle.loads(pickle.dumps(config)) == config, "it travels to the Policy"


@pytest.mark.parametrize(
    "values",
    [
        {"url": f"redis://:{QUOTED}@h:port"},
        {"url": f"redis://:{QUOTED}@h", "password": "other"},
        {"url": "redis://h", "password": SECRET, "password_file": "/f"},
        {"url": "redis://h", "sentinel_password": SECRET, "sentinel_password_file": "/f"},
        {"url": "redis://h", "password": SECRET, "tls_key_file": "/f"},
        {"url": "redis://h", "password": SECRET, "unknown": 1},
    ],
)
def test_errors_do_not_tell_secrets(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        RedisConfig.model_validate(values)
    assert SECRET not in str(caught.value)
    assert QUOTED not in str(caught.value)


def test_a_password_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    credentials = Credentials("me", None, file)
    assert credentials.get_credentials() == ("me", SECRET)
    file.write_text("another")
    assert credentials.get_credentials() == ("me", "another")
    assert "another" not in repr(credentials)


def test_clients_of_each_kind() -> None:
    async def test() -> None:
        one = connect(RedisConfig(url="rediss://h:1/2", tls_verify=False), 1.0)
        assert isinstance(one, Redis)
        options = one.connection_pool.connection_kwargs
        assert (options["db"], options["ssl_cert_reqs"]) == (2, "none")
        watched = connect(
            RedisConfig(url="redis+sentinel://a,b/main", password=SecretStr(SECRET)), 1.0
        )
        assert isinstance(watched, Redis)
        assert isinstance(watched.connection_pool, SentinelConnectionPool)
        assert SECRET not in repr(watched)
        cluster = connect(RedisConfig(url="redis+cluster://a,b"), 1.0)
        assert isinstance(cluster, RedisCluster)
        for client in (one, watched, cluster):
            await client.aclose()

    asyncio.run(test())


def test_a_store_wants_an_address() -> None:
    with pytest.raises(PolicyConfigError, match="no address"):
        RedisStore(RedisConfig())
