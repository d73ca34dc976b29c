"""The producer's own message id (UNIQ_KEY).

Source: RocketMQ 5.3.3, `MessageClientIDSetter`.  32 hexadecimal digits (56 with an IPv6 address): address,
process id (2 bytes), a number of the process (4), milliseconds since the month began (4), a counter (2).
"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import Any, Final, cast

from sprocket.common.clock import Clock
from sprocket.engine.choice import native

_native: Final = native("sprocket.client.send.sends_native")


def derived_id(topic: str, key: str) -> str:
    """Return the message id for an application's `key`: the same for every sender and time.

    It has the form of other ids.  The time is the begin of a month; a hash of 96 bits replaces address, process and
    counter.
    """
    digest = hashlib.sha256(f"{topic}\x00{key}".encode()).hexdigest().upper()
    return f"{digest[:20]}00000000{digest[20:24]}"


def month_bounds_ms(wall_ms: int) -> tuple[int, int]:
    """Return the start of the month of `wall_ms` and of the next month, local time, ms since the epoch."""
    now = datetime.fromtimestamp(wall_ms / 1000)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return int(start.timestamp() * 1000), int(following.timestamp() * 1000)


def unique_ids(address: bytes, process_id: int, salt: bytes, clock: Clock, engine: Any = _native) -> Callable[[], str]:
    """Return a function that makes ids; `address` has 4 or 16 bytes, `salt` 4.

    The counter wraps at 65,536: ids of one process are unique unless it makes more in one millisecond.
    `engine` has the compiled twin, None for pure Python.
    """
    prefix = (address + (process_id & 0xFFFF).to_bytes(2, "big") + salt).hex().upper()
    start_ms, next_ms = month_bounds_ms(clock.wall_ms())
    numbers = count()
    wall_ms = clock.wall_ms
    made_ms, begin = -1, ""  # time of the last id, and its text up to the counter

    def begin_of(now_ms: int) -> str:
        nonlocal start_ms, next_ms
        if now_ms >= next_ms:
            start_ms, next_ms = month_bounds_ms(now_ms)
        since_ms = now_ms - start_ms
        if -1_000_000 < since_ms < 0:  # the clock was set back slightly, across the start of a month
            since_ms = 0
        return f"{prefix}{since_ms & 0xFFFFFFFF:08X}"

    def make() -> str:
        nonlocal made_ms, begin
        now_ms = wall_ms()
        if now_ms != made_ms:
            begin = begin_of(now_ms)
            made_ms = now_ms
        return f"{begin}{next(numbers) & 0xFFFF:04X}"

    return make if engine is None else cast(Callable[[], str], engine.IdMaker(begin_of, wall_ms))
