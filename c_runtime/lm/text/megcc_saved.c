/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sequence has read, as bytes: a head with the number of its tokens, a bit for each token of the vocabulary, and its
 * part of each state. A state has one part for each sequence, in their order.
 */
#include <string.h>

#include "megcc_text.h"

typedef struct head {
    uint64_t container;         /* megcc_model.id */
    uint32_t weights;           /* megcc_model.weights_crc */
    uint32_t bytes;             /* of everything */
    int64_t tokens;
} head;

/* The part of a state: `blocks` runs of `used` bytes, `stride` bytes apart. data: NULL if no shape is set yet. */
typedef struct part {
    uint8_t *data;
    size_t blocks, used, stride;
} part;

/* Returns the part of state `input` that a sequence of so many tokens has. */
static part part_of(const megcc_lm *lm, uint32_t input, int64_t tokens)
{
    megcc_tensor tensor;
    part found = { (uint8_t *)megcc_session_input(lm->session, input, &tensor), 1, 0, 0 };
    if (!found.data) {
        megcc_model_input(lm->network, input, &tensor);
    }
    const size_t bytes = (size_t)tensor.bytes / lm->model->sequences;
    if (found.data) {
        found.data += bytes * lm->index;
    }
    found.used = found.stride = bytes;
    if (lm->model->state[input] == MEGCC_LM_ROWS) {
        const size_t rows = (size_t)tensor.dims[2];
        found.blocks = (size_t)tensor.dims[1];
        found.stride = bytes / found.blocks;
        found.used = found.stride / rows * (tokens < (int64_t)rows ? (size_t)tokens : rows);
    }
    return found;
}

static int32_t is_cache(const megcc_lm *lm, uint32_t input)
{
    return lm->model->state[input] == MEGCC_LM_ROWS || lm->model->state[input] == MEGCC_LM_WHOLE;
}

static size_t seen_bytes(const megcc_lm *lm)
{
    return (lm->model->tokenizer->tokens + 31u) / 32u * sizeof *lm->memory.seen;
}

/* The number of tokens that were read; a state, because lm->length ends at UINT32_MAX. */
static int64_t *counter_of(const megcc_lm *lm)
{
    for (uint32_t i = 0; i < lm->model->inputs; i++) {
        if (lm->model->state[i] == MEGCC_LM_COUNTER) {
            return (int64_t *)part_of(lm, i, 0).data;
        }
    }
    return NULL;
}

/* The bytes of a sequence of so many tokens. */
static size_t saved_bytes(const megcc_lm *lm, int64_t tokens)
{
    size_t bytes = sizeof(head) + seen_bytes(lm);
    for (uint32_t i = 0; i < lm->model->inputs; i++) {
        if (is_cache(lm, i)) {
            const part found = part_of(lm, i, tokens);
            bytes += found.blocks * found.used;
        }
    }
    return bytes;
}

size_t megcc_lm_save(const megcc_lm *lm, void *data, size_t capacity)
{
    const int64_t *counter = counter_of(lm);
    const int64_t tokens = counter ? *counter : 0;
    const size_t bytes = saved_bytes(lm, tokens);
    const head first = { lm->network->id, lm->network->weights_crc, (uint32_t)bytes, tokens };
    uint8_t *to = (uint8_t *)data;
    if (capacity < bytes) {
        return bytes;
    }
    memcpy(to, &first, sizeof first);
    to += sizeof first;
    memcpy(to, lm->memory.seen, seen_bytes(lm));
    to += seen_bytes(lm);
    for (uint32_t i = 0; i < lm->model->inputs; i++) {
        const part found = part_of(lm, i, tokens);
        for (size_t block = 0; is_cache(lm, i) && block < found.blocks; block++, to += found.used) {
            if (found.data) {
                memcpy(to, found.data + block * found.stride, found.used);
            } else {
                memset(to, 0, found.used); /* nothing was read */
            }
        }
    }
    return bytes;
}

int32_t megcc_lm_load(megcc_lm *lm, const void *data, size_t size, megcc_error *error)
{
    const uint8_t *from = (const uint8_t *)data;
    const megcc_error damaged = { MEGCC_E_ARGUMENT, MEGCC_NONE, "saved", 0, 0 };
    const int64_t most = lm->model->endless ? INT64_MAX : (int64_t)lm->model->context;
    head first;
    memset(&first, 0, sizeof first);
    if (from && size >= sizeof first) {
        memcpy(&first, from, sizeof first);
    }
    if (size < sizeof first || first.container != lm->network->id || first.weights != lm->network->weights_crc
        || first.tokens < 0 || first.tokens > most || size != saved_bytes(lm, first.tokens)
        || first.bytes != (uint32_t)size) {
        if (error) {
            *error = damaged;
        }
        return damaged.status;
    }
    /* States have memory after the first shapes. */
    const int32_t status = counter_of(lm) ? MEGCC_OK : megcc_text_shape(lm, 1, error);
    if (status) {
        return status;
    }
    megcc_text_clear(lm);
    lm->length = first.tokens < (int64_t)UINT32_MAX ? (uint32_t)first.tokens : UINT32_MAX;
    from += sizeof first;
    memcpy(lm->memory.seen, from, seen_bytes(lm));
    from += seen_bytes(lm);
    for (uint32_t i = 0; i < lm->model->inputs; i++) {
        const part found = part_of(lm, i, first.tokens);
        for (size_t block = 0; is_cache(lm, i) && block < found.blocks; block++, from += found.used) {
            memcpy(found.data + block * found.stride, from, found.used);
        }
    }
    *counter_of(lm) = first.tokens;
    return MEGCC_OK;
}

void megcc_text_forget(megcc_lm *lm)
{
    int64_t *counter = counter_of(lm);
    if (counter) {
        *counter = 0; /* rows that are not counted are not read */
    }
}

void megcc_text_copy(const megcc_lm *source, megcc_lm *target)
{
    int64_t *counter = counter_of(source);
    megcc_text_clear(target);
    target->length = source->length;
    memcpy(target->memory.seen, source->memory.seen, seen_bytes(source));
    for (uint32_t i = 0; counter && i < source->model->inputs; i++) {
        const part from = part_of(source, i, *counter), to = part_of(target, i, *counter);
        for (size_t block = 0; is_cache(source, i) && block < from.blocks; block++) {
            memcpy(to.data + block * to.stride, from.data + block * from.stride, from.used);
        }
    }
    if (counter) {
        *counter_of(target) = *counter;
    }
}
