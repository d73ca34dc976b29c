# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of the loop of `sprocket.client.pull.record_decoder`: the records of one pull, as messages.

It takes records with IPv4 hosts that are no batches.  It stops before all others, and before all that is damaged: the
Python code reads those, and says what is wrong.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memcmp, memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport (
    BORN_V6, FIXED_IPV4_BYTES, MAGIC_V1, MAGIC_V2, RecordFixed, RecordRestIpv4, STORE_V6,
    from_big16, from_big32, from_big64,
)
from sprocket.engine.remoting.slots cimport set_slot, slot_of

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t count)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    HOST_BYTES = 8
    # Inner batch and need to unwrap; `SysFlag`.
    INNER_FLAGS = 0xC0

assert sizeof(RecordFixed) + sizeof(RecordRestIpv4) == FIXED_IPV4_BYTES

# What the decoder knows of the layout; `sprocket.client.pull.record_decoder` compares it with its own.
LAYOUT = {"fixed_bytes": FIXED_IPV4_BYTES, "v6_flags": BORN_V6 | STORE_V6, "inner_flags": INNER_FLAGS}


# A record whose parts all lie within it.
cdef struct Found:
    const uint8_t *body
    Py_ssize_t body_bytes
    const uint8_t *topic
    Py_ssize_t topic_bytes
    const uint8_t *properties
    Py_ssize_t properties_bytes


# Where a message holds its attributes.
cdef struct Places:
    Py_ssize_t topic, queue, queue_offset, physical_offset, body, raw_properties, properties, flag, sys_flag
    Py_ssize_t born_timestamp_ms, born_host, store_timestamp_ms, store_host, reconsume_times, size_bytes, source
    Py_ssize_t taken_at


cdef class RecordDecoder:
    """Decoder of records into `ReceivedMessage`, which it makes by writing the slots."""

    cdef PyTypeObject *message_type
    cdef object keeps  # the type
    cdef Places places
    cdef object never  # value of `taken_at`
    cdef bytes born_host  # of the record before: most have the same
    cdef bytes store_host

    def __init__(self, object message_type not None):
        known = (
            "topic", "queue", "queue_offset", "physical_offset", "_body", "_raw_properties", "_properties", "flag",
            "sys_flag", "born_timestamp_ms", "_born_host", "store_timestamp_ms", "_store_host", "reconsume_times",
            "size_bytes", "source", "taken_at",
        )
        if not isinstance(message_type, type) or set(known) != set(message_type.__slots__):
            raise ValueError(f"{message_type} has other attributes than the compiled decoder sets: {known}")
        found = [slot_of(message_type.__dict__[name]) for name in known]
        if min(found) <= 0:
            raise ValueError(f"{message_type}: an attribute is no slot")
        # In the order of `known`.
        self.places = Places(
            found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7], found[8], found[9],
            found[10], found[11], found[12], found[13], found[14], found[15], found[16],
        )
        self.keeps, self.message_type = message_type, <PyTypeObject *> message_type
        self.never = 0.0
        self.born_host = self.store_host = b""

    def run(self, bytes data not None, Py_ssize_t at, queue, str topic not None, int64_t offset_delta,
            list messages not None):
        """Append the messages of `data` from `at` on; return the position of the first unusual record, or the end.

        They lie in `queue`, whose topic is `topic`; `offset_delta` is added to their queue offsets.
        """
        cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
        cdef bytes name = topic.encode()
        cdef const RecordFixed *fixed
        cdef Found found
        while 0 <= at < end:
            if not is_usual(octets + at, end - at, &found):
                break
            # An empty one stands for the queue's.
            if found.topic_bytes and (found.topic_bytes != PyBytes_GET_SIZE(name) or memcmp(
                found.topic, PyBytes_AS_STRING(name), found.topic_bytes
            )):
                break
            fixed = <const RecordFixed *> (octets + at)
            messages.append(self.message(fixed, &found, queue, topic, offset_delta))
            at += from_big32(fixed.total_size)
        return at

    cdef object message(self, const RecordFixed *fixed, const Found *found, queue, str topic, int64_t offset_delta):
        cdef const RecordRestIpv4 *rest = rest_of(fixed)
        cdef const Places *places = &self.places
        cdef object made = PyType_GenericAlloc(self.message_type, 0)
        if memcmp_bytes(self.born_host, rest.born_host):
            self.born_host = PyBytes_FromStringAndSize(<const char *> rest.born_host, HOST_BYTES)
        if memcmp_bytes(self.store_host, rest.store_host):
            self.store_host = PyBytes_FromStringAndSize(<const char *> rest.store_host, HOST_BYTES)
        put(made, places.topic, topic)
        put(made, places.queue, queue)
        put(made, places.queue_offset, <int64_t> from_big64(fixed.queue_offset) + offset_delta)
        put(made, places.physical_offset, <int64_t> from_big64(fixed.physical_offset))
        put(made, places.body, PyBytes_FromStringAndSize(<const char *> found.body, found.body_bytes))
        put(made, places.raw_properties,
            PyBytes_FromStringAndSize(<const char *> found.properties, found.properties_bytes))
        put(made, places.properties, None)
        put(made, places.flag, from_big32(fixed.flag))
        put(made, places.sys_flag, from_big32(fixed.sys_flag))
        put(made, places.born_timestamp_ms, <int64_t> from_big64(fixed.born_timestamp))
        put(made, places.born_host, self.born_host)
        put(made, places.store_timestamp_ms, <int64_t> from_big64(rest.store_timestamp))
        put(made, places.store_host, self.store_host)
        put(made, places.reconsume_times, from_big32(rest.reconsume_times))
        put(made, places.size_bytes, from_big32(fixed.total_size))
        put(made, places.source, None)
        put(made, places.taken_at, self.never)
        return made


cdef inline void put(object made, Py_ssize_t place, object value) noexcept:
    Py_INCREF(value)
    set_slot(<PyObject *> made, place, <PyObject *> value)


cdef inline bint memcmp_bytes(bytes kept, const uint8_t *host) noexcept:
    """Return whether a host is another than the kept one."""
    return PyBytes_GET_SIZE(kept) != HOST_BYTES or memcmp(PyBytes_AS_STRING(kept), host, HOST_BYTES) != 0


cdef inline const RecordRestIpv4 *rest_of(const RecordFixed *fixed) noexcept nogil:
    return <const RecordRestIpv4 *> (<const uint8_t *> fixed + sizeof(RecordFixed))


cdef bint is_usual(const uint8_t *record, Py_ssize_t left, Found *found) noexcept nogil:
    """Find the parts of the record that begins at `record`; return False if one leaves the record or the `left` bytes."""
    cdef const RecordFixed *fixed = <const RecordFixed *> record
    cdef int64_t size, at, body_bytes, queue_offset
    cdef int32_t magic, sys_flag
    cdef uint16_t properties_bytes
    if left < FIXED_IPV4_BYTES:
        return False
    size, magic, sys_flag = from_big32(fixed.total_size), from_big32(fixed.magic), from_big32(fixed.sys_flag)
    body_bytes, queue_offset = from_big32(rest_of(fixed).body_bytes), from_big64(fixed.queue_offset)
    if sys_flag & (BORN_V6 | STORE_V6) or sys_flag & INNER_FLAGS == INNER_FLAGS or size > left or body_bytes < 0:
        return False
    # A sum with the delta must fit 64 bits.
    if not -(<int64_t> 1 << 61) < queue_offset < (<int64_t> 1 << 61):
        return False
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    # Position of the topic, after its length of one or two bytes.
    at = FIXED_IPV4_BYTES + body_bytes + (1 if magic == MAGIC_V1 else 2)
    if at + 2 > size:
        return False
    found.body, found.body_bytes = record + FIXED_IPV4_BYTES, body_bytes
    found.topic = record + at
    found.topic_bytes = record[at - 1] if magic == MAGIC_V1 else (record[at - 2] << 8 | record[at - 1])
    at += found.topic_bytes + 2
    if at > size:
        return False
    memcpy(&properties_bytes, record + at - 2, 2)
    if at + from_big16(properties_bytes) > size:
        return False
    # As the Python code: all up to the record's end.
    found.properties, found.properties_bytes = record + at, size - at
    return True
