"""Keys of a batch equal those of its records parsed one by one, which follow RocketMQ's rules."""

from pathlib import Path

import numpy as np
import pytest

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.record import SysFlag
from store.index.key_scan import IndexEntries, entries_of, index_hash, keys_of, pieces_of
from store.log.log_scan import ChunkScan
from store.message_store import PendingMessage
from store.record.record import Record, decode
from tests.store.insides import commit_log_of
from tests.store.rig import HOST, Stores, message

UNIQUE = "UNIQ_KEY\x01AC11000100002A139A0C%012X\x02"
ROLLBACK = int(SysFlag.TRANSACTION_ROLLBACK)


def entries_of_record(record: Record) -> IndexEntries:
    """The index entries of one record: what `entries_of` is compared with."""
    keys = [] if record.sys_flag & ROLLBACK == ROLLBACK else keys_of(bytes(record.properties))
    hashes = np.array([index_hash(record.topic, key) for key in keys], np.int32)
    offsets = np.full(hashes.size, record.physical_offset, np.int64)
    return IndexEntries(hashes, offsets, np.full(hashes.size, record.store_timestamp, np.int64))


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ("UNIQ_KEY\x01u\x02KEYS\x01a b\x02", ["u", "a", "b"]),
        ("KEYS\x01a\x02UNIQ_KEY\x01u\x02", ["u", "a"]),
        ("KEYS\x01 a  b \x02", ["a", "b"]),
        ("KEYS\x01a\x02KEYS\x01b", ["b"]),
        ("KEYS\x01\x02UNIQ_KEY\x01\x02", []),
        ("KEYS\x01a\x02KEYS\x01\x02", ["a"]),
        ("XKEYS\x01a\x02KEYSX\x01b\x02\x01c\x02KEYS\x02", []),
        ("KEYS\x01a\x01b\x02", ["a\x01b"]),
        ("", []),
    ],
)
def test_keys_as_rocketmq_reads_them(properties: str, keys: list[str]) -> None:
    assert keys_of(properties.encode()) == keys


def test_hash_is_positive_and_zero_for_the_number_that_has_no_opposite() -> None:
    assert index_hash("t", "key") == abs(java_hash_code("t#key"))
    assert index_hash("", key_with_the_smallest_hash()) == 0


def key_with_the_smallest_hash() -> str:
    """Return a key k whose ``#k`` has the hash -2**31: its digits to the base of 31, each as a character."""
    rest = (2**31 - java_hash_code("#") * 31**7) % 2**32
    digits = []
    for power in range(6, -1, -1):
        digit, rest = divmod(rest, 31**power)
        digits.append(digit)
    key = "".join(chr(digit) for digit in digits)
    assert java_hash_code("#" + key) == -(2**31)
    return key


def unusual(number: int) -> PendingMessage:
    """Return messages of every kind that the scan treats in its own way."""
    unique = UNIQUE % number
    texts = [
        unique,
        f"KEYS\x01order-{number} k{number}\x02{unique}",
        f"{unique}KEYS\x01 a  b c \x02",
        f"{unique}X\x01{'y' * (number * 37 % 600)}\x02KEYS\x01schlüssel{number} z",
        f"{unique}UNIQ_KEY\x01second\x02KEYS\x01\x02",
        f"MYKEYS\x01q\x02KEYS\x01{'k' * (number * 13 % 700 + 1)} x\x02",
        f"KEYS\x01{' '.join(f'k{key}' for key in range((3, 63, 64, 65, 100)[number % 5]))}\x02",
        "KEYS\x01x\x02UNIQ_KEY\x01",
        "KEYS\x01a\x01b c\x02",
        "",
    ]
    flags = SysFlag.TRANSACTION_ROLLBACK if number % 7 == 3 else SysFlag.TRANSACTION_COMMIT if number % 7 == 4 else 0
    host = bytes(16) + HOST[4:] if number % 5 == 1 else HOST
    return message(
        f"Topic{number % 3}", body=b"x" * (number % 50), properties=texts[number % 10].encode(), sys_flag=int(flags),
        born_host=host,
    )  # fmt: skip


def joined(parts: list[IndexEntries]) -> list[tuple[int, int, int]]:
    return [
        entry
        for part in parts
        for entry in zip(
            part.key_hashes.tolist(), part.physical_offsets.tolist(), part.store_timestamps.tolist(), strict=True
        )
    ]


def test_batch_equals_record_by_record(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    stores.fields["mapped_file_size_commit_log"] = 1 << 20
    store = stores.open()
    for number in range(0, 400, 20):
        stores.clock.advance(0.5)
        store.append([unusual(each) for each in range(number, number + 20)])
    in_arrays, one_by_one = [], []
    for found in ChunkScan(commit_log_of(store), 0, check_crc=False):
        in_arrays.append(entries_of(found))
        for position, size in zip(found.positions.tolist(), found.sizes.tolist(), strict=True):
            record = decode(found.data[position : position + size])
            assert isinstance(record, Record)
            one_by_one.append(entries_of_record(record))
    assert joined(in_arrays) == joined(one_by_one)
    assert len(joined(in_arrays)) > 1500
    assert np.all(np.concatenate([part.key_hashes for part in in_arrays]) >= 0)
    stores.close(store)


@pytest.mark.parametrize("keys", ["", "KEYS\x01order-%06d\x02"])
def test_properties_that_look_alike_but_for_some(tmp_path: Path, keys: str) -> None:
    """Records of one producer; some differ from its pattern in one byte that matters."""
    stores = Stores(tmp_path)
    stores.fields["mapped_file_size_commit_log"] = 1 << 20
    store = stores.open()
    messages = []
    for number in range(300):
        text = f"WAIT\x01true\x02{UNIQUE % number}{keys % number if keys else ''}TAGS\x01abcd\x02END\x01{number:04d}"
        if number % 10 == 3:
            text = text.replace("true", "t\x02ue")
        elif number % 10 == 5:
            text = text.replace("TAGS", "KEYS")
        elif number % 10 == 6:
            text = text.replace("order-00", "order 00").replace("abcd", "a\x01cd")
        elif number % 10 == 7:
            text = text.replace("UNIQ_KEY\x01A", "UNIQ_KEY\x01\x02")
        elif number % 10 == 8:
            text += "a longer value" * (number % 60)
        messages.append(message(f"Topic{number % 2}", properties=text.encode()))
    store.append(messages)
    in_arrays, one_by_one = [], []
    for found in ChunkScan(commit_log_of(store), 0, check_crc=False):
        in_arrays.append(entries_of(found))
        for position, size in zip(found.positions.tolist(), found.sizes.tolist(), strict=True):
            record = decode(found.data[position : position + size])
            assert isinstance(record, Record)
            one_by_one.append(entries_of_record(record))
    assert joined(in_arrays) == joined(one_by_one)
    assert len(joined(in_arrays)) > 250
    stores.close(store)


def test_pieces_hold_whole_records_and_few_keys_however_many_a_record_has(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    stores.fields["mapped_file_size_commit_log"] = 2 << 20
    store = stores.open()
    many = [f"KEYS\x01{' '.join('ö' if number == 3 else 'k' for _ in range(10_000))}\x02" for number in range(30)]
    rolled_back = message(properties=b"KEYS\x01k\x02", sys_flag=ROLLBACK)
    store.append([message(properties=text.encode()) for text in many] + [rolled_back, message(), rolled_back])
    (found, *rest) = ChunkScan(commit_log_of(store), 0, check_crc=False)
    pieces = list(pieces_of(found))
    assert [len(piece) % 10_000 for piece, _ in pieces] == [0] * len(pieces)
    assert max(len(piece) for piece, _ in pieces) < 2 * 64 * 1024
    assert [last for _, last in pieces] == sorted({last for _, last in pieces})
    assert pieces[-1][1] == len(found) - 1
    for piece, last in pieces[:-1]:
        assert piece.physical_offsets[-1] == found.base + found.positions[last]
    assert len(entries_of(found)) + sum(len(entries_of(batch)) for batch in rest) == 300_000
    assert joined([piece for piece, _ in pieces]) == joined([entries_of(found)])
    stores.close(store)
