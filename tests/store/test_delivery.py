"""Messages are delivered to the own log all or none; one that is refused for ever holds nobody up."""

from collections.abc import Callable, Sequence

import pytest

from sprocket.common.errors import RequestError, StoreBusy
from store.delivery import OwnLog, deliver_fitting
from store.record import Appended, PendingMessage
from tests.store.rig import message


class Log:
    """A store that takes no body that is too large, and nothing while it is busy."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.is_busy = False

    def append(self, messages: Sequence[PendingMessage]) -> list[Appended]:
        if self.is_busy:
            raise StoreBusy("later")
        if any(len(each.body) > 3 for each in messages):
            raise RequestError(13, "too large")
        self.bodies += [bytes(each.body) for each in messages]
        return []


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
