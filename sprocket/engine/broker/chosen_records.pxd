# Choice of the entries of a ConsumeQueue that one read gets, for the compiled paths of pulls and pops.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from sprocket.engine.store.layout cimport QueueEntry, from_big32, from_big64

cdef enum:
    # Longer filters are left to the Python path, and so are reads of more messages.
    MAX_TAG_CODES = 16
    MAX_MESSAGES = 1024


# Tags that a subscription wants.
cdef struct TagCodes:
    int32_t codes[MAX_TAG_CODES]
    int count  # -1: every message is wanted


# Limits of the store for the reads of one turn.
cdef struct Limits:
    int64_t wrote_offset
    int64_t cold_end
    int64_t memory_bytes
    int64_t max_messages
    int64_t max_bytes
    int64_t max_scanned


# The records that one read of a queue gets.
cdef struct Found:
    Py_ssize_t count
    Py_ssize_t scanned  # entries up to the next read's first
    int64_t size_bytes
    int32_t chosen[MAX_MESSAGES]  # numbers of the entries


cdef inline int set_codes(TagCodes *tags, codes) except -1:
    """Take hash codes of tags; None means all messages."""
    cdef int i
    tags.count = -1 if codes is None else len(codes)
    if tags.count > MAX_TAG_CODES:
        raise ValueError(f"{tags.count} tags, at most {MAX_TAG_CODES}")
    for i in range(tags.count):
        tags.codes[i] = codes[i]
    return 0


cdef inline int set_limits(Limits *limits, tuple values) except -1:
    """Take the limits of `store.queue.kernel_reads`."""
    (limits.wrote_offset, limits.cold_end, limits.memory_bytes, limits.max_messages, limits.max_bytes,
     limits.max_scanned) = values
    return 0


cdef inline const QueueEntry *entries_at(queue, int64_t offset, int64_t max_offset, Py_buffer *view,
                                         int64_t *available) except? NULL:
    """Return the entries of a queue from `offset` on, and in `available` how many there are before `max_offset`.

    They are in `view`, which the caller releases.  NULL: they are unusual, and there is nothing to release.
    """
    cdef int64_t min_offset = queue.min_offset, cold_end = queue.cold_end, position
    if not min_offset <= offset < max_offset or offset < cold_end:
        return NULL
    place = queue.view_at(offset)
    if place is None:
        return NULL
    octets, position, available[0] = <tuple> place
    PyObject_GetBuffer(octets, view, PyBUF_SIMPLE)
    available[0] = min(available[0], max_offset - offset, (view.len - position) // <int64_t> sizeof(QueueEntry))
    if position < 0 or available[0] <= 0:
        PyBuffer_Release(view)
        return NULL
    return <const QueueEntry *> (<const uint8_t *> view.buf + position)


cdef inline bint is_wanted(const TagCodes *tags, const QueueEntry *entry) noexcept nogil:
    """Return whether an entry is wanted: only the low 32 bits of its tags code count."""
    cdef int32_t code = <int32_t> from_big64(entry.tags_code)
    cdef int i
    for i in range(tags.count):
        if tags.codes[i] == code:
            return True
    return tags.count < 0


cdef inline bint is_near(const QueueEntry *entry, const Limits *limits) noexcept nogil:
    """Return whether memory probably holds an entry's record."""
    cdef int64_t offset = from_big64(entry.physical_offset)
    return 0 <= offset <= limits.wrote_offset and limits.wrote_offset - offset <= limits.memory_bytes


cdef inline bint choose(Found *found, const TagCodes *tags, const QueueEntry *entries, int64_t available,
                        int64_t max_messages, const Limits *limits) noexcept nogil:
    """Choose the wanted entries; return False if there are none, or if one is far back."""
    cdef int64_t count, i
    found.count = 0
    if tags.count < 0:
        count = min(available, max_messages, limits.max_messages, MAX_MESSAGES)
        for i in range(count):
            found.chosen[i] = <int32_t> i
        found.count = found.scanned = count if count > 0 else 0
    else:
        if max_messages > min(limits.max_messages, MAX_MESSAGES):
            return False
        count = min(available, max(limits.max_scanned, max_messages))
        found.scanned = count
        for i in range(count):
            if is_wanted(tags, &entries[i]):
                if found.count == max_messages:
                    found.scanned = i
                    break
                found.chosen[found.count] = <int32_t> i
                found.count += 1
    if not found.count:
        return False
    # Both decide about the limits of a read, and about the member that is suggested.
    return is_near(&entries[found.chosen[0]], limits) and is_near(&entries[found.scanned - 1], limits) and is_near(
        &entries[found.chosen[found.count - 1]], limits)


cdef inline bint measure(Found *found, const QueueEntry *entries, int64_t base, int64_t end,
                         int64_t max_bytes) noexcept nogil:
    """Check each chosen entry against the segment's bounds, in ascending order, and note the size of all."""
    cdef int64_t offset, size, lowest = base
    cdef Py_ssize_t i
    found.size_bytes = 0
    for i in range(found.count):
        offset = from_big64(entries[found.chosen[i]].physical_offset)
        size = from_big32(entries[found.chosen[i]].size)
        # Each difference is of numbers between 0 and `end`, so none overflows.
        if offset < lowest or offset > end or size <= 0 or size > end - offset:
            return False
        lowest = offset + size
        found.size_bytes += size
    return found.size_bytes <= max_bytes


cdef inline uint8_t *put_records(uint8_t *to, const Found *found, const QueueEntry *entries, const uint8_t *log,
                                 int64_t base) noexcept nogil:
    """Copy the chosen records, which are measured; `log` begins at the physical offset `base`."""
    cdef Py_ssize_t size, i
    for i in range(found.count):
        size = from_big32(entries[found.chosen[i]].size)
        memcpy(to, log + (from_big64(entries[found.chosen[i]].physical_offset) - base), size)
        to += size
    return to
