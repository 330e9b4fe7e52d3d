/* SPDX-License-Identifier: Apache-2.0
 *
 * What c_runtime/signed/example/psa needs of the PSA Certified Crypto API 1.2, values as there, over Monocypher: one key
 * in one slot, refused unless it is a public key of Ed25519 that may verify messages.
 */
#ifndef PSA_CRYPTO_H
#define PSA_CRYPTO_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "monocypher/monocypher-ed25519.h"

typedef int32_t psa_status_t;
typedef uint16_t psa_key_type_t;
typedef uint8_t psa_ecc_family_t;
typedef uint32_t psa_key_usage_t;
typedef uint32_t psa_algorithm_t;
typedef uint32_t psa_key_id_t;

typedef struct psa_key_attributes_t {
    psa_key_type_t type;
    psa_key_usage_t usage;
    psa_algorithm_t algorithm;
} psa_key_attributes_t;

#define PSA_SUCCESS ((psa_status_t)0)
#define PSA_ERROR_INVALID_ARGUMENT ((psa_status_t)-135)
#define PSA_ERROR_INVALID_HANDLE ((psa_status_t)-136)
#define PSA_ERROR_INVALID_SIGNATURE ((psa_status_t)-149)
#define PSA_ECC_FAMILY_TWISTED_EDWARDS ((psa_ecc_family_t)0x42)
#define PSA_KEY_TYPE_ECC_PUBLIC_KEY(curve) ((psa_key_type_t)(0x4100 | (curve)))
#define PSA_KEY_USAGE_VERIFY_MESSAGE ((psa_key_usage_t)0x00000800)
#define PSA_ALG_PURE_EDDSA ((psa_algorithm_t)0x06000800)
#define PSA_KEY_ATTRIBUTES_INIT { 0, 0, 0 }

static uint8_t slot[32];
static psa_key_id_t held, imported;

static void psa_set_key_type(psa_key_attributes_t *attributes, psa_key_type_t type)
{
    attributes->type = type;
}

static void psa_set_key_usage_flags(psa_key_attributes_t *attributes, psa_key_usage_t usage)
{
    attributes->usage = usage;
}

static void psa_set_key_algorithm(psa_key_attributes_t *attributes, psa_algorithm_t algorithm)
{
    attributes->algorithm = algorithm;
}

static psa_status_t psa_import_key(const psa_key_attributes_t *attributes, const uint8_t *data, size_t bytes,
                                   psa_key_id_t *key)
{
    if (held != 0 || bytes != sizeof slot || attributes->usage != PSA_KEY_USAGE_VERIFY_MESSAGE ||
        attributes->type != PSA_KEY_TYPE_ECC_PUBLIC_KEY(PSA_ECC_FAMILY_TWISTED_EDWARDS) ||
        attributes->algorithm != PSA_ALG_PURE_EDDSA) {
        return PSA_ERROR_INVALID_ARGUMENT;
    }
    memcpy(slot, data, bytes);
    *key = held = ++imported;
    return PSA_SUCCESS;
}

static psa_status_t psa_verify_message(psa_key_id_t key, psa_algorithm_t algorithm, const uint8_t *input, size_t bytes,
                                       const uint8_t *signature, size_t signature_bytes)
{
    if (key != held || key == 0 || algorithm != PSA_ALG_PURE_EDDSA || signature_bytes != 64) {
        return PSA_ERROR_INVALID_HANDLE;
    }
    return crypto_ed25519_check(signature, slot, input, bytes) == 0 ? PSA_SUCCESS : PSA_ERROR_INVALID_SIGNATURE;
}

static psa_status_t psa_destroy_key(psa_key_id_t key)
{
    if (key != held) {
        return PSA_ERROR_INVALID_HANDLE;
    }
    held = 0;
    return PSA_SUCCESS;
}

#endif
