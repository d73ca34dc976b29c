"""Texts that standard JSON forbids become what Java makes of them; all other JSON stays as it is."""

import json
import random

import msgspec
import pytest

from sprocket.remoting.codec.mended_json import mended


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'"\xc4\xe3"', "\ufffd\ufffd"),
        (rb'"\ud83d"', "?"),
        (rb'"\ude00\ud83d"', "??"),
        (rb'"\ud83d\ude00\ud83d"', "\U0001f600?"),
        (rb'"\\ud83d\ude00"', "\\ud83d?"),
        (rb'"\\\uD83D"', "\\?"),
        (b'"\x01\x1f"', "\x01\x1f"),
        (b'\n"\ta\0\r\n"\t', "\ta\0\r\n"),
    ],
)
def test_a_text_that_is_mended(content: bytes, text: str) -> None:
    found = mended(content)
    assert found is not None
    assert msgspec.json.decode(found) == text
    assert mended(found) is None


@pytest.mark.parametrize("content", [b"", b"{", rb'"\ud83d\ude00\n"', '{"ü": 1}\n'.encode(), rb'{"\\ud83d":1}'])
def test_what_is_left_alone(content: bytes) -> None:
    assert mended(content) is None


def test_any_escapes_in_any_order() -> None:
    dice = random.Random(1)
    pieces = ("\\", "\\\\", r"\ud83d", r"\ude00", r"\u0041", "ud83d", "d83d", "a")
    for _ in range(2000):
        content = '"' + "".join(dice.choices(pieces, k=dice.randrange(8))) + '"'
        try:
            text = json.loads(content).encode("utf-8", "replace").decode()
        except ValueError:
            continue
        assert msgspec.json.decode(mended(content.encode()) or content) == text


def test_a_large_text_is_left_alone() -> None:
    assert mended(b'"\xff' + b"a" * 300_000 + b'"') is None


def test_blanks_are_left_in_a_text_of_very_many_strings() -> None:
    content = b'["\t"' + b',""' * 20_000 + b"]"
    assert mended(content) is None
    assert mended(content.replace(b',""', b"", 10_000)) is not None
