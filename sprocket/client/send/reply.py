"""Replies of a consumer to a message whose sender waits for a reply.

Source: RocketMQ 5.3.3, `MessageUtil.createReplyMessage`, `MixAll.getReplyTopic`.
"""

from sprocket.client import arguments
from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message, ReceivedMessage
from sprocket.remoting.message import properties as names


class Reply(Message):
    """Message to the one client that waits for it; made by `make_reply`.

    `broker_name` is the broker that the request came from, to which the requester is connected.
    """

    __slots__ = ("broker_name", "protocol_properties")

    def __init__(self, topic: str, body: bytes, protocol_properties: dict[str, str], broker_name: str) -> None:
        super().__init__(topic, body)
        self.protocol_properties = protocol_properties
        self.broker_name = broker_name


def make_reply(received: ReceivedMessage, body: bytes) -> Reply:
    """Return the reply to `received`, to be sent with `Producer.send` or `Consumer.reply`.

    Tags, keys and properties may be set on it.  Raises IllegalMessage when `received` asks for no reply.
    """
    arguments.choice("received", received, ReceivedMessage, "pass the message that a consumer received")
    properties = received.properties
    cluster = properties.get(names.CLUSTER)
    wanted = {name: properties.get(name) for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)}
    present = {name: value for name, value in wanted.items() if value is not None}
    if cluster is None or names.CORRELATION_ID not in present or names.REPLY_TO_CLIENT not in present:
        raise IllegalMessage(
            f"message {received.message_id} asks for no reply: it has not all of {names.CLUSTER}, "
            f"{names.CORRELATION_ID} and {names.REPLY_TO_CLIENT}; send it with `Producer.request`"
        )
    return Reply(f"{cluster}_REPLY_TOPIC", body, {names.MSG_TYPE: "reply"} | present, received.queue.broker_name)
