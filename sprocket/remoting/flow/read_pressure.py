"""Back-pressure on one connection under overload: refuse what exceeds the share to serve, and slow the sender."""

import asyncio
from functools import partial

from sprocket.remoting.flow.receive_window import ReceiveWindow
from sprocket.remoting.flow.shedding import shed
from sprocket.remoting.flow.turn import Turn
from sprocket.remoting.flow.unread_input import UnreadInput, unread_bytes
from sprocket.remoting.framing import Frames
from sprocket.remoting.routes import Overload, RouteTable


class ReadPressure:
    """Read pressure of one connection, whose `transport` is read in the turns of `turn`."""

    __slots__ = ("_turn", "_unread", "_window")

    def __init__(self, transport: asyncio.Transport | None, turn: Turn) -> None:
        socket = transport.get_extra_info("socket") if transport is not None else None
        self._turn = turn
        self._unread = UnreadInput(partial(unread_bytes, -1 if socket is None else socket.fileno()))
        self._window = ReceiveWindow(socket)

    def shed(self, frames: Frames, size_bytes: int, table: RouteTable, overload: Overload) -> tuple[Frames, bytes]:
        """Return the frames to serve of a read of `size_bytes`, and the encoded responses to the rest."""
        now = self._turn.now()
        # The read waited for other connections, and for earlier data of this connection.
        waited_s = max(self._turn.waited_s(now), self._unread.waited_s(size_bytes, now))
        kept, answers = shed(frames, table, overload, waited_s)
        if answers:
            self._window.narrow(self._unread.left_bytes, now)
        elif self._window.is_narrow:
            self._window.widen()
        return kept, answers
