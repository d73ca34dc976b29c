"""The checks find what they are there to find, and nothing in a history in which all went well."""

import pytest

from tests.checkers import consumption
from tests.checkers.consumption import Disturbance
from tests.checkers.history import Histories, History

GOOD = """\
SENT	k	k-0	100	110	a	0	0
SENT	k	k-1	120	130	a	0	1
UNSURE	k	k-2	140	150	broken pipe
SENT	k	k-3	160	170	a	1	0
GOT	k	k-0	200	210	a	0	0	first	0	T
GOT	k	k-3	205	215	a	1	0	first	0	T
GOT	k	k-1	210	220	a	0	1	first	0	T
"""
JOIN = Disturbance("join", 1_000, 1_100)


def history(*lines: str, without: str = "") -> History:
    """The good one, with more lines and without those that hold a text."""
    histories = Histories(["k"])
    for line in [*GOOD.splitlines(), *lines]:
        if not without or without not in line:
            histories.feed(line.replace(" ", "\t"))
    return histories["k"]


def all_problems(seen: History) -> list[str]:
    return [
        *consumption.lost(seen),
        *consumption.strangers(seen),
        *consumption.displaced(seen),
        *consumption.unexplained_doubles(seen, [JOIN], 500, 300),
        *consumption.disordered(seen),
        *consumption.disordered_shards(seen, lambda key: int(key[-1]) // 3),
        *consumption.overlaps(seen),
    ]


def test_nothing_to_find() -> None:
    assert all_problems(history()) == []
    assert all_problems(history("GOT k k-2 230 240 a 0 2 first 0 T")) == []


def test_what_is_no_line_of_the_format_is_left_alone() -> None:
    seen = history("WARNING: something", "GOT other o-1 1 2 a 0 0 first 0 T", "")
    assert all_problems(seen) == []


@pytest.mark.parametrize(
    ("added", "without", "problem"),
    [
        ("", "GOT\tk\tk-1", "k-1 was acknowledged and never given"),
        ("GOT k k-9 300 310 a 0 2 first 0 T", "", "k-9 was given and never sent"),
        ("GOT k k-1 300 310 a 1 1 first 0 T", "", "k-1, acknowledged at ('a', 0, 1), was given from"),
        ("GOT k k-2 300 310 a 0 1 first 0 T", "", "('a', 0, 1) was given as ['k-1', 'k-2']"),
        ("SENT k k-4 300 310 a 1 0", "", "('a', 1, 0) was acknowledged 2 times"),
        ("GOT k k-1 300 310 a 0 1 second 0 T", "", "k-1 x0 of ('a', 0, 1) was given at 210 and 300"),
        ("", "GOT\tk\tk-0", "a queue 0: k-1 at 1 was given before 0"),
        (
            "GOT k k-2 218 240 a 0 2 second 0 T",
            "",
            "a queue 0: second began k-2 2 us before first was through with k-1",
        ),
    ],
)
def test_planted_faults(added: str, without: str, problem: str) -> None:
    found = all_problems(history(added, without=without))
    assert any(each.startswith(problem) for each in found), found


def test_both_places_of_an_unsure_send_are_named() -> None:
    seen = history("GOT k k-2 300 310 a 0 2 first 0 T", "GOT k k-2 400 410 a 0 3 first 0 T")
    assert "k-2 was given from [('a', 0, 2), ('a', 0, 3)]" in consumption.displaced(seen)
    assert consumption.displaced(seen, is_stored_once=False) == []


def test_locks_do_not_outlive_their_broker() -> None:
    seen = history("GOT k k-2 218 240 a 0 2 second 0 T")
    assert consumption.overlaps(seen)
    assert consumption.overlaps(seen, [Disturbance("stop", 100, 150, "b")], 100)
    assert consumption.overlaps(seen, [Disturbance("stop", 100, 150, "a")], 50)
    assert consumption.overlaps(seen, [Disturbance("stop", 100, 150, "a")], 100) == []


def test_retries_are_no_doubles() -> None:
    assert consumption.doubles(history("GOT k k-1 300 310 a 0 0 first 1 %RETRY%G")) == {}


@pytest.mark.parametrize(
    ("first_us", "again_us", "is_explained"),
    [
        (900, 1_050, True),
        (600, 1_390, True),
        (400, 1_050, False),  # its offset was kept long before
        (900, 1_500, False),  # all had settled
        (900, 950, False),  # nothing had happened yet
        (1_050, 1_350, True),
    ],
)
def test_doubles_need_a_disturbance(first_us: int, again_us: int, is_explained: bool) -> None:
    seen = history(
        "UNSURE k k-5 1 2 timeout",
        f"GOT k k-5 {first_us} {first_us} a 0 2 first 0 T",
        f"GOT k k-5 {again_us} {again_us} a 0 2 second 0 T",
    )
    assert (consumption.unexplained_doubles(seen, [JOIN], 500, 300) == []) is is_explained


def test_each_broadcast_consumer_must_have_all() -> None:
    seen = history("GOT k k-0 300 310 a 0 0 second 0 T")
    found = consumption.lost(seen, consumers=["first", "second"])
    assert found == [f"k-{n} was acknowledged and never given to second" for n in (1, 3)]


def test_what_a_filter_leaves_out() -> None:
    seen = history()
    assert consumption.strangers(seen, lambda key: key != "k-3") == ["k-3 was given and should not have been"]
    assert consumption.lost(history(without="GOT\tk\tk-3"), lambda key: key != "k-3") == []


def test_shards_keep_their_order() -> None:
    seen = history("GOT k k-2 230 240 a 1 1 first 0 T", without="GOT\tk\tk-1")
    assert consumption.disordered_shards(seen, lambda key: 0) == ["k-2 was first given after k-3"]


def test_delays() -> None:
    seen = history(
        "SENT k k-6 1000000 1000500  -1 -1",
        "GOT k k-6 1990000 1990001 a 0 2 first 0 T",
        "SENT k k-7 2000000 2000500  -1 -1",
        "GOT k k-7 9000000 9000001 a 0 3 first 0 T",
    )
    delays = {"k-6": 1_000_000, "k-7": 1_000_000}
    assert consumption.early(seen, lambda key: delays.get(key, 0)) == ["k-6 came 8000 us early"]
    assert consumption.late(seen, lambda key: delays.get(key, 0), 5_000_000) == ["k-7 came 5999500 us after it was due"]
    assert seen.acknowledged[-1].place is None
