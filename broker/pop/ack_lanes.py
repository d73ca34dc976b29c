"""Acknowledgements of one read, by lane: the acknowledgements of one pop of one queue differ only in the offset.

A lane is checked once.  It lives as long as the read is served, so nothing can change meanwhile.
"""

from typing import Final

from broker.core import BrokerCore
from broker.pop.inflight import InflightMessages
from broker.pop.merge_buffer import BufferedPop, MergeBuffer
from broker.pop.pop_checks import PopChecks
from broker.pop.pop_counters import PopCounters
from broker.pop.records import AckMsg
from broker.pop.revive.revive_log import AckForm, ReviveLog
from sprocket.common.failpoints import failpoint
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.frames import ResponseTemplate
from sprocket.remoting.message.pop_extra_info import MAX_HANDLE_CHARS, parse_handle

DONE: Final = ResponseTemplate(ResponseCode.SUCCESS, ())
BEFORE_ACK: Final = failpoint("pop.before_ack")
ACK_WRITTEN: Final = failpoint("pop.ack_written")

# Blanks before the offset, the last part of a usual handle.
_BLANKS: Final = 7
_MAX_OFFSET_DIGITS: Final = 18
MAX_COMMON_CHARS: Final = MAX_HANDLE_CHARS - 1 - _MAX_OFFSET_DIGITS


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


def parts_of(extra_info: str) -> tuple[str, bool]:
    """Return a handle up to its last blank, and whether the part after it is a usual offset."""
    at = extra_info.rfind(" ") + 1
    offset = extra_info[at:]
    return extra_info[:at], offset.isdecimal() and len(offset) <= _MAX_OFFSET_DIGITS
