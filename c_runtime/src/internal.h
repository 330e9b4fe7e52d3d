/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the runtime share: rows of the container as C structs, small accessors, and the
 * functions that one file has for another. Rows are read in place; verify.c has checked them before other code reads
 * them.
 */
#ifndef MEGCC_INTERNAL_H
#define MEGCC_INTERNAL_H

#include <stdbool.h>

#include "megcc.h"

/* The only functions of the C library that the core uses, declared here because a bare machine may lack the header. */
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "containers are little-endian"
#endif

/* For structs through which bytes of the container are read: it may be an array of any type. */
#if defined(__GNUC__)
#define MEGCC_ROW __attribute__((__may_alias__))
#else
#define MEGCC_ROW
#endif

/* megcc_error.where: a string, or NULL in a build without strings. */
#ifndef MEGCC_NO_STRINGS
#define AT(where) (where)
#else
#define AT(where) NULL
#endif

#define MEGCC_ALLOCATED 0xFFFFFFFFu /* call_slot.workspace: allocated when the call runs */
#define MEGCC_MAX_WORKERS 256u
#define MEGCC_MAX_BYTES 2147418112u /* of a tensor, 2^31 - 2^16: kernels use int32_t indices, up to a few vectors beyond its end */

/* Storage and Opcode of the schema. */
enum { STORAGE_ARENA, STORAGE_WEIGHT, STORAGE_VIEW, STORAGE_UNBOUNDED, STORAGE_STATE, STORAGE_CALLER };
enum { OP_CALL, OP_RELEASE, OP_BRANCH, OP_LOOP, OP_EXTENT, OP_MOVE };

/* --- rows, as in schema/megcc.fbs ------------------------------------------------------------------------------ */

typedef struct MEGCC_ROW tensor_row {
    uint8_t dtype, layout, storage, rank, block, region;
    uint16_t name;
    uint32_t dims, root, data, bytes, quant;
} tensor_row;

typedef struct MEGCC_ROW quant_row {
    int32_t axis;
    uint32_t count, first;
} quant_row;

/* In a call the fields are what their names say: counts, and where its operands and extents begin. Others use them so:
 *     branch   jumps to instruction `first_extent` if its operand equals `inputs`
 *     loop     jumps to instruction `first_extent`; `inputs` is 0 at the begin of the loop, 1 at the end of an iteration
 *     extent   makes element `inputs` of tensor `operands` the value of symbol `first_extent`
 *     release  frees tensor `operands` */
typedef struct MEGCC_ROW instruction_row {
    uint8_t opcode, inputs, outputs, extents;
    uint32_t operands, first_extent;
} instruction_row;

typedef struct MEGCC_ROW tensor_slot {
    uint32_t offset, bytes;
} tensor_slot;

typedef struct MEGCC_ROW call_slot {
    uint32_t kernel, workspace;
} call_slot;

typedef struct MEGCC_ROW bound_row {
    int32_t lo, hi;
} bound_row;

typedef struct MEGCC_ROW state_row {
    uint32_t output, input;
} state_row;

typedef uint32_t MEGCC_ROW row_u32;
typedef int32_t MEGCC_ROW row_i32;

/* One bucket of a program, found in the container. */
typedef struct device_model {
    megcc_rows bounds, tensors, calls, regions;
    uint32_t arena_bytes;
} device_model;

/* The accessors take indices that verify.c has checked; `size` is that of a row. */
static inline const void *row_at(megcc_rows rows, uint32_t index, size_t size)
{
    return rows.data + (size_t)index * size;
}

static inline uint32_t number_at(megcc_rows rows, uint32_t index)
{
    return *(const row_u32 *)row_at(rows, index, sizeof(uint32_t));
}

static inline const tensor_row *tensor_at(const megcc_program *program, uint32_t index)
{
    return row_at(program->rows[MEGCC_TENSORS], index, sizeof(tensor_row));
}

static inline const instruction_row *instruction_at(const megcc_program *program, uint32_t index)
{
    return row_at(program->rows[MEGCC_INSTRUCTIONS], index, sizeof(instruction_row));
}

static inline uint32_t operand_at(const megcc_program *program, const instruction_row *instruction, uint32_t index)
{
    return number_at(program->rows[MEGCC_OPERANDS], instruction->operands + index);
}

/* The first tensors are the inputs, the next ones the outputs. */
static inline bool is_input(const megcc_program *program, uint32_t tensor)
{
    return tensor < program->rows[MEGCC_INPUTS].count;
}

static inline bool is_port(const megcc_program *program, uint32_t tensor)
{
    return tensor < program->rows[MEGCC_INPUTS].count + program->rows[MEGCC_OUTPUTS].count;
}

/* The number of tensors, from the first on, whose addresses a session stores in `base`: inputs and outputs, which may be
 * bound, and all tensors if some are allocated. Addresses of the others follow from their offsets in the arena or the
 * container. */
static inline uint32_t bases_of(const megcc_program *program)
{
#ifndef MEGCC_NO_DYNAMIC /* without it, verify.c refuses unbounded tensors */
    if (program->unbounded != 0u) {
        return program->rows[MEGCC_TENSORS].count;
    }
#endif
    return program->rows[MEGCC_INPUTS].count + program->rows[MEGCC_OUTPUTS].count;
}

/* The tensor whose memory `tensor` is a view of; `tensor` itself if it is no view. */
static inline uint32_t root_of(const megcc_program *program, uint32_t tensor)
{
    const tensor_row *row = tensor_at(program, tensor);
    return row->storage == STORAGE_VIEW ? row->root : tensor;
}

/* Program.extents as the container has it; a negative extent is an index in the table of symbols and values. */
static inline const int32_t *extents_of(const megcc_program *program)
{
    return (const void *)program->rows[MEGCC_EXTENTS].data;
}

static inline bool is_dynamic(const megcc_program *program)
{
    return program->symbols != 0u;
}

/* The number of symbols that follow from the shapes of inputs; the run computes the others, which come after them. */
static inline uint32_t given_symbols(const megcc_program *program)
{
    return program->symbols - program->unbacked_symbols;
}

/* Rounds up to a multiple of a power of two. */
static inline uint64_t align_up(uint64_t value, uint32_t alignment)
{
    const uint64_t mask = (uint64_t)alignment - 1u;
    return (value + mask) & ~mask;
}

static inline bool is_aligned(const void *pointer, size_t alignment)
{
    return ((uintptr_t)(const uint8_t *)pointer & (alignment - 1u)) == 0u;
}

/* The offset of a weight in the weights, in bytes. */
static inline size_t weight_begin(const megcc_model *model, const tensor_row *row)
{
#if SIZE_MAX > UINT32_MAX
    return (size_t)row->data * model->weight_unit;
#else
    (void)model;
    return row->data;
#endif
}

/* --- status.c -------------------------------------------------------------------------------------------------- */

/* Fills `error`, which may be NULL, and returns `status`. `where` must live as long as the program. */
int32_t megcc_fail(megcc_error *error, int32_t status, const char *where, uint32_t instruction, int64_t detail,
                   uint64_t needed);

/* --- verify.c -------------------------------------------------------------------------------------------------- */

/* Checks the container at model->data, of `size` bytes, which may have any contents, against the code in `module`, finds
 * the first program that runs on `cpu` (MEGCC_ISA_*), and fills the other fields of `model`. */
int32_t megcc_verify(megcc_model *model, size_t size, const megcc_module *module, uint32_t cpu, megcc_error *error);

/* Finds bucket `index`, which exists, of a program that is verified. */
void megcc_device_model(const megcc_model *model, uint32_t index, device_model *result);

/* --- signature.c ----------------------------------------------------------------------------------------------- */

/* The workspace of one call in bytes, rounded up to the program's alignment, and its number of tasks. */
typedef struct call_need {
    uint64_t shared, scratch;   /* of all workers together, and of each */
    int32_t tasks;
#ifndef MEGCC_NO_THREADS
    uint64_t bytes;             /* of the operands, where the kernel's `need` computes them */
#endif
} call_need;

/* The most numbers that a megcc_need_fn writes: sizes of the operands, shared workspace, scratch, tasks. */
#define MEGCC_MAX_NEED ((uint32_t)MEGCC_MAX_OPERANDS + 3u)

/* The size in bytes of a tensor by its dimensions, saturated at MEGCC_SIZE_LIMIT; 0 if one is not known yet. `extents`: all
 * those of the program, resolved: numbers instead of indices of symbols and values. */
uint64_t megcc_tensor_bytes(const tensor_row *row, const int32_t *extents);

/* The size of an element in bytes; `dtype` is at most MEGCC_UINT2. */
uint32_t megcc_dtype_bytes(uint32_t dtype);

/* Whether a range of the arena is within one of its memory regions. */
bool megcc_in_region(const device_model *bucket, uint64_t offset, uint64_t bytes);

/* Computes what a call needs, with extents that megcc_verify_sizes has accepted; the call's begin at extents[first]. */
void megcc_call_need(const megcc_program *program, const megcc_kernel *kernel, const int32_t *extents, uint32_t first,
                     call_need *need);

/* Checks the sizes of a bucket with resolved extents: every tensor against its slot, and the calls from instruction `first`
 * up to the next extent that the run computes, each against its kernel's signature. An extent that is not known yet is
 * negative, and no call may depend on it. Returns MEGCC_OK, or after a failure `status`: MEGCC_E_SIGNATURE if the container
 * is to blame, MEGCC_E_SHAPE if the shapes are. */
int32_t megcc_verify_sizes(const megcc_program *program, const device_model *bucket, const int32_t *extents,
                           uint32_t first, int32_t status, megcc_error *error);

/* --- cpu.c ----------------------------------------------------------------------------------------------------- */

/* The highest MEGCC_ISA_* that runs here. */
uint32_t megcc_cpu(void);

/* --- model.c --------------------------------------------------------------------------------------------------- */

/* Fills `result` for a tensor of a verified program. `extents`: the program's, resolved or not; those that are negative are
 * unknown. */
void megcc_describe(const megcc_program *program, uint32_t tensor, const int32_t *extents, megcc_tensor *result);

/* --- a session ------------------------------------------------------------------------------------------------- */

struct megcc_session {
    const megcc_model *model;
    megcc_session_options options;
    device_model bucket;        /* for the current shapes */
    uint8_t *arena;
    uint8_t **base;             /* addresses of `bases_of` tensors; NULL for views and unallocated ones */
    void *operands;             /* array of pointers: addresses of the running call's inputs, then outputs */
    int32_t *status;            /* of each worker */
    const int32_t *extents;     /* of the program, resolved; NULL: no shapes yet */
    uint32_t next;              /* instruction of the next step */
#ifndef MEGCC_NO_DYNAMIC
    size_t *capacity;           /* bytes that each tensor has from the allocator, 0: none; NULL: no tensor is unbounded */
    int32_t *table[2];          /* symbols, values, resolved extents: in use, and being tried */
    uint8_t *workspace;         /* of calls that allocate it */
    size_t workspace_bytes;
    uint64_t allocated;         /* bytes from the allocator that are not freed yet */
    uint64_t iterations;        /* iterations of loops, in this run */
    uint32_t checked[2];        /* the calls from instruction [0] up to, not including, [1] fit the current extents */
#endif
};

/* --- memory.c -------------------------------------------------------------------------------------------------- */

#ifndef MEGCC_NO_DYNAMIC
/* Makes an allocated block, at *memory with *capacity bytes, at least `bytes` large; if it grows, its contents are lost. 0
 * frees it. MEGCC_E_MEMORY: more than options.memory_limit; MEGCC_E_ALLOCATION: the allocator failed. */
int32_t megcc_grow(megcc_session *session, uint8_t **memory, size_t *capacity, uint64_t bytes);

/* Allocates memory for a tensor of STORAGE_UNBOUNDED, as much as its extents say, unless it has some. Fails as megcc_grow,
 * with the current instruction, the tensor and its bytes in `error`. */
int32_t megcc_materialise(megcc_session *session, uint32_t tensor, megcc_error *error);

/* Frees the memory that a tensor has from the allocator, if any. */
void megcc_release(megcc_session *session, uint32_t tensor);

/* The same if it is smaller than the tensor is with the current extents. */
void megcc_release_small(megcc_session *session, uint32_t tensor);
#endif

/* --- place.c --------------------------------------------------------------------------------------------------- */

/* The address of an offset in the arena, in whichever of its memory regions that is. */
uint8_t *megcc_session_at(const megcc_session *session, uint32_t offset);

/* The address of a tensor that is not bound and no view: in the arena or in the container; NULL if it has none before it
 * is allocated or bound. */
uint8_t *megcc_session_own_address(const megcc_session *session, uint32_t tensor);

/* Writes the addresses of `count` tensors to `result`; NULL for a tensor that has no memory yet. */
void megcc_session_addresses(const megcc_session *session, const row_u32 *tensors, uint32_t count, void **result);

static inline uint8_t *address_of(const megcc_session *session, uint32_t tensor)
{
    const row_u32 index = tensor;
    void *result;
    megcc_session_addresses(session, &index, 1, &result);
    return result;
}

/* Copies weights that have an offset in the arena to it. */
void megcc_session_copy_weights(megcc_session *session);

/* Sets `base` of every tensor to its address in the current bucket. Removes bindings, ends a run in progress and, unless
 * `keep`, resets states to their initial values. */
void megcc_session_place(megcc_session *session, bool keep);

/* After a complete run, copies outputs to the states that they replace. */
void megcc_session_keep_states(megcc_session *session);

/* --- shape.c --------------------------------------------------------------------------------------------------- */

#ifndef MEGCC_NO_DYNAMIC
/* Chooses the bucket of a session whose inputs all have static shapes, but whose run computes extents. */
int32_t megcc_session_own_shapes(megcc_session *session, megcc_error *error);

/* Executes an instruction `extent`: reads the value of its symbol, computes the extents that depend on it, and checks the
 * calls up to the next such instruction. MEGCC_E_SHAPE: the value is outside the bucket's bounds, or a call does not fit. */
int32_t megcc_session_extent(megcc_session *session, uint32_t instruction, megcc_error *error);

/* Checks the calls from an instruction up to the next one that computes a symbol, unless they are checked already. */
int32_t megcc_session_verify(megcc_session *session, uint32_t instruction, megcc_error *error);

/* --- control.c ------------------------------------------------------------------------------------------------- */

/* Executes a branch, the begin or end of a loop, or a copy. */
int32_t megcc_session_control(megcc_session *session, const instruction_row *row, megcc_error *error);
#endif

#endif
