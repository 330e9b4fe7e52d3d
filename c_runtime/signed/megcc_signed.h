/* SPDX-License-Identifier: Apache-2.0
 *
 * Signed containers: an optional part of the runtime. To use it, compile megcc_signed.c with your program, and either
 * megcc_ed25519.c with the files of monocypher/, or your own megcc_ed25519_verify(), such as one that calls PSA Crypto.
 *
 *     megcc_signed update;
 *     if (megcc_signed_check(&update, data, size, public_key, "kws", &error) == MEGCC_OK)
 *         megcc_model_open(&model, &kws_module, update.container, update.size, NULL, &error);
 *
 * `megcc keygen` makes the keys, `megcc pack` signs: docs/updates.md. A signed container is
 *
 *      0   64  Ed25519 signature of all bytes after it
 *     64    8  "MEGCCsig"
 *     72    4  1, the format
 *     76    4  bytes of the container
 *     80    8  counter: a newer container has a larger one
 *     88    8  zeros
 *     96   32  product: the name of what it is for, padded with zeros; the last byte is always zero
 *    128       the container
 *
 * with numbers in little-endian order. The functions use no heap, and write to their results only.
 */
#ifndef MEGCC_SIGNED_H
#define MEGCC_SIGNED_H

#include "megcc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MEGCC_SIGNED_HEAD 128u

typedef struct megcc_signed {
    const void *container;      /* data + 128; as aligned as `data`: megcc_model_open() requires it */
    size_t size;                /* bytes of the container */
    uint64_t counter;
    const char *product;        /* in `data` */
} megcc_signed;

/* Reads the header without verifying the signature, for example to find the newer of two slots of flash. `size` may be
 * that of the whole slot. MEGCC_E_FORMAT: `data` does not begin with a signed container. MEGCC_E_CORRUPT: the container
 * has more bytes than `size` leaves for it, or the name of the product does not end with a zero. */
int32_t megcc_signed_peek(megcc_signed *found, const void *data, size_t size, megcc_error *error);

/* Verifies the signature of all bytes with `key`, a public key, and that the container is for `product` (NULL: any). Then
 * fills `found` as megcc_signed_peek does. MEGCC_E_UNTRUSTED: the signature or the product is another one; `found` is then
 * zero. Do not write to `data` afterwards: the result holds for the bytes that were verified. */
int32_t megcc_signed_check(megcc_signed *found, const void *data, size_t size, const uint8_t key[32],
                           const char *product, megcc_error *error);

/* Returns 1 if `signature` is a valid Ed25519 signature of the message by the owner of `key`, otherwise 0 (RFC 8032, with
 * the cofactored verification equation). It rejects a scalar S that is not below the group's order, since otherwise anybody
 * could derive a second valid signature from the first; a key or a point R whose encoding is not canonical; and a key that
 * is not on the curve, or has small order. A function of your own need not reject keys of the last two kinds: no key pair
 * that is generated as RFC 8032 says has one. */
int32_t megcc_ed25519_verify(const uint8_t signature[64], const uint8_t key[32], const void *message, size_t size);

#ifdef __cplusplus
}
#endif
#endif
