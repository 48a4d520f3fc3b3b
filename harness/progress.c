#include "harness/progress.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct progress {
    struct progress_plan plan;
    pthread_t thread;
    pthread_mutex_t lock; /* of stopped */
    pthread_cond_t wake;
    bool stopped;
    struct timespec start;
};

char *duration_text(double seconds, char *text, size_t size) {
    const int64_t whole = (int64_t)ceil(seconds);
    if (whole < 60)
        snprintf(text, size, "%" PRId64 " s", whole);
    else if (whole < 3600)
        snprintf(text, size, "%" PRId64 " min %02" PRId64 " s", whole / 60, whole % 60);
    else
        snprintf(text, size, "%" PRId64 " h %02" PRId64 " min", whole / 3600, whole % 3600 / 60);
    return text;
}

char *progress_text(const struct progress_plan *plan, uint64_t done, double elapsed_s, char *text, size_t size) {
    char elapsed[40], left[40] = "";
    if (done) duration_text(elapsed_s * (double)(plan->total - done) / (double)done, left, sizeof left);
    snprintf(text, size, "%s: %" PRIu64 " of %" PRIu64 " %s, %s%s%s%s", plan->label, done, plan->total, plan->unit,
             duration_text(elapsed_s, elapsed, sizeof elapsed), done ? ", about " : "", left, done ? " left" : "");
    return text;
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + 1e-9 * (double)(now.tv_nsec - start->tv_nsec);
}

static struct timespec later(struct timespec time, double seconds) {
    const int64_t ns = time.tv_nsec + (int64_t)(1e9 * seconds);
    time.tv_sec += (time_t)(ns / 1000000000);
    time.tv_nsec = (long)(ns % 1000000000);
    return time;
}

static void *say_progress(void *argument) {
    struct progress *progress = argument;
    const struct progress_plan *plan = &progress->plan;
    struct timespec next = later(progress->start, plan->interval_s);
    bool said = false;
    pthread_mutex_lock(&progress->lock);
    while (!progress->stopped) {
        char text[300];
        if (!pthread_cond_timedwait(&progress->wake, &progress->lock, &next)) continue; /* stopped, or for no reason */
        progress_text(plan, plan->done(plan->context), seconds_since(&progress->start), text, sizeof text);
        fprintf(plan->file, plan->terminal ? "\r%s\033[K" : "%s\n", text);
        fflush(plan->file);
        next = later(next, plan->interval_s);
        said = true;
    }
    pthread_mutex_unlock(&progress->lock);
    if (said && plan->terminal) {
        fputs("\r\033[K", plan->file);
        fflush(plan->file);
    }
    return NULL;
}

struct progress *progress_start(const struct progress_plan *plan) {
    struct progress *progress = calloc(1, sizeof *progress);
    pthread_condattr_t attributes;
    if (!progress) return NULL;
    progress->plan = *plan;
    clock_gettime(CLOCK_MONOTONIC, &progress->start);
    pthread_mutex_init(&progress->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    if (!pthread_create(&progress->thread, NULL, say_progress, progress)) return progress;
    pthread_cond_destroy(&progress->wake);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
    return NULL;
}

void progress_stop(struct progress *progress) {
    if (!progress) return;
    pthread_mutex_lock(&progress->lock);
    progress->stopped = true;
    pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->wake);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
}
