"""The function that instances run in `soak`: it counts inputs by key, and never does the same twice."""

import os
import random
from dataclasses import dataclass

from sprocket.functions import Context, Retries, function


@dataclass
class Event:
    """Input number `number` of its key."""

    key: str
    number: int


@dataclass
class Counted:
    """The input, and how many of its key have had an effect before; `drawn` says which try made it."""

    key: str
    number: int
    count: int
    drawn: int


@dataclass
class Kept:
    """State of a key: its effects, and the last input."""

    count: int
    last: int


@function(input="Events", output="Counted", group="counting", state=Kept, retries=Retries(times=1, pause_s=0.01))
async def count(event: Event, ctx: Context[Kept]) -> Counted:
    """Count, or fail one time of four: an input that fails twice is a dead letter."""
    kept = ctx.state.get(event.key) or Kept(0, -1)
    ctx.state.put(event.key, Kept(kept.count + 1, event.number))
    if int.from_bytes(os.urandom(1)) < 64:
        raise ValueError(f"the try of {event.key}/{event.number} fails")
    return Counted(event.key, event.number, kept.count + 1, random.getrandbits(32))
