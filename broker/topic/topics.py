"""Table of this broker's topics, stored in ``config/topics.json``.

Source: RocketMQ 5.3.3, `TopicConfigManager`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Final

from broker.config.live_config import LiveConfig
from broker.config.versioned_table import EntryTable
from broker.namespace.namespaces import NO_NAMESPACES, Namespaces
from broker.topic.attributes import QUEUE_TYPE, altered
from broker.topic.namespace_topics import created_on_send
from sprocket.common import limits
from sprocket.common.clock import Clock
from sprocket.common.errors import StoreBusy
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic import (
    MESSAGE_TYPE,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicConfigTable,
)
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.message.topic_names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    REPLY_TOPIC_POSTFIX,
    REVIVE_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYNC_BROKER_MEMBER_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from store.flush.confirmation import Arrival
from store.queue.logic_queue import QueueType

logger = logging.getLogger(__name__)

PERM_READ_WRITE = PERM_READ | PERM_WRITE
# `TopicConfigManager.SCHEDULE_TOPIC_QUEUE_NUM`
SCHEDULE_QUEUE_NUMS = 18

TopicsChanged = Callable[[list[TopicConfig]], None]


# Max topics of one write with their own log line.
_MAX_TOPIC_LINES: Final = 16


class TopicTable(EntryTable[TopicConfig, TopicConfigTable]):
    """Table of topics: name -> `TopicConfig`.

    A change is in memory at once and in the file soon after.  A response to a change waits for `save`; a change that
    cannot be written is undone.  Once changes are in the file, each of `on_change` gets the topics (an empty list
    stands for a deletion), so that they are registered at once.  Callers must not modify the configurations in the
    table.
    """

    def __init__(
        self,
        config: LiveConfig,
        file: ConfigFile,
        clock: Clock,
        *,
        is_copy: bool = False,
        namespaces: Namespaces = NO_NAMESPACES,
    ) -> None:
        super().__init__(file, clock, TopicConfigTable, config.plan_version)
        self._config = config
        self.namespaces = namespaces
        # Whether the table is a copy of a master's; then this replica adds nothing to it.
        self.is_copy = is_copy
        self.system_topics: set[str] = set(SYSTEM_TOPICS)
        self.on_change: list[TopicsChanged] = []
        # Called with each new topic at once, before its first request is served.
        self.on_create: list[Callable[[TopicConfig], None]] = []
        # Called with each deleted topic once its queues are removed; it cannot be created before.
        self.on_gone: list[Callable[[str], None]] = []
        # Topics whose queues are being deleted: until that is done they accept no message and cannot be created.
        self._leaving: set[str] = set()
        self.unsaved: set[str] = set()  # topics with a change that is not in the file
        # Whether appends of this turn of the loop depend on a topic that is not in the file.
        self.is_relied_on = False
        for topic in self._system_configs():
            self.by_name[topic.topic_name] = topic
            self.system_topics.add(topic.topic_name)

    def _system_configs(self) -> Iterable[TopicConfig]:
        config = self._config.broker
        cluster, name = config.broker_cluster_name, config.broker_name
        yield _fixed(SELF_TEST_TOPIC, 1)
        if config.auto_create_topic_enable:
            yield _fixed(AUTO_CREATE_TOPIC, config.default_topic_queue_nums, PERM_READ_WRITE | PERM_INHERIT)
        yield _fixed(BENCHMARK_TOPIC, 1024)
        yield _fixed(cluster, 16, PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0))
        yield _fixed(name, 1, PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0))
        yield _fixed(OFFSET_MOVED_EVENT, 1)
        yield _fixed(SCHEDULE_TOPIC, SCHEDULE_QUEUE_NUMS)
        if config.trace_topic_enable:
            yield _fixed(config.msg_trace_topic_name, 1)
        yield _fixed(f"{cluster}_{REPLY_TOPIC_POSTFIX}", 1)
        yield _fixed(REVIVE_TOPIC_PREFIX + cluster, config.revive_queue_num)
        yield _fixed(SYNC_BROKER_MEMBER_GROUP_PREFIX + name, 1, PERM_INHERIT)
        yield _fixed(TRANS_HALF_TOPIC, 1)
        yield _fixed(TRANS_OP_HALF_TOPIC, 1)
        if self._config.store.timer_wheel_enable:
            yield _fixed(TIMER_TOPIC, 1)

    # Reading

    def decode(self, content: bytes) -> None:
        """Add the topics of the file.  Raises ProtocolError."""
        table = loads(content, TopicConfigTable)
        self._install(table)
        logger.info("event=topics_loaded count=%d", len(table.topic_config_table))

    def is_system(self, topic: str) -> bool:
        """Whether this is a system topic: it cannot be deleted, and can be changed only with force."""
        return topic in self.system_topics or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def is_order(self, topic: str) -> bool:
        config = self.by_name.get(topic)
        return config is not None and config.order

    def message_type(self, topic: str) -> str:
        """Return the attribute message.type of a topic; NORMAL if it is not set."""
        config = self.by_name.get(topic)
        return "NORMAL" if config is None else config.attributes.get(MESSAGE_TYPE, "NORMAL")

    def queue_type(self, topic: str) -> QueueType | None:
        """Return the attribute queue.type of a topic; None if the topic does not exist (`QueueTypeUtils.getCQType`)."""
        config = self.by_name.get(topic)
        if config is None:
            return None
        return QueueType.BATCH if config.attributes.get(QUEUE_TYPE) == QueueType.BATCH else QueueType.SIMPLE

    # Changing

    def create_on_send(
        self, topic: str, default_topic: str, queue_nums: int, *, topic_sys_flag: int = 0, peer: str = ""
    ) -> TopicConfig | None:
        """Return the topic; if it is new, create it like `default_topic`.  None if `default_topic` forbids that.

        The new topic has `queue_nums` queues, but no more than the write queues of `default_topic`, unless its
        namespace has a template.  Responses to messages that are appended in this turn of the loop wait until the
        topic is in the file.  Raises RequestError if its namespace does not allow another topic.
        """
        existing = self.by_name.get(topic)
        if existing is not None:
            self.rely_on(topic)
            return existing
        model = self.by_name.get(default_topic)
        if (
            model is not None
            and default_topic == AUTO_CREATE_TOPIC
            and not self._config.broker.auto_create_topic_enable
        ):
            model = None
        if model is None or not model.perm & PERM_INHERIT or self.is_copy:
            peer_lines.warning(
                logger, peer, "event=topic_not_created topic=%s model=%s peer=%s", topic, default_topic, peer
            )
            return None
        count = max(0, min(queue_nums, model.write_queue_nums))
        created = TopicConfig(
            topic,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=model.perm & ~PERM_INHERIT,
            topic_filter_type=model.topic_filter_type,
            topic_sys_flag=topic_sys_flag,
        )
        created = created_on_send(self.namespaces, created, self.by_name)
        self._put([created])
        return created

    def get_or_create(
        self,
        topic: str,
        queue_nums: int,
        *,
        perm: int = PERM_READ_WRITE,
        order: bool | None = None,
        topic_sys_flag: int = 0,
    ) -> TopicConfig:
        """Return a retry or dead-letter topic; create it if it is new.  Set `order`, unless None, if it exists.

        In a copy of a master's table, return its configuration without creating it.  Responses wait as after
        `create_on_send`.
        """
        existing = self.by_name.get(topic)
        if existing is not None:
            if order is not None and order != existing.order and not self.is_copy:
                changed = copy(existing)
                changed.order = order
                self._put([changed])
                return changed
            self.rely_on(topic)
            return existing
        created = TopicConfig(
            topic, queue_nums, queue_nums, perm, topic_sys_flag=topic_sys_flag, order=bool(order), attributes={}
        )
        if not self.is_copy:
            self._put([created])
        return created

    def update(self, configs: Iterable[TopicConfig]) -> bool:
        """Create or change topics; their `attributes` hold changes (``+name``: value, ``-name``).

        All or nothing.  Returns whether anything changed.  Wait for `save` until the file has the change.  Raises
        RequestError for an invalid change of attributes.
        """
        changed = []
        for config in configs:
            existing = self.by_name.get(config.topic_name)
            after = copy(config)
            after.attributes = altered(None if existing is None else existing.attributes, config.attributes)
            if after != existing:
                changed.append(after)
        if changed:
            self._put(changed)
        return bool(changed)

    def update_order(self, order_topics: Iterable[str]) -> None:
        """Mark topics as ordered, because a name server has an order configuration for them."""
        if self.is_copy:
            return
        changed = []
        for topic in order_topics:
            config = self.by_name.get(topic)
            if config is not None and not config.order:
                ordered = copy(config)
                ordered.order = True
                changed.append(ordered)
        if changed:
            self._put(changed)

    def let_read(self, arrivals: Iterable[Arrival]) -> None:
        """Let consumers read every queue in which messages arrive: a listener of the store of a master.

        A topic may have become smaller while delayed, timed or half messages for its last queues waited, and a group
        may have more retry queues than its retry topic.  RocketMQ stores such messages where nobody reads.  Read queues
        are added here, but no write queues.
        """
        for queue, _, _ in arrivals:
            config, queue_id = self.by_name.get(queue.topic), queue.queue_id
            # A queue that may only be written is an operator's decision.
            if config is None or queue_id < config.read_queue_nums or queue_id < config.write_queue_nums:
                continue
            if queue_id < limits.MAX_TOPIC_QUEUES and not self.is_system(queue.topic) and not self.is_copy:
                larger = copy(config)
                larger.read_queue_nums = queue_id + 1
                self._set({queue.topic: larger})

    def renew(self, topic: str) -> None:
        """Give the table a new version and announce a topic again: what belongs to the topic has changed elsewhere."""
        self._set({topic: self.by_name[topic]})

    def delete(self, topic: str) -> bool:
        """Remove a topic; return whether it existed."""
        if topic not in self.by_name:
            return False
        self._set({topic: None})
        return True

    def gone(self, topic: str) -> None:
        """Call the listeners `on_gone`: the queues of a deleted topic are removed."""
        for listener in self.on_gone:
            listener(topic)

    @contextmanager
    def leaving(self, topics: Collection[str]) -> Iterator[None]:
        """Refuse to create these topics within the context: their queues are deleted after the file was written."""
        self._leaving.update(topics)
        self._plan_version.rise()
        try:
            yield
        finally:
            self._leaving.difference_update(topics)
            self._plan_version.rise()

    def _put(self, configs: list[TopicConfig]) -> None:
        for config in configs:
            if config.topic_name in self._leaving:
                raise StoreBusy(f"topic {config.topic_name} is being deleted, try again", Reason.BUSY)
        created = [config for config in configs if config.topic_name not in self.by_name]
        self._set({config.topic_name: config for config in configs})
        for config in created:
            for listener in self.on_create:
                listener(config)
        self._rely()

    def rely_on(self, topic: str) -> None:
        """Make responses of this turn of the loop wait for the topic, if it is not in the file yet."""
        if topic in self.unsaved:
            self._rely()

    def _rely(self) -> None:
        if self._pending and not self.is_relied_on:
            self.is_relied_on = True
            asyncio.get_running_loop().call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.is_relied_on = False

    def _set(self, changes: Mapping[str, TopicConfig | None], undo_others: Callable[[], None] = lambda: None) -> None:
        self.unsaved.update(changes)

        def undo() -> None:
            self.unsaved.difference_update(changes)
            undo_others()

        super()._set(changes, undo)

    # The file

    def _on_saved(self, changes: list[Sequence[str]]) -> None:
        self.unsaved = {name for change in self._pending for name in change.names}
        changed, deleted = self._outcome(changes)
        for config in changed[:_MAX_TOPIC_LINES]:
            peer_lines.info(
                logger, "",
                "event=topic_changed topic=%s read_queues=%d write_queues=%d perm=%d order=%s attributes=%s",
                config.topic_name, config.read_queue_nums, config.write_queue_nums, config.perm, config.order,
                config.attributes,
            )  # fmt: skip
        if len(changed) > _MAX_TOPIC_LINES:
            peer_lines.info(logger, "", "event=topics_changed count=%d", len(changed))
        if deleted:
            peer_lines.info(
                logger, "", "event=topics_deleted count=%d first=%s", len(deleted), deleted[:_MAX_TOPIC_LINES]
            )
            self.announce([])
        if changed:
            self.announce(changed)

    def announce(self, configs: list[TopicConfig]) -> None:
        """Call the listeners `on_change` with changed topics; an empty list stands for a deletion."""
        for listener in self.on_change:
            listener(configs)

    # A slave's table is its master's

    def _take_over(self, table: TopicConfigTable) -> None:
        super()._take_over(table)
        self.announce([])


def _fixed(topic: str, queue_nums: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(topic, queue_nums, queue_nums, perm)
