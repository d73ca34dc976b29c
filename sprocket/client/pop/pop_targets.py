"""Where a popping consumer's messages are: every broker of every topic, asked in turn or waited for together.

Source: RocketMQ 5.3.3, `PopMessageProcessor`, `NotificationProcessor`, `DefaultMQPushConsumerImpl.popMessage`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.wakeup import pause
from sprocket.client.errors import BrokerRefused, ClientError, PermissionDenied, TopicNotFound
from sprocket.client.pop.pop_requests import PopRequests, Target
from sprocket.client.pop.popped_message import PoppedMessage
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import SubscriptionData
from sprocket.remoting.codes import ResponseCode

logger = logging.getLogger(__name__)

# After a broker has said that there is something, and then there was not: another member was quicker.
_MISSED_S = 0.1


class PopTargets:
    """Pops for one group from the brokers of its topics."""

    def __init__(
        self,
        instance: ClientInstance,
        pops: PopRequests,
        subscriptions: Mapping[str, SubscriptionData],
        keep: Callable[[list[PoppedMessage]], object],
        first: int = 0,
    ) -> None:
        """`first` is the place to begin at among the brokers.

        `keep` gets what a pop brings whose caller was cancelled meanwhile: such a pop cannot be taken back.
        """
        self._instance = instance
        self._pops = pops
        self._subscriptions = subscriptions
        self._keep = keep
        self._turn = first

    async def all(self) -> list[Target]:
        """Every broker of every topic.  Raises TopicNotFound, NameServerUnreachable, BrokerRefused."""
        targets = []
        is_new = False
        for topic in self._subscriptions:
            is_new |= self._instance.cached_route(topic) is None
            route = await self._instance.route(topic)
            targets += [Target(topic, name) for name in sorted({queue.broker_name for queue in route.subscribe})]
        if is_new:
            # A broker pops for groups only that it knows.
            await self._instance.heartbeat_all()
        return targets

    async def pop(self, target: Target, most: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Pop from `target`; messages with the hash of a wanted tag and another tag are acknowledged unseen."""
        subscription = self._subscriptions[target.topic]
        try:
            popped = await self._pops.pop(target, subscription, most, invisible_s, wait_s)
        except BrokerRefused as refused:
            if refused.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._instance.heartbeat_all()
            if self._instance.outages.denial is not None:
                raise self._instance.outages.denial from refused
            popped = await self._pops.pop(target, subscription, most, invisible_s, wait_s)
        wanted = subscription.tags_set
        if not wanted:
            return popped
        # The broker filters by hash; this is by the tags themselves.
        for other in [message for message in popped if message.tags not in wanted]:
            popped.remove(other)
            self._instance.spawn(self._ack_unwanted(other))
        return popped

    async def _ack_unwanted(self, popped: PoppedMessage) -> None:
        try:
            await self._pops.ack(popped)
        except SprocketError as error:
            logger.info("event=unwanted_not_acknowledged message=%r reason=%r", popped, str(error))

    async def receive(self, most: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Up to `most` messages of one broker; waits for them `wait_s` if there are none.

        With one broker that holds the pop itself.  With several, all are asked whether they have something.
        Raises ClientError when none of them could be asked.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + wait_s
        waits = 0
        while True:
            targets = await self.all()
            self._turn += 1
            turned = [targets[(self._turn + step) % len(targets)] for step in range(len(targets))]
            if len(turned) == 1:
                return await self._pop_or_keep(turned[0], most, invisible_s, wait_s)
            failures = []
            for target in turned:
                try:
                    popped = await self._pop_or_keep(target, most, invisible_s, 0.0)
                except ClientError as error:
                    failures.append(error)
                    continue
                if popped:
                    return popped
            if not turned:
                raise TopicNotFound(", ".join(self._subscriptions), "any name server with a queue that may be read")
            denied = next((error for error in failures if isinstance(error, PermissionDenied)), None)
            if denied is not None:
                raise denied
            if len(failures) == len(turned):
                raise failures[-1]
            left_s = deadline - now()
            if left_s <= 0 or not await self._await_messages(turned, left_s):
                return []
            await pause(_MISSED_S * (waits > 0))
            waits += 1

    async def _pop_or_keep(self, target: Target, most: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        popping = asyncio.ensure_future(self.pop(target, most, invisible_s, wait_s))
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            popping.add_done_callback(self._popped_for_nobody)
            raise

    def _popped_for_nobody(self, popping: "asyncio.Future[list[PoppedMessage]]") -> None:
        if not popping.cancelled() and popping.exception() is None:
            self._keep(popping.result())

    async def _await_messages(self, targets: list[Target], wait_s: float) -> bool:
        """Whether one of `targets` has messages within `wait_s`.  Asking takes none, so it can be given up."""
        asking = [asyncio.ensure_future(self._has_messages(target, wait_s)) for target in targets]
        try:
            for answer in asyncio.as_completed(asking):
                if await answer:
                    return True
            return False
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def _has_messages(self, target: Target, wait_s: float) -> bool:
        try:
            return await self._pops.has_messages(target, wait_s)
        except SprocketError as error:
            logger.info("event=notification_failed target=%r reason=%r", target, str(error))
            await pause(wait_s)
            return False
