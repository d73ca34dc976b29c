"""Draws of pops: the kernel looks at the next one before it knows whether it serves the pop."""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.pop.pop_draws import PopDraws, is_retry_first, scan
from sprocket.remoting.message.pop_extra_info import ORDER_REVIVE_QUEUE


@pytest.fixture
def draws() -> PopDraws:
    """Draws 0, 1, 2 and so on; there are 3 revive queues."""
    numbers = iter(range(100))
    core: Any = SimpleNamespace(topics=None, store=None, random_below=lambda below: next(numbers))
    log: Any = SimpleNamespace(queue_count=3)
    offsets: Any = None
    return PopDraws(core, log, offsets)


def test_a_draw_stays_until_a_pop_uses_it(draws: PopDraws) -> None:
    assert draws.peek() == draws.peek() == (0, 0)
    assert draws.take(is_ordered=False) == (0, 0)
    assert draws.peek() == (1, 1)
    draws.advance(1)
    assert [draws.take(is_ordered=False) for _ in range(3)] == [(2, 2), (3, 0), (4, 1)]


def test_an_ordered_pop_takes_no_revive_queue(draws: PopDraws) -> None:
    assert draws.take(is_ordered=True) == (0, ORDER_REVIVE_QUEUE)
    assert draws.take(is_ordered=False) == (1, 0)


def _plan(priority_factor: int) -> Any:
    return SimpleNamespace(
        priority_factor=priority_factor, is_from_last=True, retry_chance=2, priority_retry_chance=1
    )  # fmt: skip


def test_low_draws_read_a_retry_topic_first() -> None:
    assert [is_retry_first(_plan(0), draw) for draw in (0, 1, 2, 99)] == [True, True, False, False]


def test_draws_below_the_factor_obey_priorities() -> None:
    orders = [list(scan(_plan(2), draw, 3)) for draw in (0, 1, 2, 4)]
    assert orders == [[2, 1, 0], [2, 1, 0], [2, 0, 1], [1, 2, 0]]
    assert [is_retry_first(_plan(2), draw) for draw in (0, 1, 2)] == [True, False, False]
