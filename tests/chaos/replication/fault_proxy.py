"""A link between two servers that can be slow, stand still, be cut, or be half open.

A proxy in a thread of its own: it connects each client to its target.  TCP hides the loss of packets;
what programs see of a bad link is bytes that come late, bytes that do not come, and connections that end or do not.

| here | in the world |
|---|---|
| `delay` | a long way |
| `lose` | packets are lost on it, and TCP sends them again |
| `stall`, one way | packets of one direction are lost: what is sent is acknowledged by nobody |
| `stall`, both ways | a pulled cable: no packet passes, nobody hears of an end |
| `cut` | a firewall that refuses: connections are reset, new ones refused |
| `half_open` | the target's machine lost its power: its ends are gone, nobody tells the others |
"""

import asyncio
import enum
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Final, Self, cast

# What a way holds, in one connection, of bytes that do not pass; then their sender is made to wait.
WINDOW_BYTES: Final = 1024 * 1024
_CALL_LIMIT_S: Final = 20.0
_PACKET_BYTES: Final = 1460
_SHORTEST_REPEAT_S: Final = 0.01


class Way(enum.Flag):
    """Towards the target, back, or both."""

    THERE = enum.auto()
    BACK = enum.auto()
    BOTH = THERE | BACK


class Pump:
    """One way of one connection: bytes from `source` to `sink`, in order, late or not at all."""

    def __init__(self, proxy: "FaultProxy", way: Way) -> None:
        self._proxy = proxy
        self._way = way
        # (when it is due, bytes); None is the end.
        self._held: deque[tuple[float, bytes | None]] = deque()
        self._held_bytes = 0
        self._is_sink_full = False
        self.source: asyncio.Transport | None = None
        self.sink: asyncio.Transport | None = None

    def feed(self, data: bytes | None) -> None:
        """Bytes came; None when the source has ended."""
        loop = asyncio.get_running_loop()
        delay_s = self._proxy.delay_s(self._way, len(data or b""))
        self._held.append((loop.time() + delay_s, data))
        self._held_bytes += len(data or b"")
        if self._held_bytes > self._proxy.window_bytes and self.source is not None:
            self.source.pause_reading()
        if delay_s:
            loop.call_later(delay_s, self.flush)
        else:
            self.flush()

    def sink_is_full(self, is_full: bool) -> None:
        """The sink takes no more for a while."""
        self._is_sink_full = is_full
        if not is_full:
            self.flush()

    def flush(self) -> None:
        """Pass on what is due."""
        now = asyncio.get_running_loop().time()
        while self._held and self.sink is not None and not self._is_sink_full:
            due, data = self._held[0]
            # A timer may come a little early.
            if self._proxy.is_stalled(self._way) or due > now + 0.001:
                return
            self._held.popleft()
            if data is None:
                self.sink.close()
                return
            self._held_bytes -= len(data)
            self._proxy.passed_bytes[self._way] += len(data)
            self.sink.write(data)
            if self._held_bytes <= self._proxy.window_bytes and self.source is not None:
                self.source.resume_reading()


class End(asyncio.Protocol):
    """One end of a connection: what it receives goes to `away`; `towards` writes to it."""

    def __init__(self, away: Pump, towards: Pump, on_made: Callable[[], None]) -> None:
        self._away = away
        self._towards = towards
        self._on_made = on_made
        self.transport: asyncio.Transport | None = None
        # The other end is gone, and this end must not notice it.
        self.is_orphan = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._away.source = self._towards.sink = self.transport
        self._on_made()
        self._towards.flush()

    def data_received(self, data: bytes) -> None:
        if not self.is_orphan:
            self._away.feed(data)

    def pause_writing(self) -> None:
        self._towards.sink_is_full(True)

    def resume_writing(self) -> None:
        self._towards.sink_is_full(False)

    def reset(self) -> None:
        """End the connection without the words of an end in order."""
        if self.transport is not None:
            own: socket.socket = self.transport.get_extra_info("socket")
            if own.fileno() >= 0:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._away.source = self._towards.sink = None
        if not self.is_orphan:
            self._away.feed(None)


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: "FaultProxy") -> None:
        self._proxy = proxy
        self.there, self.back = Pump(proxy, Way.THERE), Pump(proxy, Way.BACK)
        self.near = End(self.there, self.back, self._accepted)
        self.far = End(self.back, self.there, lambda: None)

    def _accepted(self) -> None:
        self._proxy.accepted(self)

    async def connect(self, host: str, port: int) -> None:
        """Connect to the target; a target that refuses is a connection that ends."""
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.far, host, port)
        except OSError:
            self.abort()

    def lose_target(self) -> None:
        """The target's end is reset; the other one stays open and hears nothing."""
        self.near.is_orphan = self.far.is_orphan = True
        self.far.reset()

    def abort(self) -> None:
        """Reset both ends."""
        for end in (self.near, self.far):
            end.is_orphan = True
            end.reset()


class FaultProxy:
    """Listens at `host`:`port` for connections to `target`; a context manager.  Faults are set from any thread."""

    def __init__(
        self, target: tuple[str, int], *, host: str = "127.0.0.1", port: int = 0, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self._target = target
        self.window_bytes = window_bytes
        self._host = host
        self.port = port
        self._delays_s = {Way.THERE: 0.0, Way.BACK: 0.0}
        self._stalled = Way(0)
        self._lost_share = 0.0
        self._dice = random.Random(0)
        self._has_lost_target = False
        self._server: asyncio.Server | None = None
        self._links: list[Link] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self.connections = 0
        self.passed_bytes = {Way.THERE: 0, Way.BACK: 0}

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_LIMIT_S)
        self._loop.close()

    # Faults

    def delay(self, seconds: float, way: Way = Way.BOTH) -> None:
        """What is sent from now on comes so much later."""

        async def change() -> None:
            self._delays_s |= {one: seconds for one in (Way.THERE, Way.BACK) if one in way}

        self._call(change)

    def lose(self, share: float, seed: int = 0) -> None:
        """This share of the packets is lost.  What came with a lost one, and after it, waits one more round trip."""

        async def change() -> None:
            self._lost_share, self._dice = share, random.Random(seed)

        self._call(change)

    def stall(self, way: Way = Way.BOTH) -> None:
        """Nothing passes that way, until `heal`; then all of it does.  New connections are accepted."""

        async def change() -> None:
            self._stalled |= way

        self._call(change)

    def cut(self) -> None:
        """Reset all connections, and refuse new ones."""
        self._call(self._close)

    def half_open(self) -> None:
        """The target's ends are reset; the other ends hear nothing, and what they send is lost, until `heal`."""

        async def change() -> None:
            self._has_lost_target = True
            for link in self._links:
                link.lose_target()

        self._call(change)

    def heal(self) -> None:
        """No faults.  What was held passes; ends whose other end is gone are reset."""

        async def change() -> None:
            self._delays_s, self._stalled, self._has_lost_target = {Way.THERE: 0.0, Way.BACK: 0.0}, Way(0), False
            self._lost_share = 0.0
            for link in self._links:
                if link.near.is_orphan:
                    link.abort()
                link.there.flush()
                link.back.flush()
            self._links = [link for link in self._links if not link.near.is_orphan]
            if self._server is None:
                await self._listen()

        self._call(change)

    # For the links

    def delay_s(self, way: Way, size_bytes: int) -> float:
        """How much later these bytes come; with a lost packet, later by what TCP needs to send it again."""
        delay_s = self._delays_s[way]
        if self._lost_share and self._dice.random() > (1 - self._lost_share) ** -(-size_bytes // _PACKET_BYTES):
            delay_s += max(_SHORTEST_REPEAT_S, sum(self._delays_s.values()))
        return delay_s

    def is_stalled(self, way: Way) -> bool:
        return way in self._stalled

    def accepted(self, link: Link) -> None:
        """A connection came."""
        self.connections += 1
        self._links.append(link)
        if self._has_lost_target:
            link.near.is_orphan = True
            return
        task = asyncio.get_running_loop().create_task(link.connect(*self._target))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The loop's thread

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: Link(self).near, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for link in self._links:
            link.abort()
        self._links.clear()

    def _call(self, change: Callable[[], Coroutine[None, None, None]]) -> None:
        asyncio.run_coroutine_threadsafe(change(), self._loop).result(_CALL_LIMIT_S)
