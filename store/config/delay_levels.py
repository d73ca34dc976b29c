"""Delays of the delay levels, as messageDelayLevel gives them.

A module of its own: the reader of records needs it, without the store's whole configuration (Spark's processes start
faster).
"""

from typing import Final

from sprocket.common.errors import ConfigError

_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> list[int]:
    """Return the delay, ms, of each level, level 1 first.

    Raises `ConfigError`.  Source: RocketMQ 5.3.3, `DefaultMessageStore.parseDelayLevel`.
    """
    delays = []
    for word in text.split():
        number, unit = word[:-1], _UNIT_MS.get(word[-1:])
        if unit is None or not number.isascii() or not number.isdigit():
            raise ConfigError(f"messageDelayLevel: {word!r} is not a number with a unit of s, m, h or d")
        delays.append(int(number) * unit)
    return delays
