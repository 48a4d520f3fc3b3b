/* pthread.h - of a host with one thread, as a page is: locks are nothing, and no further thread can be started. */
#ifndef FL_EMU_WASM_PTHREAD_H
#define FL_EMU_WASM_PTHREAD_H

#include <errno.h>
#include <stddef.h>

typedef int pthread_t;
typedef int pthread_mutex_t;
typedef int pthread_cond_t;

static inline int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes) {
    (void)attributes;
    *mutex = 0;
    return 0;
}
static inline int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}
static inline int pthread_mutex_lock(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}
static inline int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    (void)mutex;
    return 0;
}
static inline int pthread_cond_init(pthread_cond_t *condition, const void *attributes) {
    (void)attributes;
    *condition = 0;
    return 0;
}
static inline int pthread_cond_destroy(pthread_cond_t *condition) {
    (void)condition;
    return 0;
}
static inline int pthread_cond_broadcast(pthread_cond_t *condition) {
    (void)condition;
    return 0;
}
static inline int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    (void)condition, (void)mutex;
    return 0;
}
static inline int pthread_create(pthread_t *thread, const void *attributes, void *(*body)(void *), void *argument) {
    (void)thread, (void)attributes, (void)body, (void)argument;
    return EAGAIN;
}
static inline int pthread_join(pthread_t thread, void **result) {
    (void)thread, (void)result;
    return EINVAL;
}

#endif
