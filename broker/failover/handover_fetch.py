"""Fetch of all offsets from the member of the group that acted for this broker.

The higher of two offsets wins.  The slave may lack what it had not received when the master died; the master lacks what
was done since.  An operator's reset to an earlier offset is not handed over.
Source: RocketMQ 5.3.3, `BrokerPreOnlineService.syncMetadataReverse`, where the whole table with the newer data version
wins.
"""

import asyncio
import logging
from typing import Final

from broker.core import BrokerCore
from broker.offset.consumer_offsets import ConsumerOffsetTable
from broker.periodic import pause
from broker.timer.schedule import DelayOffsets, DelayOffsetTable
from broker.timer.timer_service import TimerService
from sprocket.common.errors import ClientError
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from store.timer.timer_progress import CHECKPOINT_BYTES, TimerCheckpoint

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 10.0
_FLUSH_POLL_S: Final = 0.05


class HandoverFetch:
    """Fetch from one member.  Lives in the event loop's thread, and runs before the group's services are active."""

    def __init__(self, core: BrokerCore, delay_offsets: DelayOffsets, timer: TimerService) -> None:
        self._core = core
        self._delay_offsets = delay_offsets
        self._timer = timer

    async def fetch(self, address: str) -> None:
        """Take over the offsets of the member at `address`.  Raises SprocketError; try again then."""
        delays = loads(await self._fetch(address, RequestCode.GET_ALL_DELAY_OFFSET), DelayOffsetTable)
        content = await self._fetch(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        offsets = await asyncio.to_thread(loads, content, ConsumerOffsetTable)
        checkpoint = await self._checkpoint(address)
        moved = self._core.offsets.catch_up(offsets)
        if not self._core.role.is_slave:  # a slave may still lack the end of the log
            self._core.offsets.clamp(self._core.store.max_offset)
        levels = self._delay_offsets.catch_up(delays)
        timed = checkpoint is not None and await self._catch_up_timer(checkpoint)
        logger.info(
            "event=handover_fetched from=%s consumer_offsets=%d delay_levels=%d timer=%s", address, moved, levels, timed
        )

    async def _fetch(self, address: str, code: RequestCode) -> bytes:
        response = await self._core.client.invoke(address, code, timeout_s=_TIMEOUT_S)
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"{address} answers {response.code} {response.remark}")
        return response.body

    async def _checkpoint(self, address: str) -> TimerCheckpoint | None:
        """Return the member's timer checkpoint; None if one of the two has no timer wheel."""
        if not self._core.config.store.timer_wheel_enable:
            return None
        response = await self._core.client.invoke(address, RequestCode.GET_TIMER_CHECK_POINT, timeout_s=_TIMEOUT_S)
        if response.code != ResponseCode.SUCCESS or len(response.body) < CHECKPOINT_BYTES:
            return None
        return TimerCheckpoint.decode(response.body)

    async def _catch_up_timer(self, checkpoint: TimerCheckpoint) -> bool:
        timer = self._timer
        if checkpoint.progress.read_ms <= timer.timer.checkpoint.progress.read_ms:
            return False
        while not timer.follow(checkpoint):
            await pause(_FLUSH_POLL_S)
        return True
