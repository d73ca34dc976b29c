"""Records of a changelog, one queue for each partition of a function.

A commit is one batch: first the record with the key `COMMIT`, which has the new positions, all changes of the state and
all outputs; then one record for each changed key.  The first record alone is the whole commit.  The others let a
compaction keep the last value of each key.  Bodies are MessagePack.
"""

from typing import Final
from urllib.parse import quote, unquote

import msgspec

from sprocket.client.consume.message_back import DEAD_LETTER_REASON
from sprocket.client.message import Message, ReceivedMessage
from sprocket.common.errors import ProtocolError
from sprocket.remoting.message.properties import SHARDING_KEY
from sprocket.remoting.message.topic_names import dlq_topic

COMMIT: Final = "commit"
_STATE_PREFIX: Final = "state."
FORMAT: Final = 1


class Output(msgspec.Struct, array_like=True, frozen=True):
    """A message to send: its queue is chosen before the commit, so that it is the same one each time it is sent.

    A dead letter has no body, but the topic, queue and offset of the input that it is a copy of.
    """

    topic: str
    body: bytes
    unique_key: str
    key: str = ""
    tags: str = ""
    properties: dict[str, str] = {}
    broker_name: str = ""
    queue_id: int = -1
    copied: tuple[str, int, int] | None = None


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """Value of a key of the state; `expires_ms` is event time, None: it stays."""

    key: str
    value: bytes
    expires_ms: int | None = None


class Deletion(msgspec.Struct, frozen=True):
    """End of a key of the state."""

    key: str


class Commit(msgspec.Struct, array_like=True, frozen=True):
    """Outcome of a batch of inputs; `positions` has the offset of the next input by input topic.

    `changes` has the new entries, `deleted` the keys that are gone.
    """

    version: int
    positions: dict[str, int]
    watermark_ms: int
    changes: list[Entry]
    deleted: list[str]
    outputs: list[Output]


_commit_decoder = msgspec.msgpack.Decoder(Commit)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
_encoder = msgspec.msgpack.Encoder()


def messages_of(changelog: str, commit: Commit) -> list[Message]:
    """Return the batch of a commit."""
    batch = [Message(changelog, _encoder.encode(commit), keys=COMMIT)]
    batch += [Message(changelog, _encoder.encode(entry), keys=_record_key(entry.key)) for entry in commit.changes]
    return batch + [Message(changelog, b"", keys=_record_key(key)) for key in commit.deleted]


def message_of(output: Output) -> Message:
    """Return the message of an output.  Raises IllegalMessage."""
    properties = output.properties
    if output.key:
        properties = properties | {SHARDING_KEY: output.key}
    return Message(
        output.topic, output.body, tags=output.tags, keys=output.key, properties=properties,
        unique_key=output.unique_key,
    )  # fmt: skip


def dead_letter_of(group: str, message: ReceivedMessage, reason: str, unique_key: str) -> Output:
    """Return the dead letter of an input, at the broker that has the input."""
    queue = message.queue
    return Output(
        dlq_topic(group), b"", unique_key, properties={DEAD_LETTER_REASON: reason}, broker_name=queue.broker_name,
        queue_id=0, copied=(queue.topic, queue.queue_id, message.queue_offset),
    )  # fmt: skip


Content = Commit | Entry | Deletion


def read_record(key: str, body: bytes) -> Content:
    """Return what a record says.  Raises ProtocolError."""
    try:
        if key == COMMIT:
            commit = _commit_decoder.decode(body)
            if commit.version != FORMAT:
                raise ProtocolError(
                    "changelog", f"a changelog has format {commit.version}, this version reads {FORMAT}"
                )
            return commit
        return _entry_decoder.decode(body) if body else Deletion(unquote(key.removeprefix(_STATE_PREFIX)))
    except msgspec.MsgspecError as error:
        raise ProtocolError("changelog", f"the record {key!r} of a changelog cannot be read: {error}") from None


def _record_key(key: str) -> str:
    return _STATE_PREFIX + quote(key, safe="/:")
