"""Messages of gRPC clients as brokers take them; pure.

Source: RocketMQ 5.5.0, `SendMessageActivity`, `TopicMessageType.parseFromMessageProperty`.
"""

from typing import Final, NamedTuple

from proxy.config import ProxyConfig
from proxy.convert.delay_levels import delay_level
from proxy.convert.reserved import BORN_HOST, REFUSED, TRACE_CONTEXT
from proxy.status import Refusal
from proxy.validation import check_lite_topic, check_tag, check_text, has_control_character
from sprocket.client.send.queue_choice import BY_CONSISTENT_HASH
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.grpc_wire.times import duration_ms, is_timestamp, timestamp_ms
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.message_type import MessageType, type_of
from sprocket.remoting.message.record import SysFlag

_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_TYPES: Final = {
    wire.MESSAGE_TYPE_UNSPECIFIED, wire.NORMAL, wire.FIFO, wire.DELAY, wire.TRANSACTION, wire.PRIORITY, wire.LITE,
}  # fmt: skip


class Incoming(NamedTuple):
    """One message of a send request, checked."""

    body: bytes
    properties: str  # encoded
    message_id: str
    sharding_key: str  # all messages with the same one go to the same queue
    message_type: MessageType  # as the properties say
    sys_flag: int
    born_ms: int
    flag: int = 0


def incoming(message: wire.Message, topic: str, peer: str, config: ProxyConfig, now_ms: int) -> Incoming:
    """Return `message`, sent from the address `peer` to `topic`.  Raises Refusal."""
    system = message.system_properties
    body: bytes = message.body
    _check_body(body, config)
    if system.message_type not in _TYPES:
        raise Refusal(wire.UNSUPPORTED, f"messages of type {_type_name(system.message_type)} are not supported")
    table = _user_properties(message, config)
    message_id: str = system.message_id
    if not message_id.strip():
        raise Refusal(wire.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    _check_separators(message_id, wire.ILLEGAL_MESSAGE_ID, "message id")
    table[names.UNIQ_KEY] = message_id
    sys_flag = _COMPRESSED if system.body_encoding == wire.GZIP else 0
    if system.HasField("priority"):
        if system.priority < 0:
            raise Refusal(wire.BAD_REQUEST, f"the priority must be at least 0, not {system.priority}")
        table[names.PRIORITY] = str(system.priority)
    message_group: str = system.message_group
    if message_group:
        _check_group(message_group, config.max_message_group_size)
        table[names.SHARDING_KEY] = message_group
    lite_topic: str = system.lite_topic
    if lite_topic:
        check_lite_topic(lite_topic, config.max_lite_topic_size)
        table[names.LITE_TOPIC] = lite_topic
    if system.HasField("delivery_timestamp"):
        _add_delay(table, system, config, now_ms)
    if system.message_type == wire.TRANSACTION:
        _add_transaction(table, system, config)
        sys_flag |= _PREPARED
    if message_group and (system.HasField("delivery_timestamp") or sys_flag & _PREPARED):
        table[names.INNER_SHARDING] = BY_CONSISTENT_HASH  # for the broker, when it is due or committed
    if system.delivery_attempt:
        table[names.RECONSUME_TIME] = str(system.delivery_attempt)
    table[names.PRODUCER_GROUP] = topic  # gRPC producers have no group: their topic stands for it
    if system.trace_context:
        _check_separators(system.trace_context, wire.BAD_REQUEST, "trace context")
        table[TRACE_CONTEXT] = system.trace_context
    born_host: str = system.born_host
    _check_separators(born_host, wire.BAD_REQUEST, "born host")
    table[BORN_HOST] = born_host.strip() or peer
    born_ms = now_ms
    if system.HasField("born_timestamp") and is_timestamp(born := system.born_timestamp):
        born_ms = timestamp_ms(born)
        table[names.BORN_TIMESTAMP] = str(born_ms)
    text = names.encode(table)
    size = len(text) if text.isascii() or len(text) > MAX_PROPERTIES_BYTES else len(text.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise Refusal(wire.MESSAGE_PROPERTIES_TOO_LARGE, f"the properties exceed the max {MAX_PROPERTIES_BYTES}")
    sharding_key = message_group or lite_topic
    return Incoming(body, text, message_id, sharding_key, type_of(table.get), sys_flag, born_ms)


def _type_name(message_type: int) -> str:
    known = wire.MessageType.values()
    return wire.MessageType.Name(message_type) if message_type in known else str(message_type)


def _check_body(body: bytes, config: ProxyConfig) -> None:
    if config.enable_message_body_empty_check and not body:
        raise Refusal(wire.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if 0 < config.max_message_size < len(body):
        raise Refusal(wire.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {config.max_message_size}")


def _user_properties(message: wire.Message, config: ProxyConfig) -> dict[str, str]:
    """Return the user's properties with tag and keys.  Raises Refusal."""
    given, system = message.user_properties, message.system_properties
    if len(given) > config.user_property_max_num:
        what = f"too many user properties, max is {config.user_property_max_num}"
        raise Refusal(wire.MESSAGE_PROPERTIES_TOO_LARGE, what)
    table: dict[str, str] = {}
    size = 0
    for name, value in given.items() if given else ():
        if name in REFUSED:
            raise Refusal(wire.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if has_control_character(name):
            what = "the key of property cannot contain control character"
            raise Refusal(wire.ILLEGAL_MESSAGE_PROPERTY_KEY, what)
        if has_control_character(value):
            what = "the value of property cannot contain control character"
            raise Refusal(wire.ILLEGAL_MESSAGE_PROPERTY_KEY, what)
        table[name] = value
        size += len(name.encode()) + len(value.encode())
    tag: str = system.tag
    if tag:
        check_tag(tag)
        table[names.TAGS] = tag
        size += len(tag.encode())
    keys = system.keys
    for key in keys:
        check_text(key, wire.ILLEGAL_MESSAGE_KEY, "key")
        size += len(key.encode())
    if keys:
        table[names.KEYS] = " ".join(keys)
    if 0 < config.max_user_property_size < size:
        what = f"the total size of user property is too large, max is {config.max_user_property_size}"
        raise Refusal(wire.MESSAGE_PROPERTIES_TOO_LARGE, what)
    return table


def _check_group(group: str, max_size: int) -> None:
    check_text(group, wire.ILLEGAL_MESSAGE_GROUP, "message group")
    if 0 < max_size <= len(group.encode()):
        raise Refusal(wire.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {max_size}")


def _check_separators(text: str, code: "wire.Code", what: str) -> None:
    """Refuse what would end a property and begin another: RocketMQ takes it, and stores forged properties."""
    if names.separators_in(text):
        raise Refusal(code, f"{what} cannot contain control character")


def _add_delay(table: dict[str, str], system: wire.SystemProperties, config: ProxyConfig, now_ms: int) -> None:
    if not is_timestamp(system.delivery_timestamp):
        raise Refusal(wire.ILLEGAL_DELIVERY_TIME, "the delivery timestamp is no time")
    at_ms = timestamp_ms(system.delivery_timestamp)
    if 0 < config.max_delay_time_mills < at_ms - now_ms:
        what = f"the max delay time of message is too large, max is {config.max_delay_time_mills}"
        raise Refusal(wire.ILLEGAL_DELIVERY_TIME, what)
    if config.use_delay_level:
        table[names.DELAY] = str(delay_level(config.message_delay_level, at_ms - now_ms))
    table[names.TIMER_DELIVER_MS] = str(at_ms)


def _add_transaction(table: dict[str, str], system: wire.SystemProperties, config: ProxyConfig) -> None:
    table[names.TRANSACTION_PREPARED] = "true"
    if system.HasField("orphaned_transaction_recovery_duration"):
        seconds = duration_ms(system.orphaned_transaction_recovery_duration) // 1000
        if 0 < config.max_transaction_recovery_second < seconds:
            limit = config.max_transaction_recovery_second
            what = f"the max transaction recovery time of message is too large, max is {limit}"
            raise Refusal(wire.BAD_REQUEST, what)
        table[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
