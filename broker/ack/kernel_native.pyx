# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel of acknowledgements of pops, compiled: from the frames of a read to records, queue entries and responses.

Its specification is the handler, `broker/processor/pop/ack.py`.  Nothing is refused here: `AckKernel.read` stops before
the first acknowledgement for the handler.  What a plan says is in C values beside it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from sprocket.remoting.header_reader_native import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.broker.record_parts cimport put_parts, take_parts
from sprocket.remoting.frames_native cimport ResponseEncoder, Value, put_decimal
from sprocket.remoting.header_reader_native cimport Header, HeaderReader, WHOLE, text_of, texts_key
from sprocket.engine.store.layout cimport (
    FIXED_IPV4_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES,
)
from sprocket.remoting.read_frames_native cimport FrameParts, find_frame
from sprocket.remoting.signatures_native cimport Proof
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare, masked_crc
from sprocket.engine.store.record_writer cimport (
    Octets, RecordHead, begin_head, octets_of, put, put_entry, put_head, put_seal,
)
from sprocket.engine.remoting.wire_text cimport Text

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
    MAX_POPS = 64
    # Of the offset, and of a handle up to the offset.
    MAX_DIGITS = 18
    MAX_COMMON_BYTES = 1005
    # Blanks in a handle from the revive queue up to the offset.
    BLANKS_OF_END = 4
    # Numbers of a pop in body and properties of a record, each between two of its parts.
    BODY_NUMBERS = 2
    PROPERTY_NUMBERS = 3

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()

# Of the head of a record, of a queue entry, and of the longest handle.
SIZES = (sizeof(RecordFixed) + sizeof(RecordRestIpv4), sizeof(QueueEntry), MAX_COMMON_BYTES + 1 + MAX_DIGITS)

# The texts of a key, beside the end of the handle.
cdef int KEY_ROLES[2]
KEY_ROLES[:] = [ROLE_TOPIC, ROLE_GROUP]

_ROLES = {
    "consumer_group": ROLE_GROUP, "topic": ROLE_TOPIC, "queue_id": ROLE_QUEUE_ID, "extra_info": ROLE_HANDLE,
    "offset": ROLE_OFFSET,
}


cdef class Prepared:
    """A plan, with what the kernel reads of it as C values; None instead of a plan: the handler parses the handle."""

    cdef readonly bint is_lasting
    cdef readonly bint is_for_kernel
    cdef object plan  # keeps the memory of the parts
    cdef bytes topic_name
    cdef bytes group_name
    cdef int64_t queue_id
    cdef int64_t slot_ms
    cdef int64_t max_delay_ms
    cdef Octets before_body
    cdef Octets before_properties
    cdef Octets body[BODY_NUMBERS + 1]
    cdef Octets properties[PROPERTY_NUMBERS + 1]

    def __init__(self, plan):
        self.plan = plan
        self.is_lasting = plan is not None and plan.is_lasting
        self.is_for_kernel = plan is not None and plan.is_for_kernel
        if not self.is_for_kernel:
            return
        self.topic_name, self.group_name = plan.topic.encode("ascii"), plan.group.encode("ascii")
        self.queue_id, self.slot_ms, self.max_delay_ms = plan.queue_id, plan.slot_ms, plan.max_delay_ms
        if self.slot_ms <= 0:
            raise ValueError(f"slots of {self.slot_ms} ms")
        before_body, body, before_properties, properties = plan.pattern
        self.before_body, self.before_properties = octets_of(before_body), octets_of(before_properties)
        take_parts(self.body, body, BODY_NUMBERS + 1)
        take_parts(self.properties, properties, PROPERTY_NUMBERS + 1)


# What the acknowledgements of one pop of one queue have in common.
cdef struct Pop:
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
    int pop


cdef inline bint is_same(const Octets *known, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    return known.size == size and not memcmp(known.at, at, size)


cdef Py_ssize_t common_bytes(const Text *handle) noexcept nogil:
    """Return the size of a handle up to its last part, an offset; 0 if it has none, or one with too many digits."""
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
    """Read the numbers with which a handle begins; return where the rest begins, 0 if the handler must read them."""
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


cdef class AckKernel(HeaderReader):
    """Kernel of the acknowledgements of one route."""

    cdef ResponseEncoder encoder
    cdef object plan_of
    cdef object table
    cdef object bounds_of
    cdef int64_t tags_code

    def __init__(self, int code, tuple fields, ResponseEncoder encoder not None, plan_of, table, bounds_of,
                 int64_t tags_code):
        """`fields` are those of `framing.HeaderDecoder`, `encoder` that of a response without fields.

        `plan_of` returns the plan for (topic, group, queue id, handle from its revive queue up to the offset), None if
        the handler must parse the handle.  `table` is a `PlanTable` of this kernel.  `bounds_of` returns the lowest and
        the highest offset that may be acknowledged now for (plan, first offset, time of the pop), None if the pop is in
        memory.  The records have `tags_code`.
        """
        super().__init__(code, fields, _ROLES, varying=frozenset({"extra_info"}))
        if encoder.count:
            raise ValueError("the response to an acknowledgement has no values")
        self.encoder, self.plan_of, self.table = encoder, plan_of, table
        self.bounds_of, self.tags_code = bounds_of, tags_code

    def read(self, frames, Py_ssize_t index, Py_ssize_t max_acks, int64_t room_bytes, int64_t max_record_bytes,
             int64_t now_ms, queue, Proof proof=None):
        """Return the acknowledgements from `index` on, up to the first one for the handler, as `Acks`; None for none.

        There are at most `max_acks`.  Their records are for `queue`, and have at most `room_bytes` together and
        `max_record_bytes` each.  With `proof`, one that does not prove it is for the handler.
        """
        cdef Py_ssize_t end = len(frames)
        if index < 0 or index >= end or max_acks <= 0:
            return None
        end = min(end, index + max_acks)
        cdef Acks acks = Acks(frames, end - index, now_ms, queue)
        acks.room_bytes, acks.max_record_bytes = room_bytes, max_record_bytes
        acks.kernel, acks.plans = self, self.table.current()
        while index < end and self.read_one(acks, frames, index, proof):
            index += 1
        acks.plans = None
        return acks if acks.count else None

    cdef bint read_one(self, Acks acks, frames, Py_ssize_t index, Proof proof) except -1:
        """Add one frame to `acks`; return False if it is for the handler."""
        cdef FrameParts frame
        cdef Header header
        if not find_frame(frames, index, &frame) or self.read_header(&frame, &header) != WHOLE:
            return False
        if not self.proves(&header, &frame, proof, &header.texts[ROLE_TOPIC], &header.texts[ROLE_GROUP]):
            return False
        return acks.add(&header, frame.serialization)

    cdef Prepared plan(self, const Header *header, bytes end, dict plans):
        """Return the plan of an acknowledgement whose handle has `end` after its numbers; make it if there is none."""
        cdef bytes key = texts_key(header, KEY_ROLES, 2, header.numbers[ROLE_QUEUE_ID]) + end
        cdef Prepared plan = plans.get(key)
        if plan is None:
            plan = Prepared(self.plan_of(
                text_of(&header.texts[ROLE_TOPIC]), text_of(&header.texts[ROLE_GROUP]), header.numbers[ROLE_QUEUE_ID],
                end.decode("ascii"),
            ) if end.count(b" ") == BLANKS_OF_END else None)
            self.table.keep(key, plan)
        return plan


cdef class Acks:
    """Acknowledgements of one read, in order: what they become in the log and in the queue, and the responses."""

    cdef Ack *acks
    cdef Pop found[MAX_POPS]
    cdef int pop_count
    cdef list kept  # keeps the memory of the pops
    cdef list prepared  # the plan of each pop
    cdef object queue
    cdef AckKernel kernel
    cdef dict plans  # until all are read
    cdef bytes topic_bytes
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef int64_t total_bytes
    cdef int64_t now_ms
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity

    def __cinit__(self, frames, Py_ssize_t capacity, int64_t now_ms, queue):
        self.queue, self.topic_bytes, self.now_ms = queue, queue.topic_bytes, now_ms
        self.kept, self.prepared, self.capacity = [frames], [], capacity
        self.acks = <Ack *> malloc(max(1, capacity) * sizeof(Ack))
        if self.acks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.acks)

    def __len__(self):
        return self.count

    cdef bint add(self, const Header *header, int serialization) except -1:
        """Take one acknowledgement; return False if it is for the handler."""
        cdef Ack *ack = &self.acks[self.count]
        cdef int pop = self.pop_at(header)
        cdef int64_t offset = header.numbers[ROLE_OFFSET]
        if pop < 0 or self.count >= self.capacity or not self.found[pop].low <= offset <= self.found[pop].high:
            return False
        ack.offset, ack.pop = offset, pop
        ack.size = self.record_bytes(ack)
        if ack.size > self.max_record_bytes or ack.size > self.room_bytes - self.total_bytes:
            return False
        ack.opaque, ack.serialization = <int32_t> header.opaque, serialization
        self.count += 1
        self.total_bytes += ack.size
        self.found[pop].count += 1
        return True

    cdef int64_t record_bytes(self, const Ack *ack) noexcept:
        cdef const Pop *pop = &self.found[ack.pop]
        cdef Value digits
        put_decimal(ack.offset, &digits)
        return (
            FIXED_IPV4_BYTES + pop.before_body.size + pop.after_body.size + PyBytes_GET_SIZE(self.topic_bytes) + 2
            + pop.before_properties.size + pop.after_properties.size + 2 * digits.size + SEAL_BYTES
        )

    cdef int pop_at(self, const Header *header) except -2:
        """Return the index of the pop of an acknowledgement; -1 if that is for the handler, or one too many."""
        cdef const Text *topic = &header.texts[ROLE_TOPIC]
        cdef const Text *group = &header.texts[ROLE_GROUP]
        cdef const Text *handle = &header.texts[ROLE_HANDLE]
        cdef Py_ssize_t common = common_bytes(handle)
        cdef Pop *pop
        cdef int i
        if not common:
            return -1
        # The last one first: acknowledgements of one pop follow each other.
        for i in range(self.pop_count - 1, -1, -1):
            pop = &self.found[i]
            if pop.queue_id == header.numbers[ROLE_QUEUE_ID] and is_same(&pop.common, handle.at, common) and is_same(
                &pop.topic, topic.at, topic.size
            ) and is_same(&pop.group, group.at, group.size):
                return i
        return self.new_pop(header, common)

    cdef int new_pop(self, const Header *header, Py_ssize_t common) except -2:
        """Begin a pop for the first `common` bytes of a handle; return its index, -1 if it is for the handler."""
        cdef const uint8_t *handle = header.texts[ROLE_HANDLE].at
        cdef Pop *pop = &self.found[self.pop_count]
        cdef Prepared plan
        cdef PopNumbers numbers
        cdef Py_ssize_t at
        cdef int64_t due_ms
        if self.pop_count == MAX_POPS:
            return -1
        at = read_numbers(handle, common, &numbers)
        if not at:
            return -1
        plan = self.kernel.plan(header, handle[at:common], self.plans)
        if not plan.is_for_kernel:
            return -1
        # Of 18 digits each, so the sum does not overflow.
        due_ms = numbers.pop_time_ms + numbers.invisible_ms
        if not self.now_ms < due_ms <= self.now_ms + plan.max_delay_ms:
            return -1
        bounds = self.kernel.bounds_of(plan.plan, numbers.first_offset, numbers.pop_time_ms)
        if bounds is None:
            return -1
        pop.low, pop.high = bounds
        pop.topic, pop.group, pop.queue_id = octets_of(plan.topic_name), octets_of(plan.group_name), plan.queue_id
        pop.pop_time_ms, pop.count = numbers.pop_time_ms, 0
        self.set_form(pop, plan, &numbers, due_ms, handle[:common])
        self.prepared.append(plan)
        self.pop_count += 1
        return self.pop_count - 1

    cdef int set_form(self, Pop *pop, Prepared plan, const PopNumbers *numbers, int64_t due_ms,
                      bytes common) except -1:
        """Set what the records of one pop share."""
        cdef Value in_body[BODY_NUMBERS]
        cdef Value in_properties[PROPERTY_NUMBERS]
        cdef bytes body, properties
        put_decimal(numbers.pop_time_ms, &in_body[0])
        put_decimal(numbers.first_offset, &in_body[1])
        put_decimal(numbers.pop_time_ms, &in_properties[0])
        put_decimal(due_ms, &in_properties[1])
        put_decimal((due_ms - 1) // plan.slot_ms * plan.slot_ms, &in_properties[2])
        body = joined(plan.body, in_body, BODY_NUMBERS)
        properties = joined(plan.properties, in_properties, PROPERTY_NUMBERS)
        pop.common, pop.after_body, pop.after_properties = octets_of(common), octets_of(body), octets_of(properties)
        pop.before_body, pop.before_properties = plan.before_body, plan.before_properties
        self.kept.append((common, body, properties))
        return 0

    def pops(self):
        """Return topic, group, queue id, time of the pop and number of acknowledgements of each pop."""
        cdef list found = []
        cdef int i
        for i in range(self.pop_count):
            if self.found[i].count:
                plan = (<Prepared> self.prepared[i]).plan
                found.append((plan.topic, plan.group, plan.queue_id, self.found[i].pop_time_ms, self.found[i].count))
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
            put_entry(&entry[i], &head, self.kernel.tags_code)
            to += head.size
        return records, [(self.queue, units)]

    cdef void write_record(self, uint8_t *to, const Ack *ack, RecordHead *head) noexcept:
        """Write one record; `head` gets what its body tells."""
        cdef const Pop *pop = &self.found[ack.pop]
        cdef uint8_t *begin = to
        cdef uint8_t *body = to + FIXED_IPV4_BYTES
        cdef Value digits
        cdef Py_ssize_t size
        put_decimal(ack.offset, &digits)
        to = put(body, pop.before_body.at, pop.before_body.size)
        to = put(to, digits.at, digits.size)
        to = put(to, pop.after_body.at, pop.after_body.size)
        head.body_bytes = <int32_t> (to - body)
        head.body_crc = masked_crc(body, to - body, CAN_FOLD)
        put_head(begin, head)
        to = put(to, <const uint8_t *> PyBytes_AS_STRING(self.topic_bytes), PyBytes_GET_SIZE(self.topic_bytes))
        size = pop.before_properties.size + digits.size + pop.after_properties.size + SEAL_BYTES
        to[0], to[1] = <uint8_t> (size >> 8), <uint8_t> size
        to = put(to + 2, pop.before_properties.at, pop.before_properties.size)
        to = put(to, digits.at, digits.size)
        to = put(to, pop.after_properties.at, pop.after_properties.size)
        put_seal(to, masked_crc(begin, to - begin, CAN_FOLD))

    # Back to the consumer

    def responses(self):
        """Return the responses, in order."""
        cdef Value values[1]
        cdef Py_ssize_t i
        cdef ResponseEncoder encoder = self.kernel.encoder
        cdef bytes frames = PyBytes_FromStringAndSize(NULL, self.count * encoder.fixed_bytes)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(frames)
        cdef uint8_t *to = begin
        for i in range(self.count):
            to = encoder.put(to, self.acks[i].serialization, self.acks[i].opaque, values, 0)
        return frames[:to - begin]
