"""Requests of brokers about themselves, and of operators about brokers.

Source: RocketMQ 5.3.3, `DefaultRequestProcessor`.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from namesrv import registration, route_queries, unregistration
from namesrv.config import NamesrvConfig
from namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from namesrv.route_table import BrokerKey, MinBrokerIdChange, RouteInfo
from sprocket.common.config.live_settings import LiveSettings
from sprocket.common.errors import RequestError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.next_turn import at_once, in_turns
from sprocket.remoting.bodies.registration import (
    LARGE_BYTES,
    LARGE_COMPRESSED_BYTES,
    RegisterBrokerBody,
    TopicConfigAndMapping,
)
from sprocket.remoting.bodies.requests import read_data_version
from sprocket.remoting.bodies.route import GetBrokerMemberGroupResponseBody
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.codec.body_limits import LISTS
from sprocket.remoting.codec.fastjson import dumps, in_steps, loads
from sprocket.remoting.codes import LanguageCode, RequestCode, ResponseCode
from sprocket.remoting.command import LANGUAGE, Request, Response
from sprocket.remoting.headers.admin import GetBrokerMemberGroupRequestHeader
from sprocket.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from sprocket.remoting.routes import Action, Answer, NoHeader, Resource, Route, Steps

logger = logging.getLogger(__name__)

# Ordinal of V3_0_11 in `MQVersion`: before it, the body held topics only.
_VERSION_3_0_11 = 37
# Language in the header of a Sprocket broker, in JSON and in binary.  RocketMQ's brokers are written in Java.
_OUR_LANGUAGE = (LANGUAGE, str(LanguageCode[LANGUAGE].value))


class BrokerProcessor:
    """Handler of requests that change or show brokers.  Calls `notify` when a group's smallest broker id changes."""

    def __init__(
        self,
        table: RouteInfo,
        kv_config: KVConfig,
        settings: LiveSettings[NamesrvConfig],
        now_ms: Callable[[], int],
        notify: Callable[[list[MinBrokerIdChange]], None],
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._settings = settings
        self._now_ms = now_ms
        self._notify = notify
        self._registering: dict[BrokerKey, _Turn] = {}

    def routes(self) -> list[Route]:
        """Return the routes of this processor."""
        cluster, get, update = Resource.CLUSTER, Action.GET, Action.UPDATE
        return [
            Route(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader, self.register, cluster, update),
            Route(RequestCode.UNREGISTER_BROKER, UnregisterBrokerRequestHeader, self.unregister, cluster, update),
            Route(RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequestHeader, self.query_version, cluster, get),
            Route(RequestCode.BROKER_HEARTBEAT, BrokerHeartbeatRequestHeader, self.heartbeat, cluster, update),
            Route(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader, self.cluster_info, cluster, get),
            Route(
                RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader, self.member_group, cluster, get
            ),
            Route(
                RequestCode.WIPE_WRITE_PERM_OF_BROKER,
                WipeWritePermOfBrokerRequestHeader,
                self.wipe_write_perm,
                cluster,
                update,
            ),
            Route(
                RequestCode.ADD_WRITE_PERM_OF_BROKER,
                AddWritePermOfBrokerRequestHeader,
                self.add_write_perm,
                cluster,
                update,
            ),
        ]

    def register(self, request: Request[RegisterBrokerRequestHeader]) -> Answer:
        """Register a broker with its topics.  Many topics are read in a thread and entered in slices."""
        key = request.header.cluster_name, request.header.broker_addr
        if _is_large(request) or key in self._registering:
            return self._register_in_turn(key, request)
        steps = self._steps(request, _registration_body(request))
        return self._registered(at_once(steps))

    async def _register_in_turn(self, key: BrokerKey, request: Request[RegisterBrokerRequestHeader]) -> Response:
        """Enter the registrations of one broker one after the other: a later one has newer topics."""
        turn = self._registering.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                body = await asyncio.to_thread(_registration_body, request)
                if request.channel.is_closed:
                    return Response()  # for nobody; what its end removed must not come back
                return self._registered(await in_turns(self._steps(request, body)))
        finally:
            turn.users -= 1
            if not turn.users:
                del self._registering[key]

    def _steps(self, request: Request[RegisterBrokerRequestHeader], body: RegisterBrokerBody) -> registration.Steps:
        return registration.steps(
            self._table,
            request.header,
            body,
            request.channel.id,
            self._settings.current,
            self._now_ms(),
            marks_parts=request.language in _OUR_LANGUAGE,
        )

    def _registered(self, registered: registration.Registered | None) -> Response:
        if registered is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._notify(registered.changes)
        return Response(
            header=RegisterBrokerResponseHeader(
                ha_server_addr=registered.ha_server_addr, master_addr=registered.master_addr
            ),
            body=self._order_topic_config(),
        )

    def _order_topic_config(self) -> bytes:
        if not self._settings.current.return_order_topic_config_to_broker:
            return b""
        order = self._kv_config.namespace(ORDER_TOPIC_CONFIG)
        return b"" if order is None else msgspec.json.encode(KVTable(order))

    def unregister(self, request: Request[UnregisterBrokerRequestHeader]) -> Response:
        """Remove a broker, at its own request."""
        header = request.header
        self._notify(
            unregistration.unregister(
                self._table, header.cluster_name, header.broker_name, header.broker_addr, request.channel.id
            )
        )
        return Response()

    def query_version(self, request: Request[QueryDataVersionRequestHeader]) -> Response:
        """Note a sign of life.  Return the version of the broker's topics, and whether it must register."""
        cluster_name, broker_addr = request.header.cluster_name, request.header.broker_addr
        changed = registration.is_changed(self._table, cluster_name, broker_addr, read_data_version(request.body))
        registration.note_alive(self._table, cluster_name, broker_addr, request.channel.id, self._now_ms())
        live = self._table.live.get((cluster_name, broker_addr))
        return Response(
            header=QueryDataVersionResponseHeader(changed=changed),
            body=b"" if live is None else dumps(live.data_version),
        )

    def heartbeat(self, request: Request[BrokerHeartbeatRequestHeader]) -> Response:
        """Note a sign of life."""
        header = request.header
        registration.note_alive(
            self._table, header.cluster_name, header.broker_addr, request.channel.id, self._now_ms()
        )
        return Response()

    def cluster_info(self, request: Request[Any]) -> Steps:
        """Return all broker groups and clusters."""
        info = route_queries.cluster_info(self._table)
        info.broker_addr_table = yield from in_steps(list(info.broker_addr_table.items()), dict)
        return Response(body=dumps(info))

    def member_group(self, request: Request[GetBrokerMemberGroupRequestHeader]) -> Response:
        """Return the members of a broker group."""
        group = route_queries.member_group(self._table, request.header.cluster_name, request.header.broker_name)
        return Response(body=dumps(GetBrokerMemberGroupResponseBody(group)))

    def wipe_write_perm(self, request: Request[WipeWritePermOfBrokerRequestHeader]) -> Response:
        """Make the topics of a broker group unwritable."""
        count = self._table.wipe_write_perm(request.header.broker_name)
        _log_write_perm("wiped", request, request.header.broker_name, count)
        return Response(header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, request: Request[AddWritePermOfBrokerRequestHeader]) -> Response:
        """Make the topics of a broker group writable again."""
        count = self._table.add_write_perm(request.header.broker_name)
        _log_write_perm("added", request, request.header.broker_name, count)
        return Response(header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))


def _log_write_perm(change: str, request: Request[Any], broker_name: str, count: int) -> None:
    peer_lines.info(
        logger, request.channel.peer, "event=write_perm_changed change=%s broker=%s topics=%d peer=%s:%s",
        change, broker_name, count, *request.channel.peer,
    )  # fmt: skip


@dataclass(slots=True)
class _Turn:
    """Registrations of one broker that wait for each other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


def _is_large(request: Request[RegisterBrokerRequestHeader]) -> bool:
    """Return whether the body takes long to read: a compressed one may grow 200 times."""
    limit = LARGE_COMPRESSED_BYTES if request.header.compressed else LARGE_BYTES
    return len(request.body) > limit


def _registration_body(request: Request[RegisterBrokerRequestHeader]) -> RegisterBrokerBody:
    """Decode a broker's registration, in any thread.  Raises RequestError or ProtocolError."""
    header = request.header
    if header.body_crc32 and zlib.crc32(request.body) & 0x7FFFFFFF != header.body_crc32:
        peer_lines.warning(
            logger, request.channel.peer, "event=registration_refused broker=%s reason=crc32", header.broker_name
        )
        raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    if not request.body:
        return RegisterBrokerBody()
    if request.version < _VERSION_3_0_11:
        return RegisterBrokerBody(loads(request.body, TopicConfigAndMapping, LISTS))
    return RegisterBrokerBody.decode(request.body, request.header.compressed, request.version)
