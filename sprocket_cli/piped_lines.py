"""Lines of a pipe, read without blocking the event loop."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

_READ_BYTES: Final = 64 * 1024


async def lines(descriptor: int) -> AsyncIterator[bytes]:
    """Yield the lines of a pipe or file as they arrive; other tasks run while the next line is awaited."""
    begun: list[bytes] = []  # pieces of the line that has not ended yet
    while block := await _next_block(descriptor):
        first, *more = block.split(b"\n")
        begun.append(first)
        for piece in more:
            yield b"".join(begun)
            begun = [piece]
    if any(begun):
        yield b"".join(begun)


async def _next_block(descriptor: int) -> bytes:
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A regular file: reading it never waits.
        return os.read(descriptor, _READ_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _READ_BYTES)
