/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels written by hand, as the code generator would print them, for tests/compiled/runtime/runtime_models.py.
 */
#include "megcc_kernel.h"

#define ROWS 4
#define COLUMNS 6
#define BYTES (4 * ROWS * COLUMNS)
/* n of the dynamic model: its bounds, and the largest that its shape function accepts. */
#define LEAST 1
#define MOST 500000
#define LARGEST 450000

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

/* out = a + b; out may be where a is. It writes all 64 bytes of scratch, and the last of the 16 bytes of shared workspace for
 * each row, so that memory which is too small shows. */
static int32_t add(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *a = c->in[0], *b = c->in[1];
    float *out = c->out[0], *row = scratch, *shared = c->shared;
    for (int32_t r = begin; r < end; r++) {
        for (int32_t i = 0; i < 64 / 4; i++)
            row[i] = i < COLUMNS ? a[r * COLUMNS + i] + b[r * COLUMNS + i] : 0;
        shared[4 * r + 3] = row[0];
        for (int32_t i = 0; i < COLUMNS; i++)
            out[r * COLUMNS + i] = row[i];
    }
    return 0;
}

/* out = in; NaN is refused */
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

/* Rows of megcc_operand: bytes, alias (bit i: may be where input i is), dtype (0: float32), reserved. */
static const megcc_operand binary[] = {
    { BYTES, 0, 0, { 0, 0, 0 } }, { BYTES, 0, 0, { 0, 0, 0 } }, { BYTES, 1, 0, { 0, 0, 0 } },
};
static const megcc_operand unary[] = { { BYTES, 0, 0, { 0, 0, 0 } }, { BYTES, 0, 0, { 0, 0, 0 } } };

/* Rows of megcc_kernel: run, need, operand, shared, scratch, tasks, inputs, outputs, extents, alone, symbol. */
static const megcc_kernel static_kernels[] = {
    { mul, NULL, binary, 0, 0, ROWS, 2, 1, 0, 0 MEGCC_SYMBOL("mul") },
    { add, NULL, binary, 64, 64, ROWS, 2, 1, 0, 0 MEGCC_SYMBOL("add") },
    { check, NULL, unary, 0, 0, ROWS, 1, 1, 0, 0 MEGCC_SYMBOL("check") },
    { check, NULL, unary, 0, 0, ROWS, 1, 1, 0, 0 MEGCC_SYMBOL("copy") },
};

/* wide_kernels: one has more operands than megcc_operand.alias has bits; the other has more than the runtime takes. */

/* out = the first of the inputs */
static int32_t first(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    (void)scratch;
    for (int32_t i = begin; i < end; i++)
        out[i] = in[i];
    return 0;
}

#define MANY 40

static int32_t many_need(const int32_t *table, const int32_t *extent, int64_t *need)
{
    for (int32_t i = 0; i < MANY + 1; i++)
        need[i] = 4 * extent[0];
    need[MANY + 1] = need[MANY + 2] = 0;
    need[MANY + 3] = extent[0];
    return table != NULL; /* a program without symbols has no table */
}

static const megcc_operand many[MEGCC_MAX_OPERANDS + 1];
static const megcc_kernel wide_kernels[] = {
    { first, many_need, many, 0, 0, 0, MANY, 1, 1, 0 MEGCC_SYMBOL("first") },
    { first, NULL, many, 0, 0, 0, MEGCC_MAX_OPERANDS, 1, 0, 0 MEGCC_SYMBOL("too_many") },
};

/* Every other element, 12 in a task. By `half`, out may begin where in does. */
static int32_t evens(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const float *in = c->in[0];
    float *out = c->out[0];
    (void)scratch;
    for (int32_t i = begin * 12; i < end * 12; i++)
        out[i] = in[2 * i];
    return 0;
}

static const megcc_operand half[] = {
    { BYTES, 0, 0, { 0, 0, 0 } }, { BYTES / 2, 1 | MEGCC_ALIAS_ANY_SIZE, 0, { 0, 0, 0 } },
};

/* As evens, with two outputs of the same values. */
static int32_t both(const megcc_call *c, int32_t begin, int32_t end, void *scratch)
{
    const megcc_call other = { c->in, c->out + 1, c->extent, c->shared };
    evens(c, begin, end, scratch);
    return evens(&other, begin, end, scratch);
}

/* The first output may have exactly the memory of the input, but not begin there with another size. */
static const megcc_operand strict[] = {
    { BYTES, 0, 0, { 0, 0, 0 } }, { BYTES / 2, 1, 0, { 0, 0, 0 } }, { BYTES / 2, 0, 0, { 0, 0, 0 } },
};
static const megcc_kernel half_kernels[] = {
    { evens, NULL, half, 0, 0, 1, 1, 1, 0, 0 MEGCC_SYMBOL("evens") },
    { evens, NULL, strict, 0, 0, 1, 1, 1, 0, 0 MEGCC_SYMBOL("strict") },
    { both, NULL, strict, 0, 0, 1, 1, 2, 0, 0 MEGCC_SYMBOL("both") },
};

/* For each input, then each output: dtype, layout, block, rank, extents (-1: the first symbol or value, -2: the second). */
static const int32_t half_ports[] = { 0, 0, 0, 1, 24, 0, 0, 0, 1, 12 };
static const int32_t static_ports[] = { 0, 0, 0, 2, 4, 6, 0, 0, 0, 2, 4, 6, 0, 0, 0, 1, 24, 0, 0, 0, 2, 4, 6 };
static const int32_t wide_ports[] = { 0, 0, 0, 1, 24, 0, 0, 0, 1, 24 };
/* Rows of megcc_code: id, isa, alignment, kernels, symbols, values, inputs, outputs, kernel, bound, port, shapes. */
static const megcc_code static_codes[] = {
    { 1, MEGCC_ISA_C, 16, 4, 0, 0, 2, 2, static_kernels, NULL, static_ports, NULL },
    { 4, MEGCC_ISA_C, 16, 2, 0, 0, 1, 1, wide_kernels, NULL, wide_ports, NULL },
    { 6, MEGCC_ISA_C, 16, 3, 0, 0, 1, 1, half_kernels, NULL, half_ports, NULL },
};
extern const megcc_module static_module;
const megcc_module static_module = { MEGCC_KERNEL_ABI, 3, static_codes };

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

enum { TWICE_ALONE = 8 }; /* calls with less than 256 bytes are small */
static const megcc_operand three[] = {
    { 0, 0, 0, { 0, 0, 0 } }, { 0, 0, 0, { 0, 0, 0 } }, { 0, 0, 0, { 0, 0, 0 } },
};
static const megcc_kernel dynamic_kernels[] = {
    { twice, unary_need, three, 0, 0, 0, 1, 1, 1, TWICE_ALONE MEGCC_SYMBOL("twice") },
    { sum, sum_need, three, 0, 0, 0, 2, 1, 1, 0 MEGCC_SYMBOL("sum") },
    { checked, unary_need, three, 0, 0, 0, 1, 1, 1, 0 MEGCC_SYMBOL("check") },
};

/* The shape function: values 2n and 3n. An n above LARGEST violates its condition, although the bounds allow it. */
static int32_t shapes(const int32_t *symbol, int32_t *value, const char **why)
{
    const int32_t n = symbol[0];
    value[0] = 2 * n;
    value[1] = 3 * n;
    if (n > LARGEST)
        *why = MEGCC_TEXT("n is too large");
    return n > LARGEST;
}

static const megcc_bound bounds[] = { { LEAST, MOST } };
static const megcc_bound open_bounds[] = { { 0, -1 } };

static int32_t no_values(const int32_t *symbol, int32_t *value, const char **why)
{
    (void)symbol;
    (void)value;
    (void)why;
    return 0;
}

static const megcc_bound pair_bounds[] = { { 1, 16 }, { 1, 16 } };
static const int32_t ports[] = { 0, 0, 0, 2, -1, 3, 0, 0, 0, 1, -2, 0, 0, 0, 2, -1, 3, 0, 0, 0, 1, -2 };
static const int32_t pair_ports[] = { 0, 0, 0, 1, -1, 0, 0, 0, 1, -2, 0, 0, 0, 1, -1, 0, 0, 0, 1, -2 };
static const megcc_code dynamic_codes[] = {
    { 2, MEGCC_ISA_C, 16, 3, 1, 2, 2, 2, dynamic_kernels, bounds, ports, shapes },
    { 3, MEGCC_ISA_C, 16, 3, 1, 2, 2, 2, dynamic_kernels, open_bounds, ports, shapes },
    { 5, MEGCC_ISA_C, 16, 3, 2, 0, 2, 2, dynamic_kernels, pair_bounds, pair_ports, no_values },
};
extern const megcc_module dynamic_module;
const megcc_module dynamic_module = { MEGCC_KERNEL_ABI, 3, dynamic_codes };
