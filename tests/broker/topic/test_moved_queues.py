"""Where late messages are stored: those with a sharding key follow their topic as it grows."""

import pytest

from broker.topic.moved_queues import PresentPlaces
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.message.topic_names import FORWARD_TOPIC, TIMER_TOPIC
from store.record.record import PendingMessage

GROWN = PresentPlaces(topic_of=lambda topic: TopicConfig(topic, 8, 8))


def placed(topic: str, properties: bytes) -> PendingMessage:
    [message] = GROWN.placed([PendingMessage(topic, 3, b"body", properties, 0, 0, 0, 0, b"\0" * 8, 0)])
    return message


@pytest.mark.parametrize("count", [b"4", b"", b"x"])
def test_a_message_of_a_topic_that_has_grown_is_sent_again(count: bytes) -> None:
    properties = b"INNER_SHARDING\x01hash %b\x02REAL_TOPIC\x01Orders\x02" % count
    assert placed("Orders", properties).topic == FORWARD_TOPIC


def test_a_message_of_a_topic_that_has_not_grown_stays_and_tells_nothing_of_its_key() -> None:
    message = placed("Orders", b"INNER_SHARDING\x01hash 8\x02REAL_TOPIC\x01Orders\x02")
    assert (message.topic, message.queue_id) == ("Orders", 3)
    assert message.properties == b"REAL_TOPIC\x01Orders\x02"


@pytest.mark.parametrize("topic", [TIMER_TOPIC, "%RETRY%group"])
def test_a_message_that_is_not_for_its_topic_yet_stays_as_it_is(topic: str) -> None:
    """It enters the timer once more, or is a retry, whose topic its sender named."""
    properties = b"INNER_SHARDING\x01hash 4\x02REAL_TOPIC\x01Orders\x02"
    message = placed(topic, properties)
    assert (message.topic, message.queue_id, message.properties) == (topic, 3, properties)
