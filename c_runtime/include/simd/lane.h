/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of one float without the C library, for ISAs that have no instructions for them.
 */
#ifndef MEGCC_SIMD_LANE_H
#define MEGCC_SIMD_LANE_H

static MGC_INLINE uint32_t mgc_lane_bits(float v)
{
    union { float f; uint32_t u; } pun;
    pun.f = v;
    return pun.u;
}
static MGC_INLINE float mgc_lane_float(uint32_t u)
{
    union { float f; uint32_t u; } pun;
    pun.u = u;
    return pun.f;
}

static MGC_INLINE float mgc_lane_sqrt(float v)
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
    if (!(v > 0.0f) || v == MGC_INF) {
        return v < 0.0f ? MGC_NAN : v;
    }
    const bool tiny = v < 1.17549435e-38f;
    const uint32_t bits = mgc_lane_bits(tiny ? v * 16777216.0f : v), biased = bits >> 23; /* subnormal: times 2^24 */
    const uint32_t odd = (biased - 127u) & 1u;
    /* Computes the square root of an integer bit by bit: 24 bits and one more for rounding. There are no ties: the
     * square of a tie would be odd, but the integer ends with zeros. */
    const uint32_t significand = (bits & 0x7fffffu) | 0x800000u;
    uint64_t rest = (uint64_t)significand << (25u + odd), root = 0;
    for (uint64_t bit = (uint64_t)1 << 48; bit != 0u; bit >>= 2) {
        const uint64_t next = root + bit;
        root >>= 1;
        if (rest >= next) {
            rest -= next;
            root += bit;
        }
    }
    /* (biased - 127 - odd) / 2 + 127, in numbers that are never negative. */
    const uint32_t mantissa = (uint32_t)((root + 1u) >> 1) - 0x800000u, exponent = (biased + 127u - odd) / 2u;
    const float result = mgc_lane_float((exponent << 23) + mantissa);
    return tiny ? result * (1.0f / 4096.0f) : result;
#endif
}

#if MGC_GNU && defined(__wasm__)
static MGC_INLINE float mgc_lane_round(float v) { return __builtin_rintf(v); }
static MGC_INLINE float mgc_lane_floor(float v) { return __builtin_floorf(v); }
static MGC_INLINE float mgc_lane_ceil(float v) { return __builtin_ceilf(v); }
#else
/* Adding 2^23 rounds to an integer; larger floats are integers anyway. The contract is for Frama-C, which does not follow
 * values through bits of floats. */
/*@ assigns \result \from v;
    behavior finite:
      assumes \is_finite(v);
      ensures \is_finite(\result) && v - 0.5 <= \result <= v + 0.5; */
static MGC_INLINE float mgc_lane_round(float v)
{
    const uint32_t sign = mgc_lane_bits(v) & 0x80000000u;
    const float magnitude = mgc_lane_float(mgc_lane_bits(v) & 0x7fffffffu);
    if (!(magnitude < 8388608.0f)) {
        return v;
    }
    const float shifted = magnitude + 8388608.0f;
    return mgc_lane_float(mgc_lane_bits(shifted - 8388608.0f) | sign);
}
static MGC_INLINE float mgc_lane_floor(float v)
{
    const float r = mgc_lane_round(v);
    return r > v ? r - 1.0f : r;
}
static MGC_INLINE float mgc_lane_ceil(float v)
{
    const float r = mgc_lane_round(v);
    return r < v ? mgc_lane_float(mgc_lane_bits(r + 1.0f) | (mgc_lane_bits(v) & 0x80000000u)) : r;
}
#endif

#endif
