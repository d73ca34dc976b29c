# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of what our client does for each plain send: its id, its request, its encoded header, its start.

It takes what is usual.  For anything else it returns None, and the Python code decides: it alone says what is wrong.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject, Py_TYPE
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memchr, memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport from_big32

cdef extern from *:
    """

    #include "structmember.h"

    /* Where an instance of a slotted class holds the attribute that `descriptor` reads; -1 if it is no such slot. */
    static Py_ssize_t place_of(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type))
            return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    /* The attribute of an instance, which keeps its reference; NULL if it was deleted. */
    static inline PyObject *get_place(PyObject *instance, Py_ssize_t offset) {
        return *(PyObject **)((char *)instance + offset);
    }
    /* Give a new instance an attribute, and take over a reference to `value`. */
    static inline void set_place(PyObject *instance, Py_ssize_t offset, PyObject *value) {
        *(PyObject **)((char *)instance + offset) = value;
    }
    """
    Py_ssize_t place_of(object descriptor)
    PyObject *get_place(PyObject *instance, Py_ssize_t offset)
    void set_place(PyObject *instance, Py_ssize_t offset, PyObject *value)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    Py_ssize_t PyList_GET_SIZE(object items)
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t index)
    object PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t count)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    PREFIX_BYTES = 8
    # Fixed texts of a header: before, between and after five values.
    TEXTS = 6
    # Of one byte of text: \u00XX.
    MAX_ESCAPE_BYTES = 6
    # A longer header is left to the Python code.
    MAX_TEXT_BYTES = 1 << 20
    # Of a text that becomes one property; longer ones are left to the Python code.
    MAX_PROPERTY_CHARS = 4096

cdef const char *HEX = b"0123456789abcdef"
cdef const char *UPPER_HEX = b"0123456789ABCDEF"


# What a byte below 0x80 becomes in a JSON string: itself for 0, \u00XX for 1, else a backslash and this letter.
cdef uint8_t ESCAPES[256]
for number in range(256):
    ESCAPES[number] = 1 if number < 0x20 else 0
ESCAPES[c'"'], ESCAPES[c'\\'] = c'"', c'\\'
ESCAPES[8], ESCAPES[9], ESCAPES[10], ESCAPES[12], ESCAPES[13] = c'b', c't', c'n', c'f', c'r'


cdef class SendHeader:
    """Encoder of a header from its fixed texts: see `sprocket.client.send.send_header`."""

    cdef tuple texts
    cdef Py_ssize_t fixed_bytes

    def __init__(self, tuple texts not None):
        if len(texts) != TEXTS:
            raise ValueError(f"a header has {TEXTS} fixed texts, not {len(texts)}")
        if not all([type(text) is bytes for text in texts]):
            raise TypeError("the fixed texts of a header are bytes")
        self.texts = texts
        self.fixed_bytes = PREFIX_BYTES + sum([len(text) for text in texts])

    def prefix(self, int32_t opaque, int32_t sys_flag, int64_t born_ms, int32_t flag, str properties not None,
               int32_t body_bytes):
        """Return everything before the body; None if it must be encoded in Python."""
        return self.encoded(opaque, sys_flag, born_ms, flag, properties, body_bytes)

    cdef object encoded(self, int32_t opaque, int32_t sys_flag, int64_t born_ms, int32_t flag, str properties,
                        int32_t body_bytes):
        cdef Py_ssize_t size = 0, text_bytes, number_bytes
        cdef const uint8_t *text = <const uint8_t *> PyUnicode_AsUTF8AndSize(properties, &size)
        cdef bytes frame
        cdef uint8_t *begin
        cdef uint8_t *to
        if size > MAX_TEXT_BYTES or body_bytes < 0:
            return None
        text_bytes = escaped_bytes(text, size)
        number_bytes = digits_of(sys_flag) + digits_of(born_ms) + digits_of(flag) + digits_of(opaque)
        frame = PyBytes_FromStringAndSize(NULL, self.fixed_bytes + number_bytes + text_bytes + 2)
        begin = to = <uint8_t *> PyBytes_AS_STRING(frame)
        put_int32(to, <int32_t> (PyBytes_GET_SIZE(frame) - 4 + body_bytes))
        put_int32(to + 4, <int32_t> (PyBytes_GET_SIZE(frame) - PREFIX_BYTES))
        to = put_decimal(put_object(to + PREFIX_BYTES, <bytes> self.texts[0]), sys_flag)
        to = put_decimal(put_object(to, <bytes> self.texts[1]), born_ms)
        to = put_decimal(put_object(to, <bytes> self.texts[2]), flag)
        to = put_text(put_object(to, <bytes> self.texts[3]), text, size, text_bytes)
        to = put_decimal(put_object(to, <bytes> self.texts[4]), opaque)
        to = put_object(to, <bytes> self.texts[5])
        if to - begin != PyBytes_GET_SIZE(frame):
            raise AssertionError("the size of a header was computed wrong")
        return frame


cdef inline void put_int32(uint8_t *to, int32_t value) noexcept nogil:
    value = from_big32(value)
    memcpy(to, &value, 4)


cdef inline uint8_t *put_object(uint8_t *to, bytes octets) noexcept:
    memcpy(to, PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets))
    return to + PyBytes_GET_SIZE(octets)


cdef inline int digits_of(int64_t value) noexcept nogil:
    """Return the number of characters of `value` in decimal."""
    cdef uint64_t rest = <uint64_t> value if value >= 0 else 0 - <uint64_t> value
    cdef int count = 1 if value >= 0 else 2
    while rest >= 10:
        rest //= 10
        count += 1
    return count


cdef inline uint8_t *put_decimal(uint8_t *to, int64_t value) noexcept nogil:
    cdef uint64_t rest = <uint64_t> value if value >= 0 else 0 - <uint64_t> value
    cdef uint8_t *end = to + digits_of(value)
    cdef uint8_t *at = end
    if value < 0:
        to[0] = c'-'
    while True:
        at -= 1
        at[0] = c'0' + rest % 10
        rest //= 10
        if not rest:
            return end


cdef Py_ssize_t escaped_bytes(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    """Return the size of UTF-8 text inside a JSON string."""
    cdef Py_ssize_t i, found = size
    cdef uint8_t escape
    for i in range(size):
        escape = ESCAPES[text[i]]
        if escape:
            found += MAX_ESCAPE_BYTES - 1 if escape == 1 else 1
    return found


cdef uint8_t *put_text(uint8_t *to, const uint8_t *text, Py_ssize_t size, Py_ssize_t escaped) noexcept nogil:
    """Write UTF-8 text as a JSON string, whose inner size is `escaped`."""
    cdef Py_ssize_t i
    cdef uint8_t escape
    to[0] = c'"'
    to += 1
    if escaped == size:
        memcpy(to, text, size)
        to += size
    else:
        for i in range(size):
            escape = ESCAPES[text[i]]
            if not escape:
                to[0] = text[i]
                to += 1
            elif escape == 1:
                memcpy(to, b"\\u00", 4)
                to[4], to[5] = HEX[text[i] >> 4], HEX[text[i] & 15]
                to += MAX_ESCAPE_BYTES
            else:
                to[0], to[1] = c'\\', escape
                to += 2
    to[0] = c'"'
    return to + 1


# Where a message holds its attributes.
cdef struct MessagePlaces:
    Py_ssize_t body, delay_level, delay_ms, deliver_at_ms, flag, keys, lite_topic, priority, properties, tags, topic
    Py_ssize_t unique_key, wait_store_ok


# Where a request holds its attributes.
cdef struct RequestPlaces:
    Py_ssize_t body, code, flag, max_reconsume_times, message_id, properties, reconsume_times, sys_flag, topic


cdef list places_of(type known, tuple names):
    """Return where instances of `known` hold the attributes `names`, which are all that they have."""
    if set(names) != set(known.__slots__):
        raise ValueError(f"{known} has other attributes than the compiled code knows: {names}")
    found = [place_of(known.__dict__[name]) for name in names]
    if min(found) <= 0:
        raise ValueError(f"{known}: an attribute is no slot")
    return found


cdef class Preparer:
    """Maker of the requests of plain messages: the twin of `single_request`.  It reads and writes the slots."""

    cdef PyTypeObject *message_type
    cdef PyTypeObject *request_type
    cdef object keeps  # the types
    cdef MessagePlaces at
    cdef RequestPlaces to
    cdef object code
    cdef object zero
    cdef object true
    cdef Py_ssize_t max_body_bytes

    def __init__(self, type message_type not None, type request_type not None, code, Py_ssize_t max_body_bytes):
        """Bodies have less than `max_body_bytes`: larger ones are refused, or compressed."""
        found = places_of(message_type, (
            "body", "delay_level", "delay_ms", "deliver_at_ms", "flag", "keys", "lite_topic", "priority",
            "properties", "tags", "topic", "unique_key", "wait_store_ok",
        ))
        self.at = MessagePlaces(
            found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7], found[8], found[9],
            found[10], found[11], found[12],
        )
        found = places_of(request_type, (
            "body", "code", "flag", "max_reconsume_times", "message_id", "properties", "reconsume_times", "sys_flag",
            "topic",
        ))
        self.to = RequestPlaces(
            found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7], found[8],
        )
        self.keeps = message_type, request_type
        self.message_type, self.request_type = <PyTypeObject *> message_type, <PyTypeObject *> request_type
        self.code, self.zero, self.true = code, 0, True
        self.max_body_bytes = max_body_bytes

    def request(self, message, new_id not None):
        """Return the request of `message`; None if Python must make it.  `new_id` makes its id."""
        return self.made(message, new_id)

    cdef object made(self, message, new_id):
        cdef const MessagePlaces *at = &self.at
        cdef const RequestPlaces *to = &self.to
        cdef PyObject *source = <PyObject *> message
        cdef PyObject *zero = <PyObject *> self.zero
        cdef PyObject *none = <PyObject *> None
        cdef PyObject *body
        if Py_TYPE(message) != self.message_type:
            return None
        body = get_place(source, at.body)
        if body == NULL or not PyBytes_CheckExact(<object> body):
            return None
        if not 0 < PyBytes_GET_SIZE(<object> body) < self.max_body_bytes:
            return None
        if get_place(source, at.properties) != none or get_place(source, at.delay_ms) != none:
            return None
        if get_place(source, at.priority) != none or size_of_plain(get_place(source, at.lite_topic)) != 0:
            return None
        if get_place(source, at.deliver_at_ms) != none or get_place(source, at.delay_level) != zero:
            return None
        if get_place(source, at.flag) != zero or get_place(source, at.wait_store_ok) != <PyObject *> self.true:
            return None
        if get_place(source, at.topic) == NULL or size_of_plain(get_place(source, at.unique_key)) != 0:
            return None
        if size_of_plain(get_place(source, at.tags)) < 0 or size_of_plain(get_place(source, at.keys)) < 0:
            return None
        # `new_id` could change the message, if it were another function: from here on only these objects count.
        content, topic = <object> body, <object> get_place(source, at.topic)
        tags, keys = <object> get_place(source, at.tags), <object> get_place(source, at.keys)
        message_id = (<IdMaker> new_id).next() if type(new_id) is IdMaker else new_id()
        if size_of_plain(<PyObject *> message_id) <= 0:
            return None
        made = PyType_GenericAlloc(self.request_type, 0)
        put(made, to.topic, topic)
        put(made, to.body, content)
        put(made, to.properties, properties_text(message_id, tags, keys))
        put(made, to.message_id, message_id)
        put(made, to.flag, self.zero)
        put(made, to.sys_flag, self.zero)
        put(made, to.reconsume_times, self.zero)
        put(made, to.code, self.code)
        put(made, to.max_reconsume_times, None)
        return made


cdef class IdMaker:
    """Maker of message ids: the twin of the function in `sprocket.client.connection.unique_id`.

    `begin_of` returns all of an id up to its counter, given ms since the epoch.
    """

    cdef object begin_of
    cdef object wall_ms
    cdef object begin
    cdef int64_t made_ms  # time of the last id
    cdef uint16_t number  # of the next id; it wraps

    def __init__(self, begin_of not None, wall_ms not None):
        self.begin_of, self.wall_ms = begin_of, wall_ms
        self.begin, self.made_ms, self.number = "", -1, 0

    def __call__(self):
        return self.next()

    cdef object next(self):
        cdef int64_t now_ms = self.wall_ms()
        cdef uint16_t number = self.number
        cdef Py_ssize_t size
        cdef uint8_t *to
        if now_ms != self.made_ms:
            begin = self.begin_of(now_ms)
            if not PyUnicode_CheckExact(begin) or not PyUnicode_IS_ASCII(begin):
                raise TypeError("an id is made of ASCII digits")
            self.begin, self.made_ms = begin, now_ms
        self.number = number + 1
        size = PyUnicode_GET_LENGTH(self.begin)
        made = PyUnicode_New(size + 4, 127)
        to = put_ascii(<uint8_t *> PyUnicode_DATA(made), self.begin)
        to[0], to[1] = UPPER_HEX[number >> 12], UPPER_HEX[number >> 8 & 15]
        to[2], to[3] = UPPER_HEX[number >> 4 & 15], UPPER_HEX[number & 15]
        return made


cdef class Way:
    """The way to one queue: an open connection, and the encoder of the header."""

    cdef object queue
    cdef SendHeader header
    cdef object channel
    cdef object next_opaque
    cdef object request_encoded

    def __init__(self, queue not None, SendHeader header not None, channel not None):
        self.queue, self.header, self.channel = queue, header, channel
        self.next_opaque, self.request_encoded = channel.next_opaque, channel.request_encoded


cdef class Round:
    """The ways of a topic in the order of sends; right as long as the instance has this `route_changes`."""

    cdef list ways
    cdef object changes


# Where an attempt holds its attributes.
cdef struct AttemptPlaces:
    Py_ssize_t awaited, outcome, queue, request, started


cdef class Starter:
    """Start of plain sends to the next queue: the twin of `Producer._prepare` and `Sender.start` together.

    It takes a message if the ways of its topic were given with `keep`, and if they are all still right.
    """

    cdef Preparer preparer
    cdef PyTypeObject *attempt_type
    cdef object keeps  # the type
    cdef AttemptPlaces to
    cdef object instance
    cdef object new_id
    cdef object monotonic
    cdef dict avoided  # brokers to avoid
    cdef dict positions  # of the next queue, by topic
    cdef dict rounds

    def __init__(self, Preparer preparer not None, type attempt_type not None, instance not None, new_id not None,
                 dict avoided not None, dict positions not None):
        """`avoided` and `positions` are shared with the Python path, and never replaced."""
        found = places_of(attempt_type, ("_awaited", "outcome", "queue", "request", "started"))
        self.to = AttemptPlaces(found[0], found[1], found[2], found[3], found[4])
        self.keeps, self.attempt_type = attempt_type, <PyTypeObject *> attempt_type
        self.preparer, self.instance, self.new_id = preparer, instance, new_id
        self.monotonic = instance.clock.monotonic
        self.avoided, self.positions, self.rounds = avoided, positions, {}

    def keep(self, str topic not None, changes, list ways not None):
        """Take messages of `topic` from now on; `ways` has queue, encoder and connection of each queue, in order."""
        cdef Round made = Round()
        made.ways = [Way(queue, header, channel) for queue, header, channel in ways]
        made.changes = changes
        self.rounds[topic] = made

    def forget(self):
        """Leave all messages to Python until `keep` is called."""
        self.rounds.clear()

    def start(self, message, timeout_s):
        """Write the request of `message`, and return its attempt; None if Python must do it, and nothing was done."""
        cdef Py_ssize_t index
        cdef PyObject *topic
        cdef Way way
        if Py_TYPE(message) != self.preparer.message_type or self.avoided:
            return None
        topic = get_place(<PyObject *> message, self.preparer.at.topic)
        if topic == NULL or not PyUnicode_CheckExact(<object> topic):
            return None
        name = <object> topic
        found = self.rounds.get(name)
        if found is None or (<Round> found).changes != self.instance.route_changes:
            return None
        position = self.positions.get(name)
        ways = (<Round> found).ways
        if position is None or not PyList_GET_SIZE(ways):
            return None
        index = position
        if index < 0:
            return None
        way = <Way> PyList_GET_ITEM(ways, index % PyList_GET_SIZE(ways))
        if way.channel.is_closed:
            return None
        request = self.preparer.made(message, self.new_id)
        if request is None:
            return None
        attempt = self.write(way, request, timeout_s)
        if attempt is not None:
            self.positions[name] = index + 1
        return attempt

    cdef object write(self, Way way, request, timeout_s):
        cdef PyObject *source = <PyObject *> request
        cdef const RequestPlaces *of = &self.preparer.to
        body, properties = <object> get_place(source, of.body), <object> get_place(source, of.properties)
        # The time of its id, if that is known, is the time of its birth.
        born_ms = (<IdMaker> self.new_id).made_ms if type(self.new_id) is IdMaker else self.instance.clock.wall_ms()
        opaque = way.next_opaque()
        prefix = way.header.encoded(opaque, 0, born_ms, 0, properties, PyBytes_GET_SIZE(body))
        if prefix is None:
            return None
        attempt = PyType_GenericAlloc(self.attempt_type, 0)
        put(attempt, self.to.awaited, None)
        put(attempt, self.to.outcome, None)
        put(attempt, self.to.queue, way.queue)
        put(attempt, self.to.request, request)
        put(attempt, self.to.started, self.monotonic())
        way.request_encoded(attempt, self.preparer.code, opaque, prefix, body, timeout_s)
        return attempt


cdef inline void put(object made, Py_ssize_t place, object value) noexcept:
    Py_INCREF(value)
    set_place(<PyObject *> made, place, <PyObject *> value)


cdef Py_ssize_t size_of_plain(PyObject *text) noexcept:
    """Return the size of a short ASCII text without the separators of properties; -1 for anything else."""
    cdef Py_ssize_t size
    if text == NULL or not PyUnicode_CheckExact(<object> text) or not PyUnicode_IS_ASCII(<object> text):
        return -1
    size = PyUnicode_GET_LENGTH(<object> text)
    if size > MAX_PROPERTY_CHARS or memchr(PyUnicode_DATA(<object> text), 1, size) != NULL:
        return -1
    return -1 if memchr(PyUnicode_DATA(<object> text), 2, size) != NULL else size


cdef object properties_text(message_id, tags, keys):
    """Return the encoded properties of a message."""
    cdef Py_ssize_t tags_size = PyUnicode_GET_LENGTH(tags), keys_size = PyUnicode_GET_LENGTH(keys)
    cdef Py_ssize_t size = 9 + PyUnicode_GET_LENGTH(message_id) + 11
    size += 6 + tags_size if tags_size else 0
    size += 6 + keys_size if keys_size else 0
    text = PyUnicode_New(size, 127)
    cdef uint8_t *to = <uint8_t *> PyUnicode_DATA(text)
    memcpy(to, b"UNIQ_KEY\x01", 9)
    to = put_ascii(to + 9, message_id)
    memcpy(to, b"\x02WAIT\x01true\x02", 11)
    to += 11
    if tags_size:
        memcpy(to, b"TAGS\x01", 5)
        to = put_ascii(to + 5, tags)
        to[0] = 2
        to += 1
    if keys_size:
        memcpy(to, b"KEYS\x01", 5)
        to = put_ascii(to + 5, keys)
        to[0] = 2
    return text


cdef inline uint8_t *put_ascii(uint8_t *to, text) noexcept:
    memcpy(to, PyUnicode_DATA(text), PyUnicode_GET_LENGTH(text))
    return to + PyUnicode_GET_LENGTH(text)
