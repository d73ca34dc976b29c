"""Sends and requests of FastStream through the producer of a connection."""

from collections.abc import Mapping
from typing import Any

from fast_depends.library.serializer import SerializerProto
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream._internal.types import CustomCallable
from faststream.exceptions import IncorrectState
from faststream.response.response import PublishCommand

from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.producer import Producer
from sprocket.client.send.reply import make_reply
from sprocket.client.send_result import SendResult
from sprocket.contrib.faststream.message import CONTENT_TYPE, CORRELATION_ID, REPLY_TO, decode, parse
from sprocket.contrib.faststream.publish_command import SprocketPublishCommand


async def encode(
    command: SprocketPublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> tuple[bytes, Mapping[str, str]]:
    """Return the body and the properties of a message."""
    body, content_type = await codec.encode(command.body, serializer)
    return body, _properties(command, content_type)


async def encode_batch(
    command: SprocketPublishCommand, codec: CodecProto, serializer: SerializerProto | None
) -> list[tuple[SprocketPublishCommand, bytes, Mapping[str, str]]]:
    """Return a command, the body and the properties for each message of a batch."""
    singles = command.singles()
    bodies = [single.body for single in singles]
    if isinstance(codec, BatchCodecProto):
        encoded = await codec.encode_batch(bodies, serializer)
    else:
        encoded = [await codec.encode(body, serializer) for body in bodies]
    return [
        (single, body, _properties(single, content_type))
        for single, (body, content_type) in zip(singles, encoded, strict=True)
    ]


def _properties(command: SprocketPublishCommand, content_type: str | None) -> dict[str, str]:
    known = {CONTENT_TYPE: content_type, CORRELATION_ID: command.correlation_id, REPLY_TO: command.reply_to}
    own = {name: str(value) for name, value in command.headers.items()}
    return own | {name: value for name, value in known.items() if value}


class SprocketProducer(ProducerProto[SprocketPublishCommand]):
    """Producer of one broker of FastStream; it sends between `connect` and `disconnect`."""

    def __init__(self, parser: CustomCallable | None, decoder: CustomCallable | None, codec: CodecProto | None) -> None:
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, decode)
        self.codec = codec or DefaultCodec()
        self._serializer: SerializerProto | None = None
        self._sender: Producer | None = None

    def connect(self, sender: Producer, serializer: SerializerProto | None) -> None:
        """Send through `sender` from now on."""
        self._sender = sender
        self._serializer = serializer

    def disconnect(self) -> None:
        """Send no longer."""
        self._sender = None

    async def publish(self, cmd: SprocketPublishCommand) -> SendResult:
        """Send a message or a reply.  Raises IncorrectState before `connect`, and as `Producer.send`."""
        sender = self._connected()
        body, properties = await encode(cmd, self.codec, self._serializer)
        if cmd.answers is not None:
            reply = make_reply(cmd.answers, body)
            reply.properties = properties
            return await sender.send(reply)
        return await sender.send(_message(cmd, body, properties), sharding_key=cmd.placing.sharding_key)

    async def request(self, cmd: SprocketPublishCommand) -> ReceivedMessage:
        """Send a message and wait for its reply.  Raises IncorrectState before `connect`, and as `Producer.request`."""
        sender = self._connected()
        body, properties = await encode(cmd, self.codec, self._serializer)
        message = _message(cmd, body, properties)
        return await sender.request(message, sharding_key=cmd.placing.sharding_key, timeout_s=cmd.timeout_s)

    async def publish_batch(self, cmd: SprocketPublishCommand) -> SendResult:
        """Send messages as one request to one queue: all of them are stored, or none.

        Raises IncorrectState before `connect`, IllegalMessage for a sharding key, and as `Producer.send_batch`.
        """
        sender = self._connected()
        messages = []
        for single, body, properties in await encode_batch(cmd, self.codec, self._serializer):
            if single.placing.sharding_key is not None:
                raise IllegalMessage("a batch goes to one queue, so no message has a sharding_key; publish it alone")
            messages.append(_message(single, body, properties))
        return await sender.send_batch(messages)

    def _connected(self) -> Producer:
        if self._sender is None:
            raise IncorrectState("the broker is not connected; start it, or use it inside `async with`")
        return self._sender


def _message(command: SprocketPublishCommand, body: bytes, properties: Mapping[str, str]) -> Message:
    placing = command.placing
    return Message(
        command.destination,
        body,
        tags=placing.tags,
        keys=placing.keys,
        properties=properties,
        delay=placing.delay,
        deliver_at=placing.deliver_at,
    )


class ResultPublisher(FakePublisher):
    """Publisher of a handler's result to the requester of `answers`, or else to the topic `reply_to`."""

    def __init__(self, producer: ProducerProto[Any], reply_to: str, answers: ReceivedMessage | None) -> None:
        super().__init__(producer=producer)
        self._reply_to = reply_to
        self._answers = answers

    def patch_command(self, cmd: PublishCommand) -> SprocketPublishCommand:
        """Return the command that sends the result there."""
        command = SprocketPublishCommand.from_cmd(super().patch_command(cmd))
        command.send_to(self._reply_to, self._answers)
        return command
