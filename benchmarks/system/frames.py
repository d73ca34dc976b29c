"""Requests made before the clock runs: what a Java client writes, one frame per outstanding slot.

Source: RocketMQ 5.3.3, `MQClientAPIImpl.sendMessage`, `SendMessageRequestHeaderV2`, `PullMessageRequestHeader`.
"""

from tests.compat import wire

PULL_BATCH = 32
QUEUES = 4
# Every slot's opaque has as many digits, so that every frame of a workload is of one size.
FIRST_OPAQUE = 100_000
_BORN_TIMESTAMP_MS = 1_750_000_000_000
_OFFSET_MARK = 9_007_199_254_740_991  # stands for the offset in a pull frame until the real one is known


def send_frames(topic: str, body_bytes: int, slots: int, serialization: int) -> dict[int, bytes]:
    """SEND_MESSAGE_V2 frames by opaque; slots take the topic's queues in turn."""
    frames = {}
    body = bytes(97 + index % 26 for index in range(body_bytes))
    for slot in range(slots):
        properties = f"UNIQ_KEY\x017F0000010B2A18B4AAC2{slot:012X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
        fields = {
            "a": "bench-producer",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(slot % QUEUES),
            "f": "0",
            "g": str(_BORN_TIMESTAMP_MS),
            "h": "0",
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "false",
        }
        opaque = FIRST_OPAQUE + slot
        frames[opaque] = wire.request(wire.SEND_MESSAGE_V2, opaque, fields, body, serialization=serialization)
    return frames


def pull_parts(topic: str, index: int, opaque: int) -> tuple[bytes, bytes]:
    """The header of a PULL_MESSAGE (JSON, not held) before and after its queue offset; slots take queues in turn."""
    fields = {
        "consumerGroup": "bench-consumer",
        "topic": topic,
        "queueId": str(index % QUEUES),
        "queueOffset": str(_OFFSET_MARK),
        "maxMsgNums": str(PULL_BATCH),
        "sysFlag": "4",  # the subscription is in the request
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    frame = wire.request(wire.PULL_MESSAGE, opaque, fields)
    before, after = frame[8:].split(str(_OFFSET_MARK).encode())
    return before, after
