"""Runs at the start of every worker of a private Ray, before any of our code.

Knows only Ray. Ray Serve 2.60 opens in each replica a gRPC server for calls between deployments on
all addresses of the machine; a private Ray has one machine, so nothing but loopback need reach it.
"""

from __future__ import annotations

from typing import Any

_EVERYWHERE = "[::]:"


def listen_on_loopback() -> None:
    """Make the gRPC servers that Ray opens on all addresses listen on loopback only."""
    from ray._common import tls_utils

    add_port: Any = tls_utils.add_port_to_grpc_server

    def add_loopback_port(server: Any, address: str) -> Any:
        if address.startswith(_EVERYWHERE):
            address = "127.0.0.1:" + address.removeprefix(_EVERYWHERE)
        return add_port(server, address)

    tls_utils.add_port_to_grpc_server = add_loopback_port
