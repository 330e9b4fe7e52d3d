/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions over a model and a session on the heap for Python's ctypes, which so needs no sizes of the C API's structs.
 * The file is compiled into the shared library of a build; native.py calls it.
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
#ifdef MEGCC_HEADER
#include MEGCC_HEADER
#endif

typedef void (*observer_fn)(uint32_t instruction, const void *data, uint64_t bytes);

/* PyArrayInterface of numpy's array interface protocol, to which the attribute __array_struct__ of an array leads. For
 * Python it takes a tenth of the time of reading address, shape and type of an array. */
typedef struct array_interface {
    int two, rank;
    char kind;
    int item_bytes, flags;
    const intptr_t *shape, *strides;
    void *data;
} array_interface;

enum { C_CONTIGUOUS = 0x1, ALIGNED = 0x100, NOT_SWAPPED = 0x200, READABLE = C_CONTIGUOUS | ALIGNED | NOT_SWAPPED };

/* The status of run_bound if an array does not fit its input; then nothing was run. */
#define MISFIT (-1)

/* Numpy's kind and the bytes of an element, in the order of the constants MEGCC_FLOAT32, …. 'S' stands for element types
 * that numpy does not have; Python passes them as byte strings of this length. */
static const struct { char kind; int bytes; } ELEMENTS[] = {
    {'f', 4}, {'f', 2}, {'f', 8}, {'i', 1}, {'u', 1}, {'i', 2}, {'u', 2}, {'i', 4}, {'u', 4}, {'i', 8}, {'u', 8},
    {'b', 1}, {'S', 2}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}, {'S', 1}
};

/* An input or output for Python. dims: -1 for a dynamic extent until shapes are set. */
typedef struct port {
    const char *name;
    int32_t dtype, rank, dims[MEGCC_MAX_RANK];
} port;

typedef struct input {
    const array_interface *array;   /* set by Python before a run; NULL: a state, which the session keeps */
    const void *bound;              /* the memory that is bound to the session; NULL: the session's own */
    port port;
} input;

typedef struct output {
    void *wanted;                   /* set by Python before a run: the memory to write to; NULL: the session's own */
    const void *found;              /* the address of the output after the run */
    void *bound;                    /* the memory that is bound to the session; NULL: the session's own */
    int64_t changes;                /* how often a run found another address or shape than the run before it */
    port port;
} output;

typedef struct handle {
    megcc_model model;
    megcc_session *session;
    void *block, *memory;       /* from malloc; the aligned part of it that the session has */
#ifndef MEGCC_NO_THREADS
    megcc_pool *pool;
    void *pool_memory;
#endif
    input *inputs;
    output *outputs;
    megcc_error error;          /* of the last call */
    /* The actions of observe() during a run; at most one of the first two is set. */
    double *seconds;            /* it adds the time of each instruction here */
    observer_fn observer;       /* it calls this function after each instruction */
    const uint32_t *operand;    /* for each instruction: the index of the operand that the observer gets */
    double begin;               /* the time at which the present instruction began */
} handle;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* megcc_observer.observe */
static int32_t observe(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    handle *h = (handle *)user;
    if (h->seconds) {
        if (after)
            h->seconds[instruction] += now() - h->begin; /* a loop runs an instruction several times */
        else
            h->begin = now();
    } else if (h->observer && after) {
        megcc_tensor tensor;
        tensor.name = NULL;     /* it stays NULL if the instruction is no call */
        const void *data = megcc_session_operand(session, instruction, h->operand[instruction], &tensor);
        if (tensor.name != NULL)
            h->observer(instruction, data, tensor.bytes);
    }
    return 0;
}

EXPORT void megcc_py_close(handle *h)
{
    if (h->session)
        megcc_session_close(h->session);
#ifndef MEGCC_NO_THREADS
    if (h->pool)
        megcc_pool_close(h->pool);
    free(h->pool_memory);
#endif
    free(h->block);
    free(h->inputs);
    free(h->outputs);
    free(h);
}

static void describe(const megcc_tensor *tensor, port *result)
{
    result->name = tensor->name;
    result->dtype = tensor->dtype;
    result->rank = tensor->rank;
    memcpy(result->dims, tensor->dims, sizeof tensor->dims);
}

/* Updates the descriptions of inputs and outputs after shapes were set, which removes all bindings. */
static void describe_ports(handle *h)
{
    megcc_tensor tensor;
    for (uint32_t i = 0; i < megcc_model_inputs(&h->model); i++) {
        megcc_session_input(h->session, i, &tensor);
        describe(&tensor, &h->inputs[i].port);
        h->inputs[i].bound = NULL;
    }
    for (uint32_t i = 0; i < megcc_model_outputs(&h->model); i++) {
        megcc_session_output(h->session, i, &tensor);
        describe(&tensor, &h->outputs[i].port);
        h->outputs[i].bound = NULL;
    }
}

static int32_t open_handle(handle *h, const void *data, uint64_t size, uint32_t cpu, int32_t threads)
{
    megcc_model_options model_options;
    memset(&model_options, 0, sizeof model_options);
    model_options.cpu = cpu;
    int32_t status = megcc_model_open(&h->model, &MEGCC_MODULE, data, (size_t)size, &model_options, &h->error);
    if (status)
        return status;

    megcc_session_options options;
    memset(&options, 0, sizeof options);
#ifndef MEGCC_NO_CALLBACKS
    options.observer.observe = observe;
    options.observer.user = h;
#endif
#if !defined(MEGCC_NO_DYNAMIC) && !defined(MEGCC_NO_STDIO)
    options.allocator = megcc_heap_allocator(&h->model);
#endif
#ifdef MEGCC_NO_THREADS
    (void)threads;
#else
    int32_t workers = (int32_t)h->model.program.workers;
    if (threads > 0 && threads < workers)
        workers = threads;
    if (workers > 1) {
        h->pool_memory = malloc(megcc_pool_bytes(workers));
        status = megcc_pool_open(&h->pool, h->pool_memory, megcc_pool_bytes(workers), workers);
        if (status)
            return h->error.status = status;
        options.parallel = megcc_pool_parallel(h->pool);
    }
#endif
    h->inputs = (input *)calloc((size_t)megcc_model_inputs(&h->model) + 1, sizeof *h->inputs);
    h->outputs = (output *)calloc((size_t)megcc_model_outputs(&h->model) + 1, sizeof *h->outputs);
    if (h->inputs == NULL || h->outputs == NULL)
        return h->error.status = MEGCC_E_ALLOCATION;
    size_t alignment, bytes = megcc_model_memory(&h->model, &alignment);
    h->block = bytes < SIZE_MAX - alignment ? malloc(bytes + alignment) : NULL;
    if (h->block != NULL)
        h->memory = (unsigned char *)h->block + alignment - (uintptr_t)h->block % alignment;
    status = megcc_session_open(&h->session, &h->model, h->memory, bytes, &options, &h->error);
    if (!status)
        describe_ports(h);
    return status;
}

/* Opens a session on a container for the CPU `cpu` (MEGCC_ISA_*; 0: this machine's). threads: the largest number of
 * threads; 0: the number that the model was compiled for. Returns NULL on failure, with the reason in `text`. */
EXPORT handle *megcc_py_open(const void *data, uint64_t size, uint32_t cpu, int32_t threads, char *text,
                             uint64_t text_size)
{
    handle *h = (handle *)calloc(1, sizeof *h);
    if (h && open_handle(h, data, size, cpu, threads)) {
        megcc_error_text(&h->error, text, (size_t)text_size);
        megcc_py_close(h);
        h = NULL;
    }
    return h;
}

/* Writes the reason why the last call failed to `text`. */
EXPORT void megcc_py_error(const handle *h, char *text, uint64_t text_size)
{
    megcc_error_text(&h->error, text, (size_t)text_size);
}

/* Writes the numbers of inputs, outputs, states and instructions to `counts`. */
EXPORT void megcc_py_counts(const handle *h, uint32_t counts[4])
{
    counts[0] = megcc_model_inputs(&h->model);
    counts[1] = megcc_model_outputs(&h->model);
    counts[2] = h->model.program.rows[MEGCC_STATES].count;
    counts[3] = h->model.program.rows[MEGCC_INSTRUCTIONS].count;
}

/* Returns the rows of inputs and outputs: Python reads their descriptions, and sets their addresses before a run. */
EXPORT input *megcc_py_inputs(handle *h)
{
    return h->inputs;
}

EXPORT output *megcc_py_outputs(handle *h)
{
    return h->outputs;
}

/* Returns the container that is compiled into the library, and its size; NULL if there is none. */
EXPORT const void *megcc_py_embedded(uint64_t *bytes)
{
#ifdef MEGCC_HEADER
    *bytes = MEGCC_DATA_BYTES;
    return MEGCC_DATA;
#else
    *bytes = 0;
    return NULL;
#endif
}

/* Returns MEGCC_ISA_* of the program that the session runs. */
EXPORT uint32_t megcc_py_isa(const handle *h)
{
    return h->model.program.isa;
}

/* Sets the shapes of all inputs. keep: states keep their values. Returns a status. */
EXPORT int32_t megcc_py_set_shapes(handle *h, const megcc_shape *shapes, int32_t keep)
{
    const uint32_t count = megcc_model_inputs(&h->model);
#ifdef MEGCC_NO_DYNAMIC
    (void)keep;
    int32_t status = megcc_session_set_shapes(h->session, shapes, count, &h->error);
#else
    int32_t status = keep ? megcc_session_reshape(h->session, shapes, count, &h->error)
                          : megcc_session_set_shapes(h->session, shapes, count, &h->error);
#endif
    if (!status)
        describe_ports(h);
    return status;
}

/* Sets all states to zero. */
EXPORT void megcc_py_reset(handle *h)
{
    megcc_session_reset(h->session);
}

/* Returns the address of a state in the session. */
EXPORT void *megcc_py_input(handle *h, uint32_t index)
{
    return megcc_session_input(h->session, index, NULL);
}

/* Watches the following runs. seconds: receives the time of each instruction. observer: is called after each instruction
 * with its operand of the index `operand[instruction]`. Both NULL: runs are not watched. */
EXPORT void megcc_py_watch(handle *h, double *seconds, observer_fn observer, const uint32_t *operand)
{
    h->seconds = seconds;
    h->observer = observer;
    h->operand = operand;
}

static int fits(const array_interface *array, const port *expected)
{
    if (array->two != 2 || array->rank != expected->rank || array->kind != ELEMENTS[expected->dtype].kind
        || array->item_bytes != ELEMENTS[expected->dtype].bytes || (array->flags & READABLE) != READABLE)
        return 0;
    for (int32_t i = 0; i < expected->rank; i++)
        if (array->shape[i] != expected->dims[i])
            return 0;
    return 1;
}

static uint64_t bytes_of(const port *p)
{
    uint64_t bytes = (uint64_t)ELEMENTS[p->dtype].bytes;
    for (int32_t i = 0; i < p->rank; i++)
        bytes *= (uint64_t)p->dims[i];
    return bytes;
}

static int32_t bind(handle *h)
{
    int32_t status = MEGCC_OK;
    for (uint32_t i = 0; i < megcc_model_inputs(&h->model) && !status; i++) {
        input *in = &h->inputs[i];
        if (in->array == NULL || in->array->data == in->bound)
            continue;
        status = megcc_session_bind_input(h->session, i, in->array->data, (size_t)bytes_of(&in->port));
        in->bound = status ? NULL : in->array->data;
    }
    for (uint32_t i = 0; i < megcc_model_outputs(&h->model) && !status; i++) {
        output *out = &h->outputs[i];
        if (out->wanted == out->bound)
            continue;
        status = megcc_session_bind_output(h->session, i, out->wanted, (size_t)bytes_of(&out->port));
        out->bound = status ? NULL : out->wanted;
    }
    return status;
}

/* Runs the session. Without callbacks a watched run is made of steps; they are calls, one after the other. */
static int32_t run(handle *h)
{
#ifdef MEGCC_NO_CALLBACKS
    if (h->seconds || h->observer) {
        int32_t status = MEGCC_MORE;
        for (uint32_t instruction = 0; status == MEGCC_MORE; instruction++) {
            observe(h, h->session, instruction, 0);
            status = megcc_session_step(h->session, &h->error);
            if (status == MEGCC_OK || status == MEGCC_MORE)
                observe(h, h->session, instruction, 1);
        }
        return status;
    }
#endif
    return megcc_session_run(h->session, &h->error);
}

/* Runs the model once on the arrays in the rows of inputs and outputs. Returns a status, or MISFIT. */
static int32_t run_bound(handle *h)
{
    for (uint32_t i = 0; i < megcc_model_inputs(&h->model); i++)
        if (h->inputs[i].array != NULL && !fits(h->inputs[i].array, &h->inputs[i].port))
            return MISFIT;
    h->error.where = NULL;
    h->error.status = bind(h);
    if (h->error.status)
        return h->error.status;
    int32_t status = run(h);
    const int has_unbacked_symbols = h->model.program.unbacked_symbols != 0;
    megcc_tensor tensor;
    for (uint32_t i = 0; i < megcc_model_outputs(&h->model) && !status; i++) {
        output *out = &h->outputs[i];
        const void *found = megcc_session_output(h->session, i, has_unbacked_symbols ? &tensor : NULL);
        if (found != out->found)
            out->changes++;
        else if (has_unbacked_symbols && memcmp(tensor.dims, out->port.dims, sizeof tensor.dims) != 0)
            out->changes++;
        out->found = found;
        if (has_unbacked_symbols)
            describe(&tensor, &out->port);
    }
    return status;
}

/* Python calls a method that is written in C in a third of the time that ctypes takes. This file is compiled without
 * Python's headers, so megcc_py_methods gets the functions of Python's stable interface that methods need. */
static struct {
    void *(*address)(void *number);                     /* PyLong_AsVoidPtr */
    void *(*number)(long value);                        /* PyLong_FromLong */
    void *(*content)(void *capsule, const char *name);  /* PyCapsule_GetPointer */
    void *(*release)(void);                 /* PyEval_SaveThread: other threads of Python may run until `acquire` */
    void (*acquire)(void *thread);          /* PyEval_RestoreThread */
} python;

/* PyMethodDef */
typedef struct python_method {
    const char *name;
    void *(*call)(void *self, void *argument);
    int flags;
    const char *documentation;
} python_method;

enum { WITHOUT_ARGUMENTS = 0x4, ONE_ARGUMENT = 0x8 }; /* METH_NOARGS, METH_O */

/* Runs a session. self: the address of its handle, a number. Returns the status of run_bound, a number. */
static void *run_method(void *self, void *nothing)
{
    (void)nothing;
    handle *h = (handle *)python.address(self);
    void *thread = python.release();
    const int32_t status = run_bound(h);
    python.acquire(thread);
    return python.number(status);
}

/* Sets the array that an input reads. self: the address of the input's row, a number. capsule: the __array_struct__ of
 * the array, which must outlive the runs. Returns 0, or NULL with an exception if it is no capsule. */
static void *read_method(void *self, void *capsule)
{
    const array_interface *array = (const array_interface *)python.content(capsule, NULL);
    if (array == NULL)
        return NULL;
    ((input *)python.address(self))->array = array;
    return python.number(0);
}

/* Returns the PyMethodDef of run_method and that of read_method. */
EXPORT const void *megcc_py_methods(void *(*address)(void *), void *(*number)(long),
                                    void *(*content)(void *, const char *), void *(*release)(void),
                                    void (*acquire)(void *))
{
    static const python_method methods[] = {
        {"run", run_method, WITHOUT_ARGUMENTS, NULL}, {"read", read_method, ONE_ARGUMENT, NULL}};
    python.address = address;
    python.number = number;
    python.content = content;
    python.release = release;
    python.acquire = acquire;
    return methods;
}
