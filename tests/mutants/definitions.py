"""Bugs to plant, each one small and each one a promise broken; the tests named must notice it.

`old` stands exactly once in the file and is replaced by `new`.
"""

from typing import Final

from tests.mutants.cluster_bugs import CLUSTER_MUTANTS
from tests.mutants.command_bugs import COMMAND_MUTANTS
from tests.mutants.controller_bugs import CONTROLLER_MUTANTS
from tests.mutants.epoch_bugs import EPOCH_MUTANTS
from tests.mutants.idempotence_bugs import IDEMPOTENCE_MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.proxy_bugs import PROXY_MUTANTS
from tests.mutants.raft_bugs import RAFT_MUTANTS
from tests.mutants.role_bugs import ROLE_MUTANTS

__all__ = ["MUTANTS", "Mutant"]


_GROUP_COMMIT: Final = ("tests/store/flush/test_group_commit.py",)
_FULL: Final = ("tests/store/test_disk_full.py", "tests/store/test_write_order.py")
_ORDER: Final = ("tests/store/test_write_order.py",)
_RECOVERY: Final = ("tests/store/recovery/test_recovery.py", "tests/store/recovery/test_truncation.py")
_DISK: Final = ("tests/store/disk/test_disk.py", "tests/store/test_write_order.py")
_REPLICAS: Final = ("tests/store/test_confirmation_replicas.py",)
_REPLICATION: Final = ("tests/broker/replication/test_replication.py",)
_SESSION: Final = ("tests/ha/test_session.py",)
_POLLING: Final = "tests/broker/slave/test_slave_synchronize.py"

MUTANTS: Final = (
    # Access control
    Mutant(
        "what names no topic or group free for every account",
        "acl/plain/requests.py",
        "        else:\n            return None\n",
        "",
        "an account without rights would read the configuration and the offsets of all groups",
        ("tests/acl/test_access_matrix.py",),
    ),
    Mutant(
        "control characters written to the log",
        "sprocket/common/logs/line_format.py",
        "        text = escaped(super().formatMessage(record))\n",
        "        text = super().formatMessage(record)\n",
        "a group name with a line break would forge a line of the audit log",
        ("tests/common/logs/test_line_format.py",),
    ),
    Mutant(
        "audit log silenced by an update of levels",
        "sprocket/common/logs/levels.py",
        "        logging.getLogger(AUDIT).setLevel(start)\n",
        "",
        "who may change levels could act without a trace",
        ("tests/common/logs/test_levels.py",),
    ),
    Mutant(
        "start with a route without a rule",
        "acl/auth/requests.py",
        "        invariant(not reason,",
        "        invariant(not reason or True,",
        "a request code that somebody adds would be served without anybody deciding who may ask it",
        ("tests/acl/test_access_matrix.py",),
    ),
    # Start
    Mutant(
        "port of slaves taken late",
        "broker/term.py",
        "        for service in self.parts.services:\n            await service.bind()\n",
        "",
        "an outgoing connection could take the port while the store recovers",
        ("tests/broker/test_start_failures.py",),
    ),
    # Where a new group begins
    Mutant(
        "new group not told where an empty queue begins",
        "broker/processor/consumer_offsets.py",
        "and not self._store.max_offset(topic, queue_id)\n",
        "and False\n",
        "a message that arrives before the group asks for the end of the queue is lost to it",
        ("tests/broker/processor/test_consumer_offsets.py",),
    ),
    # Syncs and acknowledgements
    Mutant(
        "log sync skipped",
        "store/disk/real_file.py",
        "            os.fdatasync(self._descriptor)\n",
        "",
        "SYNC_FLUSH would acknowledge what a power cut takes",
        _DISK,
    ),
    Mutant(
        "acknowledged before the sync",
        "store/flush/confirmation.py",
        "        return self.flushed_offset if self._is_sync_flush else self.appended_offset\n",
        "        return self.appended_offset\n",
        "with SYNC_FLUSH the confirm offset is what is written",
        _GROUP_COMMIT,
    ),
    Mutant(
        "sync covers a batch that is being written",
        "store/flush/confirmation.py",
        "        flushed, appended = self.flushed_offset, self.appended_offset\n",
        "        flushed, appended = self.flushed_offset, self._log.wrote_offset\n",
        "taken back for want of space, the next batch there is acknowledged without a sync",
        ("tests/store/flush/test_confirmation.py",),
    ),
    Mutant(
        "write during a sync taken for synced",
        "store/disk/open_files.py",
        "        try:\n"
        "            file.write(position, content)\n"
        "        finally:\n"
        "            # After the write: a sync that began before the write ended may not cover it.\n"
        "            if not self.is_dirty:\n"
        "                self.is_dirty = True\n"
        "                self._disk.count_dirty(1)\n",
        "        if not self.is_dirty:\n"
        "            self.is_dirty = True\n"
        "            self._disk.count_dirty(1)\n"
        "        file.write(position, content)\n",
        "the file may be closed, and a later sync of it does nothing",
        ("tests/store/disk/test_open_files.py",),
    ),
    Mutant(
        "failed sync of a queue tried again",
        "store/disk/open_files.py",
        "        if self._failure is not None:\n            raise DiskFailed(str(self._failure))\n",
        "",
        "the list of queues would name entries that the kernel has dropped",
        ("tests/store/disk/test_open_files.py",),
    ),
    Mutant(
        "failed sync counts as done",
        "store/flush/group_commit.py",
        "            return flushed, self._failure\n        return wrote, None\n",
        "            return wrote, None\n        return wrote, None\n",
        "the flushed offset moves after a sync that failed",
        _GROUP_COMMIT,
    ),
    Mutant(
        "failed sync tried again",
        "store/flush/group_commit.py",
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
        "store/flush/confirmation.py",
        "        self.failure = error\n",
        "",
        "after a failed sync the next one would acknowledge again",
        _GROUP_COMMIT,
    ),
    Mutant(
        "waiters told success on failure",
        "store/flush/confirmation.py",
        "            self._waiters.popleft()[1](error)\n",
        "            self._waiters.popleft()[1](None)\n",
        "a failed sync answers SEND_OK",
        _GROUP_COMMIT,
    ),
    Mutant(
        "published before it is confirmed",
        "store/flush/confirmation.py",
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
        "            batch.records = len(messages)\n            _BEFORE_LOG_WRITE()\n",
        "            batch.records = len(messages)\n            for queue, _ in batch.touched:\n"
        "                queue.write_pending()\n"
        "            _BEFORE_LOG_WRITE()\n",
        "after a crash a ConsumeQueue points to what is not there",
        _ORDER,
    ),
    Mutant(
        "queue offset not taken back",
        "store/appender.py",
        "                queue.roll_back(offset)\n            if chunks:\n",
        "                pass\n            if chunks:\n",
        "a batch that failed leaves a gap in its queue",
        _FULL,
    ),
    Mutant(
        "rolled back for errors of the store alone",
        "store/appender.py",
        "        except BaseException as error:\n            # Also MemoryError",
        "        except StoreError as error:\n            # Also MemoryError",
        "a message that was refused for want of memory is stored, and once more with its retry",
        ("tests/store/test_all_or_none.py",),
    ),
    Mutant(
        "half of a batch erased after an error that is none of the store's",
        "store/log/commit_log.py",
        "        except BaseException as error:\n            self.erase(chunks, error)\n",
        "        except StoreError as error:\n            self.erase(chunks, error)\n",
        "recovery would take the first chunk of a refused batch for records",
        ("tests/store/test_all_or_none.py",),
    ),
    Mutant(
        "batch split around a refused message",
        "store/delivery.py",
        "    return delivery.deliver(fitting, stored)\n",
        "    for message in fitting[:-1]:\n"
        "        delivery.deliver([message], lambda: None)\n"
        "    return delivery.deliver(fitting[-1:], stored)\n",
        "what was stored before the store was full is stored again with the retry of all",
        ("tests/store/test_delivery.py",),
    ),
    Mutant(
        "refused write left in the log",
        "store/log/commit_log.py",
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
        "store/record/record.py",
        "    return SIZE_AND_MAGIC.pack(size_bytes, MAGIC_BLANK)\n",
        "    return SIZE_AND_MAGIC.pack(size_bytes - 8, MAGIC_BLANK)\n",
        "a walk of the log stops at the end of the first segment",
        ("tests/store/test_message_store.py", "tests/store/recovery/test_recovery.py"),
    ),
    Mutant(
        "checkpoint ahead of the flush",
        "store/flush/confirmation.py",
        "        timestamp, flushed = self._flushed_timestamp, self.flushed_offset\n",
        "        timestamp, flushed = self._flushed_timestamp, self._log.wrote_offset\n",
        "recovery skips what no sync covered",
        _ORDER,
    ),
    # Names on the disk
    Mutant(
        "no directory sync after a creation",
        "store/disk/real_file.py",
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
        "sprocket/common/files/atomic_file.py",
        "        os.fsync(file.fileno())\n",
        "",
        "a power cut leaves an empty topics.json",
        ("tests/common/files/test_atomic_file.py",),
    ),
    Mutant(
        "rename of a configuration not synced",
        "sprocket/common/files/atomic_file.py",
        "        _AFTER_RENAME()\n        sync_directory(path.parent)\n",
        "        _AFTER_RENAME()\n",
        "a power cut brings the old topics.json back",
        ("tests/common/files/test_atomic_file.py",),
    ),
    Mutant(
        "first send acknowledged before its topic is saved",
        "broker/topic/topics.py",
        "        if self._pending and not self.is_relied_on:\n",
        "        if self._pending and self.is_relied_on:\n",
        "after a crash the topic of an acknowledged message is gone",
        ("tests/broker/test_first_use.py",),
    ),
    Mutant(
        "older content of a table written after a newer one",
        "sprocket/common/files/saved_table.py",
        "            if taken.number <= self._saved:\n                return\n",
        "",
        "a group's offset goes back to that of an earlier save",
        ("tests/common/files/test_saved_table.py",),
    ),
    # Recovery
    Mutant(
        "cut without zeros",
        "store/disk/mapped_file_queue.py",
        "            end = file.content_end(position)\n",
        "            end = position\n",
        "old records behind the cut come back",
        _RECOVERY,
    ),
    Mutant(
        "cut that is not synced",
        "store/log/commit_log.py",
        "            _CUT_BEFORE_SYNC()\n            located[0].sync()\n",
        "            _CUT_BEFORE_SYNC()\n",
        "what was cut is back after a power cut",
        (*_RECOVERY, *_ORDER),
    ),
    Mutant(
        "cut that leaves later segments",
        "store/disk/mapped_file_queue.py",
        "            self._disk.remove(file.path)\n            _CUT_BETWEEN_FILES()\n",
        "            _CUT_BETWEEN_FILES()\n",
        "stale segments stand behind the log's end",
        (*_RECOVERY, "tests/store/disk/test_mapped_file_queue.py"),
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
        "store/scan/record_batch.py",
        "    if check_crc:\n        fields.cut(",
        "    if False:\n        fields.cut(",
        "a damaged body is taken for whole",
        ("tests/store/log/test_log_scan.py", "tests/store/recovery/test_recovery.py"),
    ),
    Mutant(
        "CRC not checked record by record",
        "store/record/record.py",
        "    if check_crc:\n        damage = crc_damage(",
        "    if False:\n        damage = crc_damage(",
        "a damaged body is taken for whole",
        ("tests/store/record/test_record.py", "tests/store/recovery/test_recovery.py"),
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
        "            self._books.topic_deleted(topic, end)\n",
        "            pass\n",
        "after a crash a deleted topic's messages are back",
        (*_RECOVERY, *_ORDER),
    ),
    # Start and stop
    Mutant(
        "lock not taken",
        "store/disk/store_lock.py",
        "            return None\n",
        "            return StoreLock(-1)\n",
        "two brokers write one store",
        ("tests/store/disk/test_disk.py", "tests/store/test_message_store.py"),
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
        "broker/timer/schedule.py",
        "        while self._unflushed and self._unflushed[0][0] <= flushed_offset:\n",
        "        while self._unflushed:\n",
        "a crash loses delayed messages that were delivered and not flushed",
        ("tests/broker/timer/test_schedule.py",),
    ),
    Mutant(
        "consumer offsets beyond the queue kept",
        "broker/term.py",
        "        if core.role.serves_group and core.offsets.clamp(self._store.max_offset):\n",
        "        if False:\n",
        "after a crash a group skips messages that are sent later",
        ("tests/broker/test_server.py", "tests/broker/offset/test_consumer_offsets.py"),
    ),
    Mutant(
        "slots delivered before the rebuild's end",
        "store/timer/timer_message_store.py",
        "state.outstanding is None and not state.is_rebuilding\n",
        "state.outstanding is None\n",
        "timed messages that become due while a lost wheel is rebuilt pass for delivered",
        ("tests/store/timer/test_timer_files.py",),
    ),
    # Pop
    Mutant(
        "revive offset beyond a checkpoint that waits",
        "broker/pop/revive/revive_window.py",
        "        return (order[0].revive_offset if order else self.next_offset) - 1\n",
        "        return self.next_offset - 1\n",
        "a restart forgets what was popped and would come again a moment later",
        ("tests/broker/pop/revive/test_revive_window.py", "tests/broker/pop/revive/test_revive_service.py"),
    ),
    Mutant(
        "revive offset committed before the flush",
        "broker/pop/revive/revive_queue.py",
        "        while positions and positions[0][0] <= store.flushed_offset:\n",
        "        while positions:\n",
        "a power cut takes messages that came again, and they do not come once more",
        ("tests/broker/pop/revive/test_revive_service.py",),
    ),
    Mutant(
        "checkpoint settled without waiting for its acknowledgements",
        "broker/pop/revive/revive_window.py",
        "SETTLE_MS: Final = ACK_INTERVAL_MS + 1000\n",
        "SETTLE_MS: Final = 0\n",
        "acknowledged messages come again, because the timer brings the acknowledgement a moment later",
        ("tests/broker/pop/revive/test_revive_window.py",),
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
        "broker/client/queue_locks.py",
        "            held[queue] = mine\n",
        "            held[queue] = (client_id, renewed_at if holder == client_id else now)\n",
        "a queue is given to another member while the first one consumes it",
        ("tests/broker/client/test_queue_locks.py",),
    ),
    # Replication
    Mutant(
        "answered before a slave has it",
        "store/flush/confirmation.py",
        "        while senders and senders[0][0] <= local and senders[0][0] <= self.awaited_offset:\n",
        "        while senders and senders[0][0] <= local:\n",
        "with SYNC_MASTER a sender is answered by the acknowledgement of another message",
        _REPLICAS,
    ),
    Mutant(
        "what the lost slave did not have acknowledged",
        "store/flush/confirmation.py",
        "            callback(None, self._acknowledged >= end)\n",
        "            callback(None, True)\n",
        "SEND_OK when the slave disappears that was waited for",
        _REPLICATION,
    ),
    Mutant(
        "limit of replicas ignored by consumers",
        "store/flush/confirmation.py",
        "        return min(self.local_offset, self._limit)\n",
        "        return self.local_offset\n",
        "a consumer sees what is lost with the master's disk",
        _REPLICAS,
    ),
    Mutant(
        "confirm offset goes back",
        "store/flush/confirmation.py",
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
        "        is_in_sync = is_near and now - slave.caught_up_at <= self._rules.max_behind_s\n",
        "        is_in_sync = is_near and slave.caught_up_at > _NEVER\n",
        "all sends time out for ever, and consumers see nothing more",
        _REPLICATION,
    ),
    Mutant(
        "acknowledgement beyond what was sent accepted",
        "ha/master_link.py",
        "        elif offset > self.next_offset:\n",
        "        elif offset > self._log.end_offset:\n",
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
        "broker/send/confirm_waits.py",
        "            code = _SLAVE  # as in RocketMQ: if both are late, the slaves are named\n",
        "            code = _SUCCESS\n",
        "a sender that waited for slaves in vain is told SEND_OK",
        ("tests/broker/send/test_confirm_waits.py", *_REPLICATION),
    ),
    # Sessions of two Sprocket ends
    Mutant(
        "CRC of a frame not checked",
        "ha/session.py",
        "            if crc32(body, crc32(view[at : start - _CRC_BYTES])) != crc:\n",
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
        "the slave restarts with a log that is not its master's",
        ("tests/store/test_replica_cut.py",),
    ),
    Mutant(
        "proof of a slave not looked at",
        "ha/greeting.py",
        "        if not is_proof(expected, body):\n",
        "        if False:\n",
        "any program that reaches the port gets the log",
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
        "broker/replication/master_sessions.py",
        "            self._log.recover_tail()\n",
        "            self._log.lead()\n",
        "what a slave alone has is overwritten by the first send after a loss of power",
        ("tests/broker/test_sessions.py",),
    ),
    Mutant(
        "tables taken from a master whose log was not compared",
        "broker/slave/slave_synchronize.py",
        "not self._core.role.is_acting and self.may_poll()",
        "not self._core.role.is_acting",
        "a master with an empty disk takes the topics and group offsets of its slave away",
        (f"{_POLLING}::test_a_master_whose_log_is_not_followed_is_asked_for_nothing",),
    ),
    Mutant(
        "tables taken from a master with a shorter log",
        "broker/slave/slave_synchronize.py",
        "            if master_end >= own_end:\n",
        "            if master_end >= 0:\n",
        "a link that outlives its master lets an empty one take the slave's tables",
        (f"{_POLLING}::test_a_plain_link_that_outlives_its_master_vouches_for_no_other_log",),
    ),
    Mutant(
        "plain link vouches for a log before it was compared",
        "ha/slave_link.py",
        "        return self._has_begun and self._same_to >= self._same_end\n",
        "        return self._has_begun\n",
        "a master with another log takes the tables of its slave away",
        ("tests/ha/test_links.py",),
    ),
    Mutant(
        "question to a master that proved nothing",
        "broker/slave/slave_sessions.py",
        "        if not own.admits_plain:\n",
        "        if own.identity is None:\n",
        "a stranger at an open name server gets an admin signature that never expires",
        ("tests/broker/test_guarded_replication.py",),
    ),
    Mutant(
        "signed before the peer proved itself",
        "sprocket/remoting/client.py",
        "credentials=self.credentials if self._prover is None else None,",
        "credentials=self.credentials,",
        "a stranger at an open name server gets an admin signature that never expires",
        ("tests/broker/auth/test_peer_identity.py",),
    ),
    Mutant(
        "proof given for another address",
        "broker/auth/peer_identity.py",
        "        return address == self._config.broker.address\n",
        "        return bool(address)\n",
        "a stranger passes the question on to a true broker and is taken for it",
        ("tests/broker/auth/test_peer_identity.py",),
    ),
    Mutant(
        "greeting counts at any address",
        "ha/greeting.py",
        "own_address and hello.dialed != own_address:\n",
        "own_address and not hello.dialed:\n",
        "a stranger passes a greeting on, and then writes the slave's log and tables",
        ("tests/ha/test_greeting.py",),
    ),
    Mutant(
        "empty master does not wait",
        "broker/replication/master_sessions.py",
        "            return True  # its slaves can tell a new broker",
        "            return False  # its slaves can tell a new broker",
        "a SYNC_MASTER that lost its disk serves nothing of what its slave has, for ever",
        ("tests/broker/test_sessions.py",),
    ),
    Mutant(
        "master sends its empty tables to the slave that gave it the log",
        "ha/master_session.py",
        "        if self._tail.needs_tables:\n            # The slave",
        "        if False:\n            # The slave",
        "topics and group offsets are gone from both replicas",
        _SESSION,
    ),
    Mutant(
        "empty slave ends the wait for one with data",
        "ha/tail_recovery.py",
        "            self._on_empty_slave(name)\n            return\n",
        "            self._on_empty_slave(name)\n",
        "a master that lost its disk begins empty though another slave has everything",
        _SESSION,
    ),
    # The client
    Mutant(
        "body that is no buffer queued",
        "sprocket/remoting/outgoing.py",
        """        body = body if type(body) is bytes else as_body(body)
        header = self._signed(header, body)
        opaque""",
        """        header = self._signed(header, body)
        opaque""",
        "one bad message takes the requests of its neighbours with it",
        ("tests/client/test_producer_faults.py::test_bad_messages_harm_none_of_those_sent_with_them",),
    ),
    Mutant(
        "message of a revoked queue sent back",
        "sprocket/client/consumer.py",
        "if source is not None and (source.is_dropped or not source.is_pending(message)):",
        "if source is not None and not source.is_pending(message):",
        "the new owner of the queue gets the message, and a copy of it",
        ("tests/client/test_consumer.py::test_nack_on_a_revoked_queue_sends_nothing_back",),
    ),
    Mutant(
        "pulled by a version before brokers are told",
        "sprocket/client/consumer.py",
        """        await self._instance.heartbeat_all()
        self._told.update(told)""",
        """        self._told.update(told)
        await self._instance.heartbeat_all()""",
        "a healthy start is refused with SUBSCRIPTION_NOT_LATEST",
        ("tests/client/test_consumer.py::test_no_pull_names_a_version_that_brokers_were_not_told_of",),
    ),
    Mutant(
        "refusal by access control retried",
        "sprocket/client/send/sender.py",
        "    return refused.code in RETRY_CODES and not isinstance(refused, PermissionDenied)\n",
        "    return refused.code in RETRY_CODES\n",
        "a send without permission is tried three times and blames the brokers",
        ("tests/client/test_permission.py::test_send_without_permission_is_tried_once",),
    ),
    *CLUSTER_MUTANTS,
    # Answers
    Mutant(
        "key of a producer formatted into JSON",
        "broker/send/replies.py",
        "            if not unique_key.isalnum():\n",
        "            if not unique_key:\n",
        "a producer writes fields into the answers of a connection that others share",
        ("tests/broker/test_send.py",),
    ),
    Mutant(
        "request answered twice",
        "sprocket/remoting/channel.py",
        "            self._drop_answer(request)\n            return\n        request.is_answered = 1\n",
        "            self._drop_answer(request)\n        request.is_answered = 1\n",
        "a handler that fails late has its peer take the second answer for that of another request",
        ("tests/remoting/test_one_answer.py",),
    ),
    Mutant(
        "failure of a run answers all of it",
        "sprocket/remoting/channel.py",
        "        for request in requests:\n            request.is_answered = 1\n",
        "",
        "requests that have their answer are refused as well when their handler fails",
        ("tests/remoting/test_one_answer.py",),
    ),
    # Access control
    Mutant(
        "unguarded frame decoded",
        "sprocket/remoting/routes.py",
        "        if self.guard is not None:\n            return _admitted(frame)\n",
        "        if self.guard is not None and isinstance(frame, AdmittedFrame):\n            return frame.decoded\n",
        "a frame that by some mistake did not pass access control is served",
        ("tests/remoting/test_runs.py",),
    ),
    Mutant(
        "refused frames served as a whole",
        "sprocket/remoting/routes.py",
        "            if not all(isinstance(frame, AdmittedFrame) for frame in frames):\n",
        "            if not isinstance(frames[0], AdmittedFrame):\n",
        "a frame that by some mistake did not pass access control is served after one that did",
        ("tests/remoting/test_runs.py",),
    ),
    Mutant(
        "white list asked once",
        "acl/gate.py",
        "            return unsigned is not None and self._is_white(unsigned)\n",
        "            is_white = unsigned is not None and self._is_white(unsigned)\n"
        '            return bool(channel.attributes.setdefault("white", is_white))\n',
        "a connection from an address that was taken off the white list is still shown half messages",
        ("tests/acl/test_gate.py",),
    ),
    Mutant(
        "fields of JSON headers not counted",
        "sprocket/remoting/framing.py",
        "                self.has_large_header = True\n",
        "                self.has_large_header = False\n",
        "a header holds more fields than limits.py permits",
        ("tests/remoting/test_runs.py",),
    ),
    # Limits of a batch
    Mutant(
        "growth of a batch not bounded",
        "broker/send/client_batch.py",
        "    if total_bytes > allowed_bytes:\n",
        "    if total_bytes > 1 << 60:\n",
        "a request of 430 KB writes 450 MB",
        ("tests/broker/test_send.py",),
    ),
    Mutant(
        "members of a batch counted when all are there",
        "broker/send/client_batch.py",
        "        if len(found) == max_members:\n",
        "        if at + _MIN_MEMBER_BYTES > end and len(found) >= max_members:\n",
        "a request of 4 MB holds the loop for seconds",
        ("tests/broker/test_send.py",),
    ),
    # Kinds of sends
    Mutant(
        "checkpoint of a pop taken for a property of the user",
        "broker/send/send_kinds.py",
        "        names.POP_CK,\n",
        "",
        "a producer's POP_CK reaches consumers as if a broker had set it",
        ("tests/broker/send/test_send_kinds.py",),
    ),
    Mutant(
        "kind of a send told by its values",
        "broker/send/send_kinds.py",
        '    r"(?:\\A|\\x02)(DELAY',
        '    r"(?:\\A|\\x02|\\x01)(DELAY',
        "a user value can turn a message into another kind",
        ("tests/broker/send/test_send_kinds.py",),
    ),
    *COMMAND_MUTANTS,
    *IDEMPOTENCE_MUTANTS,
    *PROXY_MUTANTS,
    *RAFT_MUTANTS,
    *CONTROLLER_MUTANTS,
    *EPOCH_MUTANTS,
    *ROLE_MUTANTS,
)
