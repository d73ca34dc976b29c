/* SHA-1 (FIPS 180-4), for signatures of short requests.
 *
 * A call of OpenSSL through Python takes longer than the digest of a whole request, and its headers are not on every
 * machine.  No step depends on the bytes but through sums, so the time tells only their number.  `tests/engine`
 * compares it with `hashlib`.
 *
 * x86-64 processors with the instructions for SHA use them.  Method: Gulley et al., "Intel SHA Extensions", 2013.
 */
#ifndef SPROCKET_SHA1_H
#define SPROCKET_SHA1_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SHA1_BLOCK_BYTES 64
#define SHA1_DIGEST_BYTES 20
#define SHA1_WORDS 5
/* Of a block: the size of the content in bits follows this many bytes. */
#define SHA1_SIZE_AT 56

/* Adds whole blocks to a state. */
typedef void (*sha1_blocks)(uint32_t *state, const uint8_t *data, size_t blocks);

/* A digest that is being made. */
typedef struct {
    uint32_t state[SHA1_WORDS];
    uint64_t size; /* bytes so far */
    uint8_t rest[SHA1_BLOCK_BYTES]; /* those of them that are no whole block yet */
} sha1_digest;

static inline uint32_t sha1_rotated(uint32_t word, int bits) {
    return word << bits | word >> (32 - bits);
}

static inline uint32_t sha1_word(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline void sha1_put_word(uint8_t *to, uint32_t word) {
    to[0] = (uint8_t)(word >> 24);
    to[1] = (uint8_t)(word >> 16);
    to[2] = (uint8_t)(word >> 8);
    to[3] = (uint8_t)word;
}

/* The next word of the schedule, which has the last 16. */
static inline uint32_t sha1_next_word(uint32_t *words, int round) {
    uint32_t next = words[(round + 13) & 15] ^ words[(round + 8) & 15] ^ words[(round + 2) & 15] ^ words[round & 15];
    return words[round & 15] = sha1_rotated(next, 1);
}

#define SHA1_ROUND(function, constant)                                                                  \
    do {                                                                                                \
        uint32_t word = round < 16 ? words[round] : sha1_next_word(words, round);                       \
        uint32_t sum = sha1_rotated(a, 5) + (function) + e + (constant) + word;                         \
        e = d, d = c, c = sha1_rotated(b, 30), b = a, a = sum;                                          \
    } while (0)

/* Add blocks in plain C. */
static inline void sha1_by_words(uint32_t *state, const uint8_t *data, size_t blocks) {
    for (; blocks; blocks--, data += SHA1_BLOCK_BYTES) {
        uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        int round = 0;
        for (int i = 0; i < 16; i++)
            words[i] = sha1_word(data + 4 * i);
        for (; round < 20; round++)
            SHA1_ROUND(d ^ (b & (c ^ d)), 0x5A827999u);
        for (; round < 40; round++)
            SHA1_ROUND(b ^ c ^ d, 0x6ED9EBA1u);
        for (; round < 60; round++)
            SHA1_ROUND((b & c) | (d & (b | c)), 0x8F1BBCDCu);
        for (; round < 80; round++)
            SHA1_ROUND(b ^ c ^ d, 0xCA62C1D6u);
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

/* Four rounds; `words` are their words of the schedule. */
#define SHA1_FOUR(words, function)                                                                      \
    do {                                                                                                \
        __m128i before = abcd;                                                                          \
        abcd = _mm_sha1rnds4_epu32(abcd, _mm_sha1nexte_epu32(e, words), function);                      \
        e = before;                                                                                     \
    } while (0)
/* The same after the next four words have replaced those in `w`; `x`, `y` and `z` are the 12 after those. */
#define SHA1_NEXT_FOUR(w, x, y, z, function)                                                            \
    do {                                                                                                \
        w = _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32(w, x), y), z);                          \
        SHA1_FOUR(w, function);                                                                         \
    } while (0)

/* Add blocks by the processor's instructions for SHA. */
__attribute__((target("sha,sse4.1"))) static inline void sha1_by_instructions(
    uint32_t *state, const uint8_t *data, size_t blocks) {
    const __m128i reversed = _mm_set_epi64x(0x0001020304050607, 0x08090A0B0C0D0E0F);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; blocks; blocks--, data += SHA1_BLOCK_BYTES) {
        const __m128i *block = (const __m128i *)data;
        __m128i first_abcd = abcd, first_e = e;
        __m128i w = _mm_shuffle_epi8(_mm_loadu_si128(block), reversed);
        __m128i x = _mm_shuffle_epi8(_mm_loadu_si128(block + 1), reversed);
        __m128i y = _mm_shuffle_epi8(_mm_loadu_si128(block + 2), reversed);
        __m128i z = _mm_shuffle_epi8(_mm_loadu_si128(block + 3), reversed);
        abcd = _mm_sha1rnds4_epu32(abcd, _mm_add_epi32(e, w), 0);
        e = first_abcd;
        SHA1_FOUR(x, 0);
        SHA1_FOUR(y, 0);
        SHA1_FOUR(z, 0);
        SHA1_NEXT_FOUR(w, x, y, z, 0);
        SHA1_NEXT_FOUR(x, y, z, w, 1);
        SHA1_NEXT_FOUR(y, z, w, x, 1);
        SHA1_NEXT_FOUR(z, w, x, y, 1);
        SHA1_NEXT_FOUR(w, x, y, z, 1);
        SHA1_NEXT_FOUR(x, y, z, w, 1);
        SHA1_NEXT_FOUR(y, z, w, x, 2);
        SHA1_NEXT_FOUR(z, w, x, y, 2);
        SHA1_NEXT_FOUR(w, x, y, z, 2);
        SHA1_NEXT_FOUR(x, y, z, w, 2);
        SHA1_NEXT_FOUR(y, z, w, x, 2);
        SHA1_NEXT_FOUR(z, w, x, y, 3);
        SHA1_NEXT_FOUR(w, x, y, z, 3);
        SHA1_NEXT_FOUR(x, y, z, w, 3);
        SHA1_NEXT_FOUR(y, z, w, x, 3);
        SHA1_NEXT_FOUR(z, w, x, y, 3);
        abcd = _mm_add_epi32(abcd, first_abcd);
        e = _mm_sha1nexte_epu32(e, first_e);
    }
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}

static inline int sha1_has_instructions(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
}
#else
#define sha1_by_instructions sha1_by_words
#define sha1_has_instructions() 0
#endif

/* Begin the digest of an empty content. */
static inline void sha1_begin(sha1_digest *digest) {
    static const uint32_t first[SHA1_WORDS] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
    memcpy(digest->state, first, sizeof(first));
    digest->size = 0;
}

/* Add `size` bytes. */
static inline void sha1_add(sha1_digest *digest, const uint8_t *data, size_t size, sha1_blocks add_blocks) {
    size_t used = digest->size % SHA1_BLOCK_BYTES, blocks;
    digest->size += size;
    if (used) {
        size_t room = SHA1_BLOCK_BYTES - used;
        if (size < room) {
            memcpy(digest->rest + used, data, size);
            return;
        }
        memcpy(digest->rest + used, data, room);
        add_blocks(digest->state, digest->rest, 1);
        data += room;
        size -= room;
    }
    blocks = size / SHA1_BLOCK_BYTES;
    if (blocks)
        add_blocks(digest->state, data, blocks);
    memcpy(digest->rest, data + blocks * SHA1_BLOCK_BYTES, size % SHA1_BLOCK_BYTES);
}

/* Write the digest of all that was added, which ends it. */
static inline void sha1_end(sha1_digest *digest, uint8_t *to, sha1_blocks add_blocks) {
    size_t used = digest->size % SHA1_BLOCK_BYTES;
    uint64_t bits = digest->size * 8;
    digest->rest[used++] = 0x80;
    if (used > SHA1_SIZE_AT) {
        memset(digest->rest + used, 0, SHA1_BLOCK_BYTES - used);
        add_blocks(digest->state, digest->rest, 1);
        used = 0;
    }
    memset(digest->rest + used, 0, SHA1_SIZE_AT - used);
    sha1_put_word(digest->rest + SHA1_SIZE_AT, (uint32_t)(bits >> 32));
    sha1_put_word(digest->rest + SHA1_SIZE_AT + 4, (uint32_t)bits);
    add_blocks(digest->state, digest->rest, 1);
    for (int i = 0; i < SHA1_WORDS; i++)
        sha1_put_word(to + 4 * i, digest->state[i]);
}

#endif
