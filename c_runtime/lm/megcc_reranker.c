/* SPDX-License-Identifier: Apache-2.0
 *
 * Rerankers: query and document become one row of tokens, for which the network gives one number.
 */
#include "megcc_reranker.h"

/* 1 / (1 + exp(-x)), so that no library is needed: exp(r + n ln 2) = exp(r) 2^n, with Taylor's series of exp(r) and ln 2 as
 * the sum of two doubles. */
static double sigmoid(double x)
{
    double power = 1.0;
    if (!(x > -700.0)) {
        return x <= -700.0 ? 0.0 : x; /* NaN stays */
    }
    if (x > 40.0) {
        return 1.0;
    }
    const int32_t n = (int32_t)(-x * 1.4426950408889634 + (x < 0.0 ? 0.5 : -0.5));
    const double r = (-x - (double)n * 6.93147180369123816490e-01) - (double)n * 1.90821492927058770002e-10;
    for (int32_t term = 14; term > 0; term--) {
        power = 1.0 + power * r / (double)term;
    }
    for (int32_t k = n < 0 ? -n : n; k > 0; k--) {
        power *= n < 0 ? 0.5 : 2.0;
    }
    return 1.0 / (1.0 + power);
}

/* Cuts two numbers of tokens so that their sum is at most `room`, as "longest_first" of the package tokenizers does: the longer
 * one, and both to a half each if the shorter one has more than that. */
static void cut(uint32_t *query, uint32_t *document, uint32_t room)
{
    const int swaps = *query > *document;
    uint32_t least = swaps ? *document : *query, most = swaps ? *query : *document;
    if (least <= room && most <= room - least) {
        return;
    }
    most = least > room || room - least < least ? least : room - least;
    if (least > room || most > room - least) {
        least = room / 2u;
        most = room - least;
    }
    *query = swaps ? most : least;
    *document = swaps ? least : most;
}

/* Appends tokens of types types[i] or, if that is NULL, of `type`, and returns the number after them. */
static uint32_t append(uint32_t *tokens, uint8_t *of_tokens, uint32_t at, const uint32_t *more, uint32_t count,
                       const uint8_t *types, uint8_t type)
{
    for (uint32_t i = 0; i < count; i++) {
        tokens[at + i] = more[i];
        of_tokens[at + i] = types ? types[i] : type;
    }
    return at + count;
}

int32_t megcc_reranker_run(const megcc_reranker_model *model, const megcc_model *network, megcc_session *session,
                           megcc_shape *shapes, const uint32_t *query, uint32_t query_count, const uint32_t *document,
                           uint32_t document_count, uint32_t *tokens, uint8_t *types, float *score, megcc_error *error)
{
    const uint32_t second = model->before + model->between;
    cut(&query_count, &document_count, model->context - second - model->after);
    uint32_t count = append(tokens, types, 0, model->around, model->before, model->around_type, 0);
    count = append(tokens, types, count, query, query_count, NULL, model->query_type);
    count = append(tokens, types, count, model->around + model->before, model->between, model->around_type + model->before, 0);
    count = append(tokens, types, count, document, document_count, NULL, model->document_type);
    count = append(tokens, types, count, model->around + second, model->after, model->around_type + second, 0);
    const int32_t status = megcc_embedding_network(model->input, model->inputs, network, session, shapes, tokens, types, count,
                                                   error);
    if (status) {
        return status;
    }
    megcc_tensor tensor;
    const float *found = (const float *)megcc_session_output(session, 0, &tensor);
    if (!found || tensor.dtype != MEGCC_FLOAT32 || tensor.bytes != sizeof *found) {
        const megcc_error wrong = { MEGCC_E_UNSUPPORTED, MEGCC_NONE, "output", 0, 0 };
        if (error) {
            *error = wrong;
        }
        return wrong.status;
    }
    *score = model->sigmoid ? (float)sigmoid((double)*found) : *found;
    return MEGCC_OK;
}
