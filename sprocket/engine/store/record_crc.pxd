# CRCs of records: see `store/record/checksum.py`.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from sprocket.engine.store.layout cimport CRC_MASK

cdef extern from "crc32.h" nogil:
    void crc32_prepare()
    bint crc32_can_fold()
    uint32_t crc32_of(const uint8_t *data, size_t size, bint can_fold)
    uint32_t crc32_more(uint32_t crc, const uint8_t *data, size_t size, bint can_fold)


cdef inline int32_t masked_crc(const uint8_t *octets, int64_t size, bint can_fold) noexcept nogil:
    """Return the CRC as records have it: without the sign bit."""
    return <int32_t> (crc32_of(octets, size, can_fold) & CRC_MASK)
