# Frames of one read, for the compiled modules that read requests from the received bytes.

from libc.stdint cimport uint8_t

cdef enum:
    # Before each header, see `framing.py`.
    PREFIX_BYTES = 8


# Where the parts of one frame are.  Valid as long as the frames are.
cdef struct FrameParts:
    int serialization
    const uint8_t *header
    Py_ssize_t header_bytes
    const uint8_t *body
    Py_ssize_t body_bytes


cdef class ReadFrames:
    cdef bytes data
    cdef Py_ssize_t *starts  # positions of the frames in `data`
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t end  # position after the last frame

    cdef int add(self, Py_ssize_t start) except -1
    cdef void part(self, Py_ssize_t index, FrameParts *parts) noexcept
    cdef tuple frame(self, Py_ssize_t index)


cdef bint find_frame(object frames, Py_ssize_t index, FrameParts *parts) noexcept
