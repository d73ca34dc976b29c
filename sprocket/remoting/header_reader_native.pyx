# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reader of the headers of one request code, JSON and ROCKETMQ, in their usual form.

`framing.HeaderDecoder` makes a `Request` of each header.  This reader fills a struct, for the compiled paths that serve
a request without a Python object.  Nothing is refused here: Python reads what is unusual.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.remoting.signatures_native cimport Proof, SigningKey, sha1_digest
from sprocket.engine.remoting.wire_text cimport (
    Cursor, Text, int16_at, int32_at, is_int32, is_name, take, take_number, take_sized, take_text,
)

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # Kinds of header fields, as in `framing.pyx`.
    KIND_TEXT = 0
    KIND_INT = 1
    KIND_LONG = 2
    KIND_BOOL = 3
    MAX_KEY_BYTES = 31
    BINARY_HEAD_BYTES = 21
    FLAG_ONEWAY = 2
    SEEN_ACCOUNT = 1
    SEEN_SIGNATURE = 2
    # Values that are not in a field of the request.
    OPAQUE = -1
    ACCOUNT = -2
    SIGNATURE = -3
    # One of so many headers without a shape becomes one: with many kinds of clients, making them would cost more.
    STRANGERS_PER_SHAPE = 8

TEXT, INT, LONG, BOOL = KIND_TEXT, KIND_INT, KIND_LONG, KIND_BOOL


cdef bint put_proof(const Text *name, const Text *value, Header *header) noexcept:
    """Keep account or signature, once each.  Without a gate they mean nothing."""
    if is_name(name, b"AccessKey", 9) and not header.seen_proof & SEEN_ACCOUNT:
        header.seen_proof |= SEEN_ACCOUNT
        return keep_proof(value, &header.account)
    if is_name(name, b"Signature", 9) and not header.seen_proof & SEEN_SIGNATURE:
        header.seen_proof |= SEEN_SIGNATURE
        return keep_proof(value, &header.signature)
    return False


cdef inline bint keep_proof(const Text *value, Text *proof) noexcept nogil:
    proof[0] = value[0]
    return value.is_ascii and not value.has_escapes


cdef bint is_alike(const Shape *shape, Cursor cursor, Text *values, int64_t *opaque) noexcept nogil:
    """Return whether a whole header differs from that of `shape` in its gaps only; their texts are then in `values`.

    A gap holds a value of the same type as before, so all bytes mean what they meant there.
    """
    cdef const uint8_t *fixed = shape.fixed
    cdef const Gap *gap
    cdef int i
    for i in range(shape.gap_count):
        gap = &shape.gaps[i]
        if cursor.end - cursor.at < gap.fixed_bytes or memcmp(cursor.at, fixed, gap.fixed_bytes):
            return False
        cursor.at += gap.fixed_bytes
        fixed += gap.fixed_bytes
        if gap.field == OPAQUE:
            if not take_number(&cursor, opaque):
                return False
        elif not take_text(&cursor, &values[i]):
            return False
    cdef Py_ssize_t rest = shape.fixed + shape.fixed_bytes - fixed
    return cursor.end - cursor.at == rest and not memcmp(cursor.at, fixed, rest)


cdef void add_gap(Shape *shape, int field, const uint8_t *at, Py_ssize_t size) noexcept nogil:
    """Add a gap; all are in the order of their values."""
    cdef int i = shape.gap_count
    while i > 0 and shape.gaps[i - 1].at > at:
        shape.gaps[i] = shape.gaps[i - 1]
        i -= 1
    shape.gaps[i].field, shape.gaps[i].at, shape.gaps[i].size = field, at, size
    shape.gap_count += 1


cdef bint close(Shape *shape, const uint8_t *octets, Py_ssize_t size) noexcept nogil:
    """Copy the bytes between the gaps, and let the kept texts point to the copy; return False if they are too many."""
    cdef const uint8_t *end = octets + size
    cdef const uint8_t *next_
    cdef Text *text
    cdef Py_ssize_t fixed_bytes
    cdef int i, kept = 0
    shape.fixed_bytes = 0
    for i in range(shape.gap_count + 1):
        next_ = shape.gaps[i].at if i < shape.gap_count else end
        fixed_bytes = next_ - octets
        if fixed_bytes > MAX_FIXED_BYTES - shape.fixed_bytes:
            return False
        memcpy(shape.fixed + shape.fixed_bytes, octets, fixed_bytes)
        for kept in range(shape.kept_count):
            text = &shape.texts[kept]
            if octets <= text.at < next_:
                text.at = shape.fixed + shape.fixed_bytes + (text.at - octets)
        shape.fixed_bytes += fixed_bytes
        if i < shape.gap_count:
            shape.gaps[i].fixed_bytes = fixed_bytes
            octets = next_ + shape.gaps[i].size
    return True


cdef class HeaderReader:
    """Reader of usual headers.  A subclass names the roles of the fields that it needs."""

    def __init__(self, int code, tuple fields, dict roles, frozenset free=frozenset(), frozenset varying=frozenset()):
        """`fields` are those of `framing.HeaderDecoder`; `roles` are by attribute.

        The texts of the attributes in `free` may have escapes and any characters; all others are plain ASCII.  Those
        in `varying` differ from one header of a client to the next, as numbers with a role and free texts do.
        """
        if len(fields) > MAX_FIELDS:
            raise ValueError(f"{len(fields)} fields, at most {MAX_FIELDS}")
        self.code, self.names = code, fields
        for attribute, name, kind, may_be_null, default in fields:
            self.add(attribute, name, kind, may_be_null, not default, roles.get(attribute, ROLE_NONE),
                     attribute in free, attribute in varying)
        names = [(b"AccessKey", -1), *((field[1], i) for i, field in enumerate(fields))]
        for i, (_, index) in enumerate(sorted(names)):
            self.order[i] = index

    cdef int add(self, str attribute, bytes name, int kind, bint may_be_null, bint is_required, int role,
                 bint is_free, bint is_varying) except -1:
        cdef Field *field = &self.fields[self.count]
        if not 0 <= role < MAX_ROLES:
            raise ValueError(f"{attribute} has the role {role}, at most {MAX_ROLES - 1}")
        field.name, field.name_bytes = PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)
        field.kind, field.may_be_null, field.role = kind, may_be_null, role
        field.is_free, field.is_varying = is_free, is_varying
        if is_required:
            self.required |= <uint32_t> 1 << self.count
        self.count += 1
        return 0

    cdef bint take_flag(self, int64_t flag, Header *header) noexcept:
        """Take the flag of the envelope; return False for a response, and for a oneway request unless it is usual."""
        header.is_oneway = flag == FLAG_ONEWAY
        return flag == 0 or (header.is_oneway and self.takes_oneway)

    cdef int index_of_role(self, int role) noexcept:
        """Return the index of the field with a role; -1 if there is none."""
        cdef int i
        for i in range(self.count):
            if self.fields[i].role == role:
                return i
        return -1

    cdef Outcome read_header(self, const FrameParts *frame, Header *header) noexcept:
        """Read a whole header.  The caller has set the numbers and texts of fields that may be absent."""
        cdef Outcome outcome
        cdef Cursor cursor
        cursor.at, cursor.end = frame.header, frame.header + frame.header_bytes
        header.seen, header.seen_proof, header.opaque, header.is_oneway = 0, 0, 0, False
        if frame.serialization == SERIALIZATION_JSON:
            outcome = self.read_shaped(&cursor, header)
            if outcome == FOREIGN:
                outcome = self.read_json(&cursor, header)
                if outcome == WHOLE:
                    self.remember(frame.header, frame.header_bytes, header)
        else:
            outcome = self.read_binary(&cursor, header)
        if outcome == WHOLE and (header.seen & self.required != self.required or not is_int32(header.opaque)):
            return FOR_PYTHON
        return outcome

    cdef Outcome read_shaped(self, const Cursor *whole, Header *header) noexcept:
        """Read a header that is like one before; FOREIGN if it is like none, and then nothing is changed."""
        cdef Text values[MAX_GAPS]
        cdef const Shape *shape
        cdef int64_t opaque = 0
        cdef int number, i = self.latest
        for number in range(SHAPES):
            shape = &self.shapes[i]
            if shape.gap_count and is_alike(shape, whole[0], values, &opaque):
                self.latest = i
                header.opaque = opaque
                return self.fill(shape, values, header)
            i = (i + 1) % SHAPES
        return FOREIGN

    cdef Outcome fill(self, const Shape *shape, const Text *values, Header *header) noexcept:
        """Take the fields of a header that is like `shape`."""
        cdef int i, field
        header.seen, header.seen_proof, header.is_oneway = shape.seen, shape.seen_proof, shape.is_oneway
        for i in range(shape.kept_count):
            field = shape.kept[i]
            header.signed_texts[field] = shape.texts[i]
            if self.fields[field].role != ROLE_NONE and not self.put_value(&self.fields[field], &shape.texts[i], header):
                return FOR_PYTHON
        for i in range(shape.gap_count):
            field = shape.gaps[i].field
            if field >= 0:
                header.signed_texts[field] = values[i]
                if not self.put_value(&self.fields[field], &values[i], header):
                    return FOR_PYTHON
            elif field != OPAQUE and not keep_proof(
                    &values[i], &header.account if field == ACCOUNT else &header.signature):
                return FOR_PYTHON
        return WHOLE

    cdef bint is_gap(self, int field) noexcept:
        """Return whether the values of a field probably differ from one header of a client to the next."""
        cdef const Field *one = &self.fields[field]
        return one.is_free or one.is_varying or (one.role != ROLE_NONE and one.kind != KIND_TEXT and one.kind != KIND_BOOL)

    cdef void remember(self, const uint8_t *octets, Py_ssize_t size, const Header *header) noexcept:
        """Make a shape of a header that was read, in place of the oldest one."""
        cdef Shape *shape = &self.shapes[self.next_shape]
        cdef const Text *text
        cdef int i
        self.strangers += 1
        if shape.gap_count and self.strangers % STRANGERS_PER_SHAPE:
            return
        shape.gap_count = shape.kept_count = 0
        shape.seen, shape.seen_proof, shape.is_oneway = header.seen, header.seen_proof, header.is_oneway
        for i in range(self.count):
            text = &header.signed_texts[i]
            if not header.seen & <uint32_t> 1 << i:
                continue
            if self.is_gap(i):
                add_gap(shape, i, text.at - 1, text.size + 2)
            else:
                shape.kept[shape.kept_count], shape.texts[shape.kept_count] = i, text[0]
                shape.kept_count += 1
        if header.seen_proof & SEEN_ACCOUNT:
            add_gap(shape, ACCOUNT, header.account.at - 1, header.account.size + 2)
        if header.seen_proof & SEEN_SIGNATURE:
            add_gap(shape, SIGNATURE, header.signature.at - 1, header.signature.size + 2)
        if header.opaque_text.size:
            add_gap(shape, OPAQUE, header.opaque_text.at, header.opaque_text.size)
        if not close(shape, octets, size):
            shape.gap_count = 0
            return
        self.next_shape = (self.next_shape + 1) % SHAPES

    cdef Outcome read_json(self, Cursor *cursor, Header *header) noexcept:
        """Read a whole JSON header without blanks, each of whose members occurs once, as `HeaderDecoder.read_json`."""
        cdef Text name, text
        cdef int64_t number = 0
        cdef int seen = 0, member
        header.opaque_text.size = 0
        if not take(cursor, c'{'):
            return FOR_PYTHON
        while True:
            if not take_text(cursor, &name) or not take(cursor, c':'):
                return FOR_PYTHON
            if is_name(&name, b"extFields", 9):
                member = 2 if self.read_fields(cursor, header) else 0
            elif is_name(&name, b"language", 8) or is_name(&name, b"serializeTypeCurrentRPC", 23):
                member = 32 if name.size == 8 else 64
                if not take_text(cursor, &text) or text.has_escapes or not text.is_ascii:
                    return FOR_PYTHON
            else:
                text.at = cursor.at
                if not take_number(cursor, &number):
                    return FOR_PYTHON
                text.size = cursor.at - text.at
                member = self.read_number(&name, &text, number, header)
                if member == 1 and number != self.code:
                    return FOREIGN
            if not member or seen & member:
                return FOR_PYTHON
            seen |= member
            if take(cursor, c'}'):
                break
            if not take(cursor, c','):
                return FOR_PYTHON
        # Code and extFields are there, and nothing follows.
        return WHOLE if seen & 3 == 3 and cursor.at == cursor.end else FOR_PYTHON

    cdef int read_number(self, const Text *name, const Text *digits, int64_t number, Header *header) noexcept:
        """Take a number of the envelope, which is written as `digits`; return the bit that stands for the member, 0 if it is unusual."""
        if is_name(name, b"code", 4):
            return 1
        if is_name(name, b"flag", 4):
            return 4 if self.take_flag(number, header) else 0
        if is_name(name, b"opaque", 6):
            header.opaque, header.opaque_text = number, digits[0]
            return 8
        if is_name(name, b"version", 7):
            return 16 if is_int32(number) else 0
        return 0

    cdef bint read_fields(self, Cursor *cursor, Header *header) noexcept:
        """Read extFields: an object whose values are texts."""
        cdef Text name, value
        cdef int expected = 0
        if not take(cursor, c'{'):
            return False
        while True:
            if not take_text(cursor, &name) or not take(cursor, c':') or not take_text(cursor, &value):
                return False
            if not self.put(&name, &value, header, &expected):
                return False
            if take(cursor, c'}'):
                return True
            if not take(cursor, c','):
                return False

    cdef Outcome read_binary(self, Cursor *cursor, Header *header) noexcept:
        """Read a whole ROCKETMQ header without a remark, as `HeaderDecoder.read_binary`."""
        cdef const uint8_t *head = cursor.at
        cdef Text name, value
        cdef int expected = 0
        cdef Py_ssize_t size = cursor.end - cursor.at
        if size <= BINARY_HEAD_BYTES:
            return FOR_PYTHON
        # code i16, language u8, version i16, opaque i32, flag i32, length of the remark i32, length of extFields i32
        # A long code has only its low 16 bits here; `header_fields` says that no other code has the same.
        if int16_at(head) != <int16_t> self.code:
            return FOREIGN
        header.opaque = int32_at(head + 5)
        if int32_at(head + 13) or int32_at(head + 17) != size - BINARY_HEAD_BYTES:
            return FOR_PYTHON
        if not self.take_flag(int32_at(head + 9), header):
            return FOR_PYTHON
        cursor.at += BINARY_HEAD_BYTES
        while cursor.at < cursor.end:
            if not take_sized(cursor, 2, &name) or name.size > MAX_KEY_BYTES or not take_sized(cursor, 4, &value):
                return FOR_PYTHON
            if not self.put(&name, &value, header, &expected):
                return FOR_PYTHON
        return WHOLE

    cdef bint is_signed(self, const Header *header, SigningKey key, const uint8_t *body, Py_ssize_t body_bytes) noexcept:
        """Return whether the account of `key` signed the fields of a header, ordered by name, and a body.

        The caller has replaced a signed text with escapes by what it stands for.
        """
        cdef sha1_digest content
        cdef const Text *text
        cdef int number, i
        if header.seen_proof != SEEN_ACCOUNT | SEEN_SIGNATURE or not key.is_account(&header.account):
            return False
        key.begin(&content)
        for number in range(self.count + 1):
            i = self.order[number]
            if i < 0:
                key.add_account(&content)
            elif header.seen & <uint32_t> 1 << i:
                text = &header.signed_texts[i]
                if text.has_escapes:
                    return False
                key.add(&content, text.at, text.size)
        key.add(&content, body, body_bytes)
        return key.has_signed(&content, &header.signature)

    cdef bint proves(self, const Header *header, const FrameParts *frame, Proof proof, const Text *first,
                     const Text *second) except -1:
        """Return whether `proof` covers two names, and its account has signed the header and the body.

        None stands for no gate, or one that has seen the frame.
        """
        if proof is None:
            return True
        if not proof.covers_texts(first, second):
            return False
        return self.is_signed(header, proof.key, frame.body, frame.body_bytes)

    cdef bint put(self, const Text *name, const Text *value, Header *header, int *expected) noexcept:
        """Take one field; return False if it is unknown, repeated or unusual."""
        cdef int i = expected[0]
        if i >= self.count or not is_name(name, self.fields[i].name, self.fields[i].name_bytes):
            i = 0
            while i < self.count and not is_name(name, self.fields[i].name, self.fields[i].name_bytes):
                i += 1
            if i == self.count:
                return put_proof(name, value, header)
        if header.seen & <uint32_t> 1 << i:
            return False
        header.seen |= <uint32_t> 1 << i
        header.signed_texts[i] = value[0]
        expected[0] = i + 1
        return self.put_value(&self.fields[i], value, header)

    cdef bint put_value(self, const Field *field, const Text *value, Header *header) noexcept:
        cdef Cursor digits
        cdef int64_t number = 0
        # A lax decoder may take this word for no value.
        if field.may_be_null and value.size == 4 and (value.at[0] | 0x20) == c'n':
            return False
        if field.is_free:
            header.texts[field.role] = value[0]
            return True
        if value.has_escapes or not value.is_ascii:
            return False
        if field.kind == KIND_TEXT:
            header.texts[field.role] = value[0]
            return True
        if field.kind == KIND_BOOL:
            header.numbers[field.role] = is_name(value, b"true", 4)
            return is_name(value, b"true", 4) or is_name(value, b"false", 5)
        digits.at, digits.end = value.at, value.at + value.size
        if not take_number(&digits, &number) or digits.at != digits.end:
            return False
        if field.kind == KIND_INT and not is_int32(number):
            return False
        header.numbers[field.role] = number
        return True


cdef str text_of(const Text *found):
    """Return the ASCII text of a field; None if the header has none."""
    return None if found.at == NULL else found.at[:found.size].decode("ascii")


cdef bytes texts_key(const Header *header, const int *roles, int count, int64_t number):
    """Return bytes that are the same for headers with the same texts of `count` roles, and the same `number`, only.

    Each text follows its length.
    """
    cdef Py_ssize_t size = 8, i
    cdef const Text *found
    cdef int64_t length
    cdef bytes key
    cdef uint8_t *to
    for i in range(count):
        size += 8 + (0 if header.texts[roles[i]].at == NULL else header.texts[roles[i]].size)
    key = PyBytes_FromStringAndSize(NULL, size)
    to = <uint8_t *> PyBytes_AS_STRING(key)
    memcpy(to, &number, 8)
    to += 8
    for i in range(count):
        found = &header.texts[roles[i]]
        length = -1 if found.at == NULL else found.size
        memcpy(to, &length, 8)
        to += 8
        if length > 0:
            memcpy(to, found.at, length)
            to += length
    return key
