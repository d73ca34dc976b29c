# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled path of usual sends: from the frames of reads to records, ConsumeQueue entries and responses.

Its twin is the Python path (`broker/processor/send.py`, `store/appender.py`, `broker/send/replies.py`).  Nothing is
refused here: `SendReader.read` stops before the first send that is unusual, and the Python path serves that one.
So it accepts only sends about which both could not differ.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from sprocket.engine.header_reader import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.framing cimport ResponseEncoder, Value, put_decimal, put_hex
from sprocket.engine.header_reader cimport FOREIGN, Header, HeaderReader, Outcome, UNUSUAL, USUAL
from sprocket.engine.layout cimport (
    CRC_MASK, FIXED_IPV4_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES, VALUE_END,
    from_big16, from_big32, from_big64,
)
from sprocket.engine.signatures cimport Proof
from sprocket.engine.wire_text cimport Text, unescaped

cdef extern from *:
    """
    #ifndef ENGINE_SOURCES
    #define ENGINE_SOURCES ""
    #endif
    """
    const char *ENGINE_SOURCES

cdef extern from "crc32.h":
    void crc32_prepare() noexcept nogil
    int crc32_can_fold() noexcept nogil
    uint32_t crc32_of(const uint8_t *data, size_t size, int can_fold) noexcept nogil

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *octets, Py_ssize_t size, const char *errors)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # What a field means to a send.
    ROLE_TOPIC = 1
    ROLE_PROPERTIES = 2
    ROLE_QUEUE_ID = 3
    ROLE_SYS_FLAG = 4
    ROLE_BORN_TIMESTAMP = 5
    ROLE_FLAG = 6
    ROLE_RECONSUME_TIMES = 7
    ROLE_BATCH = 8
    # Different topics and queues of one read; the next read begins with the send that exceeds them.
    MAX_TOPICS = 16
    MAX_LANES = 64
    RESPONSE_VALUES = 4
    # Name, 0x01, digits, 0x02.
    SEAL_NAME_BYTES = 9
    SEAL_DIGITS = 10
    HOST_BYTES = 8
    # Records of this size take about 20 us: other threads may run meanwhile.
    LONG_BYTES = 64 * 1024

cdef const uint8_t *SEAL_NAME = b"__CRC32#\x01"
cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

# For a comparison with `FIXED_IPV4_RAW` and `CONSUME_QUEUE_DTYPE`.
RECORD_HEAD_BYTES = sizeof(RecordFixed) + sizeof(RecordRestIpv4)
QUEUE_ENTRY_BYTES = sizeof(QueueEntry)
assert RECORD_HEAD_BYTES == FIXED_IPV4_BYTES

_ROLES = {
    "topic": ROLE_TOPIC, "properties": ROLE_PROPERTIES, "queue_id": ROLE_QUEUE_ID, "sys_flag": ROLE_SYS_FLAG,
    "born_timestamp": ROLE_BORN_TIMESTAMP, "flag": ROLE_FLAG, "reconsume_times": ROLE_RECONSUME_TIMES,
    "batch": ROLE_BATCH,
}


# Parts of a message's properties that a broker looks at.
cdef struct Properties:
    const uint8_t *key
    Py_ssize_t key_bytes
    const uint8_t *tag
    Py_ssize_t tag_bytes


# One send.  Its bytes lie in its frame or in the scratch of the read.
cdef struct Send:
    const uint8_t *body
    Py_ssize_t body_bytes
    const uint8_t *properties
    Py_ssize_t properties_bytes
    const uint8_t *key
    Py_ssize_t key_bytes
    int64_t born_timestamp
    int64_t size
    int64_t physical_offset
    int64_t queue_offset
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int32_t opaque
    int32_t tags_code
    int lane
    int serialization


# One queue of the read.
cdef struct Lane:
    int topic
    int64_t queue_id
    int64_t next_offset
    int32_t magic
    const uint8_t *topic_bytes  # with their length, as in a record
    Py_ssize_t topic_size
    Py_ssize_t count
    QueueEntry *entries
    Py_ssize_t place  # of its queue, among those of a group


# One queue of a group: where the next record of it goes.
cdef struct Place:
    int64_t next_offset
    Py_ssize_t count
    QueueEntry *entries


# One topic of the read.
cdef struct Topic:
    const uint8_t *name
    Py_ssize_t name_bytes
    int64_t queue_limit
    int64_t flags
    Py_ssize_t count
    int64_t total_bytes
    int64_t largest_bytes


cdef bint is_ascii(const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    cdef uint8_t every = 0
    for i in range(size):
        every |= octets[i]
    return every < 128


cdef bint is_alphanumeric(const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Return whether a text is of ASCII letters and digits, at least one: JSON escapes none of them."""
    for i in range(size):
        if not (c'0' <= octets[i] <= c'9' or c'a' <= (octets[i] | 0x20) <= c'z'):
            return False
    return size > 0


cdef inline bint begins(const uint8_t *octets, Py_ssize_t size, const char *with_, Py_ssize_t bytes_) noexcept nogil:
    return size >= bytes_ and not memcmp(octets, with_, bytes_)


cdef inline bint ends(const uint8_t *octets, Py_ssize_t size, const char *with_, Py_ssize_t bytes_) noexcept nogil:
    return size >= bytes_ and not memcmp(octets + size - bytes_, with_, bytes_)


cdef inline bint names_topics(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    """Return whether a property may name further topics, for which permission is needed: see `acl.access_request`."""
    return ends(name, size, b"INNER_MULTI_DISPATCH", 20) or ends(name, size, b"TIMER_DEL_UNIQKEY", 17)


cdef bint has_meaning(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    """Return whether a property may make a message other than plain: more names than `broker/send/send_kinds.py`."""
    if names_topics(name, size):
        return True
    if name[0] == c'D':
        return begins(name, size, b"DELAY", 5)
    if name[0] == c'T':
        return begins(name, size, b"TIMER_", 6) or begins(name, size, b"TRAN", 4)
    if name[0] == c'C':
        return begins(name, size, b"CLUSTER", 7)
    if name[0] == c'P':
        return begins(name, size, b"POP_CK", 6)
    if name[0] == c'I':
        return begins(name, size, b"INNER_", 6)
    if name[0] == c'R':
        return begins(name, size, b"REAL_", 5)
    return ends(name, size, b"__SHARDINGKEY", 13) or begins(name, size, b"__", 2)


cdef bint read_properties(const uint8_t *at, Py_ssize_t size, Properties *found) noexcept nogil:
    """Find key and tag of a plain message; return False if the message needs thought."""
    cdef const uint8_t *end = at + size
    cdef const uint8_t *value_end
    cdef const uint8_t *value
    cdef Py_ssize_t name_bytes, value_bytes
    found.key = found.tag = NULL
    found.key_bytes = found.tag_bytes = 0
    # The name of a record's seal has this character, and few others do.
    if memchr(at, c'#', size) != NULL:
        return False
    while at < end:
        value_end = <const uint8_t *> memchr(at, VALUE_END, end - at)
        if value_end == NULL:
            value_end = end
        value = <const uint8_t *> memchr(at, 1, value_end - at)
        if value == NULL or value == at:
            return False
        name_bytes, value = value - at, value + 1
        value_bytes = value_end - value
        if memchr(value, 1, value_bytes) != NULL or has_meaning(at, name_bytes):
            return False
        if ends(at, name_bytes, b"UNIQ_KEY", 8):
            if name_bytes != 8:
                return False
            found.key, found.key_bytes = value, value_bytes
        elif name_bytes == 4 and begins(at, name_bytes, b"TAGS", 4):
            # The last counts, but for one without a value.
            if not value_bytes and found.tag_bytes:
                return False
            found.tag, found.tag_bytes = value, value_bytes
        elif name_bytes == 4 and begins(at, name_bytes, b"WAIT", 4) and is_false(value, value_bytes):
            return False
        at = value_end + 1
    return is_alphanumeric(found.key, found.key_bytes) and is_ascii(found.tag, found.tag_bytes)


cdef inline bint is_false(const uint8_t *value, Py_ssize_t size) noexcept nogil:
    return size == 5 and not memcmp(value, b"false", 5)


cdef int32_t java_hash(const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Return Java's hash of a text of ASCII."""
    cdef uint32_t value = 0
    for i in range(size):
        value = 31 * value + octets[i]
    return <int32_t> value


cdef bint is_utf8(const uint8_t *octets, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char *> octets, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef class SendReader(HeaderReader):
    """Reader of the usual sends of one request code, for one configuration of a broker."""

    cdef int64_t usual_flags
    cdef bytes suffix
    cdef int properties_at  # index of their field

    def __init__(self, int code, tuple fields, int64_t usual_flags, bytes suffix):
        """`fields` are those of `framing.HeaderDecoder`; other bits of sysFlag than `usual_flags` are unusual.

        `suffix` are the properties that the broker adds to each message, with the end of the last value.
        """
        super().__init__(code, fields, _ROLES, frozenset({"properties"}))
        self.usual_flags, self.suffix = usual_flags, suffix
        self.properties_at = self.index_of_role(ROLE_PROPERTIES)
        if self.properties_at < 0:
            raise ValueError("the header of a send has properties")

    def read(self, list frames, Py_ssize_t least, int64_t room_bytes, int64_t max_record_bytes, bytes born_host,
             topic_of, queue_of, Proof proof=None):
        """Return the usual sends with which `frames` begin, as `Sends`; None if there are none.

        Also None if an unusual send follows fewer than `least`: then one append of the Python path is cheaper than two.
        Their records have at most `room_bytes` together and `max_record_bytes` each.  `topic_of` returns for a name
        (topic, limit of queue ids, flags), `queue_of` the plain queue of a topic and an id; None if that is unusual.
        With `proof`, a send that does not prove it is unusual.
        """
        cdef Sends sends = Sends(frames, self.suffix, born_host)
        cdef Outcome outcome = FOREIGN
        cdef Py_ssize_t count = len(frames)
        sends.room_bytes, sends.max_record_bytes = room_bytes, max_record_bytes
        sends.topic_of, sends.queue_of = topic_of, queue_of
        while sends.count < count:
            outcome = self.read_one(sends, frames[sends.count], proof)
            if outcome != USUAL:
                break
        if not sends.count or (outcome == UNUSUAL and sends.count < least):
            return None
        sends.topic_of = sends.queue_of = None
        return sends

    cdef Outcome read_one(self, Sends sends, object frame, Proof proof) except *:
        """Add one frame to `sends` if it is usual, and admitted by `proof`."""
        cdef Header header
        cdef Outcome outcome
        if not PyTuple_Check(frame) or PyTuple_GET_SIZE(frame) != 3:
            return UNUSUAL
        serialization, octets, body = <tuple> frame
        if not PyBytes_CheckExact(octets) or not PyBytes_CheckExact(body) or not PyBytes_GET_SIZE(body):
            return UNUSUAL
        header.numbers[ROLE_RECONSUME_TIMES] = header.numbers[ROLE_BATCH] = 0
        header.texts[ROLE_PROPERTIES].size = 0
        outcome = self.read_header(serialization, octets, &header)
        if outcome != USUAL:
            return outcome
        if header.numbers[ROLE_BATCH] or not header.texts[ROLE_PROPERTIES].size:
            return UNUSUAL
        if not sends.take_properties(&header.texts[ROLE_PROPERTIES], &sends.sends[sends.count]):
            return UNUSUAL
        if proof is not None and not self.is_proved(&header, &sends.sends[sends.count], body, proof):
            return UNUSUAL
        return USUAL if sends.add(&header, serialization, body, self.usual_flags) else UNUSUAL

    cdef bint is_proved(self, Header *header, const Send *send, bytes body, Proof proof) except -1:
        """Return whether `proof` covers the topic, and its account has signed the header and the body.

        `Sends.add` refuses messages that name further topics.
        """
        cdef Text none
        cdef Text *properties = &header.signed_texts[self.properties_at]
        none.at, none.size, none.has_escapes = <const uint8_t *> b"", 0, False
        if not proof.covers_texts(&header.texts[ROLE_TOPIC], &none):
            return False
        properties.at, properties.size, properties.has_escapes = send.properties, send.properties_bytes, False
        return self.is_signed(header, proof.key, <const uint8_t *> PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))


cdef class Sends:
    """Usual sends of one read, in order: what they become in the log and in the queues, and their responses."""

    cdef object frames  # keeps the memory of what the sends point to
    cdef uint8_t *scratch  # properties without escapes
    cdef uint8_t *scratch_at
    cdef Send *sends
    cdef Lane lanes[MAX_LANES]
    cdef Topic topics[MAX_TOPICS]
    cdef int lane_count
    cdef int topic_count
    cdef list queues  # of the lanes
    cdef list names  # of the topics: str
    cdef list kept  # keeps the memory of the lanes, of the topics and of the next two
    cdef const uint8_t *suffix
    cdef Py_ssize_t suffix_bytes
    cdef const uint8_t *born_host
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef int64_t total_bytes
    cdef object topic_of
    cdef object queue_of
    cdef Py_ssize_t count

    def __cinit__(self, list frames, bytes suffix, bytes born_host):
        cdef Py_ssize_t header_bytes = 1
        if PyBytes_GET_SIZE(born_host) != HOST_BYTES:
            raise ValueError("usual sends come from an IPv4 address")
        self.frames = frames
        self.suffix, self.suffix_bytes = <const uint8_t *> PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix)
        self.born_host = <const uint8_t *> PyBytes_AS_STRING(born_host)
        self.queues, self.names, self.kept = [], [], [suffix, born_host]
        for frame in frames:
            header_bytes += len(frame[1])
        self.sends = <Send *> malloc(max(1, len(frames)) * sizeof(Send))
        self.scratch = self.scratch_at = <uint8_t *> malloc(header_bytes)
        if self.sends == NULL or self.scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.sends)
        free(self.scratch)

    def __len__(self):
        return self.count

    cdef bint add(self, const Header *header, int serialization, bytes body, int64_t usual_flags) except -1:
        """Take one send, whose properties were taken; return False if it is unusual."""
        cdef Send *send = &self.sends[self.count]
        cdef Properties properties
        cdef int topic = self.topic_at(&header.texts[ROLE_TOPIC])
        cdef int lane
        if topic < 0:
            return False
        cdef int64_t queue_id = header.numbers[ROLE_QUEUE_ID]
        cdef int64_t flags = header.numbers[ROLE_SYS_FLAG] | self.topics[topic].flags
        if flags & ~usual_flags or not 0 <= queue_id < self.topics[topic].queue_limit:
            return False
        if not read_properties(send.properties, send.properties_bytes, &properties):
            return False
        lane = self.lane_at(topic, queue_id)
        if lane < 0:
            return False
        send.body, send.body_bytes = <const uint8_t *> PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body)
        send.key, send.key_bytes = properties.key, properties.key_bytes
        send.tags_code = java_hash(properties.tag, properties.tag_bytes)
        send.size = FIXED_IPV4_BYTES + send.body_bytes + self.lanes[lane].topic_size + 2 + self.stored_bytes(send)
        if send.size > self.max_record_bytes or send.size > self.room_bytes - self.total_bytes:
            return False
        send.flag, send.sys_flag = <int32_t> header.numbers[ROLE_FLAG], <int32_t> flags
        send.born_timestamp = header.numbers[ROLE_BORN_TIMESTAMP]
        send.reconsume_times = <int32_t> header.numbers[ROLE_RECONSUME_TIMES]
        send.opaque, send.serialization, send.lane = <int32_t> header.opaque, serialization, lane
        self.note(send, topic)
        return True

    cdef void note(self, const Send *send, int topic) noexcept:
        """Count a send that was taken."""
        self.count += 1
        self.total_bytes += send.size
        self.lanes[send.lane].count += 1
        self.topics[topic].count += 1
        self.topics[topic].total_bytes += send.size
        self.topics[topic].largest_bytes = max(self.topics[topic].largest_bytes, send.size)

    cdef bint take_properties(self, const Text *text, Send *send) except -1:
        """Get the properties' bytes; return False if they are no text, or have an unusual escape."""
        send.properties, send.properties_bytes = text.at, text.size
        if text.has_escapes:
            # Together not longer than all headers, which `scratch` has room for.
            send.properties, send.properties_bytes = self.scratch_at, unescaped(text, self.scratch_at)
            if send.properties_bytes <= 0:
                return False
            self.scratch_at += send.properties_bytes
        return text.is_ascii or is_utf8(send.properties, send.properties_bytes)

    cdef inline bint ends_open(self, const Send *send) noexcept nogil:
        """Return whether the last value of the properties has no end yet."""
        return send.properties[send.properties_bytes - 1] != VALUE_END

    cdef Py_ssize_t stored_bytes(self, const Send *send) noexcept nogil:
        """Return the size of the properties as they are stored."""
        return send.properties_bytes + self.ends_open(send) + self.suffix_bytes + SEAL_BYTES

    cdef int topic_at(self, const Text *name) except -2:
        """Return the index of a topic; -1 if it is unusual, or one too many."""
        cdef int i
        cdef Topic *topic
        for i in range(self.topic_count):
            topic = &self.topics[i]
            if topic.name_bytes == name.size and not memcmp(topic.name, name.at, name.size):
                return i
        if self.topic_count == MAX_TOPICS:
            return -1
        octets = PyBytes_FromStringAndSize(<const char *> name.at, name.size)
        found = self.topic_of(octets.decode("ascii"))
        if found is None:
            return -1
        topic = &self.topics[self.topic_count]
        self.names.append(found[0])
        self.kept.append(octets)
        topic.name, topic.name_bytes = <const uint8_t *> PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets)
        topic.queue_limit, topic.flags = found[1], found[2]
        topic.count = topic.total_bytes = topic.largest_bytes = 0
        self.topic_count += 1
        return self.topic_count - 1

    cdef int lane_at(self, int topic, int64_t queue_id) except -2:
        """Return the index of a queue; -1 if it is unusual, or one too many."""
        cdef int i
        cdef Lane *lane
        cdef bytes topic_bytes
        for i in range(self.lane_count):
            if self.lanes[i].queue_id == queue_id and self.lanes[i].topic == topic:
                return i
        if self.lane_count == MAX_LANES:
            return -1
        queue = self.queue_of(self.names[topic], queue_id)
        if queue is None:
            return -1
        lane, topic_bytes = &self.lanes[self.lane_count], queue.topic_bytes
        lane.magic = queue.magic
        self.queues.append(queue)
        self.kept.append(topic_bytes)
        lane.topic, lane.queue_id, lane.count, lane.entries = topic, queue_id, 0, NULL
        lane.topic_bytes = <const uint8_t *> PyBytes_AS_STRING(topic_bytes)
        lane.topic_size = PyBytes_GET_SIZE(topic_bytes)
        self.lane_count += 1
        return self.lane_count - 1

    # Into the store

    cdef void write_all(
        self, uint8_t *to, int64_t physical_offset, int64_t store_timestamp, const uint8_t *store_host
    ) noexcept nogil:
        cdef Send *send
        cdef Lane *lane
        for i in range(self.count):
            send = &self.sends[i]
            lane = &self.lanes[send.lane]
            send.physical_offset, send.queue_offset = physical_offset, lane.next_offset
            lane.entries[0].physical_offset = from_big64(physical_offset)
            lane.entries[0].size = from_big32(<int32_t> send.size)
            lane.entries[0].tags_code = from_big64(<int64_t> send.tags_code)
            lane.entries += 1
            lane.next_offset += 1
            self.write_record(to, send, lane, store_timestamp, store_host)
            to += send.size
            physical_offset += send.size

    cdef void write_record(
        self, uint8_t *to, const Send *send, const Lane *lane, int64_t store_timestamp, const uint8_t *store_host
    ) noexcept nogil:
        """Write one record: fixed fields, body, topic, properties, seal."""
        cdef uint8_t *begin = to
        cdef RecordFixed *head = <RecordFixed *> to
        cdef RecordRestIpv4 *rest = <RecordRestIpv4 *> (to + sizeof(RecordFixed))
        head.total_size = from_big32(<int32_t> send.size)
        head.magic = from_big32(lane.magic)
        head.body_crc = from_big32(crc32_of(send.body, send.body_bytes, CAN_FOLD) & CRC_MASK)
        head.queue_id = from_big32(<int32_t> lane.queue_id)
        head.flag = from_big32(send.flag)
        head.queue_offset = from_big64(send.queue_offset)
        head.physical_offset = from_big64(send.physical_offset)
        head.sys_flag = from_big32(send.sys_flag)
        head.born_timestamp = from_big64(send.born_timestamp)
        memcpy(rest.born_host, self.born_host, HOST_BYTES)
        rest.store_timestamp = from_big64(store_timestamp)
        memcpy(rest.store_host, store_host, HOST_BYTES)
        rest.reconsume_times = from_big32(send.reconsume_times)
        rest.prepared_transaction_offset = 0
        rest.body_bytes = from_big32(<int32_t> send.body_bytes)
        to = put(begin + FIXED_IPV4_BYTES, send.body, send.body_bytes)
        to = put(to, lane.topic_bytes, lane.topic_size)
        to = self.write_properties(to, send)
        write_seal(to, crc32_of(begin, to - begin, CAN_FOLD) & CRC_MASK)

    cdef uint8_t *write_properties(self, uint8_t *to, const Send *send) noexcept nogil:
        """Write length and properties, up to the seal."""
        cdef Py_ssize_t size = self.stored_bytes(send)
        to[0], to[1] = <uint8_t> (size >> 8), <uint8_t> size
        to = put(to + 2, send.properties, send.properties_bytes)
        if self.ends_open(send):
            to[0] = VALUE_END
            to += 1
        return put(to, self.suffix, self.suffix_bytes)

    cdef void begin_at(self, const Place *places) noexcept nogil:
        """Let each queue continue where the sends before these have ended."""
        for i in range(self.lane_count):
            if self.lanes[i].count:
                self.lanes[i].next_offset = places[self.lanes[i].place].next_offset
                self.lanes[i].entries = places[self.lanes[i].place].entries

    cdef void end_at(self, Place *places) noexcept nogil:
        for i in range(self.lane_count):
            if self.lanes[i].count:
                places[self.lanes[i].place].next_offset = self.lanes[i].next_offset
                places[self.lanes[i].place].entries = self.lanes[i].entries

    # Back to the sender

    def responses(self, ResponseEncoder encoder):
        """Return the responses, in order; `encoder` is that of a template of `broker.send.replies.SendReplies`."""
        cdef Value values[RESPONSE_VALUES]
        cdef const Send *send
        cdef Py_ssize_t i, size = 0
        if encoder.count != RESPONSE_VALUES:
            raise ValueError(f"the response to a send has {RESPONSE_VALUES} values")
        for i in range(self.count):
            size += encoder.fixed_bytes + self.sends[i].key_bytes
        cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(frames)
        cdef uint8_t *to = begin
        for i in range(self.count):
            send = &self.sends[i]
            put_hex(send.physical_offset, &values[0])
            put_decimal(self.lanes[send.lane].queue_id, &values[1])
            put_decimal(send.queue_offset, &values[2])
            values[3].at, values[3].size = send.key, send.key_bytes
            to = encoder.put(to, send.serialization, send.opaque, values, 0)
        return frames[:to - begin]


cdef class SendGroup:
    """Usual sends of one or more reads, in order, for one append."""

    cdef list members
    cdef readonly Py_ssize_t messages
    cdef readonly int64_t size_bytes  # of their records

    def __cinit__(self):
        self.members = []

    def __len__(self):
        return self.messages

    def add(self, Sends sends not None):
        """Add the sends of one read after those that are there."""
        self.members.append(sends)
        self.messages += sends.count
        self.size_bytes += sends.total_bytes

    def queues(self):
        """Return the queues that get records, each once."""
        cdef Sends sends
        cdef dict found = {}
        for sends in self.members:
            for i in range(sends.lane_count):
                if sends.lanes[i].count:
                    found[sends.queues[i]] = None
        return list(found)

    def encode(self, int64_t physical_offset, int64_t store_timestamp, bytes store_host):
        """Return the records for `physical_offset`, and each queue that gets any with its entries.

        Offsets in a queue begin at its `next_offset`.
        """
        cdef Sends sends
        cdef bytes records = PyBytes_FromStringAndSize(NULL, self.size_bytes)
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(records)
        cdef const uint8_t *host = <const uint8_t *> PyBytes_AS_STRING(store_host)
        cdef list entries = []
        if PyBytes_GET_SIZE(store_host) != HOST_BYTES:
            raise ValueError("usual records name an IPv4 address")
        # Keeps the memory of the places until all is written.
        cdef bytes memory = self.places(entries)
        cdef Place *places = <Place *> PyBytes_AS_STRING(memory)
        for sends in self.members:
            sends.begin_at(places)
            if sends.total_bytes > LONG_BYTES:
                with nogil:
                    sends.write_all(to, physical_offset, store_timestamp, host)
            else:
                sends.write_all(to, physical_offset, store_timestamp, host)
            sends.end_at(places)
            to += sends.total_bytes
            physical_offset += sends.total_bytes
        return records, entries

    cdef bytes places(self, list entries):
        """Return an array of `Place`, one for each queue; append each queue and the memory of its entries."""
        cdef Sends sends
        cdef Place *place
        cdef bytes content
        cdef Py_ssize_t i, at, lanes = 0
        cdef dict known = {}
        for sends in self.members:
            lanes += sends.lane_count
        cdef bytes memory = PyBytes_FromStringAndSize(NULL, lanes * sizeof(Place))
        cdef Place *places = <Place *> PyBytes_AS_STRING(memory)
        for sends in self.members:
            for i in range(sends.lane_count):
                if sends.lanes[i].count:
                    queue = sends.queues[i]
                    found = known.get(queue)
                    if found is None:
                        found = known[queue] = len(known)
                        places[<Py_ssize_t> found].count = 0
                        places[<Py_ssize_t> found].next_offset = queue.next_offset
                    at = found
                    sends.lanes[i].place = at
                    places[at].count += sends.lanes[i].count
        at = 0
        for queue in known:
            place = &places[at]
            content = PyBytes_FromStringAndSize(NULL, place.count * sizeof(QueueEntry))
            place.entries = <QueueEntry *> PyBytes_AS_STRING(content)
            entries.append((queue, content))
            at += 1
        return memory

    # For statistics

    def by_topic(self):
        """Return (topic, number of records, their bytes, bytes of the largest) for each topic that gets any."""
        cdef Sends sends
        cdef Topic *topic
        cdef dict found
        if len(self.members) == 1:
            # The usual case of one connection: each topic is there once.
            sends = self.members[0]
            return [
                (sends.names[i], sends.topics[i].count, sends.topics[i].total_bytes, sends.topics[i].largest_bytes)
                for i in range(sends.topic_count) if sends.topics[i].count
            ]
        found = {}
        for sends in self.members:
            for i in range(sends.topic_count):
                topic = &sends.topics[i]
                if topic.count:
                    name = sends.names[i]
                    count, total_bytes, largest_bytes = found.get(name, (0, 0, 0))
                    found[name] = (
                        count + topic.count, total_bytes + topic.total_bytes, max(largest_bytes, topic.largest_bytes)
                    )
        return [(name, *figures) for name, figures in found.items()]

    def sizes_of(self, str topic not None):
        """Return the size of each record of a topic."""
        cdef Sends sends
        cdef list sizes = []
        for sends in self.members:
            for i in range(sends.count):
                if sends.names[sends.lanes[sends.sends[i].lane].topic] == topic:
                    sizes.append(sends.sends[i].size)
        return sizes


cdef inline uint8_t *put(uint8_t *to, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    memcpy(to, octets, size)
    return to + size


cdef void write_seal(uint8_t *to, uint32_t crc) noexcept nogil:
    """Write the seal that `store.record.checksum` describes: the lowest digit is first."""
    memcpy(to, SEAL_NAME, SEAL_NAME_BYTES)
    to += SEAL_NAME_BYTES
    for i in range(SEAL_DIGITS):
        to[i] = c'0' + crc % 10
        crc //= 10
    to[SEAL_DIGITS] = VALUE_END
