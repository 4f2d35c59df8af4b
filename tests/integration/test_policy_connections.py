"""The store over TLS, with access control, through sentinels and in a cluster: real servers."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from redis.asyncio import Redis

from cluster.redis_server import free_port
from policy_service.api import ArmCounts, CellKey, OutcomeBatch
from policy_service.errors import StoreUnavailableError
from policy_service.redis_pool.config import RedisConfig
from policy_service.redis_pool.store import RedisStore
from policy_service.store import Applied
from tests.integration.certificates import Authority
from tests.integration.proxies import Proxy
from tests.integration.redis_fixture import PASSWORD, QUOTED_PASSWORD, RedisProcess

pytestmark = pytest.mark.redis

KEY = CellKey("global", "a:4", "1")
RIGHTS = ("~banditserve:*", "+@read", "+@write", "+@connection", "+@scripting", "+time")
"""What a user needs; the README says so."""
EPOCH = int(time.time() // 600) * 600


def batch(sequence: int, model: str = "m") -> OutcomeBatch:
    return OutcomeBatch("r", "i", sequence, EPOCH, model, {KEY: ArmCounts(pulls=1)})


@asynccontextmanager
async def open_store(config: RedisConfig) -> AsyncIterator[RedisStore]:
    store = RedisStore(config)
    try:
        yield store
    finally:
        await store.close()


async def refusal(config: RedisConfig) -> str:
    """Return why a server that is there cannot be used."""
    async with open_store(config) as store:
        with pytest.raises(StoreUnavailableError) as caught:
            await store.ping()
    assert PASSWORD not in str(caught.value)
    return str(caught.value)


async def eventually_applied(store: RedisStore, sequence: int, model: str = "m") -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            result = await store.apply(batch(sequence, model))
            assert result.status in ("applied", "duplicate"), result
            return
        except StoreUnavailableError as error:
            reason = error
        await asyncio.sleep(0.05)
    raise reason


async def command(client: Redis, *words: str | int) -> Any:
    """Return the answer to a command that the client has no method for."""
    return await client.execute_command(*words)  # type: ignore[no-untyped-call]  # the package's own


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    process = RedisProcess(tmp_path)
    process.start()
    yield process
    process.stop()


def test_tls_with_certificates_of_both_sides(redis: RedisProcess, tmp_path: Path) -> None:
    ours, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "foreign")
    server, elsewhere = ours.sign("server"), ours.sign("elsewhere", "127.0.0.9")
    client, stranger = ours.sign("client"), foreign.sign("stranger")

    def context(cert: Path, key: Path) -> ssl.SSLContext:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ours.files.cert)
        tls.load_cert_chain(cert, key)
        tls.verify_mode = ssl.CERT_REQUIRED
        return tls

    async def test() -> None:
        async with Proxy(redis.port, context(server.cert, server.key)).running() as proxy:
            good = {
                "url": f"rediss://:{QUOTED_PASSWORD}@127.0.0.1:{proxy.port}",
                "tls_ca_file": ours.files.cert,
                "tls_cert_file": client.cert,
                "tls_key_file": client.key,
            }
            async with open_store(RedisConfig.model_validate(good)) as store:
                assert await store.apply(batch(1)) == Applied(1, "applied")
            for change, reason in (
                ({"tls_ca_file": foreign.files.cert}, "certificate verify failed"),
                ({"tls_ca_file": None}, "certificate verify failed"),
                ({"tls_cert_file": None, "tls_key_file": None}, ""),
                ({"tls_cert_file": stranger.cert, "tls_key_file": stranger.key}, ""),
                ({"tls_ca_file": tmp_path / "missing.pem"}, "No such file"),
            ):
                assert reason in await refusal(RedisConfig.model_validate({**good, **change}))
            unchecked = RedisConfig.model_validate({**good, "tls_ca_file": None, "tls_verify": 0})
            async with open_store(unchecked) as store:
                assert await store.apply(batch(1)) == Applied(1, "duplicate")
        wrong_name = Proxy(redis.port, context(elsewhere.cert, elsewhere.key))
        async with wrong_name.running() as proxy:
            url = f"rediss://:{QUOTED_PASSWORD}@127.0.0.1:{proxy.port}"
            reason = await refusal(RedisConfig.model_validate({**good, "url": url}))
            assert "IP address mismatch" in reason

    asyncio.run(test())


def test_a_user_with_no_more_rights_than_needed(redis: RedisProcess, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("first")

    async def test() -> None:
        async with Redis.from_url(redis.url) as admin:
            await command(admin, "ACL", "SETUSER", "policy", "on", ">first", *RIGHTS)
            config = RedisConfig(
                url=f"redis://127.0.0.1:{redis.port}", username="policy", password_file=secret
            )
            async with open_store(config) as store:
                await store.apply(batch(1))
                pool = await store.read("m", EPOCH)
                assert (await store.measure("m"))[EPOCH] > 0
                await store.move("m", EPOCH, [(KEY, CellKey("global", "b:4"))])
                await store.drop("m", EPOCH)
                assert await store.reset("m", pool.generation) == 1
                await command(admin, "ACL", "SETUSER", "policy", "resetpass", ">second")
                await command(admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                secret.write_text("second")
                await eventually_applied(store, 2)
            assert "invalid username-password" in await refusal(
                config.model_copy(update={"username": "other"})
            )
            async with open_store(config) as store:
                other = RedisStore(config, prefix="elsewhere")
                with pytest.raises(StoreUnavailableError, match=r"(?i)no permissions"):
                    await other.apply(batch(1))
                await other.close()

    asyncio.run(test())


def test_sentinels_name_the_new_primary_after_a_failover(tmp_path: Path) -> None:
    auth = f'masterauth "{PASSWORD}"'
    primary = RedisProcess(tmp_path / "primary", [auth])
    primary.start()
    replica = RedisProcess(
        tmp_path / "replica",
        [auth, f"replicaof 127.0.0.1 {primary.port}", "repl-diskless-sync-delay 0"],
    )
    replica.start()
    sentinel = RedisProcess(
        tmp_path / "sentinel",
        [
            f"sentinel monitor counts 127.0.0.1 {primary.port} 1",
            f'sentinel auth-pass counts "{PASSWORD}"',
            "sentinel down-after-milliseconds counts 300",
            "sentinel failover-timeout counts 3000",
        ],
        options=["--sentinel"],
    )
    sentinel.start()
    config = RedisConfig(
        url=f"redis+sentinel://:{QUOTED_PASSWORD}@127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}"
        "/counts",
        sentinel_password=SecretStr(PASSWORD),
    )

    async def test() -> None:
        async with open_store(config) as store, Redis.from_url(primary.url) as direct:
            await eventually_applied(store, 1)
            deadline = time.monotonic() + 15
            async with Redis.from_url(sentinel.url) as watcher:
                while not await watcher.sentinel_slaves("counts"):
                    assert time.monotonic() < deadline
                    await asyncio.sleep(0.1)
            assert await direct.wait(1, 5000) == 1
            primary.kill()
            await eventually_applied(store, 2)
            pool = await store.read("m", EPOCH)
            assert pool.epochs[EPOCH][KEY].pulls == 2
        async with Redis.from_url(replica.url) as promoted:
            assert (await promoted.role())[0] in (b"master", "master")

    try:
        asyncio.run(test())
    finally:
        for process in (sentinel, replica, primary):
            process.stop()


def test_a_cluster_of_three(tmp_path: Path) -> None:
    bus_ports = [free_port() for _ in range(3)]
    nodes = [
        RedisProcess(
            tmp_path / str(bus_port),
            [
                "cluster-enabled yes",
                f"cluster-port {bus_port}",  # by itself it is 10,000 above the other, or too high
                "cluster-require-full-coverage no",
                "cluster-node-timeout 2000",
            ],
        )
        for bus_port in bus_ports
    ]
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    config = RedisConfig(url=f"redis+cluster://:{QUOTED_PASSWORD}@{hosts}")

    async def test() -> None:
        await join([node.url for node in nodes], bus_ports[0])
        async with open_store(config) as store:
            models = [f"model{n}" for n in range(8)]
            for sequence in (1, 2):
                for model in models:
                    await eventually_applied(store, sequence, model)
            for model in models:
                pool = await store.read(model, EPOCH)
                assert pool.epochs[EPOCH][KEY].pulls == 2
                assert (await store.measure(model))[EPOCH] > 0
            held = [await num_keys(node.url) for node in nodes]
            assert all(held), f"models are spread over the nodes, found {held}"
            assert await store.reset(models[0], 0) == 1
            assert (await store.read(models[0], EPOCH)).epochs == {}
            nodes[2].kill()
            calls = (store.apply(batch(3, model)) for model in models)
            results = await asyncio.gather(*calls, return_exceptions=True)
            reached = [result for result in results if isinstance(result, Applied)]
            assert 0 < len(reached) < len(models), "each model needs its own node only"
            assert all(isinstance(r, Applied | StoreUnavailableError) for r in results), results

    try:
        for node in nodes:
            node.start()
        asyncio.run(test())
    finally:
        for node in nodes:
            node.stop()


async def join(urls: list[str], bus_port: int) -> None:
    """Make a cluster of nodes, the slots shared out; ``bus_port`` is the first one's."""
    clients = [Redis.from_url(url, decode_responses=True) for url in urls]
    bounds = [0, 5461, 10923, 16384]
    for n, client in enumerate(clients):
        await command(client, "CLUSTER", "ADDSLOTSRANGE", bounds[n], bounds[n + 1] - 1)
        await command(client, "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        port = clients[0].connection_pool.connection_kwargs["port"]
        await command(client, "CLUSTER", "MEET", "127.0.0.1", port, bus_port)
    deadline = time.monotonic() + 20
    for client in clients:
        while True:
            info = str(await command(client, "CLUSTER INFO"))
            shards = await command(client, "CLUSTER", "SLOTS")
            if "ok" in info and len(shards) == len(urls):
                break
            assert time.monotonic() < deadline, info
            await asyncio.sleep(0.05)
    for client in clients:
        await client.aclose()


async def num_keys(url: str) -> int:
    async with Redis.from_url(url) as client:
        return int(await client.dbsize())
