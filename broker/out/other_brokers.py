"""Requests to the masters of other broker groups, by the name of the group.

Source: RocketMQ 5.3.3, `RpcClientImpl`, `BrokerOuterAPI.refreshMetadata`.
"""

import asyncio
from typing import Final, TypeVar

import msgspec

from sprocket.client.connection.name_servers import NameServers
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError, RequestError, SprocketError
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.route import TopicRouteData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header

# `BrokerConfig.forwardTimeout`
_TIMEOUT_S: Final = 3.0
# How long the addresses that a name server returned are used (`BrokerOuterAPI.refreshMetadata`).
_FRESH_S: Final = 5.0
_RETRY_S: Final = 1.0

T = TypeVar("T", bound=Header)


class OtherBrokers:
    """Sender of requests to other brokers.  Lives in the event loop's thread."""

    def __init__(self, client: RemotingClient, name_servers: list[str], clock: Clock) -> None:
        self._client = client
        self._name_servers = NameServers(client, name_servers) if name_servers else None
        self._clock = clock
        self._addresses: dict[str, str] = {}
        self._clusters: dict[str, list[str]] = {}
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, broker_name: str, code: int, header: Header, body: bytes = b"") -> ReceivedResponse:
        """Return the master's response, whatever its code.  Raises RequestError without one within 3 s."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                address = await self._address(broker_name)
                return await self._client.invoke(address, code, header, body, timeout_s=_TIMEOUT_S)
        except (SprocketError, TimeoutError) as error:
            # Ask the name servers again, but not for each request.
            self._asked_at = min(self._asked_at, self._clock.monotonic() - _FRESH_S + _RETRY_S)
            remark = f"broker {broker_name} does not answer, try again: {error or 'timeout'}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER) from error

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic.  Raises SprocketError."""
        if self._name_servers is None:
            raise ClientError("the broker has no name servers")
        return await self._name_servers.topic_route(topic)

    async def masters(self, cluster: str) -> list[str]:
        """Return the names of the groups of a cluster that have a master, as name servers know it.

        Raises SprocketError.
        """
        await self._be_fresh()
        return [name for name in self._clusters.get(cluster, []) if name in self._addresses]

    async def _address(self, broker_name: str) -> str:
        await self._be_fresh()
        address = self._addresses.get(broker_name)
        if address is None:
            raise ClientError(f"no name server knows a master of {broker_name}")
        return address

    async def _be_fresh(self) -> None:
        if self._clock.monotonic() - self._asked_at >= _FRESH_S:
            if self._asking is None:
                self._asking = asyncio.get_running_loop().create_task(self._refresh())
                self._asking.add_done_callback(self._refreshed)
            await asyncio.shield(self._asking)

    async def _refresh(self) -> None:
        if self._name_servers is None:
            return
        info = await self._name_servers.cluster_info()
        self._addresses = info.masters()
        self._clusters = info.cluster_addr_table
        self._asked_at = self._clock.monotonic()

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        self._asking = None
        if not task.cancelled():
            task.exception()  # those that waited have it


def header_of(response: ReceivedResponse, broker_name: str, header_type: type[T]) -> T:
    """Return the header of a broker's response.  Raises RequestError if it is not of this type."""
    try:
        return response.header(header_type)
    except msgspec.ValidationError as error:
        remark = f"the response of broker {broker_name} cannot be read: {error}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER) from None
