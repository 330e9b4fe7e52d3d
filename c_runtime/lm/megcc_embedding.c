/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings: the network runs on the tokens of a text, its rows become one, which gets length 1. Sums are of float64 in
 * order, and every product in them is exact, so neither the compiler nor the CPU changes a bit of what follows the network.
 */
#include <float.h>
#include <string.h>

#include "megcc_embedding.h"

/* Fills `error`, which may be NULL, and returns `status`. */
static int32_t refused(megcc_error *error, int32_t status, const char *where, int64_t detail, uint64_t needed)
{
    const megcc_error found = { status, MEGCC_NONE, where, detail, needed };
    if (error) {
        *error = found;
    }
    return status;
}

/* The number of tokens that the network expects around a text: 0, 1 or 2. */
static uint32_t tokens_around(const megcc_embedding_model *model)
{
    return (uint32_t)(model->first != UINT32_MAX) + (uint32_t)(model->last != UINT32_MAX);
}

uint32_t megcc_embedding_capacity(const megcc_embedding_model *model)
{
    return model->context - tokens_around(model);
}

/* The square root of a sum of squares, at least 1e-12, with 30 bits; infinity and NaN for these. The sum is scaled by a power
 * of 4 into [2^60, 2^62), whose integer root is computed bit by bit, so no library is needed. */
static double length_of(double squares)
{
    double unit = 1.0;
    uint64_t root = 0;
    if (!(squares <= DBL_MAX)) {
        return squares;
    }
    if (squares < 1e-24) {
        return 1e-12;
    }
    for (; squares >= 4611686018427387904.0; squares *= 0.25) {
        unit *= 2.0;
    }
    for (; squares < 1152921504606846976.0; squares *= 4.0) {
        unit *= 0.5;
    }
    uint64_t rest = (uint64_t)squares;
    for (uint64_t bit = (uint64_t)1 << 60; bit; bit >>= 2) {
        const uint64_t tried = root + bit;
        root >>= 1;
        if (rest >= tried) {
            rest -= tried;
            root += bit;
        }
    }
    return (double)root * unit;
}

/* Pools rows [count][width] of float32 to vector[width]. */
static void pool(const megcc_embedding_model *model, const float *rows, uint32_t count, float *vector)
{
    for (uint32_t i = 0; i < model->width; i++) {
        double sum = 0.0;
        const float first = rows[i];
        float most = first;
        for (uint32_t row = 0; row < count; row++) {
            const float value = rows[(size_t)row * model->width + i];
            sum += (double)value;
            most = value > most ? value : most;
        }
        const float mean = (float)(sum / (double)count);
        vector[i] = model->pooling == MEGCC_POOL_FIRST ? first : model->pooling == MEGCC_POOL_MAX ? most : mean;
    }
}

/* Divides a vector by its length. */
static void normalize(float *vector, uint32_t width)
{
    double squares = 0.0;
    for (uint32_t i = 0; i < width; i++) {
        squares += (double)vector[i] * (double)vector[i];
    }
    const double length = length_of(squares);
    for (uint32_t i = 0; i < width; i++) {
        vector[i] = (float)((double)vector[i] / length);
    }
}

/* Writes the inputs: tokens, ones for the mask, types (NULL: zeros). */
static int32_t fill(const uint8_t *input, uint32_t inputs, megcc_session *session, const uint32_t *tokens,
                    const uint8_t *types, uint32_t count, megcc_error *error)
{
    for (uint32_t i = 0; i < inputs; i++) {
        megcc_tensor tensor;
        void *data = megcc_session_input(session, i, &tensor);
        if (!data) {
            return refused(error, MEGCC_E_ORDER, "input", (int64_t)i, 0);
        }
        for (uint32_t k = 0; k < count; k++) {
            const int64_t type = types ? (int64_t)types[k] : 0;
            const int64_t value = input[i] == MEGCC_INPUT_IDS ? (int64_t)tokens[k] : input[i] == MEGCC_INPUT_MASK ? 1 : type;
            if (tensor.dtype == MEGCC_INT64) {
                ((int64_t *)data)[k] = value;
            } else {
                ((int32_t *)data)[k] = (int32_t)value;
            }
        }
    }
    return MEGCC_OK;
}

/* Removes all tokens equal to `unknown`, and returns how many are left. */
static uint32_t without(uint32_t *tokens, uint32_t count, uint32_t unknown)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] != unknown) {
            tokens[kept++] = tokens[i];
        }
    }
    return kept;
}

int32_t megcc_embedding_network(const uint8_t *input, uint32_t inputs, const megcc_model *network, megcc_session *session,
                                megcc_shape *shapes, const uint32_t *tokens, const uint8_t *types, uint32_t count,
                                megcc_error *error)
{
    megcc_tensor tensor;
    for (uint32_t i = 0; i < inputs; i++) {
        megcc_model_input(network, i, &tensor);
        shapes[i].rank = tensor.rank;
        for (int32_t axis = 0; axis < MEGCC_MAX_RANK; axis++) {
            shapes[i].dims[axis] = tensor.dims[axis] < 0 ? (int32_t)count : tensor.dims[axis];
        }
    }
    int32_t status = megcc_session_reshape(session, shapes, inputs, error);
    status = status ? status : fill(input, inputs, session, tokens, types, count, error);
    return status ? status : megcc_session_run(session, error);
}

int32_t megcc_embedding_run(const megcc_embedding_model *model, const megcc_model *network, megcc_session *session,
                            megcc_shape *shapes, uint32_t *tokens, uint32_t count, float *vector, megcc_error *error)
{
    megcc_tensor tensor;
    count = count < megcc_embedding_capacity(model) ? count : megcc_embedding_capacity(model);
    if (model->first != UINT32_MAX) {
        tokens[0] = model->first;
        count++;
    }
    if (model->last != UINT32_MAX) {
        tokens[count++] = model->last;
    }
    if (model->is_static) {
        count = without(tokens, count, model->unknown);
        if (!count) {
            memset(vector, 0, model->width * sizeof *vector);
            return MEGCC_OK;
        }
    }
    if (!count) {
        return refused(error, MEGCC_E_ARGUMENT, "tokens", 0, 1);
    }
    const int32_t status = megcc_embedding_network(model->input, model->inputs, network, session, shapes, tokens, NULL, count,
                                                   error);
    if (status) {
        return status;
    }
    const float *found = (const float *)megcc_session_output(session, 0, &tensor);
    const uint32_t rows = tensor.rank == 3 ? count : 1u;
    if (!found || tensor.dtype != MEGCC_FLOAT32 || tensor.bytes != (size_t)rows * model->width * sizeof *found) {
        return refused(error, MEGCC_E_UNSUPPORTED, "output", 0, 0);
    }
    if (tensor.rank == 3) {
        pool(model, found, count, vector);
    } else {
        memcpy(vector, found, model->width * sizeof *vector);
    }
    if (model->normalize) {
        normalize(vector, model->width);
    }
    return MEGCC_OK;
}
