/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for 64-bit Arm: 4 lanes.
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
    if (n >= 4)
        return vld1q_f32(p);
    if (n > 0)
        v = vld1q_lane_f32(p, v, 0);
    if (n > 1)
        v = vld1q_lane_f32(p + 1, v, 1);
    if (n > 2)
        v = vld1q_lane_f32(p + 2, v, 2);
    return v;
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    if (n > 0)
        vst1q_lane_f32(p, v, 0);
    if (n > 1)
        vst1q_lane_f32(p + 1, v, 1);
    if (n > 2)
        vst1q_lane_f32(p + 2, v, 2);
}
static MGC_INLINE mgc_v mgc_set1(float s) { return vdupq_n_f32(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return vdupq_n_f32(0.0f); }
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return vfmaq_f32(c, a, b); }
#define mgc_fma_lane(c, a, b, lane) vfmaq_laneq_f32(c, a, b, lane)
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return vminq_f32(a, b); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return vmaxq_f32(a, b); }
#define mgc_minimum mgc_min
#define mgc_maximum mgc_max
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return vreinterpretq_u32_f32(v); }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return vreinterpretq_f32_u32(u); }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return vabsq_f32(v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return vnegq_f32(v); }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return vdivq_f32(vdupq_n_f32(1.0f), v); }
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return vsqrtq_f32(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return vrndmq_f32(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return vrndpq_f32(v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return vrndnq_f32(v); }

static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y) { return vbslq_f32(vcltq_f32(a, b), x, y); }

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

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. */
    const int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    const int32x4_t first = vshlq_n_s32(vaddq_s32(half, bias), 23);
    const int32x4_t second = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
    return vmulq_f32(vmulq_f32(v, vreinterpretq_f32_s32(first)), vreinterpretq_f32_s32(second));
}

#endif
