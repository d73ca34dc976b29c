"""SQL92 subscriptions from heartbeats, stored in ``config/consumerFilter.json``; the first read compiles them.

A group's filter is kept for filterDataCleanTimeSpan after the group's last member has left.
Source: RocketMQ 5.3.3, `ConsumerFilterManager`, `ConsumerFilterData`, `ExpressionForRetryMessageFilter`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from broker.config.live_config import LiveConfig
from broker.filter.bloom_positions import BITS, bloom_positions
from broker.filter.parser import MAX_OPERATIONS
from broker.filter.sql_filter import SQL92, SqlFilter, SqlFilters
from broker.filter.subscription_filter import is_tag_type
from broker.filter.tokens import InvalidFilter
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.saved_table import SavedTable
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.properties import NAME_END, RETRY_TOPIC, find_last
from sprocket.remoting.message.topic_names import RETRY_PREFIX
from store.queue.record_filter import RecordFilter

logger = logging.getLogger(__name__)

# Max filters, and max characters in all of them: heartbeats can name any topic.
MAX_FILTERS: Final = 10_000
MAX_FILTER_CHARS: Final = 16 * 1024 * 1024
# A filter that was in use when the broker stopped counts as unused for this long.
_DEAD_AT_LOAD_MS: Final = 30_000
_RETRY_TOPIC: Final = (RETRY_TOPIC + NAME_END).encode()


class BloomFilterData(msgspec.Struct, rename="camel"):
    """Bits of a subscription in the bit map that RocketMQ may calculate for each message; see `bloom_positions`."""

    bit_num: int = 0
    bit_pos: msgspec.Raw = msgspec.Raw(b"[]")  # numbers; an int[] stands on one line in the file


class ConsumerFilterData(msgspec.Struct, rename="camel"):
    """One group's filter of one topic; times are ms."""

    topic: str
    consumer_group: str
    expression: str
    expression_type: str
    client_version: int = 0  # subVersion of the subscription
    born_time: int = 0
    dead_time: int = 0  # 0 while a member of the group has this subscription
    dead: bool = False  # follows from the times; written because RocketMQ writes it
    bloom_filter_data: BloomFilterData | None = None


class TopicFilters(msgspec.Struct, rename="camel"):
    """Filters of one topic by group."""

    topic: str
    group_filter_data: dict[str, ConsumerFilterData] = {}


class ConsumerFilterTable(msgspec.Struct, rename="camel"):
    """Content of consumerFilter.json."""

    filter_data_by_topic: dict[str, TopicFilters] = {}


class HeldFilter:
    """Compiled filter of one group and topic."""

    __slots__ = ("data", "records", "sql")

    def __init__(self, data: ConsumerFilterData, sql: SqlFilter) -> None:
        self.data = data
        self.sql = sql
        self.records = sql.record_filter()


class ConsumerFilters(SavedTable):
    """Table of filters by group and topic.  Heartbeats call `subscribed` and `group_left`.

    A heartbeat with thousands of subscriptions costs no compilation: `find` compiles what is read.
    """

    def __init__(self, config: LiveConfig, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file)
        self._config = config
        self._clock = clock
        self.sql = SqlFilters(clock.monotonic)
        self._by_group: dict[str, dict[str, ConsumerFilterData]] = {}
        # By topic and group: those that somebody has asked for.
        self._held: dict[tuple[str, str], HeldFilter] = {}
        self._count = 0
        self._chars = 0

    def __len__(self) -> int:
        return self._count

    def decode(self, content: bytes) -> None:
        """Take over the filters of the file.  Raises ProtocolError."""
        table = loads(content, ConsumerFilterTable)
        alive_until = self._clock.wall_ms() - _DEAD_AT_LOAD_MS
        for topic, filters in table.filter_data_by_topic.items():
            for group, data in filters.group_filter_data.items():
                if not data.dead_time:
                    data.dead_time = max(data.born_time, alive_until)
                self._put(group, topic, data)
        logger.info("event=consumer_filters_loaded count=%d", len(self))

    def find(self, topic: str, group: str) -> HeldFilter | None:
        """Return the group's filter of the topic; None if there is none or it does not compile."""
        held = self._held.get((topic, group))
        if held is not None or (data := self._data(topic, group)) is None:
            return held
        held = self._compiled(data)
        if held is None:
            self._remove(group, topic)
            self.changes += 1
        else:
            self._held[topic, group] = held
        return held

    def _data(self, topic: str, group: str) -> ConsumerFilterData | None:
        return self._by_group.get(group, {}).get(topic)

    def _compiled(self, data: ConsumerFilterData) -> HeldFilter | None:
        """Compile a filter; None for an invalid expression, whose error the group's pull gets."""
        try:
            if data.expression_type != SQL92:
                raise InvalidFilter(f"{data.expression_type} is no type of filter")
            return HeldFilter(data, self.sql.compiled(data.expression))
        except InvalidFilter as error:
            peer_lines.warning(
                logger, "", "event=consumer_filter_invalid group=%s topic=%s reason=%r", data.consumer_group,
                data.topic, str(error),
            )  # fmt: skip
            return None

    # Heartbeats

    def subscribed(self, group: str, subscriptions: Sequence[SubscriptionData]) -> None:
        """Take over all subscriptions of a group from a heartbeat."""
        for subscription in subscriptions:
            if not is_tag_type(subscription.expression_type) and subscription.sub_string:
                self._register(group, subscription)
        if group in self._by_group:
            self._bury(group, {subscription.topic for subscription in subscriptions})

    def group_left(self, group: str) -> None:
        """Mark all filters of a group as unused, because its last member has left."""
        self._bury(group, set())

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, expression = subscription.topic, subscription.sub_string or ""
        expression_type, version = subscription.expression_type or "", subscription.sub_version
        old = self._data(topic, group)
        is_same = old is not None and (old.expression, old.expression_type) == (expression, expression_type)
        if old is not None and (is_same or version <= old.client_version):
            if version > old.client_version:
                old.client_version = version
                self._config.plan_version.rise()
                self.changes += 1
            if version == old.client_version and old.dead_time:
                old.dead_time = 0
                self.changes += 1
            return
        bloom = BloomFilterData(BITS, msgspec.Raw(dumps(bloom_positions(group, topic))))
        now = self._clock.wall_ms()
        data = ConsumerFilterData(
            topic, group, expression, expression_type, version, born_time=now, bloom_filter_data=bloom
        )
        if old is not None:
            # If the new filter does not compile, the group's next pull gets the error.
            self._remove(group, topic)
        has_room = self._has_room(data)
        if has_room:
            self._put(group, topic, data)
            peer_lines.info(
                logger, "", "event=consumer_filter_set group=%s topic=%s expression=%r", group, topic, expression[:200]
            )
        self.changes += has_room or old is not None

    def _bury(self, group: str, living_topics: set[str]) -> None:
        """Mark the group's filters of all topics except `living_topics` as unused."""
        for topic, data in self._by_group.get(group, {}).items():
            if topic not in living_topics and not _is_dead(data):
                data.dead_time = self._clock.wall_ms()
                self.changes += 1
                peer_lines.info(logger, "", "event=consumer_filter_dead group=%s topic=%s", group, topic)

    # Reads

    def retry_records(self, group: str) -> RecordFilter:
        """Return a filter of the group's retry topic that uses the group's filters of the original topics."""

        def matches(properties: bytes) -> bool:
            origin = find_last(properties, _RETRY_TOPIC)
            held = None if origin is None else self.find(java_text(origin), group)
            return held is None or held.sql.matches(properties)

        # Those that are not compiled yet may have as many as any.
        operations = [
            held.sql.operations if (held := self._held.get((topic, group))) is not None else MAX_OPERATIONS
            for topic in self._by_group.get(group, {})
        ]
        return RecordFilter(matches, max(operations, default=1))

    # The file

    def clean(self) -> None:
        """Remove filters that have been unused for more than filterDataCleanTimeSpan."""
        oldest = self._clock.wall_ms() - self._config.broker.filter_data_clean_time_span
        for group, topic, data in self._all():
            if _is_dead(data) and data.dead_time <= oldest:
                self._remove(group, topic)
                self.changes += 1
                peer_lines.info(logger, "", "event=consumer_filter_removed group=%s topic=%s", group, topic)

    def _all(self) -> list[tuple[str, str, ConsumerFilterData]]:
        return [(group, topic, data) for group, filters in self._by_group.items() for topic, data in filters.items()]

    def _has_room(self, data: ConsumerFilterData) -> bool:
        has_room = self._count < MAX_FILTERS and self._chars + len(data.expression) <= MAX_FILTER_CHARS
        if not has_room:
            peer_lines.warning(
                logger, "", "event=consumer_filter_refused group=%s topic=%s filters=%d characters=%d",
                data.consumer_group, data.topic, self._count, self._chars,
            )  # fmt: skip
        return has_room

    def _put(self, group: str, topic: str, data: ConsumerFilterData) -> None:
        self._config.plan_version.rise()
        self._by_group.setdefault(group, {})[topic] = data
        self._count += 1
        self._chars += len(data.expression)

    def _remove(self, group: str, topic: str) -> None:
        self._config.plan_version.rise()
        filters = self._by_group[group]
        data = filters.pop(topic)
        self._held.pop((topic, group), None)
        self._count -= 1
        self._chars -= len(data.expression)
        if not filters:
            del self._by_group[group]

    def snapshot(self) -> ConsumerFilterTable:
        """Return the current table; read it before the next change."""
        table = ConsumerFilterTable()
        for group, topic, data in self._all():
            data.dead = _is_dead(data)
            filters = table.filter_data_by_topic.setdefault(topic, TopicFilters(topic))
            filters.group_filter_data[group] = data
        return table

    def _content(self) -> Callable[[], bytes]:
        content = pretty(self.snapshot())  # here, because filters change in place
        return lambda: content


def _is_dead(data: ConsumerFilterData) -> bool:
    return data.dead_time >= data.born_time


def retry_group(topic: str) -> str | None:
    """Return the group of a retry topic; None for any other topic."""
    if not topic.startswith(RETRY_PREFIX):
        return None
    # In the name of a pop retry topic, the original topic follows the group and a plus sign.
    return topic.removeprefix(RETRY_PREFIX).partition("+")[0]
