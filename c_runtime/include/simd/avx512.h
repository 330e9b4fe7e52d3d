/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for AVX-512 (F, VL, BW, DQ): 16 lanes.
 */
#ifndef MEGCC_SIMD_AVX512_H
#define MEGCC_SIMD_AVX512_H

#define MGC_LANES 16

typedef __m512 mgc_v;
typedef uint32_t mgc_u __attribute__((vector_size(64)));

/* The mask of the first n lanes. */
static MGC_INLINE __mmask16 mgc_first(int32_t n) { return (__mmask16)((1u << n) - 1u); }

static MGC_INLINE mgc_v mgc_load(const float *p) { return _mm512_loadu_ps(p); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { _mm512_storeu_ps(p, v); }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n) { return _mm512_maskz_loadu_ps(mgc_first(n), p); }
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n) { _mm512_mask_storeu_ps(p, mgc_first(n), v); }
static MGC_INLINE mgc_v mgc_set1(float s) { return _mm512_set1_ps(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return _mm512_setzero_ps(); }
#define MGC_FUSED 1
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return _mm512_fmadd_ps(a, b, c); }
/* MINPS and MAXPS return their second operand if either is NaN; so a NaN in `a` is kept. */
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return _mm512_min_ps(b, a); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return _mm512_max_ps(b, a); }
static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b) { return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q), b); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return (mgc_u)v; }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return (mgc_v)u; }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), v); }
#if defined(MEGCC_REPRODUCIBLE)
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return _mm512_div_ps(_mm512_set1_ps(1.0f), v); }
#else
static MGC_INLINE mgc_v mgc_recip(mgc_v v)
{
    /* One Newton step from a 14-bit estimate; a division takes twice as long. */
    const mgc_v guess = _mm512_rcp14_ps(v);
    return _mm512_fmadd_ps(guess, _mm512_fnmadd_ps(v, guess, _mm512_set1_ps(1.0f)), guess);
}
#endif
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return _mm512_sqrt_ps(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_POS_INF); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT); }

static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b)
{
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), b);
}
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b)
{
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), b);
}
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b)
{
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
}

/* Returns p[index[0]], p[index[1]], … Each index is below index[0] + MGC_LANES; reads all elements up to there. */
static MGC_INLINE mgc_v mgc_pick(const float *p, const int32_t *index)
{
    const __m512i at = _mm512_sub_epi32(_mm512_loadu_si512(index), _mm512_set1_epi32(index[0]));
    return _mm512_permutexvar_ps(at, _mm512_loadu_ps(p + index[0]));
}

#define MGC_LOOKUPS 1
static MGC_INLINE mgc_v mgc_lookup(const float *table, mgc_u index)
{
    return _mm512_permutexvar_ps((__m512i)index, _mm512_castps256_ps512(_mm256_loadu_ps(table)));
}

static MGC_INLINE float mgc_sum(mgc_v v)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pairs = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return pairs[0] + pairs[1];
}
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pairs = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return pairs[1] > pairs[0] ? pairs[1] : pairs[0];
}

/* mgc_ldexp is one instruction. */
#define MGC_SCALEF 1
static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n) { return _mm512_scalef_ps(v, n); }

/* Returns 2^(n / 16) for n in [-2016, 2032). The table has the bits of 2^(i / 16) minus those of i in the shifted n. */
#define MGC_POWERS 1
static MGC_INLINE mgc_v mgc_power(mgc_u n)
{
    const __m512i sixteenths = _mm512_setr_epi32(
        0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
        0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d);
    return (mgc_v)_mm512_add_epi32(_mm512_slli_epi32((__m512i)n, 19), _mm512_permutexvar_epi32((__m512i)n, sixteenths));
}

/* mgc_split and mgc_log_edge of megcc_math.h, with the same bits: instructions split a float, subnormal or not, and replace
 * the results of special arguments. */
#define MGC_SPLITS 1
static MGC_INLINE mgc_v mgc_split(mgc_v x, mgc_v *f)
{
    const mgc_v one = _mm512_set1_ps(1.0f), mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
    const mgc_v e = _mm512_getexp_ps(x);
    const mgc_v sqrt_2 = _mm512_castsi512_ps(_mm512_set1_epi32(0x3fb504f3));
    const __mmask16 upper = _mm512_cmp_ps_mask(mantissa, sqrt_2, _CMP_GE_OQ);
    *f = _mm512_sub_ps(_mm512_mask_mul_ps(mantissa, upper, mantissa, _mm512_set1_ps(0.5f)), one);
    return _mm512_mask_add_ps(e, upper, e, one);
}
static MGC_INLINE mgc_v mgc_log_edge(mgc_v result, mgc_v x)
{
    /* VFIXUPIMM takes what it returns from four bits of the constant for each kind of x, the lowest for NaN: the NaN itself,
     * twice (quiet and signalling); -infinity for 0; the result for 1; NaN for -infinity; infinity; NaN for other negative
     * numbers; the result for other positive ones. */
    return _mm512_fixupimm_ps(result, x, _mm512_set1_epi32(0x03530411), 0);
}

#endif
