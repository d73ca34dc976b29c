"""Figures as words for people.  Pure."""

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def moment(time_ms: int) -> str:
    """Return a time in UTC, as 2026-11-23 09:10:00; a dash for none."""
    if not 0 < time_ms < 253_402_300_800_000:
        return "–"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_ms(time_ms: int) -> str:
    """Return a time in UTC with milliseconds."""
    return "–" if moment(time_ms) == "–" else f"{moment(time_ms)}.{time_ms % 1000:03d}"


def duration(elapsed_ms: float) -> str:
    """Return a span of time in its two largest units."""
    seconds = max(0, int(elapsed_ms / 1000))
    for size, name, smaller, smaller_name in (
        (86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"),
    ):  # fmt: skip
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {name} {rest} {smaller_name}" if rest else f"{seconds // size} {name}"
    return f"{seconds} s" if elapsed_ms >= 1000 else f"{max(0, round(elapsed_ms))} ms"


def size(count: float) -> str:
    """Return a number of bytes in a unit that fits."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_UNITS) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def number(value: float) -> str:
    """Return a number with thin separators: 12 345 678; a rate below 100 with one decimal."""
    text = f"{value:,.1f}" if isinstance(value, float) and abs(value) < 100 and value != int(value) else f"{value:,.0f}"
    return text.replace(",", "\u202f")


def percent(ratio: float) -> str:
    """Return a ratio as a percentage."""
    return f"{ratio * 100:.1f} %"
