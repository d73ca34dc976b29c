"""Requests with a text that is not UTF-8 in one field, between good requests on one connection."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from sprocket.remoting.framing import JSON, ROCKETMQ, Frame, FrameDecoder, frame_prefix
from sprocket.remoting.routes import Route, open_frame

# GBK, GBK whose second byte is a backslash, a cut character, a longer form than needed, an encoded surrogate.
IN_BINARY: Final = (b"\xc4\xe3\xba\xc3", b"\xd5\\", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\xbd")
# The same, and each half of a surrogate pair.
IN_JSON: Final = (*(text.replace(b"\\", b"\\\\") for text in IN_BINARY), rb"\ud83d", rb"\ude00")
TEXTS: Final = {JSON: IN_JSON, ROCKETMQ: IN_BINARY}
BAD_PER_READ: Final = 8


def json_header(code: int, opaque: int, fields: dict[str, bytes]) -> bytes:
    """A header whose values are raw JSON strings without their quotation marks."""
    items = b",".join(b'"%b":"%b"' % (name.encode(), value) for name, value in fields.items())
    return b'{"code":%d,"extFields":{%b},"flag":0,"language":"CPP","opaque":%d,"version":440}' % (
        code, items, opaque,
    )  # fmt: skip


def binary_header(code: int, opaque: int, fields: dict[str, bytes]) -> bytes:
    """A ROCKETMQ header whose values are raw bytes."""
    pieces = [
        len(name).to_bytes(2, "big") + name.encode() + len(value).to_bytes(4, "big") + value
        for name, value in fields.items()
    ]
    ext = b"".join(pieces)
    numbers = (code & 0xFFFF, 2), (1, 1), (440, 2), (opaque, 4), (0, 4), (0, 4), (len(ext), 4)
    return b"".join(number.to_bytes(size, "big") for number, size in numbers) + ext


class Request(NamedTuple):
    """A request whose values are raw."""

    serialization: int
    code: int
    fields: dict[str, bytes]
    body: bytes = b"body"

    def encoded(self, opaque: int) -> bytes:
        header = (json_header if self.serialization == JSON else binary_header)(self.code, opaque, self.fields)
        return frame_prefix(self.serialization, len(header), len(self.body)) + header + self.body


def bad_requests(routes: Iterable[Route], usual: dict[str, str]) -> Iterator[Request]:
    """Requests with one bad field each: every text in every text field of every route, in both serializations."""
    for route in routes:
        kinds = {field.encode_name: str(field.type) for field in msgspec.structs.fields(route.header)}
        fields = {name: usual.get(name, "x" if "str" in kind else "1").encode() for name, kind in kinds.items()}
        for name, kind in kinds.items():
            for serialization, texts in TEXTS.items():
                for text in texts if "str" in kind else ():
                    yield Request(serialization, int(route.code), fields | {name: b"a%bz" % text})


class Connection:
    """A connection that writes what it is told and keeps the responses by opaque."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._decoder = reader, writer, FrameDecoder()
        self.codes: dict[int, int] = {}
        self.remarks: dict[int, str | None] = {}

    @classmethod
    async def to(cls, port: int) -> "Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def close(self) -> None:
        self._writer.transport.abort()

    async def answers(self, content: bytes, opaques: Iterable[int]) -> None:
        """Write `content`, then read until all of `opaques` have a response."""
        self._writer.write(content)
        awaited = set(opaques)
        while not awaited <= self.codes.keys():
            data = await asyncio.wait_for(self._reader.read(1 << 16), 60)
            assert data, f"closed before {sorted(awaited - self.codes.keys())} were answered"
            for frame in self._decoder.feed(data):
                self._keep(frame)

    def _keep(self, frame: Frame) -> None:
        opened = open_frame(frame)
        if not isinstance(opened, tuple):
            self.codes[opened.opaque], self.remarks[opened.opaque] = opened.code, opened.remark


async def bad_between_good(port: int, bad: Iterable[Request], code: int, fields: dict[str, bytes]) -> int:
    """Send each of `bad` between two good requests with this code and these fields; return how many.

    Every good one must be answered with SUCCESS, and the connection must stay open.
    """
    bad = iter(bad)
    connection, opaques, count = await Connection.to(port), itertools.count(1), 0
    for read in iter(lambda: list(itertools.islice(bad, BAD_PER_READ)), []):
        awaited, content = [], b""
        for one in read:
            good = Request(one.serialization, code, fields)
            before, between, after = (next(opaques) for _ in range(3))
            content += good.encoded(before) + one.encoded(between) + good.encoded(after)
            awaited += [before, after]
        await connection.answers(content, awaited)
        assert {connection.codes[opaque] for opaque in awaited} == {0}, [connection.remarks[one] for one in awaited]
        count += len(read)
    connection.close()
    return count
