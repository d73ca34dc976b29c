"""Steps of a failover of a pair of clusters, and their order.

A pair is `STEADY`: one side is active.  A failover makes the other side active, and copying from the old side stops:
`FAILED_OVER`.  A failback begins when the old side is back: what it still has is copied (`RETURNING`).  It ends when
neither side lacks a message of the other, and makes the old side active again.

The state is in both clusters.  A side that was away has an older one; the higher epoch counts.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Phase(StrEnum):
    """Phase of a pair."""

    STEADY = "steady"
    FAILED_OVER = "failed-over"
    RETURNING = "returning"


class Pair(msgspec.Struct, frozen=True):
    """State of a pair.  `active` is where applications work; `home` is where they work in peace."""

    home: str
    active: str
    phase: Phase = Phase.STEADY
    epoch: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a step looks at.  `missing` counts messages that the target of a direction lacks, None: it is unknown."""

    old_is_reached: bool
    missing_forward: int | None  # from the active side to the other one
    missing_back: int | None = None  # from the other side to the active one
    source_moves: bool = False  # whether the active side got messages while it was looked at


class StepRefused(Exception):
    """A step is out of order, or its condition does not hold; the text says what to do."""


def newest(*states: Pair | None) -> Pair | None:
    """Return the state that counts; None if there is none."""
    known = [state for state in states if state is not None]
    return max(known, key=lambda state: state.epoch, default=None)


def copies_messages(pair: Pair | None, source: str) -> bool:
    """Return whether messages of `source` are copied now."""
    return pair is None or pair.phase is not Phase.FAILED_OVER or pair.active == source


def copies_offsets(pair: Pair | None, source: str) -> bool:
    """Return whether the groups' offsets of `source` are written to the other side now."""
    return pair is None or pair.phase is Phase.STEADY or pair.active == source


def fail_over(pair: Pair, to: str, facts: Facts, *, source_is_lost: bool, at_ms: int) -> Pair:
    """Return the state after a failover to `to`.  Raises StepRefused.

    Without `source_is_lost` nothing may be missing: then it is a planned move.
    """
    if pair.phase is not Phase.STEADY:
        raise StepRefused(
            f"{pair.active} is active since an earlier failover; bring {pair.home} back with `failback` first"
        )
    if to == pair.active:
        raise StepRefused(f"{to} is active already; name the other cluster with --to")
    if not source_is_lost:
        _check_complete(pair.active, facts)
    elif facts.old_is_reached:
        raise StepRefused(
            f"{pair.active} answers, so it is not lost; fail over without --source-lost, or stop its brokers first"
        )
    return Pair(pair.home, to, Phase.FAILED_OVER, pair.epoch + 1, at_ms)


def begin_return(pair: Pair, facts: Facts, *, at_ms: int) -> Pair:
    """Return the state in which the old side is brought up to date.  Raises StepRefused."""
    if pair.phase is Phase.STEADY:
        raise StepRefused(f"{pair.active} is active as in peace; there is nothing to fail back from")
    if pair.phase is Phase.RETURNING:
        raise StepRefused(f"{pair.home} is returning already; end it with `failback --finish`")
    if not facts.old_is_reached:
        raise StepRefused(f"{pair.home} does not answer; start its brokers, then try again")
    return Pair(pair.home, pair.active, Phase.RETURNING, pair.epoch + 1, at_ms)


def finish_return(pair: Pair, facts: Facts, *, at_ms: int) -> Pair:
    """Return the state after the failback: as in peace.  Raises StepRefused."""
    if pair.phase is Phase.STEADY:
        raise StepRefused(f"{pair.active} is active as in peace; there is nothing to fail back from")
    if pair.phase is Phase.FAILED_OVER:
        raise StepRefused(f"{pair.home} is not returning yet; begin with `failback`, then finish")
    if facts.missing_back is None or facts.missing_back > 0:
        count = "an unknown number of" if facts.missing_back is None else facts.missing_back
        raise StepRefused(f"{pair.active} lacks {count} messages of {pair.home}; wait until `status` shows none")
    _check_complete(pair.active, facts)
    return Pair(pair.home, pair.home, Phase.STEADY, pair.epoch + 1, at_ms)


def _check_complete(active: str, facts: Facts) -> None:
    if facts.missing_forward is None:
        raise StepRefused(f"{active} does not answer; if it is lost for good, use --source-lost")
    if facts.source_moves:
        raise StepRefused(f"{active} still gets messages; stop its producers, then try again")
    if facts.missing_forward:
        raise StepRefused(
            f"{facts.missing_forward} messages of {active} are not copied yet; wait until `status` shows none"
        )
