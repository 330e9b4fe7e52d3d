/* SPDX-License-Identifier: Apache-2.0
 *
 * The C library's system calls on the example board, for the harness: standard input is the host's file jobs.bin,
 * standard output its file results.bin, and the heap is the board's second memory.
 */
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/stat.h>

#include "board.h"

#if defined(__ARM_FEATURE_MVE)
enum { HEAP = 0x60000000, HEAP_BYTES = 16 << 20 };
#else
enum { HEAP = 0x21000000, HEAP_BYTES = 16 << 20 };
#endif

static int32_t file_of(int number)
{
    static int32_t opened[2] = { -1, -1 };
    if (opened[number] < 0)
        opened[number] = board_open(number == 0 ? "jobs.bin" : "results.bin", number == 0 ? FOR_READING : FOR_WRITING);
    return opened[number];
}

int _read(int number, char *data, int bytes)
{
    return bytes - board_read(file_of(number), data, (uint32_t)bytes);
}

int _write(int number, char *data, int bytes)
{
    if (number < 2)
        return bytes - board_write(file_of(number), data, (uint32_t)bytes);
    for (int i = 0; i < bytes; i++) {
        const char text[2] = { data[i], '\0' };
        board_text(text);
    }
    return bytes;
}

void *_sbrk(ptrdiff_t bytes)
{
    static ptrdiff_t used;
    if (used + bytes > HEAP_BYTES) {
        errno = ENOMEM;
        return (void *)-1;
    }
    used += bytes;
    return (void *)(HEAP + used - bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

void _exit(int status)
{
    board_exit(status);
}

int _fstat(int number, struct stat *status)
{
    (void)number;
    status->st_mode = S_IFREG;
    status->st_blksize = 0;
    return 0;
}

int _isatty(int number)
{
    (void)number;
    return 0;
}

int _lseek(int number, int offset, int from)
{
    (void)number, (void)offset, (void)from;
    return 0;
}

int _close(int number)
{
    (void)number;
    return 0;
}

int _getpid(void)
{
    return 1;
}

int _kill(int process, int signal)
{
    (void)process, (void)signal;
    board_exit(98);
}
