"""One attempt to send: a request that was written to a broker."""

import asyncio
from collections.abc import Awaitable

from sprocket.client.errors import ClientError
from sprocket.client.send.send_request import SendRequest
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.command import ReceivedResponse


class Attempt:
    """Waiter of the response to `request`; `started` is monotonic s.

    A stream of sends has hundreds of attempts and awaits only the oldest, so an attempt has no future until `ended`.
    """

    __slots__ = ("_awaited", "outcome", "queue", "request", "started")

    def __init__(self, request: SendRequest, queue: MessageQueue, started: float) -> None:
        self.request = request
        self.queue = queue
        self.started = started
        self.outcome: ReceivedResponse | ClientError | None = None  # None as long as it waits
        self._awaited: asyncio.Future[None] | None = None

    def done(self) -> bool:
        """Whether it has an outcome."""
        return self.outcome is not None

    def set_result(self, outcome: ReceivedResponse | ClientError) -> None:
        """Take the response, or the reason that there is none."""
        self.outcome = outcome
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    set_exception = set_result

    def ended(self) -> Awaitable[None]:
        """Return what to await for an outcome, while there is none; one caller awaits it at a time."""
        self._awaited = asyncio.get_running_loop().create_future()
        return self._awaited
