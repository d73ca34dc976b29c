"""Waiting for what a test checks, in the test's event loop."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    """Let the loop run until `condition` holds.  Raises TimeoutError."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)
