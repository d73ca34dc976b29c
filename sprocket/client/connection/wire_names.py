"""Names of topics and groups of a client in a namespace: without it in the application, with it on the wire.

Everything in the client has the application's names.  They become whole where a request is written, and lose the
namespace where an answer is read; `sprocket.remoting.message.namespaces` has the rule.
Source: RocketMQ 5.3.3, `ClientConfig.withNamespace`, `NamespaceUtil`.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from sprocket.client.message import ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, MessageQueue, ProducerData, SubscriptionData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.command import Buffer, ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.message.namespaces import with_namespace, without_namespace

S = TypeVar("S", bound=msgspec.Struct)
# Fields of headers and bodies that name a topic or a group.
_FIELDS: Final = frozenset({"topic", "origin_topic", "group", "group_name", "consumer_group", "producer_group"})


@cache
def _name_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.name in _FIELDS)


class WireNames:
    """Names of one client; `namespace` is empty for a client without one, whose names stay as they are."""

    def __init__(self, namespace: str = "") -> None:
        self.namespace = namespace

    def whole(self, name: str) -> str:
        """Return the name on the wire of a topic or group of the application."""
        return with_namespace(self.namespace, name)

    def bare(self, name: str) -> str:
        """Return the application's name of a topic or group on the wire."""
        return without_namespace(self.namespace, name)

    def whole_fields(self, struct: S) -> S:
        """Return a header, or an entry of a body, with whole names in its fields of topics and groups."""
        if not self.namespace:
            return struct
        found = {name: getattr(struct, name) for name in _name_fields(type(struct))}
        changed: dict[str, Any] = {name: self.whole(value) for name, value in found.items() if value}
        return msgspec.structs.replace(struct, **changed)

    def whole_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue under the name of its topic on the wire."""
        return self.whole_fields(queue)

    def bare_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue under the application's name of its topic."""
        return MessageQueue(self.bare(queue.topic), queue.broker_name, queue.queue_id) if self.namespace else queue

    def subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> list[SubscriptionData]:
        """Return subscriptions with whole names."""
        return [self.whole_fields(data) for data in subscriptions]

    def heartbeat(self, data: HeartbeatData) -> HeartbeatData:
        """Return the body of a heartbeat with whole names."""
        if not self.namespace:
            return data
        producers: list[ProducerData] = [self.whole_fields(producer) for producer in data.producer_data_set]
        return msgspec.structs.replace(
            data, producer_data_set=producers, consumer_data_set=[self._consumer(one) for one in data.consumer_data_set]
        )

    def _consumer(self, data: ConsumerData) -> ConsumerData:
        subscribed = self.subscriptions(data.subscription_data_set)
        return msgspec.structs.replace(self.whole_fields(data), subscription_data_set=subscribed)

    def decoded(
        self, data: bytes, queue: MessageQueue, offset_delta: int = 0, from_offset: int = 0
    ) -> list[ReceivedMessage]:
        """Return the messages of records on the wire, as `decode_records`; `queue` has the application's name."""
        whole = self.whole_queue(queue)
        messages = decode_records(data, whole, offset_delta, from_offset)
        if self.namespace:
            for message in messages:
                message.queue = queue
                message.topic = queue.topic if message.topic == whole.topic else self.bare(message.topic)
        return messages


NO_NAMESPACE: Final = WireNames()


class NamingClient(RemotingClient):
    """`RemotingClient` whose requests have whole names in their headers; bodies are the caller's."""

    def __init__(self, names: WireNames, *args: Any, **settings: Any) -> None:
        self._names = names
        super().__init__(*args, **settings)

    async def invoke(
        self, address: str, code: int, header: Header | None = None, body: Buffer = b"", *, timeout_s: float = 3.0
    ) -> ReceivedResponse:
        """Send a request and wait for its response, as `RemotingClient.invoke`."""
        whole = None if header is None else self._names.whole_fields(header)
        return await super().invoke(address, code, whole, body, timeout_s=timeout_s)

    async def notify(self, address: str, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a oneway request, as `RemotingClient.notify`."""
        whole = None if header is None else self._names.whole_fields(header)
        await super().notify(address, code, whole, body)
