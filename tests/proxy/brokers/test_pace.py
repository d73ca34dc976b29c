"""Sends that wait a moment for others: alone nobody waits, together they leave together and in order."""

import asyncio
from collections.abc import Callable

import pytest

from proxy.brokers.pace import Pace

ANSWER_S = 0.05
_HOUR_S = 3600.0


class Brokers:
    """What leaves, in groups that leave in one turn of the loop; each send is answered after `ANSWER_S`."""

    def __init__(self, pace: Pace | None = None) -> None:
        self.pace = pace or Pace()
        self.groups: list[list[int]] = []
        self._is_open = False

    async def send(self, number: int) -> None:
        moment = self.pace.moment()
        if moment is not None:
            await moment
        with self.pace:
            if not self._is_open:
                self._is_open = True
                self.groups.append([])
                asyncio.get_running_loop().call_soon(self._close)
            self.groups[-1].append(number)
            await asyncio.sleep(ANSWER_S)

    def _close(self) -> None:
        self._is_open = False


async def test_who_sends_one_after_the_other_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[float] = []
    loop = asyncio.get_running_loop()
    later = loop.call_later

    def call_later(delay_s: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        timers.append(delay_s)
        return later(delay_s, callback, *arguments)

    monkeypatch.setattr(loop, "call_later", call_later)
    brokers = Brokers()
    for number in range(5):
        await brokers.send(number)
    assert set(timers) == {ANSWER_S}, "only the answers took time"
    assert brokers.groups == [[number] for number in range(5)]


async def test_many_leave_together_and_in_order() -> None:
    brokers = Brokers()
    await asyncio.gather(*(brokers.send(number) for number in range(40)))
    first, second = brokers.groups
    assert first == [0, 1], "nobody knows yet that more will come"
    assert second == list(range(2, 40))


async def test_nobody_overtakes_those_who_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: list[Callable[[], object]] = []
    loop = asyncio.get_running_loop()
    later = loop.call_later

    def call_later(delay_s: float, callback: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        if delay_s == _HOUR_S:
            moments.append(lambda: callback(*arguments))
        return later(delay_s, callback, *arguments)

    monkeypatch.setattr(loop, "call_later", call_later)
    brokers = Brokers(Pace(moment_s=_HOUR_S, pause_s=_HOUR_S))
    sends = [asyncio.create_task(brokers.send(number)) for number in range(3)]
    await asyncio.sleep(0)
    # The fourth one's turn comes after the end of the moment, and before the third one goes on.
    sends.append(asyncio.create_task(brokers.send(3)))
    moments.pop()()
    while not moments:
        await asyncio.sleep(0)
    assert brokers.groups == [[0, 1], [2]]
    moments.pop()()
    await asyncio.gather(*sends)
    assert brokers.groups == [[0, 1], [2], [3]]


async def test_when_few_come_sends_leave_at_once_for_a_while() -> None:
    brokers = Brokers(Pace(pause_s=_HOUR_S))
    for _ in range(2):
        await asyncio.gather(*(brokers.send(number) for number in range(4)))
    assert brokers.groups == [[0, 1], [2, 3], [0, 1, 2, 3]], "two waited in vain, so the next two did not"


async def test_a_send_that_is_cancelled_while_it_waits_does_not_leave() -> None:
    brokers = Brokers()
    sends = [asyncio.create_task(brokers.send(number)) for number in range(12)]
    await asyncio.sleep(0)
    sends[5].cancel()
    await asyncio.gather(*sends, return_exceptions=True)
    assert sends[5].cancelled()
    assert brokers.groups == [[0, 1], [2, 3, 4, 6, 7, 8, 9, 10, 11]]
    await brokers.send(20)
    assert brokers.groups[-1] == [20], "the cancelled one is not counted"
