/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h in plain C: one lane. Also the meaning of the other headers.
 */
#ifndef MEGCC_SIMD_SCALAR_H
#define MEGCC_SIMD_SCALAR_H

#define MGC_LANES 1

typedef float mgc_v;
typedef uint32_t mgc_u;

static MGC_INLINE mgc_v mgc_load(const float *p) { return *p; }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { *p = v; }
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n) { return n > 0 ? *p : 0.0f; }
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    if (n > 0)
        *p = v;
}
static MGC_INLINE mgc_v mgc_set1(float s) { return s; }
static MGC_INLINE mgc_v mgc_zero(void) { return 0.0f; }

static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c)
{
#if MGC_GNU && (defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__) || defined(__riscv_flen))
    return __builtin_fmaf(a, b, c);
#elif defined(MEGCC_FUSED)
    return mgc_fused(a, b, c);
#else
    const float product = a * b;
    return product + c;
#endif
}

static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return b < a ? b : a; }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return b > a ? b : a; }

static MGC_INLINE mgc_u mgc_bits(mgc_v v)
{
    union { float f; uint32_t u; } pun;
    pun.f = v;
    return pun.u;
}
static MGC_INLINE mgc_v mgc_float(mgc_u u)
{
    union { float f; uint32_t u; } pun;
    pun.u = u;
    return pun.f;
}

static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return mgc_float(mgc_bits(v) & 0x7fffffffu); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return -v; }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return 1.0f / v; }

static MGC_INLINE mgc_v mgc_sqrt(mgc_v v)
{
#if MGC_GNU && defined(__SSE2__)
    __asm__("sqrtss %1, %0" : "=x"(v) : "x"(v));
    return v;
#elif MGC_GNU && defined(__aarch64__)
    __asm__("fsqrt %s0, %s1" : "=w"(v) : "w"(v));
    return v;
#elif MGC_GNU && defined(__riscv_fsqrt)
    __asm__("fsqrt.s %0, %1" : "=f"(v) : "f"(v));
    return v;
#elif MGC_GNU && defined(__ARM_FP) && (__ARM_FP & 4)
    __asm__("vsqrt.f32 %0, %1" : "=t"(v) : "t"(v));
    return v;
#elif MGC_GNU && defined(__wasm__)
    return __builtin_sqrtf(v);
#else
    if (!(v > 0.0f) || v == MGC_INF)
        return v < 0.0f ? MGC_NAN : v;
    const int tiny = v < 1.17549435e-38f;
    const uint32_t bits = mgc_bits(tiny ? v * 16777216.0f : v), odd = ((bits >> 23) + 1u) & 1u;
    /* The root of an integer, bit by bit: 24 bits and one more, which says how to round. A tie is none: its square would be
     * odd, and the integer ends with zeros. */
    uint64_t rest = (uint64_t)((bits & 0x7fffffu) | 0x800000u) << (25u + odd), root = 0;
    for (uint64_t bit = (uint64_t)1 << 48; bit != 0; bit >>= 2) {
        const uint64_t next = root + bit;
        root >>= 1;
        if (rest >= next) {
            rest -= next;
            root += bit;
        }
    }
    const uint32_t mantissa = (uint32_t)((root + 1u) >> 1) - 0x800000u, exponent = ((bits >> 23) - 127u - odd + 254u) / 2u;
    const float result = mgc_float((exponent << 23) + mantissa);
    return tiny ? result * (1.0f / 4096.0f) : result;
#endif
}

#if MGC_GNU && defined(__wasm__)
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return __builtin_rintf(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return __builtin_floorf(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return __builtin_ceilf(v); }
#else
/* Adding 2^23 leaves no bit for a fraction; from there on every float is integral. */
static MGC_INLINE mgc_v mgc_round(mgc_v v)
{
    const mgc_u sign = mgc_bits(v) & 0x80000000u;
    const float magnitude = mgc_abs(v);
    if (!(magnitude < 8388608.0f))
        return v;
    const float shifted = magnitude + 8388608.0f;
    return mgc_float(mgc_bits(shifted - 8388608.0f) | sign);
}
static MGC_INLINE mgc_v mgc_floor(mgc_v v)
{
    const float r = mgc_round(v);
    return r > v ? r - 1.0f : r;
}
static MGC_INLINE mgc_v mgc_ceil(mgc_v v)
{
    const float r = mgc_round(v);
    return r < v ? mgc_float(mgc_bits(r + 1.0f) | (mgc_bits(v) & 0x80000000u)) : r;
}
#endif

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b) { (void)b; return a; }
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b) { (void)a; return b; }
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b) { (void)b; return a; }
static MGC_INLINE float mgc_sum(mgc_v v) { return v; }
static MGC_INLINE float mgc_hmax(mgc_v v) { return v; }
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y) { return a < b ? x : y; }

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* In two factors, each a normal power of two. The bits of 1.5 * 2^23 + n end with those of n. */
    const mgc_u whole = mgc_bits(n + 12582912.0f) - 0x4b400000u;
    const mgc_u half = mgc_bits(mgc_floor(n * 0.5f) + 12582912.0f) - 0x4b400000u;
    return v * mgc_float((half + 127u) << 23) * mgc_float((whole - half + 127u) << 23);
}

#endif
