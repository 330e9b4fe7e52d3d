/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for SSE2: 4 lanes, no fused multiply-add, no rounding instructions.
 */
#ifndef MEGCC_SIMD_SSE2_H
#define MEGCC_SIMD_SSE2_H

#define MGC_LANES 4

typedef __m128 mgc_v;
typedef uint32_t mgc_u __attribute__((vector_size(16)));

static MGC_INLINE mgc_v mgc_load(const float *p) { return _mm_loadu_ps(p); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { _mm_storeu_ps(p, v); }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    switch (n) {
    case 0: return _mm_setzero_ps();
    case 1: return _mm_load_ss(p);
    case 2: return _mm_setr_ps(p[0], p[1], 0.0f, 0.0f);
    case 3: return _mm_setr_ps(p[0], p[1], p[2], 0.0f);
    default: return _mm_loadu_ps(p);
    }
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    if (n >= 4) {
        _mm_storeu_ps(p, v);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        p[i] = v[i];
    }
}
static MGC_INLINE mgc_v mgc_set1(float s) { return _mm_set1_ps(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return _mm_setzero_ps(); }
#if defined(MEGCC_REPRODUCIBLE)
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c)
{
    mgc_v v = c;
    for (int i = 0; i < 4; i++) {
        v[i] = mgc_fused(a[i], b[i], c[i]);
    }
    return v;
}
#else
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
#endif
/* MINPS and MAXPS return their second operand if either is NaN; so a NaN in `a` is kept. */
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return _mm_min_ps(b, a); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return _mm_max_ps(b, a); }
static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b) { return _mm_or_ps(v, _mm_cmpunord_ps(b, b)); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return (mgc_u)v; }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return (mgc_v)u; }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return _mm_andnot_ps(_mm_set1_ps(-0.0f), v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return _mm_xor_ps(_mm_set1_ps(-0.0f), v); }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return _mm_div_ps(_mm_set1_ps(1.0f), v); }
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return _mm_sqrt_ps(v); }

static MGC_INLINE mgc_v mgc_select(__m128 mask, mgc_v x, mgc_v y)
{
    return _mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, y));
}
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y)
{
    return mgc_select(_mm_cmplt_ps(a, b), x, y);
}

/* Adding 2^23 rounds to an integer; larger floats are integers anyway. */
static MGC_INLINE mgc_v mgc_round(mgc_v v)
{
    const mgc_v limit = _mm_set1_ps(8388608.0f), sign = _mm_and_ps(_mm_set1_ps(-0.0f), v);
    const mgc_v magnitude = mgc_abs(v);
    const mgc_v rounded = _mm_or_ps(_mm_sub_ps(_mm_add_ps(magnitude, limit), limit), sign);
    return mgc_if_lt(magnitude, limit, rounded, v);
}
static MGC_INLINE mgc_v mgc_floor(mgc_v v)
{
    const mgc_v r = mgc_round(v);
    return mgc_if_lt(v, r, _mm_sub_ps(r, _mm_set1_ps(1.0f)), r);
}
static MGC_INLINE mgc_v mgc_ceil(mgc_v v)
{
    const mgc_v r = mgc_round(v), sign = _mm_and_ps(_mm_set1_ps(-0.0f), v);
    return mgc_if_lt(r, v, _mm_or_ps(_mm_add_ps(r, _mm_set1_ps(1.0f)), sign), r);
}

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { return _mm_unpacklo_ps(a, b); }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { return _mm_unpackhi_ps(a, b); }
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { return _mm_shuffle_ps(a, b, 0x88); }

static MGC_INLINE float mgc_sum(mgc_v v)
{
    const mgc_v pairs = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return pairs[0] + pairs[1];
}
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    const mgc_v pairs = mgc_max(v, _mm_movehl_ps(v, v));
    return pairs[1] > pairs[0] ? pairs[1] : pairs[0];
}

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. */
    const __m128i whole = _mm_cvtps_epi32(n), half = _mm_srai_epi32(whole, 1), bias = _mm_set1_epi32(127);
    const __m128i first = _mm_slli_epi32(_mm_add_epi32(half, bias), 23);
    const __m128i second = _mm_slli_epi32(_mm_add_epi32(_mm_sub_epi32(whole, half), bias), 23);
    return _mm_mul_ps(_mm_mul_ps(v, _mm_castsi128_ps(first)), _mm_castsi128_ps(second));
}

#endif
