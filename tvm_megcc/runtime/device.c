/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on a device: functions over one session, which TVM's RPC or a caller in the same process calls. Times are
 * taken here. The file is compiled with a generated folder into a shared library; device.py calls it.
 */
#define _POSIX_C_SOURCE 200112L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ffi_entry.h"
#include "megcc.h"

extern const megcc_module MEGCC_MODULE;

enum { ALIGNMENT = 64, MAX_COUNTERS = 8 };

static megcc_model model;
static megcc_session *session;
static double *seconds; /* of each instruction of the present run; NULL: they are not measured */
static double begin;    /* of the present instruction */

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

/* (container, int32 MEGCC_ISA_* or 0; result: int32 MEGCC_ISA_* of the program that was chosen, error text) -> status.
 * The container has to stay in memory. */
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

/* (megcc_shape of every input; results: megcc_shape of every output, error text) -> status */
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

/* Inputs, outputs and states are one after the other in a block of bytes, each at a multiple of ALIGNMENT. */
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
        /* A state cannot be bound, which is no error: the session keeps it. */
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

/* Reads the row counts of KV caches, or, with `write`, writes them back, so that the next run begins with as many rows.
 * input: the indices of the states that hold row counts. */
static void copy_counters(const int32_t *input, uint64_t count, int64_t *value, int write)
{
    for (uint64_t i = 0; i < count && i < MAX_COUNTERS; i++) {
        void *place = megcc_session_input(session, (uint32_t)input[i], NULL);
        if (place != NULL)
            memcpy(write ? place : (void *)(value + i), write ? (const void *)(value + i) : place, sizeof *value);
    }
}

/* (inputs, int32 {timed runs, watched runs, indices of states that hold row counts…}; results: outputs, double seconds
 * of each timed run, double seconds of each instruction of each watched run, error text) -> status. The first run is
 * neither timed nor watched. All runs begin with the same row counts. */
static int32_t run(const ffi_span *arguments)
{
    const uint32_t instructions = model.program.rows[MEGCC_INSTRUCTIONS].count;
    int32_t counts[2];
    int64_t rows[MAX_COUNTERS];
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
    copy_counters(counter, counters, rows, 0);
    if (status == MEGCC_OK)
        status = megcc_session_run(session, &error);
    for (int32_t i = 0; i < counts[0] && status == MEGCC_OK; i++) {
        copy_counters(counter, counters, rows, 1);
        const double start = now();
        status = megcc_session_run(session, &error);
        runs[i] = now() - start;
    }
    memset(calls, 0, (size_t)counts[1] * instructions * sizeof *calls);
    for (int32_t i = 0; i < counts[1] && status == MEGCC_OK; i++) {
        seconds = calls + (size_t)i * instructions;
        copy_counters(counter, counters, rows, 1);
        status = megcc_session_run(session, &error);
    }
    seconds = NULL;
    if (status > 0)
        return fail(&error, status, &arguments[5]);
    return status == MEGCC_OK ? save_outputs(&arguments[2]) : status;
}

/* (int32 {write, indices of states…, -1}, their values if `write` is not 0; results: their values, error text) ->
 * status. Writing first sets all states to zero. */
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

/* (double seconds; results: double durations) -> status. Each duration is that of a loop that only waits for `seconds`:
 * what is longer was a disturbance of the machine. */
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
