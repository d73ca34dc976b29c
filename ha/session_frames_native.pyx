# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of parts of `ha.session`: the frames that a master and its slave exchange for each append.

`log_pieces` and `reported` take a read that holds nothing unusual.  For any other read they return None, and
`ha.session.FrameReader` reads all of it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport from_big32, from_big64
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_more, crc32_of, crc32_prepare

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    LOG = 1
    REPORT = 19
    # Bodies above this are left to Python, whose CRC is faster for them.  It is also the bound of one call's work.
    MAX_PIECE = 32 * 1024

MAX_PIECE_BYTES = MAX_PIECE

# `ha.session.HEAD`.  Big-endian, so nothing may read a field without `from_big32` or `from_big64`.
cdef packed struct Head:
    uint8_t type
    uint8_t flags
    uint16_t reserved
    int32_t size_bytes
    int64_t epoch
    int64_t offset
    uint32_t crc

cdef packed struct ReportFrame:
    Head head
    int64_t flushed_offset

HEAD_BYTES = sizeof(Head)
REPORT_BYTES = sizeof(ReportFrame)

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()


cdef inline uint32_t crc_of(const Head *head, const uint8_t *body, size_t size) noexcept nogil:
    """Return the CRC of a frame, as the head holds it."""
    cdef uint32_t crc = crc32_of(<const uint8_t *> head, sizeof(Head) - sizeof(uint32_t), CAN_FOLD)
    return <uint32_t> from_big32(crc32_more(crc, body, size, CAN_FOLD))


cdef inline void fill(
    Head *head, uint8_t type, int64_t epoch, int64_t offset, const uint8_t *body, int32_t size
) noexcept nogil:
    head[0] = Head(type, 0, 0, from_big32(size), from_big64(epoch), from_big64(offset), 0)
    head.crc = crc_of(head, body, size)


cdef inline bint is_valid(
    const Head *head, uint8_t type, int64_t epoch, const uint8_t *body, int32_t size
) noexcept nogil:
    if head.type != type or head.flags or head.reserved or head.epoch != from_big64(epoch):
        return False
    return head.crc == crc_of(head, body, size)


def log_pieces(data not None, int64_t epoch, int64_t expected):
    """Return the bodies of the LOG frames in `data`, which is a bytes-like object, as views of it.

    None unless `data` is nothing but whole frames of `epoch` with the log from `expected` on, each of at most
    `MAX_PIECE_BYTES`, and all together too.
    """
    cdef Py_buffer buffer
    cdef const uint8_t *octets
    cdef const Head *head
    cdef int64_t at = 0, size
    cdef list pieces = []
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        octets = <const uint8_t *> buffer.buf
        if not 0 < buffer.len <= MAX_PIECE or expected <= 0:
            return None
        view = memoryview(data).toreadonly()
        while at < buffer.len:
            if buffer.len - at < <int64_t> sizeof(Head):
                return None
            head = <const Head *> (octets + at)
            size = from_big32(head.size_bytes)
            at += sizeof(Head)
            if not 0 < size <= buffer.len - at or from_big64(head.offset) != expected:
                return None
            if not is_valid(head, LOG, epoch, octets + at, <int32_t> size):
                return None
            pieces.append(view[at:at + size])
            at += size
            expected += size
        return pieces
    finally:
        PyBuffer_Release(&buffer)


def log_head(int64_t epoch, int64_t offset, piece not None):
    """Return the head of a LOG frame, as `ha.session.frame_head`.  `piece` has at most `MAX_PIECE_BYTES`."""
    cdef Py_buffer buffer
    cdef Head head
    PyObject_GetBuffer(piece, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len > MAX_PIECE:
            raise ValueError(f"a piece of {buffer.len} bytes")
        fill(&head, LOG, epoch, offset, <const uint8_t *> buffer.buf, <int32_t> buffer.len)
    finally:
        PyBuffer_Release(&buffer)
    return PyBytes_FromStringAndSize(<const char *> &head, sizeof(Head))


def report(int64_t epoch, int64_t offset, int64_t flushed_offset):
    """Return a whole frame REPORT."""
    cdef ReportFrame frame
    frame.flushed_offset = from_big64(flushed_offset)
    fill(&frame.head, REPORT, epoch, offset, <const uint8_t *> &frame.flushed_offset, sizeof(int64_t))
    return PyBytes_FromStringAndSize(<const char *> &frame, sizeof(ReportFrame))


def reported(bytes data not None, int64_t epoch):
    """Return offset and flushed offset of the REPORT frame that is `data`; None for anything else."""
    cdef const ReportFrame *frame = <const ReportFrame *> PyBytes_AS_STRING(data)
    if len(data) != sizeof(ReportFrame) or from_big32(frame.head.size_bytes) != sizeof(int64_t):
        return None
    if from_big64(frame.head.offset) < 0:
        return None
    if not is_valid(&frame.head, REPORT, epoch, <const uint8_t *> &frame.flushed_offset, sizeof(int64_t)):
        return None
    return from_big64(frame.head.offset), from_big64(frame.flushed_offset)
