"""Table of current failures, so that the begin and end of an outage are logged, not each attempt."""

import logging
from collections.abc import Callable, Hashable
from typing import Final

from sprocket.client.errors import (
    ConnectFailed,
    ConnectionLost,
    NameServerUnreachable,
    PermissionDenied,
    RemotingTimeout,
)

logger = logging.getLogger(__name__)

# If no failure of a server was reported for this time, the next failure is a new outage.
_FORGET_S: Final = 120.0


class _Unreachable:
    """Outage of one server, and the attempts that failed because of it."""

    __slots__ = ("attempts", "failures", "last_s", "since_s")

    def __init__(self, now_s: float) -> None:
        self.since_s = self.last_s = now_s
        self.failures = 0
        self.attempts: set[Hashable] = set()


class Outages:
    """Lasting failures by attempt; times are monotonic s.

    Attempts that fail because one server cannot be reached are one outage, which is logged here.  Other failures are
    logged by the caller.  `denied` is called with a refusal of access control, and with None after the last one ends.
    """

    def __init__(
        self, monotonic: Callable[[], float], denied: Callable[[PermissionDenied | None], None] = lambda error: None
    ) -> None:
        self._monotonic = monotonic
        self._denied = denied
        self._since: dict[Hashable, tuple[float, int]] = {}
        self._unreachable: dict[str, _Unreachable] = {}
        self._refused: dict[Hashable, PermissionDenied] = {}

    @property
    def denial(self) -> PermissionDenied | None:
        """The current refusal of access control; None if there is none."""
        return next(iter(self._refused.values()), None)

    def failed(self, attempt: Hashable, error: Exception) -> bool:
        """Record that `attempt` failed.  Return whether an outage begins that the caller should log."""
        server = _server_of(error)
        if server:
            self._server_failed(server, attempt, error)
            return False
        since, count = self._since.get(attempt, (self._monotonic(), 0))
        self._since[attempt] = since, count + 1
        if isinstance(error, PermissionDenied):
            self._refused[attempt] = error
            self._denied(error)
        return not count

    def _server_failed(self, server: str, attempt: Hashable, error: Exception) -> None:
        now_s = self._monotonic()
        outage = self._unreachable.get(server)
        if outage is None or now_s - outage.last_s > _FORGET_S:
            outage = self._unreachable[server] = _Unreachable(now_s)
            logger.warning("event=server_unreachable server=%s reason=%r", server, str(error))
        outage.last_s = now_s
        outage.failures += 1
        outage.attempts.add(attempt)

    def succeeded(self, attempt: Hashable) -> tuple[float, int] | None:
        """Record that `attempt` succeeded.  Return the seconds and failures of its own outage that ended, else None."""
        if self._unreachable:
            self._server_answered(attempt)
        if not self._since:
            return None  # fast path
        began = self._since.pop(attempt, None)
        if self._refused.pop(attempt, None) is not None and not self._refused:
            self._denied(None)
        return None if began is None else (self._monotonic() - began[0], began[1])

    def _server_answered(self, attempt: Hashable) -> None:
        """End the outages of the servers that `attempt` could not reach."""
        for server in [server for server, outage in self._unreachable.items() if attempt in outage.attempts]:
            outage = self._unreachable.pop(server)
            after_s = self._monotonic() - outage.since_s
            logger.info("event=server_reachable server=%s after_s=%.1f failures=%d", server, after_s, outage.failures)

    def told(self) -> None:
        """Record that the application got the refusal; the next refusal is reported again."""
        self._refused.clear()
        self._denied(None)


def _server_of(error: Exception) -> str:
    """Return the server that could not be reached; empty for another error."""
    if isinstance(error, NameServerUnreachable):
        return error.addresses
    return error.address if isinstance(error, ConnectFailed | ConnectionLost | RemotingTimeout) else ""
