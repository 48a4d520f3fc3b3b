/* test_progress.c - the lines that say how far a long piece of work has come. */
#include "common/tests/tap.h"
#include "harness/progress.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static void texts(void) {
    static const struct {
        uint64_t done;
        double elapsed_s;
        const char *expected;
    } cases[] = {
        {0, 34.2, "v07: seq 64: 0 of 512 CTAs, 35 s"},
        {256, 30, "v07: seq 64: 256 of 512 CTAs, 30 s, about 30 s left"},
        {128, 130, "v07: seq 64: 128 of 512 CTAs, 2 min 10 s, about 6 min 30 s left"},
        {1, 20, "v07: seq 64: 1 of 512 CTAs, 20 s, about 2 h 50 min left"},
        {512, 59.5, "v07: seq 64: 512 of 512 CTAs, 1 min 00 s, about 0 s left"},
    };
    const struct progress_plan plan = {.label = "v07: seq 64", .unit = "CTAs", .total = 512};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        progress_text(&plan, cases[i].done, cases[i].elapsed_s, text, sizeof text);
        ok(!strcmp(text, cases[i].expected), "%s", text);
    }
}

/* Work that ends one of 100 parts each time it is asked. */
static atomic_int asked;

static uint64_t count_up(const void *context) {
    (void)context;
    return (uint64_t)++asked;
}

static void wait_ms(int ms) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000L * ms}, NULL);
}

/* Return the lines printed until `parts` parts are done; owned by the caller. */
static char *said(bool terminal, double interval_s, int parts) {
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    asked = 0;
    struct progress *progress = progress_start(&(struct progress_plan){.file = file,
                                                                       .terminal = terminal,
                                                                       .interval_s = interval_s,
                                                                       .label = "work",
                                                                       .unit = "parts",
                                                                       .total = 100,
                                                                       .done = count_up});
    for (int i = 0; asked < parts && i < 10000; i++) wait_ms(1);
    progress_stop(progress);
    fclose(file);
    return text;
}

static void lines(void) {
    char *text = said(false, 0.005, 3);
    ok(!strncmp(text, "work: 1 of 100 parts, ", 22) && strstr(text, " left\nwork: 2 of 100 parts, ") &&
           strstr(text, " left\nwork: 3 of 100 parts, ") && text[strlen(text) - 1] == '\n' && !strchr(text, '\r'),
       "a file gets a line each time");
    free(text);

    text = said(true, 0.005, 2);
    const size_t length = strlen(text);
    ok(!strncmp(text, "\rwork: 1 of 100 parts, ", 23) && strstr(text, " left\033[K\rwork: 2 of 100 parts, ") &&
           length > 4 && !strcmp(text + length - 4, "\r\033[K") && !strchr(text, '\n'),
       "a terminal has one line, which is cleared at the end");
    free(text);

    text = said(true, 3600, 0);
    ok(!*text, "work that ends before the first interval says nothing, and waits for nothing");
    free(text);
    progress_stop(NULL);
}

int main(void) {
    texts();
    lines();
    return tap_done();
}
