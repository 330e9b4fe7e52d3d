/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of an input of both targets: a header, then records of 8 bytes, each one step (an edit of the container, a
 * call). So any bytes are an input, one step can be changed without changing the others, and inputs stay small.
 */
#ifndef MEGCC_FUZZ_RECORDS_H
#define MEGCC_FUZZ_RECORDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct record {
    uint8_t op, name;
    uint16_t row;
    uint32_t operand;
} record;

#define MAX_RECORDS 24u

/* Steps of an input; the first one is the header. Missing bytes are zeros. Returns their number, at least 1. */
size_t records_of(const uint8_t *data, size_t size, record steps[MAX_RECORDS]);

/* A generator of numbers of its own for each purpose: an input always does the same. */
uint32_t chance(uint32_t *state);

/* Changes an input of `size` bytes in place and returns its new size, at most `capacity`. */
size_t mutate(uint8_t *data, size_t size, size_t capacity, uint32_t seed);

/* --- a target ---------------------------------------------------------------------------------------------------- */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
