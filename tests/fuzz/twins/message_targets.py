"""Messages for gRPC clients through the compiled encoder beside its Python twin and protobuf: the same message."""

import random
from typing import Final

from proxy.convert.outgoing import encoded_topic, encoder
from sprocket.client.message import ReceivedMessage
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message import properties as names
from tests.fuzz.target import Target
from tests.proxy.convert.reference import outgoing

try:
    from sprocket.grpc_wire import message_writer_native as writer
except ImportError:  # no C compiler: `tests/engine` says so
    writer = None  # type: ignore[assignment]

_NOW_MS: Final = 1_800_000_000_123
_TOPIC: Final = encoded_topic("Orders")
_ENCODERS: Final = [encoder(wire.ReceiveMessageResponse, engine) for engine in (None, writer)]


def _message(properties: bytes, chance: random.Random) -> ReceivedMessage:
    host = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
    return ReceivedMessage(
        topic="Orders",
        queue=MessageQueue("Orders", "broker-a", chance.choice((0, 1, -1, 1 << 30))),
        queue_offset=chance.choice((0, 200, 1 << 62, -1)),
        physical_offset=4711,
        body=chance.randbytes(chance.choice((0, 1, 130))),
        raw_properties=properties,
        flag=0,
        sys_flag=chance.choice((0, 0, 0, 1)),
        born_timestamp_ms=chance.choice((1_700_000_000_001, 0, -1, -(1 << 63), (1 << 63) - 1)),
        born_host=host,
        store_timestamp_ms=1_700_000_000_000,
        store_host=host,
        reconsume_times=chance.choice((0, 3, 200)),
        size_bytes=100,
    )


def message_twins(data: bytes) -> None:
    """`data` as the properties of a message, alone and after those of a usual one."""
    if writer is None:
        return
    for properties in (data, _USUAL + data):
        # Both inflate a compressed body, so each gets a message of its own.
        expected = wire.ReceiveMessageResponse(
            message=outgoing(_message(properties, random.Random(data)), "Orders", "handle", _NOW_MS)
        )
        for encode in _ENCODERS:
            encoded = encode(_message(properties, random.Random(data)), _TOPIC, "handle", _NOW_MS)
            assert wire.ReceiveMessageResponse.FromString(encoded) == expected


_USUAL: Final = names.encode({names.UNIQ_KEY: "01AB", names.TAGS: "red", names.KEYS: "one two"}).encode()
_SEEDS: Final = (
    {names.UNIQ_KEY: "01AB", names.SHARDING_KEY: "group", "TRACE_CONTEXT": "trace", "__BORNHOST": "host"},
    {names.UNIQ_KEY: "01AB", names.PRIORITY: "3", names.TIMER_DELIVER_MS: "1700000000000"},
    {names.UNIQ_KEY: "01AB", "colour": "red", "größe": "語", names.WAIT: "true", names.KEYS: " a  b "},
)
ENGINE_MESSAGE_TARGETS: Final = (
    Target("message_twins", message_twins, [names.encode(seed).encode() for seed in _SEEDS], 4096),
)
