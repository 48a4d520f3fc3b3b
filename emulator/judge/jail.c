/* jail.c - judge-jail: runs a program that nobody trusts, and says how it ended.
 *
 *     judge-jail --seconds 60 folder -- python3 submission.py
 *
 * Three processes: this one stays outside. Its child is the first process of new namespaces, which prepares the room,
 * copies the folder in, watches the limits, ends whatever is left, and copies the folder out. The grandchild is the
 * program. README.md says what it can do.
 */
#include "jail.h"

#include "json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "judge-jail [OPTION...] FOLDER -- PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs a program without network, with all files read-only, and with a copy of FOLDER as " JAIL_FOLDER
    ", its working\n"
    "folder. When it ends, its other processes end too, and its plain files are copied back to FOLDER. Its output is "
    "in\n"
    "FOLDER/stdout and FOLDER/stderr.\n"
    "\n"
    "  --seconds N      the longest time (default: 120)\n"
    "  --memory MIB     memory of all its processes (default: 4096)\n"
    "  --processes N    the most processes (default: 64)\n"
    "  --file MIB       the largest file (default: 256)\n"
    "  --folder MIB     all its files (default: 512)\n"
    "  --report FILE    how it ended, as JSON\n"
    "  --weak           without namespaces: FOLDER itself is the working folder, the program sees all processes,\n"
    "                   and other files are read-only only where Linux has Landlock\n"
    "  --where          print the folder that the program sees, and nothing else\n"
    "\n"
    "Exit status: 0 the program succeeded, 1 it failed, 11 it was ended by a signal, 12 time, 13 memory, 14 "
    "processes,\n"
    "15 files, 16 it sent a signal to the jail; 20 this system has no namespaces for ordinary users, 2 usage.\n";

typedef enum ending {
    EXITED = 0,
    FAILED = 1,
    USAGE = 2,
    SIGNALED = 11,
    TOO_LONG = 12,
    TOO_MUCH_MEMORY = 13,
    TOO_MANY_PROCESSES = 14,
    TOO_LARGE_FILES = 15,
    ATTACKED = 16,
    UNAVAILABLE = 20,
} ending;

/* What the inner process tells the outer one. */
typedef struct outcome {
    ending how;
    int status; /* exit status or signal */
    double seconds;
    char message[300];
} outcome;

typedef struct options {
    jail_limits limits;
    const char *report, *folder;
    char **program;
    bool apart;   /* in namespaces of its own */
    int priority; /* of the program, as setpriority() takes it */
} options;

static int complain(const char *sentence, const char *value) {
    fprintf(stderr, "judge-jail: %s%s\n", sentence, value);
    return USAGE;
}

__attribute__((format(printf, 3, 4))) static outcome ended(ending how, int status, const char *format, ...) {
    outcome told = {.how = how, .status = status};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told.message, sizeof told.message, format, arguments);
    va_end(arguments);
    return told;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- options ---- */

static uint64_t *limit_of(jail_limits *limits, const char *option, size_t length) {
    const struct {
        const char *name;
        uint64_t *value;
    } all[] = {{"--seconds", &limits->seconds},
               {"--memory", &limits->memory},
               {"--processes", &limits->processes},
               {"--file", &limits->file},
               {"--folder", &limits->folder}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strlen(all[i].name) == length && !memcmp(option, all[i].name, length)) return all[i].value;
    return NULL;
}

static bool read_number(const char *text, uint64_t *number) {
    char *end;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && *number && *number <= 1000000;
}

/* Read an option and its value, which follows it or its "=". Returns 0, or the exit status after a message. */
static int read_option(options *o, char ***at) {
    if (!strcmp(**at, "--weak")) {
        o->apart = false;
        ++*at;
        return 0;
    }
    const char *option = **at, *equal = strchr(option, '='), *value = equal ? equal + 1 : *++*at;
    const size_t length = equal ? (size_t)(equal - option) : strlen(option);
    uint64_t *limit = limit_of(&o->limits, option, length);
    if (!value) return complain("the option needs a value: ", option);
    ++*at;
    if (length == strlen("--report") && !memcmp(option, "--report", length)) {
        o->report = value;
        return 0;
    }
    if (!limit) return complain("there is no such option; see --help: ", option);
    return read_number(value, limit) ? 0 : complain("a limit is from 1 to 1000000, not ", value);
}

static int read_options(options *o, char **arguments) {
    while (*arguments && !strncmp(*arguments, "--", 2) && strcmp(*arguments, "--") != 0) {
        const int wrong = read_option(o, &arguments);
        if (wrong) return wrong;
    }
    if (!arguments[0] || !arguments[1] || strcmp(arguments[1], "--") != 0 || !arguments[2])
        return complain("name a folder, then -- and a program; see --help", "");
    o->folder = arguments[0];
    o->program = arguments + 2;
    return 0;
}

/* ---- the program ---- */

static void limit(int resource, rlim_t most) {
    setrlimit(resource, &(struct rlimit){most, most});
}

/* Close all descriptors but the first three; Linux before 5.9 has no call for it. */
static bool close_others(void) {
    struct rlimit most;
    if (!syscall(SYS_close_range, 3, ~0u, 0)) return true;
    if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur > 1 << 20) return false;
    for (int i = 3; i < (int)most.rlim_cur; i++) close(i);
    return true;
}

/* Become the program. It cannot reach the descriptors of the processes around it. */
static void start_program(const options *o) {
    const int output = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    setpriority(PRIO_PROCESS, 0, o->priority);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_FSIZE, (rlim_t)o->limits.file << 20);
    limit(RLIMIT_NPROC, 32 * (rlim_t)o->limits.processes); /* threads included; the watch counts processes */
    if (o->apart) {
        setenv("HOME", JAIL_FOLDER, 1);
        setenv("TMPDIR", JAIL_FOLDER, 1);
    }
    if (dup2(open("/dev/null", O_RDONLY), 0) < 0 || dup2(open("stdout", output, 0600), 1) < 0 ||
        dup2(open("stderr", output, 0600), 2) < 0 || !close_others())
        _exit(FAILED);
    if (!o->apart && !jail_write_here_only()) errno = 0; /* the help says so */
    if (!jail_filter(o->apart)) _exit(FAILED);
    execvp(o->program[0], o->program);
    fprintf(stderr, "judge-jail: cannot start %s: %s\n", o->program[0], strerror(errno));
    _exit(127);
}

/* ---- the watch ---- */

/* Whether a limit is exceeded; how is EXITED where none is. */
static outcome check_limits(const options *o, double begin, int folder) {
    const jail_limits *limits = &o->limits;
    uint64_t processes, pages;
    jail_measure(o->apart, &processes, &pages);
    const uint64_t mib = pages * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
    if (now() - begin > (double)limits->seconds)
        return ended(TOO_LONG, 0, "it still ran after %" PRIu64 " s", limits->seconds);
    if (processes > limits->processes) /* their memory is no cause of its own */
        return ended(TOO_MANY_PROCESSES, 0, "it had %" PRIu64 " processes, above %" PRIu64, processes,
                     limits->processes);
    if (mib > limits->memory)
        return ended(TOO_MUCH_MEMORY, 0, "it had %" PRIu64 " MiB of memory, above %" PRIu64, mib, limits->memory);
    if (!o->apart && jail_folder_bytes(folder) >> 20 > limits->folder)
        return ended(TOO_LARGE_FILES, 0, "its files exceeded the limit of %" PRIu64 " MiB", limits->folder);
    return (outcome){.how = EXITED};
}

static outcome how_it_ended(int status) {
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128; /* as a shell tells it */
    if (signal == SIGXFSZ) return ended(TOO_LARGE_FILES, signal, "a file exceeded its limit");
    if (signal == SIGSYS) return ended(ATTACKED, signal, "it sent a signal to the process that watches it");
    if (WIFSIGNALED(status)) return ended(SIGNALED, signal, "ended by signal %d (%s)", signal, strsignal(signal));
    return ended(WEXITSTATUS(status) ? FAILED : EXITED, WEXITSTATUS(status), "exit status %d", WEXITSTATUS(status));
}

/* Wait for the program, and for a limit. A look at all processes of a system takes longer than one at those of a
 * namespace. */
static outcome watch(const options *o, pid_t program, int folder) {
    const struct timespec interval = {0, o->apart ? 20000000 : 100000000};
    const double begin = now();
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        int status;
        pid_t ended_process;
        while ((ended_process = waitpid(-1, &status, WNOHANG)) > 0) {
            if (ended_process != program) continue;
            const outcome left = check_limits(o, begin, folder); /* it may end because it could start no more */
            return left.how == TOO_MANY_PROCESSES ? left : how_it_ended(status);
        }
        const outcome beyond = check_limits(o, begin, folder);
        if (beyond.how != EXITED) return beyond;
        sigtimedwait(&child, NULL, &interval);
    }
}

/* A program that fails because no file can grow says so in its own words; the folder shows it. */
static bool is_full(void) {
    enum { LITTLE = 4096 };
    struct statvfs space;
    return !statvfs(JAIL_FOLDER, &space) && space.f_bavail * space.f_frsize < LITTLE;
}

/* ---- the first process of the namespaces ---- */

static outcome run_inside(const options *o, uid_t user, gid_t group) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL); /* SIGCHLD wakes the watch */
    const char *failed = jail_map_user(user, group) ? NULL : "a user of its own";
    const int outside = failed ? -1 : jail_open_apart(o->folder);
    if (!failed && outside < 0) return ended(USAGE, 0, "the folder %.200s: %s", o->folder, strerror(errno));
    if (!failed) failed = jail_make_room(&o->limits);
    if (failed)
        return ended(UNAVAILABLE, 0,
                     "this system does not give %s: %s. It must allow namespaces for ordinary users: "
                     "kernel.unprivileged_userns_clone=1 on Debian, kernel.apparmor_restrict_unprivileged_userns=0 on "
                     "Ubuntu",
                     failed, strerror(errno));
    const uint64_t most = o->limits.file << 20;
    if (chdir(JAIL_FOLDER)) return ended(UNAVAILABLE, 0, "the folder: %s", strerror(errno));
    const int work = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (work < 0 || !jail_copy(outside, work, most))
        return ended(TOO_LARGE_FILES, 0, "the folder does not fit its limit of %" PRIu64 " MiB", o->limits.folder);
    const double begin = now();
    const pid_t program = fork();
    if (!program) start_program(o);
    outcome told = program > 0 ? watch(o, program, work) : ended(UNAVAILABLE, 0, "no process: %s", strerror(errno));
    const double seconds = now() - begin;
    jail_end_all(true);
    if ((told.how == EXITED || told.how == FAILED) && is_full())
        told = ended(TOO_LARGE_FILES, told.status, "its files filled the folder of %" PRIu64 " MiB", o->limits.folder);
    if (!jail_copy(work, outside, most)) told = ended(USAGE, 0, "the files cannot be copied to %.200s", o->folder);
    told.seconds = seconds;
    return told;
}

/* ---- the process outside ---- */

/* As fork() into new namespaces. */
static pid_t enter_namespaces(void) {
    const unsigned long flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    return (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

/* Without namespaces: the limits, the filter and the end of all processes work, and nothing hides the system. */
static outcome run_weakly(const options *o) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* its memory is not the program's to write */
    const int folder = open(o->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return ended(USAGE, 0, "the folder %.200s: %s", o->folder, strerror(errno));
    const double begin = now();
    const pid_t program = fork();
    if (!program && fchdir(folder)) _exit(FAILED);
    if (!program) start_program(o);
    outcome told = program > 0 ? watch(o, program, folder) : ended(UNAVAILABLE, 0, "no process: %s", strerror(errno));
    told.seconds = now() - begin;
    if (!jail_end_all(false)) told = ended(TOO_MANY_PROCESSES, 0, "its processes could not be ended");
    if (told.how == FAILED && jail_folder_bytes(folder) >> 20 >= o->limits.folder)
        told = ended(TOO_LARGE_FILES, told.status, "its files filled the folder of %" PRIu64 " MiB", o->limits.folder);
    close(folder);
    return told;
}

static outcome run_jail(const options *o) {
    int pipes[2];
    const uid_t user = geteuid();
    const gid_t group = getegid();
    if (pipe2(pipes, O_CLOEXEC)) return ended(UNAVAILABLE, 0, "no pipe: %s", strerror(errno));
    const pid_t child = enter_namespaces();
    if (child < 0)
        return ended(UNAVAILABLE, 0, "this system has no namespaces for ordinary users: %s", strerror(errno));
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const outcome told = run_inside(o, user, group);
        _exit(write(pipes[1], &told, sizeof told) != sizeof told);
    }
    outcome told;
    close(pipes[1]);
    const bool whole = read(pipes[0], &told, sizeof told) == sizeof told;
    close(pipes[0]);
    waitpid(child, NULL, 0);
    return whole ? told : ended(UNAVAILABLE, 0, "the jail itself was ended");
}

static bool write_report(const char *path, const outcome *told) {
    FILE *to = fopen(path, "w");
    if (!to) return false;
    static const char *const names[] = {[EXITED] = "exited",
                                        [FAILED] = "failed",
                                        [USAGE] = "usage",
                                        [SIGNALED] = "signal",
                                        [TOO_LONG] = "timeout",
                                        [TOO_MUCH_MEMORY] = "memory",
                                        [TOO_MANY_PROCESSES] = "processes",
                                        [TOO_LARGE_FILES] = "files",
                                        [ATTACKED] = "attacked",
                                        [UNAVAILABLE] = "unavailable"};
    fprintf(to, "{\"ended\": \"%s\", \"status\": %d, \"seconds\": %.3f, \"message\": ", names[told->how], told->status,
            told->seconds);
    json_text(to, told->message, strlen(told->message));
    fputs("}\n", to);
    return !fclose(to);
}

int main(int count, char **arguments) {
    options o = {.limits = {.seconds = 120, .memory = 4096, .processes = 64, .file = 256, .folder = 512},
                 .apart = true};
    if (count > 1 && (!strcmp(arguments[1], "--help") || !strcmp(arguments[1], "-h"))) {
        fputs(help, stdout);
        return 0;
    }
    if (count == 2 && !strcmp(arguments[1], "--where")) {
        puts(JAIL_FOLDER);
        return 0;
    }
    const int wrong = read_options(&o, arguments + 1);
    if (wrong) return wrong;
    /* The kernel does not limit root's processes, so the watch must run before thousands of them. Only root may raise a
     * priority; for others the kernel limits the processes. */
    o.priority = getpriority(PRIO_PROCESS, 0);
    setpriority(PRIO_PROCESS, 0, -20);
    const outcome told = o.apart ? run_jail(&o) : run_weakly(&o);
    if (told.how != EXITED) fprintf(stderr, "judge-jail: %s\n", told.message);
    if (o.report && !write_report(o.report, &told)) return complain("the report cannot be written: ", o.report);
    return (int)told.how;
}
