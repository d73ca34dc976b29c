"""The compiled kernel of acknowledgements gives what the handler gives: log, responses and counts."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import MessageStore
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.ack_targets import (
    MIN_BYTES,
    Twin,
    ack_header,
    ack_of,
    ack_twins,
    compare_acks,
    compiled,
    handle_of,
)
from tests.fuzz.twins.send_targets import compare_served
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")


def frame(serialization: int = JSON, opaque: int = 1, handle: dict[str, Any] | None = None, **changes: Any) -> bytes:
    header = ack_header(handle_of(**(handle or {})), **changes)
    return encode_request(RequestCode.ACK_MESSAGE, opaque, header, serialization=serialization)


def ready(**changes: Any) -> Twin:
    """A compiled twin whose timer has a queue."""
    twin = Twin(True, **changes)
    twin.serve([frame()])
    return twin


def served_by_kernel(twin: Twin, pieces: list[bytes]) -> int:
    """Return how many acknowledgements the kernel served."""
    counts: list[int] = []
    append = twin.service.log.append_acks
    with patch.object(twin.service.log, "append_acks", lambda acks: (counts.append(len(acks)), append(acks))[1]):
        twin.serve(pieces)
    return sum(counts)


@pytest.mark.parametrize("seed", seeds(40, quick=3))
def test_any_acknowledgements_and_any_bytes(seed: int) -> None:
    ack_twins(random.Random(seed).randbytes(MIN_BYTES + seed % 9))


@pytest.mark.parametrize("seed", seeds(40, quick=3))
def test_damaged_frames_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    stream = damaged(b"".join(ack_of(chance, 0.8) for _ in range(6)), chance)
    compare_acks(pieces_of(stream))
    compare_acks([stream[: chance.randrange(len(stream))]])


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("append_ack_async", [False, True])
def test_acknowledgements_are_answered_when_they_are_as_safe_as_configured(
    sync_flush: bool, append_ack_async: bool
) -> None:
    chance = random.Random(1)
    stream = b"".join(ack_of(chance, 1.0) for _ in range(100))
    found = compare_acks([stream], sync_flush=sync_flush, append_ack_async=append_ack_async)
    assert len(found[0]) == 100


def test_more_pops_than_one_read_may_have_and_the_end_of_a_segment() -> None:
    stream = b"".join(frame(handle={"first_offset": number // 2, "queue_offset": 9}) for number in range(400))
    for _ in range(3):
        compare_acks([stream])


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_the_kernel_serves_acknowledgements_of_any_pop(serialization: int) -> None:
    frames = [frame(serialization, handle={"queue_id": n % 4, "queue_offset": n}) for n in range(32)]
    assert served_by_kernel(ready(), [b"".join(frames)]) == 32


@pytest.mark.parametrize(
    ("handle", "changes"),
    [
        ({"revive_queue_id": 999}, {}), ({"revive_queue_id": 8}, {}), ({"queue_offset": None}, {"offset": 3}),
        ({"invisible_ms": 0}, {}), ({"broker_name": "b#c"}, {}), ({}, {"offset": 51}), ({}, {"topic": "Unknown"}),
        ({}, {"consumer_group": "Zürich"}), ({}, {"extra_info": "1 2 3"}), ({"invisible_ms": 1 << 40}, {}),
    ],
)  # fmt: skip
def test_what_the_kernel_leaves_to_the_handler(handle: dict[str, Any], changes: dict[str, Any]) -> None:
    left = frame(handle=handle, **changes)
    assert served_by_kernel(ready(), [frame() + left + frame()]) == 1
    compare_acks([frame() + left + frame()])


def test_a_slave_and_a_pop_in_memory_need_the_handler() -> None:
    twin = ready()
    buffer = twin.service.buffer
    with patch.object(type(twin.service.log), "is_elsewhere", True):
        twin.config.plan_version.rise()
        assert served_by_kernel(twin, [b""]) == 0
    twin.config.plan_version.rise()
    with patch.object(buffer, "find", lambda ack: None):
        assert served_by_kernel(twin, [frame()]) == 1
    with patch.object(buffer, "find", lambda ack: Any), patch.object(buffer, "acknowledge", lambda ack: True):
        assert served_by_kernel(twin, [frame()]) == 0


@pytest.mark.parametrize("later", [False, True])
def test_a_failed_append_refuses_each_acknowledgement(later: bool) -> None:
    """Both paths refuse; nothing is stored, so the messages are redelivered."""
    twin = ready(sync_flush=later)
    before = twin.store.max_offset(TIMER_TOPIC, 0)
    with patch.object(MessageStore, "_append", side_effect=StoreError("no room")):
        # They do not begin with the first frame of the read.
        responses, *_ = twin.serve([encode_request(999, 9, {}) + frame(opaque=1) + frame(opaque=2)])
    assert sorted(b"no room" in header for _, header, _ in responses) == [False, True, True]
    assert twin.store.max_offset(TIMER_TOPIC, 0) == before


def test_pops_that_wake_append_after_the_acknowledgements() -> None:
    """Room in the segment was measured for the acknowledgements alone."""
    twin = ready(enable_pop_message_threshold=True, pop_inflight_message_threshold=48)
    ends: list[int] = []
    twin.service.on_free.append(lambda topic, group, queue_id: ends.append(twin.store.max_offset(TIMER_TOPIC, 0)))
    assert served_by_kernel(twin, [frame() * 3]) == 3
    assert ends == [4]


def test_a_field_of_every_kind_in_every_place() -> None:
    fields = to_ext_fields(ack_header(handle_of(), broker_name="broker-a"))
    for name in fields:
        stream = b"".join(
            frame() + encode_request(RequestCode.ACK_MESSAGE, 7, {**fields, name: text})
            for text in ("", "null", "-1", "007", "9" * 19, "Zürich")
        )
        compare_acks([stream])


@pytest.mark.parametrize(
    ("revive_queues", "change"),
    [
        ((8, 2), lambda twin: change_topic(twin, "Orders", 3)),
        ((8, 2), lambda twin: change_topic(twin, twin.service.log.topic, 7)),
        ((1, 8), lambda twin: change_broker(twin, revive_queue_num=7)),
        ((8, 2), lambda twin: change_store(twin, timer_max_delay_sec=10)),
        ((8, 2), lambda twin: change_store(twin, timer_wheel_enable=False)),
        ((8, 2), lambda twin: change_topic(twin, "Orders", 0)),
        ((8, 2), lambda twin: twin.clock.advance(61.0)),
    ],
)
def test_what_is_kept_ends_when_it_changes(revive_queues: tuple[int, int], change: Callable[[Twin], object]) -> None:
    """Each change makes the wheel or the broker refuse what it took before, or leave it to the handler."""
    pure, native = Twin(False), Twin(True)
    topic_queues, configured = revive_queues
    for twin in (pure, native):
        change_topic(twin, twin.service.log.topic, topic_queues)
        change_broker(twin, revive_queue_num=configured)
    stream = frame(handle={"queue_id": 3, "revive_queue_id": 7}) * 2
    for _ in range(2):
        compare_served(pure, native, [stream])
    assert served_by_kernel(native, [stream]) == 2
    pure.serve([stream])
    for twin in (pure, native):
        change(twin)
    assert served_by_kernel(native, [stream]) == 0
    pure.serve([stream])
    compare_served(pure, native, [stream])


def change_topic(twin: Twin, name: str, queues: int) -> None:
    twin.core.topics.by_name[name] = TopicConfig(name, queues, queues)
    twin.config.plan_version.rise()


def change_broker(twin: Twin, **changes: Any) -> None:
    twin.config.replace_broker(replace(twin.config.broker, **changes))


def change_store(twin: Twin, **changes: Any) -> None:
    twin.config.store = replace(twin.config.store, **changes)
    twin.config.plan_version.rise()


def test_one_plan_serves_all_pops_of_a_queue() -> None:
    twin = ready()
    planner = twin.service.ack_planner
    with patch.object(planner, "plan", side_effect=planner.plan) as made:
        for first in range(5):
            handle = {"first_offset": first, "invisible_ms": 5000 + first, "revive_queue_id": 6}
            assert served_by_kernel(twin, [frame(handle=handle)]) == 1
    assert made.call_count == 1
