"""The one place where tests reach into a store: what its threads do, done at once, and parts that nobody else sees."""

from sprocket.common.errors import DiskFailed
from store.flush.group_commit import GroupCommit
from store.flush.queue_flush import QueueFlush
from store.index.index_files import IndexFiles
from store.log.commit_log import CommitLog
from store.log.log_scan import LogScan
from store.message_store import MessageStore
from store.queue.consume_queue_table import ConsumeQueueTable
from store.record.record import Record
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_state import TimerState


def commit_log_of(store: MessageStore) -> CommitLog:
    """Return the log below the store's own interface."""
    return store._commit_log


def group_commit_of(store: MessageStore) -> GroupCommit:
    """Return what syncs the log."""
    return store._group_commit


def queue_flush_of(store: MessageStore) -> QueueFlush:
    """Return what syncs the queues and writes the checkpoint."""
    return store._queue_flush


def queues_of(store: MessageStore) -> ConsumeQueueTable:
    """Return the table of the queues."""
    return store._table


def timer_state_of(timer: TimerMessageStore) -> TimerState:
    """Return the wheel and the log of a timer."""
    return timer._state


def close_files(store: MessageStore) -> None:
    """Close the files of a store without flushing; its threads must have ended."""
    store._close()


def crash(store: MessageStore) -> None:
    """End the store's threads and descriptors as SIGKILL would: nothing is flushed, `abort` stays."""
    group_commit_of(store).stop()
    queue_flush_of(store).stop()
    close_files(store)


def flush_log(store: MessageStore) -> DiskFailed | None:
    """Sync the log and report it, as the thread of the group commit does; return its error."""
    reached, error = group_commit_of(store).flush()
    store._on_flushed(reached, error)
    return error


def flush_queues(store: MessageStore) -> None:
    """Sync all queues."""
    queue_flush_of(store).flush_all()


def queue_flush_turn(store: MessageStore) -> bool:
    """Do a turn of the thread of the queue flush in which everything is due; return whether the thread goes on."""
    queue_flush_of(store)._last_thorough = -1e9
    return queue_flush_of(store)._turn()


def records_of(store: MessageStore) -> list[Record]:
    """Return the records of the log, each with its CRC checked."""
    return list(LogScan(commit_log_of(store), 0, check_crc=True))


def index_of(store: MessageStore) -> IndexFiles:
    """Return the index's files, as the index holds them."""
    return store.index._files


def write_confirm_mark(store: MessageStore) -> None:
    """Write how far readers of the files may read."""
    store.cleaner._mark.write()
