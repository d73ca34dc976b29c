"""Periodic writer of the tables that change with the traffic: consumer offsets, filters, delay offsets.

An offset may depend on a record that the log has not flushed yet: the checkpoint of a pop, a message in a retry topic.
Therefore the offset is written after the log is flushed that far; a power cut cannot lose the record and keep the
offset.
Source of the periods: RocketMQ 5.3.3, `BrokerController.initializeBrokerScheduledTasks`.
"""

from typing import Final

from broker.core import BrokerCore
from broker.flushed_log import log_flushed
from broker.periodic import Periodic
from broker.service import Service
from broker.timer.schedule import DelayOffsets

_FILTER_SAVE_S: Final = 10.0


class TableSaving(Service):
    """Writer of the tables.  Lives in the event loop's thread; writes files in another thread."""

    def __init__(self, core: BrokerCore, delay_offsets: DelayOffsets) -> None:
        self._core = core
        self._delay_offsets = delay_offsets

    def periodic(self) -> list[Periodic]:
        """Write changed tables at the configured intervals."""
        config = self._core.config
        return [
            Periodic(
                "consumer_offsets", lambda: config.broker.flush_consumer_offset_interval / 1000, self._save_offsets
            ),
            Periodic("consumer_filters", _FILTER_SAVE_S, self._save_filters),
            Periodic(
                "delay_offsets", lambda: config.broker.flush_delay_offset_interval / 1000, self._save_delay_offsets
            ),
        ]

    async def _save_offsets(self) -> None:
        await self._core.offsets.save(self._log_flushed)

    async def _log_flushed(self) -> bool:
        """Wait until the log, as far as it reaches now, and the topics are on the disk; False if that failed."""
        if await log_flushed(self._core.store) is not None:
            return False
        # An offset must not be on disk before its topic.
        await self._core.topics.save()
        return True

    async def _save_filters(self) -> None:
        self._core.filters.clean()
        await self._core.filters.save()

    async def _save_delay_offsets(self) -> None:
        self._delay_offsets.flushed(self._core.store.flushed_offset)
        await self._delay_offsets.save()

    def save(self) -> None:
        """Flush the log and write all tables.  Raises `StoreError`."""
        self._core.filters.clean()
        self._delay_offsets.flushed(self._core.store.flushed_offset)
        for table in (self._core.offsets, self._core.filters, self._delay_offsets):
            table.persist_changes()
