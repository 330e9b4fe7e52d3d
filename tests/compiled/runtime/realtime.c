/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of a stream in a process that may do nothing but compute: after the session is open, seccomp's strict mode
 * kills it at any system call but read and write (and _exit), and calls of the allocator and of locks are counted.
 *
 *     realtime BLOCKS strict|free noise|zeros|tiny|huge > outputs of the last block
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/seccomp.h>

#include "test.h"
#include "megcc_realtime.h"

static _Alignas(TEST_ALIGN) unsigned char memory[TEST_MEMORY_BYTES];
static unsigned hooked;

#define HOOK(type, name, parameters, arguments)                                                                        \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        hooked++;                                                                                                      \
        return __real_##name arguments;                                                                                \
    }
HOOK(void *, malloc, (size_t bytes), (bytes))
HOOK(void *, calloc, (size_t count, size_t bytes), (count, bytes))
HOOK(void *, realloc, (void *old, size_t bytes), (old, bytes))
HOOK(int, posix_memalign, (void **at, size_t alignment, size_t bytes), (at, alignment, bytes))
HOOK(int, pthread_mutex_lock, (void *mutex), (mutex))
HOOK(int, pthread_cond_wait, (void *condition, void *mutex), (condition, mutex))
HOOK(int, pthread_cond_broadcast, (void *condition), (condition))

static void leave(int code)
{
    syscall(SYS_exit, code); /* the only way out that strict mode allows */
}

static float number(uint32_t *seed, const char *kind)
{
    *seed = *seed * 1664525u + 1013904223u;
    const float noise = (float)(int32_t)(*seed >> 8) / 8388608.0f - 1.0f;
    return *kind == 'n' ? noise : *kind == 'z' ? 0.0f : *kind == 't' ? noise * 1e-39f : noise * 1e4f;
}

static void blocks(megcc_session *session, int count, const char *kind)
{
    uint32_t seed = 1;
    for (int i = 0; i < count; i++) {
        megcc_tensor x;
        float *data = megcc_session_input(session, 0, &x);
        for (uint64_t k = 0; k < x.bytes / sizeof *data; k++)
            data[k] = number(&seed, kind);
        if (megcc_session_run(session, NULL))
            leave(3);
    }
}

int main(int arguments, char **argument)
{
    megcc_model model;
    megcc_session *session;
    if (arguments != 4 || megcc_model_open(&model, &test_module, test_data, TEST_CONTAINER_BYTES, NULL, NULL)
        || megcc_session_open(&session, &model, memory, sizeof memory, NULL, NULL))
        return 2;
    const int count = atoi(argument[1]);
    const uint32_t before = megcc_flush_denormals();
    hooked = 0;
    free(__real_malloc(1)); /* the hooks are there */
    if (malloc(1) == NULL || hooked != 1)
        return 5;
    if (*argument[2] == 's' && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
        return 77;
    blocks(session, count, argument[3]);
    if (hooked != 1)
        leave(4);
    megcc_restore_denormals(before);
    megcc_tensor y;
    const char *data = megcc_session_output(session, 0, &y);
    for (size_t done = 0; done < y.bytes;) {
        const ssize_t wrote = write(1, data + done, (size_t)y.bytes - done);
        if (wrote <= 0)
            leave(6);
        done += (size_t)wrote;
    }
    leave(0);
}
