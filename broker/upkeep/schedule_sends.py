"""Messages of schedules on their way into the log, by the plans, limits, quotas and delays of producers."""

from typing import Any, Final

from broker.core import BrokerCore
from broker.schedules.positions import Fired
from broker.send.intake import MessageIntake, require_key
from broker.send.planner import SendPlanner
from sprocket.remoting.bodies.schedule import Schedule
from sprocket.remoting.codec.java_hash import java_hash_index
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.send import SendMessageRequestHeader
from sprocket.remoting.message import properties as names

PRODUCER_GROUP: Final = "CID_SPROCKET_SCHEDULES"
# Properties by which applications know what a message is about.
SCHEDULE_NAME: Final = "SCHEDULE_NAME"
SCHEDULE_TIME_MS: Final = "SCHEDULE_TIME_MS"
_ANY_QUEUE: Final = -1


class _NoConnection:
    """What a quota asks of the connection of a send: here nobody is behind it."""

    peer, is_trusted = ("127.0.0.1", 0), True

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}
        self.charged: Any = None

    def read_after(self, seconds: float) -> None:
        pass


class ScheduleSends:
    """Sender of the messages of schedules.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, planner: SendPlanner, intake: MessageIntake) -> None:
        self._core = core
        self._planner = planner
        self._intake = intake
        self._connection = _NoConnection()

    def send(self, schedule: Schedule, fire_ms: int, fired: Fired | None) -> int:
        """Append the message of a fire time, and return where it ends in the log.

        With `fired` it says that the schedule has fired.  Raises RequestError or StoreError, with nothing appended.
        """
        core, request = self._core, self._request(schedule, fire_ms)
        plan = self._planner.admit(request.header, self._connection.peer)
        if plan.limits is not None:
            plan.limits.check(request.header.properties, len(request.body))
        if plan.buckets:
            self._planner.spend(plan, (), request)
        message, _ = self._intake.message(request, plan, core.store.store_host)
        if plan.needs_key:
            require_key(message.properties)
        if fired is not None:
            message.properties += fired.property()
        appended = core.store.append([message])
        core.flow.stored([message], appended)
        [(_, physical_offset, size_bytes)] = appended
        return physical_offset + size_bytes

    def _request(self, schedule: Schedule, fire_ms: int) -> Request[SendMessageRequestHeader]:
        """Return the send that a producer would make."""
        own = {SCHEDULE_NAME: schedule.name, SCHEDULE_TIME_MS: str(fire_ms)}
        key = schedule.properties.get(names.SHARDING_KEY)
        header = SendMessageRequestHeader(
            producer_group=PRODUCER_GROUP, topic=schedule.topic, default_topic="", default_topic_queue_nums=0,
            queue_id=_ANY_QUEUE if key is None else self._queue_of(schedule.topic, key), sys_flag=0,
            born_timestamp=self._core.clock.wall_ms(), flag=0, properties=names.encode(schedule.properties | own),
        )  # fmt: skip
        return Request(code=int(RequestCode.SEND_MESSAGE), header=header, body=schedule.body, channel=self._connection)

    def _queue_of(self, topic: str, sharding_key: str) -> int:
        config = self._core.topics.get(topic)
        queues = 0 if config is None else config.write_queue_nums
        return java_hash_index(sharding_key, queues) if queues else _ANY_QUEUE
