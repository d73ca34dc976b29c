"""Bodies of requests about schedules: messages that a broker sends again and again.  Not in RocketMQ."""

from enum import StrEnum

import msgspec

from sprocket.remoting.bodies.topic import DataVersion


class CatchUp(StrEnum):
    """Which of the fire times that a broker missed it makes up for."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class Schedule(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A message and its fire times: those of `cron` (five fields) in `time_zone`, or every `every_millis`.

    Topic and name identify it.

    `properties` are those of the message, with its tags, keys and delay.  Of the times that the broker missed, it makes
    up for those of `catch_up`: the newest `max_catch_up` at most.  A message is sent up to `jitter_millis` after its
    fire time; how much is a fixed function of the name and the fire time.
    """

    name: str
    topic: str
    body: bytes = b""
    properties: dict[str, str] = {}
    cron: str = ""
    time_zone: str = "UTC"
    every_millis: int = 0
    catch_up: CatchUp = CatchUp.LAST
    max_catch_up: int = 100
    jitter_millis: int = 0

    @property
    def key(self) -> str:
        """Topic and name as one text."""
        return schedule_key(self.topic, self.name)


def schedule_key(topic: str, name: str) -> str:
    """Return topic and name of a schedule as one text.  The name of a topic has no slash."""
    return f"{topic}/{name}"


class ScheduleEntry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A schedule as a broker keeps it.

    `id` is new for each schedule that is created, so that a deleted one of the same key is not taken for it.
    `anchor_millis` is where the times of `every_millis` start.  Times up to `since_millis` do not count.
    While it `is_moving` to another broker it rests, as if it was paused.
    """

    schedule: Schedule
    id: str
    anchor_millis: int
    since_millis: int
    is_paused: bool = False
    is_moving: bool = False

    @property
    def rests(self) -> bool:
        """Whether no message is sent."""
        return self.is_paused or self.is_moving


class ScheduleTableBody(msgspec.Struct, rename="camel"):
    """Content of schedules.json; schedules are by their key."""

    schedule_table: dict[str, ScheduleEntry] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class ScheduleChangesBody(msgspec.Struct, rename="camel"):
    """What changed in schedules.json, for a slave that has the version before; `deleted` are keys."""

    schedules: dict[str, ScheduleEntry]
    deleted: list[str]
    data_version: DataVersion


class SchedulePosition(msgspec.Struct, rename="camel", frozen=True):
    """The last fire time of a schedule whose message is in the log; `id` is that of its `ScheduleEntry`."""

    id: str
    fired_millis: int


class SchedulePositionsBody(msgspec.Struct, rename="camel"):
    """Content of schedulePositions.json: what the log says before the physical offset `log_offset`, by key."""

    log_offset: int = 0
    positions: dict[str, SchedulePosition] = {}


class ScheduleState(msgspec.Struct, rename="camel", kw_only=True):
    """A schedule, and how it is at its broker; see `ScheduleEntry`.  Times are ms since the epoch; None: there is none.

    `fired_total` and `refused_total` count since this broker began to send its messages.  `last_error` says why the
    broker refused the message the last time; it is empty once it was sent.
    """

    schedule: Schedule
    broker_name: str = ""
    since_millis: int = 0
    anchor_millis: int = 0
    is_paused: bool = False
    is_moving: bool = False
    next_millis: int | None = None
    fired_millis: int | None = None
    fired_total: int = 0
    refused_total: int = 0
    last_error: str = ""


class ScheduleStatesBody(msgspec.Struct, rename="camel"):
    """Body of the response to GET_SCHEDULES, by name."""

    schedules: list[ScheduleState] = []
