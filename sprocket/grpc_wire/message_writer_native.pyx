# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of `proxy.convert.outgoing`: the usual message in protobuf's wire format, from a broker's properties.

It leaves all others to the Python code: compressed bodies, properties that are no UTF-8, and names with `UNUSUAL`.
Source: protobuf, "Encoding".
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport NAME_END, VALUE_END

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    SLOTS = 256  # of the table of names; a power of 2
    MAX_NAMES = 128
    # A property of at least 3 bytes, a separator among them, becomes at most three tags of 2 bytes, three lengths of 3,
    # and its other bytes.  Keys and the other system properties grow less.
    GROWTH = 6
    MAX_TAG_BYTES = 2
    # All fields whose size the properties do not decide, without handle and hosts: their tags, and the numbers.
    MAX_ALL_TAGS_BYTES = 256
    FIXED_BYTES = 512
    # No broker stores more.
    MAX_PROPERTIES_BYTES = 65536
    MD5_BYTES = 16
    SECOND_MS = 1000

# What a property is to the writer.  Names that are not in the table are those of the user.
cdef enum:
    R_NONE
    R_UNUSUAL, R_MESSAGE_ID, R_TAG, R_KEYS, R_BORN_HOST, R_TRACE, R_GROUP
    ROLES

NONE, UNUSUAL, MESSAGE_ID, TAG, KEYS, BORN_HOST, TRACE, GROUP = range(ROLES)

# Fields in the order of `tags`.
cdef enum:
    F_PART = 0
    F_USER_PROPERTY, F_NAME, F_VALUE, F_SYSTEM, F_BODY
    F_TAG, F_KEY, F_MESSAGE_ID, F_MD5, F_NORMAL, F_FIFO, F_BORN, F_BORN_HOST, F_STORED
    F_HANDLE, F_QUEUE_ID, F_QUEUE_OFFSET, F_ATTEMPT, F_GROUP, F_TRACE, F_SECONDS, F_NANOS
    FIELDS

FIELDS_OF_TAGS = (
    "part", "user_property", "name", "value", "system", "body", "tag", "key", "message_id", "md5", "normal", "fifo",
    "born", "born_host", "stored", "handle", "queue_id", "queue_offset", "attempt", "group", "trace", "seconds", "nanos",
)


cdef struct Span:
    const uint8_t *at
    Py_ssize_t size


cdef struct Name:
    Span text
    uint8_t role
    bint is_hidden  # from the user


cdef class MessageWriter:
    """Writer of the parts of an answer that hold a message.

    `tags` has the bytes before each field, by the names in `FIELDS_OF_TAGS`; `roles` says what the properties with
    these names are, `hidden` has those that the user does not see, `md5` makes a digest, `hosts` the fields of a
    message's two addresses.  Bodies are compressed if `sys_flag` has the bit `compressed`.
    """

    cdef list kept  # bytes that the tables below point into
    cdef Span tags[FIELDS]
    cdef Name names[SLOTS]
    cdef Name user
    cdef object md5
    cdef object born_host
    cdef object store_host
    cdef int64_t compressed

    def __init__(self, dict tags not None, dict roles not None, hidden, md5, tuple hosts not None, int64_t compressed):
        cdef Span span
        cdef uint32_t slot
        cdef int index
        if set(tags) != set(FIELDS_OF_TAGS):
            raise ValueError(f"the tags are {sorted(tags)}")
        known = set(roles) | set(hidden)
        if len(known) > MAX_NAMES:
            raise ValueError(f"{len(known)} names of properties, the max is {MAX_NAMES}")
        self.kept = []
        self.md5, self.compressed = md5, compressed
        self.born_host, self.store_host = hosts
        for index in range(FIELDS):
            self.tags[index] = self.keep(tags[FIELDS_OF_TAGS[index]])
        if sum(map(len, tags.values())) > MAX_ALL_TAGS_BYTES or MAX_TAG_BYTES < max(
            len(tags[name]) for name in ("user_property", "name", "value", "key")
        ):
            raise ValueError(f"the tags are too long: {tags}")
        span.at, span.size = NULL, 0
        self.user = Name(span, R_NONE, False)
        for index in range(SLOTS):
            self.names[index].text = span
        for name in known:
            span = self.keep(name.encode())
            slot = hash_of(span)
            while self.names[slot].text.at != NULL:
                slot = (slot + 1) % SLOTS
            self.names[slot] = Name(span, roles.get(name, NONE), name in hidden)

    cdef Span keep(self, bytes octets):
        self.kept.append(octets)
        return span_of(octets)

    def write(self, message not None, bytes topic not None, str handle):
        """Return the part with `message`, whose topic's field is `topic`; None if the message is not usual.

        `handle` is its receipt handle, or None.
        """
        cdef bytes raw = message.stored_properties
        cdef bytes body = message.stored_body
        cdef bytes receipt = b"" if handle is None else handle.encode()
        cdef bytes born, stored
        cdef Py_ssize_t room
        cdef uint8_t *scratch
        if <int64_t> message.sys_flag & self.compressed or PyBytes_GET_SIZE(raw) > MAX_PROPERTIES_BYTES:
            return None
        if not is_utf8(raw):
            return None
        born, stored = self.born_host(message.born_host), self.store_host(message.store_host)
        # The user's properties, and after them the system's.
        room = PyBytes_GET_SIZE(raw) * GROWTH
        scratch = <uint8_t *> PyMem_Malloc(
            2 * room + FIXED_BYTES + PyBytes_GET_SIZE(receipt) + PyBytes_GET_SIZE(born) + PyBytes_GET_SIZE(stored)
        )
        if scratch == NULL:
            raise MemoryError()
        try:
            return self.written(message, topic, raw, body, receipt, handle is not None, born, stored, scratch, room)
        finally:
            PyMem_Free(scratch)

    cdef object written(
        self, message, bytes topic, bytes raw, bytes body, bytes receipt, bint has_handle, bytes born, bytes stored,
        uint8_t *scratch, Py_ssize_t room,
    ):
        cdef Span found[ROLES]
        cdef Span value
        cdef int64_t number
        cdef uint8_t *end = self.sorted(span_of(raw), scratch, found)
        cdef uint8_t *begin = scratch + room
        cdef uint8_t *at = begin
        if end == NULL or not found[R_MESSAGE_ID].size or has_edges(found[R_BORN_HOST]):
            return None
        if found[R_TAG].size:
            at = self.field(at, F_TAG, found[R_TAG])
        if found[R_KEYS].size:
            at = self.keys(at, found[R_KEYS])
        at = self.field(at, F_MESSAGE_ID, found[R_MESSAGE_ID])
        at = self.digest(at, body)
        at = put(at, self.tags[F_FIFO if found[R_GROUP].size else F_NORMAL])
        at = self.time(at, F_BORN, message.born_timestamp_ms)
        if found[R_BORN_HOST].size:
            at = self.field(at, F_BORN_HOST, found[R_BORN_HOST])
        else:
            at = put(at, span_of(born))
        at = self.time(at, F_STORED, message.store_timestamp_ms)
        at = put(at, span_of(stored))
        if has_handle:
            at = self.field(at, F_HANDLE, span_of(receipt))
        number = message.queue.queue_id
        if number:
            at = put_number(put(at, self.tags[F_QUEUE_ID]), <uint64_t> number)
        number = message.queue_offset
        at = put_number(put(at, self.tags[F_QUEUE_OFFSET]), <uint64_t> number)
        number = message.reconsume_times
        at = put_number(put(at, self.tags[F_ATTEMPT]), <uint64_t> (number + 1))
        if found[R_GROUP].size:
            at = self.field(at, F_GROUP, found[R_GROUP])
        if found[R_TRACE].size:
            at = self.field(at, F_TRACE, found[R_TRACE])
        value.at, value.size = begin, at - begin
        return self.part(topic, Span(scratch, end - scratch), value, span_of(body))

    cdef uint8_t *sorted(self, Span raw, uint8_t *at, Span *found) noexcept:
        """Write the user's properties to `at`, and find the last value of each other role.

        The message id is the first: brokers append that of a batch.  Return the end of what is written; NULL if a
        property is not usual.
        """
        cdef const uint8_t *left = raw.at
        cdef const uint8_t *end = raw.at + raw.size
        cdef const uint8_t *stop
        cdef const uint8_t *middle
        cdef Span name, value
        cdef const Name *known
        cdef bint has_id = False
        for index in range(ROLES):
            found[index].at, found[index].size = NULL, 0
        while left < end:
            stop = <const uint8_t *> memchr(left, VALUE_END, end - left)
            if stop == NULL:
                stop = end
            middle = <const uint8_t *> memchr(left, NAME_END, stop - left)
            if middle != NULL:
                name.at, name.size = left, middle - left
                value.at, value.size = middle + 1, stop - middle - 1
                known = self.known(name)
                if known.role == R_MESSAGE_ID:
                    if not has_id:
                        has_id, found[R_MESSAGE_ID] = True, value
                elif name.size and value.size:
                    if known.role == R_UNUSUAL:
                        return NULL
                    found[known.role] = value
                    if not known.is_hidden:
                        at = self.entry(at, name, value)
            left = stop + 1
        return at

    cdef const Name *known(self, Span name) noexcept:
        cdef uint32_t slot = hash_of(name)
        cdef const Name *found
        while True:
            found = &self.names[slot]
            if found.text.at == NULL:
                return &self.user
            if found.text.size == name.size and not memcmp(found.text.at, name.at, name.size):
                return found
            slot = (slot + 1) % SLOTS

    cdef uint8_t *entry(self, uint8_t *at, Span name, Span value) noexcept:
        """Write an entry of the map of the user's properties."""
        cdef Py_ssize_t size = name.size + number_bytes(name.size) + value.size + number_bytes(value.size)
        size += self.tags[F_NAME].size + self.tags[F_VALUE].size
        at = put_number(put(at, self.tags[F_USER_PROPERTY]), size)
        return self.field(self.field(at, F_NAME, name), F_VALUE, value)

    cdef uint8_t *field(self, uint8_t *at, int field, Span value) noexcept:
        return put(put_number(put(at, self.tags[field]), value.size), value)

    cdef uint8_t *keys(self, uint8_t *at, Span keys) noexcept:
        """Write keys, which blanks separate."""
        cdef const uint8_t *stop
        cdef const uint8_t *end = keys.at + keys.size
        while True:
            stop = <const uint8_t *> memchr(keys.at, c' ', end - keys.at) if keys.at < end else NULL
            keys.size = (end if stop == NULL else stop) - keys.at
            at = self.field(at, F_KEY, keys)
            if stop == NULL:
                return at
            keys.at = stop + 1

    cdef uint8_t *digest(self, uint8_t *at, bytes body) except NULL:
        cdef bytes digest = self.md5(body, usedforsecurity=False).digest()
        cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(digest)
        at = put(at, self.tags[F_MD5])
        for index in range(MD5_BYTES):
            at[2 * index] = hex_digit(octets[index] >> 4)
            at[2 * index + 1] = hex_digit(octets[index] & 15)
        return at + 2 * MD5_BYTES

    cdef uint8_t *time(self, uint8_t *at, int field, int64_t milliseconds) noexcept:
        """Write a Timestamp; its parts are absent for 0."""
        # Rounded down, as in Python, for times before 1970 too.
        cdef int64_t seconds = milliseconds // SECOND_MS
        cdef uint64_t nanos = <uint64_t> (milliseconds % SECOND_MS) * 1000000
        cdef uint8_t *size
        at = put(at, self.tags[field])
        size = at
        at += 1
        if seconds:
            at = put_number(put(at, self.tags[F_SECONDS]), <uint64_t> seconds)
        if nanos:
            at = put_number(put(at, self.tags[F_NANOS]), nanos)
        size[0] = <uint8_t> (at - size - 1)
        return at

    cdef bytes part(self, bytes topic, Span own, Span system, Span body):
        """Return the part of the answer with the parts of the message."""
        cdef Py_ssize_t inner = PyBytes_GET_SIZE(topic) + own.size + system.size + body.size
        cdef uint8_t *at
        cdef bytes made
        inner += self.tags[F_SYSTEM].size + number_bytes(system.size)
        if body.size:
            inner += self.tags[F_BODY].size + number_bytes(body.size)
        made = PyBytes_FromStringAndSize(NULL, self.tags[F_PART].size + number_bytes(inner) + inner)
        at = put_number(put(<uint8_t *> PyBytes_AS_STRING(made), self.tags[F_PART]), inner)
        at = self.field(put(put(at, span_of(topic)), own), F_SYSTEM, system)
        if body.size:
            self.field(at, F_BODY, body)
        return made


cdef inline Span span_of(bytes octets) noexcept:
    cdef Span span
    span.at, span.size = <const uint8_t *> PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets)
    return span


cdef inline uint32_t hash_of(Span name) noexcept nogil:
    """Return the first slot for a name (FNV-1a)."""
    cdef uint32_t found = 2166136261u
    for index in range(name.size):
        found = (found ^ name.at[index]) * 16777619u
    return (found ^ found >> 16) % SLOTS


cdef inline uint8_t *put(uint8_t *at, Span octets) noexcept nogil:
    memcpy(at, octets.at, octets.size)
    return at + octets.size


cdef inline uint8_t *put_number(uint8_t *at, uint64_t value) noexcept nogil:
    while value > 0x7F:
        at[0] = <uint8_t> (value & 0x7F | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t> value
    return at + 1


cdef inline Py_ssize_t number_bytes(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t hex_digit(uint8_t value) noexcept nogil:
    return value + (c'0' if value < 10 else c'A' - 10)


cdef inline bint has_edges(Span text) noexcept nogil:
    """Return whether a text may begin or end with white space, which the Python code knows."""
    return text.size > 0 and (is_edge(text.at[0]) or is_edge(text.at[text.size - 1]))


cdef inline bint is_edge(uint8_t octet) noexcept nogil:
    return octet <= c' ' or octet >= 0x80


cdef bint is_utf8(bytes octets):
    try:
        PyUnicode_DecodeUTF8(PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets), NULL)
    except UnicodeDecodeError:
        return False
    return True
