"""Every byte layout of the store, declared once: numpy types, sizes and magic numbers.

Source: RocketMQ 5.3.3, `CommitLog`, `ConsumeQueue`, `IndexFile`, `IndexHeader`, `StoreCheckpoint`, `TimerWheel`,
`TimerLog`, `TimerCheckpoint`.
All integers on disk are big-endian.  Files of a log or queue are named by their first byte's offset
in that log or queue: 20 decimal digits, zero-padded.
"""

from typing import Final

import numpy as np

from sprocket.remoting.message.record import (
    FIXED_FIELDS,
    HEAD,
    IPV4_HOST_BYTES,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_TIMESTAMP,
    TAIL,
)

__all__ = [
    "BATCH_CONSUME_QUEUE_DTYPE",
    "BATCH_CONSUME_QUEUE_UNITS_PER_FILE",
    "BATCH_CONSUME_QUEUE_UNIT_BYTES",
    "CHECKPOINT_BYTES",
    "CHECKPOINT_DTYPE",
    "COMMIT_LOG_FILE_BYTES",
    "CONSUME_QUEUE_DTYPE",
    "CONSUME_QUEUE_ENTRIES_PER_FILE",
    "CONSUME_QUEUE_UNIT_BYTES",
    "FILE_NAME_DIGITS",
    "HEAD",
    "INDEX_HEADER_DTYPE",
    "INDEX_SLOTS_PER_FILE",
    "INDEX_SLOT_BYTES",
    "INDEX_UNITS_PER_FILE",
    "INDEX_UNIT_DTYPE",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "RECORD_FIXED_DTYPE",
    "RECORD_IPV4_DTYPE",
    "STORE_TIMESTAMP",
    "TAIL",
    "TIMER_CHECKPOINT_DTYPE",
    "TIMER_SLOT_DTYPE",
    "TIMER_UNIT_DTYPE",
    "file_name",
    "index_file_bytes",
]

FILE_NAME_DIGITS: Final = 20
# Where about the log of a broker begins that serves an archive of others: after all offsets that an archive can have,
# so that an offset says in which of both a message is.
AFTER_ARCHIVES: Final = 1 << 52
COMMIT_LOG_FILE_BYTES: Final = 1024 * 1024 * 1024  # mappedFileSizeCommitLog
CONSUME_QUEUE_ENTRIES_PER_FILE: Final = 300_000  # mappedFileSizeConsumeQueue / 20

# The fields before the body of a record whose two hosts are IPv4.
RECORD_IPV4_DTYPE: Final = np.dtype(
    [(name, {"i": ">i4", "q": ">i8"}.get(code, f"V{IPV4_HOST_BYTES}")) for name, code in FIXED_FIELDS]
)
# The fields of a record whose position does not depend on its flags: from offset 0 to before the born host.
RECORD_FIXED_DTYPE: Final = np.dtype(RECORD_IPV4_DTYPE.descr[: [name for name, _ in FIXED_FIELDS].index("born_host")])

# One entry of consumequeue/<topic>/<queueId>/; entry k of a queue lies at byte 20 * k of the queue.
CONSUME_QUEUE_DTYPE: Final = np.dtype(
    [
        ("physical_offset", ">i8"),  # of the record in the CommitLog
        ("size", ">i4"),  # bytes of the record
        ("tags_code", ">i8"),  # Java hashCode of the tag; for SCHEDULE_TOPIC_XXXX the delivery time in ms
    ]
)
CONSUME_QUEUE_UNIT_BYTES: Final = CONSUME_QUEUE_DTYPE.itemsize

# One unit of batchconsumequeue/<topic>/<queueId>/ (`BatchConsumeQueue`): a record and the queue offsets it occupies.
BATCH_CONSUME_QUEUE_DTYPE: Final = np.dtype(
    [
        ("physical_offset", ">i8"),  # of the record in the CommitLog
        ("size", ">i4"),  # bytes of the record
        ("tags_code", ">i8"),  # Java hashCode of the record's tag
        ("store_timestamp", ">i8"),  # ms
        ("base_offset", ">i8"),  # queue offset of the record's first message
        ("batch_size", ">i2"),  # messages in the record
        ("compacted_offset", ">i4"),  # -1: not compacted
        ("reserved", ">i4"),  # 0
    ]
)
BATCH_CONSUME_QUEUE_UNIT_BYTES: Final = BATCH_CONSUME_QUEUE_DTYPE.itemsize
BATCH_CONSUME_QUEUE_UNITS_PER_FILE: Final = 300_000  # mapperFileSizeBatchConsumeQueue / 46

# checkpoint: one 4 KiB page; only these first fields are used.
CHECKPOINT_BYTES: Final = 4096
CHECKPOINT_DTYPE: Final = np.dtype(
    [
        ("physic_msg_timestamp", ">i8"),  # ms, store timestamp of the last flushed record
        ("logics_msg_timestamp", ">i8"),  # ms, the same for the ConsumeQueue
        ("index_msg_timestamp", ">i8"),  # ms, the same for the index
        ("master_flushed_offset", ">i8"),
        ("confirm_phy_offset", ">i8"),
    ]
)

# index/<yyyyMMddHHmmssSSS>: header, then hash slots of i32, then units.
INDEX_HEADER_DTYPE: Final = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_physical_offset", ">i8"),
        ("end_physical_offset", ">i8"),
        ("hash_slot_count", ">i4"),
        ("index_count", ">i4"),  # starts at 1
    ]
)
INDEX_SLOT_BYTES: Final = 4
INDEX_UNIT_DTYPE: Final = np.dtype(
    [
        ("key_hash", ">i4"),
        ("physical_offset", ">i8"),
        ("time_diff_s", ">i4"),  # seconds after begin_timestamp
        ("previous_index", ">i4"),  # next older unit of the same slot; 0 ends the chain
    ]
)
INDEX_SLOTS_PER_FILE: Final = 5_000_000  # maxHashSlotNum
INDEX_UNITS_PER_FILE: Final = 4 * INDEX_SLOTS_PER_FILE  # maxIndexNum

# timerwheel: a ring of twice as many slots as one turn of the wheel has.  Slot of a time: (time / slot width) modulo
# the number of slots in the ring.
TIMER_SLOT_DTYPE: Final = np.dtype(
    [
        ("time", ">i8"),  # of the slot, in units of timerPrecisionMs; any other time: the slot is free
        ("first_position", ">i8"),  # in the timer log, of the slot's oldest unit
        ("last_position", ">i8"),  # in the timer log, of the slot's newest unit
        ("count", ">i4"),  # messages, minus those that cancel one
        ("magic", ">i4"),  # 0
    ]
)
# timerlog/: units.  The last unit of a file has only the size, the previous position and the magic number.
TIMER_UNIT_DTYPE: Final = np.dtype(
    [
        ("size", ">i4"),  # 52, or the bytes to the file's end
        ("previous_position", ">i8"),  # of the unit before it in its slot; -1: none
        ("magic", ">i4"),  # 1; plus 2 if the message goes on to a later slot, plus 4 if it cancels another message
        ("write_time", ">i8"),  # ms
        ("delay", ">i4"),  # ms from the write time to the slot
        ("physical_offset", ">i8"),  # of the record in the CommitLog
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),  # Java hashCode of the message's real topic
        ("reserved", ">i8"),  # 0
    ]
)
# config/timercheck: one 4 KiB page; only these first fields are used.
TIMER_CHECKPOINT_DTYPE: Final = np.dtype(
    [
        ("last_read_time", ">i8"),  # ms, time of the slot that is delivered next
        ("last_timer_log_flush_position", ">i8"),
        ("last_timer_queue_offset", ">i8"),  # of rmq_sys_wheel_timer: the message that enters the wheel next
        ("master_timer_queue_offset", ">i8"),  # on a slave: the same offset of its master
        ("state_version", ">i8"),
        ("version_timestamp", ">i8"),  # ms
        ("version_counter", ">i8"),
    ]
)


def index_file_bytes(slots: int, units: int) -> int:
    """Return the size of an index file, bytes."""
    return INDEX_HEADER_DTYPE.itemsize + slots * INDEX_SLOT_BYTES + units * INDEX_UNIT_DTYPE.itemsize


def file_name(offset: int) -> str:
    """Return the name of the file that begins at `offset`, such as ``00000000001073741824``."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"
