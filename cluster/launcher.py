"""Start the whole system step by step, keep it going, and stop it in the opposite order.

Whatever the step at which something fails, all that was started before is stopped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import ExitStack

from cluster.banner import ready_text
from cluster.config import SystemConfig
from cluster.drafter_check import check_drafters, needs_check
from cluster.errors import RedisStartError, RedisUnreachableError
from cluster.progress import Reporter
from cluster.ray_runtime import RayRuntime, check_reachable
from cluster.redis_server import PrivateRedis
from cluster.resources import num_cpus_needed
from cluster.serve_runtime import ServeRuntime, check_port_free
from cluster.shutdown import StopRequested, StopSignals
from models.store import ModelFolder, resolve_model
from policy_service.errors import PolicyError
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore

_SUPERVISE_PERIOD_S = 0.2
_LONGEST_BACKOFF_S = 10.0

_logger = logging.getLogger(__name__)


class Launcher:
    """One run of the system. Use it from the main thread: it takes over the signals.

    Args:
        config: The whole configuration.
        reporter: Told of every step.
    """

    def __init__(self, config: SystemConfig, reporter: Reporter) -> None:
        self._config = config
        self._reporter = reporter
        self._log_dir = config.state_dir / "logs"
        self._redis = None if config.redis.url else self._private_redis()
        self._ray = RayRuntime(config.ray, num_cpus_needed(config), self._log_dir)
        self._serve = ServeRuntime(config)
        self._signals = StopSignals(self._force)

    def run(self) -> None:
        """Start, serve until a signal asks to stop, and stop.

        Raises:
            ClusterError: If a step fails; nothing is left running.
            ModelError: If the model cannot be had.
        """
        self._signals.install()
        with ExitStack() as stack:
            try:
                self._start(stack)
                self._supervise()
            except StopRequested:
                self._reporter.say("Stopping; once more to stop at once.")
            finally:
                self._signals.begin_stop()

    def _start(self, stack: ExitStack) -> None:
        config = self._config
        check_port_free(config.host, config.port)
        self._check_named()
        model = resolve_model(config.model, config.cache_dir, self._reporter)
        self._check_drafters(model)
        self._start_redis(stack)
        self._start_ray(stack)
        self._deploy(stack, model)
        redis_words = f"private, in {config.state_dir}" if self._redis else "the one you named"
        ray_words = "private" if self._ray.is_private else str(config.ray.address)
        self._reporter.say(ready_text(config, model.name, redis_words, ray_words))
        self._reporter.say(f"Logs: {self._ray.session_logs or 'with Ray'}, {self._log_dir}")

    def _check_named(self) -> None:
        """Look for the Redis and the Ray that were named, before anything that takes long."""
        if self._redis is None:
            with self._reporter.task("Asking Redis"):
                check_redis(self._redis_config)
        if self._config.ray.address:
            check_reachable(self._config.ray.address)

    def _check_drafters(self, model: ModelFolder) -> None:
        if needs_check(self._config.drafters):
            with self._reporter.task("Checking the drafters"):
                check_drafters(self._config.drafters, model)

    def _start_redis(self, stack: ExitStack) -> None:
        if self._redis is None:
            return
        stack.callback(self._stop_redis, self._redis)
        with self._reporter.task("Starting a private Redis"):
            self._redis.start()

    def _start_ray(self, stack: ExitStack) -> None:
        stack.callback(self._stop_ray)
        label = "Starting a private Ray" if self._ray.is_private else "Joining Ray"
        with self._reporter.task(label):
            self._ray.start()
        self._signals.install()  # Ray has put its own handler of SIGTERM in place

    def _deploy(self, stack: ExitStack, model: ModelFolder) -> None:
        from cluster.serve_app import build_app  # imports Ray, whose environment is now set

        stack.callback(self._stop_serve)
        with self._reporter.task("Deploying") as task:
            self._serve.deploy(build_app(self._config, self._redis_config, model))
            self._signals.install()
            self._serve.wait_until_ready(task.note)

    @property
    def _redis_config(self) -> RedisConfig:
        return RedisConfig(url=self._redis.url) if self._redis else self._config.redis

    def _private_redis(self) -> PrivateRedis:
        return PrivateRedis(self._config.state_dir, self._log_dir / "redis.log")

    def _supervise(self) -> None:
        """Keep the private Redis alive until a signal comes. It outlives any number of deaths."""
        backoff_s = 0.0
        while True:
            time.sleep(_SUPERVISE_PERIOD_S + backoff_s)
            if self._redis is None or self._redis.pid is not None:
                backoff_s = 0.0
                continue
            try:
                self._redis.restart()
                self._reporter.say("The private Redis had ended; it runs again, with its data.")
            except RedisStartError as error:
                backoff_s = min(2 * backoff_s + 1.0, _LONGEST_BACKOFF_S)
                _logger.warning("the private Redis does not start again: %s", error)
                self._reporter.say(f"The private Redis does not start again: {error}")

    def _stop_serve(self) -> None:
        with self._reporter.task("Letting requests end"):
            self._serve.stop()

    def _stop_ray(self) -> None:
        with self._reporter.task("Stopping Ray" if self._ray.is_private else "Leaving Ray"):
            self._ray.stop()

    def _stop_redis(self, server: PrivateRedis) -> None:
        with self._reporter.task("Stopping Redis"):
            server.stop()

    def _force(self) -> None:
        self._ray.kill()
        if self._redis is not None:
            self._redis.kill()


def check_redis(config: RedisConfig) -> None:
    """Check that a Redis answers.

    Raises:
        RedisUnreachableError: If it does not.
    """

    async def ping() -> None:
        store = RedisStore(config, timeout_s=config.connect_timeout_s)
        try:
            await store.ping()
        finally:
            await store.close()

    try:
        asyncio.run(ping())
    except PolicyError as error:
        raise RedisUnreachableError(f"Redis at {config.url}: {error}") from error
