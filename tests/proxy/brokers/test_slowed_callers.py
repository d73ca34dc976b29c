"""How long the connections of clients over a quota wait."""

import asyncio

from proxy.brokers.caller_connections import Caller
from proxy.brokers.slowed_callers import SlowedCallers
from tests.clock import ManualClock

ALICE, BOB = Caller("alice", "10.0.0.1"), Caller("bob", "10.0.0.1")
FIRST, SECOND = ("10.0.0.1", 1), ("10.0.0.1", 2)


def test_all_refusals_of_one_caller_have_one_pace_and_none_waits_for_more_than_a_second() -> None:
    slowed = SlowedCallers(ManualClock().monotonic)
    assert [round(slowed.refused(ALICE, peer) * 1000) for peer in (FIRST, SECOND, FIRST)] == [1, 2, 3]
    assert round(slowed.refused(BOB, FIRST) * 1000) == 1
    assert max(slowed.refused(ALICE, FIRST) for _ in range(2000)) == 1.0


async def test_only_the_calls_that_were_refused_wait_and_not_for_ever() -> None:
    clock = ManualClock()
    slowed = SlowedCallers(clock.monotonic)
    for _ in range(20):
        slowed.refused(ALICE, FIRST)
    waiting = asyncio.ensure_future(slowed.wait(FIRST, "alice"))
    await slowed.wait(SECOND, "alice")
    await slowed.wait(FIRST, "bob")  # over the same connection
    assert slowed and not waiting.done()
    clock.advance(1)
    await slowed.wait(FIRST, "alice")
    assert not slowed
    await waiting


async def test_what_was_refused_long_ago_is_forgotten_though_it_never_calls_again() -> None:
    clock = ManualClock()
    slowed = SlowedCallers(clock.monotonic)
    for port in range(5000):
        slowed.refused(ALICE, ("10.0.0.1", port))
    clock.advance(2)
    await slowed.wait(SECOND, "bob")
    assert not slowed
