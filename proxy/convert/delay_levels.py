"""Delay levels for brokers without a timer (useDelayLevel); pure.

A file of its own: configuration checks the text that conversion of messages reads.
Source: RocketMQ 5.3.3, `ProxyConfig.parseDelayLevel`, `computeDelayLevel`.
"""

from functools import lru_cache
from typing import Final

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@lru_cache(maxsize=4)
def delays_ms(levels: str) -> tuple[int, ...]:
    """Return the delays of ``1s 5s 10s ...``; level 1 is the first.  Raises ValueError."""
    return tuple(
        int(word[:-1]) * _UNITS_MS[word[-1:]] if word[-1:] in _UNITS_MS else int("") for word in levels.split()
    )


def delay_level(levels: str, delay_ms: int) -> int:
    """Return the first level that is longer than `delay_ms`, else the last."""
    delays = delays_ms(levels)
    longer = [(level_ms, number) for number, level_ms in enumerate(delays, 1) if level_ms > delay_ms]
    return min(longer)[1] if longer else len(delays)
