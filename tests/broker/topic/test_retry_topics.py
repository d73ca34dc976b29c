"""Names of retry topics of popped messages; the expected ones were written by RocketMQ 5.3.3's `KeyBuilder`."""

import pytest

from broker.topic.retry_topics import group_of, normal_topic, normal_topic_of, retry_topic


def test_both_kinds_are_built_and_taken_apart() -> None:
    v1, v2 = retry_topic("T-1", "g_1", False), retry_topic("T-1", "g_1", True)
    assert (v1, v2) == ("%RETRY%g_1_T-1", "%RETRY%g_1+T-1")
    assert normal_topic(v1, "g_1") == normal_topic(v2, "g_1") == normal_topic("T-1", "g_1") == "T-1"


@pytest.mark.parametrize(
    ("topic", "normal", "group"),
    [
        ("%RETRY%g_1_T-1", "%RETRY%g_1_T-1", "g_1_T-1"),
        ("%RETRY%g_1+T-1", "T-1", "g_1"),
        ("%RETRY%g", "%RETRY%g", "g"),
        ("%RETRY%g+a+b", "%RETRY%g+a+b", "g+a+b"),
    ],
)
def test_only_the_second_kind_tells_its_topic(topic: str, normal: str, group: str) -> None:
    assert (normal_topic_of(topic), group_of(topic)) == (normal, group)
