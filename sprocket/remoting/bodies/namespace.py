"""Bodies of requests about namespaces.  Not in RocketMQ."""

import msgspec

from sprocket.remoting.bodies.topic import DataVersion


class NamespacePolicy(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What one namespace, ``shop|orders``, may have; 0 is no limit, and so is an empty `message_types`.

    `max_queues` bounds each topic.  `message_types` are those of `MessageType`, for topics and for messages.
    `retention_hours` and `retention_bytes` (of each queue) bound what consumers may read of its topics, together with
    the attributes of a topic.  A topic that is created by its first send has `topic_queues` queues, and each new topic
    the `topic_attributes` that it is not given.
    """

    name: str
    max_topics: int = 0
    max_queues: int = 0
    max_groups: int = 0
    max_connections: int = 0
    max_message_bytes: int = 0
    message_types: tuple[str, ...] = ()
    retention_hours: int = 0
    retention_bytes: int = 0
    topic_queues: int = 0
    topic_attributes: dict[str, str] = {}


class NamespaceTableBody(msgspec.Struct, rename="camel"):
    """Content of namespaces.json."""

    namespace_table: dict[str, NamespacePolicy] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class NamespaceUse(msgspec.Struct, rename="camel"):
    """What a namespace has at a broker; `policy` is None if nothing is set for it."""

    name: str
    topics: int = 0
    groups: int = 0
    connections: int = 0
    policy: NamespacePolicy | None = None


class NamespaceUsesBody(msgspec.Struct, rename="camel"):
    """Body of the response to GET_NAMESPACES."""

    uses: list[NamespaceUse] = []
