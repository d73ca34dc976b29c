"""Tables of topics, groups and offsets with enableLmq: names that begin with %LMQ% need not be created.

Source: RocketMQ 5.3.3, `LmqTopicConfigManager`, `LmqSubscriptionGroupManager`, `LmqConsumerOffsetManager`.
"""

import logging
from collections.abc import Callable, Generator, Iterable

from broker.config.live_config import LiveConfig
from broker.names import illegal_topic
from broker.namespace.namespaces import Namespaces
from broker.offset.consumer_offsets import STEP_KEYS, ConsumerOffsets, WrittenOffsetTable, decoded
from broker.offset.offset_map import SEPARATOR, Entries, split
from broker.plan.version import PlanVersion
from broker.subscription.subscription_groups import SubscriptionGroups
from broker.topic.topics import PERM_READ_WRITE, TopicTable
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig
from sprocket.remoting.message.topic_names import LIGHT_PREFIX, LIGHT_QUEUE_ID, is_light

logger = logging.getLogger(__name__)


class LightTopicTable(TopicTable):
    """Table of topics; a light topic has one queue, and is neither stored nor registered with name servers."""

    def get(self, topic: str) -> TopicConfig | None:
        """Return the topic's configuration; None if the topic does not exist."""
        if is_light(topic) and topic not in self.by_name and illegal_topic(topic) is None:
            return TopicConfig(topic, 1, 1, PERM_READ_WRITE)
        return self.by_name.get(topic)

    def __contains__(self, topic: str) -> bool:
        return is_light(topic) or topic in self.by_name

    def update(self, configs: Iterable[TopicConfig]) -> bool:
        """As `TopicTable.update`, without light topics."""
        return super().update([config for config in configs if not is_light(config.topic_name)])


class LightSubscriptionGroups(SubscriptionGroups):
    """Table of groups; a light group has the default configuration and is not stored."""

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration; None if the group does not exist."""
        return SubscriptionGroupConfig(group) if is_light(group) else super().get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """As `SubscriptionGroups.find`."""
        return SubscriptionGroupConfig(group) if is_light(group) else super().find(group)

    def __contains__(self, group: str) -> bool:
        return is_light(group) or super().__contains__(group)

    def update(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """As `SubscriptionGroups.update`, without light groups."""
        super().update([config for config in configs if not is_light(config.group_name)])


class LightConsumerOffsets(ConsumerOffsets):
    """Offsets in lmqConsumerOffset.json; those of light groups are in a separate table of the file.

    `plain` is the file of a broker without enableLmq.  Beyond RocketMQ: if `plain` is the newer file, it is read, so
    that turning on enableLmq loses no offset.
    """

    def __init__(
        self,
        file: ConfigFile,
        clock: Clock,
        plan_version: PlanVersion,
        plain: ConfigFile,
        counts_each: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(file, clock, plan_version)
        self._counts_each = counts_each
        self._plain_file = plain

    def load(self) -> bool:
        """Load the newer of the two files.  Raises `StoreError` if a file and its backup cannot be read."""
        light_content, content = self._file.load(decoded), None
        if light_content is None or self._plain_file.is_newer_than(self._file):
            content = self._plain_file.load(decoded)
            if content is not None:
                self.changes += 1
        content = content or light_content
        if content is not None:
            self._offsets, self.data_version = content.offsets(self._offsets.name_of), content.data_version
        light = (light_content and light_content.lmq_offset_table) or {}
        for key, offset in light.items():
            self._offsets.put(*split(key), LIGHT_QUEUE_ID, offset)
        logger.info("event=consumer_offsets_loaded count=%d light=%d", len(self._offsets), len(light))
        return content is not None

    def totals(self) -> dict[str, int]:
        """As `ConsumerOffsets.totals`; light names count as one without enableLmqStats (`LmqBrokerStatsManager`)."""
        if self._counts_each():
            return super().totals()
        sums: dict[str, int] = {}
        for key, queues in list(self._offsets.usual.items()):
            _add(sums, *split(key), sum(queues.values()))
        for group, total in self._offsets.light_sums().items():
            _add(sums, LIGHT_PREFIX, group, total)
        return sums

    def _table(self, version: DataVersion, entries: Entries) -> Generator[None, None, WrittenOffsetTable]:
        """As `ConsumerOffsets._table`; the offsets of light groups are in a table of their own."""
        table = WrittenOffsetTable(version)
        light = table.lmq_offset_table = dict[str, int]()
        for number, (key, queues) in enumerate(entries, 1):
            if not number % STEP_KEYS:
                yield
            topic, group = split(key)
            if is_light(group) and LIGHT_QUEUE_ID in queues:
                light[key] = queues.pop(LIGHT_QUEUE_ID)
            if queues:
                table.offset_table[key] = queues
                table.group_topic_map.setdefault(group, set()).add(topic)
        return table


def _add(sums: dict[str, int], topic: str, group: str, total: int) -> None:
    key = SEPARATOR.join(LIGHT_PREFIX if is_light(name) else name for name in (topic, group))
    sums[key] = sums.get(key, 0) + total


def new_tables(
    config: LiveConfig,
    files: Callable[[str], ConfigFile],
    clock: Clock,
    namespaces: Namespaces,
    *,
    is_copy: bool = False,
) -> tuple[TopicTable, SubscriptionGroups, ConsumerOffsets]:
    """Return a broker's topics, groups and offsets; light ones with enableLmq.  `is_copy`: they copy a master's."""
    topics = files("topics.json")
    groups = files("subscriptionGroup.json")
    offsets = files("consumerOffset.json")
    if not config.store.enable_lmq:
        return (
            TopicTable(config, topics, clock, is_copy=is_copy, namespaces=namespaces),
            SubscriptionGroups(config, groups, clock, is_copy=is_copy, namespaces=namespaces),
            ConsumerOffsets(offsets, clock, config.plan_version),
        )
    light_offsets = files("lmqConsumerOffset.json")
    return (
        LightTopicTable(config, topics, clock, is_copy=is_copy, namespaces=namespaces),
        LightSubscriptionGroups(config, groups, clock, is_copy=is_copy, namespaces=namespaces),
        LightConsumerOffsets(
            light_offsets, clock, config.plan_version, offsets, lambda: config.broker.enable_lmq_stats
        ),
    )
