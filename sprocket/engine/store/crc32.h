/* CRC-32 as zlib computes it, without its call and without a table lookup per byte where the processor can multiply
 * polynomials.  Records are short: most have a few hundred bytes, so a call into another library would cost as much.
 *
 * Method: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ", Intel, 2009.  The constants are
 * powers of x modulo the polynomial 0x104C11DB7, bit-reflected, as that paper gives them.
 */
#ifndef SPROCKET_CRC32_H
#define SPROCKET_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32_REFLECTED_POLYNOMIAL 0xEDB88320u
/* Bytes that one step of the tables takes. */
#define CRC32_SLICES 8

static uint32_t crc32_tables[CRC32_SLICES][256];

/* Fill the tables.  Call it once, before any CRC. */
static void crc32_prepare(void) {
    for (uint32_t octet = 0; octet < 256; octet++) {
        uint32_t crc = octet;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC32_REFLECTED_POLYNOMIAL : crc >> 1;
        crc32_tables[0][octet] = crc;
    }
    for (int slice = 1; slice < CRC32_SLICES; slice++)
        for (int octet = 0; octet < 256; octet++) {
            uint32_t before = crc32_tables[slice - 1][octet];
            crc32_tables[slice][octet] = before >> 8 ^ crc32_tables[0][before & 0xFF];
        }
}

/* Continue `crc` (already inverted) over `size` bytes, with tables alone. */
static uint32_t crc32_by_tables(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= CRC32_SLICES) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        low = __builtin_bswap32(low);
        high = __builtin_bswap32(high);
#endif
        low ^= crc;
        crc = crc32_tables[7][low & 0xFF] ^ crc32_tables[6][low >> 8 & 0xFF] ^ crc32_tables[5][low >> 16 & 0xFF] ^
              crc32_tables[4][low >> 24] ^ crc32_tables[3][high & 0xFF] ^ crc32_tables[2][high >> 8 & 0xFF] ^
              crc32_tables[1][high >> 16 & 0xFF] ^ crc32_tables[0][high >> 24];
        data += CRC32_SLICES;
        size -= CRC32_SLICES;
    }
    while (size--)
        crc = crc >> 8 ^ crc32_tables[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define CRC32_LANE_BYTES 16
#define CRC32_BLOCK_BYTES (4 * CRC32_LANE_BYTES)

/* Move the remainder in `lane` forward over the bytes that `factors` stand for, and add the bytes of `next`. */
__attribute__((target("pclmul,sse4.1"), always_inline)) static inline __m128i crc32_fold(
    __m128i lane, __m128i factors, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Continue `crc` (already inverted) over `size` bytes, at least 64: four lanes of 16 bytes, then one, then tables. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc32_by_folding(
    uint32_t crc, const uint8_t *data, size_t size) {
    const __m128i by_block = _mm_set_epi64x(0x01C6E41596, 0x0154442BD4);
    const __m128i by_lane = _mm_set_epi64x(0x00CCAA009E, 0x01751997D0);
    const __m128i by_half = _mm_set_epi64x(0, 0x0163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x01F7011641, 0x01DB710641);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lanes[4];
    for (int lane = 0; lane < 4; lane++)
        lanes[lane] = _mm_loadu_si128((const __m128i *)(data + lane * CRC32_LANE_BYTES));
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)crc));
    data += CRC32_BLOCK_BYTES;
    size -= CRC32_BLOCK_BYTES;
    for (; size >= CRC32_BLOCK_BYTES; data += CRC32_BLOCK_BYTES, size -= CRC32_BLOCK_BYTES)
        for (int lane = 0; lane < 4; lane++)
            lanes[lane] = crc32_fold(
                lanes[lane], by_block, _mm_loadu_si128((const __m128i *)(data + lane * CRC32_LANE_BYTES)));
    __m128i rest = lanes[0];
    for (int lane = 1; lane < 4; lane++)
        rest = crc32_fold(rest, by_lane, lanes[lane]);
    for (; size >= CRC32_LANE_BYTES; data += CRC32_LANE_BYTES, size -= CRC32_LANE_BYTES)
        rest = crc32_fold(rest, by_lane, _mm_loadu_si128((const __m128i *)data));
    /* 128 bits to 64, 64 to 32, and the remainder of those by Barrett's method. */
    rest = _mm_xor_si128(_mm_srli_si128(rest, 8), _mm_clmulepi64_si128(rest, by_lane, 0x10));
    rest = _mm_xor_si128(_mm_srli_si128(rest, 4), _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), by_half, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(rest, low_words), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), barrett, 0x00);
    crc = (uint32_t)_mm_extract_epi32(_mm_xor_si128(rest, quotient), 1);
    return crc32_by_tables(crc, data, size);
}

static int crc32_can_fold(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
#define CRC32_BLOCK_BYTES SIZE_MAX
#define crc32_by_folding crc32_by_tables
#define crc32_can_fold() 0
#endif

/* Return the CRC-32 of bytes of which the first have `crc`, and `size` bytes at `data` follow.  `can_fold` is the result
 * of `crc32_can_fold`. */
static inline uint32_t crc32_more(uint32_t crc, const uint8_t *data, size_t size, int can_fold) {
    if (can_fold && size >= CRC32_BLOCK_BYTES)
        return ~crc32_by_folding(~crc, data, size);
    return ~crc32_by_tables(~crc, data, size);
}

/* Return the CRC-32 of `size` bytes. */
static inline uint32_t crc32_of(const uint8_t *data, size_t size, int can_fold) {
    return crc32_more(0, data, size, can_fold);
}

#endif
