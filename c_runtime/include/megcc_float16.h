/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads float16 and bfloat16 as vectors of megcc_simd.h, and stores these as float16.
 *
 *   mgc_load_f16(p)           MGC_LANES floats from as many float16, at any address
 *   mgc_store_f16(p,v)        rounds each to the nearest float16, ties to even; too large numbers become infinity
 *   mgc_load_f16_n(p,n)       the first n lanes, 0 <= n <= MGC_LANES; touches exactly n float16, other lanes are 0
 *   mgc_store_f16_n(p,v,n)    stores the first n lanes
 *   mgc_set1_f16(h)           all lanes
 *   mgc_load_bf16(p)          MGC_LANES floats from as many bfloat16, at any address
 *   mgc_load2_f16 mgc_load4_f16 mgc_load2_bf16 mgc_load4_bf16     RVV: two or four neighbouring vectors
 */
#ifndef MEGCC_FLOAT16_H
#define MEGCC_FLOAT16_H

#include "megcc_double.h"
#include "megcc_simd.h"

#if MGC_ENABLED

#if defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_V82) || defined(MGC_ISA_NEON_V86)
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static MGC_INLINE void mgc_store_f16(uint16_t *p, mgc_v v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
#elif defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static MGC_INLINE void mgc_store_f16(uint16_t *p, mgc_v v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(MGC_ISA_AVX2)
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static MGC_INLINE void mgc_store_f16(uint16_t *p, mgc_v v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(MGC_ISA_CORTEX_M55) && MGC_HELIUM
/* Each lane of 32 bits has one float16 in its lower half, which mgc_bottom and mgc_narrow of helium.h convert. */
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p) { return mgc_bottom(vreinterpretq_f16_u32(vldrhq_u32(p))); }
static MGC_INLINE void mgc_store_f16(uint16_t *p, mgc_v v) { vstrhq_u32(p, vreinterpretq_u32_f16(mgc_narrow(v, v))); }
#else
#if defined(MGC_ISA_NEON_ARMV7)
/* In assembler, because gcc has the intrinsics only with a flag that it does not take from a pragma. */
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p)
{
    const uint16x4_t h = vld1_u16(p);
    mgc_v v;
    __asm__("vcvt.f32.f16 %q0, %P1" : "=w"(v) : "w"(h));
    return v;
}
#elif defined(MGC_ISA_RVV) || defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD) || defined(MGC_ISA_SSE2)
typedef uint16_t mgc_halves __attribute__((vector_size(2 * MGC_LANES)));
/* The exponent and the fraction of float16 are moved to those of a float, whose exponent is then too small by 112. The
 * product with 2^112 is exact, for subnormal numbers too. It is at least 65536 for infinity and NaN, whose exponent becomes
 * that of the float. */
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p)
{
    mgc_halves h;
    memcpy(&h, p, sizeof h);
    const mgc_u bits = __builtin_convertvector(h, mgc_u), sign = (bits & 0x8000u) << 16;
    const mgc_v v = mgc_float((bits & 0x7fffu) << 13) * mgc_set1(5.192296858534828e33f);
    const mgc_u special = mgc_bits(mgc_if_lt(v, mgc_set1(65536.0f), mgc_zero(), mgc_set1(MGC_INF)));
    return mgc_float(mgc_bits(v) | special | sign);
}
#else
static MGC_INLINE mgc_v mgc_load_f16(const uint16_t *p)
{
    float lane[MGC_LANES];
    for (int32_t i = 0; i < MGC_LANES; i++) {
        lane[i] = mgc_from_float16(p[i]);
    }
    return mgc_load(lane);
}
#endif
static MGC_INLINE void mgc_store_f16(uint16_t *p, mgc_v v)
{
    float lane[MGC_LANES];
    mgc_store(lane, v);
    for (int32_t i = 0; i < MGC_LANES; i++) {
        p[i] = mgc_to_float16((double)lane[i]);
    }
}
#endif

static MGC_INLINE mgc_v mgc_load_f16_n(const uint16_t *p, int32_t n)
{
    uint16_t lane[MGC_LANES] = { 0 };
    for (int32_t i = 0; i < n; i++) {
        lane[i] = p[i];
    }
    return mgc_load_f16(lane);
}
static MGC_INLINE void mgc_store_f16_n(uint16_t *p, mgc_v v, int32_t n)
{
    uint16_t lane[MGC_LANES];
    mgc_store_f16(lane, v);
    for (int32_t i = 0; i < n; i++) {
        p[i] = lane[i];
    }
}
static MGC_INLINE mgc_v mgc_set1_f16(uint16_t h) { return mgc_set1(mgc_from_float16(h)); }

/* A bfloat16 is the upper half of a float. */
#if defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_v mgc_load_bf16(const uint16_t *p)
{
    return mgc_float((mgc_u)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
#elif defined(MGC_ISA_AVX2)
static MGC_INLINE mgc_v mgc_load_bf16(const uint16_t *p)
{
    return mgc_float((mgc_u)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
#elif defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_V82) || defined(MGC_ISA_NEON_V86) || defined(MGC_ISA_NEON_ARMV7)
static MGC_INLINE mgc_v mgc_load_bf16(const uint16_t *p) { return mgc_float(vshll_n_u16(vld1_u16(p), 16)); }
#elif defined(MGC_ISA_CORTEX_M55) && MGC_HELIUM
static MGC_INLINE mgc_v mgc_load_bf16(const uint16_t *p) { return mgc_float(vshlq_n_u32(vldrhq_u32(p), 16)); }
#elif defined(MGC_ISA_RVV) || defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD) || defined(MGC_ISA_SSE2)
static MGC_INLINE mgc_v mgc_load_bf16(const uint16_t *p)
{
    mgc_halves h;
    memcpy(&h, p, sizeof h);
    return mgc_float(__builtin_convertvector(h, mgc_u) << 16);
}
#else
static MGC_INLINE mgc_v mgc_load_bf16(const uint16_t *p)
{
    float lane[MGC_LANES];
    for (int32_t i = 0; i < MGC_LANES; i++) {
        lane[i] = mgc_from_bf16(p[i]);
    }
    return mgc_load(lane);
}
#endif

#if defined(MGC_ISA_RVV)
#define MGC_JOINED(n, type) \
    static MGC_INLINE mgc_v##n mgc_load##n##_##type(const uint16_t *p) \
    { \
        mgc_v part[n]; \
        for (int32_t i = 0; i < (n); i++) { \
            part[i] = mgc_load_##type(p + i * MGC_LANES); \
        } \
        return mgc_load##n((const float *)part); \
    }
MGC_JOINED(2, f16)
MGC_JOINED(4, f16)
MGC_JOINED(2, bf16)
MGC_JOINED(4, bf16)
#undef MGC_JOINED
#endif

#endif

#endif
