"""Buffers joined before they are written, where that is cheaper than to write each."""

from collections.abc import Iterator
from typing import Final

from sprocket.remoting.command import Buffer

# Below this, joining costs less than a list of buffers does in the kernel.
JOIN_BYTES: Final = 64 * 1024
# What is smaller is copied sooner than it is written by itself.
_COPY_BYTES: Final = 16 * 1024


def joined(buffers: list[Buffer]) -> Iterator[Buffer]:
    """The buffers in their order, small neighbours joined: a filtered pull is answered with many of a record each."""
    run: list[Buffer] = []
    size = 0
    for buffer in buffers:
        count = len(buffer)
        if run and size + count > JOIN_BYTES:
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
