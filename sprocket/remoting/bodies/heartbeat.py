"""Heartbeats of all families of clients.

fastjson reads an enumeration by its name or by its place in the declaration.  Java and Go write names, the C++ client
writes places.  Source: RocketMQ 5.3.3, `ConsumeType`, `MessageModel`, `ConsumeFromWhere`; librocketmq 1.2.
"""

from typing import Final

import msgspec

from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from sprocket.remoting.codec.body_limits import LISTS, check_count
from sprocket.remoting.codec.fastjson import loads

_CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
_CONSUME_FROM_WHERES: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class _NumberedConsumer(msgspec.Struct, rename="camel"):
    group_name: str
    consume_type: str | int | None = "CONSUME_PASSIVELY"
    message_model: str | int | None = "CLUSTERING"
    consume_from_where: str | int | None = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class _NumberedHeartbeat(msgspec.Struct, rename="camel"):
    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[_NumberedConsumer] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


def read_heartbeat(body: bytes) -> HeartbeatData:
    """Return the body of HEART_BEAT, however its client writes enumerations.  Raises ProtocolError.

    It is decoded once: a heartbeat is read for every group, and a hostile one must not cost twice.
    """
    numbered = loads(body, _NumberedHeartbeat, LISTS)
    _check_counts(numbered)
    return HeartbeatData(
        numbered.client_id,
        numbered.producer_data_set,
        [_named(consumer) for consumer in numbered.consumer_data_set],
        numbered.heartbeat_fingerprint,
        numbered.without_sub,
    )


def _check_counts(data: _NumberedHeartbeat) -> None:
    check_count("producer groups", data.producer_data_set, limits.MAX_HEARTBEAT_GROUPS)
    check_count("consumer groups", data.consumer_data_set, limits.MAX_HEARTBEAT_GROUPS)
    wanted = [one for consumer in data.consumer_data_set for one in consumer.subscription_data_set]
    check_count("subscriptions", wanted, limits.MAX_HEARTBEAT_SUBSCRIPTIONS)
    for subscription in wanted:
        check_count("tags of a subscription", subscription.tags_set or (), limits.MAX_SUBSCRIPTION_TAGS)
        check_count("tag codes of a subscription", subscription.code_set or (), limits.MAX_SUBSCRIPTION_TAGS)


def _named(consumer: _NumberedConsumer) -> ConsumerData:
    return ConsumerData(
        consumer.group_name,
        _name("consumeType", consumer.consume_type, _CONSUME_TYPES),
        _name("messageModel", consumer.message_model, _MESSAGE_MODELS),
        _name("consumeFromWhere", consumer.consume_from_where, _CONSUME_FROM_WHERES),
        consumer.subscription_data_set,
        consumer.unit_mode,
    )


def _name(field: str, value: str | int | None, names: tuple[str, ...]) -> str | None:
    if not isinstance(value, int):
        return value
    if not 0 <= value < len(names):
        raise ProtocolError("body", f"{field} {value} is none of {len(names)}")
    return names[value]
