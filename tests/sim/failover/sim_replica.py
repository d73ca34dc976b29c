"""One broker process under controllers: the real broker, with simulated clock, network, log and epochs.

Its small tables are files of the real disk, in a folder of the test: they survive everything.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

from broker.auth import replica_identity
from broker.config.broker_config import BrokerConfig
from broker.controller.membership import Membership, join_group
from broker.controller.replica import ControlledReplica
from broker.core import BrokerCore
from broker.server import Broker
from broker.service import Service
from ha.greeting import Credentials
from sprocket.common.errors import SprocketError
from store.config.store_config import FlushDiskType, StoreConfig
from store.message_store import MessageStore
from tests.sim.cluster.machine import Machine, Threads
from tests.sim.cluster.process import Process
from tests.sim.cluster.profile import HA_PORT, LISTEN_PORT
from tests.sim.controllers.sim_controller import PORT

CLUSTER: Final = "Simulated"
GROUP: Final = "broker-a"
# Where the broker makes its store, and where parts of it make their nonces and ids.
_STORE: Final = "broker.parts.MessageStore"
_CREDENTIALS: Final = (
    "broker.parts.credentials",
    "broker.replication.master_sessions.credentials",
    "broker.slave.slave_sessions.credentials",
)


@dataclass(frozen=True)
class Mode:
    """What a run's group promises; without `keeps_all` an election may lose acknowledged messages."""

    name: str
    keeps_all: bool
    in_sync_replicas: int = 1
    all_ack: bool = False
    is_sync_flush: bool = False
    has_lite: bool = False  # lite topics, which expire soon

    def store_config(self, folder: Path) -> StoreConfig:
        """The store of one replica, with small files and short times."""
        return StoreConfig(
            store_path_root_dir=folder,
            mapped_file_size_commit_log=16 * 1024,
            mapped_file_size_consume_queue=20 * 64,
            flush_disk_type=FlushDiskType.SYNC_FLUSH if self.is_sync_flush else FlushDiskType.ASYNC_FLUSH,
            in_sync_replicas=self.in_sync_replicas,
            min_in_sync_replicas=self.in_sync_replicas,
            all_ack_in_sync_state_set=self.all_ack,
            message_index_enable=False,
            timer_wheel_enable=False,
            ha_max_time_slave_not_catchup=500,
            ha_send_heartbeat_interval=150,
            ha_housekeeping_interval=4_000,
            slave_timeout=1_500,
            sync_flush_timeout=1_500,
            enable_lmq=self.has_lite,
            enable_multi_dispatch=self.has_lite,
        )


class SimReplica:
    """From the start of the process to its end, which comes without a word."""

    def __init__(self, machine: Machine, mode: Mode, controllers: Sequence[str], folder: Path) -> None:
        """`controllers` are the addresses of their machines; `folder` holds the broker's tables."""
        self.machine = machine
        self.process = machine.start_process()
        self.failure: SprocketError | None = None
        self.is_serving = False
        self.broker: Broker | None = None
        self.membership: Membership | None = None
        self._rng = random.Random(machine.scheduler.rng.random())
        self._threads = Threads(machine, self.process)
        config = BrokerConfig(
            broker_name=GROUP,
            broker_cluster_name=CLUSTER,
            broker_ip1=machine.ip,
            broker_ip2=machine.ip,
            bind_address=machine.ip,
            listen_port=LISTEN_PORT,
            ha_listen_port=HA_PORT,
            namesrv_addr="",
            enable_controller_mode=True,
            controller_addr=";".join(f"{ip}:{PORT}" for ip in controllers),
            check_sync_state_set_period=200,
            sync_broker_metadata_period=1_000,
            controller_heart_beat_timeout_mills=3_000,
            lite_ttl_check_interval=3_000,
            lite_event_check_interval=1_000,
            min_lite_ttl=1_000,
        )
        self.process.call_soon(self._begin, config, mode.store_config(folder))

    def _begin(self, config: BrokerConfig, store: StoreConfig) -> None:
        # An error that nobody foresaw is a bug, and ends the run.
        self.process.create_task(self._start(config, store)).add_done_callback(lambda task: task.result())

    async def _start(self, config: BrokerConfig, store: StoreConfig) -> None:
        _OF_PROCESS[self.process] = self
        self.broker = Broker(
            config, store, clock=self.machine, disk=self.machine.disk, on_fatal=self._fail,
            random_below=self._rng.randrange, manage=self._join, lease_now=self.machine.monotonic,
        )  # fmt: skip
        try:
            await self.broker.start()
        except SprocketError as error:
            self._fail(error)
            return
        self.is_serving = True

    def _join(self, controlled: ControlledReplica) -> Service:
        service = join_group(controlled)
        assert isinstance(service, Membership)
        self.membership = service
        return service

    def _fail(self, error: SprocketError) -> None:
        self.failure = error
        self.is_serving = False

    def new_store(self, config: StoreConfig, **others: Any) -> MessageStore:
        """Make a store whose threads are events of this process."""
        return MessageStore(config, **{**others, "notify": self._threads.notify, "workers": self._threads.worker})

    def credentials(self, core: BrokerCore, access: Any = None) -> Credentials:
        """Make credentials whose nonces come from the seed."""
        return replica_identity.credentials(core, access, self._rng.randbytes)

    @property
    def is_leading(self) -> bool:
        """Whether this broker has the master's role and can acknowledge."""
        return self.is_serving and self.broker is not None and self.broker.waits.may_acknowledge


_OF_PROCESS: Final[dict[Process, SimReplica]] = {}


def _own() -> SimReplica:
    return _OF_PROCESS[cast(Process, asyncio.get_running_loop())]


@contextmanager
def simulated() -> Iterator[None]:
    """Let brokers that are made in simulated processes take their threads and nonces from there."""
    with ExitStack() as stack:
        stack.enter_context(patch(_STORE, lambda config, **others: _own().new_store(config, **others)))
        for name in _CREDENTIALS:
            stack.enter_context(patch(name, lambda core, access=None: _own().credentials(core, access)))
        # Tables are files of the real disk, which loses no power here.
        stack.enter_context(patch("os.fsync", lambda _: None))
        try:
            yield
        finally:
            _OF_PROCESS.clear()
