"""Bodies about popping and about who takes which queue.

Source: RocketMQ 5.3.3, `BatchAckMessageRequestBody`, `BatchAck`, `BitSetSerializerDeserializer`,
`QueryAssignmentRequestBody`, `QueryAssignmentResponseBody`, `MessageQueueAssignment`,
`SetMessageRequestModeRequestBody`.
"""

from typing import Literal

import msgspec

from sprocket.remoting.bodies.client import MessageQueue

RequestMode = Literal["PULL", "POP"]


class BatchAck(msgspec.Struct):
    """Messages of one pop that are acknowledged together; names as they travel."""

    c: str = msgspec.field(default="")  # consumer group
    t: str = msgspec.field(default="")  # topic
    r: str = msgspec.field(default="0")  # 0 the topic itself, 1 its retry topic, 2 its retry topic of the second kind
    so: int = 0  # first offset of the pop
    q: int = 0  # queue id
    rq: int = 0  # revive queue id
    pt: int = 0  # pop time, ms
    it: int = 0  # invisible time, ms
    b: bytes = b""  # bit i: offset so + i is acknowledged; least significant bit first; Base64 on the wire


class BatchAckMessageRequestBody(msgspec.Struct, rename="camel"):
    """BATCH_ACK_MESSAGE."""

    broker_name: str | None = None
    acks: list[BatchAck] = []


class QueryAssignmentRequestBody(msgspec.Struct, rename="camel"):
    """QUERY_ASSIGNMENT."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str | None = None


class MessageQueueAssignment(msgspec.Struct, rename="camel"):
    """One queue that a client must take from, and by which request."""

    message_queue: MessageQueue
    mode: RequestMode = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponseBody(msgspec.Struct, rename="camel"):
    """Answer to QUERY_ASSIGNMENT; None means no result: the client keeps its queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = []


class SetMessageRequestModeRequestBody(msgspec.Struct, rename="camel"):
    """SET_MESSAGE_REQUEST_MODE, and one entry of messageRequestMode.json."""

    topic: str = ""
    consumer_group: str = ""
    mode: RequestMode = "PULL"
    pop_share_queue_num: int = 0
