"""Segment objects: what was written is read back by ranges, and nothing that is not archived is there."""

import hashlib
import random

import msgspec
import pytest

from sprocket.remoting.message.record import SysFlag
from store.index.key_scan import index_hash
from store.message_store import MessageStore
from store.queue.logic_queue import QueueType
from store.record.record import Record, decode
from store.scan.record_scan import RecordScan
from store.tier.compression import compress
from store.tier.object_store import Damaged
from store.tier.segment_object import (
    MAGIC,
    TRAILER,
    Block,
    all_keys,
    keys_in,
    open_block,
    open_footer,
    units_in,
)
from store.tier.segment_writer import LogDamaged, LogPart, Written
from tests.store.insides import commit_log_of
from tests.store.rig import Stores, message
from tests.store.tier.parts import footer_of, log_of, part_at, write


@pytest.fixture(autouse=True)
def shape(stores: Stores) -> None:
    stores.fields["mapped_file_size_commit_log"] = 64 * 1024
    stores.queue_types["Batches"] = QueueType.BATCH


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    store = stores.open()
    for number in range(700):
        stores.clock.advance(0.05)
        topic = ("Orders", "Secrets", "Returns")[number % 3]
        body, keys = b"body %d " % number * 12, b"KEYS\x01k%d\x02" % number
        store.append([message(topic, number % 2, body, tag=f"t{number % 4}", properties=keys)])
    assert store.wrote_offset > 2 * 64 * 1024
    return store


def records(store: MessageStore, part: LogPart) -> list[Record]:
    """Return the records of the log in a part."""
    log, at, found = commit_log_of(store), part.start, []
    while at < part.end and (record := log.record_at(at)) is not None:
        decoded = decode(record, check_crc=True)
        if not isinstance(decoded, Record):
            break  # the blank
        found.append(decoded)
        at += decoded.size_bytes
    return found


def test_the_log_comes_back_byte_by_byte(store: MessageStore) -> None:
    part = part_at(store, 64 * 1024)
    content, written = write(store, part, block_bytes=4096)
    footer = footer_of(content)
    assert len(footer.log) > 10
    log = log_of(content)
    original = commit_log_of(store).slice_at(part.start, len(log))
    assert original is not None
    assert log == bytes(original)
    assert (footer.start, footer.end, written.end) == (part.start, part.file_end, part.file_end)
    assert footer.records_end == part.start + len(log)
    assert written.log_sha256 == hashlib.sha256(log).hexdigest()
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    assert written.size_bytes == len(content)
    assert written.footer_sha256 == hashlib.sha256(content[-written.footer_bytes :]).hexdigest()


def test_a_record_of_a_topic_that_is_not_archived_is_replaced_by_one_that_no_queue_names(store: MessageStore) -> None:
    part = part_at(store, 0)
    content, written = write(store, part, lambda topic: topic != "Secrets", block_bytes=4096)
    log = log_of(content)
    everything = records(store, part)
    secrets = [record for record in everything if record.topic == "Secrets"]
    assert written.dropped == len(secrets) > 10
    assert written.records == len(everything) - len(secrets)
    assert "Secrets" not in written.topics
    scan = RecordScan(memoryview(log), 0, part.file_end, check_crc=True)
    found = [
        (batch.base + int(at), batch.topics[index])
        for batch in scan
        for at, index in zip(batch.positions, batch.topic_index, strict=True)
    ]
    assert [offset for offset, _ in found] == [record.physical_offset for record in everything]
    assert {topic for _, topic in found} == {"Orders", "Returns", "SPROCKET_REPAIR_FILLER"}
    for record in secrets:
        assert bytes(record.body) not in log
    footer = footer_of(content)
    for block in footer.keys:
        place = block.block
        entries = all_keys(open_block(place, content[place.position : place.position + place.size_bytes]))
        assert not {record.physical_offset for record in secrets} & set(entries["physical_offset"].tolist())


def test_queue_entries_are_those_of_the_consume_queue(store: MessageStore) -> None:
    part = part_at(store, 0)
    content, written = write(store, part, block_bytes=4096, held_entries=50)
    footer = footer_of(content)
    assert len(footer.queues) > 3
    seen = 0
    assert written.queues is not None
    for listed in written.queues:
        at = listed.first
        for run in footer.runs_of(listed.topic, listed.queue_id):
            place = footer.queues[run.block]
            units = units_in(run, open_block(place, content[place.position : place.position + place.size_bytes]))
            assert run.first == at
            for unit in units.tolist():
                assert unit == store.entry(listed.topic, listed.queue_id, at)
                at += 1
            seen += len(units)
        assert at == listed.end
    assert seen == written.records


def test_each_key_is_found_by_its_hash(store: MessageStore) -> None:
    part = part_at(store, 0)
    content, _ = write(store, part, block_bytes=4096, held_entries=50)
    footer = footer_of(content)
    for number, record in enumerate(records(store, part)):
        wanted = index_hash(record.topic, f"k{number}")
        found = []
        for block in footer.key_blocks_of(wanted):
            place = block.block
            entries = all_keys(open_block(place, content[place.position : place.position + place.size_bytes]))
            found += keys_in(entries, wanted)["physical_offset"].tolist()
        assert found == [record.physical_offset]


def test_units_of_batch_queues_say_how_many_messages_a_record_has(stores: Stores) -> None:
    store = stores.open()
    for count in (3, 1, 2):
        properties = b"INNER_NUM\x01%d\x02" % count
        store.append([message("Batches", 0, b"several", properties=properties, sys_flag=int(SysFlag.INNER_BATCH))])
    content, written = write(store, part_at(store, 0))
    footer = footer_of(content)
    (run,) = footer.runs_of("Batches", 0)
    place = footer.queues[run.block]
    units = units_in(run, open_block(place, content[place.position : place.position + place.size_bytes]))
    assert units["base_offset"].tolist() == [0, 3, 4]
    assert units["batch_size"].tolist() == [3, 1, 2]
    assert written.queues is not None
    assert [tuple(getattr(one, name) for name in ("topic", "first", "end")) for one in written.queues] == [
        ("Batches", 0, 6)
    ]


def test_a_part_may_end_before_the_file_does_and_the_next_goes_on_there(store: MessageStore) -> None:
    first, written = write(store, part_at(store, 0, 20_000))
    assert written.end <= 20_000
    second, rest = write(store, part_at(store, written.end))
    assert rest.end == 64 * 1024
    whole, _ = write(store, part_at(store, 0))
    assert log_of(first) + log_of(second) == log_of(whole)


def test_damage_is_not_uploaded(store: MessageStore, stores: Stores) -> None:
    path = stores.segments()[0]
    with path.open("r+b") as file:
        file.seek(5_000)
        file.write(b"\xff" * 8)
    with pytest.raises(LogDamaged, match="physical offset"):
        write(store, part_at(store, 0))


def test_a_changed_object_is_found_whatever_byte_changed(store: MessageStore) -> None:
    content, written = write(store, part_at(store, 0, 8_000), block_bytes=2048)
    random_ = random.Random(7)
    for position in random_.sample(range(len(content)), 300):
        changed = bytearray(content)
        changed[position] ^= 1 << random_.randrange(8)
        with pytest.raises(Damaged):
            read_all(bytes(changed), written)


def read_all(content: bytes, written: Written) -> None:
    """Read everything in an object by ranges."""
    footer = open_footer(content[-written.footer_bytes :], len(content), written.footer_sha256)

    def part(block: Block) -> bytes:
        return content[block.position : block.position + block.size_bytes]

    for log in footer.log:
        open_block(log.block, part(log.block))
    for run in footer.runs:
        units_in(run, open_block(footer.queues[run.block], part(footer.queues[run.block])))
    for keys in footer.keys:
        all_keys(open_block(keys.block, part(keys.block)))


def test_a_block_that_is_larger_than_its_content_can_be_is_refused_before_it_is_read(store: MessageStore) -> None:
    content, _ = write(store, part_at(store, 0))
    footer = footer_of(content)
    (first, *others) = footer.log
    block = msgspec.structs.replace(first.block, size_bytes=2 * first.block.raw_bytes)
    wrong = msgspec.structs.replace(footer, log=[msgspec.structs.replace(first, block=block), *others])
    packed = compress(msgspec.msgpack.encode(wrong))
    with pytest.raises(Damaged, match="out of range"):
        open_footer(packed + TRAILER.pack(MAGIC, len(packed)), 1 << 40)


def test_a_footer_of_any_bytes_is_refused_or_read() -> None:
    random_ = random.Random(3)
    for _ in range(500):
        tail = random_.randbytes(random_.randrange(200))
        with pytest.raises(Damaged):
            open_footer(tail, len(tail))
