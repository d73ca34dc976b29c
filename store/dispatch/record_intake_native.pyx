# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of `store.dispatch.record_intake`: usual records of a replica, as entries of their ConsumeQueues.

A record that is taken here is whole, matches its CRC, and follows the entries of its queue.  At the first other one
the walk ends, and Python decides about it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    BLANK_MIN_BYTES, MAGIC_V1, MIN_RECORD_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, from_big32, from_big64,
)
from sprocket.engine.store.record_check cimport Log, Parts, crc_holds, lengths_fit, tag_at, tags_code
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # Queues and records of one walk; more are left to another one.
    MAX_KNOWN = 64
    RECORDS = 1024
    # Larger segments are walked without the interpreter's lock.
    WITHOUT_LOCK_BYTES = 64 * 1024

MAX_RECORDS = RECORDS

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()


# One queue that got records.
cdef struct KnownQueue:
    int64_t topic_at
    int64_t topic_bytes
    int32_t queue_id
    int64_t next_offset
    Py_ssize_t entries


# The entry of one record.
cdef struct Taken:
    int number
    QueueEntry entry


cdef class Walk:
    """One walk over a segment's records, and what it took."""

    cdef KnownQueue known[MAX_KNOWN]
    cdef int known_count
    cdef int latest
    cdef list queues
    cdef Taken *taken
    cdef Py_ssize_t count
    cdef int64_t store_timestamp

    def __cinit__(self):
        self.queues = []
        self.taken = <Taken *> malloc(RECORDS * sizeof(Taken))
        if self.taken == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.taken)

    cdef int64_t go(self, const Log *log, int32_t unusual_flags, queue_of) except -1 nogil:
        """Take usual records from the begin of `log` on; return where the first other one begins."""
        cdef Parts parts
        cdef const RecordFixed *head
        cdef int64_t at = 0, tag_end = 0, tag, code
        cdef int number
        while self.count < RECORDS and lengths_fit(log, at, &parts):
            head = <const RecordFixed *> (log.octets + at)
            if from_big32(head.magic) != MAGIC_V1 or from_big32(head.sys_flag) & unusual_flags:
                break
            if not crc_holds(log, at, &parts):
                break
            code, tag = 0, tag_at(log.octets, parts.properties_at, parts.end, &tag_end)
            if tag >= 0 and not tags_code(log.octets + tag, tag_end - tag, &code):
                break
            number = self.number_of(log, &parts, from_big32(head.queue_id), queue_of)
            if number < 0 or from_big64(head.queue_offset) != self.known[number].next_offset:
                break
            self.known[number].next_offset += 1
            self.known[number].entries += 1
            self.taken[self.count].number = number
            self.taken[self.count].entry = QueueEntry(
                head.physical_offset, head.total_size, from_big64(code),
            )
            self.count += 1
            self.store_timestamp = from_big64(
                (<const RecordRestIpv4 *> (log.octets + at + sizeof(RecordFixed))).store_timestamp
            )
            at = parts.end
        return at

    cdef int number_of(self, const Log *log, const Parts *parts, int32_t queue_id, queue_of) except -2 nogil:
        """Return the number of the number of a queue, a new one for a new queue; -1 if the queue is unusual."""
        cdef int number = self.latest
        cdef int i
        for i in range(self.known_count):
            if self.is_of(log, &self.known[number], parts, queue_id):
                self.latest = number
                return number
            number = number + 1 if number + 1 < self.known_count else 0
        if self.known_count == MAX_KNOWN:
            return -1
        with gil:
            return self.add_known(log, parts, queue_id, queue_of)

    cdef int add_known(self, const Log *log, const Parts *parts, int32_t queue_id, queue_of) except -2:
        cdef KnownQueue *number
        topic = PyBytes_FromStringAndSize(<const char *> log.octets + parts.topic_at, parts.topic_bytes)
        queue = queue_of(topic, queue_id)
        # Python writes the first entry of a queue.
        if queue is None or not queue.next_offset:
            return -1
        number = &self.known[self.known_count]
        number[0] = KnownQueue(parts.topic_at, parts.topic_bytes, queue_id, queue.next_offset, 0)
        self.queues.append(queue)
        self.latest = self.known_count
        self.known_count += 1
        return self.latest

    cdef bint is_of(self, const Log *log, const KnownQueue *number, const Parts *parts, int32_t queue_id) noexcept nogil:
        if number.queue_id != queue_id or number.topic_bytes != parts.topic_bytes:
            return False
        return not memcmp(log.octets + number.topic_at, log.octets + parts.topic_at, number.topic_bytes)

    cdef list units(self):
        """Return each queue that got records, with the bytes of its new entries."""
        cdef QueueEntry *to[MAX_KNOWN]
        cdef Py_ssize_t i
        cdef int number
        cdef list found = []
        for number in range(self.known_count):
            if self.known[number].entries:
                content = PyBytes_FromStringAndSize(NULL, self.known[number].entries * sizeof(QueueEntry))
                to[number] = <QueueEntry *> PyBytes_AS_STRING(content)
                found.append((self.queues[number], content))
        for i in range(self.count):
            number = self.taken[i].number
            to[number][0] = self.taken[i].entry
            to[number] += 1
        return found


def take(segment, int64_t base, int64_t room_bytes, int32_t unusual_flags, *, bint require_seal, queue_of not None):
    """Walk over usual records at the begin of `segment`, at most `MAX_RECORDS`.

    `base` is the physical offset of its first byte, and the segment's file ends `room_bytes` after it.  Return the
    bytes of the records that were taken, the store timestamp of the last one, and for each queue its new entries.
    `queue_of` returns the queue of a topic (bytes) and a queue id; None if Python must decide about its records.
    """
    cdef Py_buffer buffer
    cdef Walk walk = Walk()
    cdef Log log
    cdef int64_t size, taken_bytes
    PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
    try:
        # After each record a file has room for a blank, whether that has arrived or not.
        size = min(<int64_t> buffer.len, room_bytes - BLANK_MIN_BYTES)
        if base < 0 or size < MIN_RECORD_BYTES:
            return 0, 0, []
        log = Log(<const uint8_t *> buffer.buf, size + BLANK_MIN_BYTES, base, True, require_seal, CAN_FOLD)
        if size > WITHOUT_LOCK_BYTES:
            with nogil:
                taken_bytes = walk.go(&log, unusual_flags, queue_of)
        else:
            taken_bytes = walk.go(&log, unusual_flags, queue_of)
        return taken_bytes, walk.store_timestamp, walk.units()
    finally:
        PyBuffer_Release(&buffer)
