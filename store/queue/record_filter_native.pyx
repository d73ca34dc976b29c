# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of `store.queue.record_filter`: which entries of a ConsumeQueue have a record that a filter wants.

A filter asks for a few properties.  Its verdicts are cached by their values; Python decides about each new value, and
about each record whose form is unusual.  The values of records are kept for the next filter on the same properties,
because reading them again costs much more: they are spread over the log.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memset

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    BORN_V6, FIXED_IPV4_BYTES, MAGIC_V1, QueueEntry, RecordFixed, RecordRestIpv4, STORE_V6, VALUE_END, from_big16,
    from_big32, from_big64,
)

cdef extern from *:
    """
    #define prefetch(address) __builtin_prefetch(address)
    """
    void prefetch(const void *address) noexcept nogil

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    NAMES = 4
    # The values of a record, each behind its length.
    KEY_BYTES = 16
    KEY_WORDS = 2  # of 8 bytes
    # Instead of the first length: the record is unusual or has longer values, and is decided alone.
    ALONE = 0xFF
    NOWHERE = -1
    ENTRIES = 512
    FIRST_SLOTS = 64
    KEYS = 4096
    # Entries whose records are fetched from memory ahead of their turn.
    AHEAD = 8
    CACHE_LINE_BYTES = 64

MAX_NAMES = NAMES
UNIT_BYTES = sizeof(QueueEntry)
BLOCK_ENTRIES = ENTRIES


# Values of the properties of one record.
cdef struct Key:
    uint8_t octets[KEY_BYTES]


cdef struct Slot:
    Key key
    int verdict  # 0: free, 1: not wanted, 2: wanted


# The part of the log that a read may see.
cdef struct Segment:
    const uint8_t *octets
    int64_t base  # physical offset of the first byte
    int64_t end  # physical offset after the last readable byte


cdef inline uint64_t slot_hash(const Key *key) noexcept nogil:
    cdef uint64_t words[KEY_WORDS]
    memcpy(words, key.octets, KEY_BYTES)
    cdef uint64_t mixed = words[0] * 0x9E3779B97F4A7C15ull ^ words[1] * 0xC2B2AE3D27D4EB4Full
    return mixed ^ mixed >> 32


cdef class ValueBlock:
    """Kept values of the properties of one filter, or of several with the same, of some neighbouring entries."""

    cdef readonly object revision  # of the log: its records changed if it has another one
    cdef Key keys[ENTRIES]
    # Physical offsets of the records: a queue that was deleted and created again has others.
    cdef int64_t places[ENTRIES]

    def __cinit__(self, revision):
        cdef Py_ssize_t i
        self.revision = revision
        for i in range(ENTRIES):
            self.places[i] = NOWHERE


cdef class ValueChooser:
    """Verdicts of one filter, by the values of the properties that it asks for."""

    cdef readonly tuple names
    cdef object decide
    cdef const uint8_t *name_at[NAMES]
    cdef Py_ssize_t name_bytes[NAMES]
    cdef int name_count
    cdef Slot *slots
    cdef Py_ssize_t slot_count
    cdef Py_ssize_t used

    def __cinit__(self, tuple names not None, decide):
        """Each of `names` ends with 0x01.  `decide` returns whether a whole record is wanted."""
        if not 0 < len(names) <= NAMES:
            raise ValueError(f"a filter of {len(names)} properties, at most {NAMES}")
        self.names, self.decide = names, decide
        for name in names:
            self.name_at[self.name_count] = <const uint8_t *> PyBytes_AS_STRING(<bytes?> name)
            self.name_bytes[self.name_count] = PyBytes_GET_SIZE(name)
            self.name_count += 1
        self.grow(FIRST_SLOTS)

    def __dealloc__(self):
        free(self.slots)

    def choose(self, entries, segment, int64_t base, int64_t end, Py_ssize_t limit, ValueBlock block not None,
               Py_ssize_t at):
        """Return the numbers of the first `limit` wanted entries, and how many entries were searched.

        `entries` are the bytes of entries; the first has the place `at` in `block`.  `segment` begins at the
        physical offset `base`; bytes from `end` on are not read.  The search ends before the first entry whose record
        is not within these bounds, and at the end of the block.
        """
        cdef Py_buffer queue, log
        cdef Py_ssize_t count
        if not 0 <= at < ENTRIES:
            return [], 0
        PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(segment, &log, PyBUF_SIMPLE)
            try:
                if base < 0 or base > end or end - base > log.len:
                    return [], 0
                count = min(queue.len // <Py_ssize_t> sizeof(QueueEntry), ENTRIES - at)
                return self.search(<const QueueEntry *> queue.buf, count, segment,
                                   Segment(<const uint8_t *> log.buf, base, end), limit, block, at)
            finally:
                PyBuffer_Release(&log)
        finally:
            PyBuffer_Release(&queue)

    cdef tuple search(self, const QueueEntry *entries, Py_ssize_t count, object segment, Segment bounds,
                      Py_ssize_t limit, ValueBlock block, Py_ssize_t at):
        cdef list found = []
        cdef Py_ssize_t number = 0, chosen = 0
        cdef int64_t offset, size
        while number < count and chosen < limit:
            if number + AHEAD < count and block.places[at + number + AHEAD] == NOWHERE:
                fetch(&entries[number + AHEAD], &bounds)
            offset, size = from_big64(entries[number].physical_offset), from_big32(entries[number].size)
            if not is_inside(offset, size, &bounds):
                break
            if block.places[at + number] != offset:
                self.read_key(bounds.octets + (offset - bounds.base), size, &block.keys[at + number])
                block.places[at + number] = offset
            if self.wants(&block.keys[at + number], segment, offset - bounds.base, size):
                found.append(number)
                chosen += 1
            number += 1
        return found, number

    cdef bint wants(self, const Key *kept, object segment, int64_t at, int64_t size) except -1:
        """Return whether the record of `size` bytes from the byte `at` of `segment` on is wanted."""
        cdef Key key = kept[0]  # `decide` may change the block
        cdef Slot *slot
        if key.octets[0] == ALONE:
            return self.decide(segment[at:at + size])
        slot = self.slot_of(&key)
        if slot.verdict:
            return slot.verdict == 2
        is_wanted = bool(self.decide(segment[at:at + size]))
        self.learn(&key, is_wanted)
        return is_wanted

    cdef void read_key(self, const uint8_t *record, int64_t size, Key *key) noexcept:
        if not read_record(record, size, self.name_at, self.name_bytes, self.name_count, key):
            memset(key.octets, 0, KEY_BYTES)
            key.octets[0] = ALONE

    # Verdicts

    cdef Slot *slot_of(self, const Key *key) noexcept:
        """Return the slot of a key, or the free one where it belongs; there always is a free one."""
        cdef Py_ssize_t at = <Py_ssize_t> (slot_hash(key) & <uint64_t> (self.slot_count - 1))
        while self.slots[at].verdict and memcmp(self.slots[at].key.octets, key.octets, KEY_BYTES):
            at = (at + 1) & (self.slot_count - 1)
        return &self.slots[at]

    cdef int learn(self, const Key *key, bint is_wanted) except -1:
        cdef Slot *slot
        if self.used >= KEYS:
            # Values that hardly ever occur again: begin again.
            memset(self.slots, 0, self.slot_count * sizeof(Slot))
            self.used = 0
        elif 2 * (self.used + 1) > self.slot_count:
            self.grow(2 * self.slot_count)
        # `decide` may have used this table meanwhile, so the place is looked for again.
        slot = self.slot_of(key)
        if not slot.verdict:
            self.used += 1
        slot.key, slot.verdict = key[0], 2 if is_wanted else 1
        return 0

    cdef int grow(self, Py_ssize_t slot_count) except -1:
        """Move all verdicts to a larger table."""
        cdef Slot *before = self.slots
        cdef Py_ssize_t before_count = self.slot_count, i
        cdef Slot *larger = <Slot *> calloc(slot_count, sizeof(Slot))
        if larger == NULL:
            raise MemoryError
        self.slots, self.slot_count = larger, slot_count
        for i in range(before_count):
            if before[i].verdict:
                self.slot_of(&before[i].key)[0] = before[i]
        free(before)
        return 0


cdef inline bint is_inside(int64_t offset, int64_t size, const Segment *bounds) noexcept nogil:
    # Each difference is of numbers between 0 and `end`, so none overflows.
    return bounds.base <= offset <= bounds.end and 0 < size <= bounds.end - offset


cdef inline void fetch(const QueueEntry *entry, const Segment *bounds) noexcept nogil:
    """Let the processor load the head of a record and its properties, which are at its end."""
    cdef int64_t offset = from_big64(entry.physical_offset), size = from_big32(entry.size)
    cdef const uint8_t *record
    if is_inside(offset, size, bounds):
        record = bounds.octets + (offset - bounds.base)
        prefetch(record)
        prefetch(record + min(size - 1, CACHE_LINE_BYTES))
        prefetch(record + size - 1)
        prefetch(record + max(0, size - 1 - CACHE_LINE_BYTES))


cdef bint read_record(const uint8_t *record, int64_t size, const uint8_t **names, const Py_ssize_t *name_bytes,
                      int name_count, Key *key) noexcept nogil:
    """Read the values of a record's properties; return False if the record has another form, or long values."""
    cdef const RecordFixed *fixed = <const RecordFixed *> record
    cdef const RecordRestIpv4 *rest = <const RecordRestIpv4 *> (record + sizeof(RecordFixed))
    cdef int64_t at, properties_bytes
    if size < FIXED_IPV4_BYTES + 3 or fixed.magic != from_big32(MAGIC_V1):
        return False
    if from_big32(fixed.sys_flag) & (BORN_V6 | STORE_V6):
        return False
    at = from_big32(rest.body_bytes)
    # Behind the body: the length of the topic, the topic, the length of the properties in two bytes.
    if at < 0 or at > size - FIXED_IPV4_BYTES - 3:
        return False
    at += FIXED_IPV4_BYTES
    at += 1 + record[at]
    if at > size - 2:
        return False
    properties_bytes = record[at] << 8 | record[at + 1]
    if properties_bytes > 0x7FFF or properties_bytes > size - at - 2:
        return False
    return read_values(record + at + 2, properties_bytes, names, name_bytes, name_count, key)


cdef bint read_values(const uint8_t *at, int64_t size, const uint8_t **names, const Py_ssize_t *name_bytes,
                      int name_count, Key *key) noexcept nogil:
    """Find the last value that is not empty of each name, as `properties.find_last`."""
    cdef const uint8_t *end = at + size
    cdef const uint8_t *stop
    cdef const uint8_t *values[NAMES]
    cdef Py_ssize_t sizes[NAMES]
    cdef Py_ssize_t used = 0
    cdef int i
    for i in range(name_count):
        sizes[i] = 0
    while at < end:
        stop = <const uint8_t *> memchr(at, VALUE_END, end - at)
        if stop == NULL:
            stop = end
        for i in range(name_count):
            if stop - at > name_bytes[i] and at[0] == names[i][0] and not memcmp(at, names[i], name_bytes[i]):
                values[i], sizes[i] = at + name_bytes[i], stop - at - name_bytes[i]
        at = stop + 1
    memset(key.octets, 0, KEY_BYTES)
    for i in range(name_count):
        if used + 1 + sizes[i] > KEY_BYTES:
            return False
        key.octets[used] = <uint8_t> sizes[i]
        used += 1
        if sizes[i]:
            memcpy(key.octets + used, values[i], sizes[i])
            used += sizes[i]
    return True
