/* options.h - the command line: one table from which parsing, --help and tests come.
 *
 *     enum status status = options_parse(&options, argc, argv, &failure);
 *
 * Values may be joined (--seq=512) or apart (--seq 512). A repeated option takes its last value, but --config adds up.
 */
#ifndef FL_OPTIONS_H
#define FL_OPTIONS_H

#include "harness/number_list.h"
#include "harness/problem.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum backend_choice { BACKEND_AUTO, BACKEND_GPU, BACKEND_EMU };

enum { CHECK_NONE = 0, CHECK_ALL = -1 }; /* instead of a number of rows */
enum { MAX_CONFIGS = 64 };               /* that may be named by --config */
enum { MAX_OPTIONS = 64 };               /* rows of the table */

/* Keys that a query attends to before and after its own; -1: all. */
struct window {
    int64_t left, right;
};

/* Hidden blocks of scores. */
struct mask_choice {
    enum block_mask kind;
    int64_t seed; /* of MASK_RANDOM */
};

struct options {
    enum backend_choice backend;
    struct number_list batch, heads, seq; /* count 0: the back end's default */
    struct number_list seq_q, seq_k;      /* instead of seq for queries and for keys; count 0: seq */
    int64_t KV_heads;                     /* 0: as many as heads */
    int64_t d_head, d_head_v;             /* 0: those of the configuration */
    bool causal, lse;
    double scale; /* of the scores; 0: 1 / sqrt(d_head) */
    double descale_Q, descale_K, descale_V;
    enum layout layout;
    struct number_list Q_lengths, KV_lengths; /* of the sequences; count 0: all have one length */
    struct window window;
    double softcap; /* 0: none */
    bool sinks;
    int64_t page_rows, split_keys; /* 0: none */
    struct mask_choice block_mask;
    int64_t tokens;                   /* batch * seq instead of batch; 0: not given */
    enum dtype dtype;                 /* ANY_DTYPE: that of the configuration */
    const char *configs[MAX_CONFIGS]; /* short forms or "all", borrowed from argv */
    int n_configs;
    bool list;
    int64_t seed;
    enum distribution dist;
    int64_t check_rows; /* or CHECK_NONE, CHECK_ALL */
    bool diff;
    int64_t runs; /* 0: the stopping rule decides */
    bool cold;
    int64_t warmup, min_samples;
    double max_noise;          /* percent */
    double min_time, timeout;  /* seconds */
    double throttle_threshold; /* percent */
    bool strict;
    bool energy;
    const char *json; /* file, "-", or NULL */
    bool csv, quiet;
    bool profile;
    bool counters;
    const char *ptx;          /* file, or NULL */
    const char *trace;        /* as emu_parse_trace() reads it, or NULL */
    const char *trace_events; /* file, or NULL */
    int64_t schedule;
    bool checks, wgmma_wait_per_warp;
    int64_t threads;    /* 0: one per core */
    const char *output; /* file for O, or NULL */
    const char *dump;   /* file, or NULL */
    int64_t device;
    bool info, help, version;
    bool given[MAX_OPTIONS]; /* the rows of the table that the command line names */
};

/* --dtype was not given. */
#define ANY_DTYPE ((enum dtype)0)

enum option_kind {
    OPTION_TRUE,    /* no argument: bool becomes true */
    OPTION_FALSE,   /* no argument: bool becomes false */
    OPTION_SWITCH,  /* bool: one of the words of `choices` */
    OPTION_CHOICE,  /* enum: one of the words of `choices` */
    OPTION_INTEGER, /* int64_t in [least, most] */
    OPTION_NUMBER,  /* double in [least, most]; its unit may follow */
    OPTION_TEXT,    /* const char * */
    OPTION_LIST,    /* struct number_list */
    OPTION_LENGTHS, /* struct number_list, whose numbers may be 0 */
    OPTION_WINDOW,  /* struct window */
    OPTION_MASK,    /* struct mask_choice */
    OPTION_CONFIGS, /* appended to configs */
    OPTION_ROWS,    /* int64_t: a number in [least, most] or "all" */
    OPTION_NO_ROWS  /* no argument: int64_t becomes CHECK_NONE */
};

/* A word and its meaning. */
struct choice {
    const char *word; /* NULL ends a list */
    int value;
};

struct option {
    const char *name;   /* with its dashes */
    const char *letter; /* the short name, such as "-h"; NULL for none */
    enum option_kind kind;
    const char *argument;         /* as help shows it; NULL for none, or where `choices` are */
    const struct choice *choices; /* NULL where any value goes */
    size_t offset;                /* within struct options */
    double least, most;           /* of numbers */
    const char *unit;             /* "%" or "s", may follow a number; "" for none; NULL where there is no number */
    const char *initial;          /* default, parsed like an argument; NULL: zero, false, none */
    const char *help;
    enum backend_choice only; /* the back end that acts on it; BACKEND_AUTO: both */
    unsigned needs;           /* bits of enum feature: a kernel that accepts it has one of them; 0: every kernel */
};

/* The table, in the order of --help. */
extern const struct option fl_options[];
extern const size_t fl_option_count;

/* Form of an option's argument, such as "N" or "fp16|bf16"; "" if it has none. Returns text. */
char *option_argument(const struct option *option, char *text, size_t size);

/* Defaults, then argv[1] ... argv[argc - 1]. STATUS_USAGE with a message that names option and value. */
enum status options_parse(struct options *options, int argc, char **argv, struct failure *failure);

/* Names of the given options that act on one back end alone, "--hot, --runs", cut where they do not fit; their number.
 */
int options_only_for(const struct options *options, enum backend_choice backend, char *text, size_t size);

/* STATUS_USAGE where two options are given of which one would have no effect, or both would write to one file. */
enum status options_check(const struct options *options, struct failure *failure);

/* True if records go to standard output, where other programs read them: what is for people goes to standard error. */
bool options_print_records(const struct options *options);

/* Print usage and the options that kernels with these features, bits of enum feature, accept. */
void options_help(FILE *file, const char *program, unsigned features);

/* Number of problems: the product of the lists. */
int64_t options_problem_count(const struct options *options);

/* Problem i of them in the type and head size of a configuration: lengths outermost, then heads, then batches. The
 * defaults are those of a GPU or of the emulator. */
void options_problem_at(const struct options *options, bool gpu, int64_t i, const struct kernel_config *config,
                        struct problem *problem);

#endif
