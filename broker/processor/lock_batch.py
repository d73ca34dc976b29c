"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: a client of a group locks queues, so that only this client consumes them.

With lockInStrictMode a lock needs a majority of the broker group, so that an acting slave and a returning master do not
give it to two clients at once.
Source: RocketMQ 5.3.3, `AdminBrokerProcessor.lockBatchMQ`, `unlockBatchMQ`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from typing import Final

import msgspec
from msgspec.structs import replace

from broker.core import BrokerCore
from broker.failover.group_members import GroupMembers
from broker.out.other_brokers import OtherBrokers
from broker.processor.logical_locks import Asking, LogicalLocks
from broker.service import Service
from sprocket.common import limits
from sprocket.common.errors import ClientError, ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from sprocket.remoting.bodies.requests import read_lock_batch
from sprocket.remoting.codec.body_limits import ANSWERS
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from sprocket.remoting.routes import Action, Answer, Resource, Route, Traffic

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 1.0
# Much faster than `dumps`, for thousands of queues.  Equal to fastjson, because no field is None and no key an object.
_encode: Final = msgspec.json.Encoder().encode


class GroupLocks(Service):
    """Handler of both requests.  Lives in the event loop's thread."""

    def __init__(self, core: BrokerCore, members: GroupMembers, brokers: OtherBrokers) -> None:
        self._core = core
        self._logical = LogicalLocks(core.mappings.by_name, brokers, core.clock)
        self._members = members

    def routes(self) -> list[Route]:
        """Return the routes; in strict mode, other members of the broker group use them, too."""
        code, group, sub, client = RequestCode, Resource.GROUP, Action.SUB, Traffic.CLIENT
        return [
            Route(code.LOCK_BATCH_MQ, LockBatchMqRequestHeader, self.lock, group, sub, client),
            Route(code.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader, self.unlock, group, sub, client),
        ]

    def lock(self, request: Request[LockBatchMqRequestHeader]) -> Answer:
        """Lock queues for one client of a group; the response has the queues that it now holds."""
        core, body = self._core, read_lock_batch(request.body)
        # A group behind a proxy, whose heartbeats end there, is new here: it is created where a pull would create it.
        known = core.groups.find(body.consumer_group) is not None
        queues = [queue for queue in body.mq_set if known and self._is_there(queue)]
        if not body.only_this_broker and core.mappings.by_name:
            queues, asking = self._logical.lockable(queues)
            if asking:
                return self._lock_moved(body, queues, asking)
        return self._lock(body, queues)

    def _is_there(self, queue: MessageQueue) -> bool:
        """Whether the topic has the queue: nothing forgets locks, so a peer must not name any number of queues."""
        config = self._core.topics.get(queue.topic)
        if config is None:
            return False
        if queue.topic in self._core.mappings.by_name:
            return 0 <= queue.queue_id < limits.MAX_TOPIC_QUEUES
        return 0 <= queue.queue_id < max(config.read_queue_nums, config.write_queue_nums)

    async def _lock_moved(self, body: LockBatchRequestBody, queues: list[MessageQueue], asking: Asking) -> Response:
        answer = self._lock(body, queues + await self._logical.agreed(body, asking))
        return answer if isinstance(answer, Response) else await answer

    def _lock(self, body: LockBatchRequestBody, queues: list[MessageQueue]) -> Response | Awaitable[Response]:
        locked = self._core.locks.lock(body.consumer_group, queues, body.client_id)
        if locked and self._asks_others(body) and self._quorum > 1:
            return self._lock_everywhere(body, locked)
        return Response(body=_encode(LockBatchResponseBody(locked)))

    def unlock(self, request: Request[UnlockBatchMqRequestHeader]) -> Answer:
        """Unlock the client's own of these queues."""
        body = read_lock_batch(request.body)
        self._core.locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        asking = {} if body.only_this_broker else self._logical.lockable(body.mq_set).asking
        return self._unlock_others(body, asking) if asking or self._asks_others(body) else Response()

    async def _unlock_others(self, body: LockBatchRequestBody, asking: Asking) -> Response:
        await self._logical.unlock(body, asking)
        return await self._unlock_everywhere(body) if self._asks_others(body) else Response()

    def _asks_others(self, body: LockBatchRequestBody) -> bool:
        return self._core.config.broker.lock_in_strict_mode and not body.only_this_broker

    @property
    def _quorum(self) -> int:
        return self._core.config.broker.total_replicas // 2 + 1

    @property
    def _others(self) -> list[str]:
        own_id = self._core.config.broker.broker_id
        return [address for broker_id, address in self._members.known.items() if broker_id != own_id]

    async def _lock_everywhere(self, body: LockBatchRequestBody, locked: list[MessageQueue]) -> Response:
        asked = _encode(replace(body, only_this_broker=True, mq_set=locked))
        answers = await asyncio.gather(*(self._lock_at(address, asked) for address in self._others))
        count = Counter(locked)
        for answer in answers:
            count.update(set(answer) & set(locked))
        return Response(
            body=_encode(LockBatchResponseBody([queue for queue in locked if count[queue] >= self._quorum]))
        )

    async def _lock_at(self, address: str, body: bytes) -> list[MessageQueue]:
        try:
            response = await self._core.client.invoke(
                address, RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(), body, timeout_s=_TIMEOUT_S
            )
            if response.code != ResponseCode.SUCCESS:
                raise ClientError(f"code {response.code}: {response.remark}")
            return loads(response.body, LockBatchResponseBody, ANSWERS).lock_ok_mq_set
        except (ClientError, ProtocolError) as error:
            peer_lines.warning(logger, address, "event=member_lock_failed address=%s reason=%r", address, str(error))
            return []

    async def _unlock_everywhere(self, body: LockBatchRequestBody) -> Response:
        asked = _encode(replace(body, only_this_broker=True))
        await asyncio.gather(*(self._unlock_at(address, asked) for address in self._others))
        return Response()

    async def _unlock_at(self, address: str, body: bytes) -> None:
        try:
            await self._core.client.invoke(
                address, RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(), body, timeout_s=_TIMEOUT_S
            )
        except ClientError as error:
            peer_lines.warning(logger, address, "event=member_unlock_failed address=%s reason=%r", address, str(error))
