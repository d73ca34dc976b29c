"""Order of ordered pops over the items of a logical queue of a static topic.

A logical queue that has moved is in physical queues of several brokers, and each broker pops its own.  An ordered group
gets nothing of one item before it has acknowledged all of the items before it; their brokers know how far it is.
RocketMQ pops physical queues without such an order.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from broker.core import BrokerCore
from broker.out.other_brokers import OtherBrokers
from broker.pop.order_locks import QueueKey
from broker.pop.pop_offsets import IsThere
from broker.topic.logical_queue import OwnItem, own_item
from sprocket.common.errors import RequestError, SprocketError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.bodies.topic_queue_mapping import LogicQueueMappingItem
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
)

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Header)
# Pause before the brokers of older items are asked again.
_AGAIN_S: Final = 0.3


class LogicalOrder:
    """Which physical queues an ordered group must not pop yet.  Lives in the event loop's thread.

    It asks other brokers only while a pop waits for the answer.
    """

    def __init__(self, core: BrokerCore, brokers: OtherBrokers, freed: Callable[[QueueKey], None]) -> None:
        """`freed` is called with a queue when a waiting pop should try again."""
        self._mappings = core.mappings
        self._store = core.store
        self._offsets = core.offsets
        self._call_later = core.call_later
        self._brokers = brokers
        self._freed = freed
        self._done: set[QueueKey] = set()  # whose older items the group has acknowledged
        self._asking: dict[QueueKey, asyncio.Task[bool]] = {}
        self._pausing: set[QueueKey] = set()

    def blocks(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether the group has yet to acknowledge messages of older items; asks their brokers if unknown."""
        detail = self._mappings.get(topic)
        own = None if detail is None else own_item(detail, queue_id)
        if own is None or not own.earlier:
            return False
        key = QueueKey(topic, group, queue_id)
        if key in self._done:
            return False
        if key not in self._asking and key not in self._pausing:
            task = asyncio.get_running_loop().create_task(self._is_done(key, own))
            self._asking[key] = task
            task.add_done_callback(lambda task: self._answered(key, task))
        return True

    def forget(self, topic: str, group: str) -> None:
        """Ask again after a reset of the group's offsets."""
        self._done = {key for key in self._done if (key.topic, key.group) != (topic, group)}

    def forget_gone(self, is_there: IsThere) -> None:
        """Forget deleted topics and groups."""
        self._done = {key for key in self._done if is_there(key.topic, key.group)}

    def close(self) -> None:
        """Cancel the running queries."""
        for task in self._asking.values():
            task.cancel()

    def _answered(self, key: QueueKey, task: "asyncio.Task[bool]") -> None:
        del self._asking[key]
        if task.cancelled():
            return
        if task.result():
            self._done.add(key)
            self._freed(key)
            return
        self._pausing.add(key)
        self._call_later(_AGAIN_S, lambda: self._retry(key))

    def _retry(self, key: QueueKey) -> None:
        self._pausing.discard(key)
        self._freed(key)

    async def _is_done(self, key: QueueKey, own: OwnItem) -> bool:
        # Without a logical offset, the leader before it may still take messages.
        if not own.item.is_decided:
            return False
        try:
            for item in own.earlier:
                if not await self._is_acknowledged(key, item):
                    return False
        except SprocketError as error:
            peer_lines.warning(
                logger, "", "event=ordered_pop_waits topic=%s group=%s queue=%d reason=%r", *key, str(error)
            )
            return False
        return True

    async def _is_acknowledged(self, key: QueueKey, item: LogicQueueMappingItem) -> bool:
        """Return whether the group has acknowledged all messages of an item.  Raises RequestError."""
        detail = self._mappings.get(key.topic)
        if detail is not None and item.bname == detail.bname:
            end = self._store.max_offset(key.topic, item.queue_id)
            return not end or self._offsets.query(key.group, key.topic, item.queue_id) >= end
        max_header = GetMaxOffsetRequestHeader(
            topic=key.topic, queue_id=item.queue_id, broker_name=item.bname, lo=False
        )
        answer = await self._brokers.ask(item.bname, RequestCode.GET_MAX_OFFSET, max_header)
        end = _read(answer, item, GetMaxOffsetResponseHeader).offset
        if not end:
            return True
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=key.group, topic=key.topic, queue_id=item.queue_id, set_zero_if_not_found=False,
            broker_name=item.bname, lo=False,
        )  # fmt: skip
        answer = await self._brokers.ask(item.bname, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return False
        return _read(answer, item, QueryConsumerOffsetResponseHeader).offset >= end


def _read(answer: ReceivedResponse, item: LogicQueueMappingItem, as_type: type[T]) -> T:
    if answer.code == ResponseCode.SUCCESS:
        try:
            return answer.header(as_type)
        except msgspec.ValidationError as error:
            remark = f"the response of broker {item.bname} cannot be read: {error}"
    else:
        remark = f"broker {item.bname} answered {answer.code}: {answer.remark}"
    raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER)
