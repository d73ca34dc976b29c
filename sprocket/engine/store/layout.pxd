# Layout of the message record as C structs, with the names of `store/layout.py` and
# `sprocket/remoting/message/record.py`.  `check_layout` of the compiled modules compares each number here with those:
# a change of one alone ends the import, not the log.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #define from_big16(value) ((uint16_t)__builtin_bswap16(value))
    #define from_big32(value) ((int32_t)__builtin_bswap32((uint32_t)(value)))
    #define from_big64(value) ((int64_t)__builtin_bswap64((uint64_t)(value)))
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the compiled engine needs a little-endian processor; pure Python runs on any"
    #endif
    """
    uint16_t from_big16(uint16_t value) noexcept nogil
    int32_t from_big32(int32_t value) noexcept nogil
    int64_t from_big64(int64_t value) noexcept nogil

cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    # As they are in memory: a comparison then needs no swap of bytes.
    BLANK_MIN_BYTES = 8
    # Bytes before the body if both hosts are IPv4, and what an IPv6 host adds.
    FIXED_IPV4_BYTES = 88
    V6_GROWTH_BYTES = 12
    # Fixed fields, a topic's length of one byte, the length of properties: the smallest record.
    MIN_RECORD_BYTES = 91
    CRC_MASK = 0x7FFFFFFF
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    NAME_END = 1
    VALUE_END = 2
    SEAL_BYTES = 20
    SEAL_NAME_BYTES = 9
    SEAL_MAX_UNLIKE = 2

# The fields whose position depends on no flag: `RECORD_FIXED_DTYPE`.  Big-endian, so nothing may read a field without
# `from_big32` or `from_big64`.
cdef packed struct RecordFixed:
    int32_t total_size
    int32_t magic
    int32_t body_crc
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag
    int64_t born_timestamp

# What follows them if both hosts are IPv4: the rest of `FIXED_IPV4_RAW`.
cdef packed struct RecordRestIpv4:
    uint8_t born_host[8]
    int64_t store_timestamp
    uint8_t store_host[8]
    int32_t reconsume_times
    int64_t prepared_transaction_offset
    int32_t body_bytes

# An entry of a ConsumeQueue: `CONSUME_QUEUE_DTYPE`.
cdef packed struct QueueEntry:
    int64_t physical_offset
    int32_t size
    int64_t tags_code

# A unit of the timer log: `TIMER_UNIT_DTYPE`.
cdef packed struct TimerUnit:
    int32_t size
    int64_t previous
    int32_t magic
    int64_t write_ms
    int32_t delay_ms
    int64_t physical_offset
    int32_t record_bytes
    int32_t topic_hash
    int64_t reserved

cdef enum:
    # `timer_log.DEFAULT`: the magic of a unit that neither is rolled nor deletes another.
    PLAIN_UNIT = 1


cdef inline const TimerUnit *plain_unit(const uint8_t *file, int64_t base, int64_t end, int64_t position) noexcept nogil:
    """Return the plain unit at `position` of a file of the timer log that begins at `base`; NULL if there is none.

    `end` is at most the end of the file.
    """
    cdef const TimerUnit *unit
    if position < base or position > end or end - position < <int64_t> sizeof(TimerUnit):
        return NULL
    unit = <const TimerUnit *> (file + (position - base))
    return unit if from_big32(unit.size) == sizeof(TimerUnit) and from_big32(unit.magic) == PLAIN_UNIT else NULL
