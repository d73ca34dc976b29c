"""Topics that operators change at once: a name server and a slave's copy end with what the broker has.

The broker's table, its registration, the network of a name server and the name server are the real ones.  Chance
decides when a write of the table ends, whether it fails, and when connections break.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from broker.config.live_config import LiveConfig
from broker.out.master_address import MasterAddress
from broker.out.registration import Registration
from broker.role import Role
from broker.topic.topic_queue_mappings import TopicQueueMappings
from broker.topic.topics import TopicTable
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import DiskFull
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.client import RemotingClient
from tests.broker.rig import broker_config, store_config
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.network import Network
from tests.sim.cluster.process import Process
from tests.sim.cluster.scheduler import Scheduler
from tests.tiers import seeds

T = TypeVar("T")

_AT_ONCE: Final = 8
_TOPICS: Final = 12
_WAVES: Final = 30
# The broker registers again after this time, whether anything changed or not.
_PERIOD_S: Final = 10.0


class SlowDisk(Process):
    """A process whose threads take their time."""

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> Any:
        future = self.create_future()

        def run() -> None:
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.scheduler.rng.uniform(0.0005, 0.02), run)
        return future


class ChanceFile(ConfigFile):
    """File of a disk that is sometimes full."""

    def __init__(self, path: Path, scheduler: Scheduler) -> None:
        super().__init__(path)
        self._scheduler = scheduler
        self.may_fail = True

    def write(self, content: bytes) -> None:
        if self.may_fail and self._scheduler.rng.random() < 0.1:
            raise DiskFull("simulated")


class Run:
    def __init__(self, seed: int, folder: Path, settings: dict[str, Any]) -> None:
        self.scheduler = Scheduler(seed)
        network = Network(self.scheduler)
        self._network = network
        there = Machine("10.0.0.1", self.scheduler, network)
        self.name_server = NameServer(
            NamesrvConfig(bind_address=there.ip, listen_port=9876, kv_config_path=folder / "kv.json"), clock=there
        )
        self._there, self._here = there.start_process(), SlowDisk("broker", "10.0.0.2", self.scheduler, network)
        config = LiveConfig(
            broker_config(
                namesrv_addr="10.0.0.1:9876", broker_ip1="10.0.0.2", register_name_server_period=10_000, **settings
            ),
            store_config(folder),
        )
        self.file = ChanceFile(folder / "topics.json", self.scheduler)
        self.table = TopicTable(config, self.file, there)
        self.copy = TopicTable(config, ConfigFile(folder / "copy.json"), there, is_copy=True)
        self.mappings = TopicQueueMappings(ConfigFile(folder / "topicQueueMapping.json"), there, config.plan_version)
        self.registration = Registration(
            config, self.table, self.mappings, RemotingClient(), MasterAddress(Role(config.broker.broker_role))
        )
        self._there.call_soon(lambda: self._there.create_task(self.name_server.start()))
        self.scheduler.run_until(1.0)
        self._here.call_soon(self._start)
        self.scheduler.run_until(2.0)

    def _start(self) -> None:
        self.table.start()
        self.table.on_change.append(self.registration.topics_changed)
        self.registration.start()

    def play(self) -> None:
        rng = self.scheduler.rng
        for _ in range(_WAVES):
            for _ in range(rng.randint(1, _AT_ONCE)):
                # Within the time of a write or two.
                self._here.call_later(rng.uniform(0, 0.03), self._change)
            self.scheduler.run_until(self.scheduler.now + rng.choice([0.005, 0.05, 0.5]))
            if rng.random() < 0.2:
                self._here.call_soon(self.copy.replace, self.table.snapshot())
            if rng.random() < 0.1:
                for connection in self._network.between("10.0.0.1", "10.0.0.2"):
                    connection.reset()
        self.file.may_fail = False
        self._here.call_soon(self._change)
        # Two periods: the first may have begun before the last change.
        self.scheduler.run_until(self.scheduler.now + 2 * _PERIOD_S + 5.0)
        self.copy.replace(self.table.snapshot())

    def _change(self) -> None:
        rng = self.scheduler.rng
        topic = f"T{rng.randrange(_TOPICS)}"
        if rng.random() < 0.1:
            self.table.delete(topic)
        else:
            queues = rng.randint(1, 16)
            self.table.update([TopicConfig(topic, queues, queues)])

    def differences(self) -> list[str]:
        """Topics that the name server or the copy knows otherwise, or not."""
        wanted = {name: config.write_queue_nums for name, config in self.table.by_name.items()}
        routes = self.name_server.table.topics
        routed = {name: queues["broker-a"].write_queue_nums for name, queues in routes.items()}
        copied = {name: config.write_queue_nums for name, config in self.copy.by_name.items()}
        # Without deleteTopicWithBrokerRegistration a name server keeps the routes of deleted topics.
        stale = [name for name in wanted if routed.get(name) != wanted[name]]
        return [*self.scheduler.errors, *stale, *(name for name in wanted if copied.get(name) != wanted[name])]


_WAYS: Final[list[dict[str, Any]]] = [
    {},
    {"force_register": False},
    {"enable_single_topic_register": True},
    {"enable_split_registration": True, "split_registration_size": 5},
]


@pytest.mark.parametrize("settings", _WAYS, ids=lambda settings: "+".join(settings) or "default")
@pytest.mark.parametrize("seed", seeds(20))
def test_a_name_server_and_a_slave_end_with_the_brokers_topics(
    seed: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    run = Run(seed, tmp_path, settings)
    run.play()
    assert run.name_server.table.topics and run.table.data_version.counter > _WAVES
    assert not run.differences(), f"seed {seed}"
