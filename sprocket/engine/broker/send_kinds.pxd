# Kinds of messages that are stored under another topic first: half messages of transactions, and timed messages.
# Their twin is `broker/send/intake.py`.

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr, memcmp

from sprocket.remoting.frames_native cimport Value, put_decimal
from sprocket.engine.store.layout cimport VALUE_END
from sprocket.engine.store.record_writer cimport put
from sprocket.engine.remoting.wire_text cimport Cursor, take_number

cdef enum:
    KINDS = 3
    # A time in ms or a delay with more bits is unusual: sums of such numbers cannot overflow.
    TIME_BITS = 50
    MS_PER_S = 1000


cdef enum Kind:
    PLAIN
    HALF
    TIMED


# How a timed message names its time.
cdef enum TimeForm:
    DELAY_MS
    DELAY_S
    DELIVER_MS


# What makes a message other than plain.
cdef struct Special:
    Kind kind
    TimeForm form
    int64_t number  # delay or time


cdef inline uint8_t *put_number(uint8_t *to, int64_t number) noexcept nogil:
    cdef Value digits
    put_decimal(number, &digits)
    return put(to, digits.at, digits.size)


cdef inline Py_ssize_t digits_of(int64_t number) noexcept nogil:
    cdef Value digits
    put_decimal(number, &digits)
    return digits.size


cdef inline bint is_text(const uint8_t *octets, Py_ssize_t size, const char *text, Py_ssize_t text_bytes) noexcept nogil:
    return size == text_bytes and not memcmp(octets, text, text_bytes)


cdef inline bint occurs_once(
    const uint8_t *octets, Py_ssize_t size, const char *text, Py_ssize_t text_bytes
) noexcept nogil:
    """Return whether a text, of at least one byte, is in `octets` exactly once."""
    cdef const uint8_t *end = octets + size
    cdef int found = 0
    while end - octets >= text_bytes:
        octets = <const uint8_t *> memchr(octets, text[0], end - octets - text_bytes + 1)
        if octets == NULL:
            break
        found += not memcmp(octets, text, text_bytes)
        octets += 1
    return found == 1


cdef inline bint take_special(
    const uint8_t *name, Py_ssize_t name_bytes, const uint8_t *value, Py_ssize_t value_bytes, Special *special
) noexcept nogil:
    """Take a property that makes the message a half or timed one; return False for any other, or a second one."""
    cdef Cursor digits
    if special.kind != PLAIN:
        return False
    if is_text(name, name_bytes, b"TRAN_MSG", 8):
        special.kind = HALF
        return is_text(value, value_bytes, b"true", 4)
    if is_text(name, name_bytes, b"TIMER_DELAY_MS", 14):
        special.form = DELAY_MS
    elif is_text(name, name_bytes, b"TIMER_DELAY_SEC", 15):
        special.form = DELAY_S
    elif is_text(name, name_bytes, b"TIMER_DELIVER_MS", 16):
        special.form = DELIVER_MS
    else:
        return False
    special.kind = TIMED
    digits.at, digits.end = value, value + value_bytes
    if not take_number(&digits, &special.number) or digits.at != digits.end:
        return False
    return special.number > 0 and not special.number >> TIME_BITS


cdef inline int64_t delivery_ms(const Special *special, int64_t now_ms) noexcept nogil:
    """Return when a timed message wants to be delivered."""
    if special.form == DELIVER_MS:
        return special.number
    return now_ms + special.number * (MS_PER_S if special.form == DELAY_S else 1)


# What is added to the properties: of a half message the id of its transaction, of a timed one its slot; of both the
# real topic and queue.


cdef inline Py_ssize_t added_bytes(Kind kind, Py_ssize_t key_bytes, int64_t slot_ms, Py_ssize_t topic_bytes,
                                   int64_t queue_id) noexcept nogil:
    """Return how much `put_added` writes."""
    cdef Py_ssize_t first_bytes = 18 + key_bytes if kind == HALF else 13 + digits_of(slot_ms)
    return first_bytes + 12 + topic_bytes + 10 + digits_of(queue_id) + 1


cdef inline uint8_t *put_added(
    uint8_t *to, Kind kind, const uint8_t *key, Py_ssize_t key_bytes, int64_t slot_ms, const uint8_t *topic,
    Py_ssize_t topic_bytes, int64_t queue_id,
) noexcept nogil:
    if kind == HALF:
        to = put(put(to, <const uint8_t *> b"__transactionId__\x01", 18), key, key_bytes)
    else:
        to = put_number(put(to, <const uint8_t *> b"TIMER_OUT_MS\x01", 13), slot_ms)
    to = put(put(to, <const uint8_t *> b"\x02REAL_TOPIC\x01", 12), topic, topic_bytes)
    to = put_number(put(to, <const uint8_t *> b"\x02REAL_QID\x01", 10), queue_id)
    to[0] = VALUE_END
    return to + 1


# The handle by which a timed message is recalled: see `broker/timer/recall_handle.py`.


cdef inline Py_ssize_t handle_bytes(
    Py_ssize_t topic_bytes, Py_ssize_t broker_bytes, int64_t slot_ms, Py_ssize_t key_bytes
) noexcept nogil:
    """Return the size of a handle before Base64."""
    return 6 + topic_bytes + broker_bytes + digits_of(slot_ms + 1) + key_bytes


cdef inline uint8_t *put_handle(
    uint8_t *to, const uint8_t *topic, Py_ssize_t topic_bytes, const uint8_t *broker, Py_ssize_t broker_bytes,
    int64_t slot_ms, const uint8_t *key, Py_ssize_t key_bytes,
) noexcept nogil:
    """Write a handle before Base64; its time is 1 ms after the begin of the slot."""
    to = put(put(to, <const uint8_t *> b"v1 ", 3), topic, topic_bytes)
    to[0] = c' '
    to = put(to + 1, broker, broker_bytes)
    to[0] = c' '
    to = put_number(to + 1, slot_ms + 1)
    to[0] = c' '
    return put(to + 1, key, key_bytes)


cdef inline Py_ssize_t base64_bytes(Py_ssize_t size) noexcept nogil:
    return (size + 2) // 3 * 4


cdef inline uint8_t *put_base64(uint8_t *to, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Write the URL-safe Base64 of at least one byte, with padding."""
    cdef const char *digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    cdef uint8_t second, third
    while size > 0:
        second = octets[1] if size > 1 else 0
        third = octets[2] if size > 2 else 0
        to[0] = digits[octets[0] >> 2]
        to[1] = digits[(octets[0] & 3) << 4 | second >> 4]
        to[2] = digits[(second & 15) << 2 | third >> 6] if size > 1 else c'='
        to[3] = digits[third & 63] if size > 2 else c'='
        octets += 3
        to += 4
        size -= 3
    return to
