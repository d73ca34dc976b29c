"""Conversion of texts to numbers, and comparison of numbers, exactly as in Java.

Source: Java 8, `Integer.valueOf`, `Long.valueOf`, `Double.valueOf`, `Double.compareTo`; RocketMQ 5.3.3,
`ComparisonExpression.__compare`.
"""

import math
import re
from typing import Final

from sprocket.common.errors import SprocketError

_SURELY_INT_DIGITS: Final = 9
# `Character.digit` knows the decimal digits of the Basic Multilingual Plane.
_INTEGER: Final = re.compile(r"[+-]?(?:(?![\U00010000-\U0010FFFF])\d)+")
_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)", re.ASCII
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?", re.ASCII
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))
# Max digits of a 64-bit integer without leading zeros.
_MAX_DIGITS: Final = 19


class NotComparable(SprocketError):
    """Error: a text was compared as a number but is none.  RocketMQ does not deliver such a message."""


def int_of(text: str) -> int:
    """Return `text` as a 32-bit integer.  Raises NotComparable."""
    if len(text) <= _SURELY_INT_DIGITS and text.isdigit() and text.isascii():
        return int(text)
    return _integer(text, 1 << 31)


def long_of(text: str) -> int:
    """Return `text` as a 64-bit integer.  Raises NotComparable."""
    return _integer(text, 1 << 63)


def _integer(text: str, limit: int) -> int:
    if _INTEGER.fullmatch(text):
        digits = text.lstrip("+-0")
        value = int(digits or "0") if len(digits) <= _MAX_DIGITS else _value_of_digits(digits)
        if text[0] == "-":
            value = -value
        if -limit <= value < limit:
            return value
    raise NotComparable(f"{text[:40]!r} is not an integer of this size")


def _value_of_digits(digits: str) -> int:
    """Return the value of digits, which may begin with zeros of other scripts; stop after 64 bits."""
    value = 0
    for digit in digits:
        value = value * 10 + int(digit)
        if value > 1 << 63:
            break
    return value


def double_of(text: str) -> float:
    """Return `text`, without surrounding blanks, as a double.  Raises NotComparable."""
    trimmed = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD") if trimmed[-1] in "fFdD" else trimmed)
    found = _HEXADECIMAL.fullmatch(trimmed)
    if found is None:
        raise NotComparable(f"{text[:40]!r} is no number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return -math.inf if trimmed[0] == "-" else math.inf


def boolean_of(text: str) -> bool:
    """Whether `text` is ``true`` in any case."""
    return text.lower() == "true"


def sign(left: float, right: float) -> int:
    """Compare two numbers: -1, 0 or 1.  With a double, both are doubles; NaN is the highest; -0.0 is below 0.0."""
    if isinstance(left, float) != isinstance(right, float):
        left, right = float(left), float(right)
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        left, right = math.copysign(1, left), math.copysign(1, right)
        return (left > right) - (left < right)
    return int(math.isnan(left)) - int(math.isnan(right))
