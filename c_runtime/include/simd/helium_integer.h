/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of bytes by Helium (Cortex-M55, M85): part of megcc_integer.h. What is instructions there is C elsewhere, so
 * that the same kernels can be tested on any machine.
 *
 *   mgc_rows_2x3(p)        p->steps times 16 products of two rows with three columns of weights [steps][3][16], for p->groups
 *                          such threes; sums go to p->to and p->to2. mgc_rows_1x6(p): of one row with six columns
 *   mgc_copy_bytes(to,p,n) n > 0 bytes, any addresses
 *   mgc_four               four int32: mgc_four_load(p,n) the first n, others are 0; mgc_four_dup, mgc_four_add
 *   mgc_four_fixed(v,m,s)  mgc_rescale_fixed, mgc_four_once mgc_rescale_once, both for shifts of -1, -2 and less
 *   mgc_four_<function>    as mgc_i<function> and mgc_rescale_<function>; mgc_four_load_i8(p,n)
 *   mgc_four_store(y,v,z,low,high,n)   v + z within limits, the first n
 *   mgc_eight_tap(p,w,n,a,b)   products of n <= 8 channels with 8 weights, those of channels 0, 2, 4, 6 added to *a, others
 *                          to *b; returns w + 8. mgc_eight_load, mgc_eight_store, mgc_eight_sums: two such fours
 */
#ifndef MEGCC_HELIUM_INTEGER_H
#define MEGCC_HELIUM_INTEGER_H

typedef struct mgc_rows {
    const int8_t *x, *x2, *w;
    int32_t steps, groups;
    int32_t *to, *to2;
} mgc_rows;

#if defined(__arm__) && defined(__ARM_FEATURE_MVE) && MGC_GNU
#include <arm_mve.h>

typedef int32x4_t mgc_four;

/* Sums are in even registers, as VMLADAVA wants them: r0, r4, r8 of the first row. */
#define MGC_ROWS(name) static __attribute__((naked, noinline, unused)) void name(const mgc_rows *p __attribute__((unused)))
MGC_ROWS(mgc_rows_2x3)
{
    __asm__ volatile(
        "push {r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}\n\tmov r12, r0\n\tldr r1, [r12, #8]\n\tldr r7, [r12, #16]\n\t"
        "ldr r9, [r12, #20]\n\tldr r11, [r12, #24]\n"
        "1:\n\tldr r3, [r12]\n\tldr r5, [r12, #4]\n\tldr lr, [r12, #12]\n\tmov r0, #0\n\tmov r2, #0\n\tmov r4, #0\n\tmov r6, #0\n\t"
        "mov r8, #0\n\tmov r10, #0\n\tdls lr, lr\n"
        "2:\n\tvldrb.8 q0, [r3], #16\n\tvldrb.8 q2, [r1], #16\n\tvmladava.s8 r0, q0, q2\n\tvldrb.8 q1, [r5], #16\n\t"
        "vmladava.s8 r2, q1, q2\n\tvldrb.8 q3, [r1], #16\n\tvmladava.s8 r4, q0, q3\n\tvmladava.s8 r6, q1, q3\n\t"
        "vldrb.8 q2, [r1], #16\n\tvmladava.s8 r8, q0, q2\n\tvmladava.s8 r10, q1, q2\n\tle lr, 2b\n\t"
        "stmia r9!, {r0, r4, r8}\n\tstmia r11!, {r2, r6, r10}\n\tsubs r7, r7, #1\n\tbne 1b\n\t"
        "pop {r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}" ::: "memory");
}
MGC_ROWS(mgc_rows_1x6)
{
    __asm__ volatile(
        "push {r4, r5, r6, r7, r8, r9, r10, r11, r12, lr}\n\tmov r12, r0\n\tldr r1, [r12, #8]\n\tldr r7, [r12, #16]\n\t"
        "ldr r9, [r12, #20]\n"
        "1:\n\tldr r3, [r12]\n\tldr lr, [r12, #12]\n\tmov r0, #0\n\tmov r2, #0\n\tmov r4, #0\n\tmov r6, #0\n\t"
        "mov r8, #0\n\tmov r10, #0\n\tdls lr, lr\n"
        "2:\n\tvldrb.8 q0, [r3], #16\n\tvldrb.8 q1, [r1], #16\n\tvmladava.s8 r0, q0, q1\n\tvldrb.8 q2, [r1], #16\n\t"
        "vmladava.s8 r2, q0, q2\n\tvldrb.8 q1, [r1], #16\n\tvmladava.s8 r4, q0, q1\n\tvldrb.8 q2, [r1], #16\n\t"
        "vmladava.s8 r6, q0, q2\n\tvldrb.8 q1, [r1], #16\n\tvmladava.s8 r8, q0, q1\n\tvldrb.8 q2, [r1], #16\n\t"
        "vmladava.s8 r10, q0, q2\n\tle lr, 2b\n\t"
        "stmia r9!, {r0, r2, r4, r6, r8, r10}\n\tsubs r7, r7, #1\n\tbne 1b\n\t"
        "pop {r4, r5, r6, r7, r8, r9, r10, r11, r12, pc}" ::: "memory");
}

static MGC_INLINE void mgc_copy_bytes(int8_t *to, const int8_t *p, int32_t n)
{
    for (; n >= 16; n -= 16, to += 16, p += 16) {
        vstrbq_s8(to, vldrbq_s8(p));
    }
    if (n > 0) {
        const mve_pred16_t some = vctp8q((uint32_t)n);
        vstrbq_p_s8(to, vldrbq_z_s8(p, some), some);
    }
}

static MGC_INLINE mgc_four mgc_four_dup(int32_t v) { return vdupq_n_s32(v); }
static MGC_INLINE mgc_four mgc_four_load(const int32_t *p, int32_t n) { return vldrwq_z_s32(p, vctp32q((uint32_t)n)); }
static MGC_INLINE mgc_four mgc_four_add(mgc_four a, mgc_four b) { return vaddq_s32(a, b); }
static MGC_INLINE mgc_four mgc_four_fixed(mgc_four v, mgc_four m, mgc_four s)
{
    v = vqrdmulhq_s32(v, m);
    /* Halves go away from 0. */
    return vrshlq_s32(vqaddq_s32(v, vshrq_n_s32(v, 31)), s);
}
static MGC_INLINE mgc_four mgc_four_once(mgc_four v, mgc_four m, mgc_four s)
{
    return vrshlq_s32(vmulhq_s32(v, m), vaddq_n_s32(s, 1));
}
static MGC_INLINE mgc_four mgc_four_load_i8(const int8_t *p, int32_t n) { return vldrbq_z_s32(p, vctp32q((uint32_t)n)); }
static MGC_INLINE mgc_four mgc_four_sub(mgc_four a, mgc_four b) { return vsubq_s32(a, b); }
static MGC_INLINE mgc_four mgc_four_mul(mgc_four a, mgc_four b) { return vmulq_s32(a, b); }
static MGC_INLINE mgc_four mgc_four_min(mgc_four a, mgc_four b) { return vminq_s32(a, b); }
static MGC_INLINE mgc_four mgc_four_max(mgc_four a, mgc_four b) { return vmaxq_s32(a, b); }
static MGC_INLINE mgc_four mgc_four_rescale_down(mgc_four v, mgc_four m, mgc_four s)
{
    return mgc_four_fixed(v, m, vmaxq_s32(s, vdupq_n_s32(-31)));
}
static MGC_INLINE mgc_four mgc_four_rescale_fixed(mgc_four v, mgc_four m, mgc_four s)
{
    const int32x4_t none = vdupq_n_s32(0), by = vminq_s32(vmaxq_s32(s, vdupq_n_s32(-31)), vdupq_n_s32(30));
    const int32x4_t right = vminq_s32(by, none);
    v = vqrdmulhq_s32(vshlq_s32(v, vmaxq_s32(by, none)), m);
    return vrshlq_s32(vqaddq_s32(v, vshrq_n_s32(vandq_s32(v, right), 31)), right);
}
static MGC_INLINE mgc_four mgc_four_within(mgc_four v, int32_t zero, int32_t low, int32_t high)
{
    return vminq_s32(vmaxq_s32(vaddq_n_s32(v, zero), vdupq_n_s32(low)), vdupq_n_s32(high));
}
static MGC_INLINE void mgc_four_store(int8_t *y, mgc_four v, int32_t zero, int32_t low, int32_t high, int32_t n)
{
    vstrbq_p_s32(y, mgc_four_within(v, zero, low, high), vctp32q((uint32_t)n));
}
static MGC_INLINE void mgc_eight_load(const int32_t *p, int32_t n, mgc_four *a, mgc_four *b)
{
    if (n < 8) {
        int32_t some[8];
        vstrwq_s32(some, mgc_four_load(p, n));
        vstrwq_s32(some + 4, mgc_four_load(p + 4, n > 4 ? n - 4 : 0));
        const int32x4x2_t two = vld2q_s32(some);
        *a = two.val[0];
        *b = two.val[1];
        return;
    }
    const int32x4x2_t two = vld2q_s32(p);
    *a = two.val[0];
    *b = two.val[1];
}
static MGC_INLINE void mgc_eight_store(int8_t *y, mgc_four a, mgc_four b, int32_t zero, int32_t low, int32_t high, int32_t n)
{
    const int16x8_t even = vreinterpretq_s16_s32(mgc_four_within(a, zero, low, high));
    vstrbq_p_s16(y, vmovntq_s32(even, mgc_four_within(b, zero, low, high)), vctp16q((uint32_t)n));
}
static MGC_INLINE void mgc_eight_sums(int32_t *to, mgc_four a, mgc_four b)
{
    const int32x4x2_t two = { { a, b } };
    vst2q_s32(to, two);
}
static MGC_INLINE const int8_t *mgc_eight_tap(const int8_t *p, const int8_t *w, int32_t n, mgc_four *a, mgc_four *b)
{
    if (n >= 8) {
        /* Compilers load all taps first, and keep them on the stack. */
        __asm__ volatile("vldrb.s16 q0, [%3]\n\tvldrb.s16 q1, [%2], #8\n\tvmullb.s16 q2, q0, q1\n\tvmullt.s16 q3, q0, q1\n\t"
                         "vadd.i32 %q0, %q0, q2\n\tvadd.i32 %q1, %q1, q3"
                         : "+w"(*a), "+w"(*b), "+l"(w) : "l"(p) : "q0", "q1", "q2", "q3", "memory");
        return w;
    }
    const int16x8_t x = vldrbq_z_s16(p, vctp16q((uint32_t)n)), weight = vldrbq_s16(w);
    *a = vaddq_s32(*a, vmullbq_int_s16(x, weight));
    *b = vaddq_s32(*b, vmulltq_int_s16(x, weight));
    return w + 8;
}
#else
typedef struct mgc_four {
    int32_t v[4];
} mgc_four;

static MGC_INLINE int32_t mgc_sixteens(const int8_t *x, const int8_t *w, int32_t steps, int32_t columns)
{
    int32_t sum = 0;
    for (int32_t i = 0; i < 16 * steps; i++) {
        sum = mgc_iadd(sum, x[i] * w[i / 16 * 16 * columns + i % 16]);
    }
    return sum;
}
static MGC_INLINE void mgc_rows_2x3(const mgc_rows *p)
{
    for (int32_t i = 0; i < 3 * p->groups; i++) {
        const int8_t *w = p->w + i / 3 * 48 * p->steps + i % 3 * 16;
        p->to[i] = mgc_sixteens(p->x, w, p->steps, 3);
        p->to2[i] = mgc_sixteens(p->x2, w, p->steps, 3);
    }
}
static MGC_INLINE void mgc_rows_1x6(const mgc_rows *p)
{
    for (int32_t i = 0; i < 6 * p->groups; i++) {
        p->to[i] = mgc_sixteens(p->x, p->w + i / 6 * 96 * p->steps + i % 6 * 16, p->steps, 6);
    }
}
static MGC_INLINE void mgc_copy_bytes(int8_t *to, const int8_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        to[i] = p[i];
    }
}

#define MGC_FOUR(name, parameters, expression) \
    static MGC_INLINE mgc_four name parameters \
    { \
        mgc_four result; \
        for (int32_t i = 0; i < 4; i++) { \
            result.v[i] = expression; \
        } \
        return result; \
    }
MGC_FOUR(mgc_four_dup, (int32_t v), v)
MGC_FOUR(mgc_four_load, (const int32_t *p, int32_t n), i < n ? p[i] : 0)
MGC_FOUR(mgc_four_add, (mgc_four a, mgc_four b), mgc_iadd(a.v[i], b.v[i]))
MGC_FOUR(mgc_four_fixed, (mgc_four v, mgc_four m, mgc_four s), mgc_rescale_fixed(v.v[i], m.v[i], s.v[i]))
MGC_FOUR(mgc_four_load_i8, (const int8_t *p, int32_t n), i < n ? p[i] : 0)
MGC_FOUR(mgc_four_sub, (mgc_four a, mgc_four b), mgc_isub(a.v[i], b.v[i]))
MGC_FOUR(mgc_four_mul, (mgc_four a, mgc_four b), mgc_imul(a.v[i], b.v[i]))
MGC_FOUR(mgc_four_min, (mgc_four a, mgc_four b), mgc_imin(a.v[i], b.v[i]))
MGC_FOUR(mgc_four_max, (mgc_four a, mgc_four b), mgc_imax(a.v[i], b.v[i]))
MGC_FOUR(mgc_four_rescale_down, (mgc_four v, mgc_four m, mgc_four s), mgc_rescale_fixed(v.v[i], m.v[i], s.v[i]))
MGC_FOUR(mgc_four_rescale_fixed, (mgc_four v, mgc_four m, mgc_four s), mgc_rescale_fixed(v.v[i], m.v[i], s.v[i]))
MGC_FOUR(mgc_four_once, (mgc_four v, mgc_four m, mgc_four s), mgc_rescale_once(v.v[i], m.v[i], s.v[i]))
static MGC_INLINE void mgc_four_store(int8_t *y, mgc_four v, int32_t zero, int32_t low, int32_t high, int32_t n)
{
    for (int32_t i = 0; i < 4 && i < n; i++) {
        y[i] = (int8_t)mgc_imin(mgc_imax(mgc_iadd(v.v[i], zero), low), high);
    }
}
static MGC_INLINE void mgc_eight_load(const int32_t *p, int32_t n, mgc_four *a, mgc_four *b)
{
    for (int32_t i = 0; i < 8; i++) {
        (i % 2 ? b : a)->v[i / 2] = i < n ? p[i] : 0;
    }
}
static MGC_INLINE void mgc_eight_store(int8_t *y, mgc_four a, mgc_four b, int32_t zero, int32_t low, int32_t high, int32_t n)
{
    for (int32_t i = 0; i < 8 && i < n; i++) {
        y[i] = (int8_t)mgc_imin(mgc_imax(mgc_iadd(i % 2 ? b.v[i / 2] : a.v[i / 2], zero), low), high);
    }
}
static MGC_INLINE void mgc_eight_sums(int32_t *to, mgc_four a, mgc_four b)
{
    for (int32_t i = 0; i < 8; i++) {
        to[i] = i % 2 ? b.v[i / 2] : a.v[i / 2];
    }
}
static MGC_INLINE const int8_t *mgc_eight_tap(const int8_t *p, const int8_t *w, int32_t n, mgc_four *a, mgc_four *b)
{
    for (int32_t i = 0; i < 8 && i < n; i++) {
        int32_t *sum = &(i % 2 ? b : a)->v[i / 2];
        *sum = mgc_iadd(*sum, p[i] * w[i]);
    }
    return w + 8;
}
#endif

static MGC_INLINE mgc_four mgc_four_rescale_positive(mgc_four v, mgc_four m, mgc_four s) { return mgc_four_rescale_fixed(v, m, s); }
static MGC_INLINE mgc_four mgc_four_rescale_down_positive(mgc_four v, mgc_four m, mgc_four s)
{
    return mgc_four_rescale_down(v, m, s);
}

#endif
