/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for Helium (Cortex-M55, M85): 4 lanes, 8 registers. Subnormal operands and results count as zero. The
 * assembler has an equivalent in C, so that the same kernels can be tested on any machine.
 */
#ifndef MEGCC_SIMD_HELIUM_H
#define MEGCC_SIMD_HELIUM_H

#define MGC_LANES 4

#if MGC_HELIUM
typedef float32x4_t mgc_v;
typedef uint32x4_t mgc_u;
typedef int32x4_t mgc_lanes;

static MGC_INLINE mgc_v mgc_load(const float *p) { return vldrwq_f32(p); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { vstrwq_f32(p, v); }
/* Assembler, because gcc 12 moves the predicates of intrinsics through a general register. */
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    mgc_v v;
    __asm__ volatile("vctp.32 %2\n\tvpst\n\tvldrwt.32 %q0, [%1]" : "=w"(v) : "r"(p), "r"(n) : "p0", "memory");
    return v;
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    __asm__ volatile("vctp.32 %1\n\tvpst\n\tvstrwt.32 %q2, [%0]" : : "r"(p), "r"(n), "w"(v) : "p0", "memory");
}
static MGC_INLINE mgc_v mgc_set1(float s) { return vdupq_n_f32(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return vreinterpretq_f32_u32(vdupq_n_u32(0)); }
#define MGC_FUSED 1
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return vfmaq_f32(c, a, b); }
static MGC_INLINE mgc_v mgc_fma_by(mgc_v a, float s, mgc_v c) { return vfmaq_n_f32(c, a, s); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return vreinterpretq_u32_f32(v); }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return vreinterpretq_f32_u32(u); }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return vabsq_f32(v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return vnegq_f32(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return vrndmq_f32(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return vrndpq_f32(v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return vrndnq_f32(v); }
/* Tests b > a, because the condition "lt" of VCMP holds for NaN, too. */
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y)
{
    mgc_v v;
    __asm__("vcmp.f32 gt, %q2, %q1\n\tvpsel %q0, %q3, %q4" : "=w"(v) : "w"(a), "w"(b), "w"(x), "w"(y) : "p0");
    return v;
}

static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b)
{
    mgc_v r;
    __asm__("vcmp.f32 ne, %q1, %q1\n\tvpsel %q0, %q1, %q2" : "=w"(r) : "w"(b), "w"(v) : "p0");
    return r;
}

/* The lanes of q0 and q1 are the scalar registers s0 to s7: scalar instructions divide, take roots and shuffle. */
static MGC_INLINE mgc_v mgc_recip(mgc_v v)
{
    register mgc_v q __asm__("q0") = v;
    __asm__("vdiv.f32 s0, %1, s0\n\tvdiv.f32 s1, %1, s1\n\tvdiv.f32 s2, %1, s2\n\tvdiv.f32 s3, %1, s3" : "+&w"(q) : "t"(1.0f));
    return q;
}
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v)
{
    register mgc_v q __asm__("q0") = v;
    __asm__("vsqrt.f32 s0, s0\n\tvsqrt.f32 s1, s1\n\tvsqrt.f32 s2, s2\n\tvsqrt.f32 s3, s3" : "+w"(q));
    return q;
}
static MGC_INLINE float mgc_sum(mgc_v v)
{
    register mgc_v q __asm__("q0") = v;
    __asm__("vadd.f32 s0, s0, s1\n\tvadd.f32 s2, s2, s3\n\tvadd.f32 s0, s0, s2" : "+w"(q));
    return q[0];
}
#define MGC_SHUFFLE(name, text) \
    static MGC_INLINE mgc_v name(mgc_v a, mgc_v b) \
    { \
        register mgc_v q __asm__("q0") = a; \
        register mgc_v other __asm__("q1") = b; \
        __asm__(text : "+w"(q) : "w"(other)); \
        return q; \
    }
MGC_SHUFFLE(mgc_zip_low, "vmov.f32 s2, s1\n\tvmov.f32 s1, s4\n\tvmov.f32 s3, s5")
MGC_SHUFFLE(mgc_zip_high, "vmov.f32 s0, s2\n\tvmov.f32 s2, s3\n\tvmov.f32 s1, s6\n\tvmov.f32 s3, s7")
MGC_SHUFFLE(mgc_even, "vmov.f32 s1, s2\n\tvmov.f32 s2, s4\n\tvmov.f32 s3, s6")
#undef MGC_SHUFFLE
static MGC_INLINE mgc_lanes mgc_round_to_int(mgc_v v) { return vcvtnq_s32_f32(v); }

/* Converts float16 in even lanes (bottom) or odd lanes (top) to float, and back. GNU as 2.40 doubles the number of a
 * register other than q0, so the instructions are given as numbers: VCVTB.F32.F16 q0, q0, VCVTT.F32.F16 q0, q0,
 * VCVTB.F16.F32 q0, q1 and VCVTT.F16.F32 q0, q2. */
static MGC_INLINE mgc_v mgc_bottom(float16x8_t v)
{
    register mgc_v q __asm__("q0") = vreinterpretq_f32_f16(v);
    __asm__(".inst.w 0xfe3f0e01" : "+w"(q));
    return q;
}
static MGC_INLINE mgc_v mgc_top(float16x8_t v)
{
    register mgc_v q __asm__("q0") = vreinterpretq_f32_f16(v);
    __asm__(".inst.w 0xfe3f1e01" : "+w"(q));
    return q;
}
static MGC_INLINE float16x8_t mgc_narrow(mgc_v bottom, mgc_v top)
{
    register float16x8_t q __asm__("q0");
    register mgc_v first __asm__("q1") = bottom;
    register mgc_v second __asm__("q2") = top;
    __asm__(".inst.w 0xee3f0e03\n\t.inst.w 0xee3f1e05" : "=&w"(q) : "w"(first), "w"(second));
    return q;
}
#else
#include "lane.h"

typedef float mgc_v __attribute__((vector_size(16)));
typedef uint32_t mgc_u __attribute__((vector_size(16)));
typedef int32_t mgc_lanes __attribute__((vector_size(16)));

static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    mgc_v v = { 0 };
    for (int32_t i = 0; i < 4 && i < n; i++) {
        v[i] = p[i];
    }
    return v;
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    for (int32_t i = 0; i < 4 && i < n; i++) {
        p[i] = v[i];
    }
}
static MGC_INLINE mgc_v mgc_load(const float *p) { return mgc_load_n(p, 4); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { mgc_store_n(p, v, 4); }
static MGC_INLINE mgc_v mgc_set1(float s) { return (mgc_v){ s, s, s, s }; }
static MGC_INLINE mgc_v mgc_zero(void) { return (mgc_v){ 0 }; }
#if defined(MEGCC_REPRODUCIBLE)
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c)
{
    for (int i = 0; i < 4; i++) {
        c[i] = mgc_fused(a[i], b[i], c[i]);
    }
    return c;
}
#else
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return a * b + c; }
#endif
static MGC_INLINE mgc_v mgc_fma_by(mgc_v a, float s, mgc_v c) { return mgc_fma(a, mgc_set1(s), c); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return (mgc_u)v; }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return (mgc_v)u; }
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y)
{
    const mgc_u mask = (mgc_u)(a < b);
    return mgc_float((mgc_bits(x) & mask) | (mgc_bits(y) & ~mask));
}
static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b)
{
    const mgc_u mask = (mgc_u)(b != b);
    return mgc_float((mgc_bits(b) & mask) | (mgc_bits(v) & ~mask));
}
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return mgc_float(mgc_bits(v) & 0x7fffffffu); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return -v; }
#define MGC_EACH_LANE(name, result) \
    static MGC_INLINE mgc_v name(mgc_v v) \
    { \
        for (int i = 0; i < 4; i++) { \
            v[i] = result(v[i]); \
        } \
        return v; \
    }
MGC_EACH_LANE(mgc_recip, 1.0f /)
MGC_EACH_LANE(mgc_sqrt, mgc_lane_sqrt)
MGC_EACH_LANE(mgc_floor, mgc_lane_floor)
MGC_EACH_LANE(mgc_ceil, mgc_lane_ceil)
MGC_EACH_LANE(mgc_round, mgc_lane_round)
#undef MGC_EACH_LANE
static MGC_INLINE float mgc_sum(mgc_v v) { return (v[0] + v[1]) + (v[2] + v[3]); }
static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { return (mgc_v){ a[0], b[0], a[1], b[1] }; }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { return (mgc_v){ a[2], b[2], a[3], b[3] }; }
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { return (mgc_v){ a[0], a[2], b[0], b[2] }; }
static MGC_INLINE mgc_lanes mgc_round_to_int(mgc_v v) { return __builtin_convertvector(mgc_round(v), mgc_lanes); }
#endif

static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return mgc_if_lt(b, a, b, a); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return mgc_if_lt(a, b, b, a); }
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    const mgc_v pairs = mgc_max(mgc_zip_high(v, v), mgc_zip_low(v, v));
    return pairs[0] < pairs[2] ? pairs[2] : pairs[0];
}

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two; a subnormal result is flushed to zero. */
    const mgc_u whole = (mgc_u)mgc_round_to_int(n), half = (mgc_u)((mgc_lanes)whole >> 1);
    return v * mgc_float((half + 127u) << 23) * mgc_float((whole - half + 127u) << 23);
}

#endif
