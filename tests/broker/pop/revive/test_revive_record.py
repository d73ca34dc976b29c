"""The parts of a record are what decoding all of it gives."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.pop.revive.revive_record import ReviveRecord, read_record
from sprocket.remoting.message.properties import encode, find_last
from store.message_store import MessageStore, PendingMessage
from store.record.record import Record, decode
from tests.broker.pop.revive_rig import HOST, ReviveRig
from tests.tiers import examples

V6 = bytes(range(16)) + HOST[4:]


def stored(store: MessageStore, message: PendingMessage) -> memoryview:
    (_, physical_offset, size_bytes) = store.append([message])[0]
    view = store.record_at(physical_offset, size_bytes)
    assert view is not None
    return view


@pytest.mark.parametrize("host", [HOST, V6])
@pytest.mark.parametrize("topic", ["T", "T" * 127, "T" * 200])
@pytest.mark.parametrize("body", [b"", b"body", b"b" * 5_000])
def test_parts_of_any_record(tmp_path: Path, host: bytes, topic: str, body: bytes) -> None:
    rig = ReviveRig(tmp_path)
    properties = encode({"KEYS": "k", "TAGS": "ack", "TIMER_DELIVER_MS": "17"}).encode()
    view = stored(rig.core.store, PendingMessage(topic, 0, body, properties, 0, 0, 0, 0, host))
    assert read_record(view) == ReviveRecord(0, 17, b"ack", memoryview(body))
    rig.close()


@pytest.mark.parametrize("text", ["", "x", "-5", "1" * 19, "1.5"])
def test_time_that_is_none_is_that_of_the_store(tmp_path: Path, text: str) -> None:
    rig = ReviveRig(tmp_path)
    properties = b"TIMER_DELIVER_MS\x01" + text.encode() + b"\x02"
    view = stored(rig.core.store, PendingMessage("T", 0, b"", properties, 0, 0, 0, 0, HOST))
    record = read_record(view)
    assert not isinstance(record, str)
    assert (record.deliver_at, record.tag) == (rig.clock.wall_ms(), None)
    rig.close()


@settings(max_examples=examples(200))
@given(st.integers(0, 91 + 60), st.integers(0, 255), st.binary(max_size=40))
def test_damaged_record_raises_nothing(position: int, value: int, body: bytes) -> None:
    properties = b"TAGS\x01ck\x02"
    head = bytearray(88)
    head[0:4] = (91 + 1 + len(body) + len(properties)).to_bytes(4, "big")
    head[4:8] = 0xDAA320A7.to_bytes(4, "big")
    head[84:88] = len(body).to_bytes(4, "big")
    record = bytearray(bytes(head) + body + b"\x01T" + len(properties).to_bytes(2, "big") + properties)
    assert read_record(memoryview(record)) == ReviveRecord(0, 0, b"ck", memoryview(body))
    record[position % len(record)] = value
    found = read_record(memoryview(record))
    whole = decode(memoryview(record), check_crc=False)
    if isinstance(whole, Record):
        assert not isinstance(found, str)
        assert (found.body, found.tag) == (whole.body, find_last(bytes(whole.properties), b"TAGS\x01"))


@pytest.mark.parametrize("size_bytes", [0, 4, 87, 90])
def test_what_is_too_short_is_named(size_bytes: int) -> None:
    assert read_record(memoryview(bytes(size_bytes))) == "shorter than any record"
