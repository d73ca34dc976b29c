# Writer of the fixed fields and of the seal of new records, with two IPv4 hosts: see `store/record/record.py`.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from sprocket.engine.store.layout cimport (
    FIXED_IPV4_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_NAME_BYTES, VALUE_END, from_big32, from_big64,
)

cdef enum:
    HOST_BYTES = 8
    SEAL_DIGITS = 10


# What a record's fixed fields say.
cdef struct RecordHead:
    int32_t size
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t body_bytes
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp
    int64_t store_timestamp
    int64_t prepared_transaction_offset
    const uint8_t *born_host
    const uint8_t *store_host


# Bytes that a Python object owns.
cdef struct Octets:
    const uint8_t *at
    Py_ssize_t size


cdef inline Octets octets_of(bytes kept) noexcept:
    cdef Octets found
    found.at, found.size = <const uint8_t *> PyBytes_AS_STRING(kept), PyBytes_GET_SIZE(kept)
    return found


cdef inline uint8_t *put(uint8_t *to, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    memcpy(to, octets, size)
    return to + size


cdef inline bint is_ascii(const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    cdef uint8_t every = 0
    cdef Py_ssize_t i
    for i in range(size):
        every |= octets[i]
    return every < 128


cdef inline uint8_t *put_head(uint8_t *to, const RecordHead *head) noexcept nogil:
    """Write the fields before the body."""
    cdef RecordFixed *fixed = <RecordFixed *> to
    cdef RecordRestIpv4 *rest = <RecordRestIpv4 *> (to + sizeof(RecordFixed))
    fixed.total_size = from_big32(head.size)
    fixed.magic = from_big32(head.magic)
    fixed.body_crc = from_big32(head.body_crc)
    fixed.queue_id = from_big32(head.queue_id)
    fixed.flag = from_big32(head.flag)
    fixed.queue_offset = from_big64(head.queue_offset)
    fixed.physical_offset = from_big64(head.physical_offset)
    fixed.sys_flag = from_big32(head.sys_flag)
    fixed.born_timestamp = from_big64(head.born_timestamp)
    memcpy(rest.born_host, head.born_host, HOST_BYTES)
    rest.store_timestamp = from_big64(head.store_timestamp)
    memcpy(rest.store_host, head.store_host, HOST_BYTES)
    rest.reconsume_times = from_big32(head.reconsume_times)
    rest.prepared_transaction_offset = from_big64(head.prepared_transaction_offset)
    rest.body_bytes = from_big32(head.body_bytes)
    return to + FIXED_IPV4_BYTES


cdef inline int begin_head(RecordHead *head, queue, int64_t physical_offset, int64_t born_timestamp,
                           int64_t store_timestamp, bytes host) except -1:
    """Fill in the first of some plain records that the broker itself makes for `queue`, without sizes and CRC.

    Its offset is the queue's `next_offset`.  `host` must outlive `head`.
    """
    if PyBytes_GET_SIZE(host) != HOST_BYTES:
        raise ValueError("usual records name an IPv4 address")
    head.magic, head.queue_id, head.queue_offset = queue.magic, queue.queue_id, queue.next_offset
    head.born_timestamp, head.store_timestamp = born_timestamp, store_timestamp
    head.born_host = head.store_host = <const uint8_t *> PyBytes_AS_STRING(host)
    head.flag = head.sys_flag = head.reconsume_times = 0
    head.prepared_transaction_offset = 0
    head.physical_offset = physical_offset
    return 0


cdef inline void put_entry(QueueEntry *entry, RecordHead *head, int64_t tags_code) noexcept nogil:
    """Write the entry of a record, and go on to the offsets of the next one."""
    entry.physical_offset = from_big64(head.physical_offset)
    entry.size = from_big32(head.size)
    entry.tags_code = from_big64(tags_code)
    head.physical_offset += head.size
    head.queue_offset += 1


cdef inline void put_seal(uint8_t *to, uint32_t crc) noexcept nogil:
    """Write the seal that `store.record.checksum` describes: the lowest digit is first."""
    memcpy(to, b"__CRC32#\x01", SEAL_NAME_BYTES)
    to += SEAL_NAME_BYTES
    for i in range(SEAL_DIGITS):
        to[i] = c'0' + crc % 10
        crc //= 10
    to[SEAL_DIGITS] = VALUE_END


cdef inline int32_t java_hash_after(uint32_t value, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Return Java's hash of a text of ASCII after a text whose hash is `value`."""
    cdef const uint8_t *end = octets + size
    # Four at a time: each product would otherwise wait for the one before.
    while end - octets >= 4:
        value = (
            923521 * value + 29791 * <uint32_t> octets[0] + 961 * <uint32_t> octets[1] + 31 * <uint32_t> octets[2]
            + octets[3]
        )
        octets += 4
    while octets < end:
        value = 31 * value + octets[0]
        octets += 1
    return <int32_t> value


cdef inline int32_t java_hash(const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Return Java's hash of a text of ASCII."""
    return java_hash_after(0, octets, size)
