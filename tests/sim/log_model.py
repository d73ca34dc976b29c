"""What a store was told, and what it must therefore hold after a crash."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sprocket.remoting.message.record import MAGIC_BLANK, SysFlag
from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.config.delay_levels import parse_delay_levels
from store.message_store import MessageStore, PendingMessage
from store.record.record import Record, decode

QueueKey: TypeAlias = tuple[str, int]
# Given an offset of the log and a length, its bytes; they may be past its end.
ReadLog: TypeAlias = Callable[[int, int], bytes]
_CRC_PROPERTY: Final = b"__CRC32#\x01"
_HEAD_BYTES: Final = 8
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)


@dataclass(slots=True)
class Expected:
    """A message in the log: where, and what the log and its queue say of it."""

    message: PendingMessage
    store_timestamp: int
    queue_offset: int
    physical_offset: int
    content: bytes
    size_bytes: int = field(init=False)
    end_offset: int = field(init=False)
    key: QueueKey = field(init=False)
    in_queue: bool = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = len(self.content)
        self.end_offset = self.physical_offset + self.size_bytes
        self.key = self.message.topic, self.message.queue_id
        self.in_queue = not self.message.sys_flag & _PREPARED

    def tags_code(self, delays_ms: list[int]) -> int:
        """What its ConsumeQueue entry says beside its place."""
        if self.message.topic == SCHEDULE_TOPIC:
            level = int(dict(_properties(self.message.properties))[b"DELAY"])
            return self.store_timestamp + delays_ms[level - 1]
        return self.message.tags_code


def _properties(properties: bytes) -> Iterator[tuple[bytes, bytes]]:
    for pair in properties.split(b"\x02"):
        if pair:
            name, _, value = pair.partition(b"\x01")
            yield name, value


@dataclass
class LogModel:
    """The messages in the order of the log, and what was promised about them."""

    segment_bytes: int
    records: list[Expected] = field(default_factory=list)
    # Messages of an append that has not returned; the log may hold a first part of them.
    in_flight: list[PendingMessage] = field(default_factory=list)
    # The log must hold everything before this: flushed, or acknowledged as flushed.
    durable_end: int = 0
    # End of the log if it is after the blank that follows the last record.
    blank_end: int = 0
    # (queue, end of the log when its topic's deletion returned)
    deletions: list[tuple[QueueKey, int]] = field(default_factory=list)
    # The topic whose deletion has not returned.
    deleting: str | None = None

    @property
    def end_offset(self) -> int:
        """End of the last record."""
        return self.records[-1].end_offset if self.records else 0

    def appended(self, store_timestamp: int, results: Sequence[tuple[int, int, int]], read: ReadLog) -> list[str]:
        """The append in flight returned `results`; what is wrong with the bytes it wrote."""
        problems: list[str] = []
        position = max(self.end_offset, self.blank_end)
        for message, (queue_offset, physical_offset, size) in zip(self.in_flight, results, strict=True):
            content = read(physical_offset, size)
            if physical_offset != self._place(position, size):
                problems.append(f"a record of {size} bytes stands at {physical_offset} behind {position}")
            problems += differences(message, queue_offset, physical_offset, store_timestamp, content)
            self.records.append(Expected(message, store_timestamp, queue_offset, physical_offset, content))
            position = physical_offset + size
        self.in_flight = []
        return problems

    def _place(self, position: int, size: int) -> int:
        """Return where a record of `size` goes after `position`: to the next segment if no blank fits after it."""
        rest = self.segment_bytes - position % self.segment_bytes
        return position if size + _HEAD_BYTES <= rest else position + rest

    def recovered(self, store: MessageStore, read: ReadLog) -> tuple["LogModel", list[str]]:
        """The model of what `store` holds after a crash, and what is wrong with it."""
        end = store.wrote_offset
        kept = [record for record in self.records if record.end_offset <= end]
        # What a deletion covered and the log lost, later messages must not inherit.
        deletions = [(key, min(deleted_until, end)) for key, deleted_until in self.deletions]
        left = LogModel(self.segment_bytes, kept, deletions=deletions, deleting=self.deleting)
        problems = []
        if end < self.durable_end:
            problems.append(f"the log ends at {end}, flushed were {self.durable_end}")
        problems += [
            f"record at {record.physical_offset} is not what was appended"
            for record in kept
            if read(record.physical_offset, record.size_bytes) != record.content
        ]
        if len(kept) == len(self.records):
            problems += left.take_in_flight(self.in_flight, end, read)
        if end not in (left.end_offset, left.end_offset + (-left.end_offset % self.segment_bytes)):
            problems.append(f"the log ends at {end}, its last record at {left.end_offset}")
        left.durable_end, left.blank_end = store.flushed_offset, end
        return left, problems

    def take_in_flight(self, messages: list[PendingMessage], end: int, read: ReadLog) -> list[str]:
        """Add those of `messages`, in order, that lie before `end`."""
        for message in messages:
            position = self.end_offset
            head = read(position, _HEAD_BYTES)
            if int.from_bytes(head[4:], "big", signed=True) == MAGIC_BLANK:
                position += self.segment_bytes - position % self.segment_bytes
                head = read(position, _HEAD_BYTES)
            size = int.from_bytes(head[:4], "big")
            if position + size > end or position >= end:
                return []
            content = read(position, size)
            record = decode(memoryview(content))
            if isinstance(record, str):
                return [f"record at {position}, of an append that did not return, is damaged: {record}"]
            self.records.append(Expected(message, record.store_timestamp, record.queue_offset, position, content))
            problems = differences(message, record.queue_offset, position, record.store_timestamp, content)
            if problems:
                return problems
        return []

    def deleted(self, keys: list[QueueKey], end: int) -> None:
        """The deletion of these queues' topic returned when the log ended at `end`."""
        self.deletions += [(key, end) for key in keys]

    def queues(self, *, with_deleted: bool = False) -> dict[QueueKey, list[Expected]]:
        """What each queue holds; `with_deleted` as if no topic had been deleted."""
        deleted_until = {} if with_deleted else dict(self.deletions)
        queues: dict[QueueKey, list[Expected]] = {}
        for record in self.records:
            if record.in_queue and record.physical_offset >= deleted_until.get(record.key, 0):
                queue = queues.setdefault(record.key, [])
                # A topic that was deleted and created again begins at 0.
                del queue[record.queue_offset :]
                queue.append(record)
        return queues


def differences(
    message: PendingMessage, queue_offset: int, physical_offset: int, store_timestamp: int, content: bytes
) -> list[str]:
    """Where the record `content` says something else than the message it was made of."""
    record = decode(memoryview(content))
    if isinstance(record, str):
        return [f"record at {physical_offset} is damaged: {record}"]
    expected = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "flag": message.flag,
        "born_timestamp": message.born_timestamp,
        "born_host": message.born_host,
        "store_timestamp": store_timestamp,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body": bytes(message.body),
        "properties": message.properties.rstrip(b"\x02"),
    }
    actual = {name: getattr(record, name) for name in expected}
    actual["body"], actual["properties"] = bytes(record.body), _without_crc(record)
    return [
        f"record at {physical_offset}: {name} is {actual[name]!r}, not {expected[name]!r}"
        for name in expected
        if actual[name] != expected[name]
    ]


def _without_crc(record: Record) -> bytes:
    """The properties without the checksum of the whole record, which the store adds as the last one."""
    properties = bytes(record.properties)
    at = properties.rfind(_CRC_PROPERTY)
    return (properties if at < 0 else properties[:at]).rstrip(b"\x02")


def check_store(store: MessageStore, model: LogModel, *, deletions_hold: bool = True) -> list[str]:
    """What is wrong with a started store that should hold what `model` says.

    Queues of a deleted topic may come back unless `deletions_hold`; the model then forgets their deletion.
    """
    problems = check_offsets(store)
    delays_ms = parse_delay_levels(store.config.message_delay_level)
    deleted = {key for key, _ in model.deletions}
    expected = model.queues()
    otherwise = model.queues(with_deleted=True) if deleted and not deletions_hold else {}
    for key in sorted({*store.queues(), *expected, *otherwise}):
        found = check_queue(store, key, expected.get(key, []), delays_ms)
        if found and key[0] == model.deleting and not check_queue(store, key, [], delays_ms):
            found = []
        if found and key in deleted and not deletions_hold:
            found = check_queue(store, key, otherwise.get(key, []), delays_ms)
            if not found:
                model.deletions = [deletion for deletion in model.deletions if deletion[0] != key]
        problems += found
    return problems


def check_offsets(store: MessageStore) -> list[str]:
    """The order of the store's offsets, and that no read passes confirm."""
    confirm, wrote = store.confirm_offset, store.wrote_offset
    problems = []
    if not 0 <= confirm <= wrote or not 0 <= store.flushed_offset <= wrote:
        problems.append(f"confirm {confirm}, flushed {store.flushed_offset}, wrote {wrote}")
    if store.record_at(confirm, 91) is not None:
        problems.append(f"a record at the confirm offset {confirm} can be read")
    for topic, queue_id in store.queues():
        last = store.entry(topic, queue_id, store.max_offset(topic, queue_id) - 1)
        if last is not None and last[0] + last[1] > confirm:
            problems.append(f"{topic} queue {queue_id} shows a record that ends behind the confirm offset {confirm}")
    return problems


def check_queue(store: MessageStore, key: QueueKey, expected: list[Expected], delays_ms: list[int]) -> list[str]:
    """What is wrong with one queue that should hold `expected`, all of it confirmed, from offset 0 on."""
    topic, queue_id = key
    name = f"{topic[:30]} queue {queue_id}"
    bounds = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if bounds != (0, len(expected)):
        return [f"{name} has {bounds[0]} to {bounds[1]}, expected 0 to {len(expected)}"]
    # A record says its own place and queue offset: its bytes tell that the entry is right but for the tags code.
    offset = 0
    while offset < len(expected):
        result = store.get(topic, queue_id, offset, 32, 1 << 30)
        content = b"".join(record.content for record in expected[offset : result.next_offset])
        if result.next_offset <= offset or b"".join(result.slices) != content:
            return [f"{name} answers {result.status} at {offset}, and not what was appended"]
        offset = result.next_offset
    tags_codes = [record.tags_code(delays_ms) for record in expected]
    offset = 0
    while offset < len(expected):
        found = store.tags_codes(topic, queue_id, offset, len(expected)).tolist()
        if not found or found != tags_codes[offset : offset + len(found)]:
            return [f"{name} has tags codes {found} from {offset} on, expected {tags_codes[offset:]}"]
        offset += len(found)
    places = [record.queue_offset for record in expected]
    return [] if places == list(range(len(expected))) else [f"{name} was appended as {places}"]
