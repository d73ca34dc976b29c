"""The compiled kernel of pops gives what the handler gives: log, responses, offsets and counts."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import MessageStore
from store.record.record import PendingMessage
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.ack_targets import MIN_BYTES, compiled_pops
from tests.fuzz.twins.pop_targets import (
    LARGE_SEGMENT_BYTES,
    PopTwin,
    compare_pops,
    pop_header,
    pop_of,
    pop_twins,
    ready_twin,
)
from tests.fuzz.twins.send_targets import compare_served
from tests.sim.sim_store import SEGMENT_BYTES
from tests.tiers import seeds

pytestmark = pytest.mark.skipif(compiled_pops is None, reason="the compiled engine is not built")


def frame(serialization: int = JSON, opaque: int = 1, **changes: Any) -> bytes:
    return encode_request(RequestCode.POP_MESSAGE, opaque, pop_header(**changes), serialization=serialization)


def kernel_checkpoints(twin: PopTwin, pieces: list[bytes]) -> int:
    """Return how many checkpoints the kernel wrote: one for each queue that a pop took from."""
    log = twin.service.log
    with patch.object(log, "append_checkpoints", wraps=log.append_checkpoints) as append:
        twin.serve(pieces)
    return sum(len(call.args[0]) for call in append.call_args_list)


def twins(**changes: Any) -> tuple[PopTwin, PopTwin]:
    return ready_twin(False, **changes), ready_twin(True, **changes)


def compare_after(change: Callable[[PopTwin], None], pieces: list[bytes], **config: Any) -> None:
    """Compare kernel and handler before and after a change that the kernel must notice."""
    pure, native = twins(**config)
    for _ in range(2):
        compare_served(pure, native, pieces)
        for twin in (pure, native):
            change(twin)
            # The tables of these twins have no files, so they are changed directly.
            twin.config.plan_version.rise()


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_any_pops_and_any_bytes(seed: int) -> None:
    pop_twins(random.Random(seed).randbytes(MIN_BYTES + seed % 9))


@pytest.mark.parametrize("seed", seeds(60, quick=4))
def test_pops_until_the_queues_are_empty(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [b"".join(pop_of(chance, 1.0) for _ in range(chance.choice((1, 3, 12)))) for _ in range(3)]
    config: dict[str, Any] = {"pop_from_retry_probability": chance.choice((0, 20, 100))}
    config |= {"append_ck_async": chance.random() < 0.3, "enable_retry_topic_v2": chance.random() < 0.3}
    config["segment_bytes"] = chance.choice((SEGMENT_BYTES, LARGE_SEGMENT_BYTES))
    compare_pops(pieces, sync_flush=chance.random() < 0.3, **config)


@pytest.mark.parametrize("seed", seeds(20, quick=2))
def test_damaged_frames_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    stream = damaged(b"".join(pop_of(chance, 0.8) for _ in range(5)), chance)
    compare_pops(pieces_of(stream))
    compare_pops([stream[: chance.randrange(len(stream))]])


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("group", ["CG", "Quiet"])
def test_the_kernel_serves_pops_of_any_serialization(serialization: int, group: str) -> None:
    twin = ready_twin(True)
    stream = b"".join(frame(serialization, number, consumer_group=group, max_msg_nums=8) for number in range(5))
    assert kernel_checkpoints(twin, [stream]) == 5


@pytest.mark.parametrize(
    ("changes", "checkpoints"),
    [
        ({"exp": "A || C"}, 1), ({"exp": None, "exp_type": None}, 1), ({"order": None}, 1), ({"queue_id": 3}, 1),
        ({"born_time": 0}, 1), ({"attempt_id": "a"}, 1), ({"invisible_time": 1001}, 1), ({"init_mode": 1}, 1),
    ],
)  # fmt: skip
def test_the_kernel_serves_these_too(changes: dict[str, Any], checkpoints: int) -> None:
    assert kernel_checkpoints(ready_twin(True), [frame(max_msg_nums=4, **changes)]) == checkpoints
    compare_pops([frame(max_msg_nums=4, **changes) * 2])


@pytest.mark.parametrize(
    "changes",
    [
        {"order": True}, {"exp": "a > 1", "exp_type": "SQL92"}, {"exp": "||"}, {"exp": "no"}, {"queue_id": 4},
        {"max_msg_nums": 33}, {"max_msg_nums": 0}, {"invisible_time": 1000}, {"invisible_time": 1 << 40},
        {"consumer_group": "Unknown"}, {"consumer_group": "Off"}, {"topic": "Unknown"}, {"topic": "NoRead"},
        {"topic": "Empty"}, {"born_time": 1},
        {"exp": "||".join(map(str, range(17)))}, {"consumer_group": "g#"}, {"consumer_group": "x" * 250},
    ],
)  # fmt: skip
def test_what_the_kernel_leaves_to_the_handler(changes: dict[str, Any]) -> None:
    stream = frame(max_msg_nums=2) + frame(opaque=2, **changes) + frame(opaque=3, max_msg_nums=2)
    # The rest of the read follows it.
    assert kernel_checkpoints(ready_twin(True), [frame(opaque=2, **changes)]) == 0
    compare_pops([stream])


def test_a_pop_from_several_queues() -> None:
    """The first queue has less than the pop accepts."""
    few = frame(max_msg_nums=32)
    pure, native = twins(pop_from_retry_probability=0)
    for twin in (pure, native):
        for queue_id in range(4):
            end = twin.store.max_offset("Orders", queue_id)
            twin.core.offsets.assign("CG", "Orders", queue_id, end - 3)
    assert native.serve([few]) == pure.serve([few])
    again = ready_twin(True)
    for queue_id in range(4):
        again.core.offsets.assign("CG", "Orders", queue_id, again.store.max_offset("Orders", queue_id) - 3)
    assert kernel_checkpoints(again, [few]) == 4


def test_a_retry_topic_with_messages_needs_the_handler() -> None:
    retried = frame(consumer_group="Retried")
    assert kernel_checkpoints(ready_twin(True, pop_from_retry_probability=100), [retried]) == 0
    for probability in (0, 100):
        compare_pops([retried * 3], pop_from_retry_probability=probability)


@pytest.mark.parametrize(
    "config", [{"enable_pop_buffer_merge": True}, {"enable_pop_message_threshold": True}, {"broker_permission": 2}]
)
def test_these_configurations_need_the_handler(config: dict[str, Any]) -> None:
    assert kernel_checkpoints(ready_twin(True, **config), [frame()]) == 0
    compare_pops([frame(max_msg_nums=3) * 4], **config)


def test_a_slave_needs_the_handler() -> None:
    twin = ready_twin(True)
    twin.config.plan_version.rise()
    with patch.object(type(twin.service.log), "is_elsewhere", True):
        assert kernel_checkpoints(twin, [frame()]) == 0


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("append_ck_async", [False, True])
def test_pops_are_answered_when_their_checkpoints_are_as_safe_as_configured(
    sync_flush: bool, append_ck_async: bool
) -> None:
    stream = b"".join(frame(opaque=number, max_msg_nums=2) for number in range(20))
    found = compare_pops([stream], sync_flush=sync_flush, append_ck_async=append_ck_async)
    assert len(found[0]) == 20


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_failed_append_refuses_each_pop_and_gives_its_messages_to_the_next(sync_flush: bool) -> None:
    pure, native = twins(sync_flush=sync_flush)
    for twin in (pure, native):
        before, end = twin.state(), twin.store.max_offset(TIMER_TOPIC, 0)
        with patch.object(MessageStore, "_append", side_effect=StoreError("no room")):
            responses, *_ = twin.serve([frame(opaque=1) + frame(opaque=2)])
        assert [b"no room" in header for _, header, _ in responses] == [True, True]
        assert twin.store.max_offset(TIMER_TOPIC, 0) == end
        assert twin.service.offsets.uncommitted("Orders", "CG", 0) == 0
        assert len(twin.state()) == len(before)
    assert native.state() == pure.state()
    assert native.serve([frame()]) == pure.serve([frame()])


def test_an_error_inside_leaves_the_read_to_the_handler() -> None:
    twin, pure = ready_twin(True), ready_twin(False)
    with patch.object(twin.service.log, "count_checkpoints", side_effect=ValueError("a bug")):
        responses, *_ = twin.serve([frame(opaque=1) + frame(opaque=2)])
    expected, *_ = pure.serve([frame(opaque=1) + frame(opaque=2)])
    assert [len(body) > 0 for *_, body in responses] == [True, True] == [len(body) > 0 for *_, body in expected]
    assert twin.service.offsets.uncommitted("Orders", "CG", 0) == 0


def test_a_pop_that_leaves_messages_wakes_a_held_one() -> None:
    woken = []
    for twin in twins():
        with patch.object(twin.service.held, "wake", return_value=False) as wake:
            twin.serve([frame(max_msg_nums=3) * 3 + frame(queue_id=1, max_msg_nums=1)])
        woken.append([call.args for call in wake.call_args_list])
    assert woken[0] == woken[1] == [("Orders", "CG", -1)] * 3 + [("Orders", "CG", 1)]


def test_large_pops_and_many_of_them() -> None:
    """A response of more than 64 KiB is for the handler, and 256 KiB of responses end a call."""

    def add(twin: PopTwin) -> None:
        code = java_hash_code("A")
        twin.store.append([PendingMessage("Orders", 0, bytes(3000), b"", code, 0, 0, 0, bytes(8)) for _ in range(90)])

    compare_after(add, [frame(queue_id=0) * 2])
    compare_after(add, [frame(queue_id=0, max_msg_nums=8) * 14])


def test_the_end_of_a_segment() -> None:
    compare_pops([frame(max_msg_nums=1) * 60], segment_bytes=SEGMENT_BYTES)


def _delete_topic(twin: PopTwin) -> None:
    twin.core.topics.by_name.pop("Orders", None)


def _fewer_queues(twin: PopTwin) -> None:
    twin.core.topics.by_name["Orders"] = TopicConfig("Orders", 2, 2)


def _disable_group(twin: PopTwin) -> None:
    twin.core.groups.by_name["CG"] = SubscriptionGroupConfig("CG", consume_enable=False)


def _reset(twin: PopTwin) -> None:
    twin.core.offsets.reset("CG", "Orders", 0, 2)


def _arrive(twin: PopTwin) -> None:
    twin.store.append([PendingMessage("%RETRY%Quiet_Orders", 0, b"again", b"", 0, 0, 0, 0, bytes(8))])


def _turn_on_v2(twin: PopTwin) -> None:
    twin.config.replace_broker(replace(twin.config.broker, enable_retry_topic_v2=True))


@pytest.mark.parametrize("change", [_delete_topic, _fewer_queues, _disable_group, _reset, _arrive, _turn_on_v2])
def test_changes_between_two_reads(change: Callable[[PopTwin], None]) -> None:
    stream = b"".join(frame(consumer_group=group, max_msg_nums=3) for group in ("CG", "Quiet", "CG", "Quiet"))
    compare_after(change, [stream])


def test_a_field_of_every_kind_in_every_place() -> None:
    fields = to_ext_fields(pop_header(attempt_id="a", broker_name="broker-a"))
    for name in fields:
        stream = b"".join(
            frame(max_msg_nums=1) + encode_request(RequestCode.POP_MESSAGE, 7, {**fields, name: text})
            for text in ("", "null", "-1", "007", "9" * 19, "Zürich")
        )
        compare_pops([stream])


def test_records_are_encoded_once() -> None:
    """A second encoding would write into nothing."""
    twin = ready_twin(True)
    found = []

    def encode_twice(records: Any) -> int:
        records.encode(0, 0, bytes(8))
        with pytest.raises(ValueError, match="encoded before"):
            records.encode(0, 0, bytes(8))
        found.append(len(records))
        raise StoreError("no room")

    with patch.object(twin.service.log, "append_checkpoints", encode_twice):
        twin.serve([frame(max_msg_nums=4)])
    assert found == [1]
