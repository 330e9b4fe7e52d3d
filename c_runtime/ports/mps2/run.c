/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs each model of a firmware once, one after the other, and exchanges files with the host by semihosting:
 *
 *     in0.bin, in1.bin, …     inputs, which are read
 *     shape0.bin, …           their shapes as megcc_shape, of all inputs or of none, in builds with dynamic shapes
 *     out0.bin, …             outputs; dims0.bin, …: their dimensions, in builds with dynamic shapes
 *     ticks.bin               clock ticks of a calibration loop, then of each instruction
 *     stack.bin               bytes of stack that were used at most
 *
 * If there are several models, the names of all but stack.bin begin with the model's name and "_". The program needs no
 * heap, and of the C library only memcpy, memset and memcmp.
 */
#include "board.h"
#include "firmware.h"

int main(void);

/* Declared here because a toolchain without a C library has no <string.h>; start.c defines it there. */
void *memcpy(void *to, const void *from, size_t size);

/* Opens a file such as "in7.bin", for the pattern "in?.bin" and index 7, with the model's prefix. The name is on the
 * stack only here, not during a run, so that it does not count as the run's stack. */
static __attribute__((noinline)) int32_t open_file(const char *prefix, const char *pattern, uint32_t index, uint32_t mode)
{
    char name[128];
    char *p = name;
    for (; *prefix && p < name + sizeof name - 24; prefix++) /* 24: for the longest pattern and a number of 10 digits */
        *p++ = *prefix;
    for (; *pattern; pattern++) {
        if (*pattern != '?') {
            *p++ = *pattern;
            continue;
        }
        uint32_t power_of_ten = 1;
        while (index / power_of_ten > 9)
            power_of_ten *= 10;
        for (; power_of_ten; power_of_ten /= 10)
            *p++ = (char)('0' + index / power_of_ten % 10);
    }
    *p = '\0';
    return board_open(name, mode);
}

/* Prints an error with a status, two hexadecimal digits, and returns the exit status. */
static int failed(const char *what, int32_t status)
{
    static const char digits[] = "0123456789abcdef";
    char number[] = ": status 0x??\n";
    number[11] = digits[status >> 4 & 15];
    number[12] = digits[status & 15];
    board_text(what);
    board_text(number);
    return 1;
}

/* Instructions of the calibration loop. The host (runtime/emulator/firmware.py, with the same number) computes from its ticks
 * how many instructions a tick stands for. */
enum { CALIBRATION = 200000 };

/* Executes CALIBRATION instructions: two in an iteration. */
static void calibration_loop(void)
{
    uint32_t left = CALIBRATION / 2;
#if defined(__riscv)
    __asm__ volatile("1: addi %0, %0, -1\n\tbnez %0, 1b" : "+r"(left));
#else
    __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n\tbne 1b" : "+l"(left) : : "cc");
#endif
}

/* Runs the model instruction by instruction; writes the ticks of the calibration loop and of each instruction. */
static int32_t run_steps(megcc_session *session, const char *prefix)
{
    const int32_t file = open_file(prefix, "ticks.bin", 0, FOR_WRITING);
    uint32_t before, after, ticks;
    int32_t status;
    board_clock_start();
    board_clock_since(0, &before);
    calibration_loop();
    ticks = board_clock_since(before, &after);
    do {
        board_write(file, &ticks, sizeof ticks);
        board_clock_since(0, &before);
        status = megcc_session_step(session, NULL);
        ticks = board_clock_since(before, &after);
    } while (status == MEGCC_MORE);
    board_write(file, &ticks, sizeof ticks);
    board_close(file);
    return status;
}

#ifndef MEGCC_NO_DYNAMIC
/* Sets the shapes of the inputs, if there are files with them. `most` bounds how many inputs such a model has. */
static int set_shapes(megcc_session *session, uint32_t inputs, const char *prefix)
{
    enum { most = 32 };
    static megcc_shape shapes[most];
    for (uint32_t i = 0; i < inputs; i++) {
        const int32_t file = open_file(prefix, "shape?.bin", i, FOR_READING);
        if (file < 0 && i == 0)
            return 0;
        if (file < 0 || i == most || board_read(file, &shapes[i], sizeof shapes[i]))
            return failed("shape?.bin", 0);
        board_close(file);
    }
    const int32_t status = megcc_session_set_shapes(session, shapes, inputs, NULL);
    return status ? failed("megcc_session_set_shapes: shape", status) : 0;
}
#endif

/* Opens a model, reads its inputs, runs it and writes its outputs. Returns 0, or 1 after printing an error. */
static int run(const firmware_model *m)
{
    static megcc_model model;
    megcc_session *session;
    megcc_tensor tensor;
    int32_t status = megcc_model_open(&model, m->module, m->data, m->data_bytes, NULL, NULL);
    if (status)
        return failed("megcc_model_open", status);
#ifndef MEGCC_NO_REGIONS
    static megcc_session_options options;
    memcpy(options.region, m->region, sizeof options.region);
    status = megcc_session_open(&session, &model, m->memory, m->memory_bytes, &options, NULL);
#else
    status = megcc_session_open(&session, &model, m->memory, m->memory_bytes, NULL, NULL);
#endif
    if (status)
        return failed("megcc_session_open", status);

#ifndef MEGCC_NO_DYNAMIC
    if (set_shapes(session, megcc_model_inputs(&model), m->prefix))
        return 1;
#endif

    unsigned char *next = m->caller_inputs;
    for (uint32_t i = 0; i < megcc_model_inputs(&model); i++) {
        void *data = megcc_session_input(session, i, &tensor);
        if (data == NULL) {
            data = next;
            next += (tensor.bytes + 63) / 64 * 64; /* aligned to 64 bytes, as firmware.py sizes m->caller_inputs */
            status = megcc_session_bind_input(session, i, data, (size_t)tensor.bytes);
            if (status)
                return failed("megcc_session_bind_input", status);
        }
        int32_t file = open_file(m->prefix, "in?.bin", i, FOR_READING);
        if (file < 0 || board_read(file, data, (uint32_t)tensor.bytes))
            return failed("in?.bin", 0);
        board_close(file);
    }
    status = run_steps(session, m->prefix);
    if (status)
        return failed("megcc_session_step", status);
    uint32_t stack = board_stack_used();
    for (uint32_t i = 0; i < megcc_model_outputs(&model); i++) {
        const void *data = megcc_session_output(session, i, &tensor);
        int32_t file = open_file(m->prefix, "out?.bin", i, FOR_WRITING);
        if (file < 0 || board_write(file, data, (uint32_t)tensor.bytes))
            return failed("out?.bin", 0);
        board_close(file);
#ifndef MEGCC_NO_DYNAMIC
        file = open_file(m->prefix, "dims?.bin", i, FOR_WRITING);
        board_write(file, tensor.dims, 4u * tensor.rank);
        board_close(file);
#endif
    }
    int32_t file = board_open("stack.bin", FOR_WRITING);
    board_write(file, &stack, sizeof stack);
    board_close(file);
    return 0;
}

int main(void)
{
    for (uint32_t i = 0; i < firmware_count; i++)
        if (run(&firmware_models[i]))
            return 1;
    return 0;
}
