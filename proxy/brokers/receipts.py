"""Receipt handle of a message as gRPC clients hold it: a broker's handle and the message's place in the log; pure.

Source: RocketMQ 5.3.3, `ReceiptHandle`, `ConsumerProcessor.createHandle`.
"""

from typing import NamedTuple

from proxy.status import Refusal
from sprocket.common.errors import RequestError
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.message.pop_extra_info import PopHandle, parse_handle, real_topic

_PARTS = 8
_LOG_OFFSET_DIGITS = 19
# A batch of acks has one bit for each message between the first and the last.
_MAX_SPAN = 100_000


class Receipt(NamedTuple):
    """Handle of one popped message; `log_offset` is -1 if it is not known.

    The text of a handle does not have the lite topic, empty for none: clients name it beside.
    """

    handle: PopHandle
    log_offset: int = -1
    lite_topic: str = ""

    @property
    def offset(self) -> int:
        """Queue offset of the message."""
        return self.handle.first_offset if self.handle.queue_offset is None else self.handle.queue_offset

    @property
    def visible_at_ms(self) -> int:
        """Time at which the message is redelivered, ms since the epoch."""
        return self.handle.pop_time_ms + self.handle.invisible_ms

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the message may have been redelivered."""
        return self.visible_at_ms <= now_ms

    def encode(self) -> str:
        """Return the text that a client gets."""
        return f"{self.handle.encode()} {self.log_offset}"

    def renewed(self, pop_time_ms: int, invisible_ms: int, revive_queue_id: int) -> "Receipt":
        """Return the receipt after a change of the invisible time."""
        handle = self.handle._replace(
            first_offset=self.offset,
            queue_offset=self.offset,
            pop_time_ms=pop_time_ms,
            invisible_ms=invisible_ms,
            revive_queue_id=revive_queue_id,
        )
        return Receipt(handle, self.log_offset, self.lite_topic)

    def stored_topic(self, topic: str, group: str) -> str:
        """Return the topic in the store.  Raises Refusal."""
        try:
            return real_topic(topic, group, self.handle.retry)
        except RequestError as error:
            raise _malformed(error.remark) from None


def parse_receipt(text: str) -> Receipt:
    """Return the receipt in `text`.  Raises Refusal, with RocketMQ's code for a text that is none."""
    parts = text.split(" ")
    if len(parts) < _PARTS:
        raise _malformed(f"Parse failed, dataList size {len(parts)}")
    try:
        handle = parse_handle(text)
    except RequestError as error:
        raise _malformed(error.remark) from None
    log_offset = -1
    if len(parts) > _PARTS:
        digits = parts[_PARTS]
        if not digits.removeprefix("-").isdecimal() or len(digits) > _LOG_OFFSET_DIGITS:
            raise _malformed(f"the offset in the log is {digits!r:.40}")
        log_offset = int(digits)
    receipt = Receipt(handle, log_offset)
    if handle.queue_offset is None or not 0 <= receipt.offset - handle.first_offset < _MAX_SPAN:
        raise _malformed(f"offset {receipt.offset} is not behind {handle.first_offset}")
    return receipt


def _malformed(remark: str) -> Refusal:
    return Refusal(wire.INTERNAL_SERVER_ERROR, f"{remark}; pass a receipt handle as it was received")
