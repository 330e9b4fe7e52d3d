/* SPDX-License-Identifier: Apache-2.0
 *
 * The C of a program of several networks, which is what stands around them (features, searches, tokenizers, image functions,
 * boxes), with any data. Inputs and outputs are heap blocks of exactly their sizes, and so are the operands of kernels. Each
 * input of the fuzzer runs twice, on memory with other bytes in it, and results have to be the same: nothing is read that
 * was not written.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "guard.h"
#include "records.h"

static int32_t open_guarded(megcc_model *model, const megcc_module *module, const void *data, size_t size,
                            const megcc_model_options *options, megcc_error *error);
static int32_t session_guarded(megcc_session **session, const megcc_model *model, void *memory, size_t bytes,
                               const megcc_session_options *options, megcc_error *error);

#define megcc_model_open open_guarded
#define megcc_session_open session_guarded
#include PROGRAM /* defines run_program and the tables `inputs` and `outputs` */
#undef megcc_model_open
#undef megcc_session_open

#define INPUTS (sizeof inputs / sizeof inputs[0])
#define OUTPUTS (sizeof outputs / sizeof outputs[0])
#define RUNS 2u /* runs of an input one after the other, for what is kept between them */

static program_type program;
static uint8_t *memory, *input_data[INPUTS], *expected[RUNS][OUTPUTS];
static unsigned executions, completed, refused;

static int32_t observe(void *user, megcc_session *at, uint32_t instruction, int32_t after)
{
    (void)user;
    if (!after)
        (void)guard_instruction(at, instruction);
    return 0;
}

static int32_t open_guarded(megcc_model *model, const megcc_module *module, const void *data, size_t size,
                            const megcc_model_options *options, megcc_error *error)
{
    megcc_module *guarded = malloc(sizeof *guarded); /* as long as the process */
    guard_require(guarded != NULL, "no memory for a module");
    *guarded = guard_module(module);
    return megcc_model_open(model, guarded, data, size, options, error);
}

static int32_t session_guarded(megcc_session **session, const megcc_model *model, void *place, size_t bytes,
                               const megcc_session_options *options, megcc_error *error)
{
    megcc_session_options observed = *options;
    observed.observer = (megcc_observer){ observe, NULL };
    return megcc_session_open(session, model, place, bytes, &observed, error);
}

/* --- data ---------------------------------------------------------------------------------------------------------- */

#define PLAIN_KINDS 6u

static float unit(uint32_t *state)
{
    return (float)(chance(state) >> 8) / 16777216.0f;
}

/* Numbers that programs expect, and texts: likelihoods, numbers around 0, coordinates, the same a long way off, and denormal
 * numbers. */
static void fill_plainly(uint8_t *data, const port *p, uint32_t kind, uint32_t *state)
{
    static const char *const words[] = { "the ", "a", "abab", "\xc3\x9f", "\xf0\x9f\xa6\x80", "<s>", "[SEP]", "\xe4\xb8\x80",
                                         "!", "\xff", " ", "\xcc\x81" };
    if (p->dtype == MEGCC_UINT8 && kind % 2 == 0) {
        size_t at = 0;
        memset(data, 0, p->bytes);
        for (uint32_t left = chance(state) % 24; left > 0; left--) {
            const char *word = words[chance(state) % (sizeof words / sizeof words[0])];
            const size_t length = strlen(word);
            if (length > p->bytes - at)
                break;
            memcpy(data + at, word, length);
            at += length;
        }
        return;
    }
    for (size_t i = 0; p->dtype == MEGCC_FLOAT32 && i < p->bytes; i += sizeof(float)) {
        static const float scale[PLAIN_KINDS] = { 1.0f, 4.0f, 40.0f, 1e30f, 1e-39f, 3e9f };
        const float value = scale[kind] * (kind == 0 ? unit(state) : 2.0f * unit(state) - 1.0f);
        memcpy(data + i, &value, sizeof value);
    }
    for (size_t i = 0; p->dtype != MEGCC_FLOAT32 && i < p->bytes; i++)
        data[i] = (uint8_t)(p->dtype == MEGCC_UINT8 || i % 8 == 0 ? chance(state) % (kind % 2 ? 256 : 7) : 0);
}

static void fill(const record *r)
{
    const uint32_t index = r->name % INPUTS, kind = r->row % (FILL_KINDS + 4u * PLAIN_KINDS);
    const port *p = &inputs[index];
    const megcc_tensor tensor = { .dtype = p->dtype, .bytes = p->bytes };
    uint32_t state = r->operand | 1u;
    if (kind < FILL_KINDS)
        guard_fill(input_data[index], &tensor, kind, &state);
    else
        fill_plainly(input_data[index], p, (kind - FILL_KINDS) % PLAIN_KINDS, &state);
}

/* Sets an element: to these bits, or to one that is extreme for its type. */
static void poke(const record *r)
{
    static const float floats[] = { NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, -0.0f, 2147483648.0f, -2147483904.0f,
                                    9.3e18f, 0.5f, 1.0f, 16777217.0f, -1e-20f };
    static const int64_t wide[] = { INT64_MAX, INT64_MIN, -1, 0, 1, INT32_MAX, INT32_MIN, (int64_t)1 << 32, 4, 6, 7, 100 };
    const uint32_t index = r->name % INPUTS;
    const port *p = &inputs[index];
    const uint32_t width = megcc_dtype_bytes(p->dtype);
    uint8_t *at = input_data[index] + r->row % (p->bytes / width) * width;
    if (r->op % 2 == 0 || p->dtype == MEGCC_UINT8)
        memcpy(at, &r->operand, width < sizeof r->operand ? width : sizeof r->operand);
    else if (p->dtype == MEGCC_FLOAT32)
        memcpy(at, &floats[r->operand % (sizeof floats / sizeof floats[0])], sizeof(float));
    else
        memcpy(at, &wide[r->operand % (sizeof wide / sizeof wide[0])], sizeof(int64_t));
}

/* --- runs ---------------------------------------------------------------------------------------------------------- */

/* Runs on memory that holds `rest`, and compares with what an earlier call found, or keeps it. */
static int32_t run_with(uint8_t rest, uint32_t turn, bool compare)
{
    void *data[INPUTS + OUTPUTS];
    megcc_error error;
    executions++;
    memset(memory, rest, BLOCK_BYTES);
    if (turn == 0)
        reset_program(&program);
    for (size_t i = 0; i < INPUTS; i++)
        data[i] = guard_block(input_data[i], inputs[i].bytes);
    for (size_t i = 0; i < OUTPUTS; i++) {
        data[INPUTS + i] = guard_block(NULL, outputs[i].bytes);
        memset(data[INPUTS + i], rest, outputs[i].bytes);
    }
    const int32_t status = run_program(&program, data, &error);
    guard_require(status == MEGCC_OK || status == MEGCC_E_ARGUMENT || status == MEGCC_E_KERNEL,
                  "a run ends with another status");
    for (size_t i = 0; i < INPUTS; i++) {
        guard_require(memcmp(data[i], input_data[i], inputs[i].bytes) == 0, "an input was changed");
        megcc_heap_free(data[i]);
    }
    for (size_t i = 0; i < OUTPUTS; i++) {
        if (compare && status == MEGCC_OK)
            guard_require(memcmp(data[INPUTS + i], expected[turn][i], outputs[i].bytes) == 0, outputs[i].name);
        memcpy(expected[turn][i], data[INPUTS + i], outputs[i].bytes);
        megcc_heap_free(data[INPUTS + i]);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    record steps[MAX_RECORDS];
    const size_t count = records_of(data, bytes, steps);
    uint32_t state = steps->operand | 1u;
    for (uint32_t i = 0; i < INPUTS; i++)
        fill(&(record){ 0, (uint8_t)i, (uint16_t)(steps->row + (steps->op % 2 ? chance(&state) % 64 : 0)), chance(&state) });
    for (size_t i = 1; i < count; i++)
        if (steps[i].op < 64)
            fill(&steps[i]);
        else
            poke(&steps[i]);
    int32_t status[RUNS] = { 0 };
    for (uint32_t attempt = 0; attempt < 2; attempt++) {
        int32_t now = MEGCC_OK;
        for (uint32_t turn = 0; turn < RUNS && now == MEGCC_OK; turn++) {
            now = run_with(attempt == 0 ? 0xAA : 0x37, turn, attempt == 1);
            guard_require(attempt == 0 || now == status[turn], "the same input has another status");
            status[turn] = now;
        }
        completed += now == MEGCC_OK;
        refused += now != MEGCC_OK;
    }
    return 0;
}

static void describe_runs(void)
{
    printf("%u runs: %u pairs to the end and %u refused\n", executions, completed, refused);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    megcc_file file;
    (void)argc;
    (void)argv;
    guard_require(megcc_file_open(&file, CONTAINER, NULL) == MEGCC_OK, CONTAINER);
    memory = guard_block(NULL, MEMORY_BYTES);
    guard_require(open_program(&program, file.data, file.size, memory, MEMORY_BYTES, NULL) == MEGCC_OK, PROGRAM);
    for (size_t i = 0; i < INPUTS; i++)
        input_data[i] = guard_block(NULL, inputs[i].bytes);
    for (size_t i = 0; i < OUTPUTS; i++)
        for (size_t turn = 0; turn < RUNS; turn++)
            expected[turn][i] = guard_block(NULL, outputs[i].bytes);
    return atexit(describe_runs);
}
