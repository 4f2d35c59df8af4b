"""Addresses of a Redis: one server, a service that sentinels watch, or a cluster. Pure.

====================================================  ========================================
``redis://host:6379/0``, ``rediss://`` over TLS       one server, or a fixed address of one
``unix:///run/redis.sock?db=0``                       one server on this machine
``redis+sentinel://s1:26379,s2:26379/service/0``      the primary that sentinels name
``redis+cluster://n1:6379,n2:6379``                   a Redis Cluster, found by some of its nodes
====================================================  ========================================

``rediss+sentinel://`` and ``rediss+cluster://`` are the same over TLS. User and password may stand
before the hosts, quoted as in URLs: ``redis://user:password@host``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, unquote

Kind = Literal["server", "sentinel", "cluster"]

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("server", False),
    "rediss": ("server", True),
    "unix": ("server", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_DEFAULT_PORTS: dict[Kind, int] = {"server": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis is.

    Attributes:
        kind: What the hosts are.
        has_tls: Whether to speak TLS with all of them.
        hosts: Names and ports; empty for a socket of this machine.
        db: Number of the database.
        service: Name under which sentinels know the primary.
        path: Path of the socket.
    """

    kind: Kind
    has_tls: bool
    hosts: tuple[tuple[str, int], ...]
    db: int = 0
    service: str = ""
    path: str = ""


def split_credentials(url: str) -> tuple[str, str | None, str | None]:
    """Return an address without user and password, and both of them.

    >>> split_credentials("redis://me:a%2Fb@host/0")
    ('redis://host/0', 'me', 'a/b')
    """
    scheme, separator, rest = url.partition("://")
    before, slash, after = rest.partition("/")
    credentials, _, hosts = before.rpartition("@")
    if not separator or not credentials:
        return url, None, None
    username, colon, password = credentials.partition(":")
    bare = f"{scheme}://{hosts}{slash}{after}"
    return bare, unquote(username) or None, unquote(password) if colon else None


def parse_address(url: str) -> RedisAddress:
    """Read an address that has no credentials.

    >>> parse_address("rediss+sentinel://a,b:1/main/2")  # doctest: +NORMALIZE_WHITESPACE
    RedisAddress(kind='sentinel', has_tls=True, hosts=(('a', 26379), ('b', 1)), db=2,
                 service='main', path='')

    Raises:
        ValueError: If it is none; says what is expected.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ValueError(f"expected one of {', '.join(f'{name}://' for name in _SCHEMES)}")
    rest, _, query = rest.partition("?")
    if scheme == "unix":
        return _socket(rest, query)
    if query:
        raise ValueError("an address has no options; each of them is a key of its own")
    kind, has_tls = _SCHEMES[scheme]
    hosts_text, _, path = rest.partition("/")
    hosts = tuple(_host(text, _DEFAULT_PORTS[kind]) for text in hosts_text.split(","))
    parts = [unquote(part) for part in path.split("/") if part]
    if kind == "server" and len(hosts) > 1:
        raise ValueError("one server has one host; several are redis+sentinel:// or redis+cluster:")
    if kind == "cluster" and parts not in ([], ["0"]):
        raise ValueError("a cluster has no databases but 0")
    service = ""
    if kind == "sentinel":
        if not parts:
            raise ValueError("sentinels want the name of the service: redis+sentinel://hosts/name")
        service = parts.pop(0)
    return RedisAddress(kind, has_tls, hosts, _database(parts), service)


def _socket(path: str, query: str) -> RedisAddress:
    options = dict(parse_qsl(query))
    database = options.pop("db", "0")
    if options or not path.startswith("/"):
        raise ValueError("a socket is unix:///path or unix:///path?db=N")
    return RedisAddress("server", False, (), _database([database]), path=unquote(path))


def _host(text: str, default_port: int) -> tuple[str, int]:
    """Return host and port of ``host``, ``host:port`` or ``[v6]:port``."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(default_port)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"expected a port from 1 to 65535, found {port!r}")
    if not host:
        raise ValueError("expected a host")
    return host.strip("[]"), int(port)


def _database(parts: list[str]) -> int:
    if not parts:
        return 0
    if len(parts) > 1 or not parts[0].isdecimal():
        raise ValueError(f"expected the number of a database, found {'/'.join(parts)!r}")
    return int(parts[0])
