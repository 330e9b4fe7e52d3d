/* SPDX-License-Identifier: Apache-2.0
 *
 * The virtual machine: executes instructions in order. Everything was checked before, so only the results of callbacks
 * and of allocations are checked here.
 */
#include "internal.h"

#ifndef MEGCC_NO_THREADS
/* A call that is divided into pieces of tasks, for the workers. */
typedef struct job {
    const megcc_call *call;
    megcc_kernel_fn run;
    uint8_t *scratch;
    uint64_t scratch_bytes;     /* of each worker */
    int32_t tasks, pieces, workers;
    int32_t *status;            /* of each worker */
    bool misused;               /* the hook called for a piece or worker that does not exist */
} job;

/* The pieces of a worker's share. */
enum { PIECES = 5 };

/* Finds the tasks of a piece. Each piece of a share is half of what the ones before it leave, so that a call has few
 * pieces and workers end at nearly the same time: "guided self-scheduling" (Polychronopoulos and Kuck, 1987). The last two
 * are equal. */
static void piece_of_share(const job *j, int32_t piece, int32_t *begin, int32_t *end)
{
    const int32_t share = piece / PIECES, halvings = piece % PIECES;
    const int32_t first = (int32_t)((int64_t)j->tasks * share / j->workers);
    const int32_t last = (int32_t)((int64_t)j->tasks * ((int64_t)share + 1) / j->workers);
    const uint32_t all = (uint32_t)last - (uint32_t)first, left = all >> (uint32_t)halvings, after = left / 2u;
    *begin = last - (int32_t)left;
    *end = halvings == PIECES - 1 ? last : last - (int32_t)after;
}

/* megcc_body: runs the tasks of a piece. The caller's hook calls it, so the numbers are checked. */
static void run_piece(void *context, int32_t piece, int32_t worker)
{
    job *j = context;
    if (worker < 0 || worker >= j->workers || piece < 0 || piece >= j->pieces) {
        j->misused = true;
        return;
    }
    if (j->status[worker] != MEGCC_OK) {
        return;
    }
    int32_t begin = piece, end = piece + 1;
    if (j->pieces != j->tasks) {
        piece_of_share(j, piece, &begin, &end);
    }
    if (begin == end) {
        return;
    }
    uint8_t *scratch = j->scratch_bytes != 0u ? j->scratch + (uint64_t)worker * j->scratch_bytes : NULL;
    const int32_t status = j->run(j->call, begin, end, scratch);
    if (status != MEGCC_OK) { /* all workers' statuses share a cache line, so it is written only on failure */
        j->status[worker] = status;
    }
}

/* Runs all tasks with several workers, in some pieces for each, so that a slow one gets fewer. Returns the first status that
 * is not MEGCC_OK. */
static int32_t run_pieces(megcc_session *session, job *j)
{
    const megcc_parallel *parallel = &session->options.parallel;
    j->workers = parallel->workers;
    j->pieces = j->tasks / PIECES <= j->workers ? j->tasks : PIECES * j->workers;
    j->status = session->status;
    (void)memset(j->status, 0, sizeof *j->status * (size_t)j->workers);
    parallel->run(parallel->user, run_piece, j, j->pieces);
    for (int32_t i = 0; i < j->workers; i++) {
        if (j->status[i] != MEGCC_OK) {
            return j->status[i];
        }
    }
    return MEGCC_OK;
}

/* Whether workers share a call: waking them takes longer than a small one does. */
static bool is_shared(const megcc_parallel *parallel, const megcc_kernel *kernel, const call_need *need)
{
    return parallel->run != NULL && parallel->workers > 1 && need->tasks > 1
        && (kernel->alone == 0u || need->bytes >> kernel->alone != 0u);
}
#endif

/* Runs a kernel. memory: its shared workspace and, after that, the workers' scratch. */
static int32_t run_kernel(megcc_session *session, const megcc_kernel *kernel, const megcc_call *call,
                          const call_need *need, uint8_t *memory, bool *misused)
{
    uint8_t *scratch = need->scratch != 0u ? memory + need->shared : NULL;
#ifndef MEGCC_NO_THREADS
    if (is_shared(&session->options.parallel, kernel, need)) {
        job j = { .call = call, .run = kernel->run, .scratch = scratch, .scratch_bytes = need->scratch,
                  .tasks = need->tasks };
        const int32_t status = run_pieces(session, &j);
        *misused = j.misused;
        return status;
    }
#else
    (void)session;
#endif
    *misused = false;
    return kernel->run(call, 0, need->tasks, scratch);
}

/* Finds the workspace of a call, in the arena or allocated; *result is NULL if an allocated one has no bytes. */
static int32_t workspace(megcc_session *session, const call_slot *slot, const call_need *need, uint8_t **result)
{
#ifndef MEGCC_NO_DYNAMIC
    if (slot->workspace == MEGCC_ALLOCATED) {
        const uint64_t bytes = need->shared + session->model->program.workers * need->scratch;
        *result = NULL;
        if (bytes == 0u) {
            return MEGCC_OK;
        }
        const int32_t status = megcc_grow(session, &session->workspace, &session->workspace_bytes, bytes);
        *result = session->workspace;
        return status;
    }
#else
    (void)need;
#endif
    *result = megcc_session_at(session, slot->workspace);
    return MEGCC_OK;
}

#ifndef MEGCC_NO_DYNAMIC
/* Allocates memory for the outputs of a call that have no place in the arena, and checks that its inputs have some. */
static int32_t allocate_operands(megcc_session *session, const instruction_row *row, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    for (uint32_t i = 0; i < (uint32_t)row->inputs + row->outputs; i++) {
        const uint32_t tensor = operand_at(p, row, i), root = root_of(p, tensor);
        if (tensor_at(p, root)->storage == STORAGE_UNBOUNDED) {
            const int32_t status = i < row->inputs ? MEGCC_OK : megcc_materialise(session, root, error);
            if (status != MEGCC_OK) {
                return status;
            }
            /* An input has no memory if nothing has written it, as after a loop without iterations. Then it must be empty. */
            if (session->base[root] == NULL && megcc_tensor_bytes(tensor_at(p, tensor), session->extents) != 0u) {
                return megcc_fail(error, MEGCC_E_ORDER, AT("Program.operands"), session->next, root, 0);
            }
        }
    }
    return MEGCC_OK;
}
#endif

/* Executes an instruction `call`: finds the addresses of its operands and its workspace, and runs its kernel. */
static int32_t run_call(megcc_session *session, const instruction_row *row, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    const uint32_t index = session->next;
    const call_slot *slot = row_at(session->bucket.calls, index, sizeof *slot);
    const megcc_kernel *kernel = &p->code->kernel[slot->kernel];
    const int32_t *extent = session->extents + row->first_extent;
    const void **in = session->operands;
    void **out = (void **)session->operands + row->inputs;

#ifndef MEGCC_NO_DYNAMIC
    const int32_t without = p->unbounded != 0u ? allocate_operands(session, row, error) : MEGCC_OK;
    if (without != MEGCC_OK) {
        return without;
    }
#endif
    megcc_session_addresses(session, row_at(p->rows[MEGCC_OPERANDS], row->operands, sizeof(row_u32)),
                            (uint32_t)row->inputs + row->outputs, session->operands);
    call_need need;
    uint8_t *memory;
    megcc_call_need(p, kernel, session->extents, row->first_extent, &need);
    const int32_t refused = workspace(session, slot, &need, &memory);
    if (refused != MEGCC_OK) {
        return megcc_fail(error, refused, AT("CallSlot.workspace"), index, 0, need.shared);
    }
    const megcc_call call = { in, out, extent, need.shared != 0u ? memory : NULL };
    bool misused;
    const int32_t status = run_kernel(session, kernel, &call, &need, memory, &misused);
    if (misused) {
        return megcc_fail(error, MEGCC_E_THREADS, AT("parallel.run"), index, 0, 0);
    }
    if (status != MEGCC_OK) {
        return megcc_fail(error, MEGCC_E_KERNEL, AT("kernel"), index, status, 0);
    }
    return MEGCC_OK;
}

#ifndef MEGCC_NO_CALLBACKS
static int32_t observe(megcc_session *session, int32_t after, megcc_error *error)
{
    const megcc_observer *observer = &session->options.observer;
    const int32_t answer = observer->observe(observer->user, session, session->next, after);
    if (answer != 0) {
        return megcc_fail(error, MEGCC_E_CANCELLED, AT("observer"), session->next, answer, 0);
    }
    return MEGCC_OK;
}
#endif

/* Executes an instruction of any kind. */
static int32_t execute(megcc_session *session, const instruction_row *row, megcc_error *error)
{
#ifndef MEGCC_NO_DYNAMIC
    if (row->opcode == OP_RELEASE) {
        megcc_release(session, row->operands);
        return MEGCC_OK;
    }
    if (row->opcode == OP_EXTENT) {
        return megcc_session_extent(session, session->next, error);
    }
    if (row->opcode != OP_CALL) {
        return megcc_session_control(session, row, error);
    }
#endif
    return run_call(session, row, error);
}

static int32_t run_instruction(megcc_session *session, megcc_error *error)
{
    const instruction_row *row = instruction_at(&session->model->program, session->next);
#ifndef MEGCC_NO_CALLBACKS
    const bool observed = session->options.observer.observe != NULL;
    int32_t status = observed ? observe(session, 0, error) : MEGCC_OK;
    if (status == MEGCC_OK) {
        status = execute(session, row, error);
    }
    return status == MEGCC_OK && observed ? observe(session, 1, error) : status;
#else
    return execute(session, row, error);
#endif
}

#ifndef MEGCC_NO_DYNAMIC
/* Checks that unbounded outputs have memory, which they got when a call wrote them. */
static int32_t require_outputs(const megcc_session *session, megcc_error *error)
{
    const megcc_rows outputs = session->model->program.rows[MEGCC_OUTPUTS];
    for (uint32_t i = 0; i < outputs.count; i++) {
        if (session->base[number_at(outputs, i)] == NULL) {
            return megcc_fail(error, MEGCC_E_ORDER, AT("Program.outputs"), MEGCC_NONE, i, 0);
        }
    }
    return MEGCC_OK;
}
#endif

/* Checks before a run that inputs and outputs without memory of their own are bound. */
static int32_t require_bound(const megcc_session *session, megcc_error *error)
{
    const megcc_program *p = &session->model->program;
    const uint32_t inputs = p->rows[MEGCC_INPUTS].count;
    for (uint32_t i = 0; i < p->rows[MEGCC_INPUTS].count + p->rows[MEGCC_OUTPUTS].count; i++) {
        if (tensor_at(p, i)->storage == STORAGE_CALLER && session->base[i] == NULL) {
            return i < inputs ? megcc_fail(error, MEGCC_E_ORDER, AT("megcc_session_bind_input"), MEGCC_NONE, i, 0)
                              : megcc_fail(error, MEGCC_E_ORDER, AT("megcc_session_bind_output"), MEGCC_NONE, i - inputs, 0);
        }
    }
    return MEGCC_OK;
}

int32_t megcc_session_step(megcc_session *session, megcc_error *error)
{
    if (session == NULL) {
        return megcc_fail(error, MEGCC_E_ARGUMENT, AT("NULL"), MEGCC_NONE, 0, 0);
    }
    const uint32_t count = session->model->program.rows[MEGCC_INSTRUCTIONS].count;
    if (session->extents == NULL) {
        return megcc_fail(error, MEGCC_E_ORDER, AT("megcc_session_set_shapes"), MEGCC_NONE, 0, 0);
    }
    if (session->next == 0u) {
        if (require_bound(session, error) != MEGCC_OK) {
            return MEGCC_E_ORDER;
        }
#ifndef MEGCC_NO_DYNAMIC
        session->iterations = 0;
#endif
    }
    if (session->next < count) {
        const int32_t status = run_instruction(session, error);
        if (status != MEGCC_OK) {
            session->next = 0;
            return status;
        }
        session->next++;
    }
    if (session->next < count) {
        return MEGCC_MORE;
    }
    session->next = 0;
#ifndef MEGCC_NO_DYNAMIC
    if (require_outputs(session, error) != MEGCC_OK) {
        return MEGCC_E_ORDER;
    }
#endif
    megcc_session_keep_states(session);
    return MEGCC_OK;
}

int32_t megcc_session_run(megcc_session *session, megcc_error *error)
{
    int32_t status;
    if (session != NULL) {
        session->next = 0;
    }
    do {
        status = megcc_session_step(session, error);
    } while (status == MEGCC_MORE);
    return status;
}

/* --- for observers --------------------------------------------------------------------------------------------- */

static const instruction_row *call_at(const megcc_session *session, uint32_t instruction)
{
    if (session == NULL || session->extents == NULL
        || instruction >= session->model->program.rows[MEGCC_INSTRUCTIONS].count) {
        return NULL;
    }
    const instruction_row *row = instruction_at(&session->model->program, instruction);
    return row->opcode == OP_CALL ? row : NULL;
}

const void *megcc_session_operand(megcc_session *session, uint32_t instruction, uint32_t operand, megcc_tensor *tensor)
{
    const instruction_row *row = call_at(session, instruction);
    if (row == NULL || operand >= (uint32_t)row->inputs + row->outputs) {
        return NULL;
    }
    const megcc_program *p = &session->model->program;
    const uint32_t index = operand_at(p, row, operand);
    if (tensor != NULL) {
        megcc_describe(p, index, session->extents, tensor);
    }
    return address_of(session, index);
}

const char *megcc_session_kernel(const megcc_session *session, uint32_t instruction)
{
#ifndef MEGCC_NO_STRINGS
    if (call_at(session, instruction) != NULL) {
        const call_slot *slot = row_at(session->bucket.calls, instruction, sizeof *slot);
        return session->model->program.code->kernel[slot->kernel].symbol;
    }
#else
    (void)session;
    (void)instruction;
#endif
    return "";
}
