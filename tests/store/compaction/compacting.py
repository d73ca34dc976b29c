"""A store whose topics are compacted when the test says so, and what it must then hold."""

from collections.abc import Sequence

from store.message_store import GetStatus, MessageStore, PendingMessage
from store.record.record import Record
from tests.sim.sim_store import SimStore
from tests.store.reading import records_of
from tests.store.rig import message

TOPIC = "Prices"


def price(key: str, body: bytes, queue_id: int = 0, tag: str = "") -> PendingMessage:
    """A message with a key."""
    properties = f"KEYS\x01{key}\x02".encode() if key else b""
    return message(TOPIC, queue_id, body, tag=tag or None, properties=properties)


def fill_segment(store: MessageStore) -> None:
    """Close the log's segment with messages of another topic, and sync it."""
    segment = store.wrote_offset // store.config.mapped_file_size_commit_log
    while store.wrote_offset // store.config.mapped_file_size_commit_log == segment:
        store.append([message("Other", body=b"x" * 1500)])
    store.flush()


def compact(sim: SimStore) -> int:
    """Compact everything in closed segments; return how many compactions ended well."""
    compaction = sim.store.compaction
    before = compaction.finished
    compaction.hurry()
    for _ in range(8):
        sim.step("store-compact")
    return compaction.finished - before


def read(store: MessageStore, queue_id: int = 0, offset: int | None = None, most: int = 7) -> list[Record]:
    """Every message from `offset` on (the queue's first, without one), as a consumer pulls them."""
    if offset is None:
        offset = store.min_offset(TOPIC, queue_id)
    records: list[Record] = []
    while offset < store.max_offset(TOPIC, queue_id):
        result = store.get(TOPIC, queue_id, offset, most, 1 << 20)
        assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE), result
        found = records_of(result.slices)
        assert len(found) == result.message_count <= most
        assert all(offset <= record.queue_offset < result.next_offset for record in found)
        assert result.next_offset > offset
        records += found
        offset = result.next_offset
    offsets = [record.queue_offset for record in records]
    assert offsets == sorted(set(offsets))
    return records


def apply(table: dict[bytes, bytes], records: Sequence[Record]) -> dict[bytes, bytes]:
    """Change what a reader of the messages has: the last body of each key; a message without one deletes it."""
    for record in records:
        key = bytes(record.properties).split(b"KEYS\x01")[1].split(b"\x02")[0]
        table.pop(key, None)
        if record.body:
            table[key] = bytes(record.body)
    return table
