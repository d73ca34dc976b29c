"""Messages of lite topics from a pop's response.

Source: RocketMQ 5.5.1, `MQClientAPIImpl.processPopLiteResponse`, `ExtraInfoUtil.parseLiteOrderCountInfo`.
"""

from sprocket.client.message import ReceivedMessage
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.pull.record_decoder import decode_records
from sprocket.client.settlement import Settlement
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.headers.lite import PopLiteMessageResponseHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.lite_topics import lite_queue
from sprocket.remoting.message.pop_extra_info import NORMAL, PopHandle


def lite_popped_messages(
    body: bytes,
    header: PopLiteMessageResponseHeader,
    topic: str,
    broker_name: str,
    now: float,
    consumer: Settlement | None = None,
) -> list[PoppedMessage]:
    """Return the messages of a pop's answer that was asked for at `now` (monotonic s).  Raises ProtocolError.

    Offsets are those in the light queue of each message.  RocketMQ's client gives a message without such an offset no
    handle, so that nobody can acknowledge it.
    """
    messages = decode_records(body, MessageQueue(topic, broker_name, 0))
    counts = _counts(header.order_count_info, len(messages))
    visible_at = now + header.invisible_time / 1000
    popped = []
    for message, count in zip(messages, counts, strict=True):
        message.queue_offset = offset = _offset(message, topic)
        message.reconsume_times = count
        handle = PopHandle(0, header.pop_time, header.invisible_time, header.revive_qid, NORMAL, broker_name, 0, offset)
        popped.append(PoppedMessage(message, topic, handle, visible_at, consumer))
    return popped


def _offset(message: ReceivedMessage, topic: str) -> int:
    """Return the offset in the queue of the message's lite topic."""
    properties = message.properties
    queue = lite_queue(topic, properties.get(names.LITE_TOPIC, ""))
    queues = properties.get(names.INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(names.INNER_MULTI_QUEUE_OFFSET, "").split(",")
    try:
        return int(offsets[queues.index(queue)])
    except (ValueError, IndexError):
        raise ProtocolError("record", f"a message of {topic} has no offset in {queue!r:.200}") from None


def _counts(text: str | None, messages: int) -> list[int]:
    """Return the deliveries before this one of each message: a number, or the last of ``queue offset number``."""
    parts = (text or "").split(";")
    if len(parts) != messages:
        return [0] * messages
    return [_count(part) for part in parts]


def _count(text: str) -> int:
    number = text.rpartition(" ")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
