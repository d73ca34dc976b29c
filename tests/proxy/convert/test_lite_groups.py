"""What the attributes of a group say of lite topics."""

import pytest

from proxy.convert.lite_groups import check_bind_topic, check_quota, lite_client_quota
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.message.lite_groups import lite_bind_topic


def _group(**attributes: str) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(
        "g", attributes={f"lite.{name.replace('_', '.')}": text for name, text in attributes.items()}
    )


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("7", 7), ("0", 0), ("-1", 2**31 - 1), ("", 2000), ("x", 2000), ("٣", 2000), (str(2**40), 2**31 - 1),
        ("9" * 5000, 2**31 - 1),
    ],
)  # fmt: skip
def test_quota_of_a_client_fits_its_field(text: str, quota: int) -> None:
    assert lite_client_quota(_group(sub_client_quota=text)) == quota
    assert lite_client_quota(_group()) == 2000


def test_group_without_a_parent_consumes_no_lite_topics() -> None:
    assert lite_bind_topic(_group().attributes) is None and lite_bind_topic(_group(bind_topic="").attributes) is None
    for group, topic, code in (
        (None, "t", wire.ILLEGAL_CONSUMER_GROUP),
        (_group(), "t", wire.ILLEGAL_CONSUMER_GROUP),
        (_group(bind_topic="t"), "other", wire.ILLEGAL_TOPIC),
    ):
        with pytest.raises(Refusal) as refused:
            check_bind_topic("g", group, topic)
        assert refused.value.code == code


def test_quota_has_some_room_for_what_brokers_know_better() -> None:
    group = _group(bind_topic="t", sub_client_quota="5")
    assert check_bind_topic("g", group, "t") is group
    check_quota(group, 305)
    with pytest.raises(Refusal) as refused:
        check_quota(group, 306)
    assert refused.value.code == wire.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
