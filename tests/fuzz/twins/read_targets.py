"""The compiled reads of a pull, in broker and client, beside their Python twins: any bytes give the same result."""

import random
import struct
from typing import Any, Final
from unittest.mock import patch

from sprocket.client.message import ReceivedMessage
from sprocket.client.pull import record_decoder
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message.record import SysFlag
from store.layout import CONSUME_QUEUE_UNIT_BYTES
from store.queue.gathered import gathered_in_python
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target

try:
    from sprocket.client.pull import record_decoder_native as records
    from store.queue import gathered_native as reads
except ImportError:  # no C compiler: `tests/engine` says so
    reads = records = None  # type: ignore[assignment]

BASE: Final = 1 << 40
_ENTRY: Final = struct.Struct(">qiq")
_SEGMENT: Final = memoryview(random.Random(1).randbytes(4096))
_QUEUE: Final = MessageQueue("Orders", "broker-a", 3)


def entries_of(chance: random.Random, count: int) -> bytes:
    """Entries of a ConsumeQueue whose records are neighbours, have equal or other gaps, or leave the segment."""
    at, made = BASE + chance.choice((0, 7, 3000)), []
    sizes, gaps = chance.choice((((1, 40, 40, 40, 200), (0, 0, 0, 30)), ((40,), (30,)), ((40,), (0, 30, 30, 30))))
    for _ in range(count):
        size = chance.choice(sizes)
        made.append(_ENTRY.pack(at, size, 7))
        at += size + chance.choice(gaps)
    return b"".join(made)


def compare_gathered(entries: bytes, position: int, count: int, end: int, max_bytes: int, join_bytes: int) -> None:
    """Both gather the same bytes in the same parts; `count` entries are there."""
    arguments = (memoryview(entries), position, count, _SEGMENT, BASE, end, max_bytes, join_bytes)
    assert reads.gathered(*arguments) == gathered_in_python(*arguments)


def gather_twins(data: bytes) -> None:
    """`data` as entries of a ConsumeQueue, alone and after usual entries."""
    if reads is None:
        return
    chance = random.Random(data)
    for entries in (data, entries_of(chance, chance.randrange(1, 9)) + data):
        count = len(entries) // CONSUME_QUEUE_UNIT_BYTES
        for first in {0, count - 1} if count else ():
            position = max(0, first) * CONSUME_QUEUE_UNIT_BYTES
            for end, max_bytes, join_bytes in ((4096, 1 << 20, 0), (4096, 1 << 20, 1 << 20), (600, 300, 300)):
                compare_gathered(entries, position, count - first, BASE + end, max_bytes, join_bytes)
        # Entries that are not there: the twin in Python raises, the compiled one refuses before it reads.
        view = memoryview(entries)
        for position, more in ((0, count + 1), (len(entries) + 1, 1), (-1, 1), (0, 0), (0, -1), (0, 1 << 60)):
            assert reads.gathered(view, position, more, _SEGMENT, BASE, BASE + 4096, 1 << 20, 0) is None


def decoded(data: bytes, decode: Any, delta: int) -> object:
    """All attributes of the messages in `data`, or why it has none; `decode` is the compiled loop, None for Python."""
    with patch.object(record_decoder, "decode_run", decode):
        try:
            messages = record_decoder.decode_records(data, _QUEUE, delta)
        except ProtocolError as error:
            return error.kind, error.detail
    return [[(name, getattr(one, name)) for name in ReceivedMessage.__slots__] for one in messages]


def record_twins(data: bytes) -> None:
    """`data` as the body of a pull, alone and after a usual record."""
    if records is None:
        return
    native = records.RecordDecoder(ReceivedMessage).run
    delta = random.Random(data).choice((0, 0, 7, -7, (1 << 61) - 1, 1 << 62))
    for body in (data, _USUAL + data, _USUAL + data + _USUAL):
        assert decoded(body, native, delta) == decoded(body, None, delta)
    for at in (-1, len(data), len(data) + 1, 1 << 60):
        assert native(data, at, _QUEUE, "Orders", 0, []) == at


def _body(seed: int) -> bytes:
    chance = random.Random(seed)
    inner = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    made = []
    for _ in range(5):
        flags = chance.choice((0, 0, 0, inner, int(SysFlag.BORN_HOST_V6), int(SysFlag.COMPRESSED)))
        topic = chance.choice(("Orders", "Orders", "Other", "Zürich"))
        made.append(whole_record(chance.randbytes(chance.choice((0, 1, 60))), b"TAGS\x01a\x02", flags, topic))
    return b"".join(made)


_USUAL: Final = whole_record(b"body", b"UNIQ_KEY\x010A\x02", 0, "Orders")

ENGINE_READ_TARGETS: Final = (
    Target("gather_twins", gather_twins, [entries_of(random.Random(seed), 6) for seed in range(6)], 4096),
    Target("record_twins", record_twins, [_body(seed) for seed in range(4)], 4096),
)
