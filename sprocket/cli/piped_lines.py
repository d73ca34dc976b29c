"""Lines of a pipe, read without keeping the event loop."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Final

_READ_BYTES: Final = 64 * 1024


async def lines(descriptor: int) -> AsyncIterator[bytes]:
    """The lines of a pipe or file as they come; while one is awaited, those before it are sent."""
    begun: list[bytes] = []  # of the line that has not ended yet
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
        # A file, which never lets anybody wait.
        return os.read(descriptor, _READ_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _READ_BYTES)
