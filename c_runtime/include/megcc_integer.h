/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of integers beside the floats of megcc_simd.h: the arithmetic of quantized networks. Kernels include this header;
 * it includes those of simd/ whose names end with _integer.h. Every function gives the same bits on every CPU. p is an
 * address, which need not be aligned; n is a number of elements.
 *
 * Vectors of int32
 *   mgc_i                          MGC_LANES int32
 *   mgc_iset1(s)                   all lanes
 *   mgc_iload_<type>(p)            lanes from elements of type i8, u8, i16, u16 or i32
 *   mgc_iload_<type>_n(p,n)        the first n lanes, 0 <= n <= MGC_LANES; touches exactly n elements, other lanes are 0
 *   mgc_istore_<type>(p,v)         saturates to the type; mgc_istore_<type>_n(p,v,n) stores the first n lanes
 *   mgc_istore4_<type>(p,q,r,s,a,b,c,d)    stores four vectors to four addresses, as i8 or u8
 *   mgc_iadd mgc_isub mgc_imul     wrap around
 *   mgc_imin mgc_imax
 *   mgc_isum(v)                    the sum of the lanes
 *   mgc_iquarter(v)                v / 4 for multiples of four
 *
 * Conversions of floats; rounding is to the nearest integer, ties to even
 *   mgc_to_float(v)                converts to floats, rounded to the nearest
 *   mgc_to_int(f)                  converts floats that are integers within int32
 *   mgc_nearest(f)                 rounds and saturates to int32; NaN gives 0
 *   mgc_nearest_within(f)          the same for floats within int32
 *   mgc_nearest_away(f)            rounds floats within int32, ties away from zero
 *   mgc_nearest_product(x,f)       mgc_nearest_within(mgc_to_float(x) * f), in integers if there is no FPU
 *   mgc_nearest_fused(x,f,a)       AVX2, AVX-512: mgc_to_float(x) * f + z, rounded once to the nearest integer, for an integer z
 *                                  and results below 2^22. a = 1.5 * 2^23 + z: at that size floats are integers, so one
 *                                  fused multiply-add rounds
 *   mgc_nearest_odd(x,c,f,a)       mgc_nearest_fused(|x| + c, f, a) with the sign of x, an odd function of x; it must be 0
 *                                  for x = 0
 *
 * Requantization: x times a fixed-point multiplier m * 2^-31, 0 <= m < 2^31, times 2^s. Vectors x, m and s
 *   mgc_rescale_fixed(x,m,s)       s in [-31, 30], rounded twice as in TFLite: MultiplyByQuantizedMultiplier of
 *                                  tensorflow/lite/kernels/internal/common.h
 *   mgc_rescale_positive(x,m,s)    the same if that is positive; otherwise any number that is not
 *   mgc_rescale_down(x,m,s)        mgc_rescale_fixed for s in [-31, -1]; mgc_rescale_down_positive(x,m,s) likewise
 *   mgc_rescale_once(x,m,s)        rounded once, ties up
 *   mgc_shift_down(x,s)            x / 2^s rounded, ties up, for s >= 1 and |x| < 2^31 - 2^(s - 1)
 *
 * Dot products of elements of x with int8 weights. x is packed first, in a <form> that the CPU's instructions multiply:
 *   i16                            elements minus their zero point z
 *   u8                             VNNI: elements of u8, and of i8 with their sign bits inverted
 *   i8                             NEON: elements of i8, and of u8 with their sign bits inverted
 *   twice                          AVX2 and AVX-512: bytes and inverted bytes (x86_integer.h)
 *   mgc_pack_<form>_<type>(to,p,n,z)   packs n elements of i8, u8 or i16; mgc_fill_<form>(to,n,v) packs n times v
 *   mgc_dot_x_<form>(p)            loads as many packed elements as one instruction multiplies, repeated in all lanes
 *   mgc_dot_w_<form>_i8(p)         loads as many weights for each lane; mgc_dot_w_i16_i16(p): int16 weights
 *   mgc_dot_<form>(c,x,w)          c plus, in each lane, the sum of the products of x and w
 *   mgc_interleave4_<type>(p,q,r,s)    packs, for mgc_dot_u8, one byte of each of four rows into each lane;
 *                                  mgc_interleave4_<type>_n(p,q,r,s,n) at least the first n lanes
 *   mgc_zero_point_sums_<form>(to,x,count,pixel,rows,row_stride,runs,run_stride,length,zero)
 *                                  to[i], 0 <= i < count: minus `zero` times the sum of a window, which has `rows` rows of
 *                                  `runs` runs of `length` packed elements, from x + i * pixel + row * row_stride +
 *                                  run * run_stride on. `zero` is the zero point of the weights
 *
 * Vectors of int16
 *   mgc_h                          MGC_INT16_LANES int16; results must fit
 *   mgc_hset1(s) mgc_hload_<type>(p) of i8, u8 or i16, mgc_hstore(p,v) mgc_hadd mgc_hsub
 */
#ifndef MEGCC_INTEGER_H
#define MEGCC_INTEGER_H

#include "megcc_simd.h"

#if MGC_ENABLED

#if MGC_LANES == 1
typedef int32_t mgc_i;

static MGC_INLINE mgc_i mgc_iset1(int32_t s) { return s; }
static MGC_INLINE mgc_i mgc_imin(mgc_i a, mgc_i b) { return a < b ? a : b; }
static MGC_INLINE mgc_i mgc_imax(mgc_i a, mgc_i b) { return a > b ? a : b; }
static MGC_INLINE mgc_v mgc_to_float(mgc_i v) { return (float)v; }
static MGC_INLINE mgc_i mgc_to_int(mgc_v v) { return (int32_t)v; }
#else
typedef int32_t mgc_i __attribute__((vector_size(4 * MGC_LANES)));

static MGC_INLINE mgc_i mgc_iset1(int32_t s) { return s - (mgc_i){ 0 }; }
/* mask: each lane is -1, for a, or 0, for b. */
static MGC_INLINE mgc_i mgc_iselect(mgc_i mask, mgc_i a, mgc_i b) { return (a & mask) | (b & ~mask); }
#if MGC_NEON || MGC_HELIUM
static MGC_INLINE mgc_i mgc_imin(mgc_i a, mgc_i b) { return (mgc_i)vminq_s32((int32x4_t)a, (int32x4_t)b); }
static MGC_INLINE mgc_i mgc_imax(mgc_i a, mgc_i b) { return (mgc_i)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
#elif defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD)
static MGC_INLINE mgc_i mgc_imin(mgc_i a, mgc_i b) { return (mgc_i)wasm_i32x4_min((v128_t)a, (v128_t)b); }
static MGC_INLINE mgc_i mgc_imax(mgc_i a, mgc_i b) { return (mgc_i)wasm_i32x4_max((v128_t)a, (v128_t)b); }
#elif defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_i mgc_imin(mgc_i a, mgc_i b) { return (mgc_i)_mm512_min_epi32((__m512i)a, (__m512i)b); }
static MGC_INLINE mgc_i mgc_imax(mgc_i a, mgc_i b) { return (mgc_i)_mm512_max_epi32((__m512i)a, (__m512i)b); }
#elif defined(MGC_ISA_AVX2)
static MGC_INLINE mgc_i mgc_imin(mgc_i a, mgc_i b) { return (mgc_i)_mm256_min_epi32((__m256i)a, (__m256i)b); }
static MGC_INLINE mgc_i mgc_imax(mgc_i a, mgc_i b) { return (mgc_i)_mm256_max_epi32((__m256i)a, (__m256i)b); }
#else
static MGC_INLINE mgc_i mgc_imin(mgc_i a, mgc_i b) { return mgc_iselect((mgc_i)(a < b), a, b); }
static MGC_INLINE mgc_i mgc_imax(mgc_i a, mgc_i b) { return mgc_iselect((mgc_i)(a > b), a, b); }
#endif
#if MGC_HELIUM
static MGC_INLINE mgc_v mgc_to_float(mgc_i v) { return vcvtq_f32_s32((int32x4_t)v); }
static MGC_INLINE mgc_i mgc_to_int(mgc_v v) { return (mgc_i)vcvtq_s32_f32(v); }
#else
static MGC_INLINE mgc_v mgc_to_float(mgc_i v) { return __builtin_convertvector(v, mgc_v); }
#if defined(MGC_ISA_RVV)
static MGC_INLINE mgc_i mgc_to_int(mgc_v v) { return mgc_round_to_int(v); }
#else
static MGC_INLINE mgc_i mgc_to_int(mgc_v v) { return __builtin_convertvector(v, mgc_i); }
#endif
#endif
#endif

static MGC_INLINE mgc_i mgc_iadd(mgc_i a, mgc_i b) { return (mgc_i)((mgc_u)a + (mgc_u)b); }
static MGC_INLINE mgc_i mgc_isub(mgc_i a, mgc_i b) { return (mgc_i)((mgc_u)a - (mgc_u)b); }
static MGC_INLINE mgc_i mgc_imul(mgc_i a, mgc_i b) { return (mgc_i)((mgc_u)a * (mgc_u)b); }

/* Limits shifts, which are tensor data: C does not define shifts by as many bits as an integer has, or more. */
static MGC_INLINE mgc_i mgc_shift(mgc_i shift) { return mgc_imin(mgc_imax(shift, mgc_iset1(-31)), mgc_iset1(30)); }

#if MGC_NEON
#include "simd/neon_integer.h"
#elif defined(MGC_ISA_SSE2) || defined(MGC_ISA_AVX2) || defined(MGC_ISA_AVX512)
#include "simd/x86_integer.h"
#elif defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD)
#include "simd/simd128_integer.h"
#else
#if MGC_HELIUM
/* Saturates, and NaN gives 0. */
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return (mgc_i)vcvtnq_s32_f32(v); }
static MGC_INLINE mgc_i mgc_nearest(mgc_v v) { return (mgc_i)vcvtnq_s32_f32(v); }
#else
#if defined(MGC_ISA_RVV)
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return mgc_to_int(v); }
#else
static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return mgc_to_int(mgc_round(v)); }
#endif

/* Comparisons with NaN are false. 2^31 - 128 is the largest float below 2^31; larger ones saturate. */
static MGC_INLINE mgc_i mgc_nearest(mgc_v v)
{
    const mgc_v low = mgc_set1(-2147483648.0f), high = mgc_set1(2147483520.0f);
    const mgc_v infinite = mgc_if_lt(mgc_zero(), v, v, mgc_zero()); /* infinity, or 0 for NaN */
    const mgc_v known = mgc_if_lt(v, mgc_set1(MGC_INF), v, infinite);
    const mgc_i most = mgc_iset1(INT32_MAX), whole = mgc_nearest_within(mgc_max(low, mgc_min(known, high)));
#if MGC_LANES == 1
    return known > high ? most : whole;
#else
    return mgc_iselect((mgc_i)(known > high), most, whole);
#endif
}
#endif

/* Converts elements of a type to lanes and back. */
#if MGC_LANES == 1
#define MGC_ELEMENTS(name, type) \
    static MGC_INLINE mgc_i mgc_iload_##name(const type *p) { return *p; } \
    static MGC_INLINE void mgc_istore_lanes_##name(type *p, mgc_i v) { *p = (type)v; } \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) { return n > 0 ? *p : 0; } \
    static MGC_INLINE void mgc_istore_lanes_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        if (n > 0) { \
            *p = (type)v; \
        } \
    }
#elif MGC_HELIUM
/* Loads widen and stores narrow; MGC_FIRST_…: predicated ones, for the first n lanes, in assembler because gcc 12 compiles
 * their intrinsics to several instructions. */
#define MGC_LOAD_i8(p) vldrbq_s32(p)
#define MGC_LOAD_u8(p) vldrbq_u32(p)
#define MGC_LOAD_i16(p) vldrhq_s32(p)
#define MGC_LOAD_u16(p) vldrhq_u32(p)
#define MGC_LOAD_i32(p) vldrwq_s32(p)
#define MGC_STORE_i8(p, v) vstrbq_s32(p, (int32x4_t)(v))
#define MGC_STORE_u8(p, v) vstrbq_u32(p, (uint32x4_t)(v))
#define MGC_STORE_i16(p, v) vstrhq_s32(p, (int32x4_t)(v))
#define MGC_STORE_u16(p, v) vstrhq_u32(p, (uint32x4_t)(v))
#define MGC_STORE_i32(p, v) vstrwq_s32(p, (int32x4_t)(v))
#define MGC_FIRST_LOAD_i8 "vldrbt.s32"
#define MGC_FIRST_LOAD_u8 "vldrbt.u32"
#define MGC_FIRST_LOAD_i16 "vldrht.s32"
#define MGC_FIRST_LOAD_u16 "vldrht.u32"
#define MGC_FIRST_LOAD_i32 "vldrwt.32"
#define MGC_FIRST_STORE_i8 "vstrbt.32"
#define MGC_FIRST_STORE_u8 "vstrbt.32"
#define MGC_FIRST_STORE_i16 "vstrht.32"
#define MGC_FIRST_STORE_u16 "vstrht.32"
#define MGC_FIRST_STORE_i32 "vstrwt.32"
#define MGC_ELEMENTS(name, type) \
    static MGC_INLINE mgc_i mgc_iload_##name(const type *p) { return (mgc_i)MGC_LOAD_##name(p); } \
    static MGC_INLINE void mgc_istore_lanes_##name(type *p, mgc_i v) { MGC_STORE_##name(p, v); } \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        mgc_i v; \
        __asm__ volatile("vctp.32 %1\n\tvpst\n\t" MGC_FIRST_LOAD_##name " %q0, [%2]" \
                         : "=w"(v) : "r"(n), "l"(p) : "p0", "memory"); \
        return v; \
    } \
    static MGC_INLINE void mgc_istore_lanes_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        __asm__ volatile("vctp.32 %1\n\tvpst\n\t" MGC_FIRST_STORE_##name " %q0, [%2]" \
                         : : "w"(v), "r"(n), "l"(p) : "p0", "memory"); \
    }
#else
#if defined(MGC_ISA_RVV) && __has_builtin(__builtin_masked_load)
#define MGC_FIRST_ELEMENTS(name, type) \
    typedef type mgc_masked_##name __attribute__((ext_vector_type(MGC_LANES))); \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        return __builtin_convertvector((mgc_lanes_##name)__builtin_masked_load(mgc_first(n), p, (mgc_masked_##name)0), mgc_i); \
    } \
    static MGC_INLINE void mgc_istore_lanes_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        __builtin_masked_store(mgc_first(n), (mgc_masked_##name)__builtin_convertvector(v, mgc_lanes_##name), p); \
    }
#else
#define MGC_FIRST_ELEMENTS(name, type) \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) \
    { \
        mgc_i v = { 0 }; \
        if (n >= MGC_LANES) { \
            return mgc_iload_##name(p); \
        } \
        for (int32_t i = 0; i < n; i++) { \
            v[i] = p[i]; \
        } \
        return v; \
    } \
    static MGC_INLINE void mgc_istore_lanes_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        if (n >= MGC_LANES) { \
            mgc_istore_lanes_##name(p, v); \
            return; \
        } \
        for (int32_t i = 0; i < n; i++) { \
            p[i] = (type)v[i]; \
        } \
    }
#endif
#define MGC_ELEMENTS(name, type) \
    typedef type mgc_lanes_##name __attribute__((vector_size(MGC_LANES * sizeof(type)))); \
    static MGC_INLINE mgc_i mgc_iload_##name(const type *p) \
    { \
        mgc_lanes_##name v; \
        memcpy(&v, p, sizeof v); \
        return __builtin_convertvector(v, mgc_i); \
    } \
    static MGC_INLINE void mgc_istore_lanes_##name(type *p, mgc_i v) \
    { \
        const mgc_lanes_##name narrow = __builtin_convertvector(v, mgc_lanes_##name); \
        memcpy(p, &narrow, sizeof narrow); \
    } \
    MGC_FIRST_ELEMENTS(name, type)
#endif
#define MGC_SATURATED(name, type, low, high) \
    static MGC_INLINE mgc_i mgc_isaturated_##name(mgc_i v) { return mgc_imin(mgc_imax(v, mgc_iset1(low)), mgc_iset1(high)); } \
    static MGC_INLINE void mgc_istore_##name(type *p, mgc_i v) { mgc_istore_lanes_##name(p, mgc_isaturated_##name(v)); } \
    static MGC_INLINE void mgc_istore_##name##_n(type *p, mgc_i v, int32_t n) \
    { \
        mgc_istore_lanes_##name##_n(p, mgc_isaturated_##name(v), n); \
    }
MGC_ELEMENTS(i8, int8_t)
MGC_ELEMENTS(u8, uint8_t)
MGC_ELEMENTS(i16, int16_t)
MGC_ELEMENTS(u16, uint16_t)
MGC_ELEMENTS(i32, int32_t)
MGC_SATURATED(i8, int8_t, -128, 127)
MGC_SATURATED(u8, uint8_t, 0, 255)
MGC_SATURATED(i16, int16_t, -32768, 32767)
MGC_SATURATED(u16, uint16_t, 0, 65535)
static MGC_INLINE void mgc_istore_i32(int32_t *p, mgc_i v) { mgc_istore_lanes_i32(p, v); }
static MGC_INLINE void mgc_istore_i32_n(int32_t *p, mgc_i v, int32_t n) { mgc_istore_lanes_i32_n(p, v, n); }

#endif

#if !defined(MGC_ISTORE4)
#define MGC_ISTORE4(name, type) \
    static MGC_INLINE void mgc_istore4_##name(type *p, type *q, type *r, type *s, mgc_i a, mgc_i b, mgc_i c, mgc_i d) \
    { \
        mgc_istore_##name(p, a); \
        mgc_istore_##name(q, b); \
        mgc_istore_##name(r, c); \
        mgc_istore_##name(s, d); \
    }
MGC_ISTORE4(i8, int8_t)
MGC_ISTORE4(u8, uint8_t)
#endif

#if !MGC_NEON
static MGC_INLINE mgc_i mgc_shift_down(mgc_i x, mgc_i shift)
{
    const mgc_i sum = mgc_iadd(x, (mgc_i)((mgc_u)mgc_iset1(1) << (mgc_u)(shift - 1)));
#if MGC_LANES == 1
    return sum < 0 ? ~(~sum >> shift) : sum >> shift;
#else
    return sum >> shift;
#endif
}
#endif

#if defined(MGC_ISA_CORTEX_M0) || defined(MGC_ISA_CORTEX_M3) || defined(MGC_ISA_RV32) || defined(MGC_ISA_RV64)
#include "simd/pairs_integer.h" /* has a mgc_doubling_high_lane of its own */
#endif

/* --- requantization; the headers above have their own functions for NEON, AVX2 and AVX-512 ------------------------- */

#if !MGC_NEON && !defined(MGC_ISA_AVX2) && !defined(MGC_ISA_AVX512)
#if !defined(MEGCC_PAIRS_INTEGER_H)
/* Returns the high half of the doubled product, floor((a * b + 2^30) / 2^31), for b >= 0. */
static MGC_INLINE int32_t mgc_doubling_high_lane(int32_t a, int32_t b)
{
    /* An arithmetic shift in C: 2^63 makes the sum positive, and is subtracted again after the shift. */
    const uint64_t sum = (uint64_t)((int64_t)a * b) + ((uint64_t)1 << 30) + ((uint64_t)1 << 63);
    return (int32_t)((int64_t)(sum >> 31) - INT64_C(4294967296));
}
#endif
#if MGC_LANES == 1
static MGC_INLINE mgc_i mgc_doubling_high(mgc_i a, mgc_i b) { return mgc_doubling_high_lane(a, b); }
#elif MGC_HELIUM
static MGC_INLINE mgc_i mgc_doubling_high(mgc_i a, mgc_i b) { return (mgc_i)vqrdmulhq_s32((int32x4_t)a, (int32x4_t)b); }
#elif defined(MGC_ISA_RVV)
static MGC_INLINE mgc_i mgc_doubling_high(mgc_i a, mgc_i b)
{
    /* One multiplication gives the high half, another the low half, of which two bits matter. */
    typedef int64_t wide __attribute__((vector_size(8 * MGC_LANES)));
    const mgc_i high = __builtin_convertvector(__builtin_convertvector(a, wide) * __builtin_convertvector(b, wide) >> 32, mgc_i);
    const mgc_u low = (mgc_u)a * (mgc_u)b;
    return (mgc_i)(((mgc_u)high << 1) + (low >> 31) + (low >> 30 & 1));
}
#elif !defined(MGC_ISA_SIMD128) && !defined(MGC_ISA_RELAXED_SIMD)
static MGC_INLINE mgc_i mgc_doubling_high(mgc_i a, mgc_i b)
{
    mgc_i high;
    for (int32_t i = 0; i < MGC_LANES; i++) {
        high[i] = mgc_doubling_high_lane(a[i], b[i]);
    }
    return high;
}
#endif

#if defined(MGC_ISA_RVV) && __clang_major__ >= 20
/* Each of the two roundings is one instruction (VSMUL, VSSRA), in the mode vxrm = 0: to the nearest, ties up. Subtracting 1
 * from negative numbers before the second one makes ties go away from 0. Assembler accepts clang's own vectors as operands
 * since version 20. MGC_E32 selects sixteen lanes of 32 bits in as many registers as they take. */
#if defined(MGC_ISA_RVV512)
#define MGC_E32 "vsetivli zero, 16, e32, m1, ta, ma\n\t"
#elif defined(MGC_ISA_RVV256)
#define MGC_E32 "vsetivli zero, 16, e32, m2, ta, ma\n\t"
#else
#define MGC_E32 "vsetivli zero, 16, e32, m4, ta, ma\n\t"
#endif
static MGC_INLINE mgc_i mgc_rescale_fixed(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const mgc_i zero = mgc_iset1(0), by = mgc_shift(shift), down = mgc_imin(by, zero);
    mgc_i v = (mgc_i)((mgc_u)x << (mgc_u)mgc_imax(by, zero)), sign;
    __asm__(MGC_E32 "csrwi vxrm, 0\n\tvsmul.vv %0, %0, %2\n\tvand.vv %1, %0, %3\n\tvsra.vi %1, %1, 31\n\t"
            "vsadd.vv %0, %0, %1\n\tvssra.vv %0, %0, %4"
            : "+&vr"(v), "=&vr"(sign) : "vr"(multiplier), "vr"(down), "vr"(zero - down) : "vl", "vtype", "vxrm", "vxsat");
    return v;
}
static MGC_INLINE mgc_i mgc_rescale_down(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    mgc_i sign;
    __asm__(MGC_E32 "csrwi vxrm, 0\n\tvsmul.vv %0, %0, %2\n\tvsra.vi %1, %0, 31\n\tvsadd.vv %0, %0, %1\n\tvssra.vv %0, %0, %3"
            : "+&vr"(x), "=&vr"(sign) : "vr"(multiplier), "vr"(mgc_iset1(0) - shift) : "vl", "vtype", "vxrm", "vxsat");
    return x;
}
static MGC_INLINE mgc_i mgc_rescale_down_positive(mgc_i x, mgc_i multiplier, mgc_i shift) { return mgc_rescale_down(x, multiplier, shift); }
#elif MGC_HELIUM
static MGC_INLINE mgc_i mgc_rescale_fixed(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const int32x4_t none = vdupq_n_s32(0), by = (int32x4_t)mgc_shift(shift);
    const int32x4_t right = vminq_s32(by, none), v = vqrdmulhq_s32(vshlq_s32((int32x4_t)x, vmaxq_s32(by, none)), (int32x4_t)multiplier);
    /* Ties go away from 0. */
    return (mgc_i)vrshlq_s32(vqaddq_s32(v, vshrq_n_s32(vandq_s32(v, right), 31)), right);
}
#else
static MGC_INLINE mgc_i mgc_rescale_fixed(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const mgc_i zero = mgc_iset1(0), by = mgc_shift(shift), left = mgc_imax(by, zero), right = mgc_imax(zero - by, zero);
    const mgc_i high = mgc_doubling_high((mgc_i)((mgc_u)x << (mgc_u)left), multiplier);
    const mgc_i mask = (mgc_i)(((mgc_u)mgc_iset1(1) << (mgc_u)right) - 1u), rest = high & mask;
#if MGC_LANES == 1
    /* C does not define right shifts of negative numbers; it does define those of their complement. */
    const mgc_i whole = high < 0 ? ~(~high >> right) : high >> right;
    return whole + (rest > (mask >> 1) + (high < 0 ? 1 : 0) ? 1 : 0);
#else
    /* A true comparison is -1. */
    const mgc_i half = (mgc_i)((mgc_u)mask >> 1) - (mgc_i)(high < zero);
    return (high >> right) - (mgc_i)(rest > half);
#endif
}
#endif
static MGC_INLINE mgc_i mgc_rescale_positive(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_fixed(x, multiplier, shift);
}

static MGC_INLINE int32_t mgc_rescale_once_lane(int32_t x, int32_t multiplier, int32_t shift)
{
    /* An arithmetic shift, as in mgc_doubling_high_lane. */
    const uint64_t top = (uint64_t)1 << 63, half = (uint64_t)1 << (30 - shift);
    const uint64_t sum = (uint64_t)((int64_t)x * multiplier) + half + top;
    return (int32_t)(uint32_t)((sum >> (31 - shift)) - (top >> (31 - shift)));
}
#if MGC_LANES == 1
static MGC_INLINE mgc_i mgc_rescale_once(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_once_lane(x, multiplier, mgc_shift(shift));
}
#else
static MGC_INLINE mgc_i mgc_rescale_once(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const mgc_i by = mgc_shift(shift);
#if MGC_HELIUM
    /* The high halves of the products have enough bits for rounding. */
    if (vmaxvq_s32(INT32_MIN, (int32x4_t)by) < -1) {
        return (mgc_i)vrshlq_s32(vmulhq_s32((int32x4_t)x, (int32x4_t)multiplier), vaddq_n_s32((int32x4_t)by, 1));
    }
#endif
#if defined(MGC_ISA_RVV)
    typedef int64_t wide __attribute__((vector_size(8 * MGC_LANES)));
    const wide down = __builtin_convertvector(mgc_iset1(30) - by, wide);
    const wide sum = __builtin_convertvector(x, wide) * __builtin_convertvector(multiplier, wide) + (((wide){ 0 } + 1) << down);
    return __builtin_convertvector(sum >> (down + 1), mgc_i);
#else
    mgc_i result;
    for (int32_t i = 0; i < MGC_LANES; i++) {
        result[i] = mgc_rescale_once_lane(x[i], multiplier[i], by[i]);
    }
    return result;
#endif
}
#endif
#endif

/* Adds the largest float below 1/2, with the sign of v, and truncates: 0.5 gives 1, the float below it 0. */
static MGC_INLINE mgc_i mgc_nearest_away(mgc_v v)
{
#if MGC_HELIUM || (MGC_NEON && defined(__aarch64__))
    return (mgc_i)vcvtaq_s32_f32(v);
#elif defined(MGC_ISA_RVV)
    /* mgc_to_int rounds, so the sum is truncated before. */
    const mgc_v magnitude = mgc_floor(mgc_abs(v) + mgc_set1(0.49999997f));
    return mgc_to_int(mgc_if_lt(v, mgc_zero(), mgc_neg(magnitude), magnitude));
#else
    const mgc_v half = mgc_float((mgc_bits(v) & 0x80000000u) | mgc_bits(mgc_set1(0.49999997f)));
    return mgc_to_int(v + half);
#endif
}

/* mgc_nearest_by_integers is mgc_nearest_product in integers, for |x| up to 2^24 and f from 2^-32 to 2^-1. If the product is
 * so near to a tie that the rounding of the float product decides, and for all other x and f, it computes in float. */
#if MGC_LANES == 1
#if MGC_GNU
__attribute__((noinline, unused))
#endif
static int32_t mgc_nearest_by_float(int32_t x, float f) { return mgc_nearest_within(mgc_to_float(x) * f); }
/* Returns a * m / 2^32, too small by less than 1, for a <= 2^24. */
static MGC_INLINE uint32_t mgc_upper(uint32_t a, uint32_t m)
{
#if defined(MGC_ISA_CORTEX_M0)
    const uint32_t low = a & 0xffffu, high = a >> 16, m_low = m & 0xffffu, m_high = m >> 16;
    const uint32_t first = high * m_low + (low * m_low >> 16), second = low * m_high;
    return high * m_high + (first >> 16) + (second >> 16) + (((first & 0xffffu) + (second & 0xffffu)) >> 16);
#else
    return (uint32_t)((uint64_t)a * m >> 32);
#endif
}
static MGC_INLINE int32_t mgc_nearest_by_integers(int32_t x, float f)
{
    const uint32_t bits = mgc_lane_bits(f), point = 126u - (bits >> 23), a = x < 0 ? 0u - (uint32_t)x : (uint32_t)x;
    if (point - 1u >= 31u || a > 1u << 24) {
        return mgc_nearest_by_float(x, f);
    }
    /* The magnitude plus a half, with `point` fractional bits. The sum is too small by less than one unit in the last place,
     * and the rounding error of a float product is less than that, too. So the result is not certain if the fractional bits
     * are all 0, or all 1: then those of sum + 1 are 1 or 0. */
    const uint32_t significand = bits << 8 | 0x80000000u, sum = mgc_upper(a, significand) + (1u << (point - 1u));
    const uint32_t fraction_plus_1 = (sum + 1u) << (32u - point), last_place = 1u << (32u - point);
    if (fraction_plus_1 <= last_place) {
        return mgc_nearest_by_float(x, f);
    }
    const int32_t whole = (int32_t)(sum >> point);
    return x < 0 ? -whole : whole;
}
#endif
#if MGC_LANES == 1 && ((defined(__arm__) && !defined(__ARM_FP)) || (defined(__riscv) && !defined(__riscv_flen)))
static MGC_INLINE mgc_i mgc_nearest_product(mgc_i x, mgc_v f) { return mgc_nearest_by_integers(x, f); }
#else
static MGC_INLINE mgc_i mgc_nearest_product(mgc_i x, mgc_v f) { return mgc_nearest_within(mgc_to_float(x) * f); }
#endif

#if defined(MGC_ISA_CORTEX_M55)
#include "simd/helium_integer.h"
#elif defined(MGC_ISA_CORTEX_M4)
#include "simd/dsp_integer.h"
#endif

#if defined(MEGCC_SCALAR_INTEGER_H) /* included by pairs_integer.h or dsp_integer.h */
/* The shift rounds to the nearest, ties up. A negative number minus 1 has its ties below 0 rounded down, away from 0. */
static MGC_INLINE int32_t mgc_rescale_down(int32_t x, int32_t m, int32_t s)
{
    const int32_t right = -mgc_imax(s, -31), high = mgc_doubling_high_lane(x, m);
    const int32_t biased = high + mgc_shift_right(high, 31);
    return mgc_shift_right(biased, right) + (mgc_shift_right(biased, right - 1) & 1);
}
static MGC_INLINE int32_t mgc_rescale_down_positive(int32_t x, int32_t m, int32_t s) { return mgc_rescale_down(x, m, s); }
#elif !defined(MGC_ISA_CORTEX_M55) && !defined(MGC_ISA_AVX2) && !defined(MGC_ISA_AVX512) && !defined(MGC_E32)
static MGC_INLINE mgc_i mgc_rescale_down(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_fixed(x, multiplier, shift);
}
static MGC_INLINE mgc_i mgc_rescale_down_positive(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    return mgc_rescale_positive(x, multiplier, shift);
}
#endif

/* --- vectors of int16, and the packed form i16 ------------------------------------------------------------------ */

#if MGC_LANES == 1
#define MGC_INT16_LANES 1
typedef int16_t mgc_h;
static MGC_INLINE mgc_h mgc_hset1(int32_t s) { return (mgc_h)s; }
static MGC_INLINE mgc_h mgc_hload_i8(const int8_t *p) { return *p; }
static MGC_INLINE mgc_h mgc_hload_u8(const uint8_t *p) { return *p; }
static MGC_INLINE mgc_h mgc_hload_i16(const int16_t *p) { return *p; }
static MGC_INLINE void mgc_hstore(int16_t *p, mgc_h v) { *p = v; }
static MGC_INLINE mgc_i mgc_iquarter(mgc_i v) { return v / 4; }
#else
#define MGC_INT16_LANES 8
typedef int16_t mgc_h __attribute__((vector_size(16)));
static MGC_INLINE mgc_h mgc_hset1(int32_t s) { return (int16_t)s - (mgc_h){ 0 }; }
static MGC_INLINE mgc_h mgc_hload_i16(const int16_t *p)
{
    mgc_h v;
    memcpy(&v, p, sizeof v);
    return v;
}
static MGC_INLINE void mgc_hstore(int16_t *p, mgc_h v) { memcpy(p, &v, sizeof v); }
static MGC_INLINE mgc_i mgc_iquarter(mgc_i v) { return v >> 2; }
/* gcc 12 compiles the general conversion to scalar code. */
#if MGC_HELIUM
static MGC_INLINE mgc_h mgc_hload_i8(const int8_t *p) { return (mgc_h)vldrbq_s16(p); }
static MGC_INLINE mgc_h mgc_hload_u8(const uint8_t *p) { return (mgc_h)vldrbq_u16(p); }
#elif MGC_NEON
static MGC_INLINE mgc_h mgc_hload_i8(const int8_t *p) { return (mgc_h)vmovl_s8(vld1_s8(p)); }
static MGC_INLINE mgc_h mgc_hload_u8(const uint8_t *p) { return (mgc_h)vmovl_u8(vld1_u8(p)); }
#elif defined(MGC_ISA_SSE2) || defined(MGC_ISA_AVX2) || defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_h mgc_hload_i8(const int8_t *p)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (mgc_h)_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
static MGC_INLINE mgc_h mgc_hload_u8(const uint8_t *p)
{
    return (mgc_h)_mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)(const void *)p), _mm_setzero_si128());
}
#else
#define MGC_WIDENED(name, type) \
    static MGC_INLINE mgc_h mgc_hload_##name(const type *p) \
    { \
        type narrow __attribute__((vector_size(8))); \
        memcpy(&narrow, p, sizeof narrow); \
        return __builtin_convertvector(narrow, mgc_h); \
    }
MGC_WIDENED(i8, int8_t)
MGC_WIDENED(u8, uint8_t)
#endif
#endif
static MGC_INLINE mgc_h mgc_hadd(mgc_h a, mgc_h b) { return (mgc_h)(a + b); }
static MGC_INLINE mgc_h mgc_hsub(mgc_h a, mgc_h b) { return (mgc_h)(a - b); }

#define MGC_PACK(name, type) \
    static MGC_INLINE void mgc_pack_i16_##name(int16_t *to, const type *from, int32_t n, int32_t zero) \
    { \
        const mgc_h zeros = mgc_hset1(zero); \
        int32_t i = 0; \
        for (; i + MGC_INT16_LANES <= n; i += MGC_INT16_LANES) { \
            mgc_hstore(to + i, mgc_hsub(mgc_hload_##name(from + i), zeros)); \
        } \
        for (; i < n; i++) { \
            to[i] = (int16_t)((int32_t)from[i] - zero); \
        } \
    }
MGC_PACK(i8, int8_t)
MGC_PACK(u8, uint8_t)
MGC_PACK(i16, int16_t)

static MGC_INLINE void mgc_fill_i16(int16_t *to, int32_t n, int32_t value)
{
    int32_t i = 0;
    for (; i + MGC_INT16_LANES <= n; i += MGC_INT16_LANES) {
        mgc_hstore(to + i, mgc_hset1(value));
    }
    for (; i < n; i++) {
        to[i] = (int16_t)value;
    }
}

/* --- sums of lanes and of elements ----------------------------------------------------------------------------- */

#if MGC_LANES == 1
static MGC_INLINE int32_t mgc_isum(mgc_i v) { return v; }
#elif MGC_HELIUM
static MGC_INLINE int32_t mgc_isum(mgc_i v) { return vaddvq_s32((int32x4_t)v); }
#elif defined(MGC_ISA_AVX512)
static MGC_INLINE int32_t mgc_isum(mgc_i v) { return _mm512_reduce_add_epi32((__m512i)v); }
#else
static MGC_INLINE int32_t mgc_isum(mgc_i v)
{
    uint32_t sum = 0;
    for (int32_t i = 0; i < MGC_LANES; i++) {
        sum += (uint32_t)v[i];
    }
    return (int32_t)sum;
}
#endif
/* mgc_total_<form>(c,p,n): adds n packed elements to c, each to some lane; only the sum of all lanes matters. */
#if defined(MGC_ISA_SSE2) || (defined(MGC_ISA_AVX2) && !defined(MGC_ISA_AVX512))
static MGC_INLINE mgc_i mgc_total_i16(mgc_i c, const int16_t *p, int32_t n)
{
    /* The tail: the last eight elements, with zeros as factors of those that are in the sums already. */
    static const int16_t last[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 };
    __m128i total = _mm_setzero_si128();
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        total = _mm_add_epi32(total, _mm_madd_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + i)), _mm_set1_epi16(1)));
    }
    if (i < n && n >= 8) {
        total = _mm_add_epi32(total, _mm_madd_epi16(_mm_loadu_si128((const __m128i *)(const void *)(p + n - 8)),
                                                    _mm_loadu_si128((const __m128i *)(const void *)(last + n - i))));
        i = n;
    }
    for (; i < n; i++) {
        total = _mm_add_epi32(total, _mm_cvtsi32_si128(p[i]));
    }
#if defined(MGC_ISA_AVX2)
    return mgc_iadd(c, (mgc_i)_mm256_inserti128_si256(_mm256_setzero_si256(), total, 0));
#else
    return mgc_iadd(c, (mgc_i)total);
#endif
}
#else
static MGC_INLINE mgc_i mgc_total_i16(mgc_i c, const int16_t *p, int32_t n)
{
    int32_t i = 0;
    for (; i + MGC_LANES <= n; i += MGC_LANES) {
        c = mgc_iadd(c, mgc_iload_i16(p + i));
    }
    return i < n ? mgc_iadd(c, mgc_iload_i16_n(p + i, n - i)) : c;
}
#endif

/* function: the name to define; name: the packed form; type: the type of its elements. */
#define MGC_ZERO_POINT_SUMS(function, name, type) \
    static MGC_INLINE void function(int32_t *to, const type *x, int32_t count, ptrdiff_t pixel, int32_t rows, \
        ptrdiff_t row_stride, int32_t runs, ptrdiff_t run_stride, int32_t length, int32_t zero) \
    { \
        for (int32_t i = 0; i < count; i++) { \
            mgc_i total = mgc_iset1(0); \
            for (int32_t j = 0; j < rows * runs; j++) { \
                total = mgc_total_##name(total, x + i * pixel + j / runs * row_stride + j % runs * run_stride, length); \
            } \
            to[i] = (int32_t)(0u - (uint32_t)mgc_isum(total) * (uint32_t)zero); \
        } \
    }
MGC_ZERO_POINT_SUMS(mgc_zero_point_sums_i16, i16, int16_t)
#if MGC_NEON
MGC_ZERO_POINT_SUMS(mgc_zero_point_sums_i8, i8, int8_t)
#endif
#if defined(MGC_ISA_AVX2) || defined(MGC_ISA_AVX512)
MGC_ZERO_POINT_SUMS(mgc_zero_point_sums_twice, twice, uint16_t)
#endif

/* --- dot products ---------------------------------------------------------------------------------------------- */

/* An instruction of AVX-VNNI; with MGC_AVX512_ENCODING in its AVX-512 encoding, for tests on CPUs with only that. */
#if defined(MGC_AVX512_ENCODING)
#define MGC_AVX_VNNI(name) name " %2, %1, %0"
#else
#define MGC_AVX_VNNI(name) "%{vex%} " name " %2, %1, %0"
#endif

/* Makes the compiler load again what it has loaded through p. If the windows of a tile's pixels overlap, several iterations
 * load the same element. On x86, one instruction loads it into all lanes; keeping it in a register between the iterations
 * would take two more. */
#if defined(__x86_64__) && defined(__GNUC__)
#define MGC_LOAD_AGAIN(p) __asm__("" : "+r"(p))
#else
#define MGC_LOAD_AGAIN(p) ((void)(p))
#endif

/* Products of int16. On x86 and WebAssembly, an instruction adds two in each lane. */
#if defined(MGC_ISA_AVX512) || defined(MGC_ISA_AVX2) || defined(MGC_ISA_SSE2) || defined(MGC_ISA_SIMD128) \
    || defined(MGC_ISA_RELAXED_SIMD)
static MGC_INLINE mgc_i mgc_dot_x_i16(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return mgc_iset1(pair);
}
static MGC_INLINE mgc_i mgc_dot_w_i16_i16(const int16_t *p)
{
    mgc_i v;
    memcpy(&v, p, sizeof v);
    return v;
}
#if defined(MGC_ISA_AVX512)
static MGC_INLINE mgc_i mgc_dot_w_i16_i8(const int8_t *p)
{
    return (mgc_i)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static MGC_INLINE mgc_i mgc_dot_i16(mgc_i c, mgc_i x, mgc_i w)
{
#if defined(MGC_ISA_AVX512_VNNI) && defined(__clang__)
    return (mgc_i)_mm512_dpwssd_epi32((__m512i)c, (__m512i)x, (__m512i)w);
#elif defined(MGC_ISA_AVX512_VNNI)
    __asm__("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(x), "v"(w));
    return c;
#else
    return (mgc_i)_mm512_add_epi32((__m512i)c, _mm512_madd_epi16((__m512i)x, (__m512i)w));
#endif
}
#elif defined(MGC_ISA_AVX2)
static MGC_INLINE mgc_i mgc_dot_w_i16_i8(const int8_t *p)
{
    return (mgc_i)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static MGC_INLINE mgc_i mgc_dot_i16(mgc_i c, mgc_i x, mgc_i w)
{
#if defined(MGC_ISA_AVX2_VNNI)
    __asm__(MGC_AVX_VNNI("vpdpwssd") : "+x"(c) : "x"(x), "x"(w));
    return c;
#else
    return (mgc_i)_mm256_add_epi32((__m256i)c, _mm256_madd_epi16((__m256i)x, (__m256i)w));
#endif
}
#elif defined(MGC_ISA_SIMD128) || defined(MGC_ISA_RELAXED_SIMD)
static MGC_INLINE mgc_i mgc_dot_w_i16_i8(const int8_t *p) { return (mgc_i)wasm_i16x8_load8x8(p); }
static MGC_INLINE mgc_i mgc_dot_i16(mgc_i c, mgc_i x, mgc_i w)
{
    return (mgc_i)wasm_i32x4_add((v128_t)c, wasm_i32x4_dot_i16x8((v128_t)x, (v128_t)w));
}
#else
static MGC_INLINE mgc_i mgc_dot_w_i16_i8(const int8_t *p)
{
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (mgc_i)_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
static MGC_INLINE mgc_i mgc_dot_i16(mgc_i c, mgc_i x, mgc_i w)
{
    return (mgc_i)_mm_add_epi32((__m128i)c, _mm_madd_epi16((__m128i)x, (__m128i)w));
}
#endif
#else
static MGC_INLINE mgc_i mgc_dot_x_i16(const int16_t *p) { return mgc_iset1(*p); }
static MGC_INLINE mgc_i mgc_dot_w_i16_i8(const int8_t *p) { return mgc_iload_i8(p); }
static MGC_INLINE mgc_i mgc_dot_w_i16_i16(const int16_t *p) { return mgc_iload_i16(p); }
static MGC_INLINE mgc_i mgc_dot_i16(mgc_i c, mgc_i x, mgc_i w) { return mgc_iadd(c, mgc_imul(x, w)); }
#endif

#if defined(MGC_ISA_AVX512_VNNI) || defined(MGC_ISA_AVX2_VNNI)
#include "simd/vnni_integer.h"
#endif

#endif
#endif
