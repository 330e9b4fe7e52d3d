/* SPDX-License-Identifier: Apache-2.0
 *
 * Target: good containers, and calls of the C API in any order, with any shapes, data, bindings, workers, and failures of
 * the allocator. An input is a header (which model, on how many workers) and a record for each call. It checks the
 * promises of megcc.h about failures.
 */
#include <stdio.h>
#include <stdlib.h>

#include "guard.h"
#include "records.h"

#define SUBJECT(name, path) extern const megcc_module name;
#include SUBJECTS
#undef SUBJECT

static const struct {
    const megcc_module *module;
    const char *path;
} subjects[] = {
#define SUBJECT(name, path) { &name, path },
#include SUBJECTS
#undef SUBJECT
};

#define COUNT (sizeof subjects / sizeof subjects[0])
#define MAX_PORTS 8u
#define MAX_SYMBOLS 8u

enum { SHAPES, FILL, POKE, BIND_INPUT, BIND_OUTPUT, RUN, STEP, RESET, READ, QUERY, OPEN, STARVE, CALLS };

/* Each model twice: for the best CPU, and for one that can only run portable code. */
static megcc_model models[2 * COUNT];
static uint32_t cpu;
static unsigned inputs, shapes_set, shapes_refused, complete, failed;

/* The model and session of the input at work, and its memory. */
static const megcc_model *model;
static megcc_session *session;
static uint8_t *memory, *bound[2][MAX_PORTS]; /* a block for each bound input and output */
static uint32_t starve, cancel_at, state;
static int32_t misuse;

/* --- callbacks ----------------------------------------------------------------------------------------------------- */

static int32_t observe(void *user, megcc_session *at, uint32_t instruction, int32_t after)
{
    (void)user;
    if (after)
        return 0;
    return guard_instruction(at, instruction) != 0 || instruction == cancel_at;
}

/* Pieces from the last to the first, by all workers in turn. */
static void parallel(void *user, megcc_body body, void *context, int32_t tasks)
{
    const int32_t workers = (int32_t)(intptr_t)user;
    for (int32_t i = tasks; i-- > 0;)
        body(context, i, i % workers);
    if (misuse != 0)
        body(context, misuse > 0 ? tasks : 0, misuse > 0 ? 0 : workers);
}

/* --- the session --------------------------------------------------------------------------------------------------- */

static void unbind_all(void)
{
    for (uint32_t list = 0; list < 2; list++)
        for (uint32_t i = 0; i < MAX_PORTS; i++) {
            megcc_heap_free(bound[list][i]);
            bound[list][i] = NULL;
        }
}

static void close_session(void)
{
    if (session != NULL)
        megcc_session_close(session);
    session = NULL;
    unbind_all();
    megcc_heap_free(memory);
    memory = NULL;
    guard_nothing_allocated();
}

/* Returns whether there is a session: options are made up, too. */
static bool open_session(const record *r)
{
    const int32_t workers = r->row % 5;
    const megcc_session_options options = {
        { workers != 0 ? parallel : NULL, (void *)(intptr_t)workers, workers }, { observe, NULL },
        { r->operand % 16 != 1 ? guard_resize : NULL, &starve }, r->operand % 16 == 2 ? r->operand >> 4 : 0 };
    size_t alignment;
    const size_t needed = megcc_model_memory(model, &alignment);
    close_session();
    memory = guard_block(NULL, needed);
    memset(memory, (int)(r->operand & 0xFF), needed);
    const size_t given = r->operand % 16 == 3 ? needed - 1 : needed;
    const int32_t status = megcc_session_open(&session, model, memory, given, &options, NULL);
    const bool fits = given == needed && workers <= (int32_t)model->program.workers;
    guard_require((status == MEGCC_OK) == fits && (session != NULL) == fits, "megcc_session_open");
    return fits;
}

/* A number that changes with the shapes, and with where tensors are. */
static uint32_t facts(void)
{
    const megcc_program *p = &model->program;
    uint32_t sum = 1;
    for (uint32_t i = 0; i < p->rows[MEGCC_TENSORS].count; i++)
        sum = sum * 31 + (uint32_t)(uintptr_t)session->base[i];
    for (uint32_t i = 0; session->extents != NULL && i < p->rows[MEGCC_EXTENTS].count; i++)
        sum = sum * 31 + (uint32_t)session->extents[i];
    return sum;
}

/* A number that changes with the states. */
static uint32_t states(void)
{
    const megcc_program *p = &model->program;
    uint32_t sum = 1;
    for (uint32_t i = 0; session->extents != NULL && i < p->rows[MEGCC_STATES].count; i++) {
        const state_row *s = row_at(p->rows[MEGCC_STATES], i, sizeof *s);
        const uint32_t tensor = number_at(p->rows[MEGCC_INPUTS], s->input);
        for (uint64_t b = 0; b < megcc_tensor_bytes(tensor_at(p, tensor), session->extents); b++)
            sum = sum * 31 + session->base[tensor][b];
    }
    return sum;
}

/* --- calls --------------------------------------------------------------------------------------------------------- */

/* Shapes that fit each other, but for one dimension or rank now and then. */
static void set_shapes(const record *r)
{
    const megcc_program *p = &model->program;
    const uint32_t count = megcc_model_inputs(model), before = facts();
    int32_t symbols[MAX_SYMBOLS];
    uint32_t seed = r->operand | 1u;
    for (uint32_t i = 0; i < p->symbols; i++) {
        const uint32_t number = chance(&seed);
        symbols[i] = (int32_t)(number % 64 == 0 ? chance(&seed) >> number % 31
                                                : chance(&seed) % (number % 4 ? 7 : 24));
    }
    megcc_shape *shapes = guard_shapes(p, symbols);
    if (r->name % 8 == 1)
        shapes[r->row % count].dims[r->row / 16 % MEGCC_MAX_RANK] = (int32_t)r->operand;
    if (r->name % 8 == 2)
        shapes[r->row % count].rank = (int32_t)r->operand;
    const int32_t status = r->name % 4 == 3 ? megcc_session_reshape(session, shapes, count, NULL)
                                            : megcc_session_set_shapes(session, shapes, count, NULL);
    megcc_heap_free(shapes);
    guard_require(status == MEGCC_OK || status == MEGCC_E_SHAPE, "megcc_session_set_shapes: another status");
    guard_require(status == MEGCC_OK || facts() == before, "shapes that were refused changed something");
    if (status == MEGCC_OK)
        unbind_all();
    shapes_set += status == MEGCC_OK;
    shapes_refused += status != MEGCC_OK;
}

/* Where an input's data are, be it bound or not. */
static uint8_t *data_of(uint32_t index, megcc_tensor *tensor)
{
    uint8_t *own = megcc_session_input(session, index, tensor);
    return own != NULL ? own : index < MAX_PORTS ? bound[0][index] : NULL;
}

static void fill(const record *r)
{
    megcc_tensor tensor;
    uint8_t *data = data_of(r->name % megcc_model_inputs(model), &tensor);
    uint32_t seed = r->operand | 1u;
    if (data != NULL)
        guard_fill(data, &tensor, r->row, &seed);
}

/* One element: an integer, or a float from these bits or this number. */
static void poke(const record *r)
{
    megcc_tensor tensor;
    uint8_t *data = data_of(r->name % megcc_model_inputs(model), &tensor);
    const uint32_t width = megcc_dtype_bytes(tensor.dtype);
    const int64_t number = (int32_t)r->operand;
    const float real = (float)number;
    if (data == NULL || tensor.bytes < width)
        return;
    data += r->row % (tensor.bytes / width) * width;
    if (tensor.dtype == MEGCC_FLOAT32 && r->op >= 128)
        memcpy(data, &real, sizeof real);
    else
        memcpy(data, &number, width);
}

static void bind(const record *r, uint32_t list)
{
    const uint32_t index = r->name % (list == 0 ? megcc_model_inputs(model) : megcc_model_outputs(model));
    megcc_tensor tensor;
    (void)(list == 0 ? megcc_session_input(session, index, &tensor) : megcc_session_output(session, index, &tensor));
    const uint32_t width = megcc_dtype_bytes(tensor.dtype), how = r->row % 8;
    if (tensor.bytes > MAX_MEMORY)
        return;
    const size_t bytes = (size_t)tensor.bytes, given = how == 1 && bytes != 0 ? bytes - 1 : bytes;
    const size_t shift = how == 2 ? 1 : 0;
    uint8_t *block = how == 3 ? NULL : guard_block(NULL, bytes + shift);
    if (block != NULL) {
        uint32_t seed = r->operand | 1u;
        guard_fill(block, &tensor, 12 + r->row / 8 % 4, &seed);
    }
    uint8_t *at = block != NULL ? block + shift : NULL;
    const int32_t status = list == 0 ? megcc_session_bind_input(session, index, at, given)
                                     : megcc_session_bind_output(session, index, at, given);
    guard_require(status == MEGCC_OK || status == MEGCC_E_ORDER || status == MEGCC_E_ARGUMENT, "bind: another status");
    guard_require(status != MEGCC_OK || block == NULL || (given == bytes && (shift == 0 || width == 1)),
                  "memory is bound that is too small or not aligned");
    if (status != MEGCC_OK) {
        megcc_heap_free(block);
        return;
    }
    megcc_heap_free(bound[list][index]);
    bound[list][index] = block;
}

/* Runs, or makes `steps` steps of it. */
static void run(const record *r, uint32_t steps)
{
    const uint32_t before = states();
    int32_t status = MEGCC_MORE;
    megcc_error error;
    cancel_at = r->row % 16 == 1 ? r->operand % 8 : MEGCC_NONE;
    misuse = r->row % 16 == 2 ? 1 : r->row % 16 == 3 ? -1 : 0;
    guard_run();
    if (steps == 0)
        status = megcc_session_run(session, &error);
    for (; steps > 0 && status == MEGCC_MORE; steps--)
        status = megcc_session_step(session, &error);
    switch (status) {
    case MEGCC_OK:
        complete++;
        return;
    case MEGCC_MORE: case MEGCC_E_ORDER: case MEGCC_E_CANCELLED: case MEGCC_E_KERNEL: case MEGCC_E_MEMORY:
    case MEGCC_E_ALLOCATION: case MEGCC_E_THREADS:
        failed++;
        guard_require(states() == before, "a run that was not completed changed the states");
        return;
    default:
        guard_require(false, "a run ends with another status");
    }
}

static void read_outputs(void)
{
    for (uint32_t i = 0; i < megcc_model_outputs(model); i++) {
        megcc_tensor tensor;
        const uint8_t *data = megcc_session_output(session, i, &tensor);
        if (data != NULL && tensor.bytes <= MAX_MEMORY)
            megcc_heap_free(guard_block(data, (size_t)tensor.bytes));
    }
}

static void query(const record *r)
{
    megcc_tensor tensor;
    (void)megcc_session_operand(session, r->row, r->name, &tensor);
    guard_require(megcc_session_kernel(session, r->row) != NULL, "a kernel without a name");
    (void)megcc_session_input(session, r->operand, &tensor);
    (void)megcc_session_output(session, r->operand, &tensor);
    (void)megcc_model_input(model, r->operand, &tensor);
    (void)megcc_model_output(model, r->operand, &tensor);
}

static void call(const record *r)
{
    switch (r->op % CALLS) {
    case SHAPES: set_shapes(r); break;
    case FILL: fill(r); break;
    case POKE: poke(r); break;
    case BIND_INPUT: bind(r, 0); break;
    case BIND_OUTPUT: bind(r, 1); break;
    case RUN: run(r, 0); break;
    case STEP: run(r, 1 + r->operand % 4); break;
    case RESET: megcc_session_reset(session); break;
    case READ: read_outputs(); break;
    case QUERY: query(r); break;
    case STARVE: starve = r->operand % 8; break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const record plain = { RUN, 0, 0, 0 };
    record steps[MAX_RECORDS];
    const size_t count = records_of(data, bytes, steps);
    inputs++;
    starve = 0;
    state = steps->operand | 1u;
    model = &models[steps->name % (2 * COUNT)];
    bool open = open_session(steps);
    if (open)
        set_shapes(&(record){ SHAPES, 0, 0, steps->operand });
    for (uint32_t i = 0; open && i < megcc_model_inputs(model); i++)
        fill(&(record){ FILL, (uint8_t)i, (uint16_t)(11 + steps->op % 5), chance(&state) });
    for (size_t i = 1; open && i < count; i++) {
        if (steps[i].op % CALLS == OPEN)
            open = open_session(&steps[i]);
        else
            call(&steps[i]);
    }
    if (open) {
        run(&plain, 0);
        read_outputs();
    }
    close_session();
    return 0;
}

/* --- good containers ----------------------------------------------------------------------------------------------- */

static void describe_runs(void)
{
    printf("%u inputs: shapes taken %u times and refused %u, %u runs to the end, %u others\n", inputs, shapes_set,
           shapes_refused, complete, failed);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static megcc_module modules[COUNT];
    (void)argc;
    (void)argv;
    cpu = megcc_cpu();
    for (size_t i = 0; i < COUNT; i++) {
        megcc_file file;
        guard_require(megcc_file_open(&file, subjects[i].path, NULL) == MEGCC_OK, subjects[i].path);
        modules[i] = guard_module(subjects[i].module);
        for (size_t k = 0; k < 2; k++) {
            const megcc_model_options options = { k == 0 ? cpu : cpu & 0xFFFF0000u };
            const int32_t status = megcc_model_open(&models[2 * i + k], &modules[i], file.data, file.size, &options,
                                                    NULL);
            const megcc_model *m = &models[2 * i + k];
            guard_require(status == MEGCC_OK && megcc_model_inputs(m) <= MAX_PORTS
                              && megcc_model_outputs(m) <= MAX_PORTS && m->program.symbols <= MAX_SYMBOLS,
                          subjects[i].path);
        }
    }
    guard_begin();
    return atexit(describe_runs);
}
