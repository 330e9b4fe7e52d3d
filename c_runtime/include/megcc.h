/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a compiled model.
 *
 *     megcc_model model;                             // yours, a fixed size; read-only after opening, shared by threads
 *     megcc_model_open(&model, &NAME_module, data, size, NULL, &error);
 *     megcc_session *session;                        // one a thread, lives in the memory that you give
 *     megcc_session_open(&session, &model, memory, sizeof memory, NULL, &error);
 *     memcpy(megcc_session_input(session, 0, NULL), image, sizeof image);
 *     megcc_session_run(session, &error);
 *     const float *scores = megcc_session_output(session, 0, NULL);
 *
 * Nothing is copied and nothing is allocated: `data` and the memory of a session must outlive their users. There are
 * no globals. Functions that return int32_t return a status, 0 for success. `error` and `options` may be NULL; options
 * that are all zero are the defaults.
 *
 * Switches for the C files (use the same for all): MEGCC_NO_STRINGS leaves out error messages and kernel names,
 * MEGCC_NO_DYNAMIC dynamic shapes, MEGCC_NO_THREADS the use of the parallel hook, MEGCC_NO_CPU_DETECT CPU
 * detection, MEGCC_NO_REGIONS memory in several blocks, MEGCC_NO_STDIO the functions at the end that use files and the
 * heap, MEGCC_NO_EXTENTS kernels that get extents at run time, MEGCC_NO_CALLBACKS the fields of the session's options for
 * the parallel hook, the observer and the allocator (it requires MEGCC_NO_DYNAMIC and MEGCC_NO_THREADS).
 * MEGCC_TRUSTED_DATA leaves out the checks of containers: only for containers that are constants of the program, never
 * for those from a file or a network.
 */
#ifndef MEGCC_H
#define MEGCC_H

#include "megcc_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(MEGCC_NO_CALLBACKS) && !(defined(MEGCC_NO_DYNAMIC) && defined(MEGCC_NO_THREADS))
#error "MEGCC_NO_CALLBACKS needs MEGCC_NO_DYNAMIC and MEGCC_NO_THREADS"
#endif

#define MEGCC_API 2u
#define MEGCC_MAX_RANK 8
#define MEGCC_MAX_REGIONS 4
#define MEGCC_NONE 0xFFFFFFFFu

/* --- status -------------------------------------------------------------------------------------------------- */

enum {
    MEGCC_OK = 0,
    MEGCC_MORE = 1,             /* megcc_session_step: instructions remain */
    /* the caller */
    MEGCC_E_ARGUMENT = 0x10,    /* an argument is NULL, out of range, too small or misaligned */
    MEGCC_E_SHAPE = 0x11,       /* the model was not compiled for these input shapes, or for a computed extent */
    MEGCC_E_ORDER = 0x12,       /* too early: shapes are not set yet, or an input has no data */
    MEGCC_E_VERSION = 0x13,     /* header, library and kernels have different versions or switches */
    /* the container */
    MEGCC_E_FORMAT = 0x20,      /* no container, or one of another format */
    MEGCC_E_CORRUPT = 0x21,     /* damaged: `where` names the field, `detail` the row */
    MEGCC_E_CODE = 0x22,        /* made for other code, or for other CPUs than this one */
    MEGCC_E_SIGNATURE = 0x23,   /* a call does not fit its kernel */
    MEGCC_E_CHECKSUM = 0x24,    /* the weights are damaged */
    MEGCC_E_UNSUPPORTED = 0x25, /* needs something that this build of the runtime leaves out */
    MEGCC_E_UNTRUSTED = 0x26,   /* megcc_signed.h: not signed with this key, or not for this product */
    /* resources */
    MEGCC_E_MEMORY = 0x30,      /* the session's memory is too small or misaligned, see `needed`; or memory_limit is reached */
    MEGCC_E_ALLOCATION = 0x31,  /* the allocator returned NULL, or there is none */
    MEGCC_E_FILE = 0x32,        /* the file cannot be read */
    MEGCC_E_THREADS = 0x33,     /* threads cannot be created or break their contract; `needed`: most threads */
    /* execution */
    MEGCC_E_CANCELLED = 0x40,   /* by the observer or by iteration_limit */
    MEGCC_E_KERNEL = 0x41       /* a kernel rejected the values of its operands; `detail` is what it returned */
};

typedef struct megcc_error {
    int32_t status;
    uint32_t instruction;       /* MEGCC_NONE: none in particular */
    const char *where;          /* argument or field of schema/megcc.fbs; NULL: unknown, or MEGCC_NO_STRINGS */
    int64_t detail;             /* the row of that field, the index of that argument, or the value that is wrong */
    uint64_t needed;            /* sufficient bytes, alignment or count; 0: does not apply */
} megcc_error;

#ifndef MEGCC_NO_STRINGS
/* Writes one line without '\n', cut to `size` with its '\0', and returns `buffer`. */
const char *megcc_error_text(const megcc_error *error, char *buffer, size_t size);
#endif

/* --- tensors ------------------------------------------------------------------------------------------------- */

/* As DType and LayoutKind in schema/megcc.fbs. */
enum {
    MEGCC_FLOAT32, MEGCC_FLOAT16, MEGCC_FLOAT64, MEGCC_INT8, MEGCC_UINT8, MEGCC_INT16, MEGCC_UINT16, MEGCC_INT32,
    MEGCC_UINT32, MEGCC_INT64, MEGCC_UINT64, MEGCC_BOOL,
    /* elements of fewer than 8 bits have a byte each and lie in its low bits */
    MEGCC_BFLOAT16, MEGCC_FLOAT8_E4M3FN, MEGCC_FLOAT8_E4M3FNUZ, MEGCC_FLOAT8_E5M2, MEGCC_FLOAT8_E5M2FNUZ,
    MEGCC_FLOAT8_E8M0FNU, MEGCC_FLOAT4_E2M1FN, MEGCC_INT4, MEGCC_UINT4, MEGCC_INT2, MEGCC_UINT2
};
enum { MEGCC_PLAIN, MEGCC_NHWC, MEGCC_NCHWC };

/* real = scale * (integer - zero_point) */
typedef struct megcc_quant {
    float scale;
    int32_t zero_point;
} megcc_quant;

/* The description of a tensor. Pointers point into the container. */
typedef struct megcc_tensor {
    const char *name;           /* "" if it has none */
    uint8_t dtype, layout, rank;
    uint8_t block;              /* channels in a block of MEGCC_NCHWC, otherwise 0 */
    int32_t dims[MEGCC_MAX_RANK]; /* in the model's order, whatever the layout; -1: unknown before set_shapes or, if a
                                 * run computes it, before that run */
    uint64_t bytes;             /* 0 while a dimension is unknown */
    const megcc_quant *quant;   /* NULL: not quantised */
    uint32_t quants;            /* number of entries: 1, or the extent of `quant_axis` */
    int32_t quant_axis;         /* -1: one entry for all */
} megcc_tensor;

/* --- model --------------------------------------------------------------------------------------------------- */

typedef struct megcc_model_options {
    uint32_t cpu;               /* MEGCC_ISA_* to assume; 0: ask the CPU */
} megcc_model_options;

/* Vectors of a program, in the order of the schema. */
enum {
    MEGCC_TENSORS, MEGCC_EXTENTS, MEGCC_OPERANDS, MEGCC_INSTRUCTIONS, MEGCC_INPUTS, MEGCC_OUTPUTS, MEGCC_STATES,
    MEGCC_QUANTS, MEGCC_QUANT_DATA, MEGCC_NAMES, MEGCC_DEVICE_MODELS, MEGCC_PROGRAM_VECTORS
};

typedef struct megcc_rows {
    const uint8_t *data;
    uint32_t count;
} megcc_rows;

/* The program in a container that this CPU runs. */
typedef struct megcc_program {
    const megcc_code *code;
    uint32_t isa, alignment, workers;
    uint32_t symbols, values;   /* of the shape function: its arguments and its results */
    uint32_t operands;          /* most operands of an instruction */
    uint32_t unbacked_symbols;  /* the number of symbols, the last ones, whose values a run computes */
    uint32_t unbounded;         /* number of tensors without an offset in the arena */
    uint32_t arena_bytes;       /* in the session's own memory, for the bucket of input shapes that needs most */
    megcc_rows rows[MEGCC_PROGRAM_VECTORS];
} megcc_program;

/* Read what you like, write nothing. */
typedef struct megcc_model {
    const char *name;
    const uint8_t *data;        /* the container */
    uint32_t size;              /* without weights that lie after it */
#if SIZE_MAX > UINT32_MAX
    uint32_t weight_unit;       /* unit of Tensor.data of a weight, in bytes */
#endif
    const uint8_t *weights;
    size_t weights_bytes;
    uint32_t weights_crc;
    uint64_t id;
    megcc_program program;
} megcc_model;

/* Checks the part of the container that this CPU runs, except for the values of its weights. The time is microseconds,
 * and at most proportional to `size`. `data` must be aligned as the generated header says, and must not change. After a
 * failure the model is not usable. */
int32_t megcc_model_open_version(uint32_t api, megcc_model *model, const megcc_module *module, const void *data,
                                 size_t size, const megcc_model_options *options, megcc_error *error);

static inline int32_t megcc_model_open(megcc_model *model, const megcc_module *module, const void *data, size_t size,
                                       const megcc_model_options *options, megcc_error *error)
{
    return megcc_model_open_version(MEGCC_API, model, module, data, size, options, error);
}

/* Compares the CRC-32 of the weights, which reads all of them. */
int32_t megcc_model_check(const megcc_model *model, megcc_error *error);

/* Returns the bytes that a session needs, and their alignment. */
size_t megcc_model_memory(const megcc_model *model, size_t *alignment);

/* Returns the bytes of block `index` of additional memory that a session needs, with the same alignment, if the model
 * was compiled for several regions of memory; 0: none. */
size_t megcc_model_region(const megcc_model *model, uint32_t index);

uint32_t megcc_model_inputs(const megcc_model *model);
uint32_t megcc_model_outputs(const megcc_model *model);
int32_t megcc_model_input(const megcc_model *model, uint32_t index, megcc_tensor *tensor);
int32_t megcc_model_output(const megcc_model *model, uint32_t index, megcc_tensor *tensor);

/* The result of megcc_model_memory() as a constant expression for arrays: the fixed part of a session, `pointers` and `words`
 * of 4 bytes for its tables, padding to the alignment, and the arena. The generated header has the arguments.
 * MEGCC_SESSION_BYTES is an upper bound, which src/session.c checks. */
#if defined(MEGCC_NO_DYNAMIC)
#define MEGCC_SESSION_BYTES (36u * sizeof(void *))
#else
#define MEGCC_SESSION_BYTES (48u * sizeof(void *))
#endif
#define MEGCC_MEMORY_BYTES(alignment, pointers, words, arena) \
    ((MEGCC_SESSION_BYTES + (pointers) * sizeof(void *) + (words) * 4u + MEGCC_MEMORY_ALIGN(alignment) - 1u) \
         / MEGCC_MEMORY_ALIGN(alignment) * MEGCC_MEMORY_ALIGN(alignment) + (arena))
#define MEGCC_MEMORY_ALIGN(alignment) ((alignment) < 8u ? 8u : (alignment))

/* --- session ------------------------------------------------------------------------------------------------- */

typedef struct megcc_session megcc_session;

/* Runs one task of an instruction as worker `worker`. */
typedef void (*megcc_body)(void *context, int32_t task, int32_t worker);

/* `run` calls body(context, task, worker) once for every task in [0, tasks), in any order, on any threads, with
 * `worker` in [0, workers), and no two calls with the same worker at the same time. It returns when all are done. */
typedef struct megcc_parallel {
    void (*run)(void *user, megcc_body body, void *context, int32_t tasks);
    void *user;
    int32_t workers;            /* at most as many as the model was compiled for */
} megcc_parallel;

/* Called before (after = 0) and after (after = 1) each instruction; non-zero stops the run with MEGCC_E_CANCELLED. */
typedef struct megcc_observer {
    int32_t (*observe)(void *user, megcc_session *session, uint32_t instruction, int32_t after);
    void *user;
} megcc_observer;

/* Allocates tensors whose size has no bound. Returns a block of `bytes` with the alignment of megcc_model_memory(), or
 * NULL. With bytes = 0 it frees the block `old` of `old_bytes`. Contents need not be preserved. */
typedef struct megcc_allocator {
    void *(*resize)(void *user, void *old, size_t old_bytes, size_t bytes);
    void *user;
} megcc_allocator;

/* A block of another kind of memory than the session's own. */
typedef struct megcc_region {
    void *memory;
    size_t bytes;
} megcc_region;

typedef struct megcc_session_options {
#ifndef MEGCC_NO_CALLBACKS
    megcc_parallel parallel;
    megcc_observer observer;
    megcc_allocator allocator;
#endif
    uint64_t memory_limit;      /* most bytes from the allocator at a time; 0: no limit. Beyond: MEGCC_E_MEMORY */
    uint64_t iteration_limit;   /* most iterations of loops in a run; 0: 2^32 - 1. Beyond: MEGCC_E_CANCELLED */
    megcc_region region[MEGCC_MAX_REGIONS - 1]; /* the blocks that megcc_model_region() requires */
} megcc_session_options;
#define turn_limit iteration_limit /* deprecated: the earlier name, which the next release removes */

/* Creates a session in `memory`. If that is too small or misaligned: MEGCC_E_MEMORY, and nothing is written there. */
int32_t megcc_session_open(megcc_session **session, const megcc_model *model, void *memory, size_t size,
                           const megcc_session_options *options, megcc_error *error);

/* Frees memory from the allocator. A session whose shapes all have limits needs no call. */
void megcc_session_close(megcc_session *session);

typedef struct megcc_shape {
    int32_t rank;
    int32_t dims[MEGCC_MAX_RANK];
} megcc_shape;

/* Sets the shapes of all inputs. Bindings are dropped and states are reset. On failure nothing changes. */
int32_t megcc_session_set_shapes(megcc_session *session, const megcc_shape *shapes, uint32_t count,
                                 megcc_error *error);

/* Sets the shapes for the next piece of a sequence, and keeps states. MEGCC_E_SHAPE: with these shapes, states would
 * have other offsets or extents. Not with MEGCC_NO_DYNAMIC. */
int32_t megcc_session_reshape(megcc_session *session, const megcc_shape *shapes, uint32_t count, megcc_error *error);

/* Returns where to write an input before a run; `tensor` (or NULL) receives its description. A run overwrites it. NULL:
 * there is no such input, it is bound, or it has no shape or memory yet. */
void *megcc_session_input(megcc_session *session, uint32_t index, megcc_tensor *tensor);

/* Returns an output, and after a run its shape, until the next run or until an input is written, because they may share
 * memory. NULL: there is no such output, or it has no shape or memory yet. */
const void *megcc_session_output(megcc_session *session, uint32_t index, megcc_tensor *tensor);

/* Makes the session read an input from, or write an output to, your memory; NULL ends that. The memory must be aligned
 * for its element type; inputs are never written; outputs must not overlap anything. Neither a state that is kept nor
 * an output that is written into its state can be bound. */
int32_t megcc_session_bind_input(megcc_session *session, uint32_t index, const void *data, size_t bytes);
int32_t megcc_session_bind_output(megcc_session *session, uint32_t index, void *data, size_t bytes);

/* Computes the outputs. After a failed run the session is usable and its states are as before, except for states that
 * are updated in place (report.txt names them): elements that the run would have overwritten may have new values.
 * Another run with the same inputs gives what that run would have given. */
int32_t megcc_session_run(megcc_session *session, megcc_error *error);

/* Runs one instruction. Returns MEGCC_MORE until the outputs are computed; the next step starts a new run. */
int32_t megcc_session_step(megcc_session *session, megcc_error *error);

/* Resets states to their initial values, zero by default, and drops a run that steps have begun. */
void megcc_session_reset(megcc_session *session);

/* For observers: an operand (inputs, then outputs) of an instruction, and its kernel's name ("" without strings). */
const void *megcc_session_operand(megcc_session *session, uint32_t instruction, uint32_t operand,
                                  megcc_tensor *tensor);
const char *megcc_session_kernel(const megcc_session *session, uint32_t instruction);

/* --- host: files, heap and threads (src/host.c, src/pool.c) ----------------------------------------------------- */

#ifndef MEGCC_NO_STDIO
/* A file as `data` for megcc_model_open: mapped read-only where that exists, otherwise read into aligned memory. Nobody
 * may write to a mapped file or truncate it: truncation would end the process with SIGBUS. */
typedef struct megcc_file {
    void *data;
    size_t size;
    int32_t mapped;
} megcc_file;

int32_t megcc_file_open(megcc_file *file, const char *path, megcc_error *error);
void megcc_file_close(megcc_file *file);

/* Calls megcc_file_open and megcc_model_open. Close the file after the last use of the model. */
int32_t megcc_model_load_file(megcc_model *model, megcc_file *file, const megcc_module *module, const char *path,
                              const megcc_model_options *options, megcc_error *error);

/* Returns a block of the heap with the given alignment (a power of two), or NULL. */
void *megcc_heap_get(size_t bytes, size_t alignment);
void megcc_heap_free(void *memory);

/* Returns an allocator on the heap, for blocks with the alignment of the model. */
megcc_allocator megcc_heap_allocator(const megcc_model *model);
#endif

#ifndef MEGCC_NO_THREADS
typedef struct megcc_pool megcc_pool;

/* A pool of `workers` threads, including the calling one, in `memory` of megcc_pool_bytes(), aligned for a pointer. It
 * serves one session at a time. MEGCC_E_THREADS: this build has no threads. In a child of fork(), the calling thread
 * does all work. */
size_t megcc_pool_bytes(int32_t workers);
int32_t megcc_pool_open(megcc_pool **pool, void *memory, size_t size, int32_t workers);
void megcc_pool_close(megcc_pool *pool);
megcc_parallel megcc_pool_parallel(megcc_pool *pool);
#endif

#ifdef __cplusplus
}
#endif
#endif
