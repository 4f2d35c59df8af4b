"""Errors of the cluster: what the command line answers with one line and exit code 2.

    ClusterError
    ├── ConfigError             a key or value of the configuration is wrong
    ├── ScenarioError           a scenario of a load test, or its prompts, are wrong
    ├── TraceError              a trace cannot be made, read or written
    ├── PortInUseError          the HTTP port is taken
    ├── RedisUnreachableError   the Redis that was named does not answer
    ├── RedisStartError         the private Redis does not start
    │   └── StateDirInUseError  another system uses this state folder
    ├── RayUnreachableError     the Ray that was named does not answer, or cannot be joined
    ├── RayStartError           the private Ray does not start
    ├── NotReadyError           the system did not become ready
    ├── ExplanationError        nothing is known of the request that was asked about
    └── DrillError              a drill cannot be done

Every constructor passes its positional arguments on, so that errors survive pickling.
"""

from __future__ import annotations


class ClusterError(Exception):
    """Base of all errors of this package."""


class ConfigError(ClusterError, ValueError):
    """A key or value of the configuration is wrong, or the file cannot be read."""


class ScenarioError(ClusterError, ValueError):
    """A scenario of a load test, or the prompts that it names, are wrong or cannot be read."""


class TraceError(ClusterError):
    """A trace cannot be made from what was given, or its file cannot be read or written."""


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


class DrillError(ClusterError):
    """A drill cannot be done: there is none of that name, or the system is not as it must be."""


class ExplanationError(ClusterError):
    """Nothing is known of the request that was asked about, or it may not be told."""
