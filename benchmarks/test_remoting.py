"""Micro benchmarks of the wire protocol, one read of 64 sends each: `pytest benchmarks --benchmark-only`.

A round handles 64 messages; divide its time by 64.
"""

from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from sprocket.remoting.codec import codec_binary
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.frames import ResponseTemplate, encode_request, encode_response
from sprocket.remoting.framing import JSON, ROCKETMQ, FrameDecoder
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from sprocket.remoting.routes import Action, Resource, Route, RouteTable

MESSAGES = 64
BODY = bytes(128)
PROPERTIES = "UNIQ_KEY\x01AC110001000A1B2C3D4E5F6071829304\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01key-123456\x02"
HEADER = SendMessageRequestHeaderV2(
    producer_group="PG", topic="Orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=3, sys_flag=0,
    born_timestamp=1_732_195_200_000, flag=0, properties=PROPERTIES, reconsume_times=0, unit_mode=False, batch=False,
)  # fmt: skip
TABLE = RouteTable(
    [
        Route(
            RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, None, Resource.TOPIC, Action.PUB,
            batch=lambda run: None,
        )
    ]
)  # fmt: skip
BOTH = pytest.mark.parametrize("serialization", [JSON, ROCKETMQ], ids=["json", "rocketmq"])


def read_of_sends(serialization: int) -> bytes:
    """What one read brings from a producer with 64 sends outstanding."""
    frames = [encode_request(310, n, HEADER, len(BODY), serialization=serialization) + BODY for n in range(MESSAGES)]
    return b"".join(frames)


def test_cut_frames(benchmark: BenchmarkFixture) -> None:
    content, decoder = read_of_sends(JSON), FrameDecoder()
    assert len(benchmark(decoder.feed, content)) == MESSAGES


@BOTH
def test_decode_requests(benchmark: BenchmarkFixture, serialization: int) -> None:
    frames = FrameDecoder().feed(read_of_sends(serialization))

    def decode() -> list[Request[Any]]:
        decoded = TABLE.decode(frames[0])
        assert isinstance(decoded, tuple)
        run = [decoded[1]]
        TABLE.decode_run(decoded[0], frames[0], frames[1:], run)
        return run

    assert len(benchmark(decode)) == MESSAGES


def test_decode_binary_headers(benchmark: BenchmarkFixture) -> None:
    headers = [header for _, header, _ in FrameDecoder().feed(read_of_sends(ROCKETMQ))]
    benchmark(lambda: [codec_binary.decode_header(header) for header in headers])


@BOTH
def test_encode_responses(benchmark: BenchmarkFixture, serialization: int) -> None:
    header = SendMessageResponseHeader(msg_id="7F00000100002A9F00000000075BCD15", queue_id=3, queue_offset=12345)
    response = Response(ResponseCode.SUCCESS, header=header)
    benchmark(lambda: [encode_response(response, opaque, serialization) for opaque in range(MESSAGES)])


@BOTH
def test_encode_responses_from_a_template(benchmark: BenchmarkFixture, serialization: int) -> None:
    template = ResponseTemplate(0, {"msgId": "7F00000100002A9F%016X", "queueId": "%d", "queueOffset": "%d"})
    values = (123456789, 3, 12345)
    benchmark(lambda: [template.frame(serialization, opaque, values) for opaque in range(MESSAGES)])
