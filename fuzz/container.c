/* SPDX-License-Identifier: Apache-2.0
 *
 * Target: a damaged container is opened, and run if it opens. An input is a header and edits of a good container, whose
 * fields are found by name in a table that fuzz/fields.py writes: all rows of a name are changed in one edit, counts
 * with what they count, offsets so that they lead to where another one leads.
 */
#include <stdio.h>
#include <stdlib.h>

#include "guard.h"
#include "records.h"

extern const megcc_module MODULE;

typedef struct place {
    uint32_t at, width;
} place;

typedef struct field {
    uint32_t is_offset, count;
    const place *rows;
} field;

enum { SET, ADD, END, FLIP, COPY, SWAP, SCALE, SHARE, BYTE, CUT, EDITS };
enum { ONE, ALL, REST, ONE_TOO, SCOPES };

static megcc_module module;
static uint8_t *base, *edited;
static size_t base_size, size;      /* of the container, and of the edited one */
static field *fields;
static uint32_t names;
static unsigned runs, opened, complete, refused[256];

/* --- edits --------------------------------------------------------------------------------------------------------- */

static uint64_t get(const place *p)
{
    uint64_t value = 0;
    for (uint32_t i = 0; i < p->width; i++)
        value |= (uint64_t)edited[p->at + i] << 8 * i;
    return value;
}

static void put(const place *p, uint64_t value)
{
    for (uint32_t i = 0; i < p->width; i++)
        edited[p->at + i] = (uint8_t)(value >> 8 * i);
}

/* The value that makes the field at `p` mean the same as `other`: offsets count from their own position. */
static uint64_t as_at(const place *p, const field *f, const place *other)
{
    return get(other) + (f->is_offset ? (uint64_t)other->at - p->at : 0);
}

static uint64_t end(uint32_t which, uint32_t width)
{
    const uint64_t top = width < 8 ? ((uint64_t)1 << 8 * width) - 1 : UINT64_MAX;
    const uint64_t ends[] = { 0, 1, 2, 3, 7, 8, 64, 4096, 65535, 65536, base_size, base_size - 1, top, top - 1,
                              top / 2, top / 2 + 1 };
    return ends[which % (sizeof ends / sizeof ends[0])];
}

static void edit_row(const record *r, const field *f, uint32_t row)
{
    const place *p = &f->rows[row], *other = &f->rows[r->operand % f->count];
    const field *elsewhere = &fields[(r->operand & 0xFF) % names];
    const uint64_t value = get(p);
    switch (r->op % EDITS) {
    case SET: put(p, r->operand); break;
    case ADD: put(p, value + (uint64_t)(int64_t)(int32_t)r->operand); break;
    case END: put(p, end(r->operand, p->width)); break;
    case FLIP: put(p, value ^ (uint64_t)1 << r->operand % (8 * p->width)); break;
    case COPY: put(p, as_at(p, f, other)); break;
    case SWAP: {
        const uint64_t mine = as_at(other, f, p);
        put(p, as_at(p, f, other));
        put(other, mine);
        break;
    }
    case SCALE:
        put(p, (r->operand & 1) != 0 ? value << (r->operand >> 1) % 8 : value >> (r->operand >> 1) % 8);
        break;
    case SHARE:
        if (elsewhere->count != 0)
            put(p, as_at(p, f, &elsewhere->rows[(r->operand >> 8) % elsewhere->count]));
        break;
    case BYTE: edited[r->operand % base_size] = (uint8_t)r->row; break;
    default: break;
    }
}

static void edit(const record *r)
{
    const field *f = &fields[r->name % names];
    const uint32_t first = r->row % f->count, scope = r->op / EDITS % SCOPES;
    if (r->op % EDITS == CUT)
        size = r->operand % (base_size + 1);
    else
        for (uint32_t i = scope == ALL ? 0 : first; i < (scope == ALL || scope == REST ? f->count : first + 1); i++)
            edit_row(r, f, i);
}

/* --- running ------------------------------------------------------------------------------------------------------- */

static int32_t observe(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    (void)user;
    return after ? 0 : guard_instruction(session, instruction);
}

/* Shapes that fit each other, for symbols made up. */
static bool set_shapes(const megcc_model *model, megcc_session *session, uint32_t *state)
{
    const megcc_program *p = &model->program;
    int32_t *symbols = guard_block(NULL, p->symbols * sizeof *symbols);
    for (uint32_t i = 0; i < p->symbols; i++)
        symbols[i] = (int32_t)(chance(state) % 8);
    megcc_shape *shapes = guard_shapes(p, symbols);
    const int32_t status = megcc_session_set_shapes(session, shapes, p->rows[MEGCC_INPUTS].count, NULL);
    megcc_heap_free(shapes);
    megcc_heap_free(symbols);
    return status == MEGCC_OK;
}

static void read_outputs(const megcc_model *model, megcc_session *session)
{
    for (uint32_t i = 0; i < megcc_model_outputs(model); i++) {
        megcc_tensor tensor;
        const uint8_t *data = megcc_session_output(session, i, &tensor);
        if (data != NULL)
            megcc_heap_free(guard_block(data, (size_t)tensor.bytes));
    }
}

static void free_memory(const megcc_session_options *options, uint8_t *memory)
{
    for (uint32_t i = 0; i < MEGCC_MAX_REGIONS - 1; i++)
        megcc_heap_free(options->region[i].memory);
    megcc_heap_free(memory);
}

/* Returns whether the model ran to its end. */
static bool run(const megcc_model *model, uint32_t *state)
{
    static uint32_t never;
    megcc_session_options options = { { NULL, NULL, 0 }, { observe, NULL }, { guard_resize, &never }, 0, 0, { { NULL, 0 } } };
    megcc_session *session;
    size_t alignment;
    bool ran = false;
    const size_t needed = megcc_model_memory(model, &alignment);
    size_t most = needed;
    for (uint32_t i = 0; i < MEGCC_MAX_REGIONS - 1; i++) {
        options.region[i].bytes = megcc_model_region(model, i);
        most = options.region[i].bytes > most ? options.region[i].bytes : most;
    }
    if (most > MAX_MEMORY)
        return false;
    for (uint32_t i = 0; i < MEGCC_MAX_REGIONS - 1; i++)
        options.region[i].memory = options.region[i].bytes != 0 ? megcc_heap_get(options.region[i].bytes, alignment) : NULL;
    uint8_t *memory = megcc_heap_get(needed, alignment);
    guard_require(memory != NULL, "no memory for a session");
    memset(memory, (int)(chance(state) & 0xFF), needed);
    const int32_t status = megcc_session_open(&session, model, memory, needed, &options, NULL);
    if (status == MEGCC_E_SHAPE && model->program.unbacked_symbols != 0) { /* it has set its shapes itself, and they are none */
        free_memory(&options, memory);
        return false;
    }
    guard_require(status == MEGCC_OK, "memory that is as large as asked for is refused");
    guard_run();
    for (int round = 0; round < 2 && set_shapes(model, session, state); round++) {
        for (uint32_t i = 0; i < megcc_model_inputs(model); i++) {
            megcc_tensor tensor;
            void *data = megcc_session_input(session, i, &tensor);
            if (data != NULL)
                guard_fill(data, &tensor, chance(state), state);
        }
        ran = megcc_session_run(session, NULL) == MEGCC_OK;
        if (ran)
            read_outputs(model, session);
    }
    megcc_session_close(session);
    guard_nothing_allocated();
    free_memory(&options, memory);
    return ran;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint32_t cpu;
    record steps[MAX_RECORDS];
    const size_t count = records_of(data, bytes, steps);
    uint32_t state = 0x9E3779B9u ^ steps->operand ^ steps->row;
    state |= state == 0;
    memcpy(edited, base, base_size);
    size = base_size;
    for (size_t i = 1; i < count; i++)
        edit(&steps[i]);

    uint8_t *container = guard_block(edited, size); /* ends where the container does */
    megcc_model model;
    megcc_error error;
    if (cpu == 0)
        cpu = megcc_cpu();
    /* Not all of them on the best CPU, so that all programs run. */
    const megcc_model_options options = { steps->op % 4 == 1 ? cpu & 0xFFFF0000u : cpu };
    const int32_t status = megcc_model_open(&model, &module, container, size, &options, &error);
    runs++;
    refused[status & 0xFF]++;
    if (status == MEGCC_OK) {
        opened++;
        (void)megcc_model_check(&model, NULL);
        complete += run(&model, &state);
    } else {
        char text[200];
        megcc_error_text(&error, text, sizeof text);
        guard_require(error.where != NULL && error.status == status, "a refusal without a place");
    }
    guard_require(count > 1 || status == MEGCC_OK || (status == MEGCC_E_CODE && options.cpu != cpu),
                  "the container itself is refused");
    megcc_heap_free(container);
    return 0;
}

/* --- the good container -------------------------------------------------------------------------------------------- */

static void *read_file(const char *path, size_t *bytes)
{
    megcc_file file;
    guard_require(megcc_file_open(&file, path, NULL) == MEGCC_OK, path);
    void *copy = guard_block(file.data, file.size);
    *bytes = file.size;
    megcc_file_close(&file);
    return copy;
}

/* A line about all that was run. */
static void describe_runs(void)
{
    printf("%u containers: %u opened, %u ran to the end; refused:", runs, opened, complete);
    for (int i = 1; i < 256; i++)
        if (refused[i] != 0)
            printf(" 0x%02x %u", (unsigned)i, refused[i]);
    printf("\n");
}

/* For each name: whether it is an offset, the number of rows, and their positions and widths. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    size_t bytes;
    uint32_t *table = read_file(FIELDS, &bytes), *next = table + 1;
    (void)argc;
    (void)argv;
    base = read_file(CONTAINER, &base_size);
    edited = guard_block(NULL, base_size);
    names = table[0];
    fields = calloc(names, sizeof *fields);
    for (uint32_t i = 0; i < names; i++) {
        fields[i].is_offset = next[0];
        fields[i].count = next[1];
        fields[i].rows = (const void *)(next + 2);
        next += 2 + 2 * next[1];
    }
    guard_require((size_t)(next - table) * 4 == bytes, "the table of fields is damaged");
    module = guard_module(&MODULE);
    guard_begin();
    return atexit(describe_runs);
}
