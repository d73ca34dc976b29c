"""Manifests: what they say, what a writer may make of them, and that no bytes of others can harm a reader."""

import random

import msgspec
import pytest

from store.tier.compression import compress
from store.tier.manifest import (
    Manifest,
    ManifestEncoder,
    QueueRange,
    SegmentEntry,
    TablesEntry,
    decode,
    empty,
    encode,
    folder_of,
)
from store.tier.object_store import Damaged

SEGMENT = 1024
HOUR_MS = 3_600_000
SHA = "ab" * 32


def entry(start: int, end: int, *, last_ms: int = 1000, topics: tuple[str, ...] = ("Orders",)) -> SegmentEntry:
    return SegmentEntry(
        start=start, end=end, key=f"segments/{start:020d}-3-abc-1", size_bytes=500, sha256=SHA, log_sha256=SHA,
        footer_bytes=100, footer_sha256=SHA, records=5, dropped=0, first_store_ms=last_ms - 10, last_store_ms=last_ms,
        epoch=3, created_ms=2000, topics=list(topics), queues=[QueueRange(topic, 0, 0, 5) for topic in topics],
    )  # fmt: skip


def manifest() -> Manifest:
    claimed = empty("c", "b", SEGMENT, 72 * HOUR_MS).claimed(3, "abc", 10)
    for start in range(0, 4 * SEGMENT, SEGMENT):
        claimed = claimed.with_segment(entry(start, start + SEGMENT), 20)
    return claimed.with_tables(TablesEntry("tables/00000000000000000001-3-abc-2", 10, SHA, 4096, 30), 30)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode(encode(manifest())) == manifest()


def test_an_encoder_that_goes_on_writes_what_a_new_one_writes() -> None:
    encoder, later = ManifestEncoder(), manifest().with_segment(entry(4 * SEGMENT, 5 * SEGMENT), 50)
    other = msgspec.structs.replace(later, segments=[msgspec.structs.replace(one, records=9) for one in later.segments])
    for one in (manifest(), later, later.cut(2 * SEGMENT, 60), later.without([later.segments[1].key], 70), other):
        assert encoder.encode(one) == encode(one)
        assert decode(encode(one)) == one


def test_a_part_is_found_by_each_of_its_offsets_and_by_no_other() -> None:
    found = manifest().without([entry(SEGMENT, 2 * SEGMENT).key], 40)
    for offset in range(4 * SEGMENT + 10):
        part = found.segment_of(offset)
        if SEGMENT <= offset < 2 * SEGMENT or offset >= 4 * SEGMENT:
            assert part is None
        else:
            assert part is not None
            assert part.start <= offset < part.end
    assert found.uploaded_end == 4 * SEGMENT


def test_a_part_follows_the_last_one() -> None:
    with pytest.raises(ValueError, match="does not follow 4096"):
        manifest().with_segment(entry(3 * SEGMENT, 4 * SEGMENT), 50)
    assert manifest().with_segment(entry(6 * SEGMENT, 7 * SEGMENT), 50).uploaded_end == 7 * SEGMENT


def test_what_a_replaced_master_uploaded_last_is_superseded_and_still_named() -> None:
    cut = manifest().cut(2 * SEGMENT, 60)
    assert [part.start for part in cut.segments] == [0, SEGMENT]
    assert [part.start for part in cut.superseded] == [2 * SEGMENT, 3 * SEGMENT]
    assert cut.uploaded_end == 2 * SEGMENT
    assert cut.keys == manifest().keys
    with pytest.raises(ValueError, match="lies within"):
        manifest().cut(SEGMENT + 1, 60)


def test_a_part_goes_when_the_topic_that_stays_longest_may_go() -> None:
    both = entry(4 * SEGMENT, 5 * SEGMENT, topics=("Orders", "Audit"))
    found = manifest().with_segment(both, 50).with_reserves(HOUR_MS, {"Audit": 5 * HOUR_MS}, 60)
    assert found.expires_ms(both) == 1000 + 5 * HOUR_MS
    assert found.expires_ms(found.segments[0]) == 1000 + HOUR_MS
    assert found.is_readable(both, "Audit", 1000 + 2 * HOUR_MS)
    assert not found.is_readable(both, "Orders", 1000 + 2 * HOUR_MS)


def test_each_term_is_higher_than_the_one_before() -> None:
    first = manifest()
    second = first.claimed(3, "def", 70)
    assert (second.writer.term, second.number) == (first.writer.term + 1, first.number + 1)
    assert second.segments == first.segments


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format 2"),
        ({"segment_bytes": 0}, "out of range"),
        ({"uploaded_end": SEGMENT}, "says that 1024 is uploaded"),
        ({"segments": [entry(0, SEGMENT), entry(512, SEGMENT)]}, "begins before 1024"),
        ({"segments": [entry(512, SEGMENT + 1)]}, "not part of one CommitLog file"),
        ({"segments": [msgspec.structs.replace(entry(0, 9), key="../../etc/passwd")]}, "no valid key"),
        ({"segments": [msgspec.structs.replace(entry(0, 9), footer_bytes=501)]}, "sizes"),
        ({"segments": [msgspec.structs.replace(entry(0, 9), size_bytes=1 << 40, footer_bytes=1 << 30)]}, "sizes"),
        ({"segments": [msgspec.structs.replace(entry(0, 9), sha256="x")]}, "no valid key"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(change: dict[str, object], reason: str) -> None:
    wrong = msgspec.structs.replace(manifest(), **change)
    with pytest.raises(Damaged, match=reason):
        decode(compress(msgspec.json.encode(wrong)))
    with pytest.raises(Damaged, match=reason):
        encode(wrong)


def test_no_bytes_harm_a_reader() -> None:
    random_ = random.Random(5)
    content = encode(manifest())
    for _ in range(2_000):
        changed = bytearray(content)
        for _ in range(random_.randrange(1, 4)):
            changed[random_.randrange(len(changed))] = random_.randrange(256)
        try:
            decode(bytes(changed[: random_.randrange(len(changed) + 1)]))
        except Damaged:
            continue


def test_a_manifest_that_would_fill_the_memory_is_refused_unexpanded() -> None:
    with pytest.raises(Damaged, match="at most"):
        decode(compress(bytes(300 << 20)))


def test_folders_of_groups_cannot_leave_the_bucket() -> None:
    assert folder_of("../x", "a/b") == "..%2Fx/a%2Fb"
