/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sanitizer/asan_interface.h>
#include <sys/time.h>

#include "records.h"

#define TICK 10000                  /* microseconds of this process's time; a kernel may take two, a run six */

static const megcc_kernel *kernel;  /* of the instruction at work */
static const int32_t *table;        /* symbols and values of the session's shapes */

/* Ticks since the run and the kernel at work began; negative: none is at work. */
static volatile sig_atomic_t run_ticks, kernel_ticks = -1;
static sigjmp_buf too_long;
static int64_t blocks;              /* that the allocator gave */

void guard_require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

/* --- time ---------------------------------------------------------------------------------------------------------- */

/* Leaves a kernel that takes long: extents are mutated too, and loops over nothing can be endless. */
static void tick(int signal)
{
    (void)signal;
    run_ticks = run_ticks + 1;
    if (kernel_ticks >= 0 && ++kernel_ticks > 2) {
        kernel_ticks = -1;
        siglongjmp(too_long, 1);
    }
}

/* Called by the sanitizer before it reports: the report is not left. */
void __asan_on_error(void);
void __asan_on_error(void)
{
    kernel_ticks = -1;
}

void guard_begin(void)
{
    const struct itimerval often = { { 0, TICK }, { 0, TICK } };
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = tick;
    action.sa_flags = SA_NODEFER | SA_RESTART; /* so that leaving the handler needs no mask to be restored */
    sigaction(SIGVTALRM, &action, NULL);
    setitimer(ITIMER_VIRTUAL, &often, NULL);
}

void guard_run(void)
{
    run_ticks = 0;
}

static int32_t run_for_a_while(const megcc_call *call, int32_t begin, int32_t end, void *scratch)
{
    volatile int32_t status = MEGCC_KERNEL_FAILED;
    if (sigsetjmp(too_long, 0) == 0) {
        kernel_ticks = 0;
        status = kernel->run(call, begin, end, scratch);
    }
    kernel_ticks = -1;
    return status;
}

/* --- kernels ------------------------------------------------------------------------------------------------------- */

/* megcc_heap_get() asks for some bytes more than it needs, so that it can align the block; no one may touch them. */
static void *exact_block(size_t bytes, size_t alignment)
{
    uint8_t *block = megcc_heap_get(bytes, alignment);
    if (block != NULL) {
        const uint8_t *end = ((uint8_t **)(void *)block)[-1] + bytes + alignment + sizeof(void *);
        ASAN_POISON_MEMORY_REGION(block + bytes, (size_t)(end - (block + bytes)));
    }
    return block;
}

void *guard_block(const void *from, size_t bytes)
{
    void *copy = exact_block(bytes, 64);
    guard_require(copy != NULL, "no memory for a block");
    if (from != NULL)
        memcpy(copy, from, bytes);
    return copy;
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
    if (kernel->need != NULL)
        guard_require(kernel->need(table, call->extent, need) == 0, "a kernel is called that refuses its extents");
    int32_t *extent = guard_block(call->extent, kernel->extents * sizeof *extent);
    for (int i = 0; i < inputs; i++)
        in[i] = guard_block(call->in[i], (size_t)need[i]);
    for (int i = 0; i < outputs; i++)
        out[i] = guard_block(call->out[i], (size_t)need[inputs + i]);
    const size_t shared_bytes = (size_t)need[inputs + outputs], own_bytes = (size_t)need[inputs + outputs + 1];
    void *shared = shared_bytes != 0 ? guard_block(call->shared, shared_bytes) : NULL;
    void *own = scratch != NULL ? guard_block(NULL, own_bytes) : NULL;

    const megcc_call copy = { in, out, extent, shared };
    const int32_t status = run_for_a_while(&copy, begin, end, own);

    for (int i = 0; i < outputs; i++) {
        memcpy(call->out[i], out[i], (size_t)need[inputs + i]);
        megcc_heap_free(out[i]);
    }
    for (int i = 0; i < inputs; i++)
        megcc_heap_free((void *)(uintptr_t)in[i]);
    if (shared != NULL)
        memcpy(call->shared, shared, shared_bytes);
    megcc_heap_free(shared);
    megcc_heap_free(own);
    megcc_heap_free(extent);
    return status;
}

/* Behind the guarded kernels of a code stand the real ones. */
megcc_module guard_module(const megcc_module *module)
{
    megcc_module copy = *module;
    megcc_code *codes = calloc(module->codes + 1, sizeof *codes);
    for (uint32_t i = 0; i < module->codes; i++) {
        const uint32_t count = module->code[i].kernels;
        megcc_kernel *kernels = calloc(2 * (size_t)count, sizeof *kernels);
        for (uint32_t k = 0; k < count; k++) {
            kernels[k] = kernels[count + k] = module->code[i].kernel[k];
            kernels[k].run = guarded;
        }
        codes[i] = module->code[i];
        codes[i].kernel = kernels;
    }
    copy.code = codes;
    return copy;
}

int32_t guard_instruction(megcc_session *session, uint32_t instruction)
{
    const megcc_program *p = &session->model->program;
    table = is_dynamic(p) ? session->extents - p->symbols - p->values : NULL;
    if (instruction_at(p, instruction)->opcode == OP_CALL) {
        const call_slot *slot = row_at(session->bucket.calls, instruction, sizeof *slot);
        kernel = &p->code->kernel[p->code->kernels + slot->kernel];
    }
    return run_ticks > 6;
}

/* --- memory and data ------------------------------------------------------------------------------------------------ */

void *guard_resize(void *user, void *old, size_t old_bytes, size_t bytes)
{
    uint32_t *left = user;
    (void)old_bytes;
    if (old != NULL) {
        guard_require(bytes == 0, "a block is resized");
        megcc_heap_free(old);
        blocks--;
    }
    if (bytes == 0 || bytes > MAX_MEMORY || (*left != 0 && --*left == 0))
        return NULL;
    blocks++;
    return exact_block(bytes, 4096);
}

void guard_nothing_allocated(void)
{
    guard_require(blocks == 0, "memory of the allocator was not given back");
}

void guard_fill(uint8_t *data, const megcc_tensor *tensor, uint32_t kind, uint32_t *state)
{
    static const uint32_t words[] = { 0, 0x7FC00000u, 0x7F800000u, 0xFF800000u, 0x80000000u, 0x7FFFFFFFu, 0xFFFFFFFFu,
                                      0x3F800000u, 0x7F7FFFFFu };
    const uint32_t count = sizeof words / sizeof words[0], width = megcc_dtype_bytes(tensor->dtype);
    kind %= FILL_KINDS;
    for (size_t i = 0; i < tensor->bytes; i++) {
        const uint32_t word = kind < count ? words[kind] : kind == count ? words[chance(state) % count] : chance(state);
        data[i] = (uint8_t)(word >> 8 * (i % 4));
    }
    /* Small numbers, now and then negative: what indices, lengths and coordinates are like. */
    for (size_t i = 0; kind > count + 1 && i + width <= tensor->bytes; i += width) {
        const uint32_t most = 1u << (kind - count - 1);
        const int32_t number = (int32_t)(chance(state) % most) - (chance(state) % 4 == 0 ? (int32_t)most / 2 : 0);
        const int64_t wide = number;
        const float real = (float)number * 0.75f;
        if (tensor->dtype == MEGCC_FLOAT32)
            memcpy(data + i, &real, sizeof real);
        else
            memcpy(data + i, &wide, width);
    }
}

megcc_shape *guard_shapes(const megcc_program *p, const int32_t *symbols)
{
    megcc_shape *shapes = guard_block(NULL, p->rows[MEGCC_INPUTS].count * sizeof *shapes);
    int32_t *values = guard_block(NULL, p->values * sizeof *values);
    const char *why;
    bool within = p->symbols != 0;
    for (uint32_t i = 0; i < p->symbols; i++) {
        const megcc_bound *b = &p->code->bound[i];
        within &= b->lo <= symbols[i] && (b->hi < 0 || symbols[i] <= b->hi);
    }
    memset(values, 0, p->values * sizeof *values);
    if (within)
        (void)p->code->shapes(symbols, values, &why);
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_row *row = tensor_at(p, number_at(p->rows[MEGCC_INPUTS], i));
        shapes[i].rank = row->rank;
        for (uint32_t axis = 0; axis < row->rank; axis++) {
            const int64_t extent = extents_of(p)[row->dims + axis], entry = -1 - extent;
            shapes[i].dims[axis] = extent >= 0 ? (int32_t)extent
                                   : entry < p->symbols ? symbols[entry] : values[entry - p->symbols];
        }
    }
    megcc_heap_free(values);
    return shapes;
}
