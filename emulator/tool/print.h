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

/* Sums of counters under one heading: a line of the source, a region, a group of instructions, or what tensor cores and
 * copy engine do beside the warps: a shape of wgmma, or a kind of copies. */
typedef enum emu_tally_key { EMU_BY_LINE, EMU_BY_REGION, EMU_BY_GROUP, EMU_BY_ENGINE } emu_tally_key;
typedef struct emu_tally {
    const char *name; /* of the file, the region, the group, the shape or the copies; borrowed from the module */
    int name_bytes;   /* which end the name: the text of the module continues behind that of a shape */
    int line;         /* of the source; 0 for all but lines */
    int depth;        /* of a region */
    emu_counter sum;  /* of its rows; its place and group are empty */
} emu_tally;

/* Headings under which something was executed: lines in order, the others as they first come. Owned: free(). NULL when
 * out of memory. */
emu_tally *emu_tally_counters(const emu_counters *counters, emu_tally_key key, size_t *count);
/* Tables by source line, by region, by group and, where there is any, by engine, and the total. False when out of
 * memory. */
bool emu_print_counters(FILE *to, const emu_counters *counters);
/* CSV with a heading, one row per PTX instruction in program order. */
void emu_write_counters(FILE *to, const emu_counters *counters);
/* The table of accepted PTX forms, as Markdown. */
void emu_print_forms(FILE *to);

#ifdef __cplusplus
}
#endif

#endif
