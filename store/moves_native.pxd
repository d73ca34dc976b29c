# Records that go on to their real topic, for the kernel of ends of transactions.

from libc.stdint cimport int32_t, int64_t, uint8_t

from sprocket.engine.store.layout cimport QueueEntry, TimerUnit
from sprocket.engine.store.record_writer cimport RecordHead

cdef enum:
    MAX_TARGETS = 64


# The properties of a stored record that say where its message goes, without those that say more than that.
cdef struct Place:
    const uint8_t *topic
    Py_ssize_t topic_bytes
    const uint8_t *group
    Py_ssize_t group_bytes
    const uint8_t *tag
    Py_ssize_t tag_bytes
    int64_t queue_id
    int64_t out_ms  # slot of a timed message; -1 without one


# One new record.  Its bytes lie in the stored one.
cdef struct Move:
    RecordHead head
    const uint8_t *body
    const uint8_t *properties
    Py_ssize_t properties_bytes
    int64_t tags_code
    int64_t enqueue_ms  # of a timed message; -1 for any other
    int64_t dequeue_ms
    int target


# One queue that gets records.
cdef struct Target:
    const uint8_t *name
    Py_ssize_t name_bytes
    const uint8_t *topic_bytes  # with their length, as in a record
    Py_ssize_t topic_size
    int32_t magic
    int64_t queue_id
    int64_t next_offset
    Py_ssize_t count
    QueueEntry *entries


cdef class Moves:
    cdef Move *moves
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef Target targets[MAX_TARGETS]
    cdef int target_count
    cdef list queues  # of the targets
    cdef list names  # of the targets: str
    cdef list kept  # keeps the memory of what the moves and targets point to
    cdef int64_t plain_flags
    cdef int64_t room_bytes
    cdef int64_t max_record_bytes
    cdef object queue_of
    cdef readonly int64_t size_bytes

    cdef Move *read(self, const uint8_t *record, Py_ssize_t size, bytes topic_field, Place *place) except? NULL
    cdef bint take_for(self, Move *move, const Place *place, queue) except -1
    cdef Move *next_move(self) except NULL
    cdef int take_unit(self, const TimerUnit *unit, const uint8_t *log, int64_t base, int64_t end, bytes topic_field,
                       int64_t slot_ms, int64_t width_ms, int64_t now_ms) except -2
    cdef bint fits(self, Move *move) noexcept
    cdef Py_ssize_t stored_bytes(self, const Move *move) noexcept nogil
    cdef int target_at(self, const Place *place) except -2
    cdef int target_of(self, queue) except -2
    cdef int add_target(self, queue) except -2
    cdef uint8_t *write_record(self, uint8_t *to, Move *move) noexcept nogil
