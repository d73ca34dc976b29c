"""Every request of a server, made from its routes: the valid form for each code, and all ways to forge it.

Handlers are taken out and put down what they would have served: what is refused must not reach them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

import msgspec

from sprocket.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    ProducerData,
    SubscriptionData,
)
from sprocket.remoting.bodies.group import (
    DeleteSubscriptionGroupListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionCtlRequestBody, LiteSubscriptionDTO
from sprocket.remoting.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from sprocket.remoting.bodies.topic import CreateTopicListRequestBody, TopicConfig, TopicList
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.channel_counters import ChannelCounters
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.credentials import ACCESS_KEY, SIGNATURE, Credentials, signature
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import FrameDecoder
from sprocket.remoting.headers.base import Header
from sprocket.remoting.routes import Route, RouteTable, open_frame

TOPIC, GROUP, CLUSTER = "Orders", "CG", "DefaultCluster"
PEER = ("10.1.2.3", 40000)
_NAMES = {
    "topic": TOPIC,
    "origin_topic": TOPIC,
    "group": GROUP,
    "group_name": GROUP,
    "consumer_group": GROUP,
    "compare_group": GROUP,
    "src_group": GROUP,
    "dest_group": GROUP,
    "cluster": CLUSTER,
    "cluster_name": CLUSTER,
}
_BODIES: Mapping[int, object] = {
    RequestCode.HEART_BEAT: HeartbeatData(
        "client", [ProducerData("PG")], [ConsumerData(GROUP, subscription_data_set=[SubscriptionData(TOPIC)])]
    ),
    RequestCode.CHECK_CLIENT_CONFIG: CheckClientRequestBody("client", GROUP, SubscriptionData(TOPIC)),
    RequestCode.LOCK_BATCH_MQ: LockBatchRequestBody(GROUP, "client", False, [MessageQueue(TOPIC, "broker-a", 0)]),
    RequestCode.UNLOCK_BATCH_MQ: LockBatchRequestBody(GROUP, "client", False, [MessageQueue(TOPIC, "broker-a", 0)]),
    RequestCode.BATCH_ACK_MESSAGE: BatchAckMessageRequestBody("broker-a", [BatchAck(GROUP, TOPIC)]),
    RequestCode.LITE_SUBSCRIPTION_CTL: LiteSubscriptionCtlRequestBody(
        [LiteSubscriptionDTO(LiteSubscriptionAction.PARTIAL_ADD, "client", GROUP, TOPIC, ["lite"])]
    ),
    RequestCode.QUERY_ASSIGNMENT: QueryAssignmentRequestBody(TOPIC, GROUP, "client"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: SetMessageRequestModeRequestBody(TOPIC, GROUP),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: CreateTopicListRequestBody([TopicConfig(TOPIC)]),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: SubscriptionGroupConfig(GROUP),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: SubscriptionGroupList([SubscriptionGroupConfig(GROUP)]),
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: TopicList([TOPIC]),
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: DeleteSubscriptionGroupListRequestBody([GROUP]),
}


class Shape(msgspec.Struct, frozen=True):
    """A request of one code as an honest client sends it, not yet signed."""

    code: int
    fields: Mapping[str, str]
    body: bytes


def shape(route: Route) -> Shape:
    """Return a request for `route`: all fields of its header, and a body where one is read."""
    fields = {field.encode_name: _value(field) for field in msgspec.structs.fields(route.header)}
    body = _BODIES.get(route.code)
    return Shape(int(route.code), fields, b"body" if body is None else dumps(body))


def unknown_shapes(served: Iterable[Route]) -> list[Shape]:
    """Return requests with codes that no route serves, codes unknown to RocketMQ, and codes beyond 16 bits."""
    known = {int(route.code) for route in served}
    codes = [*(int(code) for code in RequestCode), 0, -1, 7777, 65536 + 310, 2**31 - 1]
    return [Shape(code, {"topic": TOPIC, "group": GROUP}, b"") for code in codes if code not in known]


def _value(field: msgspec.structs.FieldInfo) -> str:
    if field.name in _NAMES:
        return _NAMES[field.name]
    types = {field.type, *get_args(field.type)}
    types |= {base for one in types for base in get_args(one)}
    if bool in types:
        return "false"
    return "0" if int in types else "text"


# Ways to forge what `account` could have signed.  Each takes fields and body, and returns those to send.
Forged = tuple[dict[str, str], bytes]
Forgery = Callable[[Shape, Credentials], Forged]


def _signed(of: Shape, account: Credentials) -> dict[str, str]:
    return account.signed(of.fields, of.body)


def _with(of: Shape, account: Credentials, **changes: str) -> Forged:
    return {**_signed(of, account), **changes}, of.body


def _wrong_key(of: Shape, account: Credentials) -> Forged:
    return Credentials(account.access_key, account.secret_key + "!").signed(of.fields, of.body), of.body


def _cut(of: Shape, account: Credentials) -> Forged:
    return _with(of, account, **{SIGNATURE: _signed(of, account)[SIGNATURE][:-2]})


def _half_an_account(of: Shape, account: Credentials) -> Forged:
    """Sign without naming the account, and add the account afterwards."""
    return {**of.fields, SIGNATURE: signature(account.secret_key, of.fields, of.body), ACCESS_KEY: "x"}, of.body


FORGERIES: Mapping[str, Forgery] = {
    "unsigned": lambda of, account: (dict(of.fields), of.body),
    "a name alone": lambda of, account: ({**of.fields, ACCESS_KEY: account.access_key}, of.body),
    "an empty name": lambda of, account: _with(of, account, **{ACCESS_KEY: ""}),
    "wrong key": _wrong_key,
    "another body": lambda of, account: (_signed(of, account), of.body + b" "),
    "no body": lambda of, account: (_signed(of, account), b"") if of.body else _wrong_key(of, account),
    "one field more": lambda of, account: _with(of, account, extra="1"),
    "a long field more": lambda of, account: _with(of, account, extra="x" * 40_000),
    "truncated": _cut,
    "empty signature": lambda of, account: _with(of, account, **{SIGNATURE: ""}),
    "long signature": lambda of, account: _with(of, account, **{SIGNATURE: "A" * 40_000}),
    "not ASCII": lambda of, account: _with(of, account, **{SIGNATURE: "ü" * 28}),
    "name in other letters": lambda of, account: _with(of, account, **{ACCESS_KEY: account.access_key.upper()}),
    "another account": _half_an_account,
}


class Outcome(msgspec.Struct):
    """Outcome of one request."""

    served: bool
    answers: list[ReceivedResponse]

    @property
    def code(self) -> int:
        return self.answers[0].code

    @property
    def remark(self) -> str:
        return self.answers[0].remark or ""


class _Transport(asyncio.Transport):
    """Records what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": PEER, "sockname": ("127.0.0.1", 10911)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Doors:
    """Routes of a server behind its gate; requests that would have been served are recorded."""

    def __init__(self, routes: Iterable[Route], stand_before: Callable[[RouteTable], RouteTable]) -> None:
        self.served: list[Request[Any]] = []
        self.routes = list(routes)
        self.table = stand_before(RouteTable(replace(one, handle=self._serve, batch=None) for one in self.routes))
        self._transport = _Transport()
        self.channel = RemotingChannel(self.table, ChannelCounters())
        self.channel.connection_made(self._transport)

    def _serve(self, request: Request[Any]) -> Response:
        self.served.append(request)
        return Response(remark="served")

    def ask(self, code: int, fields: Mapping[str, str], body: bytes, serialization: int, **how: bool) -> Outcome:
        """Send one request.  Return its outcome."""
        return self.send(encode_request(code, 7, fields, len(body), serialization=serialization, **how) + body)

    def send(self, content: bytes) -> Outcome:
        """Send bytes.  Return their outcome."""
        self.served.clear()
        self._transport.written.clear()
        self.channel.data_received(content)
        self.channel._flush()  # a turn of the loop does it
        answers = [open_frame(frame) for frame in FrameDecoder().feed(bytes(self._transport.written))]
        return Outcome(bool(self.served), [one for one in answers if isinstance(one, ReceivedResponse)])

    @property
    def is_closed(self) -> bool:
        return self._transport.closed


def header_fields(header: type[Header]) -> set[str]:
    """Return the names of a header's fields as on the wire."""
    return {field.encode_name for field in msgspec.structs.fields(header)}
