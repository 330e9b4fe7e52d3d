/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of a firmware, as `megcc build` lists them for run.c.
 */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include "megcc.h"

typedef struct firmware_model {
    const char *prefix;             /* of the names of its files: "" of the only model, "NAME_" of one of several */
    const megcc_module *module;
    const void *data;
    size_t data_bytes;
    void *memory;
    size_t memory_bytes;
    megcc_region region[MEGCC_MAX_REGIONS - 1]; /* memory of other kinds */
    unsigned char *given;           /* memory for inputs that have none in the session */
} firmware_model;

extern const firmware_model firmware_models[];
extern const uint32_t firmware_count;

#endif
