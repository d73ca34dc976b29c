"""Sends through the compiled kernel beside single requests: the same log, queues, responses, errors for any bytes."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol
from unittest.mock import patch

from broker.client.queue_locks import QueueLocks
from broker.config.broker_config import BrokerRole
from broker.config.live_config import LiveConfig
from broker.idempotence.known_ids import KnownIds
from broker.longpolling.confirm_waits import ConfirmWaits
from broker.message_id import UniqueKeys
from broker.metrics.message_flow import MessageFlow
from broker.namespace.namespaces import NO_NAMESPACES
from broker.processor.send import SendProcessor
from broker.quota.quota_table import QuotaTable
from broker.quota.quotas import Quotas
from broker.send import send_frames
from broker.send.intake import MessageIntake
from broker.send.planner import SendPlanner
from broker.timer.timer_intake import TimerIntake
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.headers.base import to_ext_fields
from sprocket.remoting.headers.send import SendMessageRequestHeader
from sprocket.remoting.routes import RouteTable
from store.disk.disk import DiskFile
from store.record.record import TagsCodes
from tests.broker.idempotence.at_once import call_at_once
from tests.broker.rig import broker_config
from tests.clock import ManualClock
from tests.fuzz.target import Target, pieces_of
from tests.fuzz.twins.wire_targets import TEXTS, encoding, rewritten
from tests.send_headers import client_batch, send_header
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import FLUSH, SimStore, small_config

try:
    from broker.send import kernel_native as compiled
except ImportError:  # no C compiler: `tests/engine` says so
    compiled = None  # type: ignore[assignment]

HOST: Final = bytes((10, 1, 2, 3)) + (10911).to_bytes(4, "big")
TOPICS: Final = ("Orders", "Trades", "Tagged", "T" * 200, "%RETRY%G", "NoWrite")


class Topics:
    """Topics that are there; no other may be created."""

    def __init__(self) -> None:
        self.unsaved: set[str] = set()
        self.relied_on: list[str] = []
        self.rely_on = self.relied_on.append
        self.by_name = {name: TopicConfig(name, 4, 4) for name in TOPICS}
        self.by_name["Tagged"] = TopicConfig("Tagged", 2, 2, topic_filter_type="MULTI_TAG")
        self.by_name["NoWrite"] = TopicConfig("NoWrite", 4, 4, perm=4)
        self.get = self.by_name.get

    def create_on_send(self, *arguments: object, **more: object) -> None:
        return None

    def get_or_create(self, topic: str, queues: int, **more: object) -> TopicConfig:
        return self.by_name.setdefault(topic, TopicConfig(topic, queues, queues))


class Output(asyncio.Transport):
    """Keeps what is written, and whether the connection was closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 40000), "sockname": ("10.0.0.1", 10911)})
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Serving(Protocol):
    """One of two twins that must give the same responses."""

    def serve(self, pieces: list[bytes], /) -> list[Any]: ...


def compare_served(pure: Serving, native: Serving, pieces: list[bytes]) -> list[Any]:
    """Serve the same bytes by both twins; return the responses, and what else they list."""
    expected = pure.serve(pieces)
    for one, other in zip(native.serve(pieces), expected, strict=True):
        assert one == other, (one, other)
    return expected


def served(table: RouteTable, counters: ChannelCounters, sim: SimStore, pieces: list[bytes]) -> list[Any]:
    """Read the pieces of one connection in one turn, then flush.

    Return the responses in any order, whether the connection was closed, and the counts of refusals.
    """

    async def run() -> list[Any]:
        output = Output()
        channel = RemotingChannel(table, counters)
        channel.connection_made(output)
        for piece in pieces:
            if not output.is_closed:
                channel.data_received(piece)
        await asyncio.sleep(0)  # the end of the turn
        sim.step(FLUSH)
        await asyncio.sleep(0)
        return [_frames(b"".join(output.written)), output.is_closed, dict(table.refusals.by_reason)]

    return asyncio.run(run())


@contextmanager
def path_of(is_native: bool) -> Iterator[None]:
    """Let new processors send through one twin."""
    with encoding(is_native), patch.object(send_frames, "_is_native", is_native and compiled is not None):
        yield


class Twin:
    """A store in memory, and sends before it: through the kernel, or as single requests."""

    def __init__(
        self,
        is_native: bool,
        *,
        sync_flush: bool,
        messages_at: int = 0,
        role: BrokerRole = BrokerRole.ASYNC_MASTER,
        **store: object,
    ) -> None:
        self.is_native = is_native
        self.clock, self.disk, self.flow = ManualClock(), SimDisk(), MessageFlow()
        self.sim = SimStore(self.disk, small_config(sync_flush=sync_flush, **store), self.clock)
        self.store = self.sim.open()
        self.store.store_host = HOST
        self.config = config = LiveConfig(broker_config(), self.sim.store.config)
        self.topics: Any = Topics()
        topics = self.topics
        groups: Any = SimpleNamespace(find=lambda group: SimpleNamespace(retry_max_times=16))
        below = random.Random(7).randrange
        self.timer = timer = TimerIntake(config, self.clock, below, lambda slot_time: messages_at)
        waits = ConfirmWaits(self.store, self.clock, lambda seconds, call: SimpleNamespace(cancel=lambda: None), role)
        keys = UniqueKeys(HOST[:4], 1, 1, self.clock)
        table = QuotaTable(ConfigFile(Path("nowhere")), self.clock, config.plan_version)
        self.quotas = Quotas(table, self.clock)
        core: Any = SimpleNamespace(
            config=config, store=self.store, topics=topics, groups=groups, locks=QueueLocks(self.clock), flow=self.flow,
            mappings=SimpleNamespace(by_name={}), clock=self.clock, waits=waits, random_below=below,
            ids=KnownIds(config, self.store, self.clock, call_at_once), namespaces=NO_NAMESPACES, quotas=self.quotas,
        )  # fmt: skip
        intake, planner = MessageIntake(core, TagsCodes("1s 5s"), keys, timer), SendPlanner(core)
        self.store.on_queues_removed.append(config.plan_version.rise)
        with path_of(is_native):
            self.processor = SendProcessor(core, planner, intake)
            self.table = RouteTable(self.processor.routes())
        self.counters = ChannelCounters()

    def serve(self, pieces: list[bytes], fail: Callable[[str, DiskFile], None] | None = None) -> list[Any]:
        """Read the pieces of one connection; return everything that a peer or an operator can see of it."""

        with path_of(self.is_native):
            return [*served(self.table, self.counters, self.sim, pieces), *self.state()]

    def serve_turns(self, turns: list[list[tuple[int, bytes]]]) -> list[Any]:
        """Read pieces of several connections, named by numbers, turn by turn; return what `serve` does for each."""

        async def run() -> list[Any]:
            names = sorted({name for turn in turns for name, _ in turn})
            outputs = {name: Output() for name in names}
            channels = {name: RemotingChannel(self.table, self.counters) for name in names}
            for name in names:
                channels[name].connection_made(outputs[name])
            for turn in turns:
                for name, piece in turn:
                    if not outputs[name].is_closed:
                        channels[name].data_received(piece)
                await asyncio.sleep(0)
            self.sim.step(FLUSH)
            await asyncio.sleep(0)
            return [
                [[_frames(b"".join(output.written)), output.is_closed] for output in outputs.values()],
                dict(self.table.refusals.by_reason),
            ]

        with path_of(self.is_native):
            return [*asyncio.run(run()), *self.state()]

    def state(self) -> list[Any]:
        """What is stored and counted."""
        queues = sorted(self.store.queues())
        return [
            self.disk.files(), self.store.wrote_offset, self.store.confirm_offset, self.store.statistics.put_messages,
            self.store.statistics.put_bytes, self.flow.in_bytes(),
            [(*queue, self.store.max_offset(*queue)) for queue in queues],
            [
                (metric.name, sorted((labels, getattr(value, "counts", value)) for labels, value in metric.read()))
                for metric in self.flow.metrics()
            ],
        ]  # fmt: skip


_AFTER_KEY: Final = (
    "TAGS\x01TagA\x02", "xTAGS\x01no\x02TAGS\x01yes\x02", "TAGS\x01Zürich\x02", "a\x01DELAY DEL TRAN_ CLUSTER\x02",
    "DELAY\x011\x02", "DELAY\x010\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02", "CLUSTER\x01c\x02", "INNER_NUM\x012\x02",
    "INNER_IDEMPOTENCE_ID\x01a\x02", "INNER_IDEMPOTENCE_ID\x01a\x02WAIT\x01false\x02",
    "INNER_IDEMPOTENCE_ID\x01b\x02DELAY\x011\x02",
    "__SHARDINGKEY\x01s\x02", "x__SHARDINGKEY\x01s\x02", "WAIT\x01false\x02", "WAIT\x01true\x02", "a#\x01b\x02",
    "__CRC32#\x010123456789\x02", "\x02", "novalue\x02", "\x01v\x02", "a\x01b\x01c\x02", 'K\x01"quoted" \\ /\n\t\x02',
    "K\x01日本\U0001f600\x02", "POP_CK\x01c\x02", "K\x01" + "v" * 3000 + "\x02", "TIMER_DELAY_MS\x0150\x02",
    "REAL_TOPIC\x01t\x02", "\x00\x01\x00\x02", "UNIQ_KEY\x01B\x02", "K\x01open",
    "TIMER_DELAY_SEC\x015\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02__SHARDINGKEY\x01s\x02",
    "TAGS\x01A\x02TAGS\x01B\x02", "TAGS\x01A\x02TAGS\x01\x02", "TAGS\x01\x02TAGS\x01B\x02", "TAGS\x01\x02",
    "UNIQ_KEY\x01\x02", "xUNIQ_KEY\x01B\x02", "TAGS\x01A\x02xTAGS\x01B\x02",
)  # fmt: skip
PROPERTIES: Final = (
    *("UNIQ_KEY\x01A\x02" + rest for rest in _AFTER_KEY), "", "UNIQ_KEY\x010A01", "UNIQ_KEY\x01\x02",
    "UNIQ_KEY\x01a-b\x02", "KEYS\x01k UNIQ_KEY\x02UNIQ_KEY\x01A\x02", "xUNIQ_KEY\x01B\x02UNIQ_KEY\x01A\x02",
)  # fmt: skip
DELAYED: Final = PROPERTIES[4]
PLAIN: Final = "UNIQ_KEY\x010A000001000000000000000000000001\x02WAIT\x01true\x02TAGS\x01TagA\x02"

# Properties of half and timed messages, and of messages that are nearly such.
KINDS: Final = (
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02", "TIMER_DELAY_MS\x0150\x02", "TIMER_DELAY_SEC\x015\x02",
    f"TIMER_DELIVER_MS\x01{ManualClock().wall_ms() + 3_600_000}\x02", "__SHARDINGKEY\x01s\x02",
    "__SHARDINGKEY\x01s\x02TIMER_DELAY_MS\x01999\x02",
    "__SHARDINGKEY\x01s\x02TRAN_MSG\x01true\x02PGROUP\x01g\x02",
)  # fmt: skip
NEARLY: Final = (
    "TRAN_MSG\x01TRUE\x02PGROUP\x01g\x02", "TRAN_MSG\x01true\x02", "TRAN_MSG\x01true\x02PGROUP\x01\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02PGROUP\x01h\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02K\x01xPGROUP\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02K\x01UNIQ_KEY\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02TIMER_DELAY_MS\x015\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01g\x02WAIT\x01false\x02", "TIMER_DELAY_MS\x010\x02", "TIMER_DELAY_MS\x01-5\x02",
    "TIMER_DELAY_MS\x01007\x02", "TIMER_DELAY_MS\x01\x02", "TIMER_DELAY_MS\x01x\x02", "TIMER_DELIVER_MS\x015\x02",
    "TIMER_DELAY_MS\x015\x02TIMER_DELAY_SEC\x011\x02", "TIMER_DELAY_SEC\x01999999999999999\x02",
    "TIMER_DELIVER_MS\x019223372036854775807\x02", "TIMER_OUT_MS\x015\x02", "TIMER_DELAY_MS\x0150\x02K\x01UNIQ_KEY\x02",
    "TIMER_DEL_UNIQKEY\x01k\x02TIMER_DELAY_MS\x0150\x02", "T__SHARDINGKEY\x01s\x02",
    "REAL_TOPIC\x01t\x02TIMER_DELAY_MS\x015\x02",
)  # fmt: skip


def batch_of(chance: random.Random) -> bytes:
    """The body of a client's batch, mostly whole."""
    messages = [
        (chance.choice((0, 7, -1)), chance.randbytes(chance.choice((0, 1, 200))), chance.choice(PROPERTIES).encode())
        for _ in range(chance.choice((1, 2, 9)))
    ]
    content = client_batch(*messages)
    return content if chance.random() < 0.9 else content[: chance.randrange(len(content))]


def send_of(chance: random.Random, plain: float) -> bytes:
    """A frame of a send, as clients write it with the probability `plain`."""
    if chance.random() < plain:
        fields = to_ext_fields(send_header(queue_id=chance.randrange(4), properties=PLAIN))
        code, body, oneway = 310, chance.randbytes(chance.choice((1, 100, 300))), False
    else:
        topic = chance.choice((*TOPICS, "Orders", "Unknown", "bad/topic"))
        header = send_header(
            topic=topic, queue_id=chance.choice((0, 1, 3, 4, -1)), properties=chance.choice(PROPERTIES),
            sys_flag=chance.choice((0, 0, 1, 2, 0x301, 4, 8, 0x10, 0x20, 0x80, 0x1000, -1)),
            flag=chance.choice((0, 7, -1, 2**31 - 1)), born_timestamp=chance.choice((0, -1, 1_700_000_000_000)),
            reconsume_times=chance.choice((None, 0, 3, 20)), batch=chance.choice((None, None, False, True)),
        )  # fmt: skip
        code, fields = chance.choice((310, 310, 320)), to_ext_fields(header)
        if chance.random() < 0.2:
            values = {name: getattr(header, name) for name in SendMessageRequestHeader.__struct_fields__}
            code, fields = 10, to_ext_fields(SendMessageRequestHeader(**values))
        if chance.random() < 0.15:
            fields[chance.choice((*fields, "unknown"))] = chance.choice(TEXTS)
        is_batch = header.batch and chance.random() < 0.9
        body = batch_of(chance) if is_batch else chance.randbytes(chance.choice((0, 1, 200, 3000)))
        oneway = chance.random() < 0.1
    serialization = chance.choice((JSON, ROCKETMQ))
    opaque = chance.choice((0, 1, -1, 2**31 - 1, 77))
    frame = encode_request(RequestCode(code), opaque, fields, len(body), oneway=oneway, serialization=serialization)
    if serialization == JSON and chance.random() > plain:
        frame = rewritten(chance, frame)
    return frame + body


def _frames(written: bytes) -> list[Any]:
    """Return responses by their bytes: the handler writes the refusals of a read before its other responses."""
    decoder = FrameDecoder()
    frames = sorted(decoder.feed(written))
    assert decoder.error is None and not decoder.pending_bytes
    return frames


def compare_sends(pieces: list[bytes], *, sync_flush: bool, **store: object) -> list[Any]:
    """Serve the same bytes by both twins; return what both gave."""
    pure, native = Twin(False, sync_flush=sync_flush, **store), Twin(True, sync_flush=sync_flush, **store)
    expected: list[Any] = []
    for piece in (pieces, pieces[:1]):  # the queues exist when the second connection sends
        expected = compare_served(pure, native, piece)
    return expected


def compare_turns(turns: list[list[tuple[int, bytes]]], *, sync_flush: bool, **store: object) -> None:
    """Serve the same reads of several connections by both twins."""
    pure, native = Twin(False, sync_flush=sync_flush, **store), Twin(True, sync_flush=sync_flush, **store)
    for _ in range(2):  # the queues exist at the second time
        for one, other in zip(native.serve_turns(turns), pure.serve_turns(turns), strict=True):
            assert one == other, (one, other)


def turns_of(chance: random.Random, data: bytes = b"") -> list[list[tuple[int, bytes]]]:
    """Turns in which some of three connections are read, each a part of its stream, which may end in a frame."""
    streams = [
        b"".join(send_of(chance, chance.choice((0.8, 1.0, 1.0))) for _ in range(chance.choice((1, 6, 24))))
        for _ in range(3)
    ]
    streams[0] += data
    turns = []
    while any(streams):
        turn = []
        for name in chance.sample(range(3), 3):
            size = chance.choice((0, 30, 1500, 1 << 20))
            if size and streams[name]:
                turn.append((name, streams[name][:size]))
                streams[name] = streams[name][size:]
        turns.append(turn)
    return turns


def send_twins(data: bytes) -> None:
    """Sends that `data` chooses, then `data` itself as a stream of frames, in one piece and in many."""
    if compiled is None:
        return
    chance = random.Random(data)
    made = b"".join(send_of(chance, chance.choice((0.0, 0.9, 1.0))) for _ in range(chance.choice((1, 20, 40))))
    stream = made + data
    compare_sends([stream], sync_flush=chance.random() < 0.3)
    compare_sends(pieces_of(data) or [b""], sync_flush=False)


_SEEDS: Final = [b"".join(send_of(random.Random(seed), 0.8) for seed in range(at, at + 4)) for at in (0, 4, 8)]


def turn_twins(data: bytes) -> None:
    """Sends of three connections in turns that `data` chooses; the first of them ends with `data` itself."""
    if compiled is None:
        return
    chance = random.Random(data)
    compare_turns(turns_of(chance, data), sync_flush=chance.random() < 0.3)


ENGINE_SEND_TARGETS: Final = (
    Target("send_twins", send_twins, _SEEDS, 1 << 16),
    Target("turn_twins", turn_twins, _SEEDS, 1 << 16),
)
