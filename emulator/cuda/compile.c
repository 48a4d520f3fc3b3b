/* compile.c - emu_compile(): CUDA to PTX by nvcc, once for each state of the file, its includes, flags and toolkit.
 *
 * A compilation has three files in the cache, named by a hash of its key (nvcc, folder, flags, source): NAME.ptx,
 * NAME.log with what nvcc said, and NAME.deps, whose first line is the key and whose others are the files that were
 * read, each with a hash of its bytes. PTX is taken from the cache if the key is the same and every file still has its
 * hash.
 */
#ifndef _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700
#endif
#include "../ptx/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { MAX_FLAGS = 256, MAX_PATH = 4096, MAX_KEY = 16384 };

typedef struct compilation {
    const char *file;
    char nvcc[MAX_PATH];
    char key[MAX_KEY];   /* one line */
    char base[MAX_PATH]; /* of the files in the cache, without a suffix */
    const char *arguments[MAX_FLAGS + 16];
    int argument_count;
} compilation;

/* Formats into a buffer of the given size; false where it does not fit. */
__attribute__((format(printf, 3, 4))) static bool put(char *to, size_t bytes, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(to, bytes, format, arguments);
    va_end(arguments);
    return length >= 0 && (size_t)length < bytes;
}

/* FNV-1a, continued from an earlier hash. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

static const uint64_t EMPTY_HASH = 0xcbf29ce484222325ull;

/* Hash of a file's bytes; false where it cannot be read. */
static bool hash_file(const char *path, uint64_t *hash) {
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    char bytes[16384];
    size_t size;
    *hash = EMPTY_HASH;
    while ((size = fread(bytes, 1, sizeof bytes, file)) > 0) *hash = hash_bytes(*hash, bytes, size);
    bool read = !ferror(file);
    fclose(file);
    return read;
}

/* ---- nvcc and its arguments ---- */

/* As the Makefile does: the toolkit that CUDA= names, else the pinned one; an nvcc on the PATH is not taken. */
static bool find_nvcc(compilation *c, const emu_compiler *compiler, emu_error *error) {
    const char *named = getenv("CUDA");
    const char *folder = named && *named ? named : compiler->toolkit;
    if (folder && put(c->nvcc, sizeof c->nvcc, "%s/bin/nvcc", folder) && access(c->nvcc, X_OK) == 0) return true;
    if (folder && folder == named) {
        return emu_fail(
            error,
            "CUDA=%s holds no bin/nvcc: name the folder of a toolkit such as /usr/local/cuda, or leave CUDA= out",
            named);
    }
    return emu_fail(
        error,
        "%s: there is no nvcc to compile it%s%s; `make setup` installs one, and CUDA=/usr/local/cuda names an "
        "installed one",
        c->file, folder ? " in " : "", folder ? folder : "");
}

static bool is_flag(const char *flag, const char *name) {
    size_t length = strlen(name);
    return strncmp(flag, name, length) == 0 && (flag[length] == 0 || flag[length] == '=');
}

static bool names_an_architecture(const emu_compiler *compiler) {
    static const char *const names[] = {"-arch", "--gpu-architecture", "-gencode", "--generate-code"};
    for (int i = 0; compiler->flags && compiler->flags[i]; i++) {
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            if (is_flag(compiler->flags[i], names[k])) return true;
    }
    return false;
}

static bool add_argument(compilation *c, const char *argument, emu_error *error) {
    if (c->argument_count == MAX_FLAGS)
        return emu_fail(error, "%s: more than %d flags for nvcc", c->file, MAX_FLAGS - 16);
    c->arguments[c->argument_count++] = argument;
    c->arguments[c->argument_count] = NULL;
    return true;
}

/* The arguments except the names of the files that nvcc writes, and the key made of them. */
static bool describe(compilation *c, const emu_compiler *compiler, emu_error *error) {
    char folder[MAX_PATH], source[MAX_PATH];
    struct stat nvcc;
    if (!realpath(c->file, source)) return emu_fail(error, "cannot read %s: %s", c->file, strerror(errno));
    if (!getcwd(folder, sizeof folder)) return emu_fail(error, "the current folder has no name: %s", strerror(errno));
    if (stat(c->nvcc, &nvcc) != 0) return emu_fail(error, "cannot read %s: %s", c->nvcc, strerror(errno));
    bool added =
        add_argument(c, c->nvcc, error) && add_argument(c, "-ptx", error) && add_argument(c, "-lineinfo", error);
    if (added && !names_an_architecture(compiler)) added = add_argument(c, "-arch=compute_80", error);
    for (int i = 0; added && compiler->flags && compiler->flags[i]; i++)
        added = add_argument(c, compiler->flags[i], error);
    if (!added || !add_argument(c, c->file, error)) return false;
    size_t used = 0;
    bool fits = true;
    for (int i = 0; fits && i < c->argument_count; i++) {
        fits = put(c->key + used, sizeof c->key - used, "%s ", c->arguments[i]);
        used += fits ? strlen(c->key + used) : 0;
    }
    fits = fits && put(c->key + used, sizeof c->key - used, "| %s | %s | nvcc of %" PRId64 ", %" PRId64 " bytes",
                       folder, source, (int64_t)nvcc.st_mtime, (int64_t)nvcc.st_size);
    for (char *at = c->key; *at; at++) *at = *at == '\n' ? ' ' : *at;
    return fits || emu_fail(error, "%s: the flags for nvcc are longer than %d bytes", c->file, MAX_KEY);
}

/* ---- the cache ---- */

static bool make_folder(const char *path) {
    char part[MAX_PATH];
    if (!put(part, sizeof part, "%s", path)) return false;
    for (char *at = part + 1;; at++) {
        if (*at && *at != '/') continue;
        char kept = *at;
        *at = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return false;
        if (!kept) return true;
        *at = kept;
    }
}

static bool choose_names(compilation *c, emu_error *error) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[MAX_PATH];
    bool named = cache && *cache ? put(folder, sizeof folder, "%s/flashladder", cache)
                                 : home && *home && put(folder, sizeof folder, "%s/.cache/flashladder", home);
    if (!named) return emu_fail(error, "no folder for compiled PTX: set HOME or XDG_CACHE_HOME");
    if (!make_folder(folder)) return emu_fail(error, "cannot make the folder %s: %s", folder, strerror(errno));
    return put(c->base, sizeof c->base, "%s/%016" PRIx64, folder, hash_bytes(EMPTY_HASH, c->key, strlen(c->key))) ||
           emu_fail(error, "%s: its name is too long", folder);
}

static bool with_suffix(const compilation *c, const char *suffix, char *path, size_t bytes, emu_error *error) {
    return put(path, bytes, "%s%s", c->base, suffix) ||
           emu_fail(error, "the name of %s%s has more than %zu bytes", c->base, suffix, bytes);
}

/* True if the list of files says that the PTX of the cache is that of today. */
static bool is_fresh(const compilation *c, const char *ptx) {
    char path[MAX_PATH], line[MAX_KEY + 2];
    emu_error ignored;
    FILE *deps =
        with_suffix(c, ".deps", path, sizeof path, &ignored) && access(ptx, R_OK) == 0 ? fopen(path, "r") : NULL;
    if (!deps) return false;
    bool fresh = fgets(line, sizeof line, deps) && strncmp(line, c->key, strlen(c->key)) == 0;
    int files = 0;
    for (; fresh && fgets(line, sizeof line, deps); files++) {
        char *name;
        uint64_t then = strtoull(line, &name, 16), now;
        line[strcspn(line, "\n")] = 0;
        fresh = *name == ' ' && hash_file(name + 1, &now) && now == then;
    }
    fclose(deps);
    return fresh && files > 0;
}

/* The next name of a dependency file of make, "\ " for a space, up to a space or a line that continues. */
static bool next_name(FILE *rule, char *name, size_t bytes) {
    size_t used = 0;
    for (int byte; (byte = fgetc(rule)) != EOF;) {
        if (byte == '\\') {
            int after = fgetc(rule);
            if (after != '\n' && after != EOF && used + 1 < bytes) name[used++] = (char)after;
            if (after != '\n') continue;
            byte = ' ';
        }
        if (byte != ' ' && byte != '\n') {
            if (used + 1 < bytes) name[used++] = (char)byte;
        } else if (used) {
            break;
        }
    }
    name[used] = 0;
    return used > 0;
}

/* True if a file was written after a time: nvcc may have read it before. */
static bool is_later(const char *path, const struct timespec *time) {
    struct stat file;
    if (stat(path, &file) != 0) return true;
    return file.st_mtim.tv_sec != time->tv_sec ? file.st_mtim.tv_sec > time->tv_sec
                                               : file.st_mtim.tv_nsec > time->tv_nsec;
}

/* Write the list of the files that nvcc read, without those of the toolkit. The rename is what makes the PTX valid; it
 * is left out where a file changed since nvcc began. */
static bool keep_files(const compilation *c, const char *rule_path, const struct timespec *began, emu_error *error) {
    char toolkit[MAX_PATH], path[MAX_PATH], fresh[MAX_PATH], name[MAX_PATH], real[MAX_PATH];
    if (!with_suffix(c, ".deps", path, sizeof path, error) ||
        !put(fresh, sizeof fresh, "%s.%jd", path, (intmax_t)getpid()))
        return emu_fail(error, "the name of %s.deps is too long", c->base);
    if (!realpath(c->nvcc, toolkit)) return emu_fail(error, "cannot read %s: %s", c->nvcc, strerror(errno));
    for (int i = 0; i < 2; i++) *strrchr(toolkit, '/') = 0; /* without /bin/nvcc */
    size_t length = strlen(toolkit);
    FILE *rule = fopen(rule_path, "r"), *deps = rule ? fopen(fresh, "w") : NULL;
    bool written = deps && fprintf(deps, "%s\n", c->key) > 0;
    bool target = true, changed = false;
    while (written && next_name(rule, name, sizeof name)) {
        bool colon = target && strcmp(name, ":") == 0;
        if (target && !colon && name[strlen(name) - 1] != ':') continue;
        if (target) {
            target = false;
            continue;
        }
        if (realpath(name, real) && strncmp(real, toolkit, length) == 0 && real[length] == '/') continue;
        uint64_t hash;
        changed |= is_later(name, began);
        written = hash_file(name, &hash) && fprintf(deps, "%016" PRIx64 " %s\n", hash, name) > 0;
    }
    if (rule) fclose(rule);
    if (deps) written = fclose(deps) == 0 && written;
    if (written) written = (changed ? unlink(fresh) : rename(fresh, path)) == 0;
    return written || emu_fail(error, "cannot write %s: %s", path, strerror(errno));
}

/* ---- running nvcc ---- */

/* First line of a file that says what is wrong, or the first at all. */
static void first_complaint(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    char line[1024];
    text[0] = 0;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        bool wrong = strstr(line, "error") || strstr(line, "fatal");
        if (!text[0] || wrong) put(text, bytes, "%s", line);
        if (wrong) break;
    }
    if (file) fclose(file);
}

/* Run nvcc to its end, what it says goes to the log; its exit status, -1 where it did not start. */
static int run_nvcc(const compilation *c, const char *log) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    if (posix_spawn_file_actions_init(&actions) != 0) return -1;
    bool ready = posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666) == 0 &&
                 posix_spawn_file_actions_adddup2(&actions, 1, 2) == 0;
    char *const *arguments = (char *const *)(uintptr_t)c->arguments; /* posix_spawn() changes none of them */
    if (ready && posix_spawn(&child, c->nvcc, &actions, NULL, arguments, environ) == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

/* The folder of temporary files if it has no room: nvcc does not say that this is why it fails. NULL otherwise. */
static const char *full_folder(void) {
    const char *named = getenv("TMPDIR"), *folder = named && *named ? named : "/tmp";
    struct statvfs there;
    return statvfs(folder, &there) == 0 && there.f_bavail * there.f_frsize < 1 << 20 ? folder : NULL;
}

/* Compile to files of this process, and move them to their names when all is well. */
static bool compile_now(compilation *c, const char *ptx, char *path, size_t path_bytes, emu_error *error) {
    char fresh[MAX_PATH], rule[MAX_PATH], log[MAX_PATH], deps[MAX_PATH], complaint[240];
    struct timespec began;
    if (!put(fresh, sizeof fresh, "%s.%jd.ptx", c->base, (intmax_t)getpid()) ||
        !put(rule, sizeof rule, "%s.%jd.d", c->base, (intmax_t)getpid()) ||
        !with_suffix(c, ".log", log, sizeof log, error) || !with_suffix(c, ".deps", deps, sizeof deps, error)) {
        return emu_fail(error, "the name of %s is too long", c->base);
    }
    const char *const outputs[] = {"-MD", "-MF", rule, "-o", fresh};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        c->arguments[c->argument_count + (int)i] = outputs[i];
    c->arguments[c->argument_count + 5] = NULL;
    clock_gettime(CLOCK_REALTIME, &began);
    int status = run_nvcc(c, log);
    if (status == 0) unlink(deps); /* it is about the PTX that goes */
    bool done = status == 0 && rename(fresh, ptx) == 0;
    if (status < 0) {
        emu_fail(error, "%s: cannot start it: %s", c->nvcc, strerror(errno));
    } else if (status > 0) {
        put(path, path_bytes, "%s", log);
        first_complaint(log, complaint, sizeof complaint);
        const char *full = full_folder();
        emu_fail(error, "nvcc ended with status %d on %s: %s%s%s%s", status, c->file, complaint, full ? "; " : "",
                 full ? full : "", full ? " is full: free space on it or set TMPDIR to another folder" : "");
    } else if (!done) {
        emu_fail(error, "cannot write %s: %s", ptx, strerror(errno));
    }
    done = done && keep_files(c, rule, &began, error);
    unlink(fresh);
    unlink(rule);
    return done;
}

bool emu_compile(const char *file, const emu_compiler *compiler, char *path, size_t path_bytes, emu_error *error) {
    char ptx[MAX_PATH];
    *error = (emu_error){0};
    path[0] = 0;
    compilation *c = calloc(1, sizeof *c);
    if (!c) return emu_fail(error, "out of memory");
    c->file = file;
    bool ready = find_nvcc(c, compiler, error) && describe(c, compiler, error) && choose_names(c, error) &&
                 with_suffix(c, ".ptx", ptx, sizeof ptx, error);
    if (ready && !is_fresh(c, ptx)) ready = compile_now(c, ptx, path, path_bytes, error);
    if (ready) ready = with_suffix(c, ".ptx", path, path_bytes, error);
    free(c);
    return ready;
}
