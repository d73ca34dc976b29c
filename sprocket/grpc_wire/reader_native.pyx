# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of protobuf's parser, for requests that come often: it makes plain objects in place of protobuf's.

It accepts what protobuf accepts, and refuses what protobuf refuses (`tests/grpc_wire/test_reader.py`).
Source: protobuf, "Encoding"; limits of its library upb: tags and lengths have 5 bytes, numbers 10, 100 levels.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from sprocket.engine.common.sources cimport ENGINE_SOURCES

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    MAX_FIELDS = 64
    MAX_DEPTH = 100
    MAX_OBJECTS = 16384
    NUMBER_BYTES = 10
    SHORT_BYTES = 5
    # Wire types.
    VARINT = 0
    FIXED64 = 1
    SIZED = 2
    GROUP = 3
    GROUP_END = 4
    FIXED32 = 5

# What a field holds; `sprocket.grpc_wire.reader` has the same numbers.
cdef enum Kind:
    UNKNOWN = 0
    INT32 = 1
    INT64 = 2
    BOOL = 3
    TEXT = 4
    OCTETS = 5
    MESSAGE = 6
    TEXTS = 7
    MESSAGES = 8
    TEXT_MAP = 9
    INT32S = 10


cdef class Schema:
    """Parser of one kind of message: `record` is the class of its objects.

    `fields` has the number, the name, the kind, the schema of its messages (or None), and the default of each field.
    """

    cdef object record
    cdef list names
    cdef list parts
    cdef list defaults
    cdef uint8_t kinds[MAX_FIELDS]

    def __init__(self, type record not None, tuple fields not None):
        cdef int number
        self.record = record
        self.names, self.parts, self.defaults = [None] * MAX_FIELDS, [None] * MAX_FIELDS, [None] * MAX_FIELDS
        for number in range(MAX_FIELDS):
            self.kinds[number] = UNKNOWN
        for number, name, kind, part, default in fields:
            if not 0 < number < MAX_FIELDS:
                raise ValueError(f"{name} has the number {number}")
            self.names[number], self.kinds[number] = name, kind
            self.parts[number], self.defaults[number] = part, default

    def read(self, bytes data not None):
        """Return the message in `data`; None if it has too many parts, for which protobuf needs less memory.

        Raises ValueError.
        """
        cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef int left = MAX_OBJECTS
        record = self.record()
        self.fill(record, at, at + PyBytes_GET_SIZE(data), MAX_DEPTH, &left)
        return record if left > 0 else None

    cdef int fill(self, object record, const uint8_t *at, const uint8_t *end, int depth, int *left) except -1:
        """Set the fields of `record` that stand from `at` to `end`; `left` objects may be made."""
        cdef uint32_t number
        cdef uint64_t tag, value
        cdef uint8_t kind
        if depth < 0:
            raise malformed()
        while at < end and left[0] > 0:
            at = tagged(at, end, &tag)
            if at == NULL:
                raise malformed()
            number = <uint32_t> (tag >> 3)
            kind = self.kinds[number] if number < MAX_FIELDS else UNKNOWN
            if tag & 7 == VARINT and (INT32 <= kind <= BOOL or kind == INT32S):
                at = varint(at, end, NUMBER_BYTES, &value)
                if at == NULL:
                    raise malformed()
                self.set_number(record, number, kind, value, left)
            elif tag & 7 == SIZED and kind >= TEXT:
                at = sized(at, end, &value)
                if at == NULL:
                    raise malformed()
                self.set_sized(record, number, kind, at, <Py_ssize_t> value, depth, left)
                at += value
            else:
                at = skipped(at, end, tag, depth)
                if at == NULL:
                    raise malformed()
        return 0

    cdef int set_number(self, object record, uint32_t number, uint8_t kind, uint64_t value, int *left) except -1:
        name = self.names[number]
        if kind == INT32S:
            left[0] -= 1
            self.own(record, number, list).append(<int32_t> <uint32_t> value)
        elif kind == INT32:
            setattr(record, name, <int32_t> <uint32_t> value)
        elif kind == INT64:
            setattr(record, name, <int64_t> value)
        else:
            setattr(record, name, value != 0)
        return 0

    cdef int set_sized(
        self, object record, uint32_t number, uint8_t kind, const uint8_t *at, Py_ssize_t size, int depth, int *left
    ) except -1:
        name = self.names[number]
        left[0] -= 1
        if kind == TEXT:
            setattr(record, name, text(at, size))
            return 0
        if kind == OCTETS:
            setattr(record, name, PyBytes_FromStringAndSize(<const char *> at, size))
            return 0
        if kind == MESSAGES:
            found = self.own(record, number, list)
            made = (<Schema> self.parts[number]).record()
            (<Schema> self.parts[number]).fill(made, at, at + size, depth - 1, left)
            found.append(made)
        elif kind == TEXTS:
            self.own(record, number, list).append(text(at, size))
        elif kind == MESSAGE:
            # One that comes again is merged.
            found = self.own(record, number, (<Schema> self.parts[number]).record)
            (<Schema> self.parts[number]).fill(found, at, at + size, depth - 1, left)
        elif kind == INT32S:
            self.fill_packed(record, number, at, at + size, left)
        else:
            entry(self.own(record, number, dict), at, at + size, depth - 1)
        return 0

    cdef int fill_packed(
        self, object record, uint32_t number, const uint8_t *at, const uint8_t *end, int *left
    ) except -1:
        """Append the numbers that stand from `at` to `end`."""
        cdef uint64_t value
        while at < end and left[0] > 0:
            at = varint(at, end, NUMBER_BYTES, &value)
            if at == NULL:
                raise malformed()
            self.set_number(record, number, INT32S, value, left)
        return 0

    cdef object own(self, object record, uint32_t number, object kind):
        """Return the value of a field, which is made from `kind` if there is none."""
        found = getattr(record, self.names[number])
        if found is self.defaults[number]:
            found = kind()
            setattr(record, self.names[number], found)
        return found


cdef int entry(dict table, const uint8_t *at, const uint8_t *end, int depth) except -1:
    """Add an entry of a map of texts.  As in protobuf's library, one with other fields is dropped."""
    cdef uint64_t tag, size
    cdef bint is_known = True
    key = value = ""
    if depth < 0:
        raise malformed()
    while at < end:
        at = tagged(at, end, &tag)
        if at == NULL:
            raise malformed()
        if tag == (1 << 3 | SIZED) or tag == (2 << 3 | SIZED):
            at = sized(at, end, &size)
            if at == NULL:
                raise malformed()
            if tag >> 3 == 1:
                key = text(at, <Py_ssize_t> size)
            else:
                value = text(at, <Py_ssize_t> size)
            at += size
        else:
            is_known = False
            at = skipped(at, end, tag, depth)
            if at == NULL:
                raise malformed()
    if is_known:
        table[key] = value
    return 0


cdef object text(const uint8_t *at, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *> at, size, NULL)


cdef object malformed():
    return ValueError("Wire format was corrupt")


cdef const uint8_t *varint(const uint8_t *at, const uint8_t *end, int max_bytes, uint64_t *value) noexcept nogil:
    """Read a number of at most `max_bytes`.  Return its end; NULL if there is none."""
    cdef int index
    cdef uint8_t octet
    value[0] = 0
    for index in range(max_bytes):
        if at >= end:
            return NULL
        octet = at[0]
        at += 1
        value[0] |= <uint64_t> (octet & 0x7F) << (7 * index)
        if octet < 0x80:
            return at
    return NULL


cdef const uint8_t *tagged(const uint8_t *at, const uint8_t *end, uint64_t *tag) noexcept nogil:
    """Read a tag: a field's number, of 29 bits, and a wire type.  Return its end; NULL if there is none."""
    at = varint(at, end, SHORT_BYTES, tag)
    return NULL if at == NULL or tag[0] >> 32 or not tag[0] >> 3 else at


cdef const uint8_t *sized(const uint8_t *at, const uint8_t *end, uint64_t *size) noexcept nogil:
    """Read the size of what follows.  Return its end; NULL if so much does not follow."""
    at = varint(at, end, SHORT_BYTES, size)
    return NULL if at == NULL or size[0] > <uint64_t> (end - at) else at


cdef const uint8_t *skipped(const uint8_t *at, const uint8_t *end, uint64_t tag, int depth) noexcept nogil:
    """Return the end of a field that is not known, whose tag ends at `at`; NULL if it is none."""
    cdef uint64_t value, inner
    cdef int kind = tag & 7
    if kind == VARINT:
        return varint(at, end, NUMBER_BYTES, &value)
    if kind == SIZED:
        at = sized(at, end, &value)
        return NULL if at == NULL else at + value
    if kind == FIXED64:
        return at + 8 if end - at >= 8 else NULL
    if kind == FIXED32:
        return at + 4 if end - at >= 4 else NULL
    if kind != GROUP or depth <= 0:
        return NULL
    while True:
        # In a group that is not known, protobuf's library lets the number 0 pass.
        at = varint(at, end, SHORT_BYTES, &inner)
        if at == NULL or inner >> 32:
            return NULL
        if inner & 7 == GROUP_END:
            return at if inner >> 3 == tag >> 3 else NULL
        at = skipped(at, end, inner, depth - 1)
        if at == NULL:
            return NULL
