"""Writes docs/format.md from the layouts that the code reads and writes with.

Run as ``python -m docs.pages.format_page <file>`` (`make docs`); a test compares the file with it.  The tables come
from the numpy types of `store.layout` and the comments beside their fields; the hexdumps are of real bytes, made by
the layouts and read back by the store's own decoder.
"""

import inspect
import re
import struct
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message import record as message_record
from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SysFlag,
)
from store import layout
from store.config.timer_config import SLOTS_TOTAL
from store.disk import sealed_file
from store.flush.checkpoint import Checkpoint
from store.inspection.small_files import KNOWN_NAMES
from store.record.record import FIXED_IPV4_RAW, Record, blank, decode
from store.repair.filler import FILLER_TOPIC, filler
from store.repair.rebuild import IndexRebuild
from store.timer.timer_progress import EXTENSION_AT

_BORN: Final = 1_767_225_600_000
_STORED: Final = _BORN + 7
_HOST: Final = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
_STORE_HOST: Final = bytes((10, 9, 8, 7)) + (10911).to_bytes(4, "big")
_SLOTS, _CAPACITY = 4, 8

_HEAD: Final = """\
# Files on disk

Written by `make docs` from the layouts in the code; do not edit.

A store directory (`storePathRootDir`) is that of Apache RocketMQ 5.3, byte for byte; what Sprocket adds is named at the
end, and RocketMQ passes over it. All integers are big-endian; i32 is a signed integer of 32 bits. Offsets in the left
columns are decimal, hexdumps are real. `sprocket store dump` shows records, `sprocket store check` checks all files.

| Name | What it is |
|---|---|
"""
_LOG: Final = """
## commitlog/

All messages of all topics in the order of their arrival. The log is one sequence of bytes; the offset of a byte in
it is its *physical offset*. It is cut into segments of {segment} bytes (`mappedFileSizeCommitLog`), each a file
named by the physical offset of its first byte in {digits} decimal digits: the second is `{second}`. No record
crosses a segment's end: behind the last one stands a *blank*, an i32 with the bytes that are left (at least
{blank}), then the magic number {blank_magic}; what follows it in the segment has no meaning. Behind the newest
record there are zeros.

### A record

```
{fields}
```

The smallest record has {least} bytes. Magic numbers: {v1} (`{v1:08x}`, topic length in 1 byte) and {v2}
(`{v2:08x}`, in 2 bytes, for topics of more than 127 bytes). `body_crc` is the CRC-32 of the body, with the top bit
cleared. Properties are `name 0x01 value 0x02`, one after the other. A record whose last property is `__CRC32#` has
a CRC-32 of all bytes before that property in it, 10 decimal digits, the lowest first.

| `sys_flag` | Meaning |
|---|---|
{flags}

A message of topic `Orders`, queue 2, tag `paid`, key `42`, with the body `hello`:

{record}

The same as bytes:

{dump}

A blank for the last 100 bytes of a segment:

{blank_dump}

A record that `sprocket store repair` puts in the place of damage is a message of a rolled back transaction of topic
`{filler}` (no topic where there is no room for its name): no queue and no index knows it.
"""
_QUEUE: Final = """
## consumequeue/&lt;topic&gt;/&lt;queueId&gt;/

Where each message of a queue lies in the log. Entry k, {unit} bytes, is at byte {unit} * k of the queue; the queue
is cut into files of {per_file} entries by default (`mappedFileSizeConsumeQueue`), named by the offset of their
first byte. Behind the last entry there are zeros. An entry of size 2147483647 (0x7fffffff) is blank: its message
was never in this queue, or is gone. Messages of transactions that are prepared or rolled back have no entry.

A light queue (`%LMQ%name`, queue 0) has the same entries, of records of other topics: their property
INNER_MULTI_DISPATCH names the queues, INNER_MULTI_QUEUE_OFFSET the record's offset in each, both separated by commas.

{table}

The entry of the record above, were it the second message of its queue:

{dump}
"""
_BATCH: Final = """
## batchconsumequeue/&lt;topic&gt;/&lt;queueId&gt;/

The same for topics with the attribute `queue.type=BatchCQ`: one unit of {unit} bytes for each record, which may
hold many messages.

{table}
"""
_INDEX: Final = """
## index/

Messages by key. A file is named by the time at which it was begun (yyyyMMddHHmmssSSS). It has a header of {header}
bytes, `maxHashSlotNum` slots of {slot} bytes, and `maxIndexNum` units of {unit} bytes, of which the first is never
used. The hash of a key is the absolute value of Java's hash of `topic#key`; its slot, hash modulo the number of
slots, holds the number of the newest unit with that slot; each unit names the one before it. Unique ids
(`UNIQ_KEY`) and each word of `KEYS` are keys.

Header:

{header_table}

Unit:

{unit_table}

A file of {slots} slots and {capacity} units with the keys of the record above:

{dump}
"""
_CHECKPOINT: Final = """
## checkpoint

One page of {size} bytes; all but the first fields is zeros.

{table}

{dump}
"""
_TIMER: Final = """
## timerwheel, timerlog

A message for a time of its own lies in queue 0 of `rmq_sys_wheel_timer`, with the time in `TIMER_OUT_MS`. `timerwheel`
is a ring of {slots} slots of {slot} bytes; the slot of a time is the time over `timerPrecisionMs`, modulo their number.

{slot_table}

`timerlog/` has files as the log has. Each message in the wheel is a unit of {unit} bytes; the units of a slot are a
chain from the newest to the oldest.

{unit_table}

`config/timercheck` is one page and says how far the wheel has come:

{checkpoint_table}

Behind byte {extension} of the page Sprocket keeps, with a CRC, what a wall clock that stepped back leaves; RocketMQ
neither reads nor overwrites it. `config/timermetrics` is JSON: how many messages wait for each topic.
"""
_REST: Final = """
## abort, lock

`abort` is empty and there while a broker runs; if it is there at a start, the run before did not end cleanly.
`lock` holds nothing; its first byte is locked by the broker that uses the store.

## config/*.json

What the broker knows: `topics.json`, `subscriptionGroup.json`, `consumerOffset.json`, `delayOffset.json` and
others, in the JSON of fastjson: keys that are numbers stand without quotes. The version before is kept as `.bak`.

`consumerOrderInfo.json` holds, for each `topic@group` and queue that is popped in order, the last pop: `popTime` and
`i` (invisible time), ms; `o`, the queue offset of its first message and the distances of the others from it; `cm`,
bit i of which says that the i-th is acknowledged; `ot`, queue offset to the time at which that message comes free,
where it was changed; `oc`, queue offset to how often it was handed out before; `l`, when that was; `a`, the attempt's
id.

## The revive topic

`rmq_sys_REVIVE_LOG_<cluster>` is a topic like others, of 8 queues. Its messages come through the timer wheel. The tag
says what the body, JSON, is: `ck` what one pop took from one queue, due a second before it comes again; `ack` one
message of a pop, `bAck` several, due when they would. `t` topic, `c` group, `q` queue, `so` first offset, `pt` pop
time and `bn` broker name are the same in all three and bring them together. A checkpoint has besides: `it` invisible
time, `n` how many messages, `d` their distances from `so`, `bm` bits of those that are acknowledged, `rp` how often
it was written again. An acknowledgement has `ao`, the offset, or `aol`, several. The group CID_RMQ_SYS_REVIVE_GROUP
commits, other than all other groups, the last offset that is done with, not the next.

## Sprocket's own files

`queuelist`, `flushed`, `confirm`, `deletedtopics` and `truncate` begin with a head of {head} bytes:

```
{sealed}
```

`queuelist` (kind `QLST`) lists each queue and how much of it is on the disk. `flushed` (kind `FLSH`, content an
i64) says up to where the last sync of the log reached. `confirm` (kind `CNFM`, content two i64) is there while a broker
runs that syncs or replicates before consumers see a message: the confirm offset, behind which a reader of the files
must not go, and when it was written, ms. `deletedtopics` (kind `DTOP`) says up to which physical offset
records of a deleted topic do not count. `truncate` (kind `TRNC`, content an i64) says where the log is to end while
a cut of it is made; `cut/` keeps what a start cut off. `leases/<name>.json` says who holds segments until when.

`repair-<time>/` is made by `sprocket store repair`: `journal.json` says what was done, where and why, and the
numbered files hold what was there before; `--undo` puts it back.
"""


def page() -> str:
    """The whole text of docs/format.md."""
    record = example_record()
    fields = inspect.getdoc(message_record) or ""
    fields = textwrap.dedent(fields[fields.index("    total_size") :].split("\n\n", 1)[0])
    flags = "\n".join(f"| {int(flag):#05x} | {name} |" for name, flag in SysFlag.__members__.items())
    entry = np.array([(4096, len(record), java_hash_code("paid"))], layout.CONSUME_QUEUE_DTYPE).tobytes()
    checkpoint = Checkpoint(_STORED, _STORED, _STORED, 0, 4096 + len(record)).encode()[:64]
    return "".join(
        (
            _HEAD,
            *(f"| `{name}` | {meaning} |\n" for name, meaning in sorted(KNOWN_NAMES.items())),
            _LOG.format(
                segment=layout.COMMIT_LOG_FILE_BYTES, digits=layout.FILE_NAME_DIGITS, blank=BLANK_MIN_BYTES,
                second=layout.file_name(layout.COMMIT_LOG_FILE_BYTES), blank_magic=f"{MAGIC_BLANK} "
                f"(`{MAGIC_BLANK & 0xFFFFFFFF:08x}`)", fields=fields, least=MIN_RECORD_BYTES, v1=_Hex(MAGIC_V1),
                v2=_Hex(MAGIC_V2), flags=flags, record=_record_table(record), dump=hexdump(record, 4096),
                blank_dump=hexdump(blank(100)), filler=FILLER_TOPIC.decode(),
            ),
            _QUEUE.format(
                unit=layout.CONSUME_QUEUE_UNIT_BYTES, per_file=layout.CONSUME_QUEUE_ENTRIES_PER_FILE,
                table=table("CONSUME_QUEUE_DTYPE"), dump=hexdump(entry, 20),
            ),
            _BATCH.format(
                unit=layout.BATCH_CONSUME_QUEUE_DTYPE.itemsize, table=table("BATCH_CONSUME_QUEUE_DTYPE")
            ),
            _INDEX.format(
                header=layout.INDEX_HEADER_DTYPE.itemsize, slot=layout.INDEX_SLOT_BYTES,
                unit=layout.INDEX_UNIT_DTYPE.itemsize, header_table=table("INDEX_HEADER_DTYPE"),
                unit_table=table("INDEX_UNIT_DTYPE"), slots=_SLOTS, capacity=_CAPACITY,
                dump=hexdump(example_index(record)),
            ),
            _CHECKPOINT.format(
                size=layout.CHECKPOINT_BYTES, table=table("CHECKPOINT_DTYPE"), dump=hexdump(checkpoint)
            ),
            _TIMER.format(
                slots=2 * SLOTS_TOTAL, slot=layout.TIMER_SLOT_DTYPE.itemsize, slot_table=table("TIMER_SLOT_DTYPE"),
                unit=layout.TIMER_UNIT_DTYPE.itemsize, unit_table=table("TIMER_UNIT_DTYPE"),
                checkpoint_table=table("TIMER_CHECKPOINT_DTYPE"), extension=EXTENSION_AT,
            ),
            _REST.format(head=len(sealed_file.seal(b"KIND", b"")), sealed=_sealed_layout()),
        )
    )  # fmt: skip


class _Hex(int):
    """An integer whose format ``08x`` is that of its 32 bits."""

    def __format__(self, spec: str) -> str:
        return format(self & 0xFFFFFFFF if spec else int(self), spec)


def example_record() -> bytes:
    """The record of the page, at physical offset 4096; raises AssertionError if the store cannot read it."""
    body, topic = b"hello", b"Orders"
    properties = b"KEYS\x0142\x02TAGS\x01paid\x02"
    size = MIN_RECORD_BYTES + len(body) + len(topic) + len(properties) + 20
    head = FIXED_IPV4_RAW.pack(
        size, MAGIC_V1, zlib.crc32(body) & CRC_MASK, 2, 0, 1, 4096, 0, _BORN, _HOST, _STORED, _STORE_HOST, 0, 0,
        len(body),
    )  # fmt: skip
    length = (len(properties) + 20).to_bytes(2, "big")
    front = b"".join((head, body, bytes([len(topic)]), topic, length, properties))
    digits = f"{zlib.crc32(front) & CRC_MASK:010d}"[::-1].encode()
    record = front + b"__CRC32#\x01" + digits + b"\x02"
    assert isinstance(decode(memoryview(record)), Record)
    assert isinstance(decode(memoryview(filler(0, 200, 0))), Record)
    return record


def example_index(record: bytes) -> bytes:
    """An index file of the record's key, written by the code that repair writes them with."""
    decoded = decode(memoryview(record))
    assert isinstance(decoded, Record)
    with tempfile.TemporaryDirectory() as folder:
        index = IndexRebuild(Path(folder), _SLOTS, _CAPACITY)
        index.add(decoded)
        index.finish()
        [path] = Path(folder).iterdir()
        content = path.read_bytes()
    # The units behind the first two are zeros.
    used = layout.INDEX_HEADER_DTYPE.itemsize + _SLOTS * layout.INDEX_SLOT_BYTES + 2 * layout.INDEX_UNIT_DTYPE.itemsize
    return content[:used]


def table(name: str) -> str:
    """A numpy type of `store.layout` as a table; meanings are the comments beside its fields."""
    kind: np.dtype[np.void] = getattr(layout, name)
    source = inspect.getsource(layout)
    source = source[source.index(f"{name}: Final") :]
    rows = ["| Byte | Type | Field | Meaning |", "|---|---|---|---|"]
    assert kind.names is not None and kind.fields is not None
    for field in kind.names:
        described, at = kind.fields[field][:2]
        comment = re.search(rf'\("{field}", "[^"]+"\),(?:  # (.*))?', source)
        meaning = (comment.group(1) if comment else "") or ""
        rows.append(f"| {at} | i{described.itemsize * 8} | `{field}` | {meaning} |")
    return "\n".join(rows)


def _record_table(record: bytes) -> str:
    rows = ["| Byte | Bytes | Field | Value |", "|---|---|---|---|"]
    at = 0
    for name, size, value in _record_parts(record):
        shown = record[at : at + size].hex(" ", -4)
        rows.append(f"| {at} | `{shown if len(shown) < 60 else shown[:57] + '...'}` | `{name}` | {value} |")
        at += size
    assert at == len(record)
    return "\n".join(rows)


def _record_parts(record: bytes) -> Iterator[tuple[str, int, str]]:
    """Name, bytes and value of each field of the example record, in order."""
    fixed = np.frombuffer(record, layout.RECORD_FIXED_DTYPE, 1)[0]
    for field in layout.RECORD_FIXED_DTYPE.names or ():
        yield field, layout.RECORD_FIXED_DTYPE[field].itemsize, str(fixed[field])
    decoded = decode(memoryview(record))
    assert isinstance(decoded, Record)
    yield "born_host", 8, "10.1.2.3 port 5432"
    yield "store_timestamp", 8, str(decoded.store_timestamp)
    yield "store_host", 8, "10.9.8.7 port 10911"
    yield "reconsume_times", 4, str(decoded.reconsume_times)
    yield "prepared_transaction_offset", 8, str(decoded.prepared_transaction_offset)
    yield "body_length", 4, str(len(decoded.body))
    yield "body", len(decoded.body), bytes(decoded.body).decode()
    yield "topic_length", 1, str(len(decoded.topic))
    yield "topic", len(decoded.topic), decoded.topic
    yield "properties_length", 2, str(len(decoded.properties))
    text = bytes(decoded.properties).decode().replace("\x01", " = ").replace("\x02", "; ").strip()
    yield "properties", len(decoded.properties), text


def hexdump(content: bytes, start: int = 0) -> str:
    """`content` as ``xxd`` shows it; `start` is the offset of its first byte."""
    return "```\n" + "\n".join(_dump_lines(content, start)) + "\n```"


def _dump_lines(content: bytes, start: int) -> Iterable[str]:
    for at in range(0, len(content), 16):
        piece = content[at : at + 16]
        text = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in piece)
        yield f"{start + at:08x}: {piece.hex(' ', -2):<39}  {text}"


def _sealed_layout() -> str:
    example = sealed_file.seal(b"QLST", b"content")
    magic, kind, version, length, crc = struct.unpack_from(">4s4siiI", example)
    assert length == len(b"content")
    rows = (
        f" 0  magic     4 bytes  {magic.decode()}",
        f" 4  kind      4 bytes  {kind.decode()}, CNFM, DTOP or TRNC",
        f" 8  version   i32      {version}",
        "12  length    i32      bytes of the content",
        f"16  crc       u32      CRC-32 of the content ({crc:08x} for the content `content`)",
        "20  content",
    )
    return "\n".join(rows)


def main() -> int:
    """Write the page to the file named by the first argument."""
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
