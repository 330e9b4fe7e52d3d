/* SPDX-License-Identifier: Apache-2.0
 *
 * Several sequences in one run of the network. Each is a text as of megcc_lm.c, but for the run.
 */
#include <string.h>

#include "megcc_sequences.h"
#include "megcc_text.h"

/* Fills `error`, which may be NULL, and returns `status`. */
static int32_t refused(megcc_error *error, int32_t status, const char *where, int64_t detail)
{
    const megcc_error found = { status, MEGCC_NONE, where, detail, 0 };
    if (error) {
        *error = found;
    }
    return status;
}

static int32_t has(const megcc_sequences *sequences, uint32_t sequence, megcc_error *error)
{
    return sequence < sequences->model->sequences ? MEGCC_OK
                                                  : refused(error, MEGCC_E_ARGUMENT, "sequence", (int64_t)sequence);
}

void megcc_sequences_open(megcc_sequences *sequences, const megcc_lm_model *model, const megcc_model *network,
                          megcc_session *session, megcc_lm *texts, const megcc_lm_memory *memory)
{
    sequences->texts = texts;
    sequences->model = model;
    sequences->session = session;
    for (uint32_t s = 0; s < model->sequences; s++) {
        texts[s].model = model;
        texts[s].network = network;
        texts[s].session = session;
        texts[s].memory = memory[s];
        texts[s].index = s;
        memory[s].shapes[model->input_ids].rank = 0; /* unknown; see megcc_text_shape */
        megcc_text_clear(&texts[s]);
    }
    megcc_session_reset(session);
}

int32_t megcc_sequences_reset(megcc_sequences *sequences, uint32_t sequence, megcc_error *error)
{
    const int32_t status = has(sequences, sequence, error);
    if (!status) {
        megcc_text_clear(&sequences->texts[sequence]);
        megcc_text_forget(&sequences->texts[sequence]);
    }
    return status;
}

int32_t megcc_sequences_copy(megcc_sequences *sequences, uint32_t source, uint32_t target, megcc_error *error)
{
    int32_t status = has(sequences, source, error);
    status = status ? status : has(sequences, target, error);
    if (!status && source != target) {
        megcc_text_copy(&sequences->texts[source], &sequences->texts[target]);
    }
    return status;
}

/* Tokens of some sequences that several runs read. */
typedef struct reading {
    const uint32_t *const *tokens;
    const uint32_t *counts;
    uint32_t runs;              /* runs that are left */
} reading;

/* Returns how many tokens of a sequence the next run has, and which: those of `given` or, if it is NULL, those that its text
 * waits for. A sequence with fewer tokens than others in `given` begins in a later run, so that the last one has the logits of
 * all. */
static uint32_t tokens_of_run(const megcc_sequences *sequences, const reading *given, uint32_t s, const uint32_t **tokens)
{
    const uint32_t most = sequences->model->prompt;
    const megcc_lm *lm = &sequences->texts[s];
    uint32_t count = lm->phase == MEGCC_LM_ENDED ? 0 : lm->waits;
    *tokens = lm->waiting;
    if (given) {
        const uint32_t runs = given->counts[s] / most + (given->counts[s] % most ? 1u : 0u);
        const uint32_t begin = runs < given->runs ? given->counts[s] : (runs - given->runs) * most;
        count = given->counts[s] - begin;
        *tokens = count ? given->tokens[s] + begin : NULL;
    }
    return count < most ? count : most;
}

/* Runs the network on the next tokens of all sequences; arguments as of tokens_of_run. */
static int32_t run(megcc_sequences *sequences, const reading *given, megcc_error *error)
{
    const megcc_lm_model *model = sequences->model;
    const uint32_t *tokens;
    uint32_t longest = 0;
    for (uint32_t s = 0; s < model->sequences; s++) {
        const uint32_t count = tokens_of_run(sequences, given, s, &tokens);
        longest = count > longest ? count : longest;
    }
    int32_t status = megcc_text_shape(&sequences->texts[0], longest, error);
    if (status) {
        return status;
    }
    int64_t *ids = (int64_t *)megcc_session_input(sequences->session, model->input_ids, NULL);
    int64_t *new_tokens = (int64_t *)megcc_session_input(sequences->session, model->new_tokens, NULL);
    if (!ids || !new_tokens) {
        return refused(error, MEGCC_E_ORDER, ids ? "new_tokens" : "input_ids", 0);
    }
    for (uint32_t s = 0; s < model->sequences; s++) {
        const uint32_t count = tokens_of_run(sequences, given, s, &tokens);
        new_tokens[s] = (int64_t)count;
        for (uint32_t i = 0; i < longest; i++) {
            ids[(size_t)s * longest + i] = i < count ? (int64_t)tokens[i] : 0;
        }
    }
    status = megcc_session_run(sequences->session, error);
    for (uint32_t s = 0; !status && s < model->sequences; s++) {
        megcc_lm *lm = &sequences->texts[s];
        const uint32_t count = tokens_of_run(sequences, given, s, &tokens);
        megcc_text_append(lm, tokens, count);
        if (!given && count) {
            lm->waiting += count;
            lm->waits -= count;
        }
    }
    return status;
}

int32_t megcc_sequences_step(megcc_sequences *sequences, const uint32_t *const *tokens, const uint32_t *counts,
                             float **logits, megcc_error *error)
{
    const megcc_lm_model *model = sequences->model;
    uint32_t longest = 0;
    int32_t status = MEGCC_OK;
    if (!tokens || !counts || !logits) {
        return refused(error, MEGCC_E_ARGUMENT, tokens && counts ? "logits" : "tokens", 0);
    }
    for (uint32_t s = 0; !status && s < model->sequences; s++) {
        if (counts[s]) {
            status = tokens[s] ? megcc_text_accepts(&sequences->texts[s], tokens[s], counts[s], error)
                               : refused(error, MEGCC_E_ARGUMENT, "tokens", (int64_t)s);
        }
        longest = counts[s] > longest ? counts[s] : longest;
    }
    if (!status && !longest) {
        status = refused(error, MEGCC_E_ARGUMENT, "tokens", 0);
    }
    if (status) {
        return status;
    }
    for (uint32_t s = 0; s < model->sequences; s++) {
        if (counts[s]) {
            sequences->texts[s].phase = MEGCC_LM_ENDED;
        }
    }
    reading given = { tokens, counts, (longest - 1u) / model->prompt + 1u };
    for (; given.runs && !status; given.runs--) {
        status = run(sequences, &given, error);
    }
    if (!status) {
        *logits = megcc_text_logits(&sequences->texts[0], error);
        status = *logits ? MEGCC_OK : MEGCC_E_UNSUPPORTED;
    }
    return status;
}

int32_t megcc_sequences_start(megcc_sequences *sequences, uint32_t sequence, const char *text, size_t size,
                              const megcc_lm_options *options, void *user, megcc_error *error)
{
    const int32_t status = has(sequences, sequence, error);
    return status ? status : megcc_text_start(&sequences->texts[sequence], text, size, options, user, error);
}

int32_t megcc_sequences_start_answer(megcc_sequences *sequences, uint32_t sequence, const char *question, size_t size,
                                     const megcc_lm_options *options, void *user, megcc_error *error)
{
    const int32_t status = has(sequences, sequence, error);
    return status ? status : megcc_text_start_answer(&sequences->texts[sequence], question, size, options, user, error);
}

void megcc_sequences_stop(megcc_sequences *sequences, uint32_t sequence)
{
    if (sequence < sequences->model->sequences) {
        sequences->texts[sequence].phase = MEGCC_LM_ENDED;
    }
}

/* Drops the pieces that the caller has had, and ends each text that has no other token. Returns how many go on. */
static uint32_t go_on(megcc_sequences *sequences)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < sequences->model->sequences; s++) {
        megcc_lm *lm = &sequences->texts[s];
        megcc_text_take(lm);
        if (lm->phase != MEGCC_LM_ENDED && !megcc_text_goes_on(lm)) {
            megcc_text_end(lm);
        }
        count += lm->phase != MEGCC_LM_ENDED;
    }
    return count;
}

int32_t megcc_sequences_next(megcc_sequences *sequences, megcc_error *error)
{
    const uint32_t vocabulary = sequences->model->tokenizer->tokens;
    if (!go_on(sequences)) {
        return MEGCC_OK;
    }
    int32_t status = run(sequences, NULL, error);
    float *logits = status ? NULL : megcc_text_logits(&sequences->texts[0], error);
    if (!logits) {
        return status ? status : MEGCC_E_UNSUPPORTED;
    }
    int32_t found = MEGCC_OK;
    for (uint32_t s = 0; s < sequences->model->sequences; s++) {
        megcc_lm *lm = &sequences->texts[s];
        if (lm->phase == MEGCC_LM_ENDED || lm->waits) {
            found = lm->phase == MEGCC_LM_ENDED ? found : MEGCC_MORE;
            continue;
        }
        lm->logits = logits + (size_t)s * vocabulary;
        if (megcc_text_choose(lm, NULL)) {
            status = refused(error, MEGCC_E_MEMORY, "grammar", (int64_t)s);
        }
        found = lm->phase == MEGCC_LM_ENDED ? found : MEGCC_MORE;
    }
    return status ? status : found;
}

int32_t megcc_sequences_piece_of(const megcc_sequences *sequences, uint32_t sequence, const char **piece, size_t *size)
{
    const megcc_lm *lm = &sequences->texts[sequence < sequences->model->sequences ? sequence : 0];
    *piece = lm->memory.text;
    *size = sequence < sequences->model->sequences ? lm->given : 0;
    return sequence < sequences->model->sequences && lm->phase != MEGCC_LM_ENDED;
}

int32_t megcc_sequences_generate(megcc_sequences *sequences, const char *const *texts, uint32_t count,
                                 const megcc_lm_options *options, megcc_sequences_piece piece, void *user,
                                 megcc_error *error)
{
    if (!texts || !piece) {
        return refused(error, MEGCC_E_ARGUMENT, texts ? "piece" : "text", 0);
    }
    int32_t status = count ? has(sequences, count - 1u, error) : MEGCC_OK;
    for (uint32_t s = 0; s < sequences->model->sequences && !status; s++) {
        megcc_sequences_stop(sequences, s);
        if (s < count) {
            status = megcc_sequences_start(sequences, s, texts[s], texts[s] ? strlen(texts[s]) : 0, options, user, error);
        }
    }
    int32_t found = status ? status : MEGCC_MORE;
    while (found == MEGCC_MORE) {
        found = megcc_sequences_next(sequences, error);
        for (uint32_t s = 0; s < count; s++) {
            const char *text;
            size_t size;
            (void)megcc_sequences_piece_of(sequences, s, &text, &size);
            if (size && piece(user, s, text, size)) {
                megcc_sequences_stop(sequences, s);
            }
        }
    }
    return found;
}
