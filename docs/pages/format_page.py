"""Writer of docs/format.md, from the layouts with which the code reads and writes.

Run as ``python -m docs.pages.format_page <file>`` (`make docs`); a test compares the file with the page.  The tables
come from the numpy types of `store.layout` and the comments beside their fields.  The hexdumps show real bytes, which
the layouts encode and the store's own decoder reads back.
"""

import inspect
import re
import struct
import tempfile
import textwrap
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from docs.pages.command import write
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message import record as message_record
from sprocket.remoting.message.record import (
    BLANK_MIN_BYTES,
    CRC_MASK,
    FIXED_IPV4_RAW,
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
from store.record.record import Record, blank, decode
from store.repair.filler import FILLER_TOPIC, filler
from store.repair.rebuild import IndexRebuild
from store.scan.record_batch import batch_of, row_of
from store.timer.timer_progress import EXTENSION_AT

_BORN: Final = 1_767_225_600_000
_STORED: Final = _BORN + 7
_HOST: Final = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
_STORE_HOST: Final = bytes((10, 9, 8, 7)) + (10911).to_bytes(4, "big")
_SLOTS, _CAPACITY = 4, 8

_HEAD: Final = """\
# Files on disk

Written by `make docs` from the layouts in the code; do not edit.

A store directory (`storePathRootDir`) is that of Apache RocketMQ 5.3, byte for byte. The last section describes
Sprocket's own files, which RocketMQ ignores. All integers are big-endian; i32 is a signed integer of 32 bits. Offsets
in the left columns are decimal. `sprocket store dump` shows records, `sprocket store check` checks all files.

| Name | What it is |
|---|---|
"""
_LOG: Final = """
## commitlog/

All messages of all topics in order of arrival. The log is one sequence of bytes; the offset of a byte in it is its
*physical offset*. It is divided into segments of {segment} bytes (`mappedFileSizeCommitLog`). Each segment is a file,
named by the physical offset of its first byte in {digits} decimal digits: the second is `{second}`. No record crosses
a segment's end. After the last record of a segment comes a *blank*: an i32 with the number of bytes to the segment's
end (at least {blank}), then the magic number {blank_magic}. The rest of the segment has no meaning. After the newest
record there are zeros.

### A record

```
{fields}
```

The smallest record has {minimum} bytes. Magic numbers: {v1} (`{v1:08x}`, topic length in 1 byte) and {v2}
(`{v2:08x}`, in 2 bytes, for topics of more than 127 bytes). `body_crc` is the CRC-32 of the body, with the top bit
cleared. Properties are `name 0x01 value 0x02`, one after the other. If the last property is `__CRC32#`, its value is
a CRC-32 of all bytes before that property: 10 decimal digits, the lowest first.

| `sys_flag` | Meaning |
|---|---|
{flags}

A message of topic `Orders`, queue 2, tag `paid`, key `42`, with the body `hello`:

{record}

The same as bytes:

{dump}

A blank for the last 100 bytes of a segment:

{blank_dump}

`sprocket store repair` replaces damaged bytes by a record of a rolled back transaction of topic `{filler}` (without a
topic if there is no room for its name). It is in no queue and no index.
"""
_QUEUE: Final = """
## consumequeue/&lt;topic&gt;/&lt;queueId&gt;/

The position in the log of each message of a queue. Entry k, {unit} bytes, is at byte {unit} * k of the queue. The
queue is divided into files of {per_file} entries by default (`mappedFileSizeConsumeQueue`), named by the offset of
their first byte. After the last entry there are zeros. An entry of size 2147483647 (0x7fffffff) is blank: its message
was never in this queue, or is gone. Messages of prepared or rolled back transactions have no entry.

A light queue (`%LMQ%name`, queue 0) has the same entries, for records of other topics. The property
INNER_MULTI_DISPATCH of such a record names the queues; INNER_MULTI_QUEUE_OFFSET holds the record's offset in each.
Both are separated by commas.

{table}

The entry of the record above, as the second message of its queue:

{dump}
"""
_BATCH: Final = """
## batchconsumequeue/&lt;topic&gt;/&lt;queueId&gt;/

The same for topics with the attribute `queue.type=BatchCQ`. A queue has one unit of {unit} bytes for each record;
a record may hold many messages.

{table}
"""
_INDEX: Final = """
## index/

Messages by key. The name of a file is the time of its creation (yyyyMMddHHmmssSSS). It has a header of {header} bytes,
`maxHashSlotNum` slots of {slot} bytes, and `maxIndexNum` units of {unit} bytes; the first unit is never used. The hash
of a key is the absolute value of Java's hash of `topic#key`. Its slot is the hash modulo the number of slots. A slot
holds the number of its newest unit; each unit holds the number of the unit before it. Unique ids (`UNIQ_KEY`) and each
word of `KEYS` are keys.

Header:

{header_table}

Unit:

{unit_table}

A file of {slots} slots and {capacity} units with the keys of the record above:

{dump}
"""
_CHECKPOINT: Final = """
## checkpoint

One page of {size} bytes; after these fields there are zeros.

{table}

{dump}
"""
_TIMER: Final = """
## timerwheel, timerlog

A message with a delivery time is in queue 0 of `rmq_sys_wheel_timer`, with the time in `TIMER_OUT_MS`. `timerwheel`
is a ring of {slots} slots of {slot} bytes. The slot of a time is (time / `timerPrecisionMs`) modulo {slots}.

{slot_table}

`timerlog/` has files like those of the log. Each message in the wheel is a unit of {unit} bytes; the units of a slot
are a chain from the newest to the oldest.

{unit_table}

`config/timercheck` is one page with the wheel's progress:

{checkpoint_table}

If the wall clock stepped back, Sprocket keeps its state from byte {extension} of the page on, with a CRC. RocketMQ
neither reads nor overwrites these bytes. `config/timermetrics` is JSON: the number of waiting messages of each topic.
"""
_REST: Final = """
## epochFileCheckpoint

In controller mode: the epochs of the log's masters, in text. First the number of epochs, then the CRC-32 of the lines
after it without its highest bit. Then one line per epoch: its number, a hyphen, and the physical offset where it
begins. Each line ends with a line feed. Numbers grow, and offsets do not shrink. An epoch ends where the next begins.

```
3
1370829526
1-0
2-4096
5-1073741824
```

RocketMQ checks no CRC if the second line is 0. Its `.bak` has the previous content, Sprocket's the same content.

## abort, lock

`abort` is empty and exists while a broker runs. If it exists at a start, the run before did not end cleanly. `lock` is
empty; the broker that uses the store locks its first byte.

## config/*.json

Tables of the broker: `topics.json`, `subscriptionGroup.json`, `consumerOffset.json`, `delayOffset.json` and others, in
fastjson's JSON: keys that are numbers have no quotes. The previous version is kept as `.bak`.

`consumerOrderInfo.json` holds, for each `topic@group` and queue that is popped in order, the last pop:

- `popTime`, and `i`, the invisible time, ms;
- `o`, the queue offset of its first message, and the distances of the others from it;
- `cm`, bits: bit i is set if message i is acknowledged;
- `ot`, queue offset -> end of that message's invisible time, if it was changed;
- `oc`, queue offset -> number of earlier deliveries;
- `l`, the time of the last delivery;
- `a`, the id of the attempt.

## The revive topic

`rmq_sys_REVIVE_LOG_<cluster>` is a topic of 8 queues, otherwise like others. Its messages come through the timer wheel.
Bodies are JSON. The tag gives the kind. `ck` is a checkpoint: the messages that one pop took from one queue. It is due
a second before they are redelivered. `ack` is an acknowledgement of one message of a pop, `bAck` of several. They are
due when their messages would be redelivered. All three kinds have `t` topic, `c` group, `q` queue, `so` first offset,
`pt` pop time and `bn` broker name; these match acknowledgements to checkpoints. A checkpoint also has `it` invisible
time, `n` number of messages, `d` their distances from `so`, `bm` bits of the acknowledged messages, and `rp` number of
rewrites. An acknowledgement has `ao`, its offset, or `aol`, several offsets. Unlike other groups,
CID_RMQ_SYS_REVIVE_GROUP commits the last finished offset, not the next one.

## Sprocket's own files

`queuelist`, `flushed`, `confirm`, `deletedtopics` and `truncate` begin with a head of {head} bytes:

```
{sealed}
```

- `queuelist` (kind `QLST`): each queue and how much of it is on the disk.
- `flushed` (kind `FLSH`, content an i64): the end of the log at its last sync.
- `confirm` (kind `CNFM`, content two i64): the confirm offset and the time of the write, ms. It exists while a broker
  runs that syncs or replicates messages before consumers see them. A reader of the files must stop at this offset.
- `deletedtopics` (kind `DTOP`): for each deleted topic, the physical offset before which its records are deleted.
- `truncate` (kind `TRNC`, content an i64): where the log will end, while a start truncates it.

`cut/` keeps the bytes that a start truncated. `leases/<name>.json` names the holder of a lease on segments, and the
lease's deadline.

`sprocket store repair` creates `repair-<time>/`. Its `journal.json` lists each change with place and reason; the
numbered files hold the replaced bytes. `--undo` restores them.
"""


def page() -> str:
    """Return the text of docs/format.md."""
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
                f"(`{MAGIC_BLANK & 0xFFFFFFFF:08x}`)", fields=fields, minimum=MIN_RECORD_BYTES, v1=_Hex(MAGIC_V1),
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
    """An integer that ``08x`` formats as 32 bits."""

    def __format__(self, spec: str) -> str:
        return format(self & 0xFFFFFFFF if spec else int(self), spec)


def example_record() -> bytes:
    """Return the record of the page, at physical offset 4096.  Raises AssertionError if the store cannot read it."""
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
    """Return an index file with the record's keys, written by repair's code."""
    decoded = decode(memoryview(record))
    assert isinstance(decoded, Record)
    with tempfile.TemporaryDirectory() as folder:
        index = IndexRebuild(Path(folder), _SLOTS, _CAPACITY)
        index.add(batch_of([row_of(decoded, 0)], memoryview(record), decoded.physical_offset))
        index.finish()
        [path] = Path(folder).iterdir()
        content = path.read_bytes()
    # The units after the first two are zeros.
    used = layout.INDEX_HEADER_DTYPE.itemsize + _SLOTS * layout.INDEX_SLOT_BYTES + 2 * layout.INDEX_UNIT_DTYPE.itemsize
    return content[:used]


def table(name: str) -> str:
    """Return a numpy type of `store.layout` as a table; the comments beside its fields give the meanings."""
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
    """Yield name, bytes and value of each field of the example record, in order."""
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
    """Return `content` in the form of ``xxd``; `start` is the offset of its first byte."""
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


if __name__ == "__main__":
    write(page())
