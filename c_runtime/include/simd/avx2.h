/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for AVX2 with FMA: 8 lanes.
 */
#ifndef MEGCC_SIMD_AVX2_H
#define MEGCC_SIMD_AVX2_H

#define MGC_LANES 8

typedef __m256 mgc_v;
typedef uint32_t mgc_u __attribute__((vector_size(32)));

/* The mask of the first n lanes. */
static MGC_INLINE __m256i mgc_first(int32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static MGC_INLINE mgc_v mgc_load(const float *p) { return _mm256_loadu_ps(p); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { _mm256_storeu_ps(p, v); }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n) { return _mm256_maskload_ps(p, mgc_first(n)); }
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n) { _mm256_maskstore_ps(p, mgc_first(n), v); }
static MGC_INLINE mgc_v mgc_set1(float s) { return _mm256_set1_ps(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return _mm256_setzero_ps(); }
#define MGC_FUSED 1
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return _mm256_fmadd_ps(a, b, c); }
/* MINPS and MAXPS return their second operand if either is NaN; so a NaN in `a` is kept. */
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return _mm256_min_ps(b, a); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return _mm256_max_ps(b, a); }
static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b) { return _mm256_or_ps(v, _mm256_cmp_ps(b, b, _CMP_UNORD_Q)); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return (mgc_u)v; }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return (mgc_v)u; }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), v); }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return _mm256_div_ps(_mm256_set1_ps(1.0f), v); }
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return _mm256_sqrt_ps(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return _mm256_floor_ps(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return _mm256_ceil_ps(v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b)
{
    /* The shuffle gives pairs a0 a2, b0 b2, a4 a6, b4 b6; the permutation exchanges the second and the third one. */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xd8));
}

/* Returns p[index[0]], p[index[1]], … Each index is below index[0] + MGC_LANES; reads all elements up to there. */
static MGC_INLINE mgc_v mgc_pick(const float *p, const int32_t *index)
{
    const __m256i at = _mm256_sub_epi32(_mm256_loadu_si256((const __m256i *)index), _mm256_set1_epi32(index[0]));
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(p + index[0]), at);
}

#define MGC_LOOKUPS 1
static MGC_INLINE mgc_v mgc_lookup(const float *table, mgc_u index)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)index);
}

static MGC_INLINE float mgc_sum(mgc_v v)
{
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pairs = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return pairs[0] + pairs[1];
}
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pairs = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return pairs[1] > pairs[0] ? pairs[1] : pairs[0];
}

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. */
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1), bias = _mm256_set1_epi32(127);
    const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i second = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(v, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}

#endif
