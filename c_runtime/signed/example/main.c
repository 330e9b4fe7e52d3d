/* SPDX-License-Identifier: 0BSD
 *
 * A program that starts with the newer of two slots, here files: main a.signed b.signed 1. The last argument is the least
 * counter that it accepts (slots.h).
 *
 * The command that compiles it (docs/updates.md) defines HEADER, the model's header, and MODULE, the module that it declares;
 * KEY, a header made by `megcc keygen`, and PUBLIC_KEY, the array in it; and PRODUCT, a string.
 */
#include <stdio.h>
#include <stdlib.h>

#include "slots.h"
#include HEADER
#include KEY

int main(int argc, char **argv)
{
    megcc_file files[2] = { { NULL, 0, 0 }, { NULL, 0, 0 } };
    slot slots[2] = { { NULL, 0 }, { NULL, 0 } };
    megcc_model model;
    megcc_error error;
    uint64_t counter = 0;
    char text[200];

    if (argc != 4)
        return 2;
    for (int i = 0; i < 2; i++) {
        if (megcc_file_open(&files[i], argv[1 + i], NULL) == MEGCC_OK) {
            slots[i].data = files[i].data;
            slots[i].size = files[i].size;
        }
    }
    const int running = slots_open(&model, &MODULE, slots, PUBLIC_KEY, PRODUCT, strtoull(argv[3], NULL, 10), &counter,
                                   &error);
    if (running < 0)
        printf("none: %s\n", megcc_error_text(&error, text, sizeof text));
    else
        printf("slot %c, counter %llu, %s\n", 'a' + running, (unsigned long long)counter, model.name);
    for (int i = 0; i < 2; i++)
        megcc_file_close(&files[i]);
    return running < 0 ? 1 : 0;
}
