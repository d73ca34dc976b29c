"""Puts quotes around the keys that fastjson writes without: numbers, and objects in which there is no other object.

In a few passes of compiled patterns, each linear in the text whatever is in it: a program of one step for each token
takes a second for a mebibyte.
"""

import re
from itertools import chain, islice, zip_longest
from typing import Final

import msgspec

# An end that is missing is found out later; not to ask for it here keeps the search linear.
_STRING: Final = re.compile(r'("(?:[^"\\]++|\\.)*+"?)', re.DOTALL)
# Of a text whose strings are one quotation mark each.
_OBJECT_KEY: Final = re.compile(r"(\{[^{}]*+\})(?=\s*+:)")
# Where a number begins and ends that is a key; two patterns without a group, for a group costs more than all the rest.
_BEGIN: Final = re.compile(r"(?<=[{,])\s*+(?=-?[0-9]++\s*+:)")
_END: Final = re.compile(r"(?<=[0-9])\s*+:")
# Of objects that are keys in one text, each of which takes steps of its own: a table has one for each queue.
MOST_OBJECT_KEYS: Final = 50_000
_encode: Final = msgspec.json.Encoder().encode


def quoted(text: str) -> str | None:
    """`text` as standard JSON if it differs from it by such keys alone; None when it cannot be told or is too much."""
    parts = _STRING.split(text)
    strings = parts[1::2]
    if strings and (len(strings[-1]) < 2 or not strings[-1].endswith('"')):
        return None
    pieces = _OBJECT_KEY.split('"'.join(parts[::2]))
    if len(pieces) > 1:
        if len(pieces) // 2 > MOST_OBJECT_KEYS:
            return None
        strings = _with_object_keys(pieces, strings)
        pieces[1::2] = ['"'] * (len(pieces) // 2)
    # A number gets marks of its own, which stand for no string.
    between = _END.sub("\0:", _BEGIN.sub("\0", "".join(pieces))).split('"')
    if len(between) != len(strings) + 1 or "\0" in text:
        return None
    whole = "".join(chain.from_iterable(zip_longest(between, strings, fillvalue="")))
    return whole.replace("\0", '"')


def _with_object_keys(pieces: list[str], strings: list[str]) -> list[str]:
    """The strings of a text, those of each object that is a key put together: every second one of `pieces` is such."""
    left = iter(strings)
    merged: list[str] = []
    for index, piece in enumerate(pieces):
        inside = list(islice(left, piece.count('"')))
        if index % 2:
            parts = zip_longest(piece.split('"'), inside, fillvalue="")
            merged.append(_encode("".join(chain.from_iterable(parts))).decode())
        else:
            merged += inside
    return merged
