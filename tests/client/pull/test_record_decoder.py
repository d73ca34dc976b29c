"""Records become messages: those of Java, those with a long topic, batches in one record, and damaged ones."""

import gc
import random
import struct
import tracemalloc
from unittest.mock import patch

import pytest

from sprocket import BodyUnreadable
from sprocket.client.message import ReceivedMessage
from sprocket.client.pull import record_decoder
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message.record import MAGIC_V2, SysFlag
from tests.client import java_vectors as java
from tests.tiers import seeds

QUEUE = MessageQueue("TopicTest", "broker-a", 3)


@pytest.mark.parametrize(
    ("record", "born", "stored", "offset_id"),
    [
        (java.RECORD_IPV4, "10.1.2.3", "10.1.2.4", java.OFFSET_ID_IPV4),
        (
            java.RECORD_IPV6,
            "2001:0db8:0000:0000:0000:0000:0000:0001",
            "2001:0db8:0000:0000:0000:0000:0000:0002",
            java.OFFSET_ID_IPV6,
        ),
    ],
)
def test_record_of_java(record: bytes, born: str, stored: str, offset_id: str) -> None:
    first, second = decode_records(record * 2, QUEUE)
    assert (first.topic, first.body, first.tags, first.keys) == ("TopicTest", java.BODY, "TagA", ["k1", "k2"])
    assert first.properties == {"KEYS": "k1 k2", "origin": "JFK", "TAGS": "TagA"}
    assert (first.queue_offset, first.physical_offset, first.flag, first.reconsume_times) == (42, 123456789012, 7, 2)
    assert (first.born_timestamp_ms, first.store_timestamp_ms) == (1700000000001, 1700000000002)
    assert (first.born_host, first.store_host) == ((born, 4567), (stored, 10911))
    assert first.offset_message_id == first.message_id == offset_id
    assert second.body == java.BODY


def record(body: bytes, *, topic: bytes = b"TopicTest", sys_flag: int = 0, properties: bytes = b"") -> bytes:
    """A record with a topic length of two bytes."""
    size = 88 + len(body) + 2 + len(topic) + 2 + len(properties)
    hosts = bytes([10, 0, 0, 1]) + (1234).to_bytes(4, "big")
    values = (size, MAGIC_V2, 0, 3, 0, 5, 600, sys_flag, 1, hosts, 2, hosts, 0, 0, len(body))
    fixed = struct.pack(">iiiiiqqiq8sq8siqi", *values)
    return b"".join((fixed, body, len(topic).to_bytes(2, "big"), topic, len(properties).to_bytes(2, "big"), properties))


def test_long_topic() -> None:
    topic = b"t" * 200
    (message,) = decode_records(record(b"x", topic=topic, properties=b"UNIQ_KEY\x01abc\x02"), QUEUE)
    assert (message.topic, message.body, message.message_id) == ("t" * 200, b"x", "abc")


def test_offset_delta_is_added() -> None:
    (message,) = decode_records(record(b"x"), QUEUE, 100)
    assert message.queue_offset == 105


def test_of_several_properties_with_one_name_the_last_counts() -> None:
    """`MessageDecoder.string2messageProperties`: a broker appends a batch's properties to those of its messages."""
    raw = b"UNIQ_KEY\x01own\x02KEYS\x01k\x02TAGS\x01A\x02KEYS\x01k k2\x02UNIQ_KEY\x01batch\x02TAGS\x01\x02"
    (message,) = decode_records(record(b"x", properties=raw), QUEUE)
    assert message.properties == {"UNIQ_KEY": "batch", "KEYS": "k k2", "TAGS": "A"}
    assert (message.keys, message.tags) == (["k", "k2"], "A")
    # Unlike Java's: deduplication and traces need the id of the message.
    assert message.message_id == "own"


def test_a_batch_in_one_record_is_read_from_the_message_that_was_asked_for() -> None:
    """`MessageDecoder.decodeMessage`; unlike Java's client, it skips messages before the offset."""
    inner = [struct.pack(">iiiiih", 22 + 1, 0, 0, n, 1, 0)[:20] + b"%d" % n + b"\0\0" for n in range(4)]
    inner = [struct.pack(">i", len(piece)) + piece[4:] for piece in inner]
    outer = record(b"".join(inner), sys_flag=int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP))
    assert [(m.queue_offset, m.body) for m in decode_records(outer, QUEUE)] == [(5 + n, b"%d" % n) for n in range(4)]
    assert [message.queue_offset for message in decode_records(outer, QUEUE, 0, 7)] == [7, 8]


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB"])
def test_compressed_body_of_java(kind: str) -> None:
    flag = SysFlag.COMPRESSED | SysFlag[f"COMPRESSION_{kind}"]
    (message,) = decode_records(record(java.COMPRESSED[kind], sys_flag=int(flag)), QUEUE)
    assert message.body == message.body == java.BODY


def test_body_compressed_without_a_type_is_zlib() -> None:
    (message,) = decode_records(record(java.COMPRESSED["ZLIB"], sys_flag=1), QUEUE)
    assert message.body == java.BODY


def test_damaged_compressed_body_hurts_only_who_reads_it() -> None:
    damaged, whole = decode_records(record(b"no zlib", sys_flag=1) + record(b"fine"), QUEUE)
    assert whole.body == b"fine"
    with pytest.raises(BodyUnreadable, match="damaged"):
        _ = damaged.body


def inner(body: bytes, properties: bytes) -> bytes:
    size = 20 + len(body) + 2 + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, 9, len(body))
    return head + body + len(properties).to_bytes(2, "big") + properties


def test_batch_in_one_record_is_unwrapped() -> None:
    flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    batch = inner(b"one", b"TAGS\x01A\x02") + inner(b"two", b"")
    one, two = decode_records(record(batch, sys_flag=flag), QUEUE)
    assert [(m.body, m.tags, m.flag, m.queue_offset) for m in (one, two)] == [(b"one", "A", 9, 5), (b"two", "", 9, 6)]


def test_a_batch_whose_body_cannot_be_inflated_hurts_only_who_reads_it() -> None:
    flag = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP | SysFlag.COMPRESSED)
    damaged, whole = decode_records(record(b"no zlib", sys_flag=flag) + record(b"fine"), QUEUE)
    assert whole.body == b"fine"
    with pytest.raises(BodyUnreadable, match="damaged"):
        _ = damaged.body


@pytest.mark.parametrize("cut", range(1, len(java.RECORD_IPV4), 7))
def test_record_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(ProtocolError):
        decode_records(java.RECORD_IPV4[:cut], QUEUE)


@pytest.mark.parametrize("at", [0, 4, 84])
@pytest.mark.parametrize("value", [-1, 0, 1, 2**31 - 1])
def test_bad_length_or_magic_is_refused(at: int, value: int) -> None:
    damaged = bytearray(java.RECORD_IPV4 * 2)
    damaged[at : at + 4] = struct.pack(">i", value)
    with pytest.raises(ProtocolError):
        decode_records(bytes(damaged), QUEUE)


def test_texts_that_are_not_utf8_do_not_hide_the_messages_around_them() -> None:
    bad = record(b"bad", topic=b"\xc4\xe3", properties=b"TAGS\x01\xed\xa0\xbd\x02")
    messages = decode_records(record(b"before") + bad + record(b"after"), QUEUE)
    assert [message.body for message in messages] == [b"before", b"bad", b"after"]
    assert (messages[1].topic, messages[1].tags) == ("\ufffd\ufffd", "\ufffd")
    compare(record(b"before") + bad)


# Both engines


def attributes_of(data: bytes, is_native: bool, delta: int, from_offset: int) -> object:
    decode = record_decoder.decode_run if is_native else None
    with patch.object(record_decoder, "decode_run", decode):
        try:
            messages = decode_records(data, QUEUE, delta, from_offset)
        except ProtocolError as error:
            return error.kind, error.detail
    return [[(name, getattr(one, name)) for name in ReceivedMessage.__slots__] for one in messages]


def compare(data: bytes, delta: int = 0, from_offset: int = 0) -> None:
    assert attributes_of(data, True, delta, from_offset) == attributes_of(data, False, delta, from_offset)


def some_records(chance: random.Random) -> bytes:
    made = []
    for _ in range(chance.randrange(1, 6)):
        if chance.random() < 0.3:
            made.append(chance.choice((java.RECORD_IPV4, java.RECORD_IPV6)))
            continue
        inner = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
        flags = int(chance.choice((0, 0, SysFlag.INNER_BATCH, inner, SysFlag.COMPRESSED)))
        topic = chance.choice((b"TopicTest", b"TopicTest", b"", b"Other", b"\xff"))
        body = chance.randbytes(chance.randrange(60))
        made.append(record(body, topic=topic, sys_flag=flags, properties=b"K\1v\2"))
    return b"".join(made)


@pytest.mark.skipif(record_decoder.decode_run is None, reason="the compiled engine is not in use")
@pytest.mark.parametrize("seed", seeds(60, quick=6))
def test_both_engines_decode_the_same(seed: int) -> None:
    chance = random.Random(seed)
    data = some_records(chance)
    compare(data, chance.choice((0, 7, -7, (1 << 61) - 1, 1 << 62)), chance.choice((0, 6)))
    for _ in range(30):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        compare(bytes(changed))
        compare(data[: chance.randrange(len(data))])
    compare(chance.randbytes(300))


@pytest.mark.skipif(record_decoder.decode_run is None, reason="the compiled engine is not in use")
def test_the_compiled_loop_takes_usual_records() -> None:
    usual = record(b"x", properties=b"K\1v\2")
    assert record_decoder.decode_run is not None
    for unusual in (java.RECORD_IPV6, record(b"x", topic=b"Other"), usual[:-1], b"\0" * 90, b""):
        messages: list[ReceivedMessage] = []
        end = record_decoder.decode_run(usual + usual + unusual, 0, QUEUE, "TopicTest", 0, messages)
        assert end == 2 * len(usual) and len(messages) == 2
    for at in (-1, len(usual), 1 << 60):
        assert record_decoder.decode_run(usual, at, QUEUE, "TopicTest", 0, []) == at


@pytest.mark.skipif(record_decoder.decode_run is None, reason="the compiled engine is not in use")
def test_messages_own_what_they_hold() -> None:
    data = record(b"x" * 100, properties=b"K\1v\2") * 50

    def decode() -> int:
        assert len(decode_records(data, QUEUE)) == 50
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
