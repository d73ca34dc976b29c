"""The format of RocketMQ's proxies."""

import json

import pytest

from proxy.clients.members import Member
from proxy.sync.heartbeat_data import consumer_of, decode, encode, member_of
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData

# As fastjson of RocketMQ 5.3.3 writes `HeartbeatSyncerData`.
_JAVA = (
    '{"channelData":"{\\"localAddress\\":\\"10.0.0.2:8081\\",\\"type\\":\\"GRPC_V2\\",\\"extendAttribute\\":\\"{}\\",'
    '\\"remoteProxyIp\\":\\"10.0.0.2\\",\\"remoteAddress\\":\\"10.0.0.9:5000\\"}","clientId":"c1",'
    '"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","group":"g",'
    '"heartbeatType":"REGISTER","language":"JAVA","lastUpdateTimestamp":1700000000000,'
    '"localProxyId":"10.0.0.2%8080%8081","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
    '"codeSet":[65],"expressionType":"TAG","subString":"A","subVersion":1700000000000,"tagsSet":["A"],"topic":"t"}],'
    '"version":479}'
)


_LONG = _JAVA.replace('"g"', '"' + "g" * 2000 + '"')


def test_message_of_rocketmq_is_read() -> None:
    data = decode(_JAVA.encode())
    member, consumer = member_of(data, 5.0), consumer_of(data)
    assert (member.client_id, member.language, member.version, member.address) == ("c1", "JAVA", 479, "10.0.0.9:5000")
    assert member.proxy == "10.0.0.2%8080%8081" and member.heard_at == 5.0 and member.channel is None
    assert consumer.group_name == "g" and [one.topic for one in consumer.subscription_data_set] == ["t"]


def test_message_has_the_fields_of_rocketmq() -> None:
    member = Member("k", "c1", "JAVA", 479, "10.0.0.9:5000", "10.0.0.2:8081", 0.0)
    consumer = ConsumerData("g", subscription_data_set=[SubscriptionData("t", "A", tags_set=["A"], code_set=[65])])
    body = encode(member, "g", consumer, "10.0.0.2%8080%8081", "10.0.0.2", 1_700_000_000_000, "{}")
    ours, java = json.loads(body), json.loads(_JAVA)
    ours["subscriptionDataSet"][0]["subVersion"] = 1_700_000_000_000
    assert json.loads(ours.pop("channelData")) == json.loads(java.pop("channelData"))
    assert ours == java


def test_leaving_says_no_more_than_who() -> None:
    member = Member("k", "c1", "JAVA", 479, "a:1", "b:2", 0.0)
    data = decode(encode(member, "g", None, "me", "me", 1, ""))
    assert data.heartbeat_type == "UNREGISTER" and consumer_of(data).subscription_data_set == []


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"\xff", _JAVA.replace('"c1"', '""').encode(), _LONG.encode(),
        _JAVA.encode() + b" " * 1_100_000,
    ],
    ids=range(7),
)  # fmt: skip
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(body)


@pytest.mark.parametrize("channel", ["", "[]", "7", "nonsense", json.dumps({"remoteProxyIp": "x" * 2000})])
def test_channels_that_are_none_are_refused(channel: str) -> None:
    data = decode(_JAVA.encode())
    data.channel_data = channel
    with pytest.raises(ProtocolError):
        member_of(data, 0.0)
