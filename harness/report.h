/* report.h - one record per problem, as text, as comma-separated values and as JSON.
 *
 *     report_open(&report, &options, argc, argv, &failure);
 *     report_record(&report, &record, &failure);
 *
 * docs/measuring.md describes the JSON record; SCHEMA is its number. A JSON line is written by one write() at the end
 * of the file, so that a run that is cut off leaves whole lines only.
 */
#ifndef FL_REPORT_H
#define FL_REPORT_H

#include "harness/backend.h"
#include "harness/bench.h"
#include "harness/energy.h"
#include "harness/options.h"
#include "harness/verify.h"

#include <stdbool.h>

enum { SCHEMA = 1 };

/* The results of one problem and instance. Pointers are borrowed; NULL where the part does not apply. */
struct record {
    const struct backend *backend;
    const struct instance *instance;
    const struct problem *problem;
    const struct kernel_code *code;
    const struct verdict *verdict; /* NULL: not checked */
    const struct verdict *after;   /* the same of what the timed launches left; NULL: not checked after timing */
    const struct measurement *measurement; /* NULL: not timed */
    const struct energy *energy;           /* NULL: not asked for */
    double peak_tflops;                    /* of mma.sync or wgmma, 0 where it was not measured */
    const struct counts *counts;           /* NULL: not emulated */
};

struct report {
    const struct options *options;
    int argc;
    char **argv;
    int json; /* descriptor, -1 for none */
    bool csv_header_done;
};

/* Open the JSON file. STATUS_ERROR with the system's reason where that fails. */
enum status report_open(struct report *report, const struct options *options, int argc, char **argv,
                        struct failure *failure);

/* Write one record in every form asked for. STATUS_ERROR on a full disk and the like. */
enum status report_record(struct report *report, const struct record *record, struct failure *failure);

/* Close what is open; STATUS_ERROR where something written was lost. */
enum status report_close(struct report *report, struct failure *failure);

/* Write out what standard output holds back; STATUS_ERROR where any of it was lost. */
enum status report_flush(struct failure *failure);

/* --info: the executable as JSON on stdout. --list: the instances as a table on stdout. */
enum status report_info(const struct instance_table *table, struct failure *failure);
enum status report_list(const struct instance_table *table, struct failure *failure);

/* True if lines for people go to stdout: not with --csv, --quiet or --json -. */
bool report_is_text(const struct options *options);

#endif
