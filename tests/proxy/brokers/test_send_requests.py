"""Requests that send are those that every other request is made as."""

from typing import Any

import pytest

from proxy.brokers.send_requests import SEND_SETTINGS, send_header
from sprocket.client.send.send_request import PLAIN, SendRequest
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request

_PROPERTIES = ["", "UNIQ_KEY\x01id\x02TAGS\x01100%d\x02", 'Ä"\\\x01語\x02']


@pytest.mark.parametrize("code", [PLAIN, int(RequestCode.SEND_BATCH_MESSAGE)])
@pytest.mark.parametrize("queue", [MessageQueue("Orders", "broker-a", 0), MessageQueue("%d", 'a"quoted\\语', 7)])
@pytest.mark.parametrize("properties", _PROPERTIES)
@pytest.mark.parametrize("numbers", [(0, 0, 0), (5, -62_135_596_800_000, -1), (8, 253_402_300_799_999, 1 << 30)])
def test_bytes_are_those_of_encode_request(code: int, queue: MessageQueue, properties: str, numbers: Any) -> None:
    sys_flag, born_ms, flag = numbers
    request = SendRequest(queue.topic, b"body", properties, "id", flag)
    request.code, request.sys_flag = code, sys_flag
    expected = encode_request(code, 4711, request.ext_fields(queue.topic, SEND_SETTINGS, queue, born_ms), 4)
    assert send_header(code, queue).prefix(4711, sys_flag, born_ms, flag, properties, 4) == expected
