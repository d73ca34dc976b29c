"""Retry topics of the groups that are connected to the proxy.

A heartbeat at a broker creates its group's retry topic.  Heartbeats end at the proxy, so the proxy creates it: orderly
consumers send to this topic, and tools find the brokers of a group by it.
Source: RocketMQ 5.3.3, `ClientManageProcessor.heartBeat`.  RocketMQ's proxy leaves it to the first redelivery.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Final

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.clients.members import Consumers, Member
from proxy.status import Refusal
from sprocket.client.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import ConsumerData
from sprocket.remoting.message.topic_names import retry_topic

logger = logging.getLogger(__name__)

_MAX_GROUPS: Final = 20_000


class RetryTopics:
    """Creator of retry topics at the masters of `cluster`, at a group's first heartbeat here.

    A group that no broker knows gets none.  After a failure the next heartbeat tries again.
    """

    def __init__(
        self,
        brokers: Brokers,
        metadata: Metadata,
        consumers: Consumers,
        cluster: str,
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._cluster = cluster
        self._spawn = spawn
        self._seen: set[str] = set()
        consumers.on_heard.append(self._heard)

    def _heard(self, member: Member, data: ConsumerData) -> None:
        name = data.group_name
        if name not in self._seen and len(self._seen) < _MAX_GROUPS:
            self._seen.add(name)
            self._spawn(self._create(name))

    async def _create(self, name: str) -> None:
        try:
            group = await self._metadata.group(name)
            if group is not None:
                await self._brokers.create_topic(retry_topic(name), self._cluster, max(1, group.retry_queue_nums))
                return
        except (ClientError, Refusal) as error:
            peer_lines.info(logger, "", "event=retry_topic_not_created group=%s reason=%r", name, str(error))
        self._seen.discard(name)
