"""The revive topic, to which pop writes what it delivered and what was acknowledged.

Every record goes through the timer wheel, so it becomes readable only when needed: a checkpoint one second before its
messages are redelivered, an acknowledgement at that time.  Until then the log holds them, not memory.
Source: RocketMQ 5.3.3, `PopMessageProcessor.buildCkMsg`, `genCkUniqueId`, `AckMessageProcessor.appendAck`,
`PopAckConstants`.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from broker.core import BrokerCore
from broker.pop.records import ACK_INTERVAL_MS, ACK_TAG, BATCH_ACK_TAG, CK_TAG, AckMsg, BatchAckMsg, PopCheckPoint
from broker.timer.timer_intake import TimerIntake
from sprocket.common.errors import RequestError, StoreError
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.properties import NAME_END, TAGS, UNIQ_KEY, VALUE_END, encode
from sprocket.remoting.message.topic_names import REVIVE_TOPIC_PREFIX
from store.appender import EncodedRecords
from store.record.record import PendingMessage

_quoted: Final = msgspec.json.Encoder().encode
# `timerCongestNumEachSlot` without effect.
_NO_BOUND: Final = 0x7FFFFFFF
_TAGS_CODES: Final = {tag: java_hash_code(tag) for tag in (CK_TAG, ACK_TAG, BATCH_ACK_TAG)}
ACK_TAGS_CODE: Final = _TAGS_CODES[ACK_TAG]
CHECKPOINT_TAGS_CODE: Final = _TAGS_CODES[CK_TAG]


def encode_checkpoint(checkpoint: PopCheckPoint) -> bytes:
    """Return the body of a checkpoint's record, as fastjson writes it: sorted, without null and a false ``sp``."""
    distances = b"" if checkpoint.d is None else b'"d":[%b],' % ",".join(map(str, checkpoint.d)).encode()
    broker = b"" if checkpoint.bn is None else b'"bn":%b,' % _quoted(checkpoint.bn)
    rewritten = b"" if checkpoint.rp is None else b'"rp":%b,' % _quoted(checkpoint.rp)
    suspended = b'"sp":true,' if checkpoint.sp else b""
    return b'{"bm":%d,%b"c":%b,%b"it":%d,"n":%d,"pt":%d,"q":%d,"reviveTime":%d,"ro":%d,%b"so":%d,%b"t":%b}' % (
        checkpoint.bm, broker, _quoted(checkpoint.c), distances, checkpoint.it, checkpoint.n, checkpoint.pt,
        checkpoint.q, checkpoint.revive_time, checkpoint.ro, rewritten, checkpoint.so, suspended,
        _quoted(checkpoint.t),
    )  # fmt: skip


def encode_ack(ack: AckMsg) -> bytes:
    """Return the body of an acknowledgement's record, for one message or several, as fastjson writes it."""
    several = b'"aol":[%b],' % ",".join(map(str, ack.aol)).encode() if isinstance(ack, BatchAckMsg) else b""
    broker = b"" if ack.bn is None else b'"bn":%b,' % _quoted(ack.bn)
    return b'{"ao":%d,%b%b"c":%b,"pt":%d,"q":%d,"so":%d,"t":%b}' % (
        ack.ao, several, broker, _quoted(ack.c), ack.pt, ack.q, ack.so, _quoted(ack.t),
    )  # fmt: skip


class AckPattern(NamedTuple):
    """Records of the acknowledgements of one queue, group and revive queue: the parts between the numbers of a pop.

    Numbers of `body`: pop time, first offset.  Of `properties`: pop time, times of delivery and of its slot.  The
    message's offset follows both `before_body` and `before_properties`.
    """

    before_body: bytes
    body: tuple[bytes, ...]
    before_properties: bytes
    properties: tuple[bytes, ...]


class CheckpointForm(NamedTuple):
    """Records of the checkpoints of one topic and group: the parts between the numbers of a pop.

    Numbers of the body: distances, invisible time, messages, pop time, queue id, revive time, first offset.  Of the
    properties: queue id, first offset, pop time, times of delivery and of its slot, revive queue id.
    """

    body: tuple[bytes, ...]
    properties: tuple[bytes, ...]

    @classmethod
    def of(cls, topic: str, group: str, broker_name: str, revive_topic: str) -> "CheckpointForm":
        """Return the form of what `encode_checkpoint` and `ReviveLog.checkpoint` make."""
        return cls(
            (
                b'{"bm":0,"bn":%b,"c":%b,"d":[' % (_quoted(broker_name), _quoted(group)), b'],"it":', b',"n":',
                b',"pt":', b',"q":', b',"reviveTime":', b',"ro":0,"so":', b',"t":%b}' % _quoted(topic),
            ),
            (
                f"TAGS\x01{CK_TAG}\x02UNIQ_KEY\x01{topic}@".encode(), b"@", f"@{group}@".encode(),
                f"@{broker_name or 'null'}@{CK_TAG}\x02TIMER_DELIVER_MS\x01".encode(), b"\x02TIMER_OUT_MS\x01",
                _place_of(revive_topic).encode(), b"\x02",
            ),
        )  # fmt: skip


def _place_of(revive_topic: str) -> str:
    """Return what stands between slot and queue id in the properties of a record that waits for the revive topic."""
    return f"\x02REAL_TOPIC\x01{revive_topic}\x02REAL_QID\x01"


def may_begin_seal(properties: Iterable[bytes]) -> bool:
    """Return whether the store would look for a seal in these parts of properties, which may hold a client's names."""
    return any(b"#" in part for part in properties)


def _is_separated(key: str) -> bool:
    """Return whether a key has a separator of properties: names of a client's handle could add properties so."""
    return NAME_END in key or VALUE_END in key


class ReviveLog:
    """Encoder and writer of the revive topic's records."""

    def __init__(self, core: BrokerCore, intake: TimerIntake) -> None:
        self._config = core.config
        self._clock = core.clock
        self._store = core.store
        self._role = core.role
        self._delivery = core.delivery
        self._intake = intake
        self.topic = REVIVE_TOPIC_PREFIX + core.config.broker.broker_cluster_name
        self._place = _place_of(self.topic)
        self.checkpoints_written = 0
        self.acks_written = 0
        # Records made, by group, topic and kind (CK, ACK).
        self.made: dict[tuple[str, str, str], int] = {}

    @property
    def queue_count(self) -> int:
        """Number of queues of the revive topic."""
        return self._config.broker.revive_queue_num

    def checkpoint(self, checkpoint: PopCheckPoint, revive_queue_id: int) -> PendingMessage:
        """Return the record of a checkpoint.

        Raises RequestError for a time that the wheel refuses, and for invalid names.
        """
        key = (
            f"{checkpoint.t}@{checkpoint.q}@{checkpoint.so}@{checkpoint.c}@{checkpoint.pt}@{checkpoint.bn or 'null'}"
            f"@{CK_TAG}"
        )
        deliver_ms = checkpoint.revive_time - ACK_INTERVAL_MS
        self._count(checkpoint.c, checkpoint.t, "CK")
        return self._message(encode_checkpoint(checkpoint), revive_queue_id, CK_TAG, key, deliver_ms)

    def checkpoint_form(self, topic: str, group: str) -> CheckpointForm | None:
        """Return the form of what `checkpoint` makes for a topic and a group; None if it must make each record."""
        form = CheckpointForm.of(topic, group, self._config.broker.broker_name, self.topic)
        return None if _is_separated(topic + group + self._config.broker.broker_name) else form

    def ack(self, ack: AckMsg, revive_queue_id: int, revive_time_ms: int) -> PendingMessage:
        """Return the record of an acknowledgement whose messages would be redelivered at `revive_time_ms`.

        Raises RequestError for a time that the wheel refuses, and for invalid names.
        """
        tag = BATCH_ACK_TAG if isinstance(ack, BatchAckMsg) else ACK_TAG
        # The same for one and for several messages, as in RocketMQ.
        key = f"{ack.t}@{ack.q}@{ack.ao}@{ack.c}@{ack.pt}@{ack.bn or 'null'}@{ACK_TAG}"
        self._count(ack.c, ack.t, "ACK")
        return self._message(encode_ack(ack), revive_queue_id, tag, key, revive_time_ms)

    def ack_pattern(
        self, topic: str, group: str, queue_id: int, broker_name: str, revive_queue_id: int
    ) -> AckPattern | None:
        """Return the pattern of what `ack` makes of pops that the wheel takes; None if their names are invalid."""
        if _is_separated(topic + group + broker_name):
            return None
        return AckPattern(
            b'{"ao":',
            (
                b',"bn":%b,"c":%b,"pt":' % (_quoted(broker_name), _quoted(group)), b',"q":%d,"so":' % queue_id,
                b',"t":%b}' % _quoted(topic),
            ),
            f"TAGS\x01{ACK_TAG}\x02UNIQ_KEY\x01{topic}@{queue_id}@".encode(),
            (
                f"@{group}@".encode(), f"@{broker_name}@{ACK_TAG}\x02TIMER_DELIVER_MS\x01".encode(),
                b"\x02TIMER_OUT_MS\x01", f"{self._place}{revive_queue_id}\x02".encode(),
            ),
        )  # fmt: skip

    def count_checkpoints(self, group: str, topic: str, records: int) -> None:
        """Count records of `checkpoint_form`."""
        self._count(group, topic, "CK", records)

    def count_acks(self, group: str, topic: str, records: int) -> None:
        """Count records of `ack_pattern`."""
        self._count(group, topic, "ACK", records)

    def _count(self, group: str, topic: str, kind: str, records: int = 1) -> None:
        key = (group, topic, kind)
        self.made[key] = self.made.get(key, 0) + records

    def _message(self, body: bytes, revive_queue_id: int, tag: str, key: str, deliver_ms: int) -> PendingMessage:
        if _is_separated(key):
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"a name of a popped message is invalid: {key[:200]!r}")
        now_ms = self._clock.wall_ms()
        properties = {TAGS: tag, UNIQ_KEY: key}
        topic, queue_id = self._intake.place_at(self.topic, revive_queue_id, properties, deliver_ms)
        return PendingMessage(
            topic, queue_id, body, encode(properties).encode(), _TAGS_CODES[tag], 0, 0, now_ms, self._store.store_host
        )

    def wheel_limits(self) -> tuple[int, int] | None:
        """Return the width of a slot and the longest delay, ms, of records that the wheel takes.

        None if it may refuse some.
        """
        store = self._config.store
        # The wheel is on and its slots are unbounded, so only the time decides.
        takes_all = store.timer_wheel_enable and store.timer_congest_num_each_slot >= _NO_BOUND
        return (store.slot_ms, store.timer_max_delay_sec * 1000) if takes_all else None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the records go to another master's log, because a slave appends none to its own."""
        return self._role.is_slave

    def send(self, messages: list[PendingMessage], done: Callable[[], None]) -> None:
        """Store records at another master, then call `done`.  Raises StoreError if enableRemoteEscape is off."""
        if not self._config.broker.enable_remote_escape:
            raise StoreError("enableRemoteEscape is off: an acting slave cannot record what is popped")
        self._delivery.deliver(messages, done)

    def append(self, messages: list[PendingMessage], checkpoints: int) -> int:
        """Append records, among them `checkpoints` checkpoints; return the end of the append.

        Raises StoreError or RequestError; none of them is written then.
        """
        _, physical_offset, size_bytes = self._store.append(messages)[-1]
        self.checkpoints_written += checkpoints
        self.acks_written += len(messages) - checkpoints
        return physical_offset + size_bytes

    def append_checkpoints(self, records: EncodedRecords) -> int:
        """Append checkpoints that the compiled engine made, with the results of `append`."""
        end = self._store.append_encoded(records)
        self.checkpoints_written += len(records)
        return end

    def append_acks(self, records: EncodedRecords) -> int:
        """Append acknowledgements that the compiled engine made, with the results of `append`."""
        end = self._store.append_encoded(records)
        self.acks_written += len(records)
        return end
