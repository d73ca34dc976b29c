"""Messages and bytes that clients sent and got, by topic, type and group: counted once for each batch.

Source of names, labels and boundaries: RocketMQ 5.3.3, `BrokerMetricsManager`, `TopicMessageType`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from broker.metrics.labels import is_retry_or_dlq, is_system, is_system_topic
from sprocket.metrics.declared import Kind, Metric, Value, text
from sprocket.metrics.distribution import Distribution, Labels
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from store.record.record import Appended, PendingMessage

_NORMAL: Final = "normal"
_FIFO: Final = "fifo"
_TRANSACTION: Final = "transaction"
DELAY: Final = "delay"
# Messages of these topics were rewritten on their way.
_TYPES: Final = {TRANS_HALF_TOPIC: _TRANSACTION, SCHEDULE_TOPIC: DELAY, TIMER_TOPIC: DELAY}
SHARDING_NAME: Final = b"__SHARDINGKEY\x01"
_KIB: Final = 1024
_SIZES: Final = (_KIB, 4 * _KIB, 512 * _KIB, _KIB * _KIB, 2 * _KIB * _KIB, 4 * _KIB * _KIB)
FIRST_SIZE_BYTES: Final = _SIZES[0]


class _Out:
    """Messages of one topic that one group got."""

    __slots__ = ("messages", "size_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0


class MessageFlow:
    """Counters that only grow.  Lives in the event loop's thread."""

    def __init__(self) -> None:
        # By topic and type: sizes of the records.  Its count is the number of records.
        self._sizes: dict[tuple[str, str], Distribution] = {}
        # Messages that are more than records: those of batches that are stored as one.
        self._more: dict[tuple[str, str], int] = {}
        # By topic, group, and for pops whether they are retries.
        self._out: dict[tuple[str, str, str], _Out] = {}
        self._dead_letters: dict[tuple[str, str], int] = {}
        self._returned: dict[tuple[str, str], int] = {}
        self.out_messages = 0
        self.out_bytes = 0

    def stored(self, messages: Sequence[PendingMessage], appended: Sequence[Appended]) -> None:
        """Count messages that clients sent."""
        for message, (_, _, size_bytes) in zip(messages, appended, strict=True):
            topic, properties = message.topic, message.properties
            kind = _TYPES.get(topic, _NORMAL)
            if kind is not _TRANSACTION and SHARDING_NAME in properties:
                kind = _FIFO
            self._sizes_of(topic, kind).add(size_bytes)

    def stored_run(self, topic: str, is_fifo: bool, count: int, total_bytes: int, sizes: Sequence[int]) -> None:
        """Count `count` messages that were stored in one topic, all with or all without a sharding key.

        `sizes` may be empty if none of them is over 1 KiB.
        """
        kind = _FIFO if is_fifo else _TYPES.get(topic, _NORMAL)
        found = self._sizes_of(topic, kind)
        if sizes:
            found.add_all(sizes)
        else:
            found.counts[0] += count
            found.count += count
            found.total += total_bytes

    def _sizes_of(self, topic: str, kind: str) -> Distribution:
        found = self._sizes.get((topic, kind))
        if found is None:
            found = self._sizes[topic, kind] = Distribution(_SIZES)
        return found

    def stored_as_one(self, message: PendingMessage, messages: int) -> None:
        """Count the other messages of a record that holds several; `stored` counts the record."""
        key = (message.topic, _TYPES.get(message.topic, _NORMAL))
        self._more[key] = self._more.get(key, 0) + messages - 1

    def delivered_delayed(self, topic: str, size_bytes: int) -> None:
        """Count a delayed message that was written to its topic."""
        self._sizes_of(topic, DELAY).add(size_bytes)

    def delivered(self, topic: str, group: str, messages: int, size_bytes: int, is_retry: str = "") -> None:
        """Count messages that a consumer got with one request.

        `is_retry` is the label, which only pops have: there `topic` is never a retry topic.
        """
        out = self._out.get((topic, group, is_retry))
        if out is None:
            out = self._out[topic, group, is_retry] = _Out()
        out.messages += messages
        out.size_bytes += size_bytes
        self.out_messages += messages
        self.out_bytes += size_bytes

    def returned(self, topic: str, group: str, *, is_dead: bool) -> None:
        """Count a message that a consumer sent back; `is_dead`: for the last time."""
        table = self._dead_letters if is_dead else self._returned
        table[topic, group] = table.get((topic, group), 0) + 1
        if is_dead:
            self._returned[topic, group] = self._returned.get((topic, group), 0) + 1

    def forget_gone(self, is_there: Callable[[str], bool]) -> None:
        """Forget the counts of deleted topics."""
        for table in (self._sizes, self._more, self._out, self._dead_letters, self._returned):
            _forget(table, is_there)

    # For statistics

    def in_bytes(self) -> dict[str, int]:
        """Return the bytes that were sent to each topic."""
        sums: dict[str, int] = {}
        for (topic, _), sizes in self._sizes.items():
            sums[topic] = sums.get(topic, 0) + int(sizes.total)
        return sums

    def out_bytes_by_key(self) -> dict[str, int]:
        """Return the bytes that each ``topic@group`` got."""
        sums: dict[str, int] = {}
        for (topic, group, _), out in self._out.items():
            key = f"{topic}@{group}"
            sums[key] = sums.get(key, 0) + out.size_bytes
        return sums

    def returned_by_key(self) -> dict[str, int]:
        """Return the messages that each ``topic@group`` sent back."""
        return {f"{topic}@{group}": count for (topic, group), count in self._returned.items()}

    def dead_letters_by_key(self) -> dict[str, int]:
        """Return the messages that each ``topic@group`` sent back for the last time."""
        return {f"{topic}@{group}": count for (topic, group), count in self._dead_letters.items()}

    # For export

    def metrics(self) -> list[Metric]:
        """Return the metrics, without retry and dead-letter topics, as in RocketMQ."""
        coming, going = ("topic", "message_type", "is_system"), ("topic", "consumer_group", "is_retry", "is_system")
        count = Kind.COUNTER
        return [
            Metric(
                "rocketmq_messages_in_total", count, "messages that producers sent",
                lambda: self._coming(lambda key, sizes: sizes.count + self._more.get(key, 0)), coming,
            ),
            Metric(
                "rocketmq_throughput_in_total", count, "bytes of the records that producers sent",
                lambda: self._coming(lambda _, sizes: sizes.total), coming,
            ),
            Metric(
                "rocketmq_message_size", Kind.HISTOGRAM, "sizes of the records that producers sent, bytes",
                lambda: self._coming(lambda _, sizes: sizes), coming,
            ),
            Metric(
                "rocketmq_messages_out_total", count, "messages that consumers got",
                lambda: self._going(lambda out: out.messages), going,
            ),
            Metric(
                "rocketmq_throughput_out_total", count, "bytes of the records that consumers got",
                lambda: self._going(lambda out: out.size_bytes), going,
            ),
            Metric(
                "rocketmq_send_to_dlq_messages_total", count, "messages that a group could not process",
                self._dead, ("consumer_group", "topic", "is_system"),
            ),
        ]  # fmt: skip

    def _coming(self, value: Callable[[tuple[str, str], Distribution], Value]) -> Iterator[tuple[Labels, Value]]:
        for (topic, kind), sizes in self._sizes.items():
            if not is_retry_or_dlq(topic):
                yield (topic, kind, text(is_system_topic(topic))), value((topic, kind), sizes)

    def _going(self, value: Callable[[_Out], int]) -> Iterator[tuple[Labels, Value]]:
        for (topic, group, is_retry), out in self._out.items():
            if not is_retry_or_dlq(topic):
                yield (topic, group, is_retry, text(is_system(topic, group))), value(out)

    def _dead(self) -> Iterable[tuple[Labels, Value]]:
        for (topic, group), messages in self._dead_letters.items():
            yield (group, topic, text(is_system(topic, group))), messages


def _forget(table: dict[Any, Any], is_there: Callable[[str], bool]) -> None:
    for key in [key for key in table if not is_there(key[0])]:
        del table[key]
