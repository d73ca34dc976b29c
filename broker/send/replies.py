"""Encoder of responses to sends, and what all records and responses of sends have in common.

Source: RocketMQ 5.3.3, `SendMessageProcessor.preSend`, `handlePutMessageResult`.
"""

from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from sprocket.common.errors import DiskFailed, ReplicasNotEnough, RequestError, SprocketError, StoreBusy, StoreError
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import FLAG_ONEWAY, Request, Response
from sprocket.remoting.frames import ResponseTemplate, encode_response
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.send import DUPLICATES_FIELD, SendMessageResponseHeader
from sprocket.remoting.message.properties import MSG_REGION, TRACE_ON
from sprocket.remoting.refusals import Refusal

# A plain number, because a lookup of an enum member takes longer than a comparison.
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_NOTHING: Final[dict[str, str]] = {}

# (request, queue id, unique key, recall handle).  The key is as the producer sent it and may hold any bytes.  The
# broker makes the handle, so it needs no escaping; it is empty for a message that cannot be recalled.
Sent = tuple[Request[Any], int, bytes, bytes]
# (queue offset, physical offset, size in bytes)
Appended = tuple[int, int, int]


class SendReplies:
    """Encoder of one broker's responses; replaced when the broker's address, region or trace switch changes."""

    def __init__(self, store_host: bytes, region_id: str, trace_on: bool) -> None:
        self._store_host = store_host
        self.constants = {MSG_REGION: region_id, TRACE_ON: "true" if trace_on else "false"}
        self.host_hex = store_host.hex().upper()
        # By code and by whether the response has a recall handle.
        self._templates: dict[tuple[int, bool], ResponseTemplate] = {}

    def encoders(self, code: int) -> tuple[Any, Any]:
        """Return the compiled encoders of responses without and with a recall handle."""
        return self._template(code).encoder, self._template(code, has_handle=True).encoder

    def _template(self, code: int, *, has_handle: bool = False) -> ResponseTemplate:
        """Return the template of responses: message id, queue, queue offset, unique key, and the recall handle."""
        template = self._templates.get((code, has_handle))
        if template is None:
            formats = {"msgId": f"{self.host_hex}%016X", "queueId": "%d", "queueOffset": "%d", "transactionId": "%b"}
            if has_handle:
                formats["recallHandle"] = "%b"
            template = self._templates[code, has_handle] = ResponseTemplate(code, formats, self.constants)
        return template

    def frames(self, sent: list[Sent], appended: list[Appended], code: int = _SUCCESS) -> bytes:
        """Encode the responses to those of `sent` that still need one; `appended` has the position of each message."""
        template = self._template(code)
        pieces: list[bytes] = []
        for (request, queue_id, unique_key, handle), (queue_offset, physical_offset, _) in zip(
            sent, appended, strict=True
        ):
            if request.is_answered or request.flag & FLAG_ONEWAY:
                continue
            if not unique_key.isalnum():
                # The templates escape nothing.  Also, a key of fewer than 32 digits ends before the slice does.
                key = unique_key.partition(b"\x02")[0].decode()
                ids = self.ids([physical_offset])
                pieces += self._slow(request, code, queue_id, key, queue_offset, ids, handle=handle.decode())
            elif handle:
                timed = (physical_offset, queue_id, queue_offset, unique_key, handle)
                template_of_timed = self._template(code, has_handle=True)
                pieces.append(template_of_timed.frame(request.serialization, request.opaque, timed))
            else:
                short = (physical_offset, queue_id, queue_offset, unique_key)
                pieces.append(template.frame(request.serialization, request.opaque, short))
        return b"".join(pieces)

    def batch_frame(
        self,
        request: Request[Any],
        code: int,
        queue_id: int,
        unique_key: str,
        queue_offset: int,
        ids: str,
        *,
        kept_as_one: bool,
    ) -> bytes:
        """Return the response to a batch: the `ids` of all its records, and the queue offset of the first message."""
        return b"".join(self._slow(request, code, queue_id, unique_key, queue_offset, ids, kept_as_one))

    def ids(self, physical_offsets: list[int]) -> str:
        """Return the ids of messages in one text: one formatting operation for all, because they may be thousands."""
        return ",".join([f"{self.host_hex}%016X"] * len(physical_offsets)) % tuple(physical_offsets)

    def idempotent_frame(
        self,
        request: Request[Any],
        code: int,
        queue_id: int,
        unique_key: str,
        queue_offset: int,
        physical_offsets: list[int],
        duplicates: int,
        handle: str,
    ) -> bytes:
        """Return the response to messages with an id, as `batch_frame`; the broker already had `duplicates` of them."""
        more = {DUPLICATES_FIELD: str(duplicates)}
        ids = self.ids(physical_offsets)
        pieces = self._slow(request, code, queue_id, unique_key, queue_offset, ids, handle=handle, more=more)
        return b"".join(pieces)

    def _slow(
        self,
        request: Request[Any],
        code: int,
        queue_id: int,
        key: str,
        queue_offset: int,
        ids: str,
        kept_as_one: bool = False,
        handle: str = "",
        more: dict[str, str] = _NOTHING,
    ) -> list[bytes]:
        header = SendMessageResponseHeader(
            msg_id=ids, queue_id=queue_id, queue_offset=queue_offset, transaction_id=key or None,
            batch_uniq_id=key if kept_as_one else None, recall_handle=handle or None,
        )  # fmt: skip
        response = Response(code, header=to_ext_fields(header) | self.constants | more)
        return [bytes(piece) for piece in encode_response(response, request.opaque, request.serialization)]

    def refusal(self, error: SprocketError) -> Refusal:
        """Return the response to a send that was refused with `error`, under RocketMQ's codes and remarks."""
        code, remark = error.response_code, str(error)
        if isinstance(error, RequestError):
            code = error.code
        elif isinstance(error, DiskFailed):
            code, remark = ResponseCode.SYSTEM_ERROR, f"the broker's disk failed: {error}"
        elif isinstance(error, StoreBusy) and not isinstance(error, ReplicasNotEnough):
            remark = f"broker busy: {error}"
        elif isinstance(error, StoreError) and not isinstance(error, ReplicasNotEnough):
            code, remark = ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {error}"
        fields = error.fields if isinstance(error, RequestError) and error.fields else _NOTHING
        return Refusal(code, remark, {**self.constants, **fields}, reason=error.refusal_reason)


class SendForm:
    """Responses, and the properties that the broker adds to each message, for one configuration and address.

    `is_for_kernel`: the properties have no character that would make a kernel leave all messages to the handler.
    """

    __slots__ = ("is_for_kernel", "is_lasting", "replies", "suffix")

    def __init__(self, broker: BrokerConfig, store_host: bytes) -> None:
        self.replies = SendReplies(store_host, broker.region_id, broker.trace_on)
        trace_on = "true" if broker.trace_on else "false"
        self.suffix = (
            f"MSG_REGION\x01{broker.region_id}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01{broker.broker_cluster_name}\x02"
        ).encode()
        self.is_for_kernel = self.suffix.isascii() and b"#" not in self.suffix
        self.is_lasting = True
