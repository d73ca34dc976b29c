# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=False
"""Compiled twin of `spark.decode`: parts, fields, texts and values of properties of many records as columns.

Arrays come from the caller, so that results become Arrow buffers without a copy.  Nothing read from `data` or from an
array is used as a position before it was compared with the end of `data`.  No Python object is touched while records
are read, so the interpreter's lock is released meanwhile.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    BLANK_MIN_BYTES,
    FIXED_IPV4_BYTES,
    RecordFixed,
    from_big32,
    from_big64,
)
from sprocket.engine.store.record_check cimport Log, Parts, crc_holds, last_value, lengths_fit
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare
from store.scan.scan_native cimport Bytes, memory

# Digest of the files that this module was built from; `sprocket.engine.choice` compares it with the files.
SOURCES = ENGINE_SOURCES.decode()

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

cdef enum:
    # Rows of `bounds` in `record_bounds`.
    END, BODY_AT, BODY_END, TOPIC_AT, TOPIC_END, PROPERTIES_AT
    BOUNDS
    # Texts of up to so many bytes are copied as two halves of this size, without a call.
    SHORT_TEXT_BYTES = 32
    MAX_SIGNED_16 = 0x7FFF

# Number of rows of `bounds` in `record_bounds`.
BOUND_ROWS = BOUNDS
# Bytes that `copy_texts` may write after the last text.
SPARE_TEXT_BYTES = SHORT_TEXT_BYTES


def record_bounds(
    object data, int64_t base, object positions, object bounds, object sys_flags, Py_ssize_t count, bytes half_topic,
):
    """Write the bounds of the parts of the records at `positions` (int64), and their flags (int32).

    Row `i` of `bounds`, `count` int64 each, has for each record: its end, begin and end of its body, begin and end of
    its topic, begin of its properties.  Return the number of records whose lengths, magic and own offset hold, up to
    the first other one; the union of their flags; whether one has the topic `half_topic`.
    """
    cdef Bytes octets = Bytes(data, False), starts = Bytes(positions, False)
    cdef Bytes parts_found = Bytes(bounds, True), flags = Bytes(sys_flags, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef int64_t *found = <int64_t *> memory(parts_found, BOUNDS * count, sizeof(int64_t))
    cdef int32_t *flag = <int32_t *> memory(flags, count, sizeof(int32_t))
    # `lengths_fit` leaves room for a blank record after each: here the data may end with a record.
    cdef Log log = Log(
        <const uint8_t *> octets.buffer.buf, octets.buffer.len + BLANK_MIN_BYTES, base, False, False, CAN_FOLD
    )
    cdef const uint8_t *half = half_topic
    cdef int64_t half_bytes = len(half_topic)
    cdef int32_t all_flags = 0
    cdef bint has_halves = False
    cdef int64_t i
    cdef int64_t done = count
    cdef Parts parts
    with nogil:
        for i in range(count):
            # Lengths of properties are signed to RocketMQ, and so to the twin.
            if not lengths_fit(&log, start[i], &parts) or parts.end - parts.properties_at > MAX_SIGNED_16:
                done = i
                break
            found[END * count + i] = parts.end
            found[BODY_AT * count + i] = parts.body_at
            found[BODY_END * count + i] = parts.body_end
            found[TOPIC_AT * count + i] = parts.topic_at
            found[TOPIC_END * count + i] = parts.topic_at + parts.topic_bytes
            found[PROPERTIES_AT * count + i] = parts.properties_at
            flag[i] = from_big32((<const RecordFixed *> (log.octets + start[i])).sys_flag)
            all_flags |= flag[i]
            if parts.topic_bytes == half_bytes and not memcmp(log.octets + parts.topic_at, half, half_bytes):
                has_halves = True
    return done, all_flags, has_halves


def fixed_fields(object data, object positions, int64_t at, object values, Py_ssize_t count, int field_bytes):
    """Write the field of `field_bytes` (4 or 8) that is `at` bytes into the record at each of `positions` into `values`.

    Raises IndexError if a field is not within `data`.
    """
    cdef Bytes octets = Bytes(data, False), starts = Bytes(positions, False), results = Bytes(values, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef int32_t *short_value = NULL
    cdef int64_t *long_value = NULL
    if field_bytes == sizeof(int32_t):
        short_value = <int32_t *> memory(results, count, sizeof(int32_t))
    elif field_bytes == sizeof(int64_t):
        long_value = <int64_t *> memory(results, count, sizeof(int64_t))
    else:
        raise ValueError(f"no field has {field_bytes} bytes")
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef int64_t last = octets.buffer.len - field_bytes - at
    cdef int64_t i, wrong = -1
    cdef int32_t word
    cdef int64_t long_word
    if at < 0:
        raise IndexError("no field is before its record")
    with nogil:
        for i in range(count):
            if start[i] < 0 or start[i] > last:
                wrong = i
                break
            if short_value != NULL:
                memcpy(&word, first + start[i] + at, sizeof(word))
                short_value[i] = from_big32(word)
            else:
                memcpy(&long_word, first + start[i] + at, sizeof(long_word))
                long_value[i] = from_big64(long_word)
    if wrong >= 0:
        raise IndexError(f"the field of record {wrong} is not within the data")


def text_offsets(int64_t data_bytes, object begins, object ends, object offsets, Py_ssize_t count):
    """Write the `count` + 1 offsets (int32) of the texts [`begins`, `ends`) one after another; return their total size.

    Raises IndexError if a text is not within `data_bytes`, OverflowError if all have more bytes than an offset holds.
    """
    cdef Bytes starts = Bytes(begins, False), limits = Bytes(ends, False), results = Bytes(offsets, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef const int64_t *limit = <const int64_t *> memory(limits, count, sizeof(int64_t))
    cdef int32_t *offset = <int32_t *> memory(results, count + 1, sizeof(int32_t))
    cdef int64_t total = 0
    cdef int64_t i, wrong = -1
    with nogil:
        offset[0] = 0
        for i in range(count):
            if start[i] < 0 or limit[i] < start[i] or limit[i] > data_bytes:
                wrong = i
                break
            total += limit[i] - start[i]
            if total > INT32_MAX:
                break
            offset[i + 1] = <int32_t> total
    if wrong >= 0:
        raise IndexError(f"text {wrong} is not within the data")
    if total > INT32_MAX:
        raise OverflowError("the texts have more bytes than an offset of 32 bits holds")
    return total


def copy_texts(object data, object begins, object offsets, object values, Py_ssize_t count):
    """Copy the texts that begin at `begins` of `data` to their `offsets`, the result of `text_offsets`.

    `values` has `SPARE_TEXT_BYTES` more than the texts.  Raises IndexError if a text is not within `data` and `values`.
    """
    cdef Bytes octets = Bytes(data, False), starts = Bytes(begins, False), places = Bytes(offsets, False)
    cdef Bytes results = Bytes(values, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef const int32_t *offset = <const int32_t *> memory(places, count + 1, sizeof(int32_t))
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef uint8_t *target = <uint8_t *> results.buffer.buf
    cdef int64_t size = octets.buffer.len
    cdef int64_t room = results.buffer.len - SHORT_TEXT_BYTES
    cdef int64_t i, at, length, wrong = -1
    with nogil:
        for i in range(count):
            at = start[i]
            length = <int64_t> offset[i + 1] - offset[i]
            if at < 0 or offset[i] < 0 or length < 0 or at > size - length or offset[i + 1] > room:
                wrong = i
                break
            if length <= SHORT_TEXT_BYTES and at <= size - SHORT_TEXT_BYTES:
                # A copy of constant size is two instructions; the next text overwrites what is too much.
                memcpy(target + offset[i], first + at, SHORT_TEXT_BYTES)
            else:
                memcpy(target + offset[i], first + at, length)
    if wrong >= 0:
        raise IndexError(f"text {wrong} is not within the data")


def find_values(
    object data, object begins, object ends, bytes key, object value_begins, object value_ends, object present,
    Py_ssize_t count,
):
    """Write where the value of the last entry that begins with `key`, a name and 0x01, begins and ends in each text.

    The texts [`begins`, `ends`) of `data` are properties.  `present`, of bytes, says whether a text has such an entry;
    bounds of an absent value are equal.  Return the number of texts that have one.  Raises IndexError if a text is not
    within `data`.
    """
    cdef Bytes octets = Bytes(data, False), starts = Bytes(begins, False), limits = Bytes(ends, False)
    cdef Bytes from_at = Bytes(value_begins, True), to_at = Bytes(value_ends, True), holds = Bytes(present, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef const int64_t *limit = <const int64_t *> memory(limits, count, sizeof(int64_t))
    cdef int64_t *value_at = <int64_t *> memory(from_at, count, sizeof(int64_t))
    cdef int64_t *value_end = <int64_t *> memory(to_at, count, sizeof(int64_t))
    cdef uint8_t *has = <uint8_t *> memory(holds, count, 1)
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef const uint8_t *wanted = key
    cdef int64_t key_bytes = len(key)
    cdef int64_t size = octets.buffer.len
    cdef int64_t i, wrong = -1, number = 0
    with nogil:
        for i in range(count):
            if start[i] < 0 or limit[i] < start[i] or limit[i] > size:
                wrong = i
                break
            value_at[i] = last_value(first, start[i], limit[i], wanted, key_bytes, 0, &value_end[i])
            has[i] = value_at[i] >= 0
            number += has[i]
            if not has[i]:
                value_at[i] = value_end[i] = start[i]
    if wrong >= 0:
        raise IndexError(f"text {wrong} is not within the data")
    return number


def crcs_of_bounds(object data, object positions, object bounds, object holds, Py_ssize_t count):
    """Write into `holds`, of bytes, whether the CRC of each record holds; `bounds` is the result of `record_bounds`.

    Return whether all hold.  Raises IndexError if a record is not within `data`.
    """
    cdef Bytes octets = Bytes(data, False), starts = Bytes(positions, False), parts_found = Bytes(bounds, False)
    cdef Bytes results = Bytes(holds, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef const int64_t *found = <const int64_t *> memory(parts_found, BOUNDS * count, sizeof(int64_t))
    cdef uint8_t *hold = <uint8_t *> memory(results, count, 1)
    cdef Log log = Log(<const uint8_t *> octets.buffer.buf, octets.buffer.len, 0, True, False, CAN_FOLD)
    cdef bint do_all = True
    cdef int64_t i, wrong = -1
    cdef Parts parts
    with nogil:
        for i in range(count):
            parts.end = found[END * count + i]
            parts.body_at = found[BODY_AT * count + i]
            parts.body_end = found[BODY_END * count + i]
            parts.properties_at = found[PROPERTIES_AT * count + i]
            if not (
                0 <= start[i] <= log.size and start[i] + FIXED_IPV4_BYTES <= parts.body_at <= parts.body_end
                and parts.body_end <= parts.properties_at <= parts.end <= log.size
            ):
                wrong = i
                break
            hold[i] = crc_holds(&log, start[i], &parts)
            do_all = do_all and hold[i]
    if wrong >= 0:
        raise IndexError(f"record {wrong} is not within the data")
    return do_all
