/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit products on cores without vectors (Cortex-M0+ and M3, RISC-V): part of megcc_integer.h. A word holds elements
 * of two pixels, a + b * 2^16 (b * 2^32 if words have 64 bits), so that one multiplication by a weight makes two
 * products. In 32-bit words, the sum of two such products is added to a total t of words, and its high half to a total
 * h. A sum of two products fits in 16 bits unless a weight is -128. In the end, h is the sum of the second pixel, and
 * t - h * 2^16 that of the first. The assembler has an equivalent in C, so that the same kernels can be tested on any
 * machine.
 *
 *   mgc_pair                       a word
 *   mgc_pack4_<type>(to,p,q,r,s,n)  packs n elements of four rows of 8-bit elements, n even, uint8 minus 128: for each
 *                                  two elements the words of the first two rows, then those of the others
 *   mgc_tile_4(x,w,n,s,c,b)        sums of four such rows with c columns of weights
 *                                  [c/MGC_COLUMNS][n/4][MGC_COLUMNS][4], n a multiple of 4, plus b[column]:
 *                                  s[4 * column + row], for whole MGC_COLUMNS
 *   mgc_row_<type>(x,w,n,s)        sums of one row of bytes with MGC_ROW_COLUMNS columns, [n/4][MGC_ROW_COLUMNS][4]
 *                                  (Cortex-M0+: [MGC_ROW_COLUMNS][n]; RV32: [n/2][MGC_ROW_COLUMNS][2], weights with
 *                                  the highest bit inverted, uint8 x minus 128)
 *   mgc_total4(x,n,s,m)            s[0] to s[3]: the sums of n elements of four rows of mgc_pack4, times m
 *   mgc_total_<type>(x,n,z)        the sum of n bytes minus z each
 *   mgc_requantize_sum_<kind> mgc_within_<type>   as in dsp_integer.h
 */
#ifndef MEGCC_PAIRS_INTEGER_H
#define MEGCC_PAIRS_INTEGER_H

#if defined(MGC_ISA_RV64)
typedef uint64_t mgc_pair;
#define MGC_PAIR_BITS 32
#else
typedef uint32_t mgc_pair;
#define MGC_PAIR_BITS 16
#endif

/* Without a C library, compilers know memcpy by this name only. */
#if MGC_GNU
#define MGC_COPY __builtin_memcpy
#define MGC_ALIGNED(p) __builtin_assume_aligned(p, sizeof(mgc_pair))
#else
#define MGC_COPY memcpy
#define MGC_ALIGNED(p) (p)
#endif

/* C, unlike GNU C, does not define right shifts of negative numbers; so their complement is shifted. */
#if MGC_GNU
static MGC_INLINE int32_t mgc_shifted(int32_t v, int32_t by) { return v >> by; }
#else
static MGC_INLINE int32_t mgc_shifted(int32_t v, int32_t by) { return v < 0 ? ~(~v >> by) : v >> by; }
#endif
#if defined(MGC_ISA_CORTEX_M0)
/* Without products of 64 bits: a * b / 2^16 from products of 16-bit halves. Returns the multiples of 2^16; *rest has
 * the remaining 17 bits. The error is less than 1. */
static MGC_INLINE int32_t mgc_product(int32_t a, int32_t b, int32_t *rest)
{
    const uint32_t a_low = (uint32_t)a & 0xffffu, b_low = (uint32_t)b & 0xffffu, b_high = (uint32_t)b >> 16;
    const int32_t a_high = mgc_shifted(a, 16);
    const int32_t first = a_high * (int32_t)b_low + (int32_t)(a_low * b_low >> 16), second = (int32_t)(a_low * b_high);
    *rest = (first & 0xffff) + (second & 0xffff);
    return a_high * (int32_t)b_high + mgc_shifted(first, 16) + (second >> 16);
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
/* Returns the high half of the doubled product, floor((a * b + 2^30) / 2^31), for b >= 0; _small: for |a| < 2^30. */
static MGC_INLINE int32_t mgc_high_lane(int32_t a, int32_t b)
{
    const uint64_t sum = (uint64_t)((int64_t)a * b) + ((uint64_t)1 << 63);
    return (int32_t)((int64_t)(sum >> 32) - ((int64_t)1 << 31));
}
static MGC_INLINE int32_t mgc_doubling_high_lane(int32_t a, int32_t b)
{
    /* An arithmetic shift in C: 2^63 makes the sum positive, and is subtracted again after the shift. */
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
    return mgc_shifted(mgc_doubling_small(x, m) + k + mgc_shifted(x, 31), r);
}
static MGC_INLINE int32_t mgc_requantize_sum_once(int32_t x, int32_t m, int32_t k, int32_t r)
{
    return mgc_shifted(mgc_high_lane(x, m) + k, r - 1);
}
#if defined(__arm__) && defined(__ARM_ARCH_7M__) && MGC_GNU
static MGC_INLINE int32_t mgc_within_i8(int32_t v)
{
    __asm__("ssat %0, #8, %0" : "+r"(v));
    return v;
}
static MGC_INLINE int32_t mgc_within_u8(int32_t v)
{
    __asm__("usat %0, #8, %0" : "+r"(v));
    return v;
}
#else
static MGC_INLINE int32_t mgc_within_i8(int32_t v) { return mgc_imin(mgc_imax(v, -128), 127); }
static MGC_INLINE int32_t mgc_within_u8(int32_t v) { return mgc_imin(mgc_imax(v, 0), 255); }
#endif
/* Rounds as in dsp_integer.h. */
static MGC_INLINE int32_t mgc_rescale_down(int32_t x, int32_t m, int32_t s)
{
    const int32_t r = -mgc_imax(s, -31), high = mgc_doubling_high_lane(x, m);
    const int32_t biased = high + mgc_shifted(high, 31);
    return mgc_shifted(biased, r) + (mgc_shifted(biased, r - 1) & 1);
}
static MGC_INLINE int32_t mgc_rescale_down_positive(int32_t x, int32_t m, int32_t s) { return mgc_rescale_down(x, m, s); }

#if MGC_GNU
#define MGC_UNUSED __attribute__((unused))
#define MGC_OUT_OF_LINE static __attribute__((noinline, unused)) void
#else
#define MGC_UNUSED
#define MGC_OUT_OF_LINE static void
#endif
#define MGC_PACK4(name, type, less) \
    MGC_OUT_OF_LINE mgc_pack4_##name(mgc_pair *to, const type *p, const type *q, const type *r, const type *s, int32_t n) \
    { \
        for (const type *last = p + n; p != last; p += 2, q += 2, r += 2, s += 2, to += 4) { \
            to[0] = (mgc_pair)(p[0] - less) + ((mgc_pair)(q[0] - less) << MGC_PAIR_BITS); \
            to[1] = (mgc_pair)(p[1] - less) + ((mgc_pair)(q[1] - less) << MGC_PAIR_BITS); \
            to[2] = (mgc_pair)(r[0] - less) + ((mgc_pair)(s[0] - less) << MGC_PAIR_BITS); \
            to[3] = (mgc_pair)(r[1] - less) + ((mgc_pair)(s[1] - less) << MGC_PAIR_BITS); \
        } \
    }
MGC_PACK4(i8, int8_t, 0)
MGC_PACK4(u8, uint8_t, 128)

/* t: total of words. h: total of their high halves. A bias, half of the range, keeps the halves positive. */
static MGC_INLINE void mgc_total2(const mgc_pair *x, int32_t n, int32_t *s, int32_t m)
{
    const mgc_pair half = (mgc_pair)1 << (MGC_PAIR_BITS - 1);
    mgc_pair t = 0, h = 0;
    for (int32_t i = 0; i < n; i++) {
        const mgc_pair word = x[i / 2 * 4 + i % 2];
        t += word;
        h += (word + half + (half << MGC_PAIR_BITS)) >> MGC_PAIR_BITS;
    }
    h -= (mgc_pair)n * half;
    s[0] = (int32_t)((uint32_t)(t - (h << MGC_PAIR_BITS)) * (uint32_t)m);
    s[1] = (int32_t)((uint32_t)h * (uint32_t)m);
}
MGC_OUT_OF_LINE mgc_total4(const mgc_pair *x, int32_t n, int32_t *s, int32_t m)
{
    mgc_total2(x, n, s, m);
    mgc_total2(x + 2, n, s + 2, m);
}
#define MGC_TOTAL_OF(name, type) \
    static MGC_INLINE int32_t mgc_total_##name(const type *x, int32_t n, int32_t zero) \
    { \
        int32_t total = 0; \
        for (int32_t i = 0; i < n; i++) { \
            total += x[i]; \
        } \
        return total - n * zero; \
    }
MGC_TOTAL_OF(i8, int8_t)
MGC_TOTAL_OF(u8, uint8_t)

#define MGC_NAKED static __attribute__((naked, noinline, unused)) void

#if defined(__arm__) && defined(__ARM_ARCH_7M__) && MGC_GNU
/* Compilers keep sums on the stack; here each of the 14 registers has a fixed use. sp[0]: n, sp[1]: sums, sp[11]:
 * columns, sp[12]: b. Each sum of two products starts with 2^15 (r3), so that its low half is not negative; the initial
 * totals are reduced by the total of these. */
#define MGC_COLUMNS 1
#define MGC_ROW_COLUMNS 8
#define MGC_FOLD(a, b, t, h) \
    "mla " a ", " a ", r8, r3\n\tmla " a ", " b ", r9, " a "\n\tadd " t ", " a "\n\tadd " h ", " h ", " a ", asr #16\n\t"
#define MGC_FOLDS MGC_FOLD("r4", "r5", "r10", "r11") MGC_FOLD("r6", "r7", "r12", "lr")
MGC_NAKED mgc_tile_4(const mgc_pair *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED,
                     int32_t columns MGC_UNUSED, const int32_t *b MGC_UNUSED)
{
    __asm__ volatile("push {r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\tmovw r3, #32768\n"
                     "1:\n\tldr r4, [sp]\n\tadd r2, r1, r4\n\tldr r5, [sp, #48]\n\tldr r11, [r5], #4\n\tstr r5, [sp, #48]\n\t"
                     "add r10, r11, r11, lsl #16\n\tsub r10, r10, r4, lsl #14\n\tmov r12, r10\n\tmov lr, r11\n"
                     "2:\n\tldmia r0!, {r4, r5, r6, r7}\n\tldrsb r8, [r1], #4\n\tldrsb r9, [r1, #-3]\n\t" MGC_FOLDS
                     "ldmia r0!, {r4, r5, r6, r7}\n\tldrsb r8, [r1, #-2]\n\tldrsb r9, [r1, #-1]\n\t" MGC_FOLDS
                     "cmp r1, r2\n\tbne 2b\n\t"
                     "sub r10, r10, r11, lsl #16\n\tsub r12, r12, lr, lsl #16\n\tldrd r4, r5, [sp]\n\tldr r6, [sp, #44]\n\t"
                     "stmia r5!, {r10, r11, r12, lr}\n\tsub r0, r0, r4, lsl #3\n\tstr r5, [sp, #4]\n\t"
                     "subs r6, #1\n\tstr r6, [sp, #44]\n\tbne 1b\n\t"
                     "add sp, #8\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory");
}
#define MGC_ONE(sum, at) "ldrsb r3, [r1, #" at "]\n\tmla " sum ", r3, r12, " sum "\n\t"
#define MGC_EIGHT(load, a, b, c, d, e, f, g, h) \
    load " r12, [r0], #1\n\t" MGC_ONE("r4", a) MGC_ONE("r5", b) MGC_ONE("r6", c) MGC_ONE("r7", d) \
    MGC_ONE("r8", e) MGC_ONE("r9", f) MGC_ONE("r10", g) MGC_ONE("r11", h)
#define MGC_LINE_OF(name, type, load) \
    MGC_NAKED mgc_row_##name(const type *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED) \
    { \
        __asm__ volatile("push {r3, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\tadd r2, r0\n\t" \
                         "mov r4, #0\n\tmov r5, #0\n\tmov r6, #0\n\tmov r7, #0\n\tmov r8, #0\n\tmov r9, #0\n\tmov r10, #0\n\tmov r11, #0\n" \
                         "1:\n\t" MGC_EIGHT(load, "0", "4", "8", "12", "16", "20", "24", "28") \
                         MGC_EIGHT(load, "1", "5", "9", "13", "17", "21", "25", "29") \
                         MGC_EIGHT(load, "2", "6", "10", "14", "18", "22", "26", "30") \
                         MGC_EIGHT(load, "3", "7", "11", "15", "19", "23", "27", "31") \
                         "add r1, #32\n\tcmp r0, r2\n\tbne 1b\n\t" \
                         "pop {r3}\n\tstmia r3, {r4, r5, r6, r7, r8, r9, r10, r11}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory"); \
    }
MGC_LINE_OF(i8, int8_t, "ldrsb")
MGC_LINE_OF(u8, uint8_t, "ldrb")

#elif defined(__arm__) && (defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)) && MGC_GNU
/* The same for 8 low registers and high ones that only additions can use. The shift of a word leaves the highest bit of
 * its low half in the carry. sp[0]: n, sp[1]: sums, sp[11]: columns, sp[12]: b; r10: end of a column's weights. */
#define MGC_COLUMNS 1
#define MGC_ROW_COLUMNS 4
#define MGC_SAVE "push {r4, r5, r6, r7, lr}\n\tmov r4, r8\n\tmov r5, r9\n\tmov r6, r10\n\tmov r7, r11\n\tpush {r4, r5, r6, r7}\n\t"
#define MGC_RESTORE "pop {r4, r5, r6, r7}\n\tmov r8, r4\n\tmov r9, r5\n\tmov r10, r6\n\tmov r11, r7\n\tpop {r4, r5, r6, r7, pc}"
#define MGC_FOLD(t, h) \
    "ldmia r0!, {r4, r5}\n\tmuls r4, r2, r4\n\tmuls r5, r3, r5\n\tadds r4, r4, r5\n\tadd " t ", r4\n\tasrs r4, r4, #16\n\tadcs " h ", r4\n\t"
#define MGC_FOLDS(a, b) \
    "movs r2, #" a "\n\tldrsb r2, [r1, r2]\n\tmovs r3, #" b "\n\tldrsb r3, [r1, r3]\n\t" MGC_FOLD("r8", "r6") MGC_FOLD("r9", "r7")
MGC_NAKED mgc_tile_4(const mgc_pair *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED,
                     int32_t columns MGC_UNUSED, const int32_t *b MGC_UNUSED)
{
    __asm__ volatile(".syntax unified\n\t" MGC_SAVE "push {r2, r3}\n"
                     "1:\n\tldr r2, [sp]\n\tadds r2, r2, r1\n\tmov r10, r2\n\tldr r2, [sp, #48]\n\tldmia r2!, {r6}\n\tstr r2, [sp, #48]\n\t"
                     "mov r7, r6\n\tlsls r2, r6, #16\n\tadds r2, r2, r6\n\tmov r8, r2\n\tmov r9, r2\n"
                     "2:\n\t" MGC_FOLDS("0", "1") MGC_FOLDS("2", "3") "adds r1, #4\n\tcmp r1, r10\n\tbne 2b\n\t"
                     "mov r4, r8\n\tlsls r2, r6, #16\n\tsubs r4, r4, r2\n\tmov r5, r6\n\tmov r6, r9\n\tlsls r2, r7, #16\n\tsubs r6, r6, r2\n\t"
                     "ldr r2, [sp, #4]\n\tstmia r2!, {r4, r5, r6, r7}\n\tstr r2, [sp, #4]\n\t"
                     "ldr r2, [sp]\n\tlsls r2, r2, #3\n\tsubs r0, r0, r2\n\t"
                     "ldr r2, [sp, #44]\n\tsubs r2, #1\n\tstr r2, [sp, #44]\n\tbne 1b\n\tadd sp, #8\n\t" MGC_RESTORE ::: "memory");
}
#define MGC_ONE(w, sum) "ldrsb r7, [" w ", r5]\n\tmuls r7, r6, r7\n\tadd " sum ", r7\n\t"
#define MGC_LINE_OF(name, type, load) \
    MGC_NAKED mgc_row_##name(const type *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED) \
    { \
        __asm__ volatile(".syntax unified\n\t" MGC_SAVE "push {r3}\n\t" \
                         "mov r5, r2\n\tadds r0, r0, r5\n\tadds r1, r1, r5\n\tadds r2, r1, r5\n\tadds r3, r2, r5\n\tadds r4, r3, r5\n\t" \
                         "rsbs r5, r5, #0\n\tmovs r6, #0\n\tmov r8, r6\n\tmov r9, r6\n\tmov r10, r6\n\tmov r11, r6\n" \
                         "1:\n\t" load " r6, [r0, r5]\n\t" MGC_ONE("r1", "r8") MGC_ONE("r2", "r9") MGC_ONE("r3", "r10") \
                         MGC_ONE("r4", "r11") "adds r5, #1\n\tbne 1b\n\t" \
                         "pop {r3}\n\tmov r4, r8\n\tmov r5, r9\n\tmov r6, r10\n\tmov r7, r11\n\tstmia r3!, {r4, r5, r6, r7}\n\t" \
                         MGC_RESTORE ::: "memory"); \
    }
MGC_LINE_OF(i8, int8_t, "ldrsb")
MGC_LINE_OF(u8, uint8_t, "ldrb")

#else
/* A compiler barrier: otherwise gcc loads all operands of a step first, and spills them. */
#if MGC_GNU && defined(__riscv)
#define MGC_FENCE __asm__ volatile("" ::: "memory");
#else
#define MGC_FENCE
#endif
#if defined(MGC_ISA_CORTEX_M3) || defined(MGC_ISA_CORTEX_M0)
#define MGC_COLUMNS 1
#define MGC_EACH_COLUMN(DO, k) DO(0, k)
#else
#define MGC_COLUMNS 4
#define MGC_EACH_COLUMN(DO, k) DO(0, k) DO(1, k) DO(2, k) DO(3, k)
#endif
#if MGC_PAIR_BITS == 32
/* A word holds both sums: the first pixel's plus 2^32 times the second's. */
#define MGC_SUMS(c, k) mgc_pair t##c##_0 = (mgc_pair)b[c] + ((mgc_pair)b[c] << MGC_PAIR_BITS), t##c##_1 = t##c##_0;
#define MGC_FOLD(c, i) t##c##_##i += x##i##_0 * w0 + x##i##_1 * w1;
#define MGC_KEEP(c, i) \
    s[4 * c + 2 * i] = (int32_t)(uint32_t)t##c##_##i; \
    s[4 * c + 2 * i + 1] = (int32_t)(uint32_t)((t##c##_##i + ((mgc_pair)1 << 31)) >> 32);
#else
/* Each sum of two products has 2^15 added in both halves, so that neither is negative. */
#define MGC_SUMS(c, k) \
    mgc_pair t##c##_0 = (mgc_pair)b[c] + ((mgc_pair)b[c] << MGC_PAIR_BITS), t##c##_1 = t##c##_0; \
    mgc_pair h##c##_0 = (mgc_pair)b[c], h##c##_1 = h##c##_0;
#define MGC_FOLD(c, i) \
    { \
        const mgc_pair fold = x##i##_0 * w0 + x##i##_1 * w1; \
        t##c##_##i += fold; \
        h##c##_##i += (fold + 0x80008000u) >> 16; \
    }
#define MGC_KEEP(c, i) \
    h##c##_##i -= (mgc_pair)n << 14; \
    s[4 * c + 2 * i] = (int32_t)(t##c##_##i - (h##c##_##i << 16)); \
    s[4 * c + 2 * i + 1] = (int32_t)h##c##_##i;
#endif
#define MGC_FOLDS(c, k) \
    { \
        const mgc_pair w0 = (mgc_pair)w[4 * c + k], w1 = (mgc_pair)w[4 * c + k + 1]; \
        MGC_FOLD(c, 0) \
        MGC_FOLD(c, 1) \
        MGC_FENCE \
    }
#define MGC_STEP(k) \
    { \
        const mgc_pair x0_0 = x[2 * k], x0_1 = x[2 * k + 1], x1_0 = x[2 * k + 2], x1_1 = x[2 * k + 3]; \
        MGC_EACH_COLUMN(MGC_FOLDS, k) \
    }
#if defined(__riscv) && __riscv_xlen == 32 && MGC_GNU
/* Sixteen totals, operands of two pixels and two columns and other values take all 28 registers; compilers keep some on
 * the stack. ra: end of the words; 52(sp): x, sums, end of sums, b, n % 8. If n is no multiple of 8, the loop is
 * entered in its middle. */
#define MGC_STEP_OF_PIXEL(a, b, t, h) \
    "mul t4, " a ", a7\n\tmul t5, " b ", t3\n\tadd t4, t4, t5\n\tadd " t ", " t ", t4\n\tadd t4, t4, t6\n\t" \
    "srai t4, t4, 16\n\tadd " h ", " h ", t4\n\t"
#define MGC_WHOLE(w0, w1, t, h, u, i) \
    "lb a7, " w0 "(a1)\n\tlb t3, " w1 "(a1)\n\t" MGC_STEP_OF_PIXEL("a2", "a3", t, h) MGC_STEP_OF_PIXEL("a5", "a6", u, i)
#define MGC_FOUR_WORDS(a, b, c, d) "lw a2, " a "(a0)\n\tlw a3, " b "(a0)\n\tlw a5, " c "(a0)\n\tlw a6, " d "(a0)\n\t"
#define MGC_FOUR_STEPS(a, b, c, d, w0, w1, w2, w3, w4, w5, w6, w7) \
    MGC_FOUR_WORDS(a, b, c, d) MGC_WHOLE(w0, w1, "s0", "s1", "s2", "s3") MGC_WHOLE(w2, w3, "s4", "s5", "s6", "s7") \
    MGC_WHOLE(w4, w5, "s8", "s9", "s10", "s11") MGC_WHOLE(w6, w7, "t0", "t1", "t2", "a4")
#define MGC_START(t, h, u, i) "slli " t ", " h ", 16\n\tadd " t ", " t ", " h "\n\tmv " u ", " t "\n\tmv " i ", " h "\n\t"
#define MGC_WRITE(a, b, c, d, t, h, u, i) \
    "slli t4, " h ", 16\n\tslli t5, " i ", 16\n\tsub " t ", " t ", t4\n\tsub " u ", " u ", t5\n\t" \
    "sw " t ", " a "(a3)\n\tsw " h ", " b "(a3)\n\tsw " u ", " c "(a3)\n\tsw " i ", " d "(a3)\n\t"
MGC_NAKED mgc_tile_4(const mgc_pair *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED,
                     int32_t columns MGC_UNUSED, const int32_t *b MGC_UNUSED)
{
    __asm__ volatile("addi sp, sp, -80\n\tsw ra, 0(sp)\n\tsw s0, 4(sp)\n\tsw s1, 8(sp)\n\tsw s2, 12(sp)\n\tsw s3, 16(sp)\n\t"
                     "sw s4, 20(sp)\n\tsw s5, 24(sp)\n\tsw s6, 28(sp)\n\tsw s7, 32(sp)\n\tsw s8, 36(sp)\n\tsw s9, 40(sp)\n\t"
                     "sw s10, 44(sp)\n\tsw s11, 48(sp)\n\tsw a0, 52(sp)\n\tsw a3, 56(sp)\n\tslli a4, a4, 4\n\tadd a4, a4, a3\n\t"
                     "sw a4, 60(sp)\n\tsw a5, 64(sp)\n\tandi a3, a2, 4\n\tsw a3, 68(sp)\n\tslli a2, a2, 3\n\tadd ra, a0, a2\n\tlui t6, 8\n"
                     "1:\n\tlw a2, 64(sp)\n\tlw s1, 0(a2)\n\tlw s5, 4(a2)\n\tlw s9, 8(a2)\n\tlw t1, 12(a2)\n\taddi a2, a2, 16\n\tsw a2, 64(sp)\n\t"
                     MGC_START("s0", "s1", "s2", "s3") MGC_START("s4", "s5", "s6", "s7") MGC_START("s8", "s9", "s10", "s11")
                     MGC_START("t0", "t1", "t2", "a4")
                     "lw a2, 68(sp)\n\tbeqz a2, 2f\n\taddi a0, a0, -32\n\taddi a1, a1, -16\n\tj 3f\n"
                     "2:\n\t" MGC_FOUR_STEPS("0", "4", "8", "12", "0", "1", "4", "5", "8", "9", "12", "13")
                     MGC_FOUR_STEPS("16", "20", "24", "28", "2", "3", "6", "7", "10", "11", "14", "15")
                     "3:\n\t" MGC_FOUR_STEPS("32", "36", "40", "44", "16", "17", "20", "21", "24", "25", "28", "29")
                     MGC_FOUR_STEPS("48", "52", "56", "60", "18", "19", "22", "23", "26", "27", "30", "31")
                     "addi a0, a0, 64\n\taddi a1, a1, 32\n\tbne a0, ra, 2b\n\tlw a3, 56(sp)\n\t"
                     MGC_WRITE("0", "4", "8", "12", "s0", "s1", "s2", "s3") MGC_WRITE("16", "20", "24", "28", "s4", "s5", "s6", "s7")
                     MGC_WRITE("32", "36", "40", "44", "s8", "s9", "s10", "s11") MGC_WRITE("48", "52", "56", "60", "t0", "t1", "t2", "a4")
                     "addi a3, a3, 64\n\tsw a3, 56(sp)\n\tlw a0, 52(sp)\n\tlw a2, 60(sp)\n\tbltu a3, a2, 1b\n\t"
                     "lw ra, 0(sp)\n\tlw s0, 4(sp)\n\tlw s1, 8(sp)\n\tlw s2, 12(sp)\n\tlw s3, 16(sp)\n\t"
                     "lw s4, 20(sp)\n\tlw s5, 24(sp)\n\tlw s6, 28(sp)\n\tlw s7, 32(sp)\n\tlw s8, 36(sp)\n\tlw s9, 40(sp)\n\t"
                     "lw s10, 44(sp)\n\tlw s11, 48(sp)\n\taddi sp, sp, 80\n\tret" ::: "memory");
}
#else
#define MGC_KEEPS(c, k) MGC_KEEP(c, 0) MGC_KEEP(c, 1)
MGC_OUT_OF_LINE mgc_tile_4(const mgc_pair *packed_x, const int8_t *w, int32_t n, int32_t *s, int32_t columns, const int32_t *b)
{
    for (; columns > 0; columns -= MGC_COLUMNS, s += 4 * MGC_COLUMNS, b += MGC_COLUMNS) {
        MGC_EACH_COLUMN(MGC_SUMS, 0)
        for (const mgc_pair *x = packed_x, *last = packed_x + 2 * n; x != last; x += 8, w += 4 * MGC_COLUMNS) {
            MGC_STEP(0)
            MGC_STEP(2)
        }
        MGC_EACH_COLUMN(MGC_KEEPS, 0)
    }
}
#endif
#if MGC_PAIR_BITS == 32
/* A word holds weights of two columns; 128 is added to them, so that one instruction separates them. */
#define MGC_ROW_COLUMNS 8
#define MGC_TWO(c, i) t##c += ((v##c >> 8 * i) & lows) * by;
#define MGC_STEP_OF(i) \
    { \
        const mgc_pair by = (mgc_pair)x[i]; \
        total += by; \
        MGC_TWO(0, i) MGC_TWO(1, i) MGC_TWO(2, i) MGC_TWO(3, i) \
    }
#define MGC_KEEP_OF(c) \
    t##c -= total; \
    s[2 * c] = (int32_t)(uint32_t)t##c; \
    s[2 * c + 1] = (int32_t)(uint32_t)((t##c + ((mgc_pair)1 << 31)) >> 32);
static MGC_INLINE mgc_pair mgc_two(const int8_t *w)
{
    mgc_pair two;
    MGC_COPY(&two, MGC_ALIGNED(w), sizeof two);
    return two ^ 0x8080808080808080u;
}
#define MGC_LINE_OF(name, type) \
    MGC_OUT_OF_LINE mgc_row_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        const mgc_pair lows = 0x000000ff000000ffu; \
        mgc_pair t0 = 0, t1 = 0, t2 = 0, t3 = 0, total = 0; \
        for (const type *last = x + n; x != last; x += 4, w += 32) { \
            const mgc_pair v0 = mgc_two(w), v1 = mgc_two(w + 8), v2 = mgc_two(w + 16), v3 = mgc_two(w + 24); \
            MGC_STEP_OF(0) MGC_STEP_OF(1) MGC_STEP_OF(2) MGC_STEP_OF(3) \
        } \
        total = (total << 7) + (total << 39); \
        MGC_KEEP_OF(0) MGC_KEEP_OF(1) MGC_KEEP_OF(2) MGC_KEEP_OF(3) \
    }
#elif defined(MGC_ISA_RV32)
/* A word holds weights of two columns here, too. Its products with two elements are added as in tiles: (odd bytes of a
 * word minus even ones, by the second element times 2^24) have their sum in the high half of the product. */
#define MGC_ROW_COLUMNS 16
#if defined(__riscv) && __riscv_xlen == 32 && MGC_GNU
#define MGC_COUPLE(at, t, h) \
    "lw t5, " at "(a1)\n\tand t6, t5, t3\n\tsub t5, t5, t6\n\tmul t6, t6, a5\n\tmulhsu t5, a6, t5\n\tadd t6, t6, t5\n\t" \
    "add t6, t6, a7\n\tadd " t ", " t ", t6\n\tsrai t6, t6, 16\n\tadd " h ", " h ", t6\n\t"
#define MGC_ENDS(a, b, t, h) \
    "slli t5, " h ", 16\n\tadd " t ", " t ", a5\n\tsub " t ", " t ", t5\n\tsw " t ", " a "(a3)\n\tsw " h ", " b "(a3)\n\t"
/* less: makes the elements in a5 and a6 signed 8-bit numbers. a7: 2^15 minus 128 times their sum, in both halves. */
#define MGC_LINE_OF(name, type, load, less) \
    MGC_NAKED mgc_row_##name(const type *x MGC_UNUSED, const int8_t *w MGC_UNUSED, int32_t n MGC_UNUSED, int32_t *s MGC_UNUSED) \
    { \
        __asm__ volatile("addi sp, sp, -64\n\tsw ra, 0(sp)\n\tsw s0, 4(sp)\n\tsw s1, 8(sp)\n\tsw s2, 12(sp)\n\tsw s3, 16(sp)\n\t" \
                         "sw s4, 20(sp)\n\tsw s5, 24(sp)\n\tsw s6, 28(sp)\n\tsw s7, 32(sp)\n\tsw s8, 36(sp)\n\tsw s9, 40(sp)\n\t" \
                         "sw s10, 44(sp)\n\tsw s11, 48(sp)\n\tsw a2, 52(sp)\n\tadd a2, a0, a2\n\tlui ra, 8\n\t" \
                         "li t3, 0x00ff00ff\n\tli t4, -0x00800080\n\t" \
                         "li s0, 0\n\tli s1, 0\n\tli s2, 0\n\tli s3, 0\n\tli s4, 0\n\tli s5, 0\n\tli s6, 0\n\tli s7, 0\n\t" \
                         "li s8, 0\n\tli s9, 0\n\tli s10, 0\n\tli s11, 0\n\tli t0, 0\n\tli t1, 0\n\tli t2, 0\n\tli a4, 0\n" \
                         "1:\n\t" load " a5, 0(a0)\n\t" load " a6, 1(a0)\n\t" less "add a7, a5, a6\n\tmul a7, a7, t4\n\t" \
                         "add a7, a7, ra\n\tslli a6, a6, 24\n\t" \
                         MGC_COUPLE("0", "s0", "s1") MGC_COUPLE("4", "s2", "s3") MGC_COUPLE("8", "s4", "s5") MGC_COUPLE("12", "s6", "s7") \
                         MGC_COUPLE("16", "s8", "s9") MGC_COUPLE("20", "s10", "s11") MGC_COUPLE("24", "t0", "t1") MGC_COUPLE("28", "t2", "a4") \
                         "addi a0, a0, 2\n\taddi a1, a1, 32\n\tbne a0, a2, 1b\n\tlw a5, 52(sp)\n\tslli a5, a5, 14\n\tneg a5, a5\n\t" \
                         MGC_ENDS("0", "4", "s0", "s1") MGC_ENDS("8", "12", "s2", "s3") MGC_ENDS("16", "20", "s4", "s5") \
                         MGC_ENDS("24", "28", "s6", "s7") MGC_ENDS("32", "36", "s8", "s9") MGC_ENDS("40", "44", "s10", "s11") \
                         MGC_ENDS("48", "52", "t0", "t1") MGC_ENDS("56", "60", "t2", "a4") \
                         "lw ra, 0(sp)\n\tlw s0, 4(sp)\n\tlw s1, 8(sp)\n\tlw s2, 12(sp)\n\tlw s3, 16(sp)\n\t" \
                         "lw s4, 20(sp)\n\tlw s5, 24(sp)\n\tlw s6, 28(sp)\n\tlw s7, 32(sp)\n\tlw s8, 36(sp)\n\tlw s9, 40(sp)\n\t" \
                         "lw s10, 44(sp)\n\tlw s11, 48(sp)\n\taddi sp, sp, 64\n\tret" ::: "memory"); \
    }
MGC_LINE_OF(i8, int8_t, "lb", "")
MGC_LINE_OF(u8, uint8_t, "lbu", "addi a5, a5, -128\n\taddi a6, a6, -128\n\t")
#else
#define MGC_LINE_OF(name, type, less) \
    MGC_OUT_OF_LINE mgc_row_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        for (int32_t c = 0; c < MGC_ROW_COLUMNS; c++) { \
            s[c] = 0; \
            for (int32_t i = 0; i < n; i++) { \
                s[c] += (x[i] - less) * ((w[(i / 2 * MGC_ROW_COLUMNS + c) * 2 + i % 2] & 255) - 128); \
            } \
        } \
    }
MGC_LINE_OF(i8, int8_t, 0)
MGC_LINE_OF(u8, uint8_t, 128)
#endif
#else
#if defined(MGC_ISA_CORTEX_M0)
#define MGC_ROW_COLUMNS 4
#define MGC_NEXT 4
#define MGC_AT(c, i) w[c * n + i]
#define MGC_EACH_SUM(DO, i) DO(0, i) DO(1, i) DO(2, i) DO(3, i)
#else
#define MGC_ROW_COLUMNS 8
#define MGC_NEXT 32
#define MGC_AT(c, i) w[4 * c + i]
#define MGC_EACH_SUM(DO, i) DO(0, i) DO(1, i) DO(2, i) DO(3, i) DO(4, i) DO(5, i) DO(6, i) DO(7, i)
#endif
#define MGC_SUM_OF(c, i) int32_t t##c = 0;
#define MGC_ADD_OF(c, i) t##c += by * MGC_AT(c, i);
#define MGC_KEEP_OF(c, i) s[c] = t##c;
#define MGC_STEP_OF(i) \
    { \
        const int32_t by = x[i]; \
        MGC_EACH_SUM(MGC_ADD_OF, i) \
        MGC_FENCE \
    }
#define MGC_LINE_OF(name, type) \
    MGC_OUT_OF_LINE mgc_row_##name(const type *x, const int8_t *w, int32_t n, int32_t *s) \
    { \
        MGC_EACH_SUM(MGC_SUM_OF, 0) \
        for (const type *last = x + n; x != last; x += 4, w += MGC_NEXT) { \
            MGC_STEP_OF(0) MGC_STEP_OF(1) MGC_STEP_OF(2) MGC_STEP_OF(3) \
        } \
        MGC_EACH_SUM(MGC_KEEP_OF, 0) \
    }
#endif
#if !defined(MGC_ISA_RV32)
MGC_LINE_OF(i8, int8_t)
MGC_LINE_OF(u8, uint8_t)
#endif
#endif

#endif
