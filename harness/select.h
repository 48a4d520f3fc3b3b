/* select.h - which instances and which problems the command line asks for.
 *
 *     const struct instance *chosen[16];
 *     select_instances(&options, &table, chosen, 16, &count, &failure);
 *     for (int64_t i = 0; i < problem_count(&options); i++) problem_at(&options, gpu, i, &config, &problem);
 */
#ifndef FL_SELECT_H
#define FL_SELECT_H

#include "harness/options.h"
#include "harness/problem.h"
#include "runtime/image.h"

#include <stdbool.h>

/* Write pointers to the chosen instances, at most `capacity` of them: those of --config, cut to --dtype and
 * --d-head; without --config the version's own, in the type of --dtype and for heads of --d-head elements. STATUS_USAGE
 * lists what is built where one is missing. */
enum status select_instances(const struct options *options, const struct instance_table *table,
                             const struct instance **chosen, size_t capacity, size_t *count, struct failure *failure);

/* Number of problems: the product of the lists. */
int64_t problem_count(const struct options *options);

/* Problem i of them in the type and head size of a configuration: lengths outermost, then heads, then batches. The
 * defaults are those of a GPU or of the emulator. */
void problem_at(const struct options *options, bool gpu, int64_t i, const KernelConfig *config,
                struct problem *problem);

#endif
