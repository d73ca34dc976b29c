"""Credentials whose token an async function of the application fetches, again before it ends.

A server ends a connection with the last token that it has seen there.  So each open connection presents a new token as
soon as there is one, and requests that wait on it go on.
"""

import asyncio
import base64
import binascii
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from weakref import WeakSet

from sprocket.common.clock import SystemClock
from sprocket.common.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.credentials import TokenCredentials

logger = logging.getLogger(__name__)

# A token is fetched again when this part of its life is over, or after this time if it does not say when it ends.
_RENEWAL_PART: Final = 0.75
_UNKNOWN_LIFE_S: Final = 300.0
_MIN_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 30.0
# A fetch that hangs holds those who wait for a token, and the renewal.
_FETCH_LIMIT_S: Final = 10.0

Fetch = Callable[[], Awaitable[str]]


def _wall_s() -> float:
    return SystemClock().wall_ms() / 1000


class Presenter(Protocol):
    """A client whose connections present a token."""

    @property
    def is_open(self) -> bool: ...

    def present_again(self) -> None:
        """Present the new token on each open connection."""


class TokenUnavailable(ClientError):
    """The application's function returned no token; nothing was sent."""


class RenewedToken(TokenCredentials):
    """A token that `fetch` returns.  Lives in one event loop; `wall_s` is the time in s since the epoch.

    While a client is open that presents it, the token is fetched again after three quarters of its life.  If that
    fails, takes more than 10 s, or returns a token that has ended, it is tried again, at most every 30 s, and the old
    token is presented meanwhile.
    """

    def __init__(self, fetch: Fetch, wall_s: Callable[[], float] = _wall_s) -> None:
        super().__init__(self._present)
        object.__setattr__(self, "_state", _State(fetch, wall_s))

    def _present(self) -> str:
        token: str = self._held.token
        if not token:
            raise TokenUnavailable("no token was fetched yet: open the client first")
        return token

    @property
    def _held(self) -> "_State":
        state: _State = self.__dict__["_state"]
        return state

    async def ready(self) -> None:
        """Wait until there is a token that has not ended.  Raises TokenUnavailable."""
        await self._held.ready()

    def join(self, client: Presenter) -> None:
        """Renew the token while `client` is open, and let it present each new one."""
        self._held.clients.add(client)


class _State:
    """The present token, and its renewal."""

    def __init__(self, fetch: Fetch, wall_s: Callable[[], float]) -> None:
        self._fetch = fetch
        self._wall_s = wall_s
        self.token = ""
        self.clients: WeakSet[Presenter] = WeakSet()
        self._ends_s = 0.0
        self._fetching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0

    async def ready(self) -> None:
        if self.token and self._wall_s() < self._ends_s:
            return
        # One fetch for all who wait.  It goes on if one of them is cancelled.
        await asyncio.shield(self._begin())

    def _begin(self) -> "asyncio.Task[None]":
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._renew())
            self._fetching.add_done_callback(self._ended)
        return self._fetching

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # those who wait have it

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_LIMIT_S):
                token = await self._fetch()
        except Exception as error:  # any error of the application's function
            raise self._failed(f"failed: {error!r}") from error
        if not isinstance(token, str) or not token:
            raise self._failed("returned no token: return the text of a JWT")
        now_s, ends_s = self._wall_s(), end_of(token)
        ends_s = now_s + _UNKNOWN_LIFE_S if ends_s is None else ends_s
        if ends_s <= now_s:
            raise self._failed("returned a token that has ended")
        self._failures = 0
        is_new, self.token, self._ends_s = token != self.token, token, ends_s
        self._later(max(_MIN_PAUSE_S, (ends_s - now_s) * _RENEWAL_PART))
        if is_new:
            for client in self.clients:
                if client.is_open:
                    client.present_again()

    def _failed(self, why: str) -> TokenUnavailable:
        pause_s = min(_MAX_PAUSE_S, 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
        peer_lines.warning(logger, "", "event=token_not_renewed retry_s=%.0f reason=%r", pause_s, why)
        self._later(pause_s)
        return TokenUnavailable(f"the function of the credentials {why}")

    def _later(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        if any(client.is_open for client in self.clients):
            self._begin()


def end_of(token: str) -> float | None:
    """Return the claim ``exp`` of a JWT, s since the epoch; None if it has none, or is no JWT.  Nothing is verified."""
    parts = token.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return None
