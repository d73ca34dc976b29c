"""What FastStream passes from a call of `publish` through its middlewares to the producer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Final, Self

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response

from sprocket.client.errors import IllegalMessage
from sprocket.client.message import ReceivedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """Place and time of a message; the arguments of `Message` and `Producer.send` with these names."""

    tags: str = ""
    keys: Iterable[str] | str = ()
    sharding_key: str | None = None
    delay: timedelta | float | None = None
    deliver_at: datetime | int | None = None

    def over(self, general: "Placing") -> "Placing":
        """Return this placing, with the values of `general` wherever this one has the default."""
        names = [field.name for field in fields(self)]
        own = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(_ANYWHERE, name)}
        return replace(general, **own)


_ANYWHERE: Final = Placing()


class SprocketResponse(Response):
    """Message with tags, keys, a sharding key or a delay: the result of a handler, or one message of a batch."""

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


def check_any(messages: Sequence[Any]) -> None:
    """Raise IllegalMessage for a batch without messages."""
    if not messages:
        raise IllegalMessage("a batch holds at least one message; give `publish_batch` one or more")


class SprocketPublishCommand(BatchPublishCommand):
    """Command to send a message to the topic `destination`, or to the sender of `answers` as its reply.

    With `publish_batch` it holds several messages, its `batch_bodies`.  Any of them may be a `SprocketResponse`.
    """

    def __init__(
        self,
        body: Any,
        /,
        *more: Any,
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
            *more,
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

    def singles(self) -> "list[SprocketPublishCommand]":
        """Return a command for each message of a batch."""
        return [self._single(body) for body in self.batch_bodies]

    def _single(self, body: Any) -> "SprocketPublishCommand":
        own = body.as_publish_command() if isinstance(body, SprocketResponse) else None
        return SprocketPublishCommand(
            body if own is None else own.body,
            publish_type=self.publish_type,
            topic=self.destination,
            placing=self.placing if own is None else own.placing.over(self.placing),
            headers=self.headers if own is None else self.headers | own.headers,
            correlation_id=(own and own.correlation_id) or self.correlation_id,
            reply_to=self.reply_to,
        )

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Return `cmd` itself, or a command of this class for one of a handler's plain result.

        With `batch` a result that is a list or tuple is a batch of messages.
        """
        command = cmd if isinstance(cmd, cls) else cls._of_plain(cmd)
        if not command.extra_bodies:
            command.body, command.extra_bodies = cls._parse_bodies(command.body, batch=batch)
        return command

    @classmethod
    def _of_plain(cls, cmd: PublishCommand) -> Self:
        return cls(
            cmd.body,
            publish_type=cmd.publish_type,
            topic=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
        )
