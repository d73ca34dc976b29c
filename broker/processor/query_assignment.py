"""Assignment of queues by the broker: QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE.

Source: RocketMQ 5.3.3, `QueryAssignmentProcessor`, `AdminBrokerProcessor.getAllMessageRequestMode`.
"""

import logging
from collections.abc import Awaitable, Sequence
from typing import Final

from broker.client.clients import BROADCASTING
from broker.core import BrokerCore
from broker.out.topic_routes import Queues, TopicRoutes, popped_queues
from broker.periodic import Periodic
from broker.service import Service
from broker.subscription.queue_shares import STRATEGIES, pop_share
from broker.subscription.request_modes import RequestModes
from sprocket.client.connection.name_servers import NameServers
from sprocket.common.errors import RequestError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import MessageQueue
from sprocket.remoting.bodies.pop import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from sprocket.remoting.bodies.requests import read_assignment_query, read_request_mode
from sprocket.remoting.bodies.topic import PERM_READ
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.message.topic_names import RETRY_PREFIX, is_light
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Traffic

logger = logging.getLogger(__name__)

_CLUSTERING: Final = "CLUSTERING"


class AssignmentService(Service):
    """Handler of assignments, and of the modes that operators set."""

    def __init__(self, core: BrokerCore, file: ConfigFile) -> None:
        self._core = core
        self.modes = RequestModes(core.config, file)
        addresses = core.config.broker.name_servers
        source = NameServers(core.client, addresses) if addresses else None
        self.topic_routes = TopicRoutes(source, self._own_queues, core.clock)
        self._popped_routes = TopicRoutes(source, self._own_queues, core.clock, popped_queues)

    def routes(self) -> list[Route]:
        code = RequestCode
        return [
            Route(code.QUERY_ASSIGNMENT, NoHeader, self.query, Resource.GROUP, Action.SUB, Traffic.CLIENT),
            Route(code.SET_MESSAGE_REQUEST_MODE, NoHeader, self.set_mode, Resource.GROUP, Action.UPDATE),
            Route(code.GET_ALL_MESSAGE_REQUEST_MODE, NoHeader, self.all_modes, Resource.GROUP, Action.LIST),
        ]

    def periodic(self) -> list[Periodic]:
        config = self._core.config
        return [
            Periodic(
                "topic_routes",
                lambda: config.broker.load_balance_poll_name_server_interval / 1000,
                self._refresh,
            )
        ]

    def load(self) -> None:
        self.modes.load()

    def stop(self) -> None:
        self.topic_routes.close()
        self._popped_routes.close()

    async def _refresh(self) -> None:
        await self.topic_routes.refresh()
        await self._popped_routes.refresh()

    # Requests

    def query(self, request: Request[NoHeader]) -> Response | Awaitable[Response]:
        """Return the queues of one client.  Only the first query of a topic waits for a name server."""
        body = read_assignment_query(request.body)
        if body.message_model == _CLUSTERING and is_light(body.topic):
            broker_name = self._core.config.broker.broker_name
            return self._answer(body, (MessageQueue(body.topic, broker_name, 0),))
        is_popped = self.modes.find(body.topic, body.consumer_group).mode == "POP"
        routes = self._popped_routes if is_popped else self.topic_routes
        known = routes.known(body.topic)
        return self._answer(body, known) if known else self._find(body, routes)

    async def set_mode(self, request: Request[NoHeader]) -> Response:
        """Set how a group consumes a topic; the response follows the write of the file."""
        body = read_request_mode(request.body)
        if body.topic.startswith(RETRY_PREFIX):
            raise RequestError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._core.topics.get(body.topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{body.topic}] not exist")
        if self._core.groups.find(body.consumer_group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self.modes.set(body)
        await self.modes.save()
        return Response()

    def all_modes(self, request: Request[NoHeader]) -> Response:
        """Return the modes that operators have set."""
        return Response(body=self.modes.encode())

    # Inside

    async def _find(self, body: QueryAssignmentRequestBody, routes: TopicRoutes) -> Response:
        return self._answer(body, await routes.find(body.topic))

    def _answer(self, body: QueryAssignmentRequestBody, queues: Queues | None) -> Response:
        mode = self.modes.find(body.topic, body.consumer_group)
        share = self._share(body, queues, mode)
        assignments = None if share is None else [MessageQueueAssignment(queue, mode.mode) for queue in share]
        return Response(body=dumps(QueryAssignmentResponseBody(assignments)))

    def _share(
        self, body: QueryAssignmentRequestBody, queues: Queues | None, mode: SetMessageRequestModeRequestBody
    ) -> Sequence[MessageQueue] | None:
        """Return a client's queues; None without a result: the client then keeps its queues."""
        if queues is None or body.message_model == BROADCASTING:
            return queues
        if body.message_model != _CLUSTERING:
            return None
        if not self._core.config.broker.server_load_balancer_enable:
            return queues
        group = self._core.consumers.group(body.consumer_group)
        strategy = STRATEGIES.get(body.strategy_name)
        if group is None or strategy is None or not queues or not body.client_id.strip():
            peer_lines.warning(
                logger, body.client_id,
                "event=no_assignment group=%s topic=%s client=%s strategy=%s members=%d queues=%d", body.consumer_group,
                body.topic, body.client_id, body.strategy_name, 0 if group is None else len(group.members), len(queues),
            )  # fmt: skip
            return None
        client_ids = sorted(group.client_ids())
        if mode.mode == "POP":
            return pop_share(strategy, body.client_id, queues, client_ids, mode.pop_share_queue_num)
        return strategy.allocate(body.client_id, queues, client_ids)

    def _own_queues(self, topic: str) -> Queues | None:
        config = self._core.topics.get(topic)
        if config is None:
            return None
        broker = self._core.config.broker
        readable = config.read_queue_nums if config.perm & PERM_READ else 0
        return tuple(MessageQueue(topic, broker.broker_name, index) for index in range(readable))
