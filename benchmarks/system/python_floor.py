"""The Python floor: the least that a broker in pure Python can do for sends, tuned as far as it goes.

`python -m benchmarks.system.python_floor PORT DIRECTORY ASYNC_FLUSH|SYNC_FLUSH`

It does what `floor.c` does: the frame, the header in JSON, a record with its CRC, an entry of the ConsumeQueue with the
hash of the tag, and the response.  What arrives with one read is one write of the log, one of each queue, and one of
the connection.  uvloop reads, msgspec decodes.  It checks nothing, recovers nothing, and knows no pulls.
"""

import asyncio
import os
import struct
import sys
import time
from asyncio import BaseTransport, Protocol, Transport
from pathlib import Path
from typing import Final, cast
from zlib import crc32

import msgspec
import uvloop

from sprocket.remoting.message.record import CRC_MASK, FIXED_IPV4, MAGIC_V1
from tests.compat import wire

_PREFIX: Final = struct.Struct(">II")
_ENTRY: Final = struct.Struct(">qiq")
_SHORT: Final = struct.Struct(">h")
_LOOPBACK: Final = bytes([127, 0, 0, 1])
_PORT: Final = 0
_SEGMENT_BYTES: Final = 1 << 30
_KEPT_SEGMENTS: Final = 8
_RESPONSE: Final = (
    b'{"code":0,"extFields":{"queueOffset":"%d","queueId":"%b","msgId":"7F00000100002A9F%016X"},'
    b'"flag":1,"language":"PYTHON","opaque":%d,"version":479}'
)
_OTHER_RESPONSE: Final = (
    b'{"code":0,"extFields":{"offset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,"version":479}'
)


class Fields(msgspec.Struct):
    """The fields of a SEND_MESSAGE_V2 that a record needs; those of GET_MAX_OFFSET have longer names."""

    b: str = ""
    e: str = ""
    g: str = "0"
    h: str = "0"
    i: str = ""
    topic: str = ""
    queueId: str = ""  # noqa: N815 - as on the wire


class Request(msgspec.Struct):
    """A header."""

    code: int
    opaque: int
    extFields: Fields = msgspec.field(default_factory=Fields)  # noqa: N815 - as on the wire


class Queue:
    """A ConsumeQueue, one file.  `added` are the entries that are not written."""

    __slots__ = ("_file", "added", "count", "id", "name", "topic")

    def __init__(self, path: Path, topic: str, queue_id: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.id = int(queue_id)
        self.name = queue_id.encode()
        self.topic = bytes([len(topic)]) + topic.encode()
        self.count = 0
        self.added: list[bytes] = []

    def write(self) -> None:
        """Write the entries."""
        entries = b"".join(self.added)
        os.pwrite(self._file, entries, self.count * _ENTRY.size - len(entries))
        self.added.clear()


class Log:
    """The log in segments, of which the newest are kept, and the queues by topic and id."""

    def __init__(self, directory: Path, *, is_sync: bool) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._is_sync = is_sync
        self._number = 0
        self._file = self._new_segment()
        self.end = 0
        self.queues: dict[tuple[str, str], Queue] = {}
        self.tags: dict[str, int] = {}

    def _new_segment(self) -> int:
        (self._directory / f"segment-{self._number - _KEPT_SEGMENTS}").unlink(missing_ok=True)
        file = os.open(self._directory / f"segment-{self._number}", os.O_RDWR | os.O_CREAT, 0o644)
        os.posix_fallocate(file, 0, _SEGMENT_BYTES)
        return file

    def queue(self, topic: str, queue_id: str) -> Queue:
        """Return a new queue."""
        path = self._directory / f"queue-{len(self.queues)}"
        queue = self.queues[topic, queue_id] = Queue(path, topic, queue_id)
        return queue

    def tags_code(self, properties: str) -> int:
        """Return the hash of the tag, as `String.hashCode` has it."""
        at = properties.find("TAGS\x01")
        if at < 0:
            return 0
        tag = properties[at + 5 : properties.find("\x02", at)]
        code = self.tags.get(tag)
        if code is None:
            code = 0
            for character in tag:
                code = (31 * code + ord(character)) & 0xFFFFFFFF
            self.tags[tag] = code = (code ^ 1 << 31) - (1 << 31)
        return code

    def write(self, records: bytes) -> None:
        """Write the records of a read, for which there is room, and the entries of its queues."""
        os.pwrite(self._file, records, self.end % _SEGMENT_BYTES)
        for queue in self.queues.values():
            if queue.added:
                queue.write()
        self.end += len(records)
        if self._is_sync:
            os.fdatasync(self._file)

    def make_room(self, size_bytes: int) -> None:
        """Go on with a new segment if this one has no room for `size_bytes`."""
        if self.end % _SEGMENT_BYTES + size_bytes > _SEGMENT_BYTES:
            os.close(self._file)
            self._number += 1
            self._file = self._new_segment()
            self.end = self._number * _SEGMENT_BYTES


class Connection(Protocol):
    """One connection."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._rest = b""
        self._decode = msgspec.json.Decoder(Request).decode

    def connection_made(self, transport: BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(Transport, transport)  # uvloop registers no Transport

    def data_received(self, data: bytes) -> None:
        """Serve the whole frames of a read."""
        log = self._log
        if self._rest:
            data = self._rest + data
        log.make_room(3 * len(data))  # the topic and the fixed fields are shorter than a header
        at, size, log_end = 0, len(data), log.end
        now_ms = time.time_ns() // 1_000_000
        records, responses = list[bytes](), list[bytes]()
        while at + 8 <= size:
            frame_bytes, header_bytes = _PREFIX.unpack_from(data, at)
            end = at + 4 + frame_bytes
            if end > size:
                break
            body_at = at + 8 + header_bytes
            request = self._decode(data[at + 8 : body_at])
            fields = request.extFields
            if request.code != wire.SEND_MESSAGE_V2:
                queue = log.queues.get((fields.topic, fields.queueId))
                response = _OTHER_RESPONSE % (queue.count if queue else 0, request.opaque)
            else:
                queue = log.queues.get((fields.b, fields.e)) or log.queue(fields.b, fields.e)
                body, properties = data[body_at:end], fields.i.encode()
                record_bytes = FIXED_IPV4.size + len(body) + len(queue.topic) + 2 + len(properties)
                records += (
                    FIXED_IPV4.pack(
                        record_bytes, MAGIC_V1, crc32(body) & CRC_MASK, queue.id, int(fields.h), queue.count, log_end,
                        0, int(fields.g), _LOOPBACK, _PORT, now_ms, _LOOPBACK, _PORT, 0, 0, len(body),
                    ),
                    body, queue.topic, _SHORT.pack(len(properties)), properties,
                )  # fmt: skip
                queue.added.append(_ENTRY.pack(log_end, record_bytes, log.tags_code(fields.i)))
                response = _RESPONSE % (queue.count, queue.name, log_end, request.opaque)
                queue.count += 1
                log_end += record_bytes
            responses += (_PREFIX.pack(4 + len(response), len(response)), response)
            at = end
        self._rest = data[at:]
        if records:
            log.write(b"".join(records))
        if responses:
            self._transport.write(b"".join(responses))


async def main(port: int, directory: Path, flush: str) -> None:
    """Serve until the process ends."""
    log = Log(directory, is_sync=flush == "SYNC_FLUSH")
    server = await asyncio.get_running_loop().create_server(lambda: Connection(log), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
