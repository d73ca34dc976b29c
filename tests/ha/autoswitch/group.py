"""A master and a slave that speak RocketMQ's protocol of controller mode: two stores with real sockets between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ha.autoswitch.master_link import AutoSwitchRules
from ha.autoswitch.messages import SlaveHandshake
from ha.autoswitch.slave_link import AutoSwitchReplica, AutoSwitchSlave, OwnEpochs
from ha.epochs.epoch_history import Epoch, EpochHistory
from ha.follower import Follower, MasterConnection
from ha.listener import SlaveListener
from ha.master_link import LinkRules
from ha.replicas import ReplicaRules, Replicas
from ha.slave_link import SlaveLink, SlaveRules
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from store.message_store import MessageStore
from store.replica.replica_log import StoreReplicaLog
from tests.ha.autoswitch.ends import OWN, history
from tests.store.rig import Stores, message
from tests.waiting import until


class Epochs:
    """The history of one log, in memory."""

    def __init__(self, *epochs: tuple[int, int]) -> None:
        self.history = history(*epochs)

    def replace(self, history: EpochHistory) -> None:
        self.history = history


class Links:
    """Links of controller mode, in the clear."""

    def __init__(self, log: StoreReplicaLog, epochs: OwnEpochs, handshake: SlaveHandshake) -> None:
        self.log = log
        self._replica = AutoSwitchReplica(lambda: handshake, epochs)

    async def new_link(self, address: str) -> SlaveLink:
        return AutoSwitchSlave(SlaveRules(0.2, 5.0, 16 * 1024), self.log, self._replica, SystemClock().monotonic())

    def context(self) -> None:
        return None

    def connected(self, connection: MasterConnection | None) -> None: ...

    def received(self, connection: MasterConnection) -> None: ...


@dataclass
class Group:
    """A master with its epochs, listening, and the directory of a slave."""

    master: MessageStore
    epochs: Epochs
    listener: SlaveListener
    address: str
    slaves: Stores

    def send(self, count: int, body: bytes = b"x") -> None:
        for number in range(count):
            self.master.append([message(queue_id=0, body=body + str(number).encode() * 100)])

    def begin(self, number: int) -> None:
        self.epochs.history = self.epochs.history.begun(Epoch(number, self.master.wrote_offset))

    def follower(
        self,
        store: MessageStore,
        epochs: OwnEpochs,
        failures: list[SprocketError] | None = None,
        *,
        is_learner: bool = False,
    ) -> Follower:
        return follow(self.address, store, epochs, failures, is_learner=is_learner)


@asynccontextmanager
async def group(root: Path) -> AsyncIterator[Group]:
    stores, slaves = Stores(root / "master"), Stores(root / "slave")
    master, epochs = stores.open(), Epochs((1, 0))
    log = master.master_log()
    listener = SlaveListener(
        LinkRules(heartbeat_s=0.2, batch_bytes=2048, segment_bytes=16 * 1024), log, Replicas(ReplicaRules()),
        SystemClock(), lambda: None, autoswitch=AutoSwitchRules(lambda: OWN, lambda: epochs.history),
    )  # fmt: skip
    log.on_append.append(listener.log_grew)
    port = await listener.bind("127.0.0.1", 0)
    await listener.start()
    try:
        yield Group(master, epochs, listener, f"127.0.0.1:{port}", slaves)
    finally:
        listener.stop()
        await until(lambda: not listener.connections)
        stores.close_all()
        slaves.close_all()


def follow(
    address: str,
    store: MessageStore,
    epochs: OwnEpochs,
    failures: list[SprocketError] | None = None,
    *,
    is_learner: bool = False,
) -> Follower:
    """Let a slave with this store follow the master at `address`."""
    log = store.replica()
    links = Links(log, epochs, SlaveHandshake(2, is_learner=is_learner))
    failed = [].append if failures is None else failures.append
    follower = Follower(links, log, SystemClock(), failed, retry_s=0.05)
    follower.follow(address)
    follower.start()
    return follower
