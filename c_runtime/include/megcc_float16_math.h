/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic in float16. Kernels include this header after megcc_math.h: after it, mgc_v is a vector of MGC_LANES float16,
 * twice as many as it had floats, and those functions of megcc_simd.h and megcc_math.h work on it that macros at the end of
 * this header name. mgc_float16 is an element in memory. Inside this header the float16 vector and its functions begin with
 * mgh_; the macros give them the names with mgc_.
 *
 * + - * / mgc_sqrt mgc_fma round once, to float16. Elementary functions are computed in float32 for each half of the
 * vector, and rounded to float16. Two more functions keep sums of products close to those in float32:
 *
 *   mgc_fold(totals,v)    adds a vector to as many floats in memory, in an order that mgc_folded knows
 *   mgc_folded(totals)    the floats as a vector
 */
#ifndef MEGCC_FLOAT16_MATH_H
#define MEGCC_FLOAT16_MATH_H

#include "megcc_math.h"

#if MGC_ENABLED

#if defined(MGC_ISA_NEON_V82) || defined(MGC_ISA_NEON_V86)
#define MGH_LANES 8
typedef float16_t mgc_float16;
typedef float16x8_t mgh_v;

/* Functions of one and of two vectors; mgh_above: lanes with all bits set where a > b. Assembler, because clang before 16
 * hides intrinsics of levels that the flags do not enable. */
#define MGH_OF_ONE(name, text) \
    static MGC_INLINE mgh_v mgh_##name(mgh_v v) \
    { \
        mgh_v result; \
        __asm__(text " %0.8h, %1.8h" : "=w"(result) : "w"(v)); \
        return result; \
    }
#define MGH_OF_TWO(name, text) \
    static MGC_INLINE mgh_v mgh_##name(mgh_v a, mgh_v b) \
    { \
        mgh_v result; \
        __asm__(text " %0.8h, %1.8h, %2.8h" : "=w"(result) : "w"(a), "w"(b)); \
        return result; \
    }
MGH_OF_ONE(abs, "fabs")
MGH_OF_ONE(neg, "fneg")
MGH_OF_ONE(sqrt, "fsqrt")
MGH_OF_ONE(floor, "frintm")
MGH_OF_ONE(ceil, "frintp")
MGH_OF_ONE(round, "frintn")
MGH_OF_TWO(min, "fmin")
MGH_OF_TWO(max, "fmax")
MGH_OF_TWO(above, "fcmgt")
#define mgh_minimum mgh_min
#define mgh_maximum mgh_max
#undef MGH_OF_ONE
#undef MGH_OF_TWO
static MGC_INLINE mgh_v mgh_load(const mgc_float16 *p) { return vld1q_f16(p); }
static MGC_INLINE void mgh_store(mgc_float16 *p, mgh_v v) { vst1q_f16(p, v); }
static MGC_INLINE mgh_v mgh_set1(mgc_float16 s) { return (mgh_v){ s, s, s, s, s, s, s, s }; }
static MGC_INLINE mgh_v mgh_fma(mgh_v a, mgh_v b, mgh_v c)
{
#if defined(__clang__) && __clang_major__ < 16
    __asm__("fmla %0.8h, %1.8h, %2.8h" : "+w"(c) : "w"(a), "w"(b));
    return c;
#else
    return vfmaq_f16(c, a, b);
#endif
}
/* Assembler, because gcc 12 compiles the intrinsic to two instructions and an extra register. volatile keeps the order
 * of the sums as written, since each waits for its last product. */
#define mgh_fma_lane(c, a, b, lane) __extension__ ({ \
    mgh_v mgh_sum = (c); \
    __asm__ volatile("fmla %0.8h, %1.8h, %2.h[" #lane "]" : "+w"(mgh_sum) : "w"(a), "x"(b)); \
    mgh_sum; \
})
static MGC_INLINE mgh_v mgh_recip(mgh_v v) { return mgh_set1((mgc_float16)1.0f) / v; }
static MGC_INLINE mgh_v mgh_if_lt(mgh_v a, mgh_v b, mgh_v x, mgh_v y)
{
    const uint16x8_t mask = vreinterpretq_u16_f16(mgh_above(b, a));
    return vreinterpretq_f16_u16(vbslq_u16(mask, vreinterpretq_u16_f16(x), vreinterpretq_u16_f16(y)));
}
/* The lower and the upper half of the lanes as floats, and a vector of float16 from such halves. */
static MGC_INLINE mgc_v mgh_low(mgh_v v) { return vcvt_f32_f16(vget_low_f16(v)); }
static MGC_INLINE mgc_v mgh_high(mgh_v v) { return vcvt_high_f32_f16(v); }
static MGC_INLINE mgh_v mgh_both(mgc_v low, mgc_v high) { return vcvt_high_f16_f32(vcvt_f16_f32(low), high); }
#elif defined(MGC_ISA_CORTEX_M55) && MGC_HELIUM
#define MGH_LANES 8
typedef float16_t mgc_float16;
typedef float16x8_t mgh_v;

static MGC_INLINE mgh_v mgh_load(const mgc_float16 *p) { return vldrhq_f16(p); }
static MGC_INLINE void mgh_store(mgc_float16 *p, mgh_v v) { vstrhq_f16(p, v); }
static MGC_INLINE mgh_v mgh_set1(mgc_float16 s) { return vdupq_n_f16(s); }
static MGC_INLINE mgh_v mgh_fma(mgh_v a, mgh_v b, mgh_v c) { return vfmaq_f16(c, a, b); }
static MGC_INLINE mgh_v mgh_fma_by(mgh_v a, mgc_float16 s, mgh_v c) { return vfmaq_n_f16(c, a, s); }
static MGC_INLINE mgh_v mgh_abs(mgh_v v) { return vabsq_f16(v); }
static MGC_INLINE mgh_v mgh_neg(mgh_v v) { return vnegq_f16(v); }
static MGC_INLINE mgh_v mgh_floor(mgh_v v) { return vrndmq_f16(v); }
static MGC_INLINE mgh_v mgh_ceil(mgh_v v) { return vrndpq_f16(v); }
static MGC_INLINE mgh_v mgh_round(mgh_v v) { return vrndnq_f16(v); }
static MGC_INLINE mgh_v mgh_if_lt(mgh_v a, mgh_v b, mgh_v x, mgh_v y)
{
    mgh_v v;
    __asm__("vcmp.f16 gt, %q2, %q1\n\tvpsel %q0, %q3, %q4" : "=w"(v) : "w"(a), "w"(b), "w"(x), "w"(y) : "p0");
    return v;
}
static MGC_INLINE mgh_v mgh_min(mgh_v a, mgh_v b) { return mgh_if_lt(b, a, b, a); }
static MGC_INLINE mgh_v mgh_max(mgh_v a, mgh_v b) { return mgh_if_lt(a, b, b, a); }
/* NaN in the lanes in which b is NaN, else v. */
static MGC_INLINE mgh_v mgh_or_nan(mgh_v v, mgh_v b)
{
    mgh_v r;
    __asm__("vcmp.f16 ne, %q1, %q1\n\tvpsel %q0, %q1, %q2" : "=w"(r) : "w"(b), "w"(v) : "p0");
    return r;
}
static MGC_INLINE mgh_v mgh_minimum(mgh_v a, mgh_v b) { return mgh_or_nan(mgh_min(a, b), b); }
static MGC_INLINE mgh_v mgh_maximum(mgh_v a, mgh_v b) { return mgh_or_nan(mgh_max(a, b), b); }
/* Here the two halves are the lanes with even and with odd indices, because Helium's instructions (mgc_bottom, mgc_top and
 * mgc_narrow of helium.h) convert those. */
static MGC_INLINE mgc_v mgh_low(mgh_v v) { return mgc_bottom(v); }
static MGC_INLINE mgc_v mgh_high(mgh_v v) { return mgc_top(v); }
static MGC_INLINE mgh_v mgh_both(mgc_v low, mgc_v high) { return mgc_narrow(low, high); }
static MGC_INLINE mgh_v mgh_sqrt(mgh_v v) { return mgh_both(mgc_sqrt(mgh_low(v)), mgc_sqrt(mgh_high(v))); }
static MGC_INLINE mgh_v mgh_recip(mgh_v v) { return mgh_both(mgc_recip(mgh_low(v)), mgc_recip(mgh_high(v))); }
#else
#error "this header has no branch for the kernel's MGC_ISA_<NAME>"
#endif

static MGC_INLINE mgh_v mgh_load_n(const mgc_float16 *p, int32_t n)
{
    mgc_float16 lane[MGH_LANES] = { 0 };
    if (n >= MGH_LANES) {
        return mgh_load(p);
    }
    for (int32_t i = 0; i < n; i++) {
        lane[i] = p[i];
    }
    return mgh_load(lane);
}
static MGC_INLINE void mgh_store_n(mgc_float16 *p, mgh_v v, int32_t n)
{
    mgc_float16 lane[MGH_LANES];
    if (n >= MGH_LANES) {
        mgh_store(p, v);
        return;
    }
    mgh_store(lane, v);
    for (int32_t i = 0; i < n; i++) {
        p[i] = lane[i];
    }
}
static MGC_INLINE void mgh_fold(float *totals, mgh_v v)
{
    mgc_store(totals, mgc_load(totals) + mgh_low(v));
    mgc_store(totals + MGH_LANES / 2, mgc_load(totals + MGH_LANES / 2) + mgh_high(v));
}
static MGC_INLINE mgh_v mgh_folded(const float *totals)
{
    return mgh_both(mgc_load(totals), mgc_load(totals + MGH_LANES / 2));
}

/* A function of float16 by that of float. */
#define MGH_FUNCTION(name) \
    static MGC_INLINE mgh_v mgh_##name(mgh_v v) { return mgh_both(mgc_##name(mgh_low(v)), mgc_##name(mgh_high(v))); }
MGH_FUNCTION(exp)
MGH_FUNCTION(log)
MGH_FUNCTION(tanh)
MGH_FUNCTION(sigmoid)
MGH_FUNCTION(erf)
MGH_FUNCTION(sin)
MGH_FUNCTION(cos)
MGH_FUNCTION(tan)
MGH_FUNCTION(asin)
MGH_FUNCTION(acos)
MGH_FUNCTION(atan)
MGH_FUNCTION(sinh)
MGH_FUNCTION(cosh)
MGH_FUNCTION(asinh)
MGH_FUNCTION(acosh)
MGH_FUNCTION(atanh)
#undef MGH_FUNCTION
static MGC_INLINE mgh_v mgh_pow(mgh_v a, mgh_v b)
{
    return mgh_both(mgc_pow(mgh_low(a), mgh_low(b)), mgc_pow(mgh_high(a), mgh_high(b)));
}

/* From here on, the names without mgh_ are those of float16. */
#undef MGC_LANES
#define MGC_LANES MGH_LANES
#define mgc_v mgh_v
#define mgc_load mgh_load
#define mgc_load_n mgh_load_n
#define mgc_store mgh_store
#define mgc_store_n mgh_store_n
#define mgc_set1(s) mgh_set1((mgc_float16)(s))
#define mgc_zero() mgh_set1((mgc_float16)0.0f)
#define mgc_fma mgh_fma
#undef mgc_fma_lane
#define mgc_fma_lane mgh_fma_lane
#define mgc_fma_by mgh_fma_by
#define mgc_fold mgh_fold
#define mgc_folded mgh_folded
#define mgc_min mgh_min
#define mgc_max mgh_max
#undef mgc_minimum
#undef mgc_maximum
#define mgc_minimum mgh_minimum
#define mgc_maximum mgh_maximum
#define mgc_abs mgh_abs
#define mgc_neg mgh_neg
#define mgc_sqrt mgh_sqrt
#define mgc_floor mgh_floor
#define mgc_ceil mgh_ceil
#define mgc_round mgh_round
#define mgc_recip mgh_recip
#define mgc_if_lt mgh_if_lt
#define mgc_exp mgh_exp
#define mgc_log mgh_log
#define mgc_tanh mgh_tanh
#define mgc_sigmoid mgh_sigmoid
#define mgc_erf mgh_erf
#define mgc_pow mgh_pow
#define mgc_sin mgh_sin
#define mgc_cos mgh_cos
#define mgc_tan mgh_tan
#define mgc_asin mgh_asin
#define mgc_acos mgh_acos
#define mgc_atan mgh_atan
#define mgc_sinh mgh_sinh
#define mgc_cosh mgh_cosh
#define mgc_asinh mgh_asinh
#define mgc_acosh mgh_acosh
#define mgc_atanh mgh_atanh

#endif

#endif
