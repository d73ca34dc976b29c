"""Acknowledgements of one read, by lane: the acknowledgements of one pop of one queue differ only in the offset.

A lane is checked once.  It lives as long as the read is served, so nothing can change meanwhile.  The compiled path
makes its lanes itself.  It keeps what the pops of one queue have in common, as an `AckKind`.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final

from broker.core import BrokerCore
from broker.pop.inflight import InflightMessages
from broker.pop.merge_buffer import BufferedPop, MergeBuffer
from broker.pop.pop_checks import PopChecks
from broker.pop.pop_counters import PopCounters
from broker.pop.records import AckMsg
from broker.pop.revive.revive_log import AckForm, ReviveLog
from sprocket.common.errors import RequestError
from sprocket.common.failpoints import failpoint
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.message.pop_extra_info import MAX_HANDLE_CHARS, parse_handle

DONE: Final = ResponseTemplate(ResponseCode.SUCCESS, ())
BEFORE_ACK: Final = failpoint("pop.before_ack")
ACK_WRITTEN: Final = failpoint("pop.ack_written")

# Blanks before the offset, the last part of a usual handle; from the revive queue on.
_BLANKS: Final = 7
_BLANKS_OF_END: Final = 4
_MAX_OFFSET_DIGITS: Final = 18
MAX_COMMON_CHARS: Final = MAX_HANDLE_CHARS - 1 - _MAX_OFFSET_DIGITS
# The store looks for a seal in properties with this character.
_HASH: Final = b"#"
# In place of a peer, for checks whose refusal nobody reads.
_NOBODY: Final = ("", 0)


class AckLane:
    """What the acknowledgements of one pop of one queue have in common."""

    __slots__ = ("ack", "acknowledged", "form", "high", "in_memory", "low", "written")

    def __init__(self, ack: AckMsg, form: AckForm, bounds: tuple[int, int], in_memory: BufferedPop | None) -> None:
        self.ack = ack  # all but the offset
        self.form = form
        # Offsets that may be acknowledged.
        self.low, self.high = bounds
        self.in_memory = in_memory
        self.acknowledged = 0  # messages
        self.written = 0  # records


class AckLanes:
    """Maker of lanes, and their counts.  Lives in the event loop's thread."""

    def __init__(
        self,
        core: BrokerCore,
        checks: PopChecks,
        log: ReviveLog,
        buffer: MergeBuffer,
        inflight: InflightMessages,
        counters: PopCounters,
    ) -> None:
        self._clock = core.clock
        self._store = core.store
        self._topics = core.topics
        self._checks = checks
        self._log = log
        self._buffer = buffer
        self._inflight = inflight
        self._counters = counters

    def lane(self, topic: str, group: str, queue_id: int, common: str, peer: tuple[str, int]) -> AckLane | None:
        """Return the lane of handles that begin with `common`, which ends with a blank before the offset.

        None for ordered pops and whatever else must be read one by one.  Raises RequestError for what is refused.
        """
        if common.count(" ") != _BLANKS or len(common) > MAX_COMMON_CHARS:
            return None
        bounds = self._checks.bounds(topic, queue_id, peer)
        handle = parse_handle(f"{common}0")
        if handle.is_ordered:
            return None
        self._checks.revive_queue(handle.revive_queue_id)
        ack = AckMsg(so=handle.first_offset, c=group, t=topic, q=queue_id, pt=handle.pop_time_ms, bn=handle.broker_name)
        due_ms = handle.pop_time_ms + handle.invisible_ms
        form = self._log.ack_form(ack, handle.revive_queue_id, due_ms, self._clock.wall_ms())
        return None if form is None else AckLane(ack, form, bounds, self._buffer.find(ack))

    def kind(self, engine: ModuleType, topic: str, group: str, queue_id: int, end: str) -> Any:
        """Return the `AckKind` of the pops of a queue whose handles have `end` from the revive queue up to the offset.

        None if the Python path must serve them, whatever the other numbers of their handles are.
        """
        config = self._topics.get(topic)
        if config is None or end.count(" ") != _BLANKS_OF_END:
            return None
        try:
            self._checks.bounds(topic, queue_id, _NOBODY)
            handle = parse_handle(f"0 0 0 {end}0")
            self._checks.revive_queue(handle.revive_queue_id)
        except RequestError:
            return None  # the Python path refuses each
        pattern = self._log.ack_pattern(topic, group, queue_id, handle.broker_name, handle.revive_queue_id)
        if handle.is_ordered or pattern is None or _HASH in pattern.before_properties + b"".join(pattern.properties):
            return None
        return engine.AckKind(topic, group, queue_id, handle.broker_name, config, pattern)

    def bounds(self, kind: Any, first_offset: int, pop_time_ms: int) -> tuple[int, int] | None:
        """Return the offsets of a pop that may be acknowledged with a record; None if the pop is in memory."""
        topic, queue_id = kind.topic, kind.queue_id
        ack = AckMsg(so=first_offset, c=kind.group, t=topic, q=queue_id, pt=pop_time_ms, bn=kind.broker_name)
        if self._buffer.find(ack) is not None:
            return None
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def is_in_memory(self, lane: AckLane, offset: int) -> bool:
        """Acknowledge a message of a pop that is in memory; return False if a record must be written instead."""
        held = lane.in_memory
        if held is None or not held.is_open:
            return False
        self._buffer.apply(held, (offset,))
        return True

    def count(self, lane: AckLane) -> None:
        """Count what was acknowledged."""
        ack = lane.ack
        if lane.written:
            self._log.count_acks(ack.c, ack.t, lane.written)
        if lane.acknowledged:
            self._inflight.done(ack.t, ack.c, ack.q, ack.pt, lane.acknowledged)
            self._counters.acknowledged(ack.t, ack.c, lane.acknowledged)

    def count_written(self, lanes: Iterable[tuple[str, str, int, int, int]]) -> None:
        """Count records by topic, group, queue id and time of their pop: each acknowledges one message."""
        totals: dict[tuple[str, str], int] = {}
        for topic, group, queue_id, pop_time_ms, messages in lanes:
            totals[topic, group] = totals.get((topic, group), 0) + messages
            self._inflight.done(topic, group, queue_id, pop_time_ms, messages)
        for (topic, group), messages in totals.items():
            self._log.count_acks(group, topic, messages)
            self._counters.acknowledged(topic, group, messages)


def parts_of(extra_info: str) -> tuple[str, bool]:
    """Return a handle up to its last blank, and whether the part after it is a usual offset."""
    at = extra_info.rfind(" ") + 1
    offset = extra_info[at:]
    return extra_info[:at], offset.isdecimal() and len(offset) <= _MAX_OFFSET_DIGITS
