"""What FastStream passes from a call of `publish` through its middlewares to the producer."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand, Response

from sprocket.client.message import ReceivedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Place and time of a message; the arguments of `Message` and `Producer.send` with these names."""

    tags: str = ""
    keys: Iterable[str] | str = ()
    sharding_key: str | None = None
    delay: timedelta | float | None = None
    deliver_at: datetime | int | None = None


class SprocketResponse(Response):
    """Result of a handler whose publishers are to send it with tags, keys, a sharding key or a delay."""

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        tags: str = "",
        keys: Iterable[str] | str = (),
        sharding_key: str | None = None,
        delay: timedelta | float | None = None,
        deliver_at: datetime | int | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self._placing = Placing(tags=tags, keys=keys, sharding_key=sharding_key, delay=delay, deliver_at=deliver_at)

    def as_publish_command(self) -> "SprocketPublishCommand":
        return SprocketPublishCommand(
            self.body,
            publish_type=PublishType.PUBLISH,
            placing=self._placing,
            headers=self.headers,
            correlation_id=self.correlation_id,
        )


class SprocketPublishCommand(PublishCommand):
    """Command to send a message to the topic `destination`, or to the sender of `answers` as its reply."""

    def __init__(
        self,
        body: Any,
        *,
        publish_type: PublishType,
        topic: str = "",
        placing: Placing | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        timeout_s: float = 3.0,
        answers: ReceivedMessage | None = None,
    ) -> None:
        super().__init__(
            body,
            _publish_type=publish_type,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
        )
        self.placing = placing or Placing()
        self.timeout_s = timeout_s
        self.answers = answers

    def send_to(self, topic: str, answers: ReceivedMessage | None = None) -> None:
        """Make this the reply to `answers`, or without it a message to `topic`."""
        self.destination = topic
        self.answers = answers

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> Self:
        """Return `cmd` itself, or a command of this class for one of a handler's plain result."""
        if isinstance(cmd, cls):
            return cmd
        return cls(
            cmd.body,
            publish_type=cmd.publish_type,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
        )
