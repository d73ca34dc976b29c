"""Keys in the memory of one process."""

from collections import OrderedDict

from sprocket.client import arguments
from sprocket.client.deduplication.claims import DEFAULT_LEASE_S, Claim
from sprocket.common.clock import Clock, SystemClock


class KeyWindow:
    """Keys handled in the last `window_s`, at most `max_keys`, in this process only: a `ClaimStore` without a server.

    Claims need no bound: a process has one for each message that it handles.
    """

    def __init__(
        self,
        window_s: float = 3600.0,
        max_keys: int = 100_000,
        *,
        lease_s: float = DEFAULT_LEASE_S,
        clock: Clock | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        self._window_s = arguments.timeout("window_s", window_s)
        self._max_keys = arguments.whole("max_keys", max_keys, 1)
        self.lease_s = arguments.timeout("lease_s", lease_s)
        self._clock = clock or SystemClock()
        # Each with its time and its owner, the oldest first.
        self._handled: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._claims: dict[str, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._handled)

    async def contains(self, key: str) -> bool:
        """Return whether `key` was handled within the window."""
        self._forget()
        return key in self._handled

    async def add(self, key: str) -> None:
        """Add `key`; if there are too many, the oldest is removed."""
        self._add(key, "")

    async def claim(self, key: str, owner: str) -> Claim:
        """See `ClaimStore.claim`."""
        if await self.contains(key):
            return Claim.HANDLED
        if self._is_held_against(key, owner):
            return Claim.HELD
        self._claims[key] = self._clock.monotonic() + self.lease_s, owner
        return Claim.MINE

    async def commit(self, key: str, owner: str) -> bool:
        """See `ClaimStore.commit`."""
        self._forget()
        handled_by = self._handled.get(key, (0.0, owner))[1]
        if handled_by != owner or self._is_held_against(key, owner):
            return False
        self._claims.pop(key, None)
        self._add(key, owner)
        return True

    async def release(self, key: str, owner: str) -> None:
        """See `ClaimStore.release`."""
        if self._claims.get(key, (0.0, ""))[1] == owner:
            del self._claims[key]

    def _is_held_against(self, key: str, owner: str) -> bool:
        until, holder = self._claims.get(key, (0.0, owner))
        return holder != owner and until > self._clock.monotonic()

    def _add(self, key: str, owner: str) -> None:
        self._forget()
        self._handled[key] = self._clock.monotonic(), owner
        self._handled.move_to_end(key)
        if len(self._handled) > self._max_keys:
            self._handled.popitem(last=False)

    def _forget(self) -> None:
        limit = self._clock.monotonic() - self._window_s
        while self._handled:
            key, (handled_at, _) = next(iter(self._handled.items()))
            if handled_at >= limit:
                return
            del self._handled[key]
