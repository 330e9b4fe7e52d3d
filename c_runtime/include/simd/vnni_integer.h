/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of 8-bit elements by VNNI (AVX2 with AVX-VNNI, AVX-512 with AVX512_VNNI): the functions of megcc_integer.h
 * for the packed form u8. VPDPBUSD adds to each int32 lane the products of four uint8, from x, with four int8, from the
 * weights. Elements of int8 become uint8 by inverting their sign bits, which adds 128; kernels take that out of the bias.
 */
#ifndef MEGCC_SIMD_VNNI_INTEGER_H
#define MEGCC_SIMD_VNNI_INTEGER_H

#if defined(MGC_ISA_AVX2_VNNI)
/* Copies n bytes, each "exclusive or" `bits`. */
static MGC_INLINE void mgc_xor_bytes(uint8_t *to, const uint8_t *from, int32_t n, int32_t bits)
{
    const __m256i vector = _mm256_set1_epi8((char)bits);
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(const void *)(from + i)), vector));
    }
    for (; i + 8 <= n; i += 8) {
        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_xor_si128(_mm_loadl_epi64((const __m128i *)(const void *)(from + i)), _mm256_castsi256_si128(vector)));
    }
    for (; i < n; i++) {
        to[i] = (uint8_t)(from[i] ^ bits);
    }
}
static MGC_INLINE void mgc_fill_u8(uint8_t *to, int32_t n, int32_t value)
{
    const __m256i bytes = _mm256_set1_epi8((char)value);
    int32_t i = 0;
    for (; i + 32 <= n; i += 32) {
        _mm256_storeu_si256((__m256i *)(void *)(to + i), bytes);
    }
    for (; i < n; i++) {
        to[i] = (uint8_t)value;
    }
}
static MGC_INLINE mgc_i mgc_total_u8(mgc_i c, const uint8_t *p, int32_t n)
{
    __m256i sum = (__m256i)c;
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(p + i));
        sum = _mm256_add_epi32(sum, _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_sad_epu8(bytes, _mm_setzero_si128()), 0));
    }
    uint32_t rest = 0;
    for (; i < n; i++) {
        rest += p[i];
    }
    return (mgc_i)_mm256_add_epi32(sum, _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_cvtsi32_si128((int32_t)rest), 0));
}
MGC_ZERO_POINT_SUMS(mgc_zero_point_sums_u8, u8, uint8_t)
static MGC_INLINE mgc_i mgc_dot_w_u8_i8(const int8_t *p) { return (mgc_i)_mm256_loadu_si256((const __m256i *)(const void *)p); }
static MGC_INLINE mgc_i mgc_dot_u8(mgc_i c, mgc_i x, mgc_i w)
{
    __asm__(MGC_AVX_VNNI("vpdpbusd") : "+x"(c) : "x"(x), "x"(w));
    return c;
}
#elif defined(MGC_ISA_AVX512_VNNI)
/* Copies n bytes, each "exclusive or" `bits`. */
static MGC_INLINE void mgc_xor_bytes(uint8_t *to, const uint8_t *from, int32_t n, int32_t bits)
{
    const __m512i vector = _mm512_set1_epi8((char)bits);
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        _mm512_storeu_si512(to + i, _mm512_xor_si512(_mm512_loadu_si512(from + i), vector));
    }
    if (i < n) {
        const __mmask64 rest = ((__mmask64)1 << (n - i)) - 1u;
        _mm512_mask_storeu_epi8(to + i, rest, _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, from + i), vector));
    }
}
static MGC_INLINE void mgc_fill_u8(uint8_t *to, int32_t n, int32_t value)
{
    const __m512i bytes = _mm512_set1_epi8((char)value);
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        _mm512_storeu_si512(to + i, bytes);
    }
    if (i < n) {
        _mm512_mask_storeu_epi8(to + i, ((__mmask64)1 << (n - i)) - 1u, bytes);
    }
}
static MGC_INLINE mgc_i mgc_total_u8(mgc_i c, const uint8_t *p, int32_t n)
{
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum = (__m512i)c;
    int32_t i = 0;
    for (; i + 64 <= n; i += 64) {
        sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(p + i), ones);
    }
    return (mgc_i)(i < n ? _mm512_dpbusd_epi32(sum, _mm512_maskz_loadu_epi8(((__mmask64)1 << (n - i)) - 1u, p + i), ones) : sum);
}
MGC_ZERO_POINT_SUMS(mgc_zero_point_sums_any_length, u8, uint8_t)
/* Sums the elements of a window in four lanes. Its runs have up to 16 bytes, the first ones in the mask `first`. */
static MGC_INLINE __m128i mgc_total_short(const uint8_t *x, int32_t rows, ptrdiff_t row_stride, int32_t runs, ptrdiff_t run_stride, __mmask16 first)
{
    __m128i total = _mm_setzero_si128();
    for (int32_t j = 0; j < rows; j++) {
        for (int32_t k = 0; k < runs; k++) {
            total = _mm_dpbusd_epi32(total, _mm_maskz_loadu_epi8(first, x + j * row_stride + k * run_stride), _mm_set1_epi8(1));
        }
    }
    return total;
}
static MGC_INLINE void mgc_zero_point_sums_u8(int32_t *to, const uint8_t *x, int32_t count, ptrdiff_t pixel, int32_t rows, ptrdiff_t row_stride,
    int32_t runs, ptrdiff_t run_stride, int32_t length, int32_t zero)
{
    int32_t i = 0;
    if (length <= 16) {
        const __mmask16 first = (__mmask16)((1u << length) - 1u);
        const __m128i factor = _mm_set1_epi32((int32_t)(0u - (uint32_t)zero));
        for (; i + 4 <= count; i += 4) {
            __m128i total[4];
            for (int32_t p = 0; p < 4; p++) {
                total[p] = mgc_total_short(x + (i + p) * pixel, rows, row_stride, runs, run_stride, first);
            }
            const __m128i totals = _mm_hadd_epi32(_mm_hadd_epi32(total[0], total[1]), _mm_hadd_epi32(total[2], total[3]));
            _mm_storeu_si128((__m128i *)(void *)(to + i), _mm_mullo_epi32(totals, factor));
        }
    }
    mgc_zero_point_sums_any_length(to + i, x + i * pixel, count - i, pixel, rows, row_stride, runs, run_stride, length, zero);
}
static MGC_INLINE mgc_i mgc_dot_w_u8_i8(const int8_t *p) { return (mgc_i)_mm512_loadu_si512(p); }
static MGC_INLINE mgc_i mgc_dot_u8(mgc_i c, mgc_i x, mgc_i w)
{
#if defined(__clang__)
    return (mgc_i)_mm512_dpbusd_epi32((__m512i)c, (__m512i)x, (__m512i)w);
#else
    /* With the intrinsic, gcc 12 copies the sums, which takes three times as long. */
    __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(x), "v"(w));
    return c;
#endif
}
#endif
static MGC_INLINE void mgc_pack_u8_u8(uint8_t *to, const uint8_t *from, int32_t n, int32_t zero)
{
    (void)zero;
    mgc_xor_bytes(to, from, n, 0);
}
static MGC_INLINE void mgc_pack_u8_i8(uint8_t *to, const int8_t *from, int32_t n, int32_t zero)
{
    (void)zero;
    mgc_xor_bytes(to, (const uint8_t *)from, n, 0x80);
}
static MGC_INLINE mgc_i mgc_dot_x_u8(const uint8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return mgc_iset1(four);
}
#define MGC_INTERLEAVE4(name, type, sign_bits) \
    static MGC_INLINE mgc_i mgc_interleave4_##name(const type *p, const type *q, const type *r, const type *s) \
    { \
        return mgc_interleave_bytes(p, q, r, s) ^ mgc_iset1(sign_bits); \
    } \
    static MGC_INLINE mgc_i mgc_interleave4_##name##_n(const type *p, const type *q, const type *r, const type *s, int32_t n) \
    { \
        const mgc_u low = (mgc_u)mgc_iset1(255), a = (mgc_u)mgc_iload_##name##_n(p, n) & low; \
        const mgc_u b = (mgc_u)mgc_iload_##name##_n(q, n) & low, c = (mgc_u)mgc_iload_##name##_n(r, n) & low; \
        return (mgc_i)(a | b << 8 | c << 16 | (mgc_u)mgc_iload_##name##_n(s, n) << 24) ^ mgc_iset1(sign_bits); \
    }
/* Each lane gets a byte of each row; mgc_interleave_bytes leaves their sign bits as they are. */
#if defined(MGC_ISA_AVX512_VNNI)
static MGC_INLINE mgc_i mgc_interleave_bytes(const void *p, const void *q, const void *r, const void *s)
{
    __m512i rows = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    rows = _mm512_inserti32x4(rows, _mm_loadu_si128((const __m128i *)q), 1);
    rows = _mm512_inserti32x4(rows, _mm_loadu_si128((const __m128i *)r), 2);
    rows = _mm512_inserti32x4(rows, _mm_loadu_si128((const __m128i *)s), 3);
    /* Gathers four channels of all rows in 128 bits, then the rows of each channel in 32. */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m128i transpose = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return (mgc_i)_mm512_shuffle_epi8(_mm512_permutexvar_epi32(order, rows), _mm512_broadcast_i32x4(transpose));
}
#else
static MGC_INLINE mgc_i mgc_interleave_bytes(const void *p, const void *q, const void *r, const void *s)
{
    const __m128i a = _mm_unpacklo_epi8(MGC_LOAD_64(p), MGC_LOAD_64(q)), b = _mm_unpacklo_epi8(MGC_LOAD_64(r), MGC_LOAD_64(s));
    return (mgc_i)_mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
}
#endif
MGC_INTERLEAVE4(u8, uint8_t, 0)
MGC_INTERLEAVE4(i8, int8_t, (int32_t)0x80808080)

#endif
