"""Errors of the cluster: what the command line answers with one line and exit code 2.

    ClusterError
    ├── ConfigError             a key or value of the configuration is wrong
    ├── PortInUseError          the HTTP port is taken
    ├── RedisUnreachableError   the Redis that was named does not answer
    ├── RedisStartError         the private Redis does not start
    │   └── StateDirInUseError  another system uses this state folder
    ├── RayUnreachableError     the Ray that was named does not answer, or cannot be joined
    ├── RayStartError           the private Ray does not start
    └── NotReadyError           the system did not become ready

Every constructor passes its positional arguments on, so that errors survive pickling.
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all errors of this package."""


class ConfigError(ClusterError, ValueError):
    """A key or value of the configuration is wrong, or the file cannot be read."""


class PortInUseError(ClusterError):
    """Something else listens on the HTTP port."""


class RedisUnreachableError(ClusterError):
    """The Redis that was named does not answer."""


class RedisStartError(ClusterError):
    """The private Redis does not start."""


class StateDirInUseError(RedisStartError):
    """Another system runs with the same state folder."""


class RayUnreachableError(ClusterError):
    """The Ray that was named does not answer, or cannot be joined."""


class RayStartError(ClusterError):
    """The private Ray does not start."""


class NotReadyError(ClusterError):
    """The system did not become ready, or not in time."""
