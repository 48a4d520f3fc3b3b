/* print.h - findings, counters and the table of forms as text for people and for tools.
 *
 *     print_findings(stderr, device);
 *     print_counters(stdout, emu_counts(device));
 */
#ifndef FL_PRINT_H
#define FL_PRINT_H

#include "harness/emu/emu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The messages of all findings, and a line that counts them; nothing where there are none. */
void print_findings(FILE *to, const emu_device *device);
/* Tables by source line, by region and by group, and the total. False when out of memory. */
bool print_counters(FILE *to, const emu_counters *counters);
/* CSV with a heading, one row a PTX instruction in program order. */
void write_counters(FILE *to, const emu_counters *counters);
/* The table of accepted PTX forms, as Markdown. */
void print_forms(FILE *to);

#ifdef __cplusplus
}
#endif

#endif
