# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled entry of messages into the timer wheel: from the entries of their queue to units of the timer log, and back.

Its twin is `TimerEnqueue._enter` (`store/timer/timer_enqueue.py`).  It stops before the first message that is unusual:
late, too far ahead, deleting another, for a slot that another time uses, or in a record of another form.  `chained`
follows the units of a slot; its twin is `SlotDelivery.prepare` (`store/timer/timer_dequeue.py`).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    BORN_V6, FIXED_IPV4_BYTES, MIN_RECORD_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES, SEAL_NAME_BYTES,
    STORE_V6, PLAIN_UNIT, TimerUnit, VALUE_END, from_big32, from_big64, plain_unit,
)

cdef extern from "string.h":
    void *memmem(const void *octets, size_t size, const void *part, size_t part_size) noexcept nogil

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    MAX_DIGITS = 18
    # Different slots and topics of one call; the next call begins with the message that exceeds them.
    MAX_SLOTS = 64
    MAX_TOPICS = 16
    # A file of the timer log ends with a blank of at least this size.
    BLANK_BYTES = 16
    INT_MAX = 0x7FFFFFFF

cdef const char *SEAL_NAME = b"__CRC32#\x01"
cdef const char *OUT_MS = b"TIMER_OUT_MS\x01"
cdef const char *DELETE_KEY = b"TIMER_DEL_UNIQKEY\x01"
cdef const char *REAL_TOPIC = b"\x02REAL_TOPIC\x01"
cdef const char *REAL_QUEUE_ID = b"\x02REAL_QID\x01"
cdef enum:
    OUT_MS_BYTES = 13
    DELETE_KEY_BYTES = 18
    REAL_TOPIC_BYTES = 12
    REAL_QUEUE_ID_BYTES = 10


UNIT_BYTES = sizeof(TimerUnit)


# What the wheel needs to know of a message.
cdef struct Timed:
    int64_t due_ms
    const uint8_t *topic
    Py_ssize_t topic_bytes


# A slot of the wheel with the messages entered so far.
cdef struct Slot:
    int64_t time_ms
    int64_t first
    int64_t last
    int64_t messages


cdef struct Topic:
    const uint8_t *name
    Py_ssize_t name_bytes
    int32_t hash
    int64_t messages


cdef inline const uint8_t *found(const uint8_t *octets, Py_ssize_t size, const char *part, Py_ssize_t part_bytes) noexcept nogil:
    return <const uint8_t *> memmem(octets, size, part, part_bytes)


cdef inline bint begins(const uint8_t *at, const uint8_t *end, const char *text, Py_ssize_t size) noexcept nogil:
    return end - at >= size and not memcmp(at, text, size)


cdef bint read_timed(const uint8_t *record, int64_t size, const uint8_t *topic_field, Py_ssize_t field_bytes,
                     Timed *timed) noexcept nogil:
    """Read a usual record of the wheel's topic, as `timed_message.read_timed`; return False for any other."""
    cdef const RecordFixed *fixed = <const RecordFixed *> record
    cdef const RecordRestIpv4 *rest = <const RecordRestIpv4 *> (record + sizeof(RecordFixed))
    cdef const uint8_t *at
    cdef const uint8_t *seal
    cdef int64_t body_bytes, properties_bytes
    if size < MIN_RECORD_BYTES or from_big32(fixed.sys_flag) & (BORN_V6 | STORE_V6):
        return False
    body_bytes = from_big32(rest.body_bytes)
    if body_bytes < 0 or body_bytes > size - FIXED_IPV4_BYTES - field_bytes - 2:
        return False
    at = record + FIXED_IPV4_BYTES + body_bytes
    if memcmp(at, topic_field, field_bytes):
        return False
    at += field_bytes
    properties_bytes = at[0] << 8 | at[1]
    at += 2
    if properties_bytes != record + size - at:
        return False
    seal = found(at, properties_bytes, SEAL_NAME, SEAL_NAME_BYTES)
    if seal != NULL:
        if seal != at + properties_bytes - SEAL_BYTES:
            return False
        properties_bytes -= SEAL_BYTES
    return read_properties(at, properties_bytes, timed)


cdef bint read_properties(const uint8_t *properties, int64_t size, Timed *timed) noexcept nogil:
    """Read time and real topic, which stand in the order in which a broker of Sprocket writes them."""
    cdef const uint8_t *end = properties + size
    cdef const uint8_t *at = found(properties, size, OUT_MS, OUT_MS_BYTES)
    cdef const uint8_t *begin
    cdef int64_t due_ms = 0
    if at == NULL or at == properties or (at - 1)[0] != VALUE_END:
        return False
    if found(properties, size, DELETE_KEY, DELETE_KEY_BYTES) != NULL:
        return False
    at += OUT_MS_BYTES
    begin = at
    while at < end and c'0' <= at[0] <= c'9':
        if at - begin == MAX_DIGITS:
            return False
        due_ms = due_ms * 10 + (at[0] - c'0')
        at += 1
    # The first property of a name counts, so this must be the first with the real topic.
    if at == begin or not begins(at, end, REAL_TOPIC, REAL_TOPIC_BYTES):
        return False
    if found(properties, size, REAL_TOPIC + 1, REAL_TOPIC_BYTES - 1) != at + 1:
        return False
    at += REAL_TOPIC_BYTES
    begin = at
    while at < end and at[0] != VALUE_END:
        at += 1
    timed.due_ms, timed.topic, timed.topic_bytes = due_ms, begin, at - begin
    return at > begin and begins(at, end, REAL_QUEUE_ID, REAL_QUEUE_ID_BYTES)


cdef class UnitWriter:
    """Entry of the messages of one call.

    `slot_of` returns first and last unit and number of messages of the slot at a time, None if it cannot be used.
    `hash_of` returns the hash of a topic's encoded name, None if that is no topic.
    """

    cdef bytes topic_field
    cdef int64_t now_slot
    cdef int64_t slot_ms
    cdef int64_t window_ms
    cdef int64_t position  # of the next unit
    cdef int64_t file_bytes
    cdef object slot_of
    cdef object hash_of
    cdef Slot slots[MAX_SLOTS]
    cdef int slot_count
    cdef Topic topics[MAX_TOPICS]
    cdef int topic_count
    cdef list names

    def __init__(self, bytes topic_field not None, int64_t now_slot, int64_t slot_ms, int64_t window_ms,
                 int64_t position, int64_t file_bytes, slot_of, hash_of):
        """`topic_field` is the wheel's topic with its length; messages are due less than `window_ms` ahead."""
        if slot_ms <= 0 or file_bytes <= 0 or position < 0:
            raise ValueError(f"slots of {slot_ms} ms, files of {file_bytes} bytes, unit at {position}")
        self.topic_field, self.now_slot, self.slot_ms, self.window_ms = topic_field, now_slot, slot_ms, window_ms
        self.position, self.file_bytes, self.slot_of, self.hash_of = position, file_bytes, slot_of, hash_of
        self.names = []

    def enter(self, entries, segment, int64_t base, int64_t end):
        """Enter the usual messages with which `entries` begin; return the units.

        `segment` begins at the physical offset `base`; bytes from `end` on are not read.
        """
        cdef Py_buffer queue, log
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(segment, &log, PyBUF_SIMPLE)
            try:
                if base < 0 or base > end or end - base > log.len:
                    return b""
                return self.units(<const QueueEntry *> queue.buf, queue.len // <Py_ssize_t> sizeof(QueueEntry),
                                  <const uint8_t *> log.buf, base, end)
            finally:
                PyBuffer_Release(&log)
        finally:
            PyBuffer_Release(&queue)

    cdef bytes units(self, const QueueEntry *entries, Py_ssize_t count, const uint8_t *log, int64_t base, int64_t end):
        cdef bytes content = PyBytes_FromStringAndSize(NULL, count * sizeof(TimerUnit))
        cdef TimerUnit *unit = <TimerUnit *> PyBytes_AS_STRING(content)
        cdef Py_ssize_t number = 0
        cdef int64_t offset, size
        cdef Timed timed
        while number < count:
            offset, size = from_big64(entries[number].physical_offset), from_big32(entries[number].size)
            # Each difference is of numbers between 0 and `end`, so none overflows.
            if offset < base or offset > end or size <= 0 or size > end - offset:
                break
            if not read_timed(log + (offset - base), size, <const uint8_t *> PyBytes_AS_STRING(self.topic_field),
                              PyBytes_GET_SIZE(self.topic_field), &timed):
                break
            if not self.put(&unit[number], &timed, offset, <int32_t> size):
                break
            number += 1
        return content[:number * <Py_ssize_t> sizeof(TimerUnit)]

    cdef bint put(self, TimerUnit *unit, const Timed *timed, int64_t offset, int32_t size) except -1:
        """Write a unit; return False if its message is unusual."""
        cdef int64_t delay_ms = timed.due_ms - self.now_slot
        cdef int64_t slot_ms = timed.due_ms - timed.due_ms % self.slot_ms
        cdef Slot *slot
        cdef Topic *topic
        if slot_ms < self.now_slot or delay_ms >= self.window_ms or delay_ms > INT_MAX:
            return False
        if self.file_bytes - self.position % self.file_bytes < <int64_t> sizeof(TimerUnit) + BLANK_BYTES:
            return False
        topic = self.topic_at(timed.topic, timed.topic_bytes)
        slot = NULL if topic == NULL else self.slot_at(slot_ms)
        if slot == NULL:
            return False
        unit.size, unit.previous = from_big32(sizeof(TimerUnit)), from_big64(slot.last)
        unit.magic, unit.write_ms = from_big32(PLAIN_UNIT), from_big64(self.now_slot)
        unit.delay_ms, unit.physical_offset = from_big32(<int32_t> delay_ms), from_big64(offset)
        unit.record_bytes, unit.topic_hash, unit.reserved = from_big32(size), from_big32(topic.hash), 0
        if slot.first == -1:
            slot.first = self.position
        slot.last = self.position
        slot.messages += 1
        topic.messages += 1
        self.position += sizeof(TimerUnit)
        return True

    cdef Slot *slot_at(self, int64_t time_ms) except? NULL:
        """Return the slot of a time; NULL if it cannot be used, or is one too many."""
        cdef int i
        cdef Slot *slot
        # The last one first: messages of a time follow each other.
        for i in range(self.slot_count - 1, -1, -1):
            if self.slots[i].time_ms == time_ms:
                return &self.slots[i]
        if self.slot_count == MAX_SLOTS:
            return NULL
        known = self.slot_of(time_ms)
        if known is None:
            return NULL
        slot = &self.slots[self.slot_count]
        slot.time_ms = time_ms
        slot.first, slot.last, slot.messages = known
        self.slot_count += 1
        return slot

    cdef Topic *topic_at(self, const uint8_t *name, Py_ssize_t size) except? NULL:
        """Return the topic of a name; NULL if it is none, or one too many."""
        cdef int i
        cdef Topic *topic
        cdef bytes kept
        for i in range(self.topic_count):
            topic = &self.topics[i]
            if topic.name_bytes == size and not memcmp(topic.name, name, size):
                return topic
        if self.topic_count == MAX_TOPICS:
            return NULL
        kept = name[:size]
        hashed = self.hash_of(kept)
        if hashed is None:
            return NULL
        topic = &self.topics[self.topic_count]
        topic.name, topic.name_bytes = <const uint8_t *> PyBytes_AS_STRING(kept), size
        topic.hash, topic.messages = hashed, 0
        self.names.append(kept)
        self.topic_count += 1
        return topic

    def slots_entered(self):
        """Return time, first and last unit and number of messages of each slot that got any."""
        return [
            (self.slots[i].time_ms, self.slots[i].first, self.slots[i].last, self.slots[i].messages)
            for i in range(self.slot_count)
        ]

    def topics_entered(self):
        """Return name and number of messages of each topic."""
        return [(self.names[i], self.topics[i].messages) for i in range(self.topic_count)]


def chained(file, int64_t base, int64_t end, int64_t position, int64_t stop, Py_ssize_t max_units):
    """Return the positions of up to `max_units` plain units chained from `position` back to `stop`, and the next one's.

    `file` is a file of the timer log, which begins at `base`; units end at `end`.  A unit that is not plain, or lies
    elsewhere, ends the chain: Python reads it.
    """
    cdef Py_buffer octets
    cdef list found = []
    PyObject_GetBuffer(file, &octets, PyBUF_SIMPLE)
    try:
        end = min(end, base + octets.len)
        while len(found) < max_units and position >= stop:
            unit = plain_unit(<const uint8_t *> octets.buf, base, end, position)
            if unit == NULL or from_big64(unit.previous) >= position:
                break
            found.append(position)
            position = from_big64(unit.previous)
    finally:
        PyBuffer_Release(&octets)
    return found, position
