"""Sprocket's own small files: any damage is found, no bytes raise."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from store.disk.disk import RealDisk
from store.disk.sealed_file import read_sealed, seal, unseal, write_sealed
from store.dispatch import deleted_topics
from store.flush import queue_list
from store.flush.queue_list import QueueList

LIST = QueueList(
    123_456_789, {("Orders", 0): 7, ("Orders", 3): 1 << 40, ("주문", 0): 1}, True, {("Orders", 3): 1 << 39}, 1 << 30
)
TOPICS = {"Orders": 5, "주문": 1 << 50}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_sealed(RealDisk(), path, b"KIND") is None
    for content in (b"", b"first", b"second and longer"):
        write_sealed(RealDisk(), path, b"KIND", content)
        assert read_sealed(RealDisk(), path, b"KIND") == content
    assert read_sealed(RealDisk(), path, b"ELSE") == "magic number is not that of this file"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_every_flipped_bit_and_every_shorter_length_is_found() -> None:
    sealed = seal(b"KIND", b"content")
    for bit in range(len(sealed) * 8):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        assert isinstance(unseal(b"KIND", bytes(damaged)), str)
    for length in range(len(sealed)):
        assert isinstance(unseal(b"KIND", sealed[:length]), str)


def test_lists_come_back_as_they_were() -> None:
    assert queue_list.decode(queue_list.encode(LIST)) == LIST
    assert queue_list.decode(queue_list.encode(QueueList(0))) == QueueList(0)
    assert deleted_topics.decode(deleted_topics.encode(TOPICS)) == TOPICS


@pytest.mark.parametrize(
    ("decode", "content"),
    [(queue_list.decode, queue_list.encode(LIST)), (deleted_topics.decode, deleted_topics.encode(TOPICS))],
)
def test_no_bytes_make_a_list_raise(decode: Callable[[bytes], object], content: bytes) -> None:
    rng = random.Random(3)
    for length in range(len(content)):
        decode(content[:length])
    for _ in range(3_000):
        damaged = bytearray(content)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        decode(bytes(damaged))
        decode(rng.randbytes(rng.randrange(60)))
