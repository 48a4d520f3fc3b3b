/* copies.h - copies of this process that continue from its current state, one at a time, while it waits (copies.c).
 *
 *     int *found = emu_shared_memory(sizeof *found); // what a copy writes there, all see
 *     if (emu_run_copy() == COPY_ITSELF) *found = search(), emu_end_copy();
 *     if (*found) puts("found"); // in the process itself, when the copy has ended
 */
#ifndef FL_EMU_COPIES_H
#define FL_EMU_COPIES_H

#include <stddef.h>

typedef enum copy_result { COPY_ITSELF, COPY_ENDED, COPY_FAILED } copy_result;

/* Zeros. NULL where there is no memory, or the system has no copies. Owned: emu_free_shared(), by the process itself.
 */
void *emu_shared_memory(size_t bytes);
void emu_free_shared(void *memory, size_t bytes);
/* Returns in the copy, and then in the process itself: COPY_FAILED where there was none, or it has not ended by
 * emu_end_copy(). */
copy_result emu_run_copy(void);
void emu_end_copy(void);

#endif
