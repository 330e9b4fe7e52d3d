/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_simd.h for the vector extension of RISC-V (V 1.0): vectors of sixteen lanes, in four, two or one of the
 * shortest registers that the level guarantees, of 128, 256 or 512 bits. They are clang's C vectors: clang makes one
 * instruction of each operation here, multiplies by scalars directly, and its code also runs on CPUs with longer
 * registers.
 */
#ifndef MEGCC_SIMD_RVV_H
#define MEGCC_SIMD_RVV_H

#define MGC_LANES 16

typedef float mgc_v __attribute__((vector_size(4 * MGC_LANES)));
typedef uint32_t mgc_u __attribute__((vector_size(4 * MGC_LANES)));
typedef int32_t mgc_lanes __attribute__((vector_size(4 * MGC_LANES)));

/* A vector at any address of a float. */
typedef float mgc_floats __attribute__((vector_size(4 * MGC_LANES), aligned(4)));

static MGC_INLINE mgc_v mgc_load(const float *p) { return *(const mgc_floats *)(const void *)p; }
static MGC_INLINE void mgc_store(float *p, mgc_v v) { *(mgc_floats *)(void *)p = v; }

#if __has_builtin(__builtin_masked_load)
typedef _Bool mgc_mask __attribute__((ext_vector_type(MGC_LANES)));
typedef float mgc_masked __attribute__((ext_vector_type(MGC_LANES)));
static MGC_INLINE mgc_mask mgc_first(int32_t n)
{
    mgc_lanes lane;
    for (int32_t i = 0; i < MGC_LANES; i++) {
        lane[i] = i;
    }
    return __builtin_convertvector(lane < n, mgc_mask);
}
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    return (mgc_v)__builtin_masked_load(mgc_first(n), p, (mgc_masked)(mgc_v){ 0.0f });
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n) { __builtin_masked_store(mgc_first(n), (mgc_masked)v, p); }
#else
static MGC_INLINE mgc_v mgc_load_n(const float *p, int32_t n)
{
    mgc_v v = { 0.0f };
    for (int32_t i = 0; i < n && i < MGC_LANES; i++) {
        v[i] = p[i];
    }
    return v;
}
static MGC_INLINE void mgc_store_n(float *p, mgc_v v, int32_t n)
{
    for (int32_t i = 0; i < n && i < MGC_LANES; i++) {
        p[i] = v[i];
    }
}
#endif

/* mgc_spread scatters n floats to every `step`-th float from `to` on; mgc_collect gathers them. Both use strided stores or
 * loads of groups of eight registers. */
#define MGC_GROUP "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "vl", "vtype", "memory"
static MGC_INLINE void mgc_spread(float *to, ptrdiff_t step, const float *from, ptrdiff_t n)
{
    for (ptrdiff_t now; n > 0; n -= now, from += now, to += now * step) {
        __asm__ volatile("vsetvli %0, %1, e32, m8, ta, ma\n\tvle32.v v8, (%2)\n\tvsse32.v v8, (%3), %4"
                         : "=&r"(now) : "r"(n), "r"(from), "r"(to), "r"(4 * step) : MGC_GROUP);
    }
}
static MGC_INLINE void mgc_collect(float *to, const float *from, ptrdiff_t step, ptrdiff_t n)
{
    for (ptrdiff_t now; n > 0; n -= now, from += now * step, to += now) {
        __asm__ volatile("vsetvli %0, %1, e32, m8, ta, ma\n\tvlse32.v v8, (%2), %4\n\tvse32.v v8, (%3)"
                         : "=&r"(now) : "r"(n), "r"(from), "r"(to), "r"(4 * step) : MGC_GROUP);
    }
}
#undef MGC_GROUP

static MGC_INLINE mgc_v mgc_set1(float s) { return s - (mgc_v){ 0.0f }; }
static MGC_INLINE mgc_v mgc_zero(void) { return (mgc_v){ 0.0f }; }
#define MGC_FUSED 1
static MGC_INLINE mgc_v mgc_fma(mgc_v a, mgc_v b, mgc_v c) { return __builtin_elementwise_fma(a, b, c); }
static MGC_INLINE mgc_v mgc_fma_by(mgc_v a, float s, mgc_v c) { return mgc_fma(a, mgc_set1(s), c); }
static MGC_INLINE mgc_u mgc_bits(mgc_v v) { return (mgc_u)v; }

/* mgc_v2 and mgc_v4: 2 or 4 neighbouring vectors in a register group, on which one instruction works; mgc_part<n>(v,k) is
 * vector k of them. */
#define MGC_JOINED(n) \
    typedef float mgc_v##n __attribute__((vector_size(4 * (n) * MGC_LANES))); \
    static MGC_INLINE mgc_v##n mgc_zero##n(void) { return (mgc_v##n){ 0.0f }; } \
    static MGC_INLINE mgc_v##n mgc_load##n(const float *p) \
    { \
        mgc_v##n v; \
        memcpy(&v, p, sizeof v); \
        return v; \
    } \
    static MGC_INLINE mgc_v##n mgc_fma_by##n(mgc_v##n a, float s, mgc_v##n c) \
    { \
        return __builtin_elementwise_fma(a, s - (mgc_v##n){ 0.0f }, c); \
    } \
    static MGC_INLINE mgc_v mgc_part##n(mgc_v##n v, int32_t k) \
    { \
        mgc_v part; \
        for (int32_t i = 0; i < MGC_LANES; i++) { \
            part[i] = v[k * MGC_LANES + i]; \
        } \
        return part; \
    }
MGC_JOINED(2)
MGC_JOINED(4)
#undef MGC_JOINED

/* Returns p[index[0]], p[index[1]], …, for any indices. */
static MGC_INLINE mgc_v mgc_pick(const float *p, const int32_t *index)
{
    mgc_v picked = mgc_zero();
    for (int32_t k = 0; k < MGC_LANES; k++) {
        picked[k] = p[index[k]];
    }
    return picked;
}

static MGC_INLINE mgc_v mgc_float(mgc_u u) { return (mgc_v)u; }

/* True lanes of a comparison are -1; clang compiles this to one merge. */
static MGC_INLINE mgc_v mgc_select(mgc_lanes mask, mgc_v x, mgc_v y) { return (mgc_v)(((mgc_lanes)x & mask) | ((mgc_lanes)y & ~mask)); }
static MGC_INLINE mgc_v mgc_if_lt(mgc_v a, mgc_v b, mgc_v x, mgc_v y) { return mgc_select(a < b, x, y); }
static MGC_INLINE mgc_v mgc_min(mgc_v a, mgc_v b) { return mgc_if_lt(b, a, b, a); }
static MGC_INLINE mgc_v mgc_max(mgc_v a, mgc_v b) { return mgc_if_lt(a, b, b, a); }
static MGC_INLINE mgc_v mgc_or_nan(mgc_v v, mgc_v b) { return mgc_select(b != b, b, v); }

static MGC_INLINE mgc_v mgc_abs(mgc_v v) { return mgc_float(mgc_bits(v) & 0x7fffffffu); }
static MGC_INLINE mgc_v mgc_neg(mgc_v v) { return -v; }
static MGC_INLINE mgc_v mgc_recip(mgc_v v) { return 1.0f / v; }
static MGC_INLINE mgc_v mgc_sqrt(mgc_v v) { return __builtin_elementwise_sqrt(v); }
static MGC_INLINE mgc_v mgc_round(mgc_v v) { return __builtin_elementwise_roundeven(v); }
static MGC_INLINE mgc_v mgc_floor(mgc_v v) { return __builtin_elementwise_floor(v); }
static MGC_INLINE mgc_v mgc_ceil(mgc_v v) { return __builtin_elementwise_ceil(v); }

static MGC_INLINE mgc_v mgc_zip_low(mgc_v a, mgc_v b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static MGC_INLINE mgc_v mgc_zip_high(mgc_v a, mgc_v b)
{
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
static MGC_INLINE mgc_v mgc_even(mgc_v a, mgc_v b)
{
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}

/* Adds the upper half of the lanes to the lower half, down to one lane. */
static MGC_INLINE float mgc_sum(mgc_v v)
{
    for (int step = MGC_LANES / 2; step > 1; step /= 2) {
        mgc_v upper = v;
        for (int i = 0; i < step; i++) {
            upper[i] = v[i + step];
        }
        v += upper;
    }
    return v[0] + v[1];
}
static MGC_INLINE float mgc_hmax(mgc_v v)
{
    for (int step = MGC_LANES / 2; step > 1; step /= 2) {
        mgc_v upper = v;
        for (int i = 0; i < step; i++) {
            upper[i] = v[i + step];
        }
        v = mgc_max(v, upper);
    }
    return v[1] > v[0] ? v[1] : v[0];
}

/* Converts to the nearest int32, ties to even: the low bits of the double 1.5 * 2^52 + v, which is rounded to an integer. clang
 * would compile a conversion to the truncating instruction, which qemu before version 8 lacks. */
static MGC_INLINE mgc_lanes mgc_round_to_int(mgc_v v)
{
    typedef double doubles __attribute__((vector_size(8 * MGC_LANES)));
    typedef int64_t bits __attribute__((vector_size(8 * MGC_LANES)));
    return __builtin_convertvector((bits)(__builtin_convertvector(v, doubles) + 6755399441055744.0), mgc_lanes);
}

static MGC_INLINE mgc_v mgc_ldexp(mgc_v v, mgc_v n)
{
    /* Multiplies by two factors, each a normal power of two. The low bits of 1.5 * 2^23 + n are those of n. */
    const mgc_lanes whole = (mgc_lanes)(n + 12582912.0f) - 0x4b400000, half = whole >> 1;
    return v * (mgc_v)((half + 127) << 23) * (mgc_v)((whole - half + 127) << 23);
}

#endif
