"""Recall of a delayed message before its delivery.

Source: RocketMQ 5.3.3, `RecallMessageHandle`, `DefaultMQProducerImpl.recallMessage`, `MQClientAPIImpl.recallMessage`.
"""

import base64
import binascii
from dataclasses import dataclass

from sprocket.client.arguments import check_topic
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import BrokerNotFound, IllegalMessage, refusal
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import RecallMessageRequestHeader
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX

_VERSION = "v1"
_PARTS = 5


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Content of a `SendResult.recall_handle`; `deliver_at_ms` is the time of delivery."""

    topic: str
    broker_name: str
    deliver_at_ms: str
    message_id: str

    @classmethod
    def decode(cls, text: str) -> "RecallHandle":
        """Parse a handle.  Raises IllegalMessage for an invalid one."""
        try:
            parts = base64.b64decode(text.encode(), b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeError):
            parts = []
        if len(parts) < _PARTS or parts[0] != _VERSION:
            raise IllegalMessage(f"{text!r} is no recall handle; pass the recall_handle of a SendResult")
        return cls(*parts[1:_PARTS])


def recallable_topic(handle: RecallHandle) -> str:
    """Return the topic of `handle`.  Raises IllegalMessage for one whose messages cannot be recalled."""
    check_topic(handle.topic)
    if handle.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise IllegalMessage(f"messages of {handle.topic} cannot be recalled")
    return handle.topic


async def recall(instance: ClientInstance, group: str, handle: str, timeout_s: float) -> str:
    """Let the broker of `handle` recall its message.  Return the message's id.

    Raises IllegalMessage, TopicNotFound, NameServerUnreachable, BrokerNotFound, BrokerRefused (too late, or the
    broker does not recall messages), ConnectFailed, ConnectionLost, RemotingTimeout.
    """
    wanted = RecallHandle.decode(handle)
    recallable_topic(wanted)
    if instance.master_address(wanted.broker_name) is None:
        await instance.refresh_route(instance.names.bare(wanted.topic))
    address = instance.master_address(wanted.broker_name)
    if address is None:
        raise BrokerNotFound(wanted.broker_name)
    header = RecallMessageRequestHeader(producer_group=group, topic=wanted.topic, recall_handle=handle)
    response = await instance.remoting.invoke(address, RequestCode.RECALL_MESSAGE, header, timeout_s=timeout_s)
    if response.code != 0:
        raise refusal(response.code, response.remark, address)
    return response.ext_fields.get("msgId", "")
