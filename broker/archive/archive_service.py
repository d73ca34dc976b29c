"""The archive of a broker: a master uploads, a slave waits for its master, and both keep what is not archived yet.

Nothing of it is on the way of a send or of a start: one task in the event loop waits for the object store, and what
takes time (scans, compression, hashes) runs in a process of its own.  A store that fails delays the archive.  Then the
local disk keeps the log, and above diskSpaceWarningLevelRatio sends are refused: a message that was acknowledged is
never dropped for room.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from broker.archive.archive_metrics import ArchiveFigures, archive_metrics
from broker.archive.archived_log import ArchivedLog
from broker.core import BrokerCore
from broker.periodic import pause
from broker.service import Service
from ha.epochs.epoch_file import EpochFile
from sprocket.common.errors import ConfigError, StoreError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.metrics.declared import Metric
from store.tier.archive_writer import ArchiveWriter, Fenced
from store.tier.group_store import GroupStore
from store.tier.manifest import NAME, Manifest
from store.tier.object_store import NotFound, Version
from store.tier.segment_process import SegmentProcess
from store.tier.whole_objects import find_manifest

_log = logging.getLogger(__name__)
_IDLE_S: Final = 1.0
_TABLES_S: Final = 60.0
_FOLLOW_S: Final = 30.0
_FIRST_DELAY_S: Final = 1.0
_MAX_DELAY_S: Final = 60.0
# The process that packs segments has about 60 MiB, and takes 0.3 s to start.
_PACKER_IDLE_S: Final = 60.0


class ArchiveService(Service):
    """Uploads of a master, and what a slave knows of them; does nothing if `archive` is None."""

    def __init__(
        self,
        core: BrokerCore,
        archive: GroupStore | None,
        epochs: EpochFile | None,
        holds_lease: Callable[[], bool] | None,
    ) -> None:
        self._core = core
        self._archive = archive
        self._epochs = epochs
        self._holds_lease = holds_lease
        self._log = ArchivedLog(core)
        self._task: asyncio.Task[None] | None = None
        self.figures_now = ArchiveFigures()
        self._noted: Manifest | None = None
        # Until the manifest was read, nothing is known to be archived.
        core.store.cleaner.keep_until_archived(None if archive is None else 0)

    # A service

    def exported_metrics(self) -> list[Metric]:
        return archive_metrics(self._archive, self.figures_now, self._core.clock, self._log)

    def check(self) -> None:
        config = self._core.config.store
        if config.object_store_bucket and config.tiered_store_file_path:
            raise ConfigError("objectStoreBucket and tieredStoreFilePath: set one of them, there is one archive")

    def start(self) -> None:
        if self._core.role.is_slave:
            self._begin(self._follow)

    def activate(self) -> None:
        # A slave that acts for its master has a copy of the log, which the next master will go on with.
        if not self._core.role.is_slave:
            self._begin(self._lead)

    def deactivate(self) -> None:
        if not self._core.role.is_slave:
            self._end()

    def stop(self) -> None:
        self._end()

    def _begin(self, work: Callable[[GroupStore], Coroutine[None, None, None]]) -> None:
        if self._archive is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(work(self._archive))

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # A master

    async def _lead(self, archive: GroupStore) -> None:
        core = self._core
        last = None if self._epochs is None else self._epochs.history.last
        names, store = core.config.broker, core.config.store
        packer = SegmentProcess(
            store.commit_log_path, store.mapped_file_size_commit_log, store.message_delay_level
        )  # fmt: skip
        writer = ArchiveWriter(
            archive, self._log, core.clock, group=(names.broker_cluster_name, names.broker_name),
            epoch=0 if last is None else last.number, incarnation=f"{core.random_below(1 << 64):016x}",
            segments=packer.segment, in_thread=asyncio.to_thread,
        )  # fmt: skip
        try:
            await self._upload(writer, packer)
        finally:
            await asyncio.to_thread(packer.close)  # also one that is just being started

    async def _upload(self, writer: ArchiveWriter, packer: SegmentProcess) -> None:
        core, delay_s, is_claimed, tables_due_s, busy_s = self._core, _FIRST_DELAY_S, False, 0.0, 0.0
        while True:
            try:
                if self._holds_lease is not None and not self._holds_lease():
                    await _end_process(packer)
                    await pause(_IDLE_S)
                    continue
                if not is_claimed:
                    await writer.claim()
                    is_claimed = True
                    await self._note(writer.manifest, writer.uploaded_messages)
                is_busy = await writer.step(core.config.store.tiered_store_delete_file_interval / 1000)
                await self._note(writer.manifest, writer.uploaded_messages)
                if is_busy or core.clock.monotonic() >= tables_due_s:
                    await writer.save_tables()
                    if await writer.save_compacted():
                        is_busy = True
                    else:
                        tables_due_s = core.clock.monotonic() + _TABLES_S
            except Fenced as error:
                self._failed(error)
                return
            except StoreError as error:
                self._failed(error)
                await _end_process(packer)
                await pause(delay_s * (1 + core.random_below(1000) / 1000))
                delay_s = min(delay_s * 2, _MAX_DELAY_S)
                continue
            delay_s = _FIRST_DELAY_S
            self._succeeded()
            now_s = core.clock.monotonic()
            if is_busy:
                busy_s = now_s
                continue
            if now_s - busy_s > _PACKER_IDLE_S:
                await _end_process(packer)
            await pause(_IDLE_S)

    async def _note(self, manifest: Manifest, uploaded_messages: int) -> None:
        if manifest is self._noted:
            return
        # First readers know where a message is, then the disk may drop it.
        await self._core.tier.adopt(manifest)
        self.figures_now.note(manifest, uploaded_messages)
        self._core.store.cleaner.keep_until_archived(manifest.uploaded_end)
        self._noted = manifest

    # A slave

    async def _follow(self, archive: GroupStore) -> None:
        version: Version | None = None
        while True:
            try:
                version = await self._look(archive, version)
                self._succeeded()
            except StoreError as error:
                self._failed(error)
            await pause(_FOLLOW_S)

    async def _look(self, archive: GroupStore, version: Version | None) -> Version | None:
        """Take in the manifest if it is not of `version`; return its version, None without a manifest."""
        with suppress(NotFound):  # the answer to a GET, which is next, says whether there is a bucket
            if version is not None and (await archive.head(NAME)).version == version:
                return version
        found = await find_manifest(archive)
        if found is None:
            self._absent()
            return None
        await self._note(found[0], 0)
        return found[1]

    def _absent(self) -> None:
        """Take that the master has archived nothing yet."""
        self._core.tier.nothing_archived()

    # What is told

    def _failed(self, error: StoreError) -> None:
        reason = type(error).__name__
        if self.figures_now.trouble != reason:
            self.figures_now.stopped(reason)
            peer_lines.error(
                _log, "", "event=archive_stopped kind=%s uploaded_end=%s reason=%r", reason,
                self.figures_now.uploaded_end, str(error),
            )  # fmt: skip

    def _succeeded(self) -> None:
        if self.figures_now.trouble:
            peer_lines.warning(
                _log, "", "event=archive_goes_on after=%s uploaded_end=%s", self.figures_now.trouble,
                self.figures_now.uploaded_end,
            )  # fmt: skip
            self.figures_now.stopped("")


async def _end_process(packer: SegmentProcess) -> None:
    """End the process that packs segments; also what it has of a part that was left."""
    if packer.pid is not None:
        await asyncio.to_thread(packer.close)
