/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of a session's tensors, and the states that it keeps from run to run.
 */
#include "internal.h"

uint8_t *megcc_session_at(const megcc_session *session, uint32_t offset)
{
#ifndef MEGCC_NO_REGIONS
    const megcc_rows regions = session->bucket.regions;
    for (uint32_t i = 0; i < regions.count; i++) {
        const uint32_t bytes = number_at(regions, i);
        if (offset < bytes || i + 1u == regions.count) {
            return (i == 0u ? session->arena : (uint8_t *)session->options.region[i - 1u].memory) + offset;
        }
        offset -= bytes;
    }
#endif
    return session->arena + offset;
}

/* The address of a tensor that is a weight, a state or in the arena; the beginning of the arena for others. */
static uint8_t *own_address(const megcc_session *session, const tensor_row *row, const tensor_slot *slot)
{
    bool in_arena = row->storage != STORAGE_WEIGHT;
#ifndef MEGCC_NO_REGIONS
    in_arena = in_arena || slot->bytes != 0u; /* megcc_session_copy_weights() has copied it */
#endif
    /* Weights are never outputs: see verify.c. */
    return in_arena ? megcc_session_at(session, slot->offset)
                    : (uint8_t *)(uintptr_t)(session->model->weights + weight_begin(session->model, row));
}

uint8_t *megcc_session_own_address(const megcc_session *session, uint32_t tensor)
{
    const tensor_row *row = tensor_at(&session->model->program, tensor);
    const tensor_slot *slot = row_at(session->bucket.tensors, tensor, sizeof *slot);
    const bool has_one = row->storage == STORAGE_WEIGHT || row->storage == STORAGE_ARENA || row->storage == STORAGE_STATE;
    return has_one ? own_address(session, row, slot) : NULL;
}

void megcc_session_addresses(const megcc_session *session, const row_u32 *tensors, uint32_t count, void **result)
{
    const megcc_program *p = &session->model->program;
    const tensor_row *rows = tensor_at(p, 0);
    const tensor_slot *slots = row_at(session->bucket.tensors, 0, sizeof *slots);
    const uint32_t bases = bases_of(p);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t root = tensors[i], offset = 0;
        if (rows[root].storage == STORAGE_VIEW) {
            offset = rows[root].data;
            root = rows[root].root;
        }
        /* Inputs, outputs and unbounded tensors have a base. The other address is computed anyway: around a call that depends
         * on this, gcc makes two loops. */
        uint8_t *at = own_address(session, &rows[root], &slots[root]);
        if (root < bases) {
            at = session->base[root];
        }
        result[i] = offset != 0u && at != NULL ? at + offset : at;
    }
}

#ifndef MEGCC_NO_REGIONS
void megcc_session_copy_weights(megcc_session *session)
{
    const megcc_program *p = &session->model->program;
    for (uint32_t i = 0; i < p->rows[MEGCC_TENSORS].count; i++) {
        const tensor_slot *slot = row_at(session->bucket.tensors, i, sizeof *slot);
        const tensor_row *row = tensor_at(p, i);
        if (row->storage == STORAGE_WEIGHT && slot->bytes != 0u) {
            (void)memcpy(megcc_session_at(session, slot->offset),
                         session->model->weights + weight_begin(session->model, row), row->bytes);
        }
    }
}
#endif

void megcc_session_place(megcc_session *session, bool keep)
{
    for (uint32_t i = 0; i < bases_of(&session->model->program); i++) {
#ifndef MEGCC_NO_DYNAMIC
        megcc_release_small(session, i);
        if (session->capacity != NULL && session->capacity[i] != 0u) {
            continue; /* its memory from the allocator is still large enough */
        }
#endif
        session->base[i] = megcc_session_own_address(session, i);
    }
    session->next = 0;
    if (!keep) {
        megcc_session_reset(session);
    }
}

/* --- states ---------------------------------------------------------------------------------------------------- */

static const state_row *state_at(const megcc_program *p, uint32_t index)
{
    return row_at(p->rows[MEGCC_STATES], index, sizeof(state_row));
}

void megcc_session_reset(megcc_session *session)
{
    if (session == NULL) {
        return;
    }
    const megcc_program *p = &session->model->program;
    session->next = 0;
    for (uint32_t i = 0; session->extents != NULL && i < p->rows[MEGCC_STATES].count; i++) {
        const uint32_t input = number_at(p->rows[MEGCC_INPUTS], state_at(p, i)->input);
        const tensor_row *state = tensor_at(p, input);
        const size_t bytes = (size_t)megcc_tensor_bytes(state, session->extents);
        (void)memset(session->base[input], 0, bytes);
        if (state->root != 0u) { /* the initial value: one number for all elements, or all of them */
            const uint8_t *first = megcc_session_own_address(session, state->root);
            for (size_t at = 0; at < bytes; at++) {
                session->base[input][at] = first[at % tensor_at(p, state->root)->bytes];
            }
        }
    }
}

void megcc_session_keep_states(megcc_session *session)
{
    const megcc_program *p = &session->model->program;
    for (uint32_t i = 0; i < p->rows[MEGCC_STATES].count; i++) {
        const uint32_t output = number_at(p->rows[MEGCC_OUTPUTS], state_at(p, i)->output);
        const uint32_t input = number_at(p->rows[MEGCC_INPUTS], state_at(p, i)->input);
        if (session->base[input] != session->base[output]) { /* else the output was computed in place */
            (void)memcpy(session->base[input], session->base[output],
                   (size_t)megcc_tensor_bytes(tensor_at(p, input), session->extents));
        }
    }
}
