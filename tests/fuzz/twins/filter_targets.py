"""The compiled search for wanted records beside its Python twin: any bytes give the same entries."""

import random
import struct
from typing import Final
from zlib import crc32

from sprocket.remoting.message.properties import find_last
from store.queue.record_filter import RecordFilter
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target

try:
    from store.queue import record_filter_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

BASE: Final = 1 << 40
ENTRY: Final = struct.Struct(">qiq")
_PIECES: Final = (
    b"a\x011\x02", b"a\x01\x02", b"a\x012\x02", b"bb\x01x\x02", b"xa\x011\x02", b"a\x01" + b"v" * 15 + b"\x02",
    b"a\x01" + b"v" * 14 + b"\x02", b"c\x01\xc3\xbc\x02", b"a\x01b\x01c\x02", b"novalue\x02", b"\x02", b"a\x01open",
    b"a",
)  # fmt: skip
_NAMES: Final = ((b"a\x01",), (b"a\x01", b"bb\x01"), (b"a\x01", b"bb\x01", b"c\x01", b"novalue\x01"))


def filter_of(names: tuple[bytes, ...], salt: int) -> RecordFilter:
    """A filter that decides by the values of its properties, as chance has it."""

    def matches(properties: bytes) -> bool:
        values = [find_last(properties, name) for name in names]
        return crc32(repr((salt, values)).encode()) % 3 == 0

    return RecordFilter(matches)


def record_of(chance: random.Random) -> bytes:
    """A whole record; some have IPv6 hosts, long topics, or any properties."""
    properties = b"".join(chance.choice(_PIECES) for _ in range(chance.randrange(6)))
    if chance.random() < 0.1:
        properties = chance.randbytes(chance.randrange(40))
    topic = chance.choice(("Orders", "Orders", "Orders", "t" * 130))
    return whole_record(
        body=chance.randbytes(chance.choice((0, 5, 100))), properties=properties, topic=topic,
        sys_flag=chance.choice((0, 0, 0, 0x10, 0x20, 0x30)),
    )  # fmt: skip


def compare_choices(entries: bytes, segment: bytes, end: int, names: tuple[bytes, ...], limit: int, at: int) -> None:
    """Search `entries` twice by both twins: at the second time, the values are known."""
    plain = filter_of(names, len(segment))
    chooser, block = compiled.ValueChooser(names, plain), compiled.ValueBlock(1)
    view = memoryview(segment)
    expected, searched = [], 0
    for offset, size, _ in ENTRY.iter_unpack(entries[: len(entries) // ENTRY.size * ENTRY.size]):
        inside = offset >= BASE and size > 0 and offset + size <= end
        if not inside or len(expected) >= limit or at + searched >= compiled.BLOCK_ENTRIES:
            break
        if plain(view[offset - BASE : offset - BASE + size]):
            expected.append(searched)
        searched += 1
    for _ in range(2):
        assert chooser.choose(entries, view, BASE, end, limit, block, at) == (expected, searched)


def filter_twins(data: bytes) -> None:
    """Records that `data` chooses and changes, with their entries; then `data` itself as entries and as a segment."""
    if compiled is None:
        return
    chance = random.Random(data)
    segment, entries = bytearray(), bytearray()
    for _ in range(chance.choice((1, 9, 40))):
        record = record_of(chance)
        entries += ENTRY.pack(BASE + len(segment), len(record), 0)
        segment += record + bytes(chance.choice((0, 0, 30)))
    for _ in range(chance.choice((0, 0, 3))):
        segment[chance.randrange(len(segment))] = chance.randrange(256)
    names, limit = chance.choice(_NAMES), chance.choice((1, 5, 64))
    for at in (0, 500, 511, 512, -1):
        if 0 <= at < compiled.BLOCK_ENTRIES:
            compare_choices(bytes(entries), bytes(segment), BASE + len(segment), names, limit, at)
    compare_choices(bytes(entries) + data, bytes(segment), BASE + len(segment) // 2, names, limit, 0)
    compare_choices(data, bytes(segment), BASE + len(segment), names, limit, 0)
    size = len(data)
    whole = b"".join(ENTRY.pack(BASE + skip, size - skip, 0) for skip in range(min(size, 3)))
    compare_choices(whole, data, BASE + size, names, limit, 0)
    chooser, block = compiled.ValueChooser(names, lambda record: True), compiled.ValueBlock(1)
    for at, base, end in (
        (512, BASE, BASE + 1),
        (-1, BASE, BASE + 1),
        (0, BASE, BASE - 1),
        (0, -1, 5),
        (0, 0, 1 << 60),
    ):
        assert chooser.choose(entries, memoryview(data), base, end, 5, block, at) == ([], 0)


_SEEDS: Final = [record_of(random.Random(seed)) for seed in range(6)]

ENGINE_FILTER_TARGETS: Final = (Target("filter_twins", filter_twins, _SEEDS),)
