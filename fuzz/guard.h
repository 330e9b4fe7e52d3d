/* SPDX-License-Identifier: Apache-2.0
 *
 * What both targets run models with: kernels on blocks of the heap that are exactly as large as their signatures ask,
 * so that a sanitizer sees what the verifier promised too little for; limits of time and memory; hostile data.
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

/* Data that kernels might trip over. kind: random bits, NaN, infinities, ends of integers, small integers of the
 * type. */
#define FILL_KINDS 16u
void guard_fill(uint8_t *data, const megcc_tensor *tensor, uint32_t kind, uint32_t *state);

/* Shapes of the inputs for these symbols, which need not fit. To be given back with megcc_heap_free. */
megcc_shape *guard_shapes(const megcc_program *program, const int32_t *symbols);

#endif
