"""Table of the offsets of each consumer group in each queue, stored in ``config/consumerOffset.json``.

Source: RocketMQ 5.3.3, `ConsumerOffsetManager`.
"""

import logging
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from typing import Final, TypeVar

import msgspec

from broker.config.versioned_table import VersionedTable
from broker.offset.offset_map import SEPARATOR, Entries, OffsetMap, split
from broker.plan.version import PlanVersion
from sprocket.common.clock import Clock
from sprocket.common.errors import ProtocolError
from sprocket.common.failpoints import failpoint
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import at_once
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps, in_steps, loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.message.topic_names import LIGHT_QUEUE_ID, is_light

logger = logging.getLogger(__name__)
T = TypeVar("T")

# An unquoted numeric key with what is before it, as in ``{0:5,1:7}``; most queues of most topics have the number 0.
_BARE_KEY: Final = re.compile(rb"([{,])(\d+):")
_BARE_ZERO: Final = b"{0:", b'{"0":'
_PIECE_BYTES: Final = 32 * 1024
# Keys or offsets that one step of `encoded` reads.
STEP_KEYS: Final = 1_000
# consumerOffsetUpdateVersionStep
_VERSION_STEP = 500
_BEFORE_SAVE: Final = failpoint("consumer_offsets.before_save")
_SAVED: Final = failpoint("consumer_offsets.saved")


class ConsumerOffsetTable(msgspec.Struct, rename="camel"):
    """What is read of consumerOffset.json, and of the response to GET_ALL_CONSUMER_OFFSET."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    offset_table: dict[str, dict[int, int]] = {}  # topic@group -> queue id -> offset
    lmq_offset_table: dict[str, int] | None = None  # only with enableLmq, see `broker.topic.light_tables`

    def offsets(self, name_of: Callable[[str], str] = str) -> OffsetMap:
        """Return the offsets of all groups, including light ones; takes them out of the table.

        `name_of` is that of `OffsetMap`.
        """
        found = OffsetMap(name_of)
        found.fill(_taken(self.offset_table))
        for key, offset in (self.lmq_offset_table or {}).items():
            found.put(*split(key), LIGHT_QUEUE_ID, offset)
        return found


class WrittenOffsetTable(ConsumerOffsetTable):
    """All that is written.  `group_topic_map` follows from the offsets, but RocketMQ writes it."""

    group_topic_map: dict[str, set[str]] = {}


class ConsumerOffsets(VersionedTable):
    """Table of offsets: ``topic@group`` -> queue id -> the next offset to consume.

    A reset offset replaces the committed one and blocks commits until a pull of the group takes it (`take_reset`).
    """

    def __init__(self, file: ConfigFile, clock: Clock, plan_version: PlanVersion) -> None:
        super().__init__(file, clock)
        self._plan_version = plan_version
        self._offsets = OffsetMap()
        self._resets: dict[str, dict[int, int]] = {}
        self._pulls: dict[str, dict[int, int]] = {}
        self._commits = 0
        # Keys that changed since `take_deltas`; None while no replica follows.
        self._touched: set[str] | None = None
        self._is_handed_on = False
        self._on_light: Callable[[str, str], None] | None = None

    def follow_light(self, moved: Callable[[str, str], None]) -> None:
        """Call `moved` with group and light topic after changes of an offset there, except by a master or a file."""
        self._on_light = moved

    def decode(self, content: bytes) -> None:
        """Take over the offsets of the file.  Raises ProtocolError."""
        table = decoded(content)
        self._offsets, self.data_version = table.offsets(self._offsets.name_of), table.data_version
        logger.info("event=consumer_offsets_loaded count=%d", len(self._offsets))

    # Change of the broker's role: with a million offsets a write and a load take seconds

    def hand_on(self) -> None:
        """Leave the next write to the table of the next role, which takes the offsets over."""
        self._is_handed_on = True

    def take_over(self, earlier: "ConsumerOffsets") -> None:
        """Take the offsets of the last role's table instead of loading the file; that table is empty afterwards.

        Resets that wait for a pull, and the offsets of pulls, end with their role.
        """
        self._offsets, self.data_version = earlier._offsets, earlier.data_version
        self.changes += earlier.is_unsaved
        earlier._offsets = OffsetMap()

    def persist_changes(self) -> None:
        """As `SavedTable.persist_changes`; does nothing after `hand_on`."""
        if not self._is_handed_on:
            super().persist_changes()

    # Committed offsets

    def commit(self, group: str, topic: str, queue_id: int, offset: int, peer: str = "") -> None:
        """Set the offset; also accept, but log, an offset below the last commit."""
        key = topic + SEPARATOR + group
        before = self._offsets.put(topic, group, queue_id, offset)
        self.changes += 1
        if self._touched is not None:
            self._touched.add(key)
        if self._on_light is not None and is_light(topic):
            self._on_light(group, topic)
        if before is not None and offset < before:
            peer_lines.warning(
                logger, peer, "event=offset_moved_back group=%s topic=%s queue=%d from=%d to=%d peer=%s",
                group, topic, queue_id, before, offset, peer,
            )  # fmt: skip
        self._commits += 1
        if self._commits % _VERSION_STEP == 0:
            self.data_version.next(self._clock.wall_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the reset offset, else the committed offset, else -1."""
        if self._resets:
            reset = self._resets.get(topic + SEPARATOR + group)
            if reset is not None and queue_id in reset:
                return reset[queue_id]
        offset = self._offsets.get(topic, group, queue_id)
        return -1 if offset is None else offset

    @property
    def key_count(self) -> int:
        """Number of pairs of topic and group with offsets."""
        return len(self._offsets)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return a copy of the committed offsets by queue id."""
        return self._offsets.queues(topic, group)

    def assign(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset on behalf of an operator or the broker itself: without a log line or a new data version."""
        self._offsets.put(topic, group, queue_id, offset)
        self._changed(topic + SEPARATOR + group)

    def _changed(self, key: str | None = None) -> None:
        """Mark the offsets of `key` as changed; of all keys without one."""
        self.changes += 1
        if self._touched is not None:
            self._touched.update((key for key, _ in self._offsets.entries()) if key is None else (key,))
        if self._on_light is not None and key is not None and is_light(key):
            topic, group = split(key)
            self._on_light(group, topic)

    # Offsets of pulls: delivered messages, committed or not

    def note_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the offset of the group's next pull."""
        key = topic + SEPARATOR + group
        queues = self._pulls.get(key)
        if queues is None:
            queues = self._pulls[key] = {}
        queues[queue_id] = offset

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset of the group's next pull; the committed offset if the group has not pulled."""
        queues = self._pulls.get(topic + SEPARATOR + group)
        offset = None if queues is None else queues.get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    # Resets

    @property
    def has_resets(self) -> bool:
        """Whether any reset waits for its pull; lets most pulls skip the lookup."""
        return bool(self._resets)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move the group to `offset` with its next pull of the queue."""
        key = topic + SEPARATOR + group
        self._resets.setdefault(key, {})[queue_id] = offset
        self._plan_version.rise()
        self._offsets.put(topic, group, queue_id, offset)
        self._pulls.pop(key, None)
        self._changed(key)

    def drop(self, group: str, topic: str, queue_id: int) -> None:
        """Remove the group's offset in a queue, and a reset that waits there."""
        key = topic + SEPARATOR + group
        if self.query(group, topic, queue_id) < 0:
            return
        self.take_reset(group, topic, queue_id)
        queues = self._offsets.queues(topic, group)
        queues.pop(queue_id, None)
        self._offsets.put_queues(key, queues)
        self._pulls.pop(key, None)
        self._plan_version.rise()
        self._changed(key)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of the queue still waits for its pull."""
        return queue_id in self._resets.get(topic + SEPARATOR + group, ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the reset offset and end the reset; None if there is none."""
        key = topic + SEPARATOR + group
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        self._plan_version.rise()
        if not queues:
            del self._resets[key]
        return offset

    # Groups and topics

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has offsets."""
        return self._offsets.topics_of(group)

    def grouped(self) -> Generator[None, None, dict[str, set[str]]]:
        """Return the topics in which each group has offsets, in steps."""
        return _grouped(key for key, _ in self._offsets.entries())

    def usual_grouped(self) -> Generator[None, None, dict[str, set[str]]]:
        """As `grouped`, without light topics: there may be very many."""
        return _grouped([key for key in self._offsets.usual if not is_light(key)])

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in the topic."""
        return self._offsets.groups_of(topic)

    def remove_topic(self, topic: str) -> None:
        """Delete the offsets of all groups in a deleted topic."""
        begin = topic + SEPARATOR
        groups = self._offsets.groups_of(topic)
        self._remove_keys({(topic, group) for group in groups}, lambda key: key.startswith(begin))

    def remove_group(self, group: str) -> None:
        """Delete the offsets of a deleted group."""
        end = SEPARATOR + group
        self._remove_keys(
            {(topic, group) for topic in self._offsets.topics_of(group)},
            lambda key: key.endswith(end) and split(key)[1] == group,
        )

    def remove(self, group: str, topic: str) -> None:
        """Delete a group's offsets in one topic."""
        self._plan_version.rise()
        self._remove_key(topic, group)

    def _remove_keys(self, keys: set[tuple[str, str]], matches: Callable[[str], bool]) -> None:
        self._plan_version.rise()
        for table in (self._resets, self._pulls):
            keys.update(map(split, filter(matches, table)))
        for topic, group in keys:
            self._remove_key(topic, group)

    def _remove_key(self, topic: str, group: str) -> None:
        key = topic + SEPARATOR + group
        others = [table.pop(key, None) for table in (self._resets, self._pulls)]
        if self._offsets.remove(topic, group) or others != [None, None]:
            self._changed(key)

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Copy one group's offsets to another group; cancel a pending reset of the target group."""
        offsets = self._offsets.queues(topic, source_group)
        if offsets:
            target = topic + SEPARATOR + target_group
            self._offsets.put_queues(target, offsets)
            self._resets.pop(target, None)
            self._plan_version.rise()
            self._pulls.pop(target, None)
            self._changed(target)

    def clamp(self, max_offset: Callable[[str, int], int]) -> bool:
        """Reduce offsets beyond a queue's end to that end: after a crash the log may be shorter than the commits.

        Return whether any changed.  Then the file must change before the queue grows: after another crash an old offset
        would hide new messages.
        """
        beyond = [
            (topic, group, queue_id, offset, end)
            for topic, group, queue_id, offset in self._offsets
            if offset > (end := max_offset(topic, queue_id))
        ]
        for topic, group, queue_id, offset, end in beyond:
            peer_lines.warning(
                logger, "", "event=offset_clamped group=%s topic=%s queue=%d from=%d to=%d",
                group, topic, queue_id, offset, end,
            )  # fmt: skip
            self._offsets.put(topic, group, queue_id, end)
            self._changed(topic + SEPARATOR + group)
        return bool(beyond)

    def replace(self, table: ConsumerOffsetTable) -> None:
        """Replace the table by a master's; offsets may be beyond the end of this replica's log."""
        self._offsets = table.offsets(self._offsets.name_of)
        self._pulls.clear()
        self.data_version = table.data_version
        self._changed()

    def catch_up(self, table: ConsumerOffsetTable) -> int:
        """Take the higher offsets from the table of another member of the broker group; return their number."""
        count = 0
        for key, queues in table.offsets().entries():
            topic, group = split(key)
            for queue_id, offset in queues.items():
                own = self._offsets.get(topic, group, queue_id)
                if own is None or offset > own:
                    self._offsets.put(topic, group, queue_id, offset)
                    count += 1
                    if self._on_light is not None and is_light(topic):
                        self._on_light(group, topic)
        if count:
            self.data_version.next(self._clock.wall_ms())
            self._changed()
        return count

    # Changes, for other replicas

    def take_deltas(self) -> dict[str, dict[int, int]]:
        """Return all offsets of each key ``topic@group`` that changed since the last call; empty for a deleted key.

        Read the result before the next change.  The first call, and the first after `forget_deltas`, returns nothing:
        a replica begins with the whole table.
        """
        touched, self._touched = self._touched or (), set()
        return {key: self._offsets.queues(*split(key)) for key in touched}

    def forget_deltas(self) -> None:
        """Stop recording changes: no replica follows any more."""
        self._touched = None

    def merge(self, changes: dict[str, dict[int, int]]) -> None:
        """Apply a master's `take_deltas`; offsets may be beyond the end of this replica's log."""
        for key, queues in changes.items():
            self._pulls.pop(key, None)
            self._offsets.put_queues(key, queues)
            self._changed(key)

    def totals(self) -> dict[str, int]:
        """Return the sum of the offsets of each ``topic@group``; its growth is the number of consumed messages."""
        return {key: sum(queues.values()) for key, queues in self._offsets.entries()}

    # The file

    def snapshot(self) -> WrittenOffsetTable:
        """Return the current table; read it before the next change."""
        return at_once(self._table(copy(self.data_version), self._offsets.entries()))

    def encode(self) -> bytes:
        """Return the body of the response to GET_ALL_CONSUMER_OFFSET."""
        return at_once(self.encoded())

    def encoded(self) -> Generator[None, None, bytes]:
        """Return the body in steps.  Offsets that change meanwhile may be newer than the version of the body."""
        table = yield from self._table(copy(self.data_version), self._offsets.entries())
        return (yield from text_of(table, table.offset_table.items()))

    def _table(self, version: DataVersion, entries: Entries) -> Generator[None, None, WrittenOffsetTable]:
        """Return the table with these entries, in steps; any thread may do them."""
        table = WrittenOffsetTable(version)
        for number, (key, queues) in enumerate(entries, 1):
            if not number % STEP_KEYS:
                yield
            topic, group = split(key)
            table.offset_table[key] = queues
            table.group_topic_map.setdefault(group, set()).add(topic)
        return table

    def _content(self) -> Callable[[], bytes]:
        # With many queues all of this takes a while; another thread does it.
        version, entries = copy(self.data_version), self._offsets.entries()
        return lambda: pretty(at_once(self._table(version, entries)))

    def share_names(self, name_of: Callable[[str], str]) -> None:
        """Keep for names of light topics the equal ones that `name_of` returns, from now on."""
        self._offsets.share_names(name_of)

    def _write(self, content: bytes) -> None:
        _BEFORE_SAVE()
        super()._write(content)
        _SAVED()


def _grouped(keys: Iterable[str]) -> Generator[None, None, dict[str, set[str]]]:
    topics: dict[str, set[str]] = {}
    for number, key in enumerate(keys, 1):
        if not number % STEP_KEYS:
            yield
        topic, group = split(key)
        topics.setdefault(group, set()).add(topic)
    return topics


def text_of(table: WrittenOffsetTable, offsets: Entries) -> Generator[None, None, bytes]:
    """Encode `table` with these `offsets` as `dumps`, but ten times faster, and in steps: slaves ask periodically."""
    topics = yield from in_steps(_taken(table.group_topic_map), dict, msgspec.json.encode)
    pieces: list[bytes] = []
    some: dict[str, dict[int, int]] = {}
    size = 0
    for key, queues in offsets:
        if len(queues) > STEP_KEYS:
            text = yield from in_steps(list(queues.items()), dict)
            pieces.append(b"%b:%b" % (dumps(key), bytes(text)))
            continue
        some[key] = queues
        size += len(queues) + 1
        if size > STEP_KEYS:
            pieces.append(_plain_text(some))
            some, size = {}, 0
            yield
    if some:
        pieces.append(_plain_text(some))
    text = msgspec.Raw(b"{%b}" % b",".join(pieces))
    content = {"dataVersion": table.data_version, "offsetTable": text}
    if table.lmq_offset_table is not None:
        content["lmqOffsetTable"] = yield from in_steps(table.lmq_offset_table.items(), dict, msgspec.json.encode)
    return dumps({**content, "groupTopicMap": topics})


def _taken(table: dict[str, T]) -> Iterator[tuple[str, T]]:
    """Yield the entries and remove them: to free all of them at once would take as long as to encode them."""
    items = list(table.items())
    table.clear()
    items.reverse()
    while items:
        yield items.pop()


def _plain_text(table: dict[str, dict[int, int]]) -> bytes:
    """Return the members of `table` as `dumps` writes them.

    Convert Python's text of the table, whose quotes and spaces differ from JSON, unless a name contains some.
    """
    text = repr(table)
    counts = [len(queues) for queues in table.values()]
    spaces = sum(2 * count - 1 for count in counts if count) + max(0, 2 * len(counts) - 1)
    if "\\" in text or '"' in text or text.count("'") != 2 * len(counts) or text.count(" ") != spaces:
        return dumps(table)[1:-1]
    return text.replace(" ", "").replace("'", '"').encode()[1:-1]


def decoded(content: bytes) -> ConsumerOffsetTable:
    """Decode the file, or a response to GET_ALL_CONSUMER_OFFSET; may run in any thread.  Raises ProtocolError.

    Numeric keys get quotes for the usual decoder, 32 KiB at a time, so that no other thread waits for long.  If that
    changes a string, the result is no table of offsets; then the slow decoder reads the whole content.
    """
    pieces, at = [], 0
    while at < len(content):
        end = content.find(b'"', at + _PIECE_BYTES)
        end = len(content) if end < 0 else end
        pieces.append(_BARE_KEY.sub(rb'\1"\2":', content[at:end].replace(*_BARE_ZERO)))
        at = end
    try:
        return msgspec.json.decode(b"".join(pieces), type=ConsumerOffsetTable, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return loads(content, ConsumerOffsetTable)


def decoded_changes(content: bytes) -> dict[str, dict[int, int]]:
    """Decode a master's `take_deltas`: ``topic@group`` -> queue id -> offset, as JSON.  Raises ProtocolError."""
    try:
        return msgspec.json.decode(content, type=dict[str, dict[int, int]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError("ha_table", f"changes of consumer offsets: {error}") from None
