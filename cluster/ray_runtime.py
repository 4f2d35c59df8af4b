"""Start a private Ray or join a running one; stop what was started.

A private Ray listens on loopback only, keeps its session in a temporary folder with a short name
(its sockets' paths must stay under 108 bytes) and leaves its logs in the state folder when it
stops. Ray is imported only after its environment is set: some of it is read at import.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from cluster.config import RayConfig
from cluster.errors import RayStartError, RayUnreachableError
from cluster.processes import descendants, end_all
from models.child_process import with_packages
from models.precedence import give_way

NAMESPACE = "banditserve"
JOIN_TIMEOUT_S = 5.0
START_ATTEMPTS = 3
END_TIMEOUT_S = 10.0
KEPT_LOGS = 5
_LONGEST_TEMP_DIR = 40
_TEMP_PREFIX = "banditserve-"

_AUTH_HINT = " (if it wants a token, set RAY_AUTH_MODE=token)"
_logger = logging.getLogger(__name__)

_PRIVATE_ENVIRONMENT = {
    # Makes Ray take 127.0.0.1 as this node's address; with its default, another address of the
    # machine, every server of it would listen there.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's default makes all workers nicer than whatever else runs here, the engine's among them.
    "RAY_worker_niceness": "0",
    # From the proxy to the Ingress, tokens cost half as much this way.
    "RAY_SERVE_PROXY_USE_GRPC": "1",
    # What ray.init(runtime_env={"worker_process_setup_hook": ...}) sets for each worker; set for
    # all of them at once, workers that wait for work can be used by any actor.
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "cluster.worker_setup.listen_on_loopback",
}


class RayRuntime:
    """The Ray that the system runs on.

    Args:
        config: Whether to join one, and how large a private one is.
        num_cpus_needed: CPUs that all actors together reserve.
        log_dir: Where the logs of a private one go when it stops.
    """

    def __init__(self, config: RayConfig, num_cpus_needed: float, log_dir: Path) -> None:
        self._config = config
        self._num_cpus_needed = num_cpus_needed
        self._log_dir = log_dir
        self._temp_dir: Path | None = None
        self._roots: dict[int, str] = {}

    @property
    def is_private(self) -> bool:
        """Whether this Ray is ours to stop."""
        return self._config.address is None

    @property
    def session_logs(self) -> Path | None:
        """Where a private Ray writes its logs now; None before it runs, or if it is not ours."""
        return self._temp_dir / "session_latest" / "logs" if self._temp_dir else None

    def start(self) -> None:
        """Start or join.

        Raises:
            RayStartError: If a private one does not start.
            RayUnreachableError: If the Ray that was named cannot be joined.
        """
        if self._config.address is None:
            self._start_private()
        else:
            self._join(self._config.address)

    def stop(self) -> None:
        """Leave Ray, and end every process of a private one."""
        import ray

        started = self._started()
        ray.shutdown()
        if not self.is_private:
            return
        for pid in end_all(started, END_TIMEOUT_S):
            _logger.warning("process %d of Ray did not end and was killed", pid)
        if self._temp_dir is not None:
            _keep_logs(self._temp_dir, self._log_dir)
            shutil.rmtree(self._temp_dir, ignore_errors=True)
            self._temp_dir = None
        self._roots = {}

    def kill(self) -> None:
        """End every process of a private Ray at once."""
        if self.is_private:
            end_all(self._started(), 0.0)
            if self._temp_dir is not None:
                shutil.rmtree(self._temp_dir, ignore_errors=True)

    def _started(self) -> dict[int, str]:
        """Return the processes that Ray started here and those that they started."""
        found = dict(self._roots)
        for pid in self._roots:
            found |= descendants(pid)
        return found

    def _start_private(self) -> None:
        """Start one, again if need be: Ray gives its parts 30 s, too few on a busy machine.

        Raises:
            RayStartError: If it does not start.
        """
        _sweep_temp_dirs()
        give_way()
        os.environ.update(node_environment())
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start_once()
                return
            except Exception as error:  # a boundary: Ray raises plain ones
                _logger.exception("Ray did not start, attempt %d of %d", attempt, START_ATTEMPTS)
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                self.stop()
        raise RayStartError(f"Ray does not start: {reason}; its logs are in {self._log_dir}")

    def _start_once(self) -> None:
        before = descendants(os.getpid())
        self._temp_dir = _make_temp_dir()
        try:
            self._init_private(self._temp_dir)
        finally:
            now = descendants(os.getpid())
            self._roots = {pid: since for pid, since in now.items() if before.get(pid) != since}

    def _init_private(self, temp_dir: Path) -> None:
        import ray

        ray.init(
            address="local",
            num_cpus=self._num_cpus(),
            object_store_memory=self._config.object_store_bytes,
            namespace=NAMESPACE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(temp_dir),
        )

    def _num_cpus(self) -> int:
        """CPUs that a private Ray is told of: actors that mostly wait may share one."""
        if self._config.num_cpus is not None:
            return max(1, round(self._config.num_cpus))
        return max(os.cpu_count() or 1, int(self._num_cpus_needed) + 1)

    def _join(self, address: str) -> None:
        import ray

        try:
            ray.init(
                address=address,
                namespace=NAMESPACE,
                log_to_driver=False,
                logging_level=logging.WARNING,
                runtime_env={"env_vars": _worker_environment()},
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            hint = "" if "RAY_AUTH_MODE" in os.environ else _AUTH_HINT
            raise RayUnreachableError(
                f"cannot join the Ray at {address}: {reason}{hint}"
            ) from error


def node_environment() -> dict[str, str]:
    """Return what all processes of a Ray of ours need in their environment, to be on loopback."""
    return {**_PRIVATE_ENVIRONMENT, **_worker_environment()}


def check_reachable(address: str) -> None:
    """Try an address by itself: Ray's own attempt takes minutes and may end the process.

    Raises:
        RayUnreachableError: If nothing answers there, or it is no address of a Ray's head.
    """
    if "://" in address:
        raise RayUnreachableError(
            f"cannot join the Ray at {address}: expected 'auto' or host:port, on one of its nodes"
        )
    host, separator, port = address.rpartition(":")
    if not separator:
        return
    try:
        socket.create_connection((host, int(port)), JOIN_TIMEOUT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise RayUnreachableError(f"no Ray answers at {address}: {error}") from error


def _make_temp_dir() -> Path:
    base = tempfile.gettempdir()
    if len(base) + len(_TEMP_PREFIX) + 9 > _LONGEST_TEMP_DIR:
        base = "/tmp"
    path = Path(tempfile.mkdtemp(prefix=_TEMP_PREFIX, dir=base))
    (path / "owner").write_text(str(os.getpid()))
    return path


def _sweep_temp_dirs() -> None:
    """Remove the folders of systems that were killed."""
    for base in {tempfile.gettempdir(), "/tmp"}:
        for owner in Path(base).glob(f"{_TEMP_PREFIX}*/owner"):
            try:
                is_dead = not Path("/proc", owner.read_text().strip()).exists()
                is_ours = owner.stat().st_uid == os.getuid()
            except OSError:
                continue
            if is_dead and is_ours:
                shutil.rmtree(owner.parent, ignore_errors=True)


def _keep_logs(temp_dir: Path, log_dir: Path) -> None:
    source = (temp_dir / "session_latest").resolve() / "logs"
    if source.is_dir():
        name = time.strftime("ray-%Y%m%d-%H%M%S")
        shutil.move(source, log_dir / f"{name}-{os.getpid()}")
    for old in sorted(log_dir.glob("ray-*"))[:-KEPT_LOGS]:
        shutil.rmtree(old, ignore_errors=True)


def _worker_environment() -> dict[str, str]:
    """Return what every worker needs in its environment: our packages, and a bounded spin.

    torch's threads wait for each other by spinning. Where cores are shared, a thread that loses
    its core for a moment makes all others burn theirs, and a step takes up to ten times as long.
    """
    return {
        "PYTHONPATH": with_packages(os.environ)["PYTHONPATH"],
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "10000"),
    }
