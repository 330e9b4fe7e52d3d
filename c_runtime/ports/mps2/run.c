/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs an embedded model once on a microcontroller: inputs from the host's files in0.bin, in1.bin, …, outputs to
 * out0.bin, …, and the deepest use of the stack to stack.bin. No heap and no C library but memcpy and memset.
 *
 * MEGCC_HEADER is the generated header in quotes; MEGCC_MODULE, MEGCC_DATA, MEGCC_DATA_BYTES, MEGCC_MEMORY and
 * MEGCC_ALIGN are its names.
 */
#include "board.h"
#include MEGCC_HEADER

extern const uint64_t MEGCC_DATA[];

static unsigned char memory[MEGCC_MEMORY] __attribute__((aligned(MEGCC_ALIGN)));
static megcc_model model;

int main(void);

/* "in7.bin" from "in?.bin". */
static char *numbered(char *name, const char *pattern, uint32_t index)
{
    char *p = name;
    for (; *pattern; pattern++)
        *p++ = *pattern == '?' ? (char)('0' + index) : *pattern;
    *p = '\0';
    return name;
}

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

int main(void)
{
    megcc_session *session;
    megcc_tensor tensor;
    char name[16];
    int32_t status = megcc_model_open(&model, &MEGCC_MODULE, MEGCC_DATA, MEGCC_DATA_BYTES, NULL, NULL);
    if (status)
        return failed("megcc_model_open", status);
    status = megcc_session_open(&session, &model, memory, sizeof memory, NULL, NULL);
    if (status)
        return failed("megcc_session_open", status);

    for (uint32_t i = 0; i < megcc_model_inputs(&model); i++) {
        void *data = megcc_session_input(session, i, &tensor);
        int32_t file = board_open(numbered(name, "in?.bin", i), 0);
        if (file < 0 || board_read(file, data, (uint32_t)tensor.bytes))
            return failed(name, 0);
        board_close(file);
    }
    status = megcc_session_run(session, NULL);
    if (status)
        return failed("megcc_session_run", status);
    uint32_t stack = board_stack_used();
    for (uint32_t i = 0; i < megcc_model_outputs(&model); i++) {
        const void *data = megcc_session_output(session, i, &tensor);
        int32_t file = board_open(numbered(name, "out?.bin", i), 1);
        if (file < 0 || board_write(file, data, (uint32_t)tensor.bytes))
            return failed(name, 0);
        board_close(file);
    }
    int32_t file = board_open("stack.bin", 1);
    board_write(file, &stack, sizeof stack);
    board_close(file);
    return 0;
}
