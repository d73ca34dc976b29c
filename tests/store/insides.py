"""The one place where tests reach into a store: what its threads do, done at once, and parts that nobody else sees."""

from sprocket.common.errors import DiskFailed
from store.index.index_files import IndexFiles
from store.log.log_scan import LogScan
from store.message_store import MessageStore
from store.record.record import Record


def crash(store: MessageStore) -> None:
    """End the store's threads and descriptors as SIGKILL would: nothing is flushed, `abort` stays."""
    store._group_commit.stop()
    store._queue_flush.stop()
    store._close()


def flush_log(store: MessageStore) -> DiskFailed | None:
    """Sync the log and report it, as the thread of the group commit does; return its error."""
    reached, error = store._group_commit.flush()
    store._on_flushed(reached, error)
    return error


def flush_queues(store: MessageStore) -> None:
    """Sync all queues."""
    store._queue_flush.flush_all()


def records_of(store: MessageStore) -> list[Record]:
    """Return the records of the log, each with its CRC checked."""
    return list(LogScan(store._commit_log, 0, check_crc=True))


def index_of(store: MessageStore) -> IndexFiles:
    """Return the index's files, as the index holds them."""
    return store.index._files


def write_confirm_mark(store: MessageStore) -> None:
    """Write how far readers of the files may read."""
    store.cleaner._mark.write()
