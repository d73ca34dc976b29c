"""Rebalance: divide queues again when members, brokers or topics change.

Source: RocketMQ 5.3.3, `RebalanceImpl`, `RebalanceService`.  Different here: the group's members are the union of the
lists of all brokers of the topic, and a list without this client changes nothing.  A restarted broker knows only the
members that have sent it a heartbeat.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from sprocket.client import arguments
from sprocket.client.answers import body_of
from sprocket.client.connection.client_instance import ClientInstance
from sprocket.client.connection.topic_route import TopicRoute, subscribe_address
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.errors import ClientError, TopicNotFound, is_access_refusal, refusal
from sprocket.client.rebalance.allocation import AllocateMessageQueueStrategy
from sprocket.common.errors import SprocketError
from sprocket.remoting.bodies.client import ConsumerIdList, MessageQueue, SubscriptionData
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.client import GetConsumerListByGroupRequestHeader
from sprocket.remoting.message.topic_names import RETRY_PREFIX

logger = logging.getLogger(__name__)

_WAIT_INTERVAL_S = 20.0
_MIN_INTERVAL_S = 1.0
# Several brokers notify of one change at nearly the same time; this gathers them into one rebalance.
_GATHER_S = 0.05
# Delay before a queue of another member starts here, in which that member commits its offset.
_GRACE_S = 0.5
# The group's first heartbeat creates its retry topic; after this many rounds rebalance does not wait for it.
_RETRY_TOPIC_ROUNDS = 10
# Rounds without the topic after which it counts as missing.
_MISSING_ROUNDS = 2


class Rebalance:
    """Rebalance of the subscribed topics' queues.

    `assign(topic, queues, grace_s)` makes `queues` the consumed queues of `topic`; new queues start after `grace_s`.
    It returns whether all of them are consumed, and whether anything changed.  `changed()` is awaited after a round
    that changed something.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        strategy: AllocateMessageQueueStrategy | None,
        subscriptions: dict[str, SubscriptionData],
        assign: Callable[[str, set[MessageQueue], float], Awaitable[tuple[bool, bool]]],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        """`strategy` None is broadcasting: every member has every queue.  Raises IllegalArgument."""
        if strategy is not None:
            arguments.function("strategy.allocate", getattr(strategy, "allocate", None))
        self.due = Wakeup()
        self._instance = instance
        self._group = group
        self._strategy = strategy
        self._subscriptions = subscriptions
        self._assign = assign
        self._changed = changed
        self._rounds = 0
        self._fixed: set[MessageQueue] | None = None
        self._told: set[str] = set()  # topics whose brokers know this broadcasting member

    def fix(self, queues: set[MessageQueue]) -> None:
        """Assign exactly `queues` from the next round on, whatever other members have."""
        self._fixed = queues

    async def run(self) -> None:
        """Rebalance at once, when `due` is set, and every 20 s; every second after a failed round."""
        while True:
            is_balanced = await self.once()
            if await self.due.wait(_WAIT_INTERVAL_S if is_balanced else _MIN_INTERVAL_S):
                await pause(_GATHER_S)

    async def once(self) -> bool:
        """Run one round; return False if it failed for a topic and should be retried soon."""
        self._rounds += 1
        outcomes = await asyncio.gather(*(self._topic_or_not(topic) for topic in self._subscriptions))
        if any(is_changed for _, is_changed in outcomes):
            await self._changed()
        return all(is_balanced for is_balanced, _ in outcomes)

    async def _topic_or_not(self, topic: str) -> tuple[bool, bool]:
        """Call `_topic`; return False for both if it fails."""
        try:
            outcome = await self._topic(topic)
        except (SprocketError, msgspec.ValidationError) as error:
            # It is retried every second: log it once, not every second.
            if self._instance.outages.failed(("rebalance", topic), error):
                logger.warning("event=rebalance_failed group=%s topic=%s reason=%r", self._group, topic, str(error))
            return False, False
        over = self._instance.outages.succeeded(("rebalance", topic))
        if over is not None:
            logger.info(
                "event=rebalance_recovered group=%s topic=%s after_s=%.1f failures=%d", self._group, topic, *over
            )
        return outcome

    async def _topic(self, topic: str) -> tuple[bool, bool]:
        """Return whether all our queues of the topic are consumed, and whether any changed."""
        try:
            route = await self._instance.route(topic)
        except TopicNotFound as error:
            if topic.startswith(RETRY_PREFIX):
                return self._rounds > _RETRY_TOPIC_ROUNDS, False
            # A topic that a send has just created reaches the name servers a moment later.
            if self._rounds == _MISSING_ROUNDS:
                logger.warning("event=topic_missing group=%s reason=%r", self._group, str(error))
            if not self._rounds % _MISSING_ROUNDS:
                await self._instance.check_access(self._group)
            return False, False
        except ClientError:
            return False, False  # logged when it began
        if self._strategy is None:
            if topic not in self._told:
                # A broker serves only the members that it knows.
                await self._instance.heartbeat_all()
                self._told.add(topic)
            return await self._assign(topic, set(route.subscribe), 0.0)
        members, is_known = await self._members(route)
        if not is_known:
            # A new broker does not know this member yet, and would refuse its pulls.
            await self._instance.heartbeat_all()
        if self._instance.client_id not in members:
            return False, False
        if self._fixed is not None and not topic.startswith(RETRY_PREFIX):
            return await self._assign(topic, self._fixed.intersection(route.subscribe), 0.0)
        try:
            mine = self._strategy.allocate(self._instance.client_id, route.subscribe, sorted(members))
        except Exception as error:
            # The strategy may be the application's own; its errors must not end the rounds.
            raise ClientError(f"the strategy failed: {error!r}") from error
        return await self._assign(topic, set(mine), _GRACE_S if len(members) > 1 else 0.0)

    async def _members(self, route: TopicRoute) -> tuple[set[str], bool]:
        """Return the group's client ids from all brokers that answer, and whether each of them knows this client."""
        answers = await asyncio.gather(*(self._members_at(name) for name in route.broker_addresses))
        told = [answer for answer in answers if answer is not None]
        is_known = bool(told) and all(self._instance.client_id in answer for answer in told)
        return {member for answer in told for member in answer}, is_known

    async def _members_at(self, broker_name: str) -> list[str] | None:
        """Return the client ids that one broker knows; None if it does not answer."""
        address, _ = subscribe_address(self._instance.broker_addresses(broker_name), 0)
        try:
            response = await self._instance.remoting.invoke(
                address,
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                GetConsumerListByGroupRequestHeader(consumer_group=self._group),
                timeout_s=self._instance.settings.api_timeout_s,
            )
        except ClientError as error:
            if self._instance.outages.failed(("members", broker_name), error):
                logger.info("event=members_unknown group=%s broker=%s reason=%r", self._group, broker_name, str(error))
            return None
        self._instance.outages.succeeded(("members", broker_name))
        if is_access_refusal(response.code, response.remark):
            raise refusal(response.code, response.remark, address)
        # An error means that the broker knows no member.
        return body_of(response.body, ConsumerIdList).consumer_id_list if response.code == ResponseCode.SUCCESS else []
