"""Entries of DLedger's files: all of them in order, a torn end, and damage that is named."""

from pathlib import Path

import pytest

from sprocket.common.errors import CorruptRecord, StoreError
from store.disk.disk import RealDisk
from store.dledger.conversion import LogWriter
from store.dledger.entry_log import BODY_AT, EntryLog
from store.dledger.folders import dledger_folders
from store.layout import file_name
from store.record.record import Record, decode
from tests.store.dledger.written import FILE_BYTES, HEAD, write_entries
from tests.store.rig import Stores, message

BODIES = [b"%03d" % number * (1 + number % 90) for number in range(200)]


@pytest.mark.parametrize("begin", [0, 7 * FILE_BYTES])
def test_all_entries_are_read_in_order(tmp_path: Path, begin: int) -> None:
    positions = write_entries(tmp_path, BODIES, begin=begin)
    log = EntryLog(tmp_path)
    found = list(log.entries())
    assert [bytes(entry.body) for entry in found if entry.body] == BODIES
    assert [entry.position for entry in found] == positions
    assert [entry.number for entry in found] == list(range(len(found)))
    assert {entry.term for entry in found} == {1, 2, 3}
    assert (log.file_bytes, log.size_bytes % FILE_BYTES, log.size_bytes > FILE_BYTES) == (FILE_BYTES, 0, True)


@pytest.mark.parametrize("cut", [1, 8, 40, BODY_AT, BODY_AT + 1])
def test_a_torn_end_ends_the_log(tmp_path: Path, cut: int) -> None:
    positions = write_entries(tmp_path, BODIES)
    last = max((tmp_path / "data").iterdir())
    content = bytearray(last.read_bytes())
    at = positions[-1] % FILE_BYTES
    # A torn page leaves zeros.
    content[at + cut :] = bytes(len(content) - at - cut)
    last.write_bytes(content)
    found = [bytes(entry.body) for entry in EntryLog(tmp_path).entries() if entry.body]
    assert found[: len(BODIES) - 1] == BODIES[:-1]
    assert len(found) == len(BODIES) - (cut < BODY_AT)


@pytest.mark.parametrize("where", [3, -3])
@pytest.mark.parametrize("field", [0, 4, 8, 24, 44])
def test_damage_that_entries_follow_is_named(tmp_path: Path, where: int, field: int) -> None:
    position = write_entries(tmp_path, BODIES)[where]
    path = tmp_path / "data" / file_name(position - position % FILE_BYTES)
    content = bytearray(path.read_bytes())
    content[position % FILE_BYTES + field] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(CorruptRecord, match=f"{path.name}: no entry of DLedger at {position % FILE_BYTES}") as raised:
        list(EntryLog(tmp_path).entries())
    assert raised.value.offset == position


def test_a_missing_or_a_short_file_is_named(tmp_path: Path) -> None:
    write_entries(tmp_path, BODIES)
    second = sorted((tmp_path / "data").iterdir())[1]
    content = second.read_bytes()
    second.write_bytes(content[:-1])
    with pytest.raises(StoreError, match=second.name):
        EntryLog(tmp_path)
    second.unlink()
    with pytest.raises(StoreError, match=f"expected are {FILE_BYTES} at {FILE_BYTES}"):
        EntryLog(tmp_path)
    with pytest.raises(StoreError, match="no files of DLedger"):
        EntryLog(tmp_path / "data")


def test_only_folders_with_files_count(tmp_path: Path) -> None:
    (tmp_path / "dledger-n1" / "data").mkdir(parents=True)
    (tmp_path / "dledger-n2").write_bytes(b"no folder")
    assert dledger_folders(RealDisk(), tmp_path) == []
    write_entries(tmp_path / "dledger-n0", BODIES)
    assert dledger_folders(RealDisk(), tmp_path) == [tmp_path / "dledger-n0"]


def test_a_store_with_such_files_does_not_start(tmp_path: Path) -> None:
    write_entries(tmp_path / "dledger-n0", BODIES)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError, match=r"dledger-n0: these are files of RocketMQ.*sprocket store import"):
        Stores(tmp_path).open()
    assert sorted(tmp_path.rglob("*")) == before


# Conversion


def sample_record(tmp_path: Path, body: bytes) -> memoryview:
    stores = Stores(tmp_path)
    store = stores.open()
    ((_, offset, size),) = store.append([message(body=body)])
    record = bytearray(store.record_at(offset, size) or b"")
    stores.close_all()
    record[28:36] = HEAD.size.to_bytes(8, "big")
    return memoryview(bytes(record))


def test_records_get_the_offset_where_they_lie_and_never_cross_a_segment(tmp_path: Path) -> None:
    record = sample_record(tmp_path, b"x" * 700)
    writer = LogWriter(FILE_BYTES)
    log = b"".join(bytes(piece) for _ in range(60) for piece in writer.add(record, "here"))
    assert len(log) == writer.end_offset
    assert writer.records == {"Orders": 60}
    at = found = 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4], "big")
        moved = decode(memoryview(log)[at : at + size])
        if isinstance(moved, Record):
            assert (moved.physical_offset, bytes(moved.body)) == (at, b"x" * 700)
            assert at // FILE_BYTES == (at + size + 7) // FILE_BYTES
            found += 1
        else:
            assert (at + size) % FILE_BYTES == 0
        at += size
    assert found == 60


def test_what_is_no_record_is_named(tmp_path: Path) -> None:
    record = sample_record(tmp_path, b"x" * 700)
    damaged = bytearray(record)
    damaged[300] ^= 1
    for wrong, reason in ((damaged, "CRC"), (record[:-1], "entry 7"), (b"no record", "entry 7")):
        with pytest.raises(CorruptRecord, match=f"entry 7: .*{reason}|{reason}"):
            LogWriter(FILE_BYTES).add(memoryview(bytes(wrong)), "entry 7")
    with pytest.raises(CorruptRecord, match="do not fit into segments of 512"):
        LogWriter(512).add(record, "entry 7")
