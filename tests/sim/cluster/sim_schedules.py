"""The schedules of one simulated broker: the real tables and the real service, on the machine's files and its log."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

from broker.core import BrokerCore
from broker.replicated_table import ReplicatedTable
from broker.replication.replicated_tables import schedule_positions_of, schedules_of
from broker.replication.safe_changes import SafeChanges
from broker.schedules.positions import Fired, SchedulePositions
from broker.schedules.schedule_table import ScheduleTable
from broker.upkeep.schedule_sends import ScheduleSends
from broker.upkeep.schedule_service import RecurringMessages
from sprocket.common.errors import SprocketError
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.schedule import Schedule, schedule_key
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.schedule import SetScheduleRequestHeader
from store.message_store import MessageStore
from store.record.record import PendingMessage
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.process import Process
from tests.sim.cluster.profile import TOPIC

T = TypeVar("T")
PERIOD_MS: Final = 1000
# A time is missed if its message is so much later.
MISSED_MS: Final = 60_000
_NAME: Final = "tick"
_KEY: Final = schedule_key(TOPIC, _NAME)
_HOST: Final = bytes((127, 0, 0, 1)) + (0).to_bytes(4, "big")
FIRES: Final = b"s"
# What a change is answered: None, or the name of the error; and where the log must be safe up to.
SetReply = Callable[[str | None, int], None]


class _File(ConfigFile):
    """A file of the machine: a write is whole, and on the disk when it ends."""

    def __init__(self, machine: Machine, name: str) -> None:
        super().__init__(Path(name))
        self._machine = machine

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        content = self._machine.files.get(self.path.name)
        return None if content is None else decode(content)

    def write(self, content: bytes) -> None:
        self._machine.files[self.path.name] = content


class _Sends:
    """In place of `ScheduleSends`, whose plans, quotas and topics are not simulated."""

    def __init__(self, machine: Machine, store: MessageStore) -> None:
        self._machine = machine
        self._store = store
        self.noted_end = self._notes = 0

    def send(self, schedule: Schedule, fire_ms: int, fired: Fired | None) -> int:
        assert fired is not None
        return self._append(0, b"%s-%013d|%s" % (FIRES, fire_ms, schedule.body), fired.property())

    def note_change(self) -> int:
        self._notes += 1  # a process that was paused does much in one moment
        body = b"n-%013d-%06d|" % (round(self._machine.scheduler.now * 1e6), self._notes)
        self.noted_end = self._append(1, body, b"")
        return self.noted_end

    def _append(self, queue_id: int, body: bytes, properties: bytes) -> int:
        message = PendingMessage(TOPIC, queue_id, body, properties, 0, 0, 0, self._machine.wall_ms(), _HOST)
        [(_, physical_offset, size_bytes)] = self._store.append([message])
        return physical_offset + size_bytes


class SimChanges(SafeChanges):
    """The rule for changes; its records are those of `sends`."""

    def __init__(self, core: BrokerCore, sends: _Sends) -> None:
        super().__init__(core)
        self.note = sends.note_change  # type: ignore[method-assign]


class SimSchedules:
    """One schedule, whose body is the number of its last change."""

    def __init__(self, machine: Machine, process: Process, store: MessageStore) -> None:
        self._process = process
        randrange = machine.scheduler.rng.randrange
        self._table = ScheduleTable(_File(machine, "schedules.json"), machine, randrange)
        positions = _File(machine, "schedulePositions.json")
        self._positions = SchedulePositions(positions, self._table, lambda: store.wrote_offset)
        self._sends = _Sends(machine, store)
        self.service: RecurringMessages | None = None
        self.changes: SafeChanges | None = None
        self.replicated: list[ReplicatedTable] = []

    @property
    def core_fields(self) -> Mapping[str, Any]:
        """What the service asks of a broker beside what replication asks."""
        return {
            "schedules": self._table, "schedule_positions": self._positions,
            "topics": SimpleNamespace(get=lambda name: name),
        }  # fmt: skip

    def serve(self, core: BrokerCore) -> RecurringMessages:
        """Return the service."""
        self.service = RecurringMessages(core, cast(ScheduleSends, self._sends))
        self.changes = SimChanges(core, self._sends)
        self.replicated = [schedules_of(core), schedule_positions_of(core)]
        return self.service

    def start(self) -> None:
        """Write the files as a broker that runs does; a slave also writes what its master sent."""
        self._table.start()
        self._positions.start()

    def save(self) -> None:
        """What a slave does once a second, and every broker at its orderly stop."""
        self._table.persist_changes()

    @property
    def number(self) -> int:
        """The number of the last change that the table has, 0 without one."""
        entry = self._table.by_name.get(_KEY)
        return 0 if entry is None else int(entry.schedule.body)

    def change(self, number: int, reply: SetReply, has_sessions: Callable[[], bool]) -> None:
        """Set the schedule, and answer as the broker does."""
        change = self._change(number, reply, has_sessions)
        self._process.create_task(change).add_done_callback(lambda task: task.result())

    async def _change(self, number: int, reply: SetReply, has_sessions: Callable[[], bool]) -> None:
        assert self.service is not None and self.changes is not None
        schedule = Schedule(name=_NAME, topic=TOPIC, body=b"%d" % number, every_millis=PERIOD_MS)
        header = SetScheduleRequestHeader(topic=TOPIC, replace=True)
        request = Request(code=int(RequestCode.SET_SCHEDULE), header=header, body=dumps(schedule))
        routes = [route for route in self.service.routes() if route.code is RequestCode.SET_SCHEDULE]
        (route,) = self.changes.awaited(routes, has_sessions)
        assert route.handle is not None
        try:
            response: Any = await cast(Awaitable[Any], route.handle(request))
        except SprocketError as error:
            reply(type(error).__name__, 0)
        else:
            reply(response.remark, self._sends.noted_end)
