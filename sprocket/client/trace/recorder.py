"""Recorder of traces: collects records and sends them in the background; it never makes a caller wait.

Source: RocketMQ 5.3.3, `AsyncTraceDispatcher`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from sprocket.client import arguments
from sprocket.client.connection.wakeup import Wakeup
from sprocket.client.errors import ClientError, IllegalArgument
from sprocket.client.message import Message
from sprocket.client.trace.encoding import TraceRecord, encode, keys_of
from sprocket.common.errors import SprocketError
from sprocket.remoting.message.topic_names import TRACE_TOPIC

logger = logging.getLogger(__name__)

_MAX_WAITING: Final = 2048
_BATCH: Final = 20
_MAX_BODY_CHARS: Final = 128_000
_FLUSH_S: Final = 5.0
_CLOSE_S: Final = 5.0
_SAMPLE_STEPS: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TraceSettings:
    """Settings of message traces.

    `topic` is where the traces go: the brokers' trace topic (traceTopicEnable), or a topic of your own.  `sample` is
    the share of messages that are traced, 0 to 1; producers and consumers with one share choose the same messages.
    With `spans`, spans of OpenTelemetry are made, too, and with `metrics` metrics; both need the package
    opentelemetry-api.
    """

    topic: str = TRACE_TOPIC
    sample: float = 1.0
    spans: bool = False
    metrics: bool = False

    def __post_init__(self) -> None:
        """Raises IllegalArgument."""
        arguments.check(self, _CHECKS)


def _share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, float | int) or not 0 <= value <= 1:
        raise IllegalArgument(f"{name} is {value!r}; pass a number from 0 to 1")


_CHECKS: Final[dict[str, Callable[[str, object], object]]] = {
    "topic": lambda _, value: arguments.check_topic(value),
    "sample": _share,
    "spans": arguments.switch,
    "metrics": arguments.switch,
}

# Sends one message; raises ClientError.
Send = Callable[[Message], Awaitable[object]]


class TraceRecorder:
    """Records that wait for their send, at most 2048; more are dropped and counted in the log.

    `send` is a send that is not traced itself.
    """

    def __init__(self, settings: TraceSettings, send: Send) -> None:
        self._topic = settings.topic
        self._limit = round(settings.sample * _SAMPLE_STEPS)
        self._send = send
        self._waiting: deque[TraceRecord] = deque()
        self._due = Wakeup()
        self._dropped = 0
        self._failures = 0

    def is_sampled(self, message_id: str) -> bool:
        """Return whether a message is traced; the same at all clients with the same share."""
        return crc32(message_id.encode()) % _SAMPLE_STEPS < self._limit

    def add(self, record: TraceRecord) -> None:
        """Record, or drop if too many records wait.  Never waits."""
        if len(self._waiting) >= _MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(record)
        if len(self._waiting) >= _BATCH:
            self._due.set()

    async def run(self) -> None:
        """Send what is recorded, every 5 s or when 20 records wait.  Never returns."""
        while True:
            await self._due.wait(_FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Send all records that wait now.  Traces that cannot be sent are lost; the log says so once."""
        while self._waiting:
            text, keys = "", dict[str, None]()
            count = 0
            while self._waiting and count < _BATCH and len(text) < _MAX_BODY_CHARS:
                record = self._waiting.popleft()
                text += encode(record)
                keys |= dict.fromkeys(keys_of(record))
                count += 1
            try:
                await self._send(Message(self._topic, text.encode("utf-8", "replace"), keys=list(keys)))
            except SprocketError as error:
                self._failed(count, error)
            else:
                if self._failures:
                    logger.info("event=traces_sent_again topic=%s", self._topic)
                    self._failures = 0
        if self._dropped:
            logger.warning("event=traces_dropped topic=%s count=%d", self._topic, self._dropped)
            self._dropped = 0

    def _failed(self, count: int, error: SprocketError) -> None:
        if not self._failures:
            logger.warning("event=traces_not_sent topic=%s count=%d reason=%r", self._topic, count, str(error))
        self._failures += 1

    async def close(self) -> None:
        """Send what is left, within 5 s."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self.flush()
        except (TimeoutError, ClientError):
            logger.warning("event=traces_not_sent topic=%s count=%d reason=closing", self._topic, len(self._waiting))
