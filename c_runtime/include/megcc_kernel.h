/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel ABI: all that generated kernels and the virtual machine know about each other.
 *
 * A kernel computes tasks [begin, end) of its [0, tasks). The virtual machine chooses the ranges; the compiler fixed
 * the number of tasks and what each computes. No reduction spans two tasks, so results do not depend on the ranges.
 */
#ifndef MEGCC_KERNEL_H
#define MEGCC_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version; 0x100 is added if the kernel table has no strings. Runtime and kernels must agree on both. */
#ifndef MEGCC_NO_STRINGS
#define MEGCC_KERNEL_ABI 3u
#else
#define MEGCC_KERNEL_ABI (0x100u + 3u)
#endif

/* The arguments of a kernel for one instruction, valid during the call only. */
typedef struct megcc_call {
    const void *const *in;      /* input operands, in the order of the kernel's signature */
    void *const *out;           /* output operands */
    const int32_t *extent;      /* extents that are not constants in the kernel's code */
    void *shared;               /* workspace common to all workers; NULL if the signature asks for none */
} megcc_call;

/* Computes tasks [begin, end), which may be none. `scratch` is this worker's own workspace. Returns 0,
 * MEGCC_KERNEL_FAILED, or in the safety profile MEGCC_REFUSED_ARGUMENT. */
typedef int32_t (*megcc_kernel_fn)(const megcc_call *call, int32_t begin, int32_t end, void *scratch);

/* A kernel of the safety profile returns this for arguments that it cannot take: the value of MEGCC_E_ARGUMENT. */
#define MEGCC_REFUSED_ARGUMENT 0x10

/* Most operands of a kernel, inputs and outputs together. With the 3 other results of `need` (below) that is an array of 64. */
#define MEGCC_MAX_OPERANDS 61

/* Computes sizes of a kernel whose extents are given at run time. It writes, for the extents of one instruction, the
 * least byte size of every operand (inputs, then outputs), the bytes of shared workspace, the bytes of scratch per
 * worker, and the number of tasks. It returns 0, or MEGCC_E_KERNEL if the kernel does not accept these extents. Extents
 * come from the container, and nothing else checks them before the kernel computes addresses; so extents that follow
 * from others, such as an output's height, are checked here. `table` holds the shape symbols, then the values of the
 * shape function; NULL if every shape is static. */
typedef int32_t (*megcc_need_fn)(const int32_t *table, const int32_t *extent, int64_t *need);

#define MEGCC_ALIAS_ANY_SIZE 0x80000000u

/* One operand of a kernel. */
typedef struct megcc_operand {
    uint32_t bytes;             /* least size; 0 where `need` computes it */
    uint32_t alias;             /* output: bit i is set if it may be the same memory as input i; with
                                 * MEGCC_ALIAS_ANY_SIZE it begins at the same address, and sizes may differ */
    uint8_t dtype;              /* MEGCC_FLOAT32 and so on, of megcc.h */
    uint8_t reserved[3];
} megcc_operand;

/* One row of the generated kernel table: a kernel and its signature, which containers are checked against. */
typedef struct megcc_kernel {
    megcc_kernel_fn run;
    megcc_need_fn need;         /* NULL: all sizes are constants, below and in `operand` */
    const megcc_operand *operand; /* inputs, then outputs */
    uint32_t shared;            /* bytes */
    uint32_t scratch;           /* bytes per worker */
    int32_t tasks;
    uint8_t inputs, outputs, extents;
    uint8_t alone;              /* 0, or: one worker runs a call whose operands have less than 2^alone bytes */
#ifndef MEGCC_NO_STRINGS
    const char *symbol;
#endif
} megcc_kernel;

/* The last member of a row of the kernel table, with the comma before it; and the text of a violated condition (`why`
 * below). Builds without strings leave both out. */
#ifndef MEGCC_NO_STRINGS
#define MEGCC_SYMBOL(name) , name
#define MEGCC_TEXT(text) text
#else
#define MEGCC_SYMBOL(name)
#define MEGCC_TEXT(text) NULL
#endif

/* Size arithmetic for `need` and shape functions. Values saturate at +-2^60, so that extents from a container cannot
 * overflow a size. */
#define MEGCC_SIZE_LIMIT INT64_C(0x1000000000000000) /* 2^60 */

static inline int64_t megcc_size_clamp(int64_t a)
{
    return a > MEGCC_SIZE_LIMIT ? MEGCC_SIZE_LIMIT : a < -MEGCC_SIZE_LIMIT ? -MEGCC_SIZE_LIMIT : a;
}

static inline int64_t megcc_size_add(int64_t a, int64_t b) { return megcc_size_clamp(a + b); }

static inline int64_t megcc_size_mul(int64_t a, int64_t b)
{
    const int64_t x = a < 0 ? -a : a, y = b < 0 ? -b : b;
    if (x != 0 && y > MEGCC_SIZE_LIMIT / x) {
        return (a < 0) == (b < 0) ? MEGCC_SIZE_LIMIT : -MEGCC_SIZE_LIMIT;
    }
    return a * b;
}

/* Rounds towards minus infinity, like the compiler's arithmetic; a division by zero saturates. */
static inline int64_t megcc_size_div(int64_t a, int64_t b)
{
    if (b == 0) {
        return MEGCC_SIZE_LIMIT;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

static inline int64_t megcc_size_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t megcc_size_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Checks the conditions that kernels rely on, and computes every extent that is an expression over shape symbols; the
 * symbols are within their bounds. Returns 0; or the number, from 1, of the condition that these symbols violate, with
 * its text in `why`; or -1 if a value is no valid extent. */
typedef int32_t (*megcc_shapes_fn)(const int32_t *symbol, int32_t *value, const char **why);

/* The values of one shape symbol that the code was compiled for. */
typedef struct megcc_bound {
    int32_t lo, hi;             /* both included; hi = -1: no limit */
} megcc_bound;

/* The code of one program (for one CPU) of a model, and the facts that it relies on; the container must agree. */
typedef struct megcc_code {
    uint64_t id;                /* hash of the text of this table, compared with Program.code_id */
    uint32_t isa;               /* MEGCC_ISA_* */
    uint32_t alignment;         /* of weights, arena and allocated memory */
    uint32_t kernels, symbols;  /* rows of `kernel` and of `bound` */
    uint32_t values;            /* results of `shapes` */
    uint32_t inputs, outputs;   /* rows of `port` */
    const megcc_kernel *kernel;
    const megcc_bound *bound;   /* of each symbol: no bucket exceeds it */
    const int32_t *port;        /* for each input, then each output, what callers rely on: dtype, layout, block, rank,
                                 * and the extents: a number, or -1 - the index in the table of symbols and values */
    megcc_shapes_fn shapes;     /* called if there are symbols */
} megcc_code;

/* All the code of a model that this binary contains: a row for each CPU it was compiled for. */
typedef struct megcc_module {
    uint32_t kernel_abi;        /* MEGCC_KERNEL_ABI of the generator */
    uint32_t codes;
    const megcc_code *code;
} megcc_module;

/* The features of a CPU. The high half names the family, the lowest byte the level in it; a CPU of a higher level runs
 * everything of the levels below. The byte between them has a bit for each feature that only some CPUs of a level have,
 * or that some CPUs of a higher level lack. */
#define MEGCC_RUNS_ON(isa, cpu) ((isa) == MEGCC_ISA_C || ((isa) >> 16 == (cpu) >> 16 \
    && ((isa) & 0xffu) <= ((cpu) & 0xffu) && ((isa) & ~(cpu) & 0xff00u) == 0u))
#define MEGCC_ISA_C           0x00000000u
#define MEGCC_ISA_X86_64      0x00010001u
#define MEGCC_ISA_X86_64_V3   0x00010003u
#define MEGCC_ISA_X86_64_V3_VNNI 0x00010103u   /* + AVX-VNNI: 8-bit products */
#define MEGCC_ISA_X86_64_V4   0x00010004u
#define MEGCC_ISA_X86_64_V4_VNNI 0x00010005u   /* + 8-bit products */
#define MEGCC_ISA_ARM64       0x00020001u
#define MEGCC_ISA_ARM64_V82   0x00020002u   /* + fp16 arithmetic, dot product */
#define MEGCC_ISA_ARM64_V86   0x00020003u   /* + int8 matrix multiply */
#define MEGCC_ISA_ARMV7       0x00030001u
#define MEGCC_ISA_RISCV64     0x00040001u
#define MEGCC_ISA_RISCV64_V   0x00040002u   /* + vectors of 128 bits or more */
#define MEGCC_ISA_RISCV64_V256 0x00040003u
#define MEGCC_ISA_RISCV64_V512 0x00040004u
#define MEGCC_ISA_CORTEX_M4   0x00050001u   /* and M7 */
#define MEGCC_ISA_RISCV32     0x00060001u
#define MEGCC_ISA_CORTEX_M0   0x00070001u   /* and M0+, M23 */
#define MEGCC_ISA_CORTEX_M3   0x00080001u
#define MEGCC_ISA_CORTEX_M33  0x00090001u
#define MEGCC_ISA_CORTEX_M55  0x00090002u   /* + Helium */
#define MEGCC_ISA_WASM32      0x000A0001u
#define MEGCC_ISA_WASM32_SIMD128 0x000A0002u
#define MEGCC_ISA_WASM32_RELAXED 0x000A0003u  /* + relaxed SIMD: products and sums that may be fused */

/* Status codes that kernels return; megcc.h has them all. */
#define MEGCC_KERNEL_OK       0
#define MEGCC_KERNEL_FAILED   0x41          /* MEGCC_E_KERNEL */

#ifdef __cplusplus
}
#endif
#endif
