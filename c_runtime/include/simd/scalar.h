/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h in plain C: one lane. It defines what the functions of the other headers compute.
 */
#ifndef MEGCC_SIMD_SCALAR_H
#define MEGCC_SIMD_SCALAR_H

#include "lane.h"

#define MGC_LANES 1

typedef float mgc_v;
typedef uint32_t mgc_u;

static MGC_INLINE mgc_v mgc_load(const float *p) { return *p; }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { *p = v; }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n) { return n > 0 ? *p : 0.0f; }
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    if (n > 0) {
        *p = v;
    }
}
static MGC_INLINE mgc_v mgc_set1(float s) { return s; }
static MGC_INLINE mgc_v mgc_zero(void) { return 0.0f; }

#if MGC_GNU && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__) || defined(__riscv_flen))
#define MGC_FUSED 1
#endif
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c)
{
#if defined(MGC_FUSED)
    return __builtin_fmaf(a, b, c);
#elif defined(MEGCC_REPRODUCIBLE)
    return mgc_fused(a, b, c);
#else
    const float product = a * b;
    return product + c;
#endif
}

static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return b < a ? b : a; }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return b > a ? b : a; }
/* NaN if either operand is, as IEEE 754-2019 requires. Needs a single comparison if the first operand is the result. */
static MGC_INLINE mgc_v mgc_minimum(mgc_v a, mgc_v b) { return b >= a || a != a ? a : b; }
static MGC_INLINE mgc_v mgc_maximum(mgc_v a, mgc_v b) { return b <= a || a != a ? a : b; }
/* Tells megcc_simd.h that both functions exist. */
#define mgc_maximum mgc_maximum

static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return mgc_lane_bits(v); }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return mgc_lane_float(u); }

static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return mgc_float(mgc_bits(v) & 0x7fffffffu); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return -v; }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return 1.0f / v; }

static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return mgc_lane_sqrt(v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return mgc_lane_round(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return mgc_lane_floor(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return mgc_lane_ceil(v); }

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { (void)b; return a; }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { (void)a; return b; }
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { (void)b; return a; }
static MGC_INLINE float mgc_sum(mgc_v v) { return v; }
static MGC_INLINE float mgc_hmax(mgc_v v) { return v; }
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y) { return a < b ? x : y; }

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. The low bits of 1.5 * 2^23 + n are those of n, and 0x4b400000 are
     * the bits of 1.5 * 2^23. */
    const mgc_u whole = mgc_bits(n + 12582912.0f) - 0x4b400000u;
    const mgc_u half = mgc_bits(mgc_floor(n * 0.5f) + 12582912.0f) - 0x4b400000u;
    return v * mgc_float((half + 127u) << 23) * mgc_float((whole - half + 127u) << 23);
}

#endif
