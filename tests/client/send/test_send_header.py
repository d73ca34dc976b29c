"""Headers encoded in advance are those that the general encoder makes, with both engines."""

import random

import pytest

from sprocket.client.send.send_header import SendHeader
from sprocket.client.send.send_request import PLAIN, SendRequest, SendSettings
from sprocket.engine.choice import native
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.frames import encode_request

_TEXTS = (
    "",
    "UNIQ_KEY\x01AB\x02WAIT\x01true\x02",
    'quotes " and \\ and / and % and %d %b %s',
    "\x00\x01\x02\x07\b\t\n\x0b\f\r\x1f\x7f",
    "Größe \u2028 日本 \U0001f680 \uffff",
    "x" * 40_000,
)


@pytest.mark.parametrize("engine", [None, native("sprocket.client.send.sends_native")], ids=["python", "native"])
def test_the_prefix_is_that_of_the_general_encoder(engine: object) -> None:
    randoms = random.Random(1)
    for topic, group, broker in (("Orders", "G", "broker-a"), ("%RETRY%g", "100%d", 'a "b"\\\x00é')):
        queue = MessageQueue(topic, broker, 7)
        settings = SendSettings()
        header = SendHeader(PLAIN, SendRequest(topic, b"", "", "").ext_fields(group, settings, queue, 0), engine)
        texts = [*_TEXTS, *("".join(chr(randoms.randrange(0x3000)) for _ in range(n)) for n in range(60))]
        for text in texts:
            request = SendRequest(
                topic, randoms.randbytes(randoms.randrange(1, 9)), text, "ID", randoms.choice((0, -1))
            )
            request.flag = randoms.choice((0, -(1 << 31), (1 << 31) - 1, 5))
            request.sys_flag = randoms.choice((0, 1, 0x301))
            born_ms, opaque = randoms.choice((0, 1_763_900_000_000)), randoms.choice((0, 1, 0x7FFFFFFF))
            expected = encode_request(
                PLAIN, opaque, request.ext_fields(group, settings, queue, born_ms), len(request.body)
            )
            made = header.prefix(opaque, request.sys_flag, born_ms, request.flag, text, len(request.body))
            assert made == expected
