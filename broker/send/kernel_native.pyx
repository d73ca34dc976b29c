# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel of sends, compiled: from the frames of reads to records, ConsumeQueue entries and responses.

Its specification is the handler (`broker/processor/send.py`, `store/appender.py`, `broker/send/replies.py`).  Nothing
is refused here: `SendReader.take` stops before the first send for the handler.
"""

from cpython.array cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from sprocket.remoting.header_reader_native import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.remoting.frames_native cimport ResponseEncoder, Value, put_decimal, put_hex
from sprocket.remoting.header_reader_native cimport Header, HeaderReader, WHOLE, text_of, texts_key
from sprocket.engine.store.layout cimport (
    FIXED_IPV4_BYTES, NAME_END, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES, VALUE_END,
    from_big16, from_big32, from_big64,
)
from sprocket.remoting.read_frames_native cimport FrameParts, find_frame
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare, masked_crc
from sprocket.engine.store.record_writer cimport HOST_BYTES, RecordHead, is_ascii, java_hash, put, put_head, put_seal
from sprocket.engine.broker.quota_levels cimport COUNTS_BYTES, IS_SOFT, LEVEL, PLACE, tokens_left
from sprocket.engine.broker.send_kinds cimport (
    HALF, KINDS, Kind, PLAIN, Special, TIMED, added_bytes, base64_bytes, delivery_ms, handle_bytes, put_added,
    put_base64, put_handle,
)
from sprocket.engine.broker.send_properties cimport Properties, begins, ends, read_properties
from sprocket.remoting.signatures_native cimport Proof
from sprocket.engine.remoting.wire_text cimport Text, bytes_below, first_byte, int32_at, uint16_at, unescaped

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
    # Different topics and queues of one append; the next one begins with the send that exceeds them.
    MAX_TOPICS = 16
    MAX_QUEUES = 64
    # Different slots of the timer wheel that sends of one append have looked at.
    MAX_SLOTS = 64
    # Different buckets of quotas of one append, and max buckets of one topic or of one sender.
    MAX_METERS = 64
    MAX_BUCKETS = 16
    # Room for so many sends, and for headers of so many bytes, is made at once.
    FIRST_CAPACITY = 16
    CHUNK_BYTES = 8 * 1024
    RESPONSE_VALUES = 4
    # With the handle by which a timed message is recalled.
    TIMED_RESPONSE_VALUES = 5
    # Flags of a message that is part of a transaction.
    TRANSACTION_MASK = 0xC
    # A message of a client's batch: size, magic, CRC, flag, length of the body (4 bytes each), the body, length of the
    # properties (2 bytes), the properties (`broker/send/client_batch.py`).
    MEMBER_FLAG_AT = 12
    MEMBER_BODY_LENGTH_AT = 16
    MEMBER_HEAD_BYTES = 20
    # Records of this size take about 20 us: other threads may run meanwhile.
    LONG_BYTES = 64 * 1024
    # Bits of the types of messages, as in `MessageType`.
    TYPE_NORMAL = 1
    TYPE_FIFO = 2
    TYPE_DELAY = 4
    TYPE_TRANSACTION = 8
    TYPE_PRIORITY = 16
    ALL_TYPES = 31

cdef dict TYPES = {
    TYPE_NORMAL: "NORMAL", TYPE_FIFO: "FIFO", TYPE_DELAY: "DELAY", TYPE_TRANSACTION: "TRANSACTION",
    TYPE_PRIORITY: "PRIORITY",
}
cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

# Of the head of a record, and of a queue entry.
SIZES = (sizeof(RecordFixed) + sizeof(RecordRestIpv4), sizeof(QueueEntry))

# The text of a key; beside it, the key has the queue's id.
cdef int KEY_ROLES[1]
KEY_ROLES[:] = [ROLE_TOPIC]

_ROLES = {
    "topic": ROLE_TOPIC, "properties": ROLE_PROPERTIES, "queue_id": ROLE_QUEUE_ID, "sys_flag": ROLE_SYS_FLAG,
    "born_timestamp": ROLE_BORN_TIMESTAMP, "flag": ROLE_FLAG, "reconsume_times": ROLE_RECONSUME_TIMES,
    "batch": ROLE_BATCH,
}


# One send.  Its bytes lie in its frame or in the scratch of the turn.
cdef struct Send:
    const uint8_t *born_host
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
    int queue
    int serialization
    bint is_fifo
    # Of a half or timed message: what it is, where it goes in the end, and for the latter when.
    Kind kind
    int real_topic
    int32_t queue_id  # as the sender named it
    int64_t slot_ms
    int64_t delay_ms


# One queue of the turn.
cdef struct Queue:
    int topic
    int64_t queue_id
    int64_t flags  # of the plan, added to those of each message
    int64_t write_queues  # of the plan: a priority chooses among them
    int64_t max_body_bytes  # of its namespace, as `types` is
    int types  # bits of what a message may be
    bint is_there  # if not, only half and timed messages for it are taken
    int64_t next_offset
    int32_t magic
    const uint8_t *topic_bytes  # with their length, as in a record
    Py_ssize_t topic_size
    Py_ssize_t count
    QueueEntry *entries


# Records of one topic, counted.
cdef struct Tally:
    Py_ssize_t count
    int64_t total_bytes
    int64_t largest_bytes


# What one turn takes from one bucket of a quota.
cdef struct Meter:
    double *state  # of the bucket, which the turn keeps
    int64_t left  # nothing more is admitted when so much is used
    int64_t used
    bint counts_bytes  # or sends


# Meters that count a send: indexes.
cdef struct Meters:
    int indexes[MAX_BUCKETS]
    int count


# Sends to one topic by one sender that follow each other: they are counted in their meters together.
cdef struct Run:
    int topic  # -1: none
    int64_t count
    int64_t size_bytes
    int64_t max_count  # when so many or so many bytes are counted, nothing more is admitted
    int64_t max_bytes


# One topic of the turn.
cdef struct Topic:
    Meters meters
    const uint8_t *name
    Py_ssize_t name_bytes  # -1 for a topic of the broker, which no sender can name
    Tally tallies[2]  # without and with a sharding key


cdef bint is_utf8(const uint8_t *octets, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char *> octets, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef const uint8_t *read_member(const uint8_t *at, const uint8_t *end, Send *send) noexcept nogil:
    """Find the parts of one message of a client's batch; return its end, NULL if it is none."""
    if end - at < MEMBER_HEAD_BYTES + 2:
        return NULL
    send.flag, send.body_bytes = int32_at(at + MEMBER_FLAG_AT), int32_at(at + MEMBER_BODY_LENGTH_AT)
    send.body = at + MEMBER_HEAD_BYTES
    if send.body_bytes < 0 or send.body_bytes > end - send.body - 2:
        return NULL
    send.properties = send.body + send.body_bytes + 2
    send.properties_bytes = uint16_at(send.properties - 2)
    if send.properties_bytes > end - send.properties:
        return NULL
    return send.properties + send.properties_bytes


cdef bint is_for_handler(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    """Return whether the handler does something about a property of a message of a batch."""
    if begins(name, size, b"INNER_", 6):
        return True
    return (size == 12 and begins(name, size, b"__LITE_TOPIC", 12)) or (size == 8 and begins(name, size, b"__CRC32#", 8))


cdef bint read_member_properties(Send *send) noexcept nogil:
    """Find tag and sharding key of a message of a batch; return False if it is for the handler."""
    cdef const uint8_t *begin = send.properties  # of the present property
    cdef const uint8_t *at = begin
    cdef const uint8_t *end = begin + send.properties_bytes
    cdef const uint8_t *value = NULL  # of the present property, after its name
    cdef const uint8_t *tag = NULL
    cdef Py_ssize_t tag_bytes = 0
    cdef uint64_t word, special
    while True:
        if end - at >= 8:
            # Eight bytes at a time, up to one that needs a look.
            memcpy(&word, at, 8)
            special = bytes_below(word, VALUE_END + 1)
            if not special:
                at += 8
                continue
            at += first_byte(special)
        if at >= end or at[0] == VALUE_END:
            # The last counts, but for one without a value.
            if value != NULL and at > value and value - begin == 5 and begins(begin, 5, b"TAGS", 4):
                tag, tag_bytes = value, at - value
            if at >= end:
                break
            begin, value = at + 1, NULL
        elif at[0] == NAME_END:
            if ends(begin, at - begin, b"__SHARDINGKEY", 13):
                send.is_fifo = True
            if value == NULL:
                value = at + 1
                if is_for_handler(begin, at - begin):
                    return False
        at += 1
    send.tags_code = java_hash(tag, tag_bytes)
    return is_ascii(tag, tag_bytes)


cdef int type_of(const Properties *properties) noexcept nogil:
    """Return the bit of the type of a message that the kernel takes."""
    if properties.special.kind == HALF:
        return TYPE_TRANSACTION
    if properties.special.kind == TIMED:
        return TYPE_DELAY
    if properties.has_sharding_key:
        return TYPE_FIFO
    return TYPE_PRIORITY if properties.priority >= 0 else TYPE_NORMAL


cdef inline int64_t charged_bytes(const Send *send) noexcept nogil:
    """Return what a quota of bytes counts: the body and the properties, as they were sent."""
    return send.body_bytes + send.properties_bytes


cdef class Prepared:
    """A plan, with what the kernel reads of it as C values."""

    cdef readonly bint is_lasting
    cdef readonly bint is_for_kernel
    cdef str topic
    cdef object queue  # None if there is none yet
    cdef int64_t flags
    cdef int64_t write_queues
    cdef tuple buckets
    cdef int64_t max_body_bytes
    cdef int types

    def __init__(self, plan):
        self.is_lasting, self.is_for_kernel = plan.is_lasting, plan.is_for_kernel
        self.max_body_bytes, self.types = INT64_MAX, ALL_TYPES
        if self.is_for_kernel:
            self.topic, self.queue, self.flags, self.buckets = plan.topic, plan.queue, plan.flags, plan.buckets
            self.write_queues = plan.write_queues
            if plan.limits is not None:
                self.max_body_bytes = plan.limits.policy.max_message_bytes or INT64_MAX
                allowed = plan.limits.allowed_types
                self.types = sum(bit for bit, name in TYPES.items() if name in allowed)


cdef class SendKinds:
    """How a broker stores half and timed messages, for one configuration of it."""

    cdef tuple topics  # by kind
    cdef bytes broker_name
    cdef bint takes_halves
    cdef object times_of
    cdef object has_room
    cdef object waiting_queue

    def __init__(self, str half_topic not None, str timer_topic not None, bytes broker_name not None,
                 bint takes_halves, times_of, has_room, waiting_queue):
        """`times_of` returns (now, longest delay, width of a slot), ms, or None if timed messages are refused.

        `has_room` returns whether a slot of the wheel, given the time at which it begins, certainly takes messages.
        `waiting_queue` returns a queue of one of both topics, None if there is none yet.
        """
        self.topics = ("", half_topic, timer_topic)
        self.broker_name, self.takes_halves = broker_name, takes_halves
        self.times_of, self.has_room, self.waiting_queue = times_of, has_room, waiting_queue


cdef class SendKernel:
    """Kernel of the sends of some routes, with its plans."""

    cdef dict readers  # of `SendReader`, by request code
    cdef object plan_of
    cdef object table
    cdef Py_ssize_t max_sends
    cdef bytes suffix
    cdef SendKinds kinds
    cdef object charged_of  # None if nobody is charged
    cdef object change  # of the quotas, for which `charged` of a connection holds

    def __init__(self, dict readers not None, plan_of, table, Py_ssize_t max_sends):
        """`plan_of` returns the plan for a topic and a queue id.  `table` is a `PlanTable` of this kernel.

        A read adds at most `max_sends` to a turn.
        """
        self.readers, self.plan_of, self.table, self.max_sends = readers, plan_of, table, max_sends

    def configure(self, bytes suffix not None, quotas, *kinds):
        """Set what all messages have in common; `kinds` are the arguments of `SendKinds`.

        `suffix` are the properties that the broker adds to each message, with the end of the last value.
        `quotas` have buckets of who sends on a connection; None if nobody has any.
        """
        self.suffix, self.kinds = suffix, SendKinds(*kinds)
        self.charged_of, self.change = (None, None) if quotas is None else (quotas.charged, quotas.change)

    def intake(self, *arguments):
        """Return a `SendIntake`."""
        return SendIntake(*arguments)

    def begin(self, int64_t version, int64_t room_bytes, int64_t max_record_bytes):
        """Return a turn without sends.

        Its records have at most `room_bytes` together, and those of sends `max_record_bytes` each: up to that size they
        exceed no limit.  `SendTurn.take_batch` checks each limit, and so takes larger ones.
        """
        return SendTurn(self, version, room_bytes, max_record_bytes)

    cdef Prepared plan(self, const Header *header):
        """Return the plan of a send; make it if there is none."""
        cdef bytes key = texts_key(header, KEY_ROLES, 1, header.numbers[ROLE_QUEUE_ID])
        cdef dict plans = self.table.current()
        cdef Prepared plan = plans.get(key)
        if plan is None:
            plan = Prepared(self.plan_of(text_of(&header.texts[ROLE_TOPIC]), header.numbers[ROLE_QUEUE_ID]))
            self.table.keep(key, plan)
        return plan


cdef class SendReader(HeaderReader):
    """Reader of the sends of one request code."""

    cdef int64_t plain_flags
    cdef int properties_at  # index of their field

    def __init__(self, int code, tuple fields, int64_t plain_flags):
        """`fields` are those of `frames_native.HeaderDecoder`.

        Sends with other bits of sysFlag than `plain_flags` are for the handler.
        """
        super().__init__(code, fields, _ROLES, frozenset({"properties"}))
        self.plain_flags = plain_flags
        self.properties_at = self.index_of_role(ROLE_PROPERTIES)
        if self.properties_at < 0:
            raise ValueError("the header of a send has properties")

    cdef Py_ssize_t take(self, SendTurn turn, frames, Py_ssize_t index, const uint8_t *born_host, Proof proof) except -1:
        """Add the sends from `index` on to `turn`, up to the first one for the handler; return how many."""
        cdef Py_ssize_t first = index
        cdef Py_ssize_t end = min(<Py_ssize_t> len(frames), index + turn.kernel.max_sends)
        turn.make_room(frames, index, end)
        while index < end and self.take_one(turn, frames, index, born_host, proof):
            index += 1
        return index - first

    cdef bint take_one(
        self, SendTurn turn, frames, Py_ssize_t index, const uint8_t *born_host, Proof proof
    ) except -1:
        """Add one frame to `turn`; return False if it is for the handler, or not admitted by `proof`."""
        cdef FrameParts frame
        cdef Header header
        cdef Send *send = &turn.sends[turn.count]
        if not find_frame(frames, index, &frame) or not frame.body_bytes:
            return False
        header.numbers[ROLE_RECONSUME_TIMES] = header.numbers[ROLE_BATCH] = 0
        header.texts[ROLE_PROPERTIES].size = 0
        if self.read_header(&frame, &header) != WHOLE:
            return False
        if header.numbers[ROLE_BATCH] or not header.texts[ROLE_PROPERTIES].size:
            return False
        send.born_host = born_host
        if not turn.take_properties(&header.texts[ROLE_PROPERTIES], send):
            return False
        if proof is not None and not self.is_proved(&header, send, &frame, proof):
            return False
        return turn.add(&header, &frame, self.plain_flags)

    cdef bint is_proved(self, Header *header, const Send *send, const FrameParts *frame, Proof proof) except -1:
        """Return whether `proof` covers the topic, and its account has signed the header and the body.

        `SendTurn.add` refuses messages that name further topics.
        """
        cdef Text none
        cdef Text *properties = &header.signed_texts[self.properties_at]
        none.at, none.size, none.has_escapes = <const uint8_t *> b"", 0, False
        properties.at, properties.size, properties.has_escapes = send.properties, send.properties_bytes, False
        return self.proves(header, frame, proof, &header.texts[ROLE_TOPIC], &none)


cdef class SendRead:
    """The sends of one read among those of a turn."""

    cdef readonly int code
    cdef readonly object channel
    cdef readonly double read_at
    cdef readonly bint was_later  # whether they are stored or answered later than they were read
    cdef object frames  # keeps the memory of what the sends point to
    cdef bytes born_host
    cdef Py_ssize_t index  # of their first frame
    cdef Py_ssize_t first  # of them in the turn
    cdef Py_ssize_t count
    cdef bytes ready  # the responses of success, if they were prepared

    def __len__(self):
        return self.count

    def whole_frames(self):
        """Return the frames of the sends."""
        return self.frames[self.index:self.index + self.count]


cdef class SendTurn:
    """Sends of one turn, in order: what they become in the log and in the queues, and their responses.

    A turn with one connection has one read.  All are one append.
    """

    cdef readonly list reads  # of `SendRead`
    cdef readonly int64_t version  # of the plans when it began
    cdef SendKernel kernel
    cdef list scratch  # memory of properties without escapes
    cdef uint8_t *scratch_at
    cdef Py_ssize_t scratch_bytes  # left
    cdef Send *sends
    cdef Py_ssize_t capacity
    cdef bint is_full  # whether a send was left because of what is here already
    cdef Queue queues[MAX_QUEUES]
    cdef Topic topics[MAX_TOPICS]
    cdef int queue_count
    cdef int topic_count
    cdef list stored  # the store's queue of each
    cdef list names  # of the topics: str
    cdef list kept  # keeps the memory of the queues, of the topics and of the suffix
    cdef const uint8_t *suffix
    cdef Py_ssize_t suffix_bytes
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef readonly int64_t size_bytes  # of their records
    cdef Py_ssize_t count
    cdef bint waits  # whether the responses wait until the messages are safe
    # Half and timed messages
    cdef SendKinds kinds
    cdef int waiting_queues[KINDS]  # indexes of the broker's queues; -1 until one is needed
    cdef int64_t slots[MAX_SLOTS]  # begins of slots that have room
    cdef int slot_count
    cdef readonly Py_ssize_t timed  # messages with a delivery time
    cdef int64_t now_ms  # -1 until it is needed
    cdef int64_t max_delay_ms
    cdef int64_t slot_width_ms
    # Quotas
    cdef list buckets  # of the meters
    cdef double quota_now_s  # when the buckets were read, if there are any
    cdef Meter meters[MAX_METERS]
    cdef int meter_count
    cdef Meters sender  # those of who sends the read that is being taken
    cdef Run run  # of these sends

    def __cinit__(self, SendKernel kernel not None, int64_t version, int64_t room_bytes, int64_t max_record_bytes):
        cdef bytes suffix = kernel.suffix
        self.kernel, self.kinds, self.version = kernel, kernel.kinds, version
        self.room_bytes, self.max_record_bytes = room_bytes, max_record_bytes
        self.suffix, self.suffix_bytes = <const uint8_t *> PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix)
        self.reads, self.scratch, self.stored, self.names, self.kept = [], [], [], [], [suffix]
        self.waiting_queues[<int> HALF] = self.waiting_queues[<int> TIMED] = self.now_ms = self.run.topic = -1
        self.buckets = []

    def __dealloc__(self):
        free(self.sends)

    def __len__(self):
        return self.count

    cdef SendRead take(self, int code, frames, Py_ssize_t index, channel, bytes born_host, Proof proof):
        """Add the sends of one read from `index` on, up to the first one for the handler; return None for none."""
        cdef SendRead read
        cdef Py_ssize_t first = self.count
        cdef SendReader reader = self.kernel.readers.get(code)
        cdef Py_ssize_t count = 0
        self.is_full = False
        if reader is None or PyBytes_GET_SIZE(born_host) != HOST_BYTES or index < 0:
            return None
        if not self.set_sender(channel):
            return None
        try:
            count = reader.take(self, frames, index, <const uint8_t *> PyBytes_AS_STRING(born_host), proof)
        except Exception:
            self.drop_from(first)
            raise
        if not count:
            return None
        read = SendRead.__new__(SendRead)
        read.code, read.channel, read.read_at = code, channel, channel.read_at
        read.frames, read.index, read.born_host = frames, index, born_host
        read.first, read.count = first, count
        self.reads.append(read)
        return read

    cdef int make_room(self, frames, Py_ssize_t index, Py_ssize_t end) except -1:
        """Get memory for the sends of the frames from `index` to `end`."""
        cdef FrameParts frame
        cdef Py_ssize_t header_bytes = 1
        cdef bytes chunk
        self.reserve(self.count + end - index)
        while index < end and find_frame(frames, index, &frame):
            header_bytes += frame.header_bytes
            index += 1
        if header_bytes > self.scratch_bytes:
            self.scratch_bytes = max(header_bytes, CHUNK_BYTES)
            chunk = PyBytes_FromStringAndSize(NULL, self.scratch_bytes)
            self.scratch.append(chunk)
            self.scratch_at = <uint8_t *> PyBytes_AS_STRING(chunk)
        return 0

    cdef int reserve(self, Py_ssize_t capacity) except -1:
        """Get memory for so many sends."""
        cdef void *grown
        if capacity > self.capacity:
            capacity = max(capacity, FIRST_CAPACITY, 2 * self.capacity)
            grown = realloc(self.sends, capacity * sizeof(Send))
            if grown == NULL:
                raise MemoryError
            self.sends, self.capacity = <Send *> grown, capacity
        return 0

    cdef void drop_from(self, Py_ssize_t first) noexcept:
        """Forget the sends from `first` on."""
        cdef const Send *send
        cdef Tally *tally
        self.end_run()
        while self.count > first:
            self.count -= 1
            send = &self.sends[self.count]
            tally = &self.topics[self.queues[send.queue].topic].tallies[send.is_fifo]
            self.count_in(&self.topics[send.real_topic].meters, -1, -charged_bytes(send))
            self.count_in(&self.sender, -1, -charged_bytes(send))
            self.size_bytes -= send.size
            self.timed -= send.kind == TIMED
            self.queues[send.queue].count -= 1
            tally.count -= 1
            tally.total_bytes -= send.size

    cdef bint add(self, Header *header, const FrameParts *frame, int64_t plain_flags) except -1:
        """Take one send, whose properties were taken; return False if it is for the handler."""
        cdef Send *send = &self.sends[self.count]
        cdef Properties properties
        cdef int queue = self.queue_at(header)
        if queue < 0:
            return False
        cdef int64_t flags = header.numbers[ROLE_SYS_FLAG] | self.queues[queue].flags
        if not read_properties(send.properties, send.properties_bytes, &properties):
            return False
        if properties.priority >= 0 and self.queues[queue].write_queues > 0:
            header.numbers[ROLE_QUEUE_ID] = min(properties.priority, self.queues[queue].write_queues - 1)
            queue = self.queue_at(header)
            if queue < 0:
                return False
        send.kind, send.real_topic = properties.special.kind, self.queues[queue].topic
        send.queue_id = <int32_t> header.numbers[ROLE_QUEUE_ID]
        send.is_fifo = properties.is_fifo and send.kind != HALF
        if send.kind == HALF:
            flags &= ~<int64_t> TRANSACTION_MASK
        if flags & ~plain_flags:
            return False
        if frame.body_bytes > self.queues[queue].max_body_bytes or not self.queues[queue].types & type_of(&properties):
            return False
        if send.kind != PLAIN:
            queue = self.place_special(send, &properties.special)
        if queue < 0 or not self.queues[queue].is_there:
            return False
        send.body, send.body_bytes = frame.body, frame.body_bytes
        if self.meter_count and not self.is_within_quotas(send.real_topic):
            return False
        send.key, send.key_bytes = properties.key, properties.key_bytes
        send.tags_code = java_hash(properties.tag, properties.tag_bytes)
        send.size = FIXED_IPV4_BYTES + send.body_bytes + self.queues[queue].topic_size + 2 + self.stored_bytes(send)
        if send.size > self.max_record_bytes:
            return False
        if send.size > self.room_bytes - self.size_bytes:
            self.is_full = self.count > 0
            return False
        send.flag, send.sys_flag = <int32_t> header.numbers[ROLE_FLAG], <int32_t> flags
        send.born_timestamp = header.numbers[ROLE_BORN_TIMESTAMP]
        send.reconsume_times = <int32_t> header.numbers[ROLE_RECONSUME_TIMES]
        send.opaque, send.serialization, send.queue = <int32_t> header.opaque, frame.serialization, queue
        self.note(send)
        return True

    cdef void note(self, const Send *send) noexcept:
        """Count a send that was taken."""
        cdef Queue *queue = &self.queues[send.queue]
        cdef Tally *tally = &self.topics[queue.topic].tallies[send.is_fifo]
        self.count += 1
        self.run.count += 1
        self.run.size_bytes += charged_bytes(send)
        self.size_bytes += send.size
        self.timed += send.kind == TIMED
        queue.count += 1
        tally.count += 1
        tally.total_bytes += send.size
        tally.largest_bytes = max(tally.largest_bytes, send.size)

    # A client's batch

    def take_batch(
        self, str topic not None, queue not None, int64_t sys_flag, int64_t born_timestamp, int32_t reconsume_times,
        bytes born_host not None, bytes content not None, bytes common not None, bytes common_tag, bint is_fifo,
        Py_ssize_t max_messages, Py_ssize_t max_properties_bytes, int64_t max_record_bytes,
    ):
        """Take the messages of a batch instead of sends; return False if the handler must take them.

        Each gets the properties `common` after its own.  `common_tag` is the tag in those, None without one; `is_fifo`
        is whether they have a sharding key.
        """
        cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(content)
        cdef const uint8_t *end = at + PyBytes_GET_SIZE(content)
        cdef const uint8_t *host = <const uint8_t *> PyBytes_AS_STRING(born_host)
        cdef Send *send
        cdef int32_t common_code = 0
        if PyBytes_GET_SIZE(born_host) != HOST_BYTES or self.count:
            return False
        if common_tag is not None:
            if not is_ascii(<const uint8_t *> PyBytes_AS_STRING(common_tag), PyBytes_GET_SIZE(common_tag)):
                return False
            common_code = java_hash(<const uint8_t *> PyBytes_AS_STRING(common_tag), PyBytes_GET_SIZE(common_tag))
        self.kept += (content, common, born_host)
        self.suffix, self.suffix_bytes = <const uint8_t *> PyBytes_AS_STRING(common), PyBytes_GET_SIZE(common)
        cdef int first = self.add_queue(self.add_topic(topic, NULL, -1), queue.queue_id, 0, 0, queue)
        while at < end:
            if self.count == max_messages:
                return False
            self.reserve(self.count + 1)
            send = &self.sends[self.count]
            send.kind, send.real_topic, send.queue, send.is_fifo = PLAIN, self.queues[first].topic, first, is_fifo
            at = read_member(at, end, send)
            if at == NULL or not read_member_properties(send):
                return False
            if common_tag is not None:
                send.tags_code = common_code
            if self.stored_bytes(send) > max_properties_bytes:
                return False
            send.size = FIXED_IPV4_BYTES + send.body_bytes + self.queues[first].topic_size + 2 + self.stored_bytes(send)
            if send.size > max_record_bytes or send.size > self.room_bytes - self.size_bytes:
                return False
            send.sys_flag, send.born_timestamp, send.born_host = <int32_t> sys_flag, born_timestamp, host
            send.reconsume_times = reconsume_times
            self.note(send)
        return self.count > 0

    def batch_place(self, bytes host_hex not None):
        """Return the queue offset of the first message of a batch that was encoded, and the ids of all in one text."""
        cdef Value digits
        cdef Py_ssize_t host_bytes = PyBytes_GET_SIZE(host_hex)
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, self.count * (host_bytes + 17))
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(ids)
        for i in range(self.count):
            put_hex(self.sends[i].physical_offset, &digits)
            to = put(put(to, <const uint8_t *> PyBytes_AS_STRING(host_hex), host_bytes), digits.at, digits.size)
            to[0] = c','
            to += 1
        return self.sends[0].queue_offset, ids[:-1].decode("ascii")

    # Quotas

    cdef bint set_sender(self, channel) except -1:
        """Look up the meters of who sends on a connection; return False if there are too many for this turn."""
        self.end_run()
        self.sender.count = 0
        if self.kernel.charged_of is None:
            return True
        charged = channel.charged
        if charged is None or (<tuple> charged)[0] is not self.kernel.change:
            charged = self.kernel.charged_of(channel)
        return self.add_meters((<tuple> charged)[1], &self.sender)

    cdef bint add_meters(self, tuple buckets, Meters *meters) except -1:
        """Set the meters of some buckets; return False if there are too many for this turn."""
        cdef Py_ssize_t count = len(buckets)
        meters.count = 0
        if count > MAX_BUCKETS:
            raise ValueError(f"a send has at most {MAX_BUCKETS} buckets of one kind")
        if self.meter_count + count > MAX_METERS:
            self.is_full = True
            return False
        for bucket in buckets:
            meters.indexes[meters.count] = self.meter_at(bucket)
            meters.count += 1
        return True

    cdef int meter_at(self, bucket) except -1:
        """Return the index of the meter of a bucket, which is asked once in a turn."""
        cdef array levels = bucket.state
        cdef double *state = levels.data.as_doubles
        cdef int i = <int> state[PLACE]
        if i < self.meter_count and self.meters[i].state == state:
            return i
        cdef Meter *meter = &self.meters[self.meter_count]
        if not self.meter_count:
            self.quota_now_s = bucket.now_s()
        meter.state, meter.used, meter.counts_bytes = state, 0, state[COUNTS_BYTES] != 0
        meter.left = tokens_left(state, self.quota_now_s)
        state[PLACE] = self.meter_count
        self.buckets.append(bucket)
        self.meter_count += 1
        return self.meter_count - 1

    cdef bint is_within_quotas(self, int topic) noexcept:
        """Return whether all buckets admit a send to a topic by the sender."""
        if self.run.topic != topic:
            self.end_run()
            self.run.topic, self.run.max_count, self.run.max_bytes = topic, INT64_MAX, INT64_MAX
            self.limit_run(&self.topics[topic].meters)
            self.limit_run(&self.sender)
        return self.run.count < self.run.max_count and self.run.size_bytes < self.run.max_bytes

    cdef void limit_run(self, const Meters *meters) noexcept:
        cdef int i
        cdef const Meter *meter
        for i in range(meters.count):
            meter = &self.meters[meters.indexes[i]]
            if meter.counts_bytes:
                self.run.max_bytes = min(self.run.max_bytes, meter.left - meter.used)
            else:
                self.run.max_count = min(self.run.max_count, meter.left - meter.used)

    cdef void end_run(self) noexcept:
        """Count the sends of the run in their meters."""
        if self.run.topic >= 0:
            self.count_in(&self.topics[self.run.topic].meters, self.run.count, self.run.size_bytes)
            self.count_in(&self.sender, self.run.count, self.run.size_bytes)
        self.run.topic, self.run.count, self.run.size_bytes = -1, 0, 0

    cdef void count_in(self, const Meters *meters, int64_t count, int64_t size_bytes) noexcept:
        cdef int i
        cdef Meter *meter
        for i in range(meters.count):
            meter = &self.meters[meters.indexes[i]]
            meter.used += size_bytes if meter.counts_bytes else count

    def spend(self):
        """Take from the buckets what the sends of this turn cost."""
        cdef int i
        cdef Meter *meter
        cdef array counted
        self.end_run()
        for i in range(self.meter_count):
            meter = &self.meters[i]
            if not meter.used:
                continue
            bucket = self.buckets[i]
            if meter.state[IS_SOFT] != 0:
                bucket.take(meter.used)
            else:
                meter.state[LEVEL] -= meter.used
                counted = bucket.counted
                counted.data.as_doubles[0] += meter.used

    # Half and timed messages

    cdef int place_special(self, Send *send, const Special *special) except -2:
        """Return the index of the queue in which a half or timed message waits; -1 if it is for the handler."""
        if special.kind == HALF:
            return self.waiting_queue_at(HALF) if self.kinds.takes_halves else -1
        if self.now_ms < 0:
            times = self.kinds.times_of()
            if times is None:
                return -1
            self.now_ms, self.max_delay_ms, self.slot_width_ms = times
        cdef int64_t deliver_ms = delivery_ms(special, self.now_ms)
        send.delay_ms = deliver_ms - self.now_ms
        if not 0 < send.delay_ms <= self.max_delay_ms:
            return -1
        # The last slot that begins before the time: a slot is delivered at its end.
        send.slot_ms = deliver_ms - 1 - (deliver_ms - 1) % self.slot_width_ms
        return self.waiting_queue_at(TIMED) if self.slot_has_room(send.slot_ms) else -1

    cdef bint slot_has_room(self, int64_t slot_ms) except -1:
        """Return whether a slot takes any number of messages; it is asked for once in a turn."""
        cdef int i
        for i in range(self.slot_count - 1, -1, -1):
            if self.slots[i] == slot_ms:
                return True
        if self.slot_count == MAX_SLOTS:
            self.is_full = True
            return False
        if not self.kinds.has_room(slot_ms):
            return False
        self.slots[self.slot_count] = slot_ms
        self.slot_count += 1
        return True

    cdef int waiting_queue_at(self, Kind kind) except -2:
        """Return the index of the queue in which messages of a kind wait; -1 if it would be one too many."""
        cdef int *known = &self.waiting_queues[<int> kind]
        if known[0] < 0 and self.has_room_for_queue(-1):
            name = self.kinds.topics[<int> kind]
            known[0] = self.add_queue(self.add_topic(name, NULL, -1), 0, 0, 0, self.kinds.waiting_queue(name, 0))
        return known[0]

    cdef int add_topic(self, str name, const uint8_t *octets, Py_ssize_t size) except -1:
        cdef Topic *topic = &self.topics[self.topic_count]
        self.names.append(name)
        topic.name, topic.name_bytes, topic.meters.count = octets, size, 0
        topic.tallies[0].count = topic.tallies[0].total_bytes = topic.tallies[0].largest_bytes = 0
        topic.tallies[1] = topic.tallies[0]
        self.topic_count += 1
        return self.topic_count - 1

    cdef bint take_properties(self, const Text *text, Send *send) except -1:
        """Get the properties' bytes; return False if they are no text, or have an escape that the handler must read."""
        send.properties, send.properties_bytes = text.at, text.size
        if text.has_escapes:
            # Together not longer than all headers of the read, which `scratch` has room for.
            send.properties, send.properties_bytes = self.scratch_at, unescaped(text, self.scratch_at)
            if send.properties_bytes <= 0:
                return False
            self.scratch_at += send.properties_bytes
            self.scratch_bytes -= send.properties_bytes
        return text.is_ascii or is_utf8(send.properties, send.properties_bytes)

    cdef inline bint ends_open(self, const Send *send) noexcept nogil:
        """Return whether the last value of the properties has no end yet."""
        return send.properties_bytes > 0 and send.properties[send.properties_bytes - 1] != VALUE_END

    cdef Py_ssize_t stored_bytes(self, const Send *send) noexcept nogil:
        """Return the size of the properties as they are stored."""
        cdef Py_ssize_t size = send.properties_bytes + self.ends_open(send) + self.suffix_bytes + SEAL_BYTES
        if send.kind != PLAIN:
            size += added_bytes(
                send.kind, send.key_bytes, send.slot_ms, self.topics[send.real_topic].name_bytes, send.queue_id
            )
        return size

    cdef int topic_at(self, const Text *name) noexcept:
        """Return the index of a topic; -1 if the turn has no queue of it yet."""
        cdef int i
        cdef const Topic *topic
        for i in range(self.topic_count):
            topic = &self.topics[i]
            if topic.name_bytes == name.size and not memcmp(topic.name, name.at, name.size):
                return i
        return -1

    cdef int queue_at(self, const Header *header) except -2:
        """Return the index of the queue of a send; -1 if it is for the handler, or one too many."""
        cdef int topic = self.topic_at(&header.texts[ROLE_TOPIC])
        cdef int64_t queue_id = header.numbers[ROLE_QUEUE_ID]
        cdef Prepared plan
        cdef bytes name
        cdef int i
        for i in range(self.queue_count if topic >= 0 else 0):
            if self.queues[i].queue_id == queue_id and self.queues[i].topic == topic:
                return i
        if not self.has_room_for_queue(topic):
            return -1
        plan = self.kernel.plan(header)
        if not plan.is_for_kernel:
            return -1
        if topic < 0:
            name = plan.topic.encode("ascii")
            self.kept.append(name)
            topic = self.add_topic(plan.topic, <const uint8_t *> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            if plan.buckets and not self.add_meters(plan.buckets, &self.topics[topic].meters):
                self.topic_count -= 1
                self.names.pop()
                return -1
        i = self.add_queue(topic, queue_id, plan.flags, plan.write_queues, plan.queue)
        self.queues[i].max_body_bytes, self.queues[i].types = plan.max_body_bytes, plan.types
        return i

    cdef bint has_room_for_queue(self, int topic) noexcept:
        """Return whether another queue of a topic fits; `topic` is -1 if that is new."""
        if self.queue_count < MAX_QUEUES and (topic >= 0 or self.topic_count < MAX_TOPICS):
            return True
        self.is_full = True
        return False

    cdef int add_queue(self, int topic, int64_t queue_id, int64_t flags, int64_t write_queues, stored) except -1:
        """Add a queue of the store, or None if there is none yet; return its index."""
        cdef Queue *queue = &self.queues[self.queue_count]
        cdef bytes topic_bytes
        queue.topic, queue.queue_id, queue.flags, queue.is_there = topic, queue_id, flags, stored is not None
        queue.write_queues, queue.count, queue.entries = write_queues, 0, NULL
        queue.max_body_bytes, queue.types = INT64_MAX, ALL_TYPES
        if queue.is_there:
            topic_bytes = stored.topic_bytes
            self.kept.append(topic_bytes)
            queue.magic = stored.magic
            queue.topic_bytes = <const uint8_t *> PyBytes_AS_STRING(topic_bytes)
            queue.topic_size = PyBytes_GET_SIZE(topic_bytes)
        self.stored.append(stored)
        self.queue_count += 1
        return self.queue_count - 1

    # Into the store

    cdef void write_all(
        self, uint8_t *to, int64_t physical_offset, int64_t store_timestamp, const uint8_t *store_host
    ) noexcept nogil:
        cdef Send *send
        cdef Queue *queue
        for i in range(self.count):
            send = &self.sends[i]
            queue = &self.queues[send.queue]
            send.physical_offset, send.queue_offset = physical_offset, queue.next_offset
            queue.entries[0].physical_offset = from_big64(physical_offset)
            queue.entries[0].size = from_big32(<int32_t> send.size)
            queue.entries[0].tags_code = from_big64(<int64_t> send.tags_code)
            queue.entries += 1
            queue.next_offset += 1
            self.write_record(to, send, queue, store_timestamp, store_host)
            to += send.size
            physical_offset += send.size

    cdef void write_record(
        self, uint8_t *to, const Send *send, const Queue *queue, int64_t store_timestamp, const uint8_t *store_host
    ) noexcept nogil:
        """Write one record: fixed fields, body, topic, properties, seal."""
        cdef uint8_t *begin = to
        cdef RecordHead head
        head.size, head.magic, head.flag, head.sys_flag = <int32_t> send.size, queue.magic, send.flag, send.sys_flag
        head.body_crc = masked_crc(send.body, send.body_bytes, CAN_FOLD)
        head.queue_id, head.queue_offset = <int32_t> queue.queue_id, send.queue_offset
        head.physical_offset, head.prepared_transaction_offset = send.physical_offset, 0
        head.born_timestamp, head.store_timestamp = send.born_timestamp, store_timestamp
        head.born_host, head.store_host = send.born_host, store_host
        head.reconsume_times, head.body_bytes = send.reconsume_times, <int32_t> send.body_bytes
        to = put(put_head(to, &head), send.body, send.body_bytes)
        to = put(to, queue.topic_bytes, queue.topic_size)
        to = self.write_properties(to, send)
        put_seal(to, masked_crc(begin, to - begin, CAN_FOLD))

    cdef uint8_t *write_properties(self, uint8_t *to, const Send *send) noexcept nogil:
        """Write length and properties, up to the seal."""
        cdef Py_ssize_t size = self.stored_bytes(send)
        to[0], to[1] = <uint8_t> (size >> 8), <uint8_t> size
        to = put(to + 2, send.properties, send.properties_bytes)
        if self.ends_open(send):
            to[0] = VALUE_END
            to += 1
        to = put(to, self.suffix, self.suffix_bytes)
        if send.kind == PLAIN:
            return to
        cdef const Topic *topic = &self.topics[send.real_topic]
        return put_added(
            to, send.kind, send.key, send.key_bytes, send.slot_ms, topic.name, topic.name_bytes, send.queue_id
        )

    def encode(self, int64_t physical_offset, int64_t store_timestamp, bytes store_host):
        """Return the records for `physical_offset`, and each queue that gets any with its entries.

        Offsets in a queue begin at its `next_offset`.
        """
        cdef bytes content
        cdef bytes records = PyBytes_FromStringAndSize(NULL, self.size_bytes)
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(records)
        cdef const uint8_t *host = <const uint8_t *> PyBytes_AS_STRING(store_host)
        cdef list entries = []
        cdef Queue *queue
        if PyBytes_GET_SIZE(store_host) != HOST_BYTES:
            raise ValueError("records of a kernel name an IPv4 address")
        for i in range(self.queue_count):
            queue = &self.queues[i]
            if queue.count:
                stored = self.stored[i]
                content = PyBytes_FromStringAndSize(NULL, queue.count * sizeof(QueueEntry))
                queue.next_offset, queue.entries = stored.next_offset, <QueueEntry *> PyBytes_AS_STRING(content)
                entries.append((stored, content))
        if self.size_bytes > LONG_BYTES:
            with nogil:
                self.write_all(to, physical_offset, store_timestamp, host)
        else:
            self.write_all(to, physical_offset, store_timestamp, host)
        return records, entries

    # Back to the sender

    def wait(self):
        """Note that the responses wait until the messages are safe."""
        cdef SendRead read
        self.waits = True
        for read in self.reads:
            read.was_later = True

    def prepare(self, ResponseEncoder encoder, ResponseEncoder timed_encoder):
        """Make the responses of success, before it is known whether these or others will be sent."""
        cdef SendRead read
        for read in self.reads:
            read.ready = self.responses(read, encoder, timed_encoder)

    def answer(
        self, int code, ResponseEncoder encoder, ResponseEncoder timed_encoder, bint at_once, refuse, failed
    ):
        """Send the responses, with `code`; the encoders are those of `broker.send.replies.SendReplies`.

        `refuse` gets a read and the error that prevented its responses; `failed` is called in an except clause.
        """
        cdef SendRead read
        cdef bytes frames
        for read in self.reads:
            # An error in one read must not reach the others, which are of other connections.
            try:
                try:
                    frames = read.ready if code == 0 else None
                    if frames is None:
                        frames = self.responses(read, encoder, timed_encoder)
                except Exception as bug:
                    refuse(read, bug)
                    continue
                read.channel.answer_frames(
                    read.code, read.count, frames, code, read.read_at, was_later=self.waits, at_once=at_once
                )
            except Exception:
                failed()

    cdef bytes responses(self, SendRead read, ResponseEncoder encoder, ResponseEncoder timed_encoder):
        """Return the responses to the sends of one read, in order."""
        cdef Value values[TIMED_RESPONSE_VALUES]
        cdef const Send *send
        cdef Py_ssize_t i, largest = 0, size = 0
        cdef Py_ssize_t first = read.first, end = read.first + read.count
        if encoder.count != RESPONSE_VALUES or timed_encoder.count != TIMED_RESPONSE_VALUES:
            raise ValueError(f"the response to a send has {RESPONSE_VALUES} values, and may have a handle")
        for i in range(first, end):
            size += encoder.fixed_bytes + self.sends[i].key_bytes
        if self.timed:
            for i in range(first, end):
                if self.sends[i].kind == TIMED:
                    largest = max(largest, base64_bytes(self.handle_bytes(&self.sends[i])))
            size += read.count * (timed_encoder.fixed_bytes - encoder.fixed_bytes + largest)
        cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
        # A handle, and the same in Base64.
        cdef bytes scratch = PyBytes_FromStringAndSize(NULL, 2 * largest)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(frames)
        cdef uint8_t *to = begin
        for i in range(first, end):
            send = &self.sends[i]
            put_hex(send.physical_offset, &values[0])
            put_decimal(send.queue_id, &values[1])
            put_decimal(send.queue_offset, &values[2])
            values[3].at, values[3].size = send.key, send.key_bytes
            if send.kind == TIMED:
                self.make_handle(send, <uint8_t *> PyBytes_AS_STRING(scratch), largest, &values[4])
                to = timed_encoder.put(to, send.serialization, send.opaque, values, 0)
            else:
                to = encoder.put(to, send.serialization, send.opaque, values, 0)
        return frames[:to - begin]

    cdef Py_ssize_t handle_bytes(self, const Send *send) noexcept:
        return handle_bytes(
            self.topics[send.real_topic].name_bytes, PyBytes_GET_SIZE(self.kinds.broker_name), send.slot_ms,
            send.key_bytes,
        )

    cdef void make_handle(self, const Send *send, uint8_t *scratch, Py_ssize_t room_bytes, Value *handle) noexcept:
        """Make the handle of a timed message; `scratch` has twice `room_bytes`."""
        cdef const Topic *topic = &self.topics[send.real_topic]
        cdef const uint8_t *broker = <const uint8_t *> PyBytes_AS_STRING(self.kinds.broker_name)
        cdef uint8_t *end = put_handle(
            scratch, topic.name, topic.name_bytes, broker, PyBytes_GET_SIZE(self.kinds.broker_name), send.slot_ms,
            send.key, send.key_bytes,
        )
        handle.at = scratch + room_bytes
        handle.size = put_base64(scratch + room_bytes, scratch, end - scratch) - handle.at

    # For statistics

    def by_topic(self):
        """Return (topic, whether with a sharding key, number of records, their bytes, bytes of the largest) of all.

        The last may be more: that of a send that was taken and dropped.
        """
        cdef const Tally *tally
        cdef int is_fifo
        cdef list found = []
        for i in range(self.topic_count):
            for is_fifo in range(2):
                tally = &self.topics[i].tallies[is_fifo]
                if tally.count:
                    found.append((self.names[i], bool(is_fifo), tally.count, tally.total_bytes, tally.largest_bytes))
        return found

    def sizes_of(self, str topic not None, bint is_fifo):
        """Return the size of each record of a topic, with or without a sharding key."""
        cdef const Send *send
        cdef list sizes = []
        for i in range(self.count):
            send = &self.sends[i]
            if send.is_fifo == is_fifo and self.names[self.queues[send.queue].topic] == topic:
                sizes.append(send.size)
        return sizes

    def delays(self):
        """Return the delays of the timed messages, s, by topic."""
        cdef const Send *send
        cdef dict found = {}
        for i in range(self.count if self.timed else 0):
            send = &self.sends[i]
            if send.kind == TIMED:
                found.setdefault(self.names[send.real_topic], []).append(send.delay_ms // 1000)
        return found


cdef class SendIntake:
    """Takes the sends of reads for the kernel: those of one connection at once, those of several as one turn."""

    cdef object begin
    cdef object store
    cdef object store_or_serve
    cdef object end_later
    cdef object host_of
    cdef object failed
    cdef SendTurn turn  # sends that were put off; None if none were
    cdef object last_channel
    cdef Py_ssize_t max_messages
    cdef int64_t max_bytes

    def __init__(self, begin, store, store_or_serve, end_later, host_of, failed, Py_ssize_t max_messages,
                 int64_t max_bytes):
        """`begin` returns an empty `SendTurn`, or None if the handler serves all sends now.

        `store` appends and answers a turn, or returns False if it did nothing; `store_or_serve` then lets the handler
        serve it.  `end_later` lets `settle` be called at the end of the turn of the loop.  `host_of` returns the
        bytes of an address and a port; `failed` is called in an except clause, and gets the channel.  More than
        `max_messages` or `max_bytes` are not put off.
        """
        self.begin, self.store, self.store_or_serve, self.end_later = begin, store, store_or_serve, end_later
        self.host_of, self.failed = host_of, failed
        self.max_messages, self.max_bytes = max_messages, max_bytes

    def serve(self, int code, frames, Py_ssize_t index, channel, Proof proof=None):
        """Take the sends from `index` on, up to the first one for the handler; return how many.

        With `proof`, an access gate has not seen the frames: it admits those that prove this.
        """
        cdef SendTurn turn = self.turn
        cdef SendRead read = None
        try:
            if turn is not None:
                read = self.take(turn, code, frames, index, channel, proof)
                if read is None and turn.is_full:
                    self.settle()
                    turn = None
            if turn is None:
                turn = self.begin()
                if turn is None:
                    return 0
                read = self.take(turn, code, frames, index, channel, proof)
        except Exception:
            # Nothing is stored: the handler serves them, and responds to each.
            self.failed(channel)
            return 0
        if read is None:
            return 0
        # While one connection is the only one, waiting for others would gain nothing.
        channel_id = channel.id
        is_alone = channel_id == self.last_channel
        self.last_channel = channel_id
        if self.turn is None:
            if is_alone:
                # False: the handler finds the message that is refused.
                return read.count if self.store(turn) else 0
            self.turn = turn
            self.end_later()
        read.was_later = True
        if turn.count > self.max_messages or turn.size_bytes > self.max_bytes:
            self.settle()
        return read.count

    cdef SendRead take(self, SendTurn turn, int code, frames, Py_ssize_t index, channel, Proof proof):
        host, port = channel.peer
        return turn.take(code, frames, index, channel, self.host_of(host, port), proof)

    def settle(self):
        """Store and answer what was put off."""
        cdef SendTurn turn = self.turn
        if turn is not None:
            self.turn = None
            self.store_or_serve(turn)
