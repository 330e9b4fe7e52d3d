/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_integer.h for x86 (SSE2, AVX2, AVX-512): functions for which compilers do not find the best instructions. AVX-512
 * has masks for the tail of a vector; all levels have saturating instructions.
 */
#ifndef MEGCC_SIMD_X86_INTEGER_H
#define MEGCC_SIMD_X86_INTEGER_H

/* The conversion gives INT32_MIN for NaN and for numbers outside int32. mgc_nearest must give 0 for NaN, which is not equal
 * to itself, and INT32_MAX, the complement of INT32_MIN, for 2^31 and more. */
#if defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_i mgc_nearest(mgc_v v)
{
    const __m512i whole = _mm512_maskz_cvt_roundps_epi32(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v,
                                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __mmask16 high = _mm512_cmp_ps_mask(v, _mm512_set1_ps(2147483648.0f), _CMP_GE_OQ);
    return (mgc_i)_mm512_mask_mov_epi32(whole, high, _mm512_set1_epi32(INT32_MAX));
}
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v)
{
    return (mgc_i)_mm512_cvt_roundps_epi32(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
#if defined(MGC_ISA_AVX2)
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return (mgc_i)_mm256_cvtps_epi32(v); }
#else
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return (mgc_i)_mm_cvtps_epi32(v); }
#endif
static MGC_INLINE mgc_i mgc_nearest(mgc_v v)
{
    return (mgc_nearest_within(v) ^ (mgc_i)(v >= mgc_set1(2147483648.0f))) & (mgc_i)(v == v);
}
#endif

/* mgc_nearest_fused(x, f, a) is x * f + (a - 1.5 * 2^23), rounded; a is an integer near 1.5 * 2^23. All floats from 2^23
 * to 2^24 are integers, so the sum x * f + a is rounded to an integer, whose bits are the lowest bits of the float.
 * 0x4b400000 are the bits of 1.5 * 2^23. */
#if defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2)
#if defined(MGC_ISA_AVX512)
#define MGC_FMA(x, f, a) _mm512_fmadd_ps(x, f, a)
#else
#define MGC_FMA(x, f, a) _mm256_fmadd_ps(x, f, a)
#endif
static MGC_INLINE mgc_i mgc_nearest_fused(mgc_i x, mgc_v f, mgc_v a)
{
    return mgc_isub((mgc_i)MGC_FMA(mgc_to_float(x), f, a), mgc_iset1(0x4b400000));
}
static MGC_INLINE mgc_i mgc_nearest_odd(mgc_i x, mgc_i c, mgc_v f, mgc_v a)
{
#if defined(MGC_ISA_AVX512)
    const __m512i near = (__m512i)mgc_nearest_fused(mgc_iadd((mgc_i)_mm512_abs_epi32((__m512i)x), c), f, a);
    return (mgc_i)_mm512_mask_sub_epi32(near, _mm512_movepi32_mask((__m512i)x), _mm512_setzero_si512(), near);
#else
    const mgc_i near = mgc_nearest_fused(mgc_iadd((mgc_i)_mm256_abs_epi32((__m256i)x), c), f, a);
    return (mgc_i)_mm256_sign_epi32((__m256i)near, (__m256i)x);
#endif
}
#endif

/* Loads and stores elements of a type. `small` is the size in the names of the intrinsics for as many elements as there are
 * lanes, which for 128 bits is empty. */
#if defined(MGC_ISA_AVX512)
#define MGC_ELEMENTS(name, type, bits, small, widened, narrowed) \
    static MGC_INLINE mgc_i mgc_iload_##name(const type *p) \
    { \
        return (mgc_i)widened(_mm##small##_loadu_epi##bits(p)); \
    } \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        return (mgc_i)widened(_mm##small##_maskz_loadu_epi##bits(mgc_first(n), p)); \
    } \
    static MGC_INLINE void mgc_istore_##name(type *p, mgc_i v) { _mm##small##_storeu_epi##bits(p, narrowed(v)); } \
    static MGC_INLINE void mgc_istore_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        _mm##small##_mask_storeu_epi##bits(p, mgc_first(n), narrowed(v)); \
    }
#define MGC_POSITIVE(v) _mm512_max_epi32((__m512i)(v), _mm512_setzero_si512())
#define MGC_TO_I8(v) _mm512_cvtsepi32_epi8((__m512i)(v))
#define MGC_TO_U8(v) _mm512_cvtusepi32_epi8(MGC_POSITIVE(v))
#define MGC_TO_I16(v) _mm512_cvtsepi32_epi16((__m512i)(v))
#define MGC_TO_U16(v) _mm512_cvtusepi32_epi16(MGC_POSITIVE(v))
#define MGC_SAME(v) ((__m512i)(v))
MGC_ELEMENTS(i8, int8_t, 8, , _mm512_cvtepi8_epi32, MGC_TO_I8)
MGC_ELEMENTS(u8, uint8_t, 8, , _mm512_cvtepu8_epi32, MGC_TO_U8)
MGC_ELEMENTS(i16, int16_t, 16, 256, _mm512_cvtepi16_epi32, MGC_TO_I16)
MGC_ELEMENTS(u16, uint16_t, 16, 256, _mm512_cvtepu16_epi32, MGC_TO_U16)
MGC_ELEMENTS(i32, int32_t, 32, 512, MGC_SAME, MGC_SAME)
#else
/* Load and store the first n bytes of a 64-bit word, 0 <= n < 8. */
static MGC_INLINE uint64_t mgc_bytes_n(const void *p, int32_t n)
{
    const uint8_t *from = (const uint8_t *)p;
    uint64_t bytes = 0;
    for (int32_t i = n; i-- > 0;) {
        bytes = bytes << 8 | from[i];
    }
    return bytes;
}
static MGC_INLINE void mgc_put_bytes_n(void *p, uint64_t bytes, int32_t n)
{
    uint8_t *to = (uint8_t *)p;
    if (n & 4) {
        memcpy(to, &bytes, 4);
        to += 4;
        bytes >>= 32;
    }
    if (n & 2) {
        memcpy(to, &bytes, 2);
        to += 2;
        bytes >>= 16;
    }
    if (n & 1) {
        *to = (uint8_t)bytes;
    }
}
#if defined(MGC_ISA_AVX2)
static MGC_INLINE __m128i mgc_narrow_i16(mgc_i v)
{
    return _mm_packs_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
}
#else
static MGC_INLINE __m128i mgc_narrow_i16(mgc_i v) { return _mm_packs_epi32((__m128i)v, (__m128i)v); }
#endif
/* int32 is narrowed to int16, and that to 8 bits: saturating twice gives the same as once. */
#define MGC_BYTE_ELEMENTS(name, type, packed) \
    static MGC_INLINE void mgc_istore_##name(type *p, mgc_i v) \
    { \
        const __m128i words = mgc_narrow_i16(v), bytes = packed(words, words); \
        memcpy(p, &bytes, MGC_LANES); \
    } \
    static MGC_INLINE void mgc_istore_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            mgc_istore_##name(p, v); \
        } else { \
            const __m128i words = mgc_narrow_i16(v); \
            mgc_put_bytes_n(p, (uint64_t)_mm_cvtsi128_si64(packed(words, words)), n); \
        } \
    } \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            return mgc_iload_##name(p); \
        } \
        type lanes[8]; \
        const uint64_t bytes = mgc_bytes_n(p, n); \
        memcpy(lanes, &bytes, 8); \
        return mgc_iload_##name(lanes); \
    }
/* Loads and stores of 16-bit elements, and without masks of 32-bit ones. */
#define MGC_FIRST_ELEMENTS(name, type) \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            return mgc_iload_##name(p); \
        } \
        type lanes[MGC_LANES] = { 0 }; \
        for (int32_t i = 0; i < n; i++) { \
            lanes[i] = p[i]; \
        } \
        return mgc_iload_##name(lanes); \
    } \
    static MGC_INLINE void mgc_istore_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            mgc_istore_##name(p, v); \
        } else { \
            type lanes[MGC_LANES]; \
            mgc_istore_##name(lanes, v); \
            for (int32_t i = 0; i < n; i++) { \
                p[i] = lanes[i]; \
            } \
        } \
    }
#if defined(MGC_ISA_AVX2)
#define MGC_LOAD_64(p) _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define MGC_LOAD_128(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
static MGC_INLINE mgc_i mgc_iload_i8(const int8_t *p) { return (mgc_i)_mm256_cvtepi8_epi32(MGC_LOAD_64(p)); }
static MGC_INLINE mgc_i mgc_iload_u8(const uint8_t *p) { return (mgc_i)_mm256_cvtepu8_epi32(MGC_LOAD_64(p)); }
static MGC_INLINE mgc_i mgc_iload_i16(const int16_t *p) { return (mgc_i)_mm256_cvtepi16_epi32(MGC_LOAD_128(p)); }
static MGC_INLINE mgc_i mgc_iload_u16(const uint16_t *p) { return (mgc_i)_mm256_cvtepu16_epi32(MGC_LOAD_128(p)); }
static MGC_INLINE __m128i mgc_narrow_u16(mgc_i v)
{
    return _mm_packus_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
}
static MGC_INLINE mgc_i mgc_iload_i32_n(const int32_t *p, int32_t n) { return (mgc_i)_mm256_maskload_epi32(p, mgc_first(n)); }
static MGC_INLINE void mgc_istore_i32_n(int32_t *p, mgc_i v, int32_t n)
{
    _mm256_maskstore_epi32(p, mgc_first(n), (__m256i)v);
}
#else
/* Loads elements of 8 or 16 bits to the lower part of a vector, to be widened to int32. */
static MGC_INLINE __m128i mgc_load_lower(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm_cvtsi32_si128(four);
}
static MGC_INLINE mgc_i mgc_iload_i8(const int8_t *p)
{
    const __m128i bytes = mgc_load_lower(p), words = _mm_unpacklo_epi8(bytes, bytes);
    return (mgc_i)_mm_srai_epi32(_mm_unpacklo_epi16(words, words), 24);
}
static MGC_INLINE mgc_i mgc_iload_u8(const uint8_t *p)
{
    const __m128i zero = _mm_setzero_si128();
    return (mgc_i)_mm_unpacklo_epi16(_mm_unpacklo_epi8(mgc_load_lower(p), zero), zero);
}
static MGC_INLINE mgc_i mgc_iload_i16(const int16_t *p)
{
    const __m128i words = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (mgc_i)_mm_srai_epi32(_mm_unpacklo_epi16(words, words), 16);
}
static MGC_INLINE mgc_i mgc_iload_u16(const uint16_t *p)
{
    return (mgc_i)_mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p), _mm_setzero_si128());
}
static MGC_INLINE __m128i mgc_narrow_u16(mgc_i v)
{
    const mgc_i limited = mgc_imin(mgc_imax(v, mgc_iset1(0)), mgc_iset1(65535)) - mgc_iset1(32768);
    return _mm_xor_si128(mgc_narrow_i16(limited), _mm_set1_epi16(-32768));
}
#endif
static MGC_INLINE void mgc_istore_i16(int16_t *p, mgc_i v)
{
    const __m128i words = mgc_narrow_i16(v);
    memcpy(p, &words, 2 * MGC_LANES);
}
static MGC_INLINE void mgc_istore_u16(uint16_t *p, mgc_i v)
{
    const __m128i words = mgc_narrow_u16(v);
    memcpy(p, &words, 2 * MGC_LANES);
}
static MGC_INLINE mgc_i mgc_iload_i32(const int32_t *p)
{
    mgc_i v;
    memcpy(&v, p, sizeof v);
    return v;
}
static MGC_INLINE void mgc_istore_i32(int32_t *p, mgc_i v) { memcpy(p, &v, sizeof v); }
MGC_FIRST_ELEMENTS(i16, int16_t)
MGC_FIRST_ELEMENTS(u16, uint16_t)
#if !defined(MGC_ISA_AVX2)
MGC_FIRST_ELEMENTS(i32, int32_t)
#endif
MGC_BYTE_ELEMENTS(i8, int8_t, _mm_packs_epi16)
MGC_BYTE_ELEMENTS(u8, uint8_t, _mm_packus_epi16)
#endif

/* mgc_istore_row4_<type>(p,a,b,c,d) stores four vectors one after the other, as i8 or u8. It and mgc_istore4_<type> narrow
 * four vectors of int32 to int16, then to 8 bits. These instructions work on each 128 bits, which then have four lanes
 * of each vector, in 32 bits each; a permutation brings those of one vector together. */
#if defined(MGC_ISA_AVX512)
#define MGC_ISTORE4(name, type, packed) \
    static MGC_INLINE __m512i mgc_narrow4_##name(mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        const __m512i mixed = packed(_mm512_packs_epi32((__m512i)a, (__m512i)b), _mm512_packs_epi32((__m512i)c, (__m512i)d)); \
        const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); \
        return _mm512_permutexvar_epi32(order, mixed); \
    } \
    static MGC_INLINE void mgc_istore_row4_##name(type *p, mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        _mm512_storeu_si512((void *)p, mgc_narrow4_##name(a, b, c, d)); \
    } \
    static MGC_INLINE void mgc_istore4_##name(type *p, type *q, type *r, type *s, mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        const __m512i bytes = mgc_narrow4_##name(a, b, c, d); \
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_castsi512_si128(bytes)); \
        _mm_storeu_si128((__m128i *)(void *)q, _mm512_extracti32x4_epi32(bytes, 1)); \
        _mm_storeu_si128((__m128i *)(void *)r, _mm512_extracti32x4_epi32(bytes, 2)); \
        _mm_storeu_si128((__m128i *)(void *)s, _mm512_extracti32x4_epi32(bytes, 3)); \
    }
MGC_ISTORE4(i8, int8_t, _mm512_packs_epi16)
MGC_ISTORE4(u8, uint8_t, _mm512_packus_epi16)
#elif defined(MGC_ISA_AVX2)
static MGC_INLINE void mgc_store_2x64(void *p, void *q, __m128d v)
{
    const double low = v[0], high = v[1];
    memcpy(p, &low, 8);
    memcpy(q, &high, 8);
}
#define MGC_ISTORE4(name, type, packed) \
    static MGC_INLINE __m256i mgc_narrow4_##name(mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        const __m256i mixed = packed(_mm256_packs_epi32((__m256i)a, (__m256i)b), _mm256_packs_epi32((__m256i)c, (__m256i)d)); \
        return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); \
    } \
    static MGC_INLINE void mgc_istore_row4_##name(type *p, mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        _mm256_storeu_si256((__m256i *)(void *)p, mgc_narrow4_##name(a, b, c, d)); \
    } \
    static MGC_INLINE void mgc_istore4_##name(type *p, type *q, type *r, type *s, mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        const __m256i bytes = mgc_narrow4_##name(a, b, c, d); \
        mgc_store_2x64(p, q, _mm_castsi128_pd(_mm256_castsi256_si128(bytes))); \
        mgc_store_2x64(r, s, _mm_castsi128_pd(_mm256_extracti128_si256(bytes, 1))); \
    }
MGC_ISTORE4(i8, int8_t, _mm256_packs_epi16)
MGC_ISTORE4(u8, uint8_t, _mm256_packus_epi16)
#endif

/* Rescaling by 64-bit products. An instruction multiplies even lanes, so odd lanes are shifted to them and back; functions
 * whose names end with _wide compute lanes of 64 bits. Multipliers and shifts are vectors of int32, `right` is minus the
 * shift, and `negative` says whether x can be negative.
 *
 * The two roundings of mgc_rescale_fixed are one sum and one shift:
 *     floor((floor((p + 2^30) / 2^31) + h) / 2^r) = floor((p + 2^30 + h * 2^31) / 2^(31 + r)),
 * where p is the product, r = `right`, and h = 2^(r - 1), minus 1 for negative numbers so that ties go away from zero; h = 0
 * if r is 0. Ties go by the sign of the inner quotient, and the code takes that of p. These differ only if p < 0 and the quotient
 * is 0; then floor(h / 2^r) and floor((h - 1) / 2^r) are both 0.
 * |p| <= 2^62 and h * 2^31 <= 2^61, so no sum overflows. `half` is 2^30 + h * 2^31 for positive numbers, where h * 2^31 is
 * 2^r * 2^30; bit 0 of 2^r is cleared, which gives 0 for r = 0. `minus_one` is the 2^31 that negative products lose. Values
 * that depend on the multiplier and shift only are computed once and kept in registers; they are combined by "or", because
 * compilers reorder sums, and would compute them for every vector again.
 *
 * mgc_rescale_either computes mgc_rescale_fixed or, with MGC_NONE_NEGATIVE, mgc_rescale_positive. The mask 0xaaaa (with AVX2
 * 0xaa) selects the odd lanes. */
/* Values of `negative`. */
enum { MGC_NONE_NEGATIVE, MGC_SOME_NEGATIVE };
#if defined(MGC_ISA_AVX512)
static MGC_INLINE __m512i mgc_rescale_fixed_wide(__m512i x, __m512i multiplier, __m512i right, int negative)
{
    const __m512i one = _mm512_set1_epi64(1), first = _mm512_set1_epi64(1 << 30);
    const __m512i half = _mm512_or_si512(first, _mm512_slli_epi64(_mm512_andnot_si512(one, _mm512_sllv_epi64(one, right)), 30));
    const __m512i minus_one = _mm512_maskz_slli_epi64(_mm512_test_epi64_mask(right, right), one, 31);
    const __m512i product = _mm512_mul_epi32(x, multiplier), sum = _mm512_add_epi64(product, half);
    return _mm512_srav_epi64(negative ? _mm512_mask_sub_epi64(sum, _mm512_movepi64_mask(product), sum, minus_one) : sum,
                             _mm512_add_epi64(right, _mm512_set1_epi64(31)));
}
static MGC_INLINE mgc_i mgc_rescale_either(mgc_i x, mgc_i multiplier, mgc_i shift, int negative)
{
    const mgc_i zero = mgc_iset1(0), by = mgc_shift(shift);
    const __m512i right = (__m512i)mgc_imax(zero - by, zero), low = _mm512_set1_epi64(0xffffffff);
    const __m512i wide = _mm512_sllv_epi32((__m512i)x, (__m512i)mgc_imax(by, zero));
    const __m512i even = mgc_rescale_fixed_wide(wide, (__m512i)multiplier, _mm512_and_si512(right, low), negative);
    const __m512i odd = mgc_rescale_fixed_wide(_mm512_srli_epi64(wide, 32), _mm512_srli_epi64((__m512i)multiplier, 32),
                                           _mm512_srli_epi64(right, 32), negative);
    return (mgc_i)_mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
}
/* The same for shifts of -1 and less: the upper 32 bits of the sums suffice. */
static MGC_INLINE __m512i mgc_rescale_down_wide(__m512i x, __m512i multiplier, __m512i right, int negative)
{
    const __m512i one = _mm512_set1_epi64(1), first = _mm512_set1_epi64(1 << 30);
    const __m512i half = _mm512_or_si512(first, _mm512_sllv_epi64(first, right));
    const __m512i product = _mm512_mul_epi32(x, multiplier), sum = _mm512_add_epi64(product, half);
    return negative ? _mm512_mask_sub_epi64(sum, _mm512_movepi64_mask(product), sum, _mm512_slli_epi64(one, 31)) : sum;
}
static MGC_INLINE mgc_i mgc_rescale_either_down(mgc_i x, mgc_i multiplier, mgc_i shift, int negative)
{
    const __m512i one = _mm512_set1_epi32(1), low = _mm512_set1_epi64(0xffffffff);
    const __m512i right = (__m512i)(mgc_iset1(0) - mgc_imin(mgc_imax(shift, mgc_iset1(-31)), mgc_iset1(-1)));
    const __m512i even = mgc_rescale_down_wide((__m512i)x, (__m512i)multiplier, _mm512_and_si512(right, low), negative);
    const __m512i odd = mgc_rescale_down_wide(_mm512_srli_epi64((__m512i)x, 32), _mm512_srli_epi64((__m512i)multiplier, 32),
                                        _mm512_srli_epi64(right, 32), negative);
    return (mgc_i)_mm512_srav_epi32(_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd), _mm512_sub_epi32(right, one));
}
static MGC_INLINE __m512i mgc_rescale_once_wide(__m512i x, __m512i multiplier, __m512i right)
{
    const __m512i half = _mm512_srli_epi64(_mm512_sllv_epi64(_mm512_set1_epi64(1), right), 1);
    return _mm512_srav_epi64(_mm512_add_epi64(_mm512_mul_epi32(x, multiplier), half), right);
}
static MGC_INLINE mgc_i mgc_rescale_once(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const mgc_i by = mgc_iset1(31) - mgc_shift(shift);
    const __m512i right = (__m512i)by, low = _mm512_set1_epi64(0xffffffff);
    const __m512i even = mgc_rescale_once_wide((__m512i)x, (__m512i)multiplier, _mm512_and_si512(right, low));
    const __m512i odd = mgc_rescale_once_wide(_mm512_srli_epi64((__m512i)x, 32), _mm512_srli_epi64((__m512i)multiplier, 32),
                                     _mm512_srli_epi64(right, 32));
    return (mgc_i)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
#elif defined(MGC_ISA_AVX2)
/* There is no arithmetic shift of 64 bits: a bias makes sums positive, and is subtracted again after the shift. */
static MGC_INLINE __m256i mgc_rescale_fixed_wide(__m256i x, __m256i multiplier, __m256i right, int negative)
{
    const __m256i one = _mm256_set1_epi64x(1), zero = _mm256_setzero_si256();
    const __m256i first = _mm256_or_si256(_mm256_set1_epi64x(1 << 30), _mm256_slli_epi64(one, 63));
    const __m256i half = _mm256_or_si256(first, _mm256_slli_epi64(_mm256_andnot_si256(one, _mm256_sllv_epi64(one, right)), 30));
    const __m256i minus_one = _mm256_andnot_si256(_mm256_cmpeq_epi64(right, zero), _mm256_slli_epi64(one, 31));
    const __m256i product = _mm256_mul_epi32(x, multiplier);
    const __m256d added = _mm256_blendv_pd((__m256d)half, (__m256d)_mm256_sub_epi64(half, minus_one), (__m256d)product);
    return _mm256_srlv_epi64(_mm256_add_epi64(product, negative ? (__m256i)added : half),
                             _mm256_add_epi64(right, _mm256_set1_epi64x(31)));
}
static MGC_INLINE mgc_i mgc_rescale_either(mgc_i x, mgc_i multiplier, mgc_i shift, int negative)
{
    const mgc_i zero = mgc_iset1(0), by = mgc_shift(shift);
    const __m256i right = (__m256i)mgc_imax(zero - by, zero), low = _mm256_set1_epi64x(0xffffffff);
    const __m256i wide = _mm256_sllv_epi32((__m256i)x, (__m256i)mgc_imax(by, zero));
    const __m256i even = mgc_rescale_fixed_wide(wide, (__m256i)multiplier, _mm256_and_si256(right, low), negative);
    const __m256i odd = mgc_rescale_fixed_wide(_mm256_srli_epi64(wide, 32), _mm256_srli_epi64((__m256i)multiplier, 32),
                                           _mm256_srli_epi64(right, 32), negative);
    /* 2^63 / 2^(31 + r) in 32 bits; for r = 0, the shift by 32 gives 0. */
    const __m256i top = _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_sub_epi32(_mm256_set1_epi32(32), right));
    return mgc_isub((mgc_i)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa), (mgc_i)top);
}
static MGC_INLINE __m256i mgc_rescale_down_wide(__m256i x, __m256i multiplier, __m256i right, int negative)
{
    const __m256i first = _mm256_set1_epi64x(1 << 30), minus_one = _mm256_slli_epi64(_mm256_set1_epi64x(1), 31);
    const __m256i half = _mm256_or_si256(first, _mm256_sllv_epi64(first, right)), product = _mm256_mul_epi32(x, multiplier);
    const __m256d added = _mm256_blendv_pd((__m256d)half, (__m256d)_mm256_sub_epi64(half, minus_one), (__m256d)product);
    return _mm256_add_epi64(product, negative ? (__m256i)added : half);
}
static MGC_INLINE mgc_i mgc_rescale_either_down(mgc_i x, mgc_i multiplier, mgc_i shift, int negative)
{
    const __m256i one = _mm256_set1_epi32(1), low = _mm256_set1_epi64x(0xffffffff);
    const __m256i right = (__m256i)(mgc_iset1(0) - mgc_imin(mgc_imax(shift, mgc_iset1(-31)), mgc_iset1(-1)));
    const __m256i even = mgc_rescale_down_wide((__m256i)x, (__m256i)multiplier, _mm256_and_si256(right, low), negative);
    const __m256i odd = mgc_rescale_down_wide(_mm256_srli_epi64((__m256i)x, 32), _mm256_srli_epi64((__m256i)multiplier, 32),
                                        _mm256_srli_epi64(right, 32), negative);
    return (mgc_i)_mm256_srav_epi32(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa), _mm256_sub_epi32(right, one));
}
static MGC_INLINE __m256i mgc_rescale_once_wide(__m256i x, __m256i multiplier, __m256i right)
{
    const __m256i half = _mm256_srli_epi64(_mm256_sllv_epi64(_mm256_set1_epi64x(1), right), 1);
    const __m256i top = _mm256_slli_epi64(_mm256_set1_epi64x(1), 63);
    const __m256i sum = _mm256_add_epi64(_mm256_add_epi64(_mm256_mul_epi32(x, multiplier), half), top);
    return _mm256_sub_epi64(_mm256_srlv_epi64(sum, right), _mm256_srlv_epi64(top, right));
}
static MGC_INLINE mgc_i mgc_rescale_once(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const mgc_i by = mgc_iset1(31) - mgc_shift(shift);
    const __m256i right = (__m256i)by, low = _mm256_set1_epi64x(0xffffffff);
    const __m256i even = mgc_rescale_once_wide((__m256i)x, (__m256i)multiplier, _mm256_and_si256(right, low));
    const __m256i odd = mgc_rescale_once_wide(_mm256_srli_epi64((__m256i)x, 32), _mm256_srli_epi64((__m256i)multiplier, 32),
                                     _mm256_srli_epi64(right, 32));
    return (mgc_i)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
#endif
#if defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2)
static MGC_INLINE mgc_i mgc_rescale_fixed(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_either(x, multiplier, shift, MGC_SOME_NEGATIVE);
}
static MGC_INLINE mgc_i mgc_rescale_positive(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_either(x, multiplier, shift, MGC_NONE_NEGATIVE);
}
static MGC_INLINE mgc_i mgc_rescale_down(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_either_down(x, multiplier, shift, MGC_SOME_NEGATIVE);
}
static MGC_INLINE mgc_i mgc_rescale_down_positive(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_either_down(x, multiplier, shift, MGC_NONE_NEGATIVE);
}
#endif

/* mgc_dot_twice by VPMADDUBSW, which adds two products of uint8 and int8 as saturated int16. Each four bytes of x are packed
 * twice: as they are, and then with every second byte inverted (255 - x). So loads at bytes 0, 2 and 4 have no byte
 * inverted, one of the third and fourth, or one of each two. kernels/integer/pmaddubsw.py chooses, for each vector of
 * weights, the load whose sums cannot saturate. */
#if defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2)
/* flip: bits that are inverted in every byte. */
static MGC_INLINE void mgc_pack_twice(uint16_t *to, const void *from, int32_t n, int32_t flip)
{
    const uint8_t *bytes = (const uint8_t *)from;
    const __m128i every = _mm_set1_epi8((char)flip), second = _mm_set1_epi16(-256);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i v = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(bytes + i)), every);
        const __m128i inverted = _mm_xor_si128(v, second);
        _mm_storeu_si128((__m128i *)(void *)(to + i), _mm_unpacklo_epi32(v, inverted));
        _mm_storeu_si128((__m128i *)(void *)(to + i + 8), _mm_unpackhi_epi32(v, inverted));
    }
    for (; i + 4 <= n; i += 4) {
        int32_t four;
        memcpy(&four, bytes + i, sizeof four);
        const __m128i v = _mm_xor_si128(_mm_cvtsi32_si128(four), every);
        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_unpacklo_epi32(v, _mm_xor_si128(v, second)));
    }
}
static MGC_INLINE void mgc_pack_twice_u8(uint16_t *to, const uint8_t *from, int32_t n, int32_t zero)
{
    mgc_pack_twice(to, from, n, 0);
    (void)zero;
}
static MGC_INLINE void mgc_pack_twice_i8(uint16_t *to, const int8_t *from, int32_t n, int32_t zero)
{
    mgc_pack_twice(to, from, n, 128);
    (void)zero;
}
static MGC_INLINE void mgc_fill_twice(uint16_t *to, int32_t n, int32_t value)
{
    const __m128i v = _mm_set1_epi8((char)value), both = _mm_unpacklo_epi32(v, _mm_xor_si128(v, _mm_set1_epi16(-256)));
    for (int32_t i = 0; i + 4 <= n; i += 4) {
        _mm_storel_epi64((__m128i *)(void *)(to + i), both);
    }
}
/* Adds the sum of n elements, n a multiple of 4, to lane 0 of c; callers add all lanes. The elements are the first four
 * of every eight packed bytes. */
static MGC_INLINE mgc_i mgc_total_twice(mgc_i c, const uint16_t *p, int32_t n)
{
    const __m128i zero = _mm_setzero_si128(), first = _mm_set1_epi64x(0xffffffff);
    __m128i sum = zero;
    for (int32_t i = 0; i < n; i += 4) {
        sum = _mm_add_epi32(sum, _mm_sad_epu8(_mm_and_si128(_mm_loadl_epi64((const __m128i *)(const void *)(p + i)), first), zero));
    }
#if defined(MGC_ISA_AVX512)
    return (mgc_i)_mm512_add_epi32((__m512i)c, _mm512_inserti32x4(_mm512_setzero_si512(), sum, 0));
#else
    return (mgc_i)_mm256_add_epi32((__m256i)c, _mm256_inserti128_si256(_mm256_setzero_si256(), sum, 0));
#endif
}
static MGC_INLINE mgc_i mgc_dot_x_twice(const uint16_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return mgc_iset1(four);
}
#if defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_i mgc_dot_w_twice_i8(const int8_t *p) { return (mgc_i)_mm512_loadu_si512(p); }
static MGC_INLINE mgc_i mgc_dot_twice(mgc_i c, mgc_i x, mgc_i w)
{
    const __m512i sums = _mm512_maddubs_epi16((__m512i)x, (__m512i)w);
    return (mgc_i)_mm512_add_epi32((__m512i)c, _mm512_madd_epi16(sums, _mm512_set1_epi16(1)));
}
#else
static MGC_INLINE mgc_i mgc_dot_w_twice_i8(const int8_t *p) { return (mgc_i)_mm256_loadu_si256((const __m256i *)(const void *)p); }
static MGC_INLINE mgc_i mgc_dot_twice(mgc_i c, mgc_i x, mgc_i w)
{
    const __m256i sums = _mm256_maddubs_epi16((__m256i)x, (__m256i)w);
    return (mgc_i)_mm256_add_epi32((__m256i)c, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
}
#endif
#endif

#endif
