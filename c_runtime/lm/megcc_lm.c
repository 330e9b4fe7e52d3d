/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates text: a prompt is read in runs of many tokens, then token after token is chosen and read.
 */
#include <string.h>

#include "megcc_lm.h"

/* Fills `error`, which may be NULL, and returns `status`. */
static int32_t refused(megcc_error *error, int32_t status, const char *where, uint64_t needed)
{
    const megcc_error found = { status, MEGCC_NONE, where, 0, needed };
    if (error) {
        *error = found;
    }
    return status;
}

/* --- tokens ---------------------------------------------------------------------------------------------------- */

void megcc_lm_open(megcc_lm *lm, const megcc_lm_model *model, const megcc_model *network, megcc_session *session,
                   const megcc_lm_memory *memory)
{
    lm->model = model;
    lm->network = network;
    lm->session = session;
    lm->memory = *memory;
    lm->shaped = 0;
    megcc_lm_reset(lm);
}

void megcc_lm_reset(megcc_lm *lm)
{
    megcc_session_reset(lm->session);
    lm->length = 0;
    memset(lm->memory.seen, 0, (lm->model->tokenizer->tokens + 31u) / 32u * sizeof *lm->memory.seen);
}

/* Sets the shapes of the inputs for a run of `count` tokens; the KV cache stays. */
static int32_t shape(megcc_lm *lm, uint32_t count, megcc_error *error)
{
#ifndef MEGCC_NO_DYNAMIC
    if (lm->model->prompt > 1u && count != lm->shaped) {
        for (uint32_t i = 0; i < lm->model->inputs; i++) {
            megcc_tensor tensor;
            megcc_model_input(lm->network, i, &tensor);
            lm->memory.shapes[i].rank = tensor.rank;
            for (int32_t axis = 0; axis < MEGCC_MAX_RANK; axis++) {
                lm->memory.shapes[i].dims[axis] = tensor.dims[axis] < 0 ? (int32_t)count : tensor.dims[axis];
            }
        }
        const int32_t status = megcc_session_reshape(lm->session, lm->memory.shapes, lm->model->inputs, error);
        if (status) {
            return status;
        }
    }
#else
    (void)error; /* one token in each run */
#endif
    lm->shaped = count;
    return MEGCC_OK;
}

int32_t megcc_lm_step(megcc_lm *lm, const uint32_t *tokens, uint32_t count, float **logits, megcc_error *error)
{
    const uint32_t capacity = lm->model->context - lm->length;
    if (!count) {
        return refused(error, MEGCC_E_ARGUMENT, "tokens", 1);
    }
    if (count > capacity) {
        return refused(error, MEGCC_E_ARGUMENT, "context", (uint64_t)lm->length + count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] >= lm->model->tokenizer->tokens) {
            return refused(error, MEGCC_E_ARGUMENT, "tokens", 0);
        }
    }
    for (uint32_t begin = 0; begin < count;) {
        const uint32_t left = count - begin, part = left < lm->model->prompt ? left : lm->model->prompt;
        int32_t status = shape(lm, part, error);
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
        if (status) {
            return status;
        }
        for (uint32_t i = 0; i < part; i++) {
            lm->memory.seen[tokens[begin + i] / 32u] |= 1u << tokens[begin + i] % 32u;
        }
        lm->length += part;
        begin += part;
    }
    megcc_tensor tensor;
    const void *found = megcc_session_output(lm->session, lm->model->logits, &tensor);
    if (!found || tensor.dtype != MEGCC_FLOAT32 || tensor.bytes != lm->model->tokenizer->tokens * sizeof **logits) {
        return refused(error, MEGCC_E_UNSUPPORTED, "logits", 0);
    }
    *logits = (float *)(uintptr_t)found; /* in the arena, and written by every run */
    return MEGCC_OK;
}

/* --- text ------------------------------------------------------------------------------------------------------ */

/* Whether a token ends a text. */
static int32_t is_end(const megcc_lm_model *model, uint32_t token)
{
    for (uint32_t i = 0; i < model->end_count; i++) {
        if (model->ends[i] == token) {
            return 1;
        }
    }
    return 0;
}

/* Returns the offset of the first stop string in a text, or `size` if there is none. *begun: the number of bytes at the end
 * of the text that may be the beginning of one, which later pieces complete. */
static size_t stop_in(const char *text, size_t size, const megcc_lm_options *options, size_t *begun)
{
    size_t first = size;
    *begun = 0;
    for (uint32_t k = 0; k < options->stops; k++) {
        const size_t length = strlen(options->stop[k]);
        for (size_t at = 0; length && at < size; at++) {
            const size_t left = size - at, compared = left < length ? left : length;
            if (memcmp(text + at, options->stop[k], compared)) {
                continue;
            }
            if (compared == length) {
                first = at < first ? at : first;
            } else {
                *begun = left > *begun ? left : *begun;
            }
            break;
        }
    }
    return first;
}

static size_t longest_stop(const megcc_lm_options *options)
{
    size_t most = 0;
    for (uint32_t k = 0; k < options->stops; k++) {
        const size_t length = strlen(options->stop[k]);
        most = length > most ? length : most;
    }
    return most;
}

/* Reads `count` tokens at memory.tokens, and generates a text after them. */
static int32_t generate(megcc_lm *lm, uint32_t count, const megcc_lm_options *options, megcc_lm_piece piece,
                        void *user, megcc_error *error)
{
    const megcc_tokenizer *tokenizer = lm->model->tokenizer;
    megcc_sampler sampler = options->sampler;
    megcc_decoder decoder = { { 0 }, 0, 0 };
    char *text = lm->memory.text;
    size_t pending = 0; /* bytes at `text` that the caller has not got yet */
    float *logits;
    sampler.draws = 0;
    int32_t status = megcc_lm_step(lm, lm->memory.tokens, count, &logits, error);
    for (uint32_t generated = 0; !status && (!options->max_tokens || generated < options->max_tokens); generated++) {
        if (options->token) { /* the sampler overwrites the logits */
            memcpy(options->logits, logits, tokenizer->tokens * sizeof *logits);
        }
        const uint32_t token = megcc_sampler_choose(&sampler, logits, tokenizer->tokens, lm->memory.seen);
        if (is_end(lm->model, token)) {
            break;
        }
        if (options->token) {
            options->token(user, token, megcc_sampler_log_probability(options->logits, tokenizer->tokens, token));
        }
        pending += megcc_decoder_add(tokenizer, &decoder, token, text + pending, lm->memory.text_bytes - pending);
        size_t begun;
        const size_t stop = stop_in(text, pending, options, &begun);
        const int32_t stopped = stop < pending;
        const size_t sure = stopped ? stop : pending - begun; /* bytes before any stop string */
        if ((sure && piece(user, text, sure)) || stopped) {
            return MEGCC_OK;
        }
        pending -= sure;
        memmove(text, text + sure, pending);
        if (lm->length == lm->model->context) {
            break;
        }
        status = megcc_lm_step(lm, &token, 1, &logits, error);
    }
    pending += megcc_decoder_end(&decoder, text + pending, lm->memory.text_bytes - pending);
    if (!status && pending) {
        piece(user, text, pending);
    }
    return status;
}

int32_t megcc_lm_generate(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options,
                          megcc_lm_piece piece, void *user, megcc_error *error)
{
    static const megcc_lm_options greedy;
    const megcc_lm_model *model = lm->model;
    const uint32_t capacity = model->context - lm->length, begin = lm->length ? MEGCC_NO_TOKEN : model->begin;
    uint32_t *tokens = lm->memory.tokens;
    options = options ? options : &greedy;
    const size_t needed = MEGCC_DECODER_ROOM(model->tokenizer->longest) + longest_stop(options);
    if (needed > lm->memory.text_bytes) {
        return refused(error, MEGCC_E_ARGUMENT, "text", needed);
    }
    const int32_t found = megcc_tokenizer_encode(model->tokenizer, text, size, 1, tokens + 1, (int32_t)model->context,
                                                 lm->memory.work, lm->memory.work_bytes);
    if (found < 0) {
        return refused(error, MEGCC_E_ARGUMENT, "work", MEGCC_TOKENIZER_WORK((uint64_t)size) * sizeof *lm->memory.work);
    }
    /* tokens[0] is for the token before every text, unless the text begins with it. */
    const int32_t adds_begin = begin != MEGCC_NO_TOKEN && !(found && tokens[1] == begin);
    const uint32_t count = (uint32_t)found + (adds_begin ? 1u : 0u);
    if (count > capacity) {
        return refused(error, MEGCC_E_ARGUMENT, "context", (uint64_t)lm->length + count);
    }
    if (adds_begin) {
        tokens[0] = begin;
    } else {
        memmove(tokens, tokens + 1, count * sizeof *tokens);
    }
    return generate(lm, count, options, piece, user, error);
}

/* --- conversations --------------------------------------------------------------------------------------------- */

/* Appends to memory.text at offset *at, and advances that, even beyond the memory, where nothing is written. */
static void append(megcc_lm *lm, size_t *at, const char *text, size_t size)
{
    if (*at <= lm->memory.text_bytes && size <= lm->memory.text_bytes - *at) {
        memcpy(lm->memory.text + *at, text, size);
    }
    *at += size;
}

int32_t megcc_lm_ask(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                     megcc_lm_piece piece, void *user, megcc_error *error)
{
    const megcc_lm_chat *chat = lm->model->chat;
    const char *system = options && !lm->length ? options->system : NULL;
    if (!chat || (system && !chat->system) || (lm->length && !chat->next)) {
        return refused(error, MEGCC_E_UNSUPPORTED, "chat", 0);
    }
    size_t at = 0;
    if (system) {
        append(lm, &at, chat->system, strlen(chat->system));
        append(lm, &at, system, strlen(system));
    }
    const char *before = system ? chat->after_system : lm->length ? chat->next : chat->first;
    append(lm, &at, before, strlen(before));
    append(lm, &at, question, size);
    append(lm, &at, chat->answer, strlen(chat->answer));
    if (at > lm->memory.text_bytes) {
        return refused(error, MEGCC_E_ARGUMENT, "text", at);
    }
    return megcc_lm_generate(lm, lm->memory.text, at, options, piece, user, error);
}
