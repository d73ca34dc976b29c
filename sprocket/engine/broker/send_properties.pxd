# Properties of a message that is sent: what a broker looks at, for the compiled path of usual sends.
# Their twins are `broker/send/send_kinds.py` and `broker/send/intake.py`.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from sprocket.engine.store.layout cimport NAME_END, VALUE_END
from sprocket.engine.store.record_writer cimport is_ascii
from sprocket.engine.broker.send_kinds cimport HALF, PLAIN, Special, occurs_once, take_special
from sprocket.engine.remoting.wire_text cimport Cursor, bytes_below, first_byte, is_alphanumeric, take_number


# Parts of a message's properties that a broker looks at.
cdef struct Properties:
    const uint8_t *key
    Py_ssize_t key_bytes
    const uint8_t *tag
    Py_ssize_t tag_bytes
    bint has_group
    bint is_fifo  # a sharding key: for statistics, and it takes a priority's place
    int64_t priority  # -1 without one
    bint has_sharding_key  # with a value: it decides about the type of the message
    Special special


cdef inline bint begins(const uint8_t *octets, Py_ssize_t size, const char *with_, Py_ssize_t bytes_) noexcept nogil:
    return size >= bytes_ and not memcmp(octets, with_, bytes_)


cdef inline bint ends(const uint8_t *octets, Py_ssize_t size, const char *with_, Py_ssize_t bytes_) noexcept nogil:
    return size >= bytes_ and not memcmp(octets + size - bytes_, with_, bytes_)


cdef inline bint names_topics(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    """Return whether a property may name further topics, for which permission is needed: see `acl.access_request`."""
    return ends(name, size, b"INNER_MULTI_DISPATCH", 20) or ends(name, size, b"TIMER_DEL_UNIQKEY", 17)


cdef inline bint has_meaning(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    """Return whether a property may make a message other than plain: more names than `broker/send/send_kinds.py`."""
    if names_topics(name, size):
        return True
    if name[0] == c'D':
        return begins(name, size, b"DELAY", 5)
    if name[0] == c'T':
        return begins(name, size, b"TIMER_", 6) or begins(name, size, b"TRAN", 4)
    if name[0] == c'C':
        return begins(name, size, b"CLUSTER", 7)
    if name[0] == c'P':
        return begins(name, size, b"POP_CK", 6)
    if name[0] == c'I':
        return begins(name, size, b"INNER_", 6)
    if name[0] == c'R':
        return begins(name, size, b"REAL_", 5)
    if name[0] != c'_':
        return False
    if begins(name, size, b"_SYS_MSG_", 9):  # a priority
        return True
    return begins(name, size, b"__", 2) and not (size == 13 and ends(name, size, b"__SHARDINGKEY", 13))


cdef inline const uint8_t *take_item(const uint8_t *at, const uint8_t *end, const uint8_t **value) noexcept nogil:
    """Return the end of the property at `at`, and in `value` where its value begins; NULL if it is unusual."""
    cdef const uint8_t *begin = at
    cdef uint64_t word, special
    value[0] = NULL
    while at < end:
        # Eight bytes at a time, up to one that needs a look: few characters of a property are so small.
        if end - at >= 8:
            memcpy(&word, at, 8)
            special = bytes_below(word, c'#' + 1)
            if not special:
                at += 8
                continue
            at += first_byte(special)
        if at[0] <= c'#':
            if at[0] == VALUE_END:
                break
            # The name of a record's seal has this character, and few others do.
            if at[0] == c'#':
                return NULL
            if at[0] == NAME_END:
                if value[0] != NULL:
                    return NULL
                value[0] = at + 1
        at += 1
    return at if value[0] != NULL and value[0] - 1 > begin else NULL


cdef inline bint is_false(const uint8_t *value, Py_ssize_t size) noexcept nogil:
    return size == 5 and not memcmp(value, b"false", 5)


cdef inline bint is_fit(const uint8_t *properties, Py_ssize_t size, const Properties *found) noexcept nogil:
    """Return whether a half or timed message has the form in which its properties are stored as they are."""
    if not occurs_once(properties, size, b"UNIQ_KEY", 8):
        return False
    return found.special.kind != HALF or (found.has_group and occurs_once(properties, size, b"PGROUP", 6))


cdef inline bint take_priority(const uint8_t *value, Py_ssize_t size, Properties *found) noexcept nogil:
    """Take the value of a priority; return False for a second one, and for one that needs thought."""
    cdef Cursor digits
    digits.at, digits.end = value, value + size
    if found.priority >= 0 or size > 9 or not take_number(&digits, &found.priority):
        return False
    return digits.at == digits.end and found.priority >= 0


cdef inline bint read_properties(const uint8_t *at, Py_ssize_t size, Properties *found) noexcept nogil:
    """Find key, tag and kind of a usual message; return False if the message needs thought."""
    cdef const uint8_t *begin = at
    cdef const uint8_t *end = at + size
    cdef const uint8_t *value_end
    cdef const uint8_t *value
    cdef Py_ssize_t name_bytes, value_bytes
    found.key = found.tag = NULL
    found.key_bytes = found.tag_bytes = 0
    found.has_group = found.is_fifo = found.has_sharding_key = False
    found.special.kind = PLAIN
    found.priority = -1
    while at < end:
        value_end = take_item(at, end, &value)
        if value_end == NULL:
            return False
        name_bytes, value_bytes = value - 1 - at, value_end - value
        if name_bytes == 18 and begins(at, name_bytes, b"_SYS_MSG_PRIORITY_", 18):
            if not take_priority(value, value_bytes, found):
                return False
        elif has_meaning(at, name_bytes) and not take_special(at, name_bytes, value, value_bytes, &found.special):
            return False
        if ends(at, name_bytes, b"UNIQ_KEY", 8):
            if name_bytes != 8:
                return False
            found.key, found.key_bytes = value, value_bytes
        elif name_bytes == 4 and begins(at, name_bytes, b"TAGS", 4):
            # The last counts, but for one without a value.
            if not value_bytes and found.tag_bytes:
                return False
            found.tag, found.tag_bytes = value, value_bytes
        elif name_bytes == 4 and begins(at, name_bytes, b"WAIT", 4) and is_false(value, value_bytes):
            return False
        elif name_bytes == 6 and begins(at, name_bytes, b"PGROUP", 6):
            found.has_group = value_bytes > 0
        if ends(at, name_bytes, b"__SHARDINGKEY", 13):
            found.is_fifo = True
            found.has_sharding_key = found.has_sharding_key or (name_bytes == 13 and value_bytes > 0)
        at = value_end + 1
    if found.special.kind != PLAIN and not is_fit(begin, size, found):
        return False
    # A message of another type loses its priority.
    if found.priority >= 0 and (found.special.kind != PLAIN or found.is_fifo):
        return False
    return is_alphanumeric(found.key, found.key_bytes) and is_ascii(found.tag, found.tag_bytes)
