/* entry_points.h - functions of the driver by name. */
#ifndef FL_EMU_ENTRY_POINTS_H
#define FL_EMU_ENTRY_POINTS_H

#include <stdbool.h>

/* The newest variant of a function that a program of this version knows: cuMemAlloc_v2 for "cuMemAlloc". NULL where
 * there is none; *too_new: there is a newer one. */
void *find_entry_point(const char *name, int version, bool *too_new);

#endif
