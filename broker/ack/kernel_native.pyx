# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled path of usual acknowledgements of pops: from the frames of a read to records, entries and responses.

Its twin is the Python path (`broker/processor/pop/ack.py`, `broker/pop/ack_lanes.py`, `store/appender.py`).  Nothing is
refused here: `AckReader.read` stops before the first acknowledgement that is unusual, and the Python path serves it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from sprocket.engine.remoting.header_reader import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.broker.record_parts cimport put_parts, take_parts
from sprocket.engine.remoting.framing cimport ResponseEncoder, Value, put_decimal
from sprocket.engine.remoting.header_reader cimport Header, HeaderReader, USUAL, text_of, texts_key
from sprocket.engine.store.layout cimport (
    FIXED_IPV4_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES,
)
from sprocket.engine.remoting.read_frames cimport FrameParts, find_frame
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare, masked_crc
from sprocket.engine.store.record_writer cimport (
    Octets, RecordHead, begin_head, octets_of, put, put_entry, put_head, put_seal,
)
from sprocket.engine.remoting.wire_text cimport Text

cdef extern from *:
    """
    #ifndef ENGINE_SOURCES
    #define ENGINE_SOURCES ""
    #endif
    """
    const char *ENGINE_SOURCES

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # What a field means to an acknowledgement.
    ROLE_GROUP = 1
    ROLE_TOPIC = 2
    ROLE_QUEUE_ID = 3
    ROLE_HANDLE = 4
    ROLE_OFFSET = 5
    # Pops of one read; the next read begins with the acknowledgement that exceeds them.
    MAX_LANES = 64
    # Kinds of acknowledgements that are remembered; then all are forgotten.
    MAX_KINDS = 4096
    MAX_DIGITS = 18
    # Of a handle up to the offset (`broker.pop.ack_lanes.MAX_COMMON_CHARS`).
    MAX_COMMON_BYTES = 1005
    # Numbers of a pop in body and properties of a record, each between two of its parts.
    BODY_NUMBERS = 2
    PROPERTY_NUMBERS = 3

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

# For a comparison with `FIXED_IPV4_RAW` and `CONSUME_QUEUE_DTYPE`.
RECORD_HEAD_BYTES = sizeof(RecordFixed) + sizeof(RecordRestIpv4)
QUEUE_ENTRY_BYTES = sizeof(QueueEntry)
MAX_COMMON_CHARS = MAX_COMMON_BYTES

# The texts that tell kinds apart, beside the end of the handle.
cdef int KEY_ROLES[2]
KEY_ROLES[:] = [ROLE_TOPIC, ROLE_GROUP]

_ROLES = {
    "consumer_group": ROLE_GROUP, "topic": ROLE_TOPIC, "queue_id": ROLE_QUEUE_ID, "extra_info": ROLE_HANDLE,
    "offset": ROLE_OFFSET,
}


cdef class AckKind:
    """What the acknowledgements of one queue by one group have in common, as long as nothing changes.

    Their handles differ only in the first three numbers and in the offset.
    """

    cdef readonly str topic
    cdef readonly str group
    cdef readonly int64_t queue_id
    cdef readonly str broker_name
    cdef bytes topic_name
    cdef bytes group_name
    cdef object topic_config
    cdef object pattern  # keeps the memory of the parts
    cdef Octets before_body
    cdef Octets before_properties
    cdef Octets body[BODY_NUMBERS + 1]
    cdef Octets properties[PROPERTY_NUMBERS + 1]

    def __cinit__(self, str topic not None, str group not None, int64_t queue_id, str broker_name not None,
                  topic_config, pattern):
        """`broker_name` is that of the handles, `pattern` an `AckPattern`."""
        self.topic, self.group, self.queue_id, self.broker_name = topic, group, queue_id, broker_name
        self.topic_name, self.group_name = topic.encode("ascii"), group.encode("ascii")
        self.topic_config, self.pattern = topic_config, pattern
        before_body, body, before_properties, properties = pattern
        self.before_body, self.before_properties = octets_of(before_body), octets_of(before_properties)
        take_parts(self.body, body, BODY_NUMBERS + 1)
        take_parts(self.properties, properties, PROPERTY_NUMBERS + 1)


# What the acknowledgements of one pop of one queue have in common.
cdef struct Lane:
    Octets topic
    Octets group
    Octets common  # the handle up to the offset
    int64_t queue_id
    int64_t pop_time_ms
    int64_t low
    int64_t high
    Octets before_body
    Octets after_body
    Octets before_properties
    Octets after_properties
    Py_ssize_t count


# One acknowledgement.
cdef struct Ack:
    int64_t offset
    int64_t size  # of its record
    int32_t opaque
    int serialization
    int lane


cdef inline bint is_same(const Octets *known, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    return known.size == size and not memcmp(known.at, at, size)


cdef Py_ssize_t common_bytes(const Text *handle) noexcept nogil:
    """Return the size of a handle up to its last part, an offset of usual length; 0 if it has none."""
    cdef Py_ssize_t at = handle.size
    while at and c'0' <= handle.at[at - 1] <= c'9':
        at -= 1
    if at == handle.size or handle.size - at > MAX_DIGITS or not at or handle.at[at - 1] != c' ':
        return 0
    return at if at <= MAX_COMMON_BYTES else 0


# The first three numbers of a handle.
cdef struct PopNumbers:
    int64_t first_offset
    int64_t pop_time_ms
    int64_t invisible_ms


cdef Py_ssize_t read_numbers(const uint8_t *handle, Py_ssize_t size, PopNumbers *found) noexcept nogil:
    """Read the numbers with which a handle begins; return where the rest begins, 0 if they are unusual."""
    cdef int64_t numbers[3]
    cdef Py_ssize_t at = 0, begin
    cdef int i
    for i in range(3):
        numbers[i], begin = 0, at
        while at < size and c'0' <= handle[at] <= c'9':
            if at - begin == MAX_DIGITS:
                return 0
            numbers[i] = numbers[i] * 10 + (handle[at] - c'0')
            at += 1
        if at == begin or at == size or handle[at] != c' ':
            return 0
        at += 1
    found.first_offset, found.pop_time_ms, found.invisible_ms = numbers[0], numbers[1], numbers[2]
    return at


cdef bytes joined(const Octets *parts, const Value *numbers, Py_ssize_t count):
    """Return `count` numbers, each after its part, then the last part."""
    cdef Py_ssize_t size = parts[count].size, i
    cdef bytes text
    for i in range(count):
        size += parts[i].size + numbers[i].size
    text = PyBytes_FromStringAndSize(NULL, size)
    put_parts(<uint8_t *> PyBytes_AS_STRING(text), parts, numbers, count)
    return text


cdef class AckReader(HeaderReader):
    """Reader of usual acknowledgements, for one configuration of a broker."""

    cdef object kind_of
    cdef object topic_of
    cdef object bounds_of
    cdef dict kinds

    def __init__(self, int code, tuple fields, kind_of, topic_of, bounds_of):
        """`fields` are those of `framing.HeaderDecoder`.

        `kind_of` returns the `AckKind` for (topic, group, queue id, handle from its revive queue up to the offset), None
        if that is unusual.  The others return what there is now: `topic_of` the configuration of a topic, `bounds_of`
        the lowest and the highest offset that may be acknowledged of (kind, first offset, time of the pop), None if
        the pop is in memory.
        """
        super().__init__(code, fields, _ROLES, varying=frozenset({"extra_info"}))
        self.kind_of, self.topic_of, self.bounds_of, self.kinds = kind_of, topic_of, bounds_of, {}

    def read(self, frames, Py_ssize_t index, Py_ssize_t max_acks, int64_t room_bytes, int64_t max_record_bytes,
             int64_t now_ms, int64_t slot_ms, int64_t max_delay_ms, queue, int64_t tags_code):
        """Return the usual acknowledgements from `index` on, at most `max_acks`, as `Acks`; None if there are none.

        Their records are for `queue`, with `tags_code`, and have at most `room_bytes` together and `max_record_bytes`
        each.  The timer takes times up to `max_delay_ms` after `now_ms`, in slots of `slot_ms`.
        """
        cdef Py_ssize_t end = len(frames)
        if slot_ms <= 0:
            raise ValueError(f"slots of {slot_ms} ms")
        if index < 0 or index >= end or max_acks <= 0:
            return None
        end = min(end, index + max_acks)
        cdef Acks acks = Acks(frames, end - index, now_ms, queue)
        acks.room_bytes, acks.max_record_bytes, acks.tags_code = room_bytes, max_record_bytes, tags_code
        acks.slot_ms, acks.max_delay_ms, acks.reader = slot_ms, max_delay_ms, self
        while index < end and self.read_one(acks, frames, index):
            index += 1
        acks.reader = None
        return acks if acks.count else None

    cdef bint read_one(self, Acks acks, frames, Py_ssize_t index) except -1:
        """Add one frame to `acks` if it is usual."""
        cdef FrameParts frame
        cdef Header header
        if not find_frame(frames, index, &frame) or self.read_header(&frame, &header) != USUAL:
            return False
        return acks.add(&header, frame.serialization)

    cdef AckKind current_kind(self, const Header *header, bytes end):
        """Return the kind of an acknowledgement whose handle has `end` after its numbers; None if it is unusual."""
        cdef bytes key = texts_key(header, KEY_ROLES, 2, header.numbers[ROLE_QUEUE_ID]) + end
        cdef AckKind kind = self.kinds.get(key)
        if kind is not None and self.topic_of(kind.topic) is kind.topic_config:
            return kind
        kind = self.kind_of(
            text_of(&header.texts[ROLE_TOPIC]), text_of(&header.texts[ROLE_GROUP]), header.numbers[ROLE_QUEUE_ID],
            end.decode("ascii"),
        )
        if len(self.kinds) >= MAX_KINDS:
            self.kinds.clear()
        if kind is None:
            self.kinds.pop(key, None)
        else:
            self.kinds[key] = kind
        return kind


cdef class Acks:
    """Usual acknowledgements of one read, in order: what they become in the log and in the queue, and the responses."""

    cdef Ack *acks
    cdef Lane lanes[MAX_LANES]
    cdef int lane_count
    cdef list kept  # keeps the memory of the lanes
    cdef list kinds  # of the lanes
    cdef object queue
    cdef AckReader reader  # until all are read
    cdef bytes topic_bytes
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef int64_t total_bytes
    cdef int64_t now_ms
    cdef int64_t slot_ms
    cdef int64_t max_delay_ms
    cdef int64_t tags_code
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity

    def __cinit__(self, frames, Py_ssize_t capacity, int64_t now_ms, queue):
        self.queue, self.topic_bytes, self.now_ms = queue, queue.topic_bytes, now_ms
        self.kept, self.kinds, self.capacity = [frames], [], capacity
        self.acks = <Ack *> malloc(max(1, capacity) * sizeof(Ack))
        if self.acks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.acks)

    def __len__(self):
        return self.count

    cdef bint add(self, const Header *header, int serialization) except -1:
        """Take one acknowledgement; return False if it is unusual."""
        cdef Ack *ack = &self.acks[self.count]
        cdef int lane = self.lane_at(header)
        cdef int64_t offset = header.numbers[ROLE_OFFSET]
        if lane < 0 or self.count >= self.capacity or not self.lanes[lane].low <= offset <= self.lanes[lane].high:
            return False
        ack.offset, ack.lane = offset, lane
        ack.size = self.record_bytes(ack)
        if ack.size > self.max_record_bytes or ack.size > self.room_bytes - self.total_bytes:
            return False
        ack.opaque, ack.serialization = <int32_t> header.opaque, serialization
        self.count += 1
        self.total_bytes += ack.size
        self.lanes[lane].count += 1
        return True

    cdef int64_t record_bytes(self, const Ack *ack) noexcept:
        cdef const Lane *lane = &self.lanes[ack.lane]
        cdef Value digits
        put_decimal(ack.offset, &digits)
        return (
            FIXED_IPV4_BYTES + lane.before_body.size + lane.after_body.size + PyBytes_GET_SIZE(self.topic_bytes) + 2
            + lane.before_properties.size + lane.after_properties.size + 2 * digits.size + SEAL_BYTES
        )

    cdef int lane_at(self, const Header *header) except -2:
        """Return the index of the lane of an acknowledgement; -1 if it is unusual, or one too many."""
        cdef const Text *topic = &header.texts[ROLE_TOPIC]
        cdef const Text *group = &header.texts[ROLE_GROUP]
        cdef const Text *handle = &header.texts[ROLE_HANDLE]
        cdef Py_ssize_t common = common_bytes(handle)
        cdef Lane *lane
        cdef int i
        if not common:
            return -1
        # The last one first: acknowledgements of one pop follow each other.
        for i in range(self.lane_count - 1, -1, -1):
            lane = &self.lanes[i]
            if lane.queue_id == header.numbers[ROLE_QUEUE_ID] and is_same(&lane.common, handle.at, common) and is_same(
                &lane.topic, topic.at, topic.size
            ) and is_same(&lane.group, group.at, group.size):
                return i
        return self.new_lane(header, common)

    cdef int new_lane(self, const Header *header, Py_ssize_t common) except -2:
        """Begin a lane for the first `common` bytes of a handle; return its index, -1 if it is unusual."""
        cdef const uint8_t *handle = header.texts[ROLE_HANDLE].at
        cdef Lane *lane = &self.lanes[self.lane_count]
        cdef AckKind kind
        cdef PopNumbers pop
        cdef Py_ssize_t at
        cdef int64_t due_ms
        if self.lane_count == MAX_LANES:
            return -1
        at = read_numbers(handle, common, &pop)
        if not at:
            return -1
        # Of 18 digits each, so the sum does not overflow.
        due_ms = pop.pop_time_ms + pop.invisible_ms
        if not self.now_ms < due_ms <= self.now_ms + self.max_delay_ms:
            return -1
        kind = self.reader.current_kind(header, handle[at:common])
        if kind is None:
            return -1
        bounds = self.reader.bounds_of(kind, pop.first_offset, pop.pop_time_ms)
        if bounds is None:
            return -1
        lane.low, lane.high = bounds
        lane.topic, lane.group, lane.queue_id = octets_of(kind.topic_name), octets_of(kind.group_name), kind.queue_id
        lane.pop_time_ms, lane.count = pop.pop_time_ms, 0
        self.set_form(lane, kind, &pop, due_ms, handle[:common])
        self.kinds.append(kind)
        self.lane_count += 1
        return self.lane_count - 1

    cdef int set_form(self, Lane *lane, AckKind kind, const PopNumbers *pop, int64_t due_ms, bytes common) except -1:
        """Set what the records of one pop share."""
        cdef Value in_body[BODY_NUMBERS]
        cdef Value in_properties[PROPERTY_NUMBERS]
        cdef bytes body, properties
        put_decimal(pop.pop_time_ms, &in_body[0])
        put_decimal(pop.first_offset, &in_body[1])
        put_decimal(pop.pop_time_ms, &in_properties[0])
        put_decimal(due_ms, &in_properties[1])
        put_decimal((due_ms - 1) // self.slot_ms * self.slot_ms, &in_properties[2])
        body = joined(kind.body, in_body, BODY_NUMBERS)
        properties = joined(kind.properties, in_properties, PROPERTY_NUMBERS)
        lane.common, lane.after_body, lane.after_properties = octets_of(common), octets_of(body), octets_of(properties)
        lane.before_body, lane.before_properties = kind.before_body, kind.before_properties
        self.kept.append((common, body, properties))
        return 0

    def lanes_served(self):
        """Return topic, group, queue id, time of the pop and number of acknowledgements of each lane."""
        cdef list found = []
        cdef AckKind kind
        cdef int i
        for i in range(self.lane_count):
            if self.lanes[i].count:
                kind = self.kinds[i]
                found.append((kind.topic, kind.group, kind.queue_id, self.lanes[i].pop_time_ms, self.lanes[i].count))
        return found

    # Into the store

    def encode(self, int64_t physical_offset, int64_t store_timestamp, bytes store_host not None):
        """Return the records for `physical_offset`, and the queue with its entries.

        Offsets in the queue begin at its `next_offset`.
        """
        cdef bytes records = PyBytes_FromStringAndSize(NULL, self.total_bytes)
        cdef bytes units = PyBytes_FromStringAndSize(NULL, self.count * sizeof(QueueEntry))
        cdef QueueEntry *entry = <QueueEntry *> PyBytes_AS_STRING(units)
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(records)
        cdef RecordHead head
        cdef Py_ssize_t i
        begin_head(&head, self.queue, physical_offset, self.now_ms, store_timestamp, store_host)
        for i in range(self.count):
            head.size = <int32_t> self.acks[i].size
            self.write_record(to, &self.acks[i], &head)
            put_entry(&entry[i], &head, self.tags_code)
            to += head.size
        return records, [(self.queue, units)]

    cdef void write_record(self, uint8_t *to, const Ack *ack, RecordHead *head) noexcept:
        """Write one record; `head` gets what its body tells."""
        cdef const Lane *lane = &self.lanes[ack.lane]
        cdef uint8_t *begin = to
        cdef uint8_t *body = to + FIXED_IPV4_BYTES
        cdef Value digits
        cdef Py_ssize_t size
        put_decimal(ack.offset, &digits)
        to = put(body, lane.before_body.at, lane.before_body.size)
        to = put(to, digits.at, digits.size)
        to = put(to, lane.after_body.at, lane.after_body.size)
        head.body_bytes = <int32_t> (to - body)
        head.body_crc = masked_crc(body, to - body, CAN_FOLD)
        put_head(begin, head)
        to = put(to, <const uint8_t *> PyBytes_AS_STRING(self.topic_bytes), PyBytes_GET_SIZE(self.topic_bytes))
        size = lane.before_properties.size + digits.size + lane.after_properties.size + SEAL_BYTES
        to[0], to[1] = <uint8_t> (size >> 8), <uint8_t> size
        to = put(to + 2, lane.before_properties.at, lane.before_properties.size)
        to = put(to, digits.at, digits.size)
        to = put(to, lane.after_properties.at, lane.after_properties.size)
        put_seal(to, masked_crc(begin, to - begin, CAN_FOLD))

    # Back to the consumer

    def responses(self, ResponseEncoder encoder not None):
        """Return the responses, in order; `encoder` is that of a response without fields."""
        cdef Value values[1]
        cdef Py_ssize_t i
        if encoder.count:
            raise ValueError("the response to an acknowledgement has no values")
        cdef bytes frames = PyBytes_FromStringAndSize(NULL, self.count * encoder.fixed_bytes)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(frames)
        cdef uint8_t *to = begin
        for i in range(self.count):
            to = encoder.put(to, self.acks[i].serialization, self.acks[i].opaque, values, 0)
        return frames[:to - begin]
