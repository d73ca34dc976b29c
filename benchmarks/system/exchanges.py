"""Workloads of several steps: transactions, delayed messages, SQL-filtered pulls, pop with acknowledgement.

Each is a state machine that is given answers and says what to write next; one loop over one socket drives all of
them, so that every engine is measured by the same generator.
Source: RocketMQ 5.3.3, `EndTransactionRequestHeader`, `PopMessageRequestHeader`, `AckMessageRequestHeader`,
`ExtraInfoUtil`.
"""

import re
import struct
import time
from abc import ABC, abstractmethod
from array import array
from typing import Final

from benchmarks.system.frames import FIRST_OPAQUE, PULL_BATCH, QUEUES, ack_parts, end_parts, pull_parts, sends
from benchmarks.system.workload import LoadError, Workload
from tests.compat import wire

POP_MESSAGE: Final = 200_050
# A tenth of the values that `frames.value_property` gives.
SQL_EXPRESSION: Final = "a BETWEEN 0 AND 9"
_SUCCESS: Final = 0
_PREPARED_FLAG: Final = "4"
_DELIVERY_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.002
_PREFIX: Final = struct.Struct(">iI")
# Where a record has its queue id and offset, behind its length: magic, body CRC, queue id, flag, queue offset.
_RECORD: Final = struct.Struct(">iiiiiq")
_OFFSET_MESSAGE_ID: Final = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})"')
_QUEUE_OFFSET: Final = re.compile(rb'"queueOffset":"(\d+)"')
_NEXT_OFFSET: Final = re.compile(rb'"nextBeginOffset":"(\d+)"')
_POP_FIELDS: Final = {
    name: re.compile(rb'"%s":"([^"]*)"' % name.encode())
    for name in ("popTime", "invisibleTime", "reviveQid", "startOffsetInfo", "restNum")
}


class Exchange(ABC):
    """One workload against one topic; `messages` counts what is done."""

    def __init__(self, topic: str, workload: Workload) -> None:
        self.topic = topic
        self.workload = workload
        self.messages = 0
        self.latencies_us = array("d")
        self.outstanding = 0

    @abstractmethod
    def begin(self) -> bytes:
        """The first frame of every slot."""

    @abstractmethod
    def answered(self, code: int, slot: int, header: bytes, body: memoryview, refill: bool) -> bytes:
        """What to write after this answer; counts it.  Raises LoadError for an answer that is none."""

    def settle(self, address: str) -> None:  # noqa: B027 # most have nothing to wait for
        """Wait until the broker has done all that was asked for."""


class _Timed(Exchange):
    """Latency of one request per slot."""

    def __init__(self, topic: str, workload: Workload) -> None:
        super().__init__(topic, workload)
        self._asked_at = [0.0] * workload.slots

    def begin(self) -> bytes:
        now = time.perf_counter()
        self._asked_at = [now] * self.workload.slots
        self.outstanding = self.workload.slots
        return b"".join(self.frame(slot) for slot in range(self.workload.slots))

    @abstractmethod
    def frame(self, slot: int) -> bytes:
        """The slot's next request."""

    def next(self, slot: int, refill: bool) -> bytes:
        now = time.perf_counter()
        self.latencies_us.append((now - self._asked_at[slot]) * 1e6)
        self._asked_at[slot] = now
        if not refill:
            self.outstanding -= 1
            return b""
        return self.frame(slot)


class Transactions(_Timed):
    """A half message, and its commit as soon as it is stored; done when the topic has as many messages."""

    def __init__(self, topic: str, workload: Workload, address: str) -> None:
        super().__init__(topic, workload)
        self._frames = [
            wire.request(wire.SEND_MESSAGE_V2, FIRST_OPAQUE + slot, fields | {"f": _PREPARED_FLAG}, body)
            for slot, (fields, body) in enumerate(
                sends(topic, workload.body_bytes, workload.slots, "TRAN_MSG\x01true\x02PGROUP\x01bench-producer\x02")
            )
        ]
        self._ends = [end_parts(topic, slot) for slot in range(workload.slots)]
        self._before = stored(address, topic)

    def frame(self, slot: int) -> bytes:
        return self._frames[slot]

    def answered(self, code: int, slot: int, header: bytes, body: memoryview, refill: bool) -> bytes:
        message_id, queue_offset = _OFFSET_MESSAGE_ID.search(header), _QUEUE_OFFSET.search(header)
        if code != _SUCCESS or message_id is None or queue_offset is None:
            raise LoadError(f"half message: {header!r}")
        before, between, after = self._ends[slot]
        end_header = b"%b%b%b%d%b" % (before, queue_offset[1], between, int(message_id[1], 16), after)
        self.messages += 1
        return _PREFIX.pack(len(end_header) + 4, len(end_header)) + end_header + self.next(slot, refill)

    def settle(self, address: str) -> None:
        await_stored(address, self.topic, self._before + self.messages)


class Delayed(_Timed):
    """Messages that are due a second from when they are sent; done when the topic has all of them."""

    delay_ms: Final = 1000

    def __init__(self, topic: str, workload: Workload, address: str) -> None:
        super().__init__(topic, workload)
        self._frames = [
            wire.request(wire.SEND_MESSAGE_V2, FIRST_OPAQUE + slot, fields, body)
            for slot, (fields, body) in enumerate(
                sends(topic, workload.body_bytes, workload.slots, f"TIMER_DELAY_MS\x01{self.delay_ms}\x02")
            )
        ]
        self._before = stored(address, topic)

    def frame(self, slot: int) -> bytes:
        return self._frames[slot]

    def answered(self, code: int, slot: int, header: bytes, body: memoryview, refill: bool) -> bytes:
        if code != _SUCCESS:
            raise LoadError(f"delayed send: {header!r}")
        self.messages += 1
        return self.next(slot, refill)

    def settle(self, address: str) -> None:
        await_stored(address, self.topic, self._before + self.messages)


class SqlPulls(_Timed):
    """Pulls with an SQL92 expression that a tenth of the messages match; `messages` are those that came."""

    def __init__(self, topic: str, workload: Workload, offsets: list[int], last_offset: int) -> None:
        super().__init__(topic, workload)
        self._parts = [
            pull_parts(topic, slot, FIRST_OPAQUE + slot, SQL_EXPRESSION, "SQL92") for slot in range(workload.slots)
        ]
        self._offsets = offsets
        self._last_offset = last_offset

    def frame(self, slot: int) -> bytes:
        before, after = self._parts[slot]
        header = b"%b%d%b" % (before, self._offsets[slot], after)
        return _PREFIX.pack(len(header) + 4, len(header)) + header

    def answered(self, code: int, slot: int, header: bytes, body: memoryview, refill: bool) -> bytes:
        following = _NEXT_OFFSET.search(header)
        if following is None:
            raise LoadError(f"pull: {header!r}")
        offset = int(following[1])
        self._offsets[slot] = offset if offset < self._last_offset else 0
        if code == _SUCCESS:
            # All records are of one size.
            self.messages += len(body) // int.from_bytes(body[:4], "big")
        return self.next(slot, refill)


class Pops(Exchange):
    """Each chain pops up to 32 messages, acknowledges each with a request of its own, and pops again."""

    def __init__(self, topic: str, workload: Workload, group: str, broker_name: str) -> None:
        super().__init__(topic, workload)
        self._chains = max(1, workload.slots // PULL_BATCH)
        self._group = group
        self._broker_name = broker_name
        self._left = [0] * self._chains
        self._asked_at = [0.0] * self._chains

    def begin(self) -> bytes:
        return b"".join(self._pop(chain) for chain in range(self._chains))

    def _pop(self, chain: int) -> bytes:
        self._asked_at[chain] = time.perf_counter()
        self.outstanding += 1
        fields = {
            "consumerGroup": self._group,
            "topic": self.topic,
            "queueId": "-1",
            "maxMsgNums": str(PULL_BATCH),
            "invisibleTime": "60000",
            "pollTime": "0",
            "bornTime": str(int(time.time() * 1000)),
            "initMode": "0",
            "expType": "TAG",
            "exp": "*",
            "order": "false",
        }
        return wire.request(POP_MESSAGE, FIRST_OPAQUE + chain, fields)

    def answered(self, code: int, slot: int, header: bytes, body: memoryview, refill: bool) -> bytes:
        self.outstanding -= 1
        chain = slot % self._chains
        if slot >= self._chains:
            if code != _SUCCESS:
                raise LoadError(f"ack: {header!r}")
            self.messages += 1
            self._left[chain] -= 1
            if self._left[chain]:
                return b""
            return self._pop(chain) if refill else b""
        if code != _SUCCESS:
            raise LoadError(f"pop: code {code}, {header!r}; is the topic empty?")
        self.latencies_us.append((time.perf_counter() - self._asked_at[chain]) * 1e6)
        return self._acks(chain, header, body)

    def _acks(self, chain: int, header: bytes, body: memoryview) -> bytes:
        texts = {name: pattern.search(header) for name, pattern in _POP_FIELDS.items()}
        pop_time, invisible, revive = (_text(texts[name]) for name in ("popTime", "invisibleTime", "reviveQid"))
        # retry mark, queue, first offset; queues are parted by semicolons
        starts = [one.split(" ") for one in _text(texts["startOffsetInfo"]).split(";")]
        start_of = {int(queue): (mark, start) for mark, queue, start in starts}
        # An acknowledgement as three texts, with the offset between them, for each queue.
        parts: dict[int, tuple[bytes, bytes, bytes]] = {}
        frames = []
        at = 0
        while at < len(body):
            size, _, _, queue, _, offset = _RECORD.unpack_from(body, at)
            at += size
            if queue not in parts:
                mark, start = start_of[queue]
                handle = f"{start} {pop_time} {invisible} {revive} {mark} {self._broker_name} {queue}"
                parts[queue] = ack_parts(FIRST_OPAQUE + self._chains + chain, self._group, self.topic, queue, handle)
            before, between, after = parts[queue]
            header = b"%b%d%b%d%b" % (before, offset, between, offset, after)
            frames.append(_PREFIX.pack(len(header) + 4, len(header)) + header)
        self._left[chain] = len(frames)
        self.outstanding += len(frames)
        return b"".join(frames)


def _text(found: re.Match[bytes] | None) -> str:
    if found is None:
        raise LoadError("a pop's answer lacks a field")
    return found[1].decode()


def stored(address: str, topic: str) -> int:
    """How many messages the topic has had on this broker."""
    ends = []
    for queue in range(QUEUES):
        answer = wire.invoke(address, wire.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)})
        if answer.code != _SUCCESS:
            raise LoadError(f"max offset of {topic}: code {answer.code}, {answer.remark}")
        ends.append(int(answer.fields["offset"]))
    return sum(ends)


def await_stored(address: str, topic: str, messages: int) -> None:
    """Wait until the topic has so many.  Raises LoadError after a minute."""
    deadline = time.monotonic() + _DELIVERY_LIMIT_S
    while (now := stored(address, topic)) < messages:
        if time.monotonic() > deadline:
            raise LoadError(f"{topic} has {now} of {messages} messages after {_DELIVERY_LIMIT_S} s")
        time.sleep(_POLL_S)
