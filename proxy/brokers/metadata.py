"""Types of topics and configurations of consumer groups, as brokers have them, kept for a while.

Source: RocketMQ 5.3.3, `ClusterMetadataService`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from proxy.brokers.brokers import TIMEOUT_S, Brokers
from proxy.config import ProxyConfig
from proxy.status import Refusal
from sprocket.client.answers import body_of
from sprocket.client.errors import BrokerRefused, ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import GetSubscriptionGroupConfigRequestHeader, GetTopicConfigRequestHeader

logger = logging.getLogger(__name__)

T = TypeVar("T")
MESSAGE_TYPE_ATTRIBUTE: Final = "message.type"
_TYPES: Final = frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"})
_MAX_ENTRIES: Final = 20_000


class _Kept(Generic[T]):
    """Answers by name, each asked for again after `refresh_s`; callers at the same time share one request.

    If that fails, the old answer holds.
    """

    def __init__(
        self, ask: Callable[[str], Awaitable[T]], fallback: T, monotonic: Callable[[], float], refresh_s: float
    ) -> None:
        self._ask = ask
        self._fallback = fallback
        self._monotonic = monotonic
        self._refresh_s = refresh_s
        self._known: dict[str, tuple[float, T]] = {}
        self._asking: dict[str, asyncio.Task[T]] = {}

    def known(self, name: str) -> T | None:
        """Return the answer if it is there and new enough."""
        known = self._known.get(name)
        if known is None or self._monotonic() - known[0] > self._refresh_s:
            return None
        return known[1]

    async def get(self, name: str) -> T:
        known = self._known.get(name)
        if known is not None and self._monotonic() - known[0] <= self._refresh_s:
            return known[1]
        task = self._asking.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(name))
            self._asking[name] = task
            task.add_done_callback(lambda _: self._asking.pop(name, None))
        return await asyncio.shield(task)

    async def _fetch(self, name: str) -> T:
        try:
            found = await self._ask(name)
        except (ClientError, Refusal) as error:
            peer_lines.info(logger, "", "event=metadata_not_read name=%s reason=%r", name, str(error))
            known = self._known.get(name)
            return self._fallback if known is None else known[1]
        self._known.pop(name, None)
        if len(self._known) >= _MAX_ENTRIES:
            del self._known[next(iter(self._known))]
        self._known[name] = (self._monotonic(), found)
        return found


class Metadata:
    """What brokers say of topics and groups."""

    def __init__(self, brokers: Brokers, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._cluster = config.rocketmq_cluster_name
        monotonic = brokers.instance.clock.monotonic
        self._topics = _Kept(self._ask_type, "UNSPECIFIED", monotonic, config.topic_config_cache_refresh_seconds)
        self._groups: _Kept[SubscriptionGroupConfig | None] = _Kept(
            self._ask_group, None, monotonic, config.subscription_group_config_cache_refresh_seconds
        )

    def known_type(self, topic: str) -> str | None:
        """Return the type of messages that `topic` takes, if it was asked for a short time ago."""
        return self._topics.known(topic)

    async def message_type(self, topic: str) -> str:
        """Return the type of messages that `topic` takes; UNSPECIFIED if no broker says it."""
        return await self._topics.get(topic)

    async def group(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group; None if no broker has it."""
        return await self._groups.get(group)

    async def _ask_type(self, topic: str) -> str:
        route = await self._brokers.route(topic)
        header = GetTopicConfigRequestHeader(topic=topic)
        for broker_name in route.broker_addresses:
            if self._brokers.instance.master_address(broker_name) is None:
                continue
            response = await self._brokers.ask(broker_name, RequestCode.GET_TOPIC_CONFIG, header, timeout_s=TIMEOUT_S)
            if response.code == ResponseCode.TOPIC_NOT_EXIST:
                continue
            config = body_of(self._brokers.success(response, broker_name).body, TopicConfig)
            found = config.attributes.get(MESSAGE_TYPE_ATTRIBUTE, "NORMAL")
            return found if found in _TYPES else "UNSPECIFIED"
        return "UNSPECIFIED"

    async def _ask_group(self, group: str) -> SubscriptionGroupConfig | None:
        # Every broker has a topic of its cluster's name.
        route = await self._brokers.route(self._cluster)
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        for broker_name in route.broker_addresses:
            if self._brokers.instance.master_address(broker_name) is None:
                continue
            response = await self._brokers.ask(broker_name, code, header, timeout_s=TIMEOUT_S)
            try:
                answer = self._brokers.success(response, broker_name)
            except BrokerRefused as refused:
                if refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    continue
                raise
            return body_of(answer.body, SubscriptionGroupConfig)
        return None
