"""Owner of clients: what a client tells the connection that made it."""

from typing import Protocol

from sprocket.client.errors import ClientClosed


class Closable(Protocol):
    """Part of a connection."""

    async def close(self) -> None: ...


class Owner(Protocol):
    """Connection that closes its parts when it closes."""

    def check_open(self) -> None:
        """Raise ClientClosed unless parts may open."""
        ...

    def joined(self, part: Closable, /) -> None:
        """Record that `part` is open."""
        ...

    def left(self, part: Closable, /) -> None:
        """Record that `part` has closed itself."""
        ...


async def join(owner: Owner | None, part: Closable) -> None:
    """Record at `owner`, if there is one, that `part` is open.

    Raises ClientClosed, with `part` closed, if the connection was closed meanwhile.
    """
    try:
        if owner is not None:
            owner.joined(part)
    except ClientClosed:
        await part.close()
        raise
