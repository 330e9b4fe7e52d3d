/* SPDX-License-Identifier: Apache-2.0
 *
 * The main program of a firmware with a language model: continues a text. It exchanges files with the host by semihosting:
 *
 *     options.bin     `settings` below
 *     prompt.txt      the text
 *     text.txt        the text after it, which is also printed
 *     tokens.bin      the tokens of that text, uint32
 *     stack.bin       bytes of stack that were used at most
 *
 * `megcc build` defines the names of the model: MODEL_HEADER its header, and MODEL(x) the name that begins with the model's
 * and ends with x.
 */
#include MODEL_HEADER
#include "board.h"
#include "firmware.h"

typedef struct settings {
    uint32_t text_bytes, max_tokens, top_k;
    float temperature, top_p, min_p, repetition_penalty;
    uint32_t seed_low, seed_high;
} settings;

int main(void);

static MODEL(_lm) lm;
static char prompt[sizeof lm.text];
static int32_t text_file, tokens_file;

static int failed(const char *what)
{
    board_text(what);
    return 1;
}

/* Receives a piece of the text. Returns 0: the text goes on. */
static int32_t print_piece(void *user, const char *text, size_t size)
{
    (void)user;
    board_write(text_file, text, (uint32_t)size);
    return 0;
}

static void print_token(void *user, uint32_t token, float log_probability)
{
    (void)user;
    (void)log_probability;
    board_write(tokens_file, &token, sizeof token);
}

int main(void)
{
    const firmware_model *m = &firmware_models[0];
    static megcc_model model;
    static float logits[MODEL_VOCABULARY];
    megcc_session *session;
    settings given;
    megcc_session_options *own = NULL;
#ifndef MEGCC_NO_REGIONS
    static megcc_session_options session_options;
    memcpy(session_options.region, m->region, sizeof session_options.region);
    own = &session_options;
#endif
    if (megcc_model_open(&model, m->module, m->data, m->data_bytes, NULL, NULL)
        || megcc_session_open(&session, &model, m->memory, m->memory_bytes, own, NULL))
        return failed("the model does not open\n");
    MODEL(_open)(&lm, &model, session);

    const int32_t file = board_open("options.bin", FOR_READING), text = board_open("prompt.txt", FOR_READING);
    if (file < 0 || board_read(file, &given, sizeof given) || given.text_bytes > sizeof prompt
        || (given.text_bytes != 0u && (text < 0 || board_read(text, prompt, given.text_bytes))))
        return failed("options.bin and prompt.txt cannot be read, or the text is too long\n");
    text_file = board_open("text.txt", FOR_WRITING);
    tokens_file = board_open("tokens.bin", FOR_WRITING);
    const megcc_lm_options options = {
        .sampler = { .temperature = given.temperature, .top_k = given.top_k, .top_p = given.top_p, .min_p = given.min_p,
                     .repetition_penalty = given.repetition_penalty,
                     .seed = (uint64_t)given.seed_high << 32 | given.seed_low },
        .max_tokens = given.max_tokens, .token = print_token, .logits = logits
    };
    if (megcc_lm_generate(&lm.lm, prompt, given.text_bytes, &options, print_piece, NULL, NULL))
        return failed("the prompt does not fit in the context\n");
    const uint32_t stack = board_stack_used();
    const int32_t stack_file = board_open("stack.bin", FOR_WRITING);
    board_write(stack_file, &stack, sizeof stack);
    return 0;
}
