"""Claims: who handles the message of a key, and which keys are handled.

A key is free, claimed or handled.  `claim` takes a free key for a lease; `commit` makes it handled for a window;
`release` frees it.  After its lease a claim is free again, and after its window a handled key is.
"""

from enum import Enum
from hashlib import blake2b
from typing import Final, Protocol, runtime_checkable

# Redelivery of a message that fails takes 4 h 46 min with the default messageDelayLevel; a redrive comes later still.
DEFAULT_WINDOW_S: Final = 86_400.0
DEFAULT_LEASE_S: Final = 60.0
_MAX_KEY_BYTES: Final = 512
_HASHED: Final = "blake2b:"


class Claim(Enum):
    """Outcome of `ClaimStore.claim`."""

    MINE = "mine"  # the caller holds the claim until the lease ends
    HELD = "held"  # another owner holds it
    HANDLED = "handled"


@runtime_checkable
class ClaimStore(Protocol):
    """Record of claimed and handled keys.  Each method is atomic; each may be repeated after an unknown outcome."""

    @property
    def lease_s(self) -> float:
        """Return how long a claim lasts, s."""

    async def claim(self, key: str, owner: str, /) -> Claim:
        """Claim `key` for `owner`.  The holder's own call renews the lease."""

    async def commit(self, key: str, owner: str, /) -> bool:
        """Record that `owner` handled `key`.

        Returns False and changes nothing if the lease ended and another owner claimed or handled the key since.
        """

    async def release(self, key: str, owner: str, /) -> None:
        """Free `key` if `owner` claimed it and has not handled it."""


def stored_key(key: str) -> str:
    """Return the text under which a store keeps `key`: the key, or its hash if it is long or no plain text.

    A producer of another language may give a message any id, so a store must refuse none.
    """
    coded = key.encode("utf-8", "surrogatepass")
    is_plain = key.isprintable() and len(coded) <= _MAX_KEY_BYTES and not key.startswith(_HASHED)
    return key if is_plain else _HASHED + blake2b(coded, digest_size=32).hexdigest()
