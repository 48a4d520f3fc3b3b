/* print.h - findings, counters and the table of forms as text for people and for tools.
 *
 *     emu_print_findings(stderr, device);
 *     emu_print_counters(stdout, emu_counts(device));
 */
#ifndef FL_PRINT_H
#define FL_PRINT_H

#include "../emu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The messages of all findings, and a line that counts them; nothing where there are none. */
void emu_print_findings(FILE *to, const emu_device *device);

/* Sums of counters under one heading: a line of the source, a region, or a group of instructions. */
typedef enum emu_tally_key { EMU_BY_LINE, EMU_BY_REGION, EMU_BY_GROUP } emu_tally_key;
typedef struct emu_tally {
    const char *name; /* of the file, the region or the group; borrowed from the module */
    int line;         /* of the source; 0 for regions and groups */
    int depth;        /* of a region */
    emu_counter sum;  /* of its rows; its place and group are empty */
} emu_tally;

/* Headings under which something was executed: lines in order, regions and groups as they first come. Owned: free().
 * NULL when out of memory. */
emu_tally *emu_tally_counters(const emu_counters *counters, emu_tally_key key, size_t *count);
/* Tables by source line, by region and by group, and the total. False when out of memory. */
bool emu_print_counters(FILE *to, const emu_counters *counters);
/* CSV with a heading, one row per PTX instruction in program order. */
void emu_write_counters(FILE *to, const emu_counters *counters);
/* The table of accepted PTX forms, as Markdown. */
void emu_print_forms(FILE *to);

#ifdef __cplusplus
}
#endif

#endif
