# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=False
"""Compiled twin of `store.scan`: whole, checked records of a part of the log as columns.

The rules are those of `store.scan.plain`.  A record that passes here is a record; what does not pass is left to
`store.scan.record_scan.record_at`, which alone names damage.

Nothing read from `data` is used as a position before it was compared with the end of `data`.  No Python object is
touched while records are read, so the interpreter's lock is released meanwhile.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    BLANK_MIN_BYTES,
    BORN_V6,
    CRC_MASK,
    FIXED_IPV4_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SEAL_BYTES,
    STORE_V6,
    V6_GROWTH_BYTES,
    VALUE_END,
    RecordFixed,
    from_big32,
    from_big64,
)
from sprocket.engine.store.record_check cimport (
    DAMAGED_SEAL,
    NO_SEAL,
    TOPIC_LIMIT,
    Log,
    Parts,
    claimed_crc,
    crc_holds,
    last_value,
    tags_code,
    lengths_fit,
    tag_at,
)
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare, masked_crc
from sprocket.engine.store.record_writer cimport is_ascii, java_hash_after

cdef extern from *:
    """
    #define HASH_FACTOR 0x9E3779B97F4A7C15ull
    """
    const uint64_t HASH_FACTOR

# Digest of the files that this module was built from; `sprocket.engine.choice` compares it with the files.
SOURCES = ENGINE_SOURCES.decode()

# What this module was compiled with; `store.scan.compiled` compares it with the Python declarations.
LAYOUT = {
    "MAGIC_V1": MAGIC_V1,
    "MAGIC_V2": MAGIC_V2,
    "BLANK_MIN_BYTES": BLANK_MIN_BYTES,
    "FIXED_IPV4_BYTES": FIXED_IPV4_BYTES,
    "V6_GROWTH_BYTES": V6_GROWTH_BYTES,
    "MIN_RECORD_BYTES": MIN_RECORD_BYTES,
    "CRC_MASK": CRC_MASK,
    "BORN_V6": BORN_V6,
    "STORE_V6": STORE_V6,
    "VALUE_END": VALUE_END,
    "SEAL_BYTES": SEAL_BYTES,
}
RECORD_FIXED = {
    "total_size": <size_t> &(<RecordFixed *> NULL).total_size,
    "magic": <size_t> &(<RecordFixed *> NULL).magic,
    "body_crc": <size_t> &(<RecordFixed *> NULL).body_crc,
    "queue_id": <size_t> &(<RecordFixed *> NULL).queue_id,
    "flag": <size_t> &(<RecordFixed *> NULL).flag,
    "queue_offset": <size_t> &(<RecordFixed *> NULL).queue_offset,
    "physical_offset": <size_t> &(<RecordFixed *> NULL).physical_offset,
    "sys_flag": <size_t> &(<RecordFixed *> NULL).sys_flag,
    "born_timestamp": <size_t> &(<RecordFixed *> NULL).born_timestamp,
}

# Longer topics are left to the single decoder.  RocketMQ's longest is the retry topic of a group of 255 bytes.
MAX_TOPIC_BYTES = 288

cdef enum:
    # Different topics of one batch; a power of two of slots, at most half full.
    MAX_TOPICS = 4096
    TOPIC_SLOTS = 2 * MAX_TOPICS
    # Names of properties, each with its end.
    UNIQUE_NAME_BYTES = 9
    KEYS_NAME_BYTES = 5

# No Java hash: those have 32 bits.
cdef int64_t NOT_ASCII = (<int64_t> 1) << 62
cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

assert TOPIC_LIMIT == MAX_TOPIC_BYTES


# A row of the columns of `store.scan.record_batch.RecordBatch`, each an array of its own.
cdef struct Columns:
    int64_t *positions
    int64_t *sizes
    int32_t *queue_ids
    int64_t *queue_offsets
    int32_t *sys_flags
    int64_t *properties_at
    int64_t *topic_index


# The different topics of a batch: where each first occurred, and a hash table of their numbers.
cdef struct Topics:
    int64_t at[MAX_TOPICS]
    int64_t bytes[MAX_TOPICS]
    int32_t slots[TOPIC_SLOTS]  # number + 1; 0 is a free slot
    int32_t count
    int32_t latest


cdef inline uint64_t hash_of(const uint8_t *name, int64_t size) noexcept nogil:
    """Return a hash of a name's words.  Only speed depends on it: names are compared whole."""
    cdef uint64_t value = <uint64_t> size
    cdef uint64_t word
    while size > 0:
        word = 0
        memcpy(&word, name, min(size, 8))
        value = (value ^ word) * HASH_FACTOR
        value ^= value >> 29
        name += 8
        size -= 8
    return value


cdef inline bint is_topic(const Log *log, const Topics *topics, int32_t number, int64_t at, int64_t size) noexcept nogil:
    return topics.bytes[number] == size and not memcmp(log.octets + topics.at[number], log.octets + at, size)


cdef int32_t number_of(const Log *log, Topics *topics, int64_t at, int64_t size) noexcept nogil:
    """Return the number of the topic at `at`, a new one for a new topic; -1 if there are too many."""
    if topics.count and is_topic(log, topics, topics.latest, at, size):
        return topics.latest
    cdef uint64_t slot = hash_of(log.octets + at, size) % TOPIC_SLOTS
    cdef int32_t number
    while topics.slots[slot]:
        number = topics.slots[slot] - 1
        if is_topic(log, topics, number, at, size):
            topics.latest = number
            return number
        slot = (slot + 1) % TOPIC_SLOTS
    if topics.count == MAX_TOPICS:
        return -1
    number = topics.count
    topics.at[number] = at
    topics.bytes[number] = size
    topics.count = number + 1
    topics.slots[slot] = number + 1
    topics.latest = number
    return number


cdef int64_t read_records(
    const Log *log, int64_t at, int64_t limit, int64_t most, Columns *columns, Topics *topics
) noexcept nogil:
    """Fill the columns with the valid records from `at` to before `limit`, at most `most`; return their number."""
    cdef Parts parts
    cdef const RecordFixed *head
    cdef int64_t count = 0
    cdef int32_t topic
    while count < most and at < limit and lengths_fit(log, at, &parts):
        head = <const RecordFixed *> (log.octets + at)
        if log.check_crc and not crc_holds(log, at, &parts):
            break
        topic = number_of(log, topics, parts.topic_at, parts.topic_bytes)
        if topic < 0:
            break
        columns.positions[count] = at
        columns.sizes[count] = parts.end - at
        columns.queue_ids[count] = from_big32(head.queue_id)
        columns.queue_offsets[count] = from_big64(head.queue_offset)
        columns.sys_flags[count] = from_big32(head.sys_flag)
        columns.properties_at[count] = parts.properties_at
        columns.topic_index[count] = topic
        count += 1
        at = parts.end
    return count


cdef class Bytes:
    """The memory of a buffer, held as long as this object."""

    def __cinit__(self, object source, bint is_writable):
        PyObject_GetBuffer(source, &self.buffer, PyBUF_WRITABLE if is_writable else PyBUF_SIMPLE)
        self.is_held = True

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.buffer)


cdef void *memory(Bytes array, Py_ssize_t count, Py_ssize_t size) except NULL:
    """Return where the memory of `array` begins.  Raises ValueError if it has no room for `count` numbers."""
    if count < 0 or array.buffer.len // size < count:
        raise ValueError(f"a column of {array.buffer.len} bytes has no room for {count} numbers of {size}")
    return array.buffer.buf


def read_batch(
    object data, int64_t base, int64_t at, int64_t limit, tuple arrays, Py_ssize_t max_records, *,
    bint check_crc, bint require_seal,
):
    """Write the valid records from position `at` of `data` to before `limit` into `arrays`, at most `max_records`.

    `arrays` are the columns positions, sizes, queue_ids, queue_offsets, sys_flags, properties_at and topic_index, with
    room for `max_records` each.  Return the number of records, and the names of their topics as bytes, which the caller
    must check.  `base` is the physical offset of byte 0.
    """
    cdef Bytes octets = Bytes(data, False)
    positions, sizes, queue_ids, queue_offsets, sys_flags, properties_at, topic_index = (
        Bytes(array, True) for array in arrays
    )
    cdef Columns columns
    columns.positions = <int64_t *> memory(positions, max_records, sizeof(int64_t))
    columns.sizes = <int64_t *> memory(sizes, max_records, sizeof(int64_t))
    columns.queue_ids = <int32_t *> memory(queue_ids, max_records, sizeof(int32_t))
    columns.queue_offsets = <int64_t *> memory(queue_offsets, max_records, sizeof(int64_t))
    columns.sys_flags = <int32_t *> memory(sys_flags, max_records, sizeof(int32_t))
    columns.properties_at = <int64_t *> memory(properties_at, max_records, sizeof(int64_t))
    columns.topic_index = <int64_t *> memory(topic_index, max_records, sizeof(int64_t))
    cdef Log log = Log(<const uint8_t *> octets.buffer.buf, octets.buffer.len, base, check_crc, require_seal, CAN_FOLD)
    cdef Topics topics
    cdef int64_t count
    with nogil:
        topics.count = 0
        topics.latest = 0
        memset(topics.slots, 0, sizeof(topics.slots))
        count = read_records(&log, at, limit, max_records, &columns, &topics)
    return count, [<bytes> log.octets[topics.at[i]:topics.at[i] + topics.bytes[i]] for i in range(topics.count)]


def tags_codes(object data, object properties_at, object positions, object sizes, object codes, Py_ssize_t count):
    """Write the hash of each record's tag into `codes`, 0 without a tag; return the records whose tag is not ASCII.

    The columns are those of a `RecordBatch` over `data`, as contiguous int64.  Raises ValueError if a record's
    properties are not within `data`.
    """
    cdef Bytes octets = Bytes(data, False)
    cdef Bytes starts = Bytes(properties_at, False), begins = Bytes(positions, False), lengths = Bytes(sizes, False)
    cdef Bytes results = Bytes(codes, True)
    cdef const int64_t *start = <const int64_t *> memory(starts, count, sizeof(int64_t))
    cdef const int64_t *begin = <const int64_t *> memory(begins, count, sizeof(int64_t))
    cdef const int64_t *length = <const int64_t *> memory(lengths, count, sizeof(int64_t))
    cdef int64_t *code = <int64_t *> memory(results, count, sizeof(int64_t))
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef int64_t size = octets.buffer.len
    cdef int64_t i, at, end, tag_end = 0, wrong = -1
    cdef int64_t unusual = 0
    with nogil:
        for i in range(count):
            at = start[i]
            if begin[i] < 0 or length[i] < 0 or begin[i] > size - length[i] or at < begin[i]:
                wrong = i
                break
            end = begin[i] + length[i]
            code[i] = 0
            at = tag_at(first, at, end, &tag_end)
            if at >= 0 and not tags_code(first + at, tag_end - at, &code[i]):
                code[i] = NOT_ASCII
                unusual += 1
    if wrong >= 0:
        raise ValueError(f"the properties of record {wrong} are not within the data")
    return [i for i in range(count) if code[i] == NOT_ASCII] if unusual else []


cdef inline int32_t key_hash(uint32_t prefix, const uint8_t *key, int64_t size) noexcept nogil:
    """Return the hash of a key as the index holds it; `prefix` is that of its topic and a separator."""
    cdef int64_t value = java_hash_after(prefix, key, size)
    value = -value if value < 0 else value
    return <int32_t> value if value <= 0x7FFFFFFF else 0


cdef int64_t put_keys(
    const uint8_t *octets, int64_t at, int64_t end, uint32_t prefix, int32_t *hashes, int64_t room
) noexcept nogil:
    """Write the hashes of the keys in the properties [`at`, `end`); return their number.

    -1 for keys that are not ASCII, or for which there is no `room`.
    """
    cdef int64_t count = 0, value_end = 0, key_end
    cdef const uint8_t *blank
    cdef int64_t value = last_value(octets, at, end, b"UNIQ_KEY\x01", UNIQUE_NAME_BYTES, 1, &value_end)
    if value >= 0:
        if not room or not is_ascii(octets + value, value_end - value):
            return -1
        hashes[0] = key_hash(prefix, octets + value, value_end - value)
        count = 1
    value = last_value(octets, at, end, b"KEYS\x01", KEYS_NAME_BYTES, 1, &value_end)
    if value < 0:
        return count
    if not is_ascii(octets + value, value_end - value):
        return -1
    while value < value_end:
        blank = <const uint8_t *> memchr(octets + value, c' ', value_end - value)
        key_end = value_end if blank == NULL else blank - octets
        if key_end > value:
            if count == room:
                return -1
            hashes[count] = key_hash(prefix, octets + value, key_end - value)
            count += 1
        value = key_end + 1
    return count


def index_hashes(
    object data, tuple columns, Py_ssize_t record, Py_ssize_t count, object owners, object hashes, Py_ssize_t room
):
    """Write the hash of each key into `hashes`, and the number of its record into `owners`; both have `room`.

    The columns of the `count` records are begins and ends of their properties in `data`, and Java's hash of their
    topics and a separator.  Begin at `record`.  Return the number of keys, and the first record whose keys are not
    ASCII or have no room.  The twin of `store.index.key_scan._hashes`.  Raises ValueError if a record's properties are
    not within `data`.
    """
    cdef Bytes octets = Bytes(data, False), numbers = Bytes(owners, True), results = Bytes(hashes, True)
    begins, ends, prefixes = (Bytes(column, False) for column in columns)
    cdef const int64_t *begin = <const int64_t *> memory(begins, count, sizeof(int64_t))
    cdef const int64_t *end = <const int64_t *> memory(ends, count, sizeof(int64_t))
    cdef const uint32_t *prefix = <const uint32_t *> memory(prefixes, count, sizeof(uint32_t))
    cdef int64_t *owner = <int64_t *> memory(numbers, room, sizeof(int64_t))
    cdef int32_t *found = <int32_t *> memory(results, room, sizeof(int32_t))
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef int64_t size = octets.buffer.len
    cdef int64_t keys = 0, added, i
    cdef bint is_wrong = record < 0
    with nogil:
        while not is_wrong and record < count:
            is_wrong = begin[record] < 0 or end[record] < begin[record] or end[record] > size
            if is_wrong:
                break
            added = put_keys(first, begin[record], end[record], prefix[record], found + keys, room - keys)
            if added < 0:
                break
            for i in range(added):
                owner[keys + i] = record
            keys += added
            record += 1
    if is_wrong:
        raise ValueError(f"the properties of record {record} are not within the data")
    return keys, record


cdef struct Head:
    uint32_t total_size
    int32_t magic


cdef inline Head head_at(const uint8_t *octets, int64_t at) noexcept nogil:
    """Return size and magic number at `at`, where 8 bytes exist.  Here a size has no sign."""
    cdef const RecordFixed *head = <const RecordFixed *> (octets + at)
    return Head(<uint32_t> from_big32(head.total_size), from_big32(head.magic))


def chain(object data, int64_t at, int64_t end, object positions, Py_ssize_t most):
    """Write the positions of the chain of records from `at` to before `end` into `positions`, at most `most`.

    Return their number and the first position that does not continue the chain.  The twin of
    `store.scan.plain.chain`: magic number and size of each record are checked, nothing else.
    """
    cdef Bytes octets = Bytes(data, False), numbers = Bytes(positions, True)
    cdef int64_t *found = <int64_t *> memory(numbers, most, sizeof(int64_t))
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef int64_t size = octets.buffer.len
    cdef int64_t last = min(end - 1, size - BLANK_MIN_BYTES)
    cdef int64_t count = 0
    cdef Head head
    if at < 0:
        raise ValueError(f"a chain cannot begin at {at}")
    with nogil:
        while count < most and at <= last:
            head = head_at(first, at)
            if head.magic != MAGIC_V1 and head.magic != MAGIC_V2:
                break
            if head.total_size < MIN_RECORD_BYTES or head.total_size > size - at:
                break
            found[count] = at
            count += 1
            at += head.total_size
    return count, at


def claimed_crcs(object data, object properties_bytes, object properties_ends, object claims, Py_ssize_t count):
    """Write the CRC in the seal of each record into `claims`; the twin of `store.scan.plain.claimed_crcs`.

    All columns are int64.  Raises IndexError if the end of some properties is not within `data`.
    """
    cdef Bytes octets = Bytes(data, False), results = Bytes(claims, True)
    cdef Bytes lengths = Bytes(properties_bytes, False), limits = Bytes(properties_ends, False)
    cdef const int64_t *length = <const int64_t *> memory(lengths, count, sizeof(int64_t))
    cdef const int64_t *limit = <const int64_t *> memory(limits, count, sizeof(int64_t))
    cdef int64_t *claim = <int64_t *> memory(results, count, sizeof(int64_t))
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef int64_t size = octets.buffer.len
    cdef int64_t i, wrong = -1
    with nogil:
        for i in range(count):
            claim[i] = NO_SEAL
            if length[i] < SEAL_BYTES or size < SEAL_BYTES:
                continue
            if limit[i] < SEAL_BYTES or limit[i] > size:
                wrong = i
                break
            claim[i] = claimed_crc(first + limit[i] - SEAL_BYTES)
    if wrong >= 0:
        raise IndexError(f"the properties of record {wrong} end outside of the data")


def crcs_hold(
    object data, tuple columns, object holds, Py_ssize_t count, *, bint require_seal,
):
    """Write into `holds` whether the CRC of each record holds; the twin of `store.scan.plain.crcs_hold`.

    The columns are begins, ends, begins and ends of bodies, CRCs of bodies, and claims, all int64; `holds` is of bytes.  As in a slice, what is beyond the end of `data` is left out; raises
    IndexError for a negative position.
    """
    cdef Bytes octets = Bytes(data, False), results = Bytes(holds, True)
    begins, ends, body_begins, body_ends, body_crcs, claims = (Bytes(column, False) for column in columns)
    cdef const int64_t *begin = <const int64_t *> memory(begins, count, sizeof(int64_t))
    cdef const int64_t *end = <const int64_t *> memory(ends, count, sizeof(int64_t))
    cdef const int64_t *body_at = <const int64_t *> memory(body_begins, count, sizeof(int64_t))
    cdef const int64_t *body_end = <const int64_t *> memory(body_ends, count, sizeof(int64_t))
    cdef const int64_t *body_crc = <const int64_t *> memory(body_crcs, count, sizeof(int64_t))
    cdef const int64_t *claim = <const int64_t *> memory(claims, count, sizeof(int64_t))
    cdef uint8_t *hold = <uint8_t *> memory(results, count, 1)
    cdef const uint8_t *first = <const uint8_t *> octets.buffer.buf
    cdef int64_t size = octets.buffer.len
    cdef int64_t i, wrong = -1
    with nogil:
        for i in range(count):
            if begin[i] < 0 or end[i] < SEAL_BYTES or body_at[i] < 0 or body_end[i] < 0:
                wrong = i
                break
            if claim[i] == DAMAGED_SEAL or (require_seal and claim[i] == NO_SEAL):
                hold[i] = False
            elif claim[i] != NO_SEAL:
                hold[i] = slice_crc(first, size, begin[i], end[i] - SEAL_BYTES) == claim[i]
            else:
                hold[i] = body_end[i] <= body_at[i] or slice_crc(first, size, body_at[i], body_end[i]) == body_crc[i]
    if wrong >= 0:
        raise IndexError(f"record {wrong} begins or ends before the data")


cdef inline int64_t slice_crc(const uint8_t *octets, int64_t size, int64_t begin, int64_t end) noexcept nogil:
    begin, end = min(begin, size), min(end, size)
    return masked_crc(octets + begin, end - begin if end > begin else 0, CAN_FOLD)
