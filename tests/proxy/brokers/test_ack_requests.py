"""Requests that acknowledge one message are those that every other request is made as."""

import pytest

from proxy.brokers.ack_requests import ack_header, encoded_ack
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.message.pop_extra_info import NORMAL, RETRY_V2, PopHandle


@pytest.mark.parametrize("broker_name", ["broker-a", 'a"quoted\\name', "percent%d%b", "语"])
@pytest.mark.parametrize("retry", [NORMAL, RETRY_V2])
def test_bytes_are_those_of_encode_request(broker_name: str, retry: str) -> None:
    for offset in (0, 7, (1 << 63) - 1):
        handle = PopHandle(offset, 1_700_000_000_000, 60_000, 3, retry, broker_name, 2, offset)
        header = ack_header("group%d", "%RETRY%group%d+topic", handle, offset)
        expected = encode_request(RequestCode.ACK_MESSAGE, 4711, header)
        assert encoded_ack("group%d", "%RETRY%group%d+topic", handle, offset, 4711) == expected
