/* SPDX-License-Identifier: 0BSD
 *
 * Two slots of flash for one model (A/B slots): an update goes into the one that is not in use, and a device starts with the
 * newer one that is valid. So the old model still opens if power fails during an update, or the new model is damaged.
 */
#ifndef SLOTS_H
#define SLOTS_H

#include "megcc_signed.h"

typedef struct slot {
    const void *data;           /* aligned to NAME_ALIGN of the generated header NAME.h */
    size_t size;                /* of the slot, of which a container may leave some unused */
} slot;

/* Opens the model of the slot with the larger counter or, if its signature is wrong or it does not fit this code, the model of
 * the other slot. Returns the slot, 0 or 1, and writes its counter to `counter`. Returns -1 if neither opens; `error` is then
 * that of the slot that was tried second.
 *
 * least: a slot with a smaller counter is not taken. Keep the largest one that ever ran where nobody can set it back
 * (fuses, a counter of a secure element), and old containers with errors cannot be brought back. */
int slots_open(megcc_model *model, const megcc_module *module, const slot slots[2], const uint8_t key[32],
               const char *product, uint64_t least, uint64_t *counter, megcc_error *error);

/* The slot that an update goes into: the one that does not run. */
static inline int slots_other(int running)
{
    return running == 0 ? 1 : 0;
}

#endif
