"""Positions in the queues of several brokers: ``{brokerName: {topic: {queueId: queueOffset}}}``.

In JSON the keys are strings.  The options `startingOffsets` and `endingOffsets` are ``earliest``, ``latest``, or JSON
of this form.  JSON without the level of brokers (``{topic: {queueId: offset}}``, as in Spark's Kafka connector) applies
to every broker.  In options -2 is earliest and -1 latest, as in the Kafka connector.
A position is the queue offset of the next message to read, so an end position is exclusive.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from sprocket.common.errors import ConfigError

# brokerName -> topic -> queueId -> queue offset of the next message
QueuePositions = dict[str, dict[str, dict[int, int]]]
TopicPositions = dict[str, dict[int, int]]

EARLIEST: Final = -2
LATEST: Final = -1
_MAX_QUEUE_ID: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1
_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}
_FORM: Final = '{"brokerName": {"topic": {"0": 12}}} or {"topic": {"0": 12}}'


class QueueId(NamedTuple):
    """One queue of one broker; sorts by broker, topic and number.  A tuple, because that hashes fast."""

    broker_name: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.topic}/{self.queue_id}"


@dataclass(frozen=True)
class OffsetsOption:
    """Value of `startingOffsets` or `endingOffsets`; `default` applies to queues that the JSON does not name."""

    name: str
    default: int
    every_broker: TopicPositions = field(default_factory=dict)
    brokers: QueuePositions = field(default_factory=dict)

    def of(self, queue: QueueId) -> int:
        """Return the requested offset: `EARLIEST`, `LATEST`, or at least 0."""
        topics = self.brokers.get(queue.broker_name, {}) if self.brokers else self.every_broker
        return topics.get(queue.topic, {}).get(queue.queue_id, self.default)

    def check_names(self, known: Mapping[QueueId, object]) -> None:
        """Raise ConfigError for a queue in the JSON that is not in `known`, the queues of the query."""
        if not self.every_broker and not self.brokers:
            return
        queues = {(queue.topic, queue.queue_id) for queue in known}
        missing = [
            f"{topic}/{number}" for topic, number, _ in _flat(self.every_broker) if (topic, number) not in queues
        ]
        for broker_name, topics in self.brokers.items():
            named = [QueueId(broker_name, topic, number) for topic, number, _ in _flat(topics)]
            missing += [str(queue) for queue in named if queue not in known]
        if missing:
            raise ConfigError(f"option {self.name!r} names queues that this query does not read: {', '.join(missing)}")


def offsets_option(text: str, name: str, default: int) -> OffsetsOption:
    """Parse `text` of the option `name`; `default` applies to queues that its JSON does not name.

    Raises ConfigError.
    """
    named = _NAMED.get(text.strip().lower())
    if named is not None:
        return OffsetsOption(name, named)
    parsed = _parse(text, name)
    if _depth(parsed, name) == 2:
        return OffsetsOption(name, default, every_broker=_topics(parsed, name, EARLIEST))
    return OffsetsOption(name, default, brokers=_brokers(parsed, name, EARLIEST))


def assigned_queues(text: str, name: str = "assign") -> dict[str, frozenset[int]]:
    """Return the queue ids by topic in option `assign`: JSON ``{topic: [queueId, ...]}``.  Raises ConfigError."""
    parsed = _parse(text, name)
    assigned: dict[str, frozenset[int]] = {}
    for topic, queues in parsed.items():
        if not isinstance(queues, list) or not queues:
            _refuse(name, f"{topic!r} needs a list of queue ids, as in {{{json.dumps(topic)}: [0, 1]}}")
        assigned[topic] = frozenset(_queue_id(queue, f"{topic!r}", name) for queue in queues)
        if len(assigned[topic]) != len(queues):
            _refuse(name, f"{topic!r} names a queue twice")
    if not assigned:
        _refuse(name, "it names no topic")
    return assigned


def positions_of(parsed: object, name: str = "positions") -> QueuePositions:
    """QueuePositions from JSON that was parsed already, as a checkpoint or a table's commit keeps them.

    Every offset must be 0 or more.  Raises ConfigError that names the key.
    """
    if not isinstance(parsed, dict):
        _refuse(name, f"it must be an object: {_FORM}")
    return _brokers(parsed, name, 0)


def positions_object(positions: Mapping[str, Mapping[str, Mapping[int, int]]]) -> dict[str, dict[str, dict[str, int]]]:
    """Return `positions` with string keys, sorted by broker, topic and queue number.

    Equal positions give equal JSON, which Spark compares.
    """
    return {
        broker_name: {
            topic: {str(queue_id): queues[queue_id] for queue_id in sorted(queues)}
            for topic, queues in sorted(topics.items())
        }
        for broker_name, topics in sorted(positions.items())
    }


def queues_of(positions: QueuePositions) -> dict[QueueId, int]:
    """Return each queue of `positions` with its offset, sorted."""
    return {
        QueueId(broker_name, topic, queue_id): offset
        for broker_name, topics in sorted(positions.items())
        for topic, queue_id, offset in sorted(_flat(topics))
    }


def from_queues(queues: Mapping[QueueId, int], broker_names: Iterable[str] = ()) -> QueuePositions:
    """QueuePositions of `queues`; each of `broker_names` is in it, with a queue or without."""
    positions: QueuePositions = {broker_name: {} for broker_name in broker_names}
    for queue, offset in queues.items():
        positions.setdefault(queue.broker_name, {}).setdefault(queue.topic, {})[queue.queue_id] = offset
    return positions


def _flat(topics: TopicPositions) -> list[tuple[str, int, int]]:
    return [(topic, queue_id, offset) for topic, queues in topics.items() for queue_id, offset in queues.items()]


def _parse(text: str, name: str) -> dict[str, object]:
    def without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
        seen = dict(pairs)
        if len(seen) < len(pairs):
            repeated = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
            _refuse(name, f"the key {repeated!r} stands there twice")
        return seen

    try:
        parsed = json.loads(text, object_pairs_hook=without_repetition)
    except (ValueError, RecursionError) as error:
        known = "" if name == "assign" else f"{', '.join(_NAMED)}, or "
        raise ConfigError(f"option {name!r}: {text[:100]!r} is not {known}JSON: {error}") from error
    if not isinstance(parsed, dict):
        _refuse(name, f"it must be an object: {_FORM}")
    return parsed


def _depth(parsed: dict[str, object], name: str) -> int:
    """Return 2 for ``{topic: {queue: offset}}``, 3 with the level of brokers."""
    depths = {}
    for key, inner in parsed.items():
        if not isinstance(inner, dict):
            _refuse(name, f"{key!r} must hold an object: {_FORM}")
        for value in inner.values():
            depths[3 if isinstance(value, dict) else 2] = key
    if len(depths) > 1:
        _refuse(name, f"{depths[2]!r} has queues, {depths[3]!r} has topics: either every key is a broker, or none is")
    return next(iter(depths), 2)


def _brokers(parsed: dict[str, object], name: str, minimum: int) -> QueuePositions:
    brokers: QueuePositions = {}
    for broker_name, topics in parsed.items():
        if not isinstance(topics, dict):
            _refuse(name, f"broker {broker_name!r} must hold an object of topics")
        brokers[broker_name] = _topics(topics, name, minimum)
    return brokers


def _topics(parsed: dict[str, object], name: str, minimum: int) -> TopicPositions:
    topics: TopicPositions = {}
    for topic, queues in parsed.items():
        if not isinstance(queues, dict):
            _refuse(name, f"topic {topic!r} must hold an object of queues")
        numbered = {_queue_id(queue_id, f"topic {topic!r}", name): offset for queue_id, offset in queues.items()}
        if len(numbered) < len(queues):
            _refuse(name, f"topic {topic!r} names a queue twice")
        for queue_id, offset in numbered.items():
            if not isinstance(offset, int) or isinstance(offset, bool) or not minimum <= offset <= _MAX_OFFSET:
                meaning = " (-2 is earliest, -1 latest)" if minimum < 0 else ""
                _refuse(name, f"topic {topic!r}, queue {queue_id}: {offset!r} is no queue offset{meaning}")
        topics[topic] = numbered
    return topics


def _queue_id(value: object, where: str, name: str) -> int:
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    if not (text.isascii() and text.isdecimal()) or len(text) > 10 or int(text) > _MAX_QUEUE_ID:
        _refuse(name, f"{where}: {value!r} is no queue id")
    return int(text)


def _refuse(name: str, reason: str) -> NoReturn:
    raise ConfigError(f"option {name!r}: {reason}")
