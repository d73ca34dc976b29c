"""How much is loaded ahead of a reader."""

from store.tier.reads.read_ahead import MAX_STREAMS, ReadAhead


def test_a_read_that_goes_on_gets_twice_as_many_blocks_each_time_up_to_the_limit() -> None:
    ahead = ReadAhead(8)
    assert [ahead.blocks_after("group", at, at + 10) for at in range(0, 70, 10)] == [0, 1, 2, 4, 8, 8, 8]


def test_a_read_elsewhere_begins_again() -> None:
    ahead = ReadAhead(8)
    ahead.blocks_after("group", 0, 10)
    ahead.blocks_after("group", 10, 20)
    assert ahead.blocks_after("group", 500, 510) == 0
    assert ahead.blocks_after("group", 510, 520) == 1


def test_readers_do_not_count_for_each_other() -> None:
    ahead = ReadAhead(8)
    ahead.blocks_after("one", 0, 10)
    assert ahead.blocks_after("other", 10, 20) == 0


def test_a_bounded_number_of_readers_is_remembered() -> None:
    ahead = ReadAhead(8)
    for number in range(MAX_STREAMS + 5):
        ahead.blocks_after(number, 0, 1)
    assert len(ahead) == MAX_STREAMS
