/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of several sequences, each with keys and values of its own: one run of the network has new tokens of all, and reads
 * the weights once. `megcc lm compile --sequences N` writes functions by the model's name that call these (NAME_sequences.h).
 * Sequences have the numbers from 0 on; MEGCC_E_ARGUMENT (`where` "sequence"): there is no such one.
 */
#ifndef MEGCC_SEQUENCES_H
#define MEGCC_SEQUENCES_H

#include "megcc_lm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes a piece of a sequence's text, as megcc_lm_piece. Non-zero ends that text. */
typedef int32_t (*megcc_sequences_piece)(void *user, uint32_t sequence, const char *text, size_t size);

/* Read what you like, write nothing. */
typedef struct megcc_sequences {
    megcc_lm *texts;            /* [model->sequences]; megcc_lm_save() and megcc_lm_load() take them too */
    const megcc_lm_model *model;
    megcc_session *session;
} megcc_sequences;

/* Opens all sequences. `texts`, `memory`: one for each; work and shapes of the memory may be the same for all. */
void megcc_sequences_open(megcc_sequences *sequences, const megcc_lm_model *model, const megcc_model *network,
                          megcc_session *session, megcc_lm *texts, const megcc_lm_memory *memory);

/* Forgets everything that one sequence has read, and ends its text. */
int32_t megcc_sequences_reset(megcc_sequences *sequences, uint32_t sequence, megcc_error *error);

/* Lets a sequence have read what another has, so that a common beginning is read once. Ends its text. */
int32_t megcc_sequences_copy(megcc_sequences *sequences, uint32_t source, uint32_t target, megcc_error *error);

/* Reads tokens of some sequences after everything that these have read so far, and ends the text of each.
 *
 * tokens, counts: of each sequence; with a count of 0 it stays as it is. logits: [sequences][tokens of the vocabulary], of the
 * next token of each sequence with a count, until the next run; they may be overwritten. Nothing is read if one has an error,
 * those of megcc_lm_step. */
int32_t megcc_sequences_step(megcc_sequences *sequences, const uint32_t *const *tokens, const uint32_t *counts,
                             float **logits, megcc_error *error);

/* Begins a text of one sequence after everything that it has read, while others may go on: the prompt is read by the next
 * calls of megcc_sequences_next(). Arguments and errors are those of megcc_lm_start() and megcc_lm_start_answer(). */
int32_t megcc_sequences_start(megcc_sequences *sequences, uint32_t sequence, const char *text, size_t size,
                              const megcc_lm_options *options, void *user, megcc_error *error);
int32_t megcc_sequences_start_answer(megcc_sequences *sequences, uint32_t sequence, const char *question, size_t size,
                                     const megcc_lm_options *options, void *user, megcc_error *error);

/* Runs the network once: all sequences read the next tokens of their prompts, or the token that was chosen last, and those that
 * have read all choose another. MEGCC_MORE: some go on. MEGCC_OK: all are complete. MEGCC_E_MEMORY: the text of sequence
 * `detail` ended as in megcc_lm_generate(); the others go on. */
int32_t megcc_sequences_next(megcc_sequences *sequences, megcc_error *error);

/* Gives the piece of a text that the last megcc_sequences_next() added: `size` may be 0. It is valid until the next one.
 * Returns 1 if the text goes on after it, otherwise 0; for a number of no sequence, too. */
int32_t megcc_sequences_piece_of(const megcc_sequences *sequences, uint32_t sequence, const char **piece, size_t *size);

/* Ends the text of one sequence. */
void megcc_sequences_stop(megcc_sequences *sequences, uint32_t sequence);

/* Reads a text in each of the first `count` sequences, and goes on with all until they are complete. */
int32_t megcc_sequences_generate(megcc_sequences *sequences, const char *const *texts, uint32_t count,
                                 const megcc_lm_options *options, megcc_sequences_piece piece, void *user,
                                 megcc_error *error);

#ifdef __cplusplus
}
#endif
#endif
