#include "harness/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct loop {
    atomic_int_least64_t next;
    int64_t count;
    void (*body)(int64_t, void *);
    void *context;
};

/* Cores this process may use. */
static int cores(void) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    return CPU_COUNT(&allowed);
}

static void *run_iterations(void *argument) {
    struct loop *loop = argument;
    for (int64_t i; (i = atomic_fetch_add(&loop->next, 1)) < loop->count;) loop->body(i, loop->context);
    return NULL;
}

void parallel_for(int64_t count, void (*body)(int64_t i, void *context), void *context) {
    enum { MAX_THREADS = 256 };
    struct loop loop = {.count = count, .body = body, .context = context};
    pthread_t threads[MAX_THREADS];
    int started = 0;
    int wanted = cores();
    if (wanted > MAX_THREADS) wanted = MAX_THREADS;
    if (wanted > count) wanted = (int)count;
    while (started < wanted - 1 && !pthread_create(&threads[started], NULL, run_iterations, &loop)) started++;
    run_iterations(&loop);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
