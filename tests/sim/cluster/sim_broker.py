"""One broker process: the real store and the real services of replication, on a simulated machine.

Clients reach `send` and `pull`; what they are told is what the send processor and the pull processor tell.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

from broker.config.live_config import LiveConfig
from broker.core import BrokerCore
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.out.master_address import MasterAddress
from broker.out.registration import Registration
from broker.periodic import Periodic
from broker.replicated_table import ReplicatedTable
from broker.replication.master_sessions import MasterSessions
from broker.replication.replicated_tables import ReplicatedTables
from broker.replication.replication import Replication
from broker.replication.safe_changes import SafeChanges
from broker.replication.table_stream import TableSender
from broker.role import Role
from broker.service import Service
from broker.slave.master_follower import MasterFollower
from broker.slave.slave_sessions import SlaveSessions
from ha.greeting import Credentials
from ha.hello import Identity
from ha.table_queue import TableContent
from sprocket.common.errors import SprocketError, StoreError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.server import RemotingServer
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from store.message_store import MessageStore, PendingMessage
from store.record.record import decode
from tests.sim.cluster.machine import Machine, Threads
from tests.sim.cluster.profile import HA_PORT, LISTEN_PORT, TOPIC, Profile
from tests.sim.cluster.sim_schedules import SetReply, SimSchedules

_SAVE_S: Final = 1.0
_HOST: Final = bytes((10, 0, 0, 9)) + (5432).to_bytes(4, "big")
OK: Final = "SEND_OK"
# (outcome, [(queue offset, physical offset, size)])
SendReply = Callable[[str, list[tuple[int, int, int]]], None]
# [(queue offset, end in the log, body)], or None if it is not served
PullReply = Callable[[list[tuple[int, int, bytes]] | None], None]


class SimTables:
    """In place of `ReplicatedTables`: consumer offsets, and one topic for each thousand bytes of the log."""

    def __init__(self, store: MessageStore, error: Callable[[str], object], others: Sequence[ReplicatedTable]) -> None:
        self._store = store
        self._error = error
        self._known = 0
        self.consumer_offsets = None
        self.topics = ReplicatedTable(
            "topics", None, self._count, lambda: b"%d" % self._count(), self._prepare, is_early=True
        )
        self.all: list[ReplicatedTable] = [self.topics, *others]

    def _count(self) -> int:
        return self._store.wrote_offset // 1000

    def _prepare(self, content: bytes) -> Callable[[], None]:
        def apply() -> None:
            self._known = int(content)

        return apply

    def look(self, *_: object) -> None:
        """A slave has more of the log: it knows all topics of it."""
        if self._known < self._count():
            self._error(f"the log ends at {self._store.wrote_offset}, known are {self._known} topics")

    def install(self, given: Sequence[TableContent]) -> None:
        """A master that lost all takes the tables of the slave that gave the log."""
        (topics, *others) = given
        if (topics.name, int(topics.content)) != ("topics", self._count()):
            self._error(f"the log ends at {self._store.wrote_offset}, and the slave gave {given}")
        for one in others:
            table = self.named(one.name)
            assert table is not None
            table.apply(one.content)

    def named(self, name: str) -> ReplicatedTable | None:
        """The table with a name."""
        return next((table for table in self.all if table.name == name), None)


class LogOffsets:
    """In place of consumer offsets: the end of the log, which a slave must have reached when it hears of it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._told = -1

    def take_deltas(self) -> dict[str, dict[int, int]]:
        end = self._store.wrote_offset
        if end == self._told:
            return {}
        self._told = end
        return {"log": {0: end}}

    def forget_deltas(self) -> None:
        self._told = -1

    def merge(self, changes: dict[str, dict[int, int]]) -> None:
        end = self._store.wrote_offset
        assert changes["log"][0] <= end, f"told of {changes['log'][0]}, the log ends at {end}"


class SimBroker:
    """From the start of the process to its end, which comes without a word."""

    def __init__(self, machine: Machine, profile: Profile, group: int, broker_id: int) -> None:
        self.machine = machine
        self.process = machine.start_process()
        self.is_master = broker_id == 0
        self.is_serving = False
        self.began_at = machine.scheduler.now
        self.refusal: SprocketError | None = None
        self.failure: SprocketError | None = None
        self._threads = Threads(machine, self.process)
        self._config = LiveConfig(profile.broker_config(group, broker_id, machine.ip), profile.store_config())
        self.store = MessageStore(
            self._config.store,
            clock=machine,
            notify=self._threads.notify,
            disk=machine.disk,
            workers=self._threads.worker,
        )
        self._role = Role(self._config.broker.broker_role)
        self.schedules = SimSchedules(machine, self.process, self.store) if profile.has_schedule else None
        self.waits = ConfirmWaits(self.store, machine, self.process.call_later, self._role.kind)
        self.replication: Replication | None = None
        self.following: MasterFollower | None = None
        self.sessions: MasterSessions | None = None
        # Called in the process once the store is open and before anybody is served.
        self.on_open: Callable[[SimBroker], None] = lambda broker: None
        # Called once the tables are loaded.
        self.on_tables: Callable[[SimBroker], None] = lambda broker: None
        # Called once a master takes messages: at once, or when it has back what it lost.
        self.on_lead: Callable[[SimBroker], None] = lambda broker: None
        self.process.call_soon(self._begin)

    def _begin(self) -> None:
        # An error that nobody foresaw is a bug, and ends the run.
        self.process.create_task(self._start()).add_done_callback(lambda task: task.result())

    async def _start(self) -> None:
        try:
            self.store.start()
        except SprocketError as error:
            self.refusal = error
            return
        self.store.on_failure.append(self._fail)
        self.on_open(self)
        core = self._core()
        recurring = [] if self.schedules is None else [self.schedules.serve(core)]
        services = [*recurring, *(self._master_services(core) if self.is_master else self._slave_services(core))]
        for service in services:
            service.check()
            await service.bind()
        with self._own_credentials():
            for service in services:
                service.load()
        if self.schedules is not None:
            self.schedules.start()
            if not self.is_master:
                Periodic("replicated_tables", _SAVE_S, self.schedules.save).start()
        self.on_tables(self)
        if self.is_master:
            self._lead_or_wait()
            routes = [route for service in services for route in service.routes()]
            await RemotingServer(RouteTable(routes), ConnectionSettings(self.machine.ip), port=LISTEN_PORT).start()
        for service in services:
            await service.listen()
        for service in services:
            service.start()
            for work in service.periodic():
                work.start()
        self.is_serving = True

    def _core(self) -> BrokerCore:
        known: dict[str, Any] = {
            "config": self._config,
            "role": self._role,
            "clock": self.machine,
            "call_later": self.process.call_later,
            "random_below": self.machine.scheduler.rng.randrange,
            "store": self.store,
            "waits": self.waits,
            "offsets": LogOffsets(self.store),
            "client": RemotingClient(),
            "fail": self._fail,
        }
        if self.schedules is not None:
            known |= self.schedules.core_fields
        # Replication asks for nothing else.
        return BrokerCore(**(dict.fromkeys(BrokerCore.__dataclass_fields__) | known))  # type: ignore[arg-type]

    def _master_services(self, core: BrokerCore) -> list[Service]:
        tables = cast(ReplicatedTables, self._tables())
        changes = None if self.schedules is None else self.schedules.changes
        self.sessions = MasterSessions(core, tables, changes or SafeChanges(core))
        self.replication = Replication(core, self.sessions, any_port=False)
        sender = TableSender(core.store, core.offsets, self.replication.listener, tables)
        return [self.replication, self.sessions, sender]

    def _slave_services(self, core: BrokerCore) -> list[Service]:
        registration = cast(Registration, SimpleNamespace(on_registered=[]))
        master, log = MasterAddress(self._role), self.store.replica()
        tables = self._tables()
        if self._config.store.ha_session_enable:
            self.store.on_arrival.append(tables.look)
        sessions = SlaveSessions(core, master, log, cast(ReplicatedTables, tables))
        self.following = MasterFollower(core, registration, master, log, sessions)
        return [self.following, sessions]

    def _tables(self) -> SimTables:
        others = [] if self.schedules is None else self.schedules.replicated
        return SimTables(self.store, self.machine.scheduler.errors.append, others)

    @contextmanager
    def _own_credentials(self) -> Iterator[None]:
        """The id of a store is a file beside it, on a disk that is not simulated."""
        broker = self._config.broker
        place = broker.broker_cluster_name, broker.broker_name, broker.broker_id
        own = Credentials(Identity(*place, self.machine.store_id), self.machine.scheduler.rng.randbytes)
        names = "broker.replication.master_sessions.credentials", "broker.slave.slave_sessions.credentials"
        with patch(names[0], lambda core, access: own), patch(names[1], lambda core, access: own):
            yield

    def _lead_or_wait(self) -> None:
        def changed() -> None:
            if self._role.serves_group:
                self.on_lead(self)
                if self.schedules is not None and self.schedules.service is not None:
                    self.schedules.service.activate()

        if self._role.serves_group:
            changed()
            return
        self._role.on_change.append(changed)

    def _fail(self, error: SprocketError) -> None:
        self.failure = error
        self.is_serving = False

    # What others see

    @property
    def end_offset(self) -> int:
        return self.store.wrote_offset

    def follow(self, ip: str) -> None:
        """A name server says where the master is."""
        if self.following is not None and self.is_serving:
            self.following.master_found(f"{ip}:{LISTEN_PORT}", f"{ip}:{HA_PORT}")

    @property
    def is_leading(self) -> bool:
        """Whether it is a master that takes messages."""
        return self.is_serving and self.is_master and self._role.serves_group

    def acked_by(self, ip: str) -> int:
        """Up to where the slave of this address has the log, as far as this master knows."""
        connections = self.replication.listener.connections if self.replication is not None else []
        return max((one.link.acked_offset for one in connections if one.peer[0] == ip), default=0)

    def set_schedule(self, number: int, reply: SetReply) -> None:
        if self.is_leading and self.schedules is not None:
            assert self.replication is not None
            self.schedules.change(number, reply, self.replication.has_sessions)
        else:
            reply("NOT_SERVED", 0)

    def send(self, queue_id: int, bodies: Sequence[bytes], reply: SendReply) -> None:
        if not self.is_leading:
            reply("NOT_SERVED", [])
            return
        messages = [
            PendingMessage(TOPIC, queue_id, body, b"", 0, 0, 0, self.machine.wall_ms(), _HOST) for body in bodies
        ]
        try:
            appended = self.store.append(messages)
        except StoreError as error:
            reply(f"REFUSED {type(error).__name__}", [])
            return
        positions = [tuple(one) for one in appended]
        end = appended[-1][1] + appended[-1][2]

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            outcome = f"FAILED {type(error).__name__}" if error else OK if code == ResponseCode.SUCCESS else code.name
            reply(outcome, cast(list[tuple[int, int, int]], positions))

        self.waits.wait(end, answer)

    def pull(self, queue_id: int, offset: int, reply: PullReply) -> None:
        if not self.is_serving or (self.is_master and not self.is_leading):
            reply(None)
            return
        result = self.store.get(TOPIC, queue_id, offset, 16, 1 << 16)
        found = []
        content = memoryview(b"".join(result.slices))
        while content:
            size = int.from_bytes(content[:4], "big")
            record = decode(content[:size])
            assert not isinstance(record, str), record
            found.append((record.queue_offset, record.physical_offset + size, bytes(record.body)))
            content = content[size:]
        reply(found)
