"""Where sends whose headers are alike are stored, by kind, and the properties that they get for it."""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np

from broker.send.alike.header_shape import HeaderShape
from broker.send.send_kinds import SendKind
from broker.timer.timed_sends import added_to_timed
from broker.timer.timer_intake import TIMER_NAMES, slot_time_ms
from broker.transaction.half_message import QUEUE_ID
from broker.transaction.half_sends import added_to_half
from sprocket.remoting.message import properties as names
from store.alike.columns import Longs, Octets, numbers_of, texts_of
from store.queue.logic_queue import LogicQueue

_MS_PER_S: Final = 1000

QueueOf = Callable[[str, int], LogicQueue | None]


class SendKinds(NamedTuple):
    """How a broker stores half and timed messages, for one configuration of it."""

    half_topic: str
    timer_topic: str
    broker_name: bytes
    takes_halves: bool
    # Returns (now, longest delay, width of a slot), ms, or None if timed messages are refused.
    times_of: Callable[[], tuple[int, int, int] | None]
    # Returns whether a slot of the wheel, given the time at which it begins, certainly takes messages.
    has_room: Callable[[int], bool]


class Timing(NamedTuple):
    """The slot of each timed message, and the delay that was asked for."""

    slots_ms: list[int]
    delays_s: list[int]


class Place(NamedTuple):
    """Queues of one topic in which messages are stored, and the index of each message's queue.

    `added` are the properties that each message gets for it, all of one size.
    """

    topic: str
    queues: Sequence[LogicQueue]
    lanes: Longs
    added: list[bytes]
    timing: Timing | None = None


def place_of(
    shape: HeaderShape, headers: Octets, queue_ids: Longs, queue_of: QueueOf, kinds: SendKinds
) -> Place | None:
    """Return where to store the messages with these headers; None if that is not certain for one of them."""
    if shape.kind is SendKind.PLAIN:
        return _in_their_topic(shape.topic, queue_ids, queue_of)
    is_half = shape.kind is SendKind.HALF
    topic = kinds.half_topic if is_half else kinds.timer_topic
    queue = queue_of(topic, QUEUE_ID)
    timing = None if is_half else _timing(shape, headers, kinds)
    if queue is None or (not kinds.takes_halves if is_half else timing is None):
        return None
    real_topic, queue_texts = shape.topic.encode(), texts_of(headers[:, shape.gaps["queue_id"]])
    if timing is None:
        keys = texts_of(headers[:, shape.gaps[names.UNIQ_KEY]])
        added = list(map(added_to_half, keys, repeat(real_topic), queue_texts))
    else:
        out_ms = [b"%d" % slot_ms for slot_ms in timing.slots_ms]
        added = list(map(added_to_timed, out_ms, repeat(real_topic), queue_texts))
    return Place(topic, [queue], np.zeros(len(headers), np.int64), added, timing)


def _in_their_topic(topic: str, queue_ids: Longs, queue_of: QueueOf) -> Place | None:
    known = np.bincount(queue_ids).nonzero()[0]
    queues = [queue for queue in (queue_of(topic, queue_id) for queue_id in known.tolist()) if queue is not None]
    return Place(topic, queues, known.searchsorted(queue_ids), []) if len(queues) == len(known) else None


def _timing(shape: HeaderShape, headers: Octets, kinds: SendKinds) -> Timing | None:
    """Return when timed messages are due; None if a time is refused, past, or in a slot that may be full."""
    times = kinds.times_of()
    if times is None:
        return None
    now_ms, max_delay_ms, slot_width_ms = times
    name = next(name for name in TIMER_NAMES if name in shape.gaps)
    asked = numbers_of(headers[:, shape.gaps[name]]).tolist()
    begin_ms = 0 if name == names.TIMER_DELIVER_MS else now_ms
    unit_ms = _MS_PER_S if name == names.TIMER_DELAY_SEC else 1
    due_ms = {number: begin_ms + number * unit_ms for number in set(asked)}
    slot_of = {number: slot_time_ms(one_ms, slot_width_ms) for number, one_ms in due_ms.items()}
    slots_ms = set(slot_of.values())
    if min(due_ms.values()) <= now_ms or max(due_ms.values()) > now_ms + max_delay_ms:
        return None
    # Times of different lengths would need records of different sizes.
    if len({len(str(slot_ms)) for slot_ms in slots_ms}) > 1 or not all(map(kinds.has_room, slots_ms)):
        return None
    return Timing([slot_of[number] for number in asked], [(due_ms[number] - now_ms) // _MS_PER_S for number in asked])
