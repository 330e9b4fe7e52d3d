/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment in which both targets run models. Kernels get copies of their operands in heap blocks of exactly the
 * size that the verifier checked, so that a sanitizer sees every access beyond them. Time and memory are limited, and
 * inputs have hostile data.
 */
#ifndef MEGCC_FUZZ_GUARD_H
#define MEGCC_FUZZ_GUARD_H

#include "internal.h"

#define MAX_MEMORY ((size_t)1 << 16)

/* A copy of the module in which every kernel is guarded. */
megcc_module guard_module(const megcc_module *module);

/* Call once at the beginning, before each run, and from the observer before each instruction. The last returns
 * non-zero where the run takes long. */
void guard_begin(void);
void guard_run(void);
int32_t guard_instruction(megcc_session *session, uint32_t instruction);

/* An allocator that gives no more than MAX_MEMORY at a time, and fails at call number *user (0: never). */
void *guard_resize(void *user, void *old, size_t old_bytes, size_t bytes);

/* Ends the process if something that was asked of it is not given back. */
void guard_nothing_allocated(void);

/* A block of the heap; ends the process where there is none. */
void *guard_block(const void *from, size_t bytes);

/* Ends the process with a word about what is wrong, as a sanitizer does. */
void guard_require(bool condition, const char *what);

/* Fills a tensor with data that may reveal errors of kernels. kind: random bits, NaN, infinities, ends of integers, small integers of the
 * type. */
#define FILL_KINDS 16u
void guard_fill(uint8_t *data, const megcc_tensor *tensor, uint32_t kind, uint32_t *state);

/* Shapes of the inputs for these symbols, which need not fit. To be given back with megcc_heap_free. */
megcc_shape *guard_shapes(const megcc_program *program, const int32_t *symbols);

#endif
