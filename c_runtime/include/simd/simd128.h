/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for WebAssembly's 128-bit vectors: 4 lanes. Products and sums are rounded separately, except with
 * relaxed SIMD, where engines fuse them if the CPU can.
 */
#ifndef MEGCC_SIMD_SIMD128_H
#define MEGCC_SIMD_SIMD128_H

#define MGC_LANES 4
/* Before a loop that must not be unrolled: V8 loads all operands of straight-line code before it computes, and those of
   two steps would not fit in registers. */
#define MGC_STEP_BY_STEP _Pragma("clang loop unroll(disable)")

typedef float mgc_v __attribute__((vector_size(16)));
typedef uint32_t mgc_u __attribute__((vector_size(16)));

static MGC_INLINE mgc_v mgc_load(const float *p) { return (mgc_v)wasm_v128_load(p); }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { wasm_v128_store(p, (v128_t)v); }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    switch (n) {
    case 0: return (mgc_v){ 0 };
    case 1: return (mgc_v)wasm_v128_load32_zero(p);
    case 2: return (mgc_v)wasm_v128_load64_zero(p);
    case 3: return (mgc_v)wasm_v128_load32_lane(p + 2, wasm_v128_load64_zero(p), 2);
    default: return (mgc_v)wasm_v128_load(p);
    }
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    if (n >= 4) {
        wasm_v128_store(p, (v128_t)v);
        return;
    }
    if (n > 0) {
        wasm_v128_store32_lane(p, (v128_t)v, 0);
    }
    if (n > 1) {
        wasm_v128_store32_lane(p + 1, (v128_t)v, 1);
    }
    if (n > 2) {
        wasm_v128_store32_lane(p + 2, (v128_t)v, 2);
    }
}
static MGC_INLINE mgc_v mgc_set1(float s) { return (mgc_v)wasm_f32x4_splat(s); }
static MGC_INLINE mgc_v mgc_zero(void) { return (mgc_v){ 0 }; }
#if defined(MEGCC_REPRODUCIBLE)
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c)
{
    mgc_v v = c;
    for (int i = 0; i < 4; i++) {
        v[i] = mgc_fused(a[i], b[i], c[i]);
    }
    return v;
}
#elif defined(MGC_ISA_RELAXED_SIMD)
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c)
{
    return (mgc_v)wasm_f32x4_relaxed_madd((v128_t)a, (v128_t)b, (v128_t)c);
}
#else
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return a * b + c; }
#endif
/* Computes b < a ? b : a, one instruction on x86: a NaN in `a` is kept. */
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return (mgc_v)wasm_f32x4_pmin((v128_t)a, (v128_t)b); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return (mgc_v)wasm_f32x4_pmax((v128_t)a, (v128_t)b); }
static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b) { return (mgc_v)wasm_v128_or((v128_t)v, wasm_f32x4_ne((v128_t)b, (v128_t)b)); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return (mgc_u)v; }
static MGC_INLINE mgc_v mgc_float(mgc_u u) { return (mgc_v)u; }
static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return (mgc_v)wasm_f32x4_abs((v128_t)v); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return (mgc_v)wasm_f32x4_neg((v128_t)v); }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return mgc_set1(1.0f) / v; }
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return (mgc_v)wasm_f32x4_sqrt((v128_t)v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return (mgc_v)wasm_f32x4_nearest((v128_t)v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return (mgc_v)wasm_f32x4_floor((v128_t)v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return (mgc_v)wasm_f32x4_ceil((v128_t)v); }

static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y)
{
    return (mgc_v)wasm_v128_bitselect((v128_t)x, (v128_t)y, wasm_f32x4_lt((v128_t)a, (v128_t)b));
}

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }

static MGC_INLINE float mgc_sum(mgc_v v)
{
    const mgc_v pairs = v + __builtin_shufflevector(v, v, 2, 3, 2, 3);
    return pairs[0] + pairs[1];
}
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    const mgc_v pairs = mgc_max(v, __builtin_shufflevector(v, v, 2, 3, 2, 3));
    return pairs[1] > pairs[0] ? pairs[1] : pairs[0];
}

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. */
    const v128_t whole = wasm_i32x4_trunc_sat_f32x4((v128_t)n), half = wasm_i32x4_shr(whole, 1);
    const v128_t bias = wasm_i32x4_splat(127);
    const v128_t first = wasm_i32x4_shl(wasm_i32x4_add(half, bias), 23);
    const v128_t second = wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_sub(whole, half), bias), 23);
    return v * (mgc_v)first * (mgc_v)second;
}

#endif
