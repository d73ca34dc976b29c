"""The compiled cutter of frames and decoder of headers give what the Python code gives, for any bytes and splits."""

import gc
import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.engine import header_decoder, response_encoder
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.headers.admin import CreateTopicRequestHeader
from tests.fuzz.twins.wire_targets import (
    HEADERS,
    compare_headers,
    compiled,
    cut,
    header_of,
    read_frames,
    request_of,
    response_twins,
    table,
    wire_twins,
)
from tests.tiers import examples, is_quick, seeds

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled engine is not built")


@pytest.mark.parametrize("seed", seeds(100, quick=6))
def test_requests_as_clients_write_them_and_damaged_ones(seed: int) -> None:
    chance = random.Random(seed)
    stream = bytearray(b"".join(request_of(chance) for _ in range(8)))
    wire_twins(bytes(stream))
    for _ in range(6):
        at = chance.randrange(len(stream))
        stream[at] ^= 1 << chance.randrange(8)
        wire_twins(bytes(stream))
    wire_twins(bytes(stream[: chance.randrange(len(stream))]))


@pytest.mark.parametrize("seed", seeds(8))
def test_usual_requests_are_decoded_compiled(seed: int) -> None:
    chance = random.Random(seed)
    taken = 0
    for _ in range(100):
        taken += sum(compare_headers(frame) for frame in FrameDecoder().feed(request_of(chance)))
    assert taken > 25


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("code", HEADERS)
def test_every_byte_of_a_header_changed(code: RequestCode, serialization: int) -> None:
    fields = {name: text or "x" for name, text in header_of(random.Random(1), HEADERS[code], 1.0).items()}
    (frame,) = FrameDecoder().feed(encode_request(int(code), 7, fields, serialization=serialization))
    for at in range(0, len(frame[1]), 10 if is_quick() else 1):
        header = bytearray(frame[1])
        header[at] ^= (1, 0x20, 0x80)[at % 3]
        compare_headers((serialization, bytes(header), b""))
        compare_headers((serialization, frame[1][:at], b""))


def test_every_split_of_a_stream() -> None:
    chance = random.Random(3)
    stream = b"".join(request_of(chance) for _ in range(3))
    for at in range(0, len(stream), 3):
        pieces = [stream[:at], stream[at:]]
        assert cut(pieces, True) == cut(pieces, False)


@settings(max_examples=examples(400))
@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    wire_twins(data)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
def test_a_run_ends_before_the_first_unusual_frame(serialization: int) -> None:
    decoder = table(True).entries[RequestCode.SEND_MESSAGE_V2].native
    fields = header_of(random.Random(1), HEADERS[RequestCode.SEND_MESSAGE_V2], 0)
    usual = FrameDecoder().feed(encode_request(310, 7, fields, serialization=serialization))[0]
    other = FrameDecoder().feed(encode_request(310, 7, fields, serialization=1 - serialization))[0]
    for unusual in (
        other,
        (serialization, b"{}", b""),
        (serialization, usual[1] + b" ", b""),
        (serialization, b"", b""),
    ):
        run: list[object] = []
        assert decoder.run([usual, usual, unusual, usual], 1, serialization, "channel", run) == 2
        assert [request.channel for request in run] == ["channel"]  # type: ignore[attr-defined]
    assert decoder.run([usual], 1, serialization, None, []) == 1
    assert decoder.run([usual], -1, serialization, None, []) == -1


def test_frames_of_a_read_are_a_sequence() -> None:
    chance = random.Random(7)
    sent = b"".join(request_of(chance) for _ in range(40))
    found = read_frames.cut(sent + b"\0\0", 1 << 20, 1 << 20)
    frames = list(found)
    assert found.end == len(sent) and len(found) == len(frames) == 40
    for index in range(-40, 40):
        assert found[index] == frames[index]
    for part in (slice(None), slice(3, 7), slice(5, 90), slice(-3, None), slice(90, 95), slice(9, 2, -2)):
        assert found[part] == frames[part]
    for index in (40, -41, 1 << 40):
        with pytest.raises(IndexError):
            found[index]
    assert not read_frames.cut(b"", 1, 1) and list(read_frames.cut(sent[:-1], 1 << 20, 1 << 20)) == frames[:-1]


def test_frames_keep_the_bytes_of_their_read() -> None:
    sent = bytearray(request_of(random.Random(1)))
    found = read_frames.cut(bytes(sent), 1 << 20, 1 << 20)
    gc.collect()
    assert list(found) == list(FrameDecoder().feed(bytes(sent)))


@pytest.mark.parametrize(
    "odd",
    [(), (0, b""), (0, bytearray(9), b""), (0, b"", None), ("0", b"", b""), None, [0, b"", b""], (1 << 70, b"", b"")],
)
def test_what_is_no_frame_has_no_start(odd: Any) -> None:
    assert read_frames.start_of([odd, (0, b"{}", b"")], 1) == (0, b"{}")
    places: list[tuple[Any, int]] = [([odd], 0), ([], 0), ([(0, b"", b"")], -1), ((odd,), 0), (None, 0)]
    for frames, index in places:
        with pytest.raises(IndexError):
            read_frames.start_of(frames, index)


def test_requests_own_what_they_hold() -> None:
    """Decoding again and again takes no memory, also if it ends halfway."""
    decoder = table(True).entries[RequestCode.SEND_MESSAGE_V2].native
    chance = random.Random(5)
    made = [frame for _ in range(50) for frame in FrameDecoder().feed(request_of(chance))]

    def decode() -> int:
        for frame in made:
            decoder.request(*frame, None)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        decode()
        before = decode()
        for _ in range(20):
            decode()
        assert decode() - before < 20_000
    finally:
        tracemalloc.stop()


def test_a_header_with_other_fields_than_texts_and_numbers_has_no_decoder() -> None:
    class WithMap(CreateTopicRequestHeader, kw_only=True):
        more: dict[str, str] | None = None

    assert header_decoder(17, WithMap, compiled) is None


@pytest.mark.parametrize("seed", seeds(100, quick=10))
def test_responses(seed: int) -> None:
    response_twins(b"%d" % seed)


def test_a_usual_template_is_encoded_compiled() -> None:
    encoder = response_encoder(
        b'{"id":"%016X","k":"%b","opaque":%d}',
        {"id": "%016X", "k": "%b"},
        [b"\0\2id", b"\0\1k"],
        (0, 12, 479),
        (1, 0, b""),
        b"",
        engine=compiled,
    )
    assert encoder.frame(JSON, 5, (255, b"key"), 0)[8:] == b'{"id":"00000000000000FF","k":"key","opaque":5}'
    for values in ((-1, b""), (1 << 63, b""), (True, b""), (1, "text"), (1, bytearray(b"x")), (1,), (1, b"", b"")):
        assert encoder.frame(JSON, 5, values, 0) is None
    for opaque in (1 << 31, 1 << 80, "5"):
        assert encoder.frame(JSON, opaque, (1, b""), 0) is None
