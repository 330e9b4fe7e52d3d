/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversions of storage-only types to and from float: bfloat16, and floats of 8 and 4 bits, which are called by their
 * exponent (e) and mantissa (m) bits as in ONNX (OCP 8-bit floating point specification; fnuz: arXiv 2206.02915; e8m0 and
 * e2m1: OCP microscaling formats). float16 is in megcc_double.h, which includes this header.
 */
#ifndef MEGCC_SMALL_H
#define MEGCC_SMALL_H

static inline float mgc_float_of_bits(uint32_t bits)
{
    const union { uint32_t u; float f; } pun = { bits };
    return pun.f;
}

static inline uint32_t mgc_bits_of_float(float x)
{
    const union { float f; uint32_t u; } pun = { x };
    return pun.u;
}

static inline float mgc_from_bf16(uint16_t x)
{
    return mgc_float_of_bits((uint32_t)x << 16);
}

/* Rounds to the nearest bfloat16, ties to even. */
static inline uint16_t mgc_to_bf16(float x)
{
    const uint32_t bits = mgc_bits_of_float(x);
    return (uint16_t)(x != x ? (bits >> 16 & 0x8000u) | 0x7fc0u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Decodes a float of `bits` bits: sign, exponent, and `fraction` bits of mantissa. least: the exponent of the smallest normal
 * number. The callers handle the codes of infinity and NaN. */
static inline float mgc_from_small(uint32_t code, int32_t bits, int32_t fraction, int32_t least)
{
    const uint32_t point = (uint32_t)fraction, sign_at = (uint32_t)bits - 1u;
    const uint32_t magnitude = code & ((1u << sign_at) - 1u), exponent = magnitude >> point;
    const uint32_t sign = (code >> sign_at & 1u) << 31;
    if (exponent == 0u) {
        const int32_t normal = 127 + least - fraction;
        const float unit = mgc_float_of_bits((uint32_t)normal << 23);
        return mgc_float_of_bits(mgc_bits_of_float((float)magnitude * unit) | sign);
    }
    const int32_t bias = 126 + least; /* added to the exponent, of which 1 means 2^least: a float's bias is 127 */
    return mgc_float_of_bits(sign | (magnitude + ((uint32_t)bias << point)) << (23u - point));
}

static inline float mgc_from_f8e4m3fn(uint8_t x)
{
    return (x & 0x7fu) == 0x7fu ? MGC_NAN : mgc_from_small(x, 8, 3, -6);
}

static inline float mgc_from_f8e4m3fnuz(uint8_t x)
{
    return x == 0x80u ? MGC_NAN : mgc_from_small(x, 8, 3, -7);
}

static inline float mgc_from_f8e5m2(uint8_t x)
{
    return (x & 0x7fu) > 0x7cu ? MGC_NAN : (x & 0x7fu) == 0x7cu ? (x & 0x80u ? -MGC_INF : MGC_INF)
                                                                : mgc_from_small(x, 8, 2, -14);
}

static inline float mgc_from_f8e5m2fnuz(uint8_t x)
{
    return x == 0x80u ? MGC_NAN : mgc_from_small(x, 8, 2, -15);
}

static inline float mgc_from_f4e2m1fn(uint8_t x)
{
    return mgc_from_small(x, 4, 1, 0);
}

static inline float mgc_from_f8e8m0fnu(uint8_t x)
{
    return x == 255u ? MGC_NAN : mgc_float_of_bits(x ? (uint32_t)x << 23 : 0x400000u); /* 0: 2^-127, a subnormal float */
}

/* Returns the code of the nearest number, ties to even. top: code of the largest number; over, nan: codes for larger
 * numbers and for NaN. If `nan` has the sign bit set, NaN and zero have no sign. */
static inline uint8_t mgc_to_small(double x, int32_t bits, int32_t fraction, int32_t least, uint32_t top, uint32_t over,
                                   uint32_t nan)
{
    const uint32_t point = (uint32_t)fraction, bit = 1u << ((uint32_t)bits - 1u);
    const uint32_t sign = mgd_bits(x) >> 63 != 0u ? bit : 0u;
    const double magnitude = mgd_abs(x);
    if (x != x) {
        return (uint8_t)nan;
    }
    int32_t exponent = (int32_t)(mgd_bits(magnitude) >> 52) - 1023;
    exponent = exponent < least ? least : exponent;
    uint32_t code = over;
    if (exponent < 64) { /* larger numbers exceed all formats */
        const int32_t power = 1023 + fraction - exponent, above = exponent - least;
        const double unit = mgd_double((uint64_t)power << 52);
        const uint64_t nearest = ((uint64_t)above << point) + (uint64_t)mgd_round(magnitude * unit);
        code = nearest > top ? over : (uint32_t)nearest;
    }
    return (uint8_t)((nan & bit) != 0u && (code == 0u || code == nan) ? code : sign | code);
}

/* Returns the exponent of |x| as a power of two, biased by 127. rounding: 1 up, 0 down, -1 to the nearest. Numbers that are
 * rounded to more than 2^127 give NaN, 255, or, with `saturate`, 2^127. NaN and infinity give NaN. As to_float8e8m0 of
 * onnx/numpy_helper.py: ties are rounded up; to the nearest, subnormals above 2^-127 give 2^-126, others 2^-127. */
static inline uint8_t mgc_to_f8e8m0fnu(float x, int32_t rounding, int32_t saturate)
{
    const uint32_t bits = mgc_bits_of_float(x), exponent = bits >> 23 & 255u, fraction = bits & 0x7fffffu;
    const bool nearest = fraction > 0x400000u || (fraction == 0x400000u && exponent > 0u);
    const bool up = (rounding < 0 && nearest) || (rounding > 0 && fraction > 0u);
    return (uint8_t)(exponent == 255u ? 255u : exponent == 254u && saturate != 0 ? 254u : exponent + (up ? 1u : 0u));
}

#endif
