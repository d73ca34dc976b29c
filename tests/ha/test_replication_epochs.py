"""Real stores in controller mode: brokers lead in turns over sockets, and a replaced master's tail is truncated."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.follower import Follower, MasterConnection
from ha.greeting import Credentials
from ha.hello import Identity
from ha.listener import SlaveListener
from ha.master_link import LinkRules
from ha.master_session import MasterSession, SessionRules
from ha.replicas import ReplicaRules, Replicas
from ha.slave_link import SlaveLink, SlaveRules
from ha.slave_session import SlaveSession
from sprocket.common.clock import SystemClock
from sprocket.common.errors import RestartNeeded, SprocketError
from store.disk.disk import RealDisk
from store.message_store import MessageStore
from store.replica.replica_log import StoreReplicaLog
from tests.store.reading import read_queue
from tests.store.rig import Stores, message
from tests.waiting import until


class Replica:
    """One broker's store with its epochs, which leads or follows."""

    def __init__(self, root: Path, broker_id: int) -> None:
        self.broker_id = broker_id
        self.stores = Stores(root)
        self._path = root / "epochFileCheckpoint"
        self.failures: list[SprocketError] = []
        self.newer: list[int] = []
        self.open()

    def open(self) -> None:
        self.store: MessageStore = self.stores.open()
        self.epochs = EpochFile(RealDisk(), self._path, self.store.wrote_offset)

    def restart(self) -> None:
        self.store.shutdown()
        self.open()

    def append(self, *bodies: bytes) -> None:
        for body in bodies:
            self.store.append([message(body=body * 30)])

    def bodies(self) -> list[bytes]:
        return [bytes(record.body)[:3] for record in read_queue(self.store)]

    @property
    def credentials(self) -> Credentials:
        return Credentials(Identity("C", "a", self.broker_id, f"store{self.broker_id}"), bytes, b"secret")

    @asynccontextmanager
    async def leading(self, epoch: int) -> AsyncIterator["Master"]:
        self.epochs.begin(Epoch(epoch, self.store.wrote_offset))
        master = Master(self, epoch)
        port = await master.listener.bind("127.0.0.1", 0)
        await master.listener.start()
        master.address = f"127.0.0.1:{port}"
        try:
            yield master
        finally:
            master.listener.stop()
            await until(lambda: not master.listener.connections)

    @asynccontextmanager
    async def following(self, master: "Master") -> AsyncIterator[Follower]:
        log = self.store.replica()
        follower = Follower(SessionLinks(self, log), log, SystemClock(), self.failures.append, retry_s=0.05)
        follower.follow(master.address)
        follower.start()
        try:
            yield follower
        finally:
            follower.stop()
            log.lead()


class Master:
    """The port for slaves of a replica that leads, `ha.listener.Sessions`."""

    def __init__(self, replica: Replica, epoch: int) -> None:
        self.rules: SessionRules | None = SessionRules(
            replica.credentials, epoch, epochs=replica.epochs, on_newer_epoch=replica.newer.append
        )
        self.before_log: Callable[[MasterSession], None] = lambda _: None
        self.replicas = Replicas(ReplicaRules())
        self.address = ""
        log = replica.store.master_log()
        self.listener = SlaveListener(
            LinkRules(segment_bytes=16 * 1024, heartbeat_s=0.2), log, self.replicas, SystemClock(), lambda: None,
            sessions=self,
        )  # fmt: skip
        log.on_append.append(self.listener.log_grew)


class SessionLinks:
    """Sessions of a slave in controller mode, in the clear."""

    def __init__(self, replica: Replica, log: StoreReplicaLog) -> None:
        self._replica = replica
        self._log = log

    async def new_link(self, address: str) -> SlaveLink:
        it, now = self._replica, SystemClock().monotonic()
        return SlaveSession(
            SlaveRules(0.2, 5.0), self._log, it.credentials, lambda _: None, now, epochs=it.epochs,
            is_learner=it.broker_id == 9,
        )  # fmt: skip

    def context(self) -> None:
        return None

    def connected(self, connection: MasterConnection | None) -> None: ...

    def received(self, connection: MasterConnection) -> None: ...


def history(*epochs: tuple[int, int]) -> EpochHistory:
    return EpochHistory(Epoch(*epoch) for epoch in epochs)


async def test_the_tail_of_a_replaced_master_is_kept_aside_and_truncated(tmp_path: Path) -> None:
    first, second = Replica(tmp_path / "first", 1), Replica(tmp_path / "second", 2)
    async with first.leading(1) as master:
        first.append(b"a-1", b"a-2")
        async with second.following(master):
            await until(lambda: second.store.wrote_offset == first.store.wrote_offset)
            master.replicas.check(first.store.wrote_offset, 0.0)
            await until(lambda: master.replicas.in_sync() == {2})
        common = first.store.wrote_offset
        first.append(b"x-1", b"x-2", b"x-3")  # nobody has these
    assert second.epochs.history == history((1, 0))

    async with second.leading(2) as master:
        second.append(b"b-1", b"b-2")
        async with first.following(master):
            await until(lambda: first.failures)
        assert isinstance(first.failures[0], RestartNeeded)
        first.restart()
        assert first.bodies() == [b"a-1", b"a-2"]
        assert first.epochs.history == history((1, 0))
        assert list((tmp_path / "first" / "cut").iterdir())
        async with first.following(master):
            await until(lambda: first.store.wrote_offset == second.store.wrote_offset)
    assert first.bodies() == second.bodies() == [b"a-1", b"a-2", b"b-1", b"b-2"]
    assert first.epochs.history == second.epochs.history == history((1, 0), (2, common))

    # The first one leads again, and the second refuses to follow an older epoch than it knows.
    async with first.leading(5) as master, second.following(master):
        first.append(b"c-1")
        await until(lambda: second.store.wrote_offset == first.store.wrote_offset)
    assert second.epochs.history == first.epochs.history
    old = Replica(tmp_path / "old", 3)
    async with old.leading(4) as master, second.following(master):
        await until(lambda: old.newer)
    assert old.newer[0] == 5
    for replica in (first, second, old):
        replica.stores.close_all()


async def test_a_log_without_anything_in_common_is_truncated_whole(tmp_path: Path) -> None:
    """The first master of a new group died with messages that its slave never had."""
    first, second = Replica(tmp_path / "first", 1), Replica(tmp_path / "second", 2)
    async with first.leading(1):
        first.append(b"x-1", b"x-2")
    async with second.leading(2) as master:
        second.append(b"b-1")
        async with first.following(master):
            await until(lambda: first.failures)
        first.restart()
        assert (first.store.wrote_offset, first.epochs.history) == (0, EpochHistory())
        async with first.following(master):
            await until(lambda: first.store.wrote_offset == second.store.wrote_offset)
    assert first.bodies() == [b"b-1"]
    assert first.epochs.history == history((2, 0))
    assert list((tmp_path / "first" / "cut").iterdir())
    for replica in (first, second):
        replica.stores.close_all()


async def test_a_learner_has_the_log_and_is_never_in_sync(tmp_path: Path) -> None:
    first, learner = Replica(tmp_path / "first", 1), Replica(tmp_path / "learner", 9)
    async with first.leading(1) as master:
        first.append(b"a-1")
        async with learner.following(master):
            await until(lambda: master.replicas.offsets() == [first.store.wrote_offset])
            master.replicas.check(first.store.wrote_offset, SystemClock().monotonic())
            assert master.replicas.in_sync() == frozenset()
            assert [one.link.is_learner for one in master.listener.connections] == [True]
    assert learner.bodies() == [b"a-1"]
    for replica in (first, learner):
        replica.stores.close_all()
