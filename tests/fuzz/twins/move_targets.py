"""Records that the compiled engine moves to their real topic beside what Python makes of the same stored records."""

import random
import struct
from array import array
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from broker.plan.table import PlanTable
from broker.plan.version import PlanVersion
from broker.transaction.half_message import COMMIT, HalfMessage
from broker.transaction.planner import EndPlan, Why
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.engine import header_fields
from sprocket.remoting.frames import ResponseTemplate, encode_request
from sprocket.remoting.framing import FrameDecoder
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.record import PHYSICAL_OFFSET_AT
from sprocket.remoting.message.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from store.moves import PLAIN_FLAGS
from store.record.checksum import SEAL_BYTES
from store.record.record import PendingMessage, Record, TagsCodes, decode, topic_field
from store.timer.timed_message import TOPIC_FIELD, TimedMessage, read_timed
from store.timer.timer_log import DEFAULT, Unit, UnitBatch
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target
from tests.fuzz.twins.scan_targets import sealed
from tests.fuzz.twins.wire_targets import encoding

try:
    from broker.transaction import kernel_native as ends_engine
    from store import moves_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

_AT: Final = 1 << 33  # physical offset of the stored record
_QUEUE_OFFSET: Final = 5
_SLOT_MS: Final = 1_700_000_001_000
_WIDTH_MS: Final = 1000
_ENQUEUE_MS, _NOW_MS = 1_700_000_000_500, 1_700_000_001_234
_HOST: Final = bytes(8)
_TAGS_CODES: Final = TagsCodes("1s 5s")
_CODE: Final = RequestCode.END_TRANSACTION
_COMMIT: Final = EndTransactionRequestHeader(
    producer_group="PG", tran_state_table_offset=_QUEUE_OFFSET, commit_log_offset=_AT, commit_or_rollback=COMMIT,
    msg_id="ID",
)  # fmt: skip
_END: Final = FrameDecoder().feed(encode_request(_CODE, 1, to_ext_fields(_COMMIT)))[0]
_PLACE: Final = b"REAL_TOPIC\x01Orders\x02REAL_QID\x010\x02"
_DUE: Final = b"TIMER_OUT_MS\x011700000001000\x02"
_BASES: Final = (
    b"",
    b"UNIQ_KEY\x01K\x02",
    b"TAGS\x01TagA\x02",
    b"TAGS\x01a\x02TAGS\x01b\x02",
    "K\x01Zürich\x02".encode(),
    b"K\x01v\x02" * 40,
)


class _Queue(NamedTuple):
    topic: str
    queue_id: int
    topic_bytes: bytes
    magic: int
    next_offset: int


def _stored(topic: str, properties: bytes, body: bytes = b"body", sys_flag: int = 0) -> bytes:
    """A sealed record of the timer's or of the half topic."""
    record = bytearray(whole_record(body, properties, sys_flag, topic))
    struct.pack_into(">qq", record, PHYSICAL_OFFSET_AT - 8, _QUEUE_OFFSET, _AT)
    return sealed(bytes(record))


def _queue_of(topic: str, queue_id: int) -> Any:
    magic, topic_bytes = topic_field("Orders")
    return _Queue("Orders", 0, topic_bytes, magic, 3) if (topic, queue_id) == ("Orders", 0) else None


def _moves() -> Any:
    return compiled.Moves(PLAIN_FLAGS, 1 << 20, 32_767, _queue_of)


def _kernel(view: memoryview) -> Any:
    fields = header_fields(_CODE, EndTransactionRequestHeader, ends_engine)
    with encoding(True):
        done = ResponseTemplate(ResponseCode.SUCCESS, ())
    assert fields is not None

    def plan_of(outcome: int, topic: str, queue_id: int) -> EndPlan:
        queue = _queue_of(topic, queue_id)
        return EndPlan(topic, outcome == COMMIT, queue, None if queue else Why.QUEUE, False)

    reads = SimpleNamespace(segment_at=lambda offset: (view, _AT, _AT + len(view)), cold_end=0)
    return ends_engine.EndKernel(_CODE, fields, done.encoder, plan_of, PlanTable(PlanVersion()), reads)


def _compare(moves: Any, made: PendingMessage | None) -> None:
    """What was moved is the message that Python makes."""
    assert made is not None
    assert (made.topic, made.queue_id) == ("Orders", 0)
    records, ((_, entries),) = moves.encode(_AT + 1000, 77, _HOST)
    found = decode(memoryview(records), check_crc=True)
    assert isinstance(found, Record), found
    assert (found.topic, found.queue_id, found.queue_offset, found.physical_offset) == ("Orders", 0, 3, _AT + 1000)
    assert bytes(found.body) == bytes(made.body)
    assert bytes(found.properties)[:-SEAL_BYTES] == made.properties
    assert (found.flag, found.sys_flag, found.born_timestamp) == (made.flag, made.sys_flag, made.born_timestamp)
    assert (found.reconsume_times, found.store_timestamp) == (made.reconsume_times, 77)
    assert struct.unpack(">qiq", entries) == (_AT + 1000, len(records), made.tags_code)


def _timed(data: bytes) -> None:
    moves, view = _moves(), memoryview(data)
    batch = UnitBatch(0, 1 << 20)
    batch.add(Unit(-1, DEFAULT, _ENQUEUE_MS, 1000, _AT, len(data), 0))
    unit = memoryview(bytes(batch.content))
    taken, size_bytes, counts = moves.add_units(
        unit, 0, len(unit), array("q", [0]), 0, 1, 1 << 20, view, _AT, _AT + len(view), TOPIC_FIELD, _SLOT_MS,
        _WIDTH_MS, _NOW_MS,
    )  # fmt: skip
    assert len(moves) == taken
    assert (size_bytes, counts) == ((len(data), [("Orders", 1)]) if taken else (0, []))
    # The store gives whole records: these are none.
    if not taken or not isinstance(decode(view, check_crc=False), Record):
        return
    message = read_timed(SimpleNamespace(record_at=lambda *_: view), _AT, len(data))  # type: ignore[arg-type]
    assert isinstance(message, TimedMessage), message
    assert message.due_ms // _WIDTH_MS * _WIDTH_MS == _SLOT_MS
    _compare(moves, message.real(_ENQUEUE_MS, _NOW_MS, _TAGS_CODES))


def _half(data: bytes) -> None:
    moves, view = _moves(), memoryview(data)
    entry = memoryview(struct.pack(">qiq", _AT, len(data), 0))
    queue = SimpleNamespace(
        min_offset=_QUEUE_OFFSET, max_offset=_QUEUE_OFFSET + 1, view_at=lambda offset: (entry, 0, 1)
    )
    ends = _kernel(view).read([_END], 0, 1, moves, queue, _AT + len(view), topic_field(TRANS_HALF_TOPIC)[1], 0, set())
    assert len(moves) == (ends is not None)
    record = decode(view, check_crc=False)
    if ends is None or not isinstance(record, Record):
        return
    half = HalfMessage(record)
    assert ends.by_topic() == {"Orders": [[record.born_timestamp], 0]}
    assert half.target == ("Orders", 0)
    _compare(moves, half.real("Orders", 0, _TAGS_CODES))


def move_twins(data: bytes) -> None:
    """One stored record, as a timed message and as a half message."""
    if compiled is not None:
        _timed(data)
        _half(data)


def _seeds() -> list[bytes]:
    chance, found = random.Random(4), []
    for base in _BASES:
        body = chance.randbytes(chance.choice((0, 20, 300)))
        found.append(_stored(TIMER_TOPIC, base + _DUE + _PLACE, body))
        found.append(_stored(TRANS_HALF_TOPIC, base + b"TRAN_MSG\x01true\x02PGROUP\x01PG\x02" + _PLACE, body))
    return found


ENGINE_MOVE_TARGETS: Final = (Target("move_twins", move_twins, _seeds(), 4096),)
