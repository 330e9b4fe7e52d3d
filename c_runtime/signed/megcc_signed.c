/* SPDX-License-Identifier: Apache-2.0
 *
 * Signed containers: reads the header, and verifies product and signature, the latter by megcc_ed25519_verify().
 */
#include "megcc_signed.h"

/* A number of 32 bits, little-endian. */
static uint32_t word(const uint8_t *bytes)
{
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

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
    /* "MEGCCsig" and the format, 1. The offsets below are those of the table in megcc_signed.h. */
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
    const uint32_t container = word(bytes + 76);
    if (container > size - MEGCC_SIGNED_HEAD || bytes[127] != 0) {
        return fail(error, MEGCC_E_CORRUPT, AT("signed.bytes"), (uint64_t)container + MEGCC_SIGNED_HEAD);
    }
    found->container = bytes + MEGCC_SIGNED_HEAD;
    found->size = container;
    found->counter = (uint64_t)word(bytes + 84) << 32 | word(bytes + 80);
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
