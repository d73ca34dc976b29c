"""Measures how long a server holds its event loop: the CPU time of the loop's thread in one callback."""

import asyncio
import gc
import json
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sprocket.remoting.command import FLAG_RESPONSE

# CPU time of `reference_workload` on the quiet machine for which the limit of 50 ms stands.
_REFERENCE_S = 0.020
# Some requests are answered to nobody, or once a message comes.
_REPLY_TIMEOUT_S = 1.0


class LoopWatch:
    """The longest callback since `reset`, in seconds of CPU time, or as `now` tells; other loops are not counted."""

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self.longest_s = 0.0
        self.name = ""

    def reset(self) -> None:
        self.longest_s, self.name = 0.0, ""

    @contextmanager
    def watching(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Time every callback of `loop`, which must be asyncio's own."""
        real = asyncio.Handle._run

        def timed(handle: Any) -> None:
            if handle._loop is not loop:
                real(handle)
                return
            began = self._now()
            try:
                real(handle)
            finally:
                took = self._now() - began
                if took > self.longest_s:
                    self.longest_s, self.name = took, repr(handle)

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            asyncio.Handle._run = real  # type: ignore[method-assign]


def reference_workload() -> float:
    """CPU seconds of a fixed workload of the same kind as serving: JSON, dictionaries, texts, a pattern."""
    content = json.dumps([{"topic": f"T{index}", "queueId": index} for index in range(4_000)])
    began = time.thread_time()
    table = {(one["topic"], one["queueId"]): str(one) for one in json.loads(content)}
    found = re.findall(r"T\d+", content)
    assert len(table) == len(found)
    return time.thread_time() - began


def slowness() -> float:
    """How many times slower this machine is at present than the one for which the limit stands; at least 1."""
    return max(1.0, sorted(reference_workload() for _ in range(5))[2] / _REFERENCE_S)


class Peer:
    """A hostile client: a plain blocking socket, used in a thread of its own, so that its work is not the server's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, code: int, fields: dict[str, str], make: Callable[[], bytes]) -> tuple[int, str]:
        """Code and remark of the answer; (-1, reason) when the server closed the connection or said nothing."""
        body = make()
        header = json.dumps({"code": code, "flag": 0, "opaque": 1, "version": 493, "language": "JAVA",
                             "extFields": fields}).encode()  # fmt: skip
        try:
            if self._socket is None:
                self._socket = socket.create_connection(("127.0.0.1", self._port), _REPLY_TIMEOUT_S)
            self._socket.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
            answer = self._answer()
            while not answer["flag"] & FLAG_RESPONSE:  # the server asks in turn
                answer = self._answer()
        except (OSError, EOFError) as error:
            self.close()
            return -1, repr(error)
        return answer["code"], answer.get("remark") or ""

    def _answer(self) -> dict[str, Any]:
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        (header_size,) = struct.unpack_from(">i", frame)
        answer: dict[str, Any] = json.loads(frame[4 : 4 + (header_size & 0xFFFFFF)])
        return answer

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        pieces: list[bytes] = []
        while size:
            piece = self._socket.recv(min(size, 1 << 20))
            if not piece:
                raise EOFError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


Ask = Callable[[int, dict[str, str], Callable[[], bytes]], Awaitable[tuple[float, int, str]]]


@asynccontextmanager
async def watched(port: int) -> AsyncIterator[Ask]:
    """A function that sends a request and returns how long it held this loop, s, with the answer's code and remark.

    The body is made in the thread of the client: what that costs is not the server's.
    """
    loop = asyncio.get_running_loop()
    watch, peer = LoopWatch(), Peer(port)
    gc.collect()
    gc.freeze()  # what the other tests of this process left is not the server's
    with ThreadPoolExecutor(1) as thread, watch.watching(loop):

        async def ask(code: int, fields: dict[str, str], make: Callable[[], bytes]) -> tuple[float, int, str]:
            await asyncio.sleep(0)  # so that the callback that calls this is not counted
            watch.reset()
            answer = await loop.run_in_executor(thread, peer.ask, code, fields, make)
            for _ in range(3):  # what the request leaves to the next turns is its own, too
                await asyncio.sleep(0)
            return watch.longest_s, *answer

        try:
            yield ask
        finally:
            peer.close()
            gc.unfreeze()
