"""Message as a row of JSON or Parquet, for export and import."""

import base64
import ipaddress
from functools import lru_cache
from typing import Any, Final

import msgspec

from sprocket.common.errors import StoreError
from sprocket.common.limits import MAX_PROPERTIES_BYTES
from sprocket.remoting.codec.java_text import java_text
from sprocket.remoting.message.properties import KEYS, TAGS, UNIQ_KEY, encode, parse, separators_in
from sprocket.remoting.message.record import ANY_V6, SysFlag
from store.queue.consume_queue_table import is_file_name
from store.record.record import PendingMessage, Record, TagsCodes

_SEAL: Final = "__CRC32#"
_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)


class Row(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """One message.  `properties` are in order.  The body is as stored, compressed if `sys_flag` says so."""

    topic: str
    queue_id: int
    queue_offset: int = -1
    physical_offset: int = -1
    born_timestamp: int
    store_timestamp: int = -1
    born_host: str = "127.0.0.1:0"
    store_host: str = ""
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: dict[str, str] = {}
    body: bytes


def row_of(record: Record) -> Row:
    """Return the row of a record without its CRC property, which belongs to the record, not to the message."""
    properties = parse(java_text(record.properties))
    properties.pop(_SEAL, None)
    return Row(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        born_timestamp=record.born_timestamp,
        store_timestamp=record.store_timestamp,
        born_host=host_text(record.born_host),
        store_host=host_text(record.store_host),
        flag=record.flag,
        sys_flag=record.sys_flag & ~ANY_V6,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        properties=properties,
        body=bytes(record.body),
    )


def message_of(row: Row, tags_codes: TagsCodes) -> PendingMessage:
    """Return the message of a row, to be appended.  Raises `StoreError` naming what is wrong."""
    for name, value in row.properties.items():
        if not name or separators_in(name) or separators_in(value):
            raise StoreError(f"property {name!r}: names and values may not hold the separators 0x01 and 0x02")
    if not is_file_name(row.topic):
        raise StoreError(f"topic {row.topic!r} is no name")
    _check_range("queueId", row.queue_id, 0, (1 << 31) - 1)
    for field, number, bits in (
        ("flag", row.flag, 31),
        ("sysFlag", row.sys_flag, 31),
        ("reconsumeTimes", row.reconsume_times, 31),
        ("bornTimestamp", row.born_timestamp, 63),
        ("preparedTransactionOffset", row.prepared_transaction_offset, 63),
    ):
        _check_range(field, number, -(1 << bits), (1 << bits) - 1)
    if row.sys_flag & _INNER_BATCH:
        raise StoreError("holds an inner batch, whose messages have no rows of their own: send them by a client")
    properties = encode(row.properties).encode()
    if len(properties) > MAX_PROPERTIES_BYTES:
        raise StoreError(f"properties have {len(properties)} bytes, allowed are {MAX_PROPERTIES_BYTES}")
    code = tags_codes.of_tag(row.properties.get(TAGS, "").encode())
    return PendingMessage(
        row.topic, row.queue_id, row.body, properties, code, row.flag, row.sys_flag & ~ANY_V6,
        row.born_timestamp, host_bytes(row.born_host), row.reconsume_times, row.prepared_transaction_offset,
    )  # fmt: skip


def decode_row(line: bytes) -> Row:
    """Return the row in one line of JSON.  Raises `StoreError` naming what is wrong."""
    try:
        return _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(str(error)) from None


def row_of_values(values: dict[str, Any]) -> Row:
    """Return the row of values by name, as Parquet gives them.  Raises `StoreError`."""
    given = {name: value for name, value in values.items() if value is not None}
    if isinstance(given.get("properties"), list):
        given["properties"] = dict(given["properties"])
    try:
        return msgspec.convert(given, Row)
    except (msgspec.MsgspecError, TypeError) as error:
        raise StoreError(str(error)) from None


def line_of(row: Row) -> bytes:
    """Return the row as one line of JSON; the body is base64."""
    return _ENCODER.encode(row) + b"\n"


def dump_of(record: Record, body: str | None, encoding: str) -> dict[str, object]:
    """Return everything known of a record, for a person to read."""
    row = row_of(record)
    shown: dict[str, object] = {
        "physicalOffset": record.physical_offset,
        "sizeBytes": record.size_bytes,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "storeTimestamp": record.store_timestamp,
        "bornTimestamp": record.born_timestamp,
        "storeHost": row.store_host,
        "bornHost": row.born_host,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "flags": _flag_names(record.sys_flag),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "inConsumeQueue": record.in_consume_queue,
        "bodyCRC": record.body_crc,
        "bodyBytes": len(record.body),
        "uniqueKey": row.properties.get(UNIQ_KEY),
        "keys": row.properties.get(KEYS, "").split(),
        "tags": row.properties.get(TAGS),
        "properties": row.properties,
    }
    if body is not None:
        shown |= {"body": body, "bodyEncoding": encoding}
    return shown


@lru_cache(maxsize=256)
def _flag_names(sys_flag: int) -> list[str]:
    return [name for name, flag in SysFlag.__members__.items() if _is_set(sys_flag, flag)]


def _is_set(sys_flag: int, flag: SysFlag) -> bool:
    if flag & SysFlag.TRANSACTION_ROLLBACK:
        return sys_flag & int(SysFlag.TRANSACTION_ROLLBACK) == int(flag)
    if flag & 0x700:
        return sys_flag & 0x700 == int(flag)
    return sys_flag & int(flag) != 0


@lru_cache(maxsize=4096)
def host_text(host: bytes) -> str:
    """Return ``10.1.2.3:5432`` or ``[::1]:5432`` for an address followed by a port in 4 bytes."""
    address, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def host_bytes(text: str) -> bytes:
    """Return the bytes of a `host_text`.  Raises `StoreError`."""
    address, _, port = text.rpartition(":")
    try:
        return ipaddress.ip_address(address.strip("[]")).packed + int(port).to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError):
        raise StoreError(f"host {text!r} is not address:port") from None


def base64_text(body: bytes) -> str:
    """Return `body` as base64."""
    return base64.b64encode(body).decode()


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise StoreError(f"{field} is {value}, allowed are {low} to {high}")


_DECODER: Final = msgspec.json.Decoder(Row)
_ENCODER: Final = msgspec.json.Encoder()
