/* lookahead.h - clusters that run before their turn, on all threads of the host.
 *
 * round_robin.c gives clusters turns, for example each up to its next work tile. If CTAs share only the tile counter, a
 * cluster does nothing between two fetches that another cluster could observe without a race. So it runs before its
 * turn as far as the next access by which it tells something (an atomic, a relaxed store), and waits there for the
 * turn: these accesses happen in the order that one thread gives. An atomic whose result nobody reads does not wait: it
 * is postponed, and updates memory when the turn has come. Results, counters and findings do not depend on the number
 * of threads. A race between clusters is still found, but the host's schedule decides which access comes second. Fences
 * next to the atomics order accesses by their turns, too: what a cluster reads after an atomic, another one has written
 * before an earlier one.
 */
#ifndef FL_EMU_LOOKAHEAD_H
#define FL_EMU_LOOKAHEAD_H

#include "../machine/interleaving.h"

/* The function that runs a transition: emu_run_turn(). */
typedef cta_turn run_turn(cluster *c, bool may_pause);

/* threads: to run ahead on; with none, or where none can be started, each turn runs when it has come, and the results
 * are the same. NULL when out of memory. */
struct lookahead *emu_lookahead_new(int threads, run_turn *run);
/* Lets a cluster begin its next turn. */
void emu_lookahead_begin(struct lookahead *a, cluster *c);
/* Its turn has come: runs it, or what is left of it. */
cta_turn emu_lookahead_turn(struct lookahead *a, cluster *c);
/* Each cluster that has begun comes to its next atomic or to its end. May be called with NULL. */
void emu_lookahead_free(struct lookahead *a);

#endif
