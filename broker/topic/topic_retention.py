"""Rules of retention and compaction for the store, from attributes of topics and from changed configuration keys.

Beyond RocketMQ, where ``reserve.time`` applies to tiered storage only, and ``retention.bytes`` does not exist.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.config.live_config import LiveConfig
from broker.topic.attributes import RESERVE_TIME, RETENTION_BYTES, bound, is_compacted
from broker.topic.topics import TopicTable
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.bodies.topic import TopicConfig
from store.message_store import MessageStore
from store.retention.topic_retention import TopicRule

_HOUR_MS: Final = 3_600_000


class Retention:
    """Updater of the store's retention rules when topics or the configuration change."""

    def __init__(self, config: LiveConfig, topics: TopicTable, store: MessageStore) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self.rules: dict[str, TopicRule] = {}  # that hold now, by topic
        self._compacted: set[str] = set()

    def start(self) -> None:
        """Apply the rules of all loaded topics; must precede the first read, which must see no expired message."""
        self.config_changed({})
        self.topics_changed(self._topics.by_name.values())
        self._store.compaction.set_topics(self._compacted)

    def topics_changed(self, configs: Iterable[TopicConfig]) -> None:
        """Apply the rules of changed topics; an empty `configs`: one was deleted, or the table is now its master's."""
        configs = list(configs)
        if not configs and self._topics.is_copy:
            configs = list(self._topics.by_name.values())
        rules = {topic: rule for topic, rule in self.rules.items() if topic in self._topics.by_name}
        compacted = {topic for topic in self._compacted if topic in self._topics.by_name}
        for config in configs:
            rule = rule_of(config, self._topics.namespaces.policy(config.topic_name))
            if rule is None:
                rules.pop(config.topic_name, None)
            else:
                rules[config.topic_name] = rule
            if is_compacted(config.attributes):
                compacted.add(config.topic_name)
            else:
                compacted.discard(config.topic_name)
        if compacted != self._compacted:
            self._compacted = compacted
            self._store.compaction.set_topics(compacted)
        if rules != self.rules:
            self.rules = rules
            self._store.cleaner.retain(rules)

    def namespaces_changed(self, policies: Mapping[str, NamespacePolicy]) -> None:
        """Apply the rules of all topics: what is set for a namespace has changed."""
        self.topics_changed(self._topics.by_name.values())

    def config_changed(self, changed: dict[str, str]) -> None:
        """Apply changed keys; also called at the start."""
        self._store.configure(self._config.store)
        self._store.cleaner.pressure.fail_fast(self._config.broker.broker_fast_failure_enable)


def rule_of(config: TopicConfig, policy: NamespacePolicy | None = None) -> TopicRule | None:
    """Return the retention rule of a topic: the lower limits of its attributes and its namespace; None without any.

    A compacted topic has none: of each key the last message stays.
    """
    if is_compacted(config.attributes):
        return None
    hours, max_bytes = bound(config.attributes, RESERVE_TIME), bound(config.attributes, RETENTION_BYTES)
    if policy is not None:
        hours, max_bytes = _lower(hours, policy.retention_hours), _lower(max_bytes, policy.retention_bytes)
    if hours is None and max_bytes is None:
        return None
    return TopicRule(None if hours is None else hours * _HOUR_MS, max_bytes)


def _lower(limit: int | None, of_namespace: int) -> int | None:
    """Return the lower of two limits; None, and 0 of a namespace, is no limit."""
    return min(limit or of_namespace, of_namespace) if of_namespace else limit
