/* SPDX-License-Identifier: Apache-2.0
 *
 * A small pool of POSIX threads for megcc_session_options.parallel. The calling thread is worker 0. Every worker gets
 * the same share of each instruction's tasks, so that it mostly reads data that it wrote itself. A worker that has
 * finished steals tasks of the others. Results do not depend on which worker runs a task.
 *
 * After fork() the child has the pool's memory but none of its threads, and a lock that one of them may hold. There the
 * calling thread runs all tasks and uses nothing else of the pool.
 */
#if !defined(MEGCC_NO_THREADS) && (defined(__unix__) || defined(__APPLE__)) && defined(__GNUC__)
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <unistd.h>
#define HAVE_PTHREADS 1
#endif

#include "internal.h"

#ifdef HAVE_PTHREADS

/* How often a thread polls for the next instruction, or for the end of this one, before it sleeps: about a tenth of a
 * millisecond. Instructions follow each other in a few microseconds, and waking a thread takes longer. */
#if defined(__x86_64__) || defined(__i386__)
#define SPINS 5000
#define RELAX() __builtin_ia32_pause()
#else
#define SPINS 50000
#define RELAX() ((void)0)
#endif

#define LOAD(variable) __atomic_load_n(&(variable), __ATOMIC_SEQ_CST)
#define STORE(variable, value) __atomic_store_n(&(variable), (value), __ATOMIC_SEQ_CST)
#define ADD(variable, value) __atomic_add_fetch(&(variable), (value), __ATOMIC_SEQ_CST)

/* A worker. Padding keeps two workers from sharing a cache line, of which some CPUs fetch two at a time. */
typedef struct worker {
    int32_t untaken, end;       /* tasks [end - untaken, end) of its share have not begun */
    int32_t index;
    megcc_pool *pool;
    pthread_t thread;
    uint8_t padding[128];
} worker;

/* Fields that are read by LOAD() change without the lock, which only protects sleeping and waking. The others change
 * only while no task is left. */
struct megcc_pool {
    megcc_body body;
    void *context;
    int32_t unfinished;         /* tasks that are not reported as finished */
    uint32_t round;             /* counts calls of run() */
    int32_t asleep;             /* threads that sleep, or are about to */
    int32_t waits;              /* whether run() sleeps */
    int32_t workers;            /* including the calling thread */
    bool stop;
    pid_t owner;                /* the process that has the threads */
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    worker worker[];            /* the first one has no thread */
};

/* Takes the next task of a share; -1 if none is left. */
static int32_t take(worker *from)
{
    for (int32_t untaken = LOAD(from->untaken); untaken > 0;) {
        if (__atomic_compare_exchange_n(&from->untaken, &untaken, untaken - 1, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            return from->end - untaken;     /* `end` is stable: the round cannot end before this task */
        }
    }
    return -1;
}

/* Runs tasks as worker `self`, first those of its own share, until none is left. Shared counters are written once, at the
 * end. */
static void run_share(megcc_pool *pool, int32_t self)
{
    int32_t ended = 0;
    for (int32_t i = 0, task; i < pool->workers; i++) {
        for (; (task = take(&pool->worker[(self + i) % pool->workers])) >= 0; ended++) {
            pool->body(pool->context, task, self);
        }
    }
    if (ended > 0 && ADD(pool->unfinished, -ended) == 0 && LOAD(pool->waits)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->end);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* The main function of a thread, which waits for a round and takes part in it, until the pool is closed. */
static void *thread_main(void *argument)
{
    const worker *self = argument;
    megcc_pool *pool = self->pool;
    for (uint32_t seen = 0; !LOAD(pool->stop);) {
        for (int32_t i = 0; i < SPINS && LOAD(pool->round) == seen; i++) {
            RELAX();
        }
        if (LOAD(pool->round) == seen) {
            pthread_mutex_lock(&pool->lock);
            ADD(pool->asleep, 1);
            while (LOAD(pool->round) == seen && !LOAD(pool->stop)) {
                pthread_cond_wait(&pool->begin, &pool->lock);
            }
            ADD(pool->asleep, -1);
            pthread_mutex_unlock(&pool->lock);
        }
        seen = LOAD(pool->round);
        run_share(pool, self->index);
    }
    return NULL;
}

/* Wakes the threads that sleep. In a forked child there are none. */
static void wake(megcc_pool *pool)
{
    if (getpid() != pool->owner) {
        STORE(pool->asleep, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
}

/* megcc_parallel.run: divides the tasks into shares of equal size, takes part, and waits for the last one. */
static void run(void *user, megcc_body body, void *context, int32_t tasks)
{
    megcc_pool *pool = user;
    __atomic_store_n(&pool->waits, 0, __ATOMIC_RELAXED); /* already 0, except in a child forked during run() */
    pool->body = body;
    pool->context = context;
    STORE(pool->unfinished, tasks);
    for (int32_t i = 0; i < pool->workers; i++) {
        const int32_t first = (int32_t)((int64_t)tasks * i / pool->workers);
        pool->worker[i].end = (int32_t)((int64_t)tasks * (i + 1) / pool->workers);
        STORE(pool->worker[i].untaken, pool->worker[i].end - first);
    }
    ADD(pool->round, 1);
    if (LOAD(pool->asleep) != 0) {
        wake(pool);
    }
    run_share(pool, 0);
    for (int32_t i = 0; i < SPINS && LOAD(pool->unfinished) != 0; i++) {
        RELAX();
    }
    if (LOAD(pool->unfinished) != 0) {
        pthread_mutex_lock(&pool->lock);
        STORE(pool->waits, 1);
        while (LOAD(pool->unfinished) != 0) {
            pthread_cond_wait(&pool->end, &pool->lock);
        }
        STORE(pool->waits, 0);
        pthread_mutex_unlock(&pool->lock);
    }
}

size_t megcc_pool_bytes(int32_t workers)
{
    return sizeof(megcc_pool) + (workers < 1 ? 1 : (size_t)workers) * sizeof(worker);
}

int32_t megcc_pool_open(megcc_pool **result, void *memory, size_t size, int32_t workers)
{
    *result = NULL;
    if (workers < 1 || memory == NULL || size < megcc_pool_bytes(workers) || !is_aligned(memory, sizeof(void *))) {
        return MEGCC_E_ARGUMENT;
    }
    megcc_pool *pool = memory;
    (void)memset(pool, 0, megcc_pool_bytes(workers));
    pool->owner = getpid();
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->end, NULL);
    pool->workers = 1;
    for (int32_t i = 1; i < workers; i++, pool->workers++) {
        worker *w = &pool->worker[i];
        w->index = i;
        w->pool = pool;
        if (pthread_create(&w->thread, NULL, thread_main, w) != 0) {
            megcc_pool_close(pool);
            return MEGCC_E_THREADS;
        }
    }
    *result = pool;
    return MEGCC_OK;
}

void megcc_pool_close(megcc_pool *pool)
{
    if (getpid() != pool->owner) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    STORE(pool->stop, true);
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 1; i < pool->workers; i++) {
        pthread_join(pool->worker[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->end);
    pthread_cond_destroy(&pool->begin);
    pthread_mutex_destroy(&pool->lock);
}

megcc_parallel megcc_pool_parallel(megcc_pool *pool)
{
    const megcc_parallel parallel = { run, pool, pool->workers };
    return parallel;
}

#elif !defined(MEGCC_NO_THREADS)

size_t megcc_pool_bytes(int32_t workers)
{
    (void)workers;
    return 0;
}

int32_t megcc_pool_open(megcc_pool **pool, void *memory, size_t size, int32_t workers)
{
    (void)memory;
    (void)size;
    (void)workers;
    *pool = NULL;
    return MEGCC_E_THREADS;
}

void megcc_pool_close(megcc_pool *pool)
{
    (void)pool;
}

megcc_parallel megcc_pool_parallel(megcc_pool *pool)
{
    const megcc_parallel none = { NULL, NULL, 0 };
    (void)pool;
    return none;
}

#endif
