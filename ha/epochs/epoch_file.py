"""The history of this broker's log by master epochs, in the file that storePathEpochFile names.

An epoch counts once the file with it is on the disk.  A change writes a temporary file, syncs and renames it, then
does the same for ``<name>.bak``.  So either file holds the history if the other one is damaged, and the backup is at
most one change old.

Source: RocketMQ 5.3.3, `EpochFileCache`, `CheckpointFile`.  Unlike there, a failed write is an error, the backup has
the current content, and a history without epochs removes the files: RocketMQ would leave the old epochs in them.
"""

import logging
from pathlib import Path

from ha.epochs.epoch_history import MAX_EPOCHS, Epoch, EpochHistory
from sprocket.common.errors import ProtocolError, StoreError
from store.disk.disk import Disk
from store.disk.epoch_checkpoint import MAX_EPOCH, encode_epochs, read_epochs

logger = logging.getLogger(__name__)


class EpochFile:
    """`EpochHistory` that is kept on the disk.  For the thread that owns the store.

    `log_end` is the end of the log after its recovery: epochs that begin there or later wrote nothing that is left.
    So each start also completes what a truncation of the log means for the history.  Raises `StoreError` if files
    exist and none can be trusted, `DiskFull` or `DiskFailed`.
    """

    def __init__(self, disk: Disk, path: Path, log_end: int) -> None:
        self._disk = disk
        self.path = path
        found, is_current = self._load()
        self._history = found
        self._accepted = -1 if found.last is None else found.last.number
        cut = found.cut_at(log_end)
        if cut != found or not is_current:
            logger.info("event=epochs_cut file=%s log_end=%d epochs=%d kept=%d", path, log_end, *_counts(found, cut))
            self._replace(cut)

    @property
    def backup(self) -> Path:
        """Path of the second copy."""
        return self.path.with_name(self.path.name + ".bak")

    @property
    def history(self) -> EpochHistory:
        """Epochs of the log, as they are on the disk."""
        return self._history

    @property
    def accepted(self) -> int:
        """The newest epoch that this process knows; -1 if none.  A master of an older one must not be followed.

        It does not shrink when the log is truncated.
        """
        return self._accepted

    def accept(self, number: int) -> None:
        """Note that a master of epoch `number` exists, which needs not have written anything."""
        self._accepted = max(self._accepted, number)

    # Changes.  Each returns once it is on the disk.  After `DiskFull` or `DiskFailed` the history has not changed.

    def begin(self, epoch: Epoch) -> None:
        """Begin `epoch`, the newest one, where the log ends.  Epochs in which nothing was written are left out.

        To begin the last epoch again at the same offset changes nothing.  Raises `StoreError` for an older epoch.
        """
        if epoch == self._history.last:
            return
        if not 0 <= epoch.number <= MAX_EPOCH:
            raise StoreError(f"epoch {epoch.number} does not fit into {self.path}")
        try:
            begun = self._history.begun(epoch)
        except ProtocolError as error:
            raise StoreError(f"{self.path}: {error.detail}") from None
        self.replace(begun)
        logger.info("event=epoch_begun epoch=%d start=%d", epoch.number, epoch.start_offset)

    def cut_at(self, offset: int) -> None:
        """Take out the epochs that begin at `offset` or later: the log was truncated there."""
        self.replace(self._history.cut_at(offset))

    def without_before(self, offset: int) -> None:
        """Take out the epochs that end at `offset` or before: retention removed their part of the log."""
        self.replace(self._history.without_before(offset))

    def replace(self, history: EpochHistory) -> None:
        """Take over `history`, such as that of a master with whose log this one was compared."""
        history = EpochHistory(history.epochs[-MAX_EPOCHS:])
        if history != self._history:
            self._replace(history)

    # Inside

    def _replace(self, history: EpochHistory) -> None:
        if history.epochs:
            content = encode_epochs((epoch.number, epoch.start_offset) for epoch in history.epochs)
            self._write(self.path, content)
            self._history = history
            self.accept(history.epochs[-1].number)
            self._write(self.backup, content)
        else:
            # The backup first: without its file it would count.
            self._disk.remove(self.backup)
            self._disk.remove(self.path)
            self._history = history

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        self._disk.write_small(temporary, content)
        self._disk.rename(temporary, path)

    def _load(self) -> tuple[EpochHistory, bool]:
        """Return the history, and whether it is that of the file itself, or there is none."""
        reasons = []
        for path in (self.path, self.backup):
            found = read_epochs(self._disk, path)
            if found is None:
                continue
            if isinstance(found, str):
                reasons.append(f"{path}: {found}")
                logger.warning("event=epoch_file_broken file=%s reason=%r", path, found)
            elif found or path == self.backup:
                return EpochHistory(Epoch(*epoch) for epoch in found), path == self.path
        if reasons:
            raise StoreError(
                f"{'; '.join(reasons)}.  Move these files away.  The broker then starts without epochs, loses "
                "elections against replicas with epochs, and compares its log with that of its master by checksums"
            )
        return EpochHistory(), True


def _counts(before: EpochHistory, after: EpochHistory) -> tuple[int, int]:
    return len(before.epochs), len(after.epochs)
