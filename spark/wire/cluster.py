"""Connections of a reader to a cluster: name servers, and the members of each broker group.

A request goes to the master, or to the next slave if the master is missing or does not respond.  Without a response
from any member it is retried a few times; then an error lists the members.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from spark.wire.connection import Asked, ConnectionSettings, WireConnection, pause
from sprocket.client.errors import BrokerNotFound, BrokerRefused, ClientError, NameServerUnreachable
from sprocket.common.errors import ProtocolError
from sprocket.remoting.bodies.route import MASTER_ID, ClusterInfo, TopicRouteData, read_route
from sprocket.remoting.bodies.topic import TopicList
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.pending import ConnectionLost
from sprocket.remoting.tls.settings import TlsSettings
from sprocket.remoting.tls.watch import ClientTls

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Responses of a server that accepts no request at the moment.
BUSY: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SERVICE_NOT_AVAILABLE)
_FIRST_PAUSE_S: Final = 0.2
_MAX_PAUSE_S: Final = 3.0


@dataclass(frozen=True)
class WireSettings:
    """Addresses of name servers, and settings of connections.  The text form hides the keys."""

    name_servers: tuple[str, ...]
    timeout_ms: int = 3000
    retries: int = 5
    group: str = "TOOLS_CONSUMER"
    credentials: Credentials | None = None
    tls: TlsSettings | None = None

    def connection(self) -> ConnectionSettings:
        context = None if self.tls is None else ClientTls(self.tls).context()
        return ConnectionSettings(self.timeout_ms / 1000, self.credentials, context)


@dataclass(frozen=True)
class Answer:
    """Response, and the member of the broker group that sent it."""

    response: ReceivedResponse
    broker_id: int
    address: str


class ServerBusy(ClientError):
    """A server responds but accepts no request at the moment."""


@dataclass
class WireCluster:
    """Connections to a cluster; each is opened on first use.  Call `close` at the end."""

    settings: WireSettings
    pause: Callable[[float], None] = pause
    _connections: dict[str, WireConnection] = field(default_factory=dict)
    # Last known members of each broker group, by broker id.
    _members: dict[str, dict[int, str]] = field(default_factory=dict)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- name servers ------------------------------------------------------------------------------------

    def broker_names(self) -> list[str]:
        """Return the registered brokers.  Raises NameServerUnreachable, BrokerRefused."""
        info = loads(self._told(RequestCode.GET_BROKER_CLUSTER_INFO), ClusterInfo)
        self._members = {name: dict(data.broker_addrs) for name, data in info.broker_addr_table.items()}
        return sorted(self._members)

    def topics(self) -> list[str]:
        """Return every topic with a route.  Raises NameServerUnreachable, BrokerRefused."""
        return sorted(loads(self._told(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), TopicList).topic_list)

    def route(self, topic: str) -> TopicRouteData | None:
        """Return the route of `topic`, None if it has none.  Raises NameServerUnreachable, BrokerRefused."""
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        response, address = self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        route = read_route(_accepted(response, address).body)
        for data in route.broker_datas:
            self._members.setdefault(data.broker_name, {}).update(data.broker_addrs)
        return route

    def _told(self, code: int) -> bytes:
        return _accepted(*self._ask_name_server(code, None)).body

    def _ask_name_server(self, code: int, header: Header | None) -> tuple[ReceivedResponse, str]:
        def once() -> tuple[ReceivedResponse, str]:
            failures = []
            for address in self.settings.name_servers:
                try:
                    return _not_busy(self._invoke_all(address, [(code, header)])[0], address), address
                except (ClientError, ProtocolError) as error:
                    failures.append(str(error))
            raise NameServerUnreachable(f"no name server answers: {'; '.join(failures)}; check option namesrvAddr")

        return self._tried(once)

    # -- brokers -----------------------------------------------------------------------------------------

    def ask(
        self, broker_name: str, requests: Sequence[Asked], prefer: int = MASTER_ID, retries: int | None = None
    ) -> list[Answer]:
        """Return the responses of one member of the broker group to `requests`: member `prefer` if it responds.

        `retries` None: the number in the settings.

        Raises BrokerNotFound, or the last member's ConnectFailed, ConnectionLost or RemotingTimeout.
        """
        return self._tried(lambda: self._ask_members(broker_name, requests, prefer), retries)

    def told(self, broker_name: str, requests: Sequence[Asked], retries: int | None = None) -> list[Answer]:
        """Return the responses as `ask` does, if each is a success; a busy broker is retried like one that is away.

        Raises BrokerRefused, and the exceptions of `ask`.
        """

        def once() -> list[Answer]:
            answers = self._ask_members(broker_name, requests, MASTER_ID)
            for answer in answers:
                _accepted(_not_busy(answer.response, answer.address), answer.address)
            return answers

        return self._tried(once, retries)

    def _ask_members(self, broker_name: str, requests: Sequence[Asked], prefer: int) -> list[Answer]:
        members = self._members.get(broker_name)
        if not members:
            self.broker_names()
            members = self._members.get(broker_name)
        if not members:
            raise BrokerNotFound(broker_name)
        last: ClientError | None = None
        for broker_id, address in sorted(members.items(), key=lambda member: (member[0] != prefer, member[0])):
            try:
                responses = self._invoke_all(address, requests)
            except ClientError as error:
                logger.info("event=broker_failed broker=%s address=%s reason=%r", broker_name, address, str(error))
                last = error
                continue
            return [Answer(response, broker_id, address) for response in responses]
        self._members.pop(broker_name, None)  # requested again before the next try
        assert last is not None
        raise last

    def _invoke_all(self, address: str, requests: Sequence[Asked]) -> list[ReceivedResponse]:
        """Return the responses of one server.

        The server may have closed an open connection meanwhile, so an error of one is retried on a new connection.  The
        requests are idempotent.
        """
        held = self._connections.pop(address, None)
        if held is not None and not held.is_closed:
            with suppress(ConnectionLost):
                responses = held.invoke_all(requests)
                self._connections[address] = held
                return responses
        connection = WireConnection(address, self.settings.connection())
        responses = connection.invoke_all(requests)
        self._connections[address] = connection
        return responses

    def _tried(self, once: Callable[[], T], retries: int | None = None) -> T:
        """Return the result of `once`, with retries while no server responds.  A refusal is not retried."""
        wait_s = _FIRST_PAUSE_S
        for left in range(self.settings.retries if retries is None else retries, -1, -1):
            try:
                return once()
            except BrokerRefused:
                raise
            except ClientError as error:
                if not left:
                    raise
                logger.info("event=wire_retry in_s=%.1f reason=%r", wait_s, str(error))
            self.pause(wait_s)
            wait_s = min(wait_s * 2, _MAX_PAUSE_S)
        raise AssertionError("the last try returns or raises")


def _not_busy(response: ReceivedResponse, address: str) -> ReceivedResponse:
    if response.code in BUSY:
        raise ServerBusy(f"{address} is busy: {response.remark or 'no remark'}")
    return response


def _accepted(response: ReceivedResponse, address: str) -> ReceivedResponse:
    if response.code != ResponseCode.SUCCESS:
        raise BrokerRefused(response.code, response.remark, address)
    return response
