"""Make a client for the Redis of a configuration: one server, through sentinels, or a cluster.

Passwords in files are read with each new connection, so that one may be replaced while we run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import SecretStr
from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialBackoff
from redis.credentials import CredentialProvider

from policy_service.redis_pool.config import RedisConfig

Client = Redis | RedisCluster
"""What answers commands; the two have the same ones."""


class Credentials(CredentialProvider):
    """User and password of a new connection; has no representation of its own."""

    def __init__(
        self, username: str | None, password: SecretStr | None, password_file: Path | None
    ) -> None:
        self._username = username
        self._password = password
        self._file = password_file

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return password, or user and password.

        Raises:
            OSError: If the file cannot be read.
        """
        password = self._password.get_secret_value() if self._password is not None else ""
        if self._file is not None:
            password = self._file.read_text(encoding="utf-8").strip("\r\n")
        return (self._username, password) if self._username else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """Return what ``get_credentials`` does; the file is small and local."""
        return self.get_credentials()


def connect(config: RedisConfig, timeout_s: float) -> Client:
    """Return a client; nothing is connected before its first command.

    Args:
        config: A configuration that has an address.
        timeout_s: Longest that an answer may take; connecting may take half of it. A failed command
            is tried once more on a new connection.

    Raises:
        ValueError: If the configuration has no address.
    """
    address = config.address
    common = _connection_options(config, timeout_s)
    common |= _credentials(config.username, config.password, config.password_file)
    if address.kind == "cluster":
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return RedisCluster(startup_nodes=nodes, require_full_coverage=False, **common)
    if address.kind == "sentinel":
        own = _connection_options(config, timeout_s) | _credentials(
            config.sentinel_username, config.sentinel_password, config.sentinel_password_file
        )
        sentinel = Sentinel(  # type: ignore[no-untyped-call]  # the package leaves it untyped
            address.hosts, sentinel_kwargs=own, db=address.db, **common
        )
        client: Redis = sentinel.master_for(address.service)
        return client
    if address.path:
        return Redis(unix_socket_path=address.path, db=address.db, **common)
    [(host, port)] = address.hosts
    return Redis(host=host, port=port, db=address.db, **common)


async def disconnect(client: Client) -> None:
    """Close all connections of a client, those to sentinels too."""
    await client.aclose()
    if isinstance(client, RedisCluster):  # which does nothing while it looks for nodes anew
        await client.nodes_manager.aclose()
        await client.nodes_manager.aclose("startup_nodes")
    elif isinstance(client.connection_pool, SentinelConnectionPool):
        for sentinel in client.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def _connection_options(config: RedisConfig, timeout_s: float) -> dict[str, Any]:
    """Return what all connections have in common."""
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_connect_timeout": timeout_s / 2,
        "socket_timeout": timeout_s,
        "retry": Retry(ExponentialBackoff(cap=0.1, base=0.02), 1),
    }
    if config.address.has_tls:
        options |= {
            "ssl": True,
            "ssl_cert_reqs": "required" if config.tls_verify else "none",
            "ssl_check_hostname": config.tls_verify,
            "ssl_ca_certs": _text(config.tls_ca_file),
            "ssl_certfile": _text(config.tls_cert_file),
            "ssl_keyfile": _text(config.tls_key_file or config.tls_cert_file),
        }
    return options


def _credentials(
    username: str | None, password: SecretStr | None, password_file: Path | None
) -> dict[str, Any]:
    """Return the option that carries user and password; none if there are none."""
    if username is None and password is None and password_file is None:
        return {}
    return {"credential_provider": Credentials(username, password, password_file)}


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None
