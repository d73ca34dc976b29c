"""Requests made before the clock runs: what a Java client writes, one frame per outstanding slot.

Source: RocketMQ 5.3.3, `MQClientAPIImpl.sendMessage`, `SendMessageRequestHeaderV2`, `PullMessageRequestHeader`.
"""

import time

from benchmarks.system.workload import Workload
from sprocket.remoting.credentials import Credentials
from tests.compat import wire

PULL_BATCH = 32
QUEUES = 4
# Every slot's opaque has as many digits, so that every frame of a workload is of one size.
FIRST_OPAQUE = 100_000
ACK_MESSAGE = 200_051
END_TRANSACTION = 37
_COMMIT = "8"
_OFFSET_MARK = 9_007_199_254_740_991  # stands for the offset in a pull frame until the real one is known


def send_properties(slot: int) -> str:
    """The properties that every message has; the unique key is the slot's."""
    return f"UNIQ_KEY\x017F0000010B2A18B4AAC2{slot:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def value_property(slot: int) -> str:
    """A property that an expression can ask for: 00 to 99."""
    return f"a\x01{slot % 100:02d}\x02"


def sends(
    topic: str, body_bytes: int, slots: int, properties: str = "", *, first: int = 0
) -> list[tuple[dict[str, str], bytes]]:
    """Fields and body of a SEND_MESSAGE_V2 for each slot, the `first` one included; slots take the queues in turn."""
    body = bytes(97 + index % 26 for index in range(body_bytes))
    # A half message that is older than the store's files may be is given up at the next check.
    born_ms = time.time_ns() // 1_000_000
    return [
        (
            {
                "a": "bench-producer",
                "b": topic,
                "c": "TBW102",
                "d": "4",
                "e": str(slot % QUEUES),
                "f": "0",
                "g": str(born_ms),
                "h": "0",
                "i": send_properties(slot) + properties,
                "j": "0",
                "k": "false",
                "m": "false",
            },
            body,
        )
        for slot in range(first, first + slots)
    ]


def send_frames(
    topic: str, workload: Workload, *, connection: int = 0, account: Credentials | None = None
) -> dict[int, bytes]:
    """SEND_MESSAGE_V2 frames of one connection by opaque, signed if there is an account.

    Connections with one slot each take the queues in turn.
    """
    frames = {}
    slots, serialization = workload.slots, workload.serialization
    for slot, (fields, body) in enumerate(sends(topic, workload.body_bytes, slots, first=connection * slots)):
        opaque = FIRST_OPAQUE + slot
        if workload.with_values:
            fields["i"] += value_property(slot)
        if account is not None:
            fields = account.signed(fields, body)
        frames[opaque] = wire.request(wire.SEND_MESSAGE_V2, opaque, fields, body, serialization=serialization)
    return frames


def pull_parts(
    topic: str,
    index: int,
    opaque: int,
    expression: str = "*",
    expression_type: str = "TAG",
    account: Credentials | None = None,
) -> tuple[bytes, bytes]:
    """The header of a PULL_MESSAGE (JSON, not held) before and after its queue offset; slots take queues in turn.

    The signature of an account is that of offset 0.
    """
    fields = {
        "consumerGroup": "bench-consumer",
        "topic": topic,
        "queueId": str(index % QUEUES),
        "queueOffset": str(_OFFSET_MARK),
        "maxMsgNums": str(PULL_BATCH),
        "sysFlag": "4",  # the subscription is in the request
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": expression,
        "subVersion": "0",
        "expressionType": expression_type,
    }
    if account is not None:
        fields = account.signed({**fields, "queueOffset": "0"}, b"") | {"queueOffset": str(_OFFSET_MARK)}
    frame = wire.request(wire.PULL_MESSAGE, opaque, fields)
    before, after = frame[8:].split(str(_OFFSET_MARK).encode())
    return before, after


def end_parts(topic: str, slot: int) -> tuple[bytes, bytes, bytes]:
    """The header of a oneway END_TRANSACTION (JSON) that commits; its queue offset and log offset are left out."""
    key = f"7F0000010B2A18B4AAC2{slot:012X}"
    fields = {
        "topic": topic,
        "producerGroup": "bench-producer",
        "tranStateTableOffset": str(_OFFSET_MARK),
        "commitLogOffset": str(_OFFSET_MARK),
        "commitOrRollback": _COMMIT,
        "fromTransactionCheck": "false",
        "msgId": key,
        "transactionId": key,
    }
    frame = wire.request(END_TRANSACTION, 1, fields, oneway=True)
    before, between, after = frame[8:].split(str(_OFFSET_MARK).encode())
    return before, between, after


def ack_parts(opaque: int, group: str, topic: str, queue: int, handle: str) -> tuple[bytes, bytes, bytes]:
    """The header of an ACK_MESSAGE (JSON) around the message's offset, which occurs twice; `handle` ends before it."""
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue),
        "extraInfo": f"{handle} {_OFFSET_MARK}",
        "offset": str(_OFFSET_MARK),
    }
    before, between, after = wire.request(ACK_MESSAGE, opaque, fields)[8:].split(str(_OFFSET_MARK).encode())
    return before, between, after
