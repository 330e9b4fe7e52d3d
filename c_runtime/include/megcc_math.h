/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementary functions of mgc_v, without libm. The stated errors hold if mgc_fma rounds once; add 1 ULP if it does not.
 * NaN gives NaN. No comparison depends on subnormal numbers, which some vector units treat as zero. Polynomials are
 * minimax fits over the stated intervals.
 *
 *   mgc_exp      1.5 ULP, subnormal results and overflow to infinity included
 *   mgc_exp_nonpositive   1.5 ULP for x in [-87, 0]; below, 0 or less than 1.7e-38
 *   mgc_log      1.5 ULP; log(0) = -inf, log(x < 0) = NaN
 *   mgc_tanh     2 ULP
 *   mgc_sigmoid  3 ULP for x > -1, 3 + |x| / 4 below; below -87.3 the result stays at 1.2e-38
 *   mgc_erf      2 ULP; 1.1 ULP with AVX2 and AVX-512
 *   mgc_pow      2 + |y * log2(x)| ULP; special arguments as C's powf
 *   mgc_sin mgc_cos mgc_tan mgc_asin mgc_acos mgc_atan mgc_sinh mgc_cosh mgc_asinh mgc_acosh mgc_atanh
 *                0.51 ULP over the whole range: each lane by the function of doubles in megcc_double.h
 */
#ifndef MEGCC_MATH_H
#define MEGCC_MATH_H

#include "megcc_double.h"
#include "megcc_simd.h"

#if MGC_ENABLED

/* A Cortex-M7 loads a term in the cycle of another element's product, but does not copy one from a register then. The unused
 * operand r keeps the compiler from loading terms before a loop, and from loading one for two elements. */
#if MGC_LANES == 1 && MGC_GNU && defined(MEGCC_DUAL_ISSUE)
#define MGC_LOADS_TERMS 1
/* Computes `v` before a condition that decides on it, not in a branch: so the next element is computed at the same time. */
#define mgc_unconditional(v) __asm__("" : "+t"(v))
#else
#define MGC_LOADS_TERMS 0
#define mgc_unconditional(v) ((void)0)
#endif

/* Returns a * r + term. */
static MGC_INLINE mgc_v mgc_term(mgc_v a, mgc_v r, const float *term)
{
#if MGC_LOADS_TERMS
    mgc_v sum;
    __asm__("vldr %0, %1" : "=t"(sum) : "Uv"(*term), "t"(a), "t"(r));
    return mgc_fma(a, r, sum);
#else
    return mgc_fma(a, r, mgc_set1(*term));
#endif
}

/* 1.5 * 2^23. Adding it rounds to an integer n, whose bits are the lowest bits of the sum's. So (bits of the sum + 127) << 23
 * are the bits of 2^n. */
#define MGC_ROUNDER 12582912.0f

/* Returns e^r for r in [-0.35, 0.35]. */
static MGC_INLINE mgc_v mgc_exp_fraction(mgc_v r)
{
    static const float terms[] = { 8.3687240e-3f, 4.1668389e-2f, 0.16666521f, 0.49999994f, 1.0f };
    mgc_v p = mgc_set1(1.3814581e-3f);
    p = mgc_term(p, r, terms);
    p = mgc_term(p, r, terms + 1);
    p = mgc_term(p, r, terms + 2);
    p = mgc_term(p, r, terms + 3);
    return mgc_term(mgc_term(p, r, terms + 4), r, terms + 4);
}

/* Returns x - n * ln 2. ln 2 is the sum of two floats, the first with so few bits that n times it is exact (Cody and Waite,
 * 1980). */
static MGC_INLINE mgc_v mgc_exp_rest(mgc_v x, mgc_v n)
{
    return mgc_fma(n, mgc_set1(2.12194440e-4f), mgc_fma(n, mgc_set1(-0.693359375f), x));
}

static MGC_INLINE mgc_v mgc_exp(mgc_v x)
{
    const mgc_v rounder = mgc_set1(MGC_ROUNDER);
    x = mgc_min(mgc_max(x, mgc_set1(-105.0f)), mgc_set1(89.5f)); /* beyond, the result is 0 or infinity */
    const mgc_v n = mgc_fma(x, mgc_set1(1.44269504f), rounder) - rounder;
    return mgc_ldexp(mgc_exp_fraction(mgc_exp_rest(x, n)), n);
}

/* Returns e^x for x <= 0, with the bits of mgc_exp from -87 on. Smaller results are 0, or subnormal with AVX-512. */
static MGC_INLINE mgc_v mgc_exp_nonpositive(mgc_v x)
{
    static const float rounder_term = MGC_ROUNDER;
    const mgc_v rounder = mgc_set1(MGC_ROUNDER), log2_e = mgc_set1(1.44269504f);
#if defined(MGC_SCALEF) && !defined(MEGCC_REPRODUCIBLE)
    x = mgc_max(x, mgc_set1(-105.0f));
    const mgc_v n = mgc_term(x, log2_e, &rounder_term) - rounder;
    return mgc_ldexp(mgc_exp_fraction(mgc_exp_rest(x, n)), n);
#else
    const mgc_v shifted = mgc_term(x, log2_e, &rounder_term), power = mgc_float((mgc_bits(shifted) + 127u) << 23);
    mgc_v result = mgc_exp_fraction(mgc_exp_rest(x, shifted - rounder)) * power;
    mgc_unconditional(result);
    return mgc_if_lt(x, mgc_set1(-87.0f), mgc_zero(), result);
#endif
}

/* Returns e^x + term for x in [-87.3, 87.3], if an error of (1 + |x| / 4) ULP in e^x is acceptable. The power of two is
 * a normal float; one multiply-add multiplies it by 2^fraction and adds the term. */
static MGC_INLINE mgc_v mgc_exp_plus(mgc_v x, mgc_v term)
{
#if defined(MGC_POWERS) && !defined(MEGCC_REPRODUCIBLE) /* reproducible results cannot use the table */
    /* A table gives 2^(n / 16) for the whole sixteenths of the exponent; a short polynomial does the rest. */
    const mgc_v rounder = mgc_set1(MGC_ROUNDER / 16.0f), log2_e = mgc_set1(1.44269504f);
    const mgc_v shifted = mgc_fma(x, log2_e, rounder), f = mgc_fma(x, log2_e, rounder - shifted);
    const mgc_v high = mgc_fma(f, mgc_set1(5.550541e-2f), mgc_set1(0.24023356f));
    const mgc_v low = mgc_fma(f, mgc_set1(0.69314718f), mgc_set1(1.0f));
    return mgc_fma(mgc_fma(high, f * f, low), mgc_power(mgc_bits(shifted)), term);
#else
    static const float rounder_term = MGC_ROUNDER;
    const mgc_v rounder = mgc_set1(MGC_ROUNDER), log2_e = mgc_set1(1.44269504f);
    const mgc_v shifted = mgc_term(x, log2_e, &rounder_term), f = mgc_fma(x, log2_e, rounder - shifted);
    const mgc_v power = mgc_float((mgc_bits(shifted) + 127u) << 23);
    static const float terms[] = { 1.3398875e-3f, 9.6184369e-3f, 5.5503324e-2f, 0.24022648f, 0.69314718f, 1.0f };
    mgc_v p = mgc_set1(1.5353361e-4f);
    p = mgc_term(p, f, terms);
    p = mgc_term(p, f, terms + 1);
    p = mgc_term(p, f, terms + 2);
    p = mgc_term(p, f, terms + 3);
    p = mgc_term(p, f, terms + 4);
    return mgc_fma(mgc_term(p, f, terms + 5), power, term);
#endif
}

static MGC_INLINE mgc_v mgc_sigmoid(mgc_v x)
{
    /* The arguments of mgc_exp_plus. */
    x = mgc_max(mgc_neg(x), mgc_set1(-87.0f));
    mgc_unconditional(x);
    x = mgc_min(x, mgc_set1(87.3f));
    mgc_unconditional(x);
    return mgc_recip(mgc_exp_plus(x, mgc_set1(1.0f)));
}

/* Returns the magnitude of the first argument with the sign of the second. */
static MGC_INLINE mgc_v mgc_with_sign(mgc_v magnitude, mgc_v sign)
{
    return mgc_float((mgc_bits(magnitude) & 0x7fffffffu) | (mgc_bits(sign) & 0x80000000u));
}

static MGC_INLINE mgc_v mgc_tanh(mgc_v x)
{
    const mgc_v one = mgc_set1(1.0f), magnitude = mgc_abs(x), square = x * x;
    /* Below 0.625 a polynomial, else 1 - 2 / (e^(2 |x|) + 1), which is 1 from 10 on. */
    mgc_v p = mgc_set1(-5.7170368e-3f);
    p = mgc_fma(p, square, mgc_set1(2.0650579e-2f));
    p = mgc_fma(p, square, mgc_set1(-5.3743497e-2f));
    p = mgc_fma(p, square, mgc_set1(0.13331491f));
    p = mgc_fma(p, square, mgc_set1(-0.33333284f));
    const mgc_v small = mgc_fma(p * square, x, x);
    const mgc_v clamped = mgc_min(magnitude, mgc_set1(10.0f));
    const mgc_v large = mgc_fma(mgc_set1(-2.0f), mgc_recip(mgc_exp_plus(clamped + clamped, one)), one);
    return mgc_if_lt(magnitude, mgc_set1(0.625f), small, mgc_with_sign(large, x));
}

#if defined(MGC_LOOKUPS) && !defined(MEGCC_REPRODUCIBLE) /* reproducible results cannot use the table */
static MGC_INLINE mgc_v mgc_erf(mgc_v x)
{
    /* terms[k][i] is the coefficient of u^k in a polynomial for erf near n = i * 17/32, where u = |x| - n. The first polynomial
     * is for erf(x) - x; the last one is 1 at 3.92, to which arguments are limited. */
    static const float terms[7][8] = {
        { 0.0f, 0.54752845f, 0.8670583f, 0.9757977f, 0.997346f, 0.9998277f, 0.99999344f, 0.9999999f },
        { 0.12837917f, 0.8509141f, 0.3649033f, 0.088987604f, 0.01234082f, 9.732381e-4f, 4.3647087e-5f, 1.1131324e-6f },
        { -5.96189e-7f, -0.452048f, -0.38771045f, -0.14182371f, -0.02622694f, -0.0025817847f, -1.3757889e-4f, -1.06947755e-5f },
        { -0.37609014f, -0.12356718f, 0.15294206f, 0.12104637f, 0.033040065f, 0.00425278f, 2.80873e-4f, 9.181645e-6f },
        { -6.7608047e-4f, 0.18347003f, 0.048010968f, -0.049172856f, -0.026279375f, -0.0049088285f, -4.5761e-4f, 2.308936e-4f },
        { 0.11825644f, -0.0010258579f, -0.064774476f, -0.0056398027f, 0.012334483f, 0.0038609146f, 4.4357707e-4f, 6.393806e-5f },
        { -0.019665468f, -0.047563184f, 0.009760956f, 0.015677685f, -0.0023753294f, -0.0010034373f, 1.5533554e-4f, -0.0022519208f }
    };
    const mgc_v t = mgc_min(mgc_abs(x), mgc_set1(3.92f)), rounder = mgc_set1(MGC_ROUNDER);
    const mgc_v shifted = mgc_fma(t, mgc_set1(32.0f / 17.0f), rounder), n = shifted - rounder;
    const mgc_v u = mgc_fma(n, mgc_set1(-17.0f / 32.0f), t);
    const mgc_u index = mgc_bits(shifted);
    mgc_v p = mgc_lookup(terms[6], index);
    p = mgc_fma(p, u, mgc_lookup(terms[5], index));
    p = mgc_fma(p, u, mgc_lookup(terms[4], index));
    p = mgc_fma(p, u, mgc_lookup(terms[3], index));
    p = mgc_fma(p, u, mgc_lookup(terms[2], index));
    p = mgc_fma(p, u, mgc_lookup(terms[1], index));
    p = mgc_fma(p, u, mgc_if_lt(n, mgc_set1(0.5f), t, mgc_lookup(terms[0], index)));
    return mgc_with_sign(p, x);
}
#else
static MGC_INLINE mgc_v mgc_erf(mgc_v x)
{
    const mgc_v magnitude = mgc_abs(x), square = x * x;
    mgc_v p = mgc_set1(-5.6601532e-4f);
    p = mgc_fma(p, square, mgc_set1(4.9247891e-3f));
    p = mgc_fma(p, square, mgc_set1(-2.6717708e-2f));
    p = mgc_fma(p, square, mgc_set1(0.11280411f));
    p = mgc_fma(p, square, mgc_set1(-0.37612355f));
    p = mgc_fma(p, square, mgc_set1(0.12837912f));
    const mgc_v small = mgc_fma(p, x, x);
    /* The polynomial approximates log(1 - erf) beyond 0.95; beyond 4 the result is 1. */
    const mgc_v t = mgc_min(magnitude, mgc_set1(4.0f));
    mgc_v q = mgc_set1(1.9242607e-4f);
    q = mgc_fma(q, t, mgc_set1(-3.0085375e-3f));
    q = mgc_fma(q, t, mgc_set1(2.2087643e-2f));
    q = mgc_fma(q, t, mgc_set1(-0.10364033f));
    q = mgc_fma(q, t, mgc_set1(-0.63751704f));
    q = mgc_fma(q, t, mgc_set1(-1.1274750f));
    q = mgc_fma(q, t, mgc_set1(-2.4471359e-4f));
    const mgc_v large = mgc_set1(1.0f) - mgc_exp_plus(q, mgc_zero());
    return mgc_if_lt(magnitude, mgc_set1(0.95f), small, mgc_with_sign(large, x));
}
#endif

#if !defined(MGC_SPLITS)
/* Splits positive finite x into 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); returns e. */
static MGC_INLINE mgc_v mgc_split(mgc_v x, mgc_v *f)
{
    const mgc_v least_normal = mgc_set1(1.17549435e-38f), two_pow_23 = mgc_set1(8388608.0f);
    const mgc_v normal = mgc_if_lt(x, least_normal, x * two_pow_23, x);
    const mgc_v bias = mgc_if_lt(x, least_normal, mgc_set1(8388608.0f + 127.0f + 23.0f), mgc_set1(8388608.0f + 127.0f));
    const mgc_u bits = mgc_bits(normal);
    /* The bits of 1 minus those of sqrt(1/2): the sum carries into the exponent if the mantissa is sqrt(2) or more. */
    const mgc_u exponent = (bits + (0x3f800000u - 0x3f3504f3u)) >> 23;
    *f = mgc_float(bits - (exponent << 23) + 0x3f800000u) - mgc_set1(1.0f);
    /* 0x4b000000 are the bits of 2^23; the lowest bits of the float 2^23 + exponent are those of the exponent. */
    return mgc_float(exponent | 0x4b000000u) - bias;
}

/* Returns the result of mgc_log for positive finite x; otherwise what the logarithm of x is. */
static MGC_INLINE mgc_v mgc_log_edge(mgc_v result, mgc_v x)
{
    const mgc_v zero = mgc_zero(), infinity = mgc_set1(MGC_INF);
    const mgc_v edge = mgc_if_lt(x, zero, mgc_set1(MGC_NAN), x - infinity);
    return mgc_if_lt(zero, x, mgc_if_lt(x, infinity, result, x), edge);
}
#endif

/* Returns log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1). */
static MGC_INLINE mgc_v mgc_log1p_tail(mgc_v f)
{
    mgc_v p = mgc_set1(-7.6344296e-2f);
    p = mgc_fma(p, f, mgc_set1(0.12761550f));
    p = mgc_fma(p, f, mgc_set1(-0.13160194f));
    p = mgc_fma(p, f, mgc_set1(0.14201762f));
    p = mgc_fma(p, f, mgc_set1(-0.16623357f));
    p = mgc_fma(p, f, mgc_set1(0.20001227f));
    p = mgc_fma(p, f, mgc_set1(-0.25000823f));
    p = mgc_fma(p, f, mgc_set1(0.33333331f));
    return mgc_fma(p, f, mgc_set1(-0.5f)) * f * f;
}

static MGC_INLINE mgc_v mgc_log(mgc_v x)
{
    mgc_v f;
    const mgc_v e = mgc_split(x, &f);
    const mgc_v low = mgc_fma(e, mgc_set1(-2.12194440e-4f), mgc_log1p_tail(f));
    return mgc_log_edge(mgc_fma(e, mgc_set1(0.693359375f), f + low), x);
}

static MGC_INLINE mgc_v mgc_pow(mgc_v x, mgc_v y)
{
    const mgc_v zero = mgc_zero(), one = mgc_set1(1.0f), half = mgc_set1(0.5f), infinity = mgc_set1(MGC_INF);
    const mgc_v rounder = mgc_set1(MGC_ROUNDER), magnitude = mgc_abs(x);
    /* Limits the exponent: larger ones give the same results, but could become infinite in between. */
    const mgc_v power = mgc_min(mgc_max(y, mgc_set1(-4e9f)), mgc_set1(4e9f));
    mgc_v f;
    const mgc_v e = mgc_split(magnitude, &f);
    /* log2(|x|) = e + fraction. power * e - n is exact, so only the fraction's error grows with the power. */
    const mgc_v tail = mgc_fma(f, mgc_set1(1.9259630e-8f), mgc_log1p_tail(f) * mgc_set1(1.44269504f));
    const mgc_v part = power * mgc_fma(f, mgc_set1(1.44269504f), tail);
    const mgc_v whole = mgc_fma(power, e, part);
    const mgc_v bounded = mgc_min(mgc_max(whole, mgc_set1(-152.0f)), mgc_set1(129.0f));
    const mgc_v n = (bounded + rounder) - rounder;
    const mgc_v exact = mgc_fma(power, e, mgc_neg(n)) + part;
    const mgc_v rest = mgc_if_lt(zero, mgc_abs(whole - bounded), zero, exact);
    mgc_v result = mgc_ldexp(mgc_exp_fraction(rest * mgc_set1(0.69314718f)), n);
    result = result + (rest + magnitude) * zero; /* NaN of x or y, which the limits above may have removed */
    /* Powers of infinity and of 0: the exponent grows them, or shrinks them. */
    const mgc_v grows = mgc_if_lt(zero, y, infinity, mgc_if_lt(y, zero, zero, y));
    const mgc_v shrinks = mgc_if_lt(y, zero, infinity, mgc_if_lt(zero, y, zero, y));
    result = mgc_if_lt(zero, magnitude, result, shrinks + magnitude);
    result = mgc_if_lt(mgc_set1(3.40282347e38f), magnitude, grows, result);
    /* 1 or 0: whether y is fractional, or an odd integer, whose powers have the sign of x. */
    const mgc_v fractional = mgc_if_lt(mgc_floor(y), y, one, zero), half_y = y * half;
    const mgc_v odd = mgc_if_lt(mgc_floor(half_y), half_y, one - fractional, zero);
    result = mgc_if_lt(zero, odd, mgc_with_sign(result, x), result);
    /* Fractional powers of negative x, but not of -infinity, are NaN. */
    const mgc_v negative = mgc_if_lt(x, zero, mgc_if_lt(magnitude, infinity, one, zero), zero);
    result = mgc_if_lt(zero, negative * fractional, mgc_set1(MGC_NAN), result);
    /* 1^y is 1 and x^0 is 1, even for NaN. */
    result = mgc_if_lt(zero, mgc_abs(x - one), result, x);
    return mgc_if_lt(zero, mgc_abs(y), result, mgc_if_lt(y, one, one, result));
}

/* Computes each lane by the function of doubles. */
#define MGC_BY_LANES(name)                                   \
    static MGC_INLINE mgc_v mgc_##name(mgc_v x)              \
    {                                                        \
        float lane[MGC_LANES];                               \
        mgc_store(lane, x);                                  \
        for (int32_t i = 0; i < MGC_LANES; i++)              \
            lane[i] = (float)mgd_##name((double)lane[i]);    \
        return mgc_load(lane);                               \
    }

MGC_BY_LANES(sin)
MGC_BY_LANES(cos)
MGC_BY_LANES(tan)
MGC_BY_LANES(asin)
MGC_BY_LANES(acos)
MGC_BY_LANES(atan)
MGC_BY_LANES(sinh)
MGC_BY_LANES(cosh)
MGC_BY_LANES(asinh)
MGC_BY_LANES(acosh)
MGC_BY_LANES(atanh)

#endif
#endif
