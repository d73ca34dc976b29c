# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Kernel of pulls, compiled: from the frames of a turn to the frames of the responses, records included.

Its specification is `PullProcessor`.  What a plan says is in C values beside it, so that no pull runs Python code unless its
kind is new.
"""

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE, _PyBytes_Resize,
)
from cpython.ref cimport PyObject, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from sprocket.remoting.header_reader_native import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.broker.chosen_records cimport (
    Found, Limits, MAX_TAG_CODES, TagCodes, choose, entries_at, measure, put_records, set_codes, set_limits,
)
from sprocket.engine.broker.quota_levels cimport tokens_left
from sprocket.remoting.frames_native cimport ResponseEncoder, Value, put_decimal
from sprocket.remoting.header_reader_native cimport Header, HeaderReader, WHOLE, text_of, texts_key
from sprocket.engine.store.layout cimport QueueEntry, from_big64
from sprocket.remoting.read_frames_native cimport FrameParts, find_frame
from sprocket.remoting.signatures_native cimport Proof

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # What a field means to a pull.
    ROLE_GROUP = 1
    ROLE_TOPIC = 2
    ROLE_QUEUE_ID = 3
    ROLE_QUEUE_OFFSET = 4
    ROLE_MAX_MESSAGES = 5
    ROLE_SYS_FLAG = 6
    ROLE_COMMIT_OFFSET = 7
    ROLE_SUBSCRIPTION = 8
    ROLE_SUB_VERSION = 9
    ROLE_EXPRESSION_TYPE = 10
    ROLE_MAX_BYTES = 11
    ROLE_REQUEST_SOURCE = 12
    # `PullSysFlag`
    FLAG_COMMIT_OFFSET = 1
    FLAG_SUBSCRIPTION = 4
    RESPONSE_VALUES = 6
    MAX_HEAD_BYTES = 2048 + RESPONSE_VALUES * 20

MAX_CODES = MAX_TAG_CODES
_ROLES = {
    "consumer_group": ROLE_GROUP, "topic": ROLE_TOPIC, "queue_id": ROLE_QUEUE_ID, "queue_offset": ROLE_QUEUE_OFFSET,
    "max_msg_nums": ROLE_MAX_MESSAGES, "sys_flag": ROLE_SYS_FLAG, "commit_offset": ROLE_COMMIT_OFFSET,
    "subscription": ROLE_SUBSCRIPTION, "sub_version": ROLE_SUB_VERSION, "expression_type": ROLE_EXPRESSION_TYPE,
    "max_msg_bytes": ROLE_MAX_BYTES, "request_source": ROLE_REQUEST_SOURCE,
}
# The texts of a key: the last two only if a pull has its own subscription.
cdef int KEY_ROLES[4]
KEY_ROLES[:] = [ROLE_GROUP, ROLE_TOPIC, ROLE_SUBSCRIPTION, ROLE_EXPRESSION_TYPE]


cdef class Prepared:
    """A plan, with what the kernel reads of it as C values."""

    cdef readonly bint is_lasting
    cdef readonly bint is_for_kernel
    cdef object plan
    cdef object queue
    cdef int64_t sub_version  # of the pull that it was made for
    cdef int64_t broker_id
    cdef int64_t topic_flags
    cdef int64_t group_flags
    cdef TagCodes tags
    cdef tuple buckets

    def __init__(self, plan, int64_t sub_version):
        self.plan, self.sub_version = plan, sub_version
        self.is_lasting, self.is_for_kernel = plan.is_lasting, plan.is_for_kernel
        if self.is_for_kernel:
            self.queue, self.broker_id, self.topic_flags = plan.queue, plan.broker_id, plan.topic_flags
            self.group_flags, self.buckets = plan.group_config.group_sys_flag, plan.buckets
            set_codes(&self.tags, plan.codes)


cdef bint admits(tuple buckets) except -1:
    cdef array state
    cdef double now_s = buckets[0].now_s() if buckets else 0.0
    for bucket in buckets:
        state = bucket.state
        if not tokens_left(state.data.as_doubles, now_s):
            return False
    return True


cdef class Frames:
    """The responses of one turn, in one buffer."""

    def __dealloc__(self):
        Py_XDECREF(self.octets)

    cdef uint8_t *room(self, Py_ssize_t size_bytes, Py_ssize_t more_bytes) except NULL:
        """Return where the next frame of `size_bytes` begins.  Probably `more_bytes` follow it."""
        cdef Py_ssize_t end = self.used + size_bytes
        if self.octets == NULL:
            made = PyBytes_FromStringAndSize(NULL, end + more_bytes)
            Py_INCREF(made)
            self.octets = <PyObject *> made
        elif end > PyBytes_GET_SIZE(<object> self.octets):
            _PyBytes_Resize(&self.octets, end + more_bytes)
        self.used = end
        return <uint8_t *> PyBytes_AS_STRING(<object> self.octets) + end - size_bytes

    cdef bytes whole(self):
        """Return all frames; there are none afterwards."""
        if self.octets == NULL:
            return b""
        _PyBytes_Resize(&self.octets, self.used)
        found = <bytes> self.octets
        Py_XDECREF(self.octets)
        self.octets = NULL
        return found


cdef class PullKernel(HeaderReader):
    """Kernel of the pulls of one route."""

    cdef ResponseEncoder encoder
    cdef object plan_of
    cdef object table
    cdef object limits_of
    cdef object segment_at
    cdef Found found
    cdef Py_ssize_t followers  # pulls of the turn after this one
    cdef int64_t max_response_bytes
    cdef int64_t max_read_bytes

    def __init__(self, int code, tuple fields, ResponseEncoder encoder not None, plan_of, table, reads,
                 int64_t max_response_bytes, int64_t max_read_bytes):
        """`fields` are those of `framing.HeaderDecoder`, `encoder` that of the response with found messages.

        `plan_of` returns the plan of a `PullKey`, `table` is a `PlanTable` of this kernel, and `reads` are `KernelReads`.
        """
        super().__init__(code, fields, _ROLES)
        if encoder.count != RESPONSE_VALUES:
            raise ValueError(f"the response to a pull has {RESPONSE_VALUES} values")
        self.encoder, self.plan_of, self.table = encoder, plan_of, table
        self.limits_of, self.segment_at = reads.limits, reads.segment_at
        self.max_response_bytes, self.max_read_bytes = max_response_bytes, max_read_bytes

    def read(self, frames, Py_ssize_t index, Proof proof=None):
        """Serve pulls from `index` on, up to the first one for the handler: return responses and what is to be noted.

        With `proof`, a pull that does not prove it is for the handler.
        """
        cdef Limits bounds
        cdef Frames responses = Frames()
        cdef list notes = []
        cdef int64_t work_bytes = 0
        cdef Py_ssize_t count = len(frames)
        cdef dict plans = self.table.current()
        cdef FrameParts frame
        set_limits(&bounds, self.limits_of())
        while work_bytes < self.max_read_bytes and find_frame(frames, index, &frame):
            self.followers = count - index - 1
            note = self.serve(&frame, &bounds, plans, responses, proof)
            if note is None:
                break
            notes.append(note)
            work_bytes += self.found.size_bytes + self.found.scanned * <int64_t> sizeof(QueueEntry)
            index += 1
        return responses.whole(), notes

    cdef tuple serve(self, const FrameParts *frame, const Limits *limits, dict plans, Frames responses, Proof proof):
        """Append the response to one pull; return its note, None if it is for the handler."""
        cdef Header header
        cdef Prepared plan
        cdef int64_t max_bytes
        header.numbers[ROLE_MAX_BYTES], header.numbers[ROLE_REQUEST_SOURCE] = 0, -1
        header.texts[ROLE_SUBSCRIPTION].at = header.texts[ROLE_EXPRESSION_TYPE].at = NULL
        if self.read_header(frame, &header) != WHOLE:
            return None
        if not self.proves(&header, frame, proof, &header.texts[ROLE_TOPIC], &header.texts[ROLE_GROUP]):
            return None
        plan = self.plan(&header, plans)
        if not plan.is_for_kernel or header.numbers[ROLE_MAX_MESSAGES] <= 0:
            return None
        if plan.buckets and not admits(plan.buckets):
            return None
        max_bytes = min(self.max_response_bytes, limits.max_bytes)
        if header.numbers[ROLE_MAX_BYTES] > 0:
            max_bytes = min(max_bytes, header.numbers[ROLE_MAX_BYTES])
        if not self.respond(plan, &header, frame.serialization, limits, max_bytes, responses):
            return None
        commit = header.numbers[ROLE_COMMIT_OFFSET] if header.numbers[ROLE_SYS_FLAG] & FLAG_COMMIT_OFFSET else None
        next_offset = header.numbers[ROLE_QUEUE_OFFSET] + self.found.scanned
        return plan.plan, next_offset, commit, self.found.count, self.found.size_bytes

    cdef Prepared plan(self, const Header *header, dict plans):
        """Return the plan of a pull; make it if there is none."""
        cdef bint has_own = header.numbers[ROLE_SYS_FLAG] & FLAG_SUBSCRIPTION
        cdef bint is_proxied = header.numbers[ROLE_REQUEST_SOURCE] >= 0
        cdef int64_t sub_version = 0 if has_own else header.numbers[ROLE_SUB_VERSION]
        cdef int64_t queue_id = header.numbers[ROLE_QUEUE_ID]
        cdef bytes key = texts_key(header, KEY_ROLES, 4 if has_own else 2, queue_id * 2 + is_proxied)
        cdef Prepared plan = plans.get(key)
        if plan is None or plan.sub_version != sub_version:
            plan = Prepared(self.plan_of(
                self.code, text_of(&header.texts[ROLE_GROUP]), text_of(&header.texts[ROLE_TOPIC]), queue_id, has_own,
                text_of(&header.texts[ROLE_SUBSCRIPTION]) if has_own else None,
                text_of(&header.texts[ROLE_EXPRESSION_TYPE]) if has_own else None, sub_version, is_proxied,
            ), sub_version)
            self.table.keep(key, plan)
        return plan

    # What there is to read

    cdef bint respond(self, Prepared plan, const Header *header, int serialization, const Limits *limits,
                      int64_t max_bytes, Frames responses) except -1:
        """Append the response to a pull, and note in `found` what it holds; return False if the pull is for the handler."""
        cdef int64_t offset = header.numbers[ROLE_QUEUE_OFFSET]
        cdef int64_t min_offset = plan.queue.min_offset, max_offset = plan.queue.max_offset
        cdef int64_t available
        cdef Py_buffer view
        entries = entries_at(plan.queue, offset, max_offset, &view, &available)
        if entries == NULL:
            return False
        try:
            if not choose(&self.found, &plan.tags, entries, available, header.numbers[ROLE_MAX_MESSAGES], limits):
                return False
            return self.add_records(
                plan, header, serialization, entries, limits, max_bytes, min_offset, max_offset, responses
            )
        finally:
            PyBuffer_Release(&view)

    cdef bint add_records(self, Prepared plan, const Header *header, int serialization, const QueueEntry *entries,
                          const Limits *limits, int64_t max_bytes, int64_t min_offset, int64_t max_offset,
                          Frames responses) except -1:
        """Append the response with the chosen records; False unless all lie in one segment, in ascending order."""
        cdef Py_buffer log
        cdef int64_t first = from_big64(entries[self.found.chosen[0]].physical_offset), base, end
        if first < limits.cold_end:
            return False
        segment, base, end = <tuple> self.segment_at(first)
        end = min(end, limits.wrote_offset)
        PyObject_GetBuffer(segment, &log, PyBUF_SIMPLE)
        try:
            if base < 0 or end < base or end - base > log.len or not measure(
                    &self.found, entries, base, end, max_bytes):
                return False
            self.encode(
                plan, header, serialization, entries, <const uint8_t *> log.buf, base, min_offset, max_offset, responses
            )
            return True
        finally:
            PyBuffer_Release(&log)

    cdef int encode(self, Prepared plan, const Header *header, int serialization, const QueueEntry *entries,
                    const uint8_t *log, int64_t base, int64_t min_offset, int64_t max_offset,
                    Frames responses) except -1:
        """Append a whole frame; `log` begins at the physical offset `base`."""
        cdef Value values[RESPONSE_VALUES]
        cdef uint8_t head[MAX_HEAD_BYTES]
        cdef Py_ssize_t head_bytes, size
        cdef uint8_t *to
        put_decimal(plan.broker_id, &values[0])
        put_decimal(header.numbers[ROLE_QUEUE_OFFSET] + self.found.scanned, &values[1])
        put_decimal(min_offset, &values[2])
        put_decimal(max_offset, &values[3])
        put_decimal(plan.topic_flags, &values[4])
        put_decimal(plan.group_flags, &values[5])
        to = self.encoder.put(head, serialization, <int32_t> header.opaque, values, self.found.size_bytes)
        head_bytes = to - head
        size = head_bytes + self.found.size_bytes
        # The pulls of a turn mostly get as much as its first one.
        to = responses.room(size, min(max(responses.used, size * self.followers), self.max_read_bytes))
        memcpy(to, head, head_bytes)
        put_records(to + head_bytes, &self.found, entries, log, base)
        return 0
