"""Tells the store what operators say about keeping messages: attributes of topics, and keys that were changed.

Beyond RocketMQ: there ``reserve.time`` is for tiered storage only, and ``retention.bytes`` is not known.
"""

from collections.abc import Iterable
from typing import Final

from broker.config.live_config import LiveConfig
from broker.topic.attributes import RESERVE_TIME, RETENTION_BYTES, bound
from broker.topic.topics import TopicTable
from sprocket.remoting.bodies.topic import TopicConfig
from store.message_store import MessageStore
from store.retention.topic_retention import TopicRule

_HOUR_MS: Final = 3_600_000


class Retention:
    """Keeps the store's rules in step with topics and configuration."""

    def __init__(self, config: LiveConfig, topics: TopicTable, store: MessageStore) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self._rules: dict[str, TopicRule] = {}
        config.on_update.append(self.config_changed)

    def start(self) -> None:
        """Before anybody reads: the topics are loaded, and their queues begin where the rules say."""
        self.config_changed({})
        self.topics_changed(self._topics.by_name.values())

    def topics_changed(self, configs: Iterable[TopicConfig]) -> None:
        """Some topics changed; without any, some were deleted."""
        rules = {topic: rule for topic, rule in self._rules.items() if topic in self._topics.by_name}
        for config in configs:
            rule = rule_of(config)
            if rule is None:
                rules.pop(config.topic_name, None)
            else:
                rules[config.topic_name] = rule
        if rules != self._rules:
            self._rules = rules
            self._store.cleaner.retain(rules)

    def config_changed(self, changed: dict[str, str]) -> None:
        """Keys changed, or the broker has just started."""
        self._store.configure(self._config.store)
        self._store.cleaner.pressure.is_fast_failing = self._config.broker.broker_fast_failure_enable


def rule_of(config: TopicConfig) -> TopicRule | None:
    """What the attributes of a topic say; None if they bound nothing."""
    hours, max_bytes = bound(config.attributes, RESERVE_TIME), bound(config.attributes, RETENTION_BYTES)
    if hours is None and max_bytes is None:
        return None
    return TopicRule(None if hours is None else hours * _HOUR_MS, max_bytes)
