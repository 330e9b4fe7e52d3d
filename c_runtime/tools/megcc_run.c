/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a model from the command line, for boards and emulators. Compile it with the files of a generated folder and
 * -DMEGCC_MODULE=NAME_module. Results on stdout, one a line; errors on stderr; exits with 0, 1 (failed) or 2 (usage).
 */
#if defined(__unix__) || defined(__APPLE__) || defined(__wasi__)
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "megcc.h"

#ifndef MEGCC_MODULE
#error "say which model: -DMEGCC_MODULE=NAME_module"
#endif

extern const megcc_module MEGCC_MODULE;

#define TEXT_OF(macro) #macro
#define TEXT(macro) TEXT_OF(macro)
#define MAX_PORTS 64

static const char usage[] =
    "megcc_run [--model FILE] [--input NAME=FILE]... [--output NAME=FILE]... [--shape NAME=1,3,224,224]...\n"
    "          [--repeat N] [--warmup N] [--threads N] [--cpu ISA] [--profile] [--times] [--info] [--check] [--mark]\n"
    "  --model    the container; default: NAME.megcc in the current folder\n"
    "  --input    raw little-endian values; inputs that are not given are zero\n"
    "  --repeat   timed runs (default 1), after --warmup others (default 0)\n"
    "  --cpu      MEGCC_ISA_* to assume instead of asking the CPU\n"
    "  --profile  also prints the time of every instruction\n"
    "  --times    also prints the time of every run\n"
    "  --info     prints what the model is and ends\n"
    "  --check    compares the checksum of the weights first\n"
    "  --mark     calls close(0x5eed0001) before the timed runs, close(0x5eed0000) after: for instruction counters\n";

typedef struct named {
    const char *name, *value;
} named;

typedef struct request {
    const char *model;
    named inputs[MAX_PORTS], outputs[MAX_PORTS], shapes[MAX_PORTS];
    size_t input_count, output_count, shape_count;
    int32_t repeat, warmup, threads;
    uint32_t cpu;
    int profile, times, info, check, mark;
} request;

static int fail(const char *what, const char *which)
{
    fprintf(stderr, "megcc_run: %s%s%s\n", what, which[0] != '\0' ? ": " : "", which);
    return 1;
}

static int fail_with(const megcc_error *error)
{
#ifndef MEGCC_NO_STRINGS
    char text[256];
    return fail(megcc_error_text(error, text, sizeof text), "");
#else
    fprintf(stderr, "megcc_run: status 0x%02x\n", (unsigned)error->status);
    return 1;
#endif
}

/* --- arguments ------------------------------------------------------------------------------------------------- */

/* Splits NAME=VALUE at the last '=' and appends it. */
static int add_named(named *list, size_t *count, char *text)
{
    char *equals = strrchr(text, '=');
    if (equals == NULL || *count == MAX_PORTS)
        return 0;
    *equals = '\0';
    list[*count].name = text;
    list[*count].value = equals + 1;
    ++*count;
    return 1;
}

static int parse_count(const char *text, long least, int32_t *result)
{
    char *end;
    const long value = strtol(text, &end, 10);
    *result = (int32_t)value;
    return *end == '\0' && end != text && value >= least && value <= 1000000;
}

/* Parses the arguments. Returns 0 if they are invalid. */
static int parse(int argc, char **argv, request *r)
{
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(option, "--profile") == 0)
            r->profile = 1;
        else if (strcmp(option, "--times") == 0)
            r->times = 1;
        else if (strcmp(option, "--info") == 0)
            r->info = 1;
        else if (strcmp(option, "--check") == 0)
            r->check = 1;
        else if (strcmp(option, "--mark") == 0)
            r->mark = 1;
        else if (value == NULL)
            return 0;
        else {
            i++;
            int ok = 1;
            if (strcmp(option, "--model") == 0)
                r->model = value;
            else if (strcmp(option, "--input") == 0)
                ok = add_named(r->inputs, &r->input_count, value);
            else if (strcmp(option, "--output") == 0)
                ok = add_named(r->outputs, &r->output_count, value);
            else if (strcmp(option, "--shape") == 0)
                ok = add_named(r->shapes, &r->shape_count, value);
            else if (strcmp(option, "--repeat") == 0)
                ok = parse_count(value, 1, &r->repeat);
            else if (strcmp(option, "--warmup") == 0)
                ok = parse_count(value, 0, &r->warmup);
            else if (strcmp(option, "--threads") == 0)
                ok = parse_count(value, 1, &r->threads);
            else if (strcmp(option, "--cpu") == 0)
                r->cpu = (uint32_t)strtoul(value, NULL, 0);
            else
                ok = 0;
            if (!ok)
                return 0;
        }
    }
    return 1;
}

static const char *find(const named *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    return NULL;
}

/* The first name in the list that the model does not have; NULL if there is none. */
static const char *unknown_name(const megcc_model *model, const named *list, size_t count,
                                uint32_t ports, int32_t (*describe)(const megcc_model *, uint32_t, megcc_tensor *))
{
    for (size_t i = 0; i < count; i++) {
        uint32_t port = 0;
        megcc_tensor tensor;
        while (port < ports && (describe(model, port, &tensor), strcmp(tensor.name, list[i].name) != 0))
            port++;
        if (port == ports)
            return list[i].name;
    }
    return NULL;
}

/* --- printing -------------------------------------------------------------------------------------------------- */

static void print_tensor(const char *what, uint32_t index, const megcc_tensor *tensor)
{
    static const char dtypes[][16] = { "float32", "float16", "float64", "int8", "uint8", "int16", "uint16", "int32",
                                      "uint32", "int64", "uint64", "bool", "bfloat16", "float8_e4m3fn",
                                      "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
                                      "float4_e2m1fn", "int4", "uint4", "int2", "uint2" };
    static const char layouts[][6] = { "plain", "nhwc", "nchwc" };
    printf("%s %u %s [", what, (unsigned)index, dtypes[tensor->dtype]);
    for (int axis = 0; axis < tensor->rank; axis++)
        printf("%s%d", axis ? "," : "", (int)tensor->dims[axis]);
    printf("] %s %llu %s\n", layouts[tensor->layout], (unsigned long long)tensor->bytes, tensor->name);
}

static void print_info(const megcc_model *model)
{
    const megcc_program *p = &model->program;
    size_t alignment;
    const size_t memory = megcc_model_memory(model, &alignment);
    megcc_tensor tensor;
    printf("model %s\nisa 0x%08x\nworkers %u\nmemory %llu\nalignment %llu\narena %u\nweights %llu\ninstructions %u\n",
           model->name, (unsigned)p->isa, (unsigned)p->workers, (unsigned long long)memory,
           (unsigned long long)alignment, (unsigned)p->arena_bytes, (unsigned long long)model->weights_bytes,
           (unsigned)p->rows[MEGCC_INSTRUCTIONS].count);
    for (uint32_t i = 0; megcc_model_input(model, i, &tensor) == MEGCC_OK; i++)
        print_tensor("input", i, &tensor);
    for (uint32_t i = 0; megcc_model_output(model, i, &tensor) == MEGCC_OK; i++)
        print_tensor("output", i, &tensor);
}

/* --- time ------------------------------------------------------------------------------------------------------ */

static double now_us(void)
{
#if defined(CLOCK_MONOTONIC) && (defined(__unix__) || defined(__APPLE__) || defined(__wasi__))
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
#else
    return (double)clock() * (1e6 / CLOCKS_PER_SEC);
#endif
}

/* Makes a system call that a tool which counts instructions can see in the trace: close() of a file that cannot exist. phase:
 * 1 before the timed runs, 0 after them. */
static void mark(const request *r, int phase)
{
#if defined(__unix__) || defined(__APPLE__)
    if (r->mark)
        close(0x5eed0000 | phase);
#else
    (void)r;
    (void)phase;
#endif
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(double *times, int32_t count)
{
    qsort(times, (size_t)count, sizeof *times, ascending);
    printf("median_us %.3f min_us %.3f", (times[(count - 1) / 2] + times[count / 2]) / 2, times[0]);
}

/* The user data of `observe`: times[instruction * repeat + run] in microseconds; begin: of the instruction that runs; run:
 * -1 while runs are not timed. */
typedef struct profile {
    double *times, begin;
    int32_t repeat, run;
} profile;

static int32_t observe(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    profile *p = user;
    (void)session;
    if (p->run < 0)
        return 0;
    if (after)
        p->times[(size_t)instruction * (size_t)p->repeat + (size_t)p->run] = now_us() - p->begin;
    else
        p->begin = now_us();
    return 0;
}

/* --- running --------------------------------------------------------------------------------------------------- */

static int parse_shape(const char *text, megcc_shape *shape)
{
    shape->rank = 0;
    while (*text != '\0' && shape->rank < MEGCC_MAX_RANK) {
        char *end;
        shape->dims[shape->rank++] = (int32_t)strtol(text, &end, 10);
        if (end == text || (*end != ',' && *end != '\0'))
            return 0;
        text = *end == ',' ? end + 1 : end;
    }
    return *text == '\0';
}

/* Sets the shapes of the inputs. Inputs without a shape on the command line keep the model's. */
static int set_shapes(const request *r, const megcc_model *model, megcc_session *session)
{
    megcc_shape shapes[MAX_PORTS];
    megcc_tensor tensor;
    megcc_error error;
    uint32_t count = 0;
    for (; count < MAX_PORTS && megcc_model_input(model, count, &tensor) == MEGCC_OK; count++) {
        const char *text = find(r->shapes, r->shape_count, tensor.name);
        shapes[count].rank = tensor.rank;
        memcpy(shapes[count].dims, tensor.dims, sizeof tensor.dims);
        if (text != NULL && !parse_shape(text, &shapes[count]))
            return fail("this is no list of dimensions", text);
    }
    return megcc_session_set_shapes(session, shapes, count, &error) == MEGCC_OK ? 0 : fail_with(&error);
}

static int read_file(const char *path, void *data, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    const int complete = file != NULL && fread(data, 1, bytes, file) == bytes && fgetc(file) == EOF;
    if (file != NULL)
        fclose(file);
    return complete;
}

/* Binds every input to a buffer with its file's bytes or zeros, so that all runs see the same. */
static int load_inputs(const request *r, megcc_session *session, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        megcc_tensor tensor;
        void *place = megcc_session_input(session, i, &tensor);
        void *data = megcc_heap_get((size_t)tensor.bytes, 64);
        const char *path = find(r->inputs, r->input_count, tensor.name);
        if (data == NULL)
            return fail("not enough memory for input", tensor.name);
        memset(data, 0, (size_t)tensor.bytes);
        if (path != NULL && !read_file(path, data, (size_t)tensor.bytes)) {
            fprintf(stderr, "megcc_run: cannot read %s, or it does not have the %llu bytes of input %s\n", path,
                    (unsigned long long)tensor.bytes, tensor.name);
            return 1;
        }
        if (megcc_session_bind_input(session, i, data, (size_t)tensor.bytes) != MEGCC_OK)
            memcpy(place, data, (size_t)tensor.bytes); /* a state, which starts with these values */
    }
    return 0;
}

static int save_outputs(const request *r, megcc_session *session, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        megcc_tensor tensor;
        const void *data = megcc_session_output(session, i, &tensor);
        const char *path = find(r->outputs, r->output_count, tensor.name);
        print_tensor("output", i, &tensor);
        if (path == NULL)
            continue;
        if (data == NULL)
            return fail("this output has no memory", tensor.name);
        FILE *file = fopen(path, "wb");
        const int written = file != NULL && fwrite(data, 1, (size_t)tensor.bytes, file) == tensor.bytes;
        if (file == NULL || fclose(file) != 0 || !written)
            return fail("cannot write", path);
    }
    return 0;
}

static int run(const request *r, const megcc_model *model, megcc_session *session, profile *p)
{
    const uint32_t instructions = model->program.rows[MEGCC_INSTRUCTIONS].count;
    double *times = calloc((size_t)r->repeat, sizeof *times);
    megcc_error error;
    if (times == NULL)
        return fail("not enough memory", "");
    if (set_shapes(r, model, session) || load_inputs(r, session, megcc_model_inputs(model)))
        return 1;
    p->run = -1;
    for (int32_t i = 0; i < r->warmup; i++)
        if (megcc_session_run(session, &error) != MEGCC_OK)
            return fail_with(&error);
    mark(r, 1);
    for (int32_t i = 0; i < r->repeat; i++) {
        p->run = i;
        const double begin = now_us();
        if (megcc_session_run(session, &error) != MEGCC_OK)
            return fail_with(&error);
        times[i] = now_us() - begin;
    }
    mark(r, 0);
    if (save_outputs(r, session, megcc_model_outputs(model)))
        return 1;
    for (int32_t i = 0; r->times && i < r->repeat; i++) /* before print_times() sorts them */
        printf("time_us %.3f\n", times[i]);
    printf("run ");
    print_times(times, r->repeat);
    printf(" repeat %d\n", (int)r->repeat);
    for (uint32_t i = 0; r->profile && i < instructions; i++) {
        printf("instruction %u ", (unsigned)i);
        print_times(p->times + (size_t)i * (size_t)r->repeat, r->repeat);
        printf(" %s\n", megcc_session_kernel(session, i));
    }
    free(times);
    return 0;
}

static int open_and_run(const request *r, const megcc_model *model)
{
    megcc_session_options options;
    megcc_session *session;
    megcc_error error;
    size_t alignment;
    const size_t size = megcc_model_memory(model, &alignment);
    void *memory = megcc_heap_get(size, alignment);
    profile p = { NULL, 0, r->repeat, -1 };
    if (memory == NULL)
        return fail("not enough memory for the session", "");

    memset(&options, 0, sizeof options);
    options.allocator = megcc_heap_allocator(model);
    if (r->profile) {
        const size_t instructions = model->program.rows[MEGCC_INSTRUCTIONS].count;
        p.times = calloc(instructions * (size_t)r->repeat + 1, sizeof *p.times);
        if (p.times == NULL)
            return fail("not enough memory for the profile", "");
        options.observer.observe = observe;
        options.observer.user = &p;
    }
#ifndef MEGCC_NO_THREADS
    megcc_pool *pool = NULL;
    if (r->threads > 1) {
        const size_t bytes = megcc_pool_bytes(r->threads);
        if (megcc_pool_open(&pool, megcc_heap_get(bytes, 0), bytes, r->threads) != MEGCC_OK)
            return fail("cannot make the threads", "");
        options.parallel = megcc_pool_parallel(pool);
    }
#else
    if (r->threads > 1)
        return fail("built without threads", "");
#endif
    if (megcc_session_open(&session, model, memory, size, &options, &error) != MEGCC_OK)
        return fail_with(&error);
    const int result = run(r, model, session, &p);
    megcc_session_close(session);
#ifndef MEGCC_NO_THREADS
    if (pool != NULL)
        megcc_pool_close(pool);
#endif
    free(p.times);
    megcc_heap_free(memory);
    return result;
}

int main(int argc, char **argv)
{
    static request r; /* large for a small stack */
    r.repeat = 1;
    r.threads = 1;
    if (!parse(argc, argv, &r)) {
        fputs(usage, stderr);
        return 2;
    }
    char name[256] = TEXT(MEGCC_MODULE);
    const size_t length = strlen(name), suffix = strlen("_module");
    if (length > suffix && strcmp(name + length - suffix, "_module") == 0)
        memcpy(name + length - suffix, ".megcc", sizeof ".megcc");
    const char *path = r.model != NULL ? r.model : name;

    static megcc_model model;
    megcc_file file;
    megcc_error error;
    const megcc_model_options options = { r.cpu };
    if (megcc_model_load_file(&model, &file, &MEGCC_MODULE, path, &options, &error) != MEGCC_OK) {
        fprintf(stderr, "megcc_run: %s\n", path);
        return fail_with(&error);
    }
    if (r.check && megcc_model_check(&model, &error) != MEGCC_OK)
        return fail_with(&error);
    const uint32_t inputs = megcc_model_inputs(&model), outputs = megcc_model_outputs(&model);
    const char *unknown = unknown_name(&model, r.inputs, r.input_count, inputs, megcc_model_input);
    if (unknown == NULL)
        unknown = unknown_name(&model, r.shapes, r.shape_count, inputs, megcc_model_input);
    if (unknown == NULL)
        unknown = unknown_name(&model, r.outputs, r.output_count, outputs, megcc_model_output);
    if (unknown != NULL)
        return fail("the model has no such input or output", unknown);

    if (r.info)
        print_info(&model);
    const int result = r.info ? 0 : open_and_run(&r, &model);
    megcc_file_close(&file);
    return result;
}
