/* SPDX-License-Identifier: Apache-2.0
 *
 * megcc_integer.h for Arm with NEON, 32 and 64 bits: the functions that take only a few instructions there.
 */
#ifndef MEGCC_SIMD_NEON_INTEGER_H
#define MEGCC_SIMD_NEON_INTEGER_H

/* Conversions to integers saturate, and NaN gives 0. */
static MGC_INLINE mgc_i mgc_nearest(mgc_v v)
{
#if defined(__aarch64__)
    return (mgc_i)vcvtnq_s32_f32(v);
#else
    /* Adding 2^23 rounds to an integer. Magnitudes are compared as integers, in which NaN is the largest, because gcc
     * makes scalar code of comparisons of floats. */
    const float32x4_t limit = vdupq_n_f32(8388608.0f), magnitude = vabsq_f32(v);
    const uint32x4_t small = vcltq_s32(vreinterpretq_s32_f32(magnitude), vdupq_n_s32(0x4b000000));
    const float32x4_t whole = vbslq_f32(vdupq_n_u32(0x80000000u), v, vsubq_f32(vaddq_f32(magnitude, limit), limit));
    return (mgc_i)vcvtq_s32_f32(vbslq_f32(small, whole, v));
#endif
}

static MGC_INLINE mgc_i mgc_nearest_within(mgc_v v) { return mgc_nearest(v); }

/* Loads and stores of 4 elements of 8 or 16 bits as one number of 4 or 8 bytes, or of the first n, 0 <= n <= 4: exactly these
 * are touched. If n < 4, two elements go at once if n & 2, then the last one, element n & 2, if n & 1. */
static MGC_INLINE uint32_t mgc_take_4(const void *p)
{
    uint32_t bytes;
    memcpy(&bytes, p, 4);
    return bytes;
}
static MGC_INLINE uint32_t mgc_take_4_n(const void *p, int32_t n)
{
    const uint8_t *from = (const uint8_t *)p;
    uint16_t pair;
    uint32_t bytes = 0;
    if (n >= 4) {
        return mgc_take_4(p);
    }
    if (n & 2) {
        memcpy(&pair, from, 2);
        bytes = pair;
    }
    return n & 1 ? bytes | (uint32_t)from[n & 2] << (n & 2 ? 16 : 0) : bytes;
}
static MGC_INLINE uint64_t mgc_take_8(const void *p)
{
    uint64_t bytes;
    memcpy(&bytes, p, 8);
    return bytes;
}
static MGC_INLINE uint64_t mgc_take_8_n(const void *p, int32_t n)
{
    const uint16_t *from = (const uint16_t *)p;
    uint64_t bytes = 0;
    if (n >= 4) {
        return mgc_take_8(p);
    }
    if (n & 2) {
        bytes = mgc_take_4(from);
    }
    return n & 1 ? bytes | (uint64_t)from[n & 2] << (n & 2 ? 32 : 0) : bytes;
}
static MGC_INLINE void mgc_put_4(void *p, uint32_t bytes) { memcpy(p, &bytes, 4); }
static MGC_INLINE void mgc_put_4_n(void *p, uint32_t bytes, int32_t n)
{
    uint8_t *to = (uint8_t *)p;
    const uint16_t pair = (uint16_t)bytes;
    if (n >= 4) {
        mgc_put_4(p, bytes);
        return;
    }
    if (n & 2) {
        memcpy(to, &pair, 2);
    }
    if (n & 1) {
        to[n & 2] = (uint8_t)(n & 2 ? bytes >> 16 : bytes);
    }
}
static MGC_INLINE void mgc_put_8(void *p, uint64_t bytes) { memcpy(p, &bytes, 8); }
static MGC_INLINE void mgc_put_8_n(void *p, uint64_t bytes, int32_t n)
{
    uint16_t *to = (uint16_t *)p;
    if (n >= 4) {
        mgc_put_8(p, bytes);
        return;
    }
    if (n & 2) {
        mgc_put_4(to, (uint32_t)bytes);
    }
    if (n & 1) {
        to[n & 2] = (uint16_t)(n & 2 ? bytes >> 32 : bytes);
    }
}

/* Saturates to int16; saturating that to 8 bits gives the same as from int32 directly. */
static MGC_INLINE int16x8_t mgc_narrow_i16(mgc_i a, mgc_i b)
{
    return vcombine_s16(vqmovn_s32((int32x4_t)a), vqmovn_s32((int32x4_t)b));
}
static MGC_INLINE uint32_t mgc_bytes_i8(mgc_i v)
{
    return vget_lane_u32(vreinterpret_u32_s8(vqmovn_s16(mgc_narrow_i16(v, v))), 0);
}
static MGC_INLINE uint32_t mgc_bytes_u8(mgc_i v)
{
    return vget_lane_u32(vreinterpret_u32_u8(vqmovun_s16(mgc_narrow_i16(v, v))), 0);
}
static MGC_INLINE uint64_t mgc_bytes_i16(mgc_i v)
{
    return vget_lane_u64(vreinterpret_u64_s16(vqmovn_s32((int32x4_t)v)), 0);
}
static MGC_INLINE uint64_t mgc_bytes_u16(mgc_i v)
{
    return vget_lane_u64(vreinterpret_u64_u16(vqmovun_s32((int32x4_t)v)), 0);
}
static MGC_INLINE mgc_i mgc_lanes_i8(uint32_t bytes)
{
    return (mgc_i)vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes)))));
}
static MGC_INLINE mgc_i mgc_lanes_u8(uint32_t bytes)
{
    return (mgc_i)vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)))));
}
static MGC_INLINE mgc_i mgc_lanes_i16(uint64_t bytes) { return (mgc_i)vmovl_s16(vcreate_s16(bytes)); }
static MGC_INLINE mgc_i mgc_lanes_u16(uint64_t bytes) { return (mgc_i)vmovl_u16(vcreate_u16(bytes)); }

/* mgc_iload2_<type>(p), mgc_iload4_<type>(p): load eight or sixteen elements of i8 or u8 as two or four vectors. */
typedef struct mgc_i2 {
    mgc_i v[2];
} mgc_i2;
static MGC_INLINE mgc_i2 mgc_iload2_i8(const int8_t *p)
{
    const int16x8_t bytes = vmovl_s8(vld1_s8(p));
    const mgc_i2 two = { { (mgc_i)vmovl_s16(vget_low_s16(bytes)), (mgc_i)vmovl_s16(vget_high_s16(bytes)) } };
    return two;
}
static MGC_INLINE mgc_i2 mgc_iload2_u8(const uint8_t *p)
{
    const uint16x8_t bytes = vmovl_u8(vld1_u8(p));
    const mgc_i2 two = { { (mgc_i)vmovl_u16(vget_low_u16(bytes)), (mgc_i)vmovl_u16(vget_high_u16(bytes)) } };
    return two;
}
typedef struct mgc_i4 {
    mgc_i v[4];
} mgc_i4;
static MGC_INLINE mgc_i4 mgc_iload4_i8(const int8_t *p)
{
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    const mgc_i4 four = { { (mgc_i)vmovl_s16(vget_low_s16(low)), (mgc_i)vmovl_s16(vget_high_s16(low)),
        (mgc_i)vmovl_s16(vget_low_s16(high)), (mgc_i)vmovl_s16(vget_high_s16(high)) } };
    return four;
}
static MGC_INLINE mgc_i4 mgc_iload4_u8(const uint8_t *p)
{
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
    const mgc_i4 four = { { (mgc_i)vmovl_u16(vget_low_u16(low)), (mgc_i)vmovl_u16(vget_high_u16(low)),
        (mgc_i)vmovl_u16(vget_low_u16(high)), (mgc_i)vmovl_u16(vget_high_u16(high)) } };
    return four;
}

#define MGC_ELEMENTS(name, type, size) \
    static MGC_INLINE mgc_i mgc_iload_##name(const type *p) { return mgc_lanes_##name(mgc_take_##size(p)); } \
    static MGC_INLINE mgc_i mgc_iload_##name##_n(const type *p, int32_t n) { return mgc_lanes_##name(mgc_take_##size##_n(p, n)); } \
    static MGC_INLINE void mgc_istore_##name(type *p, mgc_i v) { mgc_put_##size(p, mgc_bytes_##name(v)); } \
    static MGC_INLINE void mgc_istore_##name##_n(type *p, mgc_i v, int32_t n) { mgc_put_##size##_n(p, mgc_bytes_##name(v), n); }
MGC_ELEMENTS(i8, int8_t, 4)
MGC_ELEMENTS(u8, uint8_t, 4)
MGC_ELEMENTS(i16, int16_t, 8)
MGC_ELEMENTS(u16, uint16_t, 8)
static MGC_INLINE mgc_i mgc_iload_i32(const int32_t *p) { return (mgc_i)vld1q_s32(p); }
static MGC_INLINE void mgc_istore_i32(int32_t *p, mgc_i v) { vst1q_s32(p, (int32x4_t)v); }
static MGC_INLINE mgc_i mgc_iload_i32_n(const int32_t *p, int32_t n)
{
    int32x4_t v = vdupq_n_s32(0);
    if (n >= 4) {
        return mgc_iload_i32(p);
    }
    if (n > 0) {
        v = vld1q_lane_s32(p, v, 0);
    }
    if (n > 1) {
        v = vld1q_lane_s32(p + 1, v, 1);
    }
    if (n > 2) {
        v = vld1q_lane_s32(p + 2, v, 2);
    }
    return (mgc_i)v;
}
static MGC_INLINE void mgc_istore_i32_n(int32_t *p, mgc_i v, int32_t n)
{
    if (n >= 4) {
        mgc_istore_i32(p, v);
        return;
    }
    if (n > 0) {
        vst1q_lane_s32(p, (int32x4_t)v, 0);
    }
    if (n > 1) {
        vst1q_lane_s32(p + 1, (int32x4_t)v, 1);
    }
    if (n > 2) {
        vst1q_lane_s32(p + 2, (int32x4_t)v, 2);
    }
}

static MGC_INLINE int32x4_t mgc_mlal_high(int32x4_t c, int16x8_t a, int16x8_t b)
{
#if defined(__aarch64__)
    return vmlal_high_s16(c, a, b);
#else
    return vmlal_s16(c, vget_high_s16(a), vget_high_s16(b));
#endif
}

#if defined(__aarch64__)
/* Two lanes each of a and b: the lower ones, and the upper ones. */
static MGC_INLINE mgc_i mgc_ilower(mgc_i a, mgc_i b) { return (mgc_i)vzip1q_s64((int64x2_t)a, (int64x2_t)b); }
static MGC_INLINE mgc_i mgc_iupper(mgc_i a, mgc_i b) { return (mgc_i)vzip2q_s64((int64x2_t)a, (int64x2_t)b); }
#endif
/* Returns a vector of four sums, each of the lanes of one vector. */
static MGC_INLINE mgc_i mgc_isummed(mgc_i a, mgc_i b, mgc_i c, mgc_i d)
{
#if defined(__aarch64__)
    return (mgc_i)vpaddq_s32(vpaddq_s32((int32x4_t)a, (int32x4_t)b), vpaddq_s32((int32x4_t)c, (int32x4_t)d));
#else
    const int32x4_t p = (int32x4_t)a, q = (int32x4_t)b, r = (int32x4_t)c, s = (int32x4_t)d;
    const int32x2_t low = vpadd_s32(vpadd_s32(vget_low_s32(p), vget_high_s32(p)), vpadd_s32(vget_low_s32(q), vget_high_s32(q)));
    const int32x2_t high = vpadd_s32(vpadd_s32(vget_low_s32(r), vget_high_s32(r)), vpadd_s32(vget_low_s32(s), vget_high_s32(s)));
    return (mgc_i)vcombine_s32(low, high);
#endif
}

/* mgc_requantize_store2_<type>(p,a,b,down,zero,low,high) and mgc_requantize_store4_<type>(p,a,b,c,d,down,zero,low,high) store
 * two or four vectors plus `zero` as i8 or u8, limited to [low, high]. With down = 0, lanes are integers. With `down` from 3
 * to 6, lanes are fixed-point numbers with 16 + down fractional bits, which are rounded, ties up: of each lane only the
 * upper int16 is taken, and the instruction that narrows it to a byte shifts it right by `down`. `down`, `zero`, `low` and
 * `high` are constants where these functions are inlined, so no condition remains.
 *
 * mgc_narrow_shifted: the int16 of two vectors, plus zero * 2^down. */
static MGC_INLINE int16x8_t mgc_narrow_shifted(mgc_i a, mgc_i b, int32_t down, int32_t zero)
{
#if defined(__aarch64__)
    const int16x8_t v = down ? vuzp2q_s16((int16x8_t)a, (int16x8_t)b) : vqmovn_high_s32(vqmovn_s32((int32x4_t)a), (int32x4_t)b);
#else
    const int16x8_t v = down ? vuzpq_s16((int16x8_t)a, (int16x8_t)b).val[1] : mgc_narrow_i16(a, b);
#endif
    return zero == 0 ? v : vqaddq_s16(v, vdupq_n_s16((int16_t)(zero * (1 << down))));
}
/* MGC_JOINED narrows two vectors of int16 to one of bytes; MGC_JOINED_DOWN shifts them, by an immediate operand of the
 * instruction, which is why mgc_saturated_<kind> tests for each value of `down`. */
#if defined(__aarch64__)
#define MGC_JOINED(narrow, kind, a, b) narrow##_high_s16(narrow##_s16(a), b)
#define MGC_JOINED_DOWN(narrow, kind, a, b, n) narrow##_high_n_s16(narrow##_n_s16(a, n), b, n)
#else
#define MGC_JOINED(narrow, kind, a, b) vcombine_##kind(narrow##_s16(a), narrow##_s16(b))
#define MGC_JOINED_DOWN(narrow, kind, a, b, n) vcombine_##kind(narrow##_n_s16(a, n), narrow##_n_s16(b, n))
#endif
#define MGC_NARROWED(kind, vector, narrow, rounded) \
    static MGC_INLINE vector##8_t mgc_saturated_##kind(int16x8_t v, int32_t down) \
    { \
        return down == 0 ? narrow##_s16(v) : down == 3 ? rounded##_n_s16(v, 3) : down == 4 ? rounded##_n_s16(v, 4) \
            : down == 5 ? rounded##_n_s16(v, 5) : rounded##_n_s16(v, 6); \
    } \
    static MGC_INLINE vector##16_t mgc_saturated2_##kind(int16x8_t v, int16x8_t w, int32_t down) \
    { \
        return down == 0 ? MGC_JOINED(narrow, kind, v, w) : down == 3 ? MGC_JOINED_DOWN(rounded, kind, v, w, 3) \
            : down == 4 ? MGC_JOINED_DOWN(rounded, kind, v, w, 4) : down == 5 ? MGC_JOINED_DOWN(rounded, kind, v, w, 5) \
            : MGC_JOINED_DOWN(rounded, kind, v, w, 6); \
    }
MGC_NARROWED(s8, int8x, vqmovn, vqrshrn)
MGC_NARROWED(u8, uint8x, vqmovun, vqrshrun)
/* For int8 with zero point -128: computes bytes of 0 to 255 and inverts their highest bit. */
static MGC_INLINE int8x8_t mgc_narrow_i8(mgc_i a, mgc_i b, int32_t down, int32_t zero)
{
    if (zero == -128) {
        return vreinterpret_s8_u8(veor_u8(mgc_saturated_u8(mgc_narrow_shifted(a, b, down, 0), down), vdup_n_u8(0x80)));
    }
    return mgc_saturated_s8(mgc_narrow_shifted(a, b, down, zero), down);
}
static MGC_INLINE int8x16_t mgc_narrow4_i8(mgc_i a, mgc_i b, mgc_i c, mgc_i d, int32_t down, int32_t zero)
{
    if (zero == -128) {
        const uint8x16_t v = mgc_saturated2_u8(mgc_narrow_shifted(a, b, down, 0), mgc_narrow_shifted(c, d, down, 0), down);
        return vreinterpretq_s8_u8(veorq_u8(v, vdupq_n_u8(0x80)));
    }
    return mgc_saturated2_s8(mgc_narrow_shifted(a, b, down, zero), mgc_narrow_shifted(c, d, down, zero), down);
}
static MGC_INLINE uint8x8_t mgc_narrow_u8(mgc_i a, mgc_i b, int32_t down, int32_t zero)
{
    return mgc_saturated_u8(mgc_narrow_shifted(a, b, down, zero), down);
}
static MGC_INLINE uint8x16_t mgc_narrow4_u8(mgc_i a, mgc_i b, mgc_i c, mgc_i d, int32_t down, int32_t zero)
{
    return mgc_saturated2_u8(mgc_narrow_shifted(a, b, down, zero), mgc_narrow_shifted(c, d, down, zero), down);
}
#define MGC_REQUANTIZE_STORE(name, type, vector, kind, least, most) \
    static MGC_INLINE void mgc_requantize_store2_##name(type *p, mgc_i a, mgc_i b, int32_t down, int32_t zero, int32_t low, int32_t high) \
    { \
        vector##8_t v = mgc_narrow_##name(a, b, down, zero); \
        v = low > (least) ? vmax_##kind(v, vdup_n_##kind((type)low)) : v; \
        vst1_##kind(p, high < (most) ? vmin_##kind(v, vdup_n_##kind((type)high)) : v); \
    } \
    static MGC_INLINE void mgc_requantize_store4_##name(type *p, mgc_i a, mgc_i b, mgc_i c, mgc_i d, int32_t down, int32_t zero, int32_t low, \
        int32_t high) \
    { \
        vector##16_t v = mgc_narrow4_##name(a, b, c, d, down, zero); \
        v = low > (least) ? vmaxq_##kind(v, vdupq_n_##kind((type)low)) : v; \
        vst1q_##kind(p, high < (most) ? vminq_##kind(v, vdupq_n_##kind((type)high)) : v); \
    }
MGC_REQUANTIZE_STORE(i8, int8_t, int8x, s8, -128, 127)
MGC_REQUANTIZE_STORE(u8, uint8_t, uint8x, u8, 0, 255)

/* The packed form i8 of NEON: int8, and uint8 with its highest bit inverted. mgc_xor_bytes copies n bytes, each "exclusive
 * or" `bits`. */
static MGC_INLINE void mgc_xor_bytes(int8_t *to, const uint8_t *from, int32_t n, uint8_t bits)
{
    const uint8x16_t vector = vdupq_n_u8(bits);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vst1q_s8(to + i, vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from + i), vector)));
    }
    if (i + 8 <= n) {
        vst1_s8(to + i, vreinterpret_s8_u8(veor_u8(vld1_u8(from + i), vget_low_u8(vector))));
        i += 8;
    }
    for (; i + 4 <= n; i += 4) {
        mgc_put_4(to + i, mgc_take_4(from + i) ^ bits * 0x01010101u);
    }
    for (; i < n; i++) {
        to[i] = (int8_t)(from[i] ^ bits);
    }
}
static MGC_INLINE void mgc_pack_i8_i8(int8_t *to, const int8_t *from, int32_t n, int32_t zero)
{
    (void)zero;
    mgc_xor_bytes(to, (const uint8_t *)from, n, 0);
}
static MGC_INLINE void mgc_pack_i8_u8(int8_t *to, const uint8_t *from, int32_t n, int32_t zero)
{
    (void)zero;
    mgc_xor_bytes(to, from, n, 0x80);
}
static MGC_INLINE mgc_i mgc_total_i8(mgc_i c, const int8_t *p, int32_t n)
{
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        c = (mgc_i)vpadalq_s16((int32x4_t)c, vpaddlq_s8(vld1q_s8(p + i)));
    }
    for (; i < n; i += 4) {
        c = mgc_iadd(c, mgc_lanes_i8(mgc_take_4_n(p + i, n - i)));
    }
    return c;
}
static MGC_INLINE void mgc_fill_i8(int8_t *to, int32_t n, int32_t value)
{
    const int8x16_t bytes = vdupq_n_s8((int8_t)value);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vst1q_s8(to + i, bytes);
    }
    for (; i < n; i++) {
        to[i] = (int8_t)value;
    }
}

/* These return x * multiplier * 2^(shift - 31), rounded as megcc_integer.h says; mgc_shift limits shifts to [-31, 30].
 * VRSHL shifts left, or right by a negative shift. It rounds ties up; subtracting 1 from negative numbers before a right
 * shift makes ties round away from zero. */
static MGC_INLINE mgc_i mgc_rescale_fixed(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const int32x4_t by = (int32x4_t)mgc_shift(shift);
    const int32x4_t left = vmaxq_s32(by, vdupq_n_s32(0)), right = vminq_s32(by, vdupq_n_s32(0));
    const int32x4_t high = vqrdmulhq_s32(vshlq_s32((int32x4_t)x, left), (int32x4_t)multiplier);
    return (mgc_i)vrshlq_s32(vqaddq_s32(high, vshrq_n_s32(vandq_s32(high, right), 31)), right);
}
/* Ties of positive numbers round up, as NEON does. */
static MGC_INLINE mgc_i mgc_rescale_positive(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const int32x4_t by = (int32x4_t)mgc_shift(shift);
    const int32x4_t left = vmaxq_s32(by, vdupq_n_s32(0)), right = vminq_s32(by, vdupq_n_s32(0));
    return (mgc_i)vrshlq_s32(vqrdmulhq_s32(vshlq_s32((int32x4_t)x, left), (int32x4_t)multiplier), right);
}
static MGC_INLINE mgc_i mgc_rescale_once(mgc_i x, mgc_i multiplier, mgc_i shift)
{
    const int32x4_t a = (int32x4_t)x, m = (int32x4_t)multiplier;
    const int32x4_t right = vsubq_s32((int32x4_t)mgc_shift(shift), vdupq_n_s32(31));
    const int64x2_t low = vrshlq_s64(vmull_s32(vget_low_s32(a), vget_low_s32(m)), vmovl_s32(vget_low_s32(right)));
    const int64x2_t high = vrshlq_s64(vmull_s32(vget_high_s32(a), vget_high_s32(m)), vmovl_s32(vget_high_s32(right)));
    return (mgc_i)vcombine_s32(vmovn_s64(low), vmovn_s64(high));
}
static MGC_INLINE mgc_i mgc_shift_down(mgc_i x, mgc_i shift)
{
    return (mgc_i)vrshlq_s32((int32x4_t)x, vnegq_s32((int32x4_t)shift));
}

#endif
