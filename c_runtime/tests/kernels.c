/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels written by hand, as the code generator would print them, for tests/cc/runtime_models.py.
 */
#include "megcc_kernel.h"

#define ROWS 4
#define COLUMNS 6

/* out = a * b, a row a task */
static int32_t mul(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *a = c->in[0], *b = c->in[1];
    float *out = c->out[0];
    (void)scratch;
    for (int32_t i = begin * COLUMNS; i < end * COLUMNS; i++)
        out[i] = a[i] * b[i];
    return 0;
}

/* out = a + b by way of all the workspace there is; out may be a */
static int32_t add(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *a = c->in[0], *b = c->in[1];
    float *out = c->out[0], *row = scratch, *shared = c->shared;
    for (int32_t r = begin; r < end; r++) {
        for (int32_t i = 0; i < 16; i++)
            row[i] = i < COLUMNS ? a[r * COLUMNS + i] + b[r * COLUMNS + i] : 0;
        shared[4 * r] = row[0];
        for (int32_t i = 0; i < COLUMNS; i++)
            out[r * COLUMNS + i] = row[i];
    }
    return 0;
}

/* out = in; a value that is not a number is refused */
static int32_t check(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    (void)scratch;
    for (int32_t i = begin * COLUMNS; i < end * COLUMNS; i++) {
        if (in[i] != in[i])
            return MEGCC_KERNEL_FAILED;
        out[i] = in[i];
    }
    return 0;
}

static const megcc_operand binary[] = {
    { 96, 0, 0, { 0, 0, 0 } }, { 96, 0, 0, { 0, 0, 0 } }, { 96, 1, 0, { 0, 0, 0 } },
};
static const megcc_operand unary[] = { { 96, 0, 0, { 0, 0, 0 } }, { 96, 0, 0, { 0, 0, 0 } } };

static const megcc_kernel static_kernels[] = {
    { mul, NULL, binary, 0, 0, ROWS, 2, 1, 0, 0 MEGCC_SYMBOL("mul") },
    { add, NULL, binary, 64, 64, ROWS, 2, 1, 0, 0 MEGCC_SYMBOL("add") },
    { check, NULL, unary, 0, 0, ROWS, 1, 1, 0, 0 MEGCC_SYMBOL("check") },
    { check, NULL, unary, 0, 0, ROWS, 1, 1, 0, 0 MEGCC_SYMBOL("copy") },
};
static const megcc_code static_codes[] = { { 1, MEGCC_ISA_C, 4, static_kernels, NULL, 0, 0 } };
extern const megcc_module static_module;
const megcc_module static_module = { MEGCC_KERNEL_ABI, 1, static_codes };

/* --- the same for a number of elements that is given at run time ------------------------------------------------ */

static int32_t twice(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    (void)scratch;
    for (int32_t i = begin; i < end; i++)
        out[i] = 2 * in[i];
    return 0;
}

static int32_t sum(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *a = c->in[0], *b = c->in[1];
    float *out = c->out[0], *one = scratch, *shared = c->shared;
    for (int32_t i = begin; i < end; i++) {
        *one = a[i] + b[i];
        shared[i] = *one;
        out[i] = *one;
    }
    return 0;
}

static int32_t checked(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    (void)scratch;
    for (int32_t i = begin; i < end; i++) {
        if (in[i] != in[i])
            return MEGCC_KERNEL_FAILED;
        out[i] = in[i];
    }
    return 0;
}

static int32_t unary_need(const int32_t *table, const int32_t *extent, int64_t *need)
{
    (void)table;
    if (extent[0] > 1000000)
        return MEGCC_KERNEL_FAILED;
    need[0] = need[1] = megcc_size_mul(extent[0], 4);
    need[2] = need[3] = 0;
    need[4] = extent[0];
    return 0;
}

static int32_t sum_need(const int32_t *table, const int32_t *extent, int64_t *need)
{
    (void)table;
    need[0] = need[1] = need[2] = need[3] = megcc_size_mul(extent[0], 4);
    need[4] = 4;
    need[5] = extent[0];
    return 0;
}

static const megcc_operand three[] = {
    { 0, 0, 0, { 0, 0, 0 } }, { 0, 0, 0, { 0, 0, 0 } }, { 0, 0, 0, { 0, 0, 0 } },
};
static const megcc_kernel dynamic_kernels[] = {
    { twice, unary_need, three, 0, 0, 0, 1, 1, 1, 0 MEGCC_SYMBOL("twice") },
    { sum, sum_need, three, 0, 0, 0, 2, 1, 1, 0 MEGCC_SYMBOL("sum") },
    { checked, unary_need, three, 0, 0, 0, 1, 1, 1, 0 MEGCC_SYMBOL("check") },
};

/* 2n and 3n */
static int32_t shapes(const int32_t *symbol, int32_t *value)
{
    const int64_t n = symbol[0];
    if (3 * n > INT32_MAX)
        return 0x11;
    value[0] = (int32_t)(2 * n);
    value[1] = (int32_t)(3 * n);
    return 0;
}

static const megcc_code dynamic_codes[] = { { 2, MEGCC_ISA_C, 3, dynamic_kernels, shapes, 1, 2 } };
extern const megcc_module dynamic_module;
const megcc_module dynamic_module = { MEGCC_KERNEL_ABI, 1, dynamic_codes };
