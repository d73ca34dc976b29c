"""Buffers leave in order, and small ones in few writes."""

import random

import pytest

from sprocket.remoting.command import Buffer
from sprocket.remoting.flow.joined_buffers import WRITE_BYTES, joined, write_buffers
from tests.tiers import seeds


class Writes:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def write(self, buffer: Buffer) -> None:
        self.buffers.append(buffer)


def written(buffers: list[Buffer]) -> list[Buffer]:
    writes = Writes()
    write_buffers(writes, buffers, sum(map(len, buffers)))  # type: ignore[arg-type] # it is only written to
    return writes.buffers


def test_one_buffer_is_not_copied() -> None:
    buffer = bytearray(100)
    assert written([buffer])[0] is buffer


@pytest.mark.parametrize("count", [2, 26])
def test_small_buffers_are_one_write(count: int) -> None:
    buffers: list[Buffer] = [bytes([number]) * 10_000 for number in range(count)]
    assert written(buffers) == [b"".join(buffers)]


def test_more_small_buffers_are_several_writes() -> None:
    buffers: list[Buffer] = [bytes([number]) * 10_000 for number in range(27)]
    assert sum(map(len, buffers)) > WRITE_BYTES
    assert written(buffers) == [b"".join(buffers[:26]), buffers[26]]


def test_large_buffers_are_not_copied_beyond_64_kib() -> None:
    head, records = b"head", memoryview(bytes(70_000))
    first, second = written([head, records])
    assert first == head
    assert second is records
    assert written([head, records[:60_000]]) == [head + bytes(60_000)]


@pytest.mark.parametrize("seed", seeds(50, quick=5))
def test_any_buffers_stay_in_order(seed: int) -> None:
    chance = random.Random(seed)
    buffers: list[Buffer] = [
        chance.randbytes(chance.choice((1, 500, 16_383, 16_384, 40_000))) for _ in range(chance.randrange(1, 60))
    ]
    for writes in (written(buffers), list(joined(buffers))):
        assert b"".join(writes) == b"".join(buffers)
        assert all(len(one) <= WRITE_BYTES for one in writes)
