/* SPDX-License-Identifier: Apache-2.0
 *
 * Convenience functions for machines with files and a heap. Nothing else in the runtime needs them.
 */
#ifndef MEGCC_NO_STDIO

#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* madvise() */
#define HAVE_MMAP 1
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

#define FILE_ALIGNMENT 64 /* the largest alignment of a container */

/* Allocates aligned memory. The pointer that malloc() returned is stored right before it, for free(). */
void *megcc_heap_get(size_t bytes, size_t alignment)
{
    if (alignment < sizeof(void *)) {
        alignment = sizeof(void *);
    }
    if (bytes > SIZE_MAX - alignment - sizeof(void *)) {
        return NULL;
    }
    uint8_t *block = malloc(bytes + alignment + sizeof(void *));
    if (block == NULL) {
        return NULL;
    }
    const uintptr_t first = (uintptr_t)block + sizeof(void *);
    const uintptr_t gap = (alignment - first % alignment) % alignment;
    void **memory = (void **)(void *)(block + sizeof(void *) + gap);
    memory[-1] = block;
    return memory;
}

void megcc_heap_free(void *memory)
{
    if (memory != NULL) {
        free(((void **)memory)[-1]);
    }
}

static void *resize(void *user, void *old, size_t old_bytes, size_t bytes)
{
    const megcc_model *model = user;
    (void)old_bytes;
    megcc_heap_free(old);
    return bytes == 0u ? NULL : megcc_heap_get(bytes, model->program.alignment);
}

megcc_allocator megcc_heap_allocator(const megcc_model *model)
{
    const megcc_allocator allocator = { resize, (void *)(uintptr_t)model };
    return allocator;
}

/* --- files ----------------------------------------------------------------------------------------------------- */

#ifdef HAVE_MMAP
static bool map(megcc_file *file, const char *path)
{
    struct stat facts;
    const int fd = open(path, O_RDONLY);
    if (fd < 0) {
        return false;
    }
    void *data = MAP_FAILED;
    if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0 && (uint64_t)facts.st_size <= SIZE_MAX) {
        data = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    close(fd);
    if (data == MAP_FAILED) {
        return false;
    }
#ifdef MADV_HUGEPAGE
    /* A run reads all weights once: with small pages it would wait as long for page tables. A kernel may refuse. */
    (void)madvise(data, (size_t)facts.st_size, MADV_HUGEPAGE);
#endif
    file->data = data;
    file->size = (size_t)facts.st_size;
    file->mapped = 1;
    return true;
}
#endif

static bool read_all(megcc_file *file, FILE *stream)
{
    if (fseek(stream, 0, SEEK_END) != 0) {
        return false;
    }
    const long size = ftell(stream);
    if (size < 0 || size == LONG_MAX || fseek(stream, 0, SEEK_SET) != 0) { /* LONG_MAX: a folder */
        return false;
    }
    file->data = megcc_heap_get((size_t)size, FILE_ALIGNMENT);
    if (file->data == NULL) {
        return false;
    }
    file->size = fread(file->data, 1, (size_t)size, stream);
    return file->size == (size_t)size;
}

int32_t megcc_file_open(megcc_file *file, const char *path, megcc_error *error)
{
    (void)memset(file, 0, sizeof *file);
#ifdef HAVE_MMAP
    if (map(file, path)) {
        return MEGCC_OK;
    }
#endif
    FILE *stream = fopen(path, "rb");
    const bool read = stream != NULL && read_all(file, stream);
    if (stream != NULL) {
        (void)fclose(stream);
    }
    if (read) {
        return MEGCC_OK;
    }
    megcc_file_close(file);
    return megcc_fail(error, MEGCC_E_FILE, AT("path"), MEGCC_NONE, 0, 0);
}

void megcc_file_close(megcc_file *file)
{
#ifdef HAVE_MMAP
    if (file->mapped) {
        munmap(file->data, file->size);
        file->data = NULL;
    }
#endif
    megcc_heap_free(file->data);
    (void)memset(file, 0, sizeof *file);
}

int32_t megcc_model_load_file(megcc_model *model, megcc_file *file, const megcc_module *module, const char *path,
                              const megcc_model_options *options, megcc_error *error)
{
    int32_t status = megcc_file_open(file, path, error);
    if (status != MEGCC_OK) {
        return status;
    }
    status = megcc_model_open(model, module, file->data, file->size, options, error);
    if (status != MEGCC_OK) {
        megcc_file_close(file);
    }
    return status;
}

#else
typedef int megcc_no_host; /* ISO C requires a declaration in each file */
#endif
