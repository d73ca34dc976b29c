"""Text of a message as RocketMQ prints it.

Source: RocketMQ 5.3.3, `PrintMessageByQueueCommand.printMessage`, `MessageExt.toString`, `Message.toString`.
"""

import struct
from collections.abc import Mapping
from typing import Final

from sprocket.client.admin.stored_message import StoredMessage
from sprocket.client.message import ReceivedMessage
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.properties import UNIQ_KEY
from sprocket_cli.client_session import WrongUsage
from sprocket_cli.mqadmin.java_form import java_form

# Slots of the table into which RocketMQ's client decodes properties, and the share of them that it fills.
_SLOTS: Final = 128
_FILLED: Final = 0.75


def message_line(stored: StoredMessage, charset: str | None) -> str:
    """Return a message in one line, with its body in `charset` unless that is None.  Raises WrongUsage."""
    body = "NOT PRINT BODY" if charset is None else decoded(stored.message.body, charset)
    return f"MSGID: {shown_id(stored.message)} {_with_record(stored)} BODY: {body}"


def record_line(stored: StoredMessage) -> str:
    """Return a record that was read from a file, without its body, in one line (`DumpCompactionLogCommand`)."""
    return _with_record(stored, is_from_file=True)


def shown_id(message: ReceivedMessage) -> str:
    """Return the id that RocketMQ's tools print: of a message in a batch, the id of the batch, by which it is found.

    Source: `MessageClientExt.getMsgId`, `MessageDecoder.string2messageProperties`.
    """
    return message.properties.get(UNIQ_KEY) or message.offset_message_id


def decoded(body: bytes, charset: str) -> str:
    """Return `body` as text.  Raises WrongUsage for a charset that Python does not know."""
    try:
        return body.decode(charset, "replace")
    except LookupError:
        raise WrongUsage(f"charset {charset!r} is not known: use one of Python's, as UTF-8") from None


def properties_text(properties: Mapping[str, str]) -> str:
    """Return properties as ``{a=1, b=2}``, in the order in which a hash table of Java has their names."""
    slots = _SLOTS
    while len(properties) > slots * _FILLED:
        slots *= 2

    def slot(name: str) -> int:
        code = java_hash_code(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & slots - 1

    return java_form({name: properties[name] for name in sorted(properties, key=slot)})


def _with_record(stored: StoredMessage, *, is_from_file: bool = False) -> str:
    """Return a message and the figures of its record (`MessageExt.toString`)."""
    message = stored.message
    fields = (
        ("brokerName", java_form(message.queue.broker_name or None)), ("queueId", message.queue.queue_id),
        ("storeSize", stored.size_bytes), ("queueOffset", message.queue_offset), ("sysFlag", stored.sys_flag),
        ("bornTimestamp", message.born_timestamp_ms), ("bornHost", "/{}:{}".format(*message.born_host)),
        ("storeTimestamp", message.store_timestamp_ms), ("storeHost", "/{}:{}".format(*message.store_host)),
        ("msgId", java_form(stored.offset_message_id)), ("commitLogOffset", message.physical_offset),
        ("bodyCRC", stored.body_crc), ("reconsumeTimes", stored.reconsume_times),
        ("preparedTransactionOffset", stored.prepared_transaction_offset), ("toString()", _alone(stored, is_from_file)),
    )  # fmt: skip
    return "MessageExt [" + ", ".join(f"{name}={value}" for name, value in fields) + "]"


def _alone(stored: StoredMessage, is_from_file: bool) -> str:
    """Return what the producer gave, the body as numbers (`Message.toString`); not the body of a record in a file."""
    message = stored.message
    properties = message.properties if is_from_file else stored.properties
    # Java's bytes have a sign.
    body = "null" if is_from_file else f"[{', '.join(map(str, struct.unpack(f'{len(message.body)}b', message.body)))}]"
    return (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={properties_text(properties)}, "
        f"body={body}, transactionId='{java_form(stored.transaction_id)}'}}"
    )
