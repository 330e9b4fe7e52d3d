/* SPDX-License-Identifier: Apache-2.0
 *
 * Ed25519 by Monocypher, whose unchanged sources are in monocypher/. If the device can verify signatures by itself, leave
 * this file and Monocypher out, and write a megcc_ed25519_verify() that calls the device's function: docs/updates.md.
 *
 * Monocypher accepts encodings of points that are not canonical (y >= 2^255 - 19, or x = 0 with a sign), and keys of small
 * order. RFC 8032 rejects the former; this file rejects both. All inputs are public, so no function needs constant time.
 */
#include <stdbool.h>

#include "megcc_signed.h"
#include "monocypher/monocypher-ed25519.h"

/* The y of all points of small order, 32 bytes little-endian without the sign of x: of the points of order 4, 1 and 2, and
 * the two y of order 8. */
static const uint8_t small_order[5][32] = {
    { 0x00 },
    { 0x01 },
    { 0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f },
    { 0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
      0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05 },
    { 0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
      0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a },
};

/* Whether an encoded point has this y; the sign of x, the top bit, is ignored. */
static bool is_y(const uint8_t *point, const uint8_t *y)
{
    uint32_t different = ((uint32_t)point[31] & 0x7Fu) ^ y[31];
    for (uint32_t i = 0; i < 31u; i++) {
        different |= (uint32_t)point[i] ^ y[i];
    }
    return different == 0u;
}

/* Whether the encoding of a point is canonical (RFC 8032, 5.1.3): y is below 2^255 - 19, and x = 0 (y = 1 or -1) has no
 * sign. */
static bool is_canonical(const uint8_t *point)
{
    uint32_t ones = ((uint32_t)point[31] | 0x80u) & (point[0] >= 0xEDu ? 0xFFu : 0u);
    for (uint32_t i = 1; i < 31u; i++) {
        ones &= point[i];
    }
    const bool no_x = is_y(point, small_order[1]) || is_y(point, small_order[2]);
    return ones != 0xFFu && !(no_x && point[31] >= 0x80u);
}

int32_t megcc_ed25519_verify(const uint8_t signature[64], const uint8_t key[32], const void *message, size_t size)
{
    bool is_taken = is_canonical(signature) && is_canonical(key); /* a signature begins with the point R */
    for (uint32_t i = 0; i < 5u; i++) {
        is_taken = is_taken && !is_y(key, small_order[i]);
    }
    return is_taken && crypto_ed25519_check(signature, key, (const uint8_t *)message, size) == 0 ? 1 : 0;
}
