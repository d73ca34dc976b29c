"""What one request holds."""

import random

from replicate.protocol.copies import SourceQueue, portion
from sprocket.client.compression import Compression, compress, decompress
from sprocket.client.message import MessageQueue, ReceivedMessage
from tests.sim.replicate.sim_cluster import received

_QUEUE, _TARGET = SourceQueue("east", "T", "b", 0), SourceQueue("west", "T", "b", 0)


def message_at(offset: int, body: bytes, sys_flag: int = 0) -> ReceivedMessage:
    message = received(MessageQueue("T", "b", 0), offset, b"UNIQ_KEY\1%d\2" % offset)
    message._body, message.sys_flag = body, sys_flag
    return message


def test_with_compression_one_request_holds_what_producers_compressed_and_what_they_did_not() -> None:
    bodies = [b"long " * 1000, b"s", b"by its producer " * 500]
    packed, flag = compress(bodies[2], Compression.ZLIB, 5)
    messages = [message_at(0, bodies[0]), message_at(1, bodies[1]), message_at(2, packed, int(flag))]
    plain = portion(messages, _QUEUE, _TARGET, 0, forwards=True, max_bytes=1 << 20)
    assert [copy.body for copy in plain.copies] == bodies[:2]
    made = portion(messages, _QUEUE, _TARGET, 0, forwards=True, max_bytes=1 << 20, compresses=True)
    assert [copy.sys_flag for copy in made.copies] == [flag] * 3
    assert [decompress(copy.body, copy.sys_flag) for copy in made.copies] == bodies
    assert made.copies[2].body == packed


def test_bodies_that_would_grow_are_not_compressed() -> None:
    bodies = [random.Random(1).randbytes(1000), b"s"]
    messages = [message_at(offset, body) for offset, body in enumerate(bodies)]
    made = portion(messages, _QUEUE, _TARGET, 0, forwards=True, max_bytes=1 << 20, compresses=True)
    assert [(copy.body, copy.sys_flag) for copy in made.copies] == [(body, 0) for body in bodies]
