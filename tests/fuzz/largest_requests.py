"""The largest bodies that a frame can carry, for every request code: what they may cost is what is tested."""

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Final

import msgspec

from sprocket.common.limits import MAX_FRAME_BYTES, MAX_HEADER_BYTES
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.routes import Route

_HEADER_ROOM: Final = 4096
LARGEST: Final = MAX_FRAME_BYTES - _HEADER_ROOM
# Of codes that read no body, or any: enough to show work that grows with it.
_PROBE_BYTES: Final = 512 * 1024

_LONG_PIECE: Final = "+a=b,"
_TOPIC, _GROUP = "Orders", "CG"
Body = Callable[[int], bytes]


def fields_of(route: Route) -> dict[str, str]:
    """A value for every field of the route's header."""
    found = {}
    for field in msgspec.structs.fields(route.header):
        name = field.encode_name
        is_text = "str" in str(field.type)
        if not is_text:
            found[name] = "false" if "bool" in str(field.type) else "1"
        elif "group" in name.lower():
            found[name] = _GROUP
        elif "topic" in name.lower():
            found[name] = _TOPIC
        elif "attributes" not in name:
            found[name] = "x"
    return found


def _repeated(begin: bytes, piece: bytes, end: bytes = b"", separator: bytes = b"") -> Body:
    def body(size: int) -> bytes:
        count = max(0, size - len(begin) - len(end) + len(separator)) // (len(piece) + len(separator))
        return begin + separator.join([piece] * count) + end

    return body


def _numbered(begin: bytes, piece: bytes, end: bytes = b"") -> Body:
    """Pieces with a number in each, so that no two are the same."""

    def body(size: int) -> bytes:
        count = max(0, size - len(begin) - len(end)) // (len(piece % 0) + 7)
        return begin + b",".join([piece % index for index in range(count)]) + end

    return body


def _compressed(make: Body) -> Body:
    return lambda size: zlib.compress(make(size), 1)


def _register_pieces(size: int) -> bytes:
    version = b'{"counter":1}'
    count = size // 36
    lines = [b"Topic%d 16 16 6 SINGLE_TAG" % index for index in range(count)]
    head = struct.pack(">i", len(version)) + version + struct.pack(">i", count)
    return (
        head + b"".join(struct.pack(">i", len(line)) + line for line in lines) + struct.pack(">i", 2) + b"[]" + bytes(4)
    )


def _acks(size: int) -> bytes:
    one = b'{"c":"CG","t":"Orders","r":"0","so":0,"q":0,"rq":0,"pt":1,"it":1,"b":"//8="}'
    return _repeated(b'{"acks":[', one, b'],"brokerName":"broker-a"}', b",")(size)


GENERIC: Final[dict[str, Body]] = {
    "braces": _repeated(b"", b"{"),
    "brackets": _repeated(b"", b"["),
    "nested objects": _repeated(b"", b'{"a":'),
    "bare keys": _numbered(b'{"offsetTable":{', b"%d:0", b"}}"),
    "object keys": _numbered(b'{"offsetTable":{', b'{"a":%d}:0', b"}}"),
    "numbers": _repeated(b"[", b"0", b"]", b","),
    "texts": _repeated(b"[", b'""', b"]", b","),
    "members": _numbered(b"{", b'"%d":0', b"}"),
    "backslashes": _repeated(b'{"a":"', b"\\"),
    "properties": _repeated(b"", b"a=b\n"),
    "blank lines": _repeated(b"", b"\n"),
    "continued lines": _repeated(b"", b"\\\n"),
    "zeros": _repeated(b"", b"\0"),
    "inflated": _compressed(_repeated(b"", b"\0")),
}

_consumer = b'{"groupName":"G%d","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING"}'
_one_consumer = b'{"clientID":"c","consumerDataSet":[{"groupName":"CG","subscriptionDataSet":['
_queue = b'{"topic":"Orders","brokerName":"broker-a","queueId":%d}'
_lock: Body = _numbered(b'{"consumerGroup":"CG","clientId":"c","mqSet":[', _queue, b"]}")
_topics: Body = _numbered(b'{"topicConfigList":[', b'{"topicName":"T%d","readQueueNums":1,"writeQueueNums":1}', b"]}")
_groups: Body = _numbered(b'{"groupConfigList":[', b'{"groupName":"G%d"}', b"]}")
_check = (
    b'{"clientId":"c","group":"CG","subscriptionData":{"topic":"Orders","expressionType":"SQL92","subString":"%b"}}'
)
_policy = b'{"subject":"User:x","policies":[{"policyType":"Custom","entries":['
_registered = b'"T%d":{"topicName":"T%d","readQueueNums":1}'

SPECIAL: Final[dict[int, dict[str, Body]]] = {
    RequestCode.HEART_BEAT: {
        "consumer groups": _numbered(b'{"clientID":"c","consumerDataSet":[', _consumer, b"]}"),
        "known group": _repeated(b'{"clientID":"c","consumerDataSet":[', b'{"groupName":"CG"}', b"]}", b","),
        "producer groups": _numbered(b'{"clientID":"c","producerDataSet":[', b'{"groupName":"P%d"}', b"]}"),
        "subscriptions": _numbered(_one_consumer, b'{"topic":"T%d","subString":"*"}', b"]}]}"),
        "SQL subscriptions": _numbered(
            _one_consumer, b'{"topic":"T%d","subString":"a > 1 AND b = 2","expressionType":"SQL92"}', b"]}]}"
        ),
        "tags": _numbered(_one_consumer + b'{"topic":"Orders","tagsSet":[', b'"t%d"', b"]}]}]}"),
        "codes": _numbered(_one_consumer + b'{"topic":"Orders","codeSet":[', b"%d", b"]}]}]}"),
        "long group": _repeated(b'{"clientID":"c","consumerDataSet":[{"groupName":"', b"g", b'"}]}'),
        "numbered enumerations": _repeated(
            b'{"clientID":"c","consumerDataSet":[', b'{"groupName":"CG","consumeType":1}', b"]}", b","
        ),
    },
    RequestCode.LOCK_BATCH_MQ: {"queues": _lock},
    RequestCode.UNLOCK_BATCH_MQ: {"queues": _lock},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topics": _topics},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groups": _groups},
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: {"topics": _numbered(b'{"topicList":[', b'"T%d"', b"]}")},
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: {"groups": _numbered(b'{"groupNameList":[', b'"G%d"', b"]}")},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {
        "subscriptions": _numbered(b'{"groupName":"Z","subscriptionDataSet":[', b'{"topic":"T%d"}', b"]}"),
        "retries": _numbered(b'{"groupName":"Z","groupRetryPolicy":{"customizedRetryPolicy":{"next":[', b"%d", b"]}}}"),
    },
    RequestCode.BATCH_ACK_MESSAGE: {
        "acknowledgements": _acks,
        "bits": _repeated(b'{"acks":[{"c":"CG","t":"Orders","r":"0","b":"', b"////", b'"}]}'),
    },
    RequestCode.CHECK_CLIENT_CONFIG: {
        "expression": lambda size: _check % _repeated(b"", b"a > 1 AND ")(size),
        "parentheses": lambda size: _check % _repeated(b"", b"(")(size),
    },
    RequestCode.AUTH_CREATE_ACL: {"entries": _numbered(_policy, b'{"resource":"Topic:t%d"}', b"]}]}")},
    RequestCode.AUTH_UPDATE_ACL: {"entries": _numbered(_policy, b'{"resource":"Topic:t%d"}', b"]}]}")},
    RequestCode.REGISTER_BROKER: {
        "topics": lambda size: (
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{'
            + b",".join(_registered % (index, index) for index in range(size // 52))
            + b"}}}"
        ),
        "filter servers": _numbered(b'{"filterServerList":[', b'"f%d"', b"]}"),
        "mappings": _numbered(
            b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{', b'"t%d":{"currIdMap":{"0":0}}', b"}}}"
        ),
        "compressed topics": _compressed(_register_pieces),
    },
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: {
        "queues": _repeated(b'{"queueDatas":[', b'{"brokerName":"broker-a"}', b"]}", b","),
        "brokers": _numbered(b'{"brokerDatas":[', b'{"cluster":"c","brokerName":"b%d"}', b"]}"),
    },
    RequestCode.QUERY_DATA_VERSION: {},
    RequestCode.UPDATE_BROKER_CONFIG: {},
    RequestCode.UPDATE_NAMESRV_CONFIG: {},
    RequestCode.QUERY_ASSIGNMENT: {},
    RequestCode.SET_MESSAGE_REQUEST_MODE: {},
}


_AS_LARGE_AS_CAN_BE: Final = frozenset({"bare keys", "braces", "members"})
_OF_ANY_CODE: Final = frozenset({"bare keys", "properties"})


def bodies_of(code: int) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Name and maker of each body to try."""
    special = SPECIAL.get(code)
    for name in GENERIC:
        if special is not None:
            yield name, partial(_generic, name, LARGEST if name in _AS_LARGE_AS_CAN_BE else _PROBE_BYTES)
        elif name in _OF_ANY_CODE:
            yield name, partial(_generic, name, _PROBE_BYTES)
    for name, make in (special or {}).items():
        yield name, partial(make, LARGEST)


@cache  # to make one takes longer than to answer it, and every code gets them
def _generic(name: str, size: int) -> bytes:
    return GENERIC[name](size)


def compressed_flag(code: int, name: str) -> dict[str, str]:
    """Fields that say how the body is written."""
    if code != RequestCode.REGISTER_BROKER:
        return {}
    return {"compressed": "true" if name in ("compressed topics", "inflated") else "false", "bodyCrc32": "0"}


def long_fields(route: Route) -> Iterator[tuple[str, dict[str, str]]]:
    """Headers in which one text is as long as a header may be, one field at a time."""
    fields = fields_of(route)
    size = MAX_HEADER_BYTES - _HEADER_ROOM
    for name in fields:
        if fields[name] not in ("1", "false"):
            yield f"{name} of commas", fields | {name: _LONG_PIECE * (size // len(_LONG_PIECE))}
