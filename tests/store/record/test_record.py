"""Records, tags codes and properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.common.errors import ConfigError
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.properties import find
from store.config.delay_levels import parse_delay_levels
from store.record.record import Record, TagsCodes, decode, encode_head, names_place, topic_field
from tests.store.rig import HOST, message
from tests.tiers import examples


def encoded(topic: str = "Orders", body: bytes = b"body", properties: bytes = b"A\x01b\x02") -> bytes:
    magic, name = topic_field(topic)
    size = 88 + len(body) + len(name) + 2 + len(properties)
    head = encode_head(message(topic, 4, body), size, magic, 5, 6, 0, 7, HOST)
    return head + body + name + len(properties).to_bytes(2, "big") + properties


@pytest.mark.parametrize(
    ("properties", "tag"),
    [(b"TAGS\1first\2TAGS\1last\2", "last"), (b"TAGS\1first\2TAGS\1\2", "first"), (b"TAGS\1a\2xTAGS\1b\2", "a")],
)
def test_the_last_tag_with_a_value_counts(properties: bytes, tag: str) -> None:
    """`CommitLog.checkMessageAndReturnSize` of RocketMQ 5.3.3 looks the tag up in the decoded properties."""
    assert TagsCodes("1s").of("Orders", properties, 0) == java_hash_code(tag)


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("a", 97), ("TagA", 2598919), ("hello world", 1794106052), ("polygenelubricants", -(1 << 31)),
     ("标签", 857175), ("\U0001f600", 1772899)],
)  # fmt: skip
def test_java_hash_code(text: str, code: int) -> None:
    assert java_hash_code(text) == code


@pytest.mark.parametrize(
    ("properties", "value"),
    [(b"TAGS\x01a\x02", b"a"), (b"X\x01y\x02TAGS\x01a", b"a"), (b"XTAGS\x01a\x02", None), (b"", None),
     (b"X\x01TAGS\x01a\x02", None), (b"TAGS\x01\x02", b""), (b"TAGS\x01a\x02TAGS\x01b\x02", b"a")],
)  # fmt: skip
def test_property_value(properties: bytes, value: bytes | None) -> None:
    assert find(properties, b"TAGS\x01") == value


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == [1000, 300_000, 7_200_000, 86_400_000]
    for bad in ("1", "s", "1x", "-1s", "1.5s", "1s,2s", "²s"):
        with pytest.raises(ConfigError, match="messageDelayLevel"):
            parse_delay_levels(bad)


def test_tags_codes() -> None:
    codes = TagsCodes("1s 5s")
    assert codes.of("T", b"TAGS\x01TagA\x02", 1000) == 2598919
    assert codes.of("T", b"DELAY\x011\x02", 1000) == 0
    assert codes.of("SCHEDULE_TOPIC_XXXX", b"DELAY\x011\x02TAGS\x01TagA\x02", 1000) == 2000
    assert codes.of("SCHEDULE_TOPIC_XXXX", b"DELAY\x0177\x02", 1000) == 6000
    assert codes.of("SCHEDULE_TOPIC_XXXX", b"DELAY\x01-1\x02TAGS\x01a\x02", 1000) == 97


def test_a_record_decodes_to_what_was_encoded() -> None:
    record = decode(memoryview(encoded()))
    assert isinstance(record, Record)
    assert (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("Orders", 4, 5, 6)
    assert (bytes(record.body), bytes(record.properties), record.store_timestamp) == (b"body", b"A\x01b\x02", 7)


@settings(max_examples=examples(400), deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_raise(content: bytes) -> None:
    assert isinstance(decode(memoryview(content)), (str, Record))


@settings(max_examples=examples(400), deadline=None)
@given(position=st.integers(0, 104), value=st.integers(0, 255), keep=st.integers(0, 105))
def test_no_damage_makes_the_decoder_raise(position: int, value: int, keep: int) -> None:
    content = bytearray(encoded())
    content[position] = value
    result = decode(memoryview(bytes(content)))
    assert isinstance(result, (str, Record))
    torn = decode(memoryview(encoded()[:keep].ljust(105, b"\0")))
    assert isinstance(torn, Record) == (keep == 105)


@settings(max_examples=examples(400), deadline=None)
@given(position=st.integers(0, 104), value=st.integers(0, 255))
def test_a_record_names_its_place_exactly_if_it_decodes_to_it(position: int, value: int) -> None:
    content = bytearray(encoded())
    content[position] = value
    view = memoryview(bytes(content))
    record = decode(view, check_crc=False)
    is_there = isinstance(record, Record) and (
        (record.topic, record.queue_id, record.queue_offset, record.physical_offset) == ("Orders", 4, 5, 6)
    )
    assert names_place(view, topic_field("Orders")[1], 4, 5, 6) == is_there


@pytest.mark.parametrize("place", [("Order", 4, 5, 6), ("Orders", 3, 5, 6), ("Orders", 4, 6, 6), ("Orders", 4, 5, 7)])
def test_a_record_names_no_other_place(place: tuple[str, int, int, int]) -> None:
    topic, *numbers = place
    assert not names_place(memoryview(encoded()), topic_field(topic)[1], *numbers)
