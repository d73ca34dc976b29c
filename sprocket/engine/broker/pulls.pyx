# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled path of usual pulls: from the frames of a read to the frames of the responses, records included.

Its twin is the Python path (`broker/processor/pull.py`, `store/queue/queue_reader.py`).  Nothing is refused here:
`PullReader.read` stops before the first pull that is unusual, and the Python path serves that one.  So it accepts only
pulls about which both could not differ.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE, _PyBytes_Resize,
)
from cpython.ref cimport PyObject, Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from sprocket.engine.remoting.header_reader import BOOL, INT, LONG, TEXT  # for callers

from sprocket.engine.broker.chosen_records cimport (
    Found, Limits, MAX_TAG_CODES, TagCodes, choose, entries_at, measure, put_records, set_codes, set_limits,
)
from sprocket.engine.remoting.framing cimport ResponseEncoder, Value, put_decimal
from sprocket.engine.remoting.header_reader cimport Header, HeaderReader, USUAL, text_of, texts_key
from sprocket.engine.store.layout cimport QueueEntry, from_big64
from sprocket.engine.remoting.read_frames cimport FrameParts, find_frame
from sprocket.engine.remoting.signatures cimport Proof

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
    PERM_READ = 4
    RESPONSE_VALUES = 6
    MAX_HEAD_BYTES = 2048 + RESPONSE_VALUES * 20
    # Kinds of pulls that are remembered; then all are forgotten.
    MAX_LANES = 4096

MAX_CODES = MAX_TAG_CODES
_ROLES = {
    "consumer_group": ROLE_GROUP, "topic": ROLE_TOPIC, "queue_id": ROLE_QUEUE_ID, "queue_offset": ROLE_QUEUE_OFFSET,
    "max_msg_nums": ROLE_MAX_MESSAGES, "sys_flag": ROLE_SYS_FLAG, "commit_offset": ROLE_COMMIT_OFFSET,
    "subscription": ROLE_SUBSCRIPTION, "sub_version": ROLE_SUB_VERSION, "expression_type": ROLE_EXPRESSION_TYPE,
    "max_msg_bytes": ROLE_MAX_BYTES, "request_source": ROLE_REQUEST_SOURCE,
}
cdef str BROADCASTING = "BROADCASTING"
# The texts that tell lanes apart: the last two only if a pull has its own subscription.
cdef int KEY_ROLES[4]
KEY_ROLES[:] = [ROLE_GROUP, ROLE_TOPIC, ROLE_SUBSCRIPTION, ROLE_EXPRESSION_TYPE]


cdef class PullLane:
    """What the pulls of one group from one queue with one subscription have in common, as long as nothing changes."""

    cdef readonly str group
    cdef readonly str topic
    cdef readonly int queue_id
    cdef object group_config
    cdef object topic_config
    cdef object subscription  # of heartbeats; None if each pull has its own
    cdef object queue
    cdef int64_t sub_version
    cdef int64_t broker_id
    cdef int64_t topic_flags
    cdef int64_t group_flags
    cdef TagCodes tags

    def __init__(self, group_config, topic_config, int queue_id, queue, subscription, codes, int64_t broker_id):
        """`codes` are hash codes of tags, None for all messages; `broker_id` is the one to pull from next."""
        self.group, self.topic, self.queue_id = group_config.group_name, topic_config.topic_name, queue_id
        self.group_config, self.topic_config, self.queue = group_config, topic_config, queue
        self.subscription = subscription
        self.sub_version = 0 if subscription is None else subscription.sub_version
        self.broker_id = broker_id
        self.topic_flags, self.group_flags = topic_config.topic_sys_flag, group_config.group_sys_flag
        set_codes(&self.tags, codes)


cdef class Frames:
    """The responses to one read, in one buffer."""

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


cdef class PullReader(HeaderReader):
    """Reader of the usual pulls of one request code, for one configuration of a broker."""

    cdef ResponseEncoder encoder
    cdef object lane_of
    cdef object group_of
    cdef object topic_of
    cdef object connected_of
    cdef object forbidden_of
    cdef object queue_of
    cdef object segment_at
    cdef dict lanes
    cdef Found found
    cdef Py_ssize_t followers  # pulls of the read after this one
    cdef int64_t read_bytes

    def __init__(self, int code, tuple fields, ResponseEncoder encoder not None, lane_of, group_of, topic_of,
                 connected_of, forbidden_of, queue_of, segment_at):
        """`fields` are those of `framing.HeaderDecoder`, `encoder` that of the response with found messages.

        `lane_of` returns the `PullLane` for (group, topic, queue id, subscription, type of its expression, whether the
        pull has its own), None if that is unusual.  The others return what there is now: `group_of` and `topic_of` the
        configuration, `connected_of` a group's members, `forbidden_of` the permissions that a group does not have for a
        topic, `queue_of` the queue, `segment_at` the log's segment at an offset with its begin and end.
        """
        super().__init__(code, fields, _ROLES)
        if encoder.count != RESPONSE_VALUES:
            raise ValueError(f"the response to a pull has {RESPONSE_VALUES} values")
        self.encoder, self.lane_of, self.group_of, self.topic_of = encoder, lane_of, group_of, topic_of
        self.connected_of, self.forbidden_of, self.queue_of = connected_of, forbidden_of, queue_of
        self.segment_at = segment_at
        self.lanes = {}

    def read(self, frames, Py_ssize_t index, tuple limits, int64_t join_bytes, int64_t read_bytes,
             Proof proof=None):
        """Return the responses to the usual pulls from `index` on, and what is to be noted for each.

        That is a tuple: lane, next offset, offset to commit or None, messages, their bytes.  `limits` are those of
        `store.queue.usual_reads`.  It stops after `read_bytes` of records; a response of more than `join_bytes` is
        unusual.  With `proof`, a pull that does not prove it is unusual.
        """
        cdef Limits bounds
        cdef Frames responses = Frames()
        cdef list notes = []
        cdef int64_t size_bytes = 0
        cdef Py_ssize_t count = len(frames)
        set_limits(&bounds, limits)
        self.read_bytes = read_bytes
        cdef FrameParts frame
        while size_bytes < read_bytes and find_frame(frames, index, &frame):
            self.followers = count - index - 1
            note = self.serve(&frame, &bounds, join_bytes, responses, proof)
            if note is None:
                break
            notes.append(note)
            size_bytes += self.found.size_bytes
            index += 1
        return responses.whole(), notes

    cdef tuple serve(self, const FrameParts *frame, const Limits *limits, int64_t join_bytes, Frames responses, Proof proof):
        """Append the response to one pull; return its note, None if it is unusual."""
        cdef Header header
        cdef PullLane lane
        cdef int64_t offset, next_offset, max_bytes
        header.numbers[ROLE_MAX_BYTES], header.numbers[ROLE_REQUEST_SOURCE] = 0, -1
        header.texts[ROLE_SUBSCRIPTION].at = header.texts[ROLE_EXPRESSION_TYPE].at = NULL
        if self.read_header(frame, &header) != USUAL:
            return None
        if proof is not None and not self.is_proved(&header, frame, proof):
            return None
        if header.numbers[ROLE_REQUEST_SOURCE] >= 0 or header.numbers[ROLE_MAX_MESSAGES] <= 0:
            return None
        lane = self.current_lane(&header)
        if lane is None:
            return None
        offset, max_bytes = header.numbers[ROLE_QUEUE_OFFSET], header.numbers[ROLE_MAX_BYTES]
        if not self.respond(lane, &header, frame.serialization, limits, min(
                join_bytes, limits.max_bytes, max_bytes if max_bytes > 0 else join_bytes), responses):
            return None
        next_offset = offset + self.found.scanned
        commit = header.numbers[ROLE_COMMIT_OFFSET] if header.numbers[ROLE_SYS_FLAG] & FLAG_COMMIT_OFFSET else None
        return lane, next_offset, commit, self.found.count, self.found.size_bytes

    cdef bint is_proved(self, const Header *header, const FrameParts *frame, Proof proof) except -1:
        """Return whether `proof` covers topic and group, and its account has signed the header and the body."""
        if not proof.covers_texts(&header.texts[ROLE_TOPIC], &header.texts[ROLE_GROUP]):
            return False
        return self.is_signed(header, proof.key, frame.body, frame.body_bytes)

    # Who pulls, and from where

    cdef PullLane current_lane(self, const Header *header):
        """Return the lane of a pull, after all checks of the Python path; None if it is unusual."""
        cdef bint has_own = header.numbers[ROLE_SYS_FLAG] & FLAG_SUBSCRIPTION
        cdef bytes key = texts_key(header, KEY_ROLES, 4 if has_own else 2, header.numbers[ROLE_QUEUE_ID])
        cdef PullLane lane = self.lanes.get(key)
        if lane is None or not self.is_current(lane):
            lane = self.lane_of(
                text_of(&header.texts[ROLE_GROUP]), text_of(&header.texts[ROLE_TOPIC]), header.numbers[ROLE_QUEUE_ID],
                text_of(&header.texts[ROLE_SUBSCRIPTION]), text_of(&header.texts[ROLE_EXPRESSION_TYPE]), has_own,
            )
            if len(self.lanes) >= MAX_LANES:
                self.lanes.clear()
            if lane is None or not self.is_current(lane):
                self.lanes.pop(key, None)
                return None
            self.lanes[key] = lane
        return lane if lane.subscription is None or lane.sub_version >= header.numbers[ROLE_SUB_VERSION] else None

    cdef bint is_current(self, PullLane lane) except -1:
        """Return whether nothing has changed of what the lane was made from, and the group may read now."""
        if self.group_of(lane.group) is not lane.group_config or self.topic_of(lane.topic) is not lane.topic_config:
            return False
        if self.queue_of(lane.topic, lane.queue_id) is not lane.queue:
            return False
        connected = self.connected_of(lane.group)
        if connected is not None and connected.message_model == BROADCASTING:
            return False
        if lane.subscription is None:
            return True
        if connected is None or connected.subscriptions.get(lane.topic) is not lane.subscription:
            return False
        return not self.forbidden_of(lane.group, lane.topic) & PERM_READ

    # What there is to read

    cdef bint respond(self, PullLane lane, const Header *header, int serialization, const Limits *limits,
                      int64_t max_bytes, Frames responses) except -1:
        """Append the response to a pull, and note in `found` what it holds; return False if the pull is unusual."""
        cdef int64_t offset = header.numbers[ROLE_QUEUE_OFFSET]
        cdef int64_t min_offset = lane.queue.min_offset, max_offset = lane.queue.max_offset
        cdef int64_t available
        cdef Py_buffer view
        entries = entries_at(lane.queue, offset, max_offset, &view, &available)
        if entries == NULL:
            return False
        try:
            if not choose(&self.found, &lane.tags, entries, available, header.numbers[ROLE_MAX_MESSAGES], limits):
                return False
            return self.add_records(
                lane, header, serialization, entries, limits, max_bytes, min_offset, max_offset, responses
            )
        finally:
            PyBuffer_Release(&view)

    cdef bint add_records(self, PullLane lane, const Header *header, int serialization, const QueueEntry *entries,
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
                lane, header, serialization, entries, <const uint8_t *> log.buf, base, min_offset, max_offset, responses
            )
            return True
        finally:
            PyBuffer_Release(&log)

    cdef int encode(self, PullLane lane, const Header *header, int serialization, const QueueEntry *entries,
                    const uint8_t *log, int64_t base, int64_t min_offset, int64_t max_offset,
                    Frames responses) except -1:
        """Append a whole frame; `log` begins at the physical offset `base`."""
        cdef Value values[RESPONSE_VALUES]
        cdef uint8_t head[MAX_HEAD_BYTES]
        cdef Py_ssize_t head_bytes, size
        cdef uint8_t *to
        put_decimal(lane.broker_id, &values[0])
        put_decimal(header.numbers[ROLE_QUEUE_OFFSET] + self.found.scanned, &values[1])
        put_decimal(min_offset, &values[2])
        put_decimal(max_offset, &values[3])
        put_decimal(lane.topic_flags, &values[4])
        put_decimal(lane.group_flags, &values[5])
        to = self.encoder.put(head, serialization, <int32_t> header.opaque, values, self.found.size_bytes)
        head_bytes = to - head
        size = head_bytes + self.found.size_bytes
        # The pulls of a read mostly get as much as its first one.
        to = responses.room(size, min(max(responses.used, size * self.followers), self.read_bytes))
        memcpy(to, head, head_bytes)
        put_records(to + head_bytes, &self.found, entries, log, base)
        return 0
