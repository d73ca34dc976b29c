"""Name servers of a client: it uses one until that does not answer, then the next.

Source: RocketMQ 5.3.3, `NettyRemotingClient.getAndCreateNameserverChannel`, `MQClientAPIImpl`.
"""

import logging

from sprocket.client.answers import body_of, route_of
from sprocket.client.errors import ClientError, NameServerUnreachable, TopicNotFound, refusal
from sprocket.remoting.bodies.route import ClusterInfo, TopicRouteData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.frames import NotEncodable
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader

logger = logging.getLogger(__name__)

TIMEOUT_S = 3.0


class NameServers:
    """List of equivalent name servers."""

    def __init__(self, remoting: RemotingClient, addresses: list[str], timeout_s: float = TIMEOUT_S) -> None:
        self._remoting = remoting
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._current = 0

    def __str__(self) -> str:
        return ";".join(self._addresses)

    async def invoke(self, code: int, header: Header | None = None) -> ReceivedResponse:
        """Return the response of the first name server that answers.  Raises NameServerUnreachable."""
        failures = []
        for _ in self._addresses:
            address = self._addresses[self._current]
            try:
                return await self._remoting.invoke(address, code, header, timeout_s=self._timeout_s)
            except NotEncodable:
                raise  # nothing was sent
            except ClientError as error:
                failures.append(str(error))
                self._current = (self._current + 1) % len(self._addresses)
                if len(self._addresses) > 1:
                    logger.info("event=name_server_switched from=%s to=%s", address, self._addresses[self._current])
        raise NameServerUnreachable(
            f"none of the name servers {self} answered; check that one runs and is reachable. " + "; ".join(failures),
            str(self),
        )

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of `topic`.  Raises TopicNotFound, NameServerUnreachable, BrokerRefused."""
        response = await self.invoke(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFound(topic, str(self))
        return route_of(self._body(response), topic)

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers that are registered."""
        return body_of(self._body(await self.invoke(RequestCode.GET_BROKER_CLUSTER_INFO)), ClusterInfo)

    def _body(self, response: ReceivedResponse) -> bytes:
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            address = self._addresses[self._current]
            raise NameServerUnreachable(
                f"{address} is no name server, because it does not know the request; pass the address of a name "
                "server, whose usual port is 9876"
            )
        if response.code != ResponseCode.SUCCESS:
            raise refusal(response.code, response.remark, self._addresses[self._current])
        return response.body
