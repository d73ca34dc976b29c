"""The outlets of a partition, where brokers have forgotten the ids of what was sent before."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import sprocket
from sprocket import ClientSettings, Message, MessageQueue
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.consume.message_back import MessageBack
from sprocket.client.producer import Producer
from sprocket.client.send.send_request import SendSettings
from sprocket.functions.deployments import Described, create_topics
from sprocket.functions.ports import INPUTS, SAFE_WINDOW_MS, BrokerOutlets, QueueReader
from sprocket.functions.records import Output, dead_letter_of
from sprocket.testing import Broker

GROUP = "forgetful"


class Place:
    """Outlets whose clock is `late_ms` after the broker's, and the topics that they send to."""

    def __init__(self, mq: sprocket.Connection, instance: ClientInstance, producer: Producer, broker_name: str) -> None:
        self.mq = mq
        self.broker_name = broker_name
        self.late_ms = 0
        self.reasons: list[str] = []
        self.instance = instance

        def reader(queue: MessageQueue) -> QueueReader:
            return QueueReader(instance, GROUP, queue, INPUTS)

        def now_ms() -> int:
            return instance.clock.wall_ms() + self.late_ms

        self.reader = reader
        self.outlets = BrokerOutlets(producer, MessageBack(instance, GROUP, 0), reader, now_ms, self.reasons.append)

    async def send(self, outputs: list[Output]) -> None:
        await self.outlets.send(outputs, self.instance.clock.wall_ms())

    async def bodies(self, topic: str) -> list[bytes]:
        reader = self.reader(MessageQueue(topic, self.broker_name, 0))
        end = await reader.end()
        return [one.body for one in (await reader.pull(0)).messages] if end else []


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    with Broker(tmp_path, properties={"idempotenceWindowMs": "0"}) as broker:
        for topic in ("In", "Out"):
            broker.create_topic(topic, 1)
        settings = ClientSettings(namesrv=broker.namesrv)
        idempotent = SendSettings(idempotent=True)
        async with (
            sprocket.connect(broker.namesrv) as mq,
            Producer(GROUP, client=settings, settings=idempotent) as producer,
        ):
            await create_topics(mq.admin, [Described("f", GROUP, ["In"], "Out", f"{GROUP}-changelog")])
            result = await mq.producer().send(Message("In", b"input", tags="T", properties={"own": "1"}))
            instance = ClientInstance(settings)
            await instance.open()
            await instance.route("In")
            yield Place(mq, instance, producer, result.queue.broker_name)
            await instance.close()


async def test_outputs_of_an_old_commit_are_looked_up_before_they_are_sent_again(place: Place) -> None:
    outputs = [await place.outlets.placed(Output("Out", b"%d" % number, ""), f"k{number}") for number in range(3)]
    await place.send(outputs[:2])
    await place.send(outputs[:1])
    assert await place.bodies("Out") == [b"0", b"1", b"0"]  # this broker recognises nothing
    place.late_ms = SAFE_WINDOW_MS + 1
    await place.send(outputs)
    assert await place.bodies("Out") == [b"0", b"1", b"0", b"2"]
    await place.send(outputs)
    assert len(await place.bodies("Out")) == 4


async def test_a_dead_letter_is_a_copy_of_its_input_once_or_is_lost_with_it(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    source = place.reader(MessageQueue("In", place.broker_name, 0))
    message = (await source.pull(0)).messages[0]
    letter = dead_letter_of(GROUP, message, "a reason", "key")
    place.late_ms = SAFE_WINDOW_MS + 1
    await place.send([letter])
    await place.send([letter])
    found = (await place.reader(MessageQueue(f"%DLQ%{GROUP}", place.broker_name, 0)).pull(0)).messages
    assert [one.body for one in found] == [b"input"]
    kept = {name: found[0].properties[name] for name in ("own", "TAGS", "RETRY_TOPIC", "DEAD_LETTER_REASON")}
    assert kept == {"own": "1", "TAGS": "T", "RETRY_TOPIC": "In", "DEAD_LETTER_REASON": "a reason"}
    gone = Output(letter.topic, b"", "other", properties=letter.properties, broker_name=letter.broker_name, queue_id=0,
                  copied=("In", 0, 7))  # fmt: skip
    await place.send([gone])
    assert "event=dead_letter_lost topic=In queue=0 offset=7" in caplog.text
    assert len(await place.bodies(letter.topic)) == 1
