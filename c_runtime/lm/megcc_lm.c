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
    lm->phase = MEGCC_LM_ENDED;
    lm->pending = lm->given = 0;
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

/* The most tokens that can still be read; with `longest` as their limit if a text has no end. */
static uint32_t room(const megcc_lm *lm, uint32_t longest)
{
    return lm->model->endless ? longest : lm->model->context - lm->length;
}

/* Reads tokens after everything read so far; arguments and errors are those of megcc_lm_step. */
static int32_t run(megcc_lm *lm, const uint32_t *tokens, uint32_t count, float **logits, megcc_error *error)
{
    if (!count) {
        return refused(error, MEGCC_E_ARGUMENT, "tokens", 1);
    }
    if (count > room(lm, UINT32_MAX)) {
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
        lm->length = lm->length < UINT32_MAX - part ? lm->length + part : UINT32_MAX;
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

int32_t megcc_lm_step(megcc_lm *lm, const uint32_t *tokens, uint32_t count, float **logits, megcc_error *error)
{
    lm->phase = MEGCC_LM_ENDED; /* its logits are overwritten */
    if (!tokens || !logits) {
        return refused(error, MEGCC_E_ARGUMENT, tokens ? "logits" : "tokens", 0);
    }
    return run(lm, tokens, count, logits, error);
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

/* Whether stop strings, and memory for log-probabilities, are there where the options say so. */
static int32_t has_pointers(const megcc_lm_options *options)
{
    for (uint32_t k = 0; k < options->stops; k++) {
        if (!options->stop || !options->stop[k]) {
            return 0;
        }
    }
    return !options->token || options->logits;
}

/* Samples a token that the grammar allows, if there is one, and appends it to the text that the grammar has read. Returns
 * MEGCC_NO_TOKEN if no token can follow. */
static uint32_t sample(megcc_lm *lm)
{
    const uint32_t count = lm->model->tokenizer->tokens;
    const megcc_grammar *grammar = lm->options.grammar;
    if (!grammar) {
        return megcc_sampler_choose(&lm->options.sampler, lm->logits, count, lm->memory.seen);
    }
    const uint32_t lowest = grammar->functions->mask(lm->memory.grammar, lm->logits);
    if (lowest == MEGCC_NO_TOKEN) {
        return lowest;
    }
    const uint32_t token = megcc_sampler_choose(&lm->options.sampler, lm->logits, count, lm->memory.seen);
    if (grammar->functions->accept(lm->memory.grammar, token)) {
        return token;
    }
    grammar->functions->accept(lm->memory.grammar, lowest); /* the logits of all allowed tokens are NaN or -infinity */
    return lowest;
}

/* Whether the grammar has nothing that can follow the text. */
static int32_t is_finished(const megcc_lm *lm)
{
    return lm->options.grammar && lm->options.grammar->functions->is_finished(lm->memory.grammar);
}

/* Chooses the next token. Returns 0 if that ends the text; lm->token is MEGCC_NO_TOKEN if there is none. */
static int32_t choose(megcc_lm *lm)
{
    const megcc_tokenizer *tokenizer = lm->model->tokenizer;
    const megcc_lm_options *options = &lm->options;
    if (options->max_tokens && lm->generated == options->max_tokens) {
        return 0;
    }
    if (options->token) { /* the sampler overwrites the logits */
        memcpy(options->logits, lm->logits, tokenizer->tokens * sizeof *lm->logits);
    }
    lm->token = sample(lm);
    if (lm->token == MEGCC_NO_TOKEN || is_end(lm->model, lm->token)) {
        return 0;
    }
    if (options->token) {
        options->token(lm->user, lm->token,
                       megcc_sampler_log_probability(options->logits, tokenizer->tokens, lm->token));
    }
    lm->generated++;
    return 1;
}

/* Appends the text of the chosen token to memory.text, and sets the bytes that the caller gets of it. */
static void append_token(megcc_lm *lm)
{
    char *text = lm->memory.text;
    lm->pending += megcc_decoder_add(lm->model->tokenizer, &lm->decoder, lm->token, text + lm->pending,
                                     lm->memory.text_bytes - lm->pending);
    size_t begun;
    const size_t stop = stop_in(text, lm->pending, &lm->options, &begun);
    lm->phase = stop < lm->pending ? MEGCC_LM_ENDED : MEGCC_LM_READS;
    lm->given = stop < lm->pending ? stop : lm->pending - begun; /* bytes before any stop string */
}

int32_t megcc_lm_next(megcc_lm *lm, const char **piece, size_t *size, megcc_error *error)
{
    char *text = lm->memory.text;
    lm->pending -= lm->given;
    memmove(text, text + lm->given, lm->pending);
    lm->given = 0;
    *piece = text;
    *size = 0;
    while (lm->phase != MEGCC_LM_ENDED && !lm->given) {
        int32_t goes_on = lm->phase == MEGCC_LM_CHOOSES || (room(lm, 1) && !is_finished(lm));
        if (goes_on && lm->phase == MEGCC_LM_READS) {
            const int32_t status = run(lm, &lm->token, 1, &lm->logits, error);
            if (status) {
                lm->phase = MEGCC_LM_ENDED;
                return status;
            }
        }
        goes_on = goes_on && choose(lm);
        if (goes_on) {
            append_token(lm);
        } else {
            lm->pending += megcc_decoder_end(&lm->decoder, text + lm->pending, lm->memory.text_bytes - lm->pending);
            lm->given = lm->pending;
            lm->phase = MEGCC_LM_ENDED;
            if (lm->token == MEGCC_NO_TOKEN) {
                return refused(error, MEGCC_E_MEMORY, "grammar", 0);
            }
        }
    }
    *size = lm->given;
    return MEGCC_OK;
}

int32_t megcc_lm_start(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options, void *user,
                       megcc_error *error)
{
    static const megcc_lm_options greedy;
    const megcc_lm_model *model = lm->model;
    const uint32_t capacity = room(lm, model->context), begin = lm->length ? MEGCC_NO_TOKEN : model->begin;
    uint32_t *tokens = lm->memory.tokens;
    options = options ? options : &greedy;
    lm->phase = MEGCC_LM_ENDED;
    if (!text) {
        return refused(error, MEGCC_E_ARGUMENT, "text", 0);
    }
    if (options->grammar && !lm->memory.grammar) {
        return refused(error, MEGCC_E_ARGUMENT, "grammar", 0);
    }
    if (!megcc_sampler_is_valid(&options->sampler) || !has_pointers(options)) {
        return refused(error, MEGCC_E_ARGUMENT, "options", 0);
    }
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
        return refused(error, MEGCC_E_ARGUMENT, "context", (model->endless ? 0u : (uint64_t)lm->length) + count);
    }
    if (adds_begin) {
        tokens[0] = begin;
    } else {
        memmove(tokens, tokens + 1, count * sizeof *tokens);
    }
    lm->options = *options;
    lm->options.sampler.draws = 0;
    lm->user = user;
    lm->generated = 0;
    lm->token = 0;
    lm->pending = lm->given = 0;
    memset(&lm->decoder, 0, sizeof lm->decoder);
    if (options->grammar && !options->grammar->functions->begin(lm->memory.grammar, options->grammar)) {
        return refused(error, MEGCC_E_MEMORY, "grammar", 0);
    }
    const int32_t status = run(lm, tokens, count, &lm->logits, error);
    lm->phase = status ? MEGCC_LM_ENDED : MEGCC_LM_CHOOSES;
    return status;
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

/* --- conversations --------------------------------------------------------------------------------------------- */

/* Appends to memory.text at offset *at, and advances that, even beyond the memory, where nothing is written. */
static void append(megcc_lm *lm, size_t *at, const char *text, size_t size)
{
    if (*at <= lm->memory.text_bytes && size <= lm->memory.text_bytes - *at) {
        memcpy(lm->memory.text + *at, text, size);
    }
    *at += size;
}

int32_t megcc_lm_start_answer(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
                              void *user, megcc_error *error)
{
    const megcc_lm_chat *chat = lm->model->chat;
    const char *system = options && !lm->length ? options->system : NULL;
    if (!chat || (system && !chat->system) || (lm->length && !chat->next)) {
        return refused(error, MEGCC_E_UNSUPPORTED, "chat", 0);
    }
    if (!question) {
        return refused(error, MEGCC_E_ARGUMENT, "text", 0);
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
    return megcc_lm_start(lm, lm->memory.text, at, options, user, error);
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
