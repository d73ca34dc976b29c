"""Text in columns for `sprocket`, and values as RocketMQ's `mqadmin` prints them."""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime

from sprocket_cli.client_session import WrongUsage


def fitted(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return lines with columns as wide as their longest cell; columns of numbers are right-aligned."""
    table = [[str(cell) for cell in row] for row in rows]
    numeric = [bool(table) and all(_is_number(row[i]) for row in table) for i in range(len(head))]
    widths = [max(len(row[i]) for row in [list(head), *table]) for i in range(len(head))]
    lines = []
    for row in [list(head), *table]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def seconds_text(time_ms: int) -> str:
    """Return ``2026-01-31 23:59:59`` in local time (`UtilAll.YYYY_MM_DD_HH_MM_SS`)."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms // 1000))


def millis_text(time_ms: int) -> str:
    """Return ``2026-01-31 23:59:59,123`` in local time (`UtilAll.timeMillisToHumanString2`)."""
    return f"{seconds_text(time_ms)},{time_ms % 1000:03d}"


def compact_time_text(time_ms: int) -> str:
    """Return ``20260131235959123`` in local time (`UtilAll.timeMillisToHumanString`)."""
    return f"{time.strftime('%Y%m%d%H%M%S', time.localtime(time_ms // 1000))}{time_ms % 1000:03d}"


def parse_time(text: str | None) -> int | None:
    """Return the milliseconds of a number, or of ``yyyy-MM-dd#HH:mm:ss:SSS`` in local time.  Raises WrongUsage.

    Source: RocketMQ 5.3.3, `PrintMessageSubCommand.timestampFormat`.
    """
    if text is None:
        return None
    if text.strip().isdecimal():
        return int(text)
    seconds, _, millis = text.strip().rpartition(":")
    try:
        return int(datetime.strptime(seconds, "%Y-%m-%d#%H:%M:%S").timestamp()) * 1000 + int(millis)
    except (ValueError, OverflowError):
        raise WrongUsage(f"time {text!r}: allowed are milliseconds and yyyy-MM-dd#HH:mm:ss:SSS") from None


def perm_text(perm: int) -> str:
    """Return ``RW-`` (`PermName.perm2String`)."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-") + ("X" if perm & 1 else "-")
