/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_integer.h for WebAssembly's 128-bit vectors: saturating conversions and stores, and 64-bit products.
 */
#ifndef MEGCC_SIMD_SIMD128_INTEGER_H
#define MEGCC_SIMD_SIMD128_INTEGER_H

/* The conversion saturates, and NaN gives 0. */
static MGC_INLINE mgc_i mgc_nearest(mgc_v v) { return (mgc_i)wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest((v128_t)v)); }
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return mgc_nearest(v); }

/* Loads and stores of the first n elements of a type, one by one. */
#define MGC_ELEMENTS(name, type) \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            return mgc_iload_##name(p); \
        } \
        mgc_i v = { 0 }; \
        if (n > 0) { \
            v[0] = p[0]; \
        } \
        if (n > 1) { \
            v[1] = p[1]; \
        } \
        if (n > 2) { \
            v[2] = p[2]; \
        } \
        return v; \
    } \
    static MGC_INLINE void mgc_istore_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            mgc_istore_##name(p, v); \
            return; \
        } \
        type lanes[MGC_LANES]; \
        mgc_istore_##name(lanes, v); \
        for (int32_t i = 0; i < n; i++) { \
            p[i] = lanes[i]; \
        } \
    }
static MGC_INLINE mgc_i mgc_iload_i8(const int8_t *p)
{
    return (mgc_i)wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p)));
}
static MGC_INLINE mgc_i mgc_iload_u8(const uint8_t *p)
{
    return (mgc_i)wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
}
static MGC_INLINE mgc_i mgc_iload_i16(const int16_t *p) { return (mgc_i)wasm_i32x4_load16x4(p); }
static MGC_INLINE mgc_i mgc_iload_u16(const uint16_t *p) { return (mgc_i)wasm_u32x4_load16x4(p); }
static MGC_INLINE mgc_i mgc_iload_i32(const int32_t *p) { return (mgc_i)wasm_v128_load(p); }
/* Narrows int32 to int16 to 8 bits: saturating twice gives the same as once. */
static MGC_INLINE void mgc_istore_i8(int8_t *p, mgc_i v)
{
    const v128_t words = wasm_i16x8_narrow_i32x4((v128_t)v, (v128_t)v);
    wasm_v128_store32_lane(p, wasm_i8x16_narrow_i16x8(words, words), 0);
}
static MGC_INLINE void mgc_istore_u8(uint8_t *p, mgc_i v)
{
    const v128_t words = wasm_i16x8_narrow_i32x4((v128_t)v, (v128_t)v);
    wasm_v128_store32_lane(p, wasm_u8x16_narrow_i16x8(words, words), 0);
}
static MGC_INLINE void mgc_istore_i16(int16_t *p, mgc_i v)
{
    wasm_v128_store64_lane(p, wasm_i16x8_narrow_i32x4((v128_t)v, (v128_t)v), 0);
}
static MGC_INLINE void mgc_istore_u16(uint16_t *p, mgc_i v)
{
    wasm_v128_store64_lane(p, wasm_u16x8_narrow_i32x4((v128_t)v, (v128_t)v), 0);
}
static MGC_INLINE void mgc_istore_i32(int32_t *p, mgc_i v) { wasm_v128_store(p, (v128_t)v); }
MGC_ELEMENTS(i8, int8_t)
MGC_ELEMENTS(u8, uint8_t)
MGC_ELEMENTS(i16, int16_t)
MGC_ELEMENTS(u16, uint16_t)
MGC_ELEMENTS(i32, int32_t)

/* Returns the high half of the doubled product, floor((a * b + 2^30) / 2^31), for b >= 0. */
static MGC_INLINE mgc_i mgc_doubling_high(mgc_i a, mgc_i b)
{
    /* The shifts are unsigned: their lower 32 bits, which the shuffle takes, are those of signed shifts. */
    const v128_t first = wasm_i64x2_const_splat(1 << 30);
    const v128_t low = wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4((v128_t)a, (v128_t)b), first);
    const v128_t high = wasm_i64x2_add(wasm_i64x2_extmul_high_i32x4((v128_t)a, (v128_t)b), first);
    return (mgc_i)wasm_i32x4_shuffle(wasm_u64x2_shr(low, 31), wasm_u64x2_shr(high, 31), 0, 2, 4, 6);
}

#endif
