# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Compiled twin of `sprocket.remoting.credentials.signature`, and what a request must prove to pass a gate again.

Nothing is refused here: a request that proves nothing takes the whole check in Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from sprocket.engine.common.sources cimport ENGINE_SOURCES
from sprocket.engine.remoting.wire_text cimport Text, is_name

cdef extern from "sha1.h":
    ctypedef void (*sha1_blocks)(uint32_t *state, const uint8_t *data, size_t blocks) noexcept nogil
    int sha1_has_instructions() noexcept nogil
    void sha1_by_instructions(uint32_t *state, const uint8_t *data, size_t blocks) noexcept nogil
    void sha1_by_words(uint32_t *state, const uint8_t *data, size_t blocks) noexcept nogil
    void sha1_begin(sha1_digest *digest) noexcept nogil
    void sha1_add(sha1_digest *digest, const uint8_t *data, size_t size, sha1_blocks add_blocks) noexcept nogil
    void sha1_end(sha1_digest *digest, uint8_t *to, sha1_blocks add_blocks) noexcept nogil

# Digest of the files that this module was built from; see `sprocket.engine.choice`.
SOURCES = ENGINE_SOURCES.decode()

cdef enum:
    # Of a digest in base64: 18 of its bytes in groups of three, then two bytes and one `=`.
    SIGNATURE_BYTES = 28
    NAME_SIZE_BYTES = 8

cdef const uint8_t *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef sha1_blocks add_blocks = sha1_by_instructions if sha1_has_instructions() else sha1_by_words


def digest(bytes content not None, bint by_instructions):
    """Return the SHA-1 of `content`, by the processor's instructions or in plain C; None without the instructions."""
    cdef sha1_digest made
    cdef uint8_t octets[SHA1_DIGEST_BYTES]
    cdef sha1_blocks add = sha1_by_instructions if by_instructions else sha1_by_words
    if by_instructions and not sha1_has_instructions():
        return None
    sha1_begin(&made)
    sha1_add(&made, <const uint8_t *> PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content), add)
    sha1_end(&made, octets, add)
    return PyBytes_FromStringAndSize(<const char *> octets, SHA1_DIGEST_BYTES)


cdef void begin_with(bytes block, uint32_t *state) noexcept:
    """Set `state` to that after one block."""
    cdef sha1_digest made
    sha1_begin(&made)
    sha1_add(&made, <const uint8_t *> PyBytes_AS_STRING(block), SHA1_BLOCK_BYTES, add_blocks)
    memcpy(state, made.state, sizeof(made.state))


cdef inline void continue_from(const uint32_t *state, sha1_digest *made) noexcept nogil:
    memcpy(made.state, state, sizeof(made.state))
    made.size = SHA1_BLOCK_BYTES


cdef void put_base64(const uint8_t *octets, uint8_t *to) noexcept nogil:
    """Write a digest in base64."""
    cdef uint32_t three
    cdef int i
    for i in range(0, SHA1_DIGEST_BYTES - 2, 3):
        three = <uint32_t> octets[i] << 16 | <uint32_t> octets[i + 1] << 8 | octets[i + 2]
        to[0], to[1] = BASE64[three >> 18], BASE64[three >> 12 & 63]
        to[2], to[3] = BASE64[three >> 6 & 63], BASE64[three & 63]
        to += 4
    three = <uint32_t> octets[SHA1_DIGEST_BYTES - 2] << 16 | <uint32_t> octets[SHA1_DIGEST_BYTES - 1] << 8
    to[0], to[1], to[2], to[3] = BASE64[three >> 18], BASE64[three >> 12 & 63], BASE64[three >> 6 & 63], c'='


cdef class SigningKey:
    """An account, and the two states that begin every HMAC-SHA1 with its key (RFC 2104): two blocks fewer each.

    With `is_token`, the account's name is a secret itself: whoever names it has proved enough, and signs nothing.
    """

    def __init__(self, str account not None, str secret_key not None, bint is_token=False):
        self.is_token = is_token
        key = secret_key.encode()
        if len(key) > SHA1_BLOCK_BYTES:
            key = digest(key, False)
        block = key.ljust(SHA1_BLOCK_BYTES, b"\0")
        self.account, self.account_bytes = account, account.encode()
        begin_with(bytes([octet ^ 0x36 for octet in block]), self.inner)
        begin_with(bytes([octet ^ 0x5C for octet in block]), self.outer)

    def signature(self, bytes content not None):
        """Return the signature of `content`, in base64."""
        cdef sha1_digest made
        cdef uint8_t text[SIGNATURE_BYTES]
        self.begin(&made)
        self.add(&made, <const uint8_t *> PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
        self.write(&made, text)
        return PyBytes_FromStringAndSize(<const char *> text, SIGNATURE_BYTES)

    cdef bint is_account(self, const Text *name) noexcept:
        return is_name(name, PyBytes_AS_STRING(self.account_bytes), PyBytes_GET_SIZE(self.account_bytes))

    cdef void begin(self, sha1_digest *content) noexcept:
        """Begin the signature of a content, which the caller adds piece by piece."""
        if not self.is_token:
            continue_from(self.inner, content)

    cdef void add(self, sha1_digest *content, const uint8_t *octets, Py_ssize_t size) noexcept:
        if not self.is_token:
            sha1_add(content, octets, size, add_blocks)

    cdef void add_account(self, sha1_digest *content) noexcept:
        self.add(content, <const uint8_t *> PyBytes_AS_STRING(self.account_bytes), PyBytes_GET_SIZE(self.account_bytes))

    cdef void write(self, sha1_digest *content, uint8_t *to) noexcept:
        """Write the signature of a whole content, in base64."""
        cdef sha1_digest made
        cdef uint8_t octets[SHA1_DIGEST_BYTES]
        sha1_end(content, octets, add_blocks)
        continue_from(self.outer, &made)
        sha1_add(&made, octets, SHA1_DIGEST_BYTES, add_blocks)
        sha1_end(&made, octets, add_blocks)
        put_base64(octets, to)

    cdef bint has_signed(self, sha1_digest *content, const Text *signature) noexcept:
        """Return whether `signature` is that of a whole content, in a time that does not depend on its text.

        The signature beside a token means nothing.
        """
        cdef uint8_t expected[SIGNATURE_BYTES]
        cdef uint8_t differing = 0
        cdef int i
        if self.is_token:
            return True
        if signature.size != SIGNATURE_BYTES or signature.has_escapes:
            return False
        self.write(content, expected)
        for i in range(SIGNATURE_BYTES):
            differing |= expected[i] ^ signature.at[i]
        return not differing


cdef bytes key_of(const uint8_t *first, Py_ssize_t first_bytes, const uint8_t *second, Py_ssize_t second_bytes):
    """Return different bytes for different pairs of names: the first one's size comes before both."""
    cdef bytes key = PyBytes_FromStringAndSize(NULL, NAME_SIZE_BYTES + first_bytes + second_bytes)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(key)
    memcpy(to, &first_bytes, NAME_SIZE_BYTES)
    memcpy(to + NAME_SIZE_BYTES, first, first_bytes)
    memcpy(to + NAME_SIZE_BYTES + first_bytes, second, second_bytes)
    return key


cdef bytes key_of_bytes(bytes one, bytes other):
    return key_of(
        <const uint8_t *> PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one),
        <const uint8_t *> PyBytes_AS_STRING(other), PyBytes_GET_SIZE(other),
    )


cdef inline bytes octets_of(str name):
    """Return the bytes of a name; JSON can name what no valid text in UTF-8 is."""
    return name.encode("utf-8", "surrogatepass")


cdef bint is_key(bytes key, const Text *first, const Text *second) noexcept:
    """Return whether `key` is that of two texts."""
    cdef const char *octets = PyBytes_AS_STRING(key)
    cdef Py_ssize_t size = NAME_SIZE_BYTES + first.size + second.size
    if PyBytes_GET_SIZE(key) != size or memcmp(octets, &first.size, NAME_SIZE_BYTES):
        return False
    octets += NAME_SIZE_BYTES
    return not memcmp(octets, first.at, first.size) and not memcmp(octets + first.size, second.at, second.size)


cdef class Proof:
    """What a request proves that is like one before: that an account signed it, and that its names were admitted.

    Names are one text, such as the topic of a send, or two; at most `max_names` are kept, then all are forgotten.
    """

    def __init__(
        self, SigningKey key not None, Py_ssize_t max_names, tuple revisions not None=(), tuple numbers not None=()
    ):
        """It holds while `revisions` have these `numbers`."""
        self.key, self.max_names = key, max_names
        self.names, self.latest = set(), b""
        self.revisions, self.numbers = revisions, numbers

    cpdef bint holds(self) except -1:
        """Return whether nothing has changed since the check that it stands for began."""
        cdef Py_ssize_t i
        for i in range(len(self.revisions)):
            if self.revisions[i].number != self.numbers[i]:
                return False
        return True

    def admit(self, str first not None, str second not None = ""):
        """Note that the whole check has admitted a request with these names."""
        cdef bytes one = octets_of(first), other = octets_of(second)
        if len(self.names) >= self.max_names:
            self.names.clear()
            self.latest = b""
        self.names.add(key_of_bytes(one, other))

    def covers(self, str first not None, str second not None = ""):
        """Return whether a request with these names was admitted."""
        return key_of_bytes(octets_of(first), octets_of(second)) in self.names

    cdef bint covers_texts(self, const Text *first, const Text *second) except -1:
        """Return whether a request with these names, as they are in its header, was admitted."""
        cdef bytes key
        if first.has_escapes or second.has_escapes:
            return False
        if is_key(self.latest, first, second):
            return True
        key = key_of(first.at, first.size, second.at, second.size)
        if key not in self.names:
            return False
        self.latest = key
        return True
