"""Server of the remoting protocol: accepts connections, serves them from one table of routes, and closes bad ones."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from sprocket.common import limits
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, InvariantError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.flow.receive_window import set_buffers
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.in_process import connect
from sprocket.remoting.routes import RouteTable
from sprocket.remoting.serving.listener_settings import ConnectionSettings
from sprocket.remoting.serving.listening import CannotListen, bound, serve
from sprocket.remoting.tls.entrance import Entrance
from sprocket.remoting.tls.watch import ServerTls

logger = logging.getLogger(__name__)

_SWEEP_S = 1.0
# Connections that the system accepts before the server does (RocketMQ's serverSocketBacklog).
_BACKLOG = 1024


class RemotingServer:
    """A server of the remoting protocol on one port.

    `on_close` callbacks get every channel that closes.  A sweep closes idle channels, peers that stop reading and peers
    that leave a frame incomplete.  With `tls` connections may be TLS.  A free port is chosen for `port` 0.
    With `reuse_port` other processes of the same user may share the port.  `clock` measures the slices of turns.
    """

    def __init__(
        self,
        table: RouteTable,
        settings: ConnectionSettings,
        *,
        port: int = 0,
        max_frame_bytes: int = limits.MAX_FRAME_BYTES,
        on_bug: Callable[[InvariantError], None] | None = None,
        tls: ServerTls | None = None,
        reuse_port: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._reuse_port = reuse_port
        self._table = table
        self._settings = settings
        self._requested_port = port
        self._max_frame_bytes = max_frame_bytes
        self._on_bug = on_bug
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._others: list[asyncio.Server] = []
        self._clock = clock
        self._turn: Turn | None = None
        self._sweep_task: asyncio.Task[None] | None = None
        self.counters = ChannelCounters()
        self._entrance = Entrance(
            tls,
            self._make_channel,
            silent_s=settings.server_channel_max_idle_time_seconds,
            count=self.counters.count_protocol_error,
        )
        self.channels: dict[int, RemotingChannel] = {}
        self.on_close: list[Callable[[RemotingChannel], None]] = []
        # Whether connections are held, and then whether they drop what arrives.
        self._is_held = self._drops = False

    @property
    def port(self) -> int:
        """The port that is listened on; the one the system chose when 0 was asked for."""
        assert self._server is not None, "the server is not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def settings(self) -> ConnectionSettings:
        """The present settings."""
        return self._settings

    def configure(self, settings: ConnectionSettings) -> None:
        """Apply the settings that may change while the server runs: how long a connection may be silent."""
        self._settings = settings

    async def bind(self) -> None:
        """Bind the port without serving it; connections are refused until `start`.

        Raises ConfigError if the address cannot be bound, or the files of TLS are wrong.
        """
        loop = asyncio.get_running_loop()
        self._turn = Turn(loop, self._clock)
        if self._tls is not None:
            self._tls.start()
        try:
            self._server = await self._bound(self._requested_port)
        except OSError as error:
            raise self._cannot_listen(error) from None

    async def start(self) -> None:
        """Listen, on the port of `bind` if that was called.  Raises ConfigError as `bind` does."""
        if self._server is None:
            await self.bind()
        assert self._server is not None
        self._is_held = False  # it may have been stopped before
        try:
            await serve(self._server)
        except OSError as error:
            raise self._cannot_listen(error) from None
        self._sweep_task = asyncio.get_running_loop().create_task(self._sweep_forever())

    def _cannot_listen(self, error: OSError) -> ConfigError:
        return CannotListen(self._settings.bind_address, self._requested_port, error, "listenPort")

    async def _bound(self, port: int) -> asyncio.Server:
        settings = self._settings
        server = await bound(
            self._entrance.visitor, settings.bind_address, port, backlog=_BACKLOG, reuse_port=self._reuse_port
        )
        try:
            # Connections inherit the options of the listening socket.
            set_buffers(server.sockets, settings.server_socket_rcv_buf_size, settings.server_socket_snd_buf_size)
        except OSError:
            server.close()
            raise
        return server

    async def listen_also(self, port: int) -> str:
        """Serve the same routes at another port of the host.  Return why it cannot be bound, or the empty text."""
        try:
            server = await self._bound(port)
            await serve(server)
        except OSError as error:
            return str(error)
        self._others.append(server)
        return ""

    def hold(self, *, drops: bool = False) -> None:
        """Serve no request until `serve`; connections stay open, and requests that arrive wait.

        With `drops` they get no answer, because the server stops.  Answers to earlier requests are still sent.
        """
        self._is_held, self._drops = True, drops
        # Also what a connection sent that is closed by now.
        self._table.settle()
        for channel in list(self.channels.values()):
            channel.hold(drops=drops)

    def serve(self, table: RouteTable) -> None:
        """Serve `table` from now on, on all connections."""
        self._table = table
        self._is_held = False
        for channel in list(self.channels.values()):
            channel.serve(self._table_for(channel.is_trusted))

    async def stop_accepting(self) -> None:
        """Accept no new connections; open connections continue."""
        for server in (self._server, *self._others):
            if server is not None:
                server.close()

    async def stop(self) -> None:
        """Stop listening and close every connection after its queued responses."""
        await self.stop_accepting()
        if self._sweep_task is not None:
            self._sweep_task.cancel()
        self._entrance.close()
        self._table.settle()
        for channel in list(self.channels.values()):
            channel.close()
        # Give closing connections time to finish; a peer that does not read cannot block the stop.
        for _ in range(50):
            if not self.channels:
                break
            await asyncio.sleep(0.01)
        for channel in list(self.channels.values()):
            channel.abort("server_stop")

    def connect(self, client: asyncio.Protocol) -> None:
        """Connect with a client in this process, whose requests pass the guard: it has asked the same access control.

        The server must be started.
        """
        connect(client, self._make_channel(is_trusted=True))

    def _table_for(self, is_trusted: bool) -> RouteTable:
        return self._table.behind(None) if is_trusted and self._table.guard is not None else self._table

    def _make_channel(self, *, is_trusted: bool = False) -> RemotingChannel:
        return RemotingChannel(
            self._table_for(is_trusted),
            self.counters,
            on_open=self._opened,
            on_close=self._closed,
            on_crowded=self._relieve,
            on_bug=self._on_bug,
            max_frame_bytes=self._max_frame_bytes,
            turn=self._turn,
            is_trusted=is_trusted,
        )

    def _opened(self, channel: RemotingChannel) -> None:
        self.channels[channel.id] = channel
        if self._is_held:
            channel.hold(drops=self._drops)

    def _closed(self, channel: RemotingChannel) -> None:
        self.channels.pop(channel.id, None)
        for callback in self.on_close:
            callback(channel)

    def _relieve(self) -> None:
        """Close the connections that stalled first, if all together hold too many bytes."""
        partial = self.counters.partial_bytes - limits.MAX_PARTIAL_BYTES
        if partial > 0:
            waiting = [channel for channel in self.channels.values() if channel.partial_bytes]
            self._abort_oldest(sorted(waiting, key=lambda channel: channel.partial_at or 0.0), partial, is_partial=True)
        if self.counters.unsent_bytes > limits.MAX_UNSENT_BYTES:
            for channel in self.channels.values():
                if channel.unsent.size_bytes:
                    channel.unsent.looked_at(channel.unsent_bytes)
        unsent = self.counters.unsent_bytes - limits.MAX_UNSENT_BYTES
        if unsent > 0:
            # Output that was written in this turn of the loop may leave at its end.
            now = asyncio.get_running_loop().time()
            slow = [channel for channel in self.channels.values() if (channel.unsent.since or now) < now]
            self._abort_oldest(sorted(slow, key=lambda channel: channel.unsent.since or 0.0), unsent, is_partial=False)

    def _abort_oldest(self, channels: list[RemotingChannel], excess_bytes: int, *, is_partial: bool) -> None:
        for channel in channels:
            if excess_bytes <= 0:
                return
            excess_bytes -= channel.partial_bytes if is_partial else channel.unsent.size_bytes
            channel.abort("too_many_partial_frames" if is_partial else "too_many_unsent_bytes")

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep(asyncio.get_running_loop().time())

    def sweep(self, now: float) -> None:
        """Close connections that were idle, stalled or in an incomplete frame for too long at loop time `now`."""
        idle_s = self._settings.server_channel_max_idle_time_seconds
        self.counters.idle_closed += self._entrance.sweep(now)
        for channel in list(self.channels.values()):
            if channel.stalled_at is not None:
                if now - channel.stalled_at > limits.WRITE_STALL_S:
                    channel.abort("peer_does_not_read")
            elif channel.partial_at is not None and now - channel.partial_at > limits.FRAME_DEADLINE_S:
                self.counters.count_protocol_error("frame_deadline")
                channel.abort("frame_not_finished")
            elif now - channel.read_at > idle_s + limits.WRITE_STALL_S:
                # It was closed, and the peer does not read the remaining output.
                channel.abort("peer_does_not_read")
            elif now - channel.read_at > idle_s:
                self.counters.idle_closed += 1
                channel.close()

    def status(self) -> dict[str, Any]:
        """Figures for the runtime information of a server."""
        return {
            "connections": len(self.channels) + len(self._entrance),
            "frames": self.counters.frames,
            "protocolErrors": dict(self.counters.protocol_errors),
        }
