"""Between read and done: which checkpoints are settled when, and how far the offset may go."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.pop.records import AckMsg, PopCheckPoint
from broker.pop.revive import revive_window
from broker.pop.revive.revive_window import Held, ReviveWindow, open_indexes
from tests.tiers import examples

NOW = 1_700_000_000_000


class Reader:
    """Feeds a window; `record` numbers the records as their queue does."""

    def __init__(self, first_offset: int = 0) -> None:
        self.window = ReviveWindow("a", first_offset)
        self.now = NOW
        self.settled: list[tuple[int, int]] = []  # (pop time, queue offset)
        self.finish_at_once = True

    def elapse(self, milliseconds: int) -> None:
        self.now += milliseconds

    def checkpoint(self, *offsets: int, pop_time: int = NOW, invisible_ms: int = 0, **changes: int | str) -> None:
        checkpoint = PopCheckPoint(
            so=offsets[0], pt=pop_time, it=invisible_ms, n=len(offsets), t="T", c="G", bn="a",
            d=[offset - offsets[0] for offset in offsets], ro=self.window.next_offset,
        )  # fmt: skip
        for name, value in changes.items():
            setattr(checkpoint, name, value)
        self.window.next_offset += 1
        self.window.take_checkpoint(checkpoint, checkpoint.revive_time - 1_000, self.now, self.now / 1000)

    def ack(self, first: int, *offsets: int, pop_time: int = NOW, broker: str | None = "a") -> None:
        ack = AckMsg(offsets[0], first, "G", "T", 0, pop_time, broker)
        at = self.window.next_offset
        self.window.next_offset += 1
        self.window.take_ack(ack, offsets, at, self.now, self.now, self.now / 1000)

    def settle(self, nothing_on_its_way: bool = True) -> list[Held]:
        """Return what is settled; it is finished and noted, unless `finish_at_once` is off."""
        taken = []
        while (held := self.window.take_settled(self.now / 1000, nothing_on_its_way)) is not None:
            taken.append(held)
            if self.finish_at_once:
                self.finish(held)
        return taken

    def finish(self, held: Held) -> None:
        checkpoint = held.checkpoint
        assert checkpoint is not None
        self.settled += [(checkpoint.pt, checkpoint.offset_at(index)) for index in open_indexes(checkpoint)]
        self.window.finish(held)


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_checkpoint_is_settled_two_seconds_after_its_time(reader: Reader) -> None:
    reader.checkpoint(5, 6, invisible_ms=10_000)
    reader.elapse(11_999)
    assert reader.settle() == []
    reader.elapse(1)
    reader.settle()
    assert reader.settled == [(NOW, 5), (NOW, 6)]


def test_acknowledgement_without_a_broker_is_of_this_one(reader: Reader) -> None:
    reader.checkpoint(5, 6)
    reader.ack(5, 5, broker=None)
    reader.ack(5, 6, broker="b")
    reader.elapse(5_000)
    reader.settle()
    assert reader.settled == [(NOW, 6)]


def test_acknowledgement_of_no_message_is_none(reader: Reader) -> None:
    reader.checkpoint(5, 7)
    reader.ack(5, 6)
    reader.ack(5, 4)
    reader.elapse(5_000)
    reader.settle()
    assert reader.settled == [(NOW, 5), (NOW, 7)]


def test_without_certainty_a_later_record_must_vouch(reader: Reader) -> None:
    reader.checkpoint(1)
    reader.elapse(60_000)
    assert reader.settle(nothing_on_its_way=False) == []
    reader.window.skip(NOW + 2_000)
    assert reader.settle(nothing_on_its_way=False) == []
    reader.window.skip(NOW + 2_001)
    assert len(reader.settle(nothing_on_its_way=False)) == 1


def test_what_is_put_back_is_given_again_with_later_acknowledgements(reader: Reader) -> None:
    reader.checkpoint(1, 2)
    reader.elapse(5_000)
    reader.finish_at_once = False
    (held,) = reader.settle()
    assert reader.settle() == []
    reader.window.put_back(held)
    reader.ack(1, 1)
    reader.finish_at_once = True
    reader.settle()
    assert reader.settled == [(NOW, 2)]


def test_done_offset_stops_before_the_first_that_is_not_done(reader: Reader) -> None:
    assert reader.window.done_offset == -1
    reader.ack(9, 9)
    reader.checkpoint(1, invisible_ms=60_000)
    reader.checkpoint(2)
    reader.ack(2, 2)
    assert reader.window.done_offset == -1
    reader.elapse(10_000)
    reader.settle()
    assert reader.window.done_offset == 0
    reader.elapse(60_000)
    reader.settle()
    assert reader.window.done_offset == 3
    assert len(reader.window) == 0
    assert reader.window.next_due() is None


def test_acknowledgements_that_come_first_are_read_again_with_their_checkpoint(reader: Reader) -> None:
    reader.ack(1, 1)
    reader.elapse(1_000)
    reader.checkpoint(1, 2, pop_time=NOW, invisible_ms=1_000)
    reader.elapse(2_000)
    assert reader.window.done_offset == -1
    reader.settle()
    assert reader.settled == [(NOW, 2)]
    assert reader.window.done_offset == 1


def test_checkpoint_that_differs_from_one_that_is_held_is_one_of_its_own(reader: Reader) -> None:
    reader.checkpoint(1)
    reader.checkpoint(1, invisible_ms=10_000, rp="1")
    reader.elapse(15_000)
    reader.settle()
    assert reader.settled == [(NOW, 1), (NOW, 1)]


def test_a_full_window_says_so(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revive_window, "MAX_HELD", 3)
    for offset in range(3):
        assert not reader.window.is_full
        reader.checkpoint(offset)
    assert reader.window.is_full
    reader.elapse(5_000)
    reader.settle()
    assert reader.window.done_offset == 2
    assert not reader.window.is_full


pops = st.lists(
    st.tuples(st.sets(st.integers(0, 200), min_size=1, max_size=32).map(sorted), st.integers(0, 2**32 - 1)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60))
@given(pops, st.randoms(use_true_random=False), st.integers(0, 3))
def test_exactly_what_is_not_acknowledged_comes_once_whatever_the_order(
    pops: list[tuple[list[int], int]], chance: random.Random, settles: int
) -> None:
    reader = Reader(first_offset=7)
    records: list[tuple[str, int, list[int]]] = []
    expected = set()
    for number, (offsets, acknowledged) in enumerate(pops):
        records.append(("ck", number, offsets))
        done = [offset for index, offset in enumerate(offsets) if acknowledged >> index & 1]
        expected |= {(NOW + number, offset) for offset in offsets if offset not in done}
        while done:
            count = chance.randint(1, len(done))
            records.append(("ack", number, done[:count]))
            done = done[count:]
    records += chance.sample(records, len(records) // 3)  # The timer may deliver twice.
    chance.shuffle(records)
    for kind, number, offsets in records:
        # All within the two seconds that a checkpoint waits.
        reader.elapse(1_000 // len(records))
        first = pops[number][0][0]
        if kind == "ck":
            reader.checkpoint(*offsets, pop_time=NOW + number)
        else:
            reader.ack(first, *offsets, pop_time=NOW + number)
        if chance.randint(0, 3) < settles:
            assert reader.settle() == []
    assert reader.window.done_offset == 6
    reader.elapse(4_000)
    reader.settle()
    assert sorted(reader.settled) == sorted(expected)
    assert reader.window.done_offset == 6 + len(records)


@given(st.lists(st.tuples(st.sampled_from(["ck", "ack", "finish", "elapse"]), st.integers(0, 5_000)), max_size=60))
def test_done_offset_never_passes_what_is_open_and_never_goes_back(steps: list[tuple[str, int]]) -> None:
    reader = Reader()
    reader.finish_at_once = False
    open_at: dict[int, Held] = {}
    taken: list[Held] = []
    reached = -1
    for step, number in steps:
        if step == "ck":
            reader.checkpoint(number, pop_time=reader.now, invisible_ms=number)
        elif step == "ack":
            reader.ack(number, number, pop_time=reader.now - number)
        elif step == "elapse":
            reader.elapse(number)
            for held in reader.settle():
                open_at[held.revive_offset] = held
                taken.append(held)
        elif taken:
            held = taken.pop(number % len(taken))
            del open_at[held.revive_offset]
            reader.finish(held)
        done = reader.window.done_offset
        assert done >= reached
        reached = done
        assert all(offset > done for offset in open_at)
        assert done < reader.window.next_offset
