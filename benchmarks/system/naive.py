"""The naive control: what one writes first with asyncio.  One task and one dict per request, one write per answer.

It speaks enough of the protocol for the load generator, stores real records in a file, and takes no short cuts
that the batch design is about.  `python -m benchmarks.system.naive PORT DIRECTORY ASYNC_FLUSH|SYNC_FLUSH`
"""

import asyncio
import mmap
import os
import struct
import sys
from asyncio import BaseTransport, Protocol, Transport
from pathlib import Path
from typing import Any, cast

import orjson
import uvloop

from benchmarks.system.records import message_record
from tests.compat import wire

_PREFIX = struct.Struct(">iI")
_BINARY = struct.Struct(">hBhii")  # code, language, version, opaque, flag
_SEGMENT_BYTES = 1 << 30
_FLUSH_INTERVAL_S = 0.5
Header = dict[str, Any]


class Store:
    """A segment file, mapped, and per queue a list of (position, size)."""

    def __init__(self, directory: Path, *, sync: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / "segment").open("w+b")
        os.posix_fallocate(self._file.fileno(), 0, _SEGMENT_BYTES)
        self._map = mmap.mmap(self._file.fileno(), _SEGMENT_BYTES)
        self._end = 0
        self._sync = sync
        self.queues: dict[tuple[str, int], list[tuple[int, int]]] = {}

    async def append(self, topic: str, queue_id: int, body: bytes, properties: str) -> tuple[int, int]:
        """Returns queue offset and position."""
        queue = self.queues.setdefault((topic, queue_id), [])
        offset, at = len(queue), self._end
        record = message_record(
            body, topic=topic.encode(), queue_id=queue_id, queue_offset=offset, at=at, properties=properties.encode()
        )
        if at + len(record) > _SEGMENT_BYTES:
            at = self._end = 0  # a benchmark outlives its segment; older messages are overwritten
        self._map[at : at + len(record)] = record
        self._end += len(record)
        queue.append((at, len(record)))
        if self._sync:
            await asyncio.to_thread(self.flush)
        return offset, at

    def read(self, topic: str, queue_id: int, offset: int, count: int) -> list[bytes]:
        entries = self.queues.get((topic, queue_id), [])[offset : offset + count]
        return [self._map[at : at + size] for at, size in entries]

    def flush(self) -> None:
        os.fdatasync(self._file.fileno())


class Broker(Protocol):
    """One connection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._buffer = bytearray()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast(Transport, transport)  # uvloop registers no Transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 8:
            length = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + length:
                return
            frame = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            task = asyncio.get_running_loop().create_task(self._handle(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, frame: bytes) -> None:
        serialization, size = frame[0], int.from_bytes(frame[1:4], "big")
        header = _decode_binary(frame[4 : 4 + size]) if serialization else orjson.loads(frame[4 : 4 + size])
        code, fields, body = await self._process(header, frame[4 + size :])
        answer = {"code": code, "flag": 1, "language": "PYTHON", "opaque": header["opaque"], "extFields": fields}
        encoded = _encode_binary(answer) if serialization else orjson.dumps(answer)
        prefix = _PREFIX.pack(4 + len(encoded) + len(body), serialization << 24 | len(encoded))
        self._transport.write(prefix + encoded + body)

    async def _process(self, header: Header, body: bytes) -> tuple[int, dict[str, str], bytes]:
        fields = header.get("extFields", {})
        match header["code"]:
            case wire.SEND_MESSAGE_V2:
                queue_id = int(fields["e"])
                offset, at = await self._store.append(fields["b"], queue_id, body, fields["i"])
                answer = {"msgId": f"7F00000100002A9F{at:016X}", "queueId": str(queue_id), "queueOffset": str(offset)}
                return 0, answer, b""
            case wire.PULL_MESSAGE:
                return self._pull(fields)
            case wire.GET_MAX_OFFSET:
                queue = self._store.queues.get((fields["topic"], int(fields["queueId"])), [])
                return 0, {"offset": str(len(queue))}, b""
            case wire.UPDATE_AND_CREATE_TOPIC | wire.GET_BROKER_CLUSTER_INFO:
                return 0, {}, b""
        return 3, {}, b""

    def _pull(self, fields: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        topic, queue_id, offset = fields["topic"], int(fields["queueId"]), int(fields["queueOffset"])
        records = self._store.read(topic, queue_id, offset, int(fields["maxMsgNums"]))
        end = len(self._store.queues.get((topic, queue_id), []))
        answer = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(offset + len(records)),
            "minOffset": "0",
            "maxOffset": str(end),
        }
        return (0 if records else 19), answer, b"".join(records)


def _decode_binary(header: bytes) -> Header:
    code, _, _, opaque, flag = _BINARY.unpack_from(header)
    at = _BINARY.size + 4 + int.from_bytes(header[_BINARY.size : _BINARY.size + 4], "big") + 4
    fields = {}
    while at < len(header):
        size = int.from_bytes(header[at : at + 2], "big")
        name = header[at + 2 : at + 2 + size].decode()
        at += 2 + size
        size = int.from_bytes(header[at : at + 4], "big")
        fields[name] = header[at + 4 : at + 4 + size].decode()
        at += 4 + size
    return {"code": code, "opaque": opaque, "flag": flag, "extFields": fields}


def _encode_binary(answer: Header) -> bytes:
    fields = b""
    for name, value in answer["extFields"].items():
        fields += len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value.encode()
    fixed = _BINARY.pack(answer["code"], 12, wire.VERSION, answer["opaque"], answer["flag"])
    return fixed + bytes(4) + len(fields).to_bytes(4, "big") + fields


async def _flush_often(store: Store) -> None:
    while True:
        await asyncio.sleep(_FLUSH_INTERVAL_S)
        await asyncio.to_thread(store.flush)


async def main(port: int, directory: Path, flush: str) -> None:
    sync = flush == "SYNC_FLUSH"
    store = Store(directory, sync=sync)
    server = await asyncio.get_running_loop().create_server(lambda: Broker(store), "127.0.0.1", port)
    flushing = None if sync else asyncio.create_task(_flush_often(store))
    try:
        await server.serve_forever()
    finally:
        if flushing:
            flushing.cancel()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
