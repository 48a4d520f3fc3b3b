/* jail_files.c - copies of folders that a hostile program may have filled. */
#include "jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEEPEST = 32, BLOCK = 1 << 16 };

static bool copy_bytes(int from, int to, uint64_t most_bytes) {
    char block[BLOCK];
    for (uint64_t copied = 0;;) {
        const ssize_t got = read(from, block, sizeof block);
        if (got <= 0) return !got;
        copied += (uint64_t)got;
        if (copied > most_bytes) return true; /* it grew meanwhile */
        if (write(to, block, (size_t)got) != got) return false;
    }
}

/* The file is opened without waiting: it may be a pipe. */
static bool copy_file(int from, int to, const char *name, uint64_t most_bytes) {
    struct stat found;
    const int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (source < 0) return true;
    bool done = true;
    if (!fstat(source, &found) && S_ISREG(found.st_mode) && (uint64_t)found.st_size <= most_bytes) {
        const int target =
            openat(to, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, (found.st_mode & 0700) | 0600);
        done = target >= 0 && copy_bytes(source, target, most_bytes);
        if (target >= 0 && close(target)) done = false;
    }
    close(source);
    return done;
}

static bool copy_folder(int from, int to, uint64_t most_bytes, int depth);

static bool copy_subfolder(int from, int to, const char *name, uint64_t most_bytes, int depth) {
    if (depth == DEEPEST || (mkdirat(to, name, 0700) && errno != EEXIST)) return depth == DEEPEST;
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    const int source = openat(from, name, flags), target = openat(to, name, flags);
    const bool done = source < 0 || (target >= 0 && copy_folder(source, target, most_bytes, depth + 1));
    if (source >= 0) close(source);
    if (target >= 0) close(target);
    return done;
}

static bool copy_folder(int from, int to, uint64_t most_bytes, int depth) {
    const int own = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    struct stat found;
    bool done = true;
    if (!entries) return own < 0 || close(own);
    for (const struct dirent *each; done && (each = readdir(entries));) {
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
        if (fstatat(from, each->d_name, &found, AT_SYMLINK_NOFOLLOW)) continue;
        if (S_ISDIR(found.st_mode))
            done = copy_subfolder(from, to, each->d_name, most_bytes, depth);
        else if (S_ISREG(found.st_mode))
            done = copy_file(from, to, each->d_name, most_bytes);
    }
    closedir(entries);
    return done;
}

bool jail_copy(int from, int to, uint64_t most_bytes) {
    return copy_folder(from, to, most_bytes, 0);
}

static uint64_t folder_bytes(int folder, int depth) {
    const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = own >= 0 ? fdopendir(own) : NULL;
    uint64_t bytes = 0;
    struct stat found;
    if (!entries && own >= 0) close(own);
    for (const struct dirent *each; entries && (each = readdir(entries));) {
        if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..")) continue;
        if (fstatat(folder, each->d_name, &found, AT_SYMLINK_NOFOLLOW)) continue;
        bytes += 512 * (uint64_t)found.st_blocks;
        if (!S_ISDIR(found.st_mode) || depth == DEEPEST) continue;
        const int below = openat(folder, each->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0) continue;
        bytes += folder_bytes(below, depth + 1);
        close(below);
    }
    if (entries) closedir(entries);
    return bytes;
}

uint64_t jail_folder_bytes(int folder) {
    return folder_bytes(folder, 0);
}
