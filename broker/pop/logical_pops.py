"""Pops of the physical queues of a logical queue of a static topic that has moved.

The messages of a logical queue that has moved are in physical queues of several brokers, and each broker pops its own.
An ordered group gets nothing of one item before it has acknowledged all of the items before it.  A group that has
popped older items begins at the first message of the next one.  The brokers of these items know how far a group is.
RocketMQ pops each physical queue by itself.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from broker.core import BrokerCore
from broker.out.other_brokers import OtherBrokers, header_of
from broker.pop.order_locks import QueueKey
from broker.pop.pop_offsets import FROM_FIRST, IsThere, PopOffsets
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


class LogicalPops:
    """What pops of a physical queue must know of older items.  Lives in the event loop's thread.

    It asks other brokers only while a pop waits for the answer.
    """

    def __init__(
        self, core: BrokerCore, pop_offsets: PopOffsets, brokers: OtherBrokers, freed: Callable[[QueueKey], None]
    ) -> None:
        """`freed` is called with a queue when a waiting pop should try again."""
        self._mappings = core.mappings
        self._store = core.store
        self._offsets = core.offsets
        self._pop_offsets = pop_offsets
        self._call_later = core.call_later
        self._brokers = brokers
        self._freed = freed
        self._done: set[QueueKey] = set()  # whose older items the group has acknowledged
        self._asking: dict[QueueKey, asyncio.Task[bool]] = {}
        self._pausing: set[QueueKey] = set()

    def blocks(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether an ordered group has yet to acknowledge older items; asks their brokers if unknown."""
        own, key = self._moved_item(topic, queue_id), QueueKey(topic, group, queue_id)
        if own is None or key in self._done:
            return False
        self._ask(key, lambda: self._is_done(key, own))
        return True

    def awaits_start(self, topic: str, group: str, queue_id: int, init_mode: int) -> bool:
        """Return whether it is not known yet where a group begins in a queue that it has never popped.

        A group that has popped older items goes on at the first message, not at the end.
        """
        offsets = self._offsets
        if init_mode == FROM_FIRST or topic not in self._mappings.by_name or offsets.query(group, topic, queue_id) >= 0:
            return False
        own, key = self._moved_item(topic, queue_id), QueueKey(topic, group, queue_id)
        if own is None or (offsets.has_resets and offsets.is_reset(group, topic, queue_id)):
            return False
        self._ask(key, lambda: self._start(key, own, init_mode))
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

    def _moved_item(self, topic: str, queue_id: int) -> OwnItem | None:
        """Return the item that a physical queue is, if there are older ones."""
        detail = self._mappings.get(topic)
        own = None if detail is None else own_item(detail, queue_id)
        return own if own is not None and own.earlier else None

    def _ask(self, key: QueueKey, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        if key in self._asking or key in self._pausing:
            return
        task = asyncio.get_running_loop().create_task(self._answer(key, work))
        self._asking[key] = task
        task.add_done_callback(lambda task: self._answered(key, task))

    async def _answer(self, key: QueueKey, work: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        try:
            return await work()
        except SprocketError as error:
            peer_lines.warning(logger, "", "event=pop_waits topic=%s group=%s queue=%d reason=%r", *key, str(error))
            return False

    def _answered(self, key: QueueKey, task: "asyncio.Task[bool]") -> None:
        del self._asking[key]
        if task.cancelled():
            return
        if task.result():
            self._freed(key)
            return
        self._pausing.add(key)
        self._call_later(_AGAIN_S, lambda: self._retry(key))

    def _retry(self, key: QueueKey) -> None:
        self._pausing.discard(key)
        self._freed(key)

    async def _start(self, key: QueueKey, own: OwnItem, init_mode: int) -> bool:
        """Set where the group begins."""
        known = False
        for item in own.earlier:
            known = known or await self._committed(key, item) is not None
        topic, group, queue_id = key
        if known and self._offsets.query(group, topic, queue_id) < 0:
            self._offsets.commit(group, topic, queue_id, self._store.min_offset(topic, queue_id))
        else:
            self._pop_offsets.begin(topic, group, queue_id, init_mode)
        return True

    async def _is_done(self, key: QueueKey, own: OwnItem) -> bool:
        # Without a logical offset, the leader before it may still take messages.
        if not own.item.is_decided:
            return False
        for item in own.earlier:
            end = await self._end(key.topic, item)
            if end and (await self._committed(key, item) or 0) < end:
                return False
        self._done.add(key)
        return True

    def _is_here(self, topic: str, item: LogicQueueMappingItem) -> bool:
        detail = self._mappings.get(topic)
        return detail is not None and item.bname == detail.bname

    async def _end(self, topic: str, item: LogicQueueMappingItem) -> int:
        """Return where the physical queue of an item ends.  Raises RequestError."""
        if self._is_here(topic, item):
            return self._store.max_offset(topic, item.queue_id)
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=item.queue_id, broker_name=item.bname, lo=False)
        answer = await self._brokers.ask(item.bname, RequestCode.GET_MAX_OFFSET, header)
        return _read(answer, item, GetMaxOffsetResponseHeader).offset

    async def _committed(self, key: QueueKey, item: LogicQueueMappingItem) -> int | None:
        """Return the group's offset in the physical queue of an item; None if it has none.  Raises RequestError."""
        if self._is_here(key.topic, item):
            offset = self._offsets.query(key.group, key.topic, item.queue_id)
            return None if offset < 0 else offset
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=key.group, topic=key.topic, queue_id=item.queue_id, set_zero_if_not_found=False,
            broker_name=item.bname, lo=False,
        )  # fmt: skip
        answer = await self._brokers.ask(item.bname, RequestCode.QUERY_CONSUMER_OFFSET, header)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return _read(answer, item, QueryConsumerOffsetResponseHeader).offset


def _read(answer: ReceivedResponse, item: LogicQueueMappingItem, as_type: type[T]) -> T:
    if answer.code != ResponseCode.SUCCESS:
        remark = f"broker {item.bname} answered {answer.code}: {answer.remark}"
        raise RequestError(ResponseCode.SYSTEM_ERROR, remark, Reason.OTHER_BROKER)
    return header_of(answer, item.bname, as_type)
