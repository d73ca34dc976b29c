"""Targets of a popping consumer: every broker of every topic, popped in turn or waited for together.

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

# Pause after a broker announced messages that another member took first.
_MISSED_S = 0.1


class PopTargets:
    """Pops of one group from the brokers of its topics."""

    def __init__(
        self,
        instance: ClientInstance,
        pops: PopRequests,
        subscriptions: Mapping[str, SubscriptionData],
        keep: Callable[[list[PoppedMessage]], object],
        first: int = 0,
    ) -> None:
        """`first` is the broker to begin with.

        `keep` gets the messages of a pop whose caller was cancelled: such a pop cannot be undone.
        """
        self._instance = instance
        self._pops = pops
        self._subscriptions = subscriptions
        self._keep = keep
        self._turn = first

    async def all(self) -> list[Target]:
        """Return every broker of every topic.  Raises TopicNotFound, NameServerUnreachable, BrokerRefused."""
        targets = []
        is_new = False
        for topic in self._subscriptions:
            is_new |= self._instance.cached_route(topic) is None
            route = await self._instance.route(topic)
            targets += [Target(topic, name) for name in sorted({queue.broker_name for queue in route.popped})]
        if is_new:
            # A broker serves pops only of groups that it knows.
            await self._instance.heartbeat_all()
        return targets

    async def pop(self, target: Target, max_messages: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Pop from `target`; a message whose tag only has the hash of a wanted tag is acknowledged unseen."""
        subscription = self._subscriptions[target.topic]
        try:
            popped = await self._pops.pop(target, subscription, max_messages, invisible_s, wait_s)
        except BrokerRefused as refused:
            if refused.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await self._instance.heartbeat_all()
            if self._instance.outages.denial is not None:
                raise self._instance.outages.denial from refused
            popped = await self._pops.pop(target, subscription, max_messages, invisible_s, wait_s)
        wanted = subscription.tags_set
        if not wanted:
            return popped
        # The broker filters by the tags' hashes, the client by the tags.
        for other in [message for message in popped if message.tags not in wanted]:
            popped.remove(other)
            self._instance.spawn(self._ack_unwanted(other))
        return popped

    async def _ack_unwanted(self, popped: PoppedMessage) -> None:
        try:
            await self._pops.ack(popped)
        except SprocketError as error:
            logger.info("event=unwanted_not_acknowledged message=%r reason=%r", popped, str(error))

    async def receive(self, max_messages: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Return up to `max_messages` messages of one broker; waits for them `wait_s` if there are none.

        Raises ClientError if none of them could be reached.
        """
        # A request is held no longer than a route is used unrefreshed: the topic may have got another broker.
        longest_s = self._instance.settings.poll_name_server_interval_s
        now = asyncio.get_running_loop().time
        deadline = now() + wait_s
        while True:
            popped = await self._receive(max_messages, invisible_s, min(wait_s, longest_s))
            # Each request counts in full: a broker that answers early is not asked without end.  A proxy answers late.
            wait_s = min(wait_s - longest_s, deadline - now())
            if popped or wait_s <= 0:
                return popped

    async def _receive(self, max_messages: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Wait at the brokers that are known now.

        A single broker holds the pop itself.  Several brokers are all asked whether they have messages.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + wait_s
        waits = 0
        while True:
            targets = await self.all()
            self._turn += 1
            turned = [targets[(self._turn + step) % len(targets)] for step in range(len(targets))]
            if len(turned) == 1:
                return await self._pop_or_keep(turned[0], max_messages, invisible_s, wait_s)
            failures = []
            for target in turned:
                try:
                    popped = await self._pop_or_keep(target, max_messages, invisible_s, 0.0)
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

    async def _pop_or_keep(
        self, target: Target, max_messages: int, invisible_s: float, wait_s: float
    ) -> list[PoppedMessage]:
        popping = asyncio.ensure_future(self.pop(target, max_messages, invisible_s, wait_s))
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            popping.add_done_callback(self._popped_for_nobody)
            raise

    def _popped_for_nobody(self, popping: "asyncio.Future[list[PoppedMessage]]") -> None:
        if not popping.cancelled() and popping.exception() is None:
            self._keep(popping.result())

    async def _await_messages(self, targets: list[Target], wait_s: float) -> bool:
        """Return whether one of `targets` has messages within `wait_s`.  It takes none, so it can be cancelled."""
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


class HeldTargets(PopTargets):
    """Pops that brokers or a proxy hold: all brokers are asked at once, because none tells of messages beforehand."""

    async def _receive(self, max_messages: int, invisible_s: float, wait_s: float) -> list[PoppedMessage]:
        """Return the first messages that any broker has within `wait_s`.

        What another one delivers at the same time is kept for the next call.
        """
        targets = await self.all()
        if not targets:
            raise TopicNotFound(", ".join(self._subscriptions), "any server with a queue that may be read")
        asking = {asyncio.ensure_future(self.pop(one, max_messages, invisible_s, wait_s)) for one in targets}
        failures: list[BaseException] = []
        try:
            while asking:
                done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                failures += [error for one in done if (error := one.exception()) is not None]
                found = [one.result() for one in done if one.exception() is None and one.result()]
                if found:
                    for later in found[1:]:
                        self._keep(later)
                    return found[0]
        finally:
            for other in asking:
                other.add_done_callback(self._popped_for_nobody)
        if len(failures) == len(targets):
            raise failures[-1]
        return []
