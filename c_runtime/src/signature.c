/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks calls against the signatures of their kernels, as soon as their extents are known: when the model is opened, when
 * shapes are set, or when a run has computed an extent. Kernels then run without checks.
 */
#include "internal.h"

uint32_t megcc_dtype_bytes(uint32_t dtype)
{
    /* An element of fewer than 8 bits has a byte. */
    static const uint8_t bytes[MEGCC_UINT2 + 1] = {
        [MEGCC_FLOAT32] = 4, [MEGCC_FLOAT16] = 2, [MEGCC_FLOAT64] = 8,
        [MEGCC_INT8] = 1, [MEGCC_UINT8] = 1, [MEGCC_INT16] = 2, [MEGCC_UINT16] = 2,
        [MEGCC_INT32] = 4, [MEGCC_UINT32] = 4, [MEGCC_INT64] = 8, [MEGCC_UINT64] = 8,
        [MEGCC_BOOL] = 1, [MEGCC_BFLOAT16] = 2,
        [MEGCC_FLOAT8_E4M3FN] = 1, [MEGCC_FLOAT8_E4M3FNUZ] = 1, [MEGCC_FLOAT8_E5M2] = 1, [MEGCC_FLOAT8_E5M2FNUZ] = 1,
        [MEGCC_FLOAT8_E8M0FNU] = 1, [MEGCC_FLOAT4_E2M1FN] = 1,
        [MEGCC_INT4] = 1, [MEGCC_UINT4] = 1, [MEGCC_INT2] = 1, [MEGCC_UINT2] = 1
    };
    return bytes[dtype];
}

uint64_t megcc_tensor_bytes(const tensor_row *row, const int32_t *extents)
{
    int64_t bytes = megcc_dtype_bytes(row->dtype);
    for (uint32_t axis = 0; axis < row->rank; axis++) {
        const int32_t known = extents[row->dims + axis];
#ifndef MEGCC_NO_DYNAMIC
        if (known < 0) {
            return 0;
        }
#endif
        uint32_t extent = (uint32_t)known;
        if (row->layout == MEGCC_NCHWC && axis == 1u) {
            extent = (extent + row->block - 1u) / row->block * row->block;
        }
#ifdef MEGCC_TRUSTED_DATA
        bytes *= extent; /* not saturated: that needs a 64-bit division */
#else
        bytes = megcc_size_mul(bytes, extent);
#endif
    }
    return (uint64_t)bytes;
}

/* Writes what a call needs, in the order of megcc_need_fn: the size of each operand, shared workspace, scratch, tasks. Its
 * extents begin at extents[first]. In a program with symbols, `extents` follows the values of the symbols and of the
 * expressions that the shape function computed from them, in one array. Returns MEGCC_OK, or the status of a kernel that
 * refuses the extents. */
static int32_t demands(const megcc_program *p, const megcc_kernel *kernel, const int32_t *extents, uint32_t first,
                       int64_t need[MEGCC_MAX_NEED])
{
    const uint32_t operands = (uint32_t)kernel->inputs + kernel->outputs;
    if (operands + 3u > MEGCC_MAX_NEED) {
        return MEGCC_E_UNSUPPORTED;
    }
#ifdef MEGCC_NO_EXTENTS /* no kernel gets extents at run time */
    (void)p;
    (void)extents;
    (void)first;
    if (kernel->need != NULL) {
        return MEGCC_E_UNSUPPORTED;
    }
#else
    if (kernel->need != NULL) {
        return kernel->need(is_dynamic(p) ? extents - p->symbols - p->values : NULL, extents + first, need);
    }
#endif
    for (uint32_t i = 0; i < operands; i++) {
        need[i] = kernel->operand[i].bytes;
    }
    need[operands] = kernel->shared;
    need[operands + 1u] = kernel->scratch;
    need[operands + 2u] = kernel->tasks;
    return MEGCC_OK;
}

/* last: workspace, scratch and tasks, the last three numbers of `demands`. */
static void round_demands(const megcc_program *p, const int64_t *last, call_need *result)
{
    result->shared = align_up((uint64_t)last[0], p->alignment);
    result->scratch = align_up((uint64_t)last[1], p->alignment);
    result->tasks = (int32_t)last[2];
}

void megcc_call_need(const megcc_program *program, const megcc_kernel *kernel, const int32_t *extents, uint32_t first,
                     call_need *result)
{
    int64_t need[MEGCC_MAX_NEED];
    if (kernel->need != NULL) {
        (void)demands(program, kernel, extents, first, need); /* megcc_verify_sizes has seen that this succeeds */
        const uint32_t operands = (uint32_t)kernel->inputs + kernel->outputs;
        round_demands(program, need + operands, result);
#ifndef MEGCC_NO_THREADS
        result->bytes = 0;
        for (uint32_t i = 0; i < operands; i++) {
            result->bytes += (uint64_t)need[i];
        }
#endif
    } else { /* as demands(), without copies of all sizes: every call of a run comes here */
        result->shared = align_up(kernel->shared, program->alignment);
        result->scratch = align_up(kernel->scratch, program->alignment);
        result->tasks = kernel->tasks;
#ifndef MEGCC_NO_THREADS
        result->bytes = 0;
#endif
    }
#ifndef MEGCC_NO_DYNAMIC
    /* Extents may be 0: kernels that have nothing to write do not run. */
    bool writes = kernel->outputs == 0u;
    for (uint32_t i = 0; i < kernel->outputs && !writes; i++) {
        const int64_t bytes = kernel->need != NULL ? need[kernel->inputs + i]
                                                   : (int64_t)kernel->operand[kernel->inputs + i].bytes;
        writes = bytes != 0;
    }
    if (!writes) {
        result->tasks = 0;
    }
#endif
}

/* --- memory ---------------------------------------------------------------------------------------------------- */

/* The end, as an offset in the arena, of the memory region that contains an offset; offsets beyond all regions count to the
 * last one. */
static uint64_t end_of_region(const device_model *bucket, uint64_t offset)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < bucket->regions.count && offset >= end; i++) {
        end += number_at(bucket->regions, i);
    }
    return bucket->regions.count != 0u ? end : bucket->arena_bytes;
}

bool megcc_in_region(const device_model *bucket, uint64_t offset, uint64_t bytes)
{
    const uint64_t end = end_of_region(bucket, offset);
    return offset <= end && bytes <= end - offset;
}

/* The memory that a call accesses: bytes [begin, end) of one of the memories below. */
typedef struct range {
    uint32_t memory;            /* ARENA, OTHER, or the number of a tensor that has memory of its own */
    uint64_t begin, end;
} range;

#define ARENA 0xFFFFFFFFu
#define OTHER 0xFFFFFFFEu       /* read only, or allocated for the call: overlaps nothing */

static bool overlap(const range *a, const range *b)
{
    return a->memory == b->memory && a->memory != OTHER && a->begin < b->end && b->begin < a->end;
}

/* Whether both begin at the same address and, unless `any_size`, have the same size. */
static bool same(const range *a, const range *b, bool any_size)
{
    return a->begin == b->begin && (any_size || a->end == b->end);
}

/* The bytes available at a tensor with memory of its own. Inputs and outputs may be bound to memory that is only as
 * large as their dimensions, so no call may access more. */
static uint64_t capacity_of_root(const megcc_program *p, const device_model *bucket, const int32_t *extents, uint32_t root)
{
    const tensor_row *row = tensor_at(p, root);
    const tensor_slot *slot = row_at(bucket->tensors, root, sizeof *slot);
    if (row->storage == STORAGE_WEIGHT) {
        return row->bytes;
    }
    if (row->storage == STORAGE_UNBOUNDED || is_port(p, root)) {
        return megcc_tensor_bytes(row, extents);
    }
    return slot->bytes;
}

/* The bytes available at any tensor: of a view, those of its root that it covers; 0 if it exceeds its root. */
static uint64_t capacity_of(const megcc_program *p, const device_model *bucket, const int32_t *extents, uint32_t tensor)
{
    const tensor_row *row = tensor_at(p, tensor);
    const uint64_t capacity = capacity_of_root(p, bucket, extents, root_of(p, tensor));
    if (row->storage != STORAGE_VIEW) {
        return capacity;
    }
    if (row->data > capacity || row->bytes > capacity - row->data) {
        return 0;
    }
    return row->bytes != 0u ? row->bytes : capacity - row->data;
}

/* The first `bytes` bytes of a tensor. */
static range range_of(const megcc_program *p, const device_model *bucket, uint32_t tensor, uint64_t bytes)
{
    const uint32_t root = root_of(p, tensor);
    const uint8_t storage = tensor_at(p, root)->storage;
    const tensor_slot *slot = row_at(bucket->tensors, root, sizeof *slot);
    range r = { ARENA, 0, 0 };
    r.begin = slot->offset + (uint64_t)(root != tensor ? tensor_at(p, tensor)->data : 0u);
    if (storage == STORAGE_WEIGHT && slot->bytes == 0u) { /* read in the container; with bytes: a copy in the arena */
        r.memory = OTHER;
    } else if (storage == STORAGE_UNBOUNDED || storage == STORAGE_CALLER) {
        r.memory = root;
    } else {
        r.memory = ARENA;
    }
    r.end = r.begin + bytes;
    return r;
}

/* --- one call -------------------------------------------------------------------------------------------------- */

/* Checks one call: its kernel accepts the extents, its workspace is in one region, each operand is large enough, and its
 * outputs overlap nothing that they must not. */
static int32_t verify_call_sizes(const megcc_program *p, const device_model *bucket, const int32_t *extents,
                                 uint32_t index, int32_t status, megcc_error *error)
{
    const instruction_row *row = instruction_at(p, index);
    const call_slot *slot = row_at(bucket->calls, index, sizeof *slot);
    const megcc_kernel *kernel = &p->code->kernel[slot->kernel];
    const uint32_t inputs = row->inputs, operands = inputs + row->outputs;
    int64_t need[MEGCC_MAX_NEED];

    const int32_t refused = demands(p, kernel, extents, row->first_extent, need);
    if (refused != MEGCC_OK) {
        return megcc_fail(error, status, AT("Instruction.first_extent"), index, refused, 0);
    }

    const int64_t *last = need + operands;
    call_need total;
    for (uint32_t i = 0; i < 2u; i++) {
        if (last[i] < 0 || last[i] > (int64_t)UINT32_MAX) {
            return megcc_fail(error, status, AT("CallSlot.workspace"), index, last[i], 0);
        }
    }
    if (last[2] < 0 || last[2] > INT32_MAX) {
        return megcc_fail(error, status, AT("Instruction.first_extent"), index, last[2], 0);
    }
    round_demands(p, last, &total);
    range work = { OTHER, 0, 0 };
    if (slot->workspace != MEGCC_ALLOCATED) {
        work.memory = ARENA;
        work.begin = slot->workspace;
        work.end = work.begin + total.shared + p->workers * total.scratch;
        if (!megcc_in_region(bucket, work.begin, work.end - work.begin)) {
            return megcc_fail(error, status, AT("CallSlot.workspace"), index, slot->workspace, work.end);
        }
    }

    for (uint32_t i = 0; i < operands; i++) {
        const uint32_t tensor = operand_at(p, row, i);
        if (need[i] < 0 || (uint64_t)need[i] > capacity_of(p, bucket, extents, tensor)) {
            return megcc_fail(error, status, AT("TensorSlot.bytes"), index, tensor, (uint64_t)need[i]);
        }
        const range r = range_of(p, bucket, tensor, (uint64_t)need[i]);
        if (overlap(&r, &work)) {
            return megcc_fail(error, status, AT("TensorSlot.offset"), index, tensor, 0);
        }
        /* Checks overlaps of this operand with the outputs before it or, for an output, with all operands before it. */
        for (uint32_t k = 0; i >= inputs && k < i; k++) {
            const range other = range_of(p, bucket, operand_at(p, row, k), (uint64_t)need[k]);
            const uint32_t alias = kernel->operand[i].alias;
            const bool may_alias = k < inputs && k < 31u && (alias >> k & 1u) != 0u; /* bit 31 is MEGCC_ALIAS_ANY_SIZE */
            if (overlap(&r, &other) && !(may_alias && same(&r, &other, (alias & MEGCC_ALIAS_ANY_SIZE) != 0u))) {
                return megcc_fail(error, status, AT("TensorSlot.offset"), index, tensor, 0);
            }
        }
    }
    return MEGCC_OK;
}

#ifndef MEGCC_NO_DYNAMIC
/* Whether the run has computed all extents of a tensor. */
static bool is_known(const tensor_row *row, const int32_t *extents)
{
    bool known = true;
    for (uint32_t axis = 0; axis < row->rank; axis++) {
        known &= extents[row->dims + axis] >= 0;
    }
    return known;
}

/* Checks that a copy fits and does not overlap its source. A copy to an index of its target is checked when it runs. */
static int32_t verify_move(const megcc_program *p, const device_model *bucket, const int32_t *extents, uint32_t index,
                           int32_t status, megcc_error *error)
{
    const instruction_row *row = instruction_at(p, index);
    const uint32_t source = operand_at(p, row, 0), target = operand_at(p, row, 1);
    const uint64_t bytes = megcc_tensor_bytes(tensor_at(p, source), extents);
    const uint64_t capacity = megcc_tensor_bytes(tensor_at(p, target), extents);
    const range from = range_of(p, bucket, source, bytes), to = range_of(p, bucket, target, capacity);
    if (bytes > capacity && row->inputs == 2u) {
        return megcc_fail(error, status, AT("Tensor.dims"), index, target, bytes);
    }
    if (overlap(&from, &to)) {
        return megcc_fail(error, status, AT("TensorSlot.offset"), index, target, 0);
    }
    return MEGCC_OK;
}
#endif

int32_t megcc_verify_sizes(const megcc_program *p, const device_model *bucket, const int32_t *extents, uint32_t first,
                           int32_t status, megcc_error *error)
{
    for (uint32_t i = 0; i < p->rows[MEGCC_TENSORS].count; i++) {
#ifndef MEGCC_NO_DYNAMIC
        /* A view's extents may be known before its root's. It is checked when both are; no call uses it before. */
        if (!is_known(tensor_at(p, root_of(p, i)), extents)) {
            continue;
        }
#endif
        const uint64_t bytes = megcc_tensor_bytes(tensor_at(p, i), extents);
        const tensor_slot *slot = row_at(bucket->tensors, i, sizeof *slot);
        const uint8_t storage = tensor_at(p, i)->storage;
        /* capacity_of a port is what its dimensions require. So a port in the arena is compared with its slot instead; the
         * others have none, and get memory for their dimensions. */
        const uint64_t capacity = is_port(p, i) && storage != STORAGE_UNBOUNDED && storage != STORAGE_CALLER
                                  ? slot->bytes : capacity_of(p, bucket, extents, i);
        if (bytes > capacity || bytes > MEGCC_MAX_BYTES) {
            return megcc_fail(error, status, AT("Tensor.dims"), MEGCC_NONE, i, bytes);
        }
    }
    for (uint32_t i = first; i < p->rows[MEGCC_INSTRUCTIONS].count; i++) {
#ifndef MEGCC_NO_DYNAMIC
        if (instruction_at(p, i)->opcode == OP_EXTENT) {
            break;
        }
        if (instruction_at(p, i)->opcode == OP_MOVE) {
            const int32_t result = verify_move(p, bucket, extents, i, status, error);
            if (result != MEGCC_OK) {
                return result;
            }
        }
#endif
        if (instruction_at(p, i)->opcode != OP_CALL) {
            continue;
        }
        const int32_t result = verify_call_sizes(p, bucket, extents, i, status, error);
        if (result != MEGCC_OK) {
            return result;
        }
    }
    return MEGCC_OK;
}
