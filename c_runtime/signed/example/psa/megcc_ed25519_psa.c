/* SPDX-License-Identifier: Apache-2.0
 *
 * Ed25519 by PSA Crypto, such as that of a secure element, in place of megcc_ed25519.c and Monocypher. The
 * implementation needs PSA_WANT_ALG_PURE_EDDSA and PSA_WANT_ECC_TWISTED_EDWARDS_255; psa_crypto_init() comes first.
 */
#include <psa/crypto.h>

#include "megcc_signed.h"

int32_t megcc_ed25519_verify(const uint8_t signature[64], const uint8_t key[32], const void *message, size_t size)
{
    psa_key_attributes_t attributes = PSA_KEY_ATTRIBUTES_INIT;
    psa_set_key_type(&attributes, PSA_KEY_TYPE_ECC_PUBLIC_KEY(PSA_ECC_FAMILY_TWISTED_EDWARDS));
    psa_set_key_usage_flags(&attributes, PSA_KEY_USAGE_VERIFY_MESSAGE);
    psa_set_key_algorithm(&attributes, PSA_ALG_PURE_EDDSA);
    psa_key_id_t id;
    if (psa_import_key(&attributes, key, 32, &id) != PSA_SUCCESS) {
        return 0;
    }
    const psa_status_t status =
        psa_verify_message(id, PSA_ALG_PURE_EDDSA, (const uint8_t *)message, size, signature, 64);
    const psa_status_t destroyed = psa_destroy_key(id);
    return status == PSA_SUCCESS && destroyed == PSA_SUCCESS ? 1 : 0;
}
