# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of `store.queue.gathered`: the records of some neighbouring entries of a ConsumeQueue.

It accepts only entries whose records lie in one segment in ascending order, and inside the given bounds.  For all
others it returns None, and the Python code reads them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport QueueEntry, from_big32, from_big64

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()


UNIT_BYTES = sizeof(QueueEntry)


# The bounds of a read, and what is known of its records.
cdef struct Reading:
    int64_t base  # physical offset of the segment's first byte
    int64_t end  # physical offset after the last readable byte
    int64_t size_bytes
    int64_t last  # physical offset of the last record
    Py_ssize_t runs  # groups of records that are neighbours in the log


def gathered(entries, Py_ssize_t position, Py_ssize_t count, segment, int64_t base, int64_t end, int64_t max_bytes,
             Py_ssize_t join_bytes):
    """Return size and last physical offset of the records of `count` entries, and their bytes as buffers; or None.

    The entries begin at the byte `position` of `entries`.  `segment` begins at the physical offset `base`; bytes from
    `end` on are not read.  Scattered records of up to `join_bytes` together are copied into one buffer; all others are
    parts of `segment`.
    """
    cdef Py_buffer queue, log
    PyObject_GetBuffer(entries, &queue, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(segment, &log, PyBUF_SIMPLE)
        try:
            # All entries are within the buffer; the division keeps the product below an overflow.
            if count <= 0 or position < 0 or position > queue.len:
                return None
            if (queue.len - position) // sizeof(QueueEntry) < count:
                return None
            return records(<const QueueEntry *> (<const uint8_t *> queue.buf + position), count, segment, &log, base,
                           end, max_bytes, join_bytes)
        finally:
            PyBuffer_Release(&log)
    finally:
        PyBuffer_Release(&queue)


cdef object records(const QueueEntry *entries, Py_ssize_t count, segment, const Py_buffer *log, int64_t base,
                    int64_t end, int64_t max_bytes, Py_ssize_t join_bytes):
    cdef Reading reading
    cdef int64_t first = from_big64(entries[0].physical_offset)
    if base < 0 or base > end or end - base > log.len:
        return None
    reading = Reading(base, end, 0, 0, 0)
    if not is_usual(entries, count, &reading, max_bytes):
        return None
    if reading.runs == 1:
        return reading.size_bytes, reading.last, [segment[first - base:first - base + reading.size_bytes]]
    if reading.size_bytes <= join_bytes:
        return reading.size_bytes, reading.last, [memoryview(joined(entries, count, &reading, <const uint8_t *> log.buf))]
    return reading.size_bytes, reading.last, parts(entries, count, segment, base)


cdef bint is_usual(const QueueEntry *entries, Py_ssize_t count, Reading *reading, int64_t max_bytes) noexcept nogil:
    """Check each entry against the bounds, in ascending order, and note sizes and runs."""
    cdef int64_t offset, size, next_offset = -1, lowest = reading.base
    cdef Py_ssize_t number
    for number in range(count):
        offset, size = from_big64(entries[number].physical_offset), from_big32(entries[number].size)
        # Each difference is of numbers between 0 and `end`, so none overflows.
        if offset < lowest or offset > reading.end or size <= 0 or size > reading.end - offset:
            return False
        if offset != next_offset:
            reading.runs += 1
        next_offset = lowest = offset + size
        reading.size_bytes += size
        reading.last = offset
    return reading.size_bytes <= max_bytes


cdef bytes joined(const QueueEntry *entries, Py_ssize_t count, const Reading *reading, const uint8_t *log):
    """Return a copy of the records, whose entries are checked."""
    cdef bytes copy = PyBytes_FromStringAndSize(NULL, reading.size_bytes)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(copy)
    cdef Py_ssize_t number, size
    for number in range(count):
        size = from_big32(entries[number].size)
        memcpy(to, log + (from_big64(entries[number].physical_offset) - reading.base), size)
        to += size
    return copy


cdef list parts(const QueueEntry *entries, Py_ssize_t count, segment, int64_t base):
    """Return the records as parts of the segment, neighbours joined."""
    cdef list found = []
    cdef int64_t offset, start = from_big64(entries[0].physical_offset)
    cdef int64_t end = start
    cdef Py_ssize_t number
    for number in range(count):
        offset = from_big64(entries[number].physical_offset)
        if offset != end:
            found.append(segment[start - base:end - base])
            start = offset
        end = offset + from_big32(entries[number].size)
    found.append(segment[start - base:end - base])
    return found
