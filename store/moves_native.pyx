# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Records that go on to their real topic: what a transaction commits, and timed messages that are due.

A new record is made from the bytes of the stored one, without a message between them.  Its twins are
`broker.transaction.half_message.HalfMessage.real` and `store.timer.timed_message.TimedMessage.real`, and then
`store/appender.py`.  Nothing is refused or dropped here: a record is taken, or it is for Python, which decides.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    FIXED_IPV4_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES, SEAL_NAME_BYTES, TimerUnit,
    VALUE_END, from_big32, from_big64, plain_unit,
)
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare, masked_crc
from sprocket.engine.store.record_writer cimport HOST_BYTES, RecordHead, is_ascii, java_hash, put, put_head, put_seal
from sprocket.engine.broker.send_kinds cimport digits_of, is_text, put_number
from sprocket.engine.remoting.wire_text cimport Cursor, int16_at, take_number

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    LENGTH_BYTES = 2

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()


cdef bint take_decimal(const uint8_t *octets, Py_ssize_t size, int64_t *number) noexcept nogil:
    """Read a whole number that is not negative, in its shortest form."""
    cdef Cursor digits
    digits.at, digits.end = octets, octets + size
    return take_number(&digits, number) and digits.at == digits.end and number[0] >= 0


cdef bint read_place(const uint8_t *at, Py_ssize_t size, Place *place) noexcept nogil:
    """Find the properties that say where a message goes; return False if one is repeated, or another says more."""
    cdef const uint8_t *end = at + size
    cdef const uint8_t *value_end
    cdef const uint8_t *value
    cdef Py_ssize_t name_bytes, value_bytes
    place.topic = place.group = place.tag = NULL
    place.topic_bytes = place.group_bytes = place.tag_bytes = 0
    place.queue_id = place.out_ms = -1
    # A seal within the properties.
    if memchr(at, c'#', size) != NULL:
        return False
    while at < end:
        value_end = <const uint8_t *> memchr(at, VALUE_END, end - at)
        value = NULL if value_end == NULL else <const uint8_t *> memchr(at, 1, value_end - at)
        if value == NULL or value == at:
            return False
        name_bytes, value = value - at, value + 1
        value_bytes = value_end - value
        if not take_property(at, name_bytes, value, value_bytes, place):
            return False
        at = value_end + 1
    return place.topic != NULL and place.queue_id >= 0 and is_ascii(place.tag, place.tag_bytes)


cdef bint take_property(
    const uint8_t *name, Py_ssize_t name_bytes, const uint8_t *value, Py_ssize_t value_bytes, Place *place
) noexcept nogil:
    """Take one property; return False if it makes the record one for Python."""
    if is_text(name, name_bytes, b"TAGS", 4):
        if place.tag != NULL or not value_bytes:
            return False
        place.tag, place.tag_bytes = value, value_bytes
    elif is_text(name, name_bytes, b"PGROUP", 6):
        if place.group != NULL or not value_bytes:
            return False
        place.group, place.group_bytes = value, value_bytes
    elif is_text(name, name_bytes, b"REAL_TOPIC", 10):
        if place.topic != NULL or not value_bytes:
            return False
        place.topic, place.topic_bytes = value, value_bytes
    elif is_text(name, name_bytes, b"REAL_QID", 8):
        return place.queue_id < 0 and take_decimal(value, value_bytes, &place.queue_id)
    elif is_text(name, name_bytes, b"TIMER_OUT_MS", 12):
        return place.out_ms < 0 and take_decimal(value, value_bytes, &place.out_ms)
    else:
        return not says_more(name, name_bytes)
    return True


cdef bint says_more(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    """Return whether a property needs Python: a roll, a recall, a check, an immunity, what was delivered before."""
    return (
        is_text(name, size, b"TIMER_ENQUEUE_MS", 16) or is_text(name, size, b"TIMER_DEQUEUE_MS", 16)
        or is_text(name, size, b"TIMER_ROLL_TIMES", 16) or is_text(name, size, b"TIMER_DEL_UNIQKEY", 17)
        or is_text(name, size, b"CHECK_IMMUNITY_TIME_IN_SECONDS", 30)
        or is_text(name, size, b"TRANSACTION_CHECK_TIMES", 23) or is_text(name, size, b"TRAN_PREPARED_QUEUE_OFFSET", 26)
        or (size >= 6 and not memcmp(name, b"INNER_", 6))
    )


cdef bint read_record(const uint8_t *begin, Py_ssize_t size, bytes topic_field, Move *move, Place *place) noexcept:
    """Read a stored record, whose memory the caller keeps; return False if it is for Python."""
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(topic_field)
    cdef Py_ssize_t rest_bytes = size - FIXED_IPV4_BYTES - topic_size - LENGTH_BYTES - SEAL_BYTES
    if rest_bytes < 0:
        return False
    cdef const RecordFixed *fixed = <const RecordFixed *> begin
    cdef const RecordRestIpv4 *rest = <const RecordRestIpv4 *> (begin + sizeof(RecordFixed))
    cdef Py_ssize_t body_bytes = from_big32(rest.body_bytes)
    if from_big32(fixed.total_size) != size or not 0 <= body_bytes <= rest_bytes:
        return False
    cdef const uint8_t *at = begin + FIXED_IPV4_BYTES + body_bytes
    if memcmp(at, PyBytes_AS_STRING(topic_field), topic_size) != 0:
        return False
    at += topic_size + LENGTH_BYTES
    move.properties, move.properties_bytes = at, rest_bytes - body_bytes
    if int16_at(at - LENGTH_BYTES) != move.properties_bytes + SEAL_BYTES:
        return False
    if memcmp(at + move.properties_bytes, b"__CRC32#\x01", SEAL_NAME_BYTES) != 0:
        return False
    move.body, move.head.body_bytes = begin + FIXED_IPV4_BYTES, <int32_t> body_bytes
    take_head(move, fixed, rest)
    return read_place(move.properties, move.properties_bytes, place)


cdef void take_head(Move *move, const RecordFixed *fixed, const RecordRestIpv4 *rest) noexcept:
    """Take the fields that the new record keeps, and those that are compared."""
    move.head.flag, move.head.sys_flag = from_big32(fixed.flag), from_big32(fixed.sys_flag)
    move.head.born_timestamp = from_big64(fixed.born_timestamp)
    move.head.born_host = rest.born_host
    move.head.reconsume_times = from_big32(rest.reconsume_times)
    move.head.queue_id = from_big32(fixed.queue_id)
    move.head.queue_offset = from_big64(fixed.queue_offset)
    move.head.physical_offset = from_big64(fixed.physical_offset)
    move.enqueue_ms = -1


cdef class Moves:
    """New records for one append, in order; and each queue that gets any, with its entries."""

    def __cinit__(self, int64_t plain_flags, int64_t room_bytes, int64_t max_record_bytes, queue_of):
        """The records have at most `room_bytes` together and `max_record_bytes` each.

        Records with other bits of sysFlag than `plain_flags` are for Python.  `queue_of` returns the plain queue of a
        topic and an id, or None if none may get records here.
        """
        self.plain_flags, self.room_bytes, self.max_record_bytes = plain_flags, room_bytes, max_record_bytes
        self.queue_of = queue_of
        self.queues, self.names, self.kept = [], [], []

    def __dealloc__(self):
        free(self.moves)

    def __len__(self):
        return self.count

    def add_units(self, file, int64_t file_base, int64_t file_end, positions, Py_ssize_t taken, Py_ssize_t max_moves,
                  int64_t max_bytes, segment, int64_t base, int64_t end, bytes topic_field not None, int64_t slot_ms,
                  int64_t width_ms, int64_t now_ms):
        """Take the records of units of a slot, from the last but `taken` of `positions` backwards.

        Stop before `max_moves` records are in all, after `max_bytes` of those that are taken, and before a unit that
        is not plain, or whose record is for Python or not within `base` and `end` of `segment`, which begins at `base`.
        `file` is a file of the timer log, see `timer_units.chained`.  `topic_field` is the timer's topic as in a record.
        Return the number of units, the bytes of their records, and the number of records for each real topic.
        """
        cdef Py_buffer units, log, numbers
        cdef Py_ssize_t counts[MAX_TARGETS]
        cdef Py_ssize_t left, done = 0
        cdef int64_t size_bytes = 0
        cdef int target
        memset(counts, 0, sizeof(counts))
        self.kept.append(segment)
        PyObject_GetBuffer(segment, &log, PyBUF_SIMPLE)
        PyBuffer_Release(&log)
        PyObject_GetBuffer(file, &units, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(positions, &numbers, PyBUF_SIMPLE)
            try:
                file_end = min(file_end, file_base + units.len)
                end = min(end, base + log.len)
                left = numbers.len // <Py_ssize_t> sizeof(int64_t) - max(taken, 0)
                while done < left and self.count < max_moves and size_bytes < max_bytes:
                    unit = plain_unit(<const uint8_t *> units.buf, file_base, file_end,
                                      (<const int64_t *> numbers.buf)[left - done - 1])
                    if unit == NULL:
                        break
                    target = self.take_unit(
                        unit, <const uint8_t *> log.buf, base, end, topic_field, slot_ms, width_ms, now_ms
                    )
                    if target < 0:
                        break
                    counts[target] += 1
                    size_bytes += from_big32(unit.record_bytes)
                    done += 1
            finally:
                PyBuffer_Release(&numbers)
        finally:
            PyBuffer_Release(&units)
        found = [(self.names[target], counts[target]) for target in range(self.target_count) if counts[target]]
        return done, size_bytes, found

    cdef int take_unit(self, const TimerUnit *unit, const uint8_t *log, int64_t base, int64_t end, bytes topic_field,
                       int64_t slot_ms, int64_t width_ms, int64_t now_ms) except -2:
        """Take the record of a unit; return its target, -1 if it is for Python."""
        cdef int64_t offset = from_big64(unit.physical_offset), size = from_big32(unit.record_bytes)
        cdef Place place
        cdef Move *move
        # Each difference is of numbers between 0 and `end`, so none overflows.
        if offset < base or offset > end or size <= 0 or size > end - offset or from_big64(unit.write_ms) < 0:
            return -1
        move = self.next_move()
        if not read_record(log + (offset - base), size, topic_field, move, &place) or place.out_ms < 0:
            return -1
        if place.out_ms - place.out_ms % width_ms != slot_ms or move.head.sys_flag & ~self.plain_flags:
            return -1
        move.enqueue_ms, move.dequeue_ms = from_big64(unit.write_ms), now_ms
        move.head.prepared_transaction_offset = 0
        move.target, move.tags_code = self.target_at(&place), java_hash(place.tag, place.tag_bytes)
        return move.target if move.target >= 0 and self.fits(move) else -1

    cdef Move *read(self, const uint8_t *record, Py_ssize_t size, bytes topic_field, Place *place) except? NULL:
        """Read a stored record, whose memory the caller keeps, as the next one; NULL if it is for Python."""
        cdef Move *move = self.next_move()
        return move if read_record(record, size, topic_field, move, place) else NULL

    cdef bint take_for(self, Move *move, const Place *place, queue) except -1:
        """Let a record that was read go to `queue`; return False if there is no room."""
        move.target, move.tags_code = self.target_of(queue), java_hash(place.tag, place.tag_bytes)
        return move.target >= 0 and self.fits(move)

    def add_made(self, queue, bytes body not None, bytes properties not None, int64_t tags_code,
                 int64_t born_timestamp, bytes born_host not None):
        """Add a message that is made of its parts; return whether there is room for it."""
        cdef Move *move = self.next_move()
        if PyBytes_GET_SIZE(born_host) != HOST_BYTES:
            return False
        self.kept += (body, properties, born_host)
        move.head.flag = move.head.sys_flag = move.head.reconsume_times = 0
        move.head.prepared_transaction_offset, move.head.born_timestamp = 0, born_timestamp
        move.head.born_host = <const uint8_t *> PyBytes_AS_STRING(born_host)
        move.body, move.head.body_bytes = <const uint8_t *> PyBytes_AS_STRING(body), <int32_t> PyBytes_GET_SIZE(body)
        move.properties = <const uint8_t *> PyBytes_AS_STRING(properties)
        move.properties_bytes, move.tags_code, move.enqueue_ms = PyBytes_GET_SIZE(properties), tags_code, -1
        move.target = self.target_of(queue)
        return move.target >= 0 and self.fits(move)

    cdef Move *next_move(self) except NULL:
        """Return the place of the next record; what is written there counts when it is taken."""
        cdef Move *moves
        if self.count == self.capacity:
            moves = <Move *> realloc(self.moves, (2 * self.capacity + 16) * sizeof(Move))
            if moves == NULL:
                raise MemoryError
            self.moves, self.capacity = moves, 2 * self.capacity + 16
        return &self.moves[self.count]

    cdef bint fits(self, Move *move) noexcept:
        """Count a record if there is room for it."""
        cdef Target *target = &self.targets[move.target]
        cdef int64_t size = FIXED_IPV4_BYTES + move.head.body_bytes + target.topic_size + LENGTH_BYTES
        size += self.stored_bytes(move)
        if size > self.max_record_bytes or size > self.room_bytes - self.size_bytes:
            return False
        move.head.size = <int32_t> size
        self.size_bytes += size
        self.count += 1
        target.count += 1
        return True

    cdef Py_ssize_t stored_bytes(self, const Move *move) noexcept nogil:
        """Return the size of the properties of the new record."""
        cdef Py_ssize_t size = move.properties_bytes + SEAL_BYTES
        if move.enqueue_ms >= 0:
            size += 17 + digits_of(move.enqueue_ms) + 18 + digits_of(move.dequeue_ms) + 1
        return size

    cdef int target_at(self, const Place *place) except -2:
        """Return the index of a queue; -1 if it is for Python, or one too many."""
        cdef int i
        cdef Target *target
        for i in range(self.target_count):
            target = &self.targets[i]
            if target.queue_id == place.queue_id and is_text(
                place.topic, place.topic_bytes, <const char *> target.name, target.name_bytes
            ):
                return i
        if self.target_count == MAX_TARGETS or not is_ascii(place.topic, place.topic_bytes):
            return -1
        name = PyBytes_FromStringAndSize(<const char *> place.topic, place.topic_bytes)
        queue = self.queue_of(name.decode("ascii"), place.queue_id)
        return -1 if queue is None else self.add_target(queue)

    cdef int target_of(self, queue) except -2:
        """Return the index of a queue; -1 if it is one too many."""
        cdef int i
        for i in range(self.target_count):
            if self.queues[i] is queue:
                return i
        return self.add_target(queue) if self.target_count < MAX_TARGETS else -1

    cdef int add_target(self, queue) except -2:
        cdef Target *target = &self.targets[self.target_count]
        cdef bytes topic_bytes = queue.topic_bytes
        cdef bytes name = queue.topic.encode()
        self.queues.append(queue)
        self.names.append(queue.topic)
        self.kept += (topic_bytes, name)
        target.name, target.name_bytes = <const uint8_t *> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        target.topic_bytes = <const uint8_t *> PyBytes_AS_STRING(topic_bytes)
        target.topic_size = PyBytes_GET_SIZE(topic_bytes)
        target.magic, target.queue_id, target.count, target.entries = queue.magic, queue.queue_id, 0, NULL
        self.target_count += 1
        return self.target_count - 1

    # Into the store

    def encode(self, int64_t physical_offset, int64_t store_timestamp, bytes store_host not None):
        """Return the records for `physical_offset`, and each queue that gets any with its entries.

        Offsets in a queue begin at its `next_offset`.
        """
        cdef bytes records = PyBytes_FromStringAndSize(NULL, self.size_bytes)
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(records)
        cdef bytes content
        cdef list entries = []
        cdef Target *target
        cdef Py_ssize_t i
        if PyBytes_GET_SIZE(store_host) != HOST_BYTES:
            raise ValueError("these records name an IPv4 address")
        for i in range(self.target_count):
            target = &self.targets[i]
            if target.count:
                queue = self.queues[i]
                content = PyBytes_FromStringAndSize(NULL, target.count * sizeof(QueueEntry))
                target.entries, target.next_offset = <QueueEntry *> PyBytes_AS_STRING(content), queue.next_offset
                entries.append((queue, content))
        for i in range(self.count):
            self.moves[i].head.physical_offset, self.moves[i].head.store_timestamp = physical_offset, store_timestamp
            self.moves[i].head.store_host = <const uint8_t *> PyBytes_AS_STRING(store_host)
            to = self.write_record(to, &self.moves[i])
            physical_offset += self.moves[i].head.size
        return records, entries

    cdef uint8_t *write_record(self, uint8_t *to, Move *move) noexcept nogil:
        """Write one record and the entry of its queue; return where it ends."""
        cdef Target *target = &self.targets[move.target]
        cdef RecordHead *head = &move.head
        cdef uint8_t *begin = to
        cdef Py_ssize_t properties_bytes = self.stored_bytes(move)
        target.entries[0].physical_offset = from_big64(head.physical_offset)
        target.entries[0].size = from_big32(head.size)
        target.entries[0].tags_code = from_big64(move.tags_code)
        head.magic, head.queue_id, head.queue_offset = target.magic, <int32_t> target.queue_id, target.next_offset
        head.body_crc = masked_crc(move.body, head.body_bytes, CAN_FOLD)
        target.entries += 1
        target.next_offset += 1
        to = put(put(put_head(to, head), move.body, head.body_bytes), target.topic_bytes, target.topic_size)
        to[0], to[1] = <uint8_t> (properties_bytes >> 8), <uint8_t> properties_bytes
        to = put(to + LENGTH_BYTES, move.properties, move.properties_bytes)
        if move.enqueue_ms >= 0:
            to = put_number(put(to, <const uint8_t *> b"TIMER_ENQUEUE_MS\x01", 17), move.enqueue_ms)
            to = put_number(put(to, <const uint8_t *> b"\x02TIMER_DEQUEUE_MS\x01", 18), move.dequeue_ms)
            to[0] = VALUE_END
            to += 1
        put_seal(to, masked_crc(begin, to - begin, CAN_FOLD))
        return to + SEAL_BYTES
