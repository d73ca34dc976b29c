"""Java's hash over many texts equals that of one by one."""

import random

import numpy as np
import pytest

from sprocket.remoting.codec.java_hash import java_hash_code
from store.index.java_hashes import java_hashes

TEXTS = ["", "a", "Aa", "BB", "12345678", "123456789", "x" * 31, "y" * 32, "z" * 33, "w" * 511, "v" * 512, "u" * 700]
UNUSUAL = [text.encode() for text in ("schlüssel", "键😀", "seven__é", "e" * 31 + "ü")] + [b"\xff\xfe", b"ab\xc3"]


def hashes_of(texts: list[bytes], prefix: str = "") -> list[int]:
    """Hash texts that lie one after the other in one block of memory."""
    data = b"".join(texts) + bytes(8)
    lengths = np.array([len(text) for text in texts], np.int64)
    prefixes = np.full(len(texts), java_hash_code(prefix) & 0xFFFFFFFF, np.uint32)
    hashes: list[int] = java_hashes(memoryview(data), np.cumsum(lengths), lengths, prefixes).view(np.int32).tolist()
    return hashes


@pytest.mark.parametrize("prefix", ["", "Orders#", "键#"])
def test_every_length_and_alphabet(prefix: str) -> None:
    texts = [text.encode() for text in TEXTS] + UNUSUAL
    expected = [java_hash_code(prefix + text.decode("utf-8", "replace")) for text in texts]
    for turned in (texts, texts[::-1]):
        assert hashes_of(turned, prefix) == (expected if turned is texts else expected[::-1])


def test_random_texts_among_their_neighbours() -> None:
    chance = random.Random(7)
    texts = [bytes(chance.choices(range(1, 128), k=chance.randrange(130))) for _ in range(2000)]
    assert hashes_of(texts) == [java_hash_code(text.decode()) for text in texts]


def test_texts_of_one_length_take_no_mask() -> None:
    texts = [b"AC11000100002A139A0C%012X" % number for number in range(300)]
    assert hashes_of(texts) == [java_hash_code(text.decode()) for text in texts]


def test_nothing() -> None:
    assert hashes_of([]) == []
