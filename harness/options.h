/* options.h - the command line: one table from which parsing, --help and tests come.
 *
 *     enum status status = options_parse(&options, argc, argv, &failure);
 *
 * Values may be joined (--seq=512) or apart (--seq 512). A repeated option takes its last value, but --config adds up.
 */
#ifndef FL_OPTIONS_H
#define FL_OPTIONS_H

#include "harness/problem.h"
#include "harness/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum backend_choice { BACKEND_AUTO, BACKEND_GPU, BACKEND_EMU };

enum { CHECK_NONE = 0, CHECK_ALL = -1 };
enum { CONFIGS_MOST = 64 };

struct options {
    int backend;                          /* enum backend_choice */
    struct number_list batch, heads, seq; /* count 0: the back end's default */
    int dtype;                            /* -1: not given, else 0 fp16, 1 bf16 */
    const char *configs[CONFIGS_MOST];    /* short forms or "all", borrowed from argv */
    int n_configs;
    bool list;
    int64_t seed;
    int dist;           /* enum distribution */
    int64_t check_rows; /* or CHECK_NONE, CHECK_ALL */
    bool diff;
    int64_t runs; /* 0: the stopping rule decides */
    bool cold;
    int64_t warmup, min_samples;
    double max_noise;          /* percent */
    double min_time, timeout;  /* seconds */
    double throttle_threshold; /* percent */
    bool strict;
    const char *json; /* file, "-", or NULL */
    bool csv, quiet;
    bool profile;
    bool counters;
    const char *trace;
    int64_t schedule;
    int checks;         /* 0 on, 1 off */
    int64_t threads;    /* 0: one a core */
    const char *output; /* file for O */
    const char *dump;
    int64_t device;
    bool info, help, version;
    const char *for_gpu, *for_emulator; /* an option that was given and acts on one back end only, or NULL */
};

enum option_kind {
    OPTION_FLAG,    /* no argument: bool becomes true */
    OPTION_UNFLAG,  /* no argument: bool becomes false */
    OPTION_CHOICE,  /* one of the words of `argument`, separated by '|': int becomes its position */
    OPTION_INTEGER, /* int64_t in [least, most] */
    OPTION_NUMBER,  /* double in [least, most]; the unit that help names may follow */
    OPTION_TEXT,    /* const char * */
    OPTION_LIST,    /* struct number_list */
    OPTION_CONFIGS, /* appended to configs */
    OPTION_ROWS,    /* int64_t: a positive number or "all" */
    OPTION_NO_ROWS  /* no argument: int64_t becomes CHECK_NONE */
};

struct option {
    const char *name; /* with its dashes */
    enum option_kind kind;
    const char *argument; /* as help shows it, "" for none */
    size_t offset;        /* within struct options */
    double least, most;   /* of numbers */
    const char *unit;     /* "%" or "s", may follow a number */
    const char *initial;  /* default, parsed like an argument; NULL: zero, false, none */
    const char *help;
    enum backend_choice only; /* the back end that acts on it; BACKEND_AUTO: both */
};

/* The table, in the order of --help, and the number of its rows. */
const struct option *options_table(size_t *count);

/* Defaults, then argv[1] ... argv[argc - 1]. STATUS_USAGE with a message that names option and value. */
enum status options_parse(struct options *options, int argc, char **argv, struct failure *failure);

/* Print usage and every option. */
void options_help(FILE *file, const char *program);

#endif
