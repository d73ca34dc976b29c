"""What consumers see, and which sends are answered, while other replicas have less than the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprocket.common.errors import DiskFailed, ReplicasNotEnough, StoreBusy, StoreError
from sprocket.common.figures import values
from sprocket.remoting.message import properties as names
from store.config.store_config import FlushDiskType
from store.flush.confirmation import NO_LIMIT
from store.message_store import MessageStore
from tests.store.reading import bodies
from tests.store.rig import Stores, message
from tests.tiers import examples


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    stores.close_all()


class Master:
    """A store, the answers of its senders, and what was shown."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.log = store.master_log()
        self.ends: list[int] = []
        self.answers: dict[int, bool | StoreError] = {}
        self.confirmed: list[int] = []
        self.shown: list[int] = []
        store.on_arrival.append(lambda arrivals: self.shown.extend(end for _, _, end in arrivals))

    def send(self, body: bytes = b"body") -> None:
        number = len(self.ends)
        _, physical_offset, size_bytes = self.store.append([message(body=body)])[0]
        self.ends.append(physical_offset + size_bytes)
        self.store.confirmation.when_stored(self.ends[-1], lambda *answer: self.answered(number, *answer))
        self.store.when_confirmed(self.ends[-1], lambda error: self.confirmed.append(number))

    def answered(self, number: int, error: StoreError | None, is_replicated: bool) -> None:
        assert number not in self.answers
        self.answers[number] = is_replicated if error is None else error

    def slaves(self, limit: int | None, acknowledged: int, *, is_enough: bool = True, refuse: bool = False) -> None:
        self.log.replicated(limit, acknowledged, is_enough=is_enough, is_refusing=refuse)

    def has(self, offset: int) -> None:
        """The slave in sync has what lies before."""
        self.slaves(offset, offset)

    @property
    def seen(self) -> int:
        """Messages that a consumer gets."""
        count = self.store.max_offset("Orders", 0)
        assert len(bodies(self.store, "Orders", 0)) == count
        assert self.shown[-1:] == [count][: len(self.shown)]
        assert self.store.entry("Orders", 0, count) is None
        for number, end in enumerate(self.ends):
            start = self.ends[number - 1] if number else 0
            assert (self.store.record_at(start) is not None) == (end <= self.store.confirm_offset)
        return count


def test_without_replicas_that_count_everything_is_as_it_was(stores: Stores) -> None:
    master = Master(stores.open())
    master.send()
    assert (master.answers, master.confirmed, master.seen) == ({0: True}, [0], 1)


def test_nothing_is_seen_or_answered_before_a_slave_has_it(stores: Stores) -> None:
    master = Master(stores.open())
    master.has(0)
    for _ in range(3):
        master.send()
    assert (master.answers, master.confirmed, master.seen) == ({}, [], 0)
    master.has(master.ends[1] - 1)
    assert (master.answers, master.confirmed, master.seen) == ({0: True}, [0], 1)
    master.has(master.ends[1])
    assert (master.answers, master.confirmed, master.seen) == ({0: True, 1: True}, [0, 1], 2)
    assert master.store.confirmation.waiting_bytes > 0
    master.has(master.ends[2])
    assert (len(master.answers), master.seen, master.store.confirmation.waiting_bytes) == (3, 3, 0)
    master.send()
    assert master.seen == 3


def test_an_index_does_not_speak_of_what_no_slave_has(stores: Stores) -> None:
    stores.fields["message_index_safe"] = True
    master = Master(stores.open())
    master.has(0)
    master.store.append([message(properties=f"KEYS{chr(1)}k{chr(2)}".encode())])
    assert names.KEYS == "KEYS"
    assert master.store.confirm_offset == 0 < master.store.wrote_offset


def test_acknowledgements_wait_for_no_flush_but_sync_flush_waits_for_both(stores: Stores) -> None:
    stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    master = Master(stores.open())
    master.has(0)
    master.send()
    master.send()
    master.has(master.ends[1])
    assert (master.answers, master.seen) == ({}, 0)
    master.store.flush()
    assert (master.answers, master.seen) == ({0: True, 1: True}, 2)
    master.send()
    master.store.flush()
    assert (master.answers, master.seen) == ({0: True, 1: True}, 2)
    master.has(master.ends[2])
    assert (len(master.answers), master.seen) == (3, 3)


def test_with_nobody_to_wait_for_it_is_said_at_once_and_seen(stores: Stores) -> None:
    master = Master(stores.open())
    master.has(0)
    master.send()
    master.slaves(NO_LIMIT, -1, is_enough=False)
    assert (master.answers, master.seen) == ({0: False}, 1)
    master.send()
    assert (master.answers, master.seen) == ({0: False, 1: False}, 2)


def test_what_is_appended_when_messages_are_shown_is_shown_too(stores: Stores) -> None:
    master = Master(stores.open())
    master.has(0)
    master.send()
    master.send()
    left = [3]

    def arrived(arrivals: object) -> None:
        if left[0]:
            left[0] -= 1
            master.send()

    master.store.on_arrival.append(arrived)
    master.slaves(NO_LIMIT, -1, is_enough=False)
    assert (master.seen, len(master.answers), len(master.confirmed)) == (5, 5, 5)
    master.send()
    assert master.seen == 6


def test_a_failure_to_send_on_fails_no_append(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    master = Master(stores.open())

    def fail() -> None:
        raise OSError("no route")

    master.log.on_append.append(fail)
    master.send()
    assert (master.answers, master.seen) == ({0: True}, 1)
    assert "no route" in caplog.text


def test_the_confirm_offset_never_goes_back(stores: Stores) -> None:
    master = Master(stores.open())
    master.has(0)
    master.send()
    master.slaves(NO_LIMIT, -1, is_enough=False)
    master.send()
    # A slave is in sync again, with less than was shown meanwhile.
    master.has(master.ends[0])
    assert master.store.confirm_offset == master.ends[1]
    master.send()
    assert (master.seen, master.answers) == (2, {0: False, 1: False})
    master.has(master.ends[1])
    assert master.seen == 2
    master.has(master.ends[2])
    assert (master.seen, master.answers[2]) == (3, True)


def test_with_some_but_not_enough_it_is_said_at_once_and_seen_when_those_have_it(stores: Stores) -> None:
    master = Master(stores.open())
    master.slaves(0, -1, is_enough=False)
    master.send()
    assert (master.answers, master.seen) == ({0: False}, 0)
    master.slaves(master.ends[0], -1, is_enough=False)
    assert master.seen == 1


def test_below_the_least_number_nothing_is_appended_and_the_limit_stands(stores: Stores) -> None:
    master = Master(stores.open())
    master.has(0)
    master.send()
    master.send()
    master.has(master.ends[0])
    master.slaves(None, -1, is_enough=False, refuse=True)
    assert (master.answers, master.seen) == ({0: True, 1: False}, 1)
    wrote = master.store.wrote_offset
    with pytest.raises(ReplicasNotEnough, match="in-sync replicas not enough"):
        master.store.append([message()])
    assert issubclass(ReplicasNotEnough, StoreBusy)  # the broker's own writers try again
    assert master.store.wrote_offset == wrote
    assert values(master.store.figures())["putMessageRefused_replicas_not_enough"] == "1"
    master.has(master.ends[1])
    assert master.seen == 2
    master.send()


def test_a_failed_disk_answers_everyone_and_shows_nothing_more(stores: Stores) -> None:
    master = Master(stores.open())
    master.has(0)
    master.send()
    master.store.confirmation.fail(DiskFailed("EIO"))
    assert isinstance(master.answers[0], DiskFailed)
    master.has(master.ends[0])
    assert master.seen == 0


STEP = st.one_of(
    st.tuples(st.just("send"), st.just(0), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
    # Up to which message slaves in sync have the log, and how many they are.
    st.tuples(st.just("slaves"), st.integers(0, 12), st.integers(0, 2)),
    st.tuples(st.just("refuse"), st.just(0), st.just(0)),
)


@settings(max_examples=examples(50))
@given(st.booleans(), st.lists(STEP, max_size=40))
def test_whatever_replicas_do_nobody_is_told_more_than_is_true(
    tmp_path_factory: pytest.TempPathFactory, is_sync: bool, steps: list[tuple[str, int, int]]
) -> None:
    stores = Stores(tmp_path_factory.mktemp("store"))
    if is_sync:
        stores.fields["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
    store = stores.open()
    try:
        master = Master(store)
        has, count, is_refusing = 0, 2, False
        best = 0  # what enough slaves had, ever
        master.has(0)
        for step, number, slaves in steps:
            confirm = store.confirm_offset
            if step == "send" and not is_refusing:
                master.send()
            elif step == "flush":
                store.flush()
            elif step == "slaves":
                is_refusing = False
                has, count = ([0, *master.ends])[min(number, len(master.ends))], slaves
                if count == 0:
                    master.slaves(NO_LIMIT, -1, is_enough=False)
                else:
                    master.slaves(has, has if count == 2 else -1, is_enough=count == 2)
            elif step == "refuse":
                is_refusing, count = True, 0
                master.slaves(None, -1, is_enough=False, refuse=True)
            if count == 2:
                best = max(best, has)
            reached = store.flushed_offset if is_sync else store.wrote_offset
            assert confirm <= store.confirm_offset <= reached
            for sent, end in enumerate(master.ends):
                if sent in master.answers:
                    assert end <= reached
                    # What is said to be replicated is.
                    assert not master.answers[sent] or end <= best
                else:
                    # No send waits without a reason.
                    assert end > reached or (count == 2 and end > has)
            if not is_refusing and count:
                # More is not shown than those in sync have.
                assert store.confirm_offset in (confirm, min(reached, has))
            assert master.seen == sum(end <= store.confirm_offset for end in master.ends)
    finally:
        stores.crash(store)
