"""Frames: cut the same however the bytes are split; refused before anything is allocated."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.common import limits
from sprocket.remoting.frames import FrameTooLarge, request_prefix
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder, frame_prefix


def encode(serialization: int, header: bytes, body: bytes) -> bytes:
    return frame_prefix(serialization, len(header), len(body)) + header + body


def refusal(decoder: FrameDecoder, data: bytes) -> str | None:
    assert decoder.feed(data) == []
    return decoder.error and decoder.error.kind


FRAMES = [(JSON, b'{"code":1}', b""), (ROCKETMQ, b"h" * 21, b"body"), (JSON, b"", b""), (JSON, b"{}", b"x" * 70_000)]
STREAM = b"".join(encode(*frame) for frame in FRAMES)


def test_one_read_with_many_frames() -> None:
    assert list(FrameDecoder().feed(STREAM)) == FRAMES


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_result_does_not_depend_on_how_the_stream_is_split(cuts: list[int]) -> None:
    decoder = FrameDecoder()
    edges = [0, *sorted(cuts), len(STREAM)]
    frames = []
    for start, stop in pairwise(edges):
        frames += decoder.feed(STREAM[start:stop])
    assert frames == FRAMES
    assert decoder.pending_bytes == 0


@given(st.lists(st.tuples(st.sampled_from(FRAMES[:3]), st.integers(1, 40)), max_size=4), st.integers(0, 5000))
def test_runs_of_one_frame_and_a_damaged_octet(runs: list[tuple[tuple[int, bytes, bytes], int]], damaged: int) -> None:
    expected = [frame for frame, count in runs for _ in range(count)]
    stream = bytearray(b"".join(encode(*frame) for frame in expected))
    assert list(FrameDecoder().feed(bytes(stream))) == expected
    if damaged < len(stream):
        stream[damaged] ^= 0x81
    whole, by_octet = FrameDecoder(), FrameDecoder()
    found = list(whole.feed(bytes(stream)))
    assert found == [frame for octet in stream for frame in by_octet.feed(bytes((octet,)))]
    assert (whole.error and whole.error.kind) == (by_octet.error and by_octet.error.kind)
    assert whole.error or whole.pending_bytes == by_octet.pending_bytes


def test_byte_by_byte() -> None:
    decoder = FrameDecoder()
    small = encode(*FRAMES[0]) + encode(*FRAMES[1])
    frames = [frame for at in range(len(small)) for frame in decoder.feed(small[at : at + 1])]
    assert frames == FRAMES[:2]


@pytest.mark.parametrize("length", [0, -1, 3, 2**31 - 1, -(2**31), 16 * 1024 * 1024 + 1])
def test_a_bad_length_is_refused_from_its_four_bytes_alone(length: int) -> None:
    assert refusal(FrameDecoder(), struct.pack(">i", length)) == "frame_length"


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        (2 << 24 | 2, "serialization"),
        (255 << 24 | 2, "serialization"),
        (0xFFFFFF, "header_length"),
        (97, "header_length"),
    ],
)
def test_a_bad_header_word_is_refused(word: int, kind: str) -> None:
    assert refusal(FrameDecoder(), struct.pack(">iI", 100, word)) == kind


def test_a_header_over_its_own_limit_is_refused() -> None:
    assert refusal(FrameDecoder(max_header_bytes=10), frame_prefix(JSON, 11, 0)) == "header_length"


def test_a_frame_of_exactly_the_limit_passes() -> None:
    decoder = FrameDecoder(max_frame_bytes=104)
    assert list(decoder.feed(frame_prefix(JSON, 0, 100) + bytes(100))) == [(JSON, b"", bytes(100))]
    assert refusal(decoder, frame_prefix(JSON, 0, 101)) == "frame_length"


def test_frames_before_a_bad_one_are_good_and_nothing_follows_it() -> None:
    decoder = FrameDecoder()
    assert list(decoder.feed(encode(*FRAMES[0]) + struct.pack(">i", -1) + encode(*FRAMES[0]))) == FRAMES[:1]
    assert decoder.error is not None
    assert decoder.feed(encode(*FRAMES[0])) == []


def test_pending_bytes_are_what_is_held() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(frame_prefix(JSON, 2, 100) + b"{}abc") == []
    assert decoder.pending_bytes == 13
    assert list(decoder.feed(bytes(97))) == [(JSON, b"{}", b"abc" + bytes(97))]
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize(
    ("header_bytes", "body_bytes", "fields"),
    [(limits.MAX_HEADER_BYTES, 0, 0), (100, limits.MAX_FRAME_BYTES - 108, 0), (100, 0, limits.MAX_EXT_FIELDS)],
)
def test_requests_are_sent_up_to_what_a_server_takes(header_bytes: int, body_bytes: int, fields: int) -> None:
    decoder = FrameDecoder()
    decoder.feed(request_prefix(JSON, header_bytes, body_bytes, fields))
    assert decoder.error is None
    larger = (header_bytes + (not body_bytes and not fields), body_bytes + (body_bytes > 0), fields + (fields > 0))
    with pytest.raises(FrameTooLarge, match="at most"):
        request_prefix(JSON, *larger)
