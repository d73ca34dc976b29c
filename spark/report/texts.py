"""Texts of times, sizes and durations in a report."""

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def utc(ms: int) -> str:
    """Return a time as ``2026-11-22 02:05:11``, UTC."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return f"{ms} ms since 1970"


def bytes_text(size_bytes: int) -> str:
    """Return a size as ``1.4 GiB``; below 1 KiB in bytes."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def duration_text(ms: float) -> str:
    """Return a duration in its two largest units: ``2 d 4 h``, ``3 min 20 s``, ``1.5 s``, ``12 ms``."""
    if ms < 1000:
        return f"{ms:g} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, smaller_size, smaller in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def step_text(step_s: int) -> str:
    """Return a step of a time axis as text: ``minute``, ``5 minutes``, ``2 hours``."""
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if step_s % size == 0:
            return unit if step_s == size else f"{step_s // size:,} {unit}s"
    return "second" if step_s == 1 else f"{step_s} seconds"


def one_step(step_s: int) -> str:
    """Return a step with its number: ``one minute``, ``5 minutes``."""
    text = step_text(step_s)
    return text if " " in text else f"one {text}"


def size_class(bits: int) -> str:
    """Return the range of the sizes with `bits` binary digits: ``0``, ``1``, ``2–3``, ``512–1023``, ``4–8 KiB``."""
    if bits < 2:
        return str(bits)
    low, high = 1 << (bits - 1), 1 << bits
    if high <= 1024:
        return f"{low}–{high - 1}"
    for unit, name in ((1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB")):
        if low < unit * 1024:
            return f"{low // unit}–{high // unit} {name}"
    return f"over {low // 1024**3} GiB"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 message``, ``2 messages``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {plural or noun + 's'}"
