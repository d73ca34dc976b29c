# Headers of requests, read into numbers and texts without a Python object for each.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from sprocket.remoting.read_frames_native cimport FrameParts
from sprocket.remoting.signatures_native cimport Proof, SigningKey
from sprocket.engine.remoting.wire_text cimport Cursor, Text

cdef enum:
    MAX_FIELDS = 32
    MAX_ROLES = 16
    # The role of fields that nothing is done with.
    ROLE_NONE = 0
    SERIALIZATION_JSON = 0
    # Headers that are remembered, and the bytes of one that may be fixed.
    SHAPES = 4
    MAX_FIXED_BYTES = 768
    # The fields, the opaque, account and signature.
    MAX_GAPS = 35

# How far a header was read.
cdef enum Outcome:
    FOR_PYTHON
    FOREIGN  # another request code
    WHOLE


cdef struct Field:
    const char *name
    Py_ssize_t name_bytes
    int kind
    int role
    bint may_be_null
    bint is_free  # a text of any characters, as it is on the wire
    bint is_varying  # a text that differs from one header of a client to the next


# One header: its numbers and texts by role, and the fields that it has, as bits.
cdef struct Header:
    int64_t numbers[MAX_ROLES]
    Text texts[MAX_ROLES]
    Text signed_texts[MAX_FIELDS]  # as they were signed, by field
    Text account
    Text signature
    uint32_t seen
    uint32_t seen_proof  # bits 1 and 2: account and signature
    int64_t opaque
    Text opaque_text  # of a JSON header
    bint is_oneway


# A value that differs from one header of a client to the next, and the bytes between the one before and this one.
cdef struct Gap:
    const uint8_t *at  # of the value in the header that the shape was made of, with its quotation marks
    Py_ssize_t size
    int field  # or OPAQUE, ACCOUNT, SIGNATURE
    Py_ssize_t fixed_bytes


# A JSON header of a client.  The client's next one has the same bytes, except in the gaps.
cdef struct Shape:
    uint8_t fixed[MAX_FIXED_BYTES]
    Py_ssize_t fixed_bytes
    Gap gaps[MAX_GAPS]
    int gap_count  # 0: there is no header yet
    int kept[MAX_FIELDS]  # fields that are not in gaps
    int kept_count
    Text texts[MAX_FIELDS]  # of these, in `fixed`
    uint32_t seen
    uint32_t seen_proof
    bint is_oneway


cdef class HeaderReader:
    cdef Field fields[MAX_FIELDS]
    cdef int count
    cdef uint32_t required  # bits of the fields that every header has
    cdef object names  # keeps the memory of the fields' names
    cdef int64_t code
    cdef bint takes_oneway  # other requests are unusual if they are oneway
    cdef int order[MAX_FIELDS + 1]  # of the fields in a signature: indexes, and -1 for the account
    cdef Shape shapes[SHAPES]
    cdef int latest  # shape of the header before
    cdef int next_shape  # to be replaced
    cdef uint32_t strangers  # headers without a shape

    cdef int add(self, str attribute, bytes name, int kind, bint may_be_null, bint is_required, int role,
                 bint is_free, bint is_varying) except -1
    cdef Outcome read_header(self, const FrameParts *frame, Header *header) noexcept
    cdef Outcome read_shaped(self, const Cursor *whole, Header *header) noexcept
    cdef Outcome fill(self, const Shape *shape, const Text *values, Header *header) noexcept
    cdef bint is_gap(self, int field) noexcept
    cdef void remember(self, const uint8_t *octets, Py_ssize_t size, const Header *header) noexcept
    cdef Outcome read_json(self, Cursor *cursor, Header *header) noexcept
    cdef bint take_flag(self, int64_t flag, Header *header) noexcept
    cdef int read_number(self, const Text *name, const Text *digits, int64_t number, Header *header) noexcept
    cdef bint read_fields(self, Cursor *cursor, Header *header) noexcept
    cdef Outcome read_binary(self, Cursor *cursor, Header *header) noexcept
    cdef int index_of_role(self, int role) noexcept
    cdef bint is_signed(self, const Header *header, SigningKey key, const uint8_t *body, Py_ssize_t body_bytes) noexcept
    cdef bint proves(self, const Header *header, const FrameParts *frame, Proof proof, const Text *first,
                     const Text *second) except -1
    cdef bint put(self, const Text *name, const Text *value, Header *header, int *expected) noexcept
    cdef bint put_value(self, const Field *field, const Text *value, Header *header) noexcept


cdef str text_of(const Text *found)
cdef bytes texts_key(const Header *header, const int *roles, int count, int64_t number)
