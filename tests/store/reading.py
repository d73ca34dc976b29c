"""Reads a whole queue back, checking the rules of every record on the way."""

import struct

from store.message_store import GetStatus, MessageStore
from store.record.record import Record, decode


def records_of(slices: list[memoryview]) -> list[Record]:
    """The records in the slices of one read."""
    records = []
    for piece in slices:
        at = 0
        while at < len(piece):
            (size,) = struct.unpack_from(">i", piece, at)
            record = decode(piece[at : at + size])
            assert isinstance(record, Record), record
            records.append(record)
            at += size
        assert at == len(piece)
    return records


def stored(store: MessageStore, topic: str, queue_id: int, offset: int) -> Record:
    """The message of one entry, which must be there."""
    entry = store.entry(topic, queue_id, offset)
    assert entry is not None, f"{topic}@{queue_id} has nothing at {offset}"
    view = store.record_at(entry[0], entry[1])
    assert view is not None
    record = decode(view)
    assert isinstance(record, Record), record
    return record


def read_queue(store: MessageStore, topic: str = "Orders", queue_id: int = 0, most: int = 32) -> list[Record]:
    """Every message of a queue from its first on, read in pulls of `most`."""
    offset = store.min_offset(topic, queue_id)
    records: list[Record] = []
    while True:
        result = store.get(topic, queue_id, offset, most, 1 << 20)
        if result.status is GetStatus.FOUND:
            found = records_of(result.slices)
            assert len(found) == result.message_count
            assert sum(record.size_bytes for record in found) == result.size_bytes
            assert [record.queue_offset for record in found] == list(range(offset, result.next_offset))
            assert {(record.topic, record.queue_id) for record in found} == {(topic, queue_id)}
            records += found
        elif result.status is not GetStatus.MESSAGE_WAS_REMOVING:
            assert offset == store.max_offset(topic, queue_id), result
            return records
        assert result.next_offset > offset
        offset = result.next_offset


def bodies(store: MessageStore, topic: str = "Orders", queue_id: int = 0) -> list[bytes]:
    """Bodies of a whole queue."""
    return [bytes(record.body) for record in read_queue(store, topic, queue_id)]
