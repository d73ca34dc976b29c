# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of the hot parts of `sprocket.remoting`: headers of requests and responses in their usual form.

Nothing is refused here.  What is unusual, wrong or incomplete is left to the Python code, message by message: it alone
decides what an error is.  So these functions accept only forms about which both could not differ.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.object cimport PyObject, PyTypeObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.store.layout cimport from_big16, from_big32
from sprocket.remoting.read_frames_native cimport PREFIX_BYTES
from sprocket.remoting.signatures_native cimport SigningKey, sha1_digest
from sprocket.engine.remoting.slots cimport SLOT, set_slot, slot_of
from sprocket.engine.remoting.wire_text cimport (
    Cursor, Text, int16_at, int32_at, is_int32, is_name, take, take_number, take_sized, take_text, unescaped,
)

cdef extern from "Python.h":
    PyObject *PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t count)
    PyObject *PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    PyObject *PyUnicode_DecodeUTF8(const char *octets, Py_ssize_t size, const char *errors)
    bint PyUnicode_IS_ASCII(PyObject *text)
    void *PyUnicode_DATA(PyObject *text)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *text)
    bint PyType_IS_GC(PyTypeObject *type)
    PyObject *PyLong_FromLongLong_ "PyLong_FromLongLong" (long long value)
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    void Py_INCREF_ "Py_INCREF" (PyObject *instance)
    void Py_DECREF_ "Py_DECREF" (PyObject *instance)
    void Py_XDECREF_ "Py_XDECREF" (PyObject *instance)

cdef extern from *:
    """
    static inline PyObject *shared(PyObject *value) {
        Py_INCREF(value);
        return value;
    }
    """
    PyObject *shared(PyObject *value)
    PyObject *PyTuple_GET_ITEM_ "PyTuple_GET_ITEM" (object items, Py_ssize_t index)
    PyObject *PyList_GET_ITEM_ "PyList_GET_ITEM" (object items, Py_ssize_t index)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # Kinds of header fields, by the type that a struct declares.
    KIND_TEXT = 0
    KIND_INT = 1
    KIND_LONG = 2
    KIND_BOOL = 3
    JSON = 0
    ROCKETMQ = 1
    FLAG_RESPONSE = 1
    MAX_FIELDS = 32
    # A longer text with escapes is left to the Python code.
    MAX_ESCAPED_BYTES = 4096
    # Equal texts of consecutive headers, such as the topic, become one object, up to this size.
    MAX_KEPT_BYTES = 64
    MAX_KEY_BYTES = 31
    BINARY_HEAD_BYTES = 21

TEXT, INT, LONG, BOOL = KIND_TEXT, KIND_INT, KIND_LONG, KIND_BOOL


cdef struct Field:
    const char *name
    Py_ssize_t name_bytes
    int kind
    bint may_be_null
    Py_ssize_t slot
    PyObject *default  # NULL: the field is required
    PyObject *latest  # the last short text, or NULL


# Fields of a request that are not in extFields.
cdef struct Envelope:
    int64_t code
    int64_t flag
    int64_t opaque
    int64_t version
    Text language
    bint has_language
    uint8_t language_code  # of a ROCKETMQ header


# Where a `Request` holds its attributes.
cdef struct RequestSlots:
    Py_ssize_t code
    Py_ssize_t header
    Py_ssize_t flag
    Py_ssize_t language
    Py_ssize_t opaque
    Py_ssize_t remark
    Py_ssize_t version
    Py_ssize_t body
    Py_ssize_t channel
    Py_ssize_t access
    Py_ssize_t serialization
    Py_ssize_t is_answered
    Py_ssize_t read_at


cdef PyObject *text_of(const uint8_t *octets, Py_ssize_t size, bint is_ascii):
    """Return a new str, or NULL without an error if `octets` are not UTF-8."""
    cdef PyObject *text
    if is_ascii and size:
        text = PyUnicode_New(size, 127)
        if text != NULL:
            memcpy(PyUnicode_DATA(text), octets, size)
    else:
        text = PyUnicode_DecodeUTF8(<const char *> octets, size, NULL)
    if text == NULL:
        PyErr_Clear()
    return text


cdef PyObject *text_object(const Text *text, PyObject **latest):
    """Return the str of a text, the one in `latest` if that is equal; NULL if it is unusual."""
    cdef uint8_t plain[MAX_ESCAPED_BYTES]
    cdef const uint8_t *octets = text.at
    cdef Py_ssize_t size = text.size
    cdef PyObject *made
    if text.has_escapes:
        if size > MAX_ESCAPED_BYTES:
            return NULL
        size = unescaped(text, plain)
        if size < 0:
            return NULL
        octets = plain
    if not text.is_ascii or size > MAX_KEPT_BYTES:
        return text_of(octets, size, text.is_ascii)
    if latest[0] != NULL and PyUnicode_GET_LENGTH(latest[0]) == size and not memcmp(
        PyUnicode_DATA(latest[0]), octets, size
    ):
        Py_INCREF_(latest[0])
        return latest[0]
    made = text_of(octets, size, True)
    if made != NULL:
        Py_XDECREF_(latest[0])
        Py_INCREF_(made)
        latest[0] = made
    return made


cdef PyObject *value_of(Field *field, const Text *text):
    """Return a field's value from its text; NULL if both decoders could differ about it."""
    cdef Cursor digits
    cdef int64_t number = 0
    # A lax decoder may take this word for no value.
    if field.may_be_null and text.size == 4 and (text.at[0] | 0x20) == c'n':
        return NULL
    if field.kind == KIND_TEXT:
        return text_object(text, &field.latest)
    if field.kind == KIND_BOOL:
        if is_name(text, b"true", 4):
            Py_INCREF_(Py_True)
            return Py_True
        if is_name(text, b"false", 5):
            Py_INCREF_(Py_False)
            return Py_False
        return NULL
    digits = Cursor(text.at, text.at + text.size)
    if not take_number(&digits, &number) or digits.at != digits.end:
        return NULL
    if field.kind == KIND_INT and not is_int32(number):
        return NULL
    return PyLong_FromLongLong_(number)


# What a header holds besides its fields if it is signed, and the texts of its fields as they were signed.
cdef struct SignedTexts:
    bint may_be_there
    bint has_account
    bint has_signature
    Text account
    Text signature
    bint has[MAX_FIELDS]
    Text texts[MAX_FIELDS]


cdef class HeaderDecoder:
    """Decoder of the requests of one code: both serializations, in their usual form, into `Request` and its header.

    It makes the objects as msgspec would, by writing their slots: a call with a keyword for each field takes longer
    than everything else.
    """

    cdef Field fields[MAX_FIELDS]
    cdef int count
    cdef object names  # keeps the memory of the fields' names
    cdef object languages
    cdef PyTypeObject *request_type
    cdef PyTypeObject *header_type
    cdef object types  # keeps both
    cdef RequestSlots slots
    cdef int64_t code
    cdef object code_object
    cdef object never  # value of `read_at` before an answer waits
    cdef PyObject *latest_language
    cdef SignedTexts signed  # of the header that is read now
    cdef int order[MAX_FIELDS + 1]  # of the fields in a signature: indexes, and -1 for the account

    def __init__(self, object request_type, object header_type, int code, tuple fields, tuple languages):
        """`fields` are tuples: attribute, name on the wire, kind, whether it may be null, and a tuple of its default.

        The last is empty for a required field.  `languages` are the names of the 256 language codes.
        """
        if not isinstance(request_type, type) or not isinstance(header_type, type):
            raise TypeError("the types of a decoder are classes")
        if len(fields) > MAX_FIELDS or len(languages) != 256:
            raise ValueError(f"{header_type.__name__}: {len(fields)} fields, at most {MAX_FIELDS}")
        self.types = (request_type, header_type)
        self.request_type, self.header_type = <PyTypeObject *> request_type, <PyTypeObject *> header_type
        if PyType_IS_GC(self.request_type) or PyType_IS_GC(self.header_type):
            raise ValueError(f"{header_type.__name__}: the garbage collector follows it")
        self.languages = languages
        self.code, self.code_object = code, code
        self.never = 0.0
        self.names = fields
        for attribute, name, kind, may_be_null, default in fields:
            self.add(attribute, name, kind, may_be_null, default)
        names = [(b"AccessKey", -1), *((field[1], i) for i, field in enumerate(fields))]
        for i, (_, index) in enumerate(sorted(names)):
            self.order[i] = index
        known = (
            "code", "header", "flag", "language", "opaque", "remark", "version", "body", "channel", "access",
            "serialization", "is_answered", "read_at",
        )
        if set(known) != set(request_type.__struct_fields__):
            raise ValueError(f"{request_type.__name__} has other fields than the compiled decoder fills: {known}")
        for attribute in known:
            if slot_of(getattr(request_type, attribute)) <= 0:
                raise ValueError(f"{request_type.__name__}.{attribute} is no slot")
        self.slots = RequestSlots(
            slot_of(request_type.code), slot_of(request_type.header), slot_of(request_type.flag),
            slot_of(request_type.language), slot_of(request_type.opaque), slot_of(request_type.remark),
            slot_of(request_type.version), slot_of(request_type.body), slot_of(request_type.channel),
            slot_of(request_type.access), slot_of(request_type.serialization), slot_of(request_type.is_answered),
            slot_of(request_type.read_at),
        )

    cdef int add(self, str attribute, bytes name, int kind, bint may_be_null, tuple default) except -1:
        cdef Field *field = &self.fields[self.count]
        field.name, field.name_bytes = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        field.kind, field.may_be_null = kind, may_be_null
        field.slot = slot_of(getattr(<object> self.header_type, attribute))
        field.default = PyTuple_GET_ITEM_(default, 0) if default else NULL
        field.latest = NULL
        if field.slot <= 0:
            raise ValueError(f"{attribute} is no slot")
        self.count += 1
        return 0

    def __dealloc__(self):
        for i in range(self.count):
            Py_XDECREF_(self.fields[i].latest)
        Py_XDECREF_(self.latest_language)

    def request(self, int serialization, bytes header, body, channel):
        """Return the request, or None if the Python code must read the header."""
        cdef PyObject *made = self.decoded(serialization, header, <PyObject *> body, <PyObject *> channel, None)
        if made == NULL:
            return None
        request = <object> made
        Py_DECREF_(made)
        return request

    def signed_request(self, int serialization, bytes header not None, bytes body not None, channel,
                       SigningKey key not None):
        """Return the request if the account of `key` has signed it; None if the Python code must read the header.

        None is no refusal: the request may be signed in an unusual form, or with another key.
        """
        cdef PyObject *made
        self.signed.may_be_there, self.signed.has_account, self.signed.has_signature = True, False, False
        memset(self.signed.has, 0, sizeof(self.signed.has))
        try:
            made = self.decoded(serialization, header, <PyObject *> body, <PyObject *> channel, key)
        finally:
            self.signed.may_be_there = False
        if made == NULL:
            return None
        request = <object> made
        Py_DECREF_(made)
        return request

    def run(self, list frames, Py_ssize_t at, int serialization, channel, list run):
        """Append the requests of `frames` from `at` on to `run`; return the index of the first that is unusual.

        A frame of another serialization or code is unusual, too.
        """
        cdef PyObject *frame
        cdef PyObject *made
        cdef Py_ssize_t count = len(frames)
        while 0 <= at < count:
            frame = PyList_GET_ITEM_(frames, at)
            if not PyTuple_CheckExact(<object> frame) or PyTuple_GET_SIZE(<object> frame) != 3:
                break
            kind, header, body = <tuple> frame
            if kind != serialization or not PyBytes_CheckExact(header):
                break
            made = self.decoded(serialization, header, <PyObject *> body, <PyObject *> channel, None)
            if made == NULL:
                break
            run.append(<object> made)
            Py_DECREF_(made)
            at += 1
        return at

    cdef PyObject *decoded(self, int serialization, bytes header, PyObject *body, PyObject *channel, SigningKey key):
        """Return a new request, or NULL; with `key`, only a request that it has signed."""
        cdef Envelope envelope
        cdef PyObject *values[MAX_FIELDS]
        cdef Cursor cursor
        cdef bint is_usual
        cdef PyObject *made = NULL
        cdef int i
        for i in range(self.count):
            values[i] = NULL
        cursor.at = <const uint8_t *> PyBytes_AS_STRING(header)
        cursor.end = cursor.at + PyBytes_GET_SIZE(header)
        if serialization == JSON:
            is_usual = self.read_json(&cursor, &envelope, values)
        else:
            is_usual = self.read_binary(&cursor, &envelope, values)
        if is_usual and key is not None:
            is_usual = self.is_signed(values, <bytes> body, key)
        if is_usual and self.complete(values):
            made = self.made(serialization, &envelope, values, cursor.at, body, channel)
        if made == NULL:
            for i in range(self.count):
                Py_XDECREF_(values[i])
        return made

    cdef bint complete(self, PyObject **values):
        """Give absent fields their default; return whether no required field is absent."""
        cdef int i
        for i in range(self.count):
            if values[i] == NULL:
                if self.fields[i].default == NULL:
                    return False
                values[i] = self.fields[i].default
                Py_INCREF_(values[i])
        return True

    cdef int index_of(self, const Text *name, int expected) noexcept:
        """Return the index of a field, -1 if the header has none of this name; `expected` is tried first."""
        cdef int i
        if expected < self.count and is_name(name, self.fields[expected].name, self.fields[expected].name_bytes):
            return expected
        for i in range(self.count):
            if is_name(name, self.fields[i].name, self.fields[i].name_bytes):
                return i
        return -1

    cdef bint put(self, const Text *name, const Text *value, PyObject **values, int *expected):
        """Decode one field into `values`; return False if it is unknown, repeated or unusual."""
        cdef int i = self.index_of(name, expected[0])
        if i < 0:
            return self.signed.may_be_there and self.put_proof(name, value)
        if values[i] != NULL:
            return False
        values[i] = value_of(&self.fields[i], value)
        self.signed.texts[i] = value[0]
        self.signed.has[i] = True
        expected[0] = i + 1
        return values[i] != NULL

    cdef bint put_proof(self, const Text *name, const Text *value) noexcept:
        """Keep account or signature; return whether it is either of them, once, and without escapes."""
        if value.has_escapes:
            return False
        if is_name(name, b"AccessKey", 9) and not self.signed.has_account:
            self.signed.account, self.signed.has_account = value[0], True
            return True
        if is_name(name, b"Signature", 9) and not self.signed.has_signature:
            self.signed.signature, self.signed.has_signature = value[0], True
            return True
        return False

    cdef bint is_signed(self, PyObject **values, bytes body, SigningKey key):
        """Return whether the account of `key` signed the fields that were read, ordered by name, and `body`."""
        cdef const SignedTexts *signed = &self.signed
        cdef sha1_digest content
        cdef bytes plain
        cdef int number, i
        if not signed.has_account or not signed.has_signature or not key.is_account(&signed.account):
            return False
        key.begin(&content)
        for number in range(self.count + 1):
            i = self.order[number]
            if i < 0:
                key.add_account(&content)
            elif not signed.has[i]:
                continue
            elif not signed.texts[i].has_escapes:
                key.add(&content, signed.texts[i].at, signed.texts[i].size)
            elif self.fields[i].kind == KIND_TEXT:
                try:
                    plain = (<str> values[i]).encode()
                except UnicodeEncodeError:
                    return False
                key.add(&content, <const uint8_t *> PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))
            else:
                return False
        key.add(&content, <const uint8_t *> PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        return key.has_signed(&content, &signed.signature)

    cdef bint read_fields(self, Cursor *cursor, PyObject **values):
        """Read extFields: an object whose values are texts."""
        cdef Text name, value
        cdef int expected = 0
        if not take(cursor, c'{'):
            return False
        if take(cursor, c'}'):
            return True
        while True:
            if not take_text(cursor, &name) or not take(cursor, c':') or not take_text(cursor, &value):
                return False
            if not self.put(&name, &value, values, &expected):
                return False
            if take(cursor, c'}'):
                return True
            if not take(cursor, c','):
                return False

    cdef bint read_json(self, Cursor *cursor, Envelope *envelope, PyObject **values):
        """Read a whole JSON header without blanks, each of whose members occurs once."""
        cdef Text name, text
        cdef int seen = 0, member
        envelope.flag = envelope.opaque = envelope.version = 0
        envelope.has_language = False
        if not take(cursor, c'{'):
            return False
        while True:
            if not take_text(cursor, &name) or not take(cursor, c':'):
                return False
            member = self.read_member(cursor, &name, envelope, values)
            if not member or seen & member:
                return False
            seen |= member
            if take(cursor, c'}'):
                break
            if not take(cursor, c','):
                return False
        # Code and extFields are there, and nothing follows.
        return seen & 3 == 3 and cursor.at == cursor.end and self.is_own(envelope)

    cdef int read_member(self, Cursor *cursor, const Text *name, Envelope *envelope, PyObject **values):
        """Read the value of one member of a header; return the bit that stands for the member, 0 if it is unusual."""
        cdef Text text
        if is_name(name, b"code", 4):
            return 1 if take_number(cursor, &envelope.code) else 0
        if is_name(name, b"extFields", 9):
            return 2 if self.read_fields(cursor, values) else 0
        if is_name(name, b"flag", 4):
            return 4 if take_number(cursor, &envelope.flag) else 0
        if is_name(name, b"opaque", 6):
            return 8 if take_number(cursor, &envelope.opaque) else 0
        if is_name(name, b"version", 7):
            return 16 if take_number(cursor, &envelope.version) else 0
        if is_name(name, b"language", 8):
            envelope.has_language = True
            return 32 if take_text(cursor, &envelope.language) and not envelope.language.has_escapes else 0
        if is_name(name, b"serializeTypeCurrentRPC", 23):
            return 64 if take_text(cursor, &text) and text.is_ascii and not text.has_escapes else 0
        return 0

    cdef bint read_binary(self, Cursor *cursor, Envelope *envelope, PyObject **values):
        """Read a whole ROCKETMQ header without a remark, whose keys are known and whose values are not empty."""
        cdef const uint8_t *head = cursor.at
        cdef Text name, value
        cdef int expected = 0
        cdef Py_ssize_t size = cursor.end - cursor.at
        if size <= BINARY_HEAD_BYTES:
            return False
        # code i16, language u8, version i16, opaque i32, flag i32, length of the remark i32, length of extFields i32
        envelope.code = int16_at(head)
        if (envelope.code & 0xFFFF) == (self.code & 0xFFFF):
            envelope.code = self.code
        envelope.has_language = False
        envelope.language_code = head[2]
        envelope.version = int16_at(head + 3)
        envelope.opaque = int32_at(head + 5)
        envelope.flag = int32_at(head + 9)
        if int32_at(head + 13) or int32_at(head + 17) != size - BINARY_HEAD_BYTES or not self.is_own(envelope):
            return False
        cursor.at += BINARY_HEAD_BYTES
        while cursor.at < cursor.end:
            if not take_sized(cursor, 2, &name) or name.size > MAX_KEY_BYTES or not take_sized(cursor, 4, &value):
                return False
            if not self.put(&name, &value, values, &expected):
                return False
        return True

    cdef bint is_own(self, const Envelope *envelope) noexcept:
        """Return whether it is a request of this decoder's code, whose numbers have the width of Java's int."""
        if envelope.code != self.code or not is_int32(envelope.flag) or envelope.flag & FLAG_RESPONSE:
            return False
        return is_int32(envelope.opaque) and is_int32(envelope.version)

    cdef PyObject *made(
        self, int serialization, const Envelope *envelope, PyObject **values, const uint8_t *at, PyObject *body,
        PyObject *channel,
    ):
        """Return a new request that owns `values`, or NULL, and then it owns none of them."""
        cdef PyObject *language
        cdef PyObject *request
        cdef PyObject *header
        cdef int i
        if serialization == ROCKETMQ:
            language = PyTuple_GET_ITEM_(self.languages, envelope.language_code)
            Py_INCREF_(language)
        elif envelope.has_language:
            language = text_object(&envelope.language, &self.latest_language)
        else:
            language = Py_None
            Py_INCREF_(language)
        if language == NULL:
            return NULL
        header = PyType_GenericAlloc(self.header_type, 0)
        request = PyType_GenericAlloc(self.request_type, 0)
        if header == NULL or request == NULL:
            PyErr_Clear()
            Py_XDECREF_(header)
            Py_XDECREF_(request)
            Py_DECREF_(language)
            return NULL
        for i in range(self.count):
            set_slot(header, self.fields[i].slot, values[i])
        set_slot(request, self.slots.code, shared(<PyObject *> self.code_object))
        set_slot(request, self.slots.header, header)
        set_slot(request, self.slots.flag, PyLong_FromLongLong_(envelope.flag))
        set_slot(request, self.slots.language, language)
        set_slot(request, self.slots.opaque, PyLong_FromLongLong_(envelope.opaque))
        set_slot(request, self.slots.remark, shared(Py_None))
        set_slot(request, self.slots.version, PyLong_FromLongLong_(envelope.version))
        set_slot(request, self.slots.body, shared(body))
        set_slot(request, self.slots.channel, shared(channel))
        set_slot(request, self.slots.access, shared(Py_None))
        set_slot(request, self.slots.serialization, PyLong_FromLongLong_(serialization))
        set_slot(request, self.slots.is_answered, PyLong_FromLongLong_(0))
        set_slot(request, self.slots.read_at, shared(<PyObject *> self.never))
        return request


cdef inline bytes octets_of(const Text *text):
    return PyBytes_FromStringAndSize(<const char *> text.at, text.size)


cdef enum:
    VALUE_BYTES = 0
    VALUE_DECIMAL = 1
    VALUE_HEX = 2
    FLAG_ONEWAY = 2
    MAX_TEMPLATE_BYTES = 2048

cdef const uint8_t *HEX_TEXT = b"0123456789ABCDEF"
BYTES, DECIMAL, HEX = VALUE_BYTES, VALUE_DECIMAL, VALUE_HEX


cdef class ResponseEncoder:
    """Encoder of the responses of one template; the twin of `sprocket.remoting.frames.ResponseTemplate.frame`."""

    def __init__(self, tuple values, bytes json_opaque, bytes json_end, bytes binary_begin, bytes binary_middle,
                 bytes binary_end):
        """`values` are tuples: text before the value in JSON, key with its length, literal begin, kind of the rest."""
        if len(values) > MAX_VALUES:
            raise ValueError(f"{len(values)} values, at most {MAX_VALUES}")
        self.parts = values
        self.json_opaque, self.json_end = json_opaque, json_end
        self.binary_begin, self.binary_middle, self.binary_end = binary_begin, binary_middle, binary_end
        self.fixed_bytes = PREFIX_BYTES + 32 + len(json_opaque) + len(json_end) + len(binary_begin) + len(
            binary_middle) + len(binary_end)
        for json, key, literal, kind in values:
            self.add(json, key, literal, kind)
        if self.fixed_bytes > MAX_TEMPLATE_BYTES:
            raise ValueError(f"a template of {self.fixed_bytes} bytes")

    cdef int add(self, bytes json, bytes key, bytes literal, int kind) except -1:
        cdef Slot *slot = &self.slots[self.count]
        slot.json, slot.json_bytes = PyBytes_AS_STRING(json), PyBytes_GET_SIZE(json)
        slot.key, slot.key_bytes = PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        slot.literal, slot.literal_bytes = PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal)
        slot.kind = kind
        self.fixed_bytes += slot.json_bytes + slot.key_bytes + slot.literal_bytes + 4 + 20
        self.count += 1
        return 0

    def frame(self, int serialization, opaque, tuple values, Py_ssize_t body_bytes):
        """Return prefix and header, or None if a value is none that is encoded here."""
        cdef Value found[MAX_VALUES]
        cdef int i
        cdef Py_ssize_t size = self.fixed_bytes
        cdef int64_t number
        cdef bytes frame
        cdef uint8_t *end
        if PyTuple_GET_SIZE(values) != self.count or not int_of(opaque, &number) or not is_int32(number):
            return None
        for i in range(self.count):
            if not value_bytes(<object> PyTuple_GET_ITEM_(values, i), self.slots[i].kind, &found[i]):
                return None
            size += found[i].size
        frame = PyBytes_FromStringAndSize(NULL, size)
        end = self.put(<uint8_t *> PyBytes_AS_STRING(frame), serialization, <int32_t> number, found, body_bytes)
        return frame[:end - <uint8_t *> PyBytes_AS_STRING(frame)]

    cdef uint8_t *put(
        self, uint8_t *frame, int serialization, int32_t opaque, const Value *values, Py_ssize_t body_bytes
    ) noexcept:
        """Write a frame, which is not longer than `fixed_bytes` and the values; return where it ends."""
        cdef uint8_t *end
        if serialization == JSON:
            end = self.put_json(frame + PREFIX_BYTES, opaque, values)
        else:
            end = self.put_binary(frame + PREFIX_BYTES, opaque, values)
        cdef Py_ssize_t header_bytes = end - frame - PREFIX_BYTES
        put_int32(frame, <int32_t> (4 + header_bytes + body_bytes))
        put_int32(frame + 4, <int32_t> ((0 if serialization == JSON else ROCKETMQ) << 24 | header_bytes))
        return end

    cdef uint8_t *put_json(self, uint8_t *to, int32_t opaque, const Value *values) noexcept:
        cdef Value number
        cdef int i
        for i in range(self.count):
            to = put_bytes(to, <const uint8_t *> self.slots[i].json, self.slots[i].json_bytes)
            to = put_bytes(to, <const uint8_t *> self.slots[i].literal, self.slots[i].literal_bytes)
            to = put_bytes(to, values[i].at, values[i].size)
        to = put_object(to, self.json_opaque)
        put_decimal(opaque, &number)
        return put_object(put_bytes(to, number.at, number.size), self.json_end)

    cdef uint8_t *put_binary(self, uint8_t *to, int32_t opaque, const Value *values) noexcept:
        cdef uint8_t *lengths
        cdef int i
        to = put_object(to, self.binary_begin)
        put_int32(to, opaque)
        to = lengths = put_object(to + 4, self.binary_middle)
        to += 4
        for i in range(self.count):
            to = put_bytes(to, <const uint8_t *> self.slots[i].key, self.slots[i].key_bytes)
            put_int32(to, <int32_t> (self.slots[i].literal_bytes + values[i].size))
            to = put_bytes(to + 4, <const uint8_t *> self.slots[i].literal, self.slots[i].literal_bytes)
            to = put_bytes(to, values[i].at, values[i].size)
        to = put_object(to, self.binary_end)
        put_int32(lengths, <int32_t> (to - lengths - 4))
        return to


cdef inline void put_int32(uint8_t *to, int32_t value) noexcept nogil:
    value = from_big32(value)
    memcpy(to, &value, 4)


cdef inline uint8_t *put_bytes(uint8_t *to, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    memcpy(to, octets, size)
    return to + size


cdef inline uint8_t *put_object(uint8_t *to, bytes octets) noexcept:
    return put_bytes(to, <const uint8_t *> PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets))


cdef bint int_of(object value, int64_t *number) except -1:
    """Read a Python integer; return False for another object, or one of more than 64 bits."""
    cdef int overflow = 0
    if not PyLong_CheckExact(value):
        return False
    number[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow


cdef bint value_bytes(object value, int kind, Value *found) except -1:
    """Get the bytes of a value; return False if it has another type than its kind, or a sign where none may be."""
    cdef int64_t number = 0
    cdef int i
    if kind == VALUE_BYTES:
        if not PyBytes_CheckExact(value):
            return False
        found.at, found.size = <const uint8_t *> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
        return True
    if not int_of(value, &number):
        return False
    if kind == VALUE_DECIMAL:
        put_decimal(number, found)
        return True
    if number < 0:
        return False
    put_hex(number, found)
    return True


cdef void put_hex(int64_t number, Value *found) noexcept nogil:
    """Make the 16 hexadecimal digits of a number that is not negative."""
    cdef int i
    for i in range(HEX_DIGITS):
        found.digits[i] = HEX_TEXT[number >> (4 * (HEX_DIGITS - 1 - i)) & 15]
    found.at, found.size = found.digits, HEX_DIGITS


cdef void put_decimal(int64_t number, Value *found) noexcept nogil:
    """Make the decimal digits of a number, with its sign."""
    cdef uint64_t rest = <uint64_t> number if number >= 0 else 0 - <uint64_t> number
    cdef uint8_t *first = found.digits + sizeof(found.digits)
    cdef uint8_t *end = first
    while True:
        first -= 1
        first[0] = c'0' + rest % 10
        rest //= 10
        if not rest:
            break
    if number < 0:
        first -= 1
        first[0] = c'-'
    found.at, found.size = first, end - first
