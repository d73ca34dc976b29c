"""Table of schedules, stored in ``config/schedules.json``.  Not in RocketMQ."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Final

from msgspec.structs import replace

from broker.config.operator_table import OperatorTable
from broker.plan.version import PlanVersion
from broker.schedules.fire_times import BadRule, rule_of
from sprocket.common.clock import Clock
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.schedule import (
    Schedule,
    ScheduleChangesBody,
    ScheduleEntry,
    ScheduleTableBody,
    schedule_key,
)
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.topic_names import (
    DLQ_PREFIX,
    LIGHT_PREFIX,
    NOT_ALLOWED_SEND_TOPICS,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)

MAX_NAME_CHARS: Final = 255
MAX_BODY_BYTES: Final = 64 * 1024
MAX_PROPERTIES_CHARS: Final = 16 * 1024
# Of bodies and properties of all schedules of a broker, with 512 bytes for the rest of each: the list of all, with
# bodies in base64, must fit into a frame.
MAX_TOTAL_BYTES: Final = 8 * 1024 * 1024
_REST_BYTES: Final = 512
MIN_PERIOD_MS: Final = 1000
MAX_PERIOD_MS: Final = 10 * 366 * 86_400_000
MAX_JITTER_MS: Final = 3_600_000
MAX_CATCH_UP: Final = 1000
_LAST_MS: Final = 1 << 53
# Changes that a slave or the agenda need not take over one by one are taken over as the whole table.
_KEPT_CHANGES: Final = 1024
_NO_SCHEDULE_TOPICS: Final = (RETRY_PREFIX, DLQ_PREFIX, LIGHT_PREFIX, SYSTEM_TOPIC_PREFIX)


class ScheduleTable(OperatorTable[ScheduleEntry, ScheduleTableBody]):
    """Table of schedules by key.  After each change wait for `save`; if that fails, the table is as before.

    `on_change` is called with each change of the whole table.
    """

    def __init__(self, file: ConfigFile, clock: Clock, random_below: Callable[[int], int]) -> None:
        # A version of its own: no plan depends on schedules, so a change of them drops none.
        super().__init__(file, clock, PlanVersion(), "schedule", ScheduleTableBody)
        self._random_below = random_below
        self.change_count = 0
        self._recent: deque[str] = deque(maxlen=_KEPT_CHANGES)  # keys of the last changes
        self._total_bytes = 0

    def find(self, name: str, topic: str) -> ScheduleEntry:
        """Return the schedule of a topic with this name.  Raises RequestError."""
        entry = self.by_name.get(schedule_key(topic, name))
        if entry is None:
            remark = f"topic {topic[:255]} has no schedule {name[:255]!r} at this broker"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark, Reason.NOT_FOUND)
        return entry

    def put(
        self,
        schedule: Schedule,
        *,
        may_replace: bool,
        since_ms: int | None = None,
        anchor_ms: int | None = None,
        is_paused: bool = False,
    ) -> None:
        """Add a schedule, or replace it where it differs; a new rule counts from now on.

        The last three are for one that is added: as another broker had it.  Raises RequestError.
        """
        known, now_ms = self.by_name.get(schedule.key), self._clock.wall_ms()
        if known is not None and not may_replace:
            raise _invalid(schedule, "it exists already; replace it, or delete it first")
        if known is None:
            id_ = f"{self._random_below(1 << 62):x}"
            since, anchor = (now_ms if one is None else min(max(one, 0), _LAST_MS) for one in (since_ms, anchor_ms))
            entry = ScheduleEntry(
                schedule=schedule, id=id_, anchor_millis=anchor, since_millis=since, is_paused=is_paused
            )
        elif _rule_texts(known.schedule) == _rule_texts(schedule):
            entry = replace(known, schedule=schedule)
        else:
            entry = replace(known, schedule=schedule, anchor_millis=now_ms, since_millis=now_ms)
        check(entry)
        if self._total_bytes - _size(known) + _size(entry) > MAX_TOTAL_BYTES:
            raise _invalid(schedule, f"the schedules of this broker would have more than {MAX_TOTAL_BYTES} bytes")
        if entry != known:
            self._put(schedule.key, entry)

    def pause(self, entry: ScheduleEntry, *, is_paused: bool, is_moving: bool) -> None:
        """Let a schedule rest, or go on: what was due meanwhile does not count."""
        wanted = replace(entry, is_paused=is_paused, is_moving=is_moving)
        if entry.rests and not wanted.rests:
            wanted = replace(wanted, since_millis=max(entry.since_millis, self._clock.wall_ms()))
        if wanted != entry:
            self._put(entry.schedule.key, wanted)

    # Changes, one by one

    def changes_since(self, count: int) -> dict[str, ScheduleEntry | None] | None:
        """Return what changed since `change_count` was `count`; None if that is not known: take the whole table."""
        missing = self.change_count - count
        if missing > len(self._recent):
            return None
        return {key: self.by_name.get(key) for key in islice(reversed(self._recent), missing)}

    def encode_changes(self, count: Hashable) -> bytes | None:
        """Return `changes_since` for a slave."""
        changes = self.changes_since(count) if isinstance(count, int) else None
        if changes is None:
            return None
        kept = {key: entry for key, entry in changes.items() if entry is not None}
        return dumps(ScheduleChangesBody(kept, [key for key in changes if key not in kept], self.data_version))

    def merge(self, body: ScheduleChangesBody) -> None:
        """Take over changes of a master whose version before this table has; it is saved soon."""
        self._enter({**dict.fromkeys(body.deleted), **body.schedules})
        self.data_version = body.data_version
        self.changes += 1

    def _enter(self, changes: Mapping[str, ScheduleEntry | None]) -> None:
        for key, entry in changes.items():
            self._total_bytes += _size(entry) - _size(self.by_name.get(key))
        self._recent.extend(changes)
        self.change_count += len(changes)
        super()._enter(changes)

    def _take_over(self, table: ScheduleTableBody) -> None:
        self._recent.clear()
        self.change_count += 1
        self._total_bytes = sum(map(_size, table.schedule_table.values()))
        super()._take_over(table)


def _rule_texts(schedule: Schedule) -> tuple[str, str, int]:
    return schedule.cron, schedule.time_zone, schedule.every_millis


def _size(entry: ScheduleEntry | None) -> int:
    if entry is None:
        return 0
    schedule = entry.schedule
    texts = (len(text.encode()) for pair in schedule.properties.items() for text in pair)
    return len(schedule.body) + sum(texts) + _REST_BYTES


def check(entry: ScheduleEntry) -> None:
    """Raise RequestError unless the schedule is valid; its topic may be missing."""
    schedule = entry.schedule
    name, topic = schedule.name, schedule.topic
    if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise _invalid(schedule, f"a name has 1 to {MAX_NAME_CHARS} printable characters")
    if topic in NOT_ALLOWED_SEND_TOPICS or topic.startswith(_NO_SCHEDULE_TOPICS):
        raise _invalid(schedule, f"it cannot send to topic {topic[:255]}, which brokers use")
    if not 0 < len(schedule.body) <= MAX_BODY_BYTES:
        raise _invalid(schedule, f"a body has 1 to {MAX_BODY_BYTES} bytes; of more, send where the data are")
    _check_properties(schedule)
    _check_numbers(schedule)
    try:
        if rule_of(entry).after(entry.anchor_millis) is None:
            raise _invalid(schedule, "its cron expression never fires")
    except BadRule as error:
        raise _invalid(schedule, str(error)) from None


def _check_properties(schedule: Schedule) -> None:
    size = 0
    for key, value in schedule.properties.items():
        size += len(key) + len(value) + 2
        if not key or names.separators_in(key + value):
            raise _invalid(schedule, "a property has a name, and no character 1 or 2")
        if key.startswith("INNER_") or key in (names.TRANSACTION_PREPARED, names.REAL_TOPIC, names.REAL_QUEUE_ID):
            raise _invalid(schedule, f"property {key[:64]} is for brokers; leave it out")
        if key == names.TIMER_DELIVER_MS:
            raise _invalid(schedule, "a fixed time of delivery does not fit; set a delay")
    if size > MAX_PROPERTIES_CHARS:
        raise _invalid(schedule, f"its properties have more than {MAX_PROPERTIES_CHARS} characters")


def _check_numbers(schedule: Schedule) -> None:
    if bool(schedule.cron) == bool(schedule.every_millis):
        raise _invalid(schedule, "give one of cron and everyMillis")
    if not schedule.cron and not MIN_PERIOD_MS <= schedule.every_millis <= MAX_PERIOD_MS:
        raise _invalid(schedule, f"everyMillis is from {MIN_PERIOD_MS} to {MAX_PERIOD_MS}")
    max_jitter_ms = min(MAX_JITTER_MS, schedule.every_millis or MAX_JITTER_MS)
    if not 0 <= schedule.jitter_millis <= max_jitter_ms:
        raise _invalid(schedule, f"jitterMillis is from 0 to {max_jitter_ms}")
    if not 1 <= schedule.max_catch_up <= MAX_CATCH_UP:
        raise _invalid(schedule, f"maxCatchUp is from 1 to {MAX_CATCH_UP}")


def _invalid(schedule: Schedule, text: str) -> RequestError:
    remark = f"schedule {schedule.name[:64]!r}: {text}"
    return RequestError(ResponseCode.INVALID_PARAMETER, remark, Reason.INVALID_PARAMETER)
