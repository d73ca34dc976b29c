"""Lite topics of remoting clients: their subscriptions go to every broker of the parent, their pops to one.

RocketMQ's proxy serves lite topics to gRPC clients only.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from proxy.activity.lite import LiteActivity
from proxy.remoting.forwarder import Fields, Forwarder
from proxy.remoting.message_routes import held_limit_s
from proxy.status import Refusal as GrpcRefusal
from sprocket.common.errors import RequestError, SprocketError
from sprocket.remoting.bodies.lite import LiteSubscriptionDTO
from sprocket.remoting.bodies.requests import read_lite_subscriptions
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.lite import LiteSubscriptionCtlRequestHeader
from sprocket.remoting.routes import Action, AllFields, Resource, Route, Traffic


class LiteRoutes:
    """Routes of LITE_SUBSCRIPTION_CTL and POP_LITE_MESSAGE; `spawn` runs work until the proxy ends."""

    def __init__(
        self, forwarder: Forwarder, lite: LiteActivity, spawn: Callable[[Coroutine[object, object, None]], object]
    ) -> None:
        self._forwarder = forwarder
        self._lite = lite
        self._spawn = spawn

    def routes(self) -> list[Route]:
        """Return the routes."""
        code, group, sub = RequestCode, Resource.GROUP, Action.SUB
        return [
            Route(
                code.LITE_SUBSCRIPTION_CTL, LiteSubscriptionCtlRequestHeader, self._change, group, sub, Traffic.CLIENT
            ),
            Route(code.POP_LITE_MESSAGE, AllFields, self._pop, group, sub, Traffic.PULL),
        ]

    def _change(self, request: Request[LiteSubscriptionCtlRequestHeader]) -> None:
        changes = read_lite_subscriptions(request.body).subscription_set
        if not changes:
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        self._spawn(self._tell(request, changes))

    async def _tell(self, request: Request[Any], changes: Sequence[LiteSubscriptionDTO]) -> None:
        try:
            for change in changes:
                await self._lite.tell(change)
        except (SprocketError, GrpcRefusal) as error:
            request.channel.refuse(request, error)
        else:
            request.channel.reply(request, Response())

    def _pop(self, request: Request[Fields]) -> None:
        fields = request.header
        client_id, group = fields.get("clientId") or "", fields.get("consumerGroup") or ""
        broker_name = self._forwarder.broker_of(request.code, fields)
        if broker_name is None or self._lite.is_known(client_id, group, broker_name):
            self._forward(request)
        else:
            self._spawn(self._pop_later(request, client_id, group, broker_name))

    async def _pop_later(self, request: Request[Fields], client_id: str, group: str, broker_name: str) -> None:
        """Pop after the broker has been told the lite topics of the client again."""
        try:
            await self._lite.ensure_known(client_id, group, request.header.get("topic") or "", broker_name)
            self._forward(request)
        except (SprocketError, GrpcRefusal) as error:
            request.channel.refuse(request, error)

    def _forward(self, request: Request[Fields]) -> None:
        self._forwarder.forward(request, held_limit_s(request.header, "pollTime"))
