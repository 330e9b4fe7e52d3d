/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of a firmware. `megcc build` generates the table `firmware_models`; run.c, in this folder, runs them.
 */
#ifndef FIRMWARE_H
#define FIRMWARE_H

#include "megcc.h"

typedef struct firmware_model {
    const char *prefix;             /* begins the model's file names: "" if there is one model, else "NAME_" */
    const megcc_module *module;
    const void *data;
    size_t data_bytes;
    void *memory;
    size_t memory_bytes;
    megcc_region region[MEGCC_MAX_REGIONS - 1]; /* memory regions after the first, such as a TCM */
    unsigned char *caller_inputs;   /* memory for inputs that the caller owns (--caller-inputs) */
} firmware_model;

extern const firmware_model firmware_models[];
extern const uint32_t firmware_count;

#endif
