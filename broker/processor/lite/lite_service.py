"""Lite topics, assembled: subscriptions, events, pops, acknowledgements, and the deletion of idle ones."""

import asyncio
from collections.abc import Collection, Generator
from functools import partial
from typing import Any, Final

from broker.core import BrokerCore
from broker.lite.acks import LiteAcks
from broker.lite.admission import LiteAdmission
from broker.lite.events import LiteEvents
from broker.lite.expiry import LiteExpiry
from broker.lite.lags import LiteLags
from broker.lite.lite_queues import LiteQueues
from broker.lite.offsets import LiteOffsets
from broker.lite.order import LITE_QUEUE_ID, LiteOrder
from broker.lite.subscriptions import LiteClient, LiteSubscriptions
from broker.longpolling.held_pops import HeldPops
from broker.periodic import Periodic
from broker.pop.order_locks import OrderLocks, QueueKey
from broker.pop.pop_offsets import PopOffsets
from broker.processor.lite.lite_info import LiteInfoProcessor
from broker.processor.lite.pop_lite import PopLiteProcessor
from broker.processor.lite.subscription_ctl import LiteSubscriptionProcessor
from broker.service import Service
from broker.turns import run_in_turns
from sprocket.common.figures import Declared, Figure
from sprocket.common.next_turn import in_turns
from sprocket.remoting.bodies.lite import OffsetOption
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.lite import (
    LiteSubscriptionCtlRequestHeader,
    NotifyUnsubscribeLiteRequestHeader,
    PopLiteMessageRequestHeader,
)
from sprocket.remoting.message.lite_topics import is_lite_queue, parent_and_lite
from sprocket.remoting.routes import Action, Resource, Route, Traffic
from store.flush.confirmation import Arrival

# Steps of one turn of the loop.
_SLICE: Final = 4


class LiteService(Service):
    """The parts of lite topics, and what joins them.  Lives in the event loop's thread.

    Without enableLmq and enableMultiDispatch it does nothing but refuse.
    """

    def __init__(self, core: BrokerCore, offsets: PopOffsets) -> None:
        self._core = core
        self._admission = admission = LiteAdmission(core)
        self._queues = queues = LiteQueues()
        self.lags = lags = LiteLags(core, admission, queues)
        self._locks = OrderLocks(core.config, core.clock, core.call_later, self._lock_freed)
        self._order = order = LiteOrder(core.clock, self._locks)
        self._offsets = LiteOffsets(core, offsets, order)
        self._held = HeldPops(core.config, core.store, core.clock, core.call_later, self._answer_held)
        self.subscriptions = LiteSubscriptions(lambda: core.config.broker.max_lite_subscription_count, core.clock, self)
        self.events = LiteEvents(self.subscriptions, self, core.clock, self._max_events, queues.of_parent)
        self.lite_acks = LiteAcks(core, order, self._freed)
        self._pops = PopLiteProcessor(
            core, admission, self.subscriptions, self.events, self._offsets, order, self._held
        )
        self._changes = LiteSubscriptionProcessor(admission, self.subscriptions, core.store.light_name)
        self._info = LiteInfoProcessor(core, admission, self.subscriptions, self.events, queues, order, lags)
        self._expiry = LiteExpiry(core, admission, queues, order, lags)
        self._deletions: set[asyncio.Task[None]] = set()  # of lite topics of deleted parents

    def _max_events(self, group: str) -> int:
        how = self._admission.how(group)
        own = None if how is None else how.max_events
        return self._core.config.broker.max_client_event_count if own is None else own

    # Service

    def routes(self) -> list[Route]:
        """Serve clients of lite topics, and operators."""
        group, sub = Resource.GROUP, Action.SUB
        return [
            Route(
                RequestCode.POP_LITE_MESSAGE, PopLiteMessageRequestHeader, self._pops.pop, group, sub, Traffic.PULL
            ),
            Route(
                RequestCode.LITE_SUBSCRIPTION_CTL, LiteSubscriptionCtlRequestHeader, self._changes.change, group, sub,
                Traffic.CLIENT,
            ),
            *self._info.routes(),
        ]  # fmt: skip

    def figures(self) -> list[Declared]:
        """Return the numbers of clients and subscriptions."""
        return [
            Figure("liteClients", "clients that subscribe lite topics", lambda: len(self.subscriptions)),
            Figure("liteSubscriptions", "lite topics of all clients", lambda: self.subscriptions.count),
        ]

    def periodic(self) -> list[Periodic]:
        """Give events of absent clients to others; forget absent clients; delete idle lite topics."""
        if not self._admission.is_enabled:
            return []
        config = self._core.config
        return [
            Periodic("lite_events", lambda: config.broker.lite_event_check_interval / 1000, self._check_events),
            Periodic(
                "lite_subscriptions", lambda: config.broker.lite_subscription_check_interval / 1000, self._expire
            ),
            Periodic("lite_topics", lambda: config.broker.lite_ttl_check_interval / 1000, self._expiry.run),
        ]  # fmt: skip

    async def _check_events(self) -> None:
        await in_turns(self.events.check(), self._core.clock.monotonic)

    async def _expire(self) -> None:
        timeout_s = self._core.config.broker.lite_subscription_check_timeout_mills / 1000
        await in_turns(self.subscriptions.expire(timeout_s), self._core.clock.monotonic)

    def start(self) -> None:
        """Follow the messages of lite topics."""
        if self._admission.is_enabled:
            self._queues.found(self._core.store.light_queues())
            self._core.store.on_arrival.append(self._arrived)
            self._core.topics.on_gone.append(self._parent_gone)

    def answer_held(self) -> Generator[None, None, None]:
        return self._held.answer_all()

    def stop(self) -> None:
        """Answer held pops."""
        self._locks.close()
        self._held.close()

    def channel_closed(self, channel: RemotingChannel) -> None:
        """Forget the clients of a closed connection."""
        self._held.drop_channel(channel.id)
        run_in_turns(self.subscriptions.channel_closed(channel.id), _SLICE, self._core.call_later)

    # What happens

    def _arrived(self, arrivals: list[Arrival]) -> None:
        queues = [queue.topic for queue, _, _ in arrivals if is_lite_queue(queue.topic)]
        if queues:
            now_ms = self._core.clock.wall_ms()
            for queue in queues:
                self._queues.arrived(queue, now_ms)
            self.lags.arrived(queues, now_ms)
            self.events.arrived(queues)

    def _lock_freed(self, key: QueueKey) -> None:
        self._freed(key.topic, key.group)

    def _freed(self, queue: str, group: str) -> None:
        if self._offsets.has_unread(queue, group):
            self.events.freed(queue, group)

    def _parent_gone(self, topic: str) -> None:
        if self._queues.count(topic):
            self._core.call_later(0.0, partial(self._delete_all, topic))

    def _delete_all(self, topic: str) -> None:
        work = asyncio.get_running_loop().create_task(self._expiry.delete_all(topic))
        self._deletions.add(work)
        work.add_done_callback(self._deletions.discard)

    def _answer_held(self, request: Request[Any], may_hold: bool) -> None:
        self._pops.answer_held(request, may_hold)

    # Held pops: `Waiting` of the events

    def waits(self, client: LiteClient) -> bool:
        """Return whether a pop of the client is held."""
        return self._held.count(client.key.client_id, client.key.group, LITE_QUEUE_ID) > 0

    def wake(self, client: LiteClient) -> None:
        """Answer a held pop of the client, if any."""
        self._held.wake(client.key.client_id, client.key.group, LITE_QUEUE_ID)

    # Changes of subscriptions: `SubscriptionListener`

    def reset(self, group: str, queue: str, option: OffsetOption) -> None:
        """Move the group in a queue."""
        self._offsets.reset(queue, group, option)

    def subscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        """Let a client look at its new lite topics."""
        self.events.subscribed(client, queues)

    def unsubscribed(self, client: LiteClient, queues: Collection[str]) -> None:
        """Give the events of lite topics that a client left to others."""
        self.events.unsubscribed(client, queues)

    def left(self, client: LiteClient) -> None:
        """Forget the events of a client."""
        self.events.left(client)

    def evicted(self, client: LiteClient, queue: str) -> None:
        """Tell a client that another one has taken `queue`."""
        names = parent_and_lite(queue)
        if names is not None and not client.channel.is_closed:
            header = NotifyUnsubscribeLiteRequestHeader(
                lite_topic=names[1], consumer_group=client.key.group, client_id=client.key.client_id
            )
            client.channel.notify(RequestCode.NOTIFY_UNSUBSCRIBE_LITE, header)
