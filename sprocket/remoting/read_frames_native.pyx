# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Whole frames of one read, found in the received bytes without an object for each.

The twin of the loop of `FrameDecoder._cut`.  Nothing is refused here: what is incomplete, wrong or long is left to that
loop, which alone decides what an error is.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.remoting.wire_text cimport int32_at

# Borrowed references: a frame of a list stays alive as long as the list has it.
cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM_ "PyTuple_GET_ITEM" (object items, Py_ssize_t index)
    PyObject *PyList_GET_ITEM_ "PyList_GET_ITEM" (object items, Py_ssize_t index)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # The largest header word of a known serialization, see `framing.py`.
    MAX_WORD = 0x1FFFFFF
    JSON = 0
    FIRST_CAPACITY = 16
    # Bytes of a header that name its route, see `framing.start_of`.
    JSON_START_BYTES = 15
    BINARY_START_BYTES = 2


cdef class ReadFrames:
    """Sequence of the whole frames with which one read begins; a frame becomes a tuple when it is asked for.

    The compiled paths read headers and bodies where they arrived.
    """

    def __dealloc__(self):
        free(self.starts)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cdef Py_ssize_t at
        if isinstance(index, slice):
            return [self.frame(at) for at in range(*index.indices(self.count))]
        at = index
        if at < 0:
            at += self.count
        if not 0 <= at < self.count:
            raise IndexError(f"frame {index} of {self.count}")
        return self.frame(at)

    cdef int add(self, Py_ssize_t start) except -1:
        """Take the frame at `start`, whose lengths were checked."""
        cdef Py_ssize_t capacity
        cdef void *grown
        if self.count == self.capacity:
            capacity = max(FIRST_CAPACITY, 2 * self.capacity)
            grown = realloc(self.starts, capacity * sizeof(Py_ssize_t))
            if grown == NULL:
                raise MemoryError
            self.starts, self.capacity = <Py_ssize_t *> grown, capacity
        self.starts[self.count] = start
        self.count += 1
        return 0

    cdef void part(self, Py_ssize_t index, FrameParts *parts) noexcept:
        """Find the parts of a frame that is there."""
        cdef const uint8_t *prefix = <const uint8_t *> PyBytes_AS_STRING(self.data) + self.starts[index]
        cdef uint32_t word = <uint32_t> int32_at(prefix + 4)
        parts.serialization = word >> 24
        parts.header, parts.header_bytes = prefix + PREFIX_BYTES, word & 0xFFFFFF
        parts.body = parts.header + parts.header_bytes
        parts.body_bytes = int32_at(prefix) - 4 - parts.header_bytes

    cdef tuple frame(self, Py_ssize_t index):
        """Return a frame that is there as a tuple."""
        cdef FrameParts parts
        self.part(index, &parts)
        return (
            parts.serialization,
            PyBytes_FromStringAndSize(<const char *> parts.header, parts.header_bytes),
            PyBytes_FromStringAndSize(<const char *> parts.body, parts.body_bytes),
        )


def cut(bytes data not None, int64_t max_frame_bytes, int64_t max_header_bytes):
    """Return the whole usual frames with which `data` begins, as `ReadFrames`.

    They end before a frame that is incomplete, that breaks a limit, or whose header is longer than `max_header_bytes`.
    """
    cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t position = 0
    cdef int64_t length, header_bytes
    cdef uint32_t word
    cdef ReadFrames frames = ReadFrames.__new__(ReadFrames)
    while end - position >= PREFIX_BYTES:
        length = int32_at(octets + position)
        word = <uint32_t> int32_at(octets + position + 4)
        header_bytes = word & 0xFFFFFF
        if length > max_frame_bytes or word > MAX_WORD or header_bytes > max_header_bytes:
            break
        # The header ends within the frame, and the frame within the data.
        if header_bytes + 4 > length or length > end - position - 4:
            break
        frames.add(position)
        position += 4 + length
    frames.data, frames.end = data, position
    return frames


def start_of(frames, Py_ssize_t index):
    """Return serialization and first bytes of the header at `index`, the twin of `framing.start_of`."""
    cdef FrameParts parts
    if not find_frame(frames, index, &parts):
        raise IndexError(f"no frame at {index}")
    return parts.serialization, PyBytes_FromStringAndSize(<const char *> parts.header, start_bytes(&parts))


cdef Py_ssize_t start_bytes(const FrameParts *parts) noexcept nogil:
    """Return how many of a header's first bytes name its route."""
    return min(parts.header_bytes, JSON_START_BYTES if parts.serialization == JSON else BINARY_START_BYTES)


cdef bint find_frame(object frames, Py_ssize_t index, FrameParts *parts) noexcept:
    """Find the parts of the frame at `index` of `ReadFrames` or of a list; return False if there is no usual frame."""
    cdef PyObject *frame
    cdef PyObject *serialization
    cdef PyObject *header
    cdef PyObject *body
    cdef int overflow = 0
    if isinstance(frames, ReadFrames):
        if not 0 <= index < (<ReadFrames> frames).count:
            return False
        (<ReadFrames> frames).part(index, parts)
        return True
    if not PyList_CheckExact(frames) or not 0 <= index < PyList_GET_SIZE(frames):
        return False
    frame = PyList_GET_ITEM_(frames, index)
    # A tuple of a subclass is a frame that an access gate has admitted.
    if not PyTuple_Check(<object> frame) or PyTuple_GET_SIZE(<object> frame) != 3:
        return False
    serialization = PyTuple_GET_ITEM_(<object> frame, 0)
    header, body = PyTuple_GET_ITEM_(<object> frame, 1), PyTuple_GET_ITEM_(<object> frame, 2)
    if not PyLong_CheckExact(<object> serialization) or not PyBytes_CheckExact(<object> header):
        return False
    if not PyBytes_CheckExact(<object> body):
        return False
    parts.serialization = <int> PyLong_AsLongLongAndOverflow(<object> serialization, &overflow)
    if overflow:
        return False
    parts.header = <const uint8_t *> PyBytes_AS_STRING(<object> header)
    parts.header_bytes = PyBytes_GET_SIZE(<object> header)
    parts.body, parts.body_bytes = <const uint8_t *> PyBytes_AS_STRING(<object> body), PyBytes_GET_SIZE(<object> body)
    return True
