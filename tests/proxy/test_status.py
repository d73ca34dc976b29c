"""Response codes of brokers as codes of gRPC calls."""

import pytest

from proxy.status import code_of
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.codes import ResponseCode


@pytest.mark.parametrize(
    ("response_code", "code"),
    [
        (ResponseCode.LMQ_QUOTA_EXCEEDED, wire.LITE_TOPIC_QUOTA_EXCEEDED),
        (ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED),
        (ResponseCode.TOPIC_NOT_EXIST, wire.TOPIC_NOT_FOUND),
        (ResponseCode.NO_PERMISSION, wire.INTERNAL_SERVER_ERROR),
        (-7, wire.INTERNAL_SERVER_ERROR),
    ],
)
def test_codes_of_brokers_have_their_own_codes(response_code: int, code: int) -> None:
    assert code_of(response_code) == code
