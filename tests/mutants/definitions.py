"""Bugs to plant, each one small and each one a promise broken; the tests named must notice it.

`old` stands exactly once in the file and is replaced by `new`.
"""

from typing import Final

from tests.mutants.cluster_bugs import CLUSTER_MUTANTS
from tests.mutants.command_bugs import COMMAND_MUTANTS
from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]


_GROUP_COMMIT: Final = ("tests/store/test_group_commit.py",)
_FULL: Final = ("tests/store/test_disk_full.py", "tests/store/test_write_order.py")
_ORDER: Final = ("tests/store/test_write_order.py",)
_RECOVERY: Final = ("tests/store/recovery/test_recovery.py", "tests/store/recovery/test_truncation.py")
_DISK: Final = ("tests/store/test_disk.py", "tests/store/test_write_order.py")
_REPLICAS: Final = ("tests/store/test_confirmation_replicas.py",)
_REPLICATION: Final = ("tests/broker/test_replication.py",)
_SESSION: Final = ("tests/ha/test_session.py",)

MUTANTS: Final = (
    # Syncs and acknowledgements
    Mutant(
        "log sync skipped",
        "store/real_file.py",
        "            os.fdatasync(self._descriptor)\n",
        "",
        "SYNC_FLUSH would acknowledge what a power cut takes",
        _DISK,
    ),
    Mutant(
        "acknowledged before the sync",
        "store/confirmation.py",
        "        return self.flushed_offset if self._is_sync_flush else self.appended_offset\n",
        "        return self.appended_offset\n",
        "with SYNC_FLUSH the confirm offset is what is written",
        _GROUP_COMMIT,
    ),
    Mutant(
        "sync covers a batch that is being written",
        "store/confirmation.py",
        "        flushed, appended = self.flushed_offset, self.appended_offset\n",
        "        flushed, appended = self.flushed_offset, self._log.wrote_offset\n",
        "taken back for want of space, the next batch there is acknowledged without a sync",
        ("tests/store/test_confirmation.py",),
    ),
    Mutant(
        "write during a sync taken for synced",
        "store/open_files.py",
        "        try:\n"
        "            file.write(position, content)\n"
        "        finally:\n"
        "            # After the write: a sync that began before it has ended need not cover it.\n"
        "            if not self.is_dirty:\n"
        "                self.is_dirty = True\n"
        "                self._disk.count_dirty(1)\n",
        "        if not self.is_dirty:\n"
        "            self.is_dirty = True\n"
        "            self._disk.count_dirty(1)\n"
        "        file.write(position, content)\n",
        "the file may be closed, and a later sync of it does nothing",
        ("tests/store/test_open_files.py",),
    ),
    Mutant(
        "failed sync of a queue tried again",
        "store/open_files.py",
        "        if self._failure is not None:\n            raise DiskFailed(str(self._failure))\n",
        "",
        "the list of queues would name entries that the kernel has dropped",
        ("tests/store/test_open_files.py",),
    ),
    Mutant(
        "failed sync counts as done",
        "store/group_commit.py",
        "            return flushed, self._failure\n        return wrote, None\n",
        "            return wrote, None\n        return wrote, None\n",
        "the flushed offset moves after a sync that failed",
        _GROUP_COMMIT,
    ),
    Mutant(
        "failed sync tried again",
        "store/group_commit.py",
        "            self._failure = error if isinstance(error, DiskFailed) else DiskFailed(repr(error))\n"
        "            return flushed, self._failure\n",
        "            try:\n"
        "                for file in files:\n"
        "                    file.sync()\n"
        "            except DiskFailed:\n"
        "                self._failure = DiskFailed(str(error))\n"
        "                return flushed, self._failure\n",
        "the kernel marked the lost pages clean, so the second sync says nothing",
        _ORDER,
    ),
    Mutant(
        "failure not latched",
        "store/confirmation.py",
        "        self.failure = error\n",
        "",
        "after a failed sync the next one would acknowledge again",
        _GROUP_COMMIT,
    ),
    Mutant(
        "waiters told success on failure",
        "store/confirmation.py",
        "            self._waiters.popleft()[1](error)\n",
        "            self._waiters.popleft()[1](None)\n",
        "a failed sync answers SEND_OK",
        _GROUP_COMMIT,
    ),
    Mutant(
        "published before it is confirmed",
        "store/confirmation.py",
        "        if not self._unconfirmed and self.confirm_offset >= batch.end_offset:\n",
        "        if not self._unconfirmed:\n",
        "consumers see what a crash then loses",
        _ORDER,
    ),
    Mutant(
        "read beyond the confirm offset",
        "store/message_store.py",
        "physical_offset + len(record) > self.confirm_offset",
        "physical_offset + len(record) > self.wrote_offset",
        "a message viewed by its id may be lost by a crash",
        _ORDER,
    ),
    Mutant(
        "index ahead of the confirm offset",
        "store/index/index_builder.py",
        "        if base >= confirm:\n            return False\n",
        "        confirm = log.wrote_offset\n        if base >= confirm:\n            return False\n",
        "a query finds what a crash then loses",
        ("tests/store/index/test_index_service.py",),
    ),
    # Order and completeness of an append
    Mutant(
        "queue written before the log",
        "store/appender.py",
        "            _BEFORE_LOG_WRITE()\n",
        "            for queue, _ in batch.touched:\n"
        "                queue.write_pending()\n"
        "            _BEFORE_LOG_WRITE()\n",
        "after a crash a ConsumeQueue points to what is not there",
        _ORDER,
    ),
    Mutant(
        "queue offset not taken back",
        "store/appender.py",
        "        except BaseException:\n            _take_back(batch)\n            raise\n",
        "        except BaseException:\n            raise\n",
        "a batch that failed leaves a gap in its queue",
        _FULL,
    ),
    Mutant(
        "refused write left in the log",
        "store/commit_log.py",
        "            self.erase(chunks, error)\n            raise\n        self.wrote_offset = end_offset\n",
        "            raise\n        self.wrote_offset = end_offset\n",
        "recovery would take a refused message for a record",
        _FULL,
    ),
    Mutant(
        "off by one at the segment's end",
        "store/appender.py",
        "            if position + size > limit:\n",
        "            if position + size > limit + 1:\n",
        "a record leaves no room for the blank behind it",
        ("tests/store/test_message_store.py",),
    ),
    Mutant(
        "blank of a wrong size",
        "store/record.py",
        '    return struct.pack(">ii", size_bytes, MAGIC_BLANK)\n',
        '    return struct.pack(">ii", size_bytes - 8, MAGIC_BLANK)\n',
        "a walk of the log stops at the end of the first segment",
        ("tests/store/test_message_store.py", "tests/store/recovery/test_recovery.py"),
    ),
    Mutant(
        "checkpoint ahead of the flush",
        "store/confirmation.py",
        "        timestamp, flushed = self._flushed_timestamp, self.flushed_offset\n",
        "        timestamp, flushed = self._flushed_timestamp, self._log.wrote_offset\n",
        "recovery skips what no sync covered",
        _ORDER,
    ),
    # Names on the disk
    Mutant(
        "no directory sync after a creation",
        "store/real_file.py",
        "            if self._is_new:\n",
        "            if False:\n",
        "a power cut takes a whole segment, though its content was synced",
        _DISK,
    ),
    Mutant(
        "names of a killed process not synced",
        "store/recovery/bookkeeping.py",
        "            self._disk.sync_entries(directory)\n",
        "            pass\n",
        "killed, started again, then a power cut: a segment is gone",
        _ORDER,
    ),
    Mutant(
        "configuration renamed without fsync",
        "sprocket/common/atomic_file.py",
        "        os.fsync(file.fileno())\n",
        "",
        "a power cut leaves an empty topics.json",
        ("tests/common/test_atomic_file.py",),
    ),
    Mutant(
        "rename of a configuration not synced",
        "sprocket/common/atomic_file.py",
        "    _AFTER_RENAME()\n    sync_directory(path.parent)\n",
        "    _AFTER_RENAME()\n",
        "a power cut brings the old topics.json back",
        ("tests/common/test_atomic_file.py",),
    ),
    # Recovery
    Mutant(
        "cut without zeros",
        "store/mapped_file_queue.py",
        "            end = file.content_end(position)\n",
        "            end = position\n",
        "old records behind the cut come back",
        _RECOVERY,
    ),
    Mutant(
        "cut that is not synced",
        "store/commit_log.py",
        "            _CUT_BEFORE_SYNC()\n            located[0].sync()\n",
        "            _CUT_BEFORE_SYNC()\n",
        "what was cut is back after a power cut",
        (*_RECOVERY, *_ORDER),
    ),
    Mutant(
        "cut that leaves later segments",
        "store/mapped_file_queue.py",
        "            self._disk.remove(file.path)\n            _CUT_BETWEEN_FILES()\n",
        "            _CUT_BETWEEN_FILES()\n",
        "stale segments stand behind the log's end",
        (*_RECOVERY, "tests/store/test_mapped_file_queue.py"),
    ),
    Mutant(
        "cut without its intent",
        "store/recovery/truncation.py",
        "        if content:\n            self.begin(end)\n",
        "",
        "a crash in the middle of a cut leaves half of it",
        _RECOVERY,
    ),
    Mutant(
        "checkpoint from the future not noticed",
        "store/recovery/bookkeeping.py",
        "        if confirm > end:\n",
        "        if False:\n",
        "nobody hears that a checkpoint cannot be right",
        ("tests/store/recovery/test_damage.py::test_a_checkpoint_that_cannot_be_right_is_named_and_not_trusted",),
    ),
    Mutant(
        "CRC not checked in arrays",
        "store/record_batch.py",
        "    if check_crc:\n        fields.cut(",
        "    if False:\n        fields.cut(",
        "a damaged body is taken for whole",
        ("tests/store/test_chunk_scan.py", "tests/store/recovery/test_recovery.py"),
    ),
    Mutant(
        "CRC not checked record by record",
        "store/record.py",
        "    if check_crc:\n        damage = _damage(",
        "    if False:\n        damage = _damage(",
        "a damaged body is taken for whole",
        ("tests/store/test_record.py", "tests/store/recovery/test_recovery.py"),
    ),
    Mutant(
        "recovered log not synced",
        "store/recovery/recovery.py",
        "        for file in log.files_between(report.start_offset, report.end_offset):\n            file.sync()\n",
        "",
        "a killed process's records count as flushed and lie in the page cache alone",
        _RECOVERY,
    ),
    Mutant(
        "deleted topic not written down",
        "store/retention/queue_removal.py",
        "            self._books.topic_deleted(topic)\n",
        "            pass\n",
        "after a crash a deleted topic's messages are back",
        (*_RECOVERY, *_ORDER),
    ),
    # Start and stop
    Mutant(
        "lock not taken",
        "store/store_lock.py",
        "            return None\n",
        "            return StoreLock(-1)\n",
        "two brokers write one store",
        ("tests/store/test_disk.py", "tests/store/test_message_store.py"),
    ),
    Mutant(
        "abort removed before the flush",
        "store/message_store.py",
        "            _STOP_BEFORE_FLUSH()\n",
        "            _STOP_BEFORE_FLUSH()\n            self._books.stopped()\n",
        "a crash while stopping passes for a clean stop",
        _ORDER,
    ),
    # Retention
    Mutant(
        "retention removes the last segment",
        "store/retention/rules.py",
        "    if segment.end >= segment.wrote_offset or segment.end >= segment.flushed_offset:\n",
        "    if False:\n",
        "the log loses the segment that is being written",
        ("tests/store/retention/test_rules.py", "tests/store/retention/test_cleaner.py"),
    ),
    Mutant(
        "lease ignored",
        "store/retention/rules.py",
        "    held = segment.held_from is not None and segment.held_from < segment.end\n",
        "    held = False\n",
        "a backup or Spark loses segments that it holds",
        ("tests/store/retention/test_rules.py", "tests/store/retention/test_cleaner.py"),
    ),
    # Broker
    Mutant(
        "delay offset saved before the flush",
        "broker/schedule.py",
        "        while self._unflushed and self._unflushed[0][0] <= flushed_offset:\n",
        "        while self._unflushed:\n",
        "a crash loses delayed messages that were delivered and not flushed",
        ("tests/broker/test_schedule.py",),
    ),
    Mutant(
        "consumer offsets beyond the queue kept",
        "broker/server.py",
        "            self.offsets.clamp(self.store.max_offset)\n",
        "",
        "after a crash a group skips messages that are sent later",
        ("tests/broker/test_server.py", "tests/broker/test_consumer_offsets.py"),
    ),
    # Pop
    Mutant(
        "revive offset beyond a checkpoint that waits",
        "broker/pop/revive_window.py",
        "        return (order[0].revive_offset if order else self.next_offset) - 1\n",
        "        return self.next_offset - 1\n",
        "a restart forgets what was popped and would come again a moment later",
        ("tests/broker/pop/test_revive_window.py", "tests/broker/pop/test_revive.py"),
    ),
    Mutant(
        "revive offset committed before the flush",
        "broker/pop/revive_queue.py",
        "        while positions and positions[0][0] <= store.flushed_offset:\n",
        "        while positions:\n",
        "a power cut takes messages that came again, and they do not come once more",
        ("tests/broker/pop/test_revive.py",),
    ),
    Mutant(
        "checkpoint settled without waiting for its acknowledgements",
        "broker/pop/revive_window.py",
        "SETTLE_MS: Final = ACK_INTERVAL_MS + 1000\n",
        "SETTLE_MS: Final = 0\n",
        "acknowledged messages come again, because the timer brings the acknowledgement a moment later",
        ("tests/broker/pop/test_revive_window.py",),
    ),
    # Transactions and orderly groups
    Mutant(
        "cut commit not looked for",
        "broker/transaction/recovery.py",
        "    _find_committed(store, table, found)\n    logger",
        "    logger",
        "a transaction that a crash cut is asked about again, and its message comes twice",
        ("tests/broker/transaction/test_crashes.py",),
    ),
    Mutant(
        "renewal of a lock not counted",
        "broker/queue_locks.py",
        "            held[queue] = (client_id, now)\n",
        "            held[queue] = (client_id, renewed_at if holder == client_id else now)\n",
        "a queue is given to another member while the first one consumes it",
        ("tests/broker/test_queue_locks.py",),
    ),
    # Replication
    Mutant(
        "answered before a slave has it",
        "store/confirmation.py",
        "        while senders and senders[0][0] <= local and senders[0][0] <= self.awaited_offset:\n",
        "        while senders and senders[0][0] <= local:\n",
        "with SYNC_MASTER a sender is answered by the acknowledgement of another message",
        _REPLICAS,
    ),
    Mutant(
        "what the lost slave did not have acknowledged",
        "store/confirmation.py",
        "            callback(None, self._acknowledged >= end)\n",
        "            callback(None, True)\n",
        "SEND_OK when the slave disappears that was waited for",
        _REPLICATION,
    ),
    Mutant(
        "limit of replicas ignored by consumers",
        "store/confirmation.py",
        "        return min(self.local_offset, self._limit)\n",
        "        return self.local_offset\n",
        "a consumer sees what is lost with the master's disk",
        _REPLICAS,
    ),
    Mutant(
        "confirm offset goes back",
        "store/confirmation.py",
        "        self._limit = confirm if limit is None or limit < confirm else limit\n",
        "        self._limit = confirm if limit is None else limit\n",
        "what a consumer has seen is not there any more when a slave comes back",
        _REPLICAS,
    ),
    Mutant(
        "taken with too few replicas",
        "store/retention/back_pressure.py",
        "        refuses = self._disk_full or self._lacks_replicas or self._is_flush_slow()",
        "        refuses = self._disk_full or self._is_flush_slow()",
        "minInSyncReplicas keeps nothing from being taken",
        _REPLICAS,
    ),
    Mutant(
        "one slave counted twice",
        "ha/replicas.py",
        "        offsets = [slave.has for slave in self._slaves.values() if slave.is_in_sync]\n",
        "        offsets = [at for it in self._slaves.values() if it.is_in_sync for at in it.connections.values()]\n",
        "a slave that is connected twice acknowledges for two",
        ("tests/ha/test_replicas.py", *_REPLICATION),
    ),
    Mutant(
        "slave that stands still stays in sync",
        "ha/replicas.py",
        "        is_in_sync = is_near and now - slave.caught_up_at <= self.rules.max_behind_s\n",
        "        is_in_sync = is_near and slave.caught_up_at > _NEVER\n",
        "all sends time out for ever, and consumers see nothing more",
        _REPLICATION,
    ),
    Mutant(
        "acknowledgement beyond what was sent accepted",
        "ha/master_link.py",
        "            elif offset > self.next_offset:\n",
        "            elif offset > self._log.end_offset:\n",
        "what the slave was never sent counts as replicated",
        _REPLICATION,
    ),
    Mutant(
        "first report of what was never sent accepted",
        "ha/master_link.py",
        "        if self._known_offset is not None and offset > (known := self._known_offset()):\n",
        "        if self._known_offset is not None and offset > (known := self._log.end_offset):\n",
        "the tail of an old master counts as a copy of other messages",
        _REPLICATION,
    ),
    Mutant(
        "slave's timeout answered as acknowledged",
        "broker/confirm_waits.py",
        "            code = _SLAVE  # as the reference: of two that are late the slaves are named\n",
        "            code = _SUCCESS\n",
        "a sender that waited for slaves in vain is told SEND_OK",
        ("tests/broker/test_confirm_waits.py", *_REPLICATION),
    ),
    # Sessions of two Sprocket ends
    Mutant(
        "CRC of a frame not checked",
        "ha/session.py",
        "            if crc32(body, crc32(view[at : at + head_bytes - _CRC_BYTES])) != crc:\n",
        "            if False:\n",
        "a bit that flips on the way stands in the slave's log, or in what it acknowledges",
        _SESSION,
    ),
    Mutant(
        "epoch of a frame ignored",
        "ha/session.py",
        "        if one.epoch != epoch:\n",
        "        if False:\n",
        "what was said to another master counts for this one",
        _SESSION,
    ),
    Mutant(
        "slave resumes where its log ends without comparing",
        "ha/slave_session.py",
        "        if search.end == end:\n",
        "        if search.end >= 0:\n",
        "a slave of a master that lost its tail goes on with other records behind it",
        _SESSION,
    ),
    Mutant(
        "log cut in the middle of a record",
        "ha/slave_session.py",
        "        self._common_end = log.record_end(search.end)\n",
        "        self._common_end = search.end\n",
        "what is left behind the cut is half a record",
        _SESSION,
    ),
    Mutant(
        "replica cut without its intent",
        "store/recovery/truncation.py",
        "record_offset, now_ms)\n        self.begin(end)\n",
        "record_offset, now_ms)\n",
        "the slave begins anew with the log that is not its master's",
        ("tests/store/test_replica_cut.py",),
    ),
    Mutant(
        "proof of a slave not looked at",
        "ha/greeting.py",
        "        if not is_proof(expected, body):\n",
        "        if False:\n",
        "whoever reaches the port gets the log",
        ("tests/ha/test_greeting.py",),
    ),
    Mutant(
        "table sent before its log",
        "ha/table_queue.py",
        "        while self._waiting and self._waiting[0].position <= sent_offset:\n",
        "        while self._waiting:\n",
        "a group of a surviving slave begins behind what that has",
        _SESSION,
    ),
    Mutant(
        "topics sent after their messages",
        "ha/listener.py",
        "            self._listener.before_log(session)\n",
        "            pass\n",
        "a slave that acts has messages of topics that it does not know",
        ("tests/broker/test_sessions.py",),
    ),
    Mutant(
        "log shown before a slave has it",
        "ha/tail_recovery.py",
        "        if not self._needs_copy or acked_offset >= log.end_offset:\n",
        "        if True:\n",
        "consumers of a master with minInSyncReplicas see what one fault takes",
        _SESSION,
    ),
    Mutant(
        "cut by what the master's log was",
        "ha/slave_session.py",
        "if one.offset > self._compared_to else",
        "if False else",
        "a slave cuts off what its master has got from another slave",
        _SESSION,
    ),
    Mutant(
        "messages taken before the lost tail is back",
        "broker/master_sessions.py",
        "            self._log.recover_tail()\n",
        "            self._log.lead()\n",
        "what a slave alone has is overwritten by the first send after a loss of power",
        ("tests/broker/test_sessions.py",),
    ),
    *CLUSTER_MUTANTS,
    *COMMAND_MUTANTS,
)
