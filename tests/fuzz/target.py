"""What a fuzzer feeds: a decoder, what it may raise, and whole inputs to begin from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True)
class Target:
    """`run` takes any bytes; it raises AssertionError or an undeclared error where it finds a mistake.

    `bytes_per_byte` is how much memory a decoder may take for each byte that it is given, beyond 512 KiB.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Sequence[bytes]
    bytes_per_byte: int = 64


def pieces_of(data: bytes) -> list[bytes]:
    """`data` in pieces whose sizes depend on it alone."""
    pieces: list[bytes] = []
    at, state = 0, blake2b(data, digest_size=32).digest()
    while at < len(data):
        size = 1 + state[len(pieces) % len(state)] % 37
        pieces.append(data[at : at + size])
        at += size
    return pieces
