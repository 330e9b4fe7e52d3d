/* SPDX-License-Identifier: 0BSD
 *
 * Two slots of flash for one model: the update goes into the one that is not in use, and a device starts with the newer
 * one of those that are right.
 */
#ifndef SLOTS_H
#define SLOTS_H

#include "megcc_signed.h"

typedef struct slot {
    const void *data;           /* aligned as NAME_ALIGN says */
    size_t size;                /* of the slot, of which a container may leave some unused */
} slot;

/* Opens the model of the slot with the largest counter whose signature is right and that fits this code; `counter` says
 * what it has. Returns the slot, 0 or 1, or -1: neither, and `error` is that of the last one that was tried.
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
