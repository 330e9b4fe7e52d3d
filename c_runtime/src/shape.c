/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes that are known only at run time: computes symbols from the inputs' dimensions, extents from symbols, and
 * chooses a bucket that contains them. A negative extent of the program stands for a symbol or value: it is -1 minus the
 * index in the session's table.
 */
#include "internal.h"

/* Checks that the shapes are those that the model was compiled for. */
static int32_t set_static_shapes(megcc_session *session, const megcc_shape *shapes, bool keep, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_row *row = tensor_at(p, number_at(p->rows[MEGCC_INPUTS], i));
        if (shapes[i].rank != (int32_t)row->rank
            || memcmp(shapes[i].dims, extents_of(p) + row->dims, 4u * row->rank) != 0) {
            return megcc_fail(error, MEGCC_E_SHAPE, AT("shapes"), MEGCC_NONE, i, 0);
        }
    }
    megcc_session_place(session, keep);
    return MEGCC_OK;
}

#ifndef MEGCC_NO_DYNAMIC

/* A table of the session: symbols, values, then the program's extents with both substituted. */
static int32_t *resolved(const megcc_program *p, int32_t *table)
{
    return table + p->symbols + p->values;
}

/* Makes the symbols from `first` on unknown. */
static void forget(const megcc_program *p, int32_t *table, uint32_t first)
{
    for (uint32_t s = first; s < p->symbols; s++) {
        table[s] = -1;
    }
}

/* A symbol gets the value of the first dimension that is exactly it; compare_inputs() finds contradictions. */
static int32_t find_symbols(const megcc_program *p, const megcc_shape *shapes, int32_t *table, megcc_error *error)
{
    forget(p, table, 0);
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_row *row = tensor_at(p, number_at(p->rows[MEGCC_INPUTS], i));
        if (shapes[i].rank != (int32_t)row->rank) {
            return megcc_fail(error, MEGCC_E_SHAPE, AT("shapes"), MEGCC_NONE, i, row->rank);
        }
        for (uint32_t axis = 0; axis < row->rank; axis++) {
            const int64_t symbol = -1 - (int64_t)extents_of(p)[row->dims + axis];
            if (symbol >= 0 && symbol < (int64_t)given_symbols(p) && table[symbol] < 0) {
                table[symbol] = shapes[i].dims[axis];
            }
        }
    }
    return MEGCC_OK;
}

/* Computes the values from the symbols, and then the extents; those that depend on an unknown symbol get negative. */
static int32_t resolve_extents(const megcc_program *p, int32_t *table, megcc_error *error)
{
    const char *why = AT("megcc_code.shapes");
    const int32_t violated = p->code->shapes(table, table + p->symbols, &why);
    if (violated != 0) {
        return megcc_fail(error, MEGCC_E_SHAPE, why, MEGCC_NONE, violated, 0);
    }
    int32_t *result = resolved(p, table);
    for (uint32_t i = 0; i < p->rows[MEGCC_EXTENTS].count; i++) {
        const int32_t extent = extents_of(p)[i];
        result[i] = extent >= 0 ? extent : table[-1 - (int64_t)extent];
    }
    return MEGCC_OK;
}

/* Compares every dimension of the inputs with its extent computed from the symbols. */
static int32_t compare_inputs(const megcc_program *p, const megcc_shape *shapes, int32_t *table, megcc_error *error)
{
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_row *row = tensor_at(p, number_at(p->rows[MEGCC_INPUTS], i));
        const int32_t *dims = resolved(p, table) + row->dims;
        bool known = shapes == NULL || memcmp(shapes[i].dims, dims, 4u * row->rank) == 0;
        for (uint32_t axis = 0; axis < row->rank; axis++) {
            known &= dims[axis] >= 0;
        }
        if (!known) {
            return megcc_fail(error, MEGCC_E_SHAPE, AT("shapes"), MEGCC_NONE, i, 0);
        }
    }
    return MEGCC_OK;
}

/* Whether a value of a symbol is within the bucket's bounds. */
static bool holds(const device_model *bucket, uint32_t symbol, int32_t value)
{
    const bound_row *b = row_at(bucket->bounds, symbol, sizeof *b);
    return b->lo <= value && (b->hi < 0 || value <= b->hi);
}

/* Finds the first bucket that contains all symbols or, unless `input` is NULL, those that are dimensions of `input`. */
static bool find_bucket(const megcc_model *model, const tensor_row *input, const int32_t *symbols,
                        device_model *bucket)
{
    const megcc_program *p = &model->program;
    for (uint32_t i = 0; i < p->rows[MEGCC_DEVICE_MODELS].count; i++) {
        megcc_device_model(model, i, bucket);
        bool found = true;
        for (uint32_t s = 0; found && input == NULL && s < given_symbols(p); s++) {
            found = holds(bucket, s, symbols[s]);
        }
        for (uint32_t axis = 0; found && input != NULL && axis < input->rank; axis++) {
            const int64_t symbol = -1 - (int64_t)extents_of(p)[input->dims + axis];
            if (symbol >= 0 && symbol < (int64_t)p->symbols) {
                found = holds(bucket, (uint32_t)symbol, symbols[symbol]);
            }
        }
        if (found) {
            return true;
        }
    }
    return false;
}

/* Reports that no bucket contains these shapes: names the first input that is in none by itself, or else the last. */
static int32_t blame_input(const megcc_model *model, const int32_t *symbols, megcc_error *error)
{
    const megcc_rows inputs = model->program.rows[MEGCC_INPUTS];
    const megcc_program *p = &model->program;
    device_model bucket;
    uint32_t i = 0;
    while (i + 1u < inputs.count && find_bucket(model, tensor_at(p, number_at(inputs, i)), symbols, &bucket)) {
        i++;
    }
    return megcc_fail(error, MEGCC_E_SHAPE, AT("shapes"), MEGCC_NONE, i, 0);
}

/* Whether the session's states have the same addresses and extents in another bucket. */
static bool states_stay(const megcc_session *session, const device_model *other, const int32_t *extents)
{
    const megcc_program *p = &session->model->program;
    const tensor_slot *now = row_at(session->bucket.tensors, 0, sizeof *now);
    const tensor_slot *then = row_at(other->tensors, 0, sizeof *then);
    bool stay = true;
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count; i++) {
        const tensor_row *row = tensor_at(p, i);
        stay &= row->storage != STORAGE_STATE
            || (now[i].offset == then[i].offset && now[i].bytes == then[i].bytes
                && memcmp(session->extents + row->dims, extents + row->dims, 4u * row->rank) == 0);
    }
    return stay;
}

/* Sets the shapes; NULL: all inputs have static shapes. Everything is computed and checked in the second table, which
 * becomes the current one only after success. keep: fail if the states would move or change their size. */
static int32_t set_dynamic_shapes(megcc_session *session, const megcc_shape *shapes, bool keep, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    int32_t *table = session->table[1];
    device_model bucket;

    int32_t status = MEGCC_OK;
    if (shapes != NULL) {
        status = find_symbols(p, shapes, table, error);
    } else {
        forget(p, table, 0);
    }
    if (status == MEGCC_OK && !find_bucket(session->model, NULL, table, &bucket)) {
        status = blame_input(session->model, table, error);
    }
    if (status == MEGCC_OK) {
        status = resolve_extents(p, table, error);
    }
    if (status == MEGCC_OK) {
        status = compare_inputs(p, shapes, table, error);
    }
    if (status == MEGCC_OK) {
        status = megcc_verify_sizes(p, &bucket, resolved(p, table), 0, MEGCC_E_SHAPE, error);
    }
    if (status == MEGCC_OK && keep && !states_stay(session, &bucket, resolved(p, table))) {
        status = megcc_fail(error, MEGCC_E_SHAPE, AT("TensorSlot.offset"), MEGCC_NONE, 0, 0);
    }
    if (status != MEGCC_OK) {
        return status;
    }

    session->table[1] = session->table[0];
    session->table[0] = table;
    session->extents = resolved(p, table);
    session->bucket = bucket;
    /* An empty range, although the calls before the first `extent` were verified above: that `extent` has not been looked
     * for. A jump to one of them verifies again. */
    session->checked[0] = 1;
    session->checked[1] = 0;
    megcc_session_place(session, keep);
    return MEGCC_OK;
}

int32_t megcc_session_own_shapes(megcc_session *session, megcc_error *error)
{
    return set_dynamic_shapes(session, NULL, false, error);
}

/* Reads the value of the symbol of an instruction `extent`: an element of an int64 tensor. */
static int32_t read_symbol(const megcc_session *session, uint32_t instruction, int32_t *result, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    const instruction_row *row = instruction_at(p, instruction);
    const uint32_t tensor = row->operands, element = row->inputs, symbol = row->first_extent;
    const bound_row *bound = row_at(session->bucket.bounds, symbol, sizeof *bound);
    const uint8_t *data = address_of(session, tensor);
    const uint32_t most = (uint32_t)bound->hi & (uint32_t)INT32_MAX; /* a bound of -1, no limit, becomes INT32_MAX */
    int64_t value;
    if (data == NULL || megcc_tensor_bytes(tensor_at(p, tensor), session->extents) / sizeof value <= element) {
        return megcc_fail(error, MEGCC_E_ORDER, AT("Instruction.operands"), instruction, tensor, 0);
    }
    (void)memcpy((uint8_t *)&value, data + sizeof value * element, sizeof value);
    if (value < bound->lo || value > (int64_t)most) {
        return megcc_fail(error, MEGCC_E_SHAPE, AT("Bound.hi"), instruction, value, most);
    }
    *result = (int32_t)value;
    return MEGCC_OK;
}

int32_t megcc_session_verify(megcc_session *session, uint32_t instruction, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    /* At checked[1] there is no call: it is an instruction `extent`, or the end. */
    if (p->unbacked_symbols == 0u || (session->checked[0] <= instruction && instruction <= session->checked[1])) {
        return MEGCC_OK;
    }
#ifdef MEGCC_TRUSTED_DATA
    /* The compiler planned the memory for all values of symbols within their bounds, and read_symbol checks these. */
    if (p->unbounded == 0u) {
        return MEGCC_OK;
    }
#endif
    session->checked[0] = session->checked[1] = instruction;
    const int32_t status = megcc_verify_sizes(p, &session->bucket, session->extents, instruction, MEGCC_E_SHAPE, error);
    while (status == MEGCC_OK && session->checked[1] < p->rows[MEGCC_INSTRUCTIONS].count
           && instruction_at(p, session->checked[1])->opcode != OP_EXTENT) {
        session->checked[1]++;
    }
    return status;
}

int32_t megcc_session_extent(megcc_session *session, uint32_t instruction, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    const uint32_t symbol = instruction_at(p, instruction)->first_extent;
    int32_t *table = session->table[0];
    forget(p, table, symbol);
    int32_t status = read_symbol(session, instruction, &table[symbol], error);
    if (status == MEGCC_OK) {
        status = resolve_extents(p, table, error);
    }
    session->checked[1] = 0; /* no call is verified with the new extents yet */
    if (status == MEGCC_OK) {
        status = megcc_session_verify(session, instruction + 1u, error);
    }
    if (status != MEGCC_OK) { /* extents that no check has accepted must not stay */
        forget(p, table, symbol);
        (void)resolve_extents(p, table, NULL);
    }
    /* Tensors that the new extents enlarge get other memory when they are written. */
    for (uint32_t i = 0; p->unbounded != 0u && i < p->rows[MEGCC_TENSORS].count; i++) {
        megcc_release_small(session, i);
    }
    return status;
}

#endif

/* Sets the shapes of all inputs. Existing states keep their values. */
static int32_t set_shapes(megcc_session *session, const megcc_shape *shapes, uint32_t count, bool keep,
                          megcc_error *error)
{
    if (session == NULL) {
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("NULL"), MEGCC_NONE, 0, 0);
    }
    const uint32_t inputs = session->model->program.rows[MEGCC_INPUTS].count;
    if (shapes == NULL || count != inputs) {
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("count"), MEGCC_NONE, count, inputs);
    }
    keep = keep && session->extents != NULL;
#ifndef MEGCC_NO_DYNAMIC
    if (is_dynamic(&session->model->program)) {
        return set_dynamic_shapes(session, shapes, keep, error);
    }
#endif
    return set_static_shapes(session, shapes, keep, error);
}

int32_t megcc_session_set_shapes(megcc_session *session, const megcc_shape *shapes, uint32_t count,
                                 megcc_error *error)
{
    return set_shapes(session, shapes, count, false, error);
}

#ifndef MEGCC_NO_DYNAMIC
int32_t megcc_session_reshape(megcc_session *session, const megcc_shape *shapes, uint32_t count, megcc_error *error)
{
    return set_shapes(session, shapes, count, true, error);
}
#endif
