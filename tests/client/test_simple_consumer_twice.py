"""What a popping consumer must not give twice, or too late."""

import asyncio

import pytest

from sprocket import ConnectionLost, ConsumeFrom, Message, PoppedMessage, PopSettings, Producer, SimpleConsumer
from sprocket.testing import Broker
from tests.waiting import until


async def _send(broker: Broker, topic: str, *bodies: bytes) -> None:
    async with Producer("g", broker.namesrv) as producer:
        for body in bodies:
            await producer.send(Message(topic, body), queue=(await producer.queues(topic))[0])


async def test_two_that_wait_in_order_are_not_given_the_same(shared_broker: Broker, topic: str) -> None:
    await _send(shared_broker, topic, b"first")
    options = {"consume_from": ConsumeFrom.FIRST, "ordered": True}
    async with SimpleConsumer(f"g-{topic}", [topic], shared_broker.namesrv, **options) as consumer:  # type: ignore[arg-type]
        (first,) = await consumer.receive(wait_s=2.0)
        waiting = [asyncio.create_task(consumer.receive(wait_s=2.0)) for _ in range(2)]
        await asyncio.sleep(0.2)
        await _send(shared_broker, topic, b"second")
        await consumer.ack(first)
        taken = [message.body for messages in await asyncio.gather(*waiting) for message in messages]
        assert taken == [b"second"]


async def test_an_iteration_leaves_out_what_is_somebody_elses_by_now(shared_broker: Broker, topic: str) -> None:
    await _send(shared_broker, topic, b"0", b"1", b"2")
    async with SimpleConsumer(f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        taken: list[PoppedMessage] = []
        async for message in consumer:
            await consumer.ack(message)
            taken.append(message)
            if len(taken) == 1:
                for lost in consumer._ready:
                    lost.invisible_until = 0.0
                await _send(shared_broker, topic, b"3")
            else:
                break
        assert [message.body for message in taken] == [b"0", b"3"]


def _cannot_reach(consumer: SimpleConsumer, monkeypatch: pytest.MonkeyPatch, *requests: str) -> list[str]:
    """Let some requests of a consumer fail from now on; return their list, which grows."""
    tried: list[str] = []

    def failing(name: str) -> object:
        async def fail(*_: object) -> None:
            tried.append(name)
            raise ConnectionLost("the broker is away")

        return fail

    for name in requests:
        monkeypatch.setattr(consumer._pops, name, failing(name))
    return tried


async def test_a_handler_keeps_its_message_over_the_end_of_its_invisible_time(
    shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker delivers again what could not be renewed; the handler runs once, and acknowledges that delivery."""
    await _send(shared_broker, topic, b"0")
    settings = PopSettings(pop_invisible_time_s=1.0, poll_time_s=0.5)
    consumer = SimpleConsumer(
        f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings
    )
    async with consumer, SimpleConsumer(f"g-{topic}", [topic], shared_broker.namesrv, settings=settings) as other:
        handles, settled = [], asyncio.Event()

        async def handle(message: PoppedMessage) -> None:
            first = message.handle
            handles.append(first)
            _cannot_reach(consumer, monkeypatch, "change_invisible")
            await until(lambda: message.handle.retry != first.retry)  # taken over from the next delivery
            monkeypatch.undo()
            await message.ack()
            settled.set()

        running = asyncio.create_task(consumer.run(handle))
        await asyncio.wait_for(settled.wait(), 60.0)
        assert await other.receive(wait_s=4.0) == []
        assert len(handles) == 1
        consumer.stop()
        await running


@pytest.mark.parametrize("remember_s", [0.0, 60.0])
async def test_a_message_whose_acknowledgement_was_lost_is_given_again_unless_it_is_remembered(
    shared_broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, remember_s: float
) -> None:
    await _send(shared_broker, topic, b"0")
    settings = PopSettings(pop_invisible_time_s=1.0, remember_s=remember_s)
    async with SimpleConsumer(
        f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        (first,) = await consumer.receive(wait_s=30.0, renew=True)
        with monkeypatch.context() as patch, pytest.raises(ConnectionLost):
            _cannot_reach(consumer, patch, "ack")
            await first.ack()
        again: list[PoppedMessage] = []
        for _ in range(4):
            again += await consumer.receive(wait_s=2.0, renew=True)
        assert [message.body for message in again] == ([] if remember_s else [b"0"])


async def test_what_is_received_to_be_renewed_stays_invisible(shared_broker: Broker, topic: str) -> None:
    await _send(shared_broker, topic, b"0")
    settings = PopSettings(pop_invisible_time_s=1.0)
    async with SimpleConsumer(
        f"g-{topic}", [topic], shared_broker.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings
    ) as consumer:
        (message,) = await consumer.receive(wait_s=30.0, renew=True)
        assert await consumer.receive(wait_s=3.0) == []
        await message.ack()
