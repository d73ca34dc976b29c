"""Stored traces in the forms of other tools: JSON lines, spans of OpenTelemetry, bulk requests of Elasticsearch.

All of it is text without further dependencies.
Source: OpenTelemetry, "OTLP file exporter", "Semantic conventions for messaging spans"; Elasticsearch, "Bulk API".
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final

from sprocket.client.trace.encoding import TraceKind, TraceRecord

# `SpanKind`, `StatusCode`
_PRODUCER, _CONSUMER = 4, 5
_ERROR: Final = 2
_SPAN_KINDS: Final = {
    TraceKind.PUB: ("send", _PRODUCER),
    TraceKind.SUB_AFTER: ("process", _CONSUMER),
    TraceKind.END_TRANSACTION: ("settle", _PRODUCER),
    TraceKind.RECALL: ("recall", _PRODUCER),
}
_PER_REQUEST: Final = 500
_EPOCH: Final = datetime(1970, 1, 1)
_MAX_TIME_MS: Final = 253_402_300_799_999  # the end of the year 9999


def as_dict(record: TraceRecord, client_host: str) -> dict[str, Any]:
    """Return a record as JSON has it; `client_host` is the address from which its client sent it."""
    fields: dict[str, Any] = {
        "type": record.kind.value, "messageId": record.message_id, "timeMs": record.time_ms, "group": record.group,
        "region": record.region, "clientHost": client_host, "keys": record.keys.split(), "success": record.is_success,
    }  # fmt: skip
    if record.kind is TraceKind.PUB:
        fields |= {
            "topic": record.topic, "tags": record.tags, "storeHost": record.store_host, "bodyBytes": record.body_bytes,
            "costMs": record.cost_ms, "messageType": record.message_type.name,
            "offsetMessageId": record.offset_message_id,
        }  # fmt: skip
    elif record.kind is TraceKind.SUB_BEFORE:
        fields |= {"requestId": record.request_id, "retryTimes": record.retry_times}
    elif record.kind is TraceKind.SUB_AFTER:
        fields |= {"requestId": record.request_id, "costMs": record.cost_ms, "contextCode": record.context_code}
    elif record.kind is TraceKind.END_TRANSACTION:
        fields |= {
            "topic": record.topic, "storeHost": record.store_host, "transactionId": record.transaction_id,
            "transactionState": record.transaction_state, "fromCheck": record.is_from_check,
        }  # fmt: skip
    else:
        fields["topic"] = record.topic
    return fields


def json_lines(records: Iterable[tuple[TraceRecord, str]]) -> Iterator[str]:
    """Yield one JSON object for each record and its client's address."""
    for record, host in records:
        yield json.dumps(as_dict(record, host), ensure_ascii=False)


def bulk_lines(records: Iterable[tuple[TraceRecord, str]], index: str) -> Iterator[str]:
    """Yield the lines of bulk requests: an action, then a document.

    The id follows from the record, so a repeated export changes nothing.
    """
    for record, host in records:
        document = as_dict(record, host)
        # The name that Kibana expects of a time, in the form that an index without a mapping takes for a date.
        if 0 < record.time_ms <= _MAX_TIME_MS:  # 0: unknown
            document["@timestamp"] = _iso_time(record.time_ms)
        yield json.dumps({"index": {"_index": index, "_id": _hex(24, *document.values())}})
        yield json.dumps(document, ensure_ascii=False)


def otlp_lines(records: Iterable[tuple[TraceRecord, str]]) -> Iterator[str]:
    """Yield requests of OTLP in JSON, one in a line, as its file exporter and its HTTP receiver have them.

    A message is one trace, its send the root, each consumption and the end of its transaction a child.  A SubBefore
    without its SubAfter is no span: it has no end.
    """
    spans: list[dict[str, Any]] = []
    for record, host in records:
        if record.kind in _SPAN_KINDS and record.time_ms > 0:
            spans.append(_span(record, host))
            if len(spans) >= _PER_REQUEST:
                yield _request(spans)
                spans = []
    if spans:
        yield _request(spans)


def _request(spans: list[dict[str, Any]]) -> str:
    resource = {"attributes": [_attribute("service.name", "rocketmq")]}
    scope_spans = [{"scope": {"name": "sprocket.trace"}, "spans": spans}]
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scope_spans}]}, ensure_ascii=False)


def _span(record: TraceRecord, host: str) -> dict[str, Any]:
    operation, kind = _SPAN_KINDS[record.kind]
    # A send is recorded with its begin, a consumption with its end.
    begin_ms = record.time_ms - record.cost_ms if record.kind is TraceKind.SUB_AFTER else record.time_ms
    root = _hex(8, record.message_id, TraceKind.PUB.value)
    is_root = record.kind is TraceKind.PUB
    attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.type": operation,
        "messaging.message.id": record.message_id,
        "messaging.destination.name": record.topic,
        "messaging.consumer.group.name" if kind == _CONSUMER else "messaging.rocketmq.client_group": record.group,
        "messaging.rocketmq.message.tag": record.tags,
        "messaging.rocketmq.message.keys": record.keys,
        "network.local.address": host,
        "server.address": record.store_host,
        "messaging.rocketmq.transaction.state": record.transaction_state,
    }
    span: dict[str, Any] = {
        "traceId": _hex(16, record.message_id),
        "spanId": root if is_root else _hex(8, record.message_id, record.kind.value, record.group, record.request_id),
        "name": f"{operation} {record.topic}".strip(),
        "kind": kind,
        "startTimeUnixNano": str(begin_ms * 1_000_000),
        "endTimeUnixNano": str((begin_ms + record.cost_ms) * 1_000_000),
        "attributes": [_attribute(name, value) for name, value in attributes.items() if value],
        "status": {} if record.is_success else {"code": _ERROR},
    }
    if not is_root:
        span["parentSpanId"] = root
    return span


def _iso_time(time_ms: int) -> str:
    """Return a time of UTC with milliseconds, as in ``2026-11-23T10:26:05.123Z``."""
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds") + "Z"


def _attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


def _hex(size_bytes: int, *parts: object) -> str:
    """Return an id that follows from `parts`."""
    return sha256("\x01".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[: 2 * size_bytes]
