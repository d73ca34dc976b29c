"""Requests of remoting clients about themselves and their groups, which the proxy answers.

Source: RocketMQ 5.3.3, `ClientManagerActivity`, `ConsumerManagerActivity`.
"""

from collections.abc import Callable
from typing import Any, Final

from proxy.clients.members import Consumers, Member, Producers
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.client import ConsumerConnection, ConsumerIdList
from sprocket.remoting.bodies.heartbeat import read_heartbeat
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import LanguageCode, RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)
from sprocket.remoting.refusals import Refusal
from sprocket.remoting.routes import Action, NoHeader, Resource, Route, Traffic

_LANGUAGES: Final = {key: language.name for language in LanguageCode for key in (language.name, str(int(language)))}
_MAX_CLIENT_ID_CHARS: Final = 512


class ClientRoutes:
    """Routes of HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG and the lists of a group's members.

    `transactions_begin` is called when a group that sends transactions has connected.
    """

    def __init__(
        self,
        consumers: Consumers,
        producers: Producers,
        monotonic: Callable[[], float],
        transactions_begin: Callable[[], None],
    ) -> None:
        self._transactions_begin = transactions_begin
        self._consumers = consumers
        self._producers = producers
        self._monotonic = monotonic

    def routes(self) -> list[Route]:
        """Return the routes."""
        code, group, sub, traffic = RequestCode, Resource.GROUP, Action.SUB, Traffic.CLIENT
        return [
            Route(code.HEART_BEAT, HeartbeatRequestHeader, self.heartbeat, group, sub, traffic),
            Route(code.UNREGISTER_CLIENT, UnregisterClientRequestHeader, self.unregister, group, sub, traffic),
            Route(code.CHECK_CLIENT_CONFIG, NoHeader, lambda request: Response(), group, sub, traffic),
            Route(
                code.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader, self.consumer_list,
                group, sub, traffic,
            ),
            Route(
                code.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader, self.connections,
                group, Action.GET,
            ),
        ]  # fmt: skip

    def heartbeat(self, request: Request[HeartbeatRequestHeader]) -> Response:
        """Register a client in its groups."""
        data = read_heartbeat(request.body)
        if not data.client_id or len(data.client_id) > _MAX_CLIENT_ID_CHARS:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER, f"clientID has {len(data.client_id)} characters, allowed are 1 to 512"
            )
        member = self._member(request, data.client_id)
        for producer in data.producer_data_set:
            if self._producers.heard(producer.group_name, member):
                self._transactions_begin()
        for consumer in data.consumer_data_set:
            self._consumers.heard(member, consumer)
        return Response(remark="")

    def _member(self, request: Request[Any], client_id: str) -> Member:
        channel: RemotingChannel = request.channel
        return Member(
            key=key_of(channel),
            client_id=client_id,
            language=_LANGUAGES.get(request.language or "", LanguageCode.OTHER.name),
            version=request.version,
            address=_text(channel.peer),
            local_address=_text(channel.local),
            heard_at=self._monotonic(),
            channel=channel,
        )

    def unregister(self, request: Request[UnregisterClientRequestHeader]) -> Response:
        """Remove a client from a producer group, a consumer group, or both."""
        header, key = request.header, key_of(request.channel)
        if header.producer_group:
            self._producers.leave(header.producer_group, key)
        if header.consumer_group:
            self._consumers.leave(header.consumer_group, key, "unregistered")
        return Response(remark="")

    def closed(self, channel: RemotingChannel) -> None:
        """Remove a client whose connection has closed."""
        self._producers.gone(key_of(channel))
        self._consumers.gone(key_of(channel), "connection_closed")

    def consumer_list(self, request: Request[GetConsumerListByGroupRequestHeader]) -> Response:
        """Return the client ids of a group, among which its members divide the queues."""
        group = self._consumers.group(request.header.consumer_group)
        if group is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {request.header.consumer_group}")
        return Response(body=dumps(ConsumerIdList(group.client_ids)))

    def connections(self, request: Request[GetConsumerConnectionListRequestHeader]) -> Response:
        """Return the members of a group, those of other proxies too, and their subscriptions."""
        name = request.header.consumer_group
        group = self._consumers.group(name)
        if group is None:
            return Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            [member.connection() for member in group.members.values()],
            dict(group.subscriptions),
            group.data.consume_type,
            group.data.message_model,
            group.data.consume_from_where,
        )
        return Response(body=dumps(body))


def key_of(channel: RemotingChannel) -> str:
    """Return the key of the members on a connection."""
    return f"remoting-{channel.id}"


def _text(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
