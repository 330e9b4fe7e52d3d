/* SPDX-License-Identifier: Apache-2.0
 *
 * A model and a session on the heap, behind functions that are easy to call from Python: the sizes of the API's
 * structs stay on this side. Compiled into the shared library of a build.
 */
#define _POSIX_C_SOURCE 200112L /* clock_gettime */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "megcc.h"

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

extern const megcc_module MEGCC_MODULE;
#ifdef MEGCC_DATA
extern const uint64_t MEGCC_DATA[];
#endif

typedef void (*observer_fn)(uint32_t instruction, const void *data, uint64_t bytes);

typedef struct handle {
    megcc_model model;
    megcc_session *session;
    void *memory;
    megcc_pool *pool;
    void *pool_memory;
    /* What observe() does during the present run; at most one of them is set. */
    double *seconds;
    observer_fn observer;
    const uint32_t *operand;    /* of each instruction: which operand the observer gets */
    double begin;
} handle;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t observe(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    handle *h = (handle *)user;
    if (h->seconds) {
        if (after)
            h->seconds[instruction] = now() - h->begin;
        else
            h->begin = now();
    } else if (h->observer && after) {
        megcc_tensor tensor;
        const void *data = megcc_session_operand(session, instruction, h->operand[instruction], &tensor);
        h->observer(instruction, data, tensor.bytes);
    }
    return 0;
}

EXPORT void megcc_py_close(handle *h)
{
    if (h->session)
        megcc_session_close(h->session);
    if (h->pool)
        megcc_pool_close(h->pool);
    free(h->pool_memory);
    megcc_heap_free(h->memory);
    free(h);
}

static int32_t open_handle(handle *h, const void *data, uint64_t size, uint32_t cpu, megcc_error *error)
{
    megcc_model_options model_options;
    memset(&model_options, 0, sizeof model_options);
    model_options.cpu = cpu;
    int32_t status = megcc_model_open(&h->model, &MEGCC_MODULE, data, (size_t)size, &model_options, error);
    if (status)
        return status;

    megcc_session_options options;
    memset(&options, 0, sizeof options);
    options.observer.observe = observe;
    options.observer.user = h;
    options.allocator = megcc_heap_allocator(&h->model);
    int32_t workers = (int32_t)h->model.program.workers;
    if (workers > 1) {
        h->pool_memory = malloc(megcc_pool_bytes(workers));
        status = megcc_pool_open(&h->pool, h->pool_memory, megcc_pool_bytes(workers), workers);
        if (status) {
            error->status = status;
            return status;
        }
        options.parallel = megcc_pool_parallel(h->pool);
    }
    size_t alignment, bytes = megcc_model_memory(&h->model, &alignment);
    h->memory = megcc_heap_get(bytes, alignment);
    return megcc_session_open(&h->session, &h->model, h->memory, bytes, &options, error);
}

/* A session on a container, for the CPU `cpu` (MEGCC_ISA_*; 0: this one). NULL, and why in `text`, if there is none. */
EXPORT handle *megcc_py_open(const void *data, uint64_t size, uint32_t cpu, char *text, uint64_t text_size)
{
    megcc_error error;
    memset(&error, 0, sizeof error);
    handle *h = (handle *)calloc(1, sizeof *h);
    if (h && open_handle(h, data, size, cpu, &error)) {
        megcc_error_text(&error, text, (size_t)text_size);
        megcc_py_close(h);
        h = NULL;
    }
    return h;
}

/* The container that was compiled in, or NULL. */
EXPORT const void *megcc_py_embedded(void)
{
#ifdef MEGCC_DATA
    return MEGCC_DATA;
#else
    return NULL;
#endif
}

/* MEGCC_ISA_* of the program that the session runs. */
EXPORT uint32_t megcc_py_isa(const handle *h)
{
    return h->model.program.isa;
}

/* Sets the shapes of all inputs, as megcc_shape: rank, then MEGCC_MAX_RANK extents. Writes those of the outputs to
 * `results` in the same form. Returns a status, and why in `text`. */
EXPORT int32_t megcc_py_set_shapes(handle *h, const megcc_shape *shapes, megcc_shape *results, char *text,
                                   uint64_t text_size)
{
    megcc_error error;
    megcc_tensor tensor;
    memset(&error, 0, sizeof error);
    int32_t status = megcc_session_set_shapes(h->session, shapes, megcc_model_inputs(&h->model), &error);
    if (status) {
        megcc_error_text(&error, text, (size_t)text_size);
        return status;
    }
    for (uint32_t i = 0; i < megcc_model_outputs(&h->model); i++) {
        megcc_session_output(h->session, i, &tensor);
        results[i].rank = tensor.rank;
        memcpy(results[i].dims, tensor.dims, sizeof tensor.dims);
    }
    return MEGCC_OK;
}

/* Inputs in the caller's memory; NULL: a state, which the session keeps. */
static int32_t bind(handle *h, const void *const *inputs, const uint64_t *bytes)
{
    int32_t status = MEGCC_OK;
    for (uint32_t i = 0; i < megcc_model_inputs(&h->model) && !status; i++)
        if (inputs[i] != NULL)
            status = megcc_session_bind_input(h->session, i, inputs[i], (size_t)bytes[i]);
    return status;
}

static int32_t run(handle *h, const void *const *inputs, const uint64_t *bytes, void *const *outputs,
                   megcc_error *error)
{
    megcc_tensor tensor;
    error->status = bind(h, inputs, bytes);
    if (error->status)
        return error->status;
    int32_t status = megcc_session_run(h->session, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < megcc_model_outputs(&h->model); i++) {
        const void *data = megcc_session_output(h->session, i, &tensor);
        if (outputs[i] != NULL)
            memcpy(outputs[i], data, (size_t)tensor.bytes);
    }
    return MEGCC_OK;
}

/* States become zero. */
EXPORT void megcc_py_reset(handle *h)
{
    megcc_session_reset(h->session);
}

/* Where an input lies in the session that is not bound: a state. */
EXPORT void *megcc_py_input(handle *h, uint32_t index)
{
    return megcc_session_input(h->session, index, NULL);
}

/* Binds inputs, `bytes` long, for megcc_py_again: nothing but a run, its results left in the session. For callers that
 * take times. Both return a status. */
EXPORT int32_t megcc_py_bind(handle *h, const void *const *inputs, const uint64_t *bytes)
{
    h->seconds = NULL;
    h->observer = NULL;
    return bind(h, inputs, bytes);
}

EXPORT int32_t megcc_py_again(handle *h)
{
    return megcc_session_run(h->session, NULL);
}

/* One run from and to the memory of the caller; `bytes`: sizes of the inputs. With `seconds`, the time of each
 * instruction; with `observer`, a call after each instruction with its operand `operand[instruction]`. */
EXPORT int32_t megcc_py_run(handle *h, const void *const *inputs, const uint64_t *bytes, void *const *outputs,
                            double *seconds, observer_fn observer, const uint32_t *operand, char *text,
                            uint64_t text_size)
{
    megcc_error error;
    memset(&error, 0, sizeof error);
    h->seconds = seconds;
    h->observer = observer;
    h->operand = operand;
    int32_t status = run(h, inputs, bytes, outputs, &error);
    if (status)
        megcc_error_text(&error, text, (size_t)text_size);
    return status;
}
