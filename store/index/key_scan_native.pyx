# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of `store.index.key_scan`: the keys of records, as hashes of the index.

The walk ends before the first record that is unusual: one with a key that is not ASCII, or with too many keys.  Python
parses that one.  No Python object is touched meanwhile, so the interpreter's lock is released.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport VALUE_END
from sprocket.engine.store.record_writer cimport is_ascii, java_hash_after

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # `SysFlag.TRANSACTION_ROLLBACK`: such a message is not indexed.
    ROLLBACK = 0xC
    RECORD_KEYS = 256
    MAX_INT32 = 0x7FFFFFFF

# Of one record; `key_hashes` needs room for as many.
MAX_KEYS = RECORD_KEYS


# A value in the properties of a record; empty without one.
cdef struct Value:
    const uint8_t *at
    const uint8_t *end


cdef bint take_last(
    const uint8_t *item, const uint8_t *end, const char *name, Py_ssize_t name_bytes, Value *value
) noexcept nogil:
    """Keep the value of a property if it is `name`, which ends with 0x01; one without a value does not count."""
    if end - item <= name_bytes or memcmp(item, name, name_bytes):
        return False
    value.at, value.end = item + name_bytes, end
    return True


cdef void find_keys(const uint8_t *at, const uint8_t *end, Value *unique, Value *keys) noexcept nogil:
    """Find the last UNIQ_KEY and the last KEYS among properties."""
    cdef const uint8_t *item_end
    unique.at = unique.end = keys.at = keys.end = end
    while at < end:
        item_end = <const uint8_t *> memchr(at, VALUE_END, end - at)
        if item_end == NULL:
            item_end = end
        if not take_last(at, item_end, b"UNIQ_KEY\x01", 9, unique):
            take_last(at, item_end, b"KEYS\x01", 5, keys)
        at = item_end + 1


cdef bint add_key(const uint8_t *at, Py_ssize_t size, uint32_t prefix, int32_t *key_hash) noexcept nogil:
    """Hash a key as `store.index.key_scan.index_hash`; return False for any other text than ASCII."""
    cdef int64_t value = java_hash_after(prefix, at, size)
    value = -value if value < 0 else value
    key_hash[0] = <int32_t> value if value <= MAX_INT32 else 0  # -2**31 has no opposite
    return is_ascii(at, size)


cdef Py_ssize_t keys_of(
    const uint8_t *properties, const uint8_t *end, uint32_t prefix, int32_t *key_hashes
) noexcept nogil:
    """Write the hash of each key of a record, at most `MAX_KEYS`; return their number, -1 if the record is unusual."""
    cdef Value unique, keys
    cdef const uint8_t *key_end
    cdef Py_ssize_t count = 0
    find_keys(properties, end, &unique, &keys)
    if unique.at < unique.end:
        if not add_key(unique.at, unique.end - unique.at, prefix, &key_hashes[0]):
            return -1
        count = 1
    while keys.at < keys.end:
        key_end = <const uint8_t *> memchr(keys.at, c' ', keys.end - keys.at)
        if key_end == NULL:
            key_end = keys.end
        if key_end > keys.at:
            if count == RECORD_KEYS or not add_key(keys.at, key_end - keys.at, prefix, &key_hashes[count]):
                return -1
            count += 1
        keys.at = key_end + 1
    return count


def key_hashes_of(const uint8_t[::1] data, const int64_t[::1] positions, const int64_t[::1] sizes,
                  const int64_t[::1] properties_at, const int32_t[::1] sys_flags, const int64_t[::1] topic_index,
                  const uint32_t[::1] prefixes, Py_ssize_t begin, int32_t[::1] key_hashes, int64_t[::1] records):
    """Write the hashes of the keys of the records from number `begin` on, and the number of each key's record.

    The columns are those of a `RecordBatch` over `data`; `prefixes` are by topic the hashes of what is before a key.
    Return how many keys were written, and the number of the first record that is not done: it is unusual, or
    `key_hashes` is full.  Raises ValueError if columns differ in length, or name what is not there.
    """
    cdef Py_ssize_t count = positions.shape[0], room = key_hashes.shape[0], found = 0, number = begin, keys = 0, i
    cdef int64_t end, size_bytes = data.shape[0]
    cdef bint is_wrong = False
    if not (sizes.shape[0] == properties_at.shape[0] == sys_flags.shape[0] == topic_index.shape[0] == count):
        raise ValueError("the columns of a batch have different lengths")
    if begin < 0 or records.shape[0] < room:
        raise ValueError("each key needs room for its record's number")
    with nogil:
        while number < count and room - found >= RECORD_KEYS:
            if not 0 <= positions[number] <= size_bytes or not 0 <= sizes[number] <= size_bytes - positions[number]:
                is_wrong = True
                break
            end = positions[number] + sizes[number]
            if not positions[number] <= properties_at[number] <= end:
                is_wrong = True
                break
            if not 0 <= topic_index[number] < prefixes.shape[0]:
                is_wrong = True
                break
            if sys_flags[number] & ROLLBACK != ROLLBACK and properties_at[number] < end:
                keys = keys_of(
                    &data[properties_at[number]], &data[0] + end, prefixes[topic_index[number]], &key_hashes[found]
                )
                if keys < 0:
                    break
                for i in range(keys):
                    records[found + i] = number
                found += keys
            number += 1
    if is_wrong:
        raise ValueError(f"record {number} is not within the data, or its topic is not there")
    return found, number
