/* SPDX-License-Identifier: Apache-2.0
 *
 * Ed25519 signatures of containers: SHA-512 (FIPS 180-4) and the check of RFC 8032. All that goes in is public, so
 * nothing here hides how long it takes; it is written to be small.
 */
#include <stdbool.h>

#include "megcc_signed.h"

/* --- SHA-512 --------------------------------------------------------------------------------------------------- */

typedef struct sha512 {
    uint64_t state[8], bytes;
    uint8_t block[128];
} sha512;

static const uint64_t sha_rounds[80] = {
    0x428a2f98d728ae22u, 0x7137449123ef65cdu, 0xb5c0fbcfec4d3b2fu, 0xe9b5dba58189dbbcu,
    0x3956c25bf348b538u, 0x59f111f1b605d019u, 0x923f82a4af194f9bu, 0xab1c5ed5da6d8118u,
    0xd807aa98a3030242u, 0x12835b0145706fbeu, 0x243185be4ee4b28cu, 0x550c7dc3d5ffb4e2u,
    0x72be5d74f27b896fu, 0x80deb1fe3b1696b1u, 0x9bdc06a725c71235u, 0xc19bf174cf692694u,
    0xe49b69c19ef14ad2u, 0xefbe4786384f25e3u, 0x0fc19dc68b8cd5b5u, 0x240ca1cc77ac9c65u,
    0x2de92c6f592b0275u, 0x4a7484aa6ea6e483u, 0x5cb0a9dcbd41fbd4u, 0x76f988da831153b5u,
    0x983e5152ee66dfabu, 0xa831c66d2db43210u, 0xb00327c898fb213fu, 0xbf597fc7beef0ee4u,
    0xc6e00bf33da88fc2u, 0xd5a79147930aa725u, 0x06ca6351e003826fu, 0x142929670a0e6e70u,
    0x27b70a8546d22ffcu, 0x2e1b21385c26c926u, 0x4d2c6dfc5ac42aedu, 0x53380d139d95b3dfu,
    0x650a73548baf63deu, 0x766a0abb3c77b2a8u, 0x81c2c92e47edaee6u, 0x92722c851482353bu,
    0xa2bfe8a14cf10364u, 0xa81a664bbc423001u, 0xc24b8b70d0f89791u, 0xc76c51a30654be30u,
    0xd192e819d6ef5218u, 0xd69906245565a910u, 0xf40e35855771202au, 0x106aa07032bbd1b8u,
    0x19a4c116b8d2d0c8u, 0x1e376c085141ab53u, 0x2748774cdf8eeb99u, 0x34b0bcb5e19b48a8u,
    0x391c0cb3c5c95a63u, 0x4ed8aa4ae3418acbu, 0x5b9cca4f7763e373u, 0x682e6ff3d6b2b8a3u,
    0x748f82ee5defb2fcu, 0x78a5636f43172f60u, 0x84c87814a1f0ab72u, 0x8cc702081a6439ecu,
    0x90befffa23631e28u, 0xa4506cebde82bde9u, 0xbef9a3f7b2c67915u, 0xc67178f2e372532bu,
    0xca273eceea26619cu, 0xd186b8c721c0c207u, 0xeada7dd6cde0eb1eu, 0xf57d4f7fee6ed178u,
    0x06f067aa72176fbau, 0x0a637dc5a2c898a6u, 0x113f9804bef90daeu, 0x1b710b35131c471bu,
    0x28db77f523047d84u, 0x32caab7b40c72493u, 0x3c9ebe0a15c9bebcu, 0x431d67c49c100d4cu,
    0x4cc5d4becb3e42b6u, 0x597f299cfc657e2au, 0x5fcb6fab3ad6faecu, 0x6c44198c4a475817u,
};

static uint64_t rotated(uint64_t x, uint32_t by)
{
    return x >> by | x << (64u - by);
}

static void sha_block(sha512 *s)
{
    uint64_t w[16], v[8];
    for (uint32_t i = 0; i < 8u; i++) {
        v[i] = s->state[i];
    }
    for (uint32_t i = 0; i < 80u; i++) {
        uint64_t x = 0;
        if (i < 16u) {
            for (uint32_t b = 0; b < 8u; b++) {
                x = x << 8 | s->block[8u * i + b];
            }
        } else {
            const uint64_t p = w[(i + 1u) % 16u], q = w[(i + 14u) % 16u];
            x = w[i % 16u] + (rotated(p, 1) ^ rotated(p, 8) ^ p >> 7) + w[(i + 9u) % 16u] +
                (rotated(q, 19) ^ rotated(q, 61) ^ q >> 6);
        }
        w[i % 16u] = x;
        x += v[7] + (rotated(v[4], 14) ^ rotated(v[4], 18) ^ rotated(v[4], 41)) + (v[6] ^ (v[4] & (v[5] ^ v[6]))) +
             sha_rounds[i];
        const uint64_t y = (rotated(v[0], 28) ^ rotated(v[0], 34) ^ rotated(v[0], 39)) +
                           ((v[0] & v[1]) | (v[2] & (v[0] | v[1])));
        for (uint32_t j = 7; j > 0; j--) {
            v[j] = v[j - 1u];
        }
        v[4] += x;
        v[0] = x + y;
    }
    for (uint32_t i = 0; i < 8u; i++) {
        s->state[i] += v[i];
    }
}

static void sha_open(sha512 *s)
{
    static const uint64_t first[8] = {
        0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
        0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
    };
    s->bytes = 0;
    for (uint32_t i = 0; i < 8u; i++) {
        s->state[i] = first[i];
    }
}

static void sha_add(sha512 *s, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        s->block[s->bytes++ % 128u] = data[i];
        if (s->bytes % 128u == 0) {
            sha_block(s);
        }
    }
}

/* The hash is the state then, most significant byte of each word first. */
static void sha_close(sha512 *s)
{
    static const uint8_t end = 0x80, null = 0;
    const uint64_t bits = s->bytes * 8u;
    sha_add(s, &end, 1);
    while (s->bytes % 128u != 112u) {
        sha_add(s, &null, 1);
    }
    while (s->bytes % 128u != 120u) { /* the upper half of a length of 128 bits */
        sha_add(s, &null, 1);
    }
    for (uint32_t i = 0; i < 8u; i++) {
        const uint8_t byte = (uint8_t)(bits >> (56u - 8u * i));
        sha_add(s, &byte, 1);
    }
}

/* --- numbers of 256 bits: eight words, the lowest first; those of the field are below 2^256, modulo 2^255 - 19 ---- */

typedef uint32_t number[8];

static const number curve_d = { 0x135978a3u, 0x75eb4dcau, 0x4141d8abu, 0x00700a4du,
    0x7779e898u, 0x8cc74079u, 0x2b6ffe73u, 0x52036ceeu };
static const number root_of_minus_1 = { 0x4a0ea0b0u, 0xc4ee1b27u, 0xad2fe478u, 0x2f431806u,
    0x3dfbd7a7u, 0x2b4d0099u, 0x4fc1df0bu, 0x2b832480u };
static const number base_x = { 0x8f25d51au, 0xc9562d60u, 0x9525a7b2u, 0x692cc760u,
    0xfdd6dc5cu, 0xc0a4e231u, 0xcd6e53feu, 0x216936d3u };
static const number base_y = { 0x66666658u, 0x66666666u, 0x66666666u, 0x66666666u,
    0x66666666u, 0x66666666u, 0x66666666u, 0x66666666u };
static const number order = { 0x5cf5d3edu, 0x5812631au, 0xa2f79cd6u, 0x14def9deu,
    0x00000000u, 0x00000000u, 0x00000000u, 0x10000000u };
static const number zero = { 0 };
static const number one = { 1 };

static void set(number to, const number from)
{
    for (uint32_t i = 0; i < 8u; i++) {
        to[i] = from[i];
    }
}

static void load(number to, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < 8u; i++, bytes += 4) {
        to[i] = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    }
}

/* a - b into `to`; returns what is borrowed. */
static uint32_t minus(number to, const number a, const number b)
{
    uint32_t borrow = 0;
    for (uint32_t i = 0; i < 8u; i++) {
        const uint64_t t = (uint64_t)a[i] - b[i] - borrow;
        to[i] = (uint32_t)t;
        borrow = (uint32_t)(t >> 63);
    }
    return borrow;
}

static uint32_t bit(const number a, uint32_t index)
{
    return a[index / 32u] >> index % 32u & 1u;
}

/* Adds carry * 2^256, which is carry * 38. */
static void fold(number to, uint32_t carry)
{
    while (carry != 0) {
        uint64_t t = (uint64_t)carry * 38u;
        for (uint32_t i = 0; i < 8u; i++) {
            t += to[i];
            to[i] = (uint32_t)t;
            t >>= 32;
        }
        carry = (uint32_t)t;
    }
}

static void add(number to, const number a, const number b)
{
    uint64_t t = 0;
    for (uint32_t i = 0; i < 8u; i++) {
        t += (uint64_t)a[i] + b[i];
        to[i] = (uint32_t)t;
        t >>= 32;
    }
    fold(to, (uint32_t)t);
}

static void sub(number to, const number a, const number b)
{
    static const number thirty_eight = { 38 };
    uint32_t borrow = minus(to, a, b);
    while (borrow != 0) {
        borrow = minus(to, to, thirty_eight);
    }
}

static void mul(number to, const number a, const number b)
{
    uint32_t product[16] = { 0 };
    for (uint32_t i = 0; i < 8u; i++) {
        uint32_t carry = 0;
        for (uint32_t j = 0; j < 8u; j++) {
            const uint64_t t = (uint64_t)a[i] * b[j] + product[i + j] + carry;
            product[i + j] = (uint32_t)t;
            carry = (uint32_t)(t >> 32);
        }
        product[i + 8u] = carry;
    }
    uint32_t carry = 0;
    for (uint32_t i = 0; i < 8u; i++) {
        const uint64_t t = (uint64_t)product[i + 8u] * 38u + product[i] + carry;
        to[i] = (uint32_t)t;
        carry = (uint32_t)(t >> 32);
    }
    fold(to, carry);
}

/* a to the power of 2^bits - 1 - holes; holes below 2^8. */
static void power(number to, const number a, uint32_t bits, uint32_t holes)
{
    number r;
    set(r, one);
    while (bits-- > 0) {
        mul(r, r, r);
        if (bits >= 8u || (holes >> bits & 1u) == 0) {
            mul(r, r, a);
        }
    }
    set(to, r);
}

/* The one below 2^255 - 19. */
static void reduce(number a)
{
    static const number nineteen = { 19 };
    number t;
    uint32_t top = a[7] >> 31;
    a[7] &= 0x7FFFFFFFu;
    while (top-- > 0) {
        add(a, a, nineteen);
    }
    add(t, a, nineteen);
    if (t[7] >> 31 != 0) {
        t[7] &= 0x7FFFFFFFu;
        set(a, t);
    }
}

static bool same(const number a, const number b)
{
    number t;
    sub(t, a, b);
    reduce(t);
    uint32_t any = 0;
    for (uint32_t i = 0; i < 8u; i++) {
        any |= t[i];
    }
    return any == 0;
}

/* --- points of -x^2 + y^2 = 1 + d x^2 y^2: x = X / Z, y = Y / Z, x y = T / Z ------------------------------------- */

typedef struct point {
    number x, y, z, t;
} point;

/* The end of both: E F, G H, F G, E H. */
static void products(point *p, const number e, const number f, const number g, const number h)
{
    mul(p->x, e, f);
    mul(p->y, g, h);
    mul(p->z, f, g);
    mul(p->t, e, h);
}

/* Hisil, Wong, Carter, Dawson, "Twisted Edwards curves revisited" (2008), 3.1: for any two points of this curve. */
static void add_point(point *p, const point *q)
{
    number a, b, c, e, f;
    sub(a, p->y, p->x);
    sub(e, q->y, q->x);
    mul(a, a, e);
    add(b, p->y, p->x);
    add(e, q->y, q->x);
    mul(b, b, e);
    mul(c, p->t, q->t);
    mul(c, c, curve_d);
    add(c, c, c);
    mul(f, p->z, q->z);
    add(f, f, f);
    sub(e, b, a);
    add(b, b, a);
    add(a, f, c);
    sub(f, f, c);
    products(p, e, f, a, b);
}

/* The same paper, 3.3. */
static void double_point(point *p)
{
    number a, b, e, f, h;
    add(e, p->x, p->y);
    mul(e, e, e);
    mul(a, p->x, p->x);
    mul(b, p->y, p->y);
    add(h, a, b);
    sub(e, e, h);
    sub(h, zero, h);
    sub(b, b, a);
    mul(f, p->z, p->z);
    add(f, f, f);
    sub(f, b, f);
    products(p, e, f, b, h);
}

static bool is_neutral(const point *p)
{
    return same(p->x, zero) && same(p->y, p->z);
}

/* Minus the point with this encoding; false if there is none. */
static bool decode_minus(point *p, const uint8_t *bytes)
{
    number u, v, w;
    const uint32_t sign = bytes[31] >> 7;
    load(p->y, bytes);
    p->y[7] &= 0x7FFFFFFFu;
    set(w, p->y);
    reduce(w);
    for (uint32_t i = 0; i < 8u; i++) {
        if (w[i] != p->y[i]) {
            return false;               /* not below 2^255 - 19 */
        }
    }
    set(p->z, one);
    mul(u, p->y, p->y);
    mul(v, u, curve_d);
    sub(u, u, one);                     /* x^2 = u / v = (y^2 - 1) / (d y^2 + 1) */
    add(v, v, one);
    mul(w, v, v);                       /* x = u v^3 (u v^7)^((p - 5) / 8), or that times the root of -1 */
    mul(w, w, v);
    mul(p->x, w, u);
    mul(w, w, w);
    mul(w, w, v);
    mul(w, w, u);
    power(w, w, 252, 2);
    mul(p->x, p->x, w);
    mul(w, p->x, p->x);
    mul(w, w, v);
    if (!same(w, u)) {
        mul(p->x, p->x, root_of_minus_1);
        mul(w, p->x, p->x);
        mul(w, w, v);
        if (!same(w, u)) {
            return false;               /* no square */
        }
    }
    if (same(p->x, zero) && sign != 0) {
        return false;
    }
    reduce(p->x);
    if ((p->x[0] & 1u) == sign) {
        sub(p->x, zero, p->x);
    }
    mul(p->t, p->x, p->y);
    return true;
}

/* Whether this is how the point is written. */
static bool is_encoded(const point *p, const uint8_t *bytes)
{
    number x, y, wanted;
    power(wanted, p->z, 255, 20);       /* 1 / Z */
    mul(x, p->x, wanted);
    mul(y, p->y, wanted);
    reduce(x);
    reduce(y);
    y[7] |= x[0] << 31;
    load(wanted, bytes);
    uint32_t any = 0;
    for (uint32_t i = 0; i < 8u; i++) {
        any |= y[i] ^ wanted[i];
    }
    return any == 0;
}

/* --- the signature ----------------------------------------------------------------------------------------------- */

/* The hash as a number of 512 bits, modulo the order of the base point. */
static void hash_to_number(number to, const sha512 *s)
{
    number t;
    for (uint32_t i = 0; i < 8u; i++) {
        to[i] = 0;
    }
    for (uint32_t i = 512; i-- > 0;) {
        const uint32_t byte = i / 8u;   /* the first one is the lowest */
        const uint64_t word = s->state[byte / 8u] >> (56u - 8u * (byte % 8u));
        for (uint32_t j = 7; j > 0; j--) {
            to[j] = to[j] << 1 | to[j - 1u] >> 31;
        }
        to[0] = to[0] << 1 | (uint32_t)(word >> i % 8u & 1u);
        if (minus(t, to, order) == 0) {
            set(to, t);
        }
    }
}

static void hash(number to, const uint8_t *r, const uint8_t *key, const void *message, size_t size)
{
    sha512 s;
    sha_open(&s);
    sha_add(&s, r, 32);
    sha_add(&s, key, 32);
    sha_add(&s, (const uint8_t *)message, size);
    sha_close(&s);
    hash_to_number(to, &s);
}

int32_t megcc_ed25519_verify(const uint8_t signature[64], const uint8_t key[32], const void *message, size_t size)
{
    number k, s;
    point sums[3], p;                   /* B, -A, B - A */
    load(s, signature + 32);
    if (minus(k, s, order) == 0 || !decode_minus(&sums[1], key)) {
        return 0;
    }
    p = sums[1];
    for (uint32_t i = 0; i < 3u; i++) {
        double_point(&p);
    }
    if (is_neutral(&p)) {
        return 0;
    }
    set(sums[0].x, base_x);
    set(sums[0].y, base_y);
    set(sums[0].z, one);
    mul(sums[0].t, base_x, base_y);
    sums[2] = sums[0];
    add_point(&sums[2], &sums[1]);
    hash(k, signature, key, message, size);
    set(p.x, sums[0].x);                /* any point minus itself: the neutral one */
    sub(p.x, p.x, p.x);
    set(p.t, p.x);
    set(p.y, one);
    set(p.z, one);
    for (uint32_t i = 253; i-- > 0;) { /* S B - k A, both below 2^253 */
        const uint32_t both = bit(s, i) + 2u * bit(k, i);
        double_point(&p);
        if (both != 0) {
            add_point(&p, &sums[both - 1u]);
        }
    }
    return is_encoded(&p, signature);
}

/* --- containers -------------------------------------------------------------------------------------------------- */

static int32_t fail(megcc_error *error, int32_t status, const char *where, uint64_t needed)
{
    if (error != NULL) {
        const megcc_error what = { status, MEGCC_NONE, where, 0, needed };
        *error = what;
    }
    return status;
}

static const megcc_signed nothing;

#ifdef MEGCC_NO_STRINGS
#define AT(where) NULL
#else
#define AT(where) (where)
#endif

int32_t megcc_signed_peek(megcc_signed *found, const void *data, size_t size, megcc_error *error)
{
    static const char magic[12] = { 'M', 'E', 'G', 'C', 'C', 's', 'i', 'g', 1, 0, 0, 0 };
    const uint8_t *bytes = (const uint8_t *)data;
    *found = nothing;
    uint32_t known = 0;
    while (bytes != NULL && size >= MEGCC_SIGNED_HEAD && known < sizeof magic &&
           bytes[64u + known] == (uint8_t)magic[known]) {
        known++;
    }
    if (known < sizeof magic) {
        return fail(error, MEGCC_E_FORMAT, AT("signed"), 0);
    }
    number head;                        /* the words from byte 64 on */
    load(head, bytes + 64);
    if (head[3] > size - MEGCC_SIGNED_HEAD || bytes[127] != 0) {
        return fail(error, MEGCC_E_CORRUPT, AT("signed.bytes"), (uint64_t)head[3] + MEGCC_SIGNED_HEAD);
    }
    found->container = bytes + MEGCC_SIGNED_HEAD;
    found->size = head[3];
    found->counter = (uint64_t)head[5] << 32 | head[4];
    found->product = (const char *)(bytes + 96);
    return MEGCC_OK;
}

int32_t megcc_signed_check(megcc_signed *found, const void *data, size_t size, const uint8_t key[32],
                           const char *product, megcc_error *error)
{
    const int32_t status = megcc_signed_peek(found, data, size, error);
    if (status != MEGCC_OK) {
        return status;
    }
    const uint8_t *bytes = (const uint8_t *)data;
    const char *where = AT("signature");
    if (megcc_ed25519_verify(bytes, key, bytes + 64, found->size + MEGCC_SIGNED_HEAD - 64u)) {
        uint32_t i = 0;                 /* the field ends with a zero */
        while (product != NULL && product[i] != '\0' && product[i] == found->product[i]) {
            i++;
        }
        if (product == NULL || product[i] == found->product[i]) {
            return MEGCC_OK;
        }
        where = AT("signed.product");
    }
    *found = nothing;
    return fail(error, MEGCC_E_UNTRUSTED, where, 0);
}
