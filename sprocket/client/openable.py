"""What opens and closes with `async with`."""

from typing import Self


class Openable:
    """Async context manager that calls `start`, and `close` at its end."""

    async def start(self) -> None:
        """Open it."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close it."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
