"""Brokers that cannot be reached for longer than the invisible time of a message in work."""

import threading
from typing import Any

import pytest

from sprocket import ConnectionLost
from sprocket.client.pop.pop_requests import PopRequests
from sprocket.client.pop.renewal import Renewal


def lost_renewals(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let no renewal reach a broker.

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
