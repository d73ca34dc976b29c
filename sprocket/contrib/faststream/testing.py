"""Broker in memory, for the tests of handlers::

async with TestSprocketBroker(broker) as memory:
    await memory.publish({"order": 7}, "Orders")
    bill.mock.assert_called_once_with({"order": 7})
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, cast
from unittest.mock import MagicMock

import anyio
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from sprocket.client.consume.subscription import SqlFilter, subscription
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.contrib.faststream.broker import SprocketBroker
from sprocket.contrib.faststream.producer import SprocketProducer, encode, encode_batch
from sprocket.contrib.faststream.publish_command import SprocketPublishCommand
from sprocket.contrib.faststream.publisher import SprocketBatchPublisher, TopicPublisher
from sprocket.contrib.faststream.subscriber import SprocketBatchSubscriber, SprocketSubscriber
from sprocket.remoting.message import properties as names

AnySubscriber = SprocketSubscriber | SprocketBatchSubscriber


class TestSprocketBroker(TestBroker[SprocketBroker, EnterType], broker=SprocketBroker):
    """Context in which brokers deliver their messages to their own subscribers, without a server.

    One subscriber of each group gets a message, at once: delays count as over, a SqlFilter lets everything pass, and
    an error of a handler is raised by `publish`.  What is acknowledged or rejected has no effect.
    """

    def create_publisher_fake_subscriber(
        self, broker: SprocketBroker, publisher: TopicPublisher
    ) -> tuple[AnySubscriber, bool]:
        """Return the subscriber that records what `publisher` sends, and whether it is the application's own."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.topic == publisher.topic:
                return subscriber, True
        batch = isinstance(publisher, SprocketBatchPublisher)
        return broker.subscriber(publisher.topic, group="test", persistent=False, batch=batch), False

    @contextmanager
    def _patch_producer(self, broker: SprocketBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, _MemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: SprocketBroker, *args: Any, **kwargs: Any) -> Any:
        return MagicMock()


class _MemoryProducer(SprocketProducer):
    """Producer that calls the subscribers of `brokers`."""

    def __init__(self, broker: SprocketBroker, brokers: Sequence[SprocketBroker]) -> None:
        config = broker.config.broker_config
        super().__init__(config.broker_parser, config.broker_decoder, config.broker_codec)
        self._serializer = config.fd_config._serializer
        self._brokers = brokers
        self._numbers = count(1)

    async def publish(self, cmd: SprocketPublishCommand) -> SendResult:
        return await self._deliver([await self._received(cmd)])

    async def publish_batch(self, cmd: SprocketPublishCommand) -> SendResult:
        encoded = await encode_batch(cmd, self.codec, self._serializer)
        return await self._deliver([self._stored(single, body, known) for single, body, known in encoded])

    async def _deliver(self, messages: Sequence[ReceivedMessage]) -> SendResult:
        groups: set[str] = set()
        for subscriber in _subscribers(self._brokers):
            matching = [message for message in messages if _matches(subscriber, message)]
            if not matching or subscriber.group in groups:
                continue
            groups.add(subscriber.group)
            if isinstance(subscriber, SprocketBatchSubscriber):
                await subscriber.process_message(subscriber.raw_of(matching))
            else:
                for message in matching:
                    await subscriber.process_message(message)
        first, ids = messages[0], ",".join(message.message_id for message in messages)
        return SendResult(SendStatus.SEND_OK, ids, first.offset_message_id, first.queue, first.queue_offset)

    async def request(self, cmd: SprocketPublishCommand) -> ReceivedMessage:
        message = await self._received(cmd)
        for subscriber in _subscribers(self._brokers):
            # A batch has no reply.
            if isinstance(subscriber, SprocketSubscriber) and _matches(subscriber, message):
                with anyio.fail_after(cmd.timeout_s):
                    result = await subscriber.process_message(message)
                answer = SprocketPublishCommand.from_cmd(result.as_publish_command())
                answer.send_to("REPLY_TOPIC")
                return await self._received(answer)
        raise SubscriberNotFound

    async def _received(self, cmd: SprocketPublishCommand) -> ReceivedMessage:
        body, properties = await encode(cmd, self.codec, self._serializer)
        return self._stored(cmd, body, properties)

    def _stored(self, cmd: SprocketPublishCommand, body: bytes, properties: Mapping[str, str]) -> ReceivedMessage:
        placing = cmd.placing
        keys = placing.keys if isinstance(placing.keys, str) else " ".join(placing.keys)
        known = {names.TAGS: placing.tags, names.KEYS: keys, names.SHARDING_KEY: placing.sharding_key or ""}
        return _received(
            cmd.destination, body, {**properties, **{k: v for k, v in known.items() if v}}, next(self._numbers)
        )


def _subscribers(brokers: Sequence[SprocketBroker]) -> list[AnySubscriber]:
    return [cast("AnySubscriber", subscriber) for broker in brokers for subscriber in broker.subscribers]


def _matches(subscriber: AnySubscriber, message: ReceivedMessage) -> bool:
    if subscriber.topic != message.topic:
        return False
    if isinstance(subscriber.expression, SqlFilter):
        return True
    tags = subscription(subscriber.topic, subscriber.expression, 0).tags_set
    return not tags or message.tags in tags


def _received(topic: str, body: bytes, properties: Mapping[str, str], number: int) -> ReceivedMessage:
    """Return the message of `number` as if a broker had stored it; it has no consumer."""
    return ReceivedMessage(
        topic=topic,
        queue=MessageQueue(topic, "memory", 0),
        queue_offset=number,
        physical_offset=number,
        body=body,
        raw_properties=names.encode(dict(properties)).encode(),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=bytes(8),
        store_timestamp_ms=0,
        store_host=bytes(8),
        reconsume_times=0,
        size_bytes=len(body),
    )
