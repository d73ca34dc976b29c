"""Records of retry topics under the name of their topic."""

import pytest

from broker.pop.retry_record import queue_offsets_in, records_in, renamed
from sprocket.remoting.message.properties import encode, parse
from store.record.record import PendingMessage, Record, decode, encode_head, topic_field

IPV4, IPV6 = bytes(8), bytes(20)
RETRY = "%RETRY%CG+Orders"


def record(properties: dict[str, str], topic: str = RETRY, born: bytes = IPV4, stored: bytes = IPV4) -> bytes:
    sys_flag = (0x10 if born == IPV6 else 0) | (0x20 if stored == IPV6 else 0)
    encoded = encode(properties).encode()
    message = PendingMessage(topic, 3, b"body", encoded, 0, 7, sys_flag, 11, born, 2, 0)
    magic, name = topic_field(topic)
    tail = name + len(encoded).to_bytes(2, "big") + encoded
    size = 91 - 8 - 8 + len(born) + len(stored) + 4 + len(tail) - 3
    head = encode_head(message, size, magic, 42, 4242, sys_flag, 99, stored)
    return head + b"body" + tail


@pytest.mark.parametrize("born", [IPV4, IPV6])
@pytest.mark.parametrize("stored", [IPV4, IPV6])
@pytest.mark.parametrize("topic", [RETRY, "%RETRY%" + "g" * 250 + "+Orders"])
def test_only_topic_and_handle_differ(born: bytes, stored: bytes, topic: str) -> None:
    old = decode(memoryview(record({"TAGS": "A", "k": "v"}, topic, born, stored)))
    assert isinstance(old, Record), old
    new = decode(memoryview(renamed(memoryview(record({"TAGS": "A", "k": "v"}, topic, born, stored)), "Orders", "H")))
    assert isinstance(new, Record), new
    assert new.topic == "Orders"
    assert parse(bytes(new.properties).decode()) == {"TAGS": "A", "k": "v", "POP_CK": "H"}
    for name in ("queue_id", "queue_offset", "physical_offset", "flag", "born_timestamp", "born_host", "store_host"):
        assert getattr(new, name) == getattr(old, name)
    assert (bytes(new.body), new.reconsume_times, new.store_timestamp) == (b"body", 2, 99)


def test_a_handle_that_is_there_stays() -> None:
    new = decode(memoryview(renamed(memoryview(record({"POP_CK": "old"})), "Orders", "H")))
    assert isinstance(new, Record)
    assert parse(bytes(new.properties).decode()) == {"POP_CK": "old"}


def test_a_message_of_a_batch_keeps_its_own_id() -> None:
    """Other than RocketMQ's, which has the id of the batch: consumers would take the others for duplicates."""
    # Of one length, so that the record stays whole.
    old = record({"UNIQ_KEY": "own", "uniq_key": "batch", "k": "v"}).replace(b"uniq_key", b"UNIQ_KEY")
    new = decode(memoryview(renamed(memoryview(old), "Orders", "H")), check_crc=False)
    assert isinstance(new, Record)
    assert parse(bytes(new.properties).decode()) == {"UNIQ_KEY": "own", "k": "v", "POP_CK": "H"}


def test_what_has_no_room_or_is_damaged_stays_as_it_is() -> None:
    full = memoryview(record({"k": "v" * 32_760}))
    assert renamed(full, "Orders", "H" * 20) is full
    damaged = memoryview(b"\0" * 100)
    assert renamed(damaged, "Orders", "H") is damaged


def test_records_side_by_side_are_told_apart() -> None:
    one, two = record({"k": "1"}), record({"k": "22"})
    slices = [memoryview(one + two), memoryview(one)]
    assert [bytes(piece) for piece in records_in(slices)] == [one, two, one]
    assert queue_offsets_in(slices) == [42, 42, 42]
