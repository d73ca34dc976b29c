# Signatures of requests: HMAC-SHA1, begun with an account's key.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sprocket.engine.remoting.wire_text cimport Text

cdef extern from "sha1.h":
    enum:
        SHA1_BLOCK_BYTES
        SHA1_DIGEST_BYTES
        SHA1_WORDS

    ctypedef struct sha1_digest:
        uint32_t state[5]
        uint64_t size


cdef class SigningKey:
    cdef readonly str account
    cdef bytes account_bytes
    cdef bint is_token
    cdef uint32_t inner[SHA1_WORDS]  # states after the key's two blocks (RFC 2104)
    cdef uint32_t outer[SHA1_WORDS]

    cdef bint is_account(self, const Text *name) noexcept
    cdef void begin(self, sha1_digest *content) noexcept
    cdef void add(self, sha1_digest *content, const uint8_t *octets, Py_ssize_t size) noexcept
    cdef void add_account(self, sha1_digest *content) noexcept
    cdef void write(self, sha1_digest *content, uint8_t *to) noexcept
    cdef bint has_signed(self, sha1_digest *content, const Text *signature) noexcept


cdef class Proof:
    cdef readonly SigningKey key
    cdef set names
    cdef Py_ssize_t max_names
    cdef bytes latest  # of `names`, that of the last request
    cdef tuple revisions
    cdef tuple numbers  # of `revisions`, when it was made

    cpdef bint holds(self) except -1
    cdef bint covers_texts(self, const Text *first, const Text *second) except -1
