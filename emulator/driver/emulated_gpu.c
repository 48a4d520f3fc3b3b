/* emulated_gpu.c - emulated-gpu: runs a program on the emulator instead of a GPU.
 *
 *     emulated-gpu [--arch sm_90a] [--gpu H100] [--schedule SEED] [--json FILE] [--record FILE] PROGRAM [ARGUMENT...]
 *
 * The program gets a libcuda.so.1 that is the emulator, and what some packages need to take it. Findings arrive through
 * a file of notes, a line of JSON each: see notes.c.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_FINDINGS = 1, STATUS_USAGE = 2, STATUS_NOT_STARTED = 127, STATUS_SIGNAL = 128 };

static const char help[] =
    "emulated-gpu [OPTION...] PROGRAM [ARGUMENT...]\n"
    "\n"
    "Runs a CUDA program without a GPU: the emulator runs the PTX of its kernels and checks every launch.\n"
    "Triton, Gluon, Numba, tinygrad and programs that nvcc compiled to PTX run unmodified.\n"
    "\n"
    "  --arch ARCH      show the program this architecture: sm_80, sm_86, sm_89, sm_90, sm_90a (default),\n"
    "                   sm_100a, sm_103a or sm_120a\n"
    "  --gpu NAME       show the program the SMs, caches and architecture of this GPU: A100, RTX3090, RTX4090,\n"
    "                   H100, H200, B200 or RTX5090 (default: a device with 8 SMs)\n"
    "  --schedule SEED  0: run each warp until it must wait (default); other seeds shuffle and preempt warps\n"
    "  --stale          with --schedule: let loads return earlier values where no fence or barrier forbids it\n"
    "  --strict-tcgen05 also check four rules of tcgen05 that published code breaks (docs/emulator.md)\n"
    "  --json FILE      also write the findings to FILE\n"
    "  --record FILE    write everything that reaches the GPU to FILE, for judge-replay\n"
    "  --help           show this text\n"
    "\n"
    "Exit status: 1 with findings, else that of the program; 2 for bad usage, 127 if the program does not start.\n";

typedef struct options {
    const char *json;
    char **program;
} options;

/* ---- the environment ---- */

static void set(const char *name, const char *value) {
    if (setenv(name, value, 1)) {
        fprintf(stderr, "emulated-gpu: out of memory\n");
        exit(STATUS_USAGE);
    }
}

static void set_default(const char *name, const char *value) {
    if (!getenv(name)) set(name, value);
}

static void set_path(const char *name, const char *folder, const char *file) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    set(name, path);
}

/* The folder of the library: next to that of this program, or the same. */
static bool find_library(char folder[PATH_MAX]) {
    static const char *const folders[] = {"../lib/emulated", ".", "emulated"};
    char self[PATH_MAX], path[2 * PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) return false;
    self[length] = 0;
    *strrchr(self, '/') = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s/libcuda.so.1", self, folders[i]);
        if (access(path, R_OK)) continue;
        snprintf(path, sizeof path, "%s/%s", self, folders[i]);
        return realpath(path, folder) != NULL;
    }
    return false;
}

/* Put more ahead of what the user has there. */
static void set_ahead(const char *name, const char *more, const char *separator) {
    const char *before = getenv(name);
    char *all = NULL;
    if (!before) before = "";
    if (asprintf(&all, "%s%s%s", more, *before ? separator : "", before) < 0) exit(STATUS_USAGE);
    set(name, all);
    free(all);
}

/* A program with a path of its own to libcudart.so.13, as PyTorch has, takes the one that is loaded already. */
static void preload(const char *folder) {
    char runtime[PATH_MAX + 64];
    const char *before = getenv("LD_PRELOAD");
    snprintf(runtime, sizeof runtime, "%s/libcudart.so.13", folder);
    if (access(runtime, R_OK) || strpbrk(runtime, " :")) return;
    char *all = NULL;
    if (asprintf(&all, "%s%s%s", before ? before : "", before && *before ? ":" : "", runtime) < 0) exit(STATUS_USAGE);
    set("LD_PRELOAD", all);
    free(all);
}

static void set_environment(const char *folder, const char *notes) {
    set_ahead("LD_LIBRARY_PATH", folder, ":");
    preload(folder);
    set("EMULATED_GPU_NOTES", notes);
    /* Triton asks ldconfig for libcuda.so.1, and has ptxas make machine code: the stand-in hands the PTX through. */
    set("TRITON_LIBCUDA_PATH", folder);
    set_path("TRITON_PTXAS_PATH", folder, "ptxas");
    set_path("TRITON_PTXAS_BLACKWELL_PATH", folder, "ptxas");
    set_path("NUMBA_CUDA_DRIVER", folder, "libcuda.so.1");
    set_default("NUMBA_CUDA_ENABLE_PYNVJITLINK", "0"); /* nvJitLink would make machine code */
    set_default("DEV", "CUDA:PTX");                    /* of tinygrad: its renderer of PTX */
    set_ahead("NVCC_APPEND_FLAGS", "-lineinfo", " ");  /* cubins that a program compiles hold their PTX then */
}

/* ---- the arguments ---- */

static int complain(const char *what, const char *value, const char *rule) {
    fprintf(stderr, "emulated-gpu: %s%s%s\n", what, value, rule);
    return STATUS_USAGE;
}

static bool is_architecture(const char *text) {
    static const char *const all[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(text, all[i])) return true;
    return false;
}

static bool is_number(const char *text) {
    return *text && strlen(text) < 19 && !text[strspn(text, "0123456789")];
}

/* 0, or the exit status after a sentence. */
static int read_options(char **arguments, options *read) {
    for (; *arguments && **arguments == '-'; arguments += 2) {
        const char *option = arguments[0], *value = arguments[1];
        if (!strcmp(option, "--")) {
            arguments++;
            break;
        }
        if (!strcmp(option, "--strict-tcgen05") || !strcmp(option, "--stale")) {
            set(!strcmp(option, "--stale") ? "EMULATED_GPU_STALE" : "EMULATED_GPU_STRICT_TCGEN05", "1");
            arguments--; /* it has no value */
            continue;
        }
        static const char *const known[] = {"--arch", "--gpu", "--schedule", "--json", "--record"};
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(option, known[i]) != 0) i++;
        if (i == sizeof known / sizeof known[0]) return complain(option, "", ": no such option; see --help");
        if (!value) return complain(option, "", ": requires a value");
        if (!strcmp(option, "--arch")) {
            if (!is_architecture(value))
                return complain("--arch ", value,
                                ": must be sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100a, sm_103a or sm_120a");
            set("EMULATED_GPU_ARCH", value);
        } else if (!strcmp(option, "--schedule")) {
            if (!is_number(value)) return complain("--schedule ", value, ": must be a number from 0 on");
            set("EMULATED_GPU_SCHEDULE", value);
        } else if (!strcmp(option, "--json")) {
            read->json = value;
        } else {
            set(!strcmp(option, "--gpu") ? "EMULATED_GPU_MODEL" : "EMULATED_GPU_RECORD", value);
        }
    }
    read->program = arguments;
    return *arguments ? 0 : complain("PROGRAM", ": missing; ", "for example: emulated-gpu python3 program.py");
}

/* ---- the program ---- */

static int run_program(char **program) {
    const pid_t child = fork();
    if (child < 0) return complain("cannot start a process: ", strerror(errno), "");
    if (!child) {
        execvp(program[0], program);
        fprintf(stderr, "emulated-gpu: cannot start %s: %s\n", program[0], strerror(errno));
        _exit(STATUS_NOT_STARTED);
    }
    signal(SIGINT, SIG_IGN); /* the program gets it, too: what was found before is still printed */
    signal(SIGTERM, SIG_IGN);
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return STATUS_NOT_STARTED;
    return WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- what was found ---- */

/* A text of JSON, as notes.c writes it: from after its first quote to its last. */
static void print_text(FILE *to, const char *text) {
    for (; *text && *text != '"'; text++) {
        char c = *text;
        if (c == '\\') c = *++text == 'n' ? '\n' : *text;
        if (c == 'u' && text[-1] == '\\') {
            const char digits[] = {text[1], text[2], text[3], text[4], 0};
            c = (char)strtoul(digits, NULL, 16);
            text += 4;
        }
        fputc(c, to);
    }
}

/* Prints the findings; how many there are. */
static int print_findings(FILE *notes) {
    static const char message[] = "\"message\": \"", kernel[] = "\"kernel\": \"";
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    while (getline(&line, &room, notes) > 0) {
        const char *text = strstr(line, message), *name = strstr(line, kernel);
        if (!text || !name || strncmp(line, "{\"finding\"", 10) != 0) continue;
        fprintf(stderr, "%skernel ", count++ ? "\n" : "");
        print_text(stderr, name + strlen(kernel));
        fputs(": ", stderr);
        print_text(stderr, text + strlen(message));
        fputc('\n', stderr);
    }
    free(line);
    if (count) fprintf(stderr, "\nemulated-gpu: %d finding%s\n", count, count == 1 ? "" : "s");
    return count;
}

static bool write_json(FILE *notes, const char *path, int status) {
    FILE *to = fopen(path, "w");
    if (!to) return false;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool first = true;
    fprintf(to, "{\"status\": %d, \"notes\": [", status);
    while ((length = getline(&line, &room, notes)) > 0) {
        fprintf(to, "%s\n  %.*s", first ? "" : ",", (int)length - 1, line);
        first = false;
    }
    free(line);
    fputs("\n]}\n", to);
    return fclose(to) == 0;
}

int main(int count, char **arguments) {
    char folder[PATH_MAX], notes[PATH_MAX];
    options read = {0};
    if (count > 1 && (!strcmp(arguments[1], "--help") || !strcmp(arguments[1], "-h"))) {
        fputs(help, stdout);
        return 0;
    }
    const int wrong = read_options(arguments + 1, &read);
    if (wrong) return wrong;
    if (!find_library(folder)) return complain("libcuda.so.1", ": not found; ", "run `make libcuda`");
    const char *temporary = getenv("TMPDIR");
    snprintf(notes, sizeof notes, "%s/emulated-gpu-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    const int file = mkstemp(notes);
    FILE *written = file >= 0 ? fdopen(file, "r") : NULL;
    if (!written)
        return complain("cannot create a file for findings: ", strerror(errno), "; set TMPDIR to a folder with space");
    set_environment(folder, notes);
    const int status = run_program(read.program);
    const int findings = print_findings(written);
    rewind(written);
    const bool saved = !read.json || write_json(written, read.json, status);
    if (!saved) complain("--json ", read.json, ": cannot be written");
    fclose(written);
    unlink(notes);
    return findings ? STATUS_FINDINGS : saved ? status : STATUS_USAGE;
}
