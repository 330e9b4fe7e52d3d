/* SPDX-License-Identifier: Apache-2.0
 *
 * Greedy decoding: the tokens of a prompt at once, then one token after the other, each the most likely one. Keys and
 * values of the past stay in the session, which appends to them. docs/streaming.md has the commands.
 *
 *     greedy decoder.megcc COUNT TOKEN...      prints COUNT tokens that follow these
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "decoder.h"

enum { ROOM = DECODER_IN_ATTENTION_MASK_ELEMENTS, MOST = 64 };

static int failed(const megcc_error *error)
{
    char text[256];
    megcc_error_text(error, text, sizeof text);
    fprintf(stderr, "greedy: %s\n", text);
    return 1;
}

/* The shapes of all inputs for so many new tokens: of those that are open, which are [1, tokens]. */
static int set_tokens(const megcc_model *model, megcc_session *session, int32_t tokens, megcc_error *error)
{
    megcc_shape shapes[DECODER_INPUTS];
    for (uint32_t i = 0; i < DECODER_INPUTS; i++) {
        megcc_tensor tensor;
        megcc_model_input(model, i, &tensor);
        shapes[i].rank = tensor.rank;
        for (int32_t axis = 0; axis < MEGCC_MAX_RANK; axis++)
            shapes[i].dims[axis] = tensor.dims[axis] < 0 ? tokens : tensor.dims[axis];
    }
    return megcc_session_reshape(session, shapes, DECODER_INPUTS, error); /* keys and values stay */
}

/* Runs the model on `count` tokens behind `past` others; the most likely next one, or -1. */
static int64_t next(megcc_session *session, const int64_t *token, int32_t count, int32_t past, megcc_error *error)
{
    int64_t *ids = (int64_t *)megcc_session_input(session, DECODER_IN_INPUT_IDS, NULL);
    int64_t *mask = (int64_t *)megcc_session_input(session, DECODER_IN_ATTENTION_MASK, NULL);
    int64_t *position = (int64_t *)megcc_session_input(session, DECODER_IN_POSITION_IDS, NULL);
    for (int32_t i = 0; i < count; i++) {
        ids[i] = token[i];
        position[i] = past + i;
    }
    for (int32_t i = 0; i < ROOM; i++)
        mask[i] = i < past + count; /* what lies behind past + count is not read */
    if (megcc_session_run(session, error))
        return -1;
    megcc_tensor tensor;
    const float *logits = (const float *)megcc_session_output(session, DECODER_OUT_LOGITS, &tensor);
    logits += (ptrdiff_t)(count - 1) * tensor.dims[2];
    int64_t best = 0;
    for (int32_t i = 1; i < tensor.dims[2]; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

int main(int argc, char **argv)
{
    megcc_model model;
    megcc_file file;
    megcc_error error;
    megcc_session *session;
    int64_t token[MOST];
    int32_t count = argc - 3, past = 0;
    if (argc < 4 || count > MOST) {
        fprintf(stderr, "greedy FILE COUNT TOKEN... (at most %d)\n", MOST);
        return 2;
    }
    if (megcc_model_load_file(&model, &file, &decoder_module, argv[1], NULL, &error))
        return failed(&error);
    size_t alignment, bytes = megcc_model_memory(&model, &alignment);
    void *memory = megcc_heap_get(bytes, alignment);
    if (megcc_session_open(&session, &model, memory, bytes, NULL, &error))
        return failed(&error);
    for (int32_t i = 0; i < count; i++)
        token[i] = atoll(argv[3 + i]);
    for (int32_t left = atoi(argv[2]), shaped = 0; left > 0; left--) {
        if (count != shaped && set_tokens(&model, session, count, &error)) /* the prompt; then one at a time */
            return failed(&error);
        shaped = count;
        const int64_t best = next(session, token, count, past, &error);
        if (best < 0)
            return failed(&error);
        printf("%lld\n", (long long)best);
        past += count;
        token[0] = best;
        count = 1;
    }
    megcc_session_close(session);
    megcc_heap_free(memory);
    megcc_file_close(&file);
    return 0;
}
