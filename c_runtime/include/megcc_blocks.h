/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of blocks of quantized weights (MatMulNBits): elements of 4 to 8 bits of MGC_LANES columns times int8 x, which all
 * columns share. Kernels of kernels/matmul/nbits_int8_tile.py include this header. Integer sums are exact, so they are the
 * same on every CPU.
 *
 *   mgc_dots                   partial sums of a block, in the form that suits the CPU
 *   mgc_dots_from(start)       sums before the first products; start: int32 to add to every column's sum, which some CPUs
 *                              do here and others in mgc_dots_sum. So both get it
 *   mgc_dots_4(c,w,p)          c + the products of the four x at p with 4-bit elements, which are bytes 0 to 15. A block has
 *                              at most 32 elements of each column, so int16 sums do not overflow
 *   mgc_dots_6(c,w,p)          the same for elements of 5 and 6 bits, bytes 0 to 63
 *   mgc_dots_8(c,w,p)          the same for 8-bit elements: int8, with VNNI uint8
 *   mgc_dots_sum_4(c,start) mgc_dots_sum_6(c,start) mgc_dots_sum_8(c,start)    the sums as lanes of int32; `start` as in mgc_dots_from
 *   mgc_bytes_at(p)            loads 4 * MGC_LANES bytes
 *   mgc_low_int4(w) mgc_high_int4(w)     the low and the high 4 bits of each byte
 *   mgc_upper_5(w,h,n) mgc_upper_6(w,h,n)    4-bit elements w with upper bits: bit n of each byte of h; bits 2n and 2n + 1
 *
 * w has four neighbouring elements of each column; x is from -127 to 127.
 *
 * Arm's instructions take four x from a vector of sixteen, so there a step is sixteen elements:
 *
 *   mgc_dots_x(p)              loads sixteen x
 *   mgc_dots_4(c,w0,w1,w2,w3,x) mgc_dots_6(...) mgc_dots_8(...)    add their products; w0 has the first four elements of each of
 *                              the four columns, w1 the next four, and so on
 *
 * Helium's instructions sum over a vector, so there w has sixteen neighbouring elements of each column:
 *
 *   mgc_dots_columns_4(start,x,w,groups,part) mgc_dots_columns_8(…)
 *                              start + the products of `part` x, 16 or 32, with each of four columns. groups: bytes from the
 *                              first sixteen 8-bit elements of the columns to the next. 4-bit elements: `part` is 32, a byte has
 *                              element i in its low bits and element i + 16 in its high bits
 *
 * With MGC_DOT_PAIRS (int8 matrix multiply) w0 has the first eight elements of each of columns 0 and 1, w1 the next eight, and
 * w2 and w3 have those of columns 2 and 3. Two rows of x can be multiplied at once:
 *
 *   mgc_dots_x_pair(p,q,half)  eight x of row p, then eight of row q: elements 0 to 7 (half = 0) or 8 to 15 (half = 1)
 *   mgc_dots_pair(c,w0,w1,w2,w3,x,y)    adds the products of both rows; x and y: their halves 0 and 1
 *   mgc_dots_row(c,row,start)  the sums of row 0 or 1
 */
#ifndef MEGCC_BLOCKS_H
#define MEGCC_BLOCKS_H

#include "megcc_integer.h"

#if MGC_ENABLED && (defined(MGC_ISA_CORTEX_M4) || defined(MGC_ISA_CORTEX_M33))
#include "simd/dsp_blocks.h"
#endif

#if MGC_ENABLED && MGC_LANES > 1

static MGC_INLINE mgc_i mgc_bytes_at(const uint8_t *p)
{
    mgc_i v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if MGC_NEON
typedef int8x16_t mgc_dots_input;
static MGC_INLINE mgc_dots_input mgc_dots_x(const int8_t *p) { return vld1q_s8(p); }
static MGC_INLINE mgc_i mgc_low_int4(mgc_i w) { return (mgc_i)vandq_u8((uint8x16_t)w, vdupq_n_u8(15)); }
static MGC_INLINE mgc_i mgc_high_int4(mgc_i w) { return (mgc_i)vshrq_n_u8((uint8x16_t)w, 4); }
#else
static MGC_INLINE mgc_i mgc_low_int4(mgc_i w) { return w & mgc_iset1(0x0f0f0f0f); }
static MGC_INLINE mgc_i mgc_high_int4(mgc_i w) { return (mgc_i)((mgc_u)w >> 4) & mgc_iset1(0x0f0f0f0f); }
/* Loads four x into each lane. */
static MGC_INLINE mgc_i mgc_dots_x4(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return mgc_iset1(four);
}
#endif

/* Shifts all bytes of h to the left; bits that cross into another byte are masked by the caller. */
static MGC_INLINE mgc_i mgc_shifted(mgc_i h, int32_t by) { return by < 0 ? (mgc_i)((mgc_u)h >> -by) : (mgc_i)((mgc_u)h << by); }
static MGC_INLINE mgc_i mgc_upper_5(mgc_i w, mgc_i h, int32_t n) { return w | (mgc_shifted(h, 4 - n) & mgc_iset1(0x10101010)); }
static MGC_INLINE mgc_i mgc_upper_6(mgc_i w, mgc_i h, int32_t n) { return w | (mgc_shifted(h, 4 - 2 * n) & mgc_iset1(0x30303030)); }
#if defined(MGC_ISA_CORTEX_M55)
#if MGC_HELIUM
static MGC_INLINE mgc_i mgc_dots_columns_8(mgc_i start, const int8_t *x, const uint8_t *w, int32_t groups, int32_t part)
{
    int32_t sum[4];
    const int8x16_t x0 = vldrbq_s8(x), x1 = vldrbq_s8(x + part - 16);
    for (int32_t i = 0; i < 4; i++, w += 16) {
        sum[i] = vmladavq_s8(x0, vreinterpretq_s8_u8(vldrbq_u8(w)));
        if (part == 32) {
            sum[i] = vmladavaq_s8(sum[i], x1, vreinterpretq_s8_u8(vldrbq_u8(w + groups)));
        }
    }
    const mgc_i sums = { sum[0], sum[1], sum[2], sum[3] };
    return mgc_iadd(sums, start);
}
static MGC_INLINE mgc_i mgc_dots_columns_4(mgc_i start, const int8_t *x, const uint8_t *w, int32_t groups, int32_t part)
{
    int32_t sum[4];
    const int8x16_t x0 = vldrbq_s8(x), x1 = vldrbq_s8(x + 16);
    (void)groups, (void)part;
    for (int32_t i = 0; i < 4; i++, w += 16) {
        const uint8x16_t two = vldrbq_u8(w);
        sum[i] = vmladavaq_s8(vmladavq_s8(x0, vreinterpretq_s8_u8(vandq_u8(two, vdupq_n_u8(15)))), x1,
                              vreinterpretq_s8_u8(vshrq_n_u8(two, 4)));
    }
    const mgc_i sums = { sum[0], sum[1], sum[2], sum[3] };
    return mgc_iadd(sums, start);
}
#else
static MGC_INLINE mgc_i mgc_dots_columns_8(mgc_i start, const int8_t *x, const uint8_t *w, int32_t groups, int32_t part)
{
    int32_t sum[4] = { 0, 0, 0, 0 };
    for (int32_t i = 0; i < 4 * part; i++) {
        const int32_t column = i / part, k = i % part, b = w[k / 16 * groups + column * 16 + k % 16];
        sum[column] += x[k] * ((b ^ 128) - 128);
    }
    const mgc_i sums = { sum[0], sum[1], sum[2], sum[3] };
    return mgc_iadd(sums, start);
}
static MGC_INLINE mgc_i mgc_dots_columns_4(mgc_i start, const int8_t *x, const uint8_t *w, int32_t groups, int32_t part)
{
    int32_t sum[4] = { 0, 0, 0, 0 };
    (void)groups;
    for (int32_t i = 0; i < 4 * part; i++) {
        const int32_t column = i / part, k = i % part;
        sum[column] += x[k] * (w[column * 16 + k % 16] >> (k / 16 * 4) & 15);
    }
    const mgc_i sums = { sum[0], sum[1], sum[2], sum[3] };
    return mgc_iadd(sums, start);
}
#endif
#endif

#if defined(MGC_ISA_NEON_V86) || defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_ARMV7)
/* `first` and `second` have two columns each. With MGC_DOT_PAIRS their four int32 are the sums of two rows with two columns,
 * or for a single row two partial sums of each column. ISAs without dot products sum 4-bit blocks as four int16 of each
 * column, and 8-bit blocks as two int32. */
typedef struct mgc_dots {
    int32x4_t first, second;
} mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start)
{
    const mgc_dots c = { vdupq_n_s32(0), vdupq_n_s32(0) };
    (void)start;
    return c;
}
#endif

#if defined(MGC_ISA_NEON_V86)
#define MGC_DOT_PAIRS
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i w0, mgc_i w1, mgc_i w2, mgc_i w3, mgc_dots_input x)
{
    const int8x16_t low = vreinterpretq_s8_s64(vdupq_laneq_s64(vreinterpretq_s64_s8(x), 0));
    const int8x16_t high = vreinterpretq_s8_s64(vdupq_laneq_s64(vreinterpretq_s64_s8(x), 1));
    c.first = vdotq_s32(vdotq_s32(c.first, (int8x16_t)w0, low), (int8x16_t)w1, high);
    c.second = vdotq_s32(vdotq_s32(c.second, (int8x16_t)w2, low), (int8x16_t)w3, high);
    return c;
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start) { return mgc_iadd((mgc_i)vpaddq_s32(c.first, c.second), start); }
#define mgc_dots_sum_4 mgc_dots_sum_8
static MGC_INLINE int8x16_t mgc_dots_x_pair(const int8_t *p, const int8_t *q, int32_t half)
{
    return vcombine_s8(vld1_s8(p + 8 * half), vld1_s8(q + 8 * half));
}
static MGC_INLINE mgc_dots mgc_dots_pair(mgc_dots c, mgc_i w0, mgc_i w1, mgc_i w2, mgc_i w3, int8x16_t x, int8x16_t y)
{
    c.first = vmmlaq_s32(vmmlaq_s32(c.first, x, (int8x16_t)w0), y, (int8x16_t)w1);
    c.second = vmmlaq_s32(vmmlaq_s32(c.second, x, (int8x16_t)w2), y, (int8x16_t)w3);
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
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i w0, mgc_i w1, mgc_i w2, mgc_i w3, mgc_dots_input x)
{
    c = vdotq_laneq_s32(vdotq_laneq_s32(c, (int8x16_t)w0, x, 0), (int8x16_t)w1, x, 1);
    return vdotq_laneq_s32(vdotq_laneq_s32(c, (int8x16_t)w2, x, 2), (int8x16_t)w3, x, 3);
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    (void)start;
    return (mgc_i)c;
}
#define mgc_dots_sum_4 mgc_dots_sum_8
#elif defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_ARMV7)
/* Elements 4 * group to 4 * group + 3 of x, for each of two columns. */
#define MGC_DUP4(x, group) \
    vreinterpret_s8_s32(vdup_lane_s32((group) < 2 ? vget_low_s32(vreinterpretq_s32_s8(x)) : vget_high_s32(vreinterpretq_s32_s8(x)), (group) % 2))
/* Two columns of a block: sums of 4-bit elements as int16, of 8-bit ones as int32. */
static MGC_INLINE int16x8_t mgc_dots_int4_half(int16x8_t c, int8x8_t w0, int8x8_t w1, int8x8_t w2, int8x8_t w3, mgc_dots_input x)
{
    c = vmlal_s8(vmlal_s8(c, w0, MGC_DUP4(x, 0)), w1, MGC_DUP4(x, 1));
    return vmlal_s8(vmlal_s8(c, w2, MGC_DUP4(x, 2)), w3, MGC_DUP4(x, 3));
}
static MGC_INLINE mgc_dots mgc_dots_4(mgc_dots c, mgc_i w0, mgc_i w1, mgc_i w2, mgc_i w3, mgc_dots_input x)
{
#define MGC_HALF(half, v) vget_##half##_s8((int8x16_t)(v))
    c.first = vreinterpretq_s32_s16(mgc_dots_int4_half(vreinterpretq_s16_s32(c.first), MGC_HALF(low, w0), MGC_HALF(low, w1),
                                                  MGC_HALF(low, w2), MGC_HALF(low, w3), x));
    c.second = vreinterpretq_s32_s16(mgc_dots_int4_half(vreinterpretq_s16_s32(c.second), MGC_HALF(high, w0), MGC_HALF(high, w1),
                                                   MGC_HALF(high, w2), MGC_HALF(high, w3), x));
    return c;
}
/* The sum of two products of int8 with a number from -127 to 127 fits in int16. */
static MGC_INLINE int32x4_t mgc_dots_int8_half(int32x4_t c, int8x8_t w0, int8x8_t w1, int8x8_t w2, int8x8_t w3, mgc_dots_input x)
{
    c = vpadalq_s16(c, vmlal_s8(vmull_s8(w0, MGC_DUP4(x, 0)), w1, MGC_DUP4(x, 1)));
    return vpadalq_s16(c, vmlal_s8(vmull_s8(w2, MGC_DUP4(x, 2)), w3, MGC_DUP4(x, 3)));
}
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i w0, mgc_i w1, mgc_i w2, mgc_i w3, mgc_dots_input x)
{
    c.first = mgc_dots_int8_half(c.first, MGC_HALF(low, w0), MGC_HALF(low, w1), MGC_HALF(low, w2), MGC_HALF(low, w3), x);
    c.second = mgc_dots_int8_half(c.second, MGC_HALF(high, w0), MGC_HALF(high, w1), MGC_HALF(high, w2), MGC_HALF(high, w3), x);
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
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i w, const int8_t *p) { return mgc_dot_u8(c, w, mgc_dots_x4(p)); }
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    (void)start;
    return c;
}
#define mgc_dots_sum_4 mgc_dots_sum_8
#elif defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2)
/* Partial sums: two int16 in each lane of 4-bit blocks, of 16 products each, and an int32 of 8-bit blocks. */
typedef mgc_i mgc_dots;
/* An intrinsic of the ISA by its name without the prefix, and the type of its operands. */
#if defined(MGC_ISA_AVX512)
#define MGC_INTRINSIC(name, ...) ((mgc_i)_mm512_##name(__VA_ARGS__))
typedef __m512i mgc_x86_i;
/* Returns x with the sign of w applied; if w is 0, any number. */
static MGC_INLINE mgc_i mgc_signed_as(mgc_i x, mgc_i w)
{
    return (mgc_i)_mm512_mask_sub_epi8((__m512i)x, _mm512_movepi8_mask((__m512i)w), _mm512_setzero_si512(), (__m512i)x);
}
/* All bits of the bytes that are negative. */
static MGC_INLINE mgc_i mgc_negative_bytes(mgc_i w) { return (mgc_i)_mm512_movm_epi8(_mm512_movepi8_mask((__m512i)w)); }
#else
#define MGC_INTRINSIC(name, ...) ((mgc_i)_mm256_##name(__VA_ARGS__))
typedef __m256i mgc_x86_i;
static MGC_INLINE mgc_i mgc_signed_as(mgc_i x, mgc_i w) { return (mgc_i)_mm256_sign_epi8((__m256i)x, (__m256i)w); }
static MGC_INLINE mgc_i mgc_negative_bytes(mgc_i w) { return (mgc_i)_mm256_cmpgt_epi8(_mm256_setzero_si256(), (__m256i)w); }
#endif
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start)
{
    (void)start;
    return mgc_iset1(0);
}
/* Returns c, which the compiler computes before what follows: gcc 12 would multiply all of a block first, and spill the products. */
static MGC_INLINE mgc_i mgc_in_order(mgc_i c)
{
#if defined(__GNUC__)
    __asm__("" : "+v"(c));
#endif
    return c;
}
/* mgc_multiply_pairs: uint8 w times int8 x, two products added to an int16. mgc_add_words: adds int16. mgc_add_pairs: two int16
 * added to an int32. */
static MGC_INLINE mgc_i mgc_multiply_pairs(mgc_i w, mgc_i x) { return MGC_INTRINSIC(maddubs_epi16, (mgc_x86_i)w, (mgc_x86_i)x); }
static MGC_INLINE mgc_i mgc_add_words(mgc_i a, mgc_i b) { return MGC_INTRINSIC(add_epi16, (mgc_x86_i)a, (mgc_x86_i)b); }
static MGC_INLINE mgc_i mgc_add_pairs(mgc_i c) { return MGC_INTRINSIC(madd_epi16, (mgc_x86_i)c, (mgc_x86_i)mgc_iset1(0x00010001)); }
static MGC_INLINE mgc_dots mgc_dots_4(mgc_dots c, mgc_i w, const int8_t *p)
{
    return mgc_in_order(mgc_add_words(c, mgc_multiply_pairs(w, mgc_dots_x4(p))));
}
static MGC_INLINE mgc_i mgc_dots_sum_4(mgc_dots c, mgc_i start) { return mgc_iadd(mgc_add_pairs(c), start); }
static MGC_INLINE mgc_i mgc_magnitudes(mgc_i w) { return MGC_INTRINSIC(abs_epi8, (mgc_x86_i)w); }
/* Multiplies |w| as uint8, at most 128, by x with the sign of w: two products fit in int16. */
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i w, const int8_t *p)
{
    const mgc_i x = mgc_signed_as(mgc_dots_x4(p), w);
    return mgc_in_order(mgc_iadd(c, mgc_add_pairs(mgc_multiply_pairs(mgc_magnitudes(w), x))));
}
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start) { return mgc_iadd(c, start); }
/* The same for several rows: |w| times x or, where w is negative, times the complement -x - 1, which is one xor; signs would
 * take the units that multiply. The missing |w| of negative w are the same for all rows: mgc_dots_8_compensate adds them. */
static MGC_INLINE mgc_dots mgc_dots_8_complement(mgc_dots c, mgc_i magnitudes, mgc_i negative, const int8_t *p)
{
    return mgc_in_order(mgc_iadd(c, mgc_add_pairs(mgc_multiply_pairs(magnitudes, mgc_dots_x4(p) ^ negative))));
}
static MGC_INLINE mgc_i mgc_dots_8_compensate(mgc_i c, mgc_i w)
{
    const mgc_i ones = mgc_negative_bytes(w) & mgc_iset1(0x01010101);
    return mgc_iadd(c, mgc_add_pairs(mgc_multiply_pairs(mgc_magnitudes(w), ones)));
}
#define MGC_DOTS_6
static MGC_INLINE mgc_dots mgc_dots_6(mgc_dots c, mgc_i w, const int8_t *p)
{
    return mgc_in_order(mgc_iadd(c, mgc_add_pairs(mgc_multiply_pairs(w, mgc_dots_x4(p)))));
}
#define mgc_dots_sum_6 mgc_dots_sum_8
#else
/* Vectors of GNU C: each byte of a lane is widened. */
typedef mgc_i mgc_dots;
static MGC_INLINE mgc_dots mgc_dots_from(mgc_i start) { return start; }
static MGC_INLINE mgc_dots mgc_dots_8(mgc_dots c, mgc_i w, const int8_t *p)
{
    c = mgc_iadd(c, mgc_imul((mgc_i)((mgc_u)w << 24) >> 24, mgc_iset1(p[0])));
    c = mgc_iadd(c, mgc_imul((mgc_i)((mgc_u)w << 16) >> 24, mgc_iset1(p[1])));
    c = mgc_iadd(c, mgc_imul((mgc_i)((mgc_u)w << 8) >> 24, mgc_iset1(p[2])));
    return mgc_iadd(c, mgc_imul(w >> 24, mgc_iset1(p[3])));
}
#define mgc_dots_4 mgc_dots_8
static MGC_INLINE mgc_i mgc_dots_sum_8(mgc_dots c, mgc_i start)
{
    (void)start;
    return c;
}
#define mgc_dots_sum_4 mgc_dots_sum_8
#endif

#if defined(MGC_ISA_NEON_V86) || defined(MGC_ISA_NEON_V82)
/* For kernels/matmul/nbits_int8_arm_tile.py, whose assembler computes the sums of 4 and 8-bit elements.
 * a times lane `lane` of b. */
#define mgc_dots_times_lane(a, b, lane) vmulq_laneq_f32(a, b, lane)
/* Integers / 16, rounded to float32. */
static MGC_INLINE mgc_v mgc_dots_sixteenth(mgc_i v) { return vcvtq_n_f32_s32((int32x4_t)v, 4); }
/* Lanes 0 and 1 of v, or 2 and 3, twice. */
static MGC_INLINE mgc_v mgc_dots_low_half(mgc_v v) { return vreinterpretq_f32_f64(vdupq_laneq_f64(vreinterpretq_f64_f32(v), 0)); }
static MGC_INLINE mgc_v mgc_dots_high_half(mgc_v v) { return vreinterpretq_f32_f64(vdupq_laneq_f64(vreinterpretq_f64_f32(v), 1)); }
/* Lanes 0 and 1 of a, or 2 and 3, then those of b. */
static MGC_INLINE mgc_v mgc_dots_low_halves(mgc_v a, mgc_v b)
{
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
static MGC_INLINE mgc_v mgc_dots_high_halves(mgc_v a, mgc_v b)
{
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
#endif

#if !defined(MGC_DOTS_6)
#define mgc_dots_6 mgc_dots_8
#define mgc_dots_sum_6 mgc_dots_sum_8
#endif

#endif

#endif
