"""Acknowledgements that are alike, served together by pure Python, give what single requests give; which are alike."""

import random
from typing import Any
from unittest.mock import patch

import pytest

from broker.pop.alike_acks import MIN_ACKS, PASSED_READS
from sprocket.common.errors import StoreError
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import MessageStore
from tests.fuzz.twins.ack_targets import (
    MIN_BYTES,
    Twin,
    ack_header,
    alike_ack_twins,
    alike_read,
    compare_acks,
    handle_of,
)
from tests.tiers import seeds


def frame(opaque: int = 7, at: int = 3, serialization: int = JSON, **fields: str) -> bytes:
    header = to_ext_fields(ack_header(handle_of(queue_offset=at)))
    return encode_request(RequestCode.ACK_MESSAGE, opaque, header | fields, serialization=serialization)


def framed(header: bytes) -> bytes:
    return (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


def changed(old: bytes, new: bytes) -> bytes:
    return framed(frame(107, at=14)[8:].replace(old, new))


def served_alike(pieces: list[bytes], *, is_first: bool = False) -> list[int]:
    """Return how many acknowledgements each append of alike ones has."""
    twin = Twin(False, is_alike=True, segment_bytes=1 << 20)
    if not is_first:
        twin.serve([frame()])  # the timer's queue exists then
    with patch.object(twin.service.log, "append_acks", wraps=twin.service.log.append_acks) as append:
        twin.serve(pieces)
    return [len(call.args[0]) for call in append.call_args_list]


@pytest.mark.parametrize("seed", seeds(100, quick=6))
def test_any_changed_octets(seed: int) -> None:
    alike_ack_twins(random.Random(seed).randbytes(MIN_BYTES + seed % 9))


def test_after_a_read_of_many_pops_some_reads_are_served_one_by_one() -> None:
    many = b"".join(frame(10 + n, at=n, consumerGroup=f"CG{n}") for n in range(16))
    alike = alike_read(8, 10, opaque=100, lanes=1)
    compare_acks([many, alike, many])
    assert served_alike([many, *[alike] * PASSED_READS]) == []
    assert served_alike([many, *[alike] * (PASSED_READS + 2)]) == [8, 8]


@pytest.mark.parametrize(("lanes", "first", "opaque"), [(1, 5, 95), (2, 5, 95), (4, 10, 100)])
def test_acknowledgements_of_several_pops_are_served_together(lanes: int, first: int, opaque: int) -> None:
    """Offsets and opaques may get a digit more within the read."""
    read = alike_read(32, first, opaque, lanes)
    assert served_alike([read]) == [32]
    compare_acks([read, read])


def test_headers_of_one_length_with_numbers_of_other_lengths() -> None:
    short = b"".join(frame(1000 + n, at=n) for n in range(1, 9))
    long = b"".join(frame(10 + n, at=10 + n) for n in range(8))
    assert len(short) == len(long)
    assert served_alike([short + long + short + long]) == [32]
    compare_acks([short + long + short + long])


def test_few_acknowledgements_and_those_before_the_first_append_are_served_one_by_one() -> None:
    assert served_alike([alike_read(MIN_ACKS - 1, 5)]) == []
    assert served_alike([alike_read(32, 5)], is_first=True) == []


@pytest.mark.parametrize("sync_flush", [False, True])
@pytest.mark.parametrize("append_ack_async", [False, True])
def test_acknowledgements_are_answered_when_they_are_as_safe_as_configured(
    sync_flush: bool, append_ack_async: bool
) -> None:
    found = compare_acks([alike_read(40, 10)], sync_flush=sync_flush, append_ack_async=append_ack_async)
    assert len(found[0]) == 40


@pytest.mark.parametrize(
    "unusual",
    [
        frame(serialization=ROCKETMQ), frame(opaque=0), frame(opaque=-1), frame(opaque=2**31 - 1), frame(at=51),
        frame(107, at=51), frame(107, at=14, offset="15"), frame(107, at=14, offset="1x"),
        changed(b":107", b":007"), changed(b":107", b":1e7"), changed(b"14", b"04"), changed(b"14", b"-4"),
        frame(offset="4"), frame(offset="03"), frame(offset="-3"), frame(offset="null"), frame(topic="Unknown"),
        frame(consumerGroup="Zürich"), frame(consumerGroup='"offset"'), frame(bname='{"offset":"3"}'),
        frame(other="opaque"), frame(bname="x" * 5000), frame(extraInfo="1 2 3"),
        encode_request(RequestCode.ACK_MESSAGE, 7, ack_header(handle_of()), oneway=True),
        encode_request(RequestCode.PULL_MESSAGE, 7, ack_header(handle_of())),
        changed(b'"opaque":107', b'"opaque": 107'), changed(b'"offset":"14"', b'"offset":14'),
    ],
)  # fmt: skip
def test_an_unusual_acknowledgement_ends_those_that_are_alike(unusual: bytes) -> None:
    alike = alike_read(16, 20, opaque=100, lanes=1)
    stream = alike + unusual + alike
    assert served_alike([stream])[0] == 16
    compare_acks([stream])


def test_a_value_that_names_a_number_does_not_stand_for_it() -> None:
    """The number is at one place only, whatever other values and unknown fields say."""
    for count in (8, 16):
        plain = [frame(opaque=20 + n, at=10 + n) for n in range(count)]
        for old, new in (
            (b'"flag":0', b'"x":{"offset":"10"},"flag":0'), (b'"flag":0', b'"x":{"opaque":20},"flag":0'),
            (b'"opaque":', b'"opaque":5,"opaque":'), (b'"offset":', b'"offset":"10","offset":'),
            (b'"topic"', b'"x":"opaque","topic"'),
        ):  # fmt: skip
            compare_acks([b"".join(framed(one[8:].replace(old, new)) for one in plain)])


@pytest.mark.parametrize("later", [False, True])
def test_a_failed_append_refuses_each_acknowledgement(later: bool) -> None:
    """Nothing is stored, so the messages are redelivered."""
    twin = Twin(False, is_alike=True, sync_flush=later)
    twin.serve([frame()])
    before = twin.store.max_offset(TIMER_TOPIC, 0)
    with patch.object(MessageStore, "_append", side_effect=StoreError("no room")):
        responses: list[Any] = twin.serve([alike_read(8, 10, opaque=100, lanes=1)])[0]
    assert [b"no room" in header for _, header, _ in responses] == [True] * 8
    assert twin.store.max_offset(TIMER_TOPIC, 0) == before


def test_the_end_of_a_segment() -> None:
    for _ in range(3):
        compare_acks([alike_read(50, 5, lanes=1)] * 20)
