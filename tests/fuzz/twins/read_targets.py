"""The compiled read of a pulled record beside its Python twin: any bytes give the same result."""

import random
from typing import Any, Final
from unittest.mock import patch

from sprocket.client.message import ReceivedMessage
from sprocket.client.pull import record_decoder
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.message.record import SysFlag
from tests.fuzz.store_targets import whole_record
from tests.fuzz.target import Target

try:
    from sprocket.client.pull import record_decoder_native as records
except ImportError:  # no C compiler: `tests/engine` says so
    records = None  # type: ignore[assignment]

_QUEUE: Final = MessageQueue("Orders", "broker-a", 3)


def decoded(data: bytes, decode: Any, delta: int) -> object:
    """All attributes of the messages in `data`, or why it has none; `decode` is the compiled loop, None for Python."""
    with patch.object(record_decoder, "decode_run", decode):
        try:
            messages = record_decoder.decode_records(data, _QUEUE, delta)
        except ProtocolError as error:
            return error.kind, error.detail
    return [[(name, getattr(one, name)) for name in ReceivedMessage.__slots__] for one in messages]


def record_twins(data: bytes) -> None:
    """`data` as the body of a pull, alone and after a usual record."""
    if records is None:
        return
    native = records.RecordDecoder(ReceivedMessage).run
    delta = random.Random(data).choice((0, 0, 7, -7, (1 << 61) - 1, 1 << 62))
    for body in (data, _USUAL + data, _USUAL + data + _USUAL):
        assert decoded(body, native, delta) == decoded(body, None, delta)
    for at in (-1, len(data), len(data) + 1, 1 << 60):
        assert native(data, at, _QUEUE, "Orders", 0, []) == at


def _body(seed: int) -> bytes:
    chance = random.Random(seed)
    inner = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
    made = []
    for _ in range(5):
        flags = chance.choice((0, 0, 0, inner, int(SysFlag.BORN_HOST_V6), int(SysFlag.COMPRESSED)))
        topic = chance.choice(("Orders", "Orders", "Other", "Zürich"))
        made.append(whole_record(chance.randbytes(chance.choice((0, 1, 60))), b"TAGS\x01a\x02", flags, topic))
    return b"".join(made)


_USUAL: Final = whole_record(b"body", b"UNIQ_KEY\x010A\x02", 0, "Orders")

ENGINE_READ_TARGETS: Final = (Target("record_twins", record_twins, [_body(seed) for seed in range(4)], 4096),)
