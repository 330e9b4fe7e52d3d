/* SPDX-License-Identifier: Apache-2.0
 *
 * test_runtime FOLDER [TEST...]: runs tests on the containers of the folder; without names it lists the tests. The containers
 * are made by tests/compiled/runtime/runtime_models.py, where the offsets and sizes below are from.
 */
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#define HAVE_FORK 1
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "megcc.h"

extern const megcc_module static_module, dynamic_module;

#define ELEMENTS 24
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static const char *folder;

/* A container and a session of it; the memory is exactly as large as asked for. */
typedef struct fixture {
    megcc_file file;
    megcc_model model;
    megcc_session *session;
    void *memory;
    megcc_error error;
} fixture;

static const megcc_module *module_of(const char *name)
{
    const int is_static = strcmp(name, "static") == 0 || strcmp(name, "wide") == 0 || strcmp(name, "half") == 0
                          || strstr(name, "region") != NULL || strcmp(name, "large") == 0
                          || strcmp(name, "sparse") == 0;
    return is_static ? &static_module : &dynamic_module;
}

static void load(fixture *f, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.megcc", folder, name);
    CHECK(megcc_model_load_file(&f->model, &f->file, module_of(name), path, NULL, &f->error) == MEGCC_OK);
}

static void open_session(fixture *f, const megcc_session_options *options)
{
    size_t alignment;
    const size_t size = megcc_model_memory(&f->model, &alignment);
    f->memory = megcc_heap_get(size, alignment);
    CHECK(megcc_session_open(&f->session, &f->model, f->memory, size, options, &f->error) == MEGCC_OK);
}

static void start(fixture *f, const char *name, const megcc_session_options *options)
{
    load(f, name);
    open_session(f, options);
}

static void finish(fixture *f)
{
    if (f->session != NULL)
        megcc_session_close(f->session);
    megcc_heap_free(f->memory);
    megcc_file_close(&f->file);
}

/* x[i] = seed + i; the model computes x[i] * i / 2 + state, which is also the next state. */
static void fill(float *x, int seed)
{
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = (float)(seed + i);
}

/* Whether y is the result of run number `rounds` with the same x since the state was zero. */
static int holds(const float *y, int seed, int rounds)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (y[i] != (float)rounds * (float)(seed + i) * 0.5f * (float)i)
            return 0;
    return 1;
}

static void run_once(fixture *f, int seed, int rounds)
{
    fill(megcc_session_input(f->session, 0, NULL), seed);
    CHECK(megcc_session_run(f->session, &f->error) == MEGCC_OK);
    CHECK(holds(megcc_session_output(f->session, 0, NULL), seed, rounds));
}

/* --- static shapes --------------------------------------------------------------------------------------------- */

static void test_run(void)
{
    fixture f = { 0 };
    start(&f, "static", NULL);
    CHECK(megcc_model_check(&f.model, &f.error) == MEGCC_OK);
    run_once(&f, 3, 1);
    finish(&f);
}

/* Weights after everything else; of one container more than 4 GB. */
static void test_large(void)
{
    fixture f = { 0 };
#if SIZE_MAX > UINT32_MAX
    unsigned char *copy;
    start(&f, "large", NULL);
    CHECK(megcc_model_check(&f.model, &f.error) == MEGCC_OK);
    run_once(&f, 3, 1);
    copy = megcc_heap_get(f.file.size, 64);
    memcpy(copy, f.file.data, f.file.size);
    /* Without the weight, 96 bytes; then also without the 64 unused bytes before it, and a byte of the rest. */
    CHECK(megcc_model_open(&f.model, &static_module, copy, f.file.size - 96, NULL, &f.error) == MEGCC_E_CORRUPT);
#ifndef MEGCC_NO_STRINGS
    CHECK(strcmp(f.error.where, "Tensor.data") == 0);
#endif
    CHECK(megcc_model_open(&f.model, &static_module, copy, f.file.size - 161, NULL, &f.error) == MEGCC_E_CORRUPT);
    megcc_heap_free(copy);
    finish(&f);
    memset(&f, 0, sizeof f);
    start(&f, "sparse", NULL);
    CHECK(f.file.size > 5000000000u && f.model.weights_bytes > 5000000000u);
    run_once(&f, 3, 1);
#else
    char path[1024];
    snprintf(path, sizeof path, "%s/large.megcc", folder);
    CHECK(megcc_model_load_file(&f.model, &f.file, &static_module, path, NULL, &f.error) == MEGCC_E_FORMAT);
#endif
    finish(&f);
}

static void test_describe(void)
{
    fixture f = { 0 };
    megcc_tensor t;
    start(&f, "static", NULL);
    CHECK(strcmp(f.model.name, "static") == 0 && f.model.id == 11);
    CHECK(megcc_model_inputs(&f.model) == 2 && megcc_model_outputs(&f.model) == 2);
    CHECK(megcc_model_input(&f.model, 0, &t) == MEGCC_OK);
    CHECK(strcmp(t.name, "x") == 0 && t.dtype == MEGCC_FLOAT32 && t.rank == 2 && t.dims[0] == 4 && t.dims[1] == 6);
    CHECK(t.bytes == 96 && t.quant == NULL && t.quant_axis == -1);
    CHECK(megcc_model_output(&f.model, 1, &t) == MEGCC_OK && strcmp(t.name, "h_out") == 0);
    CHECK(megcc_model_input(&f.model, 2, &t) == MEGCC_E_ARGUMENT && megcc_model_output(&f.model, 2, &t) != MEGCC_OK);
    CHECK(megcc_session_operand(f.session, 0, 1, &t) != NULL);
    CHECK(t.quants == 2 && t.quant_axis == 1 && t.quant[0].scale == 0.5f && t.quant[1].zero_point == -3);
    CHECK(strcmp(t.name, "") == 0 && t.layout == MEGCC_NHWC);
    CHECK(megcc_session_operand(f.session, 0, 3, &t) == NULL && megcc_session_operand(f.session, 4, 0, &t) == NULL);
    CHECK(megcc_session_input(f.session, 2, NULL) == NULL && megcc_session_output(f.session, 2, &t) == NULL);
#ifndef MEGCC_NO_STRINGS
    CHECK(strcmp(megcc_session_kernel(f.session, 3), "copy") == 0);
#endif
    CHECK(strcmp(megcc_session_kernel(f.session, 4), "") == 0);
    finish(&f);
}

static void test_step(void)
{
    fixture f = { 0 };
    start(&f, "static", NULL);
    fill(megcc_session_input(f.session, 0, NULL), 1);
    for (int i = 0; i < 3; i++)
        CHECK(megcc_session_step(f.session, &f.error) == MEGCC_MORE);
    CHECK(megcc_session_bind_input(f.session, 0, NULL, 0) == MEGCC_E_ORDER);
    CHECK(megcc_session_step(f.session, &f.error) == MEGCC_OK);
    CHECK(holds(megcc_session_output(f.session, 0, NULL), 1, 1));
    finish(&f);
}

/* Memory in two blocks, of 480 and 416 bytes; a weight is copied to the second one, and read there. */
static void test_regions(void)
{
    fixture f = { 0 };
#ifdef MEGCC_NO_REGIONS
    char path[1024];
    snprintf(path, sizeof path, "%s/regions.megcc", folder);
    CHECK(megcc_model_load_file(&f.model, &f.file, &static_module, path, NULL, &f.error) == MEGCC_E_UNSUPPORTED);
#else
    load(&f, "regions");
    CHECK(megcc_model_region(&f.model, 0) == 416);
    CHECK(megcc_model_region(&f.model, 1) == 0 && megcc_model_region(&f.model, UINT32_MAX) == 0);
    size_t alignment;
    const size_t size = megcc_model_memory(&f.model, &alignment);
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    f.memory = megcc_heap_get(size, alignment);
    unsigned char *other = megcc_heap_get(416, alignment);
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, NULL, &f.error) == MEGCC_E_MEMORY);
    CHECK(f.error.needed == 416);
    options.region[0].memory = other;
    options.region[0].bytes = 415;
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, &options, &f.error) == MEGCC_E_MEMORY);
    CHECK(f.error.needed == 416);
    options.region[0].memory = other + 1;
    options.region[0].bytes = 416;
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, &options, &f.error) == MEGCC_E_MEMORY);
    CHECK(f.error.needed == alignment);
    options.region[0].memory = other;
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, &options, &f.error) == MEGCC_OK);
    run_once(&f, 3, 1);
    float *weight = (float *)(void *)(other + 800 - 480); /* its offset in the arena is 800 */
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(weight[i] == 0.5f * (float)i);
    weight[1] = 1.0f;
    megcc_session_reset(f.session);
    fill(megcc_session_input(f.session, 0, NULL), 3);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK);
    const float *y = megcc_session_output(f.session, 0, NULL);
    CHECK(y[1] == 4.0f && y[2] == 5.0f);
    finish(&f);
    megcc_heap_free(other);
#endif
}

/* A state begins with the weight that is copied to the second block: y = x * w + w, then w more. */
static void test_begun(void)
{
#ifndef MEGCC_NO_REGIONS
    fixture f = { 0 };
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    load(&f, "begun_in_a_region");
    options.region[0].bytes = megcc_model_region(&f.model, 0);
    options.region[0].memory = megcc_heap_get(options.region[0].bytes, 64);
    memset(options.region[0].memory, 0xA5, options.region[0].bytes);
    open_session(&f, &options);
    for (int round = 0; round < 4; round++) {
        if (round == 2)
            megcc_session_reset(f.session);
        fill(megcc_session_input(f.session, 0, NULL), 3);
        CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK);
        const float *y = megcc_session_output(f.session, 0, NULL);
        for (int i = 0; i < ELEMENTS; i++)
            CHECK(y[i] == ((float)(1 + round % 2) * (float)(3 + i) + 1) * 0.5f * (float)i);
    }
    finish(&f);
    megcc_heap_free(options.region[0].memory);
#endif
}

static void test_bind(void)
{
    fixture f = { 0 };
    float x[ELEMENTS], y[ELEMENTS] = { 0 };
    start(&f, "static", NULL);
    fill(x, 5);
    CHECK(megcc_session_bind_input(f.session, 0, x, sizeof x - 1) == MEGCC_E_ARGUMENT);
    CHECK(megcc_session_bind_input(f.session, 0, (char *)x + 2, sizeof x) == MEGCC_E_ARGUMENT);
    CHECK(megcc_session_bind_input(f.session, 1, x, sizeof x) == MEGCC_E_ARGUMENT); /* a state */
    CHECK(megcc_session_bind_input(f.session, 2, x, sizeof x) == MEGCC_E_ARGUMENT);
    CHECK(megcc_session_bind_input(f.session, 0, x, sizeof x) == MEGCC_OK);
    CHECK(megcc_session_bind_output(f.session, 0, y, sizeof y) == MEGCC_OK);
    CHECK(megcc_session_input(f.session, 0, NULL) == NULL);
    CHECK(megcc_session_output(f.session, 0, NULL) == y);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK);
    CHECK(holds(y, 5, 1));
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(x[i] == (float)(5 + i));
    CHECK(megcc_session_bind_output(f.session, 0, NULL, 0) == MEGCC_OK);
    CHECK(megcc_session_bind_input(f.session, 0, NULL, 0) == MEGCC_OK);
    CHECK(megcc_session_output(f.session, 0, NULL) != y);
    megcc_session_reset(f.session);
    run_once(&f, 7, 1);
    CHECK(holds(y, 5, 1));
    finish(&f);
}

static void test_state(void)
{
    fixture f = { 0 };
    start(&f, "static", NULL);
    for (int round = 1; round <= 3; round++)
        run_once(&f, 2, round);
    megcc_session_reset(f.session);
    run_once(&f, 2, 1);

    float *x = megcc_session_input(f.session, 0, NULL);
    fill(x, 2);
    x[23] = NAN;
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_KERNEL);
    CHECK(f.error.status == MEGCC_E_KERNEL && f.error.instruction == 2 && f.error.detail == MEGCC_KERNEL_FAILED);
    run_once(&f, 2, 2); /* the failed run did not count */

    fill(megcc_session_input(f.session, 0, NULL), 2);
    CHECK(megcc_session_step(f.session, NULL) == MEGCC_MORE);
    megcc_session_reset(f.session);
    run_once(&f, 2, 1);
    finish(&f);
}

static void test_memory(void)
{
    fixture f = { 0 };
    size_t alignment;
    load(&f, "static");
    const size_t size = megcc_model_memory(&f.model, &alignment);
    /* 7 pointers: to 4 inputs and outputs, and to 3 operands of a call; a word for each of 4 workers. */
    CHECK(alignment == 16 && size == MEGCC_MEMORY_BYTES(16u, 7u, 4u, 800u));
    unsigned char *memory = megcc_heap_get(size + 1, 64);
    memset(memory, 0xA5, size + 1);
    CHECK(megcc_session_open(&f.session, &f.model, memory, size - 1, NULL, &f.error) == MEGCC_E_MEMORY);
    CHECK(f.error.needed == size && f.session == NULL);
    CHECK(megcc_session_open(&f.session, &f.model, memory + 1, size, NULL, &f.error) == MEGCC_E_MEMORY);
    CHECK(f.error.needed == 16);
    CHECK(megcc_session_open(&f.session, &f.model, NULL, size, NULL, NULL) == MEGCC_E_MEMORY);
    CHECK(megcc_session_open(NULL, &f.model, memory, size, NULL, NULL) == MEGCC_E_ARGUMENT);
    for (size_t i = 0; i <= size; i++)
        CHECK(memory[i] == 0xA5);
    CHECK(megcc_session_open(&f.session, &f.model, memory, size, NULL, &f.error) == MEGCC_OK);
    run_once(&f, 1, 1);
    CHECK(memory[size] == 0xA5);
    f.memory = memory;
    finish(&f);
}

static void test_static_shapes(void)
{
    fixture f = { 0 };
    megcc_shape shapes[2] = { { 2, { 4, 6 } }, { 2, { 4, 6 } } };
    start(&f, "static", NULL);
    run_once(&f, 1, 1);
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_OK);
    run_once(&f, 1, 1); /* states are zero again */
#ifndef MEGCC_NO_DYNAMIC
    CHECK(megcc_session_reshape(f.session, shapes, 2, &f.error) == MEGCC_OK);
    run_once(&f, 1, 2); /* and here they are not */
#endif
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_OK);
    run_once(&f, 1, 1);
    shapes[1].dims[0] = 5;
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE && f.error.detail == 1);
    shapes[1].rank = 1;
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE);
    CHECK(megcc_session_set_shapes(f.session, shapes, 1, &f.error) == MEGCC_E_ARGUMENT);
    CHECK(megcc_session_set_shapes(f.session, NULL, 2, &f.error) == MEGCC_E_ARGUMENT);
#ifndef MEGCC_NO_DYNAMIC
    CHECK(megcc_session_reshape(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE);
#endif
    run_once(&f, 1, 2);
    finish(&f);
}

/* A call of forty operands. */
static void test_wide(void)
{
    fixture f = { 0 };
    start(&f, "wide", NULL);
    fill(megcc_session_input(f.session, 0, NULL), 3);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK);
    const float *y = megcc_session_output(f.session, 0, NULL);
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(y[i] == (float)(3 + i));
    CHECK(megcc_session_open(&f.session, NULL, f.memory, 0, NULL, &f.error) == MEGCC_E_ARGUMENT);
    finish(&f);
}

static void test_half(void)
{
    fixture f = { 0 };
    start(&f, "half", NULL);
    const float *x = megcc_session_input(f.session, 0, NULL), *y = megcc_session_output(f.session, 0, NULL);
    CHECK(x == y); /* it takes the input's place */
    fill(megcc_session_input(f.session, 0, NULL), 3);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK);
    for (int i = 0; i < ELEMENTS / 2; i++)
        CHECK(y[i] == (float)(3 + 2 * i));
    finish(&f);
}

static void test_open(void)
{
    fixture f = { 0 };
    megcc_module module = static_module;
    megcc_model_options options = { MEGCC_ISA_X86_64 };
    load(&f, "static");
    const void *data = f.file.data;
    const size_t size = f.file.size;
    CHECK(megcc_model_open(&f.model, &static_module, data, size, &options, &f.error) == MEGCC_OK);
    CHECK(megcc_model_check(NULL, &f.error) == MEGCC_E_ARGUMENT);
    CHECK(f.error.detail == 0 && f.error.needed == 0); /* the index of the argument; no number is needed */
    CHECK(megcc_model_open(NULL, &static_module, data, size, NULL, NULL) == MEGCC_E_ARGUMENT);
    CHECK(megcc_model_open(&f.model, NULL, data, size, NULL, NULL) == MEGCC_E_ARGUMENT);
    CHECK(megcc_model_open(&f.model, &static_module, NULL, size, NULL, NULL) == MEGCC_E_ARGUMENT);
    CHECK(megcc_model_open(&f.model, &static_module, (const char *)data + 4, size - 4, NULL, NULL) == MEGCC_E_ARGUMENT);
    CHECK(megcc_model_open(&f.model, &static_module, data, 7, NULL, NULL) == MEGCC_E_FORMAT);
    CHECK(megcc_model_open(&f.model, &static_module, data, (size_t)INT32_MAX + 1, NULL, NULL) == MEGCC_E_FORMAT);
    CHECK(megcc_model_open_version(MEGCC_API + 1, &f.model, &static_module, data, size, NULL, &f.error) == MEGCC_E_VERSION);
    CHECK(megcc_model_open(&f.model, &dynamic_module, data, size, NULL, &f.error) == MEGCC_E_CODE);
    module.kernel_abi++;
    CHECK(megcc_model_open(&f.model, &module, data, size, NULL, &f.error) == MEGCC_E_VERSION);
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *part = megcc_heap_get(cut, 64);
        memcpy(part, data, cut);
        CHECK(megcc_model_open(&f.model, &static_module, part, cut, NULL, &f.error) != MEGCC_OK || cut > size - 64);
        megcc_heap_free(part);
    }
    finish(&f);
}

/* Code for several CPUs: the best that runs here. */
static void test_cpu(void)
{
    fixture f = { 0 };
    megcc_code codes[2] = { static_module.code[0], static_module.code[0] };
    const megcc_module both = { MEGCC_KERNEL_ABI, 2, codes };
    megcc_kernel kernels[8];
    codes[0].isa = MEGCC_ISA_X86_64_V4;
    codes[0].id = 99;
    codes[0].alignment = 64;
    codes[0].kernel = kernels;
    codes[0].kernels = 8;
    for (int i = 0; i < 8; i++)
        kernels[i] = static_module.code[0].kernel[i == 0 ? 0 : 1];
    load(&f, "static");
    megcc_model_options options = { MEGCC_ISA_X86_64_V4 };
    /* Its calls are all kernel 7, an `add`: the third does not fit. */
    CHECK(megcc_model_open(&f.model, &both, f.file.data, f.file.size, &options, &f.error) == MEGCC_E_SIGNATURE);
    CHECK(f.error.instruction == 0 || f.error.instruction == 2);
    codes[0].id = 98;
    CHECK(megcc_model_open(&f.model, &both, f.file.data, f.file.size, &options, &f.error) == MEGCC_OK);
    CHECK(f.model.program.isa == MEGCC_ISA_C);
    CHECK(MEGCC_RUNS_ON(MEGCC_ISA_X86_64_V3, MEGCC_ISA_X86_64_V3_VNNI));
    CHECK(!MEGCC_RUNS_ON(MEGCC_ISA_X86_64_V4, MEGCC_ISA_X86_64_V3_VNNI));
    CHECK(!MEGCC_RUNS_ON(MEGCC_ISA_X86_64_V3_VNNI, MEGCC_ISA_X86_64_V4_VNNI));
    CHECK(!MEGCC_RUNS_ON(MEGCC_ISA_ARM64, MEGCC_ISA_X86_64_V4));
    /* Features that a higher level need not have. */
    codes[0].id = 99;
    codes[0].isa = MEGCC_ISA_X86_64_V4 | 0x100u;
    CHECK(megcc_model_open(&f.model, &both, f.file.data, f.file.size, &options, &f.error) == MEGCC_OK);
    CHECK(f.model.program.isa == MEGCC_ISA_C);
    finish(&f);
}

static void test_checksum(void)
{
    fixture f = { 0 };
    load(&f, "static");
    unsigned char *copy = megcc_heap_get(f.file.size, 64);
    memcpy(copy, f.file.data, f.file.size);
    CHECK(megcc_model_open(&f.model, &static_module, copy, f.file.size, NULL, &f.error) == MEGCC_OK);
    copy[f.model.weights - f.model.data + 70] ^= 1;
    CHECK(megcc_model_check(&f.model, &f.error) == MEGCC_E_CHECKSUM);
    megcc_heap_free(copy);
    finish(&f);
}

static void test_files(void)
{
    fixture f = { 0 };
    CHECK(megcc_model_load_file(&f.model, &f.file, &static_module, "/nowhere", NULL, &f.error) == MEGCC_E_FILE);
    CHECK(megcc_model_load_file(&f.model, &f.file, &static_module, folder, NULL, &f.error) != MEGCC_OK);
    CHECK(megcc_heap_get(SIZE_MAX - 4, 8) == NULL);
    megcc_heap_free(NULL);
}

static void test_error_text(void)
{
#ifndef MEGCC_NO_STRINGS
    char text[200];
    megcc_error error = { MEGCC_E_CORRUPT, 7, "Tensor.root", -12, 30 };
    CHECK(strcmp(megcc_error_text(&error, text, sizeof text),
                 "the container is damaged: Tensor.root (-12), instruction 7, needed 30") == 0);
    CHECK(strcmp(megcc_error_text(&error, text, 5), "the ") == 0);
    text[0] = 'x';
    CHECK(megcc_error_text(&error, text, 0)[0] == 'x');
    const megcc_error limit = { MEGCC_E_CANCELLED, MEGCC_NONE, "iteration_limit", 5, 0 };
    CHECK(strcmp(megcc_error_text(&limit, text, sizeof text),
                 "cancelled by the observer or a limit: iteration_limit (5)") == 0);
    char unknown[64];
    error.status = 0x7F;
    megcc_error_text(&error, unknown, sizeof unknown);
    for (int32_t status = 0; status < 0x60; status++) {
        error.status = status;
        CHECK(strlen(megcc_error_text(&error, text, sizeof text)) > 10);
    }
#endif
}

/* --- hooks ----------------------------------------------------------------------------------------------------- */

#ifndef MEGCC_NO_THREADS

/* Runs the tasks backwards and hands them out to the workers in turn. */
static void backwards(void *user, megcc_body body, void *context, int32_t tasks)
{
    int *calls = user;
    for (int32_t i = tasks - 1; i >= 0; i--)
        body(context, i, i % 3);
    ++*calls;
}

/* Breaks one promise a call. */
static void careless(void *user, megcc_body body, void *context, int32_t tasks)
{
    static const int32_t wrong[4][2] = { { -1, 0 }, { 100, 0 }, { 0, 4 }, { 0, -1 } };
    int *calls = user;
    for (int32_t i = 0; i < tasks; i++)
        body(context, i, 0);
    body(context, wrong[*calls][0], wrong[*calls][1]);
}

static void test_parallel(void)
{
    int calls = 0;
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    for (int32_t workers = 1; workers <= 4; workers++) {
        fixture f = { 0 };
        options.parallel.run = backwards;
        options.parallel.user = &calls;
        options.parallel.workers = workers < 3 ? 3 : workers;
        start(&f, "static", &options);
        run_once(&f, workers, 1);
        run_once(&f, workers, 2);
        float *x = megcc_session_input(f.session, 0, NULL);
        x[0] = NAN;
        CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_KERNEL);
        run_once(&f, workers, 3);
        finish(&f);
    }
    CHECK(calls == 4 * (4 + 4 + 3 + 4));

    fixture f = { 0 };
    options.parallel.run = careless;
    options.parallel.workers = 4;
    start(&f, "static", &options);
    for (calls = 0; calls < 4; calls++) {
        fill(megcc_session_input(f.session, 0, NULL), 1);
        CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_THREADS);
    }
    finish(&f);

    memset(&f, 0, sizeof f);
    load(&f, "static");
    size_t alignment;
    const size_t size = megcc_model_memory(&f.model, &alignment);
    f.memory = megcc_heap_get(size, alignment);
    options.parallel.workers = 5;
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, &options, &f.error) == MEGCC_E_THREADS);
    CHECK(f.error.needed == 4);
    options.parallel.workers = 0;
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, &options, &f.error) == MEGCC_E_THREADS);
    finish(&f);
}

static void test_pool(void)
{
    for (int32_t workers = 1; workers <= 4; workers++) {
        fixture f = { 0 };
        megcc_pool *pool;
        megcc_session_options options;
        memset(&options, 0, sizeof options);
        const size_t bytes = megcc_pool_bytes(workers);
        void *memory = malloc(bytes);
        CHECK(megcc_pool_open(&pool, memory, bytes - 1, workers) == MEGCC_E_ARGUMENT);
        CHECK(megcc_pool_open(&pool, memory, bytes, 0) == MEGCC_E_ARGUMENT);
        CHECK(megcc_pool_open(&pool, memory, bytes, workers) == MEGCC_OK);
        options.parallel = megcc_pool_parallel(pool);
        CHECK(options.parallel.workers == workers);
        start(&f, "static", &options);
        for (int round = 1; round <= 200; round++)
            run_once(&f, 1, round);
        finish(&f);
        megcc_pool_close(pool);
        free(memory);
    }
}

/* A child has none of the pool's threads, whatever they were doing: awake, asleep, or on the way. */
static void test_fork(void)
{
#ifdef HAVE_FORK
    fixture f = { 0 };
    megcc_pool *pool;
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    const size_t bytes = megcc_pool_bytes(4);
    void *memory = malloc(bytes);
    CHECK(megcc_pool_open(&pool, memory, bytes, 4) == MEGCC_OK);
    options.parallel = megcc_pool_parallel(pool);
    start(&f, "static", &options);
    for (int round = 1; round <= 40; round++) {
        const struct timespec pause = { 0, round % 4 * 100000 };
        run_once(&f, 1, round);
        nanosleep(&pause, NULL);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            for (int more = 1; more <= 3; more++)
                run_once(&f, 1, round + more);
            finish(&f);
            megcc_pool_close(pool);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    finish(&f);
    megcc_pool_close(pool);
    free(memory);
#endif
}

#else

static void test_fork(void)
{
}

static void test_parallel(void)
{
    fixture f = { 0 };
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    options.parallel.run = (void (*)(void *, megcc_body, void *, int32_t))test_parallel;
    options.parallel.workers = 1;
    load(&f, "static");
    size_t alignment;
    const size_t size = megcc_model_memory(&f.model, &alignment);
    f.memory = megcc_heap_get(size, alignment);
    CHECK(megcc_session_open(&f.session, &f.model, f.memory, size, &options, &f.error) == MEGCC_E_UNSUPPORTED);
    finish(&f);
}

static void test_pool(void)
{
}

#endif

typedef struct watch {
    uint32_t calls, stop_at;
} watch;

static int32_t observe(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    watch *w = user;
    CHECK(instruction == w->calls / 2 && after == (int32_t)(w->calls % 2));
    CHECK(megcc_session_operand(session, instruction, 0, NULL) != NULL);
    return ++w->calls == w->stop_at ? 77 : 0;
}

static void test_observe(void)
{
    fixture f = { 0 };
    watch w = { 0, 0 };
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    options.observer.observe = observe;
    options.observer.user = &w;
    start(&f, "static", &options);
    run_once(&f, 4, 1);
    CHECK(w.calls == 8);
    for (uint32_t stop = 1; stop <= 8; stop++) {
        w.calls = 0;
        w.stop_at = stop;
        fill(megcc_session_input(f.session, 0, NULL), 4);
        CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_CANCELLED);
        CHECK(f.error.detail == 77 && f.error.instruction == (stop - 1) / 2);
    }
    w.calls = w.stop_at = 0;
    run_once(&f, 4, 2); /* no cancelled run changed the state */
    finish(&f);
}

/* --- shapes that change ---------------------------------------------------------------------------------------- */

#ifndef MEGCC_NO_DYNAMIC

static int32_t set_n(fixture *f, int32_t n)
{
    const megcc_shape shapes[2] = { { 2, { n, 3 } }, { 1, { 2 * n } } };
    return megcc_session_set_shapes(f->session, shapes, 2, &f->error);
}

/* y = 4a, z = 2b */
static int32_t run_dynamic(fixture *f, int32_t n)
{
    megcc_tensor t;
    float *a = megcc_session_input(f->session, 0, &t), *b = megcc_session_input(f->session, 1, NULL);
    CHECK(t.dims[0] == n && t.dims[1] == 3 && t.bytes == 12u * (unsigned)n);
    if (a == NULL || b == NULL)
        return MEGCC_E_ALLOCATION;
    for (int32_t i = 0; i < 3 * n; i++)
        a[i] = (float)(i + 1);
    for (int32_t i = 0; i < 2 * n; i++)
        b[i] = (float)(i + 2);
    const int32_t status = megcc_session_run(f->session, &f->error);
    if (status != MEGCC_OK)
        return status;
    const float *y = megcc_session_output(f->session, 0, &t), *z = megcc_session_output(f->session, 1, NULL);
    CHECK(t.dims[0] == n);
    for (int32_t i = 0; i < 3 * n; i++)
        CHECK(y[i] == 4 * (float)(i + 1));
    for (int32_t i = 0; i < 2 * n; i++)
        CHECK(z[i] == 2 * (float)(i + 2));
    return MEGCC_OK;
}

/* A call of "twice" with 256 bytes or more has two arrays of at least 32 floats. Other kernels here share every call. */
static void test_small_calls(void)
{
#ifndef MEGCC_NO_THREADS
    int calls = 0;
    fixture f = { 0 };
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    options.parallel.run = backwards;
    options.parallel.user = &calls;
    options.parallel.workers = 3;
    start(&f, "dynamic", &options);
    int found[17];
    for (int32_t n = 1; n <= 16; n++) {
        CHECK(set_n(&f, n) == MEGCC_OK);
        calls = 0;
        CHECK(run_dynamic(&f, n) == MEGCC_OK);
        found[n] = calls;
    }
    CHECK(found[10] == found[1] && found[11] > found[10] && found[15] == found[11] && found[16] > found[15]);
    finish(&f);
#endif
}

static void test_buckets(void)
{
    fixture f = { 0 };
    megcc_tensor t;
    start(&f, "dynamic", NULL);
    CHECK(megcc_model_input(&f.model, 1, &t) == MEGCC_OK && t.dims[0] == -1 && t.bytes == 0);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_ORDER);
    CHECK(megcc_session_input(f.session, 0, &t) == NULL && t.dims[0] == -1 && t.dims[1] == 3);
    CHECK(megcc_session_output(f.session, 0, NULL) == NULL);
    CHECK(megcc_session_operand(f.session, 0, 0, NULL) == NULL);
    CHECK(megcc_session_bind_input(f.session, 0, &t, sizeof t) == MEGCC_E_ORDER);
    for (int32_t n = 16; n >= 1; n--) {
        CHECK(set_n(&f, n) == MEGCC_OK);
        CHECK(run_dynamic(&f, n) == MEGCC_OK);
    }
    CHECK(set_n(&f, 5) == MEGCC_OK);
    CHECK(set_n(&f, 0) == MEGCC_E_SHAPE && set_n(&f, 17) == MEGCC_E_SHAPE && f.error.detail == 0);
    CHECK(run_dynamic(&f, 5) == MEGCC_OK); /* a miss changes nothing */

    megcc_shape shapes[2] = { { 2, { 3, 3 } }, { 1, { 7 } } };
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE && f.error.detail == 1);
    shapes[1].dims[0] = -6;
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE && f.error.detail == 1);
    shapes[0].dims[1] = 4;
    shapes[1].dims[0] = 6;
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE && f.error.detail == 0);
    shapes[0].rank = 1;
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE && f.error.detail == 0);
    shapes[0].rank = 2;
    shapes[0].dims[0] = INT32_MAX;
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE);
    CHECK(run_dynamic(&f, 5) == MEGCC_OK);

    float a[12], y[12];
    for (int i = 0; i < 12; i++)
        a[i] = (float)i;
    CHECK(set_n(&f, 4) == MEGCC_OK);
    memset(megcc_session_input(f.session, 1, NULL), 0, 32);
    CHECK(megcc_session_bind_input(f.session, 0, a, sizeof a) == MEGCC_OK);
    CHECK(megcc_session_bind_output(f.session, 0, y, sizeof y) == MEGCC_OK);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK && y[11] == 44);
    CHECK(set_n(&f, 4) == MEGCC_OK && megcc_session_input(f.session, 0, NULL) != NULL); /* bindings are dropped */
    finish(&f);
}

/* Two symbols: the input is blamed that is in no bucket, or else the last. */
static void test_pair(void)
{
    static const int32_t cases[][3] = { { 3, 4, -1 }, { 9, 5, -1 }, { 3, 9, 1 }, { 17, 3, 0 }, { 3, 17, 1 } };
    fixture f = { 0 };
    start(&f, "pair", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const megcc_shape shapes[2] = { { 1, { cases[i][0] } }, { 1, { cases[i][1] } } };
        const int32_t status = megcc_session_set_shapes(f.session, shapes, 2, &f.error);
        CHECK(cases[i][2] < 0 ? status == MEGCC_OK : status == MEGCC_E_SHAPE && f.error.detail == cases[i][2]);
    }
    finish(&f);
}

/* A state stays with other shapes of other inputs, and is refused another shape of its own. */
static void test_kept(void)
{
    fixture f = { 0 };
    megcc_shape shapes[2] = { { 1, { 4 } }, { 1, { 4 } } };
    start(&f, "kept", NULL);
    CHECK(megcc_session_reshape(f.session, shapes, 2, &f.error) == MEGCC_OK); /* there is nothing to keep yet */
    float *state = megcc_session_input(f.session, 1, NULL);
    CHECK(state[0] == 0.0f);
    state[3] = 1.0f;
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK && state[3] == 2.0f);
    shapes[0].dims[0] = 16;
    CHECK(megcc_session_reshape(f.session, shapes, 2, &f.error) == MEGCC_OK);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK && state[3] == 4.0f);
    shapes[1].dims[0] = 5;
    CHECK(megcc_session_reshape(f.session, shapes, 2, &f.error) == MEGCC_E_SHAPE);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK && state[3] == 8.0f);
    CHECK(megcc_session_set_shapes(f.session, shapes, 2, &f.error) == MEGCC_OK && state[3] == 0.0f);
    finish(&f);
}

/* Demands that no memory can meet: kernels of generated code have none, but numbers come out of arithmetic. */
static int32_t excessive; /* which demand of the kernel */
static int64_t excess;

static int32_t excessive_need(const int32_t *table, const int32_t *extent, int64_t *need)
{
    (void)table;
    for (int32_t i = 0; i < 5; i++)
        need[i] = i < 2 ? 4 * extent[0] : 0;
    need[excessive] = excess;
    return 0;
}

static void test_demands(void)
{
    static const int64_t sizes[] = { -1, (int64_t)1 << 33, MEGCC_SIZE_LIMIT };
    megcc_kernel kernels[3];
    megcc_code code = dynamic_module.code[1];
    const megcc_module module = { MEGCC_KERNEL_ABI, 1, &code };
    fixture f = { 0 };
    memcpy(kernels, code.kernel, sizeof kernels);
    kernels[0].need = excessive_need;
    code.kernel = kernels;
    load(&f, "unbounded");
    CHECK(megcc_model_open(&f.model, &module, f.file.data, f.file.size, NULL, &f.error) == MEGCC_OK);
    open_session(&f, NULL);
    for (excessive = 0; excessive < 5; excessive++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            excess = sizes[i];
            CHECK(set_n(&f, 3) == MEGCC_E_SHAPE);
        }
    finish(&f);
}

/* An allocator that counts bytes and calls. Call number `fail_at` returns NULL (0: none does), and blocks are `shift` bytes
 * off their alignment. */
typedef struct heap {
    size_t bytes;
    int calls, fail_at, shift;
} heap;

static void *resize(void *user, void *old, size_t old_bytes, size_t bytes)
{
    heap *h = user;
    if (bytes == 0) {
        h->bytes -= old_bytes;
        megcc_heap_free((char *)old - h->shift);
        return NULL;
    }
    CHECK(old == NULL && old_bytes == 0);
    if (++h->calls == h->fail_at)
        return NULL;
    h->bytes += bytes;
    return (char *)megcc_heap_get(bytes + (size_t)h->shift, 16) + h->shift;
}

static void test_unbounded(void)
{
    fixture f = { 0 };
    heap h = { 0, 0, 0, 0 };
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    options.allocator.resize = resize;
    options.allocator.user = &h;
    start(&f, "unbounded", &options);
    CHECK(set_n(&f, 2) == MEGCC_OK);
    CHECK(megcc_session_output(f.session, 0, NULL) == NULL);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_ORDER); /* no input yet */
    for (int32_t n = 1; n < 300; n = 2 * n + 1) {
        CHECK(set_n(&f, n) == MEGCC_OK);
        CHECK(run_dynamic(&f, n) == MEGCC_OK);
    }
    const int first = h.calls;
    CHECK(run_dynamic(&f, 255) == MEGCC_OK && h.calls == first + 2); /* workspace is as large as it must be, and stays */
    CHECK(set_n(&f, 0) == MEGCC_OK && run_dynamic(&f, 0) == MEGCC_OK);
    CHECK(set_n(&f, 400000) == MEGCC_E_SHAPE); /* the kernel refuses it, */
    CHECK(set_n(&f, 460000) == MEGCC_E_SHAPE); /* the shape function */
    CHECK(set_n(&f, 2) == MEGCC_OK);
    const int before = h.calls;
    float a[6] = { 0, 1, 2, 3, 4, 5 }, y[6];
    CHECK(megcc_session_bind_input(f.session, 0, a, sizeof a) == MEGCC_OK);
    CHECK(megcc_session_bind_output(f.session, 0, y, sizeof y) == MEGCC_OK);
    CHECK(megcc_session_input(f.session, 0, NULL) == NULL);
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK && y[5] == 20);
    CHECK(h.calls == before + 2); /* t and u only: everything else is there or bound */
    megcc_session_close(f.session);
    CHECK(h.bytes == 0);
    h.shift = 4; /* misaligned memory is refused and given back */
    CHECK(set_n(&f, 2) == MEGCC_OK);
    CHECK(megcc_session_input(f.session, 1, NULL) == NULL && h.bytes == 0);
    finish(&f);
    CHECK(h.bytes == 0);
}

static void test_failing_allocations(void)
{
    int failures = 0;
    for (int fail_at = 1;; fail_at++) {
        fixture f = { 0 };
        heap h = { 0, 0, fail_at, 0 };
        megcc_session_options options;
        memset(&options, 0, sizeof options);
        options.allocator.resize = resize;
        options.allocator.user = &h;
        start(&f, "unbounded", &options);
        CHECK(set_n(&f, 3) == MEGCC_OK);
        const int32_t status = run_dynamic(&f, 3);
        CHECK(status == MEGCC_OK || status == MEGCC_E_ALLOCATION);
        h.fail_at = 0;
        CHECK(run_dynamic(&f, 3) == MEGCC_OK); /* usable afterwards */
        finish(&f);
        CHECK(h.bytes == 0);
        if (status == MEGCC_OK)
            break;
        failures++;
    }
    CHECK(failures == 7); /* a, b, t, u, workspace, y, z */

    fixture f = { 0 };
    start(&f, "unbounded", NULL); /* no allocator at all */
    CHECK(set_n(&f, 3) == MEGCC_OK && run_dynamic(&f, 3) == MEGCC_E_ALLOCATION);
    finish(&f);

    megcc_session_options options;
    memset(&options, 0, sizeof options);
    load(&f, "unbounded");
    options.allocator = megcc_heap_allocator(&f.model);
    open_session(&f, &options);
    CHECK(set_n(&f, 3) == MEGCC_OK && run_dynamic(&f, 3) == MEGCC_OK);
    finish(&f);
}

/* The memory of a tensor that an instruction `move` writes. The failure is that of the allocator, as in a call. */
static void test_copy_without_memory(void)
{
    fixture f = { 0 };
    heap h = { 0, 0, 0, 0 };
    megcc_session_options options;
    float a[9] = { 1 }, y[9];
    int32_t b[6] = { 1, 2, 3, 4, 5, 6 };
    memset(&options, 0, sizeof options);
    options.allocator.resize = resize;
    options.allocator.user = &h;
    start(&f, "copying", &options);
    CHECK(set_n(&f, 3) == MEGCC_OK);
    CHECK(megcc_session_bind_input(f.session, 0, a, sizeof a) == MEGCC_OK);
    CHECK(megcc_session_bind_input(f.session, 1, b, sizeof b) == MEGCC_OK);
    CHECK(megcc_session_bind_output(f.session, 0, y, sizeof y) == MEGCC_OK);
    h.fail_at = 4; /* t, u and workspace succeed, z fails */
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_ALLOCATION);
    CHECK(f.error.instruction == 5 && f.error.detail == 3 && f.error.needed == sizeof b);
    h.fail_at = 0;
    CHECK(megcc_session_run(f.session, &f.error) == MEGCC_OK);
    CHECK(memcmp(megcc_session_output(f.session, 1, NULL), b, sizeof b) == 0);
    finish(&f);
    CHECK(h.bytes == 0);
}

static void test_memory_limit(void)
{
    fixture f = { 0 };
    heap h = { 0, 0, 0, 0 };
    megcc_session_options options;
    float a[300] = { 1 }, b[200] = { 1 };
    memset(&options, 0, sizeof options);
    options.allocator.resize = resize;
    options.allocator.user = &h;
    options.memory_limit = 1000;
    start(&f, "unbounded", &options);
    for (int round = 0; round < 2; round++) {
        CHECK(set_n(&f, 3) == MEGCC_OK && run_dynamic(&f, 3) == MEGCC_OK);
        CHECK(set_n(&f, 100) == MEGCC_OK);
        CHECK(megcc_session_bind_input(f.session, 0, a, sizeof a) == MEGCC_OK);
        CHECK(megcc_session_bind_input(f.session, 1, b, sizeof b) == MEGCC_OK);
        CHECK(megcc_session_run(f.session, &f.error) == MEGCC_E_MEMORY && f.error.needed == 1200);
        CHECK(h.bytes <= 1000);
    }
    finish(&f);
    CHECK(h.bytes == 0);

    memset(&f, 0, sizeof f);
    options.memory_limit = 100; /* each tensor has less, all have more */
    start(&f, "unbounded", &options);
    CHECK(set_n(&f, 3) == MEGCC_OK && run_dynamic(&f, 3) == MEGCC_E_MEMORY && h.bytes <= 100);
    finish(&f);
    CHECK(h.bytes == 0);
}

#else

static void test_copy_without_memory(void)
{
}

static void test_memory_limit(void)
{
}

static void test_pair(void)
{
}

static void test_small_calls(void)
{
}

static void test_kept(void)
{
}

static void test_demands(void)
{
}

static void test_buckets(void)
{
    megcc_file file;
    megcc_model model;
    megcc_error error;
    char path[1024];
    snprintf(path, sizeof path, "%s/dynamic.megcc", folder);
    CHECK(megcc_model_load_file(&model, &file, &dynamic_module, path, NULL, &error) == MEGCC_E_UNSUPPORTED);
}

static void test_unbounded(void)
{
}

static void test_failing_allocations(void)
{
}

#endif

/* --- damaged containers ---------------------------------------------------------------------------------------- */

#define LARGEST_ARENA ((size_t)1 << 20)

/* Runs a model that was opened, twice, with whatever shapes it takes; a sanitizer sees what it touches. */
static void run_damaged(fixture *f)
{
    size_t alignment, largest = megcc_model_memory(&f->model, &alignment);
    const size_t size = largest;
    megcc_session_options options;
    memset(&options, 0, sizeof options);
    for (uint32_t i = 0; i < MEGCC_MAX_REGIONS - 1; i++) {
        options.region[i].bytes = megcc_model_region(&f->model, i);
        if (options.region[i].bytes > largest)
            largest = options.region[i].bytes;
    }
    if (largest > LARGEST_ARENA)
        return;
    for (uint32_t i = 0; i < MEGCC_MAX_REGIONS - 1; i++)
        options.region[i].memory = megcc_heap_get(options.region[i].bytes, alignment);
#ifndef MEGCC_NO_DYNAMIC
    heap h = { 0, 0, 0, 0 };
    options.allocator.resize = resize;
    options.allocator.user = &h;
#endif
    volatile unsigned char sink = 0;
    options.memory_limit = LARGEST_ARENA;
    f->memory = megcc_heap_get(size, alignment);
    memset(f->memory, 0xA5, size);
    CHECK(megcc_session_open(&f->session, &f->model, f->memory, size, &options, &f->error) == MEGCC_OK);
    for (int32_t n = 3; n <= 6; n += 3) {
        megcc_tensor t;
#ifndef MEGCC_NO_DYNAMIC
        const megcc_shape shapes[2] = { { 2, { n, 3 } }, { 1, { 2 * n } } };
        if (f->model.program.symbols != 0)
            megcc_session_set_shapes(f->session, shapes, 2, &f->error);
#endif
        for (uint32_t i = 0; i < megcc_model_inputs(&f->model); i++) {
            void *data = megcc_session_input(f->session, i, &t);
            if (data != NULL)
                memset(data, 1, (size_t)t.bytes);
        }
        if (megcc_session_run(f->session, &f->error) == MEGCC_OK)
            for (uint32_t i = 0; i < megcc_model_outputs(&f->model); i++) {
                const unsigned char *data = megcc_session_output(f->session, i, &t);
                CHECK(data != NULL);
                for (uint64_t k = 0; k < t.bytes; k++)
                    sink = data[k];
            }
    }
    (void)sink;
    megcc_session_close(f->session);
    megcc_heap_free(f->memory);
    for (uint32_t i = 0; i < MEGCC_MAX_REGIONS - 1; i++)
        megcc_heap_free(options.region[i].memory);
#ifndef MEGCC_NO_DYNAMIC
    CHECK(h.bytes == 0);
#endif
}

/* Opens, and runs, a copy of the container with other bytes at a place. */
static void damage_at(const fixture *f, const megcc_module *module, unsigned char *copy, size_t at, uint32_t word,
                      size_t width)
{
    fixture damaged = { 0 };
    memcpy(copy + at, &word, width);
    const int32_t status = megcc_model_open(&damaged.model, module, copy, f->file.size, NULL, &damaged.error);
    CHECK(status == MEGCC_OK || damaged.error.status == status);
    if (status == MEGCC_OK)
        run_damaged(&damaged);
    memcpy(copy + at, (const unsigned char *)f->file.data + at, width);
}

/* Each word of a container, and each byte, becomes something else, one at a time. */
static void damage(const char *name)
{
    static const uint32_t words[] = { 0, 1, 3, 5, 9, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF };
    static const uint32_t steps[] = { 1, 2, 3, 4, 16, 96, 0u - 1, 0u - 2, 0u - 4, 0u - 16, 0u - 96 };
    static const uint32_t bytes[] = { 0, 1, 2, 3, 4, 9, 255 };
    const megcc_module *module = module_of(name);
    fixture f = { 0 };
    load(&f, name);
    const size_t size = f.file.size - f.model.weights_bytes / 64 * 64; /* weights are the end, and only data */
    unsigned char *copy = megcc_heap_get(f.file.size, 64);
    memcpy(copy, f.file.data, f.file.size);
    for (size_t at = 0; at + 4 <= size; at += 4) {
        uint32_t word;
        memcpy(&word, copy + at, 4);
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            damage_at(&f, module, copy, at, words[i], 4);
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
            damage_at(&f, module, copy, at, word + steps[i], 4);
        for (size_t i = 0; i < 4 * sizeof bytes / sizeof bytes[0]; i++)
            damage_at(&f, module, copy, at + i % 4, bytes[i / 4], 1);
    }
    megcc_heap_free(copy);
    finish(&f);
}

static void test_damaged(void)
{
    damage("static");
    damage("wide");
    damage("half");
#ifndef MEGCC_NO_REGIONS
    damage("regions");
    damage("begun_in_a_region");
#endif
#if SIZE_MAX > UINT32_MAX
    damage("large");
#endif
#ifndef MEGCC_NO_DYNAMIC
    damage("dynamic");
    damage("unbounded");
    damage("pair");
#endif
}

/* Containers that are refused for what they ask, and the field that is named; others open, and run or not. */
static void test_hostile(void)
{
    char line[256], name[64], module[64], where[64];
    snprintf(line, sizeof line, "%s/hostile.txt", folder);
    FILE *list = fopen(line, "r");
    CHECK(list != NULL);
    while (fgets(line, sizeof line, list) != NULL) {
        fixture f = { 0 };
        CHECK(sscanf(line, "%63s %63s %63s", name, module, where) == 3);
#ifdef MEGCC_NO_DYNAMIC
        if (strcmp(module, "static") != 0)
            continue;
#endif
#ifdef MEGCC_NO_REGIONS
        if (strstr(name, "region") != NULL)
            continue;
#endif
        snprintf(line, sizeof line, "%s/%s.megcc", folder, name);
        const int32_t status = megcc_model_load_file(
            &f.model, &f.file, strcmp(module, "dynamic") == 0 ? &dynamic_module : &static_module, line, NULL, &f.error);
        if ((status == MEGCC_OK) != (strcmp(where, "opens") == 0))
            fprintf(stderr, "%s: %d %s\n", name, (int)status, f.error.where != NULL ? f.error.where : "");
        CHECK((status == MEGCC_OK) == (strcmp(where, "opens") == 0));
#ifndef MEGCC_NO_STRINGS
        CHECK(status == MEGCC_OK || strcmp(f.error.where, where) == 0);
#endif
        if (status == MEGCC_OK) {
            run_damaged(&f);
            megcc_file_close(&f.file);
        }
    }
    fclose(list);
}

/* --------------------------------------------------------------------------------------------------------------- */

#define TEST(name) { #name, test_##name }
static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    TEST(run), TEST(large), TEST(describe), TEST(step), TEST(bind), TEST(state), TEST(memory), TEST(static_shapes),
    TEST(wide), TEST(half), TEST(regions), TEST(begun), TEST(open), TEST(cpu), TEST(checksum), TEST(files),
    TEST(error_text), TEST(parallel), TEST(small_calls), TEST(pool), TEST(fork), TEST(observe),
    TEST(buckets), TEST(pair), TEST(kept), TEST(demands), TEST(unbounded), TEST(failing_allocations),
    TEST(copy_without_memory), TEST(memory_limit), TEST(damaged), TEST(hostile),
};

int main(int argc, char **argv)
{
    folder = argc > 1 ? argv[1] : ".";
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc <= 2)
            puts(tests[i].name);
        for (int k = 2; k < argc; k++)
            if (strcmp(argv[k], tests[i].name) == 0 || strcmp(argv[k], "all") == 0) {
                tests[i].run();
                printf("%s passed\n", tests[i].name);
                fflush(stdout);
            }
    }
    return 0;
}
