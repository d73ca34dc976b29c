"""SyncLiteSubscription: which lite topics a client consumes, told to every broker of their parent.

Source: RocketMQ 5.5.0, `ClientActivity.syncLiteSubscription`, `ClientProcessor.syncLiteSubscription`,
`LiteSubscriptionService`, `GrpcClientSettingsManager.offlineClientLiteSubscription`.  Unlike there a telemetry stream
that breaks is not the end of the subscriptions: the client may open another.  And the proxy remembers them, for brokers
that lost theirs with the connection.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final

from proxy.brokers.brokers import TIMEOUT_S, Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.rate_limit import RateLimit
from proxy.clients.lite_sets import LiteSet, LiteSets
from proxy.clients.registry import Client, Clients
from proxy.config import ProxyConfig
from proxy.convert.client_types import is_lite
from proxy.convert.lite_groups import check_bind_topic, check_quota
from proxy.convert.resources import full_name
from proxy.server.call import Call
from proxy.status import OK, Refusal
from proxy.validation import check_lite_topic, group_of, topic_of
from sprocket.client.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.lite import (
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
    OffsetOptionType,
)
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.lite import LiteSubscriptionCtlRequestHeader

logger = logging.getLogger(__name__)

_ACTIONS: Final = {
    wire.PARTIAL_ADD: LiteSubscriptionAction.PARTIAL_ADD,
    wire.PARTIAL_REMOVE: LiteSubscriptionAction.PARTIAL_REMOVE,
    wire.COMPLETE_ADD: LiteSubscriptionAction.COMPLETE_ADD,
    wire.COMPLETE_REMOVE: LiteSubscriptionAction.COMPLETE_REMOVE,
}
# A broker that was told one of them knows all lite topics of the client.
_WHOLE: Final = frozenset({LiteSubscriptionAction.COMPLETE_ADD, LiteSubscriptionAction.COMPLETE_REMOVE})
_OPTIONS: Final = {
    "policy": OffsetOptionType.POLICY,
    "offset": OffsetOptionType.OFFSET,
    "tail_n": OffsetOptionType.TAIL_N,
    "timestamp": OffsetOptionType.TIMESTAMP,
}


class LiteActivity:
    """Subscriptions of lite topics; `spawn` runs work until the proxy ends."""

    def __init__(
        self,
        brokers: Brokers,
        metadata: Metadata,
        clients: Clients,
        config: ProxyConfig,
        sets: LiteSets,
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._clients = clients
        self._config = config
        self._sets = sets
        self._spawn = spawn
        self._rate = RateLimit(config.max_sync_lite_subscription_rate, brokers.instance.clock.monotonic)

    async def sync_lite_subscription(
        self, call: Call, request: wire.SyncLiteSubscriptionRequest
    ) -> wire.SyncLiteSubscriptionResponse:
        """Change the lite topics that a client consumes."""
        topic, group_name = topic_of(request.topic), group_of(request.group)
        action = _ACTIONS.get(request.action)
        if action is None:
            raise Refusal(wire.BAD_REQUEST, f"unknown LiteSubscriptionAction: {request.action}")
        names = list(dict.fromkeys(request.lite_topic_set))
        for name in names:
            check_lite_topic(name, self._config.max_lite_topic_size)
        group = check_bind_topic(group_name, await self._metadata.group(group_name), topic)
        check_quota(group, len(names))
        is_new = action is LiteSubscriptionAction.PARTIAL_ADD
        if is_new and not self._rate.passes():
            what = f"Too many syncLiteSubscription requests, topic={topic}, group={group_name}"
            raise Refusal(wire.TOO_MANY_REQUESTS, f"{what}, clientId={call.client_id}")
        self._clients.seen(call.client_id, call.account)
        option = _option(request.offset_option) if is_new and request.HasField("offset_option") else None
        await self.tell(LiteSubscriptionDTO(action, call.client_id, group_name, topic, names, option, request.version))
        return wire.SyncLiteSubscriptionResponse(status=OK)

    async def tell(self, change: LiteSubscriptionDTO) -> None:
        """Tell every broker of the parent topic.  Raises the first failure when all have answered."""
        names = await self._brokers.readable(change.topic)
        lite_set = self._sets.open(change.client_id, change.group, change.topic)
        async with lite_set.lock:
            told = [self._tell_one(broker_name, change, lite_set) for broker_name in names]
            outcomes = await asyncio.gather(*told, return_exceptions=True)
            if not all(isinstance(outcome, BaseException) for outcome in outcomes):
                self._sets.changed(change)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _tell_one(self, broker_name: str, change: LiteSubscriptionDTO, lite_set: LiteSet) -> None:
        body = dumps(LiteSubscriptionCtlRequestBody([change]))
        code, header = RequestCode.LITE_SUBSCRIPTION_CTL, LiteSubscriptionCtlRequestHeader()
        response = await self._brokers.ask(broker_name, code, header, body, timeout_s=TIMEOUT_S)
        self._brokers.success(response, broker_name)
        channel = self._brokers.open_channel(broker_name)
        if channel is not None and (broker_name not in lite_set.told or change.action in _WHOLE):
            lite_set.told[broker_name] = channel

    def is_known(self, client_id: str, group: str, broker_name: str) -> bool:
        """Return whether `ensure_known` has nothing to do."""
        lite_set = self._sets.get(client_id, group)
        return lite_set is None or self._knows(lite_set, broker_name)

    async def ensure_known(self, client_id: str, group: str, topic: str, broker_name: str) -> None:
        """State the set of a client again to a broker that was not told over the connection of now.

        The connection was lost, the broker was restarted, or its group has another master.  Raises as `tell`.
        """
        lite_set = self._sets.get(client_id, group)
        if lite_set is None or lite_set.topic != topic or self._knows(lite_set, broker_name):
            return
        async with lite_set.lock:
            if lite_set.names and not self._knows(lite_set, broker_name):
                action = LiteSubscriptionAction.COMPLETE_ADD
                names = list(lite_set.names)
                change = LiteSubscriptionDTO(action, client_id, group, topic, names)
                await self._tell_one(broker_name, change, lite_set)

    def _knows(self, lite_set: LiteSet, broker_name: str) -> bool:
        told = lite_set.told.get(broker_name)
        return told is not None and told is self._brokers.open_channel(broker_name)

    def gone(self, client: Client) -> None:
        """Let the brokers forget a client that has ended or died, if its telemetry stream came to this process."""
        self._sets.forget(client.client_id)
        if client.is_here and is_lite(client.reported):
            assert client.reported is not None
            wanted = client.reported.subscription
            for topic in {full_name(entry.topic) for entry in wanted.subscriptions}:
                action = LiteSubscriptionAction.COMPLETE_REMOVE
                self._spawn(self._leave(LiteSubscriptionDTO(action, client.client_id, full_name(wanted.group), topic)))

    def left(self, client_id: str, group: str) -> None:
        """Let the brokers forget a remoting client that has left its group."""
        lite_set = self._sets.get(client_id, group)
        if lite_set is not None:
            action = LiteSubscriptionAction.COMPLETE_REMOVE
            self._spawn(self._leave(LiteSubscriptionDTO(action, client_id, group, lite_set.topic)))

    async def _leave(self, change: LiteSubscriptionDTO) -> None:
        try:
            await self.tell(change)
        except (ClientError, Refusal) as error:
            # The brokers forget the client when it has been silent for a while.
            peer_lines.info(
                logger, change.client_id, "event=lite_leave_failed client=%r topic=%s reason=%r", change.client_id,
                change.topic, str(error),
            )  # fmt: skip


def _option(given: wire.OffsetOption) -> OffsetOption:
    kind = given.WhichOneof("offset_type")
    if kind is None:
        raise Refusal(wire.BAD_REQUEST, "Unknown OffsetOption type: give policy, offset, tail_n or timestamp")
    # The numbers of the policies are those of RocketMQ's brokers.
    return OffsetOption(_OPTIONS[kind], int(getattr(given, kind)))
