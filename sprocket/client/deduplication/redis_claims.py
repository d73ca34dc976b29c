"""Claims in Redis, for members on many machines."""

from typing import Any, Final

from sprocket.client import arguments
from sprocket.client.deduplication.claims import DEFAULT_LEASE_S, DEFAULT_WINDOW_S, Claim, stored_key
from sprocket.client.errors import IllegalArgument
from sprocket.common.extras import install

_TIMEOUT_S: Final = 10.0

# A value is the state, `c` (claimed) or `h` (handled), a colon, and the owner.  Redis runs a script as one step, and
# removes a key when its time is over.
_CLAIM: Final = """
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 2) == 'h:' then return 2 end
if value and value ~= 'c:' .. ARGV[1] then return 1 end
redis.call('SET', KEYS[1], 'c:' .. ARGV[1], 'PX', ARGV[2])
return 0
"""
_COMMIT: Final = """
local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 3) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 'h:' .. ARGV[1], 'PX', ARGV[2])
return 1
"""
_RELEASE: Final = """
if redis.call('GET', KEYS[1]) == 'c:' .. ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
"""
_OUTCOMES: Final = (Claim.MINE, Claim.HELD, Claim.HANDLED)


class RedisClaims:
    """`ClaimStore` in Redis, shared by all members of the group.  Needs the package redis (extra `redis`)::

        async with RedisClaims("redis://127.0.0.1:6379/0", group="billing") as claims:
            await consumer.run(Deduplicator(claims).once(handler))

    Redis keeps what it has on its disk: with `appendonly yes` and `appendfsync always` a commit survives a crash; with
    `everysec` one of the last second may be lost.  A failover to a replica may lose the last commits, and an eviction
    policy other than `noeviction` loses any.  Times are those of the server.
    """

    def __init__(
        self,
        client: Any,
        *,
        group: str,
        window_s: float = DEFAULT_WINDOW_S,
        lease_s: float = DEFAULT_LEASE_S,
    ) -> None:
        """`client` is a URL, or a client of `redis.asyncio` that the caller closes.  Raises IllegalArgument."""
        arguments.check_group(group)
        self._group = group
        self._window_ms = max(1, round(arguments.timeout("window_s", window_s) * 1000))
        self.lease_s = arguments.timeout("lease_s", lease_s)
        self._is_own = isinstance(client, str)
        self._client = _connected(client) if isinstance(client, str) else client
        if not hasattr(self._client, "register_script"):
            raise IllegalArgument(f"client is {client!r}; pass a URL or a client of redis.asyncio")
        self._claim, self._commit, self._release = map(self._client.register_script, (_CLAIM, _COMMIT, _RELEASE))

    async def claim(self, key: str, owner: str) -> Claim:
        """See `ClaimStore.claim`.  Raises redis.RedisError."""
        lease_ms = max(1, round(self.lease_s * 1000))
        return _OUTCOMES[await self._claim(keys=[self._name(key)], args=[owner, lease_ms])]

    async def commit(self, key: str, owner: str) -> bool:
        """See `ClaimStore.commit`.  Raises redis.RedisError."""
        return bool(await self._commit(keys=[self._name(key)], args=[owner, self._window_ms]))

    async def release(self, key: str, owner: str) -> None:
        """See `ClaimStore.release`.  Raises redis.RedisError."""
        await self._release(keys=[self._name(key)], args=[owner])

    async def close(self) -> None:
        """Close the connections to the URL."""
        if self._is_own:
            await self._client.aclose()

    async def __aenter__(self) -> "RedisClaims":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _name(self, key: str) -> str:
        return f"sprocket:claims:{self._group}:{stored_key(key)}"


def _connected(url: str) -> Any:
    try:
        from redis.asyncio import Redis
    except ImportError:
        raise IllegalArgument(f"the package redis is not installed; run `{install('redis')}`") from None
    try:
        return Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
    except ValueError as error:
        raise IllegalArgument(f"client is no URL of a Redis server: {error}") from None
