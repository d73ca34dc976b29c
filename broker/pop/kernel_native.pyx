# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel of pops, compiled: from a frame to the records that are delivered, the checkpoints and the response.

Its specification is the handler, `broker/processor/pop/pop.py`.  Nothing is refused here, and nothing is changed:
`PopKernel.take` returns None for a pop that is for the handler.  Python notes what a pop took before the next one is
read.  What a plan says is in C values beside it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from sprocket.remoting.header_reader_native import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.broker.chosen_records cimport (
    Found, Limits, MAX_TAG_CODES, TagCodes, choose, entries_at, measure, put_records, set_codes, set_limits,
)
from sprocket.engine.broker.record_parts cimport put_parts, take_parts
from sprocket.remoting.frames_native cimport ResponseEncoder, Value, put_decimal
from sprocket.remoting.header_reader_native cimport Header, HeaderReader, WHOLE, text_of, texts_key
from sprocket.engine.store.layout cimport (
    FIXED_IPV4_BYTES, QueueEntry, RecordFixed, RecordRestIpv4, SEAL_BYTES, from_big32, from_big64,
)
from broker.pull.kernel_native cimport Frames, admits
from sprocket.remoting.read_frames_native cimport FrameParts, find_frame
from sprocket.remoting.signatures_native cimport Proof
from sprocket.engine.store.record_crc cimport crc32_can_fold, crc32_prepare, masked_crc
from sprocket.engine.store.record_writer cimport (
    Octets, RecordHead, begin_head, octets_of, put, put_entry, put_head, put_seal,
)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # What a field means to a pop.
    ROLE_GROUP = 1
    ROLE_TOPIC = 2
    ROLE_QUEUE_ID = 3
    ROLE_MAX_MESSAGES = 4
    ROLE_INVISIBLE_TIME = 5
    ROLE_POLL_TIME = 6
    ROLE_BORN_TIME = 7
    ROLE_EXPRESSION = 8
    ROLE_EXPRESSION_TYPE = 9
    ROLE_ORDER = 10
    # `PopPlanner` refuses a pop of more messages, and one that comes so late that its client has stopped waiting.
    MAX_POP_MESSAGES = 32
    LATE_MS = 500
    # A checkpoint becomes readable this time before its messages are redelivered (`ACK_INTERVAL_MS`).
    ACK_INTERVAL_MS = 1000
    RESPONSE_VALUES = 6
    # Numbers in the body and in the properties of a checkpoint's record, each between two of its parts.
    BODY_NUMBERS = 7
    PROPERTY_NUMBERS = 6
    # Digits of a number with its sign, and a separator.
    NUMBER_BYTES = 21
    # A text of the response has up to 32 entries, each of up to 3 numbers; a list of offsets has one number for each.
    TEXT_BYTES = MAX_POP_MESSAGES * (4 * NUMBER_BYTES)
    # Checkpoints of one read; the next read begins with the pop that exceeds them.
    MAX_CHECKPOINTS = 128

# Limits of pops, and sizes of the head of a record and of a queue entry.
LIMITS = (MAX_POP_MESSAGES, LATE_MS, ACK_INTERVAL_MS, MAX_TAG_CODES)
SIZES = (sizeof(RecordFixed) + sizeof(RecordRestIpv4), sizeof(QueueEntry))
_ROLES = {
    "consumer_group": ROLE_GROUP, "topic": ROLE_TOPIC, "queue_id": ROLE_QUEUE_ID, "max_msg_nums": ROLE_MAX_MESSAGES,
    "invisible_time": ROLE_INVISIBLE_TIME, "poll_time": ROLE_POLL_TIME, "born_time": ROLE_BORN_TIME,
    "exp": ROLE_EXPRESSION, "exp_type": ROLE_EXPRESSION_TYPE, "order": ROLE_ORDER,
}
# The texts of a key.
cdef int KEY_ROLES[4]
KEY_ROLES[:] = [ROLE_GROUP, ROLE_TOPIC, ROLE_EXPRESSION, ROLE_EXPRESSION_TYPE]

cdef bint CAN_FOLD = False

crc32_prepare()
CAN_FOLD = crc32_can_fold()


# A list of entries that grows to a text of the response.
cdef struct Entries:
    Py_ssize_t size
    uint8_t octets[TEXT_BYTES]


# A stored checkpoint's record.
cdef struct Checkpoint:
    int32_t size
    int32_t body_bytes


cdef class Prepared:
    """A plan, with what the kernel reads of it as C values."""

    cdef readonly bint is_lasting
    cdef readonly bint is_for_kernel
    cdef object plan  # keeps the memory of the parts
    cdef str topic
    cdef str group
    cdef tuple queues
    cdef TagCodes tags
    cdef uint8_t kind
    cdef int64_t slot_ms
    cdef int64_t max_delay_ms
    cdef int priority_factor
    cdef bint is_from_last
    cdef int retry_chance
    cdef int priority_retry_chance
    cdef Octets body[BODY_NUMBERS + 1]
    cdef Octets properties[PROPERTY_NUMBERS + 1]
    cdef Py_ssize_t form_bytes
    cdef tuple buckets

    def __init__(self, plan):
        self.plan = plan
        self.is_lasting, self.is_for_kernel = plan.is_lasting, plan.is_for_kernel
        if not self.is_for_kernel:
            return
        self.topic, self.group, self.queues, self.buckets = plan.topic, plan.group, plan.queues, plan.buckets
        self.slot_ms, self.max_delay_ms = plan.slot_ms, plan.max_delay_ms
        self.priority_factor, self.is_from_last = plan.priority_factor, plan.is_from_last
        self.retry_chance, self.priority_retry_chance = plan.retry_chance, plan.priority_retry_chance
        if self.slot_ms <= 0:
            raise ValueError(f"slots of {self.slot_ms} ms")
        if len(plan.kind) != 1:
            raise ValueError(f"the kind of a topic is one digit, not {plan.kind!r}")
        self.kind = ord(plan.kind)
        set_codes(&self.tags, plan.codes)
        body, properties = plan.form
        self.form_bytes = take_parts(self.body, body, BODY_NUMBERS + 1) + take_parts(
            self.properties, properties, PROPERTY_NUMBERS + 1)


cdef class Pops:
    """Pops of one read: their checkpoints, as they become records of the timer's queue, and their responses."""

    cdef Frames records
    cdef Frames responses
    cdef Checkpoint checkpoints[MAX_CHECKPOINTS]
    cdef Py_ssize_t count
    cdef Limits limits
    cdef object queue
    cdef bytes topic_bytes
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef int64_t now_ms
    cdef int64_t tags_code
    cdef dict plans
    cdef readonly int64_t messages  # of all pops
    cdef readonly int64_t missed  # reads of queues without a message
    # If the last pop was one of all queues: its plan, and where the group's next pop of each queue begins.
    cdef Prepared last_plan
    cdef list next_offsets

    def __cinit__(self, tuple limits not None, queue, int64_t room_bytes, int64_t max_record_bytes, int64_t now_ms,
                  int64_t tags_code, dict plans not None):
        """See `PopKernel.begin`."""
        set_limits(&self.limits, limits)
        self.records, self.responses = Frames(), Frames()
        self.queue, self.topic_bytes = queue, queue.topic_bytes
        self.room_bytes, self.max_record_bytes = room_bytes, max_record_bytes
        self.now_ms, self.tags_code, self.plans = now_ms, tags_code, plans

    def __len__(self):
        """Number of checkpoints."""
        return self.count

    @property
    def response_bytes(self):
        """Size of the responses."""
        return self.responses.used

    def frames(self):
        """Return the responses, in order; there are none afterwards."""
        return self.responses.whole()

    # Into the store

    cdef bint add_checkpoint(self, Prepared plan, const Value *distances, int64_t messages, int64_t queue_id,
                             int64_t first_offset, int64_t invisible_ms, int64_t revive_queue_id) except -1:
        """Write the record of a checkpoint up to its seal; return False if it does not fit."""
        cdef Value numbers[BODY_NUMBERS]
        cdef Value names[PROPERTY_NUMBERS]
        cdef int64_t deliver_ms = self.now_ms + invisible_ms - ACK_INTERVAL_MS
        cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(self.topic_bytes)
        cdef Py_ssize_t bound = FIXED_IPV4_BYTES + topic_bytes + 2 + SEAL_BYTES + plan.form_bytes + distances.size + (
            BODY_NUMBERS + PROPERTY_NUMBERS) * NUMBER_BYTES
        cdef Py_ssize_t used = self.records.used
        cdef uint8_t *begin
        cdef uint8_t *to
        cdef uint8_t *length
        if bound > self.max_record_bytes or bound > self.room_bytes - used or self.count == MAX_CHECKPOINTS:
            return False
        numbers[0].at, numbers[0].size = distances.at, distances.size
        put_decimal(invisible_ms, &numbers[1])
        put_decimal(messages, &numbers[2])
        put_decimal(self.now_ms, &numbers[3])
        put_decimal(queue_id, &numbers[4])
        put_decimal(self.now_ms + invisible_ms, &numbers[5])
        put_decimal(first_offset, &numbers[6])
        put_decimal(queue_id, &names[0])
        put_decimal(first_offset, &names[1])
        put_decimal(self.now_ms, &names[2])
        put_decimal(deliver_ms, &names[3])
        put_decimal((deliver_ms - 1) // plan.slot_ms * plan.slot_ms, &names[4])
        put_decimal(revive_queue_id, &names[5])
        begin = self.records.room(bound, bound)
        to = put_parts(begin + FIXED_IPV4_BYTES, plan.body, numbers, BODY_NUMBERS)
        self.checkpoints[self.count].body_bytes = <int32_t> (to - begin - FIXED_IPV4_BYTES)
        to = put(to, <const uint8_t *> PyBytes_AS_STRING(self.topic_bytes), topic_bytes)
        length = to
        to = put_parts(to + 2, plan.properties, names, PROPERTY_NUMBERS) + SEAL_BYTES
        length[0], length[1] = <uint8_t> ((to - length - 2) >> 8), <uint8_t> (to - length - 2)
        self.checkpoints[self.count].size = <int32_t> (to - begin)
        self.records.used = used + (to - begin)
        self.count += 1
        return True

    def encode(self, int64_t physical_offset, int64_t store_timestamp, bytes store_host not None):
        """Return the records for `physical_offset`, and the queue with its entries; there are no records afterwards.

        Offsets in the queue begin at its `next_offset`.
        """
        cdef bytes records = self.records.whole()
        cdef bytes units = PyBytes_FromStringAndSize(NULL, self.count * sizeof(QueueEntry))
        cdef QueueEntry *entry = <QueueEntry *> PyBytes_AS_STRING(units)
        cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(records)
        cdef RecordHead head
        cdef Py_ssize_t i
        if self.count and not PyBytes_GET_SIZE(records):
            raise ValueError("the records were encoded before")
        begin_head(&head, self.queue, physical_offset, self.now_ms, store_timestamp, store_host)
        for i in range(self.count):
            head.size, head.body_bytes = self.checkpoints[i].size, self.checkpoints[i].body_bytes
            head.body_crc = masked_crc(to + FIXED_IPV4_BYTES, head.body_bytes, CAN_FOLD)
            put_head(to, &head)
            put_seal(to + head.size - SEAL_BYTES, masked_crc(to, head.size - SEAL_BYTES, CAN_FOLD))
            put_entry(&entry[i], &head, self.tags_code)
            to += head.size
        return records, [(self.queue, units)]


cdef class PopKernel(HeaderReader):
    """Kernel of the pops of one route."""

    cdef ResponseEncoder encoder
    cdef object plan_of
    cdef object table
    cdef object offsets_of
    cdef object retry_reads_of
    cdef object limits_of
    cdef object segment_at
    cdef int64_t tags_code
    cdef Py_ssize_t join_bytes
    # Of the pop that is read: what it has found so far.
    cdef Found found
    cdef uint8_t *body
    cdef Py_ssize_t size_bytes
    cdef int64_t messages
    cdef int64_t max_messages
    cdef int64_t rest
    cdef int64_t missed
    cdef Entries start_offsets
    cdef Entries message_offsets
    cdef Entries distances
    cdef list taken

    def __cinit__(self):
        self.body = NULL

    def __init__(self, int code, tuple fields, ResponseEncoder encoder not None, Py_ssize_t join_bytes, plan_of, table,
                 offsets_of, retry_reads_of, reads, int64_t tags_code):
        """`fields` are those of `framing.HeaderDecoder`, `encoder` that of the response with found messages.

        A pop of more than `join_bytes` is for the handler.  `plan_of` returns the plan of a `PopKey`, and `table` is a
        `PlanTable` of this kernel.  `offsets_of` returns where a group's next pop of each queue of a topic begins (-1:
        unknown); `retry_reads_of` returns for a plan and a draw how many empty queues of a retry topic a pop reads, -1
        if one has messages.  `reads` are `KernelReads`.  The records of checkpoints have `tags_code`.
        """
        super().__init__(code, fields, _ROLES)
        if encoder.count != RESPONSE_VALUES:
            raise ValueError(f"the response to a pop has {RESPONSE_VALUES} values")
        if self.body != NULL or join_bytes <= 0:
            raise ValueError(f"a body of {join_bytes} bytes")
        self.body = <uint8_t *> malloc(join_bytes)
        if self.body == NULL:
            raise MemoryError
        self.encoder, self.join_bytes = encoder, join_bytes
        self.plan_of, self.table, self.offsets_of, self.retry_reads_of = plan_of, table, offsets_of, retry_reads_of
        self.limits_of, self.segment_at, self.tags_code = reads.limits, reads.segment_at, tags_code

    def __dealloc__(self):
        free(self.body)

    def begin(self, queue, int64_t room_bytes, int64_t max_record_bytes, int64_t now_ms):
        """Return an empty `Pops` for one read.

        The checkpoints are for `queue`, and have at most `room_bytes` together and `max_record_bytes` each.
        """
        return Pops(
            self.limits_of(), queue, room_bytes, max_record_bytes, now_ms, self.tags_code, self.table.current()
        )

    def take(self, frames, Py_ssize_t index, Pops pops not None, int draw, int revive_queue_id, Proof proof=None):
        """Add checkpoints and response of the pop at `index` to `pops`; return what is to be noted, or None.

        That is a tuple: plan, queue id of the header, messages left, messages, their bytes, and for each queue that was
        taken from: its id, the next offset, and the messages.  None: there is no pop, or one for the handler,
        as is one that does not prove `proof`.
        """
        cdef FrameParts frame
        cdef Header header
        cdef Prepared plan
        cdef Py_ssize_t used = pops.records.used, count = pops.count
        if not find_frame(frames, index, &frame):
            return None
        header.numbers[ROLE_BORN_TIME] = header.numbers[ROLE_ORDER] = 0
        header.texts[ROLE_EXPRESSION].at = header.texts[ROLE_EXPRESSION_TYPE].at = NULL
        if self.read_header(&frame, &header) != WHOLE or not is_admitted(&header, pops.now_ms):
            return None
        if not self.proves(&header, &frame, proof, &header.texts[ROLE_TOPIC], &header.texts[ROLE_GROUP]):
            return None
        plan = self.plan(&header, pops.plans)
        if not plan.is_for_kernel or header.numbers[ROLE_INVISIBLE_TIME] > plan.max_delay_ms:
            return None
        if plan.buckets and not admits(plan.buckets):
            return None
        if not self.collect(plan, &header, pops, draw, revive_queue_id):
            pops.records.used, pops.count = used, count
            pops.last_plan = None
            return None
        self.respond(&header, frame.serialization, pops, revive_queue_id, len(frames) - index - 1)
        pops.messages += self.messages
        pops.missed += self.missed
        return plan.plan, header.numbers[ROLE_QUEUE_ID], self.rest, self.messages, self.size_bytes, self.taken

    cdef Prepared plan(self, const Header *header, dict plans):
        """Return the plan of a pop that is not ordered; make it if there is none."""
        cdef int64_t queue_id = max(header.numbers[ROLE_QUEUE_ID], -1)
        cdef bytes key = texts_key(header, KEY_ROLES, 4, queue_id)
        cdef Prepared plan = plans.get(key)
        if plan is None:
            plan = Prepared(self.plan_of(
                text_of(&header.texts[ROLE_GROUP]), text_of(&header.texts[ROLE_TOPIC]), queue_id, False,
                text_of(&header.texts[ROLE_EXPRESSION]), text_of(&header.texts[ROLE_EXPRESSION_TYPE]),
            ))
            self.table.keep(key, plan)
        return plan

    # What there is to deliver

    cdef bint collect(self, Prepared plan, const Header *header, Pops pops, int draw, int revive_queue_id) except -1:
        """Take from the queues in their order; return False if the pop finds nothing, or is for the handler."""
        cdef int64_t queue_id = header.numbers[ROLE_QUEUE_ID], first = max(queue_id, 0)
        cdef int64_t count = len(plan.queues), at, i
        cdef bint obeys = draw < plan.priority_factor
        cdef bint is_retry_first = draw < (plan.priority_retry_chance if obeys else plan.retry_chance)
        cdef list offsets
        if queue_id < 0 and pops.last_plan is plan:
            offsets = pops.next_offsets
        else:
            offsets = self.offsets_of(plan.topic, plan.group, range(first, first + count))
        if len(offsets) != count:
            raise ValueError("an offset for each queue is missing")
        pops.last_plan = None
        self.start(header)
        if is_retry_first and not self.pass_retry(plan, draw):
            return False
        for i in range(count):
            at = (draw + i) % count if not obeys else count - 1 - i if plan.is_from_last else i
            if not self.take_queue(
                plan, header, pops, plan.queues[at], first + at, offsets[at], revive_queue_id
            ):
                return False
        for one in self.taken:
            offsets[<int64_t> one[0] - first] = one[1]
        if not is_retry_first and self.messages < self.max_messages and not self.pass_retry(plan, draw):
            return False
        if queue_id < 0:
            pops.last_plan, pops.next_offsets = plan, offsets
        return self.messages > 0

    cdef void start(self, const Header *header) noexcept:
        self.size_bytes = self.messages = self.rest = self.missed = 0
        self.start_offsets.size = self.message_offsets.size = 0
        self.max_messages = header.numbers[ROLE_MAX_MESSAGES]
        self.taken = []

    cdef bint pass_retry(self, Prepared plan, int draw) except -1:
        """Count reads of the retry topic, which find nothing; return False if there is something to find."""
        cdef int64_t reads = self.retry_reads_of(plan.plan, draw)
        self.missed += reads
        return reads >= 0

    cdef bint take_queue(self, Prepared plan, const Header *header, Pops pops, queue, int64_t queue_id, int64_t offset,
                         int64_t revive_queue_id) except -1:
        """Take from one queue as many messages as the pop accepts, and count the rest; return False if it is for the handler."""
        cdef int64_t max_offset = queue.max_offset, available
        cdef Py_buffer view
        if offset < 0:
            return False
        if self.messages >= self.max_messages:
            self.rest += max(max_offset - offset, 0)
            return True
        if offset == max_offset:
            self.missed += 1
            return True
        entries = entries_at(queue, offset, max_offset, &view, &available)
        if entries == NULL:
            return False
        try:
            if not choose(&self.found, &plan.tags, entries, available, self.max_messages - self.messages, &pops.limits):
                return False
            if not self.add_records(plan, entries, pops, queue_id, offset):
                return False
        finally:
            PyBuffer_Release(&view)
        self.taken.append((queue_id, offset + self.found.scanned, self.found.count))
        self.messages += self.found.count
        self.rest += max(max_offset - offset - self.found.scanned, 0)
        return self.add_checkpoint(plan, header, pops, queue_id, offset, revive_queue_id)

    cdef bint add_records(self, Prepared plan, const QueueEntry *entries, Pops pops, int64_t queue_id,
                          int64_t offset) except -1:
        """Add the chosen records to the body, and their offsets; False unless all lie in one segment, in ascending order."""
        cdef Py_buffer log
        cdef int64_t first = from_big64(entries[self.found.chosen[0]].physical_offset), base, end
        cdef int64_t max_bytes = min(pops.limits.max_bytes, self.join_bytes - self.size_bytes)
        if first < pops.limits.cold_end:
            return False
        segment, base, end = <tuple> self.segment_at(first)
        end = min(end, pops.limits.wrote_offset)
        PyObject_GetBuffer(segment, &log, PyBUF_SIMPLE)
        try:
            if base < 0 or end < base or end - base > log.len or not measure(
                    &self.found, entries, base, end, max_bytes):
                return False
            put_records(self.body + self.size_bytes, &self.found, entries, <const uint8_t *> log.buf, base)
        finally:
            PyBuffer_Release(&log)
        if not self.add_offsets(plan, entries, queue_id, offset):
            return False
        self.size_bytes += self.found.size_bytes
        return True

    cdef bint add_offsets(self, Prepared plan, const QueueEntry *entries, int64_t queue_id, int64_t offset) noexcept:
        """Add the entries of the response's texts; return False if a record is not what its entry says."""
        cdef const uint8_t *record = self.body + self.size_bytes
        cdef bint is_whole = self.found.scanned == self.found.count
        cdef int64_t one, size
        cdef Py_ssize_t i
        add_queue(&self.start_offsets, plan.kind, queue_id)
        add_number(&self.start_offsets, offset, 0)
        add_queue(&self.message_offsets, plan.kind, queue_id)
        self.distances.size = 0
        for i in range(self.found.count):
            one = offset + i
            if not is_whole:
                # The handler reads these in the records.
                size = from_big32(entries[self.found.chosen[i]].size)
                if size < <int64_t> sizeof(RecordFixed) or from_big32((<const RecordFixed *> record).total_size) != size:
                    return False
                one = from_big64((<const RecordFixed *> record).queue_offset)
                record += size
            add_number(&self.message_offsets, one, c',' if i else 0)
            add_number(&self.distances, one - offset, c',' if i else 0)
        return True

    cdef bint add_checkpoint(self, Prepared plan, const Header *header, Pops pops, int64_t queue_id, int64_t offset,
                             int64_t revive_queue_id) except -1:
        cdef Value distances
        distances.at, distances.size = self.distances.octets, self.distances.size
        return pops.add_checkpoint(plan, &distances, self.found.count, queue_id, offset,
                                   header.numbers[ROLE_INVISIBLE_TIME], revive_queue_id)

    cdef int respond(self, const Header *header, int serialization, Pops pops, int64_t revive_queue_id,
                     Py_ssize_t followers) except -1:
        """Append the response."""
        cdef Value values[RESPONSE_VALUES]
        cdef Py_ssize_t used = pops.responses.used, bound
        cdef uint8_t *begin
        cdef uint8_t *to
        put_decimal(pops.now_ms, &values[0])
        put_decimal(header.numbers[ROLE_INVISIBLE_TIME], &values[1])
        put_decimal(revive_queue_id, &values[2])
        put_decimal(self.rest, &values[3])
        values[4].at, values[4].size = self.start_offsets.octets, self.start_offsets.size
        values[5].at, values[5].size = self.message_offsets.octets, self.message_offsets.size
        bound = self.encoder.fixed_bytes + values[4].size + values[5].size + self.size_bytes
        begin = pops.responses.room(bound, min(bound * followers, self.join_bytes))
        to = self.encoder.put(begin, serialization, <int32_t> header.opaque, values, self.size_bytes)
        to = put(to, self.body, self.size_bytes)
        pops.responses.used = used + (to - begin)
        return 0


cdef bint is_admitted(const Header *header, int64_t now_ms) noexcept:
    """Return whether the numbers of a header are within the limits, and its checkpoint would be in the future."""
    cdef int64_t born_time = header.numbers[ROLE_BORN_TIME]
    if header.numbers[ROLE_ORDER] or not 1 <= header.numbers[ROLE_MAX_MESSAGES] <= MAX_POP_MESSAGES:
        return False
    if now_ms - (born_time if born_time else now_ms) - header.numbers[ROLE_POLL_TIME] > LATE_MS:
        return False
    return header.numbers[ROLE_INVISIBLE_TIME] > ACK_INTERVAL_MS


cdef void add_queue(Entries *entries, uint8_t kind, int64_t queue_id) noexcept:
    """Begin the entry of a queue: its topic's kind and its id."""
    cdef uint8_t *to = entries.octets + entries.size
    if entries.size:
        to[0] = c';'
        to += 1
    to[0], to[1] = kind, c' '
    entries.size = to + 2 - entries.octets
    add_number(entries, queue_id, 0)
    entries.octets[entries.size] = c' '
    entries.size += 1


cdef inline void add_number(Entries *entries, int64_t number, uint8_t separator) noexcept nogil:
    """Add a number, after `separator` if that is not 0."""
    cdef uint8_t *to = entries.octets + entries.size
    cdef Value digits
    if separator:
        to[0] = separator
        to += 1
    put_decimal(number, &digits)
    entries.size = put(to, digits.at, digits.size) - entries.octets
