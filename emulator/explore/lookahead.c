/* lookahead.c - see lookahead.h */
#include "lookahead.h"

#include <pthread.h>
#include <stdlib.h>

enum { MAX_AHEAD = 64 }; /* threads */

typedef struct lookahead {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t threads[MAX_AHEAD];
    int thread_count;
    run_turn *run;
    cluster *first, **end; /* those that have not begun, in the order of their turns */
    bool stops, closed;    /* at the next atomic; when all have come there */
} lookahead;

/* All of these with the lock. */

static void leave_list(lookahead *a, cluster *c) {
    cluster **at = &a->first;
    while (*at != c) at = &(*at)->next_ahead;
    *at = c->next_ahead;
    if (!*at) a->end = at;
    c->ahead_state = AHEAD_NOT;
}

static void run_now(lookahead *a, cluster *c) {
    c->ahead_state = AHEAD_RUNS;
    pthread_mutex_unlock(&a->lock);
    const cta_turn turn = a->run(c, true);
    pthread_mutex_lock(&a->lock);
    c->turn_ahead = turn;
    c->ahead_state = AHEAD_DONE;
    pthread_cond_broadcast(&a->changed);
}

static void *work(void *argument) {
    lookahead *a = argument;
    pthread_mutex_lock(&a->lock);
    while (!a->closed) {
        cluster *c = a->first;
        if (c) {
            leave_list(a, c);
            run_now(a, c);
        } else {
            pthread_cond_wait(&a->changed, &a->lock);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

lookahead *emu_lookahead_new(int threads, run_turn *run) {
    lookahead *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->end = &a->first;
    a->run = run;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    while (a->thread_count < threads && a->thread_count < MAX_AHEAD &&
           !pthread_create(&a->threads[a->thread_count], NULL, work, a))
        a->thread_count++;
    return a;
}

void emu_lookahead_begin(lookahead *a, cluster *c) {
    pthread_mutex_lock(&a->lock);
    c->lookahead = a;
    c->has_turn = false;
    c->ahead_state = AHEAD_BEGINS;
    c->next_ahead = NULL;
    *a->end = c;
    a->end = &c->next_ahead;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

cta_turn emu_lookahead_turn(lookahead *a, cluster *c) {
    pthread_mutex_lock(&a->lock);
    c->has_turn = true;
    pthread_cond_broadcast(&a->changed);
    if (c->ahead_state == AHEAD_BEGINS) leave_list(a, c);
    if (c->ahead_state == AHEAD_NOT) run_now(a, c);
    while (c->ahead_state != AHEAD_DONE) pthread_cond_wait(&a->changed, &a->lock);
    c->ahead_state = AHEAD_NOT;
    pthread_mutex_unlock(&a->lock);
    return c->turn_ahead;
}

bool emu_lookahead_waits(cluster *c) {
    lookahead *a = c->lookahead;
    pthread_mutex_lock(&a->lock);
    while (!c->has_turn && !a->stops) pthread_cond_wait(&a->changed, &a->lock);
    const bool goes_on = c->has_turn;
    pthread_mutex_unlock(&a->lock);
    return goes_on;
}

bool emu_lookahead_is_early(cluster *c) {
    lookahead *a = c->lookahead;
    pthread_mutex_lock(&a->lock);
    const bool is_early = !c->has_turn;
    pthread_mutex_unlock(&a->lock);
    return is_early;
}

void emu_lookahead_free(lookahead *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stops = true;
    pthread_cond_broadcast(&a->changed);
    for (cluster *c; (c = a->first) != NULL;) {
        leave_list(a, c);
        run_now(a, c);
    }
    a->closed = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    for (int i = 0; i < a->thread_count; i++) pthread_join(a->threads[i], NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
