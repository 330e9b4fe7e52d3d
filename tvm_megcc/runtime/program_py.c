/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions over a program of several networks on the heap for Python's ctypes, which so needs no sizes of structs. The
 * file is compiled into the shared library of a build; macros have the program's header and the names in it. program.py
 * calls it. */
#include <stdlib.h>

#include PROGRAM_HEADER

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef struct handle {
    PROGRAM program;
    void *memory;
#ifdef PROGRAM_OPEN_PARALLEL
    megcc_pool *pool;
    void *pool_memory;
#endif
    megcc_error error;
} handle;

EXPORT void megcc_program_close(void *opened)
{
    if (opened != NULL) {
#ifdef PROGRAM_OPEN_PARALLEL
        if (((handle *)opened)->pool != NULL)
            megcc_pool_close(((handle *)opened)->pool);
        free(((handle *)opened)->pool_memory);
#endif
        megcc_heap_free(((handle *)opened)->memory);
    }
    free(opened);
}

/* Opens the program with a number of workers, for more than one in a pool. Returns a status. */
static int32_t open_with(handle *opened, const void *data, size_t size, int32_t threads)
{
#ifdef PROGRAM_OPEN_PARALLEL
    if (threads > 1) {
        const size_t bytes = megcc_pool_bytes(threads);
        opened->pool_memory = malloc(bytes);
        const int32_t status = megcc_pool_open(&opened->pool, opened->pool_memory, bytes, threads);
        if (status != MEGCC_OK)
            return opened->error.status = status;
        const megcc_parallel parallel = megcc_pool_parallel(opened->pool);
        return PROGRAM_OPEN_PARALLEL(&opened->program, data, size, opened->memory, PROGRAM_MEMORY, &parallel, &opened->error);
    }
#else
    (void)threads;
#endif
    return PROGRAM_OPEN(&opened->program, data, size, opened->memory, PROGRAM_MEMORY, &opened->error);
}

EXPORT void megcc_program_error(void *opened, char *text, uint64_t size)
{
    megcc_error_text(&((handle *)opened)->error, text, (size_t)size);
}

/* Returns NULL with the reason in `text`. threads: the number of workers. */
EXPORT void *megcc_program_open(const void *data, uint64_t size, int32_t threads, char *text, uint64_t text_bytes)
{
    static const megcc_error no_memory = { MEGCC_E_ALLOCATION, MEGCC_NONE, "memory", 0, PROGRAM_MEMORY };
    handle *opened = (handle *)calloc(1, sizeof *opened);
    void *memory = megcc_heap_get(PROGRAM_MEMORY, PROGRAM_ALIGN);
    if (opened != NULL)
        opened->memory = memory;
    else
        megcc_heap_free(memory);
    if (opened == NULL || memory == NULL) {
        megcc_error_text(&no_memory, text, (size_t)text_bytes);
    } else if (open_with(opened, data, (size_t)size, threads) == MEGCC_OK) {
        return opened;
    } else {
        megcc_program_error(opened, text, text_bytes);
    }
    megcc_program_close(opened);
    return NULL;
}

EXPORT void megcc_program_reset(void *opened)
{
    PROGRAM_RESET(&((handle *)opened)->program);
}

/* Returns the function of a run, whose arguments depend on the program. */
EXPORT void *megcc_program_function(void)
{
    return (void *)(uintptr_t)&PROGRAM_RUN;
}

EXPORT void *megcc_program_error_place(void *opened)
{
    return &((handle *)opened)->error;
}
