"""Deliveries that tests of adapters bring about or wait for: repeated ones, and dead letters."""

import threading
import time
from typing import Any

import pytest

from sprocket import ConnectionLost, ConsumeFrom, TopicNotFound, sync
from sprocket.client.pop.pop_requests import PopRequests
from sprocket.client.pop.renewal import Renewal


def lost_renewals(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let no renewal reach a broker for longer than the invisible time of a message in work.

    The event is set when a message in work was delivered again; from then on renewals are as usual.
    """
    delivered_again = threading.Event()
    change, take_over = PopRequests.change_invisible, Renewal.take_over

    async def change_invisible(self: PopRequests, *arguments: Any) -> None:
        if not delivered_again.is_set():
            raise ConnectionLost("the broker is away")
        await change(self, *arguments)

    async def take(self: Renewal, *arguments: Any) -> bool:
        is_taken = await take_over(self, *arguments)
        if is_taken:
            delivered_again.set()
        return is_taken

    monkeypatch.setattr(PopRequests, "change_invisible", change_invisible)
    monkeypatch.setattr(Renewal, "take_over", take)
    return delivered_again


def dead_letters(mq: sync.Connection, group: str, number: int) -> list[sync.PoppedMessage]:
    """Return the dead letters of `group`, once `number` have come."""
    reader = mq.simple_consumer("reader", f"%DLQ%{group}", consume_from=ConsumeFrom.FIRST)
    found: list[sync.PoppedMessage] = []
    deadline = time.monotonic() + 60
    while len(found) < number:
        assert time.monotonic() < deadline, found
        try:
            found += reader.receive(wait_s=2)
        except TopicNotFound:
            time.sleep(0.1)  # the first dead letter makes the topic
    return found
