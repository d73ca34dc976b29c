"""Offsets that a slave has taken while it acted go to a master that is online without having asked for them.

That is one that was cut off from name servers and never stopped, or was told to skip what comes before.  It is told in
the words of consumers, which any master knows.  RocketMQ's slave takes the master's offsets then, and groups go back.
"""

import asyncio
import logging
from typing import Final

from broker.core import BrokerCore
from broker.offset.consumer_offsets import SEPARATOR, ConsumerOffsetTable
from sprocket.common.errors import ClientError
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_MOST_AT_ONCE: Final = 256


def further(own: ConsumerOffsetTable, masters: ConsumerOffsetTable) -> list[tuple[str, str, int, int]]:
    """(group, topic, queue id, offset) of what is further in `own`, but for brokers' own groups: each knows its own."""
    found = []
    known_to_master = masters.with_light()
    for key, queues in own.with_light().items():
        topic, _, group = key.partition(SEPARATOR)
        known = known_to_master.get(key, {})
        if not group.startswith(SYSTEM_GROUP_PREFIX):
            found += [(group, topic, each, offset) for each, offset in queues.items() if offset > known.get(each, -1)]
    return found


class ReturnedOffsets:
    """Lives in the event loop's thread of a slave."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core

    async def give(self, master_address: str) -> None:
        """Tell the master all that is further here.  Raises SprocketError; then it is to be tried again."""
        response = await self._core.client.invoke(
            master_address, RequestCode.GET_ALL_CONSUMER_OFFSET, timeout_s=_TIMEOUT_S
        )
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"{master_address} answers {response.code} {response.remark}")
        offsets = further(self._core.offsets.snapshot(), loads(response.body, ConsumerOffsetTable))
        logger.warning("event=offsets_returned master=%s count=%d", master_address, len(offsets))
        for first in range(0, len(offsets), _MOST_AT_ONCE):
            await asyncio.gather(
                *(self._commit(master_address, *one) for one in offsets[first : first + _MOST_AT_ONCE])
            )

    async def _commit(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        response = await self._core.client.invoke(
            address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=_TIMEOUT_S
        )
        if response.code != ResponseCode.SUCCESS:
            logger.warning(
                "event=offset_not_returned group=%s topic=%s queue=%d reason=%r",
                group,
                topic,
                queue_id,
                response.remark,
            )
