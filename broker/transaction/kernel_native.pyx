# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel of ends of transactions, compiled: from the frames of a read to real messages and responses.

Its specification is the handler, `broker/processor/end_transaction.py` with `broker/transaction/transactions.py`.
Nothing is refused here: if one end of a run is for the handler, `EndKernel.read` returns None, and it serves the run.
What a plan says is in C values beside it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from sprocket.remoting.header_reader_native import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.remoting.frames_native cimport ResponseEncoder, Value
from sprocket.remoting.header_reader_native cimport Header, HeaderReader, SERIALIZATION_JSON, WHOLE
from sprocket.engine.store.layout cimport QueueEntry, from_big32, from_big64
from sprocket.engine.store.record_writer cimport is_ascii
from store.moves_native cimport Move, Moves, Place
from sprocket.remoting.read_frames_native cimport FrameParts, find_frame
from sprocket.engine.remoting.wire_text cimport Text

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # What a field means to an end.
    ROLE_GROUP = 1
    ROLE_QUEUE_OFFSET = 2
    ROLE_PHYSICAL_OFFSET = 3
    ROLE_OUTCOME = 4
    # Bits of sysFlag.
    TRANSACTION_MASK = 0xC
    TRANSACTION_COMMIT = 0x8
    # First bytes of a header that name its route: of JSON, and of ROCKETMQ.
    JSON_PREFIX_BYTES = 12
    CODE_BYTES = 2

# For a comparison with `CONSUME_QUEUE_DTYPE`.
QUEUE_ENTRY_BYTES = sizeof(QueueEntry)

_ROLES = {
    "producer_group": ROLE_GROUP, "tran_state_table_offset": ROLE_QUEUE_OFFSET,
    "commit_log_offset": ROLE_PHYSICAL_OFFSET, "commit_or_rollback": ROLE_OUTCOME,
}


# One end.
cdef struct End:
    int64_t born_timestamp
    int32_t opaque
    int serialization
    bint is_oneway


cdef class Prepared:
    """A plan, with what the kernel reads of it as C values."""

    cdef readonly bint is_lasting
    cdef readonly bint is_for_kernel
    cdef bint is_commit
    cdef object topic
    cdef object queue

    def __init__(self, plan):
        self.is_lasting, self.is_for_kernel = plan.is_lasting, plan.is_for_kernel
        if self.is_for_kernel:
            self.is_commit, self.topic, self.queue = plan.is_commit, plan.topic, plan.queue


cdef class HalfRecords:
    """Reader of half messages by both of their offsets."""

    cdef object queue
    cdef object segment_at
    cdef int64_t cold_end
    cdef int64_t log_end
    cdef list kept  # keeps the memory of what was read
    # Entries of the queue's file that was read last.
    cdef const QueueEntry *entries
    cdef int64_t first
    cdef int64_t end
    # The log's segment that was read last.
    cdef const uint8_t *log
    cdef int64_t base
    cdef int64_t segment_end

    def __init__(self, queue, segment_at, int64_t cold_end, int64_t log_end):
        """Entries of `queue`, records between `cold_end` and `log_end`; `segment_at` is that of the log."""
        self.queue, self.segment_at, self.cold_end, self.log_end, self.kept = queue, segment_at, cold_end, log_end, []

    cdef const uint8_t *record(self, int64_t queue_offset, int64_t physical_offset, Py_ssize_t *size) except? NULL:
        """Return the record at both offsets; NULL if there is none, or it must be checked first."""
        cdef const QueueEntry *entry
        if not self.first <= queue_offset < self.end and not self.turn_to_entry(queue_offset):
            return NULL
        entry = &self.entries[queue_offset - self.first]
        if from_big64(entry.physical_offset) != physical_offset or physical_offset < self.cold_end:
            return NULL
        if not self.base <= physical_offset < self.segment_end and not self.turn_to_segment(physical_offset):
            return NULL
        size[0] = from_big32(entry.size)
        if size[0] <= 0 or size[0] > self.segment_end - physical_offset:
            return NULL
        return self.log + (physical_offset - self.base)

    cdef bint turn_to_entry(self, int64_t queue_offset) except -1:
        cdef int64_t low = self.queue.min_offset, high = self.queue.max_offset, position, count
        cdef Py_buffer buffer
        if not low <= queue_offset < high:
            return False
        place = self.queue.view_at(queue_offset)
        if place is None:
            return False
        view, position, count = <tuple> place
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        PyBuffer_Release(&buffer)
        self.kept.append(view)
        if position < 0 or position % <int64_t> sizeof(QueueEntry):
            return False
        count = min(count, (buffer.len - position) // <int64_t> sizeof(QueueEntry), high - queue_offset)
        # From the file's first entry on: ends come in any order.
        position //= sizeof(QueueEntry)
        self.first = max(low, queue_offset - position)
        self.end = queue_offset + count
        self.entries = <const QueueEntry *> buffer.buf + position - (queue_offset - self.first)
        return count > 0

    cdef bint turn_to_segment(self, int64_t physical_offset) except -1:
        cdef int64_t base, end
        cdef Py_buffer buffer
        segment, base, end = <tuple> self.segment_at(physical_offset)
        PyObject_GetBuffer(segment, &buffer, PyBUF_SIMPLE)
        PyBuffer_Release(&buffer)
        self.kept.append(segment)
        self.log, self.base = <const uint8_t *> buffer.buf, base
        self.segment_end = min(end, self.log_end, base + buffer.len)
        return base >= 0 and base <= physical_offset < self.segment_end


cdef class EndKernel(HeaderReader):
    """Kernel of the ends of one route."""

    cdef ResponseEncoder encoder
    cdef object plan_of
    cdef object table
    cdef object reads

    def __init__(self, int code, tuple fields, ResponseEncoder encoder not None, plan_of, table, reads):
        """`fields` are those of `frames_native.HeaderDecoder`, `encoder` that of a response without fields.

        `plan_of` returns the plan for (outcome, real topic, real queue id); `table` is a `PlanTable` of this kernel.
        `reads` are `KernelReads`.
        """
        super().__init__(code, fields, _ROLES, varying=frozenset({"msg_id", "transaction_id"}))
        if encoder.count:
            raise ValueError("the response to an end has no values")
        self.takes_oneway = True
        self.encoder, self.plan_of, self.table, self.reads = encoder, plan_of, table, reads

    def read(self, frames, Py_ssize_t index, Py_ssize_t max_ends, Moves moves not None, queue, int64_t log_end,
             bytes topic_field not None, int64_t half_offset, set done not None):
        """Return the run of ends from `index` on, at most `max_ends`, as `Ends`; None if one is for the handler.

        A run goes on while the headers begin like the first one.  `moves` gets the real messages; it is yet empty.
        The half messages are in `queue` and in the log before `log_end`; `topic_field` is their topic as in a record.
        Open are those from `half_offset` on that are not in `done`.
        """
        cdef Py_ssize_t end = len(frames)
        if index < 0 or index >= end or max_ends <= 0:
            return None
        cdef HalfRecords records = HalfRecords(queue, self.reads.segment_at, self.reads.cold_end, log_end)
        cdef Ends ends = Ends(self, moves, records, min(end - index, max_ends))
        cdef FrameParts first, frame
        cdef dict plans = self.table.current()
        end = min(end, index + max_ends)
        if not find_frame(frames, index, &first):
            return None
        while index < end and find_frame(frames, index, &frame) and begins_alike(&first, &frame):
            if not self.read_one(ends, &frame, topic_field, half_offset, done, plans):
                return None
            index += 1
        return ends if ends.count else None

    cdef bint read_one(
        self, Ends ends, const FrameParts *frame, bytes topic_field, int64_t half_offset, set done, dict plans
    ) except -1:
        """Add one frame to `ends`; return False if it is for the handler."""
        cdef Header header
        if self.read_header(frame, &header) != WHOLE:
            return False
        cdef int64_t offset = header.numbers[ROLE_QUEUE_OFFSET]
        if offset < half_offset or offset in done or offset in ends.claimed:
            return False
        ends.claimed.add(offset)
        return ends.add(&header, frame.serialization, topic_field, plans)

    cdef Prepared plan(self, int64_t outcome, const Place *place, dict plans):
        """Return the plan of an end; make it if there is none."""
        cdef int64_t numbers[2]
        cdef bytes key = PyBytes_FromStringAndSize(NULL, sizeof(numbers) + place.topic_bytes)
        cdef char *to = PyBytes_AS_STRING(key)
        cdef Prepared plan
        numbers[0], numbers[1] = outcome, place.queue_id
        memcpy(to, numbers, sizeof(numbers))
        memcpy(to + sizeof(numbers), place.topic, place.topic_bytes)
        plan = plans.get(key)
        if plan is None:
            plan = Prepared(self.plan_of(outcome, key[sizeof(numbers):].decode("ascii"), place.queue_id))
            self.table.keep(key, plan)
        return plan


cdef bint begins_alike(const FrameParts *first, const FrameParts *other) noexcept:
    """Return whether two frames have headers whose first bytes name the same route."""
    cdef Py_ssize_t size = JSON_PREFIX_BYTES if first.serialization == SERIALIZATION_JSON else CODE_BYTES
    if first.serialization != other.serialization or first.header_bytes < size or other.header_bytes < size:
        return False
    return not memcmp(first.header, other.header, size)


cdef class Ends:
    """Ends of one read, in order: the real messages, what they end, and the responses."""

    cdef End *ends
    cdef list plans  # of each end
    cdef EndKernel kernel
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef set claimed
    cdef HalfRecords records
    cdef readonly Moves moves
    # Queue offsets of the half messages that are done.
    cdef readonly list offsets

    def __cinit__(self, EndKernel kernel, Moves moves not None, HalfRecords records not None, Py_ssize_t capacity):
        self.kernel, self.moves, self.records, self.capacity = kernel, moves, records, capacity
        self.claimed, self.plans, self.offsets = set(), [], []
        self.ends = <End *> malloc(max(1, capacity) * sizeof(End))
        if self.ends == NULL:
            raise MemoryError
        # The moves are bytes in the memory of the records.
        moves.kept.append(records.kept)

    def __dealloc__(self):
        free(self.ends)

    def __len__(self):
        return self.count

    cdef bint add(self, const Header *header, int serialization, bytes topic_field, dict plans) except -1:
        """Take one end; return False if it is for the handler."""
        cdef End *end = &self.ends[self.count]
        cdef Place place
        cdef Prepared plan
        cdef Move *move
        if self.count >= self.capacity:
            return False
        move = self.half(header, topic_field, &place)
        if move == NULL:
            return False
        plan = self.kernel.plan(header.numbers[ROLE_OUTCOME], &place, plans)
        if not plan.is_for_kernel or plan.is_commit and not self.moves.take_for(move, &place, plan.queue):
            return False
        end.born_timestamp, end.is_oneway = move.head.born_timestamp, header.is_oneway
        end.opaque, end.serialization = <int32_t> header.opaque, serialization
        self.plans.append(plan)
        self.offsets.append(header.numbers[ROLE_QUEUE_OFFSET])
        self.count += 1
        return True

    cdef Move *half(self, const Header *header, bytes topic_field, Place *place) except? NULL:
        """Read the half message of an end as a real message; NULL if the handler must read it, or it is another."""
        cdef int64_t offset = header.numbers[ROLE_QUEUE_OFFSET], physical = header.numbers[ROLE_PHYSICAL_OFFSET]
        cdef const Text *group = &header.texts[ROLE_GROUP]
        cdef Py_ssize_t size = 0
        cdef const uint8_t *record = self.records.record(offset, physical, &size)
        cdef Move *move
        if record == NULL:
            return NULL
        move = self.moves.read(record, size, topic_field, place)
        if move == NULL or place.group == NULL or not is_ascii(place.topic, place.topic_bytes):
            return NULL
        if place.group_bytes != group.size or memcmp(place.group, group.at, group.size):
            return NULL
        if move.head.queue_id or move.head.queue_offset != offset or move.head.physical_offset != physical:
            return NULL
        move.head.sys_flag &= ~TRANSACTION_MASK
        if move.head.sys_flag & ~self.moves.plain_flags:
            return NULL
        move.head.sys_flag |= TRANSACTION_COMMIT
        move.head.prepared_transaction_offset = physical
        return move

    def topics(self):
        """Return the real topic of each end."""
        return [(<Prepared> plan).topic for plan in self.plans]

    def by_topic(self):
        """Return for each real topic the born timestamps of what is committed, and how many ends roll back."""
        cdef dict found = {}
        cdef Prepared plan
        cdef Py_ssize_t i
        for i in range(self.count):
            plan = self.plans[i]
            entry = found.get(plan.topic)
            if entry is None:
                entry = found[plan.topic] = [[], 0]
            if plan.is_commit:
                (<list> (<list> entry)[0]).append(self.ends[i].born_timestamp)
            else:
                entry[1] += 1
        return found

    def waiting(self):
        """Return how many ends want a response."""
        cdef Py_ssize_t i, count = 0
        for i in range(self.count):
            count += not self.ends[i].is_oneway
        return count

    def responses(self):
        """Return the responses, in order."""
        cdef Value values[1]
        cdef Py_ssize_t i
        cdef ResponseEncoder encoder = self.kernel.encoder
        cdef bytes frames = PyBytes_FromStringAndSize(NULL, self.waiting() * encoder.fixed_bytes)
        cdef uint8_t *begin = <uint8_t *> PyBytes_AS_STRING(frames)
        cdef uint8_t *to = begin
        for i in range(self.count):
            if not self.ends[i].is_oneway:
                to = encoder.put(to, self.ends[i].serialization, self.ends[i].opaque, values, 0)
        return frames[:to - begin]
