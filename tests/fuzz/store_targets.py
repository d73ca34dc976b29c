"""Decoders of what lies on the disk: records, logs, indexes, checkpoints, tables, marks; and a whole store's start."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from broker.auth.replica_identity import HaStore
from broker.filter.consumer_filters import ConsumerFilterTable
from broker.offset.consumer_offsets import ConsumerOffsetTable, decoded
from broker.pop.order_info import OrderInfoTable
from broker.pop.retry_record import renamed
from broker.pop.revive.revive_record import read_record
from broker.subscription.request_modes import RequestModeTable
from broker.timer.schedule import DelayOffsetTable
from broker.timer.timer_metrics import TimerMetricsTable
from broker.transaction.half_message import HalfMessage, op_offsets
from sprocket.common.errors import ProtocolError, StoreError
from sprocket.remoting.bodies.group import SubscriptionGroupTable
from sprocket.remoting.bodies.topic import TopicConfigTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.message.record import SysFlag
from store.disk.sealed_file import seal, unseal
from store.flush.checkpoint import Checkpoint, load_checkpoint
from store.index.index_file import IndexHeader
from store.queue.multi_dispatch import named_queues
from store.record.record import Record, TagsCodes, decode, encode_head, topic_field
from store.scan.record_scan import RecordScan, record_at
from store.timer.timer_progress import Progress, TimerCheckpoint
from tests.clock import ManualClock
from tests.fuzz.target import Target
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import STORE_ROOT, SimStore, small_config
from tests.store.rig import HOST, message

TABLES: tuple[Any, ...] = (
    TopicConfigTable,
    SubscriptionGroupTable,
    ConsumerOffsetTable,
    DelayOffsetTable,
    ConsumerFilterTable,
    OrderInfoTable,
    RequestModeTable,
    TimerMetricsTable,
    HaStore,
)
TAGS_CODES = TagsCodes("1s 5s")


def whole_record(body: bytes, properties: bytes, sys_flag: int = 0, topic: str = "Orders") -> bytes:
    """A record without a seal, as a log holds it."""
    pending = message(topic, body=body, properties=properties, sys_flag=sys_flag)
    magic, name = topic_field(topic)
    host = HOST if not sys_flag & SysFlag.STORE_HOST_V6 else bytes(20)
    if sys_flag & SysFlag.BORN_HOST_V6:
        pending.born_host = bytes(20)
    head = encode_head(pending, 0, magic, 5, 0, sys_flag, 1_700_000_000_000, host)
    rest = body + name + struct.pack(">H", len(properties)) + properties
    return struct.pack(">i", len(head) + len(rest)) + head[4:] + rest


# Records and logs


def record(data: bytes) -> None:
    """One record: decoded or refused in words, and whatever reads parts of it agrees."""
    view = memoryview(data)
    found = decode(view, check_crc=False)
    if isinstance(found, str):
        assert found
        assert renamed(view, "T", "h") is view
    else:
        assert len(found.body) + len(found.properties) < len(data)
        encoded = bytes(found.properties)
        TAGS_CODES.of(found.topic, encoded, found.store_timestamp)
        op_offsets(found)
        half = HalfMessage(found)
        _ = half.identity, half.target, half.check_times, half.prepared_offset, half.immunity_ms(6000), half.is_copy
        again = decode(memoryview(renamed(view, "T", "h")), check_crc=False)
        assert isinstance(again, Record) and again.topic in ("T", found.topic)
    read_record(view)
    checked = decode(view)
    assert isinstance(checked, str) or isinstance(found, Record)


def log(data: bytes) -> None:
    """A segment: the scan in arrays finds what the scan record by record finds, and stops for the same reason."""
    view = memoryview(data + bytes(16))
    scan = RecordScan(view, 0, len(view), check_crc=True)
    positions = [batch.base + position for batch in scan for position in batch.positions.tolist()]
    at, expected = 0, []
    while isinstance(found := record_at(view, at, 0, len(view), check_crc=True), Record):
        expected.append(at)
        at += found.size_bytes
    assert positions == expected
    assert scan.end == found


# Small files


class OneFile:
    """A disk that holds one file's content."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, _: object) -> bytes:
        return self.content


def small_files(data: bytes) -> None:
    """Checkpoints, index headers and sealed files of any bytes."""
    disk: Any = OneFile(data)
    checkpoint = load_checkpoint(disk, STORE_ROOT / "checkpoint", 1_700_000_000_000)
    assert checkpoint.min_timestamp() >= 0
    timer = TimerCheckpoint.decode(data)
    assert timer.progress.log_position >= 0
    if len(data) >= 40:
        assert IndexHeader.decode(memoryview(data)).index_count >= 1
    content = unseal(b"QLST", data)
    assert isinstance(content, str) or seal(b"QLST", content) == data
    named_queues(data)


def tables(data: bytes) -> None:
    """Every JSON table of a broker's config directory."""
    for kind in TABLES:
        with suppress(ProtocolError):
            loads(data, kind)


def offset_table(data: bytes) -> None:
    """The quick reader of offsets says what the slow one says, or what the slow one refuses."""
    try:
        quick: object = decoded(data)
    except ProtocolError:
        quick = None
    try:
        slow: object = loads(data, ConsumerOffsetTable)
    except ProtocolError:
        slow = None
    assert quick == slow or slow is None or quick is None or data.count(b'"') > 0


# A whole store


class StoppedStore:
    """The files of a small store, to be damaged again and again."""

    def __init__(self) -> None:
        self.config = small_config(sync_flush=False)
        self._disk = SimDisk()
        sim = SimStore(self._disk, self.config, ManualClock())
        sim.open()
        sim.store.append([message(queue_id=number % 2, body=b"%d" % number * 20, tag="red") for number in range(12)])
        sim.store.shutdown()
        self.files = {
            path: bytes(content) for path, content in self._disk.files().items() if content and path.name != "lock"
        }
        self.paths = sorted(self.files)

    def start_with(self, damage: bytes) -> None:
        """Put `damage` in the place of a part of one file and start: it opens, or refuses by a declared error."""
        if len(damage) < 4:
            return
        path = self.paths[damage[0] % len(self.paths)]
        at = int.from_bytes(damage[1:4], "big") % (len(self.files[path]) + 1)
        content = self.files[path][:at] + damage[4:] + self.files[path][at + len(damage) - 4 :]
        disk = SimDisk()
        for other in self.paths:
            disk.write_small(other, content if other == path else self.files[other])
        sim = SimStore(disk, self.config, ManualClock())
        try:
            sim.open()
        except StoreError as error:
            assert str(error)
            return
        with suppress(StoreError):
            for queue in (0, 1):
                sim.store.get("Orders", queue, 0, 32, 1 << 20)
        sim.store.shutdown()


_STOPPED: list[StoppedStore] = []


def store_start(data: bytes) -> None:
    """Any bytes in any file of a store, and a start."""
    if not _STOPPED:
        _STOPPED.append(StoppedStore())
    _STOPPED[0].start_with(data)


def _record_seeds() -> Sequence[bytes]:
    v6 = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    op = b"TAGS\x01d\x02"
    half = b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02PGROUP\x01g\x02TRAN_PREPARED_QUEUE_OFFSET\x015\x02"
    return [
        whole_record(b"body", b"TAGS\x01a\x02"),
        whole_record(b"1,2,99999999999999999999", op),
        whole_record(b"x", half),
        whole_record(b"body" * 10, b"a\x01b\x02", v6),
        whole_record(b"b", b"", 0, "x" * 200),
        whole_record(b"b", b""),
        whole_record(b'{"so":1,"n":2,"t":"x","c":"g","d":[0,5]}', b"TAGS\x01ck\x02TIMER_DELIVER_MS\x01123\x02"),
    ]


RECORDS = _record_seeds()
TABLE_SEEDS = [
    b'{"offsetTable":{"Orders@CG":{0:5,1:7}},"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5}}',
    b'{"topicConfigTable":{"A":{"topicName":"A","attributes":{"+a":"b"},"perm":6}},"dataVersion":{}}',
    b'{"subscriptionGroupTable":{"CG":{"groupName":"CG","retryMaxTimes":16}},"forbiddenTable":{"CG":{"t":1}}}',
    b'{"table":{"Orders@CG":{0:{"c":1,"i":60000,"l":1,"o":[0,1],"oc":{1:2},"pt":5,"a":"x"}}}}',
    b'{"timingCount":{"Orders":{"count":5,"timeStamp":7}},"dataVersion":{}}',
    b'{"filterDataByTopic":{"T":{"filterDataMap":{"G":{"expression":"a > 1","bornTime":1}},"topic":"T"}}}',
]
STORE_TARGETS = [
    Target("record", record, RECORDS, 128),
    Target(
        "log",
        log,
        [b"".join(RECORDS), RECORDS[0] * 5, RECORDS[0] + struct.pack(">ii", 64, 0xBBCCDDEE - (1 << 32))],
        200,
    ),
    Target(
        "small_files",
        small_files,
        [
            Checkpoint(1, 2, 3, 4, 5).encode(),
            TimerCheckpoint(Progress(1, 2, 3)).page(),
            seal(b"QLST", b"content"),
            bytes(40),
        ],
        64,
    ),
    Target("tables", tables, TABLE_SEEDS, 400),
    Target("offset_table", offset_table, TABLE_SEEDS[:1], 400),
    Target("store_start", store_start, [bytes([number, 0, number * 7, 9]) + bytes(8) for number in range(12)], 1 << 20),
]
