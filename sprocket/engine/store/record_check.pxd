# Checks of one record in the log, shared by the compiled modules that read records of others: `store.record.record` and
# `store.scan.plain` have the same in Python.  Nothing is used as a position before it was compared with the end.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from sprocket.engine.store.layout cimport (
    BLANK_MIN_BYTES, BORN_V6, FIXED_IPV4_BYTES, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, RecordFixed, SEAL_BYTES,
    SEAL_MAX_UNLIKE, SEAL_NAME_BYTES, STORE_V6, V6_GROWTH_BYTES, VALUE_END, from_big32, from_big64,
)
from sprocket.engine.store.record_crc cimport masked_crc
from sprocket.engine.store.record_writer cimport is_ascii, java_hash
from sprocket.engine.remoting.wire_text cimport int32_at, uint16_at

cdef enum:
    NO_SEAL = -1
    DAMAGED_SEAL = -2
    # Longer topics are left to the single decoder.
    TOPIC_LIMIT = 288
    TAGS_NAME_BYTES = 5


# Bytes of one segment from a record's begin on, as far as they exist.
cdef struct Log:
    const uint8_t *octets
    int64_t size
    int64_t base  # physical offset of the first byte
    bint check_crc
    bint require_seal
    bint can_fold  # what `crc32_can_fold` returned


# Positions of the variable parts of one record.
cdef struct Parts:
    int64_t body_at
    int64_t body_end
    int64_t topic_at
    int64_t topic_bytes
    int64_t properties_at
    int64_t end


cdef inline bint lengths_fit(const Log *log, int64_t at, Parts *parts) noexcept nogil:
    """Return whether a record may begin at `at`, and its lengths add up; `parts` is then filled."""
    if at < 0 or at > log.size - MIN_RECORD_BYTES - BLANK_MIN_BYTES:
        return False
    cdef const RecordFixed *head = <const RecordFixed *> (log.octets + at)
    cdef int32_t magic = from_big32(head.magic)
    cdef int64_t size = from_big32(head.total_size)
    cdef int32_t sys_flag = from_big32(head.sys_flag)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    if size < MIN_RECORD_BYTES or size > log.size - BLANK_MIN_BYTES - at:
        return False
    if from_big64(head.physical_offset) != log.base + at:
        return False
    parts.end = at + size
    parts.body_at = at + FIXED_IPV4_BYTES
    if sys_flag & BORN_V6:
        parts.body_at += V6_GROWTH_BYTES
    if sys_flag & STORE_V6:
        parts.body_at += V6_GROWTH_BYTES
    if parts.body_at + (MIN_RECORD_BYTES - FIXED_IPV4_BYTES) > parts.end:
        return False
    cdef int64_t body_bytes = int32_at(log.octets + parts.body_at - 4)
    parts.body_end = parts.body_at + body_bytes
    parts.topic_at = parts.body_end + (1 if magic == MAGIC_V1 else 2)
    if body_bytes < 0 or parts.topic_at + 2 > parts.end:
        return False
    parts.topic_bytes = log.octets[parts.body_end] if magic == MAGIC_V1 else uint16_at(log.octets + parts.body_end)
    parts.properties_at = parts.topic_at + parts.topic_bytes + 2
    if parts.properties_at > parts.end or parts.topic_bytes > TOPIC_LIMIT:
        return False
    if uint16_at(log.octets + parts.properties_at - 2) != parts.end - parts.properties_at:
        return False
    # Properties never end with a zero: a page that did not reach the disk does.
    return parts.properties_at == parts.end or log.octets[parts.end - 1] != 0


cdef inline int64_t claimed_crc(const uint8_t *tail) noexcept nogil:
    """Return `store.record.checksum.sealed_crc` of the 20 bytes at `tail`."""
    cdef const uint8_t *name = b"__CRC32#\x01"
    cdef int64_t crc = 0
    cdef int64_t place = 1
    cdef int unlike = 0
    cdef int zeros = 0
    cdef int i
    cdef uint8_t octet
    for i in range(SEAL_BYTES):
        octet = tail[i]
        if i < SEAL_NAME_BYTES:
            if octet == name[i]:
                continue
        elif i < SEAL_BYTES - 1:
            if 48 <= octet <= 57:  # digits, the lowest first
                crc += (octet - 48) * place
                place *= 10
                continue
        elif octet == VALUE_END:
            continue
        if octet == 0:
            zeros += 1
        else:
            unlike += 1
            if unlike > SEAL_MAX_UNLIKE:
                return NO_SEAL
    return crc if not unlike and not zeros else DAMAGED_SEAL


cdef inline bint crc_holds(const Log *log, int64_t at, const Parts *parts) noexcept nogil:
    """Return whether a record matches its seal, or without a seal its body matches its CRC."""
    cdef int64_t claim = NO_SEAL
    if parts.end - parts.properties_at >= SEAL_BYTES:
        claim = claimed_crc(log.octets + parts.end - SEAL_BYTES)
    if claim == DAMAGED_SEAL:
        return False
    if claim != NO_SEAL:
        return masked_crc(log.octets + at, parts.end - SEAL_BYTES - at, log.can_fold) == claim
    if log.require_seal:
        return False
    cdef int64_t body_bytes = parts.body_end - parts.body_at
    cdef int32_t body_crc = from_big32((<const RecordFixed *> (log.octets + at)).body_crc)
    return body_bytes <= 0 or masked_crc(log.octets + parts.body_at, body_bytes, log.can_fold) == body_crc


cdef inline int64_t last_value(
    const uint8_t *octets, int64_t at, int64_t end, const uint8_t *name, int64_t name_bytes, int64_t min_value_bytes,
    int64_t *value_end,
) noexcept nogil:
    """Return where the last value of a property in [`at`, `end`) begins, and its end; -1 without one.

    `name` ends with 0x01.  Values of less than `min_value_bytes` do not count.
    """
    cdef const uint8_t *separator
    cdef int64_t found = -1, item_end, min_bytes = name_bytes + min_value_bytes
    while end - at >= min_bytes:
        separator = <const uint8_t *> memchr(octets + at, VALUE_END, end - at)
        item_end = end if separator == NULL else separator - octets
        if item_end - at >= min_bytes and not memcmp(octets + at, name, name_bytes):
            found, value_end[0] = at + name_bytes, item_end
        at = item_end + 1
    return found


cdef inline int64_t tag_at(const uint8_t *octets, int64_t at, int64_t end, int64_t *tag_end) noexcept nogil:
    """Return where the last non-empty value of TAGS in [`at`, `end`) begins, and its end; -1 without one.

    The rule is that of `sprocket.remoting.message.properties.find_last`.
    """
    return last_value(octets, at, end, b"TAGS\x01", TAGS_NAME_BYTES, 1, tag_end)


cdef inline bint tags_code(const uint8_t *tag, int64_t size, int64_t *code) noexcept nogil:
    """Compute Java's hash of a tag of ASCII; return False for any other text."""
    code[0] = java_hash(tag, size)
    return is_ascii(tag, size)
