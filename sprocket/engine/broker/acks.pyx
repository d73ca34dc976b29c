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

from sprocket.engine.remoting.framing cimport ResponseEncoder, Value, put_decimal
from sprocket.engine.remoting.header_reader cimport Header, HeaderReader, USUAL
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
    MAX_OFFSET_DIGITS = 18

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

# For a comparison with `FIXED_IPV4_RAW` and `CONSUME_QUEUE_DTYPE`.
RECORD_HEAD_BYTES = sizeof(RecordFixed) + sizeof(RecordRestIpv4)
QUEUE_ENTRY_BYTES = sizeof(QueueEntry)

_ROLES = {
    "consumer_group": ROLE_GROUP, "topic": ROLE_TOPIC, "queue_id": ROLE_QUEUE_ID, "extra_info": ROLE_HANDLE,
    "offset": ROLE_OFFSET,
}


# What the acknowledgements of one pop of one queue have in common (`broker.pop.ack_lanes.AckLane`).
cdef struct Lane:
    Octets topic
    Octets group
    Octets common  # the handle up to the offset
    int64_t queue_id
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
    if at == handle.size or handle.size - at > MAX_OFFSET_DIGITS or not at or handle.at[at - 1] != c' ':
        return 0
    return at


cdef class AckReader(HeaderReader):
    """Reader of usual acknowledgements."""

    def __init__(self, int code, tuple fields):
        """`fields` are those of `framing.HeaderDecoder`."""
        super().__init__(code, fields, _ROLES, varying=frozenset({"extra_info"}))

    def read(self, frames, Py_ssize_t index, Py_ssize_t max_acks, int64_t room_bytes, int64_t max_record_bytes,
             int64_t born_timestamp, queue, int64_t tags_code, lane_of):
        """Return the usual acknowledgements from `index` on, at most `max_acks`, as `Acks`; None if there are none.

        Their records are for `queue`, with `tags_code`, and have at most `room_bytes` together and `max_record_bytes` each.  `lane_of`
        returns for (topic, group, queue id, handle up to its offset) an object, the lowest and the highest offset that
        may be acknowledged, and the parts of `AckForm`; None if that is unusual.
        """
        cdef Py_ssize_t end = len(frames)
        if index < 0 or index >= end or max_acks <= 0:
            return None
        end = min(end, index + max_acks)
        cdef Acks acks = Acks(frames, end - index, born_timestamp, queue)
        acks.room_bytes, acks.max_record_bytes, acks.lane_of = room_bytes, max_record_bytes, lane_of
        acks.tags_code = tags_code
        while index < end and self.read_one(acks, frames, index):
            index += 1
        acks.lane_of = None
        return acks if acks.count else None

    cdef bint read_one(self, Acks acks, frames, Py_ssize_t index) except -1:
        """Add one frame to `acks` if it is usual."""
        cdef FrameParts frame
        cdef Header header
        if not find_frame(frames, index, &frame) or self.read_header(&frame, &header) != USUAL:
            return False
        return acks.add(&header, frame.serialization)


cdef class Acks:
    """Usual acknowledgements of one read, in order: what they become in the log and in the queue, and the responses."""

    cdef Ack *acks
    cdef Lane lanes[MAX_LANES]
    cdef int lane_count
    cdef list kept  # keeps the memory of the lanes
    cdef list names  # of the lanes: what `lane_of` returned
    cdef object queue
    cdef object lane_of
    cdef bytes topic_bytes
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef int64_t total_bytes
    cdef int64_t born_timestamp
    cdef int64_t tags_code
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity

    def __cinit__(self, frames, Py_ssize_t capacity, int64_t born_timestamp, queue):
        self.queue, self.topic_bytes, self.born_timestamp = queue, queue.topic_bytes, born_timestamp
        self.kept, self.names, self.capacity = [frames], [], capacity
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
        return self.new_lane(topic.at[:topic.size], group.at[:group.size], header.numbers[ROLE_QUEUE_ID],
                             handle.at[:common])

    cdef int new_lane(self, bytes topic, bytes group, int64_t queue_id, bytes common) except -2:
        cdef Lane *lane
        if self.lane_count == MAX_LANES:
            return -1
        found = self.lane_of(topic.decode("ascii"), group.decode("ascii"), queue_id, common.decode("ascii"))
        if found is None:
            return -1
        name, low, high, form = found
        before_body, after_body, before_properties, after_properties = form
        lane = &self.lanes[self.lane_count]
        lane.low, lane.high = low, high
        lane.topic, lane.group, lane.common = octets_of(topic), octets_of(group), octets_of(common)
        lane.queue_id, lane.count = queue_id, 0
        lane.before_body, lane.after_body = octets_of(before_body), octets_of(after_body)
        lane.before_properties, lane.after_properties = octets_of(before_properties), octets_of(after_properties)
        self.names.append(name)
        self.kept.append((topic, group, common, form))
        self.lane_count += 1
        return self.lane_count - 1

    def lanes_served(self):
        """Return each lane with the number of its acknowledgements."""
        return [(self.names[i], self.lanes[i].count) for i in range(self.lane_count) if self.lanes[i].count]

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
        begin_head(&head, self.queue, physical_offset, self.born_timestamp, store_timestamp, store_host)
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
