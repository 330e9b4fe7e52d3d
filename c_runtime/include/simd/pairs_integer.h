/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of 8-bit elements on cores without vectors (Cortex-M0+ and M3, RISC-V without V), where one
 * multiplication makes two products. megcc_integer.h includes this header, and kernels/dsp/pairs.c.j2 uses it.
 *
 * A word holds elements of two rows of x, which are the windows of two pixels:
 *
 *     word = first + second * 2^B      B = MGC_PAIR_BITS: 16, or 32 if words have 64 bits
 *     word * weight = first * weight + second * weight * 2^B
 *
 * With B = 32, words are summed: both sums fit in int32. With B = 16 they do not fit in 16 bits, but the sum of two
 * products does, unless a weight is -128. So two words are multiplied and added, and their sum p is added to two totals:
 *
 *     total += p                       modulo 2^32
 *     upper += p / 2^16                to the nearest: the lower half of p is a signed number
 *
 * In the end `upper` is the sum of the second row, and `total - upper * 2^16` that of the first. A shift rounds down; 2^15
 * added to p before it makes that the nearest. The sum of these 2^15 is subtracted from the totals in the end.
 *
 * Tiles and rows are in assembler for three cores, because compilers keep sums on the stack. The C functions are for RV64,
 * and compute the same on any machine, so that tests can run there.
 *
 *   mgc_pair                          a word
 *   mgc_pack4_<type>(to,a,b,c,d,n)    packs n elements of four rows of i8 or u8, n even, uint8 minus 128: for each two
 *                                     elements, two words of rows a and b, then two of c and d
 *   mgc_tile_4(x,w,n,s,c,b)           sums of four such rows with c columns of weights
 *                                     [c / MGC_COLUMNS][n / 4][MGC_COLUMNS][4], n a multiple of 4, plus b[column]:
 *                                     s[4 * column + row]. c is rounded up to a multiple of MGC_COLUMNS
 *   mgc_row_<type>(x,w,n,s)           sums of one row of n elements, a multiple of 4, with MGC_ROW_COLUMNS columns of
 *                                     weights [n / 4][MGC_ROW_COLUMNS][4]. Cortex-M0+: [MGC_ROW_COLUMNS][n]; RV32:
 *                                     [n / 2][MGC_ROW_COLUMNS][2], weights plus 128, uint8 x minus 128
 *   mgc_total4(x,n,s,m)               s[0] to s[3]: the sums of n elements of the rows that mgc_pack4 packed, times m
 *   mgc_requantize_sum_<kind>(x,m,k,r)    as in dsp_integer.h
 * and the functions of scalar_integer.h.
 */
#ifndef MEGCC_PAIRS_INTEGER_H
#define MEGCC_PAIRS_INTEGER_H

#include "scalar_integer.h"

#if defined(MGC_ISA_RV64)
typedef uint64_t mgc_pair;
#define MGC_PAIR_BITS 32
#else
typedef uint32_t mgc_pair;
#define MGC_PAIR_BITS 16
#endif

#if MGC_GNU
#define MGC_ALIGNED(p) __builtin_assume_aligned(p, sizeof(mgc_pair))
#define MGC_UNUSED __attribute__((unused))
#define MGC_OUT_OF_LINE static __attribute__((noinline, unused)) void
#define MGC_NAKED static __attribute__((naked, noinline, unused)) void
#else
#define MGC_ALIGNED(p) (p)
#define MGC_UNUSED
#define MGC_OUT_OF_LINE static void
#endif

/* --- requantization -------------------------------------------------------------------------------------------- */

/* mgc_high_lane: floor(a * b / 2^32). mgc_doubling_high_lane: floor((a * b + 2^30) / 2^31), the rounded high half of the
 * doubled product. mgc_doubling_small: the same for |a| < 2^30. All for b >= 0. */
#if defined(MGC_ISA_CORTEX_M0)
/* Computes a * b / 2^16 as 2^16 * result + *rest, from products of 16-bit halves, because the core has no 64-bit products.
 * 0 <= *rest < 2^17. The sum is too small by less than 1. */
static MGC_INLINE int32_t mgc_product(int32_t a, int32_t b, int32_t *rest)
{
    const uint32_t a_low = (uint32_t)a & 0xffffu, b_low = (uint32_t)b & 0xffffu, b_high = (uint32_t)b >> 16;
    const int32_t a_high = mgc_shift_right(a, 16);
    const int32_t first = a_high * (int32_t)b_low + (int32_t)(a_low * b_low >> 16), second = (int32_t)(a_low * b_high);
    *rest = (first & 0xffff) + (second & 0xffff);
    return a_high * (int32_t)b_high + mgc_shift_right(first, 16) + (second >> 16);
}
static MGC_INLINE int32_t mgc_doubling_high_lane(int32_t a, int32_t b)
{
    int32_t rest;
    const int32_t high = mgc_product(a, b, &rest);
    return (int32_t)((uint32_t)high << 1) + ((rest + (1 << 14)) >> 15);
}
static MGC_INLINE int32_t mgc_high_lane(int32_t a, int32_t b)
{
    int32_t rest;
    const int32_t high = mgc_product(a, b, &rest);
    return high + (rest >> 16);
}
#define mgc_doubling_small mgc_doubling_high_lane
#else
/* These shift 64-bit numbers in ISO C: 2^63 makes a sum positive, and is subtracted again after the shift. */
static MGC_INLINE int32_t mgc_high_lane(int32_t a, int32_t b)
{
    const uint64_t sum = (uint64_t)((int64_t)a * b) + ((uint64_t)1 << 63);
    return (int32_t)((int64_t)(sum >> 32) - ((int64_t)1 << 31));
}
static MGC_INLINE int32_t mgc_doubling_high_lane(int32_t a, int32_t b)
{
    const uint64_t sum = (uint64_t)((int64_t)a * b) + ((uint64_t)1 << 30) + ((uint64_t)1 << 63);
    return (int32_t)((int64_t)(sum >> 31) - ((int64_t)1 << 32));
}
static MGC_INLINE int32_t mgc_doubling_small(int32_t a, int32_t b)
{
#if defined(MGC_ISA_CORTEX_M3)
    const uint64_t doubled = (uint64_t)((int64_t)(2 * a) * b);
#else
    const uint64_t doubled = (uint64_t)((int64_t)a * (int64_t)((uint32_t)b << 1));
#endif
    return (int32_t)((uint32_t)(doubled >> 32) + ((uint32_t)doubled >> 31));
}
#endif
static MGC_INLINE int32_t mgc_requantize_sum_fixed(int32_t x, int32_t m, int32_t k, int32_t r)
{
    return mgc_shift_right(mgc_doubling_small(x, m) + k + mgc_shift_right(x, 31), r);
}
static MGC_INLINE int32_t mgc_requantize_sum_once(int32_t x, int32_t m, int32_t k, int32_t r)
{
    return mgc_shift_right(mgc_high_lane(x, m) + k, r - 1);
}

/* --- packing --------------------------------------------------------------------------------------------------- */

/* zero: what is subtracted from elements to make them int8. */
#define MGC_PACK4(name, type, zero) \
    MGC_OUT_OF_LINE mgc_pack4_##name(mgc_pair *to, const type *a, const type *b, const type *c, const type *d, int32_t n) \
    { \
        for (const type *end = a + n; a != end; a += 2, b += 2, c += 2, d += 2, to += 4) { \
            to[0] = (mgc_pair)(a[0] - zero) + ((mgc_pair)(b[0] - zero) << MGC_PAIR_BITS); \
            to[1] = (mgc_pair)(a[1] - zero) + ((mgc_pair)(b[1] - zero) << MGC_PAIR_BITS); \
            to[2] = (mgc_pair)(c[0] - zero) + ((mgc_pair)(d[0] - zero) << MGC_PAIR_BITS); \
            to[3] = (mgc_pair)(c[1] - zero) + ((mgc_pair)(d[1] - zero) << MGC_PAIR_BITS); \
        } \
    }
MGC_PACK4(i8, int8_t, 0)
MGC_PACK4(u8, uint8_t, 128)

/* Sums the two rows whose words are x[0], x[1], x[4], x[5], …. A word gets 2^(B - 1) in both halves, so that neither is
 * negative; that adds n * 2^(B - 1) to `upper`. */
static MGC_INLINE void mgc_total2(const mgc_pair *x, int32_t n, int32_t *sums, int32_t factor)
{
    const mgc_pair half = (mgc_pair)1 << (MGC_PAIR_BITS - 1);
    mgc_pair total = 0, upper = 0;
    for (int32_t i = 0; i < n; i++) {
        const mgc_pair word = x[i / 2 * 4 + i % 2];
        total += word;
        upper += (word + half + (half << MGC_PAIR_BITS)) >> MGC_PAIR_BITS;
    }
    upper -= (mgc_pair)n * half;
    sums[0] = (int32_t)((uint32_t)(total - (upper << MGC_PAIR_BITS)) * (uint32_t)factor);
    sums[1] = (int32_t)((uint32_t)upper * (uint32_t)factor);
}
MGC_OUT_OF_LINE mgc_total4(const mgc_pair *x, int32_t n, int32_t *sums, int32_t factor)
{
    mgc_total2(x, n, sums, factor);
    mgc_total2(x + 2, n, sums + 2, factor);
}

/* --- Cortex-M3: tiles and rows in assembler -------------------------------------------------------------------- */

#if defined(__arm__) && defined(__ARM_ARCH_7M__) && MGC_GNU
#define MGC_COLUMNS 1
#define MGC_ROW_COLUMNS 8
/* mgc_tile_4 uses these registers, and words of the stack:
 *     r0, r1    the next words of x and weights            r10, r11    total and upper of rows 0 and 1
 *     r2        the end of this column's weights           r12, lr     total and upper of rows 2 and 3
 *     r3        2^15                                       sp[0]       n
 *     r4 to r7  words, then sums of two products           sp[1]       next sums
 *     r8, r9    two weights                                sp[11], sp[12]    columns left, next b
 * The totals begin with b + b * 2^16 - 2^15 * n / 2: each p, of which there are n / 2, has 2^15 in it. */
#define MGC_ADD_PAIR(a, b, total, upper) \
    "mla " a ", " a ", r8, r3\n\tmla " a ", " b ", r9, " a "\n\t" \
    "add " total ", " a "\n\tadd " upper ", " upper ", " a ", asr #16\n\t"
#define MGC_ADD_PAIRS MGC_ADD_PAIR("r4", "r5", "r10", "r11") MGC_ADD_PAIR("r6", "r7", "r12", "lr")
MGC_NAKED mgc_tile_4(const mgc_pair *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED,
                     int32_t columns MGC_UNUSED, const int32_t *b MGC_UNUSED)
{
    __asm__ volatile("push {r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\tmovw r3, #32768\n"
                     /* a column: the end of its weights, and its totals */
                     "1:\n\tldr r4, [sp]\n\tadd r2, r1, r4\n\tldr r5, [sp, #48]\n\tldr r11, [r5], #4\n\tstr r5, [sp, #48]\n\t"
                     "add r10, r11, r11, lsl #16\n\tsub r10, r10, r4, lsl #14\n\tmov r12, r10\n\tmov lr, r11\n"
                     /* four elements */
                     "2:\n\tldmia r0!, {r4, r5, r6, r7}\n\tldrsb r8, [r1], #4\n\tldrsb r9, [r1, #-3]\n\t" MGC_ADD_PAIRS
                     "ldmia r0!, {r4, r5, r6, r7}\n\tldrsb r8, [r1, #-2]\n\tldrsb r9, [r1, #-1]\n\t" MGC_ADD_PAIRS
                     "cmp r1, r2\n\tbne 2b\n\t"
                     /* its four sums; x again from its first word */
                     "sub r10, r10, r11, lsl #16\n\tsub r12, r12, lr, lsl #16\n\tldrd r4, r5, [sp]\n\tldr r6, [sp, #44]\n\t"
                     "stmia r5!, {r10, r11, r12, lr}\n\tsub r0, r0, r4, lsl #3\n\tstr r5, [sp, #4]\n\t"
                     "subs r6, #1\n\tstr r6, [sp, #44]\n\tbne 1b\n\t"
                     "add sp, #8\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory");
}
/* mgc_row uses r0 and r1: the next of x and weights; r2: the end of x; r3: a weight; r4 to r11: sums of the columns; r12:
 * an element of x. */
#define MGC_MULTIPLY_ADD(sum, offset) "ldrsb r3, [r1, #" offset "]\n\tmla " sum ", r3, r12, " sum "\n\t"
#define MGC_ADD_ELEMENT(load, w0, w1, w2, w3, w4, w5, w6, w7) \
    load " r12, [r0], #1\n\t" \
    MGC_MULTIPLY_ADD("r4", w0) MGC_MULTIPLY_ADD("r5", w1) MGC_MULTIPLY_ADD("r6", w2) MGC_MULTIPLY_ADD("r7", w3) \
    MGC_MULTIPLY_ADD("r8", w4) MGC_MULTIPLY_ADD("r9", w5) MGC_MULTIPLY_ADD("r10", w6) MGC_MULTIPLY_ADD("r11", w7)
#define MGC_ROW(name, type, load) \
    MGC_NAKED mgc_row_##name(const type *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED) \
    { \
        __asm__ volatile("push {r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\tadd r2, r0\n\t" \
                         "mov r4, #0\n\tmov r5, #0\n\tmov r6, #0\n\tmov r7, #0\n\tmov r8, #0\n\tmov r9, #0\n\tmov r10, #0\n\tmov r11, #0\n" \
                         "1:\n\t" MGC_ADD_ELEMENT(load, "0", "4", "8", "12", "16", "20", "24", "28") \
                         MGC_ADD_ELEMENT(load, "1", "5", "9", "13", "17", "21", "25", "29") \
                         MGC_ADD_ELEMENT(load, "2", "6", "10", "14", "18", "22", "26", "30") \
                         MGC_ADD_ELEMENT(load, "3", "7", "11", "15", "19", "23", "27", "31") \
                         "add r1, #32\n\tcmp r0, r2\n\tbne 1b\n\t" \
                         "pop {r3}\n\tstmia r3, {r4, r5, r6, r7, r8, r9, r10, r11}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory"); \
    }
MGC_ROW(i8, int8_t, "ldrsb")
MGC_ROW(u8, uint8_t, "ldrb")

/* --- Cortex-M0+: tiles and rows in assembler ------------------------------------------------------------------- */

#elif defined(__arm__) && (defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)) && MGC_GNU
#define MGC_COLUMNS 1
#define MGC_ROW_COLUMNS 4
/* Only r0 to r7 take part in multiplications and shifts; r8 to r12 can be added and moved. */
#define MGC_SAVE "push {r4, r5, r6, r7, lr}\n\tmov r4, r8\n\tmov r5, r9\n\tmov r6, r10\n\tmov r7, r11\n\tpush {r4, r5, r6, r7}\n\t"
#define MGC_RESTORE "pop {r4, r5, r6, r7}\n\tmov r8, r4\n\tmov r9, r5\n\tmov r10, r6\n\tmov r11, r7\n\tpop {r4, r5, r6, r7, pc}"
/* mgc_tile_4 uses these registers, and words of the stack:
 *     r0, r1    the next words of x and weights            r8, r6      total and upper of rows 0 and 1
 *     r2, r3    two weights                                r9, r7      total and upper of rows 2 and 3
 *     r4, r5    two words, then the sum of two products    sp[0], sp[1]    n, next sums
 *     r10       the end of this column's weights           sp[11], sp[12]    columns left, next b
 * ASRS leaves the highest bit of the lower half in the carry, and ADCS adds it: that rounds to the nearest. */
#define MGC_ADD_PAIR(total, upper) \
    "ldmia r0!, {r4, r5}\n\tmuls r4, r2, r4\n\tmuls r5, r3, r5\n\tadds r4, r4, r5\n\t" \
    "add " total ", r4\n\tasrs r4, r4, #16\n\tadcs " upper ", r4\n\t"
#define MGC_ADD_PAIRS(w0, w1) \
    "movs r2, #" w0 "\n\tldrsb r2, [r1, r2]\n\tmovs r3, #" w1 "\n\tldrsb r3, [r1, r3]\n\t" \
    MGC_ADD_PAIR("r8", "r6") MGC_ADD_PAIR("r9", "r7")
MGC_NAKED mgc_tile_4(const mgc_pair *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED,
                     int32_t columns MGC_UNUSED, const int32_t *b MGC_UNUSED)
{
    __asm__ volatile(".syntax unified\n\t" MGC_SAVE "push {r2, r3}\n"
                     /* a column: the end of its weights, and its totals */
                     "1:\n\tldr r2, [sp]\n\tadds r2, r2, r1\n\tmov r10, r2\n\tldr r2, [sp, #48]\n\tldmia r2!, {r6}\n\tstr r2, [sp, #48]\n\t"
                     "mov r7, r6\n\tlsls r2, r6, #16\n\tadds r2, r2, r6\n\tmov r8, r2\n\tmov r9, r2\n"
                     /* four elements */
                     "2:\n\t" MGC_ADD_PAIRS("0", "1") MGC_ADD_PAIRS("2", "3") "adds r1, #4\n\tcmp r1, r10\n\tbne 2b\n\t"
                     /* its four sums; x again from its first word */
                     "mov r4, r8\n\tlsls r2, r6, #16\n\tsubs r4, r4, r2\n\tmov r5, r6\n\tmov r6, r9\n\tlsls r2, r7, #16\n\tsubs r6, r6, r2\n\t"
                     "ldr r2, [sp, #4]\n\tstmia r2!, {r4, r5, r6, r7}\n\tstr r2, [sp, #4]\n\t"
                     "ldr r2, [sp]\n\tlsls r2, r2, #3\n\tsubs r0, r0, r2\n\t"
                     "ldr r2, [sp, #44]\n\tsubs r2, #1\n\tstr r2, [sp, #44]\n\tbne 1b\n\tadd sp, #8\n\t" MGC_RESTORE ::: "memory");
}
/* mgc_row uses r0: the end of x; r1 to r4: the ends of the columns; r5: minus the number of elements left; r6: an element
 * of x; r7: a weight; r8 to r11: the sums. */
#define MGC_MULTIPLY_ADD(column, sum) "ldrsb r7, [" column ", r5]\n\tmuls r7, r6, r7\n\tadd " sum ", r7\n\t"
#define MGC_ROW(name, type, load) \
    MGC_NAKED mgc_row_##name(const type *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED) \
    { \
        __asm__ volatile(".syntax unified\n\t" MGC_SAVE "push {r3}\n\t" \
                         "mov r5, r2\n\tadds r0, r0, r5\n\tadds r1, r1, r5\n\tadds r2, r1, r5\n\tadds r3, r2, r5\n\tadds r4, r3, r5\n\t" \
                         "rsbs r5, r5, #0\n\tmovs r6, #0\n\tmov r8, r6\n\tmov r9, r6\n\tmov r10, r6\n\tmov r11, r6\n" \
                         "1:\n\t" load " r6, [r0, r5]\n\t" MGC_MULTIPLY_ADD("r1", "r8") MGC_MULTIPLY_ADD("r2", "r9") \
                         MGC_MULTIPLY_ADD("r3", "r10") MGC_MULTIPLY_ADD("r4", "r11") "adds r5, #1\n\tbne 1b\n\t" \
                         "pop {r3}\n\tmov r4, r8\n\tmov r5, r9\n\tmov r6, r10\n\tmov r7, r11\n\tstmia r3!, {r4, r5, r6, r7}\n\t" \
                         MGC_RESTORE ::: "memory"); \
    }
MGC_ROW(i8, int8_t, "ldrsb")
MGC_ROW(u8, uint8_t, "ldrb")

/* --- tiles on other machines: RISC-V, and tests of every core -------------------------------------------------- */

#else
/* Keeps gcc from loading all operands of a step before it multiplies: they do not fit in registers. */
#if MGC_GNU && defined(__riscv)
#define MGC_COMPILER_BARRIER __asm__ volatile("" ::: "memory");
#else
#define MGC_COMPILER_BARRIER
#endif
/* MGC_EACH_COLUMN(DO, k): the statement DO(column, k) for every column of a tile. */
#if defined(MGC_ISA_CORTEX_M3) || defined(MGC_ISA_CORTEX_M0)
#define MGC_COLUMNS 1
#define MGC_EACH_COLUMN(DO, k) DO(0, k)
#else
#define MGC_COLUMNS 4
#define MGC_EACH_COLUMN(DO, k) DO(0, k) DO(1, k) DO(2, k) DO(3, k)
#endif
/* The sums of column c with rows 2i and 2i + 1 are in total<c>_<i> and, if words have 32 bits, upper<c>_<i>.
 * MGC_FIRST_SUMS begins them with b[c]. MGC_ADD_PAIR adds two products, of the words x<i>_0 and x<i>_1 with the weights w0
 * and w1. MGC_STORE_SUMS stores the sums of two rows. */
#if MGC_PAIR_BITS == 32
#define MGC_FIRST_SUMS(c, k) mgc_pair total##c##_0 = (mgc_pair)b[c] + ((mgc_pair)b[c] << MGC_PAIR_BITS), total##c##_1 = total##c##_0;
#define MGC_ADD_PAIR(c, i) total##c##_##i += x##i##_0 * w0 + x##i##_1 * w1;
#define MGC_STORE_SUMS(c, i) \
    s[4 * c + 2 * i] = (int32_t)(uint32_t)total##c##_##i; \
    s[4 * c + 2 * i + 1] = (int32_t)(uint32_t)((total##c##_##i + ((mgc_pair)1 << 31)) >> 32);
#else
/* Each p gets 2^15 in both halves, so that neither is negative: 2^15 * n / 2 in all. */
#define MGC_FIRST_SUMS(c, k) \
    mgc_pair total##c##_0 = (mgc_pair)b[c] + ((mgc_pair)b[c] << MGC_PAIR_BITS), total##c##_1 = total##c##_0; \
    mgc_pair upper##c##_0 = (mgc_pair)b[c], upper##c##_1 = upper##c##_0;
#define MGC_ADD_PAIR(c, i) \
    { \
        const mgc_pair p = x##i##_0 * w0 + x##i##_1 * w1; \
        total##c##_##i += p; \
        upper##c##_##i += (p + 0x80008000u) >> 16; \
    }
#define MGC_STORE_SUMS(c, i) \
    upper##c##_##i -= (mgc_pair)n << 14; \
    s[4 * c + 2 * i] = (int32_t)(total##c##_##i - (upper##c##_##i << 16)); \
    s[4 * c + 2 * i + 1] = (int32_t)upper##c##_##i;
#endif
/* Adds elements k and k + 1 of a step, for one column and for all. */
#define MGC_ADD_PAIRS(c, k) \
    { \
        const mgc_pair w0 = (mgc_pair)w[4 * c + k], w1 = (mgc_pair)w[4 * c + k + 1]; \
        MGC_ADD_PAIR(c, 0) \
        MGC_ADD_PAIR(c, 1) \
        MGC_COMPILER_BARRIER \
    }
#define MGC_ADD_ELEMENTS(k) \
    { \
        const mgc_pair x0_0 = x[2 * k], x0_1 = x[2 * k + 1], x1_0 = x[2 * k + 2], x1_1 = x[2 * k + 3]; \
        MGC_EACH_COLUMN(MGC_ADD_PAIRS, k) \
    }
#if defined(__riscv) && __riscv_xlen == 32 && MGC_GNU
/* mgc_tile_4 uses these registers, and words of the stack:
 *     a0, a1            the next words of x and weights        ra        the end of the words
 *     a2, a3, a5, a6    words of rows 0 and 1, then 2 and 3    t6        2^15
 *     a7, t3            two weights                            t4, t5    products
 *     s0 to s3, s4 to s7, s8 to s11, t0 to t2 with a4: total and upper of rows 0 and 1, then of 2 and 3, of each column
 *     52(sp) x, 56(sp) next sums, 60(sp) end of the sums, 64(sp) next b, 68(sp) n % 8
 * An iteration takes eight elements; if n is no multiple of 8, the first one begins in its middle, at label 3. */
#define MGC_ADD_PRODUCTS(a, b, total, upper) \
    "mul t4, " a ", a7\n\tmul t5, " b ", t3\n\tadd t4, t4, t5\n\tadd " total ", " total ", t4\n\tadd t4, t4, t6\n\t" \
    "srai t4, t4, 16\n\tadd " upper ", " upper ", t4\n\t"
#define MGC_ADD_COLUMN(w0, w1, total0, upper0, total1, upper1) \
    "lb a7, " w0 "(a1)\n\tlb t3, " w1 "(a1)\n\t" \
    MGC_ADD_PRODUCTS("a2", "a3", total0, upper0) MGC_ADD_PRODUCTS("a5", "a6", total1, upper1)
#define MGC_LOAD_WORDS(a, b, c, d) "lw a2, " a "(a0)\n\tlw a3, " b "(a0)\n\tlw a5, " c "(a0)\n\tlw a6, " d "(a0)\n\t"
/* Two elements: offsets of their four words, and of their weights of each column. */
#define MGC_ADD_TWO_ELEMENTS(a, b, c, d, w0, w1, w2, w3, w4, w5, w6, w7) \
    MGC_LOAD_WORDS(a, b, c, d) MGC_ADD_COLUMN(w0, w1, "s0", "s1", "s2", "s3") MGC_ADD_COLUMN(w2, w3, "s4", "s5", "s6", "s7") \
    MGC_ADD_COLUMN(w4, w5, "s8", "s9", "s10", "s11") MGC_ADD_COLUMN(w6, w7, "t0", "t1", "t2", "a4")
/* `upper0` holds b when a column begins. */
#define MGC_BEGIN_COLUMN(total0, upper0, total1, upper1) \
    "slli " total0 ", " upper0 ", 16\n\tadd " total0 ", " total0 ", " upper0 "\n\t" \
    "mv " total1 ", " total0 "\n\tmv " upper1 ", " upper0 "\n\t"
#define MGC_STORE_COLUMN(a, b, c, d, total0, upper0, total1, upper1) \
    "slli t4, " upper0 ", 16\n\tslli t5, " upper1 ", 16\n\tsub " total0 ", " total0 ", t4\n\tsub " total1 ", " total1 ", t5\n\t" \
    "sw " total0 ", " a "(a3)\n\tsw " upper0 ", " b "(a3)\n\tsw " total1 ", " c "(a3)\n\tsw " upper1 ", " d "(a3)\n\t"
/* The registers that a function must preserve, to and from the stack at sp. */
#define MGC_SAVE \
    "sw ra, 0(sp)\n\tsw s0, 4(sp)\n\tsw s1, 8(sp)\n\tsw s2, 12(sp)\n\tsw s3, 16(sp)\n\tsw s4, 20(sp)\n\tsw s5, 24(sp)\n\t" \
    "sw s6, 28(sp)\n\tsw s7, 32(sp)\n\tsw s8, 36(sp)\n\tsw s9, 40(sp)\n\tsw s10, 44(sp)\n\tsw s11, 48(sp)\n\t"
#define MGC_RESTORE \
    "lw ra, 0(sp)\n\tlw s0, 4(sp)\n\tlw s1, 8(sp)\n\tlw s2, 12(sp)\n\tlw s3, 16(sp)\n\tlw s4, 20(sp)\n\tlw s5, 24(sp)\n\t" \
    "lw s6, 28(sp)\n\tlw s7, 32(sp)\n\tlw s8, 36(sp)\n\tlw s9, 40(sp)\n\tlw s10, 44(sp)\n\tlw s11, 48(sp)\n\t"
MGC_NAKED mgc_tile_4(const mgc_pair *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED,
                     int32_t columns MGC_UNUSED, const int32_t *b MGC_UNUSED)
{
    __asm__ volatile("addi sp, sp, -80\n\t" MGC_SAVE "sw a0, 52(sp)\n\tsw a3, 56(sp)\n\tslli a4, a4, 4\n\tadd a4, a4, a3\n\t"
                     "sw a4, 60(sp)\n\tsw a5, 64(sp)\n\tandi a3, a2, 4\n\tsw a3, 68(sp)\n\tslli a2, a2, 3\n\tadd ra, a0, a2\n\tlui t6, 8\n"
                     /* four columns: their b and first totals */
                     "1:\n\tlw a2, 64(sp)\n\tlw s1, 0(a2)\n\tlw s5, 4(a2)\n\tlw s9, 8(a2)\n\tlw t1, 12(a2)\n\taddi a2, a2, 16\n\tsw a2, 64(sp)\n\t"
                     MGC_BEGIN_COLUMN("s0", "s1", "s2", "s3") MGC_BEGIN_COLUMN("s4", "s5", "s6", "s7")
                     MGC_BEGIN_COLUMN("s8", "s9", "s10", "s11") MGC_BEGIN_COLUMN("t0", "t1", "t2", "a4")
                     "lw a2, 68(sp)\n\tbeqz a2, 2f\n\taddi a0, a0, -32\n\taddi a1, a1, -16\n\tj 3f\n"
                     /* eight elements */
                     "2:\n\t" MGC_ADD_TWO_ELEMENTS("0", "4", "8", "12", "0", "1", "4", "5", "8", "9", "12", "13")
                     MGC_ADD_TWO_ELEMENTS("16", "20", "24", "28", "2", "3", "6", "7", "10", "11", "14", "15")
                     "3:\n\t" MGC_ADD_TWO_ELEMENTS("32", "36", "40", "44", "16", "17", "20", "21", "24", "25", "28", "29")
                     MGC_ADD_TWO_ELEMENTS("48", "52", "56", "60", "18", "19", "22", "23", "26", "27", "30", "31")
                     "addi a0, a0, 64\n\taddi a1, a1, 32\n\tbne a0, ra, 2b\n\tlw a3, 56(sp)\n\t"
                     /* their sums; x again from its first word */
                     MGC_STORE_COLUMN("0", "4", "8", "12", "s0", "s1", "s2", "s3")
                     MGC_STORE_COLUMN("16", "20", "24", "28", "s4", "s5", "s6", "s7")
                     MGC_STORE_COLUMN("32", "36", "40", "44", "s8", "s9", "s10", "s11")
                     MGC_STORE_COLUMN("48", "52", "56", "60", "t0", "t1", "t2", "a4")
                     "addi a3, a3, 64\n\tsw a3, 56(sp)\n\tlw a0, 52(sp)\n\tlw a2, 60(sp)\n\tbltu a3, a2, 1b\n\t"
                     MGC_RESTORE "addi sp, sp, 80\n\tret" ::: "memory");
}
#else
#define MGC_STORE_COLUMN(c, k) MGC_STORE_SUMS(c, 0) MGC_STORE_SUMS(c, 1)
MGC_OUT_OF_LINE mgc_tile_4(const mgc_pair *packed_x, const int8_t *w, int32_t n, int32_t *s, int32_t columns, const int32_t *b)
{
    for (; columns > 0; columns -= MGC_COLUMNS, s += 4 * MGC_COLUMNS, b += MGC_COLUMNS) {
        MGC_EACH_COLUMN(MGC_FIRST_SUMS, 0)
        for (const mgc_pair *x = packed_x, *end = packed_x + 2 * n; x != end; x += 8, w += 4 * MGC_COLUMNS) {
            MGC_ADD_ELEMENTS(0)
            MGC_ADD_ELEMENTS(2)
        }
        MGC_EACH_COLUMN(MGC_STORE_COLUMN, 0)
    }
}
#endif

/* --- rows on other machines ------------------------------------------------------------------------------------ */

#if MGC_PAIR_BITS == 32
/* A word holds weights of two columns here, column c plus column c + 1 times 2^32. 128 is added to each weight, so that
 * a mask separates two weights from the eight in a word of memory; 128 times the sum of x is subtracted in the end. */
#define MGC_ROW_COLUMNS 8
#define MGC_ADD_COLUMNS(c, i) total##c += ((weights##c >> 8 * i) & two_bytes) * element;
#define MGC_ADD_ELEMENT(i) \
    { \
        const mgc_pair element = (mgc_pair)x[i]; \
        sum_of_x += element; \
        MGC_ADD_COLUMNS(0, i) MGC_ADD_COLUMNS(1, i) MGC_ADD_COLUMNS(2, i) MGC_ADD_COLUMNS(3, i) \
    }
#define MGC_STORE_COLUMNS(c) \
    total##c -= correction; \
    s[2 * c] = (int32_t)(uint32_t)total##c; \
    s[2 * c + 1] = (int32_t)(uint32_t)((total##c + ((mgc_pair)1 << 31)) >> 32);
/* Returns four weights of each of two columns, plus 128. */
static MGC_INLINE mgc_pair mgc_weights_plus_128(const int8_t *w)
{
    mgc_pair word;
    MGC_COPY(&word, MGC_ALIGNED(w), sizeof word);
    return word ^ 0x8080808080808080u;
}
#define MGC_ROW(name, type) \
    MGC_OUT_OF_LINE mgc_row_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        const mgc_pair two_bytes = 0x000000ff000000ffu; \
        mgc_pair total0 = 0, total1 = 0, total2 = 0, total3 = 0, sum_of_x = 0; \
        for (const type *end = x + n; x != end; x += 4, w += 32) { \
            const mgc_pair weights0 = mgc_weights_plus_128(w), weights1 = mgc_weights_plus_128(w + 8); \
            const mgc_pair weights2 = mgc_weights_plus_128(w + 16), weights3 = mgc_weights_plus_128(w + 24); \
            MGC_ADD_ELEMENT(0) MGC_ADD_ELEMENT(1) MGC_ADD_ELEMENT(2) MGC_ADD_ELEMENT(3) \
        } \
        const mgc_pair correction = (sum_of_x << 7) + (sum_of_x << 39); \
        MGC_STORE_COLUMNS(0) MGC_STORE_COLUMNS(1) MGC_STORE_COLUMNS(2) MGC_STORE_COLUMNS(3) \
    }
MGC_ROW(i8, int8_t)
MGC_ROW(u8, uint8_t)
#elif defined(MGC_ISA_RV32)
/* A word of memory has two weights of each of two columns, plus 128: even bytes are for one element of x, odd bytes for
 * the next. Its even bytes are such a word for a multiplication. Its odd bytes are one 2^8 higher: their product with the
 * next element times 2^24 has the result in its high half. Sums of the two are added to totals as in tiles. */
#define MGC_ROW_COLUMNS 16
#if defined(__riscv) && __riscv_xlen == 32 && MGC_GNU
/* mgc_row uses these registers:
 *     a0, a1        the next of x and weights                   a2, a3    the end of x, the sums
 *     a5            an element of x                             t3        0x00ff00ff, the mask of even bytes
 *     a6            the next element, times 2^24                t4        -128 in both halves
 *     a7            minus 128 times the sum of both elements    t5, t6    weights and products
 *                   in each half, plus 2^15                     ra        2^15
 *     s0, s1, …, s11, t0 to t2, a4: total and upper of two columns each
 * The last totals contain 2^15 for each two elements: n * 2^14, which a5 holds negated in the end. */
#define MGC_ADD_COLUMNS(at, total, upper) \
    "lw t5, " at "(a1)\n\tand t6, t5, t3\n\tsub t5, t5, t6\n\tmul t6, t6, a5\n\tmulhsu t5, a6, t5\n\tadd t6, t6, t5\n\t" \
    "add t6, t6, a7\n\tadd " total ", " total ", t6\n\tsrai t6, t6, 16\n\tadd " upper ", " upper ", t6\n\t"
#define MGC_STORE_COLUMNS(a, b, total, upper) \
    "slli t5, " upper ", 16\n\tadd " total ", " total ", a5\n\tsub " total ", " total ", t5\n\t" \
    "sw " total ", " a "(a3)\n\tsw " upper ", " b "(a3)\n\t"
/* subtract: makes both elements of x signed 8-bit numbers. */
#define MGC_ROW(name, type, load, subtract) \
    MGC_NAKED mgc_row_##name(const type *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED) \
    { \
        __asm__ volatile("addi sp, sp, -64\n\t" MGC_SAVE "sw a2, 52(sp)\n\tadd a2, a0, a2\n\tlui ra, 8\n\t" \
                         "li t3, 0x00ff00ff\n\tli t4, -0x00800080\n\t" \
                         "li s0, 0\n\tli s1, 0\n\tli s2, 0\n\tli s3, 0\n\tli s4, 0\n\tli s5, 0\n\tli s6, 0\n\tli s7, 0\n\t" \
                         "li s8, 0\n\tli s9, 0\n\tli s10, 0\n\tli s11, 0\n\tli t0, 0\n\tli t1, 0\n\tli t2, 0\n\tli a4, 0\n" \
                         "1:\n\t" load " a5, 0(a0)\n\t" load " a6, 1(a0)\n\t" subtract "add a7, a5, a6\n\tmul a7, a7, t4\n\t" \
                         "add a7, a7, ra\n\tslli a6, a6, 24\n\t" \
                         MGC_ADD_COLUMNS("0", "s0", "s1") MGC_ADD_COLUMNS("4", "s2", "s3") MGC_ADD_COLUMNS("8", "s4", "s5") \
                         MGC_ADD_COLUMNS("12", "s6", "s7") MGC_ADD_COLUMNS("16", "s8", "s9") MGC_ADD_COLUMNS("20", "s10", "s11") \
                         MGC_ADD_COLUMNS("24", "t0", "t1") MGC_ADD_COLUMNS("28", "t2", "a4") \
                         "addi a0, a0, 2\n\taddi a1, a1, 32\n\tbne a0, a2, 1b\n\tlw a5, 52(sp)\n\tslli a5, a5, 14\n\tneg a5, a5\n\t" \
                         MGC_STORE_COLUMNS("0", "4", "s0", "s1") MGC_STORE_COLUMNS("8", "12", "s2", "s3") \
                         MGC_STORE_COLUMNS("16", "20", "s4", "s5") MGC_STORE_COLUMNS("24", "28", "s6", "s7") \
                         MGC_STORE_COLUMNS("32", "36", "s8", "s9") MGC_STORE_COLUMNS("40", "44", "s10", "s11") \
                         MGC_STORE_COLUMNS("48", "52", "t0", "t1") MGC_STORE_COLUMNS("56", "60", "t2", "a4") \
                         MGC_RESTORE "addi sp, sp, 64\n\tret" ::: "memory"); \
    }
MGC_ROW(i8, int8_t, "lb", "")
MGC_ROW(u8, uint8_t, "lbu", "addi a5, a5, -128\n\taddi a6, a6, -128\n\t")
#else
#define MGC_ROW(name, type, zero) \
    MGC_OUT_OF_LINE mgc_row_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        for (int32_t c = 0; c < MGC_ROW_COLUMNS; c++) { \
            s[c] = 0; \
            for (int32_t i = 0; i < n; i++) { \
                s[c] += (x[i] - zero) * ((w[(i / 2 * MGC_ROW_COLUMNS + c) * 2 + i % 2] & 255) - 128); \
            } \
        } \
    }
MGC_ROW(i8, int8_t, 0)
MGC_ROW(u8, uint8_t, 128)
#endif
#else
/* MGC_WEIGHT(c, i): the weight of column c for element i of a step, which takes four. MGC_WEIGHT_STEP: the weights of a
 * step. */
#if defined(MGC_ISA_CORTEX_M0)
#define MGC_ROW_COLUMNS 4
#define MGC_WEIGHT_STEP 4
#define MGC_WEIGHT(c, i) w[c * n + i]
#define MGC_EACH_SUM(DO, i) DO(0, i) DO(1, i) DO(2, i) DO(3, i)
#else
#define MGC_ROW_COLUMNS 8
#define MGC_WEIGHT_STEP 32
#define MGC_WEIGHT(c, i) w[4 * c + i]
#define MGC_EACH_SUM(DO, i) DO(0, i) DO(1, i) DO(2, i) DO(3, i) DO(4, i) DO(5, i) DO(6, i) DO(7, i)
#endif
#define MGC_FIRST_SUM(c, i) int32_t sum##c = 0;
#define MGC_MULTIPLY_ADD(c, i) sum##c += element * MGC_WEIGHT(c, i);
#define MGC_STORE_SUM(c, i) s[c] = sum##c;
#define MGC_ADD_ELEMENT(i) \
    { \
        const int32_t element = x[i]; \
        MGC_EACH_SUM(MGC_MULTIPLY_ADD, i) \
        MGC_COMPILER_BARRIER \
    }
#define MGC_ROW(name, type) \
    MGC_OUT_OF_LINE mgc_row_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        MGC_EACH_SUM(MGC_FIRST_SUM, 0) \
        for (const type *end = x + n; x != end; x += 4, w += MGC_WEIGHT_STEP) { \
            MGC_ADD_ELEMENT(0) MGC_ADD_ELEMENT(1) MGC_ADD_ELEMENT(2) MGC_ADD_ELEMENT(3) \
        } \
        MGC_EACH_SUM(MGC_STORE_SUM, 0) \
    }
MGC_ROW(i8, int8_t)
MGC_ROW(u8, uint8_t)
#endif
#endif

#endif
