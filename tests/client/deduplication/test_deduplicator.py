"""One handling of what comes twice."""

import asyncio
from typing import Any

import pytest

from sprocket import (
    Claim,
    ConsumeFrom,
    Consumer,
    Deduplicator,
    IllegalArgument,
    KeyWindow,
    Message,
    Producer,
    ReceivedMessage,
    SendSettings,
)
from sprocket.testing import Broker
from tests.client.pull.test_process_queue import message
from tests.clock import ManualClock
from tests.waiting import until


async def test_window_forgets_by_age_and_by_number() -> None:
    clock = ManualClock()
    window = KeyWindow(60, 3, clock=clock)
    for key in "abcd":
        await window.add(key)
    assert [await window.contains(key) for key in "abcd"] == [False, True, True, True]
    clock.advance(30)
    await window.add("b")
    clock.advance(31)
    assert [await window.contains(key) for key in "bcd"] == [True, False, False]
    assert len(window) == 1


async def test_what_fails_is_handled_again_and_what_succeeded_is_not() -> None:
    seen: list[int] = []

    async def handler(received: ReceivedMessage) -> None:
        seen.append(received.queue_offset)
        await asyncio.sleep(0)
        if len(seen) == 1:
            raise ValueError

    once = Deduplicator(key=lambda received: received.message_id)
    handle = once.once(handler)
    # Two of one id at the same time: the second waits, and handles it because the first failed.
    outcomes = await asyncio.gather(*(handle(message(offset)) for offset in (1, 2)), return_exceptions=True)
    assert isinstance(outcomes[0], ValueError)
    assert outcomes[1] is None
    await handle(message(3))
    assert seen == [1, 2]
    assert once.duplicates == 1


async def test_sync_handlers_and_keys_of_ones_own() -> None:
    seen: list[int] = []
    handle = Deduplicator(key=lambda received: received.topic).once(lambda received: seen.append(received.queue_offset))
    for offset in range(6):
        await handle(message(offset))
    assert seen == [0]


class Counted(KeyWindow):
    """Memory that counts the claims that succeed, and fails while `failures` is above zero."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.successes = 0
        self.failures = 0

    async def claim(self, key: str, owner: str) -> Claim:
        self._fail()
        outcome = await super().claim(key, owner)
        self.successes += outcome is Claim.MINE
        return outcome

    async def commit(self, key: str, owner: str) -> bool:
        self._fail()
        return await super().commit(key, owner)

    async def release(self, key: str, owner: str) -> None:
        self._fail()
        await super().release(key, owner)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the store is down")


async def test_a_member_waits_for_the_outcome_of_another_that_renews_its_claim() -> None:
    clock = ManualClock()
    claims = Counted(lease_s=0.3, clock=clock)
    members = [Deduplicator(claims), Deduplicator(claims)]
    done = asyncio.Event()
    handled = []

    async def handler(received: ReceivedMessage) -> None:
        handled.append(received)
        await done.wait()

    first = asyncio.create_task(members[0].once(handler)(message(1)))
    await until(lambda: handled != [])
    second = asyncio.create_task(members[1].once(handler)(message(1)))
    for renewals in range(1, 5):  # together longer than two leases
        await until(lambda: claims.successes > renewals)  # noqa: B023
        clock.advance(0.2)
    assert not second.done()
    done.set()
    await asyncio.gather(first, second)
    assert len(handled) == 1
    assert [member.duplicates for member in members] == [0, 1]


async def test_after_a_failed_handler_another_member_handles_the_message() -> None:
    claims = KeyWindow()
    failing, other = Deduplicator(claims), Deduplicator(claims)
    handled = []

    async def fail(received: ReceivedMessage) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        await failing.once(fail)(message(1))
    await other.once(handled.append)(message(1))
    assert len(handled) == 1


async def test_a_lost_claim_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    claims = KeyWindow(lease_s=60, clock=clock)
    slow, other = Deduplicator(claims), Deduplicator(claims)
    handled = []

    async def handler(received: ReceivedMessage) -> None:
        clock.advance(61)  # a process that was stopped, or a function that blocked the event loop
        await other.once(handled.append)(received)

    await slow.once(handler)(message(1))
    assert len(handled) == 1
    assert (slow.lost_claims, other.lost_claims) == (1, 0)
    assert "event=claim_lost" in caplog.text


async def test_a_store_that_is_down_for_less_than_a_lease_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    claims = Counted(clock=ManualClock())
    claims.failures = 3
    handled = []

    async def handler(received: ReceivedMessage) -> None:
        handled.append(received)
        claims.failures = 3

    handle = Deduplicator(claims, clock=ManualClock()).once(handler)
    await handle(message(1))
    await handle(message(1))
    assert len(handled) == 1
    assert caplog.text.count("event=claim_store_failed") == 2


async def test_a_store_that_is_down_for_longer_raises_its_error() -> None:
    clock = ManualClock()
    claims = Counted(clock=clock)
    handled = []

    class Down(Counted):
        async def claim(self, key: str, owner: str) -> Claim:
            clock.advance(30)
            raise ConnectionError("the store is down")

    with pytest.raises(ConnectionError):
        await Deduplicator(Down(), clock=clock).once(handled.append)(message(1))
    assert handled == []
    # A handler's own error is not hidden by the release that fails.
    claims.failures = 0

    async def fail(received: ReceivedMessage) -> None:
        claims.failures = 1
        raise ValueError

    with pytest.raises(ValueError):
        await Deduplicator(claims).once(fail)(message(2))


async def test_a_table_without_claims_still_serves() -> None:
    class Table:
        def __init__(self) -> None:
            self.keys: set[str] = set()

        async def contains(self, key: str) -> bool:
            return key in self.keys

        async def add(self, key: str) -> None:
            self.keys.add(key)

    table = Table()
    handled: list[ReceivedMessage] = []
    for _ in range(2):
        await Deduplicator(table, key=lambda received: received.topic).once(handled.append)(message(1))
    assert len(handled) == 1
    assert len(table.keys) == 1
    with pytest.raises(IllegalArgument, match="pass a ClaimStore, or an object with contains and add"):
        Deduplicator(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_batch", [False, True])
async def test_message_that_was_sent_again_under_its_key_is_handled_once(
    shared_broker: Broker, topic: str, is_batch: bool
) -> None:
    seen: list[str] = []
    once = Deduplicator()
    for _ in range(2):  # a producer, and the one that was started after it died
        async with Producer("g", shared_broker.namesrv, settings=SendSettings(auto_batch=is_batch)) as producer:
            orders = [Message(topic, b"x", unique_key=f"order-{number}") for number in range(5)]
            results = await asyncio.gather(*map(producer.send, orders))
    async with Consumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        run = asyncio.create_task(consumer.run(once.once(lambda received: seen.append(received.message_id))))
        await until(lambda: len(seen) + once.duplicates == 10)
    await run
    assert sorted(seen) == sorted({result.message_id for result in results})
    assert once.duplicates == 5
