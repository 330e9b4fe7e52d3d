/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs kernels on a microcontroller with operands between fences: memory that no access may touch, by the memory
 * protection unit. Jobs and results are those of harness.c, in jobs.bin and results.bin; behind a job there are the
 * alignment of each input and output, and how many more places to try. Each job runs with its operands
 *   0   before a fence, in one piece
 *   1   behind a fence, in three pieces
 *   2 … before a fence, less each number of bytes up to that of places
 *   and, where the first output may lie on an input, so.
 * The status of a result is the kernel's, or 1000 + 10 * the number of the run + what is wrong. Job -1 reads a byte behind
 * its input, job -2 before it, job -3 a word at an odd address.
 */
#include "board.h"
#include "megcc_kernel.h"

extern const megcc_kernel_fn kernels_under_test[];
int main(void);
void *memcpy(void *to, const void *from, size_t size);
int memcmp(const void *one, const void *other, size_t size);

/* From PLACES on, fences and places by turns, each of BYTES; then jobs. */
enum { BYTES = 16 << 10, MOST = 15, GUARD = 64, JOBS = PLACES + (1 << 20), JOBS_BYTES = 12 << 20 };
static uint32_t places;

enum { WRONG_RESULT = 1, INPUT_WRITTEN, OUTSIDE_WRITTEN, NO_PLACE };

typedef struct operand {
    unsigned char *data;
    const unsigned char *given; /* of inputs */
    uint32_t bytes, alignment, place;
} operand;

#if defined(__riscv)
static void set_up(void)
{
    /* Regions whose entry is locked bind the machine mode as well; none is allowed. */
    places = MOST;
#define FENCE(n) \
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrw pmpaddr" #n ", %0\n\t.option pop" \
                     : : "r"((PLACES + 2 * n * BYTES) / 4 + BYTES / 8 - 1));
    FENCE(0) FENCE(1) FENCE(2) FENCE(3) FENCE(4) FENCE(5) FENCE(6) FENCE(7)
    FENCE(8) FENCE(9) FENCE(10) FENCE(11) FENCE(12) FENCE(13) FENCE(14) FENCE(15)
#define LOCKED(n) \
    __asm__ volatile(".option push\n\t.option arch, +zicsr\n\tcsrw pmpcfg" #n ", %0\n\t.option pop" : : "r"(0x98989898u));
    LOCKED(0) LOCKED(1) LOCKED(2) LOCKED(3)
}
#else
#define REGISTER(at) (*(volatile uint32_t *)(at))
static void set_up(void)
{
    const uint32_t regions = REGISTER(0xE000ED90u) >> 8 & 255u; /* MPU_TYPE */
#if __ARM_ARCH >= 8
    /* What is in no region is a fence: three are for all that lies before the places, and for the jobs. */
    places = regions - 2 < MOST ? regions - 2 : MOST;
    REGISTER(0xE000EDC0u) = 0xFFu; /* MPU_MAIR0: ordinary memory */
    for (uint32_t i = 0; i < places + 2; i++) {
        const uint32_t place = PLACES + (2 * i + 1) * BYTES;
        REGISTER(0xE000ED98u) = i;                                                             /* MPU_RNR */
        REGISTER(0xE000ED9Cu) = (i < places ? place : i == places ? 0 : (uint32_t)JOBS) | 2u;  /* MPU_RBAR: read, write */
        REGISTER(0xE000EDA0u) = (i < places ? place + BYTES - 32 : i == places ? PLACES - 32u : JOBS + JOBS_BYTES - 32u) | 1u;
    }
    REGISTER(0xE000ED94u) = 1; /* MPU_CTRL: what is in no region faults */
#else
    /* Regions of eight parts, of which the even ones are fences. */
    places = 4 * (regions < 4 ? regions : 4) - 1;
    for (uint32_t i = 0; i < 4 && i < regions; i++) {
        REGISTER(0xE000ED98u) = i;                                 /* MPU_RNR */
        REGISTER(0xE000ED9Cu) = PLACES + i * 8 * BYTES;            /* MPU_RBAR */
        REGISTER(0xE000EDA0u) = 0xAAu << 8 | 16u << 1 | 1u;        /* MPU_RASR: no access, 2^17 bytes, not the odd parts */
    }
    REGISTER(0xE000ED94u) = 5; /* MPU_CTRL: what is in no region is as ever */
#endif
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
    REGISTER(0xE000ED14u) |= 8; /* CCR.UNALIGN_TRP: the core has no loads of words at any address */
#endif
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}
#endif

static const unsigned char *job;
static int32_t get(void)
{
    int32_t value;
    memcpy(&value, job, sizeof value);
    job += sizeof value;
    return value;
}

static void fill(unsigned char *to, uint32_t bytes, unsigned char value)
{
    for (volatile unsigned char *p = to; bytes > 0; bytes--, p++)
        *p = value;
}

/* Puts an operand before the fence behind its place, less some bytes, or behind the one before it; what is around it is
 * known. */
static void put(operand *o, int is_behind, uint32_t less, unsigned char content)
{
    unsigned char *begin = (unsigned char *)PLACES + (2 * o->place + 1) * BYTES, *end = begin + BYTES;
    const uint32_t room = ((uint32_t)end - o->bytes - less % 16u) / o->alignment * o->alignment;
    o->data = is_behind ? begin : (unsigned char *)room;
    if (o->bytes + GUARD > BYTES) {
        board_text("no place");
        board_exit(3);
    }
    for (unsigned char *p = begin; p < end; p++)
        if (p + GUARD >= o->data && p < o->data + o->bytes + GUARD)
            *p = 0xA5;
    if (o->given)
        memcpy(o->data, o->given, o->bytes);
    else
        fill(o->data, o->bytes, content);
}

static int intact(const operand *o)
{
    const unsigned char *begin = (unsigned char *)PLACES + (2 * o->place + 1) * BYTES, *end = begin + BYTES;
    for (const unsigned char *p = o->data; p > begin && p + GUARD > o->data; p--)
        if (p[-1] != 0xA5)
            return 0;
    for (const unsigned char *p = o->data + o->bytes; p < end && p < o->data + o->bytes + GUARD; p++)
        if (*p != 0xA5)
            return 0;
    return 1;
}

static void probe(int32_t kind, const operand *o)
{
    if (kind == -3)
        (void)*(const volatile int32_t *)(const volatile void *)(o->data + 1);
    else
        (void)*(const volatile unsigned char *)(kind == -2 ? o->data - 1 : o->data + o->bytes);
}

/* One job: inputs, outputs, shared, scratch. */
static int32_t run(int32_t file)
{
    static operand operands[MOST];
    static const void *in[MOST];
    static void *out[MOST];
    static int32_t extent[64], over[MOST];
    static unsigned char first[BYTES];
    const int32_t kernel = get(), extents = get(), inputs = get(), outputs = get(), shared = get(), scratch = get();
    const int32_t tasks = get(), all = inputs + outputs;
    get();
    for (int32_t i = 0; i < extents; i++)
        extent[i] = get();
    for (int32_t i = 0; i < inputs; i++) {
        operands[i].bytes = (uint32_t)get();
        operands[i].given = job;
        job += operands[i].bytes;
    }
    for (int32_t i = 0; i < outputs; i++) {
        operands[inputs + i].bytes = (uint32_t)get();
        operands[inputs + i].given = NULL;
        over[i] = get();
    }
    for (int32_t i = 0; i < all; i++)
        operands[i].alignment = (uint32_t)get();
    const int32_t more = get();
    operands[all] = (operand){ NULL, NULL, (uint32_t)shared, 16, 0 };
    operands[all + 1] = (operand){ NULL, NULL, (uint32_t)scratch, 16, 0 };
    uint32_t used = 0;
    for (int32_t i = 0; i < all + 2; i++)
        operands[i].place = used++;
    int32_t status = used > places ? NO_PLACE : 0;
    for (int32_t turn = 0; turn < 2 + more + (outputs > 0 && over[0] >= 0) && status == 0; turn++) {
        const int on_input = turn == 2 + more, pieces = turn == 1 || on_input ? 3 : 1;
        for (int32_t i = 0; i < all + 2; i++)
            put(&operands[i], turn == 1, turn > 1 && !on_input ? (uint32_t)((turn - 1) * (2 * i + 1)) : 0, turn == 1 ? 0x5A : 0xA5);
        for (int32_t i = 0; i < inputs; i++)
            in[i] = operands[i].data;
        for (int32_t i = 0; i < outputs; i++)
            out[i] = operands[inputs + i].data;
        operand *const result = &operands[inputs], both = *result;
        if (on_input) {
            /* In a place with room for the larger of both. */
            const operand *const x = &operands[over[0]];
            both.bytes = x->bytes > both.bytes ? x->bytes : both.bytes;
            put(&both, 0, 0, 0xA5);
            memcpy(both.data, x->given, x->bytes);
            in[over[0]] = out[0] = both.data;
        }
        const megcc_call call = { in, out, extent, operands[all].data };
        if (kernel < 0)
            probe(kernel, &operands[0]);
        for (int32_t piece = pieces - 1; piece >= 0 && status == 0 && kernel >= 0; piece--)
            status = kernels_under_test[kernel](&call, tasks * piece / pieces, tasks * (piece + 1) / pieces, operands[all + 1].data);
        for (int32_t i = 0; i < all + 2 && status == 0; i++) {
            if (i < inputs && !(on_input && i == over[0]) && memcmp(operands[i].data, operands[i].given, operands[i].bytes) != 0)
                status = 1000 + 10 * turn + INPUT_WRITTEN;
            if (!intact(on_input && i == inputs ? &both : &operands[i]))
                status = 1000 + 10 * turn + OUTSIDE_WRITTEN;
        }
        if (turn == 0)
            memcpy(first, result->data, result->bytes);
        else if (status == 0 && memcmp(first, out[0], result->bytes) != 0)
            status = 1000 + 10 * turn + WRONG_RESULT;
    }
    board_write(file, &status, sizeof status);
    board_write(file, first, operands[inputs].bytes);
    return status;
}

int main(void)
{
    const int32_t jobs = board_open("jobs.bin", FOR_READING), results = board_open("results.bin", FOR_WRITING);
    uint32_t bytes = JOBS_BYTES - (uint32_t)board_read(jobs, (void *)JOBS, JOBS_BYTES);
    set_up();
    for (job = (const unsigned char *)JOBS; job < (const unsigned char *)JOBS + bytes;)
        run(results);
    return 0;
}
