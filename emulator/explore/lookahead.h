/* lookahead.h - CTAs that draw tickets, and tell each other nothing else, on all threads of the host.
 *
 * launch.c gives them turns, each up to a ticket. Between two tickets a cluster touches nothing that another one could
 * see without a race. So it runs ahead of its turn on a thread of the host as far as its next atomic, where it waits
 * for the turn: tickets are drawn in the order that one thread gives. Where clusters race all the same, that is found,
 * but the host decides which access comes second, as in programs without tickets.
 */
#ifndef FL_EMU_LOOKAHEAD_H
#define FL_EMU_LOOKAHEAD_H

#include "../machine/interleaving.h"

/* What runs a turn: emu_run_turn(). */
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
