/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a text that are the same for one sequence (megcc_lm.c) and for several (megcc_sequences.c).
 */
#ifndef MEGCC_TEXT_H
#define MEGCC_TEXT_H

#include "megcc_lm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the shapes of the inputs for a run of `count` tokens, of each sequence; keys and values stay. */
int32_t megcc_text_shape(megcc_lm *lm, uint32_t count, megcc_error *error);

/* The most tokens that can still be read; with `longest` as their limit if a text has no end. */
uint32_t megcc_text_room(const megcc_lm *lm, uint32_t longest);

/* MEGCC_OK if these tokens can be read after everything read so far; otherwise the error of megcc_lm_step. */
int32_t megcc_text_accepts(const megcc_lm *lm, const uint32_t *tokens, uint32_t count, megcc_error *error);

/* Appends tokens that a run has read to those that the text has. */
void megcc_text_append(megcc_lm *lm, const uint32_t *tokens, uint32_t count);

/* Removes everything from the text, but not from the network's states. */
void megcc_text_clear(megcc_lm *lm);

/* Returns the logits of the last run, [sequences][tokens of the vocabulary]. NULL, with MEGCC_E_UNSUPPORTED: the network has
 * others. */
float *megcc_text_logits(const megcc_lm *lm, megcc_error *error);

/* Makes a prompt the tokens that the text waits for. Arguments and errors are those of megcc_lm_start and
 * megcc_lm_start_answer. */
int32_t megcc_text_start(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options, void *user,
                         megcc_error *error);
int32_t megcc_text_start_answer(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                                void *user, megcc_error *error);

/* Drops the piece that the caller has had. */
void megcc_text_take(megcc_lm *lm);

/* Whether the text has another token: 0 if the context is full, or nothing can follow in the grammar. */
int32_t megcc_text_goes_on(const megcc_lm *lm);

/* Chooses a token by lm->logits; then the text waits for it to be read, or has ended. Its piece are the first lm->given bytes
 * of memory.text. MEGCC_E_MEMORY: as of megcc_lm_generate. */
int32_t megcc_text_choose(megcc_lm *lm, megcc_error *error);

/* Ends the text; the rest of it is the piece. */
void megcc_text_end(megcc_lm *lm);

/* Resets the states of this sequence only, whose text was cleared. */
void megcc_text_forget(megcc_lm *lm);

/* Copies everything that one sequence has read to another of the same session. */
void megcc_text_copy(const megcc_lm *source, megcc_lm *target);

#ifdef __cplusplus
}
#endif
#endif
