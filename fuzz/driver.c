/* SPDX-License-Identifier: Apache-2.0
 *
 * driver CONTAINER MUTANTS: opens every mutant of a container and runs those that open, in one process, so that
 * sanitizers see all of it. Made by fuzz/run.py, which also writes the file of mutants: for each of them the size, the
 * number of changes, and for each change position, length and bytes.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "internal.h"

#define MAX_MEMORY ((size_t)256 << 20)
#define MAX_CLOCKS (CLOCKS_PER_SEC / 20)    /* of a run */
#define MAX_MICROSECONDS 20000              /* of a kernel */
#define MAX_CHANGES 8
#define MAX_WIDTH 8

extern const megcc_module MEGCC_MODULE;

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static uint32_t current; /* the mutant at work */

static void died(void)
{
    fprintf(stderr, "mutant %u\n", (unsigned)current);
}

static uint32_t number(FILE *file)
{
    uint8_t b[4];
    if (fread(b, 1, 4, file) != 4)
        exit(3);
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint32_t chance(void)
{
    static uint32_t state = 1;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* Values that kernels might trip over: random bits, quiet values, NaN, infinities, the ends of integers. */
static void fill(uint8_t *data, size_t bytes, uint32_t kind)
{
    static const uint32_t words[] = { 0, 0x7FC00000u, 0x7F800000u, 0xFF800000u, 0x80000000u, 0x7FFFFFFFu, 0xFFFFFFFFu,
                                      0x3F800000u, 0x7F7FFFFFu };
    const uint32_t count = sizeof words / sizeof words[0];
    for (size_t i = 0; i < bytes; i++) {
        const uint32_t word = kind < count ? words[kind] : kind == count ? words[chance() % count] : chance();
        data[i] = (uint8_t)(word >> 8 * (i % 4));
    }
}

/* --- guarded kernels ------------------------------------------------------------------------------------------- */

/* A copy of the module in which every kernel is guarded(): it runs the kernel on blocks of the heap that are exactly as
 * large as its signature asks, so that a sanitizer sees what the verifier promised too little for. */
static megcc_module guarded_module;
static const megcc_kernel *kernel; /* of the instruction at work */
static const int32_t *table;       /* symbols and values of the session's shapes */

/* A copy of `bytes` bytes; nothing to copy if `from` is NULL. */
static void *block(const void *from, int64_t bytes)
{
    void *copy = megcc_heap_get((size_t)bytes, 64);
    if (copy == NULL)
        exit(6);
    if (from != NULL)
        memcpy(copy, from, (size_t)bytes);
    return copy;
}

/* Leaves a kernel that takes long: extents are mutated too, and loops over nothing can be endless. */
static sigjmp_buf too_long;

static void leave(int signal)
{
    (void)signal;
    siglongjmp(too_long, 1);
}

static const struct itimerval never, soon = { { 0, 0 }, { 0, MAX_MICROSECONDS } };

/* Called by the sanitizer before it reports. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    setitimer(ITIMER_VIRTUAL, &never, NULL);
}

static int32_t run_for_a_while(const megcc_call *call, int32_t begin, int32_t end, void *scratch)
{
    volatile int32_t status = MEGCC_KERNEL_FAILED;
    if (sigsetjmp(too_long, 1) == 0) {
        setitimer(ITIMER_VIRTUAL, &soon, NULL);
        status = kernel->run(call, begin, end, scratch);
    }
    setitimer(ITIMER_VIRTUAL, &never, NULL);
    return status;
}

static int32_t guarded(const megcc_call *call, int32_t begin, int32_t end, void *scratch)
{
    const int inputs = kernel->inputs, outputs = kernel->outputs;
    int64_t need[MEGCC_MAX_NEED];
    const void *in[MEGCC_MAX_NEED];
    void *out[MEGCC_MAX_NEED];
    for (int i = 0; i < inputs + outputs; i++)
        need[i] = kernel->operand[i].bytes;
    need[inputs + outputs] = kernel->shared;
    need[inputs + outputs + 1] = kernel->scratch;
    if (kernel->need != NULL && kernel->need(table, call->extent, need) != 0)
        exit(6);
    int32_t *extent = block(call->extent, kernel->extents * (int64_t)sizeof *extent);
    for (int i = 0; i < inputs; i++)
        in[i] = block(call->in[i], need[i]);
    for (int i = 0; i < outputs; i++)
        out[i] = block(call->out[i], need[inputs + i]);
    void *shared = block(NULL, need[inputs + outputs]), *own = block(NULL, need[inputs + outputs + 1]);

    const megcc_call copy = { in, out, extent, need[inputs + outputs] != 0 ? shared : NULL };
    const int32_t status = run_for_a_while(&copy, begin, end, scratch != NULL ? own : NULL);

    for (int i = 0; i < outputs; i++) {
        memcpy(call->out[i], out[i], (size_t)need[inputs + i]);
        megcc_heap_free(out[i]);
    }
    for (int i = 0; i < inputs; i++)
        megcc_heap_free((void *)(uintptr_t)in[i]);
    megcc_heap_free(shared);
    megcc_heap_free(own);
    megcc_heap_free(extent);
    return status;
}

static void guard(const megcc_module *module)
{
    megcc_code *codes = calloc(module->codes + 1, sizeof *codes);
    for (uint32_t i = 0; i < module->codes; i++) {
        codes[i] = module->code[i];
        megcc_kernel *kernels = calloc(codes[i].kernels, sizeof *kernels);
        for (uint32_t k = 0; k < codes[i].kernels; k++) {
            kernels[k] = module->code[i].kernel[k];
            kernels[k].run = guarded;
        }
        codes[i].kernel = kernels;
    }
    guarded_module = *module;
    guarded_module.code = codes;
}

/* Says which kernel comes next, and stops a run that takes long. */
static int32_t observe(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    const clock_t begin = *(const clock_t *)user;
    const megcc_program *p = &session->model->program;
    (void)after;
    table = is_dynamic(p) ? session->extents - p->symbols - p->values : NULL;
    if (instruction_at(p, instruction)->opcode == OP_CALL) {
        const call_slot *slot = row_at(session->bucket.calls, instruction, sizeof *slot);
        kernel = &MEGCC_MODULE.code[p->code - guarded_module.code].kernel[slot->kernel];
    }
    return clock() - begin > MAX_CLOCKS;
}

/* --- running --------------------------------------------------------------------------------------------------- */

/* Shapes that fit the model: random symbols, and what its shape function makes of them. */
static int set_shapes(const megcc_model *model, megcc_session *session)
{
    const megcc_program *p = &model->program;
    megcc_shape shapes[MEGCC_MAX_IO];
    int32_t *table = calloc((size_t)p->symbols + p->values + 1, sizeof *table);
    for (uint32_t i = 0; i < p->symbols; i++)
        table[i] = (int32_t)(chance() % 20);
    int failed = is_dynamic(p) && p->code->shapes(table, table + p->symbols) != 0;
    for (uint32_t i = 0; !failed && i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_row *row = tensor_at(p, number_at(p->rows[MEGCC_INPUTS], i));
        shapes[i].rank = row->rank;
        for (uint32_t axis = 0; axis < row->rank; axis++) {
            const int32_t extent = extents_of(p)[row->dims + axis];
            shapes[i].dims[axis] = extent >= 0 ? extent : table[-1 - (int64_t)extent];
        }
    }
    if (!failed)
        failed = megcc_session_set_shapes(session, shapes, p->rows[MEGCC_INPUTS].count, NULL) != MEGCC_OK;
    free(table);
    return !failed;
}

static void *limited(void *user, void *old, size_t old_bytes, size_t bytes)
{
    (void)user;
    (void)old_bytes;
    megcc_heap_free(old);
    return bytes == 0 || bytes > MAX_MEMORY ? NULL : megcc_heap_get(bytes, 64);
}

/* Returns whether the model ran to its end. */
static int run(const megcc_model *model)
{
    static clock_t begin;
    const megcc_session_options options = { { NULL, NULL, 0 }, { observe, &begin }, { limited, NULL } };
    megcc_session *session;
    size_t alignment;
    int complete = 0;
    const size_t size = megcc_model_memory(model, &alignment);
    if (size > MAX_MEMORY)
        return 0;
    uint8_t *memory = megcc_heap_get(size, alignment);
    memset(memory, (int)(chance() & 0xFF), size);
    if (megcc_session_open(&session, model, memory, size, &options, NULL) == MEGCC_OK) {
        for (int round = 0; round < 2 && set_shapes(model, session); round++) {
            for (uint32_t i = 0; i < megcc_model_inputs(model); i++) {
                megcc_tensor tensor;
                void *data = megcc_session_input(session, i, &tensor);
                if (data != NULL)
                    fill(data, (size_t)tensor.bytes, chance() % 12);
            }
            begin = clock();
            complete = megcc_session_run(session, NULL) == MEGCC_OK;
            for (uint32_t i = 0; complete && i < megcc_model_outputs(model); i++) {
                megcc_tensor tensor;
                const uint8_t *data = megcc_session_output(session, i, &tensor);
                if (data != NULL && tensor.bytes != 0) {
                    const volatile uint8_t first = data[0], last = data[tensor.bytes - 1];
                    (void)first;
                    (void)last;
                }
            }
        }
        megcc_session_close(session);
    }
    megcc_heap_free(memory);
    return complete;
}

int main(int argc, char **argv)
{
    megcc_file file;
    uint32_t statuses[256] = { 0 }, completed = 0, known_cpu = 0;
    if (argc != 3 || megcc_file_open(&file, argv[1], NULL) != MEGCC_OK)
        return 2;
    FILE *stream = fopen(argv[2], "rb");
    if (stream == NULL)
        return 2;
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(died);
    uint8_t *copy = megcc_heap_get(file.size, 64);
    memcpy(copy, file.data, file.size);
    known_cpu = megcc_cpu();
    guard(&MEGCC_MODULE);
    signal(SIGVTALRM, leave);

    const uint32_t count = number(stream);
    for (current = 0; current < count; current++) {
        uint32_t size = number(stream), at[MAX_CHANGES], width[MAX_CHANGES];
        const uint32_t changes = number(stream);
        uint8_t *data = copy;
        if (changes > MAX_CHANGES)
            return 3;
        for (uint32_t i = 0; i < changes; i++) {
            at[i] = number(stream);
            width[i] = number(stream);
            if (width[i] > MAX_WIDTH || fread(copy + at[i], 1, width[i], stream) != width[i])
                return 3;
        }
        if (size != file.size) { /* a block that ends where the container does */
            data = megcc_heap_get(size, 64);
            memcpy(data, copy, size);
        }
        megcc_model model;
        megcc_error error;
        /* Not all of them on the best CPU, so that all programs run. */
        const megcc_model_options options = { chance() % 4 == 0 ? known_cpu & 0xFFFF0000u : known_cpu };
        const int32_t status = megcc_model_open(&model, &guarded_module, data, size, &options, &error);
        statuses[status & 0xFF]++;
        if (status == MEGCC_OK)
            completed += (uint32_t)run(&model);
        else {
            char text[200];
            megcc_error_text(&error, text, sizeof text);
            if (error.where == NULL || error.status != status)
                return 4;
        }
        if (data != copy)
            megcc_heap_free(data);
        for (uint32_t i = 0; i < changes; i++)
            memcpy(copy + at[i], (const uint8_t *)file.data + at[i], width[i]);
        if (current == 0 && status != MEGCC_OK)
            return 5; /* the container itself */
    }
    printf("%u mutants: %u opened, %u ran to the end; refused:", (unsigned)count - 1, (unsigned)statuses[0],
           (unsigned)completed);
    for (int i = 1; i < 256; i++)
        if (statuses[i] != 0)
            printf(" 0x%02x %u", (unsigned)i, (unsigned)statuses[i]);
    printf("\n");
    fclose(stream);
    megcc_heap_free(copy);
    megcc_file_close(&file);
    return 0;
}
