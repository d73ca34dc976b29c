"""How far each consumer group has come in each queue, kept in ``config/consumerOffset.json``.

Source: RocketMQ 5.3.3, `ConsumerOffsetManager`.
"""

import logging
import re
from collections.abc import Callable
from copy import copy
from typing import Final

import msgspec

from broker.config.config_file import ConfigFile
from sprocket.common.clock import Clock
from sprocket.common.failpoints import failpoint
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.pretty_json import pretty

logger = logging.getLogger(__name__)

SEPARATOR = "@"
_LIGHT_QUEUE_ID = 0
# Where a number in the place of a key begins, and its colon, as in ``{0:5,1:7}``.
_BEFORE_KEY: Final = re.compile(rb"(?<=[{,])(?=\d)")
_AFTER_KEY: Final = re.compile(rb"(?<=\d):(?=\d)")
_PIECE_BYTES: Final = 32 * 1024
# consumerOffsetUpdateVersionStep
_VERSION_STEP = 500
_BEFORE_SAVE: Final = failpoint("consumer_offsets.before_save")
_SAVED: Final = failpoint("consumer_offsets.saved")


class ConsumerOffsetTable(msgspec.Struct, rename="camel"):
    """The content of consumerOffset.json, and the answer to GET_ALL_CONSUMER_OFFSET."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    group_topic_map: dict[str, set[str]] = {}  # follows from the table; written because RocketMQ writes it
    offset_table: dict[str, dict[int, int]] = {}  # topic@group -> queue id -> offset
    lmq_offset_table: dict[str, int] | None = None  # only with enableLmq, see `broker.topic.light_tables`

    def with_light(self) -> dict[str, dict[int, int]]:
        """The offsets of all groups, light ones among them."""
        table = self.offset_table
        for key, offset in (self.lmq_offset_table or {}).items():
            table.setdefault(key, {})[_LIGHT_QUEUE_ID] = offset
        return table


class ConsumerOffsets:
    """``topic@group`` -> queue id -> the next offset to consume.

    A reset offset hides the committed one, and holds off commits, until a pull of the group has been told
    of it (`take_reset`).
    """

    def __init__(self, file: ConfigFile[ConsumerOffsetTable], clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._offsets: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._pulls: dict[str, dict[int, int]] = {}
        self._commits = 0
        self.changes = 0  # grows with every change
        # Keys that changed since `take_deltas`; None while nobody follows.
        self._touched: set[str] | None = None
        self.data_version = DataVersion(timestamp=clock.wall_ms())

    def load(self) -> None:
        """Take what the file holds.  Raises `StoreError` if the file is broken beyond its backup."""
        content = self._file.load()
        if content is not None:
            self._offsets = content.offset_table
            self.data_version = content.data_version
            logger.info("event=consumer_offsets_loaded count=%d", len(self._offsets))

    # Committed offsets

    def commit(self, group: str, topic: str, queue_id: int, offset: int, peer: str = "") -> None:
        """Set the offset; one below the last commit is taken too, and logged."""
        key = topic + SEPARATOR + group
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
        before = queues.get(queue_id)
        queues[queue_id] = offset
        self._file.is_unsaved = True
        self.changes += 1
        if self._touched is not None:
            self._touched.add(key)
        if before is not None and offset < before:
            logger.warning(
                "event=offset_goes_back group=%s topic=%s queue=%d from=%d to=%d peer=%s",
                group, topic, queue_id, before, offset, peer,
            )  # fmt: skip
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self.data_version.next(self._clock.wall_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The reset offset if there is one, else the committed one, else -1."""
        key = topic + SEPARATOR + group
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        queues = self._offsets.get(key)
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Queue id -> committed offset; a copy."""
        return dict(self._offsets.get(topic + SEPARATOR + group, {}))

    def assign(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset without the doubts that a commit raises: an operator says so."""
        key = topic + SEPARATOR + group
        self._offsets.setdefault(key, {})[queue_id] = offset
        self._changed(key)

    def _changed(self, key: str | None = None) -> None:
        """The offsets of `key`, or of many, are not what they were."""
        self._file.is_unsaved = True
        self.changes += 1
        if self._touched is not None:
            self._touched.update(self._offsets if key is None else (key,))

    # Offsets of pulls: what was handed out, committed or not

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember where the group pulls next."""
        key = topic + SEPARATOR + group
        queues = self._pulls.get(key)
        if queues is None:
            queues = self._pulls[key] = {}
        queues[queue_id] = offset

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group pulls next; the committed offset where it has not pulled."""
        queues = self._pulls.get(topic + SEPARATOR + group)
        offset = None if queues is None else queues.get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    # Resets

    @property
    def has_resets(self) -> bool:
        """Whether any reset waits for its pull: a pull asks this before it looks further."""
        return bool(self._resets)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Send the group to `offset` with its next pull of the queue."""
        key = topic + SEPARATOR + group
        self._resets.setdefault(key, {})[queue_id] = offset
        self._offsets.setdefault(key, {})[queue_id] = offset
        self._pulls.pop(key, None)
        self._changed(key)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of the queue still waits for its pull."""
        return queue_id in self._resets.get(topic + SEPARATOR + group, ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The reset offset, which is then done with; None if there is none."""
        key = topic + SEPARATOR + group
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    # Who consumes what

    def topics_of(self, group: str) -> set[str]:
        """Topics that the group has offsets in."""
        return {topic for topic, owner in map(_split, self._offsets) if owner == group}

    def topics_by_group(self) -> dict[str, set[str]]:
        """Topics that each group has offsets in."""
        topics: dict[str, set[str]] = {}
        for topic, group in map(_split, self._offsets):
            topics.setdefault(group, set()).add(topic)
        return topics

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have offsets in the topic."""
        return {group for owned, group in map(_split, self._offsets) if owned == topic}

    def remove_topic(self, topic: str) -> None:
        """Forget every group's offsets in a topic that is deleted."""
        self._remove(lambda owned, _: owned == topic)

    def remove_group(self, group: str) -> None:
        """Forget the offsets of a group that is deleted."""
        self._remove(lambda _, owner: owner == group)

    def remove(self, group: str, topic: str) -> None:
        """Forget a group's offsets in one topic."""
        self._remove(lambda owned, owner: owned == topic and owner == group)

    def _remove(self, matches: Callable[[str, str], bool]) -> None:
        for table in (self._offsets, self._resets, self._pulls):
            for key in [key for key in table if matches(*_split(key))]:
                del table[key]
                self._changed(key)

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Give one group the offsets of another; an earlier reset of it that still waits is given up."""
        offsets = self._offsets.get(topic + SEPARATOR + source_group)
        if offsets is not None:
            target = topic + SEPARATOR + target_group
            self._offsets[target] = dict(offsets)
            self._resets.pop(target, None)
            self._pulls.pop(target, None)
            self._changed(target)

    def clamp(self, max_offset: Callable[[str, int], int]) -> None:
        """Take back what points past a queue's end: after a crash the log may be shorter than the commits."""
        for key, queues in self._offsets.items():
            topic, group = _split(key)
            for queue_id, offset in queues.items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    logger.warning(
                        "event=offset_clamped group=%s topic=%s queue=%d from=%d to=%d",
                        group, topic, queue_id, offset, end,
                    )  # fmt: skip
                    queues[queue_id] = end
                    self._changed(key)

    def replace(self, table: ConsumerOffsetTable) -> None:
        """Put a master's table in the place of this one; offsets may point past what this replica's log has yet."""
        self._offsets = table.with_light()
        self._pulls.clear()
        self.data_version = table.data_version
        self._changed()

    def catch_up(self, table: ConsumerOffsetTable) -> int:
        """Take what is further in the table of another replica of the group; how many offsets that were."""
        count = 0
        for key, queues in table.with_light().items():
            own = self._offsets.setdefault(key, {})
            for queue_id, offset in queues.items():
                if offset > own.get(queue_id, -1):
                    own[queue_id] = offset
                    count += 1
        if count:
            self.data_version.next(self._clock.wall_ms())
            self._changed()
        return count

    # Changes, for other replicas

    def take_deltas(self) -> dict[str, dict[int, int]]:
        """``topic@group`` -> all its offsets, of what changed since the last time; none of what is gone.  For reading
        at once.

        The first time, and the first after `forget_deltas`, nothing: whoever follows begins with the whole table.
        """
        touched, self._touched = self._touched or (), set()
        return {key: self._offsets.get(key, {}) for key in touched}

    def forget_deltas(self) -> None:
        """Nobody follows any longer."""
        self._touched = None

    def merge(self, changes: dict[str, dict[int, int]]) -> None:
        """Take what a master's `take_deltas` gave; offsets may point past what this replica's log shows yet."""
        for key, queues in changes.items():
            self._pulls.pop(key, None)
            if queues:
                self._offsets[key] = queues
            else:
                self._offsets.pop(key, None)
            self._changed(key)

    def totals(self) -> dict[str, int]:
        """``topic@group`` -> sum of its offsets: what it grows by was consumed."""
        return {key: sum(queues.values()) for key, queues in self._offsets.items()}

    # The file

    def snapshot(self) -> ConsumerOffsetTable:
        """The table as it is now, for reading at once."""
        return ConsumerOffsetTable(copy(self.data_version), self.topics_by_group(), self._offsets)

    def encode(self) -> bytes:
        """The answer to GET_ALL_CONSUMER_OFFSET."""
        return _encoded(self.snapshot())

    def take_changed(self) -> ConsumerOffsetTable | None:
        """A copy for the file, which the caller must make `pretty` and `save`; None if nothing changed.

        Of many groups that takes a while, and can be done in another thread.
        """
        if not self._file.take_unsaved():
            return None
        table = self.snapshot()
        table.offset_table = {key: dict(queues) for key, queues in table.offset_table.items()}
        return table

    def save(self, content: bytes) -> None:
        """Write the file; may run in another thread.  Raises `StoreError`; the change is then still unsaved."""
        _BEFORE_SAVE()
        self._file.save(content)
        _SAVED()

    def persist(self) -> None:
        """Write the file now if anything changed.  Raises `StoreError`."""
        changed = self.take_changed()
        if changed is not None:
            self.save(pretty(changed))


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)
    return topic, group


def _encoded(table: ConsumerOffsetTable) -> bytes:
    """As `dumps`: ten times faster, for this is asked for again and again while others wait."""
    text = _plain_text(table.offset_table)
    if text is None or table.lmq_offset_table is not None:
        return dumps(table)
    version, topics = dumps(table.data_version), msgspec.json.encode(table.group_topic_map)
    return b'{"dataVersion":%b,"groupTopicMap":%b,"offsetTable":%b}' % (version, topics, text)


def _plain_text(table: dict[str, dict[int, int]]) -> bytes | None:
    """Python's own text of the table, which differs from JSON by quotes and spaces; None for names that have some."""
    text = repr(table)
    counts = [len(queues) for queues in table.values()]
    spaces = sum(2 * count - 1 for count in counts if count) + max(0, 2 * len(counts) - 1)
    if "\\" in text or '"' in text or text.count("'") != 2 * len(counts) or text.count(" ") != spaces:
        return None
    return text.replace(" ", "").replace("'", '"').encode()


def decoded(content: bytes) -> ConsumerOffsetTable:
    """What a broker answers to GET_ALL_CONSUMER_OFFSET; may run in any thread.  Raises ProtocolError.

    Keys that are numbers get the quotes that the usual decoder wants, 32 KiB at a time: no other thread waits for long.
    Where that changes a text, what comes of it is no table of offsets, and the whole is read slowly.
    """
    pieces, at = [], 0
    while at < len(content):
        end = content.find(b'"', at + _PIECE_BYTES)
        end = len(content) if end < 0 else end
        pieces.append(_AFTER_KEY.sub(b'":', _BEFORE_KEY.sub(b'"', content[at:end])))
        at = end
    try:
        return msgspec.json.decode(b"".join(pieces), type=ConsumerOffsetTable, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return loads(content, ConsumerOffsetTable)
