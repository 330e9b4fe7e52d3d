/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of quantised blocks on cores with Arm's DSP extension; megcc_blocks.h includes this header.
 *
 *   mgc_dots_unpack(x,parts,part,u)    unpacks parts of x, 16 or 32 elements each, for mgc_dots_quad_8
 *   mgc_dots_quad_8(c,&u,&w,n) mgc_dots_quad_4(c,&x,&w,n)
 *       add the products of n elements of x, 16 or 32, with those of four columns to c[0] to c[3]; advance u or x, and w
 *   mgc_dots_quad_scales(s,w)          converts four finite float16 to s[0] to s[3]
 *
 * Of 4-bit elements w holds [n / 8][4 columns][4] bytes: element i of eight in the low half of byte i, and element i + 4 in the
 * high half. x is read four elements at a time: elements 0 and 2, then 1 and 3 become pairs of int16. A word of elements has
 * such pairs from bits 0, 4, 8 and 12 on, in the order of the pairs of two words of x: even, even, odd, odd.
 *
 * 8-bit elements b of w are [n / 4][4 columns][4]. One instruction, not two, unpacks four of them: elements 0 and 2 are stored
 * as uint8, e = b + 128, and elements 1 and 3 as int8. So a word has two int16, e0 + 256 * b1 and e2 + 256 * b3. With
 * elements x0 to x3 of x,
 *
 *   (e0 + 256 * b1) * x1 + e0 * (256 * x0 - x1) = 256 * (b0 * x0 + b1 * x1) + 2^15 * x0
 *
 * and the same for 2 and 3. So of each four elements of x, u has the pair x1, x3, then the pair 256 * x0 - x1, 256 * x2 - x3.
 * After those of a part follows minus 2^15 times the sum of its even elements, with which sums begin.
 */
#ifndef MEGCC_SIMD_DSP_BLOCKS_H
#define MEGCC_SIMD_DSP_BLOCKS_H

#if MGC_DSP_ASSEMBLER
/* Assembler in the order in which a Cortex-M7 issues two instructions at a time: beside each multiplication is a load or an
 * unpacking that does not belong to it. %6, %7: the pairs of x. %8, %9: weights of two columns. %10: even ones. */
#define MGC_QUAD_8 \
    "ldr %8, [%5], #4\n\tldr %6, [%4], #4\n\tuxtb16 %10, %8\n\tldr %7, [%4], #4\n\tsmlad %0, %8, %6, %0\n\t" \
    "ldr %9, [%5], #4\n\tsmlad %0, %10, %7, %0\n\tuxtb16 %10, %9\n\tsmlad %1, %9, %6, %1\n\tldr %8, [%5], #4\n\t" \
    "smlad %1, %10, %7, %1\n\tuxtb16 %10, %8\n\tsmlad %2, %8, %6, %2\n\tldr %9, [%5], #4\n\t" \
    "smlad %2, %10, %7, %2\n\tuxtb16 %10, %9\n\tsmlad %3, %9, %6, %3\n\tsmlad %3, %10, %7, %3\n\t"
static MGC_INLINE void mgc_dots_quad_8(int32_t *c, const uint32_t **unpacked, const uint8_t **weights, int32_t n)
{
    const uint32_t *u = *unpacked, *const end = u + n / 2;
    const uint8_t *w = *weights;
    int32_t c0 = (int32_t)*end, c1 = c0, c2 = c0, c3 = c0;
    uint32_t odd, even, a, b, t;
    while (u < end) {
        __asm__ volatile(MGC_QUAD_8 MGC_QUAD_8
                         : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3), "+r"(u), "+r"(w), "=&r"(odd), "=&r"(even), "=&r"(a),
                           "=&r"(b), "=&r"(t) : : "memory");
    }
    c[0] += c0 >> 8, c[1] += c1 >> 8, c[2] += c2 >> 8, c[3] += c3 >> 8;
    *unpacked = u + 1;
    *weights = w;
}

static MGC_INLINE void mgc_dots_unpack(const int8_t *x, int32_t parts, int32_t part, uint32_t *u)
{
    for (; parts > 0; parts--) {
        int32_t even = 0;
        for (const int8_t *const end = x + part; x < end; x += 4, u += 2) {
            const uint32_t four = mgc_word(x), high = (four & 0x00ff00ffu) << 8; /* 256 * x0 and 256 * x2 */
            u[0] = mgc_odd_i8(0, four);
            __asm__("ssub16 %0, %1, %2" : "=r"(u[1]) : "r"(high), "r"(u[0]));
            even = mgc_pairs(even, high, 0x00010001u);
        }
        *u++ = (uint32_t)even * (uint32_t)-128;
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
static MGC_INLINE void mgc_dots_quad_4(int32_t *c, const int8_t **elements, const uint8_t **weights, int32_t n)
{
    const int8_t *x = *elements;
    const uint8_t *w = *weights;
    uint32_t even, odd, next_even, next_odd, all, two;
    for (; n > 0; n -= 16) {
        __asm__ volatile(MGC_QUAD_4 MGC_QUAD_4
                         : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(x), "+r"(w), "=&r"(even), "=&r"(odd),
                           "=&r"(next_even), "=&r"(next_odd), "=&r"(all), "=&r"(two) : "r"(0x000f000fu) : "memory");
    }
    *elements = x;
    *weights = w;
}
#else
static MGC_INLINE void mgc_dots_quad_8(int32_t *c, const uint32_t **unpacked, const uint8_t **weights, int32_t n)
{
    const uint32_t *u = *unpacked;
    const uint8_t *w = *weights;
    for (int32_t i = 0; i < 4; i++) {
        int32_t sum = (int32_t)u[n / 2];
        for (int32_t k = 0; k < n / 4; k++) {
            const uint32_t four = mgc_word(w + 16 * k + 4 * i);
            sum = mgc_pairs(mgc_pairs(sum, four, u[2 * k]), four & 0x00ff00ffu, u[2 * k + 1]);
        }
        c[i] += mgc_shift_right(sum, 8);
    }
    *unpacked += n / 2 + 1;
    *weights += 4 * n;
}
static MGC_INLINE void mgc_dots_unpack(const int8_t *x, int32_t parts, int32_t part, uint32_t *u)
{
    for (; parts > 0; parts--) {
        int32_t even = 0;
        for (const int8_t *const end = x + part; x < end; x += 4, u += 2) {
            u[0] = mgc_both(x[1], x[3]);
            u[1] = mgc_both(256 * x[0] - x[1], 256 * x[2] - x[3]);
            even += x[0] + x[2];
        }
        *u++ = (uint32_t)even * (uint32_t)-32768;
    }
}
static MGC_INLINE void mgc_dots_quad_4(int32_t *c, const int8_t **elements, const uint8_t **weights, int32_t n)
{
    const int8_t *x = *elements;
    const uint8_t *w = *weights;
    for (int32_t k = 0; k < n; k++) {
        for (int32_t i = 0; i < 4; i++) {
            c[i] += x[k] * (w[k / 8 * 16 + i * 4 + k % 4] >> (k & 4) & 15);
        }
    }
    *elements += n;
    *weights += 2 * n;
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
