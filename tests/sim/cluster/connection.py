"""One TCP connection: two streams of bytes, each in order, split and delayed as chance has it; and its two ends."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from tests.sim.cluster.network import Factory, Network
from tests.sim.cluster.process import Process

if TYPE_CHECKING:
    from asyncio import BaseProtocol

# What kernels hold of a stream, both of them together, before the sender's transport holds the rest.
_KERNEL_BYTES: Final = 4096
# The project's limits are those of large machines; here a transport is full much sooner.
_MOST_HIGH_WATER: Final = 8192
_SPLIT_SHARE: Final = 0.15


class Stream:
    """One direction.  An item is (when it arrives, what happens then, the bytes that it carries)."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._items: deque[tuple[float, Callable[[], None], list[bytes]]] = deque()
        self._last = 0.0
        self.is_gone = False

    def send(self, arrived: Callable[[], None], packet: list[bytes] | None = None) -> None:
        """Behind all that was sent before.  Until it arrives, `packet` may grow."""
        if self.is_gone:
            return
        network = self._network
        self._last = max(self._last, network.scheduler.now + network.delay_s(self._source, self._target))
        self._items.append((self._last, arrived, [] if packet is None else packet))
        if len(self._items) == 1:
            network.scheduler.at(self._last, None, self._arrive)

    def lose(self) -> None:
        """Of what is on its way only the first part arrives, as chance has it; it may end anywhere."""
        rng = self._network.scheduler.rng
        keep = rng.randint(0, len(self._items))
        while len(self._items) > keep:
            self._items.pop()
        if self._items and (packet := self._items[-1][2]):
            content = b"".join(packet)
            packet[:] = [content[: rng.randint(1, len(content))]]

    def clear(self) -> None:
        """Nothing of what is on its way arrives."""
        self._items.clear()

    def go_on(self, delay_s: float) -> None:
        """The cut has ended."""
        if self._items:
            self._network.scheduler.after(delay_s, self._arrive)

    def _arrive(self) -> None:
        if self.is_gone or not self._items:
            return
        link = self._network.link(self._source, self._target)
        if link.is_cut:
            link.waiting.append(self)
            return
        _, arrived, _ = self._items.popleft()
        arrived()
        if self._items and not self.is_gone:
            self._network.scheduler.at(self._items[0][0], None, self._arrive)


class SimTransport(asyncio.Transport):
    """One end of a connection, as its process sees it."""

    def __init__(self, process: Process, stream: Stream, own: tuple[str, int], peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": own})
        self.process = process
        self.other: SimTransport | None = None
        self.protocol: BaseProtocol | None = None
        self._stream = stream
        self._rng = process.scheduler.rng
        self._is_closing = False
        self.has_ended = False
        self._high = _MOST_HIGH_WATER
        self._low = _MOST_HIGH_WATER // 4
        self._is_full = False
        self._unread_bytes = 0  # sent by this end and not taken by the other
        self._packet: list[bytes] = []
        self._packet_at = -1.0
        self._is_reading = True
        self._received: deque[bytes] = deque()

    # What the process does

    def write(self, data: Any) -> None:
        if self._is_closing or self.has_ended or not data or not self.process.is_alive:
            return
        content = bytes(data)
        self._unread_bytes += len(content)
        now = self.process.scheduler.now
        if self._packet and self._packet_at == now:
            # What is written in one moment goes out together.
            self._packet.append(content)
        else:
            self._packet, self._packet_at = [content], now
            packet, other = self._packet, self.other
            assert other is not None
            self._stream.send(lambda: other._arrived(packet), packet)
        if self.get_write_buffer_size() > self._high and not self._is_full:
            self._is_full = True
            cast(asyncio.Protocol, self.protocol).pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread_bytes - _KERNEL_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = min(_MOST_HIGH_WATER if high is None else high, _MOST_HIGH_WATER)
        self._low = min(self._high // 4 if low is None else low, self._high)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._is_closing

    def get_protocol(self) -> "BaseProtocol":
        assert self.protocol is not None
        return self.protocol

    def set_protocol(self, protocol: "BaseProtocol") -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.process.call_soon(self._read)

    def close(self) -> None:
        """What was written still arrives."""
        self._end(keeps_all=True)

    def abort(self) -> None:
        """Of what was written and has not arrived, a part is lost."""
        self._end(keeps_all=False)

    def _end(self, *, keeps_all: bool) -> None:
        if self._is_closing or self.has_ended or not self.process.is_alive:
            return
        self._is_closing = True
        self.send_end(keeps_all=keeps_all)
        self.process.call_soon(self._lost, None)

    # What happens to it

    def send_end(self, *, keeps_all: bool) -> None:
        """Tell the other end that this one is closed."""
        other = self.other
        assert other is not None
        if not keeps_all:
            self._stream.lose()
        self._stream.send(other.ended)

    def established(self, protocol: "BaseProtocol") -> None:
        self.protocol = protocol
        cast(asyncio.Protocol, protocol).connection_made(self)

    def _arrived(self, packet: list[bytes]) -> None:
        """At the machine, which may have forgotten this connection."""
        if self._is_lost_in_memory():
            return
        data = packet[0] if len(packet) == 1 else b"".join(packet)
        if not data:
            return
        packet.clear()
        rng = self._rng
        while len(data) > 1 and rng.random() < _SPLIT_SHARE:
            at = rng.randrange(1, len(data))
            self._received.append(data[:at])
            data = data[at:]
        self._received.append(data)
        self.process.call_soon(self._read)

    def _read(self) -> None:
        """In the process: everything that is there, one read after the other."""
        while self._received and self._is_reading and not self.has_ended and not self._is_closing:
            data = self._received.popleft()
            self.process.scheduler.trace.mix(f"{len(data)}>{self.process.ip}")
            protocol = self.protocol
            other = self.other
            assert other is not None
            if isinstance(protocol, asyncio.BufferedProtocol):
                _fill(protocol, data)
            else:
                cast(asyncio.Protocol, protocol).data_received(data)
            other._taken(len(data))

    def _taken(self, size_bytes: int) -> None:
        self._unread_bytes -= size_bytes
        if self._is_full and self.get_write_buffer_size() <= self._low:
            self.process.call_soon(self._drained)

    def _drained(self) -> None:
        if self._is_full and not self.has_ended and self.get_write_buffer_size() <= self._low:
            self._is_full = False
            cast(asyncio.Protocol, self.protocol).resume_writing()

    def ended(self) -> None:
        """The other end closed, or its machine says that it knows nothing of the connection."""
        if not self._is_lost_in_memory():
            self.process.call_soon(self._finish)

    def _finish(self) -> None:
        if self._received and self._is_reading and not self._is_closing:
            self._read()
        self._is_closing = True
        self._lost(None)

    def _lost(self, error: Exception | None) -> None:
        if not self.has_ended:
            self.has_ended = True
            if self.protocol is not None:
                cast(asyncio.Protocol, self.protocol).connection_lost(error)

    def _is_lost_in_memory(self) -> bool:
        """Whether the machine has no such connection any more; it says so to the other end."""
        if self.process.is_alive:
            return False
        other = self.other
        if other is not None and other.process.is_alive and self.process.ip not in self.process._network.without_power:
            self._stream.send(other.ended)
        return True


def _fill(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        buffer = memoryview(cast(Any, protocol.get_buffer(len(rest))))
        size_bytes = min(len(buffer), len(rest))
        buffer[:size_bytes] = rest[:size_bytes]
        protocol.buffer_updated(size_bytes)
        rest = rest[size_bytes:]


class Connection:
    """From the first packet to the end of both ends."""

    def __init__(
        self,
        network: Network,
        number: int,
        client: Process,
        target: tuple[str, int],
        factory: Factory,
        future: "asyncio.Future[Any]",
    ) -> None:
        self._network = network
        self._number = number
        self._target = target
        self._factory = factory
        self._future = future
        self._forward = Stream(network, client.ip, target[0])
        self._back = Stream(network, target[0], client.ip)
        self._own = (client.ip, network.next_port())
        self._near = SimTransport(client, self._forward, self._own, target)
        self._far: SimTransport | None = None
        self.addresses = client.ip, target[0]
        network.connections[number] = self
        self._forward.send(self._requested)

    def _requested(self) -> None:
        """The first packet is at the other machine."""
        network = self._network
        if self._target[0] in network.without_power:
            return
        server = network.servers.get(self._target)
        if server is None or not server.is_serving():
            self._back.send(self._refused)
            return
        far = self._far = SimTransport(server.process, self._back, self._target, self._own)
        far.other, self._near.other = self._near, far
        server.process.call_soon(self._accept, far, server.factory)
        self._back.send(self._answered)

    def _accept(self, far: SimTransport, factory: Factory) -> None:
        far.established(factory())
        far._read()

    def _refused(self) -> None:
        self._near.process.call_soon(self._fail)

    def _fail(self) -> None:
        self.forget()
        if not self._future.done():
            self._future.set_exception(ConnectionRefusedError(111, "Connection refused"))

    def _answered(self) -> None:
        self._near.process.call_soon(self._connected)

    def _connected(self) -> None:
        near = self._near
        if self._future.done():
            # Given up: its connect took too long.
            near._is_closing = near.has_ended = True
            near.send_end(keeps_all=True)
            return
        near.established(self._factory())
        self._future.set_result((near, near.protocol))

    # Ends

    def ends(self) -> list[SimTransport]:
        return [self._near] if self._far is None else [self._near, self._far]

    def forget(self) -> None:
        self._network.connections.pop(self._number, None)

    def process_ended(self, process: Process) -> None:
        """The kernel of a killed process closes its end."""
        if self._far is None:
            if self._near.process is process:
                self.forget()
            return
        for end in self.ends():
            if end.process is process and not end.has_ended and not end.is_closing():
                end.send_end(keeps_all=self._network.scheduler.rng.random() < 0.5)
        self._forget_ended()

    def power_lost(self, ip: str) -> None:
        for end in self.ends():
            if end.process.ip == ip:
                end.has_ended = True
                end._stream.clear()
        self._forget_ended()

    def reset(self) -> None:
        """End the connection on the way: both ends notice it, and bytes are lost."""
        for end in self.ends():
            if end.other is not None and not end.has_ended and end.process.is_alive:
                end._stream.lose()
                end._stream.send(end.other.ended)

    def vanish(self) -> None:
        """Something on the way has forgotten the connection: neither end hears of anything again."""
        self._forward.is_gone = self._back.is_gone = True
        self.forget()

    def _forget_ended(self) -> None:
        if all(end.has_ended or not end.process.is_alive for end in self.ends()):
            self.forget()
