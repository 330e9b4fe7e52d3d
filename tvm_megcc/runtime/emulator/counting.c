/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin of qemu (version 1 and later of its API) that counts how often each basic block of a firmware runs, and how
 * often it ended in a taken jump, that is, the next block was not the one after it in memory. It counts for each kernel
 * call: a call begins with the block at the address `begin`; the last one ends at `end`. counting.py builds the plugin
 * and reads its output:
 *
 *     a line for each block and call: call, address, instructions, executions, executions that ended in a jump,
 *     and with a model of slow flash (wait_states.c) the cycles of waiting for instructions and for constants
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait_states.h"

#ifndef API
#define API 1
#endif

/* Declarations from qemu-plugin.h, which not every system has. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*tb_trans_cb)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef uint32_t qemu_plugin_meminfo_t;
typedef void (*exec_cb)(unsigned vcpu, void *user);
typedef void (*memory_cb)(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *user);
extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, tb_trans_cb cb);
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, exec_cb cb, int flags, void *user);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, exec_cb cb, int flags, void *user);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, memory_cb cb, int flags, int kind,
                                             void *user);
extern _Bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
extern unsigned qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*cb)(qemu_plugin_id_t, void *), void *user);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);

#define LOADS_AND_STORES 3 /* qemu 7.2 calls back for stores only if it is asked for loads */
#define PUBLIC __attribute__((visibility("default")))
PUBLIC int qemu_plugin_version = API;

typedef struct block {
    uint64_t begin, end;
    unsigned long instructions;
    uint64_t times, jumps, code_waits, data_waits;
    struct block *next;
} block;

/* Instructions of a block that are in one word of the flash. cycles: their sum, without waiting. */
typedef struct piece {
    block *of;
    uint64_t word;
    unsigned cycles;
} piece;

static FILE *out;
static uint64_t begin_at, end_at;
static block *blocks, *last;
static long call = -1;
static unsigned jump_cycles;

static void flush(void)
{
    for (block *b = blocks; b != NULL; b = b->next) {
        if (b->times != 0 && call >= 0)
            fprintf(out, "%ld %" PRIx64 " %lu %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", call, b->begin,
                    b->instructions, b->times, b->jumps, b->code_waits, b->data_waits);
        b->times = b->jumps = b->code_waits = b->data_waits = 0;
    }
    last = NULL;
}

static void executed(unsigned vcpu, void *user)
{
    static int over;
    block *b = user;
    (void)vcpu;
    if (last != NULL && last->end != b->begin) {
        last->jumps++;
        wait_states_clock += jump_cycles;
    }
    if (b->begin == begin_at && !over) {
        flush();
        call++;
    } else if (b->begin == end_at && !over) {
        flush();
        over = 1;
        call = -1;
    }
    b->times++;
    last = b;
}

static void fetched(unsigned vcpu, void *user)
{
    piece *p = user;
    (void)vcpu;
    p->of->code_waits += wait_states_fetched(p->word);
    wait_states_clock += p->cycles;
}

static void loaded(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *user)
{
    block *b = user;
    (void)vcpu;
    if (!qemu_plugin_mem_is_store(info))
        b->data_waits += wait_states_loaded(address, 1u << qemu_plugin_mem_size_shift(info));
}

/* Has the model of slow flash see the instructions of a block: each word of the flash, each instruction in other memory, and
 * each load. */
static void model_waits(block *b, struct qemu_plugin_tb *tb)
{
    piece *p = NULL;
    for (size_t i = 0; i < b->instructions; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        const uint64_t begin = qemu_plugin_insn_vaddr(insn);
        const uint64_t words[] = {wait_states_word(begin), wait_states_word(begin + qemu_plugin_insn_size(insn) - 1)};
        for (int at = 0; at < 2; at++)
            if (p == NULL || p->word != words[at] || (at == 0 && words[0] == UINT64_MAX)) {
                p = calloc(1, sizeof *p);
                if (p == NULL)
                    return;
                p->of = b;
                p->word = words[at];
                qemu_plugin_register_vcpu_insn_exec_cb(insn, fetched, 0, p);
            }
        p->cycles += wait_states_cost(begin);
        qemu_plugin_register_vcpu_mem_cb(insn, loaded, 0, LOADS_AND_STORES, b);
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    const size_t count = qemu_plugin_tb_n_insns(tb);
    block *b = calloc(1, sizeof *b);
    (void)id;
    if (b == NULL || count == 0)
        return;
    const struct qemu_plugin_insn *end = qemu_plugin_tb_get_insn(tb, count - 1);
    b->begin = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    b->end = qemu_plugin_insn_vaddr(end) + qemu_plugin_insn_size(end);
    b->instructions = (unsigned long)count;
    b->next = blocks;
    blocks = b;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, b);
    if (wait_states_modelled())
        model_waits(b, tb);
}

static void finished(qemu_plugin_id_t id, void *user)
{
    (void)id;
    (void)user;
    flush();
    fclose(out);
}

PUBLIC int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], "out=", 4) == 0)
            out = fopen(arguments[i] + 4, "w");
        else if (strncmp(arguments[i], "begin=", 6) == 0)
            begin_at = strtoull(arguments[i] + 6, NULL, 16);
        else if (strncmp(arguments[i], "end=", 4) == 0)
            end_at = strtoull(arguments[i] + 4, NULL, 16);
        else if (strncmp(arguments[i], "jump=", 5) == 0)
            jump_cycles = (unsigned)strtoul(arguments[i] + 5, NULL, 10);
        else if (!wait_states_option(arguments[i]))
            return -1;
    }
    if (out == NULL)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, finished, NULL);
    return 0;
}
