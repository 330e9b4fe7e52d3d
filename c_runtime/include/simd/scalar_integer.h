/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of single integers that dsp_integer.h and pairs_integer.h share, for cores without vectors.
 *
 *   mgc_shift_right(v,n)       v / 2^n, rounded down, for n in [0, 31]
 *   mgc_within_<type>(v)       v limited to the range of the type, i8 or u8
 *   mgc_total_<type>(x,n,z)    the sum of n elements of the type, i8 or u8, minus z each
 */
#ifndef MEGCC_SCALAR_INTEGER_H
#define MEGCC_SCALAR_INTEGER_H

/* Freestanding compilers do not optimise calls of `memcpy`, but those of the builtin. */
#if MGC_GNU
#define MGC_COPY __builtin_memcpy
#else
#define MGC_COPY memcpy
#endif

/* ISO C leaves right shifts of negative numbers to the implementation, GNU C does not. So the complement is shifted. */
#if MGC_GNU
static MGC_INLINE int32_t mgc_shift_right(int32_t v, int32_t n) { return v >> n; }
#else
static MGC_INLINE int32_t mgc_shift_right(int32_t v, int32_t n) { return v < 0 ? ~(~v >> n) : v >> n; }
#endif

#if MGC_GNU && defined(__arm__) && defined(__ARM_FEATURE_SAT)
static MGC_INLINE int32_t mgc_within_i8(int32_t v)
{
    __asm__("ssat %0, #8, %0" : "+r"(v));
    return v;
}
static MGC_INLINE int32_t mgc_within_u8(int32_t v)
{
    __asm__("usat %0, #8, %0" : "+r"(v));
    return v;
}
#else
static MGC_INLINE int32_t mgc_within_i8(int32_t v) { return mgc_imin(mgc_imax(v, -128), 127); }
static MGC_INLINE int32_t mgc_within_u8(int32_t v) { return mgc_imin(mgc_imax(v, 0), 255); }
#endif

#define MGC_TOTAL(name, type) \
    static MGC_INLINE int32_t mgc_total_##name(const type *x, int32_t n, int32_t zero) \
    { \
        int32_t total = 0; \
        for (int32_t i = 0; i < n; i++) { \
            total += (int32_t)x[i]; \
        } \
        return total - n * zero; \
    }
MGC_TOTAL(i8, int8_t)
MGC_TOTAL(u8, uint8_t)
#undef MGC_TOTAL

#endif
