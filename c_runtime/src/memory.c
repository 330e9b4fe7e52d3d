/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory from the caller's allocator during a run: for tensors without an upper bound, and for workspace.
 */
#include "internal.h"

#ifndef MEGCC_NO_DYNAMIC

int32_t megcc_grow(megcc_session *session, uint8_t **memory, size_t *capacity, uint64_t bytes)
{
    const megcc_allocator *allocator = &session->options.allocator;
    const uint64_t limit = session->options.memory_limit;
    if (bytes != 0u && *capacity >= bytes) {
        return MEGCC_OK;
    }
    if (*capacity != 0) {
        allocator->resize(allocator->user, *memory, *capacity, 0);
        session->allocated -= *capacity;
    }
    *memory = NULL;
    *capacity = 0;
    if (bytes == 0u) {
        return MEGCC_OK;
    }
    if (limit != 0u && (bytes > limit || session->allocated > limit - bytes)) {
        return MEGCC_E_MEMORY;
    }
    if (allocator->resize == NULL || bytes > SIZE_MAX) {
        return MEGCC_E_ALLOCATION;
    }
    void *block = allocator->resize(allocator->user, NULL, 0, (size_t)bytes);
    if (block == NULL) {
        return MEGCC_E_ALLOCATION;
    }
    if (!is_aligned(block, session->model->program.alignment)) {
        allocator->resize(allocator->user, block, (size_t)bytes, 0);
        return MEGCC_E_ALLOCATION;
    }
    *memory = block;
    *capacity = (size_t)bytes;
    session->allocated += bytes;
    return MEGCC_OK;
}

int32_t megcc_materialise(megcc_session *session, uint32_t tensor, megcc_error *error)
{
    if (session->base[tensor] != NULL) { /* bound to the caller's memory, or kept because it is large enough */
        return MEGCC_OK;
    }
    const uint64_t bytes = megcc_tensor_bytes(tensor_at(&session->model->program, tensor), session->extents);
    /* A tensor without elements gets a byte: an address of NULL means that nothing has written the tensor. */
    const int32_t status = megcc_grow(session, &session->base[tensor], &session->capacity[tensor], bytes != 0u ? bytes : 1u);
    return status == MEGCC_OK ? MEGCC_OK : megcc_fail(error, status, AT("allocator"), session->next, tensor, bytes);
}

void megcc_release(megcc_session *session, uint32_t tensor)
{
    if (session->capacity != NULL && session->capacity[tensor] != 0u) {
        (void)megcc_grow(session, &session->base[tensor], &session->capacity[tensor], 0);
    }
}

void megcc_release_small(megcc_session *session, uint32_t tensor)
{
    const tensor_row *row = tensor_at(&session->model->program, tensor);
    if (session->capacity != NULL && session->capacity[tensor] < megcc_tensor_bytes(row, session->extents)) {
        megcc_release(session, tensor);
    }
}

#endif
