# What other compiled modules use of `framing.pyx`: responses from templates.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    MAX_VALUES = 16
    HEX_DIGITS = 16


# A value of a response: what stands before it in each form of the header, and its kind.
cdef struct Slot:
    const char *json
    Py_ssize_t json_bytes
    const char *key  # with its length, as in a ROCKETMQ header
    Py_ssize_t key_bytes
    const char *literal  # the begin of the value itself, such as the broker's address
    Py_ssize_t literal_bytes
    int kind


# A value as bytes: at most a number's digits are made here.
cdef struct Value:
    const uint8_t *at
    Py_ssize_t size
    uint8_t digits[20]


cdef void put_decimal(int64_t number, Value *found) noexcept nogil
cdef void put_hex(int64_t number, Value *found) noexcept nogil


cdef class ResponseEncoder:
    cdef Slot slots[MAX_VALUES]
    cdef int count
    cdef object parts  # keeps the memory of all texts
    cdef bytes json_opaque  # before the opaque, after the last value
    cdef bytes json_end
    cdef bytes binary_begin  # code, language, version
    cdef bytes binary_middle  # flag and remark
    cdef bytes binary_end  # constant fields
    cdef Py_ssize_t fixed_bytes  # bound of everything but the values that are bytes

    cdef int add(self, bytes json, bytes key, bytes literal, int kind) except -1
    cdef uint8_t *put(
        self, uint8_t *frame, int serialization, int32_t opaque, const Value *values, Py_ssize_t body_bytes
    ) noexcept
    cdef uint8_t *put_json(self, uint8_t *to, int32_t opaque, const Value *values) noexcept
    cdef uint8_t *put_binary(self, uint8_t *to, int32_t opaque, const Value *values) noexcept
