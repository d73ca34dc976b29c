"""Messages between the client and gRPC; pure.

Bodies are sent as they are: gRPC clients read gzip alone, and RocketMQ's remoting clients do not.
Source: RocketMQ 5.5.0, `GrpcConverter`, `SendMessageActivity`.
"""

from typing import Final

from sprocket.client.compression import gunzip
from sprocket.client.errors import IllegalMessage
from sprocket.client.grpc.refused import needs_name_server
from sprocket.client.message import ReceivedMessage, packed_host
from sprocket.client.send.send_request import SendRequest
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration, timestamp, timestamp_ms
from sprocket.remoting.bodies.client import MessageQueue, SubscriptionData
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.namespaces import with_namespace, without_namespace

_SQL: Final = "SQL92"


def resource(name: str, namespace: str) -> wire.Resource:
    """Return the form of a topic or a group of a client in `namespace`, which is empty for a client without one."""
    return wire.Resource(name=name, resource_namespace=namespace)


def filter_of(data: SubscriptionData) -> wire.FilterExpression:
    """Return the filter expression of a subscription."""
    kind = wire.SQL if data.expression_type == _SQL else wire.TAG
    return wire.FilterExpression(type=kind, expression=data.sub_string)


def outgoing(request: SendRequest, namespace: str, sharding_key: str | None, now_ms: int) -> wire.Message:
    """Return the message of `request` from a client in `namespace`, born at `now_ms`.

    Raises IllegalMessage, IllegalArgument.
    """
    table = names.parse(request.properties)
    if names.CORRELATION_ID in table:
        raise needs_name_server("request and reply")
    if request.flag:
        raise IllegalMessage("grpc:// carries no flag; put the number into the message's properties")
    if names.DELAY in table:
        raise IllegalMessage("grpc:// has no delay levels; use delay or deliver_at")
    system = wire.SystemProperties(
        message_id=request.message_id,
        body_encoding=wire.IDENTITY,
        message_type=wire.NORMAL,
        born_timestamp=timestamp(now_ms),
    )
    for name in (names.UNIQ_KEY, names.WAIT, names.INNER_SHARDING):
        table.pop(name, None)
    if tags := table.pop(names.TAGS, ""):
        system.tag = tags
    system.keys.extend(table.pop(names.KEYS, "").split())
    group = table.pop(names.SHARDING_KEY, "") or sharding_key or ""
    if group:
        system.message_group, system.message_type = group, wire.FIFO
    if priority := table.pop(names.PRIORITY, ""):
        system.priority, system.message_type = int(priority), wire.PRIORITY
    if lite_topic := table.pop(names.LITE_TOPIC, ""):
        system.lite_topic, system.message_type = lite_topic, wire.LITE
    deliver_ms, delay_ms = table.pop(names.TIMER_DELIVER_MS, ""), table.pop(names.TIMER_DELAY_MS, "")
    if deliver_ms or delay_ms:
        system.delivery_timestamp.CopyFrom(timestamp(int(deliver_ms) if deliver_ms else now_ms + int(delay_ms)))
        system.message_type = wire.DELAY
    table.pop(names.PRODUCER_GROUP, None)
    if table.pop(names.TRANSACTION_PREPARED, ""):
        system.message_type = wire.TRANSACTION
        if immunity_s := table.pop(names.CHECK_IMMUNITY_TIME_IN_SECONDS, ""):
            system.orphaned_transaction_recovery_duration.CopyFrom(duration(int(immunity_s) * 1000))
    return wire.Message(
        topic=resource(request.topic, namespace), user_properties=table, system_properties=system, body=request.body
    )


def incoming(message: wire.Message, namespace: str, broker_name: str) -> ReceivedMessage:
    """Return a message that came from `broker_name` to a client in `namespace`.

    Raises BodyUnreadable for a damaged compressed body.
    """
    system = message.system_properties
    topic = without_namespace(namespace, with_namespace(message.topic.resource_namespace, message.topic.name))
    table = dict(message.user_properties)
    table[names.UNIQ_KEY] = system.message_id
    if system.tag:
        table[names.TAGS] = system.tag
    if system.keys:
        table[names.KEYS] = " ".join(system.keys)
    if system.message_group:
        table[names.SHARDING_KEY] = system.message_group
    if system.HasField("priority"):
        table[names.PRIORITY] = str(system.priority)
    if system.lite_topic:
        table[names.LITE_TOPIC] = system.lite_topic
    body = gunzip(message.body) if system.body_encoding == wire.GZIP else message.body
    return ReceivedMessage(
        topic=topic,
        queue=MessageQueue(topic, broker_name, system.queue_id),
        queue_offset=system.queue_offset,
        physical_offset=0,
        body=body,
        raw_properties=names.encode(table).encode(),
        flag=0,
        sys_flag=0,
        born_timestamp_ms=timestamp_ms(system.born_timestamp),
        born_host=_host(system.born_host),
        store_timestamp_ms=timestamp_ms(system.store_timestamp),
        store_host=_host(system.store_host),
        reconsume_times=max(system.delivery_attempt - 1, 0),
        size_bytes=message.ByteSize(),
    )


def _host(text: str) -> bytes:
    """Return an address, which a proxy may send without a port, as records hold it; zeros for a name or none."""
    return packed_host(text if text.rpartition(":")[2].isdecimal() and ":" in text else f"{text}:0")
