"""Heartbeats as clients of several families write them."""

import pytest

from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.codec.fastjson import dumps

# Of librocketmq as the wheel `rocketmq` 0.4.4 brings it.
CPP = (
    b'{"clientID":"11702-127.0.0.1@first","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"cppg",'
    b'"messageModel":1,"subscriptionDataSet":[{"subString":"*","subVersion":"1795293660678","topic":"%RETRY%cppg"},'
    b'{"codeSet":[0,0],"subString":"A || B","subVersion":"1795293660678","tagsSet":["A","B"],"topic":"CppTopic"}]}]}\n'
)


def test_the_cpp_client_writes_places_instead_of_names() -> None:
    assert read_heartbeat(CPP) == HeartbeatData(
        "11702-127.0.0.1@first",
        [],
        [
            ConsumerData(
                "cppg",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                [
                    SubscriptionData("%RETRY%cppg", "*", sub_version=1795293660678),
                    SubscriptionData("CppTopic", "A || B", False, ["A", "B"], [0, 0], 1795293660678),
                ],
            )
        ],
    )


def test_names_stay_as_they_are() -> None:
    data = HeartbeatData(
        "c", [ProducerData("p")], [ConsumerData("g", "CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET")]
    )
    assert read_heartbeat(dumps(data)) == data


@pytest.mark.parametrize(
    ("field", "number"),
    [("consumeType", b"3"), ("messageModel", b"3"), ("consumeFromWhere", b"6"), ("messageModel", b"-1")],
)
def test_a_place_beyond_the_last_is_refused(field: str, number: bytes) -> None:
    body = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","%s":%s}]}' % (field.encode(), number)
    with pytest.raises(ProtocolError, match=field):
        read_heartbeat(body)


def test_what_is_no_heartbeat_is_refused() -> None:
    with pytest.raises(ProtocolError, match="clientID"):
        read_heartbeat(b'{"consumerDataSet":[]}')
