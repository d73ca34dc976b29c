"""Joining of small buffers before a write, where that is cheaper than one write for each."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from sprocket.remoting.command import Buffer

# Below this, joining costs less than a list of buffers does in the kernel.
JOIN_BYTES: Final = 64 * 1024
# Max size of small buffers that are joined for one write: each write costs a system call and wakes the peer.
WRITE_BYTES: Final = 256 * 1024
# To copy a smaller buffer is cheaper than to write it alone.
_COPY_BYTES: Final = 16 * 1024


def write_buffers(transport: asyncio.WriteTransport, buffers: Sequence[Buffer], size_bytes: int) -> None:
    """Write buffers of `size_bytes` in total, with one call if they are small."""
    if len(buffers) == 1:
        transport.write(buffers[0])
    elif size_bytes <= JOIN_BYTES or (size_bytes <= WRITE_BYTES and max(map(len, buffers)) < _COPY_BYTES):
        transport.write(b"".join(buffers))
    else:
        # Not `writelines`: in Python 3.12 and 3.13.0 asyncio's never pauses the protocol (CVE-2024-12254).
        for buffer in joined(buffers):
            transport.write(buffer)


def joined(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yield the buffers in order, small neighbours joined.

    The response to a filtered pull has many small buffers, one for each record.
    """
    run: list[Buffer] = []
    size = 0
    for buffer in buffers:
        count = len(buffer)
        if run and size + count > WRITE_BYTES:
            yield b"".join(run)
            run, size = [], 0
        if count < _COPY_BYTES:
            run.append(buffer)
            size += count
            continue
        if run:
            yield b"".join(run)
            run, size = [], 0
        yield buffer
    if run:
        yield b"".join(run)
