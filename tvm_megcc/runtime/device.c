/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on a device: one session, after functions that TVM's RPC or a caller in the same process can call, with all
 * times taken here. Compiled with a generated folder into a shared library.
 */
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ffi_entry.h"
#include "megcc.h"

extern const megcc_module MEGCC_MODULE;

enum { ALIGNMENT = 64, MOST_COUNTERS = 8 };

static megcc_model model;
static megcc_session *session;
static double *seconds, begin; /* of each instruction of the present run; NULL: not taken */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t observe(void *user, megcc_session *own, uint32_t instruction, int32_t after)
{
    (void)user;
    (void)own;
    if (seconds != NULL) {
        if (after)
            seconds[instruction] += now() - begin;
        else
            begin = now();
    }
    return 0;
}

static int32_t fail(megcc_error *error, int32_t status, const ffi_span *text)
{
    error->status = status;
    megcc_error_text(error, (char *)text->data, (size_t)text->bytes);
    return status;
}

/* (container, int32 CPU or 0; int32 CPU of the program that was taken, text) -> status. The container has to stay. */
static int32_t open_session(const ffi_span *arguments)
{
    const ffi_span *container = &arguments[0], *text = &arguments[3];
    megcc_model_options model_options;
    megcc_session_options options;
    megcc_error error;
    int32_t cpu;
    memset(&model_options, 0, sizeof model_options);
    memset(&options, 0, sizeof options);
    memset(&error, 0, sizeof error);
    memcpy(&cpu, arguments[1].data, sizeof cpu);
    model_options.cpu = (uint32_t)cpu;
    int32_t status = megcc_model_open(&model, &MEGCC_MODULE, container->data, (size_t)container->bytes,
                                      &model_options, &error);
    if (status != MEGCC_OK)
        return fail(&error, status, text);
    memcpy(arguments[2].data, &model.program.isa, sizeof model.program.isa);
    options.observer.observe = observe;
    options.allocator = megcc_heap_allocator(&model);
    const int32_t workers = (int32_t)model.program.workers;
    if (workers > 1) {
        megcc_pool *pool;
        const size_t bytes = megcc_pool_bytes(workers);
        status = megcc_pool_open(&pool, malloc(bytes), bytes, workers);
        if (status != MEGCC_OK)
            return fail(&error, status, text);
        options.parallel = megcc_pool_parallel(pool);
    }
    size_t alignment;
    const size_t bytes = megcc_model_memory(&model, &alignment);
    status = megcc_session_open(&session, &model, megcc_heap_get(bytes, alignment), bytes, &options, &error);
    return status == MEGCC_OK ? status : fail(&error, status, text);
}

/* (megcc_shape of every input, room for those of the outputs, text) -> status */
static int32_t set_shapes(const ffi_span *arguments)
{
    const uint32_t inputs = megcc_model_inputs(&model), outputs = megcc_model_outputs(&model);
    megcc_error error;
    megcc_tensor tensor;
    megcc_shape shape;
    memset(&error, 0, sizeof error);
    if (arguments[0].bytes < inputs * sizeof shape || arguments[1].bytes < outputs * sizeof shape)
        return FFI_BAD_ARGUMENTS;
    const megcc_shape *shapes = (const megcc_shape *)(const void *)arguments[0].data;
    const int32_t status = megcc_session_set_shapes(session, shapes, inputs, &error);
    if (status != MEGCC_OK)
        return fail(&error, status, &arguments[2]);
    for (uint32_t i = 0; i < outputs; i++) {
        megcc_session_output(session, i, &tensor);
        shape.rank = tensor.rank;
        memcpy(shape.dims, tensor.dims, sizeof tensor.dims);
        memcpy(arguments[1].data + i * sizeof shape, &shape, sizeof shape);
    }
    return MEGCC_OK;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int32_t bind_inputs(const ffi_span *inputs)
{
    uint64_t position = 0;
    for (uint32_t i = 0; i < megcc_model_inputs(&model); i++) {
        megcc_tensor tensor;
        megcc_session_input(session, i, &tensor);
        if (position + tensor.bytes > inputs->bytes)
            return FFI_BAD_ARGUMENTS;
        /* A state refuses: the session keeps it. */
        (void)megcc_session_bind_input(session, i, inputs->data + position, (size_t)tensor.bytes);
        position += aligned(tensor.bytes);
    }
    return MEGCC_OK;
}

static int32_t save_outputs(const ffi_span *outputs)
{
    uint64_t position = 0;
    for (uint32_t i = 0; i < megcc_model_outputs(&model); i++) {
        megcc_tensor tensor;
        const void *data = megcc_session_output(session, i, &tensor);
        if (position + tensor.bytes > outputs->bytes)
            return FFI_BAD_ARGUMENTS;
        memcpy(outputs->data + position, data, (size_t)tensor.bytes);
        position += aligned(tensor.bytes);
    }
    return MEGCC_OK;
}

/* Reads what the states count that lie at these inputs, or writes it back: runs that follow find as many rows. */
static void counted(const int32_t *input, uint64_t count, int64_t *value, int write)
{
    for (uint64_t i = 0; i < count && i < MOST_COUNTERS; i++) {
        void *place = megcc_session_input(session, (uint32_t)input[i], NULL);
        if (place != NULL)
            memcpy(write ? place : (void *)(value + i), write ? (const void *)(value + i) : place, sizeof *value);
    }
}

/* (inputs, int32 {runs, further runs, inputs that are states which count rows…}; outputs, double seconds of each run,
 * double seconds of each instruction of each further run, text) -> status. Inputs and outputs lie one after the other,
 * each at a multiple of 64 bytes. One run that is not timed comes first; all begin with as many rows as it did. */
static int32_t run(const ffi_span *arguments)
{
    const uint32_t instructions = model.program.rows[MEGCC_INSTRUCTIONS].count;
    int32_t counts[2];
    int64_t rows[MOST_COUNTERS];
    megcc_error error;
    memset(&error, 0, sizeof error);
    memcpy(counts, arguments[1].data, sizeof counts);
    const int32_t *counter = (const int32_t *)(const void *)arguments[1].data + 2;
    const uint64_t counters = arguments[1].bytes / sizeof *counter - 2;
    double *runs = (double *)(void *)arguments[3].data, *calls = (double *)(void *)arguments[4].data;
    if (counts[0] < 0 || counts[1] < 0 || arguments[3].bytes < (uint64_t)counts[0] * sizeof *runs
        || arguments[4].bytes < (uint64_t)counts[1] * instructions * sizeof *calls)
        return FFI_BAD_ARGUMENTS;
    int32_t status = bind_inputs(&arguments[0]);
    seconds = NULL;
    counted(counter, counters, rows, 0);
    if (status == MEGCC_OK)
        status = megcc_session_run(session, &error);
    for (int32_t i = 0; i < counts[0] && status == MEGCC_OK; i++) {
        counted(counter, counters, rows, 1);
        const double start = now();
        status = megcc_session_run(session, &error);
        runs[i] = now() - start;
    }
    memset(calls, 0, (size_t)counts[1] * instructions * sizeof *calls);
    for (int32_t i = 0; i < counts[1] && status == MEGCC_OK; i++) {
        seconds = calls + (size_t)i * instructions;
        counted(counter, counters, rows, 1);
        status = megcc_session_run(session, &error);
    }
    seconds = NULL;
    if (status > 0)
        return fail(&error, status, &arguments[5]);
    return status == MEGCC_OK ? save_outputs(&arguments[2]) : status;
}

/* (int32 {write, inputs that are states…; any further ones -1}, their values; room for them, text) -> status. Writing
 * first sets all states to zero. */
static int32_t states(const ffi_span *arguments)
{
    const int32_t *index = (const int32_t *)(const void *)arguments[0].data;
    const uint64_t count = arguments[0].bytes / sizeof *index;
    uint64_t position = 0;
    if (index[0])
        megcc_session_reset(session);
    for (uint64_t i = 1; i < count && index[i] >= 0; i++) {
        megcc_tensor tensor;
        void *place = megcc_session_input(session, (uint32_t)index[i], &tensor);
        if (place == NULL || position + tensor.bytes > arguments[1].bytes || position + tensor.bytes > arguments[2].bytes)
            return FFI_BAD_ARGUMENTS;
        if (index[0])
            memcpy(place, arguments[1].data + position, (size_t)tensor.bytes);
        memcpy(arguments[2].data + position, place, (size_t)tensor.bytes);
        position += aligned(tensor.bytes);
    }
    return MEGCC_OK;
}

/* (double seconds; measured times) -> status. Waits repeatedly for that time and does nothing else: the machine took what
 * a measured time has above it. */
static int32_t idle(const ffi_span *arguments)
{
    double least, *waits = (double *)(void *)arguments[1].data;
    memcpy(&least, arguments[0].data, sizeof least);
    for (uint64_t i = 0; i < arguments[1].bytes / sizeof *waits; i++) {
        const double start = now();
        do
            waits[i] = now() - start;
        while (waits[i] < least);
    }
    return MEGCC_OK;
}

FFI_FUNCTION(megcc_device_open, open_session, 4)
FFI_FUNCTION(megcc_device_states, states, 4)
FFI_FUNCTION(megcc_device_shapes, set_shapes, 3)
FFI_FUNCTION(megcc_device_run, run, 6)
FFI_FUNCTION(megcc_device_idle, idle, 3)
