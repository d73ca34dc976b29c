"""Requests that wait for their response, matched by opaque number."""

import asyncio
from typing import Protocol

from sprocket.common.errors import ClientError
from sprocket.remoting.codec.codec_json import decode_response
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.framing import JSON, Frames

# Deadlines are checked in steps of this, so that a request costs no timer of its own.
_SWEEP_S = 0.05


class RemotingTimeout(ClientError):
    """No response in time from `address`.  The request may or may not have been carried out."""

    def __init__(self, text: str, address: str = "") -> None:
        super().__init__(text)
        self.address = address


class ConnectionLost(ClientError):
    """The connection to `address` ended before the response.  The request may or may not have been carried out."""

    def __init__(self, text: str, address: str = "") -> None:
        super().__init__(text)
        self.address = address


def _name(code: int) -> str:
    """Return the name of a request code, for errors."""
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"


class Waiter(Protocol):
    """What waits for a response: a future, or an object that takes it in the turn of the loop that reads it.

    Its methods raise nothing else than InvalidStateError: other responses follow in the same read.
    """

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, response: ReceivedResponse, /) -> object:
        """Take the response.  One that waits no longer drops it, or raises InvalidStateError."""

    def set_exception(self, error: ClientError, /) -> object: ...


class PendingRequests:
    """Table of the requests of one connection that wait: opaque numbers and their waiters."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.peer: tuple[str, int] = ("", 0)  # address and port, for errors
        self._loop = loop
        self._opaque = 0
        self.waiting: dict[int, tuple[Waiter, float, int]] = {}  # by opaque: waiter, deadline, code
        self._timer: asyncio.TimerHandle | None = None

    def next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def register(self, waiter: Waiter, opaque: int, timeout_s: float, code: int) -> None:
        """Let `waiter` have the response to the request `opaque` of this `code`."""
        self.waiting[opaque] = (waiter, self._loop.time() + timeout_s, code)
        if self._timer is None:
            self._timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def resolve(self, response: ReceivedResponse) -> None:
        """Hand `response` to its waiter; one that came too late is dropped."""
        entry = self.waiting.pop(response.opaque, None)
        if entry is not None:
            try:  # noqa: SIM105 - a context manager for every response costs more
                entry[0].set_result(response)
            except asyncio.InvalidStateError:
                pass  # its caller was cancelled

    def resolve_first(self, frames: Frames) -> int:
        """Resolve the usual responses with which `frames` begin, and return their number."""
        for index, (serialization, header, body) in enumerate(frames):
            response = decode_response(header) if serialization == JSON else None
            if response is None:
                return index
            response.body = body
            self.resolve(response)
        return len(frames)

    def fail_all(self, reason: str) -> None:
        """Fail every waiting request with ConnectionLost: the connection is gone."""
        waiting, self.waiting = self.waiting, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiter, _, code in waiting.values():
            if not waiter.done():
                waiter.set_exception(ConnectionLost(f"{reason} before it answered {_name(code)}", self._address))

    @property
    def _address(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]}"

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        for opaque, (waiter, deadline, code) in list(self.waiting.items()):
            if waiter.done():
                del self.waiting[opaque]
            elif deadline <= now:
                del self.waiting[opaque]
                error = RemotingTimeout(f"no response in time from {self._address} to {_name(code)}", self._address)
                waiter.set_exception(error)
        if self.waiting:
            self._timer = self._loop.call_later(_SWEEP_S, self._sweep)
