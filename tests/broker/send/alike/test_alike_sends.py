"""Sends that are alike, served together by pure Python, give what single requests give; which sends are alike."""

import random
from unittest.mock import patch

import pytest

from sprocket.common.errors import DiskFull
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from tests.broker.send.test_usual_sends import KINDS, NEARLY
from tests.fuzz.engine_send_targets import PROPERTIES, USUAL, Twin, compare_sends, compare_turns
from tests.fuzz.target import pieces_of
from tests.send_headers import send_header
from tests.sim.sim_disk import Fault
from tests.tiers import seeds


def read(count: int, properties: str = USUAL, *, first: int = 100, body_bytes: int = 100, **header: int) -> bytes:
    """A read of sends to four queues whose unique keys differ."""
    return b"".join(
        encode_request(
            310,
            n,
            send_header(
                queue_id=n % 4, properties=properties.replace("0A00", f"{n:04X}"), born_timestamp=1_700_000_000_000 + n,
                **header,
            ),
            body_bytes,
        )
        + bytes([n % 256]) * body_bytes
        for n in range(first, first + count)
    )  # fmt: skip


def appended_together(*reads: bytes) -> list[int]:
    """Return how many sends of each append of these reads were served together."""
    twin = Twin(False, is_alike=True, sync_flush=False, segment_bytes=1 << 20)
    twin.serve([read(4)])
    counts: list[int] = []
    append = twin.store.append_usual
    with patch.object(twin.store, "append_usual", lambda records: (counts.append(len(records)), append(records))[1]):
        for one in reads:
            twin.serve([one])
    return counts


def test_sends_of_one_form_are_appended_together() -> None:
    assert appended_together(read(64), read(32)) == [64, 32]


@pytest.mark.parametrize("properties", KINDS)
def test_half_and_timed_messages_too(properties: str) -> None:
    assert appended_together(read(4, USUAL + properties), read(64, USUAL + properties)) == [64]


def test_headers_of_two_lengths() -> None:
    assert appended_together(read(64, first=68)) == [64]
    compare_sends([read(64, first=68)], sync_flush=False)


def test_few_sends_are_single_requests() -> None:
    assert appended_together(read(8)) == []


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
        (b"TagA", b'Ta":'), (b"true", b"fals"), (b'"e":"1"', b'"e":"9"'), (b'"e":"1"', b'"e":"-"'), (b'"e":"1"', b'"e":" "'),
        (b'"g":"17', b'"g":"07'), (b'"g":"17', b'"g":"-7'), (b'"opaque":1', b'"opaque":0'), (b'"opaque":1', b'"opaque":-'),
        (b'"flag":0', b'"flag":2'), (b'"flag":0', b'"flag":1'), (b'"b":"Orders"', b'"b":"Trades"'), (b"UNIQ_KEY", b"UNIQ_KEX"),
        (b"00000001", b"0000-001"), (b'"code":310', b'"code":311'), (b'"f":"0"', b'"f":"4"'), (b'"version":4', b'"version":x'),
    ],
)  # fmt: skip
def test_a_header_that_differs_in_a_few_octets(old: bytes, new: bytes) -> None:
    """One of 48 headers is another, of the same size, in any place of the read."""
    for at in (0, 7, 30, 47):
        frames = [read(1, first=first) for first in range(100, 148)]
        assert old in frames[at] or old == b'"e":"1"'
        frames[at] = frames[at].replace(old, new)
        compare_sends([read(40), b"".join(frames)], sync_flush=False)


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
    stream = bytearray(read(chance.choice((30, 60)), chance.choice((USUAL, *(USUAL + kind for kind in KINDS)))))
    for _ in range(chance.randrange(1, 4)):
        stream[chance.randrange(len(stream))] ^= 1 << chance.randrange(8)
    compare_sends([read(40), bytes(stream)], sync_flush=False)
    compare_sends([read(40), *pieces_of(bytes(stream))], sync_flush=chance.random() < 0.3)


def test_several_connections_in_one_turn() -> None:
    turn = [(name, read(40, USUAL + properties)) for name, properties in enumerate(("", KINDS[0], KINDS[1], ""))]
    compare_turns([turn, [*turn[::-1], (1, read(3))], turn], sync_flush=False)


def test_the_end_of_a_segment() -> None:
    compare_sends([read(30), *([read(30, body_bytes=300)] * 8)], sync_flush=False)


def test_records_over_a_limit_are_refused_alone() -> None:
    compare_sends([read(40), read(20) + read(1, body_bytes=1 << 17, first=150) + read(20, first=200)], sync_flush=False)
    properties = USUAL + "K\x01" + "v" * 3000 + "\x02"
    compare_sends([read(40), read(30, properties)], sync_flush=False, max_message_size=2000)


def test_a_failed_write_refuses_the_sends_of_the_read() -> None:
    twin = Twin(False, is_alike=True, sync_flush=False)
    twin.serve([read(40)])
    before = twin.state()[1:4]
    faults = [Fault(DiskFull, 0.5)]
    twin.disk.fault = lambda kind, path: faults.pop() if kind == "write" and faults else None
    answers = twin.serve([read(40)])[0]
    assert len(answers) == 40
    assert not any(b'"code":0,' in header for _, header, _ in answers)
    assert twin.state()[1:4] == before
    assert all(b'"code":0,' in header for _, header, _ in twin.serve([read(40)])[0])


def test_rocketmq_headers_are_single_requests() -> None:
    frames = [
        encode_request(310, n, send_header(properties=USUAL), 1, serialization=serialization) + b"x"
        for n in range(60)
        for serialization in ((JSON, ROCKETMQ)[n >= 30],)
    ]
    compare_sends([b"".join(frames[:40]), b"".join(frames)], sync_flush=False)
