/* select.h - which instances the command line asks for.
 *
 *     const struct instance *chosen[16];
 *     select_instances(&options, &table, chosen, 16, &count, &failure);
 */
#ifndef FL_SELECT_H
#define FL_SELECT_H

#include "harness/options.h"
#include "runtime/image.h"

#include <stddef.h>

/* Write pointers to the chosen instances, at most `capacity` of them: those of --config, cut to --dtype and
 * --d-head; without --config the version's own, in the type of --dtype and for heads of --d-head elements. STATUS_USAGE
 * lists what is built where one is missing. */
enum status select_instances(const struct options *options, const struct instance_table *table,
                             const struct instance **chosen, size_t capacity, size_t *count, struct failure *failure);

#endif
