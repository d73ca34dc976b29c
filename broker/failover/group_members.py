"""Members of the broker group that are online according to name servers, and heartbeats to those.

With enableSlaveActingMaster each member sends heartbeats, so that a lost one is noticed within
brokerNotActiveTimeoutMillis.  Each member asks regularly who is online, and at once when a name server reports that the
smallest id changed.
Source: RocketMQ 5.3.3, `BrokerController.sendHeartbeat`, `syncBrokerMemberGroup`, `BrokerOuterAPI`,
`AdminBrokerProcessor.notifyMinBrokerIdChange`.  Stricter: a member is online if any answering name server knows it.
The original asks one name server, and believes the report of any.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker.core import BrokerCore
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.errors import ClientError, ProtocolError, SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.route import GetBrokerMemberGroupResponseBody, TopicRouteData
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse, Request, Response
from sprocket.remoting.headers.admin import GetBrokerMemberGroupRequestHeader
from sprocket.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    QueryDataVersionRequestHeader,
)
from sprocket.remoting.message.topic_names import SYNC_BROKER_MEMBER_GROUP_PREFIX
from sprocket.remoting.routes import Action, Resource, Route

logger = logging.getLogger(__name__)

_ASK_TIMEOUT_S: Final = 3.0

Members = dict[int, str]  # broker id -> address


def united(answers: Iterable[Members | None]) -> Members | None:
    """Return the members that at least one name server knows; None if none answered."""
    known = [answer for answer in answers if answer is not None]
    if not known:
        return None
    members: Members = {}
    for answer in known:
        members = answer | members
    return members


class GroupMembers(Service):
    """Membership of one broker.  Lives in the event loop's thread; passive unless enableSlaveActingMaster is on."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
        self._asking: asyncio.Task[None] | None = None
        self._is_online = False
        # Members of the last answer.
        self.known: Members = {}
        # Called with the members of each answer.
        self.on_members: list[Callable[[Members], None]] = []

    def routes(self) -> list[Route]:
        """Serve what name servers report."""
        return [
            Route(
                RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, NotifyMinBrokerIdChangeRequestHeader, self.notified,
                Resource.CLUSTER, Action.UPDATE,
            ),
        ]  # fmt: skip

    def periodic(self) -> list[Periodic]:
        """Send heartbeats, and ask for the members."""
        config = self._core.config
        if not config.broker.enable_slave_acting_master:
            return []
        return [
            Periodic("heartbeat", lambda: config.broker.broker_heartbeat_interval / 1000, self._send_heartbeats),
            Periodic("members", lambda: config.broker.sync_broker_member_group_period / 1000, self._refresh),
        ]

    @property
    def is_online(self) -> bool:
        """Whether the broker serves; before that it sends name servers nothing."""
        return self._is_online

    def go_online(self) -> None:
        """Send heartbeats and ask for the members from now on."""
        self._is_online = True

    def stop(self) -> None:
        """Stop asking."""
        self._is_online = False
        if self._asking is not None:
            self._asking.cancel()

    # Members

    def notified(self, request: Request[NotifyMinBrokerIdChangeRequestHeader]) -> Response:
        """NOTIFY_MIN_BROKER_ID_CHANGE: ask for the members now."""
        header = request.header
        peer_lines.info(
            logger, "", "event=min_broker_id_changed min_id=%s min_address=%s offline=%s",
            header.min_broker_id, header.min_broker_addr, header.offline_broker_addr,
        )  # fmt: skip
        if self._core.config.broker.enable_slave_acting_master and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._refresh())
            self._asking.add_done_callback(self._asked)
        return Response()

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("event=members_unknown reason=%r", str(task.exception()))

    async def _refresh(self) -> None:
        if not self._is_online:
            return
        members = await self.ask()
        if members and self._is_online:
            for listener in self.on_members:
                listener(members)

    async def ask(self) -> Members | None:
        """Ask all name servers and return the members; None if none answers."""
        answers = await asyncio.gather(*(self._ask(name_server) for name_server in self._name_servers))
        members = united(answers)
        if members is not None:
            self.known = members
        return members

    @property
    def _name_servers(self) -> list[str]:
        return self._core.config.broker.name_servers

    async def _ask(self, name_server: str) -> Members | None:
        config = self._core.config.broker
        try:
            if config.compatible_with_old_name_srv:
                return self._from_route(await self._invoke_for_route(name_server))
            header = GetBrokerMemberGroupRequestHeader(
                cluster_name=config.broker_cluster_name, broker_name=config.broker_name
            )
            response = await self._core.client.invoke(
                name_server, RequestCode.GET_BROKER_MEMBER_GROUP, header, timeout_s=_ASK_TIMEOUT_S
            )
            if response.code != ResponseCode.SUCCESS:
                return None
            group = loads(response.body, GetBrokerMemberGroupResponseBody).broker_member_group
            return {} if group is None else group.broker_addrs
        except (ClientError, ProtocolError) as error:
            logger.debug("event=members_unknown name_server=%s reason=%r", name_server, str(error))
            return None

    async def _invoke_for_route(self, name_server: str) -> ReceivedResponse:
        topic = SYNC_BROKER_MEMBER_GROUP_PREFIX + self._core.config.broker.broker_name
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        return await self._core.client.invoke(
            name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=_ASK_TIMEOUT_S
        )

    def _from_route(self, response: ReceivedResponse) -> Members | None:
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        if response.code != ResponseCode.SUCCESS:
            return None
        config = self._core.config.broker
        for group in loads(response.body, TopicRouteData).broker_datas:
            if group.broker_name == config.broker_name and group.cluster == config.broker_cluster_name:
                return dict(group.broker_addrs)
        return {}

    # Heartbeats

    async def _send_heartbeats(self) -> None:
        if self._is_online:
            await asyncio.gather(*(self._send_heartbeat(name_server) for name_server in self._name_servers))

    async def _send_heartbeat(self, name_server: str) -> None:
        core = self._core
        config, address = core.config.broker, core.config.broker.address
        try:
            async with asyncio.timeout(config.send_heartbeat_timeout_millis / 1000):
                if config.compatible_with_old_name_srv:
                    version = QueryDataVersionRequestHeader(
                        cluster_name=config.broker_cluster_name, broker_addr=address,
                        broker_name=config.broker_name, broker_id=config.broker_id,
                    )  # fmt: skip
                    body = dumps(core.topics.data_version)
                    await core.client.notify(name_server, RequestCode.QUERY_DATA_VERSION, version, body)
                else:
                    header = BrokerHeartbeatRequestHeader(
                        cluster_name=config.broker_cluster_name, broker_addr=address, broker_name=config.broker_name
                    )
                    await core.client.notify(name_server, RequestCode.BROKER_HEARTBEAT, header)
        except (SprocketError, TimeoutError) as error:
            logger.debug("event=heartbeat_failed name_server=%s reason=%r", name_server, str(error))
