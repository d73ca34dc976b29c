"""Sends that are alike, served together by pure Python, give what single requests give; which sends are alike."""

import random
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from sprocket.common.errors import DiskFull
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from store.appender import UsualRecords
from tests.fuzz.mutation import damaged
from tests.fuzz.target import pieces_of
from tests.fuzz.twins.send_targets import KINDS, NEARLY, PROPERTIES, USUAL, Twin, compare_sends, compare_turns
from tests.fuzz.twins.send_targets import alike_read as read
from tests.send_headers import send_header
from tests.sim.sim_disk import Fault
from tests.tiers import seeds


def appended_together(*reads: bytes) -> list[int]:
    """Return how many sends of each append of these reads were served together."""
    twin = Twin(False, is_alike=True, sync_flush=False, segment_bytes=1 << 20)
    twin.serve([read(4)])
    counts: list[int] = []
    append = twin.store.append_usual

    def counted(records: UsualRecords) -> int:
        counts.append(len(records))
        return append(records)

    with patch.object(twin.store, "append_usual", counted):
        for one in reads:
            twin.serve([one])
    return counts


def test_sends_of_one_form_are_appended_together() -> None:
    assert appended_together(read(64), read(48)) == [64, 48]


@pytest.mark.parametrize("properties", KINDS)
def test_half_and_timed_messages_too(properties: str) -> None:
    assert appended_together(read(4, USUAL + properties), read(64, USUAL + properties)) == [64]


def test_headers_of_two_lengths() -> None:
    assert appended_together(read(64, first=68)) == [64]
    compare_sends([read(64, first=68)], sync_flush=False)


def test_few_sends_are_single_requests() -> None:
    assert appended_together(read(47)) == []
    timed = USUAL + KINDS[1]
    assert appended_together(read(1, timed), read(15, timed), read(16, timed)) == [16]


def test_the_sends_before_an_unusual_one() -> None:
    unusual = read(1, "UNIQ_KEY\x01A\x02DELAY\x011\x02", first=170)
    assert appended_together(read(60) + unusual + read(60, first=200)) == [60]
    compare_sends([read(60) + unusual + read(60, first=200)], sync_flush=False)


@pytest.mark.parametrize("flag", [0, 4, 8, 0xC])
def test_any_kind_of_properties_among_alike_sends(flag: int) -> None:
    for properties in (*PROPERTIES, *(USUAL + rest for rest in (*KINDS, *NEARLY))):
        if properties:
            compare_sends(
                [read(40, properties, sys_flag=flag), read(40, properties.removesuffix("\x02"))], sync_flush=False
            )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"TagA", b"Ta\\n"), (b"TagA", b"T\xc3\xbcg"), (b"TagA", b"Tag#"), (b"TagA", b"Ta\\u"), (b"TagA", b"DELA"),
        (b"TagA", b'Ta":'), (b"true", b"fals"), (b'"e":"1"', b'"e":"9"'), (b'"e":"1"', b'"e":"-"'),
        (b'"e":"1"', b'"e":" "'), (b'"g":"17', b'"g":"07'), (b'"g":"17', b'"g":"-7'), (b'"opaque":1', b'"opaque":0'),
        (b'"opaque":1', b'"opaque":-'), (b'"flag":0', b'"flag":2'), (b'"flag":0', b'"flag":1'),
        (b'"b":"Orders"', b'"b":"Trades"'), (b"UNIQ_KEY", b"UNIQ_KEX"), (b"00000001", b"0000-001"),
        (b'"code":310', b'"code":311'), (b'"f":"0"', b'"f":"4"'), (b'"version":4', b'"version":x'),
    ],
)  # fmt: skip
def test_a_header_that_differs_in_a_few_octets(old: bytes, new: bytes) -> None:
    """One of 60 headers is another, of the same size, in any place of the read."""
    for at in (1, 5, 49, 57):
        frames = [read(1, first=first) for first in range(100, 160)]
        assert old in frames[at]
        frames[at] = frames[at].replace(old, new)
        compare_sends([read(50), b"".join(frames)], sync_flush=False, segment_bytes=1 << 17)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word", ["UNIQ_KEY", "PGROUP..", "TIMER_ST", "TRAN_MSG"])
def test_a_value_that_holds_a_name(word: str, kind: str) -> None:
    """Single requests of half and timed messages parse their properties then; the records are the same."""
    properties = f"{USUAL}{kind}KEYS\x01........\x02"
    frames = [
        read(1, properties.replace("........", word if n == 130 else "a value."), first=n) for n in range(100, 160)
    ]
    compare_sends([read(4), b"".join(frames)], sync_flush=False, segment_bytes=1 << 17)


def test_values_of_one_size_that_differ() -> None:
    chance = random.Random(1)
    frames = []
    for n in range(100, 160):
        rest = f"KEYS\x01{chance.choice(('a b', 'xyz', 'DEL', 'T_A'))}\x02TAGS\x01{chance.choice('ABC')}\x02"
        frames.append(read(1, USUAL.replace("TAGS\x01TagA\x02", rest), first=n, body_bytes=chance.randrange(1, 300)))
    compare_sends([b"".join(frames)], sync_flush=False)
    assert appended_together(b"".join(frames)) == [60]


@pytest.mark.parametrize("seed", seeds(100, quick=8))
def test_damaged_reads_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    stream = damaged(
        read(chance.choice((30, 60, 64)), chance.choice((USUAL, *(USUAL + kind for kind in KINDS)))), chance
    )
    compare_sends([read(40), stream], sync_flush=False)
    compare_sends([read(40), *pieces_of(stream)], sync_flush=chance.random() < 0.3)


def test_several_connections_in_one_turn() -> None:
    turn = [(name, read(50, USUAL + properties)) for name, properties in enumerate(("", KINDS[0], KINDS[1], ""))]
    compare_turns([turn, [*turn[::-1], (1, read(3))], turn], sync_flush=False, segment_bytes=1 << 17)


def test_connections_and_lengths_that_name_the_same_queues_in_another_order() -> None:
    def to(queues: Sequence[int], key_end: str = "") -> bytes:
        properties = USUAL.replace("0A00", f"0A00{key_end}")
        return b"".join(read(1, properties, first=n, queue_id=queues[n % len(queues)]) for n in range(100, 150))

    reads = [to([2, 2, 3]), to([3, 0, 1, 2]), to([1, 0]), to([0, 1, 2, 3])]
    turns = [list(enumerate(reads)), list(enumerate(reads[::-1]))]
    compare_turns(turns, sync_flush=False, segment_bytes=1 << 18)
    compare_sends([to([3, 1]) + to([0, 1, 3], "00") + to([1, 3])], sync_flush=False, segment_bytes=1 << 18)


def test_the_end_of_a_segment() -> None:
    compare_sends([read(50), *([read(50, body_bytes=300)] * 8)], sync_flush=False)


def test_records_over_a_limit_are_refused_alone() -> None:
    large = read(50) + read(1, body_bytes=3000, first=150) + read(50, first=200)
    compare_sends([read(50), large], sync_flush=False, segment_bytes=1 << 17, max_message_size=2000)
    properties = USUAL + "K\x01" + "v" * 3000 + "\x02"
    compare_sends([read(50), read(50, properties)], sync_flush=False, segment_bytes=1 << 19, max_message_size=2000)


def test_a_failed_write_refuses_the_sends_of_the_read() -> None:
    twin = Twin(False, is_alike=True, sync_flush=False, segment_bytes=1 << 17)
    twin.serve([read(50)])
    before = twin.state()[1:4]
    faults = [Fault(DiskFull, 0.5)]
    twin.disk.fault = lambda kind, path: faults.pop() if kind == "write" and faults else None
    answers = twin.serve([read(50)])[0]
    assert len(answers) == 50
    assert not any(b'"code":0,' in header for _, header, _ in answers)
    assert twin.state()[1:4] == before
    assert all(b'"code":0,' in header for _, header, _ in twin.serve([read(50)])[0])


def test_rocketmq_headers_are_single_requests() -> None:
    frames = [
        encode_request(310, n, send_header(properties=USUAL), 1, serialization=ROCKETMQ if n >= 60 else JSON) + b"x"
        for n in range(120)
    ]
    compare_sends([b"".join(frames[:70]), b"".join(frames)], sync_flush=False, segment_bytes=1 << 17)
    assert appended_together(b"".join(frames)) == [60]


@pytest.mark.parametrize("opaque", [b"07", b"00", b"7x", b"-7"])
def test_opaques_of_two_lengths_are_checked(opaque: bytes) -> None:
    usual = read(64, first=68)
    changed = usual.replace(b'"opaque":75,', b'"opaque":%b,' % opaque)
    assert changed != usual
    # The first read has the shape of the longer headers, to which the shorter ones are padded.
    compare_sends([read(64, first=168), usual, changed], sync_flush=False)


@pytest.mark.parametrize("first", [68, 968, 3])
def test_a_known_shape_for_opaques_of_two_lengths(first: int) -> None:
    assert appended_together(read(64, first=max(100, 10 * first)), read(64, first=first)) == [64, 64]
    compare_sends([read(64, first=1000), read(64, first=first)], sync_flush=False)
