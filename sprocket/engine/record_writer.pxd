# Records as the store writes them: fixed fields with two IPv4 hosts, body, topic, properties, seal.
# Twin of `Appender._encode` and of `store.record.checksum.with_seals`.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from sprocket.engine.layout cimport (
    CRC_MASK, FIXED_IPV4_BYTES, RecordFixed, RecordRestIpv4, VALUE_END, from_big32, from_big64,
)

cdef extern from "crc32.h":
    uint32_t crc32_of(const uint8_t *data, size_t size, int can_fold) noexcept nogil

cdef enum:
    RECORD_HOST_BYTES = 8
    # Name, 0x01, digits, 0x02.
    RECORD_SEAL_NAME_BYTES = 9
    RECORD_SEAL_DIGITS = 10


# The fields of a plain record that its body, topic and properties do not tell.
cdef struct RecordHead:
    int64_t size
    int32_t magic
    int64_t queue_id
    int64_t queue_offset
    int64_t physical_offset
    int64_t born_timestamp
    int64_t store_timestamp
    const uint8_t *born_host
    const uint8_t *store_host
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times


cdef inline uint8_t *put_octets(uint8_t *to, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    memcpy(to, octets, size)
    return to + size


cdef inline uint8_t *put_head(
    uint8_t *to, const RecordHead *head, const uint8_t *body, Py_ssize_t body_bytes, bint can_fold
) noexcept nogil:
    """Write the fixed fields for a body; return where the body goes."""
    cdef RecordFixed *fixed = <RecordFixed *> to
    cdef RecordRestIpv4 *rest = <RecordRestIpv4 *> (to + sizeof(RecordFixed))
    fixed.total_size = from_big32(<int32_t> head.size)
    fixed.magic = from_big32(head.magic)
    fixed.body_crc = from_big32(<int32_t> (crc32_of(body, body_bytes, can_fold) & CRC_MASK))
    fixed.queue_id = from_big32(<int32_t> head.queue_id)
    fixed.flag = from_big32(head.flag)
    fixed.queue_offset = from_big64(head.queue_offset)
    fixed.physical_offset = from_big64(head.physical_offset)
    fixed.sys_flag = from_big32(head.sys_flag)
    fixed.born_timestamp = from_big64(head.born_timestamp)
    memcpy(rest.born_host, head.born_host, RECORD_HOST_BYTES)
    rest.store_timestamp = from_big64(head.store_timestamp)
    memcpy(rest.store_host, head.store_host, RECORD_HOST_BYTES)
    rest.reconsume_times = from_big32(head.reconsume_times)
    rest.prepared_transaction_offset = 0
    rest.body_bytes = from_big32(<int32_t> body_bytes)
    return to + FIXED_IPV4_BYTES


cdef inline uint8_t *put_seal(uint8_t *to, const uint8_t *record, bint can_fold) noexcept nogil:
    """Write the seal of a record that ends at `to`: the lowest digit of its CRC is first."""
    cdef uint32_t crc = crc32_of(record, to - record, can_fold) & CRC_MASK
    cdef int i
    to = put_octets(to, b"__CRC32#\x01", RECORD_SEAL_NAME_BYTES)
    for i in range(RECORD_SEAL_DIGITS):
        to[i] = c'0' + crc % 10
        crc //= 10
    to[RECORD_SEAL_DIGITS] = VALUE_END
    return to + RECORD_SEAL_DIGITS + 1
