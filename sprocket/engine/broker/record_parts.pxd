# Parts of the records of pops that stay the same, and the numbers between them.

from libc.stdint cimport uint8_t

from sprocket.remoting.frames_native cimport Value
from sprocket.engine.store.record_writer cimport Octets, octets_of, put


cdef inline Py_ssize_t take_parts(Octets *parts, tuple found, Py_ssize_t count) except -1:
    """Take the parts of a form; return their size."""
    cdef Py_ssize_t size = 0, i
    if len(found) != count:
        raise ValueError(f"{len(found)} parts of a record instead of {count}")
    for i in range(count):
        parts[i] = octets_of(found[i])
        size += parts[i].size
    return size


cdef inline uint8_t *put_parts(uint8_t *to, const Octets *parts, const Value *values, Py_ssize_t count) noexcept nogil:
    """Write `count` values, each after its part, then the last part."""
    cdef Py_ssize_t i
    for i in range(count):
        to = put(to, parts[i].at, parts[i].size)
        to = put(to, values[i].at, values[i].size)
    return put(to, parts[count].at, parts[count].size)
