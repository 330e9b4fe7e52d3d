/* SPDX-License-Identifier: Apache-2.0
 *
 * One vector type and some thirty functions over it, for the ISA that a kernel file asks for with MGC_ISA_<NAME>.
 *
 * The file is compiled with plain `cc -O2`: this header enables the ISA for every function after it, until MGC_END at
 * the end of the file. MGC_ENABLED is 0 if the compiler cannot do that; the file must then be empty.
 *
 *   mgc_v                      MGC_LANES floats; + - * / work on it
 *   mgc_u                      as many uint32, for bit work; + - & | ^ << >> work on it
 *   mgc_load(p) mgc_store(p,v) at any address
 *   mgc_load_n mgc_store_n     the first n lanes, 0 <= n <= MGC_LANES; touch exactly n floats, other lanes are 0
 *   mgc_set1(s) mgc_zero()
 *   mgc_fma(a,b,c)             a * b + c, rounded once if the CPU can, otherwise twice
 *   mgc_fma1(a,b,c)            of single floats; rounded twice
 *   mgc_quotient(a,d,h,l)      a / d, for a constant d and the h and l of its `reciprocal`
 *   mgc_min(a,b) mgc_max(a,b)  a NaN in `a` is kept; for a NaN in `b` alone, NEON returns NaN, other ISAs `a`
 *   mgc_minimum mgc_maximum    the same, but NaN if either operand is (IEEE 754-2019): one or two instructions more
 *   mgc_or_nan(v,b)            NaN in the lanes in which b is NaN, else v; only ISAs that compute mgc_minimum by it have it
 *   mgc_abs mgc_neg mgc_sqrt mgc_floor mgc_ceil mgc_round      mgc_round: ties to even
 *   mgc_recip(v)               1 / v within 1 ULP, for v in [2^-126, 2^126]
 *   mgc_sum(v) mgc_hmax(v)     reduce the lanes to a float; the order of additions is fixed
 *   mgc_sums                   partial sums along a row: mgc_sums_zero(); mgc_sums_add(&sums,k,v) adds elements from k on,
 *                              a multiple of MGC_LANES; mgc_sums_multiply(&sums,k,a,b) adds a * b;
 *                              mgc_sums_squares(&sums,p,n) adds the squares of a whole row, a multiple of MGC_LANES;
 *                              mgc_sums_total(&sums)
 *   mgc_even(a,b)              lanes 0, 2, 4, … of a, followed by those of b
 *   mgc_zip_low(a,b) mgc_zip_high(a,b)     interleaves the lower or upper halves of a and b
 *   mgc_bits(v) mgc_float(u)   the same bits as the other type
 *   mgc_if_lt(a,b,x,y)         a < b ? x : y, lane by lane
 *   mgc_ldexp(v,n)             v * 2^n for integral n in [-252, 252], also for subnormal and infinite results
 *   mgc_prefetch(p)            brings a cache line to L1; p: any address in an object
 *   mgc_prefetch_ahead(p,n)    brings the cache line n floats after p to L2; it may lie after the object
 *   mgc_lookup(table,n)        AVX2, AVX-512 (MGC_LOOKUPS): element n % 8 of a table of floats, for n % 16 < 8
 *   mgc_power(n)               AVX-512 (MGC_POWERS): 2^(n / 16), n in [-2016, 2032)
 *   mgc_fma_lane(c,a,b,lane)   NEON: a * b[lane] + c
 *   mgc_fma_by(a,s,c)          Helium, RVV: a * s + c, for a float s
 *   mgc_load4 mgc_store4       64-bit NEON: four interleaved vectors
 *   mgc_load2 mgc_load4        RVV: two or four neighbouring vectors as a register group (rvv.h has its functions)
 *   mgc_pick(p,index)          AVX2, AVX-512, RVV: p[index[0]], p[index[1]], …, for ascending indices below
 *                              index[0] + MGC_LANES; reads all elements up to there
 *   mgc_spread mgc_collect     RVV: copies to and from every n-th float
 *   MGC_FUSED                  defined if mgc_fma rounds once and is one instruction
 *   MGC_SCALEF                 defined for AVX-512: mgc_ldexp is one instruction
 *   MGC_SPLITS                 defined for AVX-512: avx512.h has mgc_split and mgc_log_edge of megcc_math.h
 *
 * With MEGCC_REPRODUCIBLE, which a kernel file defines, results are the same on every CPU: mgc_fma and mgc_fma1 round
 * once, mgc_recip is a division, and sums along a row are sixteen partial sums, added in a fixed order.
 */
#ifndef MEGCC_SIMD_H
#define MEGCC_SIMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The only function of the C library that kernels use, declared here because a bare machine may lack the header. */
void *memcpy(void *to, const void *from, size_t size);

#if defined(__GNUC__) || defined(__clang__)
#define MGC_INLINE inline __attribute__((always_inline, unused))
#define MGC_NOINLINE __attribute__((noinline))
/* Before a loop whose iterations do not depend on each other: what one writes, only the same one reads. */
#ifdef __clang__
#define MGC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define MGC_INDEPENDENT _Pragma("GCC ivdep")
#endif
/* Before a loop: two iterations in one, so that a core that executes in order loads for one while it computes the other. */
#ifdef __clang__
#define MGC_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define MGC_TWICE _Pragma("GCC unroll 2")
#endif
#define MGC_INF __builtin_inff()
#define MGC_NAN __builtin_nanf("")
#define MGC_GNU 1
#define mgc_prefetch(p) __builtin_prefetch(p)
#define mgc_prefetch_ahead(p, n) __builtin_prefetch((const void *)((uintptr_t)(p) + (uintptr_t)(n) * sizeof(float)), 0, 2)
#else
#define MGC_INLINE inline
#define MGC_NOINLINE
#define MGC_INDEPENDENT
#define MGC_TWICE
#define MGC_INF (1e38f * 10.0f)
#define MGC_NAN (MGC_INF - MGC_INF)
#define MGC_GNU 0
#define mgc_prefetch(p) ((void)(p))
#define mgc_prefetch_ahead(p, n) ((void)(p))
#endif

/* Each level includes the level below it. */
#if defined(MGC_ISA_AVX512_VNNI)
#define MGC_ISA_AVX512
#elif defined(MGC_ISA_AVX2_VNNI)
#define MGC_ISA_AVX2
#endif
#if defined(MGC_ISA_RVV256) || defined(MGC_ISA_RVV512)
#define MGC_ISA_RVV
#endif
#if defined(MGC_ISA_CORTEX_M33)
#define MGC_ISA_CORTEX_M4
#endif

/* The intrinsics' header comes first, because its definitions must not depend on the enabled ISA. But gcc for 32-bit
 * Arm defines fused multiply-add in it only if the ISA is enabled before. */
#if defined(MGC_ISA_SSE2) || defined(MGC_ISA_AVX2) || defined(MGC_ISA_AVX512)
#if MGC_GNU && defined(__x86_64__)
#include <immintrin.h>
#if defined(_MSC_VER) && defined(__clang__) && !defined(MGC_ISA_SSE2)
/* clang-cl's header leaves out intrinsics that the flags do not enable. */
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#if defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2_VNNI)
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlbwintrin.h>
#include <avx512vldqintrin.h>
#include <avx512vnniintrin.h>
#include <avx512vlvnniintrin.h>
#endif
#endif
#define MGC_ENABLED 1
#else
#define MGC_ENABLED 0
#endif
#elif defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_V82) || defined(MGC_ISA_NEON_V86)
#if MGC_GNU && defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#define MGC_ENABLED 1
#else
#define MGC_ENABLED 0
#endif
#elif defined(MGC_ISA_NEON_ARMV7)
#if !defined(__ARM_FP) || !(defined(__ARM_NEON) || (defined(__GNUC__) && !defined(__clang__)))
#error "32-bit Arm: give the compiler -mfloat-abi=hard (or softfp) -mfpu=neon-vfpv4"
#endif
#if MGC_GNU && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("fpu=neon-vfpv4")
#define MGC_END _Pragma("GCC pop_options")
#endif
#include <arm_neon.h>
#define MGC_ENABLED 1
#elif defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD)
/* An engine without vectors refuses a whole module that has them, so nothing is enabled here: the build must do it. */
#if defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define MGC_ENABLED 1
#else
#define MGC_ENABLED 0
#endif
#elif defined(MGC_ISA_RVV)
#if defined(__riscv) && __riscv_xlen == 64 && defined(__clang__) && __clang_major__ >= 18
#define MGC_ENABLED 1
#else
#define MGC_ENABLED 0
#endif
#elif defined(MGC_ISA_CORTEX_M55)
/* The assembler is for gcc. Otherwise, without Helium's floats, or on other machines, vectors are GNU C. */
#if defined(__arm__) && defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2) && MGC_GNU && !defined(__clang__)
/* With only eight registers, gcc 12 loads ahead of a tile's products and then spills its sums. */
#pragma GCC push_options
#pragma GCC optimize("no-schedule-insns")
#define MGC_END _Pragma("GCC pop_options")
#include <arm_mve.h>
#define MGC_HELIUM 1
#endif
#define MGC_ENABLED MGC_GNU
#elif defined(MGC_ISA_C) || defined(MGC_ISA_RV64) || defined(MGC_ISA_RV32) || defined(MGC_ISA_CORTEX_M0) \
    || defined(MGC_ISA_CORTEX_M3) || defined(MGC_ISA_CORTEX_M4) || defined(MGC_ISA_WASM32)
#define MGC_ENABLED 1
#else
#error "this header has no branch for the kernel's MGC_ISA_<NAME>"
#endif
#if !defined(MGC_HELIUM)
#define MGC_HELIUM 0
#endif
#if defined(MGC_ISA_NEON) || defined(MGC_ISA_NEON_V82) || defined(MGC_ISA_NEON_V86) || defined(MGC_ISA_NEON_ARMV7)
#define MGC_NEON 1
#else
#define MGC_NEON 0
#endif

#if MGC_ENABLED && defined(MEGCC_REPRODUCIBLE)
/* Returns a * b + c, rounded once, without an instruction for it. The product has 48 bits, so it is exact in double.
 * The sum is rounded to odd: between the two doubles around an inexact sum, it takes the one whose last bit is set. So
 * the second rounding sees on which side of a tie the sum lies. */
static MGC_INLINE float mgc_fused(float a, float b, float c)
{
    const double product = (double)a * (double)b, sum = product + (double)c;
    const double part = sum - product, lost = (product - (sum - part)) + ((double)c - part);
    union { double d; uint64_t u; } odd;
    odd.d = sum;
    if ((lost > 0.0 || lost < 0.0) && (odd.u & 1u) == 0u) {
        odd.u = (lost > 0.0) == (sum > 0.0) ? odd.u + 1u : odd.u - 1u;
    }
    return (float)odd.d;
}
#endif

/* MGC_ISA_FEATURES: what the compiler's attribute `target` enables for the ISA; not defined if nothing is to be enabled.
 * clang's feature names are those of version 14 and later. */
#if defined(MGC_ISA_AVX512_VNNI)
#define MGC_ISA_FEATURES "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma,f16c"
#elif defined(MGC_ISA_AVX512)
#define MGC_ISA_FEATURES "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c"
#elif defined(MGC_ISA_AVX2_VNNI) && defined(MGC_AVX512_ENCODING)
#define MGC_ISA_FEATURES "avx512f,avx512vl,avx512vnni,avx2,fma,f16c"
#elif defined(MGC_ISA_AVX2_VNNI)
#define MGC_ISA_FEATURES "avx2,fma,f16c,avxvnni"
#elif defined(MGC_ISA_AVX2)
#define MGC_ISA_FEATURES "avx2,fma,f16c"
#elif defined(MGC_ISA_NEON_V82) && defined(__clang__)
#define MGC_ISA_FEATURES "fullfp16,dotprod"
#elif defined(MGC_ISA_NEON_V86) && defined(__clang__)
#define MGC_ISA_FEATURES "fullfp16,dotprod,i8mm,bf16"
#elif defined(MGC_ISA_NEON_V82)
#define MGC_ISA_FEATURES "arch=armv8.2-a+fp16+dotprod"
#elif defined(MGC_ISA_NEON_V86)
#define MGC_ISA_FEATURES "arch=armv8.2-a+fp16+dotprod+i8mm+bf16"
#elif defined(MGC_ISA_RVV512)
#define MGC_ISA_FEATURES "arch=+v,+zvl512b"
#elif defined(MGC_ISA_RVV256)
#define MGC_ISA_FEATURES "arch=+v,+zvl256b"
#elif defined(MGC_ISA_RVV)
#define MGC_ISA_FEATURES "arch=+v"
#endif

#define MGC_PRAGMA(text) _Pragma(#text)
#define MGC_ENABLE_ISA_GCC(isa) MGC_PRAGMA(GCC target(isa))
#define MGC_ENABLE_ISA_CLANG(isa) MGC_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))

#if MGC_ENABLED && defined(MGC_ISA_FEATURES) && defined(__clang__)
MGC_ENABLE_ISA_CLANG(MGC_ISA_FEATURES)
#define MGC_END _Pragma("clang attribute pop")
#elif MGC_ENABLED && defined(MGC_ISA_FEATURES)
#pragma GCC push_options
MGC_ENABLE_ISA_GCC(MGC_ISA_FEATURES)
#define MGC_END _Pragma("GCC pop_options")
#elif !defined(MGC_END)
#define MGC_END
#endif

#if MGC_ENABLED
#if defined(MGC_ISA_AVX512)
#include "simd/avx512.h"
#elif defined(MGC_ISA_AVX2)
#include "simd/avx2.h"
#elif defined(MGC_ISA_SSE2)
#include "simd/sse2.h"
#elif MGC_NEON
#include "simd/neon.h"
#elif defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD)
#include "simd/simd128.h"
#elif defined(MGC_ISA_RVV)
#include "simd/rvv.h"
#elif defined(MGC_ISA_CORTEX_M55)
#include "simd/helium.h"
#else
#include "simd/scalar.h"
#endif

#if !defined(mgc_maximum)
static MGC_INLINE mgc_v mgc_minimum(mgc_v a, mgc_v b) { return mgc_or_nan(mgc_min(a, b), b); }
static MGC_INLINE mgc_v mgc_maximum(mgc_v a, mgc_v b) { return mgc_or_nan(mgc_max(a, b), b); }
#endif

/* a / d, where high + low is 1 / d so that two operations have the bits of the division (reciprocals.py). */
static MGC_INLINE mgc_v mgc_quotient(mgc_v a, mgc_v d, mgc_v high, mgc_v low)
{
#if defined(MGC_FUSED)
    (void)d;
    return mgc_fma(a, high, a * low);
#else
    (void)high;
    (void)low;
    return a / d;
#endif
}

/* MGC_ROW_SUMS: the vectors of partial sums along a row. */
#if defined(MEGCC_REPRODUCIBLE)
#define MGC_ROW_SUMS (16 / MGC_LANES)
#if MGC_GNU && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__) || defined(__riscv_flen))
static MGC_INLINE float mgc_fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
static MGC_INLINE float mgc_fma1(float a, float b, float c) { return mgc_fused(a, b, c); }
#endif
#else
#define MGC_ROW_SUMS 1
static MGC_INLINE float mgc_fma1(float a, float b, float c)
{
    const float product = a * b;
    return product + c;
}
#endif

/* The most elements that one chain of additions sums, a multiple of MGC_LANES. Longer rows are sums of such sums, which
 * limits rounding errors. */
#define MGC_CHAIN 512

typedef struct mgc_sums {
    mgc_v part[MGC_ROW_SUMS];   /* of the elements since the last multiple of MGC_CHAIN */
    mgc_v total[MGC_ROW_SUMS];  /* of those before */
} mgc_sums;

static MGC_INLINE mgc_sums mgc_sums_zero(void)
{
    mgc_sums sums;
    for (int32_t i = 0; i < MGC_ROW_SUMS; i++) {
        sums.part[i] = sums.total[i] = mgc_zero();
    }
    return sums;
}
/* Ends a chain: adds `part` to `total`. */
static MGC_INLINE void mgc_sums_settle(mgc_sums *sums)
{
    for (int32_t i = 0; i < MGC_ROW_SUMS; i++) {
        sums->total[i] = sums->total[i] + sums->part[i];
        sums->part[i] = mgc_zero();
    }
}
static MGC_INLINE void mgc_sums_add(mgc_sums *sums, int32_t k, mgc_v v)
{
    if (k % MGC_CHAIN == 0) {
        mgc_sums_settle(sums);
    }
    mgc_v *part = sums->part + k / MGC_LANES % MGC_ROW_SUMS;
    *part = *part + v;
}
/* Adds the squares of n elements, the row up to its last whole vector, to sums of zeros. */
static MGC_INLINE void mgc_sums_squares(mgc_sums *sums, const float *p, int32_t n)
{
    int32_t k = 0;
#if MGC_ROW_SUMS == 16
    /* Sixteen sums in registers; by an index of `part` each addition would load and store one. */
    for (; k + 16 <= n;) {
        const int32_t end = n - k < MGC_CHAIN ? k + (n - k) / 16 * 16 : k + MGC_CHAIN;
        float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f, e = 0.0f, f = 0.0f, g = 0.0f, h = 0.0f;
        float i = 0.0f, j = 0.0f, l = 0.0f, m = 0.0f, o = 0.0f, q = 0.0f, r = 0.0f, s = 0.0f;
        for (; k < end; k += 16) {
            const float *x = p + k;
            a += x[0] * x[0], b += x[1] * x[1], c += x[2] * x[2], d += x[3] * x[3];
            e += x[4] * x[4], f += x[5] * x[5], g += x[6] * x[6], h += x[7] * x[7];
            i += x[8] * x[8], j += x[9] * x[9], l += x[10] * x[10], m += x[11] * x[11];
            o += x[12] * x[12], q += x[13] * x[13], r += x[14] * x[14], s += x[15] * x[15];
        }
        const float parts[16] = { a, b, c, d, e, f, g, h, i, j, l, m, o, q, r, s };
        if (end > MGC_CHAIN) {
            mgc_sums_settle(sums);
        }
        for (int32_t part = 0; part < 16; part++) {
            sums->part[part] = parts[part];
        }
    }
#endif
    for (; k + MGC_LANES <= n; k += MGC_LANES) {
        const mgc_v v = mgc_load(p + k);
        mgc_sums_add(sums, k, v * v);
    }
}
/* Adds to `part` only. Its callers sum rows that are short, or call mgc_sums_settle themselves. */
static MGC_INLINE void mgc_sums_multiply(mgc_sums *sums, int32_t k, mgc_v a, mgc_v b)
{
    mgc_v *part = sums->part + k / MGC_LANES % MGC_ROW_SUMS;
    *part = mgc_fma(a, b, *part);
}
static MGC_INLINE float mgc_sums_total(mgc_sums *sums)
{
    mgc_sums_settle(sums);
#if defined(MEGCC_REPRODUCIBLE)
    float lane[16];
    for (int32_t i = 0; i < MGC_ROW_SUMS; i++) {
        mgc_store(lane + i * MGC_LANES, sums->total[i]);
    }
    for (int32_t n = 8; n > 0; n /= 2) {
        for (int32_t i = 0; i < n; i++) {
            lane[i] = lane[i] + lane[i + n];
        }
    }
    return lane[0];
#else
    return mgc_sum(sums->total[0]);
#endif
}
#endif

#endif
