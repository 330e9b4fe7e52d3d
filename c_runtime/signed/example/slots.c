/* SPDX-License-Identifier: 0BSD
 *
 * Opens the newer of two signed models: see slots.h.
 */
#include "slots.h"

static int32_t open_one(megcc_model *model, const megcc_module *module, const slot *s, const uint8_t key[32],
                        const char *product, uint64_t least, uint64_t *counter, megcc_error *error)
{
    megcc_signed found;
    int32_t status = megcc_signed_check(&found, s->data, s->size, key, product, error);
    if (status != MEGCC_OK)
        return status;
    if (found.counter < least) {
        const megcc_error old = { MEGCC_E_UNTRUSTED, MEGCC_NONE, "counter", (int64_t)found.counter, least };
        if (error != NULL)
            *error = old;
        return MEGCC_E_UNTRUSTED;
    }
    *counter = found.counter;
    return megcc_model_open(model, module, found.container, found.size, NULL, error);
}

int slots_open(megcc_model *model, const megcc_module *module, const slot slots[2], const uint8_t key[32],
               const char *product, uint64_t least, uint64_t *counter, megcc_error *error)
{
    megcc_signed a, b;
    const int has_a = megcc_signed_peek(&a, slots[0].data, slots[0].size, NULL) == MEGCC_OK;
    const int has_b = megcc_signed_peek(&b, slots[1].data, slots[1].size, NULL) == MEGCC_OK;
    const int first = has_b && (!has_a || b.counter > a.counter) ? 1 : 0;

    for (int attempt = 0; attempt < 2; attempt++) {
        const int index = attempt == 0 ? first : slots_other(first);
        if (open_one(model, module, &slots[index], key, product, least, counter, error) == MEGCC_OK)
            return index;
    }
    return -1;
}
