"""The consumer of lite topics: many small ordered channels under one parent topic, in one connection.

Source: RocketMQ 5.5.1, `PopLiteMessageProcessor`, `LiteSubscriptionCtlProcessor`; the interface follows the
`LitePushConsumer` of RocketMQ's newer clients.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sprocket.client import arguments
from sprocket.client.connection.client_instance import ClientInstance, ClientSettings
from sprocket.client.connection.identity import random_number
from sprocket.client.connection.owner import Owner
from sprocket.client.connection.wire_names import WireNames
from sprocket.client.consume.client_remoting_processor import ClientRemotingProcessor
from sprocket.client.errors import BrokerRefused
from sprocket.client.lite.lite_pops import LitePops
from sprocket.client.lite.ready import LiteReady
from sprocket.client.lite.start import LiteStart, offset_option
from sprocket.client.lite.subscriptions import LiteSubscriptions
from sprocket.client.pop.pop_requests import PopRequests
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.pop.pop_targets import HeldTargets, PopTargets
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.client.pop.ready_messages import ReadyMessages
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.client.trace.recorder import TraceSettings
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.lite import NotifyUnsubscribeLiteRequestHeader
from sprocket.remoting.routes import Action, Resource, Route, Traffic

logger = logging.getLogger(__name__)

# A broker delivers at most one pop of a lite topic before its messages are settled, so this is many lite topics.
_DEFAULT: Final = PopSettings(pop_threshold_for_queue=2048)
_NOT_THE_GROUP: Final = frozenset(
    {ResponseCode.ILLEGAL_OPERATION, ResponseCode.INVALID_PARAMETER, ResponseCode.MESSAGE_ILLEGAL}
)
Lost = Callable[[str], object]


class LiteConsumer(SimpleConsumer):
    """Consumer of lite topics of one parent topic; an async context manager::

        async with LiteConsumer("bots", "Chats", ["chat-42"], "127.0.0.1:9876") as consumer:
            async for message in consumer:
                async with message.process():
                    print(message.lite_topic, message.body)

    The messages of each lite topic come in order: the next one when the one before is settled.  A rejected message
    comes again before those that follow it.  `run` handles lite topics side by side.  What `receive` returns may hold
    several messages of a lite topic, in order; settle them in that order.

    The group must be bound to the parent topic (attribute ``lite.bind.topic``).  In a group with ``lite.sub.model``
    Exclusive one client has a lite topic at a time, the last one that subscribed it; `on_lost` gets the names of those
    that another client has taken.  The clients of other groups share the messages of a lite topic.  A group with
    ``lite.sub.wildcard`` gets all lite topics of the parent; its clients name none.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        lite_topics: Iterable[str] | str = (),
        namesrv: str | Sequence[str] = "",
        *,
        start: LiteStart | None = None,
        on_lost: Lost | None = None,
        settings: PopSettings | None = None,
        client: ClientSettings | None = None,
        clock: Clock | None = None,
        trace: TraceSettings | None = None,
        owner: Owner | None = None,
    ) -> None:
        """`start` moves the group in `lite_topics`, as in `subscribe`; the others as of `SimpleConsumer`.

        Raises IllegalArgument.
        """
        self.topic = arguments.text("topic", topic)
        self._first = _names(lite_topics)
        self._option = offset_option(start)
        self._on_lost = None if on_lost is None else arguments.handler("on_lost", on_lost, "the name of a lite topic")
        self._lite_ready = LiteReady()
        super().__init__(
            group, topic, namesrv, consume_from=ConsumeFrom.FIRST, settings=settings or _DEFAULT, client=client,
            clock=clock, trace=trace, owner=owner,
        )  # fmt: skip

    def _new_instance(self, client: ClientSettings, clock: Clock) -> ClientInstance:
        lost = Route(
            RequestCode.NOTIFY_UNSUBSCRIBE_LITE, NotifyUnsubscribeLiteRequestHeader, self._unsubscribed,
            Resource.NONE, Action.NONE, Traffic.CLIENT,
        )  # fmt: skip
        return ClientInstance(
            client,
            routes=[*ClientRemotingProcessor(self._subject, WireNames(client.namespace)).routes(), lost],
            heartbeat=self._heartbeat,
            clock=clock,
            denied=lambda error: self._arrived.set(),
            on_lost=lambda error: self._arrived.set(),
        )

    def _new_pops(self, consume_from: ConsumeFrom, ordered: bool) -> PopRequests:
        pops = LitePops(self._instance, self.group, self.topic, self)
        self._lite: LiteSubscriptions = pops.subscriptions
        return pops

    def _new_targets(self) -> PopTargets:
        return HeldTargets(self._instance, self._pops, self._subscriptions, self._left_over.extend, random_number())

    def _new_ready(self) -> ReadyMessages:
        return self._lite_ready

    async def _check_subscriptions(self) -> None:
        """Tell the brokers the first lite topics.  Raises BrokerRefused if the group may not consume them."""
        try:
            for target in await self._targets.all():
                await self._lite.sync(target)
            if self._first:
                await self._lite.add(self._first, self._option)
        except BrokerRefused as refused:
            raise self._explained(refused) from None

    def _explained(self, refused: BrokerRefused) -> BrokerRefused:
        if refused.code not in _NOT_THE_GROUP:
            return refused
        advice = (
            f"bind the group to the topic: `mqadmin updateSubGroup -g {self.group} "
            f"--attributes +lite.bind.topic={self.topic}`, and name lite topics unless it is a wildcard group"
        )
        return type(refused)(refused.code, f"{refused.remark}; {advice}", refused.address)

    async def _unregister(self) -> None:
        await self._lite.leave()
        await super()._unregister()

    # Lite topics

    @property
    def lite_topics(self) -> tuple[str, ...]:
        """The subscribed lite topics, in the order in which they were subscribed."""
        return self._lite.names

    async def subscribe(self, lite_topics: Iterable[str] | str, *, start: LiteStart | None = None) -> None:
        """Add one or several lite topics, which need not exist yet; in an exclusive group take them from other clients.

        Without `start` the group goes on where it was, in a lite topic new to it with the first message.  With `start`
        it is moved: ConsumeFrom.FIRST to the first message, LAST behind the last one, a datetime, an offset, or `Tail`.
        A broker that is away moves nothing.
        Raises LiteQuotaExceeded, BrokerRefused, and ClientError if no broker could be reached; nothing is changed then.
        """
        await self._first_use()
        try:
            await self._lite.add(_names(lite_topics), offset_option(start))
        except BrokerRefused as refused:
            raise self._explained(refused) from None

    async def unsubscribe(self, lite_topics: Iterable[str] | str) -> None:
        """Remove one or several lite topics; the group keeps its position in them.  Messages that wait go back."""
        await self._first_use()
        listed = _names(lite_topics)
        unseen = [popped for name in listed for popped in self._lite_ready.left(name)]
        await asyncio.gather(*(self._renewal.release(popped) for popped in unseen))
        await asyncio.gather(*(self._give_back(popped) for popped in unseen))
        await self._lite.remove(listed)

    def _unsubscribed(self, request: Request[NotifyUnsubscribeLiteRequestHeader]) -> None:
        header = request.header
        own = self._instance.names.whole(self.group), self._instance.client_id
        if (header.consumer_group, header.client_id) == own:
            self._lose(header.lite_topic)

    def _lose(self, lite_topic: str) -> None:
        """Give up a lite topic that another client of an exclusive group has taken."""
        if not self._lite.lost(lite_topic):
            return
        logger.info("event=lite_topic_lost group=%s topic=%s lite_topic=%s", self.group, self.topic, lite_topic)
        for popped in self._lite_ready.left(lite_topic):
            self._instance.spawn(self._hand_over(popped))
        if self._on_lost is not None:
            self._on_lost(lite_topic)

    async def _hand_over(self, popped: PoppedMessage) -> None:
        await self._renewal.release(popped)
        await self._give_back(popped)

    # Order

    def _hold_new(self, batch: list[PoppedMessage]) -> list[PoppedMessage]:
        # Repeats are given again: they and what follows them replace what the broker delivered before.
        self._renewal.hold(batch)
        return batch

    async def _put(self, batch: list[PoppedMessage]) -> None:
        for given_up in self._lite_ready.extend(self._hold_new(batch)):
            await self._renewal.release(given_up)

    async def _released(self, popped: PoppedMessage) -> None:
        await super()._released(popped)
        self._lite_ready.settled(popped)
        self._arrived.set()

    async def _rejected(self, popped: PoppedMessage, after_s: float | None) -> None:
        following = self._lite_ready.rejected(popped)
        await super()._rejected(popped, after_s)
        for other in following:
            await self._renewal.release(other)
        if after_s is not None:
            await asyncio.gather(*(self._postpone(other, after_s) for other in following))

    async def _postpone(self, popped: PoppedMessage, after_s: float) -> None:
        """Make a message visible together with the rejected one: the broker delivers none before all are visible."""
        try:
            await self._pops.change_invisible(popped, after_s)
        except SprocketError as error:
            logger.info("event=not_given_back message=%r reason=%r", popped, str(error))


def _names(lite_topics: Iterable[str] | str) -> list[str]:
    return [arguments.lite_topic("lite_topics", name) for name in arguments.names_of("lite_topics", lite_topics)]
