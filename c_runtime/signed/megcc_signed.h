/* SPDX-License-Identifier: Apache-2.0
 *
 * Containers that are signed: an optional part of the runtime. To have it, compile megcc_signed.c with your program, and
 * megcc_ed25519.c with the files of monocypher/ or a megcc_ed25519_verify() of your own, such as one by PSA Crypto.
 *
 *     megcc_signed update;
 *     if (megcc_signed_check(&update, data, size, public_key, "kws", &error) == MEGCC_OK)
 *         megcc_model_open(&model, &kws_module, update.container, update.size, NULL, &error);
 *
 * `megcc keygen` makes the keys, `megcc pack` signs: docs/updates.md. A signed container is
 *
 *      0   64  Ed25519 signature of all that follows
 *     64    8  "MEGCCsig"
 *     72    4  1, the format
 *     76    4  bytes of the container
 *     80    8  counter: which of two is newer
 *     88    8  zeros
 *     96   32  product: what it is for, filled up with zeros, the last byte always zero
 *    128       the container
 *
 * with numbers in little-endian order. There is no heap, and nothing is written but results.
 */
#ifndef MEGCC_SIGNED_H
#define MEGCC_SIGNED_H

#include "megcc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MEGCC_SIGNED_HEAD 128u

typedef struct megcc_signed {
    const void *container;      /* in `data`, 128 bytes after its beginning: aligned as the container wants if `data` is */
    size_t size;
    uint64_t counter;
    const char *product;        /* in `data` */
} megcc_signed;

/* Reads the head, and believes it: for choosing which of several to check first. MEGCC_E_FORMAT: this is none;
 * MEGCC_E_CORRUPT: it says more bytes than there are. `size` may be more than it has, as of a slot of flash. */
int32_t megcc_signed_peek(megcc_signed *found, const void *data, size_t size, megcc_error *error);

/* The same if the signature is that of `key`, a public key of 32 bytes, and it is for `product` (NULL: any); otherwise
 * MEGCC_E_UNTRUSTED, and `found` is all zero. Reads all of it. Nobody may write to `data` from here on. */
int32_t megcc_signed_check(megcc_signed *found, const void *data, size_t size, const uint8_t key[32],
                           const char *product, megcc_error *error);

/* Whether `signature` is one of `key` for the message: 1 or 0. RFC 8032, Ed25519, with the equation that has the
 * cofactor. Refused are S that is not below the group's order (so that nobody can make a second signature of one), a key
 * or R that is not in its shortest form, a key that is no point of the curve or one of small order. Your own in its place
 * may differ in the last two: your key is neither. */
int32_t megcc_ed25519_verify(const uint8_t signature[64], const uint8_t key[32], const void *message, size_t size);

#ifdef __cplusplus
}
#endif
#endif
