"""Send of all flights, with the kill of a broker half way; the producer recovers without help."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from examples.demo.flights import Flight, messages
from examples.demo.settings import POLL_NAME_SERVER_S
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send_result import SendStatus
from sprocket.common.clock import Clock

_WINDOW: Final = 512
# The last tenth of the messages, at least _MIN_HELD_BACK, waits for the killed broker: so its recovery is seen on slow
# machines, too.  They are sent slowly meanwhile, because the producer finds the broker by sending.
_HELD_BACK: Final = 0.1
_MIN_HELD_BACK: Final = 1000
_TRICKLE_S: Final = 0.005
_RECOVERY_LIMIT_S: Final = 120.0
# Long enough for a send to survive a stall of a busy machine.
_SEND_LIMIT_S: Final = 20.0


@dataclass
class Sent:
    """Outcome of the sends.  Times are readings of the monotonic clock, s."""

    acknowledged: list[str] = field(default_factory=list)  # keys, in order
    not_ok: int = 0
    began: float = 0.0
    ended: float = 0.0
    killed: float | None = None
    killed_wall_ms: int = 0
    killed_at: int = 0  # index of the first message after the kill
    recovered: float | None = None

    @property
    def recovery_s(self) -> float | None:
        """Seconds from the kill to the next acknowledged send to that broker; None if there was none."""
        return self.recovered - self.killed if self.recovered is not None and self.killed is not None else None

    @property
    def rate(self) -> float:
        """Acknowledged sends per second while both brokers ran: from the first message to the kill."""
        until = self.killed if self.killed is not None else self.ended
        count = self.killed_at if self.killed is not None else len(self.acknowledged)
        return count / max(until - self.began, 1e-9)


class Sending:
    """Sender of `flights` through one producer; `crash` kills and restarts the broker named `victim`."""

    def __init__(self, flights: list[Flight], clock: Clock, victim: str, crash: Callable[[], None]) -> None:
        self._flights = flights
        self._clock = clock
        self._victim = victim
        self._crash = crash
        self._half = len(flights) // 2
        self._held_back = min(len(flights) - self._half, max(_MIN_HELD_BACK, int(len(flights) * _HELD_BACK)))
        self.sent = Sent()

    async def run(self, namesrv: str, progress: Callable[[int], None]) -> Sent:
        """Send all flights; call `progress` with the number of acknowledged ones.

        Raises ClientError if a message could not be sent to any broker.
        """
        sent = self.sent
        settings = ClientSettings(namesrv=namesrv, poll_name_server_interval_s=POLL_NAME_SERVER_S)
        # Fault avoidance, off by default in RocketMQ, too, would avoid the restarted broker for 10 s longer.
        send = SendSettings(retry_times_when_send_failed=5, send_msg_timeout_s=_SEND_LIMIT_S, send_latency_enable=False)
        async with Producer("flight-senders", settings=send, client=settings) as producer:
            sent.began = self._clock.monotonic()
            async for result in producer.send_many(self._source(), window=_WINDOW):
                index = len(sent.acknowledged)
                sent.acknowledged.append(self._flights[index].id)
                if result.status is not SendStatus.SEND_OK:
                    sent.not_ok += 1
                if result.queue.broker_name == self._victim and self._is_after_kill(index):
                    sent.recovered = sent.recovered or self._clock.monotonic()
                if not index % 256:
                    progress(index)
            sent.ended = self._clock.monotonic()
        progress(len(sent.acknowledged))
        return sent

    async def _source(self) -> AsyncIterator[Message]:
        for index, message in enumerate(messages(self._flights)):
            if index == self._half:
                self._kill(index)
            pause_s = self.pause_s(len(self._flights) - index)
            if pause_s:
                await asyncio.sleep(pause_s)
            yield message

    def pause_s(self, left: int) -> float:
        """Return the pause before the next message, in seconds, if `left` messages are left.

        The messages must last until the killed broker accepts sends again, or until its time limit.
        """
        killed = self.sent.killed
        if killed is None or self.sent.recovered is not None or left > self._held_back:
            return 0.0
        left_s = killed + _RECOVERY_LIMIT_S - self._clock.monotonic()
        return max(_TRICKLE_S, left_s / left) if left_s > 0 else 0.0

    def _is_after_kill(self, index: int) -> bool:
        return self.sent.killed is not None and index >= self.sent.killed_at

    def _kill(self, index: int) -> None:
        self.sent.killed_at = index
        self.sent.killed_wall_ms = self._clock.wall_ms()
        self.sent.killed = self._clock.monotonic()
        self._crash()
