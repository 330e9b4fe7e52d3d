/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of 8-bit elements on cores with Arm's DSP extension (Cortex-M4, M7, M33), whose SMLAD multiplies two pairs
 * of int16 and adds both products to a sum. megcc_integer.h includes this header; kernels/dsp/ and kernels/rnn/ use it.
 * Tiles are in assembler, because compilers keep sums on the stack. The C functions compute the same on any machine, so
 * that tests can run there.
 *
 *   mgc_pairs(c,a,b)               c + the products of the lower and of the upper int16 of a and b (SMLAD)
 *   mgc_bb mgc_bt mgc_tb mgc_tt    c + the product of one int16 of each: the lower (b, bottom) or upper (t, top) one of a,
 *                                  then of b (SMLABB, SMLABT, SMLATB, SMLATT)
 *   mgc_high15(a,b)                a * b / 2^15 of int16, to the nearest, ties up (SMMULR)
 *   mgc_word(p)                    loads four bytes at any address
 *   mgc_both(a,b)                  packs a in the lower half and b in the upper half of a word
 *   mgc_even_<type>(z,w)           bytes 0 and 2 of w, of type i8 or u8, as int16, plus the int16 of z;
 *                                  mgc_odd_<type>: bytes 1 and 3
 *   mgc_pack3_<type>(to,a,b,c,n,z) packs 4n elements of three rows minus their zero point z: for each four elements,
 *                                  elements 0 and 2 of each row, then elements 1 and 3
 *   mgc_tile_3x2(x,w,n,s)          adds the products of three such rows with two columns of weights [n][2][4]. Before:
 *                                  s[0] and s[1] are the columns' initial sums. After: s[0] to s[2] are the sums of the
 *                                  rows with the first column, s[3] to s[5] those with the second
 *   mgc_tile_1x4_<type>(x,w,n,s)   adds the products of one row of 4n bytes with four columns [n][4][4] to s[0] to s[3];
 *                                  s[4]: z of mgc_even
 * Two weights in one int16 are called joined; the end of this comment explains why that works.
 *   mgc_join3_<type>(to,a,b,c,n)   packs 4n elements of three rows for mgc_joined_3x2
 *   mgc_joined_3x2(x,w,n,s)        mgc_tile_3x2 for three such rows and joined weights, none of which is -128.
 *                                  Initial and final sums are 256 times as large
 *   mgc_joined_1x4_<type>(x,w,n,s) mgc_tile_1x4 for joined weights, with such sums, and without z
 *   mgc_div_256(t)                 t / 256 for such a sum, which is a multiple of 256
 *   mgc_total3(x,n,s,m)            s[0] to s[2]: the sums of the three rows that mgc_pack3 packed, times m
 *   mgc_requantize_sum_fixed(x,m,k,r)
 *                                  x * m * 2^(-31 - r) rounded as mgc_rescale_fixed does, plus a zero point, for
 *                                  |x| < 2^30, m >= 0, r >= 1 and k = 2^(r - 1) + zero * 2^r
 *   mgc_requantize_sum_once(x,m,k,r)
 *                                  the same, rounded once, for r >= 2 and k = 2^(r - 2) + zero * 2^(r - 1)
 *   mgc_requantize_sum_fixed_joined(t,m,k,r)
 *                                  mgc_requantize_sum_fixed of mgc_div_256(t)
 * and the functions of scalar_integer.h.
 *
 * Joined weights: one int16 holds two weights, so that one instruction, not two, unpacks four. Four bytes of x are two
 * int16, X = 256 * b + a and Y = 256 * d + c, with a and c in [0, 255], b and d in [-128, 127]. mgc_join3 inverts the
 * highest bits of some bytes for that (MGC_SIGN_BITS_I8 and _U8); the sums are corrected for it by their initial values. The
 * weights k, l, m, n are V = 256 * -k + l and W = 256 * m - n, whose low bytes are l and -n as int8. Then
 *
 *   X * l - Y * -n + c * W - a * V = 256 * (a * k + b * l + c * m + d * n)
 *
 * SMLSD subtracts the first two products, of X and Y with the low bytes of V and W; SMLSDX the other two, of the low
 * bytes of X and Y with V and W.
 */
#ifndef MEGCC_DSP_INTEGER_H
#define MEGCC_DSP_INTEGER_H

#include "scalar_integer.h"

/* Keeps gcc from moving loads through p above this: it would load all operands of a step first, and spill them. */
#if MGC_GNU
#define MGC_ORDERED(p) __asm__ volatile("" : "+r"(p) : : "memory")
#else
#define MGC_ORDERED(p) ((void)0)
#endif

#if defined(__arm__) && defined(__ARM_FEATURE_DSP) && MGC_GNU
#define MGC_DSP_ASSEMBLER 1
#else
#define MGC_DSP_ASSEMBLER 0
#endif

static MGC_INLINE uint32_t mgc_word(const void *p)
{
    uint32_t word;
    MGC_COPY(&word, p, sizeof word);
    return word;
}

static MGC_INLINE uint32_t mgc_both(int32_t a, int32_t b) { return ((uint32_t)a & 0xffffu) | (uint32_t)b << 16; }

/* The lower and the upper half of a word as int16. */
static MGC_INLINE int32_t mgc_bottom16(uint32_t w) { return (int32_t)((w & 0xffffu) ^ 0x8000u) - 0x8000; }
static MGC_INLINE int32_t mgc_top16(uint32_t w) { return mgc_bottom16(w >> 16); }

#if MGC_DSP_ASSEMBLER
#define MGC_MULTIPLY(name, instruction) \
    static MGC_INLINE int32_t name(int32_t c, uint32_t a, uint32_t b) \
    { \
        __asm__(instruction " %0, %1, %2, %0" : "+r"(c) : "r"(a), "r"(b)); \
        return c; \
    }
MGC_MULTIPLY(mgc_pairs, "smlad")
MGC_MULTIPLY(mgc_bb, "smlabb")
MGC_MULTIPLY(mgc_bt, "smlabt")
MGC_MULTIPLY(mgc_tb, "smlatb")
MGC_MULTIPLY(mgc_tt, "smlatt")
static MGC_INLINE int32_t mgc_high15(int32_t a, int32_t b)
{
    int32_t high;
    __asm__("smmulr %0, %1, %2" : "=r"(high) : "r"(a * 65536), "r"(2 * b));
    return high;
}

/* SMMLAR adds the upper 32 bits of a product, rounded; SMMLA the same without rounding. */
static MGC_INLINE int32_t mgc_requantize_sum_fixed(int32_t x, int32_t m, int32_t k, int32_t r)
{
    x += x;
    __asm__("smmlar %0, %1, %2, %0" : "+r"(k) : "r"(x), "r"(m));
    return (k + (x >> 31)) >> r;
}
static MGC_INLINE int32_t mgc_requantize_sum_fixed_joined(int32_t t, int32_t m, int32_t k, int32_t r)
{
    t >>= 7; /* 2 * t / 256 */
    __asm__("smmlar %0, %1, %2, %0" : "+r"(k) : "r"(t), "r"(m));
    return (k + (t >> 31)) >> r;
}
static MGC_INLINE int32_t mgc_div_256(int32_t t) { return t >> 8; }
static MGC_INLINE int32_t mgc_requantize_sum_once(int32_t x, int32_t m, int32_t k, int32_t r)
{
    __asm__("smmla %0, %1, %2, %0" : "+r"(k) : "r"(x), "r"(m));
    return k >> (r - 1);
}
#else
static MGC_INLINE int32_t mgc_bb(int32_t c, uint32_t a, uint32_t b) { return mgc_iadd(c, mgc_bottom16(a) * mgc_bottom16(b)); }
static MGC_INLINE int32_t mgc_bt(int32_t c, uint32_t a, uint32_t b) { return mgc_iadd(c, mgc_bottom16(a) * mgc_top16(b)); }
static MGC_INLINE int32_t mgc_tb(int32_t c, uint32_t a, uint32_t b) { return mgc_iadd(c, mgc_top16(a) * mgc_bottom16(b)); }
static MGC_INLINE int32_t mgc_tt(int32_t c, uint32_t a, uint32_t b) { return mgc_iadd(c, mgc_top16(a) * mgc_top16(b)); }
static MGC_INLINE int32_t mgc_pairs(int32_t c, uint32_t a, uint32_t b) { return mgc_tt(mgc_bb(c, a, b), a, b); }
static MGC_INLINE int32_t mgc_requantize_sum_fixed(int32_t x, int32_t m, int32_t k, int32_t r)
{
    return mgc_shift_right(mgc_doubling_high_lane(x, m) + k - (x < 0), r);
}
static MGC_INLINE int32_t mgc_high15(int32_t a, int32_t b) { return mgc_shift_right(a * b + (1 << 14), 15); }
static MGC_INLINE int32_t mgc_div_256(int32_t t) { return mgc_shift_right(t, 8); }
static MGC_INLINE int32_t mgc_requantize_sum_fixed_joined(int32_t t, int32_t m, int32_t k, int32_t r)
{
    return mgc_requantize_sum_fixed(mgc_div_256(t), m, k, r);
}
static MGC_INLINE int32_t mgc_requantize_sum_once(int32_t x, int32_t m, int32_t k, int32_t r)
{
    /* (x * m) >> 32 without a shift of a negative number: 2^63 makes it positive, 2^31 takes that away again. */
    const uint64_t sum = (uint64_t)((int64_t)x * m) + ((uint64_t)1 << 63);
    return mgc_shift_right((int32_t)((int64_t)(sum >> 32) - ((int64_t)1 << 31)) + k, r - 1);
}
#endif

/* --- packing --------------------------------------------------------------------------------------------------- */

/* The bits that mgc_join3 inverts in four bytes a, b, c, d: a and c of int8 become unsigned, b and d of uint8 signed. */
#if MGC_DSP_ASSEMBLER
#define MGC_SIGN_BITS_I8 "0x00800080"
#define MGC_SIGN_BITS_U8 "0x80008000"
#else
#define MGC_SIGN_BITS_I8 0x00800080u
#define MGC_SIGN_BITS_U8 0x80008000u
#endif

#if MGC_DSP_ASSEMBLER
/* r8 to r10: four bytes of each row, then its elements 1 and 3; r4 to r6: its elements 0 and 2. */
#define MGC_PACK3(name, type, extend) \
    static MGC_INLINE void mgc_pack3_##name(int16_t *to, const type *a, const type *b, const type *c, int32_t n, int32_t zero) \
    { \
        const uint32_t minus_zeros = ((uint32_t)-zero & 0xffffu) * 0x10001u; /* -zero in both halves */ \
        const type *end = a + 4 * n; \
        __asm__ volatile("1:\n\t" \
                         "ldr r8, [%1], #4\n\tldr r9, [%2], #4\n\tldr r10, [%3], #4\n\t" \
                         extend " r4, %4, r8\n\t" extend " r5, %4, r9\n\t" extend " r6, %4, r10\n\t" \
                         extend " r8, %4, r8, ror #8\n\t" extend " r9, %4, r9, ror #8\n\t" extend " r10, %4, r10, ror #8\n\t" \
                         "stmia %0!, {r4, r5, r6}\n\tstmia %0!, {r8, r9, r10}\n\t" \
                         "cmp %1, %5\n\tbne 1b" \
                         : "+&r"(to), "+&r"(a), "+&r"(b), "+&r"(c) : "r"(minus_zeros), "r"(end) \
                         : "r4", "r5", "r6", "r8", "r9", "r10", "cc", "memory"); \
    }
#define MGC_EXTEND(name, extend) \
    static MGC_INLINE uint32_t mgc_even_##name(uint32_t z, uint32_t w) \
    { \
        __asm__(extend " %0, %1, %2" : "=r"(w) : "r"(z), "r"(w)); \
        return w; \
    } \
    static MGC_INLINE uint32_t mgc_odd_##name(uint32_t z, uint32_t w) \
    { \
        __asm__(extend " %0, %1, %2, ror #8" : "=r"(w) : "r"(z), "r"(w)); \
        return w; \
    }
#define MGC_JOIN3(name, type, sign_bits) \
    static MGC_INLINE void mgc_join3_##name(uint32_t *to, const type *a, const type *b, const type *c, int32_t n) \
    { \
        const type *end = a + 4 * n; \
        __asm__ volatile("1:\n\t" \
                         "ldr r8, [%1], #4\n\tldr r9, [%2], #4\n\tldr r10, [%3], #4\n\t" \
                         "eor r8, r8, #" sign_bits "\n\teor r9, r9, #" sign_bits "\n\teor r10, r10, #" sign_bits "\n\t" \
                         "stmia %0!, {r8, r9, r10}\n\tcmp %1, %4\n\tbne 1b" \
                         : "+&r"(to), "+&r"(a), "+&r"(b), "+&r"(c) : "r"(end) : "r8", "r9", "r10", "cc", "memory"); \
    }
#define MGC_PACK_ROWS(name, type, extend, sign_bits) MGC_EXTEND(name, extend) MGC_PACK3(name, type, extend) MGC_JOIN3(name, type, sign_bits)
MGC_PACK_ROWS(i8, int8_t, "sxtab16", MGC_SIGN_BITS_I8)
MGC_PACK_ROWS(u8, uint8_t, "uxtab16", MGC_SIGN_BITS_U8)
#else
#define MGC_PACK_ROWS(name, type, sign_bits) \
    static MGC_INLINE void mgc_join3_##name(uint32_t *to, const type *a, const type *b, const type *c, int32_t n) \
    { \
        for (int32_t i = 0; i < 4 * n; i += 4, to += 3) { \
            to[0] = mgc_word(a + i) ^ sign_bits, to[1] = mgc_word(b + i) ^ sign_bits, to[2] = mgc_word(c + i) ^ sign_bits; \
        } \
    } \
    static MGC_INLINE void mgc_pack3_##name(int16_t *to, const type *a, const type *b, const type *c, int32_t n, int32_t zero) \
    { \
        for (int32_t i = 0; i < 4 * n; i += 4, to += 12) { \
            to[0] = (int16_t)(a[i] - zero), to[1] = (int16_t)(a[i + 2] - zero); \
            to[2] = (int16_t)(b[i] - zero), to[3] = (int16_t)(b[i + 2] - zero); \
            to[4] = (int16_t)(c[i] - zero), to[5] = (int16_t)(c[i + 2] - zero); \
            to[6] = (int16_t)(a[i + 1] - zero), to[7] = (int16_t)(a[i + 3] - zero); \
            to[8] = (int16_t)(b[i + 1] - zero), to[9] = (int16_t)(b[i + 3] - zero); \
            to[10] = (int16_t)(c[i + 1] - zero), to[11] = (int16_t)(c[i + 3] - zero); \
        } \
    } \
    static MGC_INLINE uint32_t mgc_even_##name(uint32_t z, uint32_t w) \
    { \
        return mgc_both(mgc_bottom16(z) + (type)(w & 255u), mgc_top16(z) + (type)(w >> 16 & 255u)); \
    } \
    static MGC_INLINE uint32_t mgc_odd_##name(uint32_t z, uint32_t w) { return mgc_even_##name(z, w >> 8); }
MGC_PACK_ROWS(i8, int8_t, MGC_SIGN_BITS_I8)
MGC_PACK_ROWS(u8, uint8_t, MGC_SIGN_BITS_U8)
#endif

/* --- tiles ----------------------------------------------------------------------------------------------------- */

/* The linkage of a tile: static, or weak if the kernels of a folder share it, for which they define
 * MGC_SHARES_<FUNCTION> (-O size). Then the linker keeps one copy, and drops the others if functions have sections of
 * their own. */
#define MGC_STATIC_UNUSED static __attribute__((unused))
#ifdef MGC_SHARES_MGC_TILE_3X2
#define MGC_LINKAGE_3X2 __attribute__((weak, visibility("hidden")))
#else
#define MGC_LINKAGE_3X2 MGC_STATIC_UNUSED
#endif
#ifdef MGC_SHARES_MGC_JOINED_3X2
#define MGC_LINKAGE_JOINED __attribute__((weak, visibility("hidden")))
#else
#define MGC_LINKAGE_JOINED MGC_STATIC_UNUSED
#endif

#if MGC_DSP_ASSEMBLER
/* A step takes four elements of each row and column. The first loop does n % 4 steps, the second one four in an iteration.
 * r0 and r1 are the next of x and weights. On the stack are sp[0], the end of the first loop's weights, sp[1], the end of all
 * weights, and sp[2], `s`. MGC_TILE_HEAD(shift), for weights of 2^shift bytes in a step, computes both ends in r12 and lr and
 * pushes them. MGC_IN_R0_TO_R3 marks parameters that only the assembler reads, in their registers. */
#define MGC_TILE_FUNCTION(linkage, name, type) \
    linkage __attribute__((naked, noinline)) void name(const type *x MGC_IN_R0_TO_R3, const int8_t *w MGC_IN_R0_TO_R3, \
                                                       int32_t n MGC_IN_R0_TO_R3, int32_t *s MGC_IN_R0_TO_R3)
#define MGC_IN_R0_TO_R3 __attribute__((unused))
#define MGC_TILE_HEAD(shift) \
    "push {r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\t" \
    "and r12, r2, #3\n\tadd lr, r1, r2, lsl #" shift "\n\tadd r12, r1, r12, lsl #" shift "\n\tpush {r12, lr}\n\t"
#define MGC_TILE_LOOPS(step) \
    "cmp r1, r12\n\tbeq 2f\n" \
    "1:\n\t" step "ldr r2, [sp]\n\tcmp r1, r2\n\tbcc 1b\n" \
    "2:\n\tldr r2, [sp, #4]\n\tcmp r1, r2\n\tbcs 4f\n" \
    "3:\n\t" step step step step "ldr r2, [sp, #4]\n\tcmp r1, r2\n\tbcc 3b\n" \
    "4:\n\tadd sp, #8\n\tpop {r3}\n\t"
/* r2, r3: weights of the two columns; lr: two of them as int16; r10 to r12: two elements of each row; r4 to r6 and r7 to
 * r9: sums of the rows with the first and the second column. */
#define MGC_STEP_3X2 \
    "ldmia r1!, {r2, r3}\n\tldmia r0!, {r10, r11, r12}\n\tsxtb16 lr, r2\n\t" \
    "smlad r4, r10, lr, r4\n\tsmlad r5, r11, lr, r5\n\tsmlad r6, r12, lr, r6\n\tsxtb16 lr, r3\n\t" \
    "smlad r7, r10, lr, r7\n\tsmlad r8, r11, lr, r8\n\tsmlad r9, r12, lr, r9\n\t" \
    "ldmia r0!, {r10, r11, r12}\n\tsxtb16 r2, r2, ror #8\n\t" \
    "smlad r4, r10, r2, r4\n\tsmlad r5, r11, r2, r5\n\tsmlad r6, r12, r2, r6\n\tsxtb16 r3, r3, ror #8\n\t" \
    "smlad r7, r10, r3, r7\n\tsmlad r8, r11, r3, r8\n\tsmlad r9, r12, r3, r9\n\t"
/* r2, r3, r10, r11: weights of the four columns; r12: two of them as int16; r8, r9: even and odd elements, minus the zero
 * point in lr; r4 to r7: sums. */
#define MGC_COLUMN_1X4(w, sum) \
    "sxtb16 r12, " w "\n\tsmlad " sum ", r8, r12, " sum "\n\tsxtb16 " w ", " w ", ror #8\n\tsmlad " sum ", r9, " w ", " sum "\n\t"
#define MGC_STEP_1X4(extend) \
    "ldmia r1!, {r2, r3, r10, r11}\n\tldr r9, [r0], #4\n\t" extend " r8, lr, r9\n\t" extend " r9, lr, r9, ror #8\n\t" \
    MGC_COLUMN_1X4("r2", "r4") MGC_COLUMN_1X4("r3", "r5") MGC_COLUMN_1X4("r10", "r6") MGC_COLUMN_1X4("r11", "r7")

MGC_LINKAGE_3X2 void mgc_tile_3x2(const int16_t *x, const int8_t *w, int32_t n, int32_t *s);
MGC_TILE_FUNCTION(MGC_LINKAGE_3X2, mgc_tile_3x2, int16_t)
{
    __asm__ volatile(MGC_TILE_HEAD("3") "ldr r4, [r3]\n\tldr r7, [r3, #4]\n\t"
                     "mov r5, r4\n\tmov r6, r4\n\tmov r8, r7\n\tmov r9, r7\n\t" MGC_TILE_LOOPS(MGC_STEP_3X2)
                     "stmia r3, {r4, r5, r6, r7, r8, r9}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory");
}
#define MGC_TILE_1X4(name, type, extend) \
    MGC_TILE_FUNCTION(MGC_STATIC_UNUSED, mgc_tile_1x4_##name, type) \
    { \
        __asm__ volatile(MGC_TILE_HEAD("4") "ldmia r3, {r4, r5, r6, r7}\n\tldr lr, [r3, #16]\n\t" \
                         MGC_TILE_LOOPS(MGC_STEP_1X4(extend)) \
                         "stmia r3, {r4, r5, r6, r7}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory"); \
    }
MGC_TILE_1X4(i8, int8_t, "sxtab16")
MGC_TILE_1X4(u8, uint8_t, "uxtab16")

/* r2, r3: weights V and W of the two columns; r10 to r12: first X and Y of each row, then, after UXTB16, its bytes c and a; r4
 * to r9: sums as in MGC_STEP_3X2; lr is overwritten, first by the low bytes of V and W. MGC_LAST_JOINED, the last step of an
 * iteration, also loads the end of the weights to lr and compares, before its products: loads that follow one another take a
 * cycle each (Cortex-M4 Technical Reference Manual, "Load/store timings"). */
#define MGC_STEP_JOINED(load) \
    load "ldmia r0!, {r10, r11, r12}\n\t" \
    "sxtb16 lr, r2\n\tsmlsd r4, r10, lr, r4\n\tsmlsd r5, r11, lr, r5\n\tsmlsd r6, r12, lr, r6\n\t" \
    "sxtb16 lr, r3\n\tsmlsd r7, r10, lr, r7\n\tsmlsd r8, r11, lr, r8\n\tsmlsd r9, r12, lr, r9\n\t" \
    "uxtb16 r10, r10, ror #16\n\tsmlsdx r4, r10, r2, r4\n\tsmlsdx r7, r10, r3, r7\n\t" \
    "uxtb16 r11, r11, ror #16\n\tsmlsdx r5, r11, r2, r5\n\tsmlsdx r8, r11, r3, r8\n\t" \
    "uxtb16 r12, r12, ror #16\n\tsmlsdx r6, r12, r2, r6\n\tsmlsdx r9, r12, r3, r9\n\t"
#define MGC_ANY_JOINED MGC_STEP_JOINED("ldmia r1!, {r2, r3}\n\t")
#define MGC_LAST_JOINED(end) MGC_STEP_JOINED("ldr r2, [r1], #4\n\tldr r3, [r1], #4\n\tldr lr, " end "\n\tcmp r1, lr\n\t")
MGC_LINKAGE_JOINED void mgc_joined_3x2(const uint32_t *x, const int8_t *w, int32_t n, int32_t *s);
MGC_TILE_FUNCTION(MGC_LINKAGE_JOINED, mgc_joined_3x2, uint32_t)
{
    __asm__ volatile(MGC_TILE_HEAD("3") "ldr r4, [r3]\n\tldr r7, [r3, #4]\n\t"
                     "mov r5, r4\n\tmov r6, r4\n\tmov r8, r7\n\tmov r9, r7\n\tcmp r1, r12\n\tbeq 2f\n"
                     "1:\n\t" MGC_LAST_JOINED("[sp]") "bcc 1b\n"
                     "2:\n\tldr r2, [sp, #4]\n\tcmp r1, r2\n\tbcs 4f\n"
                     "3:\n\t" MGC_ANY_JOINED MGC_ANY_JOINED MGC_ANY_JOINED MGC_LAST_JOINED("[sp, #4]") "bcc 3b\n"
                     "4:\n\tadd sp, #8\n\tpop {r3}\n\tstmia r3, {r4, r5, r6, r7, r8, r9}\n\t"
                     "pop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory");
}
/* Registers as in MGC_STEP_1X4, but r8: X and Y; r9: c and a; r12 and lr: the ends of the weights. */
#define MGC_COLUMN_JOINED(w, sum) "smlsdx " sum ", r9, " w ", " sum "\n\tsxtb16 " w ", " w "\n\tsmlsd " sum ", r8, " w ", " sum "\n\t"
#define MGC_STEP_JOINED_1X4(sign_bits) \
    "ldmia r1!, {r2, r3, r10, r11}\n\tldr r8, [r0], #4\n\teor r8, r8, #" sign_bits "\n\tuxtb16 r9, r8, ror #16\n\t" \
    MGC_COLUMN_JOINED("r2", "r4") MGC_COLUMN_JOINED("r3", "r5") MGC_COLUMN_JOINED("r10", "r6") MGC_COLUMN_JOINED("r11", "r7")
#define MGC_JOINED_1X4(name, type, step) \
    MGC_TILE_FUNCTION(MGC_STATIC_UNUSED, mgc_joined_1x4_##name, type) \
    { \
        __asm__ volatile("push {r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\t" \
                         "and r12, r2, #3\n\tadd lr, r1, r2, lsl #4\n\tadd r12, r1, r12, lsl #4\n\t" \
                         "ldmia r3, {r4, r5, r6, r7}\n\tcmp r1, r12\n\tbeq 2f\n" \
                         "1:\n\t" step "cmp r1, r12\n\tbcc 1b\n" \
                         "2:\n\tcmp r1, lr\n\tbcs 4f\n" \
                         "3:\n\t" step step step step "cmp r1, lr\n\tbcc 3b\n" \
                         "4:\n\tpop {r3}\n\tstmia r3, {r4, r5, r6, r7}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory"); \
    }
MGC_JOINED_1X4(i8, int8_t, MGC_STEP_JOINED_1X4(MGC_SIGN_BITS_I8))
MGC_JOINED_1X4(u8, uint8_t, MGC_STEP_JOINED_1X4(MGC_SIGN_BITS_U8))
#else
/* s[i] is the sum of row i % 3 with column i / 3. mgc_pack3 says where element k of a row is: its step k / 4 has 12 int16. */
static MGC_INLINE void mgc_tile_3x2(const int16_t *x, const int8_t *w, int32_t n, int32_t *s)
{
    const int32_t first = s[0], second = s[1];
    for (int32_t i = 0; i < 6; i++) {
        s[i] = i < 3 ? first : second;
    }
    for (int32_t k = 0; k < 4 * n; k++) {
        for (int32_t i = 0; i < 6; i++) {
            const int32_t weight = w[k / 4 * 8 + i / 3 * 4 + k % 4];
            s[i] = mgc_iadd(s[i], x[k / 4 * 12 + k % 2 * 6 + i % 3 * 2 + k % 4 / 2] * weight);
        }
    }
}
#define MGC_TILE_1X4(name, type) \
    static MGC_INLINE void mgc_tile_1x4_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        for (int32_t k = 0; k < 4 * n; k++) { \
            for (int32_t i = 0; i < 4; i++) { \
                s[i] = mgc_iadd(s[i], (x[k] + mgc_bottom16((uint32_t)s[4])) * w[k / 4 * 16 + i * 4 + k % 4]); \
            } \
        } \
    }
MGC_TILE_1X4(i8, int8_t)
MGC_TILE_1X4(u8, uint8_t)

static MGC_INLINE int32_t mgc_bottom8(uint32_t w) { return (int32_t)((w & 255u) ^ 128u) - 128; }
/* Adds the four products of a word of x, which has X and Y, with joined weights V and W. */
static MGC_INLINE int32_t mgc_joined(int32_t c, uint32_t x, uint32_t w)
{
    const int32_t low = mgc_bottom16(x) * mgc_bottom8(w) - (int32_t)(x & 255u) * mgc_bottom16(w);
    const int32_t high = (int32_t)(x >> 16 & 255u) * mgc_top16(w) - mgc_top16(x) * mgc_bottom8(w >> 16);
    return mgc_iadd(mgc_iadd(c, low), high);
}
static MGC_INLINE void mgc_joined_3x2(const uint32_t *x, const int8_t *w, int32_t n, int32_t *s)
{
    const int32_t first = s[0], second = s[1];
    for (int32_t i = 0; i < 6; i++) {
        s[i] = i < 3 ? first : second;
    }
    for (int32_t k = 0; k < n; k++) {
        for (int32_t i = 0; i < 6; i++) {
            s[i] = mgc_joined(s[i], x[3 * k + i % 3], mgc_word(w + 8 * k + i / 3 * 4));
        }
    }
}
#define MGC_JOINED_1X4(name, type, sign_bits) \
    static MGC_INLINE void mgc_joined_1x4_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        for (int32_t k = 0; k < n; k++) { \
            for (int32_t i = 0; i < 4; i++) { \
                s[i] = mgc_joined(s[i], mgc_word(x + 4 * k) ^ sign_bits, mgc_word(w + 16 * k + 4 * i)); \
            } \
        } \
    }
MGC_JOINED_1X4(i8, int8_t, MGC_SIGN_BITS_I8)
MGC_JOINED_1X4(u8, uint8_t, MGC_SIGN_BITS_U8)
#endif

/* Not inlined, because kernels are long. */
MGC_STATIC_UNUSED MGC_NOINLINE void mgc_total3(const int16_t *x, int32_t n, int32_t *s, int32_t m)
{
    int32_t first = 0, second = 0, third = 0;
    for (const int16_t *last = x + 12 * (ptrdiff_t)n; x < last; x += 12) {
        first = mgc_pairs(mgc_pairs(first, mgc_word(x), 0x10001u), mgc_word(x + 6), 0x10001u);
        second = mgc_pairs(mgc_pairs(second, mgc_word(x + 2), 0x10001u), mgc_word(x + 8), 0x10001u);
        third = mgc_pairs(mgc_pairs(third, mgc_word(x + 4), 0x10001u), mgc_word(x + 10), 0x10001u);
    }
    s[0] = mgc_imul(first, m), s[1] = mgc_imul(second, m), s[2] = mgc_imul(third, m);
}

#endif
