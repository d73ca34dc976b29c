"""The window of ids: what it recognises, and what it forgets."""

import random

import pytest

from broker.idempotence.id_window import FirstSend, IdWindow
from tests.tiers import seeds


def place(stored_ms: int, number: int = 0) -> FirstSend:
    return FirstSend("T", 0, number, 1000 * number, 300, f"K{number}", stored_ms, 0)


def test_the_first_message_is_found_until_its_time_is_over() -> None:
    window = IdWindow(1000, 10)
    window.add("Orders", "a", place(5000, 7))
    assert window.find("Orders", "a", 5000) == place(5000, 7)
    assert window.find("Orders", "a", 5999) == place(5000, 7)
    assert window.find("Orders", "a", 6000) is None


def test_an_id_counts_in_one_topic() -> None:
    window = IdWindow(1000, 10)
    window.add("Orders", "a", place(0))
    assert window.find("Trades", "a", 0) is None
    assert window.find("Orders", "A", 0) is None


def test_expired_ids_take_no_memory() -> None:
    window = IdWindow(1000, 10)
    for number in range(5):
        window.add("Orders", f"old {number}", place(number))
    window.add("Orders", "new", place(2000))
    assert len(window) == 1
    assert window.forgotten_early == 0


def test_too_many_ids_push_out_the_oldest_and_are_counted() -> None:
    window = IdWindow(1000, 3)
    for number in range(5):
        window.add("Orders", str(number), place(number, number))
    assert [number for number in range(5) if window.find("Orders", str(number), 10)] == [2, 3, 4]
    assert window.forgotten_early == 2


def test_an_id_that_comes_again_after_its_time_is_new() -> None:
    window = IdWindow(1000, 10)
    window.add("Orders", "a", place(0, 1))
    window.add("Orders", "b", place(500, 2))
    window.add("Orders", "a", place(1200, 3))
    assert window.find("Orders", "a", 1400) == place(1200, 3)
    window.add("Orders", "c", place(1500, 4))
    assert window.find("Orders", "a", 1500) == place(1200, 3)  # not with the entry of 0
    assert window.find("Orders", "b", 1500) is None


def test_removed_id_is_new_again() -> None:
    window = IdWindow(1000, 10)
    window.add("Orders", "a", place(0))
    window.remove("Orders", "a")
    window.remove("Orders", "never there")
    assert window.find("Orders", "a", 0) is None


def test_a_clock_that_was_set_back_forgets_nothing_early() -> None:
    window = IdWindow(1000, 10)
    window.add("Orders", "before", place(9000, 1))
    window.add("Orders", "after", place(3000, 2))
    assert window.find("Orders", "before", 3000) == place(9000, 1)
    assert window.find("Orders", "after", 3999) == place(3000, 2)
    assert window.find("Orders", "after", 4000) is None


@pytest.mark.parametrize("seed", seeds(20))
def test_against_a_model_that_keeps_everything(seed: int) -> None:
    """The newest `max_ids` ids that were added within the time, and no others."""
    rng = random.Random(seed)
    window, now = IdWindow(50, 8), 0
    added: list[tuple[str, FirstSend]] = []
    for number in range(400):
        now += rng.choice((0, 0, 1, 3, 20))
        id_ = str(rng.randrange(12))
        alive = [one for one in added if now - one[1].stored_ms < 50][-8:]
        expected = dict(alive).get(id_)
        assert window.find("T", id_, now) == expected, number
        if expected is None:
            added = [one for one in added if one[0] != id_]
            added.append((id_, place(now, number)))
            window.add("T", id_, added[-1][1])
        assert len(window) <= 8
