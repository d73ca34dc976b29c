"""A name server and broker in the client's own process, without sockets: what is left is the client's own cost.

`CannedLoop` is an event loop whose connections all lead to a canned broker.  It answers sends and pulls with frames
that were made before, in the next turn of the loop; other requests get the response that a client needs to start.
"""

import asyncio
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from sprocket.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Response
from sprocket.remoting.frames import encode_response
from sprocket.remoting.framing import JSON

_PREFIX: Final = struct.Struct(">ii")
# All of a record with IPv4 hosts before its body; then the body, the topic and the properties.
_RECORD: Final = struct.Struct(">iiiiiqqiqQqQiqi")
_MAGIC_V1: Final = -626843481
_QUEUES: Final = 4
_SENT: Final = (
    b'{"code":0,"extFields":{"msgId":"7F00000100002A9F0000000000000000","queueId":"0","queueOffset":"1234567"},'
    b'"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'
)
# The records of a pull say 0 to 31; the delta makes it the offsets that were asked for.
_PULLED: Final = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","offsetDelta":"%d","nextBeginOffset":"%d","minOffset":"0",'
    b'"maxOffset":"1000000000"},"flag":1,"language":"PYTHON","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}'
)


class _Frames:
    """Responses to sends by opaque, each made once."""

    def __init__(self) -> None:
        self._made: list[bytes] = []

    def of(self, first: int, count: int) -> bytes:
        """Return the responses to `count` sends, whose opaque numbers begin with `first`."""
        while len(self._made) < first + count:
            header = _SENT % len(self._made)
            self._made.append(_PREFIX.pack(4 + len(header), len(header)) + header)
        return b"".join(self._made[first : first + count])


def _frame(response: Response, opaque: int) -> bytes:
    return b"".join(map(bytes, encode_response(response, opaque, JSON)))


def _number(header: bytes, name: bytes) -> int:
    """Return the number after `name`."""
    begin = header.rindex(name) + len(name)
    end = begin
    while header[end] in b"0123456789":
        end += 1
    return int(header[begin:end])


def _record(topic: bytes, offset: int, body: bytes) -> bytes:
    properties = b"UNIQ_KEY\x01%032X\x02WAIT\x01true\x02" % offset
    tail = bytes([len(topic)]) + topic + len(properties).to_bytes(2, "big") + properties
    size = _RECORD.size + len(body) + len(tail)
    fixed = (size, _MAGIC_V1, 0, 0, 0, offset, offset * size, 0, 1, 0x7F00000100001F90, 1, 0x7F00000100002A9F, 0, 0)
    return _RECORD.pack(*fixed, len(body)) + body + tail


class CannedBroker(asyncio.Transport):
    """Transport of one connection; it is the broker at its other end."""

    _sends: Final = _Frames()
    _members: Final[dict[str, str]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, topic: str, body: bytes) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._loop = loop
        self._protocol = protocol
        self._topic = topic
        self._is_closed = False
        self._rest = b""  # begin of a frame whose end was not written yet
        # 32 messages of a pull: those of every pull, so that no record is made while the client is measured.
        self._records = b"".join(_record(topic.encode(), offset, body) for offset in range(32))
        self._answers: dict[int, Callable[[dict[str, str], bytes], Response]] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda fields, body: Response(
                body=json.dumps({"consumerIdList": [self._members.get(fields["consumerGroup"], "")]}).encode()
            ),
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.QUERY_CONSUMER_OFFSET: lambda fields, body: Response(header={"offset": "0"}),
        }

    def _route(self, fields: dict[str, str], body: bytes) -> Response:
        if fields["topic"] != self._topic:
            return Response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        queues = [QueueData("broker-a", _QUEUES, _QUEUES, 6)]
        data = TopicRouteData(queue_datas=queues, broker_datas=[BrokerData("c", "broker-a", {0: "127.0.0.1:1"})])
        return Response(body=dumps(data))

    def _heartbeat(self, fields: dict[str, str], body: bytes) -> Response:
        data = json.loads(body)
        for consumer in data["consumerDataSet"]:
            self._members[consumer["groupName"]] = data["clientID"]
        return Response()

    def _pulled(self, header: bytes) -> bytes:
        """Return the response to a pull: 32 messages from the offset that it asks for."""
        begin = _number(header, b'"queueOffset":"')
        made = _PULLED % (begin, begin + 32, _number(header, b'"opaque":'))
        return _PREFIX.pack(4 + len(made) + len(self._records), len(made)) + made + self._records

    # asyncio.Transport

    def write(self, data: Any) -> None:
        if not self._is_closed:
            self._loop.call_soon(self._receive, b"".join(self._responses(self._rest + data)))

    def _responses(self, data: bytes) -> Iterator[bytes]:
        """Yield the responses to the whole frames; sends that follow one another have opaque numbers that do so too."""
        at, end, first, count = 0, len(data), 0, 0
        while end - at >= _PREFIX.size:
            length, header_bytes = _PREFIX.unpack_from(data, at)
            if at + 4 + length > end:
                break
            if data.startswith(b'{"code":310,', at + 8):
                if not count:
                    first = _number(data[at + 8 : at + 8 + header_bytes], b'"opaque":')
                count += 1
                at += 4 + length
                continue
            if count:
                yield self._sends.of(first, count)
                count = 0
            header_text = data[at + 8 : at + 8 + header_bytes]
            if header_text.startswith(b'{"code":11,'):
                yield self._pulled(header_text)
            else:
                header = json.loads(header_text)
                fields = header.get("extFields", {})
                answer = self._answers.get(header["code"])
                body = data[at + 8 + header_bytes : at + 4 + length]
                response = Response() if answer is None else answer(fields, body)
                yield _frame(response, header["opaque"])
            at += 4 + length
        if count:
            yield self._sends.of(first, count)
        self._rest = data[at:]

    def _receive(self, data: bytes) -> None:
        if not self._is_closed and data:
            self._protocol.data_received(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close


class CannedLoop(asyncio.SelectorEventLoop):
    """Event loop whose connections lead to a canned broker with one topic."""

    topic = ""
    body = b""

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        protocol = protocol_factory()
        transport = CannedBroker(self, protocol, self.topic, self.body)
        protocol.connection_made(transport)
        return transport, protocol
