"""Quoting of keys that fastjson writes without quotes: numbers, and objects that contain no other object.

A few passes of compiled patterns, each linear in any text: a loop over tokens takes a second for a mebibyte.
"""

import re
from itertools import chain, islice, zip_longest
from typing import Final

import msgspec

# A missing end quote is detected later; not requiring it here keeps the search linear.
STRING: Final = re.compile(r'("(?:[^"\\]++|\\.)*+"?)', re.DOTALL)
# For a text in which one quotation mark replaces each string.
_OBJECT_KEY: Final = re.compile(r"(\{[^{}]*+\})(?=\s*+:)")
# Begin and end of a number that is a key.  Two patterns without a group: a group costs more than all the rest.
_BEGIN: Final = re.compile(r"(?<=[{,])\s*+(?=-?[0-9]++\s*+:)")
_END: Final = re.compile(r"(?<=[0-9])\s*+:")
# Max object keys of one text.  Each costs a step of its own: a table has one for each queue.
MAX_OBJECT_KEYS: Final = 50_000
_encode: Final = msgspec.json.Encoder().encode


def quoted(text: str) -> str | None:
    """Return `text` as standard JSON; None if it differs by more than such keys, or has too many of them."""
    parts = STRING.split(text)
    strings = parts[1::2]
    if strings and (len(strings[-1]) < 2 or not strings[-1].endswith('"')):
        return None
    pieces = _OBJECT_KEY.split('"'.join(parts[::2]))
    if len(pieces) > 1:
        if len(pieces) // 2 > MAX_OBJECT_KEYS:
            return None
        strings = _with_object_keys(pieces, strings)
        pieces[1::2] = ['"'] * (len(pieces) // 2)
    outside = "".join(pieces)
    if "\0" in outside or "\1" in outside:
        return None
    # Numbers get a mark that stands for no string.
    marked = _END.sub("\0:", _BEGIN.sub("\0", outside)).replace('"', "\1").replace("\0", '"')
    between = marked.split("\1")
    if len(between) != len(strings) + 1:
        return None
    return "".join(chain.from_iterable(zip_longest(between, strings, fillvalue="")))


def _with_object_keys(pieces: list[str], strings: list[str]) -> list[str]:
    """Return the strings of a text; the strings inside an object key become one.  Every second piece is a key."""
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
