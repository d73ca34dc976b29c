"""Topics as brokers describe them.

Source: RocketMQ 5.3.3, `TopicConfig`, `DataVersion`, `TopicConfigSerializeWrapper`, `PermName`, `TopicFilterType`.
"""

import msgspec

from sprocket.common.errors import ProtocolError
from sprocket.remoting.codec.fastjson import dumps, loads

PERM_PRIORITY = 0x8
PERM_READ = 0x4
PERM_WRITE = 0x2
PERM_INHERIT = 0x1
# Attribute of topics: the type of the messages.
MESSAGE_TYPE = "message.type"
# Attribute of a topic: the number of queues that sharding keys choose from.  0 while the topic grows: messages with a
# key wait.  Not in RocketMQ.
SHARDING_QUEUES = "sharding.queues"

_SEPARATOR = " "


class DataVersion(msgspec.Struct, rename="camel"):
    """Version of a table, to compare two copies; `counter` grows by one with every change."""

    state_version: int = 0
    timestamp: int = 0  # ms, of the last change
    counter: int = 0

    def next(self, now_ms: int) -> None:
        """Record one more change at `now_ms`."""
        self.timestamp = now_ms
        self.counter += 1


class TopicConfig(msgspec.Struct, rename="camel"):
    """One topic on one broker."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    def encode(self) -> str:
        """Return the one-line form inside a compressed REGISTER_BROKER body."""
        fields = [
            self.topic_name,
            str(self.read_queue_nums),
            str(self.write_queue_nums),
            str(self.perm),
            self.topic_filter_type,
        ]
        if self.attributes:
            fields.append(dumps(self.attributes).decode())
        return _SEPARATOR.join(fields)

    @classmethod
    def decode(cls, line: str) -> "TopicConfig":
        """Return the opposite of `encode`.  Raises ProtocolError."""
        fields = line.split(_SEPARATOR, 5)
        try:
            name, read, write, perm, filter_type = fields[:5]
            config = cls(name, int(read), int(write), int(perm), filter_type)
        except ValueError:
            raise ProtocolError("body", f"topic line {line[:100]!r}") from None
        if len(fields) > 5 and fields[5].startswith("{"):
            config.attributes = loads(fields[5].encode(), dict[str, str])
        return config


class TopicConfigTable(msgspec.Struct, rename="camel"):
    """Answer to GET_ALL_TOPIC_CONFIG, and the content of topics.json."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class CreateTopicListRequestBody(msgspec.Struct, rename="camel"):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST; the attributes are changes: ``+name`` and ``-name``."""

    topic_config_list: list[TopicConfig] = []


class TopicList(msgspec.Struct, rename="camel"):
    """Names of topics."""

    topic_list: list[str] = []
    broker_addr: str | None = None
