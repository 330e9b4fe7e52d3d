/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementary functions of one double, without libm. Products and sums are separate statements, so that compilers do
 * not contract them: results are the same on every CPU. NaN gives NaN. Errors, over the whole range unless stated:
 *
 *   mgd_sqrt              0.5 ULP
 *   mgd_exp  mgd_log      1 ULP, subnormal results and overflow included; log(0) = -inf, log(x < 0) = NaN
 *   mgd_log1p             2 ULP
 *   mgd_sin  mgd_cos      2 ULP, for every finite argument; infinities give NaN
 *   mgd_tan               4 ULP
 *   mgd_asin mgd_acos     4 ULP; beyond [-1, 1] NaN
 *   mgd_atan              2 ULP
 *   mgd_sinh mgd_cosh     4 ULP
 *   mgd_tanh mgd_sigmoid  4 ULP; a sigmoid below 2^-1024 is 0
 *   mgd_asinh mgd_acosh   4 ULP; acosh(x < 1) = NaN
 *   mgd_atanh             4 ULP; atanh(+-1) = +-inf, beyond NaN
 *   mgd_erf               8 ULP
 *   mgd_pow               2 + 2 |y * log2(x)| ULP, 2 ULP for integers |y| <= 32; special arguments as C's pow
 *   mgd_fmod              exact, sign of the dividend; mgd_mod: sign of the divisor
 *   mgd_floor mgd_ceil mgd_trunc mgd_round      exact; mgd_round: ties to even
 *
 * The end has the conversions of float16; megcc_small.h, which it includes, has those of smaller types.
 */
#ifndef MEGCC_DOUBLE_H
#define MEGCC_DOUBLE_H

#include "megcc_simd.h"

#define MGD_INF ((double)MGC_INF)
#define MGD_NAN ((double)MGC_NAN)

#define MGD_LEAST_NORMAL 2.2250738585072014e-308    /* 2^-1022 */
#define MGD_2_POW_28 268435456.0
#define MGD_2_POW_52 4503599627370496.0
#define MGD_2_POW_53 9007199254740992.0
#define MGD_2_POW_54 18014398509481984.0
#define MGD_LOG2_E 1.4426950408889634
#define MGD_LN2 0.6931471805599453
/* ln 2 as the sum of two doubles. The first has 33 bits, so its products with exponents are exact (Cody and Waite, 1980). */
#define MGD_LN2_HIGH 0.6931471803691238
#define MGD_LN2_LOW 1.9082149292705877e-10
#define MGD_PI 3.141592653589793
#define MGD_HALF_PI 1.5707963267948966
#define MGD_HALF_PI_REST 6.123233995736766e-17      /* pi / 2 minus the double above */
#define MGD_2_OVER_SQRT_PI 1.1283791670955126
#define MGD_1_OVER_SQRT_PI 0.5641895835477563

static inline uint64_t mgd_bits(double x)
{
    union { double f; uint64_t u; } pun;
    pun.f = x;
    return pun.u;
}

static inline double mgd_double(uint64_t u)
{
    union { double f; uint64_t u; } pun;
    pun.u = u;
    return pun.f;
}

static inline double mgd_abs(double x) { return mgd_double(mgd_bits(x) & 0x7fffffffffffffffu); }

/* Returns the magnitude of the first argument with the sign of the second. */
static inline double mgd_with_sign(double magnitude, double sign)
{
    return mgd_double((mgd_bits(magnitude) & 0x7fffffffffffffffu) | (mgd_bits(sign) & 0x8000000000000000u));
}

/* Returns a * b + c, rounded twice: a statement each, so that no compiler fuses them. */
static inline double mgd_mla(double a, double b, double c)
{
    const double product = a * b;
    return product + c;
}

/* Returns p[0] + p[1] x + … + p[n - 1] x^(n - 1). */
static inline double mgd_polynomial(const double *p, int32_t n, double x)
{
    double sum = p[n - 1];
    for (int32_t i = n - 2; i >= 0; i--) {
        sum = mgd_mla(sum, x, p[i]);
    }
    return sum;
}

static inline double mgd_min(double a, double b) { return b < a || b != b ? b : a; }
static inline double mgd_max(double a, double b) { return b > a || b != b ? b : a; }

/* Adding 2^52 rounds to an integer; larger doubles are integers anyway. */
static inline double mgd_round(double x)
{
    const double magnitude = mgd_abs(x);
    if (!(magnitude < MGD_2_POW_52)) {
        return x;
    }
    const double shifted = magnitude + MGD_2_POW_52;
    return mgd_with_sign(shifted - MGD_2_POW_52, x);
}

static inline double mgd_floor(double x)
{
    const double r = mgd_round(x);
    return r > x ? r - 1.0 : r;
}

static inline double mgd_ceil(double x)
{
    const double r = mgd_round(x);
    return r < x ? mgd_with_sign(r + 1.0, x) : r;
}

static inline double mgd_trunc(double x) { return x < 0.0 ? mgd_ceil(x) : mgd_floor(x); }

static inline double mgd_sqrt(double x)
{
#if MGC_GNU && defined(__SSE2__)
    __asm__("sqrtsd %1, %0" : "=x"(x) : "x"(x));
    return x;
#elif MGC_GNU && defined(__aarch64__)
    __asm__("fsqrt %d0, %d1" : "=w"(x) : "w"(x));
    return x;
#elif MGC_GNU && defined(__riscv_flen) && __riscv_flen >= 64
    __asm__("fsqrt.d %0, %1" : "=f"(x) : "f"(x));
    return x;
#elif MGC_GNU && defined(__arm__) && defined(__ARM_FP) && (__ARM_FP & 8)
    __asm__("vsqrt.f64 %P0, %P1" : "=w"(x) : "w"(x));
    return x;
#elif MGC_GNU && defined(__wasm__)
    return __builtin_sqrt(x);
#else
    if (!(x > 0.0) || x == MGD_INF) {
        return x < 0.0 ? MGD_NAN : x;
    }
    /* Computes the root of the mantissa, times 2 if the exponent is odd, bit by bit: 53 bits and one for rounding. No root lies
     * halfway between two doubles. `twice` is 2 * root. */
    const bool tiny = x < MGD_LEAST_NORMAL;
    const uint64_t bits = mgd_bits(tiny ? x * MGD_2_POW_54 : x);
    const int32_t exponent = (int32_t)(bits >> 52) - (tiny ? 1023 + 54 : 1023);
    const bool odd = ((uint32_t)exponent & 1u) != 0u;
    uint64_t remainder = ((bits & 0xfffffffffffffu) | 0x10000000000000u) << (odd ? 2u : 1u), root = 0, twice = 0;
    for (uint64_t digit = 0x20000000000000u; digit != 0u; digit >>= 1) {
        if (twice + digit <= remainder) {
            remainder -= twice + digit;
            twice += 2u * digit;
            root += digit;
        }
        remainder *= 2u;
    }
    root = (root + (root & 1u)) >> 1;
    /* The bias of 1023, minus 1 because the first bit of the root, 2^52, adds 1 to the exponent. */
    const int32_t half = (exponent - (odd ? 1 : 0)) / 2 + 1022;
    return mgd_double(root + ((uint64_t)half << 52));
#endif
}

/* Returns x * 2^n for n in [-2044, 2046]. */
static inline double mgd_ldexp(double x, int32_t n)
{
    const int32_t half = n / 2, first = half + 1023, second = n - half + 1023;
    return x * mgd_double((uint64_t)first << 52) * mgd_double((uint64_t)second << 52);
}

/* Splits a positive finite x into 2^e * m with m in [sqrt(1/2), sqrt(2)); returns m. */
static inline double mgd_split(double x, int32_t *e)
{
    const bool tiny = x < MGD_LEAST_NORMAL;
    const uint64_t bits = mgd_bits(tiny ? x * MGD_2_POW_54 : x);
    /* The bits of 1 minus those of sqrt(1/2): the sum carries into the exponent if the mantissa is sqrt(2) or more. */
    const uint64_t exponent = (bits + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
    *e = (int32_t)exponent - (tiny ? 1023 + 54 : 1023);
    return mgd_double(bits - (exponent << 52) + 0x3ff0000000000000u);
}

/* Returns (e^r - 1 - r) / r^2 by its Taylor series, for |r| <= 0.35. */
static inline double mgd_exp_tail(double r)
{
    static const double p[] = { 0.5, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
                                1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800 };
    return mgd_polynomial(p, 12, r);
}

static inline double mgd_exp(double x)
{
    if (x != x) {
        return x;
    }
    /* From these limits on, the result is 0 or infinity. */
    const double bounded = x < -746.0 ? -746.0 : x > 710.0 ? 710.0 : x;
    const double n = mgd_round(bounded * MGD_LOG2_E);
    const double high = bounded - n * MGD_LN2_HIGH, low = n * MGD_LN2_LOW;
    const double r = high - low;
    /* e^x = 2^n * e^r, and e^r is 1 + r + r^2 * tail, plus the rounding error of r = high - low. */
    const double lost = (high - r) - low, square = r * r;
    const double tail = mgd_mla(square, mgd_exp_tail(r), lost);
    return mgd_ldexp(1.0 + (r + tail), (int32_t)n);
}

static inline double mgd_log(double x)
{
    /* log(1 + f) = 2 atanh(s) with s = f / (2 + f); p: the series after 2 s, divided by s^3. As 2 s = f - s f, and
     * s f = f^2 / 2 - s f^2 / 2, the sum is f - (f^2 / 2 - s (f^2 / 2 + series)), whose first term is exact (fdlibm, e_log.c). */
    static const double p[] = { 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19,
                                2.0 / 21, 2.0 / 23 };
    if (!(x > 0.0) || x == MGD_INF) {
        return x == 0.0 ? -MGD_INF : x < 0.0 ? MGD_NAN : x;
    }
    int32_t exponent;
    const double f = mgd_split(x, &exponent) - 1.0, e = (double)exponent;
    const double s = f / (2.0 + f), square = s * s, half = 0.5 * f * f;
    const double series = square * mgd_polynomial(p, 11, square);
    const double correction = mgd_mla(s, half + series, e * MGD_LN2_LOW);
    return mgd_mla(e, MGD_LN2_HIGH, f - (half - correction));
}

/* Returns log(1 + x), corrected by the rounding error of 1 + x. */
static inline double mgd_log1p(double x)
{
    const double u = 1.0 + x;
    if (u == 1.0) {
        return x;
    }
    if (!(u > 0.0) || u == MGD_INF) {
        return mgd_log(u);
    }
    const double lost = mgd_abs(x) < 1.0 ? x - (u - 1.0) : 1.0 - (u - x);
    return mgd_log(u) + lost / u;
}

/* Returns the remainder of a finite x after the nearest multiple of pi / 2, as high + low, and that multiple modulo 4.
 * Beyond 1e5 it computes x * 2 / pi in integers, from the bits that matter (Payne and Hanek, 1983). */
static inline uint32_t mgd_reduce(double x, double *high, double *low)
{
    static const uint32_t two_over_pi[] = {
        0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu, 0xdebbc561u,
        0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu, 0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u,
        0xe99c7026u, 0xb45f7e41u, 0x3991d639u, 0x835339f4u, 0x9c845f8bu, 0xbdf9283bu, 0x1ff897ffu, 0xde05980fu,
        0xef2f118bu, 0x5a0a6d1fu, 0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu,
        0x3d0739f7u, 0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu };
    /* The bits of 2 / pi that matter, from a word's beginning on: up to 31 before them, 2 for the quadrant, 128 for the
     * fraction, and 53, as many as m has: 214 in 7 words. */
    enum { WORDS = 7 };
    if (mgd_abs(x) < 1e5) {
        /* pi / 2 as the sum of three doubles; the first two have 33 bits, so their products with n are exact. */
        const double n = mgd_round(x * 0.6366197723675814);
        const double first = x - n * 1.5707963267341256, second = first - n * 6.077100506303966e-11;
        const double third = n * 2.0222662487959506e-21;
        *high = second - third;
        *low = (second - *high) - third;
        return (uint32_t)(int32_t)n & 3u;
    }
    /* |x| = m * 2^e. Words of 2 / pi before `from` contribute only multiples of 4 to the product. */
    const uint64_t bits = mgd_bits(x), m = (bits & 0xfffffffffffffu) | 0x10000000000000u;
    const uint64_t biased = bits >> 52 & 0x7ffu;
    const int32_t e = (int32_t)biased - 1075, from = e < 2 ? 0 : (e - 2) / 32;
    uint32_t product[WORDS + 2] = { 0 }; /* least word first */
    for (int32_t i = 0; i < WORDS; i++) {
        uint64_t carry = 0;
        for (int32_t j = 0; j < 2; j++) {
            const uint64_t part = (uint32_t)(m >> (32u * (uint32_t)j)), word = two_over_pi[from + WORDS - 1 - i];
            carry += part * word + product[i + j];
            product[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        product[i + 2] = (uint32_t)carry;
    }
    /* Bit `point` is the binary point: two bits of the quadrant above it, 128 of the fraction below. */
    const int32_t point = 32 * (from + WORDS) - e;
    uint32_t window[5];
    for (int32_t i = 0; i < 5; i++) {
        const int32_t at = point - 128 + 32 * i, word = at / 32, shift = at % 32;
        const uint64_t above = word + 1 < WORDS + 2 ? product[word + 1] : 0u;
        window[i] = word < WORDS + 2 ? (uint32_t)((above << 32 | product[word]) >> (uint32_t)shift) : 0u;
    }
    uint32_t quadrant = window[4] & 3u;
    const bool negative = window[3] >> 31 != 0u;
    uint64_t upper = (uint64_t)window[3] << 32 | window[2], lower = (uint64_t)window[1] << 32 | window[0];
    if (negative) {
        quadrant++;
        upper = ~upper + (lower == 0u ? 1u : 0u);
        lower = 0u - lower;
    }
    /* The words of the fraction in units of 2^-32, 2^-64 and 2^-128. */
    const double fraction = (double)(uint32_t)(upper >> 32) * 2.3283064365386963e-10
        + ((double)(uint32_t)upper * 5.421010862427522e-20 + (double)lower * 2.938735877055719e-39);
    *high = fraction * MGD_HALF_PI;
    *low = 0.0;
    *high = negative ? -*high : *high;
    if (x < 0.0) {
        *high = -*high;
        quadrant = 0u - quadrant;
    }
    return quadrant & 3u;
}

/* Returns sin(high + low) for high + low in [-pi/4, pi/4]. */
static inline double mgd_sin_near(double high, double low)
{
    static const double p[] = { -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                                -1.0 / 1307674368000, 1.0 / 355687428096000 };
    const double square = high * high;
    const double tail = mgd_mla(high * square, mgd_polynomial(p, 8, square), low * (1.0 - 0.5 * square));
    return high + tail;
}

/* Returns cos(high + low) for the same. */
static inline double mgd_cos_near(double high, double low)
{
    static const double p[] = { 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600,
                                -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000 };
    const double square = high * high, half = 0.5 * square, rest = 1.0 - half;
    const double tail = mgd_mla(square * square, mgd_polynomial(p, 8, square), (1.0 - rest) - half);
    return rest + (tail - high * low);
}

/* Returns sin(x + quadrants * pi / 2). */
static inline double mgd_sine(double x, uint32_t quadrants)
{
    double high, low;
    if (!(mgd_abs(x) < MGD_INF)) {
        return MGD_NAN;
    }
    if (mgd_abs(x) < 1e-9 && quadrants == 0u) {
        return x;
    }
    const uint32_t quadrant = mgd_reduce(x, &high, &low) + quadrants;
    const double result = (quadrant & 1u) != 0u ? mgd_cos_near(high, low) : mgd_sin_near(high, low);
    return (quadrant & 2u) != 0u ? -result : result;
}

static inline double mgd_sin(double x) { return mgd_sine(x, 0); }
static inline double mgd_cos(double x) { return mgd_sine(x, 1); }

/* Computes sine and cosine of a finite x, with the same bits as mgd_sin and mgd_cos. */
static inline void mgd_sin_cos(double x, double *sine, double *cosine)
{
    double high, low;
    const uint32_t quadrant = mgd_reduce(x, &high, &low);
    const double s = mgd_sin_near(high, low), c = mgd_cos_near(high, low);
    const double first = (quadrant & 1u) != 0u ? c : s, second = (quadrant & 1u) != 0u ? s : c;
    *sine = (quadrant & 2u) != 0u ? -first : first;
    *cosine = ((quadrant + 1u) & 2u) != 0u ? -second : second;
}

static inline double mgd_tan(double x)
{
    double high, low;
    if (!(mgd_abs(x) < MGD_INF)) {
        return MGD_NAN;
    }
    if (mgd_abs(x) < 1e-9) {
        return x;
    }
    const uint32_t quadrant = mgd_reduce(x, &high, &low);
    const double s = mgd_sin_near(high, low), c = mgd_cos_near(high, low);
    return quadrant & 1u ? -c / s : s / c;
}

static inline double mgd_atan(double x)
{
    /* atan(k / 4), and what its rounding lost. With k / 4 the nearest to a: atan(a) = atan(k / 4) + atan(t). */
    static const double table[] = { 0.0, 0.24497866312686414, 0.4636476090008061, 0.6435011087932844,
                                    0.7853981633974483 };
    static const double rest[] = { 0.0, 1.0698755618734451e-17, 2.2698777452961687e-17, 1.5834785051444286e-17,
                                   3.061616997868383e-17 };
    static const double p[] = { -1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15, 1.0 / 17,
                                -1.0 / 19 };
    if (x != x) {
        return x;
    }
    const double magnitude = mgd_abs(x);
    const bool inverse = magnitude > 1.0;
    const double a = inverse ? 1.0 / magnitude : magnitude;
    const double nearest = a * 4.0 + 0.5;
    const int32_t k = (int32_t)nearest;
    const double at = 0.25 * (double)k;
    /* The rounding error of 1 / |x| enters only through a, which is within an ULP. */
    const double t = (a - at) / mgd_mla(a, at, 1.0), square = t * t;
    const double tail = mgd_mla(t * square, mgd_polynomial(p, 9, square), rest[k]);
    const double angle = table[k] + (t + tail);
    const double result = inverse ? MGD_HALF_PI - (angle - MGD_HALF_PI_REST) : angle;
    return mgd_with_sign(result, x);
}

static inline double mgd_asin(double x)
{
    const double magnitude = mgd_abs(x);
    if (magnitude > 1.0) {
        return MGD_NAN;
    }
    return magnitude < 1e-9 ? x : mgd_atan(x / mgd_sqrt((1.0 - x) * (1.0 + x)));
}

static inline double mgd_acos(double x)
{
    if (mgd_abs(x) > 1.0) {
        return MGD_NAN;
    }
    return x == -1.0 ? MGD_PI : 2.0 * mgd_atan(mgd_sqrt((1.0 - x) / (1.0 + x)));
}

/* Returns (e^x - e^-x) / 2. */
static inline double mgd_sinh(double x)
{
    static const double p[] = { 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880, 1.0 / 39916800, 1.0 / 6227020800,
                                1.0 / 1307674368000, 1.0 / 355687428096000, 1.0 / 121645100408832000 };
    const double magnitude = mgd_abs(x), square = x * x;
    if (magnitude < 1.0) {
        return mgd_mla(x * square, mgd_polynomial(p, 9, square), x);
    }
    /* e^x overflows from 709.8 on, before its half does: there the half is a product of two e^(x/2). */
    const double half = mgd_exp(0.5 * magnitude), power = mgd_exp(magnitude);
    const double result = magnitude > 700.0 ? (0.5 * half) * half : 0.5 * (power - 1.0 / power);
    return mgd_with_sign(result, x);
}

static inline double mgd_cosh(double x)
{
    const double magnitude = mgd_abs(x), half = mgd_exp(0.5 * magnitude), power = mgd_exp(magnitude);
    /* As in mgd_sinh. */
    return magnitude > 700.0 ? (0.5 * half) * half : 0.5 * (power + 1.0 / power);
}

static inline double mgd_tanh(double x)
{
    const double magnitude = mgd_abs(x);
    if (magnitude < 0.5) {
        return mgd_sinh(x) / mgd_cosh(x);
    }
    return x != x ? x : mgd_with_sign(1.0 - 2.0 / (mgd_exp(2.0 * magnitude) + 1.0), x);
}

static inline double mgd_sigmoid(double x)
{
    return 1.0 / (1.0 + mgd_exp(-x));
}

static inline double mgd_asinh(double x)
{
    const double magnitude = mgd_abs(x), square = magnitude * magnitude;
    if (magnitude > MGD_2_POW_28) { /* sqrt(1 + x^2) is |x| */
        return mgd_with_sign(mgd_log(magnitude) + MGD_LN2, x);
    }
    return x != x ? x : mgd_with_sign(mgd_log1p(magnitude + square / (1.0 + mgd_sqrt(1.0 + square))), x);
}

static inline double mgd_acosh(double x)
{
    if (x > MGD_2_POW_28) { /* sqrt(x^2 - 1) is x */
        return mgd_log(x) + MGD_LN2;
    }
    const double t = x - 1.0;
    return t < 0.0 ? MGD_NAN : mgd_log1p(t + mgd_sqrt(2.0 * t + t * t));
}

static inline double mgd_atanh(double x)
{
    const double magnitude = mgd_abs(x);
    if (magnitude >= 1.0) {
        return magnitude == 1.0 ? mgd_with_sign(MGD_INF, x) : MGD_NAN;
    }
    return mgd_with_sign(0.5 * mgd_log1p(2.0 * magnitude / (1.0 - magnitude)), x);
}

/* Below 2, sums the series 2 / sqrt(pi) e^(-x^2) sum (2 x^2)^n x / (1 3 5 … (2 n + 1)), whose terms are all positive;
 * above, returns 1 - erfc by its continued fraction. */
static inline double mgd_erf(double x)
{
    const double magnitude = mgd_abs(x), square = x * x;
    if (x != x) {
        return x;
    }
    if (magnitude < 1e-9) {
        return MGD_2_OVER_SQRT_PI * x;
    }
    if (magnitude < 2.0) {
        double term = x, sum = x;
        for (int32_t n = 1; n < 60 && sum + term != sum; n++) {
            term *= 2.0 * square / (double)(2 * n + 1);
            sum += term;
        }
        return MGD_2_OVER_SQRT_PI * (mgd_exp(-square) * sum);
    }
    if (magnitude > 6.0) { /* 1 - erf is less than 2^-54 */
        return mgd_with_sign(1.0, x);
    }
    double fraction = magnitude;
    for (int32_t n = 60; n > 0; n--) {
        fraction = magnitude + 0.5 * (double)n / fraction;
    }
    return mgd_with_sign(1.0 - MGD_1_OVER_SQRT_PI * mgd_exp(-square) / fraction, x);
}

/* Returns the remainder of the quotient truncated towards 0, by binary long division. */
static inline double mgd_fmod(double a, double b)
{
    double rest = mgd_abs(a);
    const double divisor = mgd_abs(b);
    if (!(rest < MGD_INF) || !(divisor > 0.0)) {
        return MGD_NAN;
    }
    /* 2^n * divisor for the least n for which twice as much exceeds the remainder. */
    double multiple = divisor;
    while (multiple <= 0.5 * rest) {
        multiple += multiple;
    }
    while (rest >= divisor) {
        rest -= rest >= multiple ? multiple : 0.0;
        multiple *= 0.5;
    }
    return mgd_with_sign(rest, a);
}

static inline double mgd_mod(double a, double b)
{
    const double rest = mgd_fmod(a, b);
    if (rest == 0.0) {
        return mgd_with_sign(rest, b);
    }
    return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

/* A number whose upper 26 bits of mantissa are those of x, and the rest 0: products of such numbers are exact. */
static inline double mgd_upper(double x) { return mgd_double(mgd_bits(x) & 0xfffffffff8000000u); }

/* Returns x^n for x in [sqrt(1/2), sqrt(2)) and n in [0, 32], within 0.6 ULP: adds the rounding errors of all products, each of
 * which is a sum of exact products of halves of the mantissas (Dekker, 1971). */
static inline double mgd_power(double x, int32_t n)
{
    const double x_upper = mgd_upper(x), x_lower = x - x_upper;
    double result = 1.0, lost = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double upper = mgd_upper(result), lower = result - upper, product = result * x;
        const double error = mgd_mla(upper, x_lower, mgd_mla(upper, x_upper, -product));
        lost = mgd_mla(lost, x, mgd_mla(lower, x_lower, mgd_mla(lower, x_upper, error)));
        result = product;
    }
    return result + lost;
}

static inline double mgd_pow(double x, double y)
{
    const double magnitude = mgd_abs(x), whole = mgd_trunc(y);
    const bool integral = whole == y;
    const bool odd = integral && mgd_abs(y) < MGD_2_POW_53 && 2.0 * mgd_trunc(0.5 * y) != y;
    if (y == 0.0 || x == 1.0) {
        return 1.0;
    }
    if (x != x || y != y) {
        return MGD_NAN;
    }
    if (x < 0.0 && !integral && magnitude < MGD_INF && mgd_abs(y) < MGD_INF) {
        return MGD_NAN;
    }
    double result;
    if (mgd_abs(y) == MGD_INF || magnitude == 0.0 || magnitude == MGD_INF) {
        const bool grows = (magnitude > 1.0) == (y > 0.0);
        result = magnitude == 1.0 ? 1.0 : grows ? MGD_INF : 0.0;
    } else if (integral && mgd_abs(y) <= 32.0) {
        int32_t exponent;
        const double mantissa = mgd_split(magnitude, &exponent), power = mgd_power(mantissa, (int32_t)mgd_abs(y));
        /* The power of the mantissa is within 2^-16 and 2^16, so from these limits on the result is 0 or infinity. */
        const double scale = mgd_max(-1200.0, mgd_min((double)exponent * y, 1200.0));
        result = mgd_ldexp(y < 0.0 ? 1.0 / power : power, (int32_t)scale);
    } else {
        result = mgd_exp(y * mgd_log(magnitude));
    }
    return odd && mgd_bits(x) >> 63 != 0u ? -result : result;
}

/* Conversions of finite numbers by the FPU of 32-bit Arm. Every FPU of Cortex-M has them. */
#if MGC_GNU && defined(__arm__) && defined(__ARM_FP) && ((__ARM_FP & 2) || __ARM_ARCH_PROFILE == 'M')
#define MGD_HAS_FLOAT16 1
#else
#define MGD_HAS_FLOAT16 0
#endif

/* Returns the value of a float16, given its 16 bits. */
static inline float mgc_from_float16(uint16_t h)
{
#if MGD_HAS_FLOAT16
    if ((h & 0x7c00u) != 0x7c00u) {
        float number;
        __asm__("vmov %0, %1\n\tvcvtb.f32.f16 %0, %0" : "=&t"(number) : "r"(h));
        return number;
    }
#endif
    const uint32_t code = h, exponent = code >> 10 & 31u, fraction = code & 1023u, sign = code >> 15 << 31;
    union { float f; uint32_t u; } pun;
    if (exponent == 0u) {
        pun.f = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
        pun.u |= sign;
    } else {
        pun.u = sign | (exponent == 31u ? 0x7f800000u : (exponent + 112u) << 23) | fraction << 13;
    }
    return pun.f;
}

/* Returns the nearest float16, ties to even; numbers that are too large become infinity. */
static inline uint16_t mgc_to_float16(double x)
{
#if MGD_HAS_FLOAT16
    /* The instruction converts floats: another double would be rounded twice. x - x is not 0 for infinity and NaN. */
    if ((double)(float)x == x && x - x == 0.0) {
        float half = (float)x;
        uint32_t bits;
        __asm__("vcvtb.f16.f32 %0, %0\n\tvmov %1, %0" : "+t"(half), "=r"(bits));
        return (uint16_t)bits;
    }
#endif
    const double magnitude = mgd_abs(x);
    const uint32_t sign = (uint32_t)(mgd_bits(x) >> 48) & 0x8000u;
    if (x != x) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 65520.0) { /* halfway from the largest float16 to 2^16 */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 6.103515625e-05) { /* below 2^-14, subnormal: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)mgd_round(magnitude * 16777216.0));
    }
    /* The mantissa loses 42 of 52 bits; the exponent's bias is 15, not 1023. */
    const uint64_t bits = mgd_bits(magnitude), kept = bits >> 42;
    const uint64_t below = bits & 0x3ffffffffffu, tie = 0x20000000000u;
    const uint64_t rounded = kept + (below > tie || (below == tie && (kept & 1u) != 0u) ? 1u : 0u);
    return (uint16_t)(sign | (uint32_t)(rounded - ((uint64_t)1008 << 10)));
}

#include "megcc_small.h"

#endif
