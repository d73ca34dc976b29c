"""Traces of one client: what its sends, deliveries and transactions record.

Source: RocketMQ 5.3.3, `SendMessageTraceHookImpl`, `ConsumeMessageTraceHookImpl`, `EndTransactionTraceHookImpl`,
`DefaultRecallMessageTraceHook`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.errors import IllegalArgument
from sprocket.client.message import Message
from sprocket.client.send.send_request import SendRequest, SendSettings, single_request
from sprocket.client.send.sender import Sender
from sprocket.client.send_result import SendResult, SendStatus
from sprocket.client.trace.encoding import DEFAULT_REGION, MessageType, TraceKind, TraceRecord
from sprocket.client.trace.recorder import TraceRecorder, TraceSettings
from sprocket.remoting.message import properties as names

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from sprocket.client.trace.meters import Meters
    from sprocket.client.trace.spans import Spans

# `TraceConstants.GROUP_NAME_PREFIX`
_GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
_SEND_S: Final = 5.0
_FAILED: Final = 4
_MAX_TAKEN: Final = 100_000
_DELAYS: Final = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")


class Delivered(Protocol):
    """A message that a consumer gave to the application."""

    @property
    def topic(self) -> str: ...

    @property
    def message_id(self) -> str: ...

    @property
    def properties(self) -> dict[str, str]: ...

    @property
    def reconsume_times(self) -> int: ...


class SendInWork(NamedTuple):
    """A send that a span or a metric follows."""

    topic: str
    since_s: float
    span: "Span | None"


class Tracing:
    """Traces of one client of `group`.  All methods but `start` and `close` return at once."""

    def __init__(self, settings: TraceSettings, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._send_settings = SendSettings(send_msg_timeout_s=_SEND_S)
        self._sender = Sender(instance, f"{_GROUP_PREFIX}-{group}", self._send_settings)
        self._recorder = TraceRecorder(settings, self._send)
        self._is_started = False
        self._topic = settings.topic
        # By identity of the message: its id, request id, time of its delivery ms.  The oldest is forgotten first.
        self._taken: dict[int, tuple[str, str, int]] = {}
        self.spans = _new_spans(group) if settings.spans else None
        self._meters = _new_meters(group) if settings.metrics else None
        self._monotonic = instance.clock.monotonic

    def start(self) -> None:
        """Send traces in the background from now on; a second call does nothing."""
        if not self._is_started:
            self._is_started = True
            self._instance.spawn(self._recorder.run())

    def _add(self, record: TraceRecord) -> None:
        self.start()  # nobody starts a producer of a connection
        self._recorder.add(record)

    async def close(self) -> None:
        """Send what is left; the connections are still open."""
        await self._recorder.close()

    async def _send(self, message: Message) -> SendResult:
        request = single_request(message, self._send_settings, self._instance.identity.new_unique_id)
        return await self._sender.send(request)

    # Producers

    @property
    def follows_sends(self) -> bool:
        """Whether each send has a span or a metric, so that `sending` and `send_ended` are to be called."""
        return self.spans is not None or self._meters is not None

    def sending(self, request: SendRequest) -> "SendInWork":
        """Begin to follow a send; its span's context goes into the properties of `request`."""
        span: Span | None = None
        if self.spans is not None:
            span, properties = self.spans.sending(request.topic, request.message_id)
            request.properties += properties
        return SendInWork(request.topic, self._monotonic(), span)

    def send_ended(self, send: "SendInWork", error: BaseException | None) -> None:
        """Record the end of a send."""
        if self.spans is not None and send.span is not None:
            self.spans.sent(send.span, error)
        if self._meters is not None and error is not None:
            self._meters.not_sent(send.topic, self._monotonic() - send.since_s, error)

    def sent(self, request: SendRequest, result: SendResult, fields: Mapping[str, str], seconds: float) -> None:
        """Record a send whose response has the fields `fields`; no trace if the broker wants none."""
        if self._meters is not None:
            self._meters.sent(request.topic, request.message_id.count(",") + 1, seconds)
        if request.topic == self._topic or fields.get(names.TRACE_ON) == "false":
            return
        cost_ms = round(seconds * 1000)
        sent_ms = self._instance.clock.wall_ms() - cost_ms
        properties: dict[str, str] | None = None
        for message_id in request.message_id.split(","):  # a batch has several
            if not self._recorder.is_sampled(message_id):
                continue
            properties = names.parse(request.properties) if properties is None else properties
            self._add(
                TraceRecord(
                    kind=TraceKind.PUB,
                    message_id=message_id,
                    time_ms=sent_ms,
                    group=self._group,
                    region=fields.get(names.MSG_REGION, DEFAULT_REGION),
                    topic=request.topic,
                    tags=properties.get(names.TAGS, ""),
                    keys=properties.get(names.KEYS, ""),
                    store_host=self._instance.master_address(self._instance.broker_name_of(result.queue)) or "",
                    body_bytes=len(request.body),
                    cost_ms=cost_ms,
                    message_type=_type_of(properties),
                    offset_message_id=result.offset_message_id,
                    is_success=result.status is SendStatus.SEND_OK,
                )
            )

    def ended_transaction(
        self, topic: str, message_id: str, transaction_id: str | None, state: str, address: str, *, is_check: bool
    ) -> None:
        """Record the end of a transaction; `state` is RocketMQ's name."""
        if self._recorder.is_sampled(message_id):
            self._add(
                TraceRecord(
                    kind=TraceKind.END_TRANSACTION,
                    message_id=message_id,
                    time_ms=self._instance.clock.wall_ms(),
                    group=self._group,
                    topic=topic,
                    store_host=address,
                    message_type=MessageType.COMMIT,
                    transaction_id=transaction_id or "",
                    transaction_state=state,
                    is_from_check=is_check,
                )
            )

    def recalled(self, topic: str, message_id: str) -> None:
        """Record the recall of a delayed message."""
        if self._recorder.is_sampled(message_id):
            now_ms = self._instance.clock.wall_ms()
            self._add(
                TraceRecord(
                    kind=TraceKind.RECALL, message_id=message_id, time_ms=now_ms, group=self._group, topic=topic
                )
            )

    # Consumers

    def taken(self, messages: Sequence[Delivered]) -> None:
        """Record that the application gets messages."""
        now_ms = self._instance.clock.wall_ms()
        for message in messages:
            properties = message.properties
            if self.spans is not None:
                self.spans.taken(message)
            if self._meters is not None:
                self._meters.taken(message.topic, id(message), self._monotonic())
            if (
                message.topic == self._topic
                or properties.get(names.TRACE_ON) == "false"
                or not self._recorder.is_sampled(message.message_id)
            ):
                continue
            if len(self._taken) >= _MAX_TAKEN:
                del self._taken[next(iter(self._taken))]
            request_id = self._instance.identity.new_unique_id()
            self._taken[id(message)] = message.message_id, request_id, now_ms
            self._add(
                TraceRecord(
                    kind=TraceKind.SUB_BEFORE,
                    message_id=message.message_id,
                    time_ms=now_ms,
                    group=self._group,
                    region=properties.get(names.MSG_REGION, DEFAULT_REGION),
                    request_id=request_id,
                    retry_times=message.reconsume_times,
                    keys=properties.get(names.KEYS, ""),
                )
            )

    def finished(self, message: Delivered, *, is_success: bool) -> None:
        """Record that the application has acknowledged or rejected a message."""
        if self.spans is not None:
            self.spans.finished(message, is_success=is_success)
        if self._meters is not None:
            self._meters.finished(message.topic, id(message), self._monotonic(), is_success=is_success)
        taken = self._taken.pop(id(message), None)
        if taken is None or taken[0] != message.message_id:
            return
        _, request_id, taken_ms = taken
        now_ms = self._instance.clock.wall_ms()
        self._add(
            TraceRecord(
                kind=TraceKind.SUB_AFTER,
                message_id=message.message_id,
                time_ms=now_ms,
                group=self._group,
                request_id=request_id,
                cost_ms=max(0, now_ms - taken_ms),
                is_success=is_success,
                keys=message.properties.get(names.KEYS, ""),
                context_code=0 if is_success else _FAILED,
            )
        )

    def around(self, handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a handler that runs within the span of its message, if spans are made."""
        return handler if self.spans is None else self.spans.around(handler)


def _type_of(properties: Mapping[str, str]) -> MessageType:
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return MessageType.HALF
    return MessageType.DELAY if any(name in properties for name in _DELAYS) else MessageType.NORMAL


def new_tracing(settings: TraceSettings | None, instance: ClientInstance, group: str) -> Tracing | None:
    """Return the traces of a client; None if it records none.  Raises IllegalArgument."""
    arguments.optional("trace", settings, TraceSettings)
    return None if settings is None else Tracing(settings, instance, group)


def _new_spans(group: str) -> "Spans":
    """Raises IllegalArgument without opentelemetry-api."""
    try:
        from sprocket.client.trace.spans import Spans
    except ImportError as error:
        raise IllegalArgument(f"spans is True and {error}; run `pip install opentelemetry-api`") from None
    return Spans(group)


def _new_meters(group: str) -> "Meters":
    """Raises IllegalArgument without opentelemetry-api."""
    try:
        from sprocket.client.trace.meters import Meters
    except ImportError as error:
        raise IllegalArgument(f"metrics is True and {error}; run `pip install opentelemetry-api`") from None
    return Meters(group)
