"""A message that an acting slave sends to another master, in the form in which its producer would have sent it.

Source: RocketMQ 5.3.3, `EscapeBridge.putMessageToRemoteBroker`,
`TransactionalMessageUtil.buildTransactionalMessageFromHalfMessage`, `BrokerOuterAPI.buildSendMessageRequestHeaderV2`.
"""

from typing import Final

from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import ANY_V6, SysFlag
from sprocket.remoting.message.topic_names import AUTO_CREATE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from store.record.record import PendingMessage

_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
# The receiver sets the flags of host addresses and of its batch form itself.
_OWN_FLAGS: Final = ANY_V6
_DEFAULT_QUEUES: Final = 8
# Responses of a master that has stored the message.
STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class EscapedMessage:
    """One message with its real topic and queue."""

    __slots__ = ("body", "message", "properties", "queue_id", "topic")

    def __init__(self, message: PendingMessage) -> None:
        self.message = message
        self.body = bytes(message.body)  # a copy: the message may wait for longer than the log keeps it
        properties = self.properties = names.parse_for_copy(bytes(message.properties))
        # The other master computes its own.
        properties.pop("__CRC32#", None)
        self.topic, self.queue_id = message.topic, message.queue_id
        if message.topic in (TIMER_TOPIC, TRANS_HALF_TOPIC):
            self.topic = properties.get(names.REAL_TOPIC, "")
            queue_id = properties.get(names.REAL_QUEUE_ID, "")
            self.queue_id = int(queue_id) if queue_id.isdigit() and len(queue_id) < 10 else 0
        if message.topic == TIMER_TOPIC:
            self._restore_timer()
        elif message.topic == TRANS_HALF_TOPIC:
            properties[names.TRANSACTION_PREPARED] = "true"
            properties.pop(names.TRANSACTION_PREPARED_QUEUE_OFFSET, None)
        else:
            # The message is due: it must not be delayed again.
            properties.pop(names.DELAY, None)
            return
        properties.pop(names.REAL_TOPIC, None)
        properties.pop(names.REAL_QUEUE_ID, None)

    def _restore_timer(self) -> None:
        """Let the other master's timer wheel take the message for its original time, which has not come."""
        properties = self.properties
        out_ms = properties.pop(names.TIMER_OUT_MS, "0")
        delays = [properties.pop(name, None) for name in (names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC)]
        if any(delays) or names.TIMER_DELIVER_MS not in properties:
            # A delay would count from now.  The slot of the message begins 1 ms before its time.
            properties[names.TIMER_DELIVER_MS] = str(int(out_ms) + 1)

    @property
    def is_prepared(self) -> bool:
        """Whether the message is a half message."""
        return self.message.topic == TRANS_HALF_TOPIC

    def header(self, queue_id: int, own_group: str, broker_name: str) -> SendMessageRequestHeaderV2:
        """Return the header of a SEND_MESSAGE_V2 to queue `queue_id` of broker `broker_name`."""
        message = self.message
        sys_flag = message.sys_flag & ~_OWN_FLAGS & ~_TRANSACTION_MASK
        return SendMessageRequestHeaderV2(
            producer_group=self.properties.get(names.PRODUCER_GROUP) or own_group,
            topic=self.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES,
            queue_id=queue_id,
            sys_flag=sys_flag | _PREPARED if self.is_prepared else sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=names.encode(self.properties),
            reconsume_times=message.reconsume_times,
            unit_mode=False,
            batch=False,
            broker_name=broker_name,
        )
