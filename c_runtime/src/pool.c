/* SPDX-License-Identifier: Apache-2.0
 *
 * A small pool of POSIX threads for megcc_session_options.parallel. The calling thread is worker 0. Whoever is free
 * takes the next task; which one that is does not change results.
 */
#if !defined(MEGCC_NO_THREADS) && (defined(__unix__) || defined(__APPLE__))
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#define HAVE_PTHREADS 1
#endif

#include "internal.h"

#ifdef HAVE_PTHREADS

/* How often a thread looks for the next instruction, or for the end of this one, before it goes to sleep: a network
 * calls every few microseconds, and waking up takes longer. */
#if defined(__GNUC__)
#define SPINS 4000
#define LOAD(variable) __atomic_load_n(&(variable), __ATOMIC_ACQUIRE)
#define STORE(variable, value) __atomic_store_n(&(variable), (value), __ATOMIC_RELEASE)
#else
#define SPINS 0
#define LOAD(variable) (variable)
#define STORE(variable, value) ((variable) = (value))
#endif

typedef struct helper {
    megcc_pool *pool;
    pthread_t thread;
    int32_t worker;
} helper;

/* All is guarded by the lock; what LOAD() reads is also looked at without. */
struct megcc_pool {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    megcc_body body;
    void *context;
    int32_t next, tasks;        /* the task that nobody has taken yet, and their number */
    int32_t left;               /* tasks that are not finished */
    uint32_t round;             /* counts calls of run() */
    int32_t helpers, asleep;
    bool stop;
    helper helper[];
};

/* Runs tasks until none is left. Called and left with the lock. */
static void take_tasks(megcc_pool *pool, int32_t worker)
{
    while (pool->next < pool->tasks) {
        const int32_t task = pool->next++;
        pthread_mutex_unlock(&pool->lock);
        pool->body(pool->context, task, worker);
        pthread_mutex_lock(&pool->lock);
        STORE(pool->left, pool->left - 1);
        if (pool->left == 0)
            pthread_cond_signal(&pool->end);
    }
}

static void *help(void *argument)
{
    const helper *self = argument;
    megcc_pool *pool = self->pool;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        const uint32_t seen = pool->round;
        take_tasks(pool, self->worker);
        pthread_mutex_unlock(&pool->lock);
        for (int32_t i = 0; i < SPINS && LOAD(pool->round) == seen; i++)
            ;
        pthread_mutex_lock(&pool->lock);
        while (pool->round == seen && !pool->stop) {
            pool->asleep++;
            pthread_cond_wait(&pool->begin, &pool->lock);
            pool->asleep--;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void run(void *user, megcc_body body, void *context, int32_t tasks)
{
    megcc_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    pool->body = body;
    pool->context = context;
    pool->next = 0;
    pool->tasks = tasks;
    STORE(pool->left, tasks);
    STORE(pool->round, pool->round + 1);
    if (pool->asleep != 0)
        pthread_cond_broadcast(&pool->begin);
    take_tasks(pool, 0);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < SPINS && LOAD(pool->left) != 0; i++)
        ;
    pthread_mutex_lock(&pool->lock);
    while (pool->left != 0)
        pthread_cond_wait(&pool->end, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

size_t megcc_pool_bytes(int32_t workers)
{
    return sizeof(megcc_pool) + (workers < 2 ? 0 : (size_t)(workers - 1)) * sizeof(helper);
}

int32_t megcc_pool_open(megcc_pool **result, void *memory, size_t size, int32_t workers)
{
    *result = NULL;
    if (workers < 1 || memory == NULL || size < megcc_pool_bytes(workers) || !is_aligned(memory, sizeof(void *)))
        return MEGCC_E_ARGUMENT;
    megcc_pool *pool = memory;
    memset(pool, 0, megcc_pool_bytes(workers));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->end, NULL);
    for (int32_t i = 1; i < workers; i++) {
        helper *h = &pool->helper[i - 1];
        h->pool = pool;
        h->worker = i;
        if (pthread_create(&h->thread, NULL, help, h) != 0) {
            megcc_pool_close(pool);
            return MEGCC_E_THREADS;
        }
        pool->helpers++;
    }
    *result = pool;
    return MEGCC_OK;
}

void megcc_pool_close(megcc_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (int32_t i = 0; i < pool->helpers; i++)
        pthread_join(pool->helper[i].thread, NULL);
    pthread_cond_destroy(&pool->end);
    pthread_cond_destroy(&pool->begin);
    pthread_mutex_destroy(&pool->lock);
}

megcc_parallel megcc_pool_parallel(megcc_pool *pool)
{
    const megcc_parallel parallel = { run, pool, pool->helpers + 1 };
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
