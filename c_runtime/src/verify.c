/* SPDX-License-Identifier: Apache-2.0
 *
 * Verifies a container, which is not trusted; the code is. Everything that the runtime will use without a check is
 * checked here once: the bounds of tables, vectors and strings, and every index, offset and enumeration in them. Checks
 * that depend on extents (sizes, overlaps) are in signature.c, because they run again when shapes change.
 */
#include "fb.h"

/* The newest format, and the unit of its weight offsets in bytes. Format 1 has weights in a vector; format 2, for
 * 64-bit machines, has them after everything else. */
#if SIZE_MAX > UINT32_MAX
enum { FORMAT = 2, WEIGHT_UNIT = 64 };
#else
enum { FORMAT = 1 };
#endif

/* The fields of the tables in the schema, in their order there; PROGRAM_VECTOR is the first vector. */
enum { MODEL_FORMAT, MODEL_FLAGS, MODEL_ID, MODEL_CRC, MODEL_NAME, MODEL_PROGRAMS, MODEL_WEIGHTS, MODEL_BEGIN };
enum { PROGRAM_ISA, PROGRAM_CODE_ID, PROGRAM_ALIGNMENT, PROGRAM_WORKERS, PROGRAM_SYMBOLS, PROGRAM_VALUES,
       PROGRAM_VECTOR };
enum { BUCKET_BOUNDS, BUCKET_TENSORS, BUCKET_CALLS, BUCKET_ARENA_BYTES, BUCKET_REGIONS };

/* The size of an element of each vector of a program. */
static const uint8_t row_bytes[MEGCC_PROGRAM_VECTORS] = {
    sizeof(tensor_row), 4, 4, sizeof(instruction_row), 4, 4, sizeof(state_row), sizeof(quant_row), 4, 4, 4,
};

#ifndef MEGCC_NO_STRINGS
static const char vector_names[MEGCC_PROGRAM_VECTORS][24] = {
    "Program.tensors", "Program.extents", "Program.operands", "Program.instructions", "Program.inputs",
    "Program.outputs", "Program.states", "Program.quants", "Program.quant_data", "Program.names",
    "Program.device_models",
};
#endif

static int32_t corrupt(megcc_error *error, const char *where, int64_t row)
{
    return megcc_fail(error, MEGCC_E_CORRUPT, where, MEGCC_NONE, row, 0);
}

/* With MEGCC_TRUSTED_DATA the container is as trusted as the code, because it is part of the same program. Only that it
 * belongs to this code is checked. */
#ifdef MEGCC_TRUSTED_DATA
enum { IS_TRUSTED = 1 };
#else
enum { IS_TRUSTED = 0 };
#endif

/* Returns MEGCC_E_CORRUPT from the calling function, with the schema's name of the field and the row, unless it holds. */
#define REQUIRE(condition, where, row) \
    do { \
        if (!IS_TRUSTED && !(condition)) { \
            return corrupt(error, AT(where), row); \
        } \
    } while (0)

/* Whether [begin, begin + count) lies in [0, end). */
static bool within(size_t begin, size_t count, size_t end)
{
    return begin <= end && count <= end - begin;
}

/* --- parts of a program ---------------------------------------------------------------------------------------- */

static int32_t verify_extents(const megcc_program *p, megcc_error *error)
{
    const int32_t *extents = extents_of(p);
    const int64_t table = (int64_t)p->symbols + (int64_t)p->values;
    for (uint32_t i = 0; i < p->rows[MEGCC_EXTENTS].count; i++) {
        REQUIRE(-1 - (int64_t)extents[i] < table, "Program.extents", i);
    }
    return MEGCC_OK;
}

static int32_t verify_quants(const megcc_program *p, megcc_error *error)
{
    for (uint32_t i = 0; i < p->rows[MEGCC_QUANTS].count; i++) {
        const quant_row *q = row_at(p->rows[MEGCC_QUANTS], i, sizeof *q);
        const uint32_t words = p->rows[MEGCC_QUANT_DATA].count;
        REQUIRE(q->axis >= 0 || (q->axis == -1 && q->count == 1u), "Quant.axis", i);
        REQUIRE(q->count <= words / 2u && within(q->first, 2u * q->count, words), "Quant.first", i);
    }
    return MEGCC_OK;
}

static int32_t verify_tensor_quant(const megcc_program *p, const tensor_row *t, uint32_t i, megcc_error *error)
{
    REQUIRE(t->quant <= p->rows[MEGCC_QUANTS].count, "Tensor.quant", i);
    if (t->quant == 0u) {
        return MEGCC_OK;
    }
    const quant_row *q = row_at(p->rows[MEGCC_QUANTS], t->quant - 1u, sizeof *q);
    REQUIRE(q->axis < (int32_t)t->rank, "Quant.axis", i);
    if (q->axis >= 0) {
        REQUIRE((int64_t)q->count == extents_of(p)[t->dims + (uint32_t)q->axis], "Quant.count", i);
    }
    return MEGCC_OK;
}

static int32_t verify_tensor(const megcc_model *model, const megcc_program *p, uint32_t i, megcc_error *error)
{
    const tensor_row *t = tensor_at(p, i);
    REQUIRE(t->dtype <= MEGCC_UINT2, "Tensor.dtype", i);
    REQUIRE(t->layout <= MEGCC_NCHWC, "Tensor.layout", i);
    /* Storage of the schema is ordered: inputs and outputs have all kinds, other tensors the first four. */
    const int32_t last_storage = is_port(p, i) ? STORAGE_CALLER : STORAGE_UNBOUNDED;
    REQUIRE((int32_t)t->storage <= last_storage, "Tensor.storage", i);
    REQUIRE(t->rank <= (uint32_t)MEGCC_MAX_RANK && (t->layout != MEGCC_NHWC || t->rank == 4u), "Tensor.rank", i);
    REQUIRE((t->layout == MEGCC_NCHWC && t->block != 0u && t->rank >= 2u)
                || (t->layout != MEGCC_NCHWC && t->block == 0u),
            "Tensor.block", i);
    REQUIRE(t->region == 0u, "Tensor.region", i); /* reserved: the offset of a tensor tells its region */
    REQUIRE(t->name <= p->rows[MEGCC_NAMES].count, "Tensor.name", i);
    REQUIRE(within(t->dims, t->rank, p->rows[MEGCC_EXTENTS].count), "Tensor.dims", i);
    if (t->storage == STORAGE_VIEW) {
        REQUIRE(t->root < p->rows[MEGCC_TENSORS].count, "Tensor.root", i);
        const tensor_row *root = tensor_at(p, t->root);
        const uint32_t element = megcc_dtype_bytes(t->dtype);
        REQUIRE(root->storage != STORAGE_VIEW, "Tensor.root", i);
        /* The root may be bound to memory that is only aligned for its own element type. */
        REQUIRE(root->dtype <= MEGCC_UINT2 && element <= megcc_dtype_bytes(root->dtype), "Tensor.dtype", i);
        REQUIRE(t->data % element == 0u, "Tensor.data", i);
    } else if (t->storage == STORAGE_WEIGHT) {
        REQUIRE(t->root == 0u, "Tensor.root", i);
        const size_t begin = weight_begin(model, t);
        REQUIRE(begin % p->alignment == 0u && within(begin, t->bytes, model->weights_bytes), "Tensor.data", i);
    } else {
        /* The root of a state is the weight with its initial value; 0: zeros. */
        const bool has_root = t->storage == STORAGE_STATE && t->root < p->rows[MEGCC_TENSORS].count;
        REQUIRE(t->root == 0u || (has_root && tensor_at(p, t->root)->storage == STORAGE_WEIGHT
                                 && tensor_at(p, t->root)->bytes != 0u), "Tensor.root", i);
        REQUIRE(t->data == 0u, "Tensor.data", i);
        REQUIRE(t->bytes == 0u, "Tensor.bytes", i);
    }
    return verify_tensor_quant(p, t, i, error);
}

#ifndef MEGCC_NO_DYNAMIC
/* Whether operand `index` of an instruction has this type, and at least one element by static extents. */
static bool is_number(const megcc_program *p, const instruction_row *row, uint32_t index, uint8_t dtype)
{
    const tensor_row *t = tensor_at(p, operand_at(p, row, index));
    bool fits = t->dtype == dtype && t->layout == MEGCC_PLAIN;
    for (uint32_t axis = 0; axis < t->rank; axis++) {
        fits &= extents_of(p)[t->dims + axis] >= 1;
    }
    return fits;
}

/* Whether an instruction may write to its operand `index`. */
static bool is_written(const megcc_program *p, const instruction_row *row, uint32_t index)
{
    const uint32_t root = root_of(p, operand_at(p, row, index));
    return tensor_at(p, root)->storage != STORAGE_WEIGHT && !is_input(p, root);
}

/* Branches go forward; loops go forward from their beginning, and back from their end, so that iterations can be
 * counted. */
static int32_t verify_control(const megcc_program *p, uint32_t i, megcc_error *error)
{
    const instruction_row *row = instruction_at(p, i);
    const uint32_t count = p->rows[MEGCC_INSTRUCTIONS].count, target = row->first_extent;
    const uint32_t operands = row->opcode == OP_MOVE ? row->inputs : row->opcode == OP_LOOP ? 3u : 1u;
    REQUIRE(within(row->operands, operands, p->rows[MEGCC_OPERANDS].count), "Instruction.operands", i);
    if (row->opcode == OP_MOVE) {
        REQUIRE(operands == 2u || operands == 3u, "Instruction.inputs", i);
        const tensor_row *source = tensor_at(p, operand_at(p, row, 0)), *to = tensor_at(p, operand_at(p, row, 1));
        REQUIRE(source->dtype == to->dtype && source->layout == to->layout && source->block == to->block,
                "Tensor.dtype", i);
        REQUIRE(is_written(p, row, 1) && (operands == 2u || is_number(p, row, 2, MEGCC_INT64)), "Program.operands", i);
        return MEGCC_OK;
    }
    REQUIRE(row->inputs <= 1u, "Instruction.inputs", i);
    if (row->opcode == OP_BRANCH) {
        REQUIRE(is_number(p, row, 0, MEGCC_BOOL), "Program.operands", i);
        REQUIRE(target > i && target <= count, "Instruction.first_extent", i);
        return MEGCC_OK;
    }
    REQUIRE(is_number(p, row, 0, MEGCC_INT64) && is_written(p, row, 0) && is_number(p, row, 1, MEGCC_INT64)
                && is_number(p, row, 2, MEGCC_BOOL), "Program.operands", i);
    /* inputs = 0: the begin of a loop, which jumps out of it; 1: the end of an iteration, which jumps back. */
    REQUIRE(row->inputs != 0u ? target >= 1u && target <= i : target > i && target <= count, "Instruction.first_extent",
            i);
    return MEGCC_OK;
}
#endif

/* Verifies the instructions. Also counts operands, unbounded tensors, and the symbols that a run computes. */
static int32_t verify_instructions(megcc_program *p, megcc_error *error)
{
    const uint32_t tensors = p->rows[MEGCC_TENSORS].count;
    for (uint32_t i = 0; i < p->rows[MEGCC_OPERANDS].count; i++) {
        REQUIRE(number_at(p->rows[MEGCC_OPERANDS], i) < tensors, "Program.operands", i);
    }
    for (uint32_t i = 0; i < tensors; i++) {
        p->unbounded += tensor_at(p, i)->storage == STORAGE_UNBOUNDED;
    }

#ifndef MEGCC_NO_DYNAMIC
    for (uint32_t i = 0; i < p->rows[MEGCC_INSTRUCTIONS].count; i++) {
        p->unbacked_symbols += instruction_at(p, i)->opcode == OP_EXTENT;
    }
    REQUIRE(p->unbacked_symbols <= p->symbols, "Instruction.opcode", p->unbacked_symbols);
    uint32_t next_symbol = given_symbols(p); /* which the next instruction `extent` must compute */
#endif
    for (uint32_t i = 0; i < p->rows[MEGCC_INSTRUCTIONS].count; i++) {
        const instruction_row *row = instruction_at(p, i);
        if (row->opcode == OP_CALL) {
            const uint32_t operands = (uint32_t)row->inputs + row->outputs;
            REQUIRE(within(row->operands, operands, p->rows[MEGCC_OPERANDS].count), "Instruction.operands", i);
            REQUIRE(within(row->first_extent, row->extents, p->rows[MEGCC_EXTENTS].count), "Instruction.first_extent",
                    i);
            if (operands > p->operands) {
                p->operands = operands;
            }
        } else if (row->opcode == OP_RELEASE) {
            REQUIRE(row->operands < tensors && !is_port(p, row->operands)
                        && tensor_at(p, row->operands)->storage == STORAGE_UNBOUNDED, "Instruction.operands", i);
#ifndef MEGCC_NO_DYNAMIC
        } else if (row->opcode == OP_EXTENT) {
            /* Symbols are computed in their order, so an extent is known when the last symbol in it is. */
            REQUIRE(row->operands < tensors && tensor_at(p, row->operands)->dtype == MEGCC_INT64,
                    "Instruction.operands", i);
            REQUIRE(row->first_extent == next_symbol, "Instruction.first_extent", i);
            next_symbol++;
        } else if (row->opcode <= OP_MOVE) {
            const int32_t status = verify_control(p, i, error);
            if (status != MEGCC_OK) {
                return status;
            }
#endif
        } else if (row->opcode <= OP_MOVE) {
            return megcc_fail(error, MEGCC_E_UNSUPPORTED, AT("Instruction.opcode"), i, row->opcode, 0);
        } else {
            REQUIRE(false, "Instruction.opcode", i);
        }
    }
    return MEGCC_OK;
}

/* Checks that inputs and outputs are the first tensors, have memory of their own, so that each can be bound, and have
 * the types that the caller was compiled for. */
static int32_t verify_ports(const megcc_program *p, megcc_error *error)
{
    const int32_t *known = p->code->port; /* rows of dtype, layout, block, rank and `rank` extents */
    REQUIRE(p->rows[MEGCC_INPUTS].count == p->code->inputs, "Program.inputs", p->rows[MEGCC_INPUTS].count);
    REQUIRE(p->rows[MEGCC_OUTPUTS].count == p->code->outputs, "Program.outputs", p->rows[MEGCC_OUTPUTS].count);
    for (uint32_t list = MEGCC_INPUTS, port = 0; list <= MEGCC_OUTPUTS; list++) {
        for (uint32_t i = 0; i < p->rows[list].count; i++, port++) {
            REQUIRE(number_at(p->rows[list], i) == port && port < p->rows[MEGCC_TENSORS].count, vector_names[list], i);
            const tensor_row *t = tensor_at(p, port);
            const int32_t type[] = { t->dtype, t->layout, t->block, t->rank };
            REQUIRE(t->storage != STORAGE_WEIGHT && t->storage != STORAGE_VIEW, "Tensor.storage", port);
            REQUIRE(memcmp(type, known, sizeof type) == 0, "Tensor.dtype", port);
            REQUIRE(memcmp(extents_of(p) + t->dims, known + 4, 4u * t->rank) == 0, "Tensor.dims", port);
            known += 4u + t->rank;
        }
    }
    return MEGCC_OK;
}

/* Checks a state: an output in the arena that is copied to an input after a run, or that is computed in place of it. */
static int32_t verify_states(const megcc_program *p, megcc_error *error)
{
    uint32_t updated = 0; /* outputs that are computed in place of a state, which no row of Program.states names yet */
    for (uint32_t i = 0; i < p->rows[MEGCC_OUTPUTS].count; i++) {
        updated += tensor_at(p, number_at(p->rows[MEGCC_OUTPUTS], i))->storage == STORAGE_STATE ? 1u : 0u;
    }
    for (uint32_t i = 0; i < p->rows[MEGCC_STATES].count; i++) {
        const state_row *s = row_at(p->rows[MEGCC_STATES], i, sizeof *s);
        REQUIRE(s->output < p->rows[MEGCC_OUTPUTS].count, "State.output", i);
        REQUIRE(s->input < p->rows[MEGCC_INPUTS].count, "State.input", i);
        const tensor_row *out = tensor_at(p, number_at(p->rows[MEGCC_OUTPUTS], s->output));
        const tensor_row *in = tensor_at(p, number_at(p->rows[MEGCC_INPUTS], s->input));
        REQUIRE(out->storage == STORAGE_ARENA || (out->storage == STORAGE_STATE && updated-- != 0), "State.output", i);
        REQUIRE(in->storage == STORAGE_STATE, "State.input", i);
        REQUIRE(out->dtype == in->dtype && out->rank == in->rank && out->layout == in->layout && out->block == in->block
                    && memcmp(extents_of(p) + out->dims, extents_of(p) + in->dims, 4u * in->rank) == 0,
                "State.input", i);
    }
    REQUIRE(updated == 0u, "Program.states", updated);
    return MEGCC_OK;
}

/* --- device models --------------------------------------------------------------------------------------------- */

static void read_bucket(fb_reader *r, const megcc_program *p, uint32_t index, device_model *bucket)
{
    const megcc_rows list = p->rows[MEGCC_DEVICE_MODELS];
    fb_enter(r, fb_offset(r, list.data) + 4u * index);
    bucket->bounds = fb_vector(r, BUCKET_BOUNDS, sizeof(bound_row));
    bucket->tensors = fb_vector(r, BUCKET_TENSORS, sizeof(tensor_slot));
    bucket->calls = fb_vector(r, BUCKET_CALLS, sizeof(call_slot));
    bucket->arena_bytes = fb_number(r, BUCKET_ARENA_BYTES);
    bucket->regions = fb_vector(r, BUCKET_REGIONS, sizeof(uint32_t));
}

void megcc_device_model(const megcc_model *model, uint32_t index, device_model *result)
{
    fb_reader r = fb_open(model->data, model->size);
    read_bucket(&r, &model->program, index, result);
}

/* Checks that a bucket has only shapes that the code was compiled for. */
static int32_t verify_bounds(const megcc_program *p, const device_model *bucket, megcc_error *error)
{
    for (uint32_t i = 0; i < bucket->bounds.count; i++) {
        const bound_row *b = row_at(bucket->bounds, i, sizeof *b);
        const megcc_bound *known = &p->code->bound[i];
        REQUIRE(b->lo >= known->lo && (uint32_t)b->lo <= (uint32_t)b->hi, "Bound.lo", i);
        REQUIRE((uint32_t)b->hi <= (uint32_t)known->hi, "Bound.hi", i); /* no limit is -1, the largest uint32_t */
    }
    return MEGCC_OK;
}

/* The end of a bucket's states, which are inputs, in the arena. All other tensors are after it, so nothing writes to a
 * state except the output that replaces it. */
static uint64_t end_of_states(const megcc_program *p, const device_model *bucket)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_slot *slot = row_at(bucket->tensors, i, sizeof *slot);
        if (tensor_at(p, i)->storage == STORAGE_STATE && (uint64_t)slot->offset + slot->bytes > end) {
            end = (uint64_t)slot->offset + slot->bytes;
        }
    }
    return end;
}

/* Checks that the memory regions make up the arena, and that addresses in them are aligned as their offsets. */
static int32_t verify_regions(const megcc_program *p, const device_model *bucket, megcc_error *error)
{
    const uint32_t count = bucket->regions.count;
    uint64_t total = count != 0u ? 0u : bucket->arena_bytes;
#ifdef MEGCC_NO_REGIONS
    if (count != 0) {
        return megcc_fail(error, MEGCC_E_UNSUPPORTED, AT("MEGCC_NO_REGIONS"), MEGCC_NONE, count, 0);
    }
#endif
    REQUIRE(count <= (is_dynamic(p) ? 0u : (uint32_t)MEGCC_MAX_REGIONS), "DeviceModel.regions", count);
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE(number_at(bucket->regions, i) % p->alignment == 0u, "DeviceModel.regions", i);
        total += number_at(bucket->regions, i);
    }
    REQUIRE(total == bucket->arena_bytes, "DeviceModel.arena_bytes", (int64_t)total);
    return MEGCC_OK;
}

/* Checks that slots are aligned and inside the arena and, except for those of states, after the end of the states. */
static int32_t verify_slots(const megcc_program *p, const device_model *bucket, uint64_t states, megcc_error *error)
{
    for (uint32_t i = 0; i < bucket->tensors.count; i++) {
        const tensor_slot *slot = row_at(bucket->tensors, i, sizeof *slot);
        const uint8_t storage = tensor_at(p, i)->storage;
        if (storage == STORAGE_ARENA || storage == STORAGE_STATE) {
            REQUIRE(slot->offset % p->alignment == 0u && megcc_in_region(bucket, slot->offset, slot->bytes)
                        && (storage == STORAGE_STATE || slot->offset >= states), "TensorSlot.offset", i);
        } else if (storage == STORAGE_WEIGHT && slot->bytes != 0u) { /* a weight that a session copies to a region */
            REQUIRE(slot->bytes == tensor_at(p, i)->bytes && bucket->regions.count != 0u && slot->offset >= states
                        && slot->offset % p->alignment == 0u && megcc_in_region(bucket, slot->offset, slot->bytes),
                    "TensorSlot.offset", i);
        } else {
            REQUIRE(slot->offset == 0u && slot->bytes == 0u, "TensorSlot.offset", i);
        }
    }
    return MEGCC_OK;
}

/* Checks that an output that is computed in place of its state has the same size. */
static int32_t verify_updates(const megcc_program *p, const device_model *bucket, megcc_error *error)
{
    for (uint32_t i = 0; i < p->rows[MEGCC_STATES].count; i++) {
        const state_row *s = row_at(p->rows[MEGCC_STATES], i, sizeof *s);
        const uint32_t output = number_at(p->rows[MEGCC_OUTPUTS], s->output);
        const uint32_t input = number_at(p->rows[MEGCC_INPUTS], s->input);
        REQUIRE(tensor_at(p, output)->storage != STORAGE_STATE
                    || memcmp(row_at(bucket->tensors, output, sizeof(tensor_slot)),
                              row_at(bucket->tensors, input, sizeof(tensor_slot)), sizeof(tensor_slot)) == 0,
                "TensorSlot.offset", output);
    }
    return MEGCC_OK;
}

/* Checks the parts of call `i` that do not depend on extents. `states`: where the bucket's states end. */
static int32_t verify_call(const megcc_program *p, const device_model *bucket, uint64_t states, uint32_t i,
                           megcc_error *error)
{
    const instruction_row *row = instruction_at(p, i);
    const call_slot *slot = row_at(bucket->calls, i, sizeof *slot);
    if (IS_TRUSTED || row->opcode != OP_CALL) {
        return MEGCC_OK;
    }
    REQUIRE(slot->kernel < p->code->kernels, "CallSlot.kernel", i);
    REQUIRE(slot->workspace == MEGCC_ALLOCATED ? is_dynamic(p)
                : slot->workspace >= states && slot->workspace % p->alignment == 0u, "CallSlot.workspace", i);
    const megcc_kernel *kernel = &p->code->kernel[slot->kernel];
    if (row->inputs != kernel->inputs || row->outputs != kernel->outputs || row->extents != kernel->extents) {
        return megcc_fail(error, MEGCC_E_SIGNATURE, AT("Instruction.operands"), i, slot->kernel, 0);
    }
    for (uint32_t k = 0; k < (uint32_t)row->inputs + row->outputs; k++) {
        const uint32_t tensor = operand_at(p, row, k);
        if (tensor_at(p, tensor)->dtype != kernel->operand[k].dtype) {
            return megcc_fail(error, MEGCC_E_SIGNATURE, AT("Tensor.dtype"), i, tensor, 0);
        }
        const uint32_t root = root_of(p, tensor);
        if (k >= row->inputs && (tensor_at(p, root)->storage == STORAGE_WEIGHT || is_input(p, root))) {
            return megcc_fail(error, MEGCC_E_SIGNATURE, AT("Tensor.storage"), i, tensor, 0);
        }
    }
    return MEGCC_OK;
}

static int32_t verify_bucket(fb_reader *r, megcc_program *p, uint32_t index, megcc_error *error)
{
    device_model bucket;
    read_bucket(r, p, index, &bucket);
    REQUIRE(r->ok, "Program.device_models", index);
    REQUIRE(bucket.bounds.count == p->symbols, "DeviceModel.bounds", index);
    REQUIRE(bucket.tensors.count == p->rows[MEGCC_TENSORS].count, "DeviceModel.tensors", index);
    REQUIRE(bucket.calls.count == p->rows[MEGCC_INSTRUCTIONS].count, "DeviceModel.calls", index);
    /* A session's own block holds the first region; it is large enough for each bucket. */
    const uint32_t own = bucket.regions.count != 0u ? number_at(bucket.regions, 0) : bucket.arena_bytes;
    if (own > p->arena_bytes) {
        p->arena_bytes = own;
    }
    const uint64_t states = end_of_states(p, &bucket);
    int32_t status = verify_bounds(p, &bucket, error);
    if (status == MEGCC_OK) {
        status = verify_regions(p, &bucket, error);
    }
    if (status == MEGCC_OK) {
        status = verify_slots(p, &bucket, states, error);
    }
    if (status == MEGCC_OK) {
        status = verify_updates(p, &bucket, error);
    }
    for (uint32_t i = 0; status == MEGCC_OK && i < bucket.calls.count; i++) {
        status = verify_call(p, &bucket, states, i, error);
    }
    if (!IS_TRUSTED && status == MEGCC_OK && !is_dynamic(p)) {
        status = megcc_verify_sizes(p, &bucket, extents_of(p), 0, MEGCC_E_SIGNATURE, error);
    }
    return status;
}

/* --- programs and the model ------------------------------------------------------------------------------------ */

/* Reads the program table that was entered and checks everything in it against `code`. */
static int32_t verify_program(fb_reader *r, const megcc_model *model, const megcc_code *code, megcc_program *p,
                              megcc_error *error)
{
    p->code = code;
    p->isa = code->isa;
    p->alignment = fb_number(r, PROGRAM_ALIGNMENT);
    p->workers = fb_number(r, PROGRAM_WORKERS);
    p->symbols = fb_number(r, PROGRAM_SYMBOLS);
    p->values = fb_number(r, PROGRAM_VALUES);
    for (uint32_t i = 0; i < MEGCC_PROGRAM_VECTORS; i++) {
        p->rows[i] = fb_vector(r, PROGRAM_VECTOR + i, row_bytes[i]);
        REQUIRE(r->ok, vector_names[i], 0);
    }
    REQUIRE(p->alignment == code->alignment, "Program.alignment", p->alignment);
    REQUIRE(p->workers >= 1u && p->workers <= MEGCC_MAX_WORKERS, "Program.workers", p->workers);
    REQUIRE(p->symbols == code->symbols, "Program.symbols", p->symbols);
    REQUIRE(p->values == code->values, "Program.values", p->values);

    int32_t status = verify_extents(p, error);
    if (status == MEGCC_OK) {
        status = verify_quants(p, error);
    }
    for (uint32_t i = 0; status == MEGCC_OK && i < p->rows[MEGCC_TENSORS].count; i++) {
        status = verify_tensor(model, p, i, error);
    }
    for (uint32_t i = 0; status == MEGCC_OK && i < p->rows[MEGCC_NAMES].count; i++) {
        fb_string(r, fb_offset(r, p->rows[MEGCC_NAMES].data) + 4u * i);
        REQUIRE(r->ok, "Program.names", i);
    }
    if (status == MEGCC_OK) {
        status = verify_instructions(p, error);
    }
    if (status == MEGCC_OK) {
        status = verify_ports(p, error);
    }
    if (status == MEGCC_OK) {
        status = verify_states(p, error);
    }
#ifdef MEGCC_NO_DYNAMIC
    if (status == MEGCC_OK && (is_dynamic(p) || p->unbounded != 0)) {
        status = megcc_fail(error, MEGCC_E_UNSUPPORTED, AT("MEGCC_NO_DYNAMIC"), MEGCC_NONE, 0, 0);
    }
#endif
    const uint32_t buckets = p->rows[MEGCC_DEVICE_MODELS].count;
    REQUIRE(status != MEGCC_OK || buckets >= 1u, "Program.device_models", buckets);
    for (uint32_t i = 0; status == MEGCC_OK && i < buckets; i++) {
        status = verify_bucket(r, p, i, error);
    }
    if (status == MEGCC_OK && !is_aligned(model->weights, p->alignment)) {
        status = megcc_fail(error, MEGCC_E_ARGUMENT, AT("data"), MEGCC_NONE, 0, p->alignment);
    }
    return status;
}

/* Reads the table of the model; `programs` is its list of them. */
static int32_t read_model(fb_reader *r, megcc_model *model, size_t size, megcc_rows *programs, megcc_error *error)
{
    if (r->size < 8u || memcmp(r->data + 4, "MGCC", 4) != 0) {
        return megcc_fail(error, MEGCC_E_FORMAT, AT("file_identifier"), MEGCC_NONE, 0, 0);
    }
    fb_enter(r, 0);
    const uint32_t format = fb_number(r, MODEL_FORMAT);
    REQUIRE(r->ok, "Model", 0);
    if (format != 1u && format != FORMAT) {
        return megcc_fail(error, MEGCC_E_FORMAT, AT("Model.format"), MEGCC_NONE, format, FORMAT);
    }
    const uint32_t flags = fb_number(r, MODEL_FLAGS);
    if (flags != 0u) {
        return megcc_fail(error, MEGCC_E_UNSUPPORTED, AT("Model.flags"), MEGCC_NONE, flags, 0);
    }
    model->id = fb_long(r, MODEL_ID);
    model->weights_crc = fb_number(r, MODEL_CRC);
    const megcc_rows weights = fb_vector(r, MODEL_WEIGHTS, 1);
    REQUIRE(r->ok, "Model.weights", 0);
    model->weights = weights.data;
    model->weights_bytes = weights.count;
#if SIZE_MAX > UINT32_MAX
    const uint64_t begin = fb_long(r, MODEL_BEGIN);
    REQUIRE(r->ok && ((format == 1u && begin == 0u) || (format != 1u && begin % WEIGHT_UNIT == 0u && begin <= size)),
            "Model.weights_begin", 0);
    model->weight_unit = 1;
    if (format == 2u) {
        model->weights = model->data + begin;
        model->weights_bytes = size - begin;
        model->weight_unit = WEIGHT_UNIT;
        if (begin < model->size) {
            model->size = (uint32_t)begin;
        }
        *r = fb_open(model->data, model->size); /* the weights are excluded from what is parsed */
        fb_enter(r, 0);
        REQUIRE(r->ok, "Model.weights_begin", 0);
    } else
#endif
    {
        if (size > (size_t)INT32_MAX) {
            return megcc_fail(error, MEGCC_E_FORMAT, AT("size"), MEGCC_NONE, 0, INT32_MAX);
        }
    }
    const uint32_t name = fb_field(r, MODEL_NAME, 4);
    model->name = name == 0u ? "" : fb_string(r, name);
    REQUIRE(r->ok, "Model.name", 0);
    *programs = fb_vector(r, MODEL_PROGRAMS, 4);
    REQUIRE(r->ok, "Model.programs", 0);
    return MEGCC_OK;
}

/* The code of the program that was entered; NULL if the module has none. */
static const megcc_code *find_code(fb_reader *r, const megcc_module *module)
{
    const uint64_t id = fb_long(r, PROGRAM_CODE_ID);
    const uint32_t isa = fb_number(r, PROGRAM_ISA);
    for (uint32_t i = 0; i < module->codes; i++) {
        if (module->code[i].id == id && module->code[i].isa == isa) {
            return &module->code[i];
        }
    }
    return NULL;
}

int32_t megcc_verify(megcc_model *model, size_t size, const megcc_module *module, uint32_t cpu, megcc_error *error)
{
    model->size = size < (size_t)INT32_MAX ? (uint32_t)size : (uint32_t)INT32_MAX;
    fb_reader r = fb_open(model->data, model->size);
    megcc_rows programs = { NULL, 0 };
    const int32_t status = read_model(&r, model, size, &programs, error);
    bool has_code = false;
    for (uint32_t i = 0; status == MEGCC_OK && i < programs.count; i++) {
        fb_enter(&r, fb_offset(&r, programs.data) + 4u * i);
        const megcc_code *code = find_code(&r, module);
        REQUIRE(r.ok, "Model.programs", i);
        if (code != NULL && MEGCC_RUNS_ON(code->isa, cpu)) {
            return verify_program(&r, model, code, &model->program, error);
        }
        has_code |= code != NULL;
    }
    if (status != MEGCC_OK) {
        return status;
    }
    return megcc_fail(error, MEGCC_E_CODE, AT(has_code ? "Program.isa" : "Program.code_id"), MEGCC_NONE,
                      has_code ? cpu : 0u, 0);
}
