/* notes.c - what the user is told: sentences, and the findings of launches, each cause once.
 *
 * With EMULATED_GPU_NOTES=FILE a note is a line of JSON at the end of that file, which emulated-gpu reads; else it is
 * text on stderr. Sentences go to stderr in each case.
 */
#include "driver.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a thread may say something outside of the driver's lock */

static void write_text(FILE *to, const char *text) {
    fputc('"', to);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", to);
        else if (c < ' ')
            fprintf(to, "\\u%04x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

/* A line at the end of the file of notes: by one write(), as other processes write there too. */
static bool write_line(const char *line, size_t bytes) {
    const char *path = getenv("EMULATED_GPU_NOTES");
    if (!path || !*path) return false;
    const int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0) return false;
    const bool whole = write(file, line, bytes) == (ssize_t)bytes;
    close(file);
    return whole;
}

void driver_say(const char *format, ...) {
    char text[1000], *line = NULL;
    size_t bytes = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulated GPU: %s\n", text);
    FILE *to = open_memstream(&line, &bytes);
    if (!to) return;
    fputs("{\"note\": ", to);
    write_text(to, text);
    fputs("}\n", to);
    if (!fclose(to)) write_line(line, bytes);
    free(line);
}

/* ---- findings ---- */

typedef struct cause {
    char *kernel;
    emu_class class_;
    int here, other; /* PTX lines */
} cause;

/* True if this cause was noted before; it is from now on. */
static bool is_known(const emu_finding *finding, const char *kernel) {
    static cause *causes;
    static size_t count;
    for (size_t i = 0; i < count; i++) {
        const cause *c = &causes[i];
        if (c->class_ == finding->class_ && c->here == finding->here.ptx_line && c->other == finding->other.ptx_line &&
            !strcmp(c->kernel, kernel))
            return true;
    }
    cause *more = realloc(causes, (count + 1) * sizeof *causes);
    if (!more) return false;
    causes = more;
    char *copy = strdup(kernel);
    if (copy) causes[count++] = (cause){copy, finding->class_, finding->here.ptx_line, finding->other.ptx_line};
    return false;
}

static void write_location(FILE *to, const char *name, const emu_location *location) {
    if (!location->ptx_line) return;
    fprintf(to, ", \"%s\": {\"ptx_line\": %d, \"ptx\": ", name, location->ptx_line);
    write_text(to, location->ptx);
    if (location->own) {
        fputs(", \"file\": ", to);
        write_text(to, location->own->file);
        fprintf(to, ", \"line\": %d", location->own->line);
    }
    fputc('}', to);
}

static void note_finding(const emu_finding *finding, const char *kernel) {
    char *line = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&line, &bytes);
    if (!to) return;
    fprintf(to, "{\"finding\": \"%s\", \"kernel\": ", emu_class_name(finding->class_));
    write_text(to, kernel);
    fprintf(to, ", \"count\": %" PRIu64, finding->count);
    write_location(to, "here", &finding->here);
    write_location(to, "other", &finding->other);
    fputs(", \"message\": ", to);
    write_text(to, finding->message);
    fputs("}\n", to);
    if (fclose(to) || !write_line(line, bytes)) fprintf(stderr, "kernel %s: %s\n", kernel, finding->message);
    free(line);
}

/* Numba mangles its kernels like this, and its PTX has lines only if it is asked for them. */
static void hint_at_lines(const emu_finding *finding, const char *kernel) {
    static bool said;
    if (said || finding->here.own || strncmp(kernel, "_ZN6cudapy", 10) != 0) return;
    said = true;
    driver_say("the lines of these findings are those of the PTX: @cuda.jit(lineinfo=True) gives them the lines of the "
               "Python program");
}

void note_finding_of(const emu_finding *finding, const char *kernel) {
    if (getenv("EMULATED_GPU_REPLAY") && !getenv("EMULATED_GPU_NOTES")) return; /* the setup of a replay */
    pthread_mutex_lock(&lock);
    if (!is_known(finding, kernel)) {
        note_finding(finding, kernel);
        hint_at_lines(finding, kernel);
    }
    pthread_mutex_unlock(&lock);
}

void note_findings(const emu_device *device, const char *kernel) {
    size_t count;
    const emu_finding *findings = emu_findings(device, &count);
    for (size_t i = 0; i < count; i++) note_finding_of(&findings[i], kernel);
}
