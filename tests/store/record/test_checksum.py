"""The CRC that ends a record: what has it, what does not, and what has lost it."""

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.common.errors import RequestError
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.message.properties import without
from sprocket.remoting.message.record import CRC_MASK
from store.message_store import MessageStore
from store.record.checksum import (
    DAMAGED_SEAL,
    NO_SEAL,
    SEAL_BYTES,
    SEAL_NAME,
    crc32,
    seal,
    sealed_crc,
    seals,
    with_seals,
)
from store.record.record import Record, decode
from store.scan.engine import claimed_crcs
from tests.store.log.test_log_scan import scan_both
from tests.store.reading import read_queue
from tests.store.rig import Stores, message
from tests.tiers import examples

CRCS = st.integers(0, CRC_MASK)
TAILS = st.one_of(
    st.binary(min_size=SEAL_BYTES, max_size=SEAL_BYTES),
    # A seal with a few bytes changed.
    st.builds(
        lambda crc, changes: bytes(dict(changes).get(at, octet) for at, octet in enumerate(seal(crc))),
        CRCS,
        st.lists(st.tuples(st.integers(0, SEAL_BYTES - 1), st.integers(0, 255)), max_size=6),
    ),
)


def test_the_checksum_is_that_of_zlib() -> None:
    for length in (0, 1, 50, 1024, 70_000):
        content = random.Random(length).randbytes(length)
        assert crc32(content) == crc32(memoryview(content)) == zlib.crc32(content)


@pytest.mark.parametrize(
    ("crc", "digits"), [(0, b"0000000000"), (1, b"1000000000"), (1234, b"4321000000"), (CRC_MASK, b"7463847412")]
)
def test_a_seal_has_the_lowest_digit_first(crc: int, digits: bytes) -> None:
    assert seal(crc) == b"__CRC32#\x01" + digits + b"\x02"
    assert sealed_crc(seal(crc)) == crc


@pytest.mark.parametrize("count", [1, 2, 64, 65, 200])
def test_many_seals_are_those_of_each(count: int) -> None:
    crcs = [random.Random(number).randrange(CRC_MASK + 1) for number in range(count)]
    records = [b"%d" % number for number in range(count)]
    assert list(seals(crcs)) == [seal(crc) for crc in crcs]
    assert with_seals(records, crcs) == b"".join(b"%d" % number + seal(crc) for number, crc in enumerate(crcs))


@given(CRCS)
def test_a_flipped_bit_never_makes_a_seal_disappear(crc: int) -> None:
    for bit in range(SEAL_BYTES * 8):
        tail = bytearray(seal(crc))
        tail[bit // 8] ^= 1 << bit % 8
        assert sealed_crc(bytes(tail)) not in (NO_SEAL, crc)


@given(CRCS, st.integers(1, SEAL_BYTES - 1))
def test_a_torn_seal_is_a_damaged_one(crc: int, length: int) -> None:
    """A page that never reached the disk is zeros, before or after its border."""
    whole = seal(crc)
    assert sealed_crc(bytes(length) + whole[length:]) == DAMAGED_SEAL
    assert sealed_crc(whole[:length] + bytes(SEAL_BYTES - length)) == DAMAGED_SEAL


@settings(max_examples=examples(150))
@given(st.lists(TAILS, min_size=5, max_size=20))
def test_the_scan_reads_each_tail_so(tails: list[bytes]) -> None:
    ends = np.arange(1, len(tails) + 1) * SEAL_BYTES
    claims = claimed_crcs(b"".join(tails), np.full(len(tails), SEAL_BYTES), ends)
    assert claims.tolist() == [sealed_crc(tail) for tail in tails]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"", b""),
        (b"A\x01b\x02" + seal(7), b"A\x01b\x02"),
        (seal(7) + b"A\x01b\x02", b"A\x01b\x02"),
        (b"A\x01b\x02__CRC32#\x01no end", b"A\x01b\x02"),
        (seal(7) + seal(8) + b"A\x01b\x02__CRC32#\x01x\x02C\x01d", b"A\x01b\x02C\x01d"),
        (b"X__CRC32#\x01v\x02", b"X__CRC32#\x01v\x02"),
        (b"A\x01__CRC32#\x02__CRC32#2\x01v\x02", b"A\x01__CRC32#\x02__CRC32#2\x01v\x02"),
    ],
)
def test_a_seal_that_a_producer_sends_is_removed(properties: bytes, expected: bytes) -> None:
    assert without(properties, SEAL_NAME) == expected


def properties_of(store: MessageStore) -> list[bytes]:
    return [bytes(record.properties) for record in read_queue(store)]


def test_each_record_ends_with_a_seal_over_all_before_it(stores: Stores) -> None:
    store = stores.open()
    sent = [b"", b"A\x01b\x02", b"A\x01no end", b"A\x01b\x02" + seal(5), seal(5) + b"A\x01b"]
    store.append([message(body=b"x" * k, properties=properties) for k, properties in enumerate(sent)])
    stored = properties_of(store)
    expected = [b"", b"A\x01b\x02", b"A\x01no end\x02", b"A\x01b\x02", b"A\x01b\x02"]
    assert [properties[:-SEAL_BYTES] for properties in stored] == expected
    for record in read_queue(store):
        view = store.record_at(record.physical_offset)
        assert view is not None
        assert bytes(view[-SEAL_BYTES:]) == seal(zlib.crc32(view[:-SEAL_BYTES]) & CRC_MASK)


def test_without_seals_nothing_that_looks_like_one_is_stored(stores: Stores) -> None:
    stores.fields["enabled_append_prop_crc"] = False
    store = stores.open()
    store.append([message(properties=properties) for properties in (b"", b"A\x01no end", b"A\x01b\x02" + seal(5))])
    assert properties_of(store) == [b"", b"A\x01no end", b"A\x01b\x02"]
    for properties in (b"X" + seal(5), b"__CRC33#" + seal(5)[8:], b"\0\0\0" + seal(5)[3:]):
        with pytest.raises(RequestError, match="__CRC32#"):
            store.append([message(properties=properties)])
    assert len(properties_of(stores.reopen(store, crash=True))) == 3


def test_the_seal_counts_for_the_limit_of_properties(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 256 * 1024
    store = stores.open()
    longest = MAX_PROPERTIES_BYTES - SEAL_BYTES
    store.append([message(properties=b"A\x01" + b"b" * (longest - 3) + b"\x02")])
    # The separator that is missing needs a byte too.
    for properties in (b"A\x01" + b"b" * (longest - 2) + b"\x02", b"A\x01" + b"b" * (longest - 2)):
        with pytest.raises(RequestError, match="32767"):
            store.append([message(properties=properties)])
    assert [len(properties) for properties in properties_of(store)] == [MAX_PROPERTIES_BYTES]


@pytest.mark.parametrize("sealed", [True, False])
def test_every_flipped_bit_is_found_by_every_walk(stores: Stores, sealed: bool) -> None:
    """With a seal in any byte of the record; without one in the body."""
    rng = random.Random(11)
    stores.fields["enabled_append_prop_crc"] = sealed
    hosts = (b"\x0a\x01\x02\x03" + b"\0\0\x15\x38", bytes(range(16)) + b"\0\0\x15\x38")
    store = stores.open()
    for topic, host, properties in (("Orders", hosts[0], b"TAGS\x01a\x02"), ("T" * 130, hosts[1], b"")):
        store.append([message(topic, 0, rng.randbytes(20), properties=properties, born_host=host) for _ in range(3)])
    stores.crash(store)
    single, _, records, _ = scan_both(stores.config)
    assert len(records) == 6
    path = stores.segments()[0]
    content = bytearray(path.read_bytes())
    for number in (1, 4):  # the second of three, with a topic of either length and hosts of both kinds
        record = records[number]
        start = record.physical_offset
        span = range(start, start + record.size_bytes)
        if not sealed:
            body_at = bytes(content).index(bytes(record.body), start)
            span = range(body_at, body_at + len(record.body))
        for at in span[:: 1 if number == 1 else 3]:
            bit = 1 << rng.randrange(8) if at % 3 else 1  # the lowest bit turns one digit into another
            content[at] ^= bit
            view = memoryview(bytes(content[start : start + record.size_bytes]))
            decoded = decode(view)
            assert isinstance(decoded, str), at
            path.write_bytes(content)
            one, many, found, _ = scan_both(stores.config)
            assert (one.end_offset, one.reason) == (many.end_offset, many.reason)
            assert one.end_offset == start and len(found) == number, at
            content[at] ^= bit
    path.write_bytes(content)
    assert scan_both(stores.config)[0].end_offset == single.end_offset


def test_every_bit_of_a_record_counts() -> None:
    """The decoder alone, each bit of records of both layouts."""
    rng = random.Random(3)
    for body_bytes in (0, 1, 40):
        content = sealed_record(rng.randbytes(body_bytes))
        assert isinstance(decode(memoryview(content)), Record)
        for bit in range(len(content) * 8):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            assert isinstance(decode(memoryview(bytes(flipped))), str), bit


def sealed_record(body: bytes) -> bytes:
    from tests.store.record.test_record import encoded

    content = encoded(body=body, properties=b"A\x01b\x02" + bytes(SEAL_BYTES))[:-SEAL_BYTES]
    return content + seal(zlib.crc32(content) & CRC_MASK)


def test_a_record_without_a_seal_is_damage_where_one_is_required(stores: Stores) -> None:
    stores.fields["enabled_append_prop_crc"] = False
    store = stores.open()
    store.append([message()])
    stores.fields["enabled_append_prop_crc"] = True
    store = stores.reopen(store)
    store.append([message()])
    assert len(read_queue(store)) == 2  # both kinds in one log
    stores.close(store)
    stores.fields["force_verify_prop_crc"] = True
    single, chunks, records, _ = scan_both(stores.config)
    assert (records, chunks.reason, chunks.end_offset) == ([], single.reason, 0)
    assert "forceVerifyPropCRC" in single.reason
