"""Rows that Spark hands over, as messages to send: which columns there may be, and what each becomes.

No Spark here: rows come as Arrow batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from spark.decode.columns import COLUMN_TYPES, nearest
from spark.options.sink_options import SinkOptions
from sprocket.client.arguments import check_topic
from sprocket.client.errors import IllegalMessage
from sprocket.client.message import Message
from sprocket.client.send.send_request import single_request
from sprocket.common.errors import ConfigError
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import priority_of

# Column: the Arrow types that it may have, in Spark's words.
_TEXT: Final = (pa.string(), pa.large_string())
_BINARY: Final = (*_TEXT, pa.binary(), pa.large_binary())
_WHOLE: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
WRITTEN: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "topic": _TEXT,
    "body": _BINARY,
    "tags": _TEXT,
    "keys": _TEXT,
    "properties": (pa.map_(pa.string(), pa.string()),),
    "shardingKey": _TEXT,  # rows of one key keep their order
    "delayTimeLevel": _WHOLE,
    "delayTimeMs": _WHOLE,
    "deliverTimeMs": _WHOLE,
    "flag": _WHOLE,
    "uniqueKey": _TEXT,  # makes the message id: the same for a row that is sent twice
}
_BY_LOWER_CASE: Final = {name.lower(): name for name in WRITTEN}
_READ_ONLY: Final = frozenset(name.lower() for name in COLUMN_TYPES if name not in WRITTEN)
_NO_ID: Final = "0" * 32


class UnsendableRow(ConfigError):
    """A row that no broker would take; nothing of its batch of rows was sent."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message that passed every check, and what decides its queue."""

    message: Message
    sharding_key: str | None


def check_columns(schema: pa.Schema, options: SinkOptions) -> None:
    """Raises ConfigError for a column that is unknown, there twice, of the wrong type, or missing."""
    names = [_known_column(name) for name in schema.names]
    twice = [name for name in WRITTEN if names.count(name) > 1]
    if twice:
        raise ConfigError(f"column {twice[0]!r} is there twice, in any case of its letters: select one of them")
    spelled = dict(zip(names, schema.types, strict=True))
    for name, kind in spelled.items():
        if not any(_is_like(kind, allowed) for allowed in WRITTEN[name]):
            raise ConfigError(f"column {name!r} is {kind}; allowed is {', '.join(map(str, WRITTEN[name]))}")
    if "body" not in spelled:
        raise ConfigError("column 'body' is missing: the message's body, binary or string")
    if "topic" not in spelled and options.topic is None:
        raise ConfigError("there is neither a column 'topic' nor the option 'topic'")


def outgoing(batch: pa.RecordBatch, options: SinkOptions, first_row: int) -> list[Outgoing]:
    """The messages of `batch`, whose first row has the number `first_row` in its task.

    Raises UnsendableRow that names the first row that cannot be sent: a body that is missing or too large, a topic
    that is illegal, properties that are too long, a flag of more than 32 bits.
    """
    columns = {_known_column(name): batch.column(name).to_pylist() for name in batch.schema.names}
    checking = options.checking()
    checked_topics: set[str] = set()
    found = []
    for index, row in enumerate(_rows(columns, batch.num_rows)):
        try:
            message = _message(row, options)
            if message.topic not in checked_topics:
                check_topic(message.topic)
                checked_topics.add(message.topic)
            single_request(message, checking, _no_id)
        except IllegalMessage as error:
            key = row.get("keys")
            named = f" (keys={key!r})" if key else ""
            raise UnsendableRow(f"row {first_row + index} of this task{named}: {error}") from error
        found.append(Outgoing(message, row.get("shardingKey")))
    return found


def _no_id() -> str:
    return _NO_ID


def _rows(columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[dict[str, Any]]:
    spelling = list(columns)
    if not spelling:
        return iter([{}] * count)
    return (dict(zip(spelling, values, strict=True)) for values in zip(*columns.values(), strict=True))


def _message(row: Mapping[str, Any], options: SinkOptions) -> Message:
    body = row["body"]
    if body is None:
        raise IllegalMessage("the body is null; a message carries at least one byte")
    topic = options.topic if row.get("topic") is None else row["topic"]
    if topic is None:
        raise IllegalMessage("the topic is null, and there is no option 'topic'")
    flag = options.flag if row.get("flag") is None else row["flag"]
    if not -(1 << 31) <= flag < 1 << 31:
        raise IllegalMessage(f"flag {flag} is no number of 32 bits")
    message = Message(
        topic,
        body.encode() if isinstance(body, str) else body,
        tags=row.get("tags") or "",
        keys=(row.get("keys") or "").split(),
        properties=_own_properties(row.get("properties")),
        # A delay of the row takes the place of the option's.
        delay_level=_level(row, options),
        unique_key=row.get("uniqueKey") or "",
        flag=flag,
    )
    # These columns say their unit, and are whole numbers.
    message.delay_ms = row.get("delayTimeMs")
    message.deliver_at_ms = row.get("deliverTimeMs")
    if not message.is_delayed and not row.get("shardingKey"):
        message.priority = priority_of(dict(row.get("properties") or ()).get(names.PRIORITY))
    return message


def _level(row: Mapping[str, Any], options: SinkOptions) -> int:
    level: int | None = row.get("delayTimeLevel")
    if level is not None:
        return level
    return options.delay_level if row.get("delayTimeMs") is None and row.get("deliverTimeMs") is None else 0


def _own_properties(pairs: Sequence[tuple[str, str | None]] | None) -> dict[str, str] | None:
    """The application's properties: what clients and brokers set by themselves is left out.

    So the column `properties` of messages that were read can be written again.
    """
    if not pairs:
        return None
    return {name: value for name, value in pairs if name not in _NOT_COPIED and value is not None and value.strip()}


# What says where and when another message was; with these the new one would be taken for that one.
_NOT_COPIED: Final = names.RESERVED | {
    names.CLUSTER,
    names.POP_CK,
    names.TRANSACTION_ID,
    names.TRANSACTION_CHECK_TIMES,
    names.TIMER_DELIVER_MS,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_OUT_MS,
    names.TIMER_ENQUEUE_MS,
    names.TIMER_DEQUEUE_MS,
    names.TIMER_ROLL_TIMES,
    names.TIMER_DEL_UNIQKEY,
    names.BORN_TIMESTAMP,
    names.INNER_MULTI_DISPATCH,
    names.INNER_MULTI_QUEUE_OFFSET,
}


def _known_column(name: str) -> str:
    known = _BY_LOWER_CASE.get(name.lower())
    if known is not None:
        return known
    if name.lower() in _READ_ONLY:
        raise ConfigError(
            f"column {name!r} is read, but not written: brokers set it; select what to send: {', '.join(WRITTEN)}"
        )
    raise ConfigError(f"unknown column {name!r}{nearest(name, WRITTEN)}; written are {', '.join(WRITTEN)}")


def _is_like(kind: pa.DataType, allowed: pa.DataType) -> bool:
    if pa.types.is_map(allowed):
        return pa.types.is_map(kind) and kind.key_type in _TEXT and kind.item_type in _TEXT
    return bool(kind == allowed)
