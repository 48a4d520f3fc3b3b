/* jail_processes.c - the processes of a program: all others of a namespace of its own, or all descendants without one.
 */
#include "jail.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct process {
    pid_t id, parent;
    bool ours;
} process;

/* The parent of a process, whose name may hold anything; 0 if it has ended. */
static pid_t parent_of(pid_t id) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)id);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    const size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[got] = 0;
    const char *after = strrchr(line, ')');
    return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : 0; /* ") S PARENT" */
}

static uint64_t pages_of(pid_t id) {
    char path[64], line[100];
    uint64_t pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)id);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fgets(line, sizeof line, file)) pages = strtoull(line + strcspn(line, " "), NULL, 10);
    fclose(file);
    return pages;
}

/* All processes that /proc shows, owned. */
static process *list_all(size_t *count) {
    DIR *entries = opendir("/proc");
    process *all = NULL;
    *count = 0;
    for (const struct dirent *each; entries && (each = readdir(entries));) {
        if (each->d_name[strspn(each->d_name, "0123456789")]) continue;
        process *more = *count & (*count - 1) ? all : realloc(all, (2 * *count + 1) * sizeof *more);
        if (!more) break;
        all = more;
        all[(*count)++] = (process){.id = (pid_t)strtol(each->d_name, NULL, 10)};
    }
    if (entries) closedir(entries);
    return all;
}

/* Mark the descendants of this process. Orphans among them are its children, because it adopts them. */
static void mark_descendants(process *all, size_t count) {
    const pid_t self = getpid();
    for (size_t i = 0; i < count; i++) all[i].parent = parent_of(all[i].id);
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < count && !all[i].ours; k++)
                all[i].ours = all[i].parent == self || (all[k].ours && all[k].id == all[i].parent);
            found |= all[i].ours && all[i].parent;
            if (all[i].ours) all[i].parent = 0; /* seen */
        }
    }
}

static process *list_ours(bool apart, size_t *count) {
    process *all = list_all(count);
    for (size_t i = 0; apart && i < *count; i++) all[i].ours = all[i].id != 1;
    if (!apart) mark_descendants(all, *count);
    return all;
}

void jail_measure(bool apart, uint64_t *processes, uint64_t *pages) {
    size_t count;
    process *all = list_ours(apart, &count);
    *processes = *pages = 0;
    for (size_t i = 0; i < count; i++) {
        *processes += all[i].ours;
        *pages += all[i].ours ? pages_of(all[i].id) : 0;
    }
    free(all);
}

bool jail_end_all(bool apart) {
    enum { ROUNDS = 2000 };
    const struct timespec pause = {0, 1000000};
    if (apart) {
        kill(-1, SIGKILL);
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) continue;
        return true;
    }
    for (int round = 0; round < ROUNDS; round++) {
        size_t count, left = 0;
        process *all = list_ours(false, &count);
        for (size_t i = 0; i < count; i++)
            if (all[i].ours && !kill(all[i].id, SIGKILL)) left++;
        free(all);
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        if (!left) return true;
        nanosleep(&pause, NULL);
    }
    return false;
}
