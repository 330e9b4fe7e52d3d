/* SPDX-License-Identifier: Apache-2.0
 *
 * Dot products of 8-bit elements, and requantization, by Helium (Cortex-M55, M85). megcc_integer.h includes this header;
 * kernels/helium/ uses it. Long functions are in assembler, because compilers run out of registers: Helium has eight
 * vectors, and VMLADAV sums products into even general registers only. The C functions compute the same on any machine,
 * so that tests can run there.
 *
 *   mgc_rows_2x4(p)        sums of two rows with columns of weights [columns / 4][p->steps][4][16]; each row has
 *                          16 * p->steps elements. It writes the sums of four columns with x, then with x2, from p->to
 *                          to p->end. mgc_rows_2x4_unsigned: x, x2 and weights are uint8
 *   mgc_rows_1x8(p)        sums of one row, x, with weights [columns / 8][p->steps][8][16]; also _unsigned
 *   mgc_total(x,n)         the sum of n elements of int8; mgc_total_unsigned: of uint8
 *   mgc_add_rows_2(s,end,a,b)    adds a to the sums of x and b to those of x2; mgc_add_rows_1(s,end,a)
 *   mgc_taps_9(p)          depthwise: sums over nine taps of p->blocks times 16 channels, with weights [blocks][9][16],
 *                          none of which is -128. It advances p->from and p->w
 *   mgc_taps(p)            the same for 2 * p->steps taps, weights [blocks][2 * steps][16]
 *   mgc_taps_9_<type>(p)   for x of i8 or u8 and int16 weights [blocks][9][8], p->blocks times 8 channels;
 *                          mgc_taps_<type>(p): for p->steps taps, weights [blocks][steps][8]
 *   mgc_requantize_sums_<kind>_<of>_<rows>(p)
 *                          requantizes sums [n / 4][rows][4] of p->n channels to bytes.
 *                          <kind>: fixed, rounded twice as in TFLite (mgc_rescale_fixed); positive, the same if all
 *                          negative results become the lower limit; once, rounded once (mgc_rescale_once).
 *                          <of>: multiplier and shift are per channel (each), shifts are int8 too (bytes), or there is
 *                          one of each (all)
 *   mgc_copy_bytes(to,p,n) copies n bytes at any addresses; mgc_copy_int8x16(to,p,n): rounds n up to a multiple of 16;
 *                          mgc_fill_bytes(to,n,v)
 *   mgc_int32x4            a vector of four int32
 *   mgc_int32x4_load(p,n)  loads the first n, others are 0; mgc_int32x4_load_i8(p,n): from int8; mgc_int32x4_dup(v)
 *   mgc_int32x4_add(a,b)   and sub, mul, min, max: as mgc_iadd and so on of megcc_integer.h
 *   mgc_int32x4_rescale_fixed(v,m,s)
 *                          and rescale_positive, rescale_down, rescale_down_positive: as mgc_rescale_fixed and so on
 *   mgc_int32x4_<function>_by
 *                          the same, but operands after the first are scalars
 *   mgc_int32x4_store(y,v,z,low,high,n)
 *                          stores the first n of v + z as int8, limited to [low, high]
 *   mgc_min_int32(a,b) mgc_max_int32(a,b)    of scalars
 */
#ifndef MEGCC_HELIUM_INTEGER_H
#define MEGCC_HELIUM_INTEGER_H

/* Operands are structs, because assembler finds their fields at fixed offsets; only `x` and `x2` change between columns. */
typedef struct mgc_rows {
    const int8_t *x2, *x;       /* the second row, if there are two, and the first */
    int32_t steps;              /* elements of a row / 16, at least 1 */
    const int8_t *w;
    int32_t *to, *end;          /* the sums to write */
} mgc_rows;

typedef struct mgc_taps_9_args {
    const int8_t *from[9], *w;  /* the first channel of the element under each tap; weights */
    int32_t *to;                /* a sum for each channel */
    int32_t blocks;             /* of 16 or 8 channels, at least 1 */
} mgc_taps_9_args;

typedef struct mgc_taps_args {
    const int8_t *const *from;  /* the address of the element under each tap */
    const int8_t *w;
    int32_t *to;                /* a sum for each channel */
    int32_t blocks;             /* of 16 or 8 channels, at least 1 */
    int32_t at;                 /* the first channel */
    int32_t steps;              /* iterations over the taps, at least 1: of two taps with int8 weights, of one with int16 */
} mgc_taps_args;

typedef struct mgc_requantize_args {
    const int32_t *sums, *bias, *multiplier; /* bias: added to the sums of its channel, before they are multiplied */
    const void *shift;          /* int32_t, or int8_t if <of> is bytes */
    int8_t *y, *y2;             /* results of the first and the second row */
    int32_t n, zero, low, high; /* channels; zero point and limits of the results */
} mgc_requantize_args;

static MGC_INLINE int32_t mgc_min_int32(int32_t a, int32_t b) { return a < b ? a : b; }
static MGC_INLINE int32_t mgc_max_int32(int32_t a, int32_t b) { return a > b ? a : b; }

#if MGC_HELIUM
typedef int32x4_t mgc_int32x4;

#define MGC_NAKED(name, type) static __attribute__((naked, noinline, unused)) void name(type *p __attribute__((unused)))

/* The first step sets the sums, the others add to them, two in an iteration; if their number is odd, the loop is entered in
 * its middle, at label 3. Both functions have p in r9.
 * mgc_rows_2x4: r3 and r1 are the next of x and x2, r5 of the weights, r11 of the sums; r7 counts iterations; q0 and q1 hold
 * 16 elements of x and x2, q2 and q3 of columns. r0, r4, r8, r12: sums of x; r2, r6, r10, lr: of x2.
 * mgc_rows_1x8: r1 is the next of x, r3 of the weights, r7 of the sums, r11 their end; r5 counts iterations; q0 holds x, q1
 * to q3 columns. r0, r2, r4, r6, r8, r10, r12, lr: sums. */
#define MGC_STEP_2X4(multiply) \
    "vldrb.8 q0, [r3], #16\n\tvldrb.8 q2, [r5], #16\n\t" multiply " r0, q0, q2\n\tvldrb.8 q1, [r1], #16\n\t" \
    multiply " r2, q1, q2\n\tvldrb.8 q3, [r5], #16\n\t" multiply " r4, q0, q3\n\t" multiply " r6, q1, q3\n\t" \
    "vldrb.8 q2, [r5], #16\n\t" multiply " r8, q0, q2\n\t" multiply " r10, q1, q2\n\t" \
    "vldrb.8 q3, [r5], #16\n\t" multiply " r12, q0, q3\n\t" multiply " lr, q1, q3\n\t"
#define MGC_STEP_1X8(multiply) \
    "vldrb.8 q0, [r1], #16\n\tvldrb.8 q1, [r3], #16\n\t" multiply " r0, q0, q1\n\tvldrb.8 q2, [r3], #16\n\t" \
    multiply " r2, q0, q2\n\tvldrb.8 q3, [r3], #16\n\t" multiply " r4, q0, q3\n\tvldrb.8 q1, [r3], #16\n\t" \
    multiply " r6, q0, q1\n\tvldrb.8 q2, [r3], #16\n\t" multiply " r8, q0, q2\n\tvldrb.8 q3, [r3], #16\n\t" \
    multiply " r10, q0, q3\n\tvldrb.8 q1, [r3], #16\n\t" multiply " r12, q0, q1\n\tvldrb.8 q2, [r3], #16\n\t" \
    multiply " lr, q0, q2\n\t"
#define MGC_ROWS(suffix, type) \
    MGC_NAKED(mgc_rows_2x4##suffix, const mgc_rows) \
    { \
        __asm__ volatile( \
            "push {r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}\n\tmov r9, r0\n\tldr r5, [r9, #12]\n\tldr r11, [r9, #16]\n" \
            "1:\n\tldm r9, {r1, r3, r7}\n\tlsrs r7, r7, #1\n\t" MGC_STEP_2X4("vmladav." type) \
            "bcc 3f\n\tbeq 4f\n" \
            "2:\n\t" MGC_STEP_2X4("vmladava." type) "\n" \
            "3:\n\t" MGC_STEP_2X4("vmladava." type) "subs r7, r7, #1\n\tbne 2b\n" \
            "4:\n\tldr r7, [r9, #20]\n\tstmia r11!, {r0, r4, r8, r12}\n\tstmia r11!, {r2, r6, r10, lr}\n\t" \
            "cmp r11, r7\n\tbne 1b\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}" ::: "memory"); \
    } \
    MGC_NAKED(mgc_rows_1x8##suffix, const mgc_rows) \
    { \
        __asm__ volatile( \
            "push {r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}\n\tmov r9, r0\n\tldr r3, [r9, #12]\n\tldrd r7, r11, [r9, #16]\n" \
            "1:\n\tldrd r1, r5, [r9, #4]\n\tlsrs r5, r5, #1\n\t" MGC_STEP_1X8("vmladav." type) \
            "bcc 3f\n\tbeq 4f\n" \
            "2:\n\t" MGC_STEP_1X8("vmladava." type) "\n" \
            "3:\n\t" MGC_STEP_1X8("vmladava." type) "subs r5, r5, #1\n\tbne 2b\n" \
            "4:\n\tstmia r7!, {r0, r2, r4, r6, r8, r10, r12, lr}\n\tcmp r7, r11\n\tbne 1b\n\t" \
            "pop {r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}" ::: "memory"); \
    } \
    static MGC_INLINE int32_t mgc_total##suffix(const int8_t *p, int32_t n) \
    { \
        int32_t total = 0; \
        __asm__ volatile("wlstp.8 lr, %2, 2f\n1:\n\tvldrb.8 q0, [%1], #16\n\tvaddva." type " %0, q0\n\tletp lr, 1b\n2:" \
                         : "+&Te"(total), "+&l"(p) : "r"(n) : "q0", "lr", "memory"); \
        return total; \
    }
MGC_ROWS(, "s8")
MGC_ROWS(_unsigned, "u8")

static MGC_INLINE void mgc_add_rows_2(int32_t *sums, const int32_t *end, int32_t a, int32_t b)
{
    for (; sums < end; sums += 8) {
        vstrwq_s32(sums, vaddq_n_s32(vldrwq_s32(sums), a));
        vstrwq_s32(sums + 4, vaddq_n_s32(vldrwq_s32(sums + 4), b));
    }
}
static MGC_INLINE void mgc_add_rows_1(int32_t *sums, const int32_t *end, int32_t a)
{
    for (; sums < end; sums += 4) {
        vstrwq_s32(sums, vaddq_n_s32(vldrwq_s32(sums), a));
    }
}

/* MGC_TAP multiplies 16 channels: products of even channels go to q0, of odd ones to q2, as int16. MGC_TAP_MORE adds a
 * second tap to them, which fits in int16 unless a weight is -128; a third would not fit. It loads its weights twice (`w`
 * and `next`, the same address), because registers are too few for both operands and both results. MGC_TAPS_FIRST and
 * MGC_TAPS_ADD widen q0 and q2 to int32 sums: of channels 0, 4, … in q4, 1, 5, … in q5, 2, 6, … in q6, 3, 7, … in q7.
 * mgc_taps_9: r0 to r8 are `from`, r9 the weights, r10 the sums, lr counts blocks.
 * mgc_taps: r0 and r1 are elements of two taps, r4 counts blocks, r5 is `at`, r6 the next of `from`, r8 is p, r9 the weights,
 * r10 the sums, lr counts steps. */
#define MGC_TAP(x, w) "vldrb.8 q0, " x "\n\tvldrb.8 q1, " w "\n\tvmullt.s8 q2, q0, q1\n\tvmullb.s8 q0, q0, q1\n\t"
#define MGC_TAP_MORE(x, w, next) \
    "vldrb.8 q1, " x "\n\tvldrb.8 q3, " w "\n\tvmullt.s8 q3, q1, q3\n\tvadd.i16 q2, q2, q3\n\tvldrb.8 q3, " next "\n\t" \
    "vmullb.s8 q1, q1, q3\n\tvadd.i16 q0, q0, q1\n\t"
#define MGC_TAPS_FIRST "vmovlb.s16 q4, q0\n\tvmovlt.s16 q6, q0\n\tvmovlb.s16 q5, q2\n\tvmovlt.s16 q7, q2\n\t"
#define MGC_TAPS_ADD \
    "vmovlb.s16 q1, q0\n\tvadd.i32 q4, q4, q1\n\tvmovlt.s16 q1, q0\n\tvadd.i32 q6, q6, q1\n\t" \
    "vmovlb.s16 q1, q2\n\tvadd.i32 q5, q5, q1\n\tvmovlt.s16 q1, q2\n\tvadd.i32 q7, q7, q1\n\t"
#define MGC_TAPS_STORE(to) \
    "vst40.32 {q4, q5, q6, q7}, [" to "]\n\tvst41.32 {q4, q5, q6, q7}, [" to "]\n\tvst42.32 {q4, q5, q6, q7}, [" to "]\n\t" \
    "vst43.32 {q4, q5, q6, q7}, [" to "]!\n\t"
#define MGC_TWO_TAPS(x, y) MGC_TAP("[" x "], #16", "[r9], #16") MGC_TAP_MORE("[" y "], #16", "[r9]", "[r9], #16")
MGC_NAKED(mgc_taps_9, mgc_taps_9_args)
{
    __asm__ volatile(
        "push {r0, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\tvpush {d8, d9, d10, d11, d12, d13, d14, d15}\n\t"
        "ldr lr, [r0, #44]\n\tldm r0, {r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10}\n\tdls lr, lr\n"
        "1:\n\t" MGC_TWO_TAPS("r0", "r1") MGC_TAPS_FIRST MGC_TWO_TAPS("r2", "r3") MGC_TAPS_ADD MGC_TWO_TAPS("r4", "r5") MGC_TAPS_ADD
        MGC_TWO_TAPS("r6", "r7") MGC_TAPS_ADD MGC_TAP("[r8], #16", "[r9], #16") MGC_TAPS_ADD MGC_TAPS_STORE("r10")
        "le lr, 1b\n\tvpop {d8, d9, d10, d11, d12, d13, d14, d15}\n\tpop {r12}\n\t"
        "stm r12, {r0, r1, r2, r3, r4, r5, r6, r7, r8, r9}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory");
}
MGC_NAKED(mgc_taps, const mgc_taps_args)
{
    __asm__ volatile(
        "push {r4, r5, r6, r7, r8, r9, r10, lr}\n\tvpush {d8, d9, d10, d11, d12, d13, d14, d15}\n\t"
        "mov r8, r0\n\tldrd r9, r10, [r8, #4]\n\tldrd r4, r5, [r8, #12]\n"
        "1:\n\tldr r6, [r8]\n\tldr lr, [r8, #20]\n\tvmov.i32 q4, #0\n\tvmov q5, q4\n\tvmov q6, q4\n\tvmov q7, q4\n\tdls lr, lr\n"
        "2:\n\tldrd r0, r1, [r6], #8\n\tadd r0, r0, r5\n\tadd r1, r1, r5\n\t" MGC_TAP("[r0]", "[r9], #16")
        MGC_TAP_MORE("[r1]", "[r9]", "[r9], #16") MGC_TAPS_ADD "le lr, 2b\n\t" MGC_TAPS_STORE("r10")
        "add r5, r5, #16\n\tsubs r4, r4, #1\n\tbne 1b\n\tvpop {d8, d9, d10, d11, d12, d13, d14, d15}\n\t"
        "pop {r4, r5, r6, r7, r8, r9, r10, pc}" ::: "memory");
}

/* For weights that are int16 after subtraction of their zero point: products have 32 bits. Sums of even channels are in q4,
 * of odd ones in q5. Other registers as above; loads that widen require addresses in r0 to r7, so r8 is swapped with r7. */
#define MGC_FIRST_TAP_INT16(load, x) load " q0, " x "\n\tvldrh.u16 q1, [r9], #16\n\tvmullb.s16 q4, q0, q1\n\tvmullt.s16 q5, q0, q1\n\t"
#define MGC_TAP_INT16(load, x) \
    load " q0, " x "\n\tvldrh.u16 q1, [r9], #16\n\tvmullb.s16 q2, q0, q1\n\tvmullt.s16 q3, q0, q1\n\t" \
    "vadd.i32 q4, q4, q2\n\tvadd.i32 q5, q5, q3\n\t"
#define MGC_STORE_TAPS_INT16(to) "vst20.32 {q4, q5}, [" to "]\n\tvst21.32 {q4, q5}, [" to "]!\n\t"
#define MGC_TAPS_INT16(name, load) \
    MGC_NAKED(mgc_taps_9_##name, mgc_taps_9_args) \
    { \
        __asm__ volatile( \
            "push {r0, r4, r5, r6, r7, r8, r9, r10, r11, lr}\n\tvpush {d8, d9, d10, d11}\n\t" \
            "ldr lr, [r0, #44]\n\tldm r0, {r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10}\n\tdls lr, lr\n" \
            "1:\n\t" MGC_FIRST_TAP_INT16(load, "[r0], #8") MGC_TAP_INT16(load, "[r1], #8") MGC_TAP_INT16(load, "[r2], #8") MGC_TAP_INT16(load, "[r3], #8") \
            MGC_TAP_INT16(load, "[r4], #8") MGC_TAP_INT16(load, "[r5], #8") MGC_TAP_INT16(load, "[r6], #8") MGC_TAP_INT16(load, "[r7], #8") \
            "mov r11, r7\n\tmov r7, r8\n\t" MGC_TAP_INT16(load, "[r7], #8") "mov r8, r7\n\tmov r7, r11\n\t" \
            MGC_STORE_TAPS_INT16("r10") \
            "le lr, 1b\n\tvpop {d8, d9, d10, d11}\n\tpop {r12}\n\t" \
            "stm r12, {r0, r1, r2, r3, r4, r5, r6, r7, r8, r9}\n\tpop {r4, r5, r6, r7, r8, r9, r10, r11, pc}" ::: "memory"); \
    } \
    MGC_NAKED(mgc_taps_##name, const mgc_taps_args) \
    { \
        __asm__ volatile( \
            "push {r4, r5, r6, r7, r8, r9, r10, lr}\n\tvpush {d8, d9, d10, d11}\n\t" \
            "mov r8, r0\n\tldrd r9, r10, [r8, #4]\n\tldrd r4, r5, [r8, #12]\n" \
            "1:\n\tldr r6, [r8]\n\tldr lr, [r8, #20]\n\tvmov.i32 q4, #0\n\tvmov q5, q4\n\tdls lr, lr\n" \
            "2:\n\tldr r0, [r6], #4\n\tadd r0, r0, r5\n\t" MGC_TAP_INT16(load, "[r0]") "le lr, 2b\n\t" MGC_STORE_TAPS_INT16("r10") \
            "add r5, r5, #8\n\tsubs r4, r4, #1\n\tbne 1b\n\tvpop {d8, d9, d10, d11}\n\t" \
            "pop {r4, r5, r6, r7, r8, r9, r10, pc}" ::: "memory"); \
    }
MGC_TAPS_INT16(i8, "vldrb.s16")
MGC_TAPS_INT16(u8, "vldrb.u16")

/* Four channels in an iteration. Registers: r1 sums, r2 bias, r3 multiplier, r4 shift, r5 y, r6 y2, r7 n, r8 zero, lr the
 * channels left; q0 and q1 sums of the two rows, q2 multiplier, q3 shift, q4 low, q5 high, q6 bias, then signs.
 *     ready   before the loop: "", or multiplier and shift of all channels (MGC_ALL)
 *     scales  loads multiplier and shift of four channels, or ""
 *     rows    loads the sums, requantizes and stores them */
#define MGC_REQUANTIZE_SUMS(name, ready, scales, rows) \
    MGC_NAKED(name, const mgc_requantize_args) \
    { \
        __asm__ volatile("push {r4, r5, r6, r7, r8, r9, r10, lr}\n\tvpush {d8, d9, d10, d11, d12, d13}\n\t" \
                         "ldm r0, {r1, r2, r3, r4, r5, r6, r7, r8, r9, r10}\n\tvdup.32 q4, r9\n\tvdup.32 q5, r10\n\tmov r0, #1\n\t" \
                         ready "dlstp.32 lr, r7\n1:\n\tvldrw.32 q6, [r2], #16\n\t" scales rows \
                         "letp lr, 1b\n\tvpop {d8, d9, d10, d11, d12, d13}\n\tpop {r4, r5, r6, r7, r8, r9, r10, pc}" ::: "memory"); \
    }
#define MGC_EACH "vldrw.32 q2, [r3], #16\n\tvldrw.32 q3, [r4], #16\n\t"
#define MGC_EACH_BYTES "vldrw.32 q2, [r3], #16\n\tvldrb.s32 q3, [r4], #4\n\t"
#define MGC_ALL "ldr r3, [r3]\n\tldr r4, [r4]\n\tvdup.32 q2, r3\n\tvdup.32 q3, r4\n\t"
#define MGC_ADJUST_SHIFT "vadd.i32 q3, q3, r0\n\t" /* by 1: VMULH does not double the product, unlike VQRDMULH */
#define MGC_SUM(q) "vldrw.32 " q ", [r1], #16\n\tvadd.i32 " q ", " q ", q6\n\t"
/* Ties go away from 0. */
#define MGC_FIXED(q) \
    "vqrdmulh.s32 " q ", " q ", q2\n\tvshr.s32 q6, " q ", #31\n\tvqadd.s32 " q ", " q ", q6\n\tvrshl.s32 " q ", " q ", q3\n\t"
#define MGC_POSITIVE(q) "vqrdmulh.s32 " q ", " q ", q2\n\tvrshl.s32 " q ", " q ", q3\n\t"
#define MGC_ONCE(q) "vmulh.s32 " q ", " q ", q2\n\tvrshl.s32 " q ", " q ", q3\n\t"
#define MGC_BYTES(q, y) \
    "vadd.i32 " q ", " q ", r8\n\tvmax.s32 " q ", " q ", q4\n\tvmin.s32 " q ", " q ", q5\n\tvstrb.32 " q ", [" y "], #4\n\t"
/* scale: multiplies and shifts. adjust: adds to the shifts first, or "". */
#define MGC_REQUANTIZE_SUMS_OF_KIND(kind, scale, adjust) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_each_1, "", MGC_EACH adjust, MGC_SUM("q0") scale("q0") MGC_BYTES("q0", "r5")) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_bytes_1, "", MGC_EACH_BYTES adjust, MGC_SUM("q0") scale("q0") MGC_BYTES("q0", "r5")) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_all_1, MGC_ALL adjust, "", MGC_SUM("q0") scale("q0") MGC_BYTES("q0", "r5")) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_each_2, "", MGC_EACH adjust, MGC_SUM("q0") MGC_SUM("q1") scale("q0") scale("q1") \
              MGC_BYTES("q0", "r5") MGC_BYTES("q1", "r6")) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_bytes_2, "", MGC_EACH_BYTES adjust, MGC_SUM("q0") MGC_SUM("q1") scale("q0") scale("q1") \
              MGC_BYTES("q0", "r5") MGC_BYTES("q1", "r6")) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_all_2, MGC_ALL adjust, "", MGC_SUM("q0") MGC_SUM("q1") scale("q0") scale("q1") \
              MGC_BYTES("q0", "r5") MGC_BYTES("q1", "r6"))
MGC_REQUANTIZE_SUMS_OF_KIND(fixed, MGC_FIXED, "")
MGC_REQUANTIZE_SUMS_OF_KIND(positive, MGC_POSITIVE, "")
MGC_REQUANTIZE_SUMS_OF_KIND(once, MGC_ONCE, MGC_ADJUST_SHIFT)

static MGC_INLINE void mgc_copy_bytes(int8_t *to, const int8_t *p, int32_t n)
{
    __asm__ volatile("wlstp.8 lr, %2, 2f\n1:\n\tvldrb.8 q0, [%1], #16\n\tvstrb.8 q0, [%0], #16\n\tletp lr, 1b\n2:"
                     : "+&l"(to), "+&l"(p) : "r"(n) : "q0", "lr", "memory");
}
static MGC_INLINE void mgc_fill_bytes(int8_t *to, int32_t n, int8_t v)
{
    __asm__ volatile("vdup.8 q0, %2\n\twlstp.8 lr, %1, 2f\n1:\n\tvstrb.8 q0, [%0], #16\n\tletp lr, 1b\n2:"
                     : "+&l"(to) : "r"(n), "r"(v) : "q0", "lr", "memory");
}

static MGC_INLINE void mgc_copy_int8x16(int8_t *to, const int8_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16) {
        vstrbq_s8(to + i, vldrbq_s8(p + i));
    }
}

static MGC_INLINE mgc_int32x4 mgc_int32x4_dup(int32_t v) { return vdupq_n_s32(v); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_load(const int32_t *p, int32_t n)
{
    return n >= 4 ? vldrwq_s32(p) : vldrwq_z_s32(p, vctp32q((uint32_t)n));
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_load_i8(const int8_t *p, int32_t n)
{
    return n >= 4 ? vldrbq_s32(p) : vldrbq_z_s32(p, vctp32q((uint32_t)n));
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_add(mgc_int32x4 a, mgc_int32x4 b) { return vaddq_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_sub(mgc_int32x4 a, mgc_int32x4 b) { return vsubq_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_mul(mgc_int32x4 a, mgc_int32x4 b) { return vmulq_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_min(mgc_int32x4 a, mgc_int32x4 b) { return vminq_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_max(mgc_int32x4 a, mgc_int32x4 b) { return vmaxq_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_add_by(mgc_int32x4 a, int32_t b) { return vaddq_n_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_sub_by(mgc_int32x4 a, int32_t b) { return vsubq_n_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_mul_by(mgc_int32x4 a, int32_t b) { return vmulq_n_s32(a, b); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_down_positive(mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s)
{
    return vrshlq_s32(vqrdmulhq_s32(v, m), vmaxq_s32(s, vdupq_n_s32(-31)));
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_down(mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s)
{
    v = vqrdmulhq_s32(v, m);
    /* Ties go away from 0. */
    return vrshlq_s32(vqaddq_s32(v, vshrq_n_s32(v, 31)), vmaxq_s32(s, vdupq_n_s32(-31)));
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_fixed(mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s)
{
    return (int32x4_t)mgc_rescale_fixed((mgc_i)v, (mgc_i)m, (mgc_i)s);
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_fixed_by(mgc_int32x4 v, int32_t m, int32_t s)
{
    v = vqrdmulhq_n_s32(s > 0 ? vshlq_r_s32(v, s < 30 ? s : 30) : v, m);
    return s >= 0 ? v : vrshlq_n_s32(vqaddq_s32(v, vshrq_n_s32(v, 31)), s > -31 ? s : -31);
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_down_positive_by(mgc_int32x4 v, int32_t m, int32_t s)
{
    return vrshlq_n_s32(vqrdmulhq_n_s32(v, m), s > -31 ? s : -31);
}
static MGC_INLINE void mgc_int32x4_store(int8_t *y, mgc_int32x4 v, int32_t zero, int32_t low, int32_t high, int32_t n)
{
    v = zero == 0 ? v : vaddq_n_s32(v, zero);
    v = vminq_s32(vmaxq_s32(v, vdupq_n_s32(low)), vdupq_n_s32(high));
    if (n >= 4) {
        vstrbq_s32(y, v);
    } else {
        vstrbq_p_s32(y, v, vctp32q((uint32_t)n));
    }
}
#else
typedef struct mgc_int32x4 {
    int32_t v[4];
} mgc_int32x4;

static MGC_INLINE int32_t mgc_add_int32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
static MGC_INLINE int32_t mgc_rescale_int32(int32_t v, int32_t m, int32_t s)
{
    return mgc_rescale_fixed(mgc_iset1(v), mgc_iset1(m), mgc_iset1(s))[0];
}
/* mgc_dot_column returns the dot product of x with one of `columns` columns, of which each has 16 elements of every 16 *
 * columns bytes; w points to its first one. Sum i of mgc_rows_2x4 is of column i / 8 * 4 + i % 4 with x or, if i & 4, with x2;
 * that of mgc_rows_1x8 of column i. */
#define MGC_ROWS(suffix, type) \
    static MGC_INLINE int32_t mgc_dot_column##suffix(const int8_t *x, const int8_t *w, int32_t steps, int32_t columns) \
    { \
        int32_t sum = 0; \
        for (int32_t i = 0; i < 16 * steps; i++) { \
            sum = mgc_add_int32(sum, (type)x[i] * (type)w[i / 16 * 16 * columns + i % 16]); \
        } \
        return sum; \
    } \
    static MGC_INLINE void mgc_rows_2x4##suffix(const mgc_rows *p) \
    { \
        for (int32_t i = 0; i < p->end - p->to; i++) { \
            p->to[i] = mgc_dot_column##suffix(i & 4 ? p->x2 : p->x, p->w + i / 8 * 64 * p->steps + i % 4 * 16, p->steps, 4); \
        } \
    } \
    static MGC_INLINE void mgc_rows_1x8##suffix(const mgc_rows *p) \
    { \
        for (int32_t i = 0; i < p->end - p->to; i++) { \
            p->to[i] = mgc_dot_column##suffix(p->x, p->w + i / 8 * 128 * p->steps + i % 8 * 16, p->steps, 8); \
        } \
    } \
    static MGC_INLINE int32_t mgc_total##suffix(const int8_t *p, int32_t n) \
    { \
        int32_t total = 0; \
        for (int32_t i = 0; i < n; i++) { \
            total += (type)p[i]; \
        } \
        return total; \
    }
MGC_ROWS(, int8_t)
MGC_ROWS(_unsigned, uint8_t)

static MGC_INLINE void mgc_add_rows_2(int32_t *sums, const int32_t *end, int32_t a, int32_t b)
{
    for (int32_t i = 0; i < end - sums; i++) {
        sums[i] = mgc_add_int32(sums[i], i & 4 ? b : a);
    }
}
static MGC_INLINE void mgc_add_rows_1(int32_t *sums, const int32_t *end, int32_t a)
{
    mgc_add_rows_2(sums, end, a, a);
}
static MGC_INLINE void mgc_taps_9(mgc_taps_9_args *p)
{
    for (int32_t i = 0; i < 16 * p->blocks; i++) {
        p->to[i] = 0;
        for (int32_t tap = 0; tap < 9; tap++) {
            p->to[i] += p->from[tap][i] * p->w[(i / 16 * 9 + tap) * 16 + i % 16];
        }
    }
    for (int32_t tap = 0; tap < 9; tap++) {
        p->from[tap] += 16 * p->blocks;
    }
    p->w += 144 * p->blocks;
}
static MGC_INLINE void mgc_taps(const mgc_taps_args *p)
{
    for (int32_t i = 0; i < 16 * p->blocks; i++) {
        p->to[i] = 0;
        for (int32_t tap = 0; tap < 2 * p->steps; tap++) {
            p->to[i] = mgc_add_int32(p->to[i], p->from[tap][p->at + i] * p->w[(i / 16 * 2 * p->steps + tap) * 16 + i % 16]);
        }
    }
}
#define MGC_TAPS_INT16(name, type) \
    static MGC_INLINE int32_t mgc_tap_##name(const int8_t *p, const int8_t *w) \
    { \
        int16_t weight; \
        memcpy(&weight, w, sizeof weight); \
        return (type)*p * weight; \
    } \
    static MGC_INLINE void mgc_taps_9_##name(mgc_taps_9_args *p) \
    { \
        for (int32_t i = 0; i < 8 * p->blocks; i++) { \
            p->to[i] = 0; \
            for (int32_t tap = 0; tap < 9; tap++) { \
                p->to[i] += mgc_tap_##name(p->from[tap] + i, p->w + 2 * ((i / 8 * 9 + tap) * 8 + i % 8)); \
            } \
        } \
        for (int32_t tap = 0; tap < 9; tap++) { \
            p->from[tap] += 8 * p->blocks; \
        } \
        p->w += 144 * p->blocks; \
    } \
    static MGC_INLINE void mgc_taps_##name(const mgc_taps_args *p) \
    { \
        for (int32_t i = 0; i < 8 * p->blocks; i++) { \
            p->to[i] = 0; \
            for (int32_t tap = 0; tap < p->steps; tap++) { \
                p->to[i] = mgc_add_int32(p->to[i], mgc_tap_##name(p->from[tap] + p->at + i, p->w + 2 * ((i / 8 * p->steps + tap) * 8 + i % 8))); \
            } \
        } \
    }
MGC_TAPS_INT16(i8, int8_t)
MGC_TAPS_INT16(u8, uint8_t)
/* <of> in the names of the functions below. */
enum { MGC_OF_ALL, MGC_OF_EACH, MGC_OF_BYTES };
static MGC_INLINE int32_t mgc_rescale_twice_int32(int32_t v, int32_t m, int32_t s) { return mgc_rescale_int32(v, m, s); }
static MGC_INLINE int32_t mgc_rescale_once_int32(int32_t v, int32_t m, int32_t s)
{
    return mgc_rescale_once_lane(v, m, mgc_min_int32(mgc_max_int32(s, -31), 30));
}
#define MGC_REQUANTIZE_SUMS(name, rows, of, rescale) \
    static MGC_INLINE void name(const mgc_requantize_args *p) \
    { \
        for (int32_t i = 0; i < (rows) * p->n; i++) { \
            const int32_t row = i / p->n, c = i % p->n, scale = (of) == MGC_OF_ALL ? 0 : c, m = p->multiplier[scale]; \
            const int32_t s = (of) == MGC_OF_BYTES ? ((const int8_t *)p->shift)[scale] : ((const int32_t *)p->shift)[scale]; \
            const int32_t sum = mgc_add_int32(p->sums[c / 4 * 4 * (rows) + 4 * row + c % 4], p->bias[c]); \
            const int32_t v = mgc_add_int32(rescale(sum, m, s), p->zero); \
            (row ? p->y2 : p->y)[c] = (int8_t)mgc_min_int32(mgc_max_int32(v, p->low), p->high); \
        } \
    }
#define MGC_REQUANTIZE_SUMS_OF_KIND(kind, rescale) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_each_1, 1, MGC_OF_EACH, rescale) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_bytes_1, 1, MGC_OF_BYTES, rescale) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_all_1, 1, MGC_OF_ALL, rescale) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_each_2, 2, MGC_OF_EACH, rescale) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_bytes_2, 2, MGC_OF_BYTES, rescale) \
    MGC_REQUANTIZE_SUMS(mgc_requantize_sums_##kind##_all_2, 2, MGC_OF_ALL, rescale)
MGC_REQUANTIZE_SUMS_OF_KIND(fixed, mgc_rescale_twice_int32)
MGC_REQUANTIZE_SUMS_OF_KIND(positive, mgc_rescale_twice_int32)
MGC_REQUANTIZE_SUMS_OF_KIND(once, mgc_rescale_once_int32)

static MGC_INLINE void mgc_copy_bytes(int8_t *to, const int8_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        to[i] = p[i];
    }
}
static MGC_INLINE void mgc_copy_int8x16(int8_t *to, const int8_t *p, int32_t n)
{
    mgc_copy_bytes(to, p, (n + 15) / 16 * 16);
}
static MGC_INLINE void mgc_fill_bytes(int8_t *to, int32_t n, int8_t v)
{
    for (int32_t i = 0; i < n; i++) {
        to[i] = v;
    }
}

#define MGC_INT32X4(name, parameters, expression) \
    static MGC_INLINE mgc_int32x4 name parameters \
    { \
        mgc_int32x4 result; \
        for (int32_t i = 0; i < 4; i++) { \
            result.v[i] = expression; \
        } \
        return result; \
    }
MGC_INT32X4(mgc_int32x4_dup, (int32_t v), v)
MGC_INT32X4(mgc_int32x4_load, (const int32_t *p, int32_t n), i < n ? p[i] : 0)
MGC_INT32X4(mgc_int32x4_load_i8, (const int8_t *p, int32_t n), i < n ? p[i] : 0)
MGC_INT32X4(mgc_int32x4_add, (mgc_int32x4 a, mgc_int32x4 b), mgc_add_int32(a.v[i], b.v[i]))
MGC_INT32X4(mgc_int32x4_sub, (mgc_int32x4 a, mgc_int32x4 b), (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i]))
MGC_INT32X4(mgc_int32x4_mul, (mgc_int32x4 a, mgc_int32x4 b), (int32_t)((uint32_t)a.v[i] * (uint32_t)b.v[i]))
MGC_INT32X4(mgc_int32x4_min, (mgc_int32x4 a, mgc_int32x4 b), mgc_min_int32(a.v[i], b.v[i]))
MGC_INT32X4(mgc_int32x4_max, (mgc_int32x4 a, mgc_int32x4 b), mgc_max_int32(a.v[i], b.v[i]))
MGC_INT32X4(mgc_int32x4_add_by, (mgc_int32x4 a, int32_t b), mgc_add_int32(a.v[i], b))
MGC_INT32X4(mgc_int32x4_sub_by, (mgc_int32x4 a, int32_t b), (int32_t)((uint32_t)a.v[i] - (uint32_t)b))
MGC_INT32X4(mgc_int32x4_mul_by, (mgc_int32x4 a, int32_t b), (int32_t)((uint32_t)a.v[i] * (uint32_t)b))
MGC_INT32X4(mgc_int32x4_rescale_down, (mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s), mgc_rescale_int32(v.v[i], m.v[i], s.v[i]))
MGC_INT32X4(mgc_int32x4_rescale_down_positive, (mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s), mgc_rescale_int32(v.v[i], m.v[i], s.v[i]))
MGC_INT32X4(mgc_int32x4_rescale_fixed, (mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s), mgc_rescale_int32(v.v[i], m.v[i], s.v[i]))
MGC_INT32X4(mgc_int32x4_rescale_fixed_by, (mgc_int32x4 v, int32_t m, int32_t s), mgc_rescale_int32(v.v[i], m, s))
MGC_INT32X4(mgc_int32x4_rescale_down_positive_by, (mgc_int32x4 v, int32_t m, int32_t s), mgc_rescale_int32(v.v[i], m, s))
static MGC_INLINE void mgc_int32x4_store(int8_t *y, mgc_int32x4 v, int32_t zero, int32_t low, int32_t high, int32_t n)
{
    for (int32_t i = 0; i < 4 && i < n; i++) {
        y[i] = (int8_t)mgc_min_int32(mgc_max_int32(mgc_add_int32(v.v[i], zero), low), high);
    }
}
#endif

static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_positive(mgc_int32x4 v, mgc_int32x4 m, mgc_int32x4 s) { return mgc_int32x4_rescale_fixed(v, m, s); }
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_positive_by(mgc_int32x4 v, int32_t m, int32_t s)
{
    return mgc_int32x4_rescale_fixed_by(v, m, s);
}
static MGC_INLINE mgc_int32x4 mgc_int32x4_rescale_down_by(mgc_int32x4 v, int32_t m, int32_t s) { return mgc_int32x4_rescale_fixed_by(v, m, s); }

/* Rounds as TFLite does, in fewer instructions, because shifts are at most -1. */
static MGC_INLINE mgc_i mgc_rescale_down(mgc_i x, mgc_i multiplier, mgc_i shift)
{
#if MGC_HELIUM
    return (mgc_i)mgc_int32x4_rescale_down((mgc_int32x4)x, (mgc_int32x4)multiplier, (mgc_int32x4)shift);
#else
    return mgc_rescale_fixed(x, multiplier, shift);
#endif
}
static MGC_INLINE mgc_i mgc_rescale_down_positive(mgc_i x, mgc_i multiplier, mgc_i shift)
{
#if MGC_HELIUM
    return (mgc_i)mgc_int32x4_rescale_down_positive((mgc_int32x4)x, (mgc_int32x4)multiplier, (mgc_int32x4)shift);
#else
    return mgc_rescale_fixed(x, multiplier, shift);
#endif
}

#endif
