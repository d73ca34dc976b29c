"""Tables: the last value of each key of a compacted topic, in memory and always current."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar
from weakref import WeakSet

from sprocket.client import arguments
from sprocket.client.connection.backoff import Backoff
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.owner import Owner, join
from sprocket.client.connection.topic_route import TopicRoute
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.consume.subscription import ALL
from sprocket.client.errors import ClientClosed, ClientError, IllegalMessage, PermissionDenied
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.openable import Openable
from sprocket.client.producer import Producer
from sprocket.client.pull.process_queue import ProcessQueue
from sprocket.client.pull.pull import Puller, PullLoop, PullSettings
from sprocket.client.rebalance.start_offset import end_of
from sprocket.client.send.queue_choice import by_sharding_key
from sprocket.client.send_result import SendResult
from sprocket.client.typed.rows import QueueKey, Row, Rows
from sprocket.client.typed.serializers import Serializer
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.message.properties import KEYS

logger = logging.getLogger(__name__)

T = TypeVar("T")
# Group of all tables, without a name of their own.
TABLE_GROUP = "sprocket-tables"
_PULLS = PullSettings(pull_batch_size=1024, pull_batch_size_in_bytes=4 * 1024 * 1024)


def _place(queue: MessageQueue) -> QueueKey:
    return queue.broker_name, queue.queue_id


class _Reader(ProcessQueue):
    """A queue whose messages are taken at once; `take` gets them."""

    __slots__ = ("_take_all", "end")

    def __init__(self, queue: MessageQueue, take_all: Callable[["_Reader", Sequence[ReceivedMessage]], None]) -> None:
        super().__init__(queue, 0)
        self._take_all = take_all
        self.end: int | None = None  # where the queue ended at the start; None: not known yet

    @property
    def key(self) -> QueueKey:
        """Broker and id of the queue."""
        return _place(self.queue)

    @property
    def is_loaded(self) -> bool:
        """Whether everything is read that the queue had at the start."""
        return self.end is not None and self.next_offset >= self.end

    def put(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        self.next_offset, self.is_confirmed = next_offset, True
        self._take_all(self, messages)


class Table(Openable, Mapping[str, T], Generic[T]):
    """Last value of each key of a topic: a mapping, and an async context manager; made by `Connection.table`::

        async with mq.table("Prices", Price) as prices:
            result = await prices.put("JFK-LAX", Price(420))
            await prices.at_least(result)
            print(prices["JFK-LAX"])
            async for key, price in prices.watch():
                ...

    The topic is compacted (``cleanup.policy=COMPACTION``), so brokers keep the last message of each key for ever.
    It reads all queues from their beginning, and commits nothing: each table has all keys.  Its memory is that of the
    keys and values.  A message's key is all of its KEYS; messages without a key are left out.  A value that does not
    decode is logged, and its key is then missing.

    Reads return at once with what the table knows.  `at_least` waits until it knows a send of one's own.
    """

    def __init__(
        self,
        topic: str,
        serializer: Serializer[T],
        producer: Callable[[], Producer],
        *,
        group: str = TABLE_GROUP,
        client: ClientSettings,
        owner: Owner | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises IllegalArgument."""
        arguments.check_topic(topic)
        arguments.check_group(group)
        self.topic = topic
        self.group = group
        self._serializer = serializer
        self._producer = producer
        self._owner = owner
        self._instance = ClientInstance(
            client, on_route=self._routed, clock=clock, denied=self._fail, on_lost=self._fail
        )  # fmt: skip
        self._subscription = SubscriptionData(topic, ALL, sub_version=self._instance.clock.wall_ms())
        self._readers: dict[QueueKey, _Reader] = {}
        # An iterator that nobody has any more is gone.
        self._watches: WeakSet[_Watch] = WeakSet()
        self._rows: Rows[T] = Rows(self._changed)
        self._progressed = Wakeup()
        self._opening = asyncio.Lock()  # one start at a time
        self._is_loaded = self._is_closed = False
        self._failure: ClientError | None = None

    def __repr__(self) -> str:
        return f"Table({self.topic!r}, {len(self)} keys)"

    # Opening and closing

    async def start(self) -> None:
        """Read all that the topic has now; a second call waits for the first, or does nothing.

        Raises TopicNotFound, NameServerUnreachable, PermissionDenied, ClientClosed.
        """
        async with self._opening:
            if self._is_closed:
                raise ClientClosed(f"the table of {self.topic} is closed; make a new one")
            if not self._instance.is_open:
                if self._owner is not None:
                    self._owner.check_open()
                await self._start()
                await join(self._owner, self)

    async def _start(self) -> None:
        await self._instance.open()
        try:
            route = await self._instance.refresh_route(self.topic)
            if not route.subscribe:
                raise ClientError(f"topic {self.topic} has no readable queue; look at its permission")
            self._routed(route)
            await self._wait(lambda: self._is_loaded)
        except BaseException:
            await self._instance.close()
            raise

    async def close(self) -> None:
        """Stop reading; `watch` ends, and the values stay as they were."""
        self._is_closed = True
        self._wake()
        if self._instance.is_open:
            for reader in self._readers.values():
                reader.drop()
            await self._instance.close()
            if self._owner is not None:
                self._owner.left(self)

    def _fail(self, error: ClientError | None) -> None:
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        self._progressed.set()
        for watch in self._watches:
            watch.arrived.set()

    # Reading the queues

    def _routed(self, route: TopicRoute) -> None:
        """Read the queues of a route that are not read yet."""
        if route.topic != self.topic or not self._instance.is_open:
            return
        for queue in route.subscribe:
            reader = _Reader(queue, self._take)
            if reader.key not in self._readers:
                self._readers[reader.key] = reader
                self._instance.spawn(self._read(reader))

    async def _read(self, reader: _Reader) -> None:
        """Read a queue until the table closes; from its beginning again if its broker has lost its end."""
        backoff = Backoff(0.1, 3.0)
        while reader.end is None:
            try:
                reader.end = await end_of(self._instance, reader.queue)
            except PermissionDenied as error:
                self._fail(error)
                return
            except SprocketError as error:
                logger.warning("event=table_queue_not_asked queue=%s reason=%r", reader.key, str(error))
                self._instance.request_refresh(self.topic)
                await backoff.pause()
        self._take(reader, ())
        puller = Puller(self._instance, self.group, _PULLS, reader.queue, states_subscription=True)
        loop = PullLoop(
            puller, reader, lambda: self._subscription, lambda queue, messages: None, self._instance,
            commits_with_pull=False,
        )  # fmt: skip
        before = 0
        while await loop.run():
            if reader.next_offset < before:
                logger.warning("event=table_queue_read_again queue=%s from=%d", reader.key, before)
                self._rows.forget(reader.key)
                reader.next_offset = 0
            before = reader.next_offset

    def _take(self, reader: _Reader, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            key = message.properties.get(KEYS, "").strip()
            if not key:
                continue
            place = reader.key, message.queue_offset, message.store_timestamp_ms
            try:
                body = message.body
                if body:
                    self._rows.put(key, Row(self._serializer.decode(body), *place))
                    continue
            except Exception as error:
                logger.warning("event=table_value_undecodable message=%r reason=%r", message, str(error))
            self._rows.delete(key, Row(None, *place))
        if not self._is_loaded and all(one.is_loaded for one in self._readers.values()):
            self._is_loaded = True
            self._rows.loaded()
        self._progressed.set()

    def _changed(self, key: str) -> None:
        for watch in self._watches:
            watch.keys[key] = None
            watch.arrived.set()

    async def _wait(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds.  Raises ClientClosed, or why nothing is read any more."""
        while not condition():
            if self._is_closed:
                raise ClientClosed(f"the table of {self.topic} is closed; make a new one")
            if self._failure is not None:
                raise self._failure
            await self._progressed.wait()

    # The mapping

    # A table that changes is no value: it equals itself only.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __getitem__(self, key: str) -> T:
        return self._rows.by_key[key].value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of now: the table may change meanwhile."""
        return iter(list(self._rows.by_key))

    def __len__(self) -> int:
        return len(self._rows.by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._rows.by_key

    async def at_least(self, result: SendResult, *, timeout_s: float | None = None) -> None:
        """Wait until the table has the message of `result`, or a later one of its key.

        Raises TimeoutError after `timeout_s`, ClientClosed, PermissionDenied.
        """
        place = _place(result.queue)

        def is_read() -> bool:
            reader = self._readers.get(place)
            return reader is not None and reader.next_offset > result.queue_offset

        if place not in self._readers:
            self._instance.request_refresh(self.topic)
        async with asyncio.timeout(timeout_s):
            await self._wait(is_read)

    def watch(self) -> AsyncIterator[tuple[str, T | None]]:
        """Return an iterator over the keys whose values change from now on, each with its value; None: it was deleted.

        A key that changes several times before it is asked for comes once, with its last value: a slow watcher holds
        no more than the keys.  Ends when the table closes.  Raises as `at_least`.
        """
        watch = _Watch()
        self._watches.add(watch)
        return self._changes(watch)

    async def _changes(self, watch: "_Watch") -> AsyncIterator[tuple[str, T | None]]:
        while True:
            while watch.keys:
                key = next(iter(watch.keys))
                del watch.keys[key]
                row = self._rows.by_key.get(key)
                yield key, None if row is None else row.value
            if self._is_closed:
                return
            if self._failure is not None:
                raise self._failure
            await watch.arrived.wait()

    # Sends

    async def put(self, key: str, value: T, *, timeout_s: float | None = None) -> SendResult:
        """Send `value` as the last one of `key`, which holds no blank.

        The table has it soon after; see `at_least`.  Raises as `Producer.send`, and IllegalMessage for a value that
        cannot be encoded, or whose encoded form is empty, which would delete the key.
        """
        try:
            body = self._serializer.encode(value)
        except Exception as error:
            raise IllegalMessage(f"table of {self.topic}: {value!r} cannot be encoded: {error}") from error
        if not body:
            raise IllegalMessage(f"table of {self.topic}: {value!r} has an empty body, which deletes; call delete")
        return await self._send(key, body, timeout_s)

    async def delete(self, key: str, *, timeout_s: float | None = None) -> SendResult:
        """Send the deletion of `key`, whether the table has it or not; return that of the key's queue.

        A key that has moved is deleted in its earlier queues too: else its value from there would be back when brokers
        remove the deletion.  The table knows these queues once it was started.  Raises as `Producer.send`; then some of
        the deletions may have been sent.
        """
        left = self._rows.queues_of(key)
        own: QueueKey | None = None
        if left:
            own = _place(by_sharding_key(await self._instance.publish_route(self.topic, 1), key))
        while True:
            # The key's own queue is the last one: a deletion elsewhere is older than each later put there.
            for queue in left - {own}:
                await self._send(key, b"", timeout_s, self._readers[queue].queue)
            result = await self._send(key, b"", timeout_s)
            sent = _place(result.queue)
            if own is None or own not in left or own == sent:
                return result
            left, own = {own}, sent  # the producer knows more queues than the table

    async def _send(
        self, key: str, body: bytes, timeout_s: float | None, queue: MessageQueue | None = None
    ) -> SendResult:
        if not key:
            raise IllegalMessage(f"table of {self.topic}: the key is empty")
        message = Message(self.topic, body, keys=key)
        sharding_key = key if queue is None else None
        return await self._producer().send(message, queue=queue, sharding_key=sharding_key, timeout_s=timeout_s)


class _Watch:
    """Keys that changed and that a watcher has not got, in order."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        self.arrived = Wakeup()
