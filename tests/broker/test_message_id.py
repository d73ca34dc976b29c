"""Ids of messages."""

import pytest

from broker.message_id import UniqueKeys, decode_offset_message_id, host_bytes, offset_message_id
from tests.clock import ManualClock


def test_an_offset_message_id_is_the_references() -> None:
    # `MessageDecoder.createMessageId` for 127.0.0.1:10911 and offset 123456789.
    assert offset_message_id(host_bytes("127.0.0.1", 10911), 123456789) == "7F00000100002A9F00000000075BCD15"


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "fe80::1%eth0"])
def test_an_id_decodes_back(host: str) -> None:
    raw = host_bytes(host, 65535)
    assert len(raw) in (8, 20)
    assert decode_offset_message_id(offset_message_id(raw, 2**62)) == (raw, 2**62)


@pytest.mark.parametrize("text", ["", "xyz", "00" * 15, "00" * 17, "zz" * 16])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"digits|hex"):
        decode_offset_message_id(text)


def test_unique_keys_differ_and_have_the_references_length() -> None:
    clock = ManualClock()
    keys = UniqueKeys(bytes((10, 0, 0, 1)), 70000, 0x12345678, clock)
    made = []
    for _ in range(70_000):
        made.append(keys.next())
        clock.advance(0.001)
    assert len(set(made)) == len(made)
    assert {len(key) for key in made} == {32}
    assert made[0].startswith("0A000001" + "1170" + "12345678")


def test_a_new_month_starts_the_milliseconds_at_0() -> None:
    clock = ManualClock(wall_ms=1_703_980_799_999)  # 2023-12-30T23:59:59.999Z
    keys = UniqueKeys(bytes(4), 1, 1, clock)
    late = keys.next()
    clock.advance(86_400.002)  # the 1st of January, two days of a leap-free month further
    assert int(late[20:28], 16) == 30 * 86_400_000 - 1
    assert int(keys.next()[20:28], 16) == 1
