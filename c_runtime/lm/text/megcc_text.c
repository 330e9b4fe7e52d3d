/* SPDX-License-Identifier: Apache-2.0
 *
 * A text token by token: a prompt becomes tokens; each next token is sampled, and its characters are a piece.
 */
#include <string.h>

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

/* --- reading --------------------------------------------------------------------------------------------------- */

int32_t megcc_text_shape(megcc_lm *lm, uint32_t count, megcc_error *error)
{
#ifndef MEGCC_NO_DYNAMIC
    /* The shape of the last run is that of its tokens. */
    megcc_shape *last = &lm->memory.shapes[lm->model->input_ids];
    if (lm->model->prompt > 1u && !(last->rank && last->dims[last->rank - 1] == (int32_t)count)) {
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
            last->rank = 0;
            return status;
        }
    }
#else
    (void)lm, (void)count, (void)error; /* one token in each run */
#endif
    return MEGCC_OK;
}

uint32_t megcc_text_room(const megcc_lm *lm, uint32_t longest)
{
    return lm->model->endless ? longest : lm->model->context - lm->length;
}

int32_t megcc_text_accepts(const megcc_lm *lm, const uint32_t *tokens, uint32_t count, megcc_error *error)
{
    if (!count) {
        return refused(error, MEGCC_E_ARGUMENT, "tokens", 1);
    }
    if (count > megcc_text_room(lm, UINT32_MAX)) {
        return refused(error, MEGCC_E_ARGUMENT, "context", (uint64_t)lm->length + count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] >= lm->model->tokenizer->tokens) {
            return refused(error, MEGCC_E_ARGUMENT, "tokens", 0);
        }
    }
    return MEGCC_OK;
}

void megcc_text_append(megcc_lm *lm, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        lm->memory.seen[tokens[i] / 32u] |= 1u << tokens[i] % 32u;
    }
    lm->length = lm->length < UINT32_MAX - count ? lm->length + count : UINT32_MAX;
}

void megcc_text_clear(megcc_lm *lm)
{
    lm->length = 0;
    lm->phase = MEGCC_LM_ENDED;
    lm->pending = lm->given = 0;
    memset(lm->memory.seen, 0, (lm->model->tokenizer->tokens + 31u) / 32u * sizeof *lm->memory.seen);
}

float *megcc_text_logits(const megcc_lm *lm, megcc_error *error)
{
    megcc_tensor tensor;
    const void *found = megcc_session_output(lm->session, lm->model->logits, &tensor);
    const uint64_t wanted = (uint64_t)lm->model->sequences * lm->model->tokenizer->tokens * sizeof(float);
    if (!found || tensor.dtype != MEGCC_FLOAT32 || tensor.bytes != wanted) {
        refused(error, MEGCC_E_UNSUPPORTED, "logits", 0);
        return NULL;
    }
    return (float *)(uintptr_t)found; /* in the arena, and written by every run */
}

/* --- choosing -------------------------------------------------------------------------------------------------- */

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
static int32_t pick(megcc_lm *lm)
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
    lm->waiting = &lm->token;
    lm->waits = 1;
    lm->given = stop < lm->pending ? stop : lm->pending - begun; /* bytes before any stop string */
}

void megcc_text_take(megcc_lm *lm)
{
    lm->pending -= lm->given;
    memmove(lm->memory.text, lm->memory.text + lm->given, lm->pending);
    lm->given = 0;
}

int32_t megcc_text_goes_on(const megcc_lm *lm)
{
    return lm->phase != MEGCC_LM_READS || (megcc_text_room(lm, 1) && !is_finished(lm));
}

void megcc_text_end(megcc_lm *lm)
{
    lm->pending += megcc_decoder_end(&lm->decoder, lm->memory.text + lm->pending, lm->memory.text_bytes - lm->pending);
    lm->given = lm->pending;
    lm->phase = MEGCC_LM_ENDED;
}

int32_t megcc_text_choose(megcc_lm *lm, megcc_error *error)
{
    if (pick(lm)) {
        append_token(lm);
        return MEGCC_OK;
    }
    megcc_text_end(lm);
    return lm->token == MEGCC_NO_TOKEN ? refused(error, MEGCC_E_MEMORY, "grammar", 0) : MEGCC_OK;
}

/* --- prompts --------------------------------------------------------------------------------------------------- */

int32_t megcc_text_start(megcc_lm *lm, const char *text, size_t size, const megcc_lm_options *options, void *user,
                       megcc_error *error)
{
    static const megcc_lm_options greedy;
    const megcc_lm_model *model = lm->model;
    const uint32_t capacity = megcc_text_room(lm, model->context), begin = lm->length ? MEGCC_NO_TOKEN : model->begin;
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
    const int32_t status = megcc_text_accepts(lm, tokens, count, error);
    lm->waiting = tokens;
    lm->waits = count;
    lm->phase = status ? MEGCC_LM_ENDED : MEGCC_LM_BEGINS;
    return status;
}

/* Appends to memory.text at offset *at, and advances that, even beyond the memory, where nothing is written. */
static void append_string(megcc_lm *lm, size_t *at, const char *text, size_t size)
{
    if (*at <= lm->memory.text_bytes && size <= lm->memory.text_bytes - *at) {
        memcpy(lm->memory.text + *at, text, size);
    }
    *at += size;
}

int32_t megcc_text_start_answer(megcc_lm *lm, const char *question, size_t size, const megcc_lm_options *options,
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
        append_string(lm, &at, chat->system, strlen(chat->system));
        append_string(lm, &at, system, strlen(system));
    }
    const char *before = system ? chat->after_system : lm->length ? chat->next : chat->first;
    append_string(lm, &at, before, strlen(before));
    append_string(lm, &at, question, size);
    append_string(lm, &at, chat->answer, strlen(chat->answer));
    if (at > lm->memory.text_bytes) {
        return refused(error, MEGCC_E_ARGUMENT, "text", at);
    }
    return megcc_text_start(lm, lm->memory.text, at, options, user, error);
}
