"""Translation of offsets."""

from replicate.protocol.offset_map import MAX_RUNS, OffsetMap, Run


def test_neighbours_that_stay_neighbours_are_one_exact_run() -> None:
    offsets = OffsetMap(target_end=10)
    for number in range(1000):
        offsets.add(5 + number, 10 + number)
    assert offsets.runs == (Run(5, 10, 1000, True),)
    assert [offsets.translate(offset) for offset in (5, 6, 1004, 1005, 2000)] == [10, 11, 1009, 1010, 1010]


def test_an_unknown_stretch_is_translated_to_its_begin() -> None:
    offsets = OffsetMap((Run(0, 0, 10, True),), 10)
    offsets.cover(10, 20, 25)
    offsets.add(20, 25)
    assert [offsets.translate(offset) for offset in (9, 10, 15, 19, 20, 21)] == [9, 10, 10, 10, 25, 26]


def test_echoes_bound_the_translation_too() -> None:
    # The source's queue: y (which the target calls 0), x (its own, copied to 1); the target's: y, x.
    offsets = OffsetMap()
    offsets.add(0, 7, is_echo=True)
    offsets.add(1, 3)
    assert [offsets.translate(offset) for offset in (0, 1, 2)] == [3, 3, 8]


def test_a_map_stays_bounded_and_its_end_exact() -> None:
    offsets = OffsetMap(max_runs=16)
    for number in range(1000):
        offsets.add(number, 2 * number)
    assert len(offsets.runs) <= 16
    assert offsets.translate(999) == 1998
    for offset in range(1000):
        assert offsets.translate(offset) <= 2 * offset


def test_a_group_repeats_at_most_half_of_what_it_is_behind() -> None:
    offsets, count = OffsetMap(), 30_000
    for number in range(count):
        offsets.add(number, 2 * number)
    assert len(offsets.runs) <= MAX_RUNS
    for offset in range(count):
        repeated = offset - (offsets.translate(offset) + 1) // 2
        assert 0 <= 2 * repeated <= count - offset


def test_a_group_that_has_read_all_that_came_back_repeats_nothing() -> None:
    offsets = OffsetMap(echo_end=0)
    for number in range(10):
        offsets.add(number, number, is_echo=True)
    assert offsets.translate(10) == 10


def test_what_the_target_lost_is_forgotten() -> None:
    offsets = OffsetMap((Run(0, 100, 50, True),), 150)
    offsets.cut(20, 120)
    assert offsets.runs == (Run(0, 100, 20, True),)
    assert offsets.translate(30) == offsets.target_end == 120
