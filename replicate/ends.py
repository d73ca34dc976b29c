"""Both ends of a copier, as protocols: `queue_source.py` and `queue_target.py` are those of real clusters."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from replicate.protocol.copies import Copy, SourceQueue
from replicate.protocol.position import Found
from sprocket.client.message import ReceivedMessage
from sprocket.common.errors import SprocketError


class CopyRefused(SprocketError):
    """The target refuses these messages for what they are: the same request fails again."""


class Bounds(NamedTuple):
    """First offset of a queue, and the offset after its last message."""

    begin: int
    end: int


class Placed(NamedTuple):
    """Where a request's first message lies in the target, and how many of its messages the target already had."""

    first_place: int
    duplicates: int


class SourceEnd(Protocol):
    """A queue that is read: that of the source, or the target's, where the copies are.

    Methods raise SprocketError if it cannot be reached.
    """

    async def bounds(self) -> Bounds:
        """Return its extent, from its master."""
        ...

    @property
    def end(self) -> int:
        """End of the queue, as far as the last answer says; lower before the first one."""
        ...

    def seek(self, offset: int, /) -> None:
        """Read from `offset` on; what was read before is dropped."""
        ...

    async def messages(self) -> Sequence[ReceivedMessage]:
        """Return what was read and not dropped, in order; wait a while for something."""
        ...

    def drop(self, count: int, /) -> None:
        """Forget the first messages of those read."""
        ...

    def close(self) -> None:
        """Stop reading until the next `seek`, and forget what was read."""
        ...


class TargetEnd(Protocol):
    """The queue of the target.  Methods raise SprocketError if it cannot be reached or the outcome is unknown."""

    async def session(self) -> object:
        """Return the connection to its master; another object after a reconnect."""
        ...

    async def bounds(self) -> Bounds:
        """Return its extent."""
        ...

    async def last_copy(self, queue: SourceQueue, begin: int, end: int, /) -> Found | None:
        """Return the last copy of a message of `queue` in [begin, end)."""
        ...

    async def send(self, session: object, copies: Sequence[Copy], /) -> Placed:
        """Send one request on this connection.  Raises CopyRefused, too."""
        ...
