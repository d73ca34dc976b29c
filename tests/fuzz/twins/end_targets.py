"""Ends of transactions through the compiled path beside single requests: the same log, responses and counts."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from acl.auth.model import Action
from acl.gate import Access
from broker.config.live_config import LiveConfig
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.offset.consumer_offsets import ConsumerOffsets
from broker.processor.end_transaction import TransactionProcessor
from broker.topic.moved_queues import PresentPlaces
from broker.transaction import end_frames
from broker.transaction.half_message import COMMIT, TRANSACTION_MASK, prepare
from broker.transaction.transactions import Transactions
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import ResponseTemplate, encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, Frame
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message.properties import encode
from sprocket.remoting.message.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from sprocket.remoting.routes import Decoded, RouteTable
from store import moves
from store.record.record import Appended, PendingMessage
from tests.broker.rig import broker_config
from tests.clock import ManualClock
from tests.fuzz.target import Target, pieces_of
from tests.fuzz.twins.send_targets import HOST, compare_served, served
from tests.fuzz.twins.wire_targets import TEXTS, encoding, rewritten
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import FLUSH, SimStore, small_config

try:
    from broker.transaction import kernel_native as compiled
    from store import moves_native as compiled_moves
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = compiled_moves = None  # type: ignore[assignment]

GROUP: Final = "PG"
ROLLBACK: Final = TRANSACTION_MASK
HALVES: Final = 60
_CODE: Final = RequestCode.END_TRANSACTION
_BEGIN: Final = b'{"code":37,"'
# Two stores take more memory than the bound on short inputs allows.
MIN_BYTES: Final = 40
# Properties besides those that every half message has; some replace one of those.
_ODD: Final[tuple[dict[str, str], ...]] = (
    {"a": "b"}, {"TAGS": "Zürich"}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "5"}, {"REAL_QID": "7"}, {"REAL_QID": "x"},
    {"REAL_TOPIC": TRANS_HALF_TOPIC}, {"REAL_TOPIC": "Unknown"}, {"TRANSACTION_CHECK_TIMES": "1"}, {"a#": "b"},
    {"K": "日本"}, {"PGROUP": "Other"}, {"PGROUP": ""}, {"INNER_NUM": "1"}, {"K": "v" * 2000}, {"": "v"}, {"x": ""},
)  # fmt: skip


@contextmanager
def path_of(is_native: bool) -> Iterator[None]:
    """Let new processors end transactions through one twin."""
    with encoding(is_native):
        done = ResponseTemplate(ResponseCode.SUCCESS, ())
    with (
        patch.object(end_frames, "DONE", done),
        patch.object(end_frames, "_is_native", is_native and compiled is not None),
        patch.object(moves, "engine", compiled_moves if is_native else None),
    ):
        yield


class Twin:
    """A store in memory with half messages, and the path of ends before it.

    The kernel takes the first half messages; with `odd` some of the others are for the handler.
    """

    def __init__(self, is_native: bool, odd: int = 0, *, sync_flush: bool = False, **changes: Any) -> None:
        self.clock, self.disk = ManualClock(), SimDisk()
        self.sim = SimStore(self.disk, small_config(sync_flush=sync_flush), self.clock)
        self.store = self.sim.open()
        self.store.store_host = HOST
        config = LiveConfig(broker_config(**changes), self.store.config)
        offsets = ConsumerOffsets(ConfigFile(Path("nowhere")), self.clock, config.plan_version)
        waits = ConfirmWaits(self.store, self.clock, lambda *_: SimpleNamespace(cancel=lambda: None))
        core: Any = SimpleNamespace(
            config=config, store=self.store, offsets=offsets, waits=waits, clock=self.clock,
            mappings=SimpleNamespace(by_name={}),
        )  # fmt: skip
        self.transactions = Transactions(core, PresentPlaces())
        self.is_native, self.config = is_native, config
        with path_of(is_native):
            self.processor = TransactionProcessor(core, self.transactions)
            routes = self.processor.routes()
        assert (routes[0].frames is not None) == is_native
        self.table = RouteTable(routes)
        self.counters = ChannelCounters()
        chance = random.Random(odd)
        self.halves: list[Appended] = []
        for number in range(HALVES):
            extra = chance.choice(_ODD) if odd and number > HALVES // 2 and chance.random() < 0.5 else {}
            self.halves.append(self.prepare(number, chance.randrange(200), extra))
        for queue_id in range(4):  # the compiled path leaves new queues to Python
            self.store.append([PendingMessage("Orders", queue_id, b"", b"", 0, 0, 0, 0, HOST)])
        self.store.append([PendingMessage(TRANS_OP_HALF_TOPIC, 0, b"", b"", 0, 0, 0, 0, HOST)])
        self.sim.step(FLUSH)
        self.transactions.load()

    def prepare(self, number: int, body_bytes: int, extra: dict[str, str]) -> Appended:
        """A half message, as the broker stores it."""
        properties = {"TRAN_MSG": "true", "UNIQ_KEY": f"K{number}", "TAGS": "TagA"}
        topic, queue_id = prepare(properties, "Orders", number % 4, GROUP)
        encoded, born_ms = encode(properties | extra).encode(), self.clock.wall_ms() - number * 1000
        return self.store.append([PendingMessage(topic, queue_id, bytes(body_bytes), encoded, 0, 7, 0, born_ms, HOST)])[
            0
        ]

    def serve(self, pieces: list[bytes]) -> list[Any]:
        """Read the pieces of one connection; return everything that a peer or an operator can see of it."""
        with path_of(self.is_native):
            return [*served(self.table, self.counters, self.sim, pieces), *self.state()]

    def state(self) -> list[Any]:
        """What is stored and counted."""
        store, done = self.store, self.transactions
        latencies = sorted((labels, one.counts, one.total) for labels, one in done.latencies.read())
        half_end = store.max_offset(TRANS_HALF_TOPIC, 0)
        return [
            self.disk.files(), store.wrote_offset, store.confirm_offset, store.statistics.put_messages,
            store.statistics.put_bytes, dict(done.committed), dict(done.rolled_back), latencies,
            (done.open.half_offset, done.open.op_offset, done.open.open_offsets(half_end, 1000)),
            [(*queue, store.max_offset(*queue)) for queue in sorted(store.queues())],
        ]  # fmt: skip


def end_frame(
    half: Appended, outcome: int = COMMIT, *, serialization: int = JSON, opaque: int = 1, oneway: bool = True,
    **changes: Any,
) -> bytes:  # fmt: skip
    """The end of a half message, as clients send it."""
    fields: dict[str, Any] = {
        "topic": "Orders", "producer_group": GROUP, "tran_state_table_offset": half[0], "commit_log_offset": half[1],
        "commit_or_rollback": outcome, "from_transaction_check": False, "msg_id": "ID", "transaction_id": "ID",
    }  # fmt: skip
    header = to_ext_fields(EndTransactionRequestHeader(**(fields | changes)))
    return encode_request(_CODE, opaque, header, 0, oneway=oneway, serialization=serialization)


def end_of(chance: random.Random, halves: list[Appended], plain: float) -> bytes:
    """A frame of an end, as clients write it with the probability `plain`."""
    pick, is_plain = chance.choice, chance.random() < plain
    half = pick(halves)
    where = {"serialization": pick((JSON, JSON, ROCKETMQ)) if not is_plain else JSON, "opaque": pick((0, 1, -1, 77))}
    if is_plain:
        return end_frame(half, pick((COMMIT, COMMIT, ROLLBACK)), oneway=chance.random() < 0.7, **where)
    changes = pick(
        (
            {}, {"producer_group": pick(("Other", "", "Zürich", 'P"G'))}, {"tran_state_table_offset": half[0] + 1},
            {"tran_state_table_offset": pick((-1, 1 << 40, 1 << 62))}, {"from_transaction_check": True},
            {"commit_log_offset": pick((-1, 0, half[1] + 1, 1 << 40, 1 << 62))}, {"topic": None, "broker_name": "b"},
        )
    )  # fmt: skip
    frame = end_frame(half, pick((COMMIT, ROLLBACK, 0, 3)), oneway=chance.random() < 0.5, **where, **changes)
    if where["serialization"] == JSON and chance.random() < 0.3:
        return rewritten(chance, frame)
    if chance.random() < 0.2:
        header = EndTransactionRequestHeader(
            producer_group=GROUP, tran_state_table_offset=half[0], commit_log_offset=half[1],
            commit_or_rollback=COMMIT, msg_id="ID",
        )  # fmt: skip
        fields = to_ext_fields(header)
        fields[pick((*fields, "unknown"))] = pick(TEXTS)
        return encode_request(_CODE, 1, fields, 0, serialization=where["serialization"])
    return frame


class OneTopic(Access):
    """Admits an action on one topic, and keeps what it was asked."""

    def __init__(self, topic: str, action: Action) -> None:
        self._admitted = topic, action
        self.asked: list[str] = []

    def require(self, channel: RemotingChannel, topic: str, action: Action, group: str | None) -> None:
        self.asked.append(topic)
        if (topic, action) != self._admitted:
            raise RequestError(ResponseCode.NO_PERMISSION, "not your topic")


def guarded(table: RouteTable, access: Access) -> RouteTable:
    """Return routes behind a gate."""

    def guard(frame: Frame, channel: Any) -> Decoded:
        decoded = table.decode(frame)
        assert isinstance(decoded, tuple)
        decoded[1].channel, decoded[1].access = channel, access
        return decoded

    return table.behind(guard)


@contextmanager
def counted(twin: Twin) -> Iterator[list[int]]:
    """Count the messages of each append that the engine makes."""
    counts: list[int] = []
    append = twin.store.append_encoded

    def counting(records: Any) -> int:
        counts.append(len(records))
        return append(records)

    with patch.object(twin.store, "append_encoded", counting):
        yield counts


def compare_ends(pieces: list[bytes], odd: int = 0, **changes: Any) -> tuple[list[Any], int]:
    """Serve the same bytes by both twins; return what came of it, and how many messages the engine appended."""
    native = Twin(True, odd, **changes)
    with counted(native) as moved:
        expected = compare_served(Twin(False, odd, **changes), native, pieces)
    return expected, sum(moved)


def end_twins(data: bytes) -> None:
    """Ends that `data` chooses, then `data` itself as a stream of frames, in one piece and in many."""
    if compiled is None or len(data) < MIN_BYTES:
        return
    chance, odd = random.Random(data), data[0]
    halves = Twin(False, odd).halves
    chosen = chance.choice((halves, halves[: HALVES // 2]))
    made = [end_of(chance, chosen, chance.choice((0.0, 0.9, 1.0))) for _ in range(chance.choice((1, 10, 40)))]
    # A header that begins with another member is a run of its own, or not, by the decoder in use.
    alone = [frame for frame in made if not frame.startswith(_BEGIN, 8) and frame[4] == JSON]
    made = [frame for frame in made if frame not in alone]
    reads = [*alone, *(b"".join(made[at : at + 8]) for at in range(0, len(made), 8))]
    max_bytes = chance.choice((5, 4096))
    compare_ends([*reads, data], odd, sync_flush=chance.random() < 0.3, transaction_op_msg_max_size=max_bytes)
    compare_ends(pieces_of(b"".join(made) + data) or [b""], odd)


_SEEDS: Final = [
    b"".join(end_frame((offset, 300 * offset, 300), COMMIT, oneway=bool(offset % 2)) for offset in range(at, at + 3))
    for at in (0, 3, 6)
]

ENGINE_END_TARGETS: Final = (Target("end_twins", end_twins, _SEEDS, 1 << 16),)
