/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised blocks on cores with Arm's DSP extension; megcc_blocks.h includes this header.
 *
 *   mgc_dots_quad_8(c,x,w,n) mgc_dots_quad_4(c,x,w,n)
 *       adds the products of n elements of x, a multiple of 16, with those of four columns to c[0] to c[3]
 *   mgc_dots_quad_scales(s,w)
 *       converts four finite float16 to s[0] to s[3]
 *
 * w holds 8-bit elements, int8, as [n / 4][4 columns][4]. Of 4-bit elements it holds [n / 8][4 columns][4] bytes: element i of
 * eight in the low half of byte i, and element i + 4 in the high half. x is read four elements at a time: elements 0 and 2, then
 * 1 and 3 become pairs of int16. A word of 4-bit elements has such pairs from bits 0, 4, 8 and 12 on, in the order of the pairs
 * of two words of x: even, even, odd, odd.
 */
#ifndef MEGCC_SIMD_DSP_BLOCKS_H
#define MEGCC_SIMD_DSP_BLOCKS_H

#if MGC_DSP_ASSEMBLER
/* Assembler in the order in which a Cortex-M7 issues two instructions at a time: beside each multiplication is a load or an
 * unpacking that does not belong to it. %6, %7: even and odd elements of x. %8, %9: weights of two columns. %10: those of a
 * column that are multiplied next. */
#define MGC_QUAD_8 \
    "ldr %7, [%4], #4\n\tldr %8, [%5], #4\n\tsxtb16 %6, %7\n\tsxtb16 %7, %7, ror #8\n\tsxtb16 %10, %8\n\t" \
    "ldr %9, [%5], #4\n\tsxtb16 %8, %8, ror #8\n\t" \
    "smlad %0, %6, %10, %0\n\tsxtb16 %10, %9\n\tsmlad %0, %7, %8, %0\n\tldr %8, [%5], #4\n\t" \
    "sxtb16 %9, %9, ror #8\n\tsmlad %1, %6, %10, %1\n\tsxtb16 %10, %8\n\tsmlad %1, %7, %9, %1\n\tldr %9, [%5], #4\n\t" \
    "sxtb16 %8, %8, ror #8\n\tsmlad %2, %6, %10, %2\n\tsxtb16 %10, %9\n\tsmlad %2, %7, %8, %2\n\t" \
    "sxtb16 %9, %9, ror #8\n\tsmlad %3, %6, %10, %3\n\tsmlad %3, %7, %9, %3\n\t"
static MGC_INLINE void mgc_dots_quad_8(int32_t *c, const int8_t *x, const uint8_t *w, int32_t n)
{
    uint32_t even, odd, a, b, t;
    for (const int8_t *end = x + n; x < end;) {
        __asm__ volatile(MGC_QUAD_8 MGC_QUAD_8
                         : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(x), "+r"(w), "=&r"(even), "=&r"(odd), "=&r"(a),
                           "=&r"(b), "=&r"(t) : : "memory");
    }
}

/* %6 to %9: even and odd elements of the first word of x, then of the second one. %10: the weights of a column. %11: two of
 * them. %12: the mask of the pairs. A column's last product is among the instructions of the next one. */
#define MGC_QUAD_4_COLUMN(sum, between) \
    "ldr %10, [%5], #4\n\t" between "and %11, %12, %10\n\tsmlad " sum ", %6, %11, " sum "\n\tand %11, %12, %10, lsr #4\n\t" \
    "smlad " sum ", %8, %11, " sum "\n\tand %11, %12, %10, lsr #8\n\tsmlad " sum ", %7, %11, " sum "\n\t" \
    "and %11, %12, %10, lsr #12\n\t"
#define MGC_QUAD_4 \
    "ldr %7, [%4], #4\n\tldr %9, [%4], #4\n\tsxtb16 %6, %7\n\tsxtb16 %7, %7, ror #8\n\tsxtb16 %8, %9\n\t" \
    MGC_QUAD_4_COLUMN("%0", "sxtb16 %9, %9, ror #8\n\t") MGC_QUAD_4_COLUMN("%1", "smlad %0, %9, %11, %0\n\t") \
    MGC_QUAD_4_COLUMN("%2", "smlad %1, %9, %11, %1\n\t") MGC_QUAD_4_COLUMN("%3", "smlad %2, %9, %11, %2\n\t") \
    "smlad %3, %9, %11, %3\n\t"
static MGC_INLINE void mgc_dots_quad_4(int32_t *c, const int8_t *x, const uint8_t *w, int32_t n)
{
    uint32_t even, odd, next_even, next_odd, all, two;
    for (; n > 0; n -= 16) {
        __asm__ volatile(MGC_QUAD_4 MGC_QUAD_4
                         : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(x), "+r"(w), "=&r"(even), "=&r"(odd),
                           "=&r"(next_even), "=&r"(next_odd), "=&r"(all), "=&r"(two) : "r"(0x000f000fu) : "memory");
    }
}
#else
static MGC_INLINE void mgc_dots_quad_8(int32_t *c, const int8_t *x, const uint8_t *w, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        for (int32_t i = 0; i < 4; i++) {
            c[i] += x[k] * mgc_bottom8(w[k / 4 * 16 + i * 4 + k % 4]);
        }
    }
}
static MGC_INLINE void mgc_dots_quad_4(int32_t *c, const int8_t *x, const uint8_t *w, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        for (int32_t i = 0; i < 4; i++) {
            c[i] += x[k] * (w[k / 8 * 16 + i * 4 + k % 4] >> (k & 4) & 15);
        }
    }
}
#endif

static MGC_INLINE void mgc_dots_quad_scales(float *s, const uint8_t *w)
{
#if MGC_DSP_ASSEMBLER && defined(__ARM_FP)
    const float *pair = (const float *)(const void *)w; /* two float16 */
    __asm__("vcvtb.f32.f16 %0, %2\n\tvcvtt.f32.f16 %1, %2" : "=&t"(s[0]), "=t"(s[1]) : "t"(pair[0]));
    __asm__("vcvtb.f32.f16 %0, %2\n\tvcvtt.f32.f16 %1, %2" : "=&t"(s[2]), "=t"(s[3]) : "t"(pair[1]));
#else
    const uint16_t *half = (const uint16_t *)(const void *)w;
    for (int32_t i = 0; i < 4; i++) {
        s[i] = mgc_from_float16(half[i]);
    }
#endif
}

#endif
