"""Messages with the figures of their records that consumers do not keep.  Tools for operators print them.

Source: RocketMQ 5.3.3, `MessageDecoder.decode`, `MessageDecoder.decodeMessage`, `PullAPIWrapper.processPullResult`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common.errors import ProtocolError
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import (
    BODY_CRC_AT,
    MIN_RECORD_BYTES,
    QUEUE_ID_AT,
    SYS_FLAG_AT,
    SysFlag,
    prepared_offset_at,
)

_COMPRESSED = int(SysFlag.COMPRESSED)
_INNER = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message, and the figures of its record.

    A message inside a batch that a broker stored as one record has no record of its own: like RocketMQ's client, it
    has no offset message id, and its other figures are 0.
    """

    message: ReceivedMessage
    offset_message_id: str | None
    sys_flag: int  # without the bit for a compressed body, as RocketMQ's client shows it
    size_bytes: int
    body_crc: int
    reconsume_times: int
    prepared_transaction_offset: int
    # Range of the queue's offsets when the message was pulled.
    min_offset: int
    max_offset: int

    @property
    def properties(self) -> Mapping[str, str]:
        """The message's properties, and the range of its queue as RocketMQ's client adds it."""
        return {
            **self.message.properties,
            names.MIN_OFFSET: str(self.min_offset),
            names.MAX_OFFSET: str(self.max_offset),
        }

    @property
    def transaction_id(self) -> str | None:
        """Id of the transaction that sent the message, None for a message without one."""
        properties = self.message.properties
        if properties.get(names.TRANSACTION_PREPARED, "").lower() != "true":
            return None
        return properties.get(names.UNIQ_KEY)


def stored_messages(record: bytes, queue: MessageQueue, header: PullMessageResponseHeader) -> Iterator[StoredMessage]:
    """Yield the messages of one record of a pull whose response has `header`.

    Raises ProtocolError if the record is not whole.
    """
    min_offset, max_offset = header.min_offset, header.max_offset
    sys_flag = _int32(record, SYS_FLAG_AT)
    is_batch = sys_flag & _INNER == _INNER
    shown_flag = sys_flag & ~_COMPRESSED
    for message in decode_records(record, queue, header.offset_delta or 0):
        if is_batch:
            yield StoredMessage(message, None, shown_flag, 0, 0, 0, 0, min_offset, max_offset)
            continue
        prepared_at = prepared_offset_at(sys_flag)
        yield StoredMessage(
            message,
            message.offset_message_id,
            shown_flag,
            message.size_bytes,
            _int32(record, BODY_CRC_AT),
            message.reconsume_times,
            int.from_bytes(record[prepared_at : prepared_at + 8], "big", signed=True),
            min_offset,
            max_offset,
        )


def records(body: bytes, topic: str, broker_name: str) -> Iterator[tuple[bytes, MessageQueue]]:
    """Yield each of adjacent records of any queues, and its queue.  Raises ProtocolError for other bytes."""
    at = 0
    while at < len(body):
        size = _int32(body, at)
        if size < MIN_RECORD_BYTES:
            raise ProtocolError("record", f"size {size} at byte {at}")
        queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=_int32(body, at + QUEUE_ID_AT))
        yield body[at : at + size], queue
        at += size


def _int32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big", signed=True)
