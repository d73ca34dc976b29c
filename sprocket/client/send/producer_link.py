"""Connections of producers: of one, or of all producers of one `sprocket.connect`."""

from collections import Counter

from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.send.request_reply import PendingReplies
from sprocket.client.send.send_request import SendSettings
from sprocket.client.send.sender import Sender
from sprocket.common.clock import Clock, SystemClock
from sprocket.remoting.bodies.client import HeartbeatData, ProducerData
from sprocket.remoting.routes import Route


class ProducerLink:
    """One client of the cluster that any number of producer groups share: connections, routes and waiting requests."""

    def __init__(self, settings: ClientSettings, routes: list[Route] | None = None, clock: Clock | None = None) -> None:
        """`routes` serve requests of brokers, besides the replies to this client's requests."""
        clock = clock or SystemClock()
        self.pending = PendingReplies(clock)
        self._groups: Counter[str] = Counter()
        self.instance = self._new_instance(settings, [self.pending.route(), *(routes or ())], clock)

    def _new_instance(self, settings: ClientSettings, routes: list[Route], clock: Clock) -> ClientInstance:
        return ClientInstance(settings, routes=routes, heartbeat=self._heartbeat, clock=clock)

    def new_sender(self, group: str, settings: SendSettings) -> Sender:
        """Return the sender of one producer group."""
        return Sender(self.instance, group, settings)

    def join(self, group: str) -> None:
        """Add a producer of `group`; brokers learn of the group with the next heartbeat."""
        self._groups[group] += 1

    async def leave(self, group: str) -> None:
        """Remove a producer of `group`; the last one unregisters the group at the brokers."""
        self._groups[group] -= 1
        if self._groups[group] <= 0:
            del self._groups[group]
            await self.instance.unregister(group, None)

    def _heartbeat(self) -> HeartbeatData | None:
        if not self._groups:
            return None
        return HeartbeatData(self.instance.client_id, [ProducerData(group) for group in sorted(self._groups)])
