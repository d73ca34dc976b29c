"""While a topic grows, brokers refuse sends whose key chose from another number of queues, and no others."""

from pathlib import Path

import pytest

from sprocket.remoting.bodies.topic import SHARDING_QUEUES
from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.broker.rig import TOPIC, create, running_broker
from tests.send_headers import send_header


@pytest.mark.parametrize(
    ("attribute", "chose_from", "is_taken"),
    [
        ("0", 4, False),
        ("4", 4, True),
        ("8", 4, False),
        # RocketMQ's selectors, such as SelectMessageQueueByHash, only name the queue: their messages are taken.
        ("0", None, True),
        ("8", None, True),
    ],
)
async def test_a_send_of_a_growing_topic(
    tmp_path: Path, attribute: str, chose_from: int | None, is_taken: bool
) -> None:
    async with running_broker(tmp_path) as (_, client):
        header = create(attributes=f"+{SHARDING_QUEUES}={attribute}")
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        sent = send_header(TOPIC, queue_id=0, properties="UNIQ_KEY\x010A000001000000000000000000000001\x02")
        sent.sharding_queues = chose_from
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, sent, b"x")
        assert (answer.code == ResponseCode.SUCCESS) == is_taken, answer.remark
