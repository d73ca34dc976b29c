# Memory of arrays, for the compiled modules that fill columns.

cdef class Bytes:
    cdef Py_buffer buffer
    cdef bint is_held

cdef void *memory(Bytes array, Py_ssize_t count, Py_ssize_t size) except NULL
