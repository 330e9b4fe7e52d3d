/* SPDX-License-Identifier: Apache-2.0
 *
 * A target where there is no libFuzzer:
 *
 *     driver FILE...           runs files of inputs: for each its length as 32 bits, and its bytes
 *     driver --blind N SEED    runs N inputs that were changed a few times from nothing
 *
 * Where an input ends the process, it is written to crash-input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>

#include "records.h"

static uint8_t input[MAX_RECORDS * sizeof(record)];
static size_t size;

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void died(void)
{
    FILE *file = fopen("crash-input", "wb");
    if (file != NULL) {
        fwrite(input, 1, size, file);
        fclose(file);
    }
}

static void aborted(int signal)
{
    (void)signal;
    died();
    _Exit(1);
}

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t length[4];
    while (file != NULL && fread(length, 1, 4, file) == 4) {
        size = length[0] | (size_t)length[1] << 8;
        if (size > sizeof input || fread(input, 1, size, file) != size)
            exit(2);
        LLVMFuzzerTestOneInput(input, size);
    }
    if (file == NULL || fclose(file) != 0)
        exit(2);
}

static void run_blind(unsigned count, uint32_t seed)
{
    uint32_t state = seed | 1u;
    size = 0;
    LLVMFuzzerTestOneInput(input, size);
    for (; count > 0; count--) {
        size = 0;
        for (uint32_t rounds = 1 + chance(&state) % 3; rounds > 0; rounds--)
            size = mutate(input, size, sizeof input, chance(&state));
        LLVMFuzzerTestOneInput(input, size);
    }
}

int main(int argc, char **argv)
{
    LLVMFuzzerInitialize(&argc, &argv);
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(died);
    signal(SIGABRT, aborted);
    if (argc == 4 && strcmp(argv[1], "--blind") == 0)
        run_blind((unsigned)strtoul(argv[2], NULL, 10), (uint32_t)strtoul(argv[3], NULL, 10));
    else
        for (int i = 1; i < argc; i++)
            run_file(argv[i]);
    return 0;
}
