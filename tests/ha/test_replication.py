"""A master's and a slave's store with real sockets between them."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ha import follower as follower_module
from ha.follower import Follower, MasterConnection
from ha.listener import SlaveConnection, SlaveListener
from ha.master_link import LinkRules
from ha.protocol import TransferReader, report
from ha.replicas import ReplicaRules, Replicas
from ha.slave_link import ReplicaLog, SlaveLink, SlaveRules
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from store.message_store import MessageStore
from store.replica.master_log import MasterLog
from tests.store.reading import read_queue
from tests.store.rig import Stores, message
from tests.tiers import seeds
from tests.waiting import until


class PlainLinks:
    """Plain links in the clear, with what was asked of them."""

    def __init__(self, log: ReplicaLog) -> None:
        self.log = log
        self.asked: list[str] = []

    async def new_link(self, address: str) -> SlaveLink:
        self.asked.append(address)
        return SlaveLink(SlaveRules(0.2, 5.0), self.log, SystemClock().monotonic())

    def context(self) -> None:
        return None

    def connected(self, connection: MasterConnection | None) -> None: ...

    def received(self, connection: MasterConnection) -> None: ...


@dataclass
class Pair:
    """A listening master, and the parts for its slave."""

    master: MessageStore
    log: MasterLog
    listener: SlaveListener
    address: str
    slaves: Stores
    acknowledged: list[int]

    def follower(self, store: MessageStore, failures: list[SprocketError] | None = None) -> Follower:
        log = store.replica()
        follower = Follower(PlainLinks(log), log, SystemClock(), (failures or []).append, retry_s=0.05)
        follower.follow(self.address)
        follower.start()
        return follower

    def send(self, count: int, seed: int = 1) -> None:
        choose = random.Random(seed)
        for _ in range(count):
            self.master.append([message(queue_id=choose.randrange(2), body=choose.randbytes(choose.randrange(1, 700)))])

    def is_copy(self, store: MessageStore) -> bool:
        return [read_queue(store, "Orders", queue_id) for queue_id in range(2)] == [
            read_queue(self.master, "Orders", queue_id) for queue_id in range(2)
        ]


@asynccontextmanager
async def pair(root: Path, *, is_awaited: bool = False, **rules: float) -> AsyncIterator[Pair]:
    stores = Stores(root / "master")
    master = stores.open()
    log = master.master_log()
    acknowledged: list[int] = []
    replicas = Replicas(ReplicaRules())
    settings = {"segment_bytes": 16 * 1024, "heartbeat_s": 0.2, "batch_bytes": 2048, "from_last_segment": False} | rules
    listener = SlaveListener(
        LinkRules(**settings),  # type: ignore[arg-type] # numbers of both kinds
        log, replicas, SystemClock(), lambda: acknowledged.append(max(replicas.offsets(), default=-1)),
        is_awaited=is_awaited,
    )  # fmt: skip
    log.on_append.append(listener.log_grew)
    port = await listener.bind("127.0.0.1", 0)
    await listener.start()
    slaves = Stores(root / "slave")
    try:
        yield Pair(master, log, listener, f"127.0.0.1:{port}", slaves, acknowledged)
    finally:
        listener.stop()
        await until(lambda: not listener.connections)
        stores.close_all()
        slaves.close_all()


class Calls(asyncio.Transport):
    """A slave's end that keeps what each call of the transport wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...


@pytest.mark.parametrize("is_awaited", [False, True])
async def test_a_piece_of_the_log_leaves_with_its_head(tmp_path: Path, is_awaited: bool) -> None:
    async with pair(tmp_path, is_awaited=is_awaited) as it:
        connection, calls = SlaveConnection(it.listener), Calls()
        connection.connection_made(calls)
        connection.data_received(report(0))
        for _ in range(3):
            it.send(1)
            if not is_awaited:
                await asyncio.sleep(0)
        connection.connection_lost(None)
        pieces = [TransferReader().feed(written) for written in calls.written]
        assert [len(piece) for piece in pieces] == [1, 1, 1]
        assert b"".join(bytes(piece[0].content) for piece in pieces) == bytes(it.log.piece_at(0, 1 << 20) or b"")


async def test_a_slave_has_what_the_master_appends_and_says_so(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        store = it.slaves.open()
        follower = it.follower(store)
        for turn in range(10):
            it.send(30, turn)
            await asyncio.sleep(0)
        await until(lambda: it.listener.replicas.offsets() == [it.master.wrote_offset])
        assert it.is_copy(store)
        assert it.acknowledged == sorted(it.acknowledged)
        assert it.listener.connections[0].link.lag_bytes() == 0
        follower.stop()
        await until(lambda: not it.listener.connections)
        assert it.listener.replicas.offsets() == []


async def test_a_slave_that_comes_and_goes_catches_up(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        it.send(3)
        store = it.slaves.open()
        for turn in range(6):
            follower = it.follower(store)
            await until(lambda: it.listener.connections)
            it.send(40, turn)
            if turn % 2:
                await asyncio.sleep(0.02)
            follower.stop()
            it.send(5, turn)
            if turn == 3:
                it.slaves.crash(store)
                store = it.slaves.open()
        follower = it.follower(store)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        assert it.is_copy(store)
        follower.stop()


async def test_a_follower_stops_at_whatever_step_it_is(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        store = it.slaves.open()
        before = asyncio.all_tasks()
        for steps in range(40):
            follower = it.follower(store)
            for _ in range(steps):
                await asyncio.sleep(0)
            follower.stop()
            await until(lambda: asyncio.all_tasks() <= before, 10)


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:", "127.0.0.1:99999999999", "a..b:1", f"{'a' * 70}:1"])
async def test_a_slave_that_was_told_no_address_follows_once_it_is_told_one(tmp_path: Path, address: str) -> None:
    async with pair(tmp_path) as it:
        it.send(3)
        store = it.slaves.open()
        links = PlainLinks(store.replica())
        follower = Follower(links, links.log, SystemClock(), lambda _: None, retry_s=0.05)
        follower.follow(address)
        follower.start()
        await until(lambda: links.asked)
        follower.follow(it.address)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        follower.stop()


@pytest.mark.parametrize("read_bytes", [1, 700, 5000])
async def test_a_slave_reads_on_when_more_comes_than_it_takes_at_once(
    tmp_path: Path, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_module, "_MAX_READ_BYTES", read_bytes)
    async with pair(tmp_path) as it:
        it.send(40)
        store = it.slaves.open()
        follower = it.follower(store)
        it.send(40)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        assert it.is_copy(store)
        follower.stop()


async def test_a_slave_of_another_log_is_sent_away_and_changes_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        it.send(3)
        store = it.slaves.open()
        for _ in range(40):
            store.append([message(body=bytes(300))])
        follower = it.follower(store)
        await asyncio.sleep(0.3)
        assert it.listener.replicas.offsets() == []
        assert store.max_offset("Orders", 0) == 40
        follower.stop()


@pytest.mark.parametrize("seed", seeds(5))
async def test_garbage_acknowledges_nothing_and_hurts_nobody(tmp_path: Path, seed: int) -> None:
    async with pair(tmp_path) as it:
        it.send(10)
        store = it.slaves.open()
        follower = it.follower(store)
        await until(lambda: it.listener.connections)
        host, _, port = it.address.partition(":")
        choose = random.Random(seed)
        for _ in range(10):
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(choose.randbytes(choose.randrange(1, 200)))
                await asyncio.sleep(0.005)
        it.send(10)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        await until(lambda: len(it.listener.connections) == 1)
        await until(lambda: it.listener.replicas.offsets() == [it.master.wrote_offset])
        follower.stop()


@pytest.mark.parametrize("content", [b"", bytes(3)])
async def test_silent_connections_keep_no_slave_out(tmp_path: Path, content: bytes) -> None:
    async with pair(tmp_path) as it:
        it.send(10)
        host, _, port = it.address.partition(":")
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(70)]
        for _, writer in strangers:
            writer.write(content)
        await until(lambda: strangers[5][0].at_eof())
        store = it.slaves.open()
        follower = it.follower(store)
        await until(lambda: store.wrote_offset == it.master.wrote_offset)
        assert len(it.listener.connections) == 64
        follower.stop()
        for _, writer in strangers:
            writer.close()


async def test_a_slave_that_does_not_read_costs_a_bounded_buffer(tmp_path: Path) -> None:
    async with pair(tmp_path, batch_bytes=32 * 1024) as it:
        for _ in range(60):
            it.master.append([message(body=bytes(10_000)) for _ in range(30)])
        host, _, port = it.address.partition(":")
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # machines give a socket up to tens of MiB
            lazy.connect((host, int(port)))
            lazy.sendall(report(0))
            await until(lambda: it.listener.connections and it.listener.connections[0].link.sent_bytes)
            await asyncio.sleep(0.2)
            assert it.listener.connections[0].link.sent_bytes < 14 << 20
            store = it.slaves.open()
            follower = it.follower(store)
            await until(lambda: store.wrote_offset == it.master.wrote_offset)
            follower.stop()
