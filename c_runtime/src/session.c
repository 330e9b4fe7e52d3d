/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens and closes sessions, and gives access to their inputs and outputs. A session is one block of the caller's memory
 * with, in this order: the struct, pointers, 32-bit words, and the arena. megcc_model_memory() computes its size.
 */
#include "internal.h"

/* Fails to compile if MEGCC_SESSION_BYTES, which callers use for arrays, is too small. */
typedef char session_fits[sizeof(struct megcc_session) <= MEGCC_SESSION_BYTES ? 1 : -1];

#ifndef MEGCC_NO_CALLBACKS
static int32_t check_options(const megcc_model *model, const megcc_session_options *options, megcc_error *error)
{
    if (options->parallel.run == NULL) {
        return MEGCC_OK;
    }
#ifdef MEGCC_NO_THREADS
    (void)model;
    return megcc_fail(error, MEGCC_E_UNSUPPORTED, AT("MEGCC_NO_THREADS"), MEGCC_NONE, 0, 0);
#else
    const int32_t workers = options->parallel.workers;
    if (workers < 1 || (uint32_t)workers > model->program.workers) {
        return megcc_fail(error, MEGCC_E_THREADS, AT("parallel.workers"), MEGCC_NONE, workers, model->program.workers);
    }
    return MEGCC_OK;
#endif
}
#endif

#ifndef MEGCC_NO_REGIONS
/* Whether the caller gave the memory regions that the model needs besides the session's own block. */
static int32_t check_regions(const megcc_model *model, const megcc_session_options *options, size_t alignment,
                             megcc_error *error)
{
    for (uint32_t i = 0; i < (uint32_t)MEGCC_MAX_REGIONS - 1u; i++) {
        const size_t needed = megcc_model_region(model, i);
        if (needed == 0u) {
            continue;
        }
        const megcc_region none = { NULL, 0 };
        const megcc_region *region = options != NULL ? &options->region[i] : &none;
        if (region->memory == NULL || region->bytes < needed) {
            return megcc_fail(error, MEGCC_E_MEMORY, AT("region"), MEGCC_NONE, i, needed);
        }
        if (!is_aligned(region->memory, alignment)) {
            return megcc_fail(error, MEGCC_E_MEMORY, AT("region"), MEGCC_NONE, i, alignment);
        }
    }
    return MEGCC_OK;
}
#endif

/* Divides the block, which is large enough and zeroed up to the arena, into its parts. */
static void divide(megcc_session *session, size_t arena_at)
{
    const megcc_program *p = &session->model->program;
    void *at = (uint8_t *)session + MEGCC_SESSION_BYTES;
    session->base = at;
    at = session->base + bases_of(p);
#ifndef MEGCC_NO_DYNAMIC
    if (p->unbounded != 0u) {
        session->capacity = at;
        at = session->capacity + bases_of(p);
    }
#endif
    session->operands = at;
    at = (void **)at + p->operands;
    session->status = at;
#ifndef MEGCC_NO_DYNAMIC
    if (is_dynamic(p)) {
        const size_t words = (size_t)p->symbols + p->values + p->rows[MEGCC_EXTENTS].count;
        /* Two tables: megcc_session_set_shapes() fills the second one, and exchanges them if the shapes are valid. */
        session->table[0] = session->status + p->workers;
        session->table[1] = session->table[0] + words;
    }
#endif
    session->arena = (uint8_t *)session + arena_at;
}

int32_t megcc_session_open(megcc_session **result, const megcc_model *model, void *memory, size_t size,
                           const megcc_session_options *options, megcc_error *error)
{
    if (result == NULL || model == NULL) {
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("NULL"), MEGCC_NONE, 0, 0);
    }
    *result = NULL;
    size_t alignment;
    const size_t needed = megcc_model_memory(model, &alignment);
    if (memory == NULL) {
        return megcc_fail(error, MEGCC_E_MEMORY, AT("NULL"), MEGCC_NONE, 0, needed);
    }
    if (size < needed || needed == SIZE_MAX) {
        return megcc_fail(error, MEGCC_E_MEMORY, AT("size"), MEGCC_NONE, (int64_t)size, needed);
    }
    if (!is_aligned(memory, alignment)) {
        return megcc_fail(error, MEGCC_E_MEMORY, AT("memory"), MEGCC_NONE, 0, alignment);
    }
#ifndef MEGCC_NO_CALLBACKS
    if (options != NULL) {
        const int32_t status = check_options(model, options, error);
        if (status != MEGCC_OK) {
            return status;
        }
    }
#endif
#ifndef MEGCC_NO_REGIONS
    const int32_t regions_status = check_regions(model, options, alignment, error);
    if (regions_status != MEGCC_OK) {
        return regions_status;
    }
#endif

    megcc_session *session = memory;
    const size_t arena_at = needed - model->program.arena_bytes;
    (void)memset(session, 0, arena_at);
    session->model = model;
    if (options != NULL) {
        session->options = *options;
    }
    divide(session, arena_at);
    if (!is_dynamic(&model->program)) {
        megcc_device_model(model, 0, &session->bucket);
        session->extents = extents_of(&model->program);
#ifndef MEGCC_NO_REGIONS
        megcc_session_copy_weights(session); /* first, since the initial value of a state may be a weight */
#endif
        megcc_session_place(session, false); /* no states to keep */
    }
#ifndef MEGCC_NO_DYNAMIC
    else if (given_symbols(&model->program) == 0u) {
        const int32_t status = megcc_session_own_shapes(session, error);
        if (status != MEGCC_OK) {
            return status;
        }
    } else {
        /* the caller gives the shapes, see megcc_session_set_shapes() */
    }
#endif
    *result = session;
    return MEGCC_OK;
}

void megcc_session_close(megcc_session *session)
{
#ifndef MEGCC_NO_DYNAMIC
    if (session == NULL) {
        return;
    }
    const megcc_program *p = &session->model->program;
    for (uint32_t i = 0; p->unbounded != 0u && i < p->rows[MEGCC_TENSORS].count; i++) {
        megcc_release(session, i);
    }
    (void)megcc_grow(session, &session->workspace, &session->workspace_bytes, 0);
#else
    (void)session;
#endif
}

/* --- inputs and outputs ---------------------------------------------------------------------------------------- */

static const int32_t *known_extents(const megcc_session *session)
{
    return session->extents != NULL ? session->extents : extents_of(&session->model->program);
}

/* Whether a tensor is not bound to the caller's memory and has its own; allocates that for an unbounded input. */
static bool has_own_memory(megcc_session *session, uint32_t tensor)
{
#ifndef MEGCC_NO_DYNAMIC
    if (tensor_at(&session->model->program, tensor)->storage == STORAGE_UNBOUNDED) {
        const bool is_bound = session->base[tensor] != NULL && session->capacity[tensor] == 0u;
        return !is_bound && megcc_materialise(session, tensor, NULL) == MEGCC_OK;
    }
#endif
    return session->base[tensor] == megcc_session_own_address(session, tensor);
}

/* Returns the tensor of a port and describes it in `tensor`, unless that is NULL; MEGCC_NONE if there is no such port. table:
 * MEGCC_INPUTS or MEGCC_OUTPUTS. */
static uint32_t tensor_of_port(const megcc_session *session, uint32_t table, uint32_t index, megcc_tensor *tensor)
{
    if (session == NULL || index >= session->model->program.rows[table].count) {
        return MEGCC_NONE;
    }
    const megcc_program *p = &session->model->program;
    const uint32_t found = number_at(p->rows[table], index);
    if (tensor != NULL) {
        megcc_describe(p, found, known_extents(session), tensor);
    }
    return found;
}

void *megcc_session_input(megcc_session *session, uint32_t index, megcc_tensor *tensor)
{
    const uint32_t input = tensor_of_port(session, MEGCC_INPUTS, index, tensor);
    if (input == MEGCC_NONE || session->extents == NULL || !has_own_memory(session, input)) {
        return NULL;
    }
    return session->base[input];
}

const void *megcc_session_output(megcc_session *session, uint32_t index, megcc_tensor *tensor)
{
    const uint32_t output = tensor_of_port(session, MEGCC_OUTPUTS, index, tensor);
    return output == MEGCC_NONE ? NULL : session->base[output];
}

/* The bytes that memory bound to an input or output must have. An output whose extents the next run computes can get as
 * large as its slot; without a slot of a size that is checked, it cannot be bound. */
static uint64_t capacity_of_port(const megcc_session *session, uint32_t tensor)
{
    const megcc_program *p = &session->model->program;
    const tensor_slot *slot = row_at(session->bucket.tensors, tensor, sizeof *slot);
    if (p->unbacked_symbols == 0u || is_input(p, tensor)) {
        return megcc_tensor_bytes(tensor_at(p, tensor), session->extents);
    }
    const uint8_t storage = tensor_at(p, tensor)->storage;
    return storage == STORAGE_UNBOUNDED || storage == STORAGE_CALLER ? UINT64_MAX : slot->bytes;
}

/* Binds a tensor to `data`, or, if that is NULL, to its own memory again. table: MEGCC_INPUTS or MEGCC_OUTPUTS. */
static int32_t bind(megcc_session *session, uint32_t table, uint32_t index, uint8_t *data, size_t bytes)
{
    const uint32_t tensor = tensor_of_port(session, table, index, NULL);
    if (tensor == MEGCC_NONE) {
        return MEGCC_E_ARGUMENT;
    }
    if (session->extents == NULL || session->next != 0u) {
        return MEGCC_E_ORDER;
    }
    const tensor_row *row = tensor_at(&session->model->program, tensor);
    if (row->storage == STORAGE_STATE) {
        return MEGCC_E_ARGUMENT;
    }
    if (data != NULL && (bytes < capacity_of_port(session, tensor) || !is_aligned(data, megcc_dtype_bytes(row->dtype)))) {
        return MEGCC_E_ARGUMENT;
    }
#ifndef MEGCC_NO_DYNAMIC
    megcc_release(session, tensor);
#endif
    session->base[tensor] = data != NULL ? data : megcc_session_own_address(session, tensor);
    return MEGCC_OK;
}

int32_t megcc_session_bind_input(megcc_session *session, uint32_t index, const void *data, size_t bytes)
{
    return bind(session, MEGCC_INPUTS, index, (uint8_t *)(uintptr_t)data, bytes);
}

int32_t megcc_session_bind_output(megcc_session *session, uint32_t index, void *data, size_t bytes)
{
    return bind(session, MEGCC_OUTPUTS, index, data, bytes);
}
