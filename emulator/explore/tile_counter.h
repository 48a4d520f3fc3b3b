/* tile_counter.h - the orders of a launch whose CTAs share a counter alone, CTA by CTA (tile_counter.c).
 *
 *     tickets *t = emu_tickets_new(owners, draws, count); // owners: who drew each ticket of the first run
 *     while (emu_tickets_plan(t)) emu_tickets_begin(t, ctas, count);
 */
#ifndef FL_EMU_TILE_COUNTER_H
#define FL_EMU_TILE_COUNTER_H

#include "../machine/machine.h"

typedef struct tickets tickets;

/* In how many ways the tickets can be drawn, if each CTA continues after those that it did in a run: owners has which
 * CTA drew each. 0: there are too many tickets. */
double emu_ways_to_draw(const uint64_t *owners, size_t draws);

/* NULL when out of memory. Owned: emu_tickets_free(). */
tickets *emu_tickets_new(const uint64_t *owners, size_t draws, uint64_t ctas);
void emu_tickets_free(tickets *t);
/* Choose the next run: which CTA draws each ticket, or tickets of a CTA that runs alone; false where there is none
 * left. */
bool emu_tickets_plan(tickets *t);
/* A run begins, all CTAs being resident; false when out of memory. */
bool emu_tickets_begin(tickets *t, cta **ctas, size_t count);
/* True if a CTA has a part in the run, and whether it is the only one: then the run is not one of the launch. */
bool emu_tickets_runs(const tickets *t, size_t cta);
bool emu_tickets_solo(const tickets *t);
/* Each CTA that runs waits to draw, or has ended: whose turn it is, by its index in ctas; -1 where the run need not go
 * on. *value: what the counter has, and then what it is to have. */
int emu_tickets_draw(tickets *t, cta *const *ctas, size_t count, uint64_t *value);
bool emu_tickets_all_drawn(const tickets *t);
void emu_tickets_end(tickets *t, cta *const *ctas, size_t count);
/* True if the CTAs have done what the argument asks for, so far; and whether there was no memory. */
bool emu_tickets_hold(const tickets *t);
bool emu_tickets_failed(const tickets *t);
/* Number of states that were run, each a CTA that fetches a ticket, and the number known to be left. */
uint64_t emu_tickets_run(const tickets *t);
uint64_t emu_tickets_left(const tickets *t);
/* CTAs that fetched in the last run. */
void emu_tickets_describe(const tickets *t, char *out, size_t bytes);

#endif
