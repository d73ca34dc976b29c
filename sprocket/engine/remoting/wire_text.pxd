# Texts and numbers in the headers of requests, JSON and ROCKETMQ, for the compiled modules that read headers.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcmp, memcpy

from sprocket.engine.store.layout cimport from_big16, from_big32

cdef extern from *:
    """
    #define ONES 0x0101010101010101ull
    #define TOPS 0x8080808080808080ull
    #define ZERO_BYTES(word) (((word) - ONES) & ~(word) & TOPS)
    /* Not 0 if a byte of `word` is less than `limit`, which is at most 128. */
    #define bytes_below(word, limit) (((word) - ONES * (limit)) & ~(word) & TOPS)
    /* Not 0 if a byte of `word` ends or escapes a JSON string, or may not be in one. */
    static inline uint64_t special_bytes(uint64_t word) {
        return ZERO_BYTES(word ^ ONES * '"') | ZERO_BYTES(word ^ ONES * '\\\\') | bytes_below(word, 0x20);
    }
    /* In the top bit of each byte, for bytes of ASCII: whether it is one of those from `first` to `last`. */
    #define bytes_between(word, first, last) \\
        (((word) + ONES * (0x80 - (first))) & ~((word) + ONES * (0x7F - (last))) & TOPS)
    /* Whether all bytes of `word` are letters and digits of ASCII. */
    static inline int is_alphanumeric_word(uint64_t word) {
        return !(word & TOPS)
            && (bytes_between(word, '0', '9') | bytes_between(word | ONES * 0x20, 'a', 'z')) == TOPS;
    }
    /* Not 0 if a byte of `word` is a backslash. */
    #define backslashes(word) ZERO_BYTES((word) ^ ONES * '\\\\')
    #define first_byte(special) (__builtin_ctzll(special) / 8)
    #define bytes_before(special) ((((special) & -(special)) - 1) >> 7)
    """
    const uint64_t TOPS
    uint64_t special_bytes(uint64_t word) noexcept nogil
    uint64_t bytes_below(uint64_t word, uint64_t limit) noexcept nogil
    uint64_t backslashes(uint64_t word) noexcept nogil
    bint is_alphanumeric_word(uint64_t word) noexcept nogil
    # Of the result of one of these, which is not 0.
    Py_ssize_t first_byte(uint64_t special) noexcept nogil
    uint64_t bytes_before(uint64_t special) noexcept nogil

cdef enum:
    MAX_DIGITS = 18


# The rest of a header that is not read yet.
cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


# A text in a header, without its quotation marks.
cdef struct Text:
    const uint8_t *at
    Py_ssize_t size
    bint has_escapes
    bint is_ascii


cdef inline int32_t int32_at(const uint8_t *octets) noexcept nogil:
    cdef int32_t value
    memcpy(&value, octets, 4)
    return from_big32(value)


cdef inline int32_t int16_at(const uint8_t *octets) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, octets, 2)
    return <int16_t> from_big16(value)


cdef inline int32_t uint16_at(const uint8_t *octets) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, octets, 2)
    return from_big16(value)


cdef inline bint take(Cursor *cursor, uint8_t octet) noexcept nogil:
    """Read one byte if it is `octet`."""
    if cursor.at < cursor.end and cursor.at[0] == octet:
        cursor.at += 1
        return True
    return False


cdef inline bint take_text(Cursor *cursor, Text *text) noexcept nogil:
    """Read a JSON string; return False if none begins here or it has no end."""
    cdef const uint8_t *at
    cdef uint64_t word, special, every = 0
    if not take(cursor, c'"'):
        return False
    at = text.at = cursor.at
    text.has_escapes = False
    while at < cursor.end:
        # Eight bytes at a time, up to one that needs a look.
        if cursor.end - at >= 8:
            memcpy(&word, at, 8)
            special = special_bytes(word)
            if not special:
                every |= word
                at += 8
                continue
            every |= word & bytes_before(special)
            at += first_byte(special)
        if at[0] == c'"':
            text.size = at - text.at
            text.is_ascii = not every & TOPS
            cursor.at = at + 1
            return True
        if at[0] < 0x20:
            return False
        if at[0] == c'\\':
            text.has_escapes = True
            at += 1
            if at >= cursor.end:
                return False
        every |= at[0]
        at += 1
    return False


cdef inline bint take_number(Cursor *cursor, int64_t *value) noexcept nogil:
    """Read a JSON integer in its shortest form, of up to 18 digits."""
    cdef bint is_negative = take(cursor, c'-')
    cdef const uint8_t *begin = cursor.at
    cdef int64_t number = 0
    while cursor.at < cursor.end and c'0' <= cursor.at[0] <= c'9':
        number = number * 10 + (cursor.at[0] - c'0')
        cursor.at += 1
        if cursor.at - begin > MAX_DIGITS:
            return False
    if cursor.at == begin or (begin[0] == c'0' and (cursor.at - begin > 1 or is_negative)):
        return False
    value[0] = -number if is_negative else number
    return True


cdef inline bint is_int32(int64_t value) noexcept nogil:
    return -2147483648 <= value <= 2147483647


cdef inline bint is_name(const Text *text, const char *name, Py_ssize_t size) noexcept nogil:
    return text.size == size and not text.has_escapes and not memcmp(text.at, name, size)


cdef inline bint is_alphanumeric(const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Return whether a text is of ASCII letters and digits, at least one: JSON escapes none of them."""
    cdef const uint8_t *end = octets + size
    cdef uint64_t word
    if size < 8:
        for i in range(size):
            if not (c'0' <= octets[i] <= c'9' or c'a' <= (octets[i] | 0x20) <= c'z'):
                return False
        return size > 0
    # Eight bytes at a time; the last eight overlap those before.
    while end - octets >= 8:
        memcpy(&word, octets, 8)
        if not is_alphanumeric_word(word):
            return False
        octets += 8
    memcpy(&word, end - 8, 8)
    return is_alphanumeric_word(word)


cdef inline int hex_digit(uint8_t octet) noexcept nogil:
    if c'0' <= octet <= c'9':
        return octet - c'0'
    octet |= 0x20
    return octet - c'a' + 10 if c'a' <= octet <= c'f' else -1


cdef inline Py_ssize_t unescaped(const Text *text, uint8_t *into) noexcept nogil:
    """Write `text` without its escapes; return its size, or -1 if an escape stands for more than ASCII.

    `into` has room for `text.size` bytes: no escape is shorter than what it stands for.
    """
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.size
    cdef uint8_t *begin = into
    cdef uint64_t word, special
    cdef int high, low
    while at < end:
        # Eight bytes at a time, up to an escape.  What is written too far is written again.
        if end - at >= 8:
            memcpy(&word, at, 8)
            memcpy(into, &word, 8)
            special = backslashes(word)
            if not special:
                at += 8
                into += 8
                continue
            into += first_byte(special)
            at += first_byte(special)
        elif at[0] != c'\\':
            into[0] = at[0]
            at += 1
            into += 1
            continue
        if end - at >= 6 and at[1] == c'u':
            high, low = hex_digit(at[4]), hex_digit(at[5])
            if at[2] != c'0' or at[3] != c'0' or high < 0 or high > 7 or low < 0:
                return -1
            into[0] = high << 4 | low
            at += 6
        elif end - at >= 2 and (at[1] == c'"' or at[1] == c'\\' or at[1] == c'/'):
            into[0] = at[1]
            at += 2
        elif end - at >= 2 and at[1] == c'n':
            into[0] = c'\n'
            at += 2
        elif end - at >= 2 and at[1] == c't':
            into[0] = c'\t'
            at += 2
        else:
            return -1
        into += 1
    return into - begin


cdef inline bint take_sized(Cursor *cursor, int length_bytes, Text *text) noexcept nogil:
    """Read a text of at least one byte after its length of 2 or 4 bytes."""
    cdef uint8_t every = 0
    if cursor.end - cursor.at < length_bytes:
        return False
    text.size = int16_at(cursor.at) if length_bytes == 2 else int32_at(cursor.at)
    cursor.at += length_bytes
    if text.size <= 0 or text.size > cursor.end - cursor.at:
        return False
    text.at = cursor.at
    text.has_escapes = False
    cursor.at += text.size
    for i in range(text.size):
        every |= text.at[i]
    text.is_ascii = every < 128
    return True
