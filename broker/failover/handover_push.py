"""Push of consumer offsets from a slave that acted to a master that came online without fetching them.

Such a master was cut off from name servers but never stopped, or skips its preparation.  The slave commits the offsets
as a consumer would, which any master understands.  RocketMQ's slave takes the master's offsets instead, so groups move
back.
"""

import asyncio
import logging
from typing import Final

from broker.offset.consumer_offsets import ConsumerOffsets, ConsumerOffsetTable
from broker.offset.offset_map import split
from sprocket.common.errors import ClientError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from sprocket.remoting.message.topic_names import SYSTEM_GROUP_PREFIX

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_MAX_AT_ONCE: Final = 256


def higher(own: ConsumerOffsetTable, masters: ConsumerOffsetTable) -> list[tuple[str, str, int, int]]:
    """Return (group, topic, queue id, offset) of what is higher in `own`, without the brokers' own groups."""
    found = []
    known_to_master = masters.offsets()
    for key, queues in own.offsets().entries():
        topic, group = split(key)
        known = known_to_master.queues(topic, group)
        if not group.startswith(SYSTEM_GROUP_PREFIX):
            found += [(group, topic, each, offset) for each, offset in queues.items() if offset > known.get(each, -1)]
    return found


class HandoverPush:
    """Push to one master.  Lives in the event loop's thread of a slave."""

    def __init__(self, client: RemotingClient, offsets: ConsumerOffsets) -> None:
        self._client = client
        self._offsets = offsets

    async def push(self, master_address: str) -> None:
        """Commit at the master what is higher here.  Raises SprocketError; try again then."""
        response = await self._client.invoke(master_address, RequestCode.GET_ALL_CONSUMER_OFFSET, timeout_s=_TIMEOUT_S)
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"{master_address} answers {response.code} {response.remark}")
        offsets = higher(self._offsets.snapshot(), loads(response.body, ConsumerOffsetTable))
        logger.warning("event=handover_pushed master=%s offsets=%d", master_address, len(offsets))
        for first in range(0, len(offsets), _MAX_AT_ONCE):
            await asyncio.gather(*(self._commit(master_address, *one) for one in offsets[first : first + _MAX_AT_ONCE]))

    async def _commit(self, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        response = await self._client.invoke(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_s=_TIMEOUT_S)
        if response.code != ResponseCode.SUCCESS:
            peer_lines.warning(
                logger, "", "event=offset_not_pushed group=%s topic=%s queue=%d reason=%r", group, topic, queue_id,
                response.remark,
            )  # fmt: skip
