/* tile_counter.c - which CTA draws which ticket, where CTAs share the counter that they draw from and nothing else.
 *
 * The work of a CTA between two fetches depends on the ticket and on its state: two runs that reach the same state
 * (state.c) continue identically. So it is enough that each CTA has drawn, in each state that it comes to, each ticket
 * that it can draw there; all other orders put the same parts together in another way. docs/internals.md has the
 * argument, and emu_tickets_hold() says whether what it asks for was seen in all runs so far.
 *
 * First all CTAs run, and one of them draws a ticket that it has not drawn first; others draw the rest. So any two
 * tickets have been drawn by two CTAs, and their work has been seen to race with nothing. Then CTAs run alone, from the
 * numbers that the counter had in those runs. A finding there must be reproduced by a run of all CTAs.
 */
#include "tile_counter.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_STATES = 4096, MOST_TICKETS = 1024, MOST_WAITS = 64 };
#define UNKNOWN UINT32_MAX
#define ENDED (UINT32_MAX - 1)

/* A CTA draws a ticket in one state: where that leads to, and what it does to global memory until then. */
typedef struct part {
    uint32_t to;
    uint64_t work;
} part;

/* A CTA that waits to draw, in one state. */
typedef struct waiting {
    size_t cta;
    uint64_t state;
    uint32_t before, drawn; /* the state before, and the ticket drawn there; UNKNOWN for the first */
    uint32_t first;         /* ticket that it can draw */
    part *parts;            /* by ticket */
    bool weighed;
    uint64_t ahead; /* what has been done there of later work, less what is left of earlier: see adds_up() */
} waiting;

/* Progress of a CTA's warps and mbarriers when it waits to fetch, and the cells of shared memory that it still depends
 * on. */
typedef struct wait {
    uint64_t where;
    bool *kept;
} wait;

typedef struct seat {
    uint32_t at;    /* its state */
    uint32_t first; /* its time at its first draw */
    ticket_work work;
} seat;

struct tickets {
    size_t draws, ctas;
    uint32_t alone; /* from this ticket on one CTA draws all */
    bool *ends;     /* by ticket: who draws it draws no other */
    bool *known;    /* by ticket: it was drawn, from a counter that had `values` */
    uint64_t *values;
    uint16_t *owners; /* of the last run */
    waiting *states;
    size_t count, capacity, count_of_parts;
    seat *seats;
    wait waits[MOST_WAITS];
    size_t wait_count, cells;
    live_sets live;
    /* the run */
    bool *wanted; /* by ticket up to `until`: `target` draws it */
    size_t target, until, drawn;
    bool is_solo; /* only the target runs */
    bool suspect; /* what it did is wrong, or different: all run, and it draws as it did */
    bool looked;  /* they have run */
    bool learned; /* what counts as remembered has grown: the states that were seen say too little */
    bool holds, failed;
};

/* ---- ways ---- */

/* The CTA that fetches each ticket last. */
static void find_ends(const uint64_t *owners, size_t draws, bool *ends) {
    for (size_t i = 0; i < draws; i++) {
        ends[i] = true;
        for (size_t k = i + 1; k < draws; k++) ends[i] &= owners[k] != owners[i];
    }
}

double emu_ways_to_draw(const uint64_t *owners, size_t draws) {
    bool ends[MOST_TICKETS];
    double ways = 1;
    size_t left = 0;
    if (draws > MOST_TICKETS) return 0;
    find_ends(owners, draws, ends);
    for (size_t i = 0; i < draws; i++) left += ends[i];
    for (size_t i = 0; i < draws; left -= ends[i++]) ways *= (double)left;
    return ways;
}

/* ---- life ---- */

tickets *emu_tickets_new(const uint64_t *owners, size_t draws, uint64_t ctas) {
    tickets *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->draws = draws;
    t->ctas = (size_t)ctas;
    t->ends = calloc(draws, sizeof *t->ends);
    t->known = calloc(draws, sizeof *t->known);
    t->values = calloc(draws, sizeof *t->values);
    t->owners = calloc(draws, sizeof *t->owners);
    t->wanted = calloc(draws, sizeof *t->wanted);
    t->seats = calloc(t->ctas, sizeof *t->seats);
    t->holds = true;
    if (!t->ends || !t->known || !t->values || !t->owners || !t->wanted || !t->seats) {
        emu_tickets_free(t);
        return NULL;
    }
    find_ends(owners, draws, t->ends);
    size_t left = 0;
    for (size_t i = 0; i < draws; i++) left += t->ends[i];
    for (; left > 1; t->alone++) left -= t->ends[t->alone];
    return t;
}

static void forget_states(tickets *t) {
    for (size_t i = 0; i < t->count; i++) free(t->states[i].parts);
    t->count = t->count_of_parts = 0;
}

void emu_tickets_free(tickets *t) {
    if (!t) return;
    forget_states(t);
    for (size_t k = 0; t->seats && k < t->ctas; k++) {
        free(t->seats[k].work.written);
        free(t->seats[k].work.looked);
        free(t->seats[k].work.kept);
    }
    for (size_t i = 0; i < t->wait_count; i++) free(t->waits[i].kept);
    free(t->live.sets);
    free(t->states);
    free(t->ends);
    free(t->known);
    free(t->values);
    free(t->owners);
    free(t->wanted);
    free(t->seats);
    free(t);
}

/* ---- states ---- */

/* True if a CTA can draw a ticket there: others have drawn those before, but for the last one that is left. */
static bool can_draw(const tickets *t, const waiting *w, uint32_t ticket) {
    return ticket >= w->first && (ticket <= t->alone || ticket == w->first);
}

static uint32_t find_state(tickets *t, size_t cta, uint64_t state, uint32_t before, uint32_t drawn) {
    const uint32_t first = drawn == UNKNOWN ? 0 : drawn + 1;
    for (size_t i = 0; i < t->count; i++)
        if (t->states[i].state == state && t->states[i].first == first && (first || t->states[i].cta == cta))
            return (uint32_t)i;
    waiting *more = emu_reserve(t->states, t->count + 1, &t->capacity, sizeof *more);
    part *parts = malloc(t->draws * sizeof *parts);
    if (more) t->states = more;
    if (!more || !parts || t->count == MOST_STATES) {
        t->failed |= !more || !parts;
        t->holds = false;
        free(parts);
        return UNKNOWN;
    }
    for (size_t i = 0; i < t->draws; i++) parts[i] = (part){UNKNOWN, 0};
    t->states[t->count] = (waiting){cta, state, before, drawn, first, parts, false, 0};
    return (uint32_t)t->count++;
}

static bool is_held(const cta *m) {
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (m->warps[i].state == WARP_HELD) return true;
    return false;
}

/* The recorded state of a waiting CTA; NULL when out of memory. */
static bool *find_kept(tickets *t, uint64_t where) {
    size_t i = 0;
    while (i < t->wait_count && t->waits[i].where != where) i++;
    if (i == MOST_WAITS) i = 0; /* it is enough to know of more */
    if (i == t->wait_count) {
        t->waits[i] = (wait){where, calloc(t->cells, sizeof(bool))};
        t->wait_count += t->waits[i].kept != NULL;
    }
    return i < t->wait_count ? t->waits[i].kept : NULL;
}

/* A CTA has come to its next draw. */
static uint32_t come_to(tickets *t, size_t k, cta *m, uint32_t before, uint32_t drawn) {
    ticket_work *work = &t->seats[k].work;
    bool *kept = find_kept(t, emu_waits(m));
    t->failed |= !kept;
    const uint64_t state = kept ? emu_state(m, t->seats[k].first, kept, &t->live) : 0;
    t->holds &= state != 0;
    if (!t->holds) return UNKNOWN;
    work->kept[work->draws++] = kept;
    work->since = m->checks->now;
    memset(work->looked, 0, t->cells * sizeof *work->looked);
    return find_state(t, k, state, before, drawn);
}

/* The CTA that drew last has done what it does with the ticket. */
static void note_part(tickets *t, size_t k, cta *m, uint32_t ticket) {
    seat *its = &t->seats[k];
    const uint32_t from = its->at, to = m->ended ? ENDED : come_to(t, k, m, from, ticket);
    t->learned |= its->work.reads_more;
    t->holds &= t->ends[ticket] == m->ended && !its->work.meets;
    t->known[ticket] = true;
    if (t->learned || !t->holds) return;
    part *done = &t->states[from].parts[ticket];
    if (done->to == UNKNOWN)
        t->count_of_parts++;
    else
        t->holds &= done->to == to && done->work == its->work.sum;
    *done = (part){to, its->work.sum};
    its->at = to;
}

/* ---- the work of a ticket ---- */

/* Solve ticket + to - from = work for the unknown term; false if it does not fit. */
static bool weigh(tickets *t, uint64_t *weights, bool *weighed, waiting *from, uint32_t ticket, bool *more) {
    const part *done = &from->parts[ticket];
    waiting none = {.weighed = true}, *to = done->to == ENDED ? &none : &t->states[done->to];
    const int known = weighed[ticket] + from->weighed + to->weighed;
    if (known == 3) return weights[ticket] + to->ahead - from->ahead == done->work;
    if (known < 2) return true;
    if (!weighed[ticket])
        weights[ticket] = done->work + from->ahead - to->ahead;
    else if (!from->weighed)
        from->ahead = weights[ticket] + to->ahead - done->work;
    else
        to->ahead = done->work + from->ahead - weights[ticket];
    return weighed[ticket] = from->weighed = to->weighed = *more = true;
}

/* All CTAs together should do the same to global memory, whoever draws what: each part does the work of its ticket, but
 * for what it leaves to the next part, or does for the part before; and that depends on the two states alone. The state
 * and the ticket of a part that does not; NULL where all do. All CTAs have run their first ticket. */
static const waiting *find_misfit(tickets *t, uint32_t *ticket) {
    uint64_t weights[MOST_TICKETS];
    bool weighed[MOST_TICKETS] = {false}, more = true;
    for (size_t i = 0; i < t->count; i++) t->states[i].weighed = false;
    t->states[0].weighed = true;
    t->states[0].ahead = 0;
    while (more) {
        more = false;
        for (size_t i = 0; i < t->count; i++)
            for (*ticket = 0; *ticket < t->draws; ++*ticket)
                if (t->states[i].parts[*ticket].to != UNKNOWN &&
                    !weigh(t, weights, weighed, &t->states[i], *ticket, &more))
                    return &t->states[i];
    }
    for (size_t i = 0; i < t->count; i++)
        for (*ticket = 0; *ticket < t->draws; ++*ticket)
            if (t->states[i].parts[*ticket].to != UNKNOWN && !(weighed[*ticket] && t->states[i].weighed))
                return &t->states[i];
    return NULL;
}

/* ---- plans ---- */

static bool is_unknown(const tickets *t, size_t state, uint32_t ticket) {
    return can_draw(t, &t->states[state], ticket) && t->states[state].parts[ticket].to == UNKNOWN;
}

/* A state where a ticket was not drawn; that of a CTA before its first draw goes first. NULL where there is none. */
static const waiting *find_unknown(const tickets *t, uint32_t *ticket) {
    const waiting *found = NULL;
    for (*ticket = 0; *ticket < t->draws; ++*ticket)
        for (size_t i = 0; i < t->count; i++)
            if (t->states[i].drawn == UNKNOWN && is_unknown(t, i, *ticket)) return &t->states[i];
    for (uint32_t n = 0; n < t->draws; n++)
        for (size_t i = 0; i < t->count && !found; i++)
            if (is_unknown(t, i, n)) found = &t->states[i], *ticket = n;
    return found;
}

static void plan_path(tickets *t, const waiting *from, uint32_t ticket) {
    memset(t->wanted, 0, t->draws * sizeof *t->wanted);
    t->until = ticket + 1;
    for (t->wanted[ticket] = true; from->drawn != UNKNOWN; from = &t->states[from->before])
        t->wanted[from->drawn] = true;
    t->target = from->cta;
}

bool emu_tickets_plan(tickets *t) {
    uint32_t ticket = 0;
    t->is_solo = false;
    if (t->suspect) {
        t->holds &= !t->looked;
        return t->looked = t->holds;
    }
    if (t->learned) forget_states(t);
    t->learned = false;
    t->until = 0;
    t->target = SIZE_MAX;
    const waiting *from = find_unknown(t, &ticket);
    t->is_solo = from && from->drawn != UNKNOWN;
    if (!from && t->count) t->suspect = t->looked = (from = find_misfit(t, &ticket)) != NULL;
    if (from) plan_path(t, from, ticket);
    return from || !t->count;
}

/* ---- a run ---- */

/* Room for what each CTA remembers; false when out of memory. */
static bool make_room(tickets *t, const cta *m) {
    bool complete;
    if (t->cells) return true;
    t->cells = m->checks->cell_count;
    t->live = emu_find_live(m->code);
    complete = t->live.sets != NULL;
    for (size_t k = 0; k < t->ctas; k++) {
        ticket_work *work = &t->seats[k].work;
        work->written = calloc(t->cells, sizeof *work->written);
        work->looked = calloc(t->cells, sizeof *work->looked);
        work->kept = calloc(t->draws + 1, sizeof *work->kept);
        complete &= work->written && work->looked && work->kept;
    }
    return complete;
}

bool emu_tickets_begin(tickets *t, cta **ctas, size_t count) {
    t->drawn = 0;
    if (!make_room(t, ctas[0])) return false;
    for (size_t k = 0; k < count; k++) {
        seat *its = &t->seats[k];
        its->at = its->first = UNKNOWN;
        its->work = (ticket_work){.written = its->work.written, .looked = its->work.looked, .kept = its->work.kept};
        memset(its->work.written, 0, t->cells * sizeof *its->work.written);
        memset(its->work.looked, 0, t->cells * sizeof *its->work.looked);
        ctas[k]->checks->ticket = &its->work;
        ctas[k]->checks->follows = true;
    }
    return true;
}

/* Before the first draw: each CTA that draws at all waits. */
static void note_first(tickets *t, cta *const *ctas, size_t count) {
    for (size_t k = 0; k < count; k++) {
        if (ctas[k]->ended || !emu_tickets_runs(t, k)) continue;
        t->seats[k].first = ctas[k]->checks->now;
        t->seats[k].at = come_to(t, k, ctas[k], UNKNOWN, UNKNOWN);
    }
}

/* Choose the CTA that fetches: as planned, else a CTA that has not fetched this ticket in its state. */
static int choose(const tickets *t, cta *const *ctas, size_t count, uint32_t ticket) {
    const bool planned = ticket < t->until;
    int chosen = -1;
    if (planned && t->wanted[ticket]) return is_held(ctas[t->target]) ? (int)t->target : -1;
    for (size_t k = 0; k < count; k++) {
        if ((planned && k == t->target) || !is_held(ctas[k])) continue;
        if (chosen < 0) chosen = (int)k;
        if (!t->learned && t->states[t->seats[k].at].parts[ticket].to == UNKNOWN) return (int)k;
    }
    return chosen;
}

/* Choose the ticket of a CTA that runs by itself: as planned, else the first that it has not fetched in its state; the
 * number of tickets if there is none. */
static uint32_t choose_ticket(const tickets *t, uint32_t first) {
    uint32_t ticket = first;
    while (ticket < t->until && !t->wanted[ticket]) ticket++;
    if (ticket >= t->until && t->learned) return (uint32_t)t->draws;
    while (ticket >= t->until && ticket < t->draws && !is_unknown(t, t->seats[t->target].at, ticket)) ticket++;
    return ticket;
}

int emu_tickets_draw(tickets *t, cta *const *ctas, size_t count, uint64_t *value) {
    uint32_t ticket = (uint32_t)t->drawn;
    if (ticket)
        note_part(t, t->owners[ticket - 1], ctas[t->owners[ticket - 1]], ticket - 1);
    else
        note_first(t, ctas, count);
    if (t->holds && t->is_solo) {
        ticket = choose_ticket(t, ticket);
        if (ticket == t->draws) return -1;
        *value = t->values[ticket];
    }
    t->holds &= ticket < t->draws && (!t->known[ticket] || t->values[ticket] == *value);
    const int chosen = !t->holds ? -1 : t->is_solo ? (int)t->target : choose(t, ctas, count, ticket);
    t->holds &= chosen >= 0;
    if (!t->holds) return -1;
    t->values[ticket] = *value;
    t->owners[ticket] = (uint16_t)chosen;
    t->wanted[ticket] |= t->is_solo;
    t->seats[chosen].work.sum = 0;
    t->drawn = ticket + 1;
    return chosen;
}

void emu_tickets_end(tickets *t, cta *const *ctas, size_t count) {
    const cta *target = t->is_solo ? ctas[t->target] : NULL;
    for (size_t k = 0; k < count && !target; k++) t->holds &= ctas[k]->ended;
    t->holds &= target || t->drawn == t->draws;
    if (target && (target->faulted || target->findings.count)) t->suspect = true;
    if (target && t->suspect) t->until = t->drawn;
    if (t->holds && !t->suspect && ctas[t->owners[t->drawn - 1]]->ended)
        note_part(t, t->owners[t->drawn - 1], ctas[t->owners[t->drawn - 1]], (uint32_t)t->drawn - 1);
}

/* ---- what was seen ---- */

bool emu_tickets_runs(const tickets *t, size_t cta) {
    return !t->is_solo || cta == t->target;
}

bool emu_tickets_solo(const tickets *t) {
    return t->is_solo;
}

bool emu_tickets_hold(const tickets *t) {
    return t->holds;
}

bool emu_tickets_failed(const tickets *t) {
    return t->failed;
}

bool emu_tickets_all_drawn(const tickets *t) {
    return t->drawn == t->draws;
}

uint64_t emu_tickets_run(const tickets *t) {
    return t->count_of_parts;
}

uint64_t emu_tickets_left(const tickets *t) {
    uint64_t left = t->learned || !t->count;
    for (size_t i = 0; i < t->count; i++)
        for (uint32_t n = t->states[i].first; n < t->draws; n++)
            left += can_draw(t, &t->states[i], n) && t->states[i].parts[n].to == UNKNOWN;
    return left;
}

void emu_tickets_describe(const tickets *t, char *out, size_t bytes) {
    size_t used = (size_t)snprintf(out, bytes, "tickets go to CTAs");
    for (size_t i = 0; i < t->drawn && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, " %u", t->owners[i]);
}
