/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes the instructions branch, loop and move (Opcode in schema/megcc.fbs). verify.c has checked jump targets and the
 * types of operands. The session's limit of iterations makes every loop end.
 */
#include "internal.h"

#ifndef MEGCC_NO_DYNAMIC

#define MOST_ITERATIONS 0xFFFFFFFFu /* in a run, unless the session sets another limit */

/* The address of an operand of the instruction; NULL if it has no memory yet. */
static uint8_t *operand_of(const megcc_session *session, const instruction_row *row, uint32_t index)
{
    return address_of(session, operand_at(&session->model->program, row, index));
}

/* Allocates memory for an operand that the instruction writes, if it is an unbounded tensor, or a view of one. */
static int32_t allocate_operand(megcc_session *session, const instruction_row *row, uint32_t index, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    const uint32_t root = root_of(p, operand_at(p, row, index));
    return tensor_at(p, root)->storage == STORAGE_UNBOUNDED ? megcc_materialise(session, root, error) : MEGCC_OK;
}

/* Makes `target` the next instruction. If the run computes extents, checks the calls there, unless that was done. */
static int32_t go_to(megcc_session *session, uint32_t target, megcc_error *error)
{
    session->next = target - 1u; /* megcc_session_step() adds 1 after each instruction */
    return megcc_session_verify(session, target, error);
}

/* Copies operand 0 to operand 1. If there is an operand 2, an index, operand 1 is an array of such values, such as the
 * results of all iterations of a loop, and operand 0 is copied to its element at that index. */
static int32_t move(megcc_session *session, const instruction_row *row, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    const uint64_t bytes = megcc_tensor_bytes(tensor_at(p, operand_at(p, row, 0)), session->extents);
    const uint64_t capacity = megcc_tensor_bytes(tensor_at(p, operand_at(p, row, 1)), session->extents);
    const int32_t status = allocate_operand(session, row, 1, error);
    if (status != MEGCC_OK) {
        return status;
    }
    const uint8_t *from = operand_of(session, row, 0);
    uint8_t *to = operand_of(session, row, 1);
    int64_t index = 0;
    if (row->inputs == 3u) {
        const uint8_t *number = operand_of(session, row, 2);
        if (number == NULL) {
            return megcc_fail(error, MEGCC_E_ORDER, AT("Program.operands"), session->next, row->operands, 0);
        }
        (void)memcpy((uint8_t *)&index, number, sizeof index);
    }
    if (bytes == 0u) {
        return MEGCC_OK;
    }
    if (from == NULL || to == NULL) {
        return megcc_fail(error, MEGCC_E_ORDER, AT("Program.operands"), session->next, row->operands, 0);
    }
    if (index < 0 || (uint64_t)index >= capacity / bytes) {
        return megcc_fail(error, MEGCC_E_SHAPE, AT("Tensor.dims"), session->next, index, capacity / bytes);
    }
    (void)memcpy(to + (uint64_t)index * bytes, from, (size_t)bytes);
    return MEGCC_OK;
}

/* Begins a loop (inputs = 0), or ends an iteration of it (1). The begin jumps to the instruction after the loop if there is no
 * iteration; the end jumps back if there is a further one. */
static int32_t loop(megcc_session *session, const instruction_row *row, megcc_error *error)
{
    const uint64_t limit = session->options.iteration_limit != 0u ? session->options.iteration_limit : MOST_ITERATIONS;
    const int32_t status = allocate_operand(session, row, 0, error);
    if (status != MEGCC_OK) {
        return status;
    }
    uint8_t *iteration = operand_of(session, row, 0);
    const uint8_t *trip_count = operand_of(session, row, 1), *condition = operand_of(session, row, 2);
    const bool is_end = row->inputs != 0u;
    int64_t number = 0, end;
    if (iteration == NULL || trip_count == NULL || condition == NULL) {
        return megcc_fail(error, MEGCC_E_ORDER, AT("Program.operands"), session->next, row->operands, 0);
    }
    if (is_end) {
        (void)memcpy((uint8_t *)&number, iteration, sizeof number);
        number += number < INT64_MAX ? 1 : 0;
    }
    (void)memcpy(iteration, (const uint8_t *)&number, sizeof number);
    (void)memcpy((uint8_t *)&end, trip_count, sizeof end);
    const bool goes_on = number < end && *condition != 0u, jumps = is_end ? goes_on : !goes_on;
    if (!jumps) {
        return MEGCC_OK;
    }
    if (is_end && session->iterations++ == limit) {
        return megcc_fail(error, MEGCC_E_CANCELLED, AT("iteration_limit"), session->next, (int64_t)limit, 0);
    }
    return go_to(session, row->first_extent, error);
}

int32_t megcc_session_control(megcc_session *session, const instruction_row *row, megcc_error *error)
{
    if (row->opcode == OP_MOVE) {
        return move(session, row, error);
    }
    if (row->opcode == OP_LOOP) {
        return loop(session, row, error);
    }
    const uint8_t *value = operand_of(session, row, 0); /* a branch jumps if the value is `inputs`, 0 or 1 */
    if (value == NULL) {
        return megcc_fail(error, MEGCC_E_ORDER, AT("Program.operands"), session->next, row->operands, 0);
    }
    return (*value != 0u) == (row->inputs != 0u) ? go_to(session, row->first_extent, error) : MEGCC_OK;
}

#endif
