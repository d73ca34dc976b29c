"""Numbers and streams that promise more than there is: refused before anything is allocated for them."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard

from acl.plain.accounts import parse as parse_accounts
from ha.greeting import MasterGreeting
from ha.hello import ENVELOPE, MAGIC, Kind
from ha.protocol import TransferReader
from ha.session import FrameReader
from spark.decode.inflate import inflate_bodies
from sprocket.client.compression import Compression, decompress
from sprocket.client.errors import BodyUnreadable
from sprocket.client.message import MessageQueue
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ConfigError, ProtocolError, RequestError
from sprocket.remoting.bodies.registration import RegisterBrokerBody, inflate
from sprocket.remoting.codec import codec_binary
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.framing import FrameDecoder
from sprocket.remoting.message.record import SysFlag
from store.record.record import decode
from tests.fuzz.store_targets import whole_record
from tests.fuzz.text_targets import MEMBER, batch_body
from tests.ha.sessions import EPOCH, credentials

LENGTHS = (0, -1, 1, 127, 128, 32767, -32768, 65535, 2**24 - 1, 2**31 - 1, -(2**31))
MIB = 1 << 20
BINARY = codec_binary.encode_header(310, 1, 0, "remark", {"a": "b", "name": "value"})
RECORD = whole_record(b"body", b"TAGS\x01a\x02")
QUEUE = MessageQueue("Orders", "broker-a", 0)


def peak_of(run: Callable[[], object]) -> int:
    """Bytes that `run` had at once, whether or not it refused."""
    tracemalloc.start()
    try:
        with suppress(ProtocolError, RequestError, BodyUnreadable, ConfigError):
            run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def packed(number: int, size: int) -> bytes:
    return struct.pack(">i", max(-(2**31), min(number, 2**31 - 1)))[-size:]


def with_length(content: bytes, at: int, size: int, number: int) -> bytes:
    return content[:at] + packed(number, size) + content[at + size :]


# Decoder, whole input, and where its lengths stand: (position, bytes).
FIELDS: dict[str, tuple[Callable[[bytes], object], bytes, tuple[tuple[int, int], ...]]] = {
    "frame": (lambda data: FrameDecoder().feed(data), struct.pack(">iI", 20, 8) + bytes(16), ((0, 4), (5, 3))),
    "binary header": (codec_binary.decode_header, BINARY, ((13, 4), (23, 4), (27, 2), (30, 4), (35, 2), (41, 4))),
    "stored record": (
        lambda data: decode(memoryview(data)), RECORD, ((0, 4), (84, 4), (92, 1), (len(RECORD) - 9, 2)),
    ),
    "pulled record": (
        lambda data: decode_records(data, QUEUE), RECORD, ((0, 4), (84, 4), (92, 1), (len(RECORD) - 9, 2)),
    ),
    "batch": (batch_body, MEMBER * 2, ((0, 4), (16, 4), (24, 2))),
    "registration": (
        lambda data: RegisterBrokerBody.decode(zlib.compress(data), True, 479),
        struct.pack(">i2sii1si2s", 2, b"{}", 1, 1, b"T", 2, b"[]"),
        ((0, 4), (6, 4), (10, 4), (15, 4)),
    ),
    "transfer": (lambda data: TransferReader().feed(data), bytes(8) + struct.pack(">i", 4) + b"body", ((8, 4),)),
    "session frame": (
        lambda data: FrameReader(from_slave=False).feed(data), bytes(64), tuple((at, 4) for at in range(0, 40, 2)),
    ),
    "greeting": (
        lambda data: MasterGreeting(credentials(0, b"s"), EPOCH).received(data),
        ENVELOPE.struct.pack(MAGIC, Kind.HELLO, 20) + bytes(24), ((9, 4),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", FIELDS)
def test_no_length_is_believed(name: str, length: int) -> None:
    run, whole, places = FIELDS[name]
    for at, size in places:
        data = with_length(whole, at, size, length)
        assert peak_of(lambda data=data: run(data)) < MIB, at  # type: ignore[misc]


def test_a_header_longer_than_its_frame_and_frames_beyond_the_limit_are_refused_at_once() -> None:
    for prefix, kind in (
        (struct.pack(">iI", 10, 7), "header_length"),
        (struct.pack(">i", 16 * MIB + 1), "frame_length"),
        (struct.pack(">i", 3), "frame_length"),
        (struct.pack(">iI", 2 * MIB, MIB + 1), "header_length"),
        (struct.pack(">iI", 100, 2 << 24), "serialization"),
    ):
        decoder = FrameDecoder()
        assert decoder.feed(prefix) == []
        assert decoder.error is not None and decoder.error.kind == kind


def test_small_pieces_of_a_frame_cost_little_more_than_they_are() -> None:
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">iI", 8 * MIB, 10))
    piece = b"xy"

    def feed() -> None:
        for _ in range(200_000):
            decoder.feed(bytes(piece))

    assert peak_of(feed) < 2 * MIB
    assert decoder.pending_bytes == 8 + 400_000


@pytest.mark.parametrize("body", [b"[" * MIB, b'{"a":' * 200_000, b"[[],[]," * 100_000, b"{" * MIB])
def test_nesting_is_bounded(body: bytes) -> None:
    for kind in (dict, list):
        with pytest.raises(ProtocolError):
            loads(body, kind)
    with pytest.raises(ConfigError):
        parse_accounts("plain_acl.yml", body[:50_000])


def test_aliases_that_stand_for_more_than_there_is_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]

    def parse() -> None:
        parse_accounts("plain_acl.yml", "\n".join(lines).encode())

    with pytest.raises(ConfigError, match="aliases"):
        parse()
    assert peak_of(parse) < MIB


# Streams that inflate to far more than they are

LIMIT = 100_000
CONTENT = bytes(16 * MIB)


def bomb(kind: Compression) -> bytes:
    if kind is Compression.ZLIB:
        return zlib.compress(CONTENT, 9)
    if kind is Compression.LZ4:
        return bytes(lz4.frame.compress(CONTENT, compression_level=0))
    return zstandard.ZstdCompressor(level=9).compress(CONTENT)


@pytest.mark.parametrize("kind", Compression)
def test_a_body_inflates_to_its_bound_and_no_further(kind: Compression) -> None:
    body = bomb(kind)
    flags = int(SysFlag.COMPRESSED | kind.value)
    with pytest.raises(BodyUnreadable):
        decompress(body, flags, LIMIT)
    # zstd inflates a block at a time, which has 128 KiB; its window is one of up to 8 MiB.
    assert peak_of(lambda: decompress(body, flags, LIMIT)) < len(body) + LIMIT + 4 * MIB

    def by_spark() -> tuple[object, dict[int, str]]:
        return inflate_bodies(pa.array([body], pa.binary()), np.array([flags], np.int32), LIMIT)

    assert list(by_spark()[1]) == [0]
    assert peak_of(by_spark) < 3 * len(body) + LIMIT + 4 * MIB


def test_a_registration_inflates_to_its_bound_and_no_further() -> None:
    body = bomb(Compression.ZLIB)
    with pytest.raises(ProtocolError, match="inflates beyond"):
        inflate(body, LIMIT)
    assert peak_of(lambda: inflate(body, LIMIT)) < 2 * len(body) + LIMIT + MIB


def test_a_broker_inflates_nothing() -> None:
    """No module of the message path knows how to; what comes from the archive expands within limits of its own."""
    root = Path(__file__).parents[2]
    for package in ("broker", "store", "ha", "acl"):
        for path in root.joinpath(package).rglob("*.py"):
            if path.is_relative_to(root / "store" / "tier"):
                continue
            text = path.read_text().lower()
            assert "decompress" not in text and "inflate" not in text, path
