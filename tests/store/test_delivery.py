"""Messages are delivered to the own log all or none; one that is refused for ever holds nobody up."""

from collections.abc import Callable, Sequence

import pytest

from sprocket.common.errors import RequestError, StoreBusy
from store.delivery import OwnLog, deliver_fitting
from store.record.record import Appended, PendingMessage
from tests.store.reading import bodies
from tests.store.rig import Stores, message


class Log:
    """A store that takes no body that is too large, and nothing while it is busy."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.is_busy = False
        # Bodies that it takes before it is full.
        self.room = 1000

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]:
        if self.is_busy:
            raise StoreBusy("later")
        if any(len(each.body) > 3 for each in messages):
            raise RequestError(13, "too large")
        if len(self.bodies) + len(messages) > self.room:
            raise StoreBusy("full")
        self.bodies += [bytes(each.body) for each in messages]
        return []

    def refusals(self, messages: Sequence[PendingMessage]) -> dict[int, str]:
        return {index: "too large" for index, each in enumerate(messages) if len(each.body) > 3}


def deliver(log: Log, bodies: Sequence[bytes]) -> tuple[list[bytes], int]:
    """What was dropped, and how often it was said to be done."""
    dropped: list[bytes] = []
    done: list[None] = []
    refuse: Callable[[PendingMessage, str], None] = lambda each, _: dropped.append(bytes(each.body))  # noqa: E731
    outstanding = deliver_fitting(
        OwnLog(log), [message(body=body) for body in bodies], lambda: done.append(None), refuse
    )
    assert outstanding is None
    return dropped, len(done)


@pytest.mark.parametrize("bodies", [[], [b"a"], [b"large"], [b"a", b"large", b"b", b"c", b"larger"]])
def test_all_that_fits_is_stored_in_order_and_done_is_said_once(bodies: list[bytes]) -> None:
    log = Log()
    assert deliver(log, bodies) == ([body for body in bodies if len(body) > 3], 1)
    assert log.bodies == [body for body in bodies if len(body) <= 3]


def test_a_busy_store_refuses_all() -> None:
    log = Log()
    log.is_busy = True
    with pytest.raises(StoreBusy):
        deliver(log, [b"a", b"b"])
    assert not log.bodies


@pytest.mark.parametrize("room", range(5))
@pytest.mark.parametrize("bad", range(5))
def test_a_store_that_fills_up_beside_a_bad_message_takes_none(room: int, bad: int) -> None:
    """What follows would be delivered again: with a part of it stored, that part would come twice."""
    log = Log()
    log.room = room
    contents = [b"%d" % number for number in range(4)]
    contents.insert(bad, b"large")
    dropped: list[bytes] = []
    done: list[None] = []
    messages = [message(body=body) for body in contents]

    def drop(each: PendingMessage, reason: str) -> None:
        dropped.append(bytes(each.body))

    if room < 4:
        with pytest.raises(StoreBusy):
            deliver_fitting(OwnLog(log), messages, lambda: done.append(None), drop)
        assert (log.bodies, dropped, done) == ([], [], [])
        log.room = 4
    deliver_fitting(OwnLog(log), messages, lambda: done.append(None), drop)
    assert (log.bodies, dropped, done) == ([b"0", b"1", b"2", b"3"], [b"large"], [None])


def test_a_real_store_names_what_it_does_not_take(stores: Stores) -> None:
    stores.fields["max_message_size"] = 1000
    store = stores.open()
    store.append([message(body=b"before")])
    end = store.wrote_offset
    messages = [
        message(body=b"0"),
        message(body=bytes(1001)),
        message(queue_id=1, body=b"2"),
        message(body=b"3", properties=b"a\x01" + bytes(33_000) + b"\x02"),
        message(body=b"4", born_host=b"nowhere"),
        message("SCHEDULE_TOPIC_XXXX", body=b"5", properties=b"DELAY\x011\x02"),
    ]
    refusals = store.refusals(messages)
    assert set(refusals) == {1, 3, 4}
    assert "maxMessageSize" in refusals[1]
    assert store.wrote_offset == end
    dropped: list[str] = []
    deliver_fitting(OwnLog(store), messages, lambda: None, lambda _, reason: dropped.append(reason))
    assert dropped == list(refusals.values())
    assert bodies(store) == [b"before", b"0"]
    assert bodies(store, "Orders", 1) == [b"2"]
    assert store.append([message(body=b"6")])[0][0] == 2
    store = stores.reopen(store, crash=True)
    assert bodies(store) == [b"before", b"0", b"6"]
