"""A server that answers every request with a canned success: the ceiling of the load generator.

`python -m benchmarks.system.sink PORT`
"""

import asyncio
import re
import struct
import sys
from asyncio import BaseTransport, Protocol, Transport
from typing import cast

import uvloop

from benchmarks.system.frames import PULL_BATCH
from benchmarks.system.records import message_record
from tests.compat import wire

_OPAQUE = re.compile(rb'"opaque":(\d+)')
_LENGTH = struct.Struct(">i")
_STORED = 1 << 20  # messages that every queue pretends to hold


class Sink(Protocol):
    """Per read: the frames' ends, all opaques at once, one write."""

    def __init__(self) -> None:
        self._tail = b""
        self._answers: dict[bytes, bytes] = {}

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast(Transport, transport)  # uvloop registers no Transport

    def data_received(self, part: bytes) -> None:
        data = self._tail + part if self._tail else part
        end = 0
        limit = len(data) - 4
        unpack = _LENGTH.unpack_from
        while end <= limit:
            after = end + 4 + unpack(data, end)[0]
            if after > limit + 4:
                break
            end = after
        self._tail = data[end:]
        if end and data.startswith(b'{"code":310', 8):
            answers = self._answers
            asked = _OPAQUE.findall(data, 0, end)
            try:
                self._transport.write(b"".join([answers[opaque] for opaque in asked]))
            except KeyError:
                answers.update({opaque: _send_answer(int(opaque)) for opaque in asked})
                self._transport.write(b"".join([answers[opaque] for opaque in asked]))
        elif end:
            self._answer_each(data[:end])

    def _answer_each(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            length = _LENGTH.unpack_from(data, at)[0]
            self._transport.write(_answer(data[at + 4 : at + 4 + length]))
            at += 4 + length


def _answer(frame: bytes) -> bytes:
    header_bytes = int.from_bytes(frame[:4], "big")
    header = frame[4 : 4 + (header_bytes & 0xFFFFFF)]
    if header_bytes >> 24 == wire.ROCKETMQ:
        return _binary_answer(header)
    found = _OPAQUE.search(header)
    assert found is not None
    if b'"code":11,' in header:
        offset = re.search(rb'"queueOffset":"(\d+)"', header)
        assert offset is not None
        return _response(int(found[1]), {"nextBeginOffset": str(int(offset[1]) + PULL_BATCH)}, _PULLED)
    return _response(int(found[1]), {"offset": str(_STORED)})


def _binary_answer(header: bytes) -> bytes:
    opaque = int.from_bytes(header[5:9], "big")
    answer = struct.pack(">hBhiiii", 0, 0, wire.VERSION, opaque, 1, 0, 0)
    return struct.pack(">iI", 4 + len(answer), wire.ROCKETMQ << 24 | len(answer)) + answer


def _send_answer(opaque: int) -> bytes:
    fields = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0", "queueOffset": "1234567"}
    return _response(opaque, fields)


def _response(opaque: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    return wire.response(0, opaque, fields, body)


_PULLED = message_record(b"x" * 128) * PULL_BATCH


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
