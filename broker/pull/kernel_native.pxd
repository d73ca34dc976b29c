# The buffer of the responses of one turn, for the kernels that respond with records.

from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t


cdef bint admits(tuple buckets) except -1  # whether all buckets of quotas admit a request now, as `broker.quota.bucket`


cdef class Frames:
    cdef PyObject *octets  # a bytes object that nobody else has, or NULL
    cdef Py_ssize_t used

    cdef uint8_t *room(self, Py_ssize_t size_bytes, Py_ssize_t more_bytes) except NULL
    cdef bytes whole(self)
