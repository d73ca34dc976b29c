"""Messages in work are renewed in time, until they are released or their limit is over."""

import asyncio
import contextlib

import pytest

from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.pop.renewal import Renewal
from sprocket.common.errors import ClientError
from sprocket.remoting.message.pop_extra_info import PopHandle
from tests.client.pull.test_process_queue import message
from tests.waiting import until


def popped(offset: int, invisible_until: float) -> PoppedMessage:
    handle = PopHandle(offset, 0, 300, 0, "0", "broker-a", 0, offset)
    return PoppedMessage(message(offset), "TopicTest", handle, invisible_until)


class Broker:
    """Counts renewals; `fails` says which of them go wrong."""

    def __init__(self, invisible_s: float = 0.3) -> None:
        self.renewed: list[int] = []
        self.fails: set[int] = set()
        self.blocked: asyncio.Event | None = None
        self._invisible_s = invisible_s

    async def renew(self, held: PoppedMessage) -> None:
        self.renewed.append(held.queue_offset)
        if self.blocked is not None:
            await self.blocked.wait()
        if len(self.renewed) in self.fails:
            raise ClientError("no")
        held.invisible_until = asyncio.get_running_loop().time() + self._invisible_s


@contextlib.asynccontextmanager
async def renewing(broker: Broker, limit_s: float = 60.0, invisible_s: float = 0.3):  # type: ignore[no-untyped-def]
    now = asyncio.get_running_loop().time
    renewal = Renewal(broker.renew, now, invisible_s=invisible_s, limit_s=limit_s)
    task = asyncio.create_task(renewal.run())
    try:
        yield renewal, now
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def renewal_under_way():  # type: ignore[no-untyped-def]
    """A message whose renewal waits for the broker until `blocked` is set."""
    broker = Broker()
    broker.blocked = asyncio.Event()
    async with renewing(broker) as (renewal, now):
        held = popped(1, now())
        renewal.hold([held])
        await until(lambda: broker.renewed == [1])
        yield broker, renewal, held


async def test_message_is_renewed_again_and_again_until_it_is_released() -> None:
    broker = Broker()
    async with renewing(broker) as (renewal, now):
        held, released = popped(1, now() + 0.3), popped(2, now() + 0.3)
        renewal.hold([held, released])
        await renewal.release(released)
        await until(lambda: broker.renewed == [1, 1, 1])
        assert len(renewal) == 1
        await renewal.release(held)
        assert len(renewal) == 0


async def test_failed_renewal_is_tried_again() -> None:
    broker = Broker()
    broker.fails = {1}
    async with renewing(broker, invisible_s=60.0) as (renewal, now):
        renewal.hold([popped(1, now() + 20.0)])  # due at once, and not over for long
        await until(lambda: len(broker.renewed) >= 2)


async def test_message_whose_time_is_over_is_not_renewed_but_known() -> None:
    broker = Broker()
    broker.fails = set(range(1, 100))
    async with renewing(broker) as (renewal, now):
        held, later = popped(1, now() + 0.3), popped(1, now() + 60.0)
        renewal.hold([held])
        await until(lambda: now() >= held.invisible_until and bool(broker.renewed))
        await asyncio.sleep(0.6)
        tries = len(broker.renewed)
        await asyncio.sleep(0.6)
        assert len(broker.renewed) == tries
        assert renewal.has_earlier(later)
        await renewal.release(held)
        assert not renewal.has_earlier(later)


async def test_message_in_work_gets_the_handle_of_its_next_delivery() -> None:
    broker = Broker()
    broker.blocked = asyncio.Event()
    async with renewing(broker) as (renewal, now):
        held, later = popped(1, now()), popped(1, now() + 60.0)
        handles = held.handle, later.handle
        renewal.hold([held])
        await until(lambda: broker.renewed == [1])
        taking = asyncio.create_task(renewal.take_over(later))
        await asyncio.sleep(0.02)
        assert not taking.done()  # the renewal under way would put back the old handle
        broker.blocked.set()
        assert await taking
        assert (held.handle, later.handle) == handles[::-1]
        assert held.invisible_until > now() + 30.0
        await renewal.release(held)
        assert not await renewal.take_over(later)


async def test_two_messages_of_one_identity_are_no_repeats() -> None:
    async with renewing(Broker()) as (renewal, now):
        first, second, redelivered = (popped(offset, now() + 60.0) for offset in (1, 2, 3))
        redelivered.message.reconsume_times += 1
        renewal.hold([first])
        assert not renewal.has_earlier(second)
        assert renewal.has_earlier(redelivered)
        await renewal.release(first)
        renewal.hold([redelivered])
        assert not renewal.has_earlier(second)


async def test_message_that_nobody_takes_is_forgotten() -> None:
    async with renewing(Broker()) as (renewal, now):
        dropped, later = popped(1, now() + 60.0), popped(1, now() + 60.0)
        renewal.hold([dropped])
        for _ in range(2):
            renewal.forget(dropped)
            assert len(renewal) == 0
        assert not renewal.has_earlier(later)


async def test_a_change_of_the_application_has_the_handle_for_itself() -> None:
    broker = Broker()
    async with renewing(broker, invisible_s=60.0) as (renewal, now):
        held, later = popped(1, now() + 60.0), popped(2, now() + 60.0)
        later.message.reconsume_times += 1
        handles = held.handle, later.handle
        renewal.hold([held])
        answer = asyncio.Event()

        async def extend() -> None:
            handle = held.handle._replace(pop_time_ms=7)
            await answer.wait()
            held.handle, held.invisible_until = handle, now() + 600.0

        changing = asyncio.create_task(renewal.change(held, extend))
        await asyncio.sleep(0)
        taking = asyncio.create_task(renewal.take_over(later))
        await asyncio.sleep(0.02)
        assert not taking.done()
        answer.set()
        await changing
        assert await taking
        assert (held.handle, later.handle) == (handles[1], handles[0]._replace(pop_time_ms=7))


async def test_a_change_of_the_application_waits_for_the_renewal_under_way() -> None:
    async with renewal_under_way() as (broker, renewal, held):
        extended: list[bool] = []

        async def extend() -> None:
            now = asyncio.get_running_loop().time()
            extended.append(held.invisible_until > now)
            held.invisible_until = now + 60.0

        changing = asyncio.create_task(renewal.change(held, extend))
        await asyncio.sleep(0.02)
        assert extended == []
        broker.blocked.set()
        await changing
        assert extended == [True]


async def test_a_failed_change_ends_no_renewal() -> None:
    broker = Broker()
    async with renewing(broker, invisible_s=60.0) as (renewal, now):
        held = popped(1, now() + 20.5)

        async def fail() -> None:
            raise ClientError("no")

        renewal.hold([held])
        with pytest.raises(ClientError):
            await renewal.change(held, fail)
        await until(lambda: broker.renewed)


async def test_release_waits_for_the_renewal_under_way() -> None:
    async with renewal_under_way() as (broker, renewal, held):
        release = asyncio.create_task(renewal.release(held))
        await asyncio.sleep(0.02)
        assert not release.done()
        broker.blocked.set()
        await release
        assert held.invisible_until > asyncio.get_running_loop().time()


async def test_message_is_not_renewed_for_ever() -> None:
    broker = Broker()
    async with renewing(broker, limit_s=0.0) as (renewal, now):
        renewal.hold([popped(1, now())])
        await until(lambda: len(renewal) == 0)
        assert broker.renewed == []
