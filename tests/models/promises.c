/* SPDX-License-Identifier: Apache-2.0
 * Opens a model from a read-only mapping, counts what the heap gives while it opens and runs, and sees that every
 * weight is read where it lies in the file. Prints the time of opening in microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "megcc.h"

extern const megcc_module MEGCC_MODULE;

static int counted;
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    counted++;
    return __real_malloc(size);
}
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    counted++;
    return __real_calloc(count, size);
}

struct seen {
    const megcc_model *model;
    int in_place, elsewhere;
};

static int32_t look(void *user, megcc_session *session, uint32_t instruction, int32_t after)
{
    struct seen *seen = user;
    const unsigned char *weights = seen->model->weights;
    (void)after;
    for (uint32_t i = 0; i < 8; i++) {
        megcc_tensor tensor;
        const unsigned char *data = megcc_session_operand(session, instruction, i, &tensor);
        if (data == NULL)
            break;
        if (data >= weights && data + tensor.bytes <= weights + seen->model->weights_bytes)
            seen->in_place++;
        else
            seen->elsewhere++;
    }
    return 0;
}

int main(int argc, char **argv)
{
    megcc_model model;
    megcc_file file;
    megcc_error error;
    megcc_session *session;
    struct timespec before, after;
    struct seen seen = { &model, 0, 0 };
    const megcc_session_options options = { .observer = { look, &seen } };
    if (argc != 2 || megcc_file_open(&file, argv[1], &error) != 0 || !file.mapped)
        return 2;
    size_t alignment;
    megcc_model_open(&model, &MEGCC_MODULE, file.data, file.size, NULL, &error); /* pages come in */
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (megcc_model_open(&model, &MEGCC_MODULE, file.data, file.size, NULL, &error) != 0)
        return 3;
    clock_gettime(CLOCK_MONOTONIC, &after);
    const size_t bytes = megcc_model_memory(&model, &alignment);
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    counted = 0;
    if (megcc_model_open(&model, &MEGCC_MODULE, file.data, file.size, NULL, &error) != 0
        || megcc_session_open(&session, &model, memory, bytes, &options, &error) != 0)
        return 4;
    for (int run = 0; run < 2; run++)
        if (megcc_session_run(session, &error) != 0)
            return 5;
    printf("allocations %d weights %d others %d microseconds %.1f\n", counted, seen.in_place, seen.elsewhere,
           (double)(after.tv_sec - before.tv_sec) * 1e6 + (double)(after.tv_nsec - before.tv_nsec) * 1e-3);
    return 0;
}
