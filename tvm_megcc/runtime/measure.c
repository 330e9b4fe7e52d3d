/* SPDX-License-Identifier: Apache-2.0
 *
 * Times one call of one kernel: as a function of TVM's FFI in a shared library, for RPC servers, and as a program from
 * standard input to standard output. "kernels_to_measure.h" declares the kernels and lists them in `kernels`.
 *
 * A job is a `head`, the int32 extents, the int64 byte counts of inputs then outputs, the int32 number of copies of each
 * input, and the bytes of the inputs; a result is a `tail`, the nanoseconds of a call in each repeat as doubles, and the
 * bytes of the outputs.
 *
 * Every call reads the next copies of its inputs. So a weight comes from the same cache or memory as in a network, which
 * reads all other weights between two reads of one.
 */
#define _POSIX_C_SOURCE 200112L
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ffi_entry.h"
#include "internal.h"
#include "kernels_to_measure.h"

enum { MAX_EXTENTS = 64, MAX_OUTPUTS = 16, GUARD = 64, ALIGNMENT = 64 };
/* The status of a measurement; runtime/timing.py has the messages. */
enum { MEASURED, MALFORMED, NO_MEMORY, WRONG_CPU, CRASHED };

typedef struct head {
    int32_t kernel, isa, extents, inputs, outputs, tasks, repeats;
    int32_t min_repeat_us;      /* a repeat consists of as many calls as take this long */
    int32_t max_total_us;       /* no further repeat begins after this time */
    int32_t warm_up_us;         /* the duration of the calls before the first repeat; at least one call */
    int64_t shared, scratch;    /* bytes */
} head;

typedef struct tail {
    int32_t status;             /* of the kernel: 0, or a megcc_status */
    int32_t repeats;            /* the number of repeats that were measured */
    int32_t overrun;            /* 1: the kernel wrote outside its outputs or its workspace */
    int32_t zero;               /* padding */
} tail;

/* A block of memory between guard bytes, by which writes outside it are found. */
typedef struct block {
    unsigned char *whole, *data;
    size_t bytes;
} block;

static int get_block(block *b, size_t bytes)
{
    b->bytes = bytes;
    b->whole = malloc(bytes + 2 * GUARD + ALIGNMENT);
    if (b->whole == NULL)
        return 0;
    b->data = b->whole + GUARD + (ALIGNMENT - (uintptr_t)(b->whole + GUARD) % ALIGNMENT) % ALIGNMENT;
    memset(b->data - GUARD, 0xA5, bytes + 2 * GUARD);
    return 1;
}

static int is_intact(const block *b)
{
    for (size_t i = 0; i < GUARD; i++)
        if (b->data[-1 - (ptrdiff_t)i] != 0xA5 || b->data[b->bytes + i] != 0xA5)
            return 0;
    return 1;
}

/* Equal copies of an input at a distance of `step` bytes: the addresses of the first and the last one. */
typedef struct copies {
    const unsigned char *first, *end;
    size_t step;
} copies;

static int get_copies(block *b, copies *c, const unsigned char *data, size_t bytes, int32_t count)
{
    c->step = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (c->step < bytes || (c->step > 0 && (size_t)count - 1 > (SIZE_MAX / 2 - bytes) / c->step))
        return 0;
    if (!get_block(b, (size_t)(count - 1) * c->step + bytes))
        return 0;
    for (int32_t i = 0; i < count; i++)
        memcpy(b->data + (size_t)i * c->step, data, bytes);
    c->first = b->data;
    c->end = b->data + (size_t)(count - 1) * c->step;
    return 1;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* A kernel that crashes ends its measurement, not the server. The system sends such a signal to the thread that caused
 * it. */
static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
enum { CRASHES = sizeof crashes / sizeof *crashes };
static sigjmp_buf before_kernel;

static void on_crash(int signal)
{
    siglongjmp(before_kernel, signal);
}

static void catch_crashes(struct sigaction *old)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_crash;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < CRASHES; i++)
        sigaction(crashes[i], &action, &old[i]);
}

static void release_crashes(const struct sigaction *old)
{
    for (int i = 0; i < CRASHES; i++)
        sigaction(crashes[i], &old[i], NULL);
}

/* A call, the pointers to its inputs, which change from call to call, the copies that they point to, and its scratch. */
typedef struct timed {
    megcc_call call;
    const void **in;
    const copies *from;
    void *scratch;
} timed;

static int32_t run_once(const head *h, const timed *t)
{
    const int32_t status = kernels[h->kernel](&t->call, 0, h->tasks, t->scratch);
    for (int32_t i = 0; i < h->inputs; i++) {
        const unsigned char *now = t->in[i];
        t->in[i] = now == t->from[i].end ? t->from[i].first : now + t->from[i].step;
    }
    return status;
}

/* Measures the nanoseconds of a call in each repeat, after a warm-up that brings the caches into the state in which they
 * are while a network runs repeatedly. */
static void repeat(const head *h, const timed *t, tail *result, double *ns)
{
    const double start = now_ns();
    result->status = run_once(h, t);
    if (result->status != 0)
        return;
    int32_t warm = 1;
    for (; now_ns() - start < 1e3 * (double)h->warm_up_us; warm++)
        run_once(h, t);
    const double once = (now_ns() - start + 1.0) / warm;
    const double needed_calls = 1e3 * (double)h->min_repeat_us / once;
    const int32_t calls = needed_calls < 1.0 ? 1 : needed_calls > 1e6 ? 1000000 : (int32_t)needed_calls;
    while (result->repeats < h->repeats) {
        const double begin = now_ns();
        for (int32_t i = 0; i < calls; i++)
            run_once(h, t);
        ns[result->repeats++] = (now_ns() - begin) / calls;
        if (now_ns() - start > 1e3 * (double)h->max_total_us)
            break;
    }
}

static int fits_cpu(uint32_t isa)
{
    const uint32_t own = megcc_cpu();
    return MEGCC_RUNS_ON(isa, own);
}

/* Blocks: inputs, outputs, shared workspace, scratch. */
static int run(const head *h, const unsigned char *job, const unsigned char *end, unsigned char *result,
               size_t result_bytes, block *blocks)
{
    const int32_t operands = h->inputs + h->outputs;
    int32_t extent[MAX_EXTENTS];
    const void *in[MEGCC_MAX_OPERANDS];
    void *out[MAX_OUTPUTS];
    int64_t bytes[MEGCC_MAX_OPERANDS + 2];
    int32_t count[MEGCC_MAX_OPERANDS];
    copies from[MEGCC_MAX_OPERANDS];
    const size_t extent_bytes = sizeof *extent * (size_t)h->extents, size_bytes = sizeof *bytes * (size_t)operands;
    const size_t count_bytes = sizeof *count * (size_t)h->inputs;
    if ((size_t)(end - job) < extent_bytes + size_bytes + count_bytes)
        return MALFORMED;
    memcpy(extent, job, extent_bytes);
    memcpy(bytes, job + extent_bytes, size_bytes);
    memcpy(count, job + extent_bytes + size_bytes, count_bytes);
    job += extent_bytes + size_bytes + count_bytes;
    bytes[operands] = h->shared;
    bytes[operands + 1] = h->scratch;
    for (int32_t i = 0; i < operands + 2; i++) {
        if (bytes[i] < 0)
            return MALFORMED;
        if (i < h->inputs) {
            if (end - job < bytes[i] || count[i] < 1)
                return MALFORMED;
            if (!get_copies(&blocks[i], &from[i], job, (size_t)bytes[i], count[i]))
                return NO_MEMORY;
            job += bytes[i];
            in[i] = from[i].first;
        } else if (!get_block(&blocks[i], (size_t)bytes[i])) {
            return NO_MEMORY;
        } else if (i < operands) {
            out[i - h->inputs] = blocks[i].data;
        }
    }

    tail done = { 0, 0, 0, 0 };
    double *ns = calloc((size_t)h->repeats, sizeof *ns);
    if (ns == NULL)
        return NO_MEMORY;
    const timed call = { { in, out, extent, blocks[operands].data }, in, from, blocks[operands + 1].data };
    struct sigaction old[CRASHES];
    catch_crashes(old);
    const int crashed = sigsetjmp(before_kernel, 1);
    if (!crashed)
        repeat(h, &call, &done, ns);
    release_crashes(old);
    if (crashed) {
        free(ns);
        return CRASHED;
    }
    for (int32_t i = 0; i < operands + 2; i++)
        done.overrun |= !is_intact(&blocks[i]);

    size_t needed = sizeof done + sizeof *ns * (size_t)h->repeats;
    for (int32_t i = h->inputs; i < operands; i++)
        needed += blocks[i].bytes;
    const int fits = needed == result_bytes;
    if (fits) {
        memcpy(result, &done, sizeof done);
        memcpy(result + sizeof done, ns, sizeof *ns * (size_t)h->repeats);
        result += sizeof done + sizeof *ns * (size_t)h->repeats;
        for (int32_t i = h->inputs; i < operands; result += blocks[i++].bytes)
            memcpy(result, blocks[i].data, blocks[i].bytes);
    }
    free(ns);
    return fits ? MEASURED : MALFORMED;
}

static int measure(const unsigned char *job, size_t job_bytes, unsigned char *result, size_t result_bytes)
{
    head h;
    if (job_bytes < sizeof h)
        return MALFORMED;
    memcpy(&h, job, sizeof h);
    if (h.kernel < 0 || h.kernel >= (int32_t)(sizeof kernels / sizeof *kernels) || h.extents < 0
        || h.extents > MAX_EXTENTS || h.inputs < 0 || h.outputs < 0 || h.outputs > MAX_OUTPUTS
        || h.inputs + h.outputs > MEGCC_MAX_OPERANDS || h.repeats < 1)
        return MALFORMED;
    if (!fits_cpu((uint32_t)h.isa))
        return WRONG_CPU;
    block blocks[MEGCC_MAX_OPERANDS + 2];
    memset(blocks, 0, sizeof blocks);
    const int status = run(&h, job + sizeof h, job + job_bytes, result, result_bytes, blocks);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i].whole);
    return status;
}

static int32_t measure_call(const ffi_span *arguments)
{
    return measure(arguments[0].data, (size_t)arguments[0].bytes, arguments[1].data, (size_t)arguments[1].bytes);
}

/* (job, result) -> status */
FFI_FUNCTION(megcc_measure, measure_call, 2)

#ifdef MEGCC_MEASURE_PROGRAM
/* Standard input: int64 byte counts of job and result, then the job. Standard output: int32 status, then the result. */
int main(void)
{
    int64_t sizes[2];
    while (fread(sizes, sizeof sizes, 1, stdin) == 1) {
        unsigned char *job = malloc((size_t)sizes[0]), *result = calloc((size_t)sizes[1], 1);
        if (job == NULL || result == NULL || fread(job, 1, (size_t)sizes[0], stdin) != (size_t)sizes[0])
            return 1;
        const int32_t status = measure(job, (size_t)sizes[0], result, (size_t)sizes[1]);
        fwrite(&status, sizeof status, 1, stdout);
        fwrite(result, 1, (size_t)sizes[1], stdout);
        fflush(stdout);
        free(job);
        free(result);
    }
    return 0;
}
#endif
