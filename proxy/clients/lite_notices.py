"""NOTIFY_UNSUBSCRIBE_LITE: a broker says that another client took a lite topic, and the proxy tells its consumer.

Source: RocketMQ 5.5.0, `ProxyClientRemotingProcessor.notifyUnsubscribeLite`,
`GrpcClientChannel.processNotifyUnsubscribeLite`.
"""

from collections.abc import Callable
from typing import Final

from proxy.clients.lite_sets import LiteSets
from proxy.clients.members import Consumers
from proxy.clients.registry import Clients
from proxy.convert.resources import full_name
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.lite import NotifyUnsubscribeLiteRequestHeader
from sprocket.remoting.routes import Action, Resource, Route, Traffic

# A client that takes over thousands of lite topics causes a notice for each, all at once.
_MAX_WAITING: Final = 16_384


class LiteNotices:
    """Sender of notices on telemetry streams.

    `elsewhere` gets client, group and lite topic of a notice to a client whose stream came to another worker.
    """

    def __init__(self, clients: Clients, consumers: Consumers, elsewhere: Callable[[str, str, str], None]) -> None:
        self._clients = clients
        self._consumers = consumers
        self.sets = LiteSets()
        self._elsewhere = elsewhere

    def routes(self) -> list[Route]:
        """Return the route of connections to brokers."""
        return [
            Route(
                RequestCode.NOTIFY_UNSUBSCRIBE_LITE, NotifyUnsubscribeLiteRequestHeader, self._asked,
                Resource.NONE, Action.NONE, Traffic.CLIENT,
            )
        ]  # fmt: skip

    def _asked(self, request: Request[NotifyUnsubscribeLiteRequestHeader]) -> None:
        header = request.header
        if not self.tell(header.client_id, header.consumer_group, header.lite_topic):
            self._elsewhere(header.client_id, header.consumer_group, header.lite_topic)

    def tell(self, client_id: str, group: str, lite_topic: str) -> bool:
        """Tell a client of `group` that it no longer consumes a lite topic; return whether its stream is here."""
        self.sets.taken(client_id, group, lite_topic)
        client = self._clients.get(client_id)
        if client is None or client.stream is None or client.reported is None:
            return self._tell_remoting(client_id, group, lite_topic)
        if full_name(client.reported.subscription.group) == group:
            notice = wire.NotifyUnsubscribeLiteCommand(lite_topic=lite_topic)
            client.stream.send(wire.TelemetryCommand(notify_unsubscribe_lite_command=notice), _MAX_WAITING)
        return True

    def _tell_remoting(self, client_id: str, group: str, lite_topic: str) -> bool:
        members = self._consumers.group(group)
        member = None if members is None else members.find(client_id)
        if member is None or member.channel is None:
            return False
        header = NotifyUnsubscribeLiteRequestHeader(lite_topic=lite_topic, consumer_group=group, client_id=client_id)
        member.channel.notify(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, header)
        return True
