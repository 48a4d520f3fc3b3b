/* copies.c - copies of this process, by fork(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "copies.h"

#if defined(__linux__) || defined(__APPLE__)
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { ENDED_WELL = 17 };

void *emu_shared_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void emu_free_shared(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

copy_result emu_run_copy(void) {
    int status = 0;
    const pid_t copy = fork();
    if (copy < 0) return COPY_FAILED;
    if (!copy) {
#ifdef __linux__
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody waits for it any more */
#endif
        return COPY_ITSELF;
    }
    while (waitpid(copy, &status, 0) < 0)
        if (errno != EINTR) return COPY_FAILED;
    return WIFEXITED(status) && WEXITSTATUS(status) == ENDED_WELL ? COPY_ENDED : COPY_FAILED;
}

void emu_end_copy(void) {
    _exit(ENDED_WELL);
}
#else
void *emu_shared_memory(size_t bytes) {
    (void)bytes;
    return NULL;
}

void emu_free_shared(void *memory, size_t bytes) {
    (void)memory, (void)bytes;
}

copy_result emu_run_copy(void) {
    return COPY_FAILED;
}

void emu_end_copy(void) {}
#endif
