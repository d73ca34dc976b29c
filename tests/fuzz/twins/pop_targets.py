"""Pops through the compiled kernel beside the handler: the same log, responses, offsets and counts for any bytes."""

import random
from typing import Any, Final

from broker.topic.topics import TopicTable
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.headers.pop import PopMessageRequestHeader
from store.record.record import PendingMessage
from tests.clock import ManualClock
from tests.fuzz.target import Target, pieces_of
from tests.fuzz.twins.ack_targets import MIN_BYTES, QUEUES, Twin, compiled_pops
from tests.fuzz.twins.pull_targets import read_counts
from tests.fuzz.twins.send_targets import compare_served
from tests.fuzz.twins.wire_targets import frame_of
from tests.sim.sim_store import SEGMENT_BYTES

_NOW_MS: Final = ManualClock().wall_ms()
_TAGS: Final = ("A", "B", "A", "", "C")
_MESSAGES: Final = 400
# With small segments, most pops need records of two.
LARGE_SEGMENT_BYTES: Final = 1 << 19
_GROUPS: Final = ("CG", "CG", "Quiet", "Retried")
_ODD_GROUPS: Final = ("Off", "Zürich", "g\x01", "g#", "x" * 250)


class PopTwin(Twin):
    """A broker's pops.  The retry topic of Quiet is read to its end, that of Retried has a message."""

    code = RequestCode.POP_MESSAGE

    def fill(self, topics: TopicTable) -> None:
        """Store messages with and without tags, of any size, in queues of different lengths."""
        chance = random.Random(3)
        for name, perm in (("Orders", 6), ("NoRead", 2), ("Empty", 6)):
            topics.by_name[name] = TopicConfig(name, QUEUES, QUEUES, perm=perm)
        # Pops then find the timer's queue.
        self.store.append([PendingMessage("rmq_sys_wheel_timer", 0, b"", b"", 0, 0, 0, 0, bytes(8))])
        codes = [java_hash_code(tag) for tag in _TAGS]
        messages = []
        for number in range(_MESSAGES):
            body = chance.randbytes(chance.choice((0, 10, 100, 100, 3000)))
            queue_id = chance.choice((0, 0, 1, 1, 2, 3))
            code = codes[number % len(codes)]
            messages.append(PendingMessage("Orders", queue_id, body, b"", code, 0, 0, 0, bytes(8)))
        self.store.append(messages)
        for group in ("Quiet", "Retried"):
            name = f"%RETRY%{group}_Orders"
            topics.by_name[name] = TopicConfig(name, 1, 1)
            self.store.append([PendingMessage(name, 0, b"again", b"", 0, 0, 0, 0, bytes(8))])

    def prepare_groups(self) -> None:
        """Create the groups, and let Quiet have consumed its retry topic."""
        for group in (*_GROUPS, *_ODD_GROUPS):
            self.core.groups.by_name[group] = SubscriptionGroupConfig(group, consume_enable=group != "Off")
        self.core.offsets.commit("Quiet", "%RETRY%Quiet_Orders", 0, 1)

    def state(self) -> list[Any]:
        """What is stored, noted and counted."""
        service, offsets, assumed = self.service, self.core.offsets, self.core.consumers.assumed
        queues = [("Orders", group, queue_id) for group in set(_GROUPS) for queue_id in range(QUEUES)]
        queues.append(("%RETRY%Quiet_Orders", "Quiet", 0))
        delivered = [(metric.name, list(metric.read())) for metric in self.flow.metrics()]
        return [
            *super().state(), offsets.totals(), [service.offsets.latest(*queue) for queue in queues],
            [service.offsets.uncommitted(*queue) for queue in queues],
            [service.inflight.count(*queue) for queue in queues],
            [assumed.find(group, topic) for topic, group, _ in queues], delivered, self.flow.out_bytes_by_key(),
            service.log.checkpoints_written, service.draws.peek(), self.flow.out_messages, self.flow.out_bytes,
            read_counts(self.store),
        ]  # fmt: skip


def pop_header(**changes: Any) -> PopMessageRequestHeader:
    """The header of a pop of any queue, as clients send it."""
    fields: dict[str, Any] = {
        "consumer_group": "CG", "topic": "Orders", "queue_id": -1, "max_msg_nums": 32, "invisible_time": 60_000,
        "poll_time": 0, "born_time": _NOW_MS, "init_mode": 0, "exp_type": "TAG", "exp": "*", "order": False,
    }  # fmt: skip
    return PopMessageRequestHeader(**(fields | changes))


def _odd(chance: random.Random) -> PopMessageRequestHeader:
    # None is held: the pops of a read that the kernel serves wake a held one before the rest of the read is served.
    pick = chance.choice
    return pop_header(
        consumer_group=pick((*_GROUPS, *_ODD_GROUPS, "Unknown")),
        topic=pick(("Orders", "Orders", "%RETRY%Retried_Orders", "NoRead", "Empty", "Unknown", "%LMQ%x")),
        queue_id=pick((-1, -7, 0, 3, 4)), max_msg_nums=pick((-1, 0, 1, 5, 32, 33)),
        invisible_time=pick((60_000, 0, -1, 1000, 1001, 1 << 40, 1 << 61)), poll_time=pick((0, 0, -600)),
        born_time=pick((0, _NOW_MS, _NOW_MS - 501, _NOW_MS + 5, -1)), init_mode=pick((0, 1, 7)),
        exp_type=pick((None, "TAG", "SQL92", "other")),
        exp=pick((None, "*", "A", "B||C", " A || ", "||", "no", "Zürich", "a > 1", "||".join(map(str, range(20))))),
        order=pick((None, False, False, True)), attempt_id=pick((None, "a")), broker_name=pick((None, "broker-a")),
    )  # fmt: skip


def pop_of(chance: random.Random, plain: float) -> bytes:
    """A frame of a pop, as clients write it with the probability `plain`."""
    pick, oneway = chance.choice, False
    if chance.random() < plain:
        header = pop_header(
            consumer_group=pick(_GROUPS), max_msg_nums=pick((1, 8, 32, 32)), exp=pick(("*", "*", "A", "A || C")),
            queue_id=pick((-1, -1, -1, 0, 3)),
        )  # fmt: skip
    else:
        header, oneway = _odd(chance), chance.random() < 0.1
    return frame_of(chance, RequestCode.POP_MESSAGE, header, plain, oneway=oneway)


def ready_twin(is_native: bool, **changes: Any) -> PopTwin:
    """A twin whose groups have popped one message of each queue, so that their offsets are known."""
    # A new group would be written to its file.
    defaults = {"segment_bytes": LARGE_SEGMENT_BYTES, "auto_create_subscription_group": False}
    return made_ready(PopTwin(is_native, **(defaults | changes)))


def made_ready(twin: PopTwin) -> PopTwin:
    """Let the groups of a new twin pop one message of each queue, so that their offsets are known."""
    twin.prepare_groups()
    first = [
        encode_request(
            RequestCode.POP_MESSAGE, 5, pop_header(consumer_group=group, queue_id=queue_id, max_msg_nums=1, exp=exp)
        )
        for queue_id in range(QUEUES) for group, exp in (("CG", "*"), ("Quiet", "*"))
    ]  # fmt: skip
    twin.serve([b"".join(first)])
    return twin


def compare_pops(pieces: list[bytes], **changes: Any) -> list[Any]:
    """Serve the same bytes by both twins, three times, until the queues are empty; return the last responses."""
    pure, native = (ready_twin(is_native, **changes) for is_native in (False, True))
    expected: list[Any] = []
    for _ in range(3):
        expected = compare_served(pure, native, pieces)
    return expected


def pop_twins(data: bytes) -> None:
    """Pops that `data` chooses, then `data` itself as a stream of frames, in one piece and in many."""
    if compiled_pops is None or len(data) < MIN_BYTES:
        return
    chance = random.Random(data)
    made = b"".join(pop_of(chance, chance.choice((0.0, 0.8, 1.0))) for _ in range(chance.choice((1, 5, 12))))
    segment_bytes = chance.choice((SEGMENT_BYTES, LARGE_SEGMENT_BYTES, LARGE_SEGMENT_BYTES))
    compare_pops([made + data], sync_flush=chance.random() < 0.3, segment_bytes=segment_bytes)
    compare_pops(pieces_of(data) or [b""])


_SEEDS: Final = [b"".join(pop_of(random.Random(seed), 0.8) for seed in range(at, at + 4)) for at in (0, 4, 8)]

ENGINE_POP_TARGETS: Final = (Target("pop_twins", pop_twins, _SEEDS, 1 << 16),)
