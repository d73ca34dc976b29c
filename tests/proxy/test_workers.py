"""A proxy of several processes: clients whose connections end at different workers, and workers that die."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted, bound
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.compat.ports import free_port
from tests.metrics.prometheus_page import scrape_here
from tests.proxy.rig import GrpcClient, consumer_settings, create_group, create_topic, handle_of
from tests.waiting import until

_WORKERS = 2
# Of so many connections all end at one worker once in 2 ** 11 runs.
_CONNECTIONS = 12
# State in /proc/net/tcp, see tcp_states.h of Linux.
_ESTABLISHED = "01"
_SETTINGS: dict[str, object] = {
    "remotingListenPort": 0,
    "defaultInvisibleTimeMills": 3000, "renewAheadTimeMillis": 2500, "renewSchedulePeriodMillis": 100,
    "grpcShutdownTimeSeconds": 2,
    "grpcClientConsumerMinLongPollingTimeoutMillis": 100,
}  # fmt: skip


class _Proxy:
    """`mqproxy` of several processes."""

    def __init__(self, broker: Broker, folder: Path, port: int = 0, **more: object) -> None:
        keys = {"grpcServerPort": port, "bindAddress": "127.0.0.1", "proxyProcesses": _WORKERS, **_SETTINGS, **more}
        command = [*bound("sprocket_cli", "proxy"), "-n", broker.namesrv, "--json"]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        self.process = ChildProcess("proxy", command, folder)
        self.process.launch()
        self.facts: dict[str, Any] = self.process.facts(90)

    @property
    def pids(self) -> list[int]:
        """The workers that run now."""
        return _children(self.process.pid)

    def clients(self, client_id: str) -> list[GrpcClient]:
        """One client with many connections."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        address = f"127.0.0.1:{self.facts['port']}"
        channels = (grpc.aio.insecure_channel(address, options=options) for _ in range(_CONNECTIONS))
        return [GrpcClient(0, client_id, channel) for channel in channels]


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    properties = {"enableLmq": "true", "enableMultiDispatch": "true"}
    with Broker(tmp_path_factory.mktemp("broker"), properties=properties) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Proxy]:
    started = _Proxy(broker, tmp_path_factory.mktemp("proxy"))
    yield started
    started.process.end(signal.SIGTERM)


@contextlib.asynccontextmanager
async def _connected(proxy: _Proxy, client_id: str) -> AsyncIterator[list[GrpcClient]]:
    clients = proxy.clients(client_id)
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


def _heartbeat(group: str) -> wire.HeartbeatRequest:
    return wire.HeartbeatRequest(group=wire.Resource(name=group), client_type=wire.PUSH_CONSUMER)


def _subscribed(parent: str, group: str, lite: str) -> wire.SyncLiteSubscriptionRequest:
    return wire.SyncLiteSubscriptionRequest(
        action=wire.PARTIAL_ADD, topic=wire.Resource(name=parent), group=wire.Resource(name=group),
        lite_topic_set=[lite],
    )  # fmt: skip


async def test_notice_of_a_taken_lite_topic_reaches_the_worker_with_the_stream(broker: Broker, proxy: _Proxy) -> None:
    parent = await create_topic(broker, "LITE")
    attributes = {"+lite.bind.topic": parent, "+lite.sub.model": "Exclusive"}
    group = await create_group(broker, attributes=attributes)
    async with _connected(proxy, "lite-first") as first, _connected(proxy, "lite-second") as second:
        stream, answer = await first[0].report(consumer_settings(parent, group, wire.LITE_PUSH_CONSUMER))
        assert answer.status.code == wire.OK
        for number, client in enumerate(first):
            # The broker tells the worker that brought the newest subscription.
            for one in (client, second[0]):
                answer = await one.call("SyncLiteSubscription", _subscribed(parent, group, f"chat-{number}"))
                assert answer.status.code == wire.OK
            async with asyncio.timeout(20):
                told = await stream.read()
            assert told.notify_unsubscribe_lite_command.lite_topic == f"chat-{number}"


async def test_message_of_a_lite_topic_can_be_acknowledged_at_any_worker(broker: Broker, proxy: _Proxy) -> None:
    parent = await create_topic(broker, "LITE")
    group = await create_group(broker, attributes={"+lite.bind.topic": parent})
    async with _connected(proxy, "lite-any") as clients:
        stream, _ = await clients[0].report(consumer_settings(parent, group, wire.LITE_SIMPLE_CONSUMER))
        await clients[0].call("SyncLiteSubscription", _subscribed(parent, group, "chat"))
        for number, client in enumerate(clients):
            await client.send(parent, str(number), lite_topic="chat", message_type=wire.LITE)
            # Nothing comes before the one before is acknowledged.
            (received,) = await clients[0].messages(parent, group, 1, auto_renew=True)
            assert received.body == str(number).encode()
            await asyncio.sleep(0.6 if number < 2 else 0)  # the proxy alone knows the newest handle
            (entry,) = (await client.ack(parent, group, handle_of(received))).entries
            assert entry.status.code == wire.OK
        stream.cancel()


async def test_start_line_names_the_processes(proxy: _Proxy) -> None:
    assert proxy.facts["processes"] == _WORKERS and proxy.facts["serving"]
    assert sorted(proxy.facts["pids"]) == sorted(proxy.pids) and len(proxy.pids) == _WORKERS


def _connections_of(pid: int, port: int) -> int:
    """Return how many connections to `port` a process has."""
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    inodes = {row[9] for row in rows if row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port}
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += descriptor.readlink().name.removeprefix("socket:") in {f"[{inode}]" for inode in inodes}
    return found


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
async def test_workers_share_the_connections_of_each_port(broker: Broker, tmp_path: Path, mode: str) -> None:
    further = '[{"name": "lan", "port": 0}, {"name": "old", "port": 0, "protocol": "remoting"}]'
    page = free_port()  # the one after it is free too
    prom = {"metricsExporterType": "PROM", "metricsPromExporterPort": page, "proxyName": "p1"}
    proxy = _Proxy(broker, tmp_path, tlsServerMode=mode, listeners=further, **prom)
    writers = []
    try:
        ports = proxy.facts["listeners"]
        assert set(ports) == {"default", "lan", "remoting", "old"} and len(set(ports.values())) == 4
        for port in ports.values():
            opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * _CONNECTIONS)]
            writers += [writer for _, writer in opened]

            def is_shared(port: int = port) -> bool:
                counts = [_connections_of(pid, port) for pid in proxy.pids]
                return sum(counts) == 2 * _CONNECTIONS and all(counts)

            await until(is_shared, 10)
        for number in range(_WORKERS):
            ((_, labels, _),) = (await scrape_here(page + number))["rocketmq_proxy_up"].samples
            assert labels["node_id"] == f"p1-{number}"
    finally:
        for writer in writers:
            writer.close()
        proxy.process.end(signal.SIGTERM)


async def test_settings_of_one_connection_hold_for_all(broker: Broker, proxy: _Proxy) -> None:
    topic = await create_topic(broker)
    async with _connected(proxy, "settings") as clients:
        stream, _ = await clients[0].report(consumer_settings(topic, "group-settings"))
        answers = await asyncio.gather(*(client.call("Heartbeat", _heartbeat("group-settings")) for client in clients))
        assert [answer.status.code for answer in answers] == [wire.OK] * _CONNECTIONS
        stream.cancel()


async def test_renewed_messages_are_acknowledged_on_any_connection(broker: Broker, proxy: _Proxy) -> None:
    topic, group = await create_topic(broker), "group-renewed"
    async with _connected(proxy, "renewed") as clients:
        stream, _ = await clients[0].report(consumer_settings(topic, group))
        await clients[0].receive(topic, group, wait_s=0)
        for number in range(_CONNECTIONS):
            await clients[0].send(topic, f"m{number}")
        # One connection receives, and the others acknowledge: half of them at another worker.
        received = await clients[0].messages(topic, group, _CONNECTIONS, auto_renew=True, batch_size=32)
        assert len(received) == _CONNECTIONS
        await asyncio.sleep(5)  # each was renewed: brokers refuse the handles that the client has
        for client, message in zip(clients, received, strict=True):
            answer = await client.ack(topic, group, handle_of(message))
            assert answer.status.code == wire.OK, answer
        assert not await clients[0].messages(topic, group, 1, wait_s=0)
        stream.cancel()


async def test_end_of_a_client_releases_at_every_worker(broker: Broker, proxy: _Proxy) -> None:
    topic, group = await create_topic(broker), "group-ended"
    async with _connected(proxy, "ended") as clients, _connected(proxy, "other") as others:
        await clients[0].report(consumer_settings(topic, group))
        for client in clients:
            await client.receive(topic, group, wait_s=0)
        for client in clients:
            await clients[0].send(topic, "x")
            assert len(await client.messages(topic, group, 1, auto_renew=True, batch_size=1)) == 1
        request = wire.NotifyClientTerminationRequest(group=wire.Resource(name=group))
        assert (await clients[5].call("NotifyClientTermination", request)).status.code == wire.OK
        assert len(await others[0].messages(topic, group, _CONNECTIONS, wait_s=5, batch_size=32)) == _CONNECTIONS


async def test_client_that_calls_one_worker_lives_at_all(broker: Broker, tmp_path: Path) -> None:
    """The worker whose stream broke must not release what a client works on that calls another worker."""
    topic, group = await create_topic(broker), "group-alive"
    proxy = _Proxy(broker, tmp_path, clientLostTimeoutMillis=4000)
    try:
        async with _connected(proxy, "alive") as clients:
            streams = [(await client.report(consumer_settings(topic, group)))[0] for client in clients]
            for client in clients:
                await client.receive(topic, group, wait_s=0)
            for client in clients:
                await clients[0].send(topic, "x")
                assert len(await client.messages(topic, group, 1, auto_renew=True, batch_size=1)) == 1
            # A later call shows that the answers before it have arrived; else they go back when the connection breaks.
            await asyncio.sleep(1.2)
            for client in clients:
                assert (await client.call("Heartbeat", _heartbeat(group))).status.code == wire.OK
            await asyncio.sleep(0.5)
            for stream in streams:
                stream.cancel()
            for client in clients[1:]:
                await client.close()
            for _ in range(12):
                assert (await clients[0].call("Heartbeat", _heartbeat(group))).status.code == wire.OK
                await asyncio.sleep(1)
            # Twelve seconds, and none was released.
            assert not await clients[0].messages(topic, group, 1, wait_s=0)
    finally:
        proxy.process.end(signal.SIGTERM)


async def test_worker_that_is_killed_starts_again(broker: Broker, tmp_path: Path) -> None:
    topic, group = await create_topic(broker), "group-killed"
    proxy = _Proxy(broker, tmp_path)
    try:
        async with _connected(proxy, "killed") as clients:
            await clients[0].report(consumer_settings(topic, group))
            victim = proxy.pids[0]
            os.kill(victim, signal.SIGKILL)
            await until(lambda: len(proxy.pids) == _WORKERS and victim not in proxy.pids, 30)

            async def answers(client: GrpcClient) -> bool:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    return bool((await client.call("Heartbeat", _heartbeat(group))).status.code == wire.OK)
                return False

            # A connection of the dead worker is opened again; the new worker hears of the settings.
            await clients[1].report(consumer_settings(topic, group))
            limit = time.monotonic() + 30
            for client in clients:
                while not await answers(client):
                    assert time.monotonic() < limit
                    await asyncio.sleep(0.2)
        await until(lambda: "event=proxy_worker_started number=" in _log(proxy), 30)
        assert f"pid={victim} status=signal 9" in _log(proxy)
    finally:
        proxy.process.end(signal.SIGTERM)


async def test_stop_ends_workers_in_order(broker: Broker, tmp_path: Path) -> None:
    proxy = _Proxy(broker, tmp_path)
    pids = proxy.pids
    begin = time.monotonic()
    proxy.process.end(signal.SIGTERM)
    assert time.monotonic() - begin < 10
    assert not any(_runs(pid) for pid in pids)
    assert _log(proxy).count("event=proxy_stopped") == _WORKERS


def _log(proxy: _Proxy) -> str:
    return proxy.process.log.read_text(encoding="utf-8")


async def test_workers_end_with_their_supervisor(broker: Broker, tmp_path: Path) -> None:
    proxy = _Proxy(broker, tmp_path)
    pids = proxy.pids
    proxy.process.end(signal.SIGKILL)
    await until(lambda: not any(_runs(pid) for pid in pids), 20)


def _runs(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return False


async def test_port_of_another_proxy_is_refused(broker: Broker, proxy: _Proxy, tmp_path: Path) -> None:
    with pytest.raises(ProcessNotStarted, match=f"127.0.0.1:{proxy.facts['port']} cannot be listened on"):
        _Proxy(broker, tmp_path, proxy.facts["port"])
