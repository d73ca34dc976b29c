"""Bodies beyond their limits are refused by name before anything is made of them."""

from collections.abc import Callable
from unittest.mock import patch

import pytest

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.bodies.requests import read_batch_ack, read_lock_batch, read_topic_list
from sprocket.remoting.codec import fastjson

_QUEUE = b'{"topic":"t","brokerName":"b","queueId":0}'


def heartbeat(groups: int, subscriptions: int = 0, tags: int = 0) -> bytes:
    wanted = b",".join([b'{"topic":"t","tagsSet":[%b]}' % b",".join([b'"a"'] * tags)] * subscriptions)
    consumer = b'{"groupName":"g","subscriptionDataSet":[%b]}' % wanted
    return b'{"clientID":"c","consumerDataSet":[%b]}' % b",".join([consumer] * groups)


def lock(queues: int) -> bytes:
    return b'{"consumerGroup":"g","clientId":"c","mqSet":[%b]}' % b",".join([_QUEUE] * queues)


@pytest.mark.parametrize(
    ("read", "body", "reason"),
    [
        (read_heartbeat, heartbeat(1001), "1001 consumer groups, the limit is 1000"),
        (read_heartbeat, heartbeat(1, 2001), "2001 subscriptions, the limit is 2000"),
        (read_heartbeat, heartbeat(1, 1, 1001), "1001 tags of a subscription, the limit is 1000"),
        (read_heartbeat, b"{" * 200_000, "200000 values, the limit is 30000"),
        (read_heartbeat, b" " * 2_000_000, "2000000 bytes, the limit is 1048576"),
        (read_lock_batch, lock(10_001), "10001 queues, the limit is 10000"),
        (read_batch_ack, b'{"acks":[%b]}' % b",".join([b"{}"] * 1001), "1001 acknowledgements, the limit is 1000"),
        (read_topic_list, b"{0:" + b" " * 70_000 + b"1}", "no standard JSON, the limit is 65536"),
    ],
)
def test_refused(read: Callable[[bytes], object], body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        read(body)


def test_what_clients_send_is_far_below() -> None:
    assert len(read_heartbeat(heartbeat(limits.MAX_HEARTBEAT_GROUPS, 2, 3)).consumer_data_set) == 1000
    assert len(read_lock_batch(lock(limits.MAX_LOCKED_QUEUES)).mq_set) == 10_000


def test_a_heartbeat_is_decoded_once_whatever_is_wrong_with_it() -> None:
    with patch("sprocket.remoting.bodies.heartbeat.loads", wraps=fastjson.loads) as decoder:
        for body in (b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1}]}', b"{" * 100):
            decoder.reset_mock()
            try:
                read_heartbeat(body)
            except ProtocolError:
                assert body.startswith(b"{{")
            assert decoder.call_count == 1
