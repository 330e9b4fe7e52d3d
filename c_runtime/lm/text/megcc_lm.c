/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates text: a prompt is read in runs of many tokens, then token after token is chosen and read.
 */
#include "megcc_text.h"

/* Fills `error`, which may be NULL, and returns `status`. */
static int32_t refused(megcc_error *error, int32_t status, const char *where, uint64_t needed)
{
    const megcc_error found = { status, MEGCC_NONE, where, 0, needed };
    if (error) {
        *error = found;
    }
    return status;
}

void megcc_lm_open(megcc_lm *lm, const megcc_lm_model *model, const megcc_model *network, megcc_session *session,
                   const megcc_lm_memory *memory)
{
    lm->model = model;
    lm->network = network;
    lm->session = session;
    lm->memory = *memory;
    lm->index = 0;
    memory->shapes[model->input_ids].rank = 0; /* unknown; see megcc_text_shape */
    megcc_lm_reset(lm);
}

void megcc_lm_reset(megcc_lm *lm)
{
    megcc_session_reset(lm->session);
    megcc_text_clear(lm);
}

/* Reads tokens after everything read so far; arguments and errors are those of megcc_lm_step. */
static int32_t run(megcc_lm *lm, const uint32_t *tokens, uint32_t count, float **logits, megcc_error *error)
{
    int32_t status = megcc_text_accepts(lm, tokens, count, error);
    for (uint32_t begin = 0; !status && begin < count;) {
        const uint32_t left = count - begin, part = left < lm->model->prompt ? left : lm->model->prompt;
        status = megcc_text_shape(lm, part, error);
        if (status) {
            return status;
        }
        int64_t *ids = (int64_t *)megcc_session_input(lm->session, lm->model->input_ids, NULL);
        if (!ids) {
            return refused(error, MEGCC_E_ORDER, "input_ids", 0);
        }
        for (uint32_t i = 0; i < part; i++) {
            ids[i] = tokens[begin + i];
        }
        status = megcc_session_run(lm->session, error);
        if (!status) {
            megcc_text_append(lm, tokens + begin, part);
            begin += part;
        }
    }
    if (status) {
        return status;
    }
    *logits = megcc_text_logits(lm, error);
    return *logits ? MEGCC_OK : MEGCC_E_UNSUPPORTED;
}

int32_t megcc_lm_step(megcc_lm *lm, const uint32_t *tokens, uint32_t count, float **logits, megcc_error *error)
{
    lm->phase = MEGCC_LM_ENDED; /* its logits are overwritten */
    if (!tokens || !logits) {
        return refused(error, MEGCC_E_ARGUMENT, tokens ? "logits" : "tokens", 0);
    }
    return run(lm, tokens, count, logits, error);
}

int32_t megcc_lm_next(megcc_lm *lm, const char **piece, size_t *size, megcc_error *error)
{
    int32_t status = MEGCC_OK;
    megcc_text_take(lm);
    *piece = lm->memory.text;
    *size = 0;
    while (lm->phase != MEGCC_LM_ENDED && !lm->given) {
        if (!megcc_text_goes_on(lm)) {
            megcc_text_end(lm);
            continue;
        }
        if (lm->phase == MEGCC_LM_READS) {
            status = run(lm, lm->waiting, lm->waits, &lm->logits, error);
        }
        if (status) {
            lm->phase = MEGCC_LM_ENDED;
            return status;
        }
        status = megcc_text_choose(lm, error);
        if (status) {
            return status;
        }
    }
    *size = lm->given;
    return MEGCC_OK;
}

/* Reads the prompt of a text that was started. */
static int32_t read_prompt(megcc_lm *lm, int32_t status, megcc_error *error)
{
    if (!status) {
        status = run(lm, lm->waiting, lm->waits, &lm->logits, error);
        lm->phase = status ? MEGCC_LM_ENDED : MEGCC_LM_CHOOSES;
    }
    return status;
}

int32_t megcc_lm_start(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options, void *user,
                       megcc_error *error)
{
    return read_prompt(lm, megcc_text_start(lm, text, size, options, user, error), error);
}

int32_t megcc_lm_start_answer(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                              void *user, megcc_error *error)
{
    return read_prompt(lm, megcc_text_start_answer(lm, question, size, options, user, error), error);
}

/* Gives the pieces of the text that was started to a function. */
static int32_t give(megcc_lm *lm, megcc_lm_piece piece, void *user, megcc_error *error)
{
    const char *text;
    size_t size;
    int32_t status;
    do {
        status = megcc_lm_next(lm, &text, &size, error);
    } while (!status && size && !piece(user, text, size));
    return status;
}

int32_t megcc_lm_generate(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options,
                          megcc_lm_piece piece, void *user, megcc_error *error)
{
    if (!piece) {
        return refused(error, MEGCC_E_ARGUMENT, "piece", 0);
    }
    const int32_t status = megcc_lm_start(lm, text, size, options, user, error);
    return status ? status : give(lm, piece, user, error);
}

int32_t megcc_lm_ask(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                     megcc_lm_piece piece, void *user, megcc_error *error)
{
    if (!piece) {
        return refused(error, MEGCC_E_ARGUMENT, "piece", 0);
    }
    const int32_t status = megcc_lm_start_answer(lm, question, size, options, user, error);
    return status ? status : give(lm, piece, user, error);
}
