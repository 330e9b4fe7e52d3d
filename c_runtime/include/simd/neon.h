/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for Arm: 4 lanes. 32-bit Arm's NEON flushes subnormal operands and results to zero. Without VFPv4, which
 * the compiler must be told of, products are rounded there before they are added.
 */
#ifndef MEGCC_SIMD_NEON_H
#define MEGCC_SIMD_NEON_H

#define MGC_LANES 4

typedef float32x4_t mgc_v;
typedef uint32x4_t mgc_u;

static MGC_INLINE mgc_v mgc_load(const float *p) { return vld1q_f32(p); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { vst1q_f32(p, v); }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    mgc_v v = vdupq_n_f32(0.0f);
    if (n >= 4) {
        return vld1q_f32(p);
    }
    if (n > 0) {
        v = vld1q_lane_f32(p, v, 0);
    }
    if (n > 1) {
        v = vld1q_lane_f32(p + 1, v, 1);
    }
    if (n > 2) {
        v = vld1q_lane_f32(p + 2, v, 2);
    }
    return v;
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    if (n > 0) {
        vst1q_lane_f32(p, v, 0);
    }
    if (n > 1) {
        vst1q_lane_f32(p + 1, v, 1);
    }
    if (n > 2) {
        vst1q_lane_f32(p + 2, v, 2);
    }
}
static MGC_INLINE mgc_v mgc_set1(float s) { return vdupq_n_f32(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return vdupq_n_f32(0.0f); }
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return vminq_f32(a, b); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return vmaxq_f32(a, b); }
#define mgc_minimum mgc_min
#define mgc_maximum mgc_max
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return vreinterpretq_u32_f32(v); }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return vreinterpretq_f32_u32(u); }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return vabsq_f32(v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return vnegq_f32(v); }
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y) { return vbslq_f32(vcltq_f32(a, b), x, y); }

#if defined(__aarch64__)
#define MGC_FUSED 1
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return vfmaq_f32(c, a, b); }
#define mgc_fma_lane(c, a, b, lane) vfmaq_laneq_f32(c, a, b, lane)
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return vdivq_f32(vdupq_n_f32(1.0f), v); }
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return vsqrtq_f32(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return vrndmq_f32(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return vrndpq_f32(v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return vrndnq_f32(v); }

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { return vzip1q_f32(a, b); }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { return vzip2q_f32(a, b); }
/* Loads and stores four vectors interleaved: p[4 * i + j] is v_j[i]. */
typedef float32x4x4_t mgc_v4;
static MGC_INLINE mgc_v4 mgc_load4(const float *p) { return vld4q_f32(p); }
static MGC_INLINE void mgc_store4(float *p, mgc_v v0, mgc_v v1, mgc_v v2, mgc_v v3)
{
    const mgc_v4 v = { { v0, v1, v2, v3 } };
    vst4q_f32(p, v);
}
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { return vuzp1q_f32(a, b); }
static MGC_INLINE float mgc_sum(mgc_v v) { return vaddvq_f32(v); }
static MGC_INLINE float mgc_hmax(mgc_v v) { return vmaxvq_f32(v); }
static MGC_INLINE int32x4_t mgc_exponent(mgc_v v) { return vcvtnq_s32_f32(v); }
#else
#if defined(__ARM_FEATURE_FMA)
#define MGC_FUSED 1
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return vfmaq_f32(c, a, b); }
#else
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return vaddq_f32(vmulq_f32(a, b), c); }
#endif
#if defined(MEGCC_REPRODUCIBLE)
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return vdupq_n_f32(1.0f) / v; }
#else
static MGC_INLINE mgc_v mgc_recip(mgc_v v)
{
    /* Two Newton steps from an 8-bit estimate. There is no vector division, and lane by lane it takes 70 cycles. */
    const mgc_v guess = vrecpeq_f32(v), better = vmulq_f32(guess, vrecpsq_f32(v, guess));
#if defined(__ARM_FEATURE_FMA)
    return vfmaq_f32(better, better, vfmsq_f32(vdupq_n_f32(1.0f), v, better));
#else
    return vmulq_f32(better, vrecpsq_f32(v, better));
#endif
}
#endif

static MGC_INLINE float mgc_sqrt_lane(float s)
{
    __asm__("vsqrt.f32 %0, %1" : "=t"(s) : "t"(s));
    return s;
}
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v)
{
    v = vsetq_lane_f32(mgc_sqrt_lane(vgetq_lane_f32(v, 0)), v, 0);
    v = vsetq_lane_f32(mgc_sqrt_lane(vgetq_lane_f32(v, 1)), v, 1);
    v = vsetq_lane_f32(mgc_sqrt_lane(vgetq_lane_f32(v, 2)), v, 2);
    return vsetq_lane_f32(mgc_sqrt_lane(vgetq_lane_f32(v, 3)), v, 3);
}

/* Adding 2^23 rounds to an integer; larger floats are integers anyway. */
static MGC_INLINE mgc_v mgc_round(mgc_v v)
{
    const mgc_v limit = vdupq_n_f32(8388608.0f), magnitude = vabsq_f32(v);
    const mgc_v rounded = vbslq_f32(vdupq_n_u32(0x80000000u), v, vsubq_f32(vaddq_f32(magnitude, limit), limit));
    return mgc_if_lt(magnitude, limit, rounded, v);
}
static MGC_INLINE mgc_v mgc_floor(mgc_v v)
{
    const mgc_v r = mgc_round(v);
    return mgc_if_lt(v, r, vsubq_f32(r, vdupq_n_f32(1.0f)), r);
}
static MGC_INLINE mgc_v mgc_ceil(mgc_v v)
{
    const mgc_v r = mgc_round(v), up = vaddq_f32(r, vdupq_n_f32(1.0f));
    return mgc_if_lt(r, v, vbslq_f32(vdupq_n_u32(0x80000000u), v, up), r);
}

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { return vzipq_f32(a, b).val[0]; }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { return vzipq_f32(a, b).val[1]; }
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { return vuzpq_f32(a, b).val[0]; }

static MGC_INLINE float mgc_sum(mgc_v v)
{
    const float32x2_t pairs = vpadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(vpadd_f32(pairs, pairs), 0);
}
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    const float32x2_t pairs = vpmax_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(vpmax_f32(pairs, pairs), 0);
}
/* Converts the exponents of mgc_ldexp, which are integers; 32-bit NEON has no conversion that rounds. */
static MGC_INLINE int32x4_t mgc_exponent(mgc_v v) { return vcvtq_s32_f32(v); }
#endif

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. 32-bit Arm flushes a subnormal result to zero. */
    const int32x4_t whole = mgc_exponent(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return vmulq_f32(vmulq_f32(v, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}

#endif
