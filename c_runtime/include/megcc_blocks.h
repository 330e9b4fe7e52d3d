/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of a block: elements of 4 or 8 bits of MGC_LANES columns times int8 x, which all columns share. Integer
 * sums are exact, so they are the same on every CPU.
 *
 *   mgc_dots                   partial sums of a block, in the form that suits the CPU
 *   mgc_dots_from(start)       initial sums; start: int32 to add to every column's sum
 *   mgc_dots_4(c,a,b,d,e,x)    c + products of sixteen x. a, b, d, e: bytes 0 to 15; a block has at most 32 of them
 *   mgc_dots_8(c,a,b,d,e,x)    the same for 8-bit elements: int8, with VNNI uint8
 *   mgc_dots_sum_4(c,start) mgc_dots_sum_8(c,start)    the sums as lanes of int32
 *   mgc_dots_x(p)              loads sixteen x, from -127 to 127
 *   mgc_bytes_at(p)            loads 4 * MGC_LANES bytes
 *   mgc_low_int4(w) mgc_high_int4(w)     the low and the high 4 bits of each byte
 *
 * A vector has four neighbouring elements of each column; a, b, d and e follow each other. With MGC_DOT_PAIRS it has
 * eight elements of each of two columns: a and b of the first two columns, d and e of the others. Then
 * mgc_dots_x_pair(p,q,half) loads x of two rows, mgc_dots_pair(c,a,b,d,e,x,y) adds their products, and
 * mgc_dots_row(c,row,start) returns the sums of one row.
 */
#ifndef MEGCC_BLOCKS_H
#define MEGCC_BLOCKS_H

#include "megcc_integer.h"

#if MGC_ENABLED && MGC_LANES > 1

static MGC_INLINE mgc_i mgc_bytes_at(const uint8_t *p)
{
    mgc_i v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_V82) || defined(MGC_ISA_NEON_V86) || defined(MGC_ISA_NEON_ARMV7)
typedef int8x16_t mgc_dots_of;
static MGC_INLINE mgc_dots_of mgc_dots_x(const int8_t *p) { return vld1q_s8(p); }
static MGC_INLINE mgc_i mgc_low_int4(mgc_i w) { return (mgc_i)vandq_u8((uint8x16_t)w, vdupq_n_u8(15)); }
static MGC_INLINE mgc_i mgc_high_int4(mgc_i w) { return (mgc_i)vshrq_n_u8((uint8x16_t)w, 4); }
#else
typedef const int8_t *mgc_dots_of;
static MGC_INLINE mgc_dots_of mgc_dots_x(const int8_t *p) { return p; }
static MGC_INLINE mgc_i mgc_low_int4(mgc_i w) { return w & mgc_iset1(0x0f0f0f0f); }
static MGC_INLINE mgc_i mgc_high_int4(mgc_i w) { return (mgc_i)((mgc_u)w >> 4) & mgc_iset1(0x0f0f0f0f); }
/* Loads four elements of x into each lane. */
static MGC_INLINE mgc_i mgc_four_x(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return mgc_iset1(four);
}
#endif

#if defined(MGC_ISA_NEON_V86)
#define MGC_DOT_PAIRS
typedef struct mgc_dots {
    int32x4_t first, second;
} mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start)
{
    const mgc_dots c = { vdupq_n_s32(0), vdupq_n_s32(0) };
    (void)start;
    return c;
}
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    const int8x16_t low = vreinterpretq_s8_s64(vdupq_laneq_s64(vreinterpretq_s64_s8(x), 0));
    const int8x16_t high = vreinterpretq_s8_s64(vdupq_laneq_s64(vreinterpretq_s64_s8(x), 1));
    c.first = vdotq_s32(vdotq_s32(c.first, (int8x16_t)a, low), (int8x16_t)b, high);
    c.second = vdotq_s32(vdotq_s32(c.second, (int8x16_t)d, low), (int8x16_t)e, high);
    return c;
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start) { return mgc_iadd((mgc_i)vpaddq_s32(c.first, c.second), start); }
#define mgc_dots_sum_4 mgc_dots_sum_8
/* Loads eight elements of x from each of two rows. */
static MGC_INLINE int8x16_t mgc_dots_x_pair(const int8_t *p, const int8_t *q, int32_t half)
{
    return vcombine_s8(vld1_s8(p + 8 * half), vld1_s8(q + 8 * half));
}
static MGC_INLINE mgc_dots mgc_dots_pair(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, int8x16_t x, int8x16_t y)
{
    c.first = vmmlaq_s32(vmmlaq_s32(c.first, x, (int8x16_t)a), y, (int8x16_t)b);
    c.second = vmmlaq_s32(vmmlaq_s32(c.second, x, (int8x16_t)d), y, (int8x16_t)e);
    return c;
}
static MGC_INLINE mgc_i mgc_dots_row(mgc_dots c, int32_t row, mgc_i start)
{
    const int64x2_t first = vreinterpretq_s64_s32(c.first), second = vreinterpretq_s64_s32(c.second);
    return mgc_iadd((mgc_i)(row ? vzip2q_s64(first, second) : vzip1q_s64(first, second)), start);
}
#elif defined(MGC_ISA_NEON_V82)
typedef int32x4_t mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start) { return (int32x4_t)start; }
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    c = vdotq_laneq_s32(vdotq_laneq_s32(c, (int8x16_t)a, x, 0), (int8x16_t)b, x, 1);
    return vdotq_laneq_s32(vdotq_laneq_s32(c, (int8x16_t)d, x, 2), (int8x16_t)e, x, 3);
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    (void)start;
    return (mgc_i)c;
}
#define mgc_dots_sum_4 mgc_dots_sum_8
#elif defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_ARMV7)
/* Partial sums, int16 for 4-bit blocks, int32 for 8-bit blocks: `first` and `second` have two columns each. */
typedef struct mgc_dots {
    int32x4_t first, second;
} mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start)
{
    const mgc_dots c = { vdupq_n_s32(0), vdupq_n_s32(0) };
    (void)start;
    return c;
}
/* Elements 4 * `four` to 4 * `four` + 3 of x, twice. */
#define MGC_TWICE(x, four) \
    vreinterpret_s8_s32(vdup_lane_s32((four) < 2 ? vget_low_s32(vreinterpretq_s32_s8(x)) : vget_high_s32(vreinterpretq_s32_s8(x)), (four) % 2))
static MGC_INLINE int16x8_t mgc_dots_half(int16x8_t c, int8x8_t a, int8x8_t b, int8x8_t d, int8x8_t e, mgc_dots_of x)
{
    c = vmlal_s8(vmlal_s8(c, a, MGC_TWICE(x, 0)), b, MGC_TWICE(x, 1));
    return vmlal_s8(vmlal_s8(c, d, MGC_TWICE(x, 2)), e, MGC_TWICE(x, 3));
}
static MGC_INLINE mgc_dots mgc_dots_4(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
#define MGC_HALF_OF(half, v) vget_##half##_s8((int8x16_t)(v))
    c.first = vreinterpretq_s32_s16(mgc_dots_half(vreinterpretq_s16_s32(c.first), MGC_HALF_OF(low, a), MGC_HALF_OF(low, b),
                                                  MGC_HALF_OF(low, d), MGC_HALF_OF(low, e), x));
    c.second = vreinterpretq_s32_s16(mgc_dots_half(vreinterpretq_s16_s32(c.second), MGC_HALF_OF(high, a), MGC_HALF_OF(high, b),
                                                   MGC_HALF_OF(high, d), MGC_HALF_OF(high, e), x));
    return c;
}
/* The sum of two products of int8 with a number from -127 to 127 fits in int16. */
static MGC_INLINE int32x4_t mgc_dots_eighths(int32x4_t c, int8x8_t a, int8x8_t b, int8x8_t d, int8x8_t e, mgc_dots_of x)
{
    c = vpadalq_s16(c, vmlal_s8(vmull_s8(a, MGC_TWICE(x, 0)), b, MGC_TWICE(x, 1)));
    return vpadalq_s16(c, vmlal_s8(vmull_s8(d, MGC_TWICE(x, 2)), e, MGC_TWICE(x, 3)));
}
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    c.first = mgc_dots_eighths(c.first, MGC_HALF_OF(low, a), MGC_HALF_OF(low, b), MGC_HALF_OF(low, d), MGC_HALF_OF(low, e), x);
    c.second = mgc_dots_eighths(c.second, MGC_HALF_OF(high, a), MGC_HALF_OF(high, b), MGC_HALF_OF(high, d), MGC_HALF_OF(high, e), x);
    return c;
}
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    const int32x2_t first = vpadd_s32(vget_low_s32(c.first), vget_high_s32(c.first));
    const int32x2_t second = vpadd_s32(vget_low_s32(c.second), vget_high_s32(c.second));
    return mgc_iadd((mgc_i)vcombine_s32(first, second), start);
}
static MGC_INLINE mgc_i mgc_dots_sum_4(mgc_dots c, mgc_i start)
{
    c.first = vpaddlq_s16(vreinterpretq_s16_s32(c.first));
    c.second = vpaddlq_s16(vreinterpretq_s16_s32(c.second));
    return mgc_dots_sum_8(c, start);
}
#elif defined(MGC_ISA_AVX512_VNNI) || defined(MGC_ISA_AVX2_VNNI)
typedef mgc_i mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start) { return start; }
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    c = mgc_dot_u8(mgc_dot_u8(c, a, mgc_four_x(x)), b, mgc_four_x(x + 4));
    return mgc_dot_u8(mgc_dot_u8(c, d, mgc_four_x(x + 8)), e, mgc_four_x(x + 12));
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    (void)start;
    return c;
}
#define mgc_dots_sum_4 mgc_dots_sum_8
#elif defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2)
/* Partial sums; those of 4-bit blocks are int16, with 16 products each. */
typedef mgc_i mgc_dots;
#if defined(MGC_ISA_AVX512)
#define MGC_OF_BYTES(name, ...) ((mgc_i)_mm512_##name(__VA_ARGS__))
typedef __m512i mgc_words;
/* Returns x with the sign of w applied; if w is 0, any number. */
static MGC_INLINE mgc_i mgc_signed_as(mgc_i x, mgc_i w)
{
    return (mgc_i)_mm512_mask_sub_epi8((__m512i)x, _mm512_movepi8_mask((__m512i)w), _mm512_setzero_si512(), (__m512i)x);
}
#else
#define MGC_OF_BYTES(name, ...) ((mgc_i)_mm256_##name(__VA_ARGS__))
typedef __m256i mgc_words;
static MGC_INLINE mgc_i mgc_signed_as(mgc_i x, mgc_i w) { return (mgc_i)_mm256_sign_epi8((__m256i)x, (__m256i)w); }
#endif
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start)
{
    (void)start;
    return mgc_iset1(0);
}
static MGC_INLINE mgc_i mgc_two_products(mgc_i w, mgc_i x) { return MGC_OF_BYTES(maddubs_epi16, (mgc_words)w, (mgc_words)x); }
static MGC_INLINE mgc_i mgc_add_words(mgc_i a, mgc_i b) { return MGC_OF_BYTES(add_epi16, (mgc_words)a, (mgc_words)b); }
static MGC_INLINE mgc_i mgc_twos(mgc_i c) { return MGC_OF_BYTES(madd_epi16, (mgc_words)c, (mgc_words)mgc_iset1(0x00010001)); }
static MGC_INLINE mgc_dots mgc_dots_4(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    c = mgc_add_words(mgc_add_words(c, mgc_two_products(a, mgc_four_x(x))), mgc_two_products(b, mgc_four_x(x + 4)));
    return mgc_add_words(mgc_add_words(c, mgc_two_products(d, mgc_four_x(x + 8))), mgc_two_products(e, mgc_four_x(x + 12)));
}
static MGC_INLINE mgc_i mgc_dots_sum_4(mgc_dots c, mgc_i start) { return mgc_iadd(mgc_twos(c), start); }
/* Multiplies |w| as uint8, at most 128, by x with the sign of w: two products fit in int16. */
static MGC_INLINE mgc_dots mgc_dots_each(mgc_dots c, mgc_i w, mgc_i x)
{
    return mgc_iadd(c, mgc_twos(mgc_two_products(MGC_OF_BYTES(abs_epi8, (mgc_words)w), mgc_signed_as(x, w))));
}
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    c = mgc_dots_each(mgc_dots_each(c, a, mgc_four_x(x)), b, mgc_four_x(x + 4));
    return mgc_dots_each(mgc_dots_each(c, d, mgc_four_x(x + 8)), e, mgc_four_x(x + 12));
}
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start) { return mgc_iadd(c, start); }
#else
/* Vectors of GNU C: each byte of a lane is widened. */
typedef mgc_i mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start) { return start; }
static MGC_INLINE mgc_dots mgc_dots_each(mgc_dots c, mgc_i w, const int8_t *x)
{
    c = mgc_iadd(c, mgc_imul((mgc_i)((mgc_u)w << 24) >> 24, mgc_iset1(x[0])));
    c = mgc_iadd(c, mgc_imul((mgc_i)((mgc_u)w << 16) >> 24, mgc_iset1(x[1])));
    c = mgc_iadd(c, mgc_imul((mgc_i)((mgc_u)w << 8) >> 24, mgc_iset1(x[2])));
    return mgc_iadd(c, mgc_imul(w >> 24, mgc_iset1(x[3])));
}
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i a, mgc_i b, mgc_i d, mgc_i e, mgc_dots_of x)
{
    c = mgc_dots_each(mgc_dots_each(c, a, x), b, x + 4);
    return mgc_dots_each(mgc_dots_each(c, d, x + 8), e, x + 12);
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    (void)start;
    return c;
}
#define mgc_dots_sum_4 mgc_dots_sum_8
#endif

#endif

#endif
