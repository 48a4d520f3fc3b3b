/* happens_before.c - what a thread knows of other clusters, where the CTAs of a grid tell each other through global
 * memory.
 *
 * A release at an address tells what its thread knows there; an acquire at that address learns it. A .relaxed access,
 * .volatile ones and atomics without an order among them, tells what a fence before it released, and what it reads is
 * learned at the next fence. Fences and acquires are kept by CTA with their time: whoever is ordered after one in the
 * CTA (cells.h) knows what it knew. So a fence of one thread also counts with an atomic of another one after a barrier.
 *
 * Knowledge is a list of times: of a whole CTA, of a warp of it, or of a thread.
 */
#include "../check/races.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 2 * MAX_WARPS }; /* so that two are of one warp, where there is no room for more */
#define MOST_MERGED (1ull << 28)      /* threads of knowledge in a launch, then all count as known */

/* Clocks that some lanes of a warp released, acquired, or have read but not acquired yet. */
typedef struct event {
    uint32_t warp, lanes, time;
    bool narrow; /* for the own CTA only */
    vector_clock *what;
} event;

typedef struct event_list {
    event items[MOST_EVENTS];
    int count;
    vector_clock *settled; /* of those that every thread of the CTA is ordered after */
} event_list;

struct cta_order {
    event_list fences, learned, read;
};

/* ---- knowledge ---- */

static vector_clock *keep(vector_clock *k) {
    if (k) atomic_fetch_add(&k->references, 1);
    return k;
}

static void drop(vector_clock *k) {
    if (k && atomic_fetch_sub(&k->references, 1) == 1) free(k);
}

static vector_clock *make(cta *m, size_t room) {
    vector_clock *made = malloc(sizeof *made + room * sizeof made->threads[0]);
    if (!made) {
        m->out_of_memory = m->faulted = true;
        return NULL;
    }
    atomic_init(&made->references, 1);
    made->count = 0;
    return made;
}

/* Both; takes a from the caller. */
static vector_clock *join(cta *m, vector_clock *a, const vector_clock *b) {
    races *r = races_of(m);
    if (!b || a == b) return a;
    r->merged += b->count + (a ? a->count : 0);
    if (r->merged > MOST_MERGED) atomic_store(&r->spent, true);
    vector_clock *both = make(m, b->count + (a ? a->count : 0));
    if (!both) return a;
    size_t i = 0, k = 0;
    while (i < (a ? a->count : 0) || k < b->count) {
        const known_thread *x = a && i < a->count ? &a->threads[i] : NULL, *y = k < b->count ? &b->threads[k] : NULL;
        known_thread next = x && (!y || x->number <= y->number) ? *x : *y;
        if (x && y && x->number == y->number && y->time > next.time) next.time = y->time;
        i += x && x->number == next.number;
        k += y && y->number == next.number;
        both->threads[both->count++] = next;
    }
    drop(a);
    return both;
}

static uint32_t time_of(const vector_clock *k, uint64_t number) {
    size_t low = 0, high = k->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (k->threads[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < k->count && k->threads[low].number == number ? k->threads[low].time : 0;
}

/* Numbers: the CTA, its warps, its threads. */
static uint64_t number_of(const cta *m, uint64_t cluster, uint32_t rank) {
    return global_cta(races_of(m), cluster, rank) * (1 + m->warp_count + m->warp_count * LANES);
}

static bool includes(const cta *m, const vector_clock *k, const access_note *note, uint32_t rank) {
    const uint64_t cta = number_of(m, note->cluster, rank);
    const uint32_t thread = who_thread(note->who);
    return k && (time_of(k, cta) >= note->time || time_of(k, cta + 1 + thread / LANES) >= note->time ||
                 time_of(k, cta + 1 + m->warp_count + thread) >= note->time);
}

/* ---- events ---- */

/* True if a thread is one of those, or ordered after one. */
static bool is_after(const cta *m, const warp *w, int lane, const event *e) {
    if (e->time <= m->checks->base || (e->warp == (uint32_t)w->index && e->lanes >> lane & 1)) return true;
    for (uint32_t rest = e->lanes; rest; rest &= rest - 1)
        if (ordered(m, w, lane, e->warp * LANES + (uint32_t)first_lane(rest), e->time)) return true;
    return false;
}

static bool any_is_after(const cta *m, const warp *w, uint32_t lanes, const event *e) {
    for (; lanes; lanes &= lanes - 1)
        if (is_after(m, w, first_lane(lanes), e)) return true;
    return false;
}

/* Clock released by the lanes of a fence that precedes a thread: the thread's own accesses and those of the others. */
static vector_clock *released_by(cta *m, const event *e, uint32_t lanes) {
    vector_clock *own = make(m, LANES);
    const uint64_t first = number_of(m, m->cluster->index, m->rank) + 1 + m->warp_count + e->warp * LANES;
    for (; own && lanes; lanes &= lanes - 1)
        own->threads[own->count++] = (known_thread){first + (uint64_t)first_lane(lanes), e->time};
    return own;
}

static vector_clock *join_and_drop(cta *m, vector_clock *a, vector_clock *b) {
    a = join(m, a, b);
    drop(b);
    return a;
}

/* Fences that precede the entire CTA are merged. */
static void settle(cta *m, event_list *list, bool fences) {
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        event *e = &list->items[i];
        if (e->time > m->checks->base || e->narrow) {
            list->items[kept++] = *e;
            continue;
        }
        if (fences) list->settled = join_and_drop(m, list->settled, released_by(m, e, e->lanes));
        list->settled = join_and_drop(m, list->settled, e->what);
    }
    list->count = kept;
}

/* The first two of one warp become one, whose lanes know too much: that can hide a race, never invent one. */
static void make_place(cta *m, event_list *list, bool fences) {
    int a = 0, b = 1;
    while (list->items[a].warp != list->items[b].warp)
        if (++b == list->count) b = ++a + 1;
    event *kept = &list->items[a], *other = &list->items[b];
    if (fences) kept->what = join_and_drop(m, kept->what, released_by(m, other, other->lanes));
    kept->what = join_and_drop(m, kept->what, other->what);
    kept->lanes |= other->lanes;
    kept->narrow &= other->narrow;
    memmove(other, other + 1, (size_t)(--list->count - b) * sizeof *other);
}

static void add_event(cta *m, event_list *list, const event *e, bool fences) {
    settle(m, list, fences);
    if (list->count == MOST_EVENTS) make_place(m, list, fences);
    list->items[list->count++] = *e;
}

static void forget_events(event_list *list) {
    for (int i = 0; i < list->count; i++) drop(list->items[i].what);
    drop(list->settled);
    *list = (event_list){0};
}

void emu_order_start_cta(cta *m) {
    checks *const shadow = m->checks;
    emu_order_free(m);
    if (m->cluster->races && races_of(m)->in_turns) shadow->order = calloc(1, sizeof *shadow->order);
}

void emu_order_free(cta *m) {
    checks *const shadow = m->checks;
    if (!shadow->order) return;
    forget_events(&shadow->order->fences);
    forget_events(&shadow->order->learned);
    forget_events(&shadow->order->read);
    free(shadow->order);
    shadow->order = NULL;
}

/* ---- what lanes know ---- */

bool emu_knows(cta *m, const warp *w, int lane, const access_note *note, uint32_t rank) {
    checks *const shadow = m->checks;
    if (!shadow->order || races_of(m)->merged > MOST_MERGED) return true;
    const event_list *learned = &shadow->order->learned;
    if (includes(m, learned->settled, note, rank)) return true;
    for (int i = 0; i < learned->count; i++)
        if (is_after(m, w, lane, &learned->items[i]) && includes(m, learned->items[i].what, note, rank)) return true;
    return false;
}

static void add_known(vector_clock *to, uint64_t number, uint32_t time) {
    to->threads[to->count++] = (known_thread){number, time};
}

/* Clock of the own CTA, thread by thread if not all of a warp or of the CTA are ordered. */
static void add_own_cta(const cta *m, const warp *w, uint32_t lanes, bool itself, vector_clock *to) {
    const checks *const shadow = m->checks;
    const uint64_t cta = number_of(m, m->cluster->index, m->rank);
    uint32_t times[MAX_WARPS * LANES] = {0}, of_warp[MAX_WARPS] = {0};
    for (uint32_t rest = shadow->clocks ? lanes : 0; rest; rest &= rest - 1) {
        take_later(times, row_of(m, w, first_lane(rest)), m->warp_count * LANES);
        if (w->together) break;
    }
    of_warp[w->index] = w->synced;
    if (shadow->base) add_known(to, cta, shadow->base);
    for (uint32_t k = 0; k < m->warp_count; k++) {
        uint32_t least = UINT32_MAX;
        for (uint32_t t = k * LANES; t < (k + 1) * LANES; t++) least = times[t] < least ? times[t] : least;
        if (of_warp[k] < least) of_warp[k] = least;
        if (of_warp[k] > shadow->base) add_known(to, cta + 1 + k, of_warp[k]);
    }
    for (uint32_t t = 0; t < m->warp_count * LANES; t++) {
        const bool own = itself && t / LANES == (uint32_t)w->index && lanes >> t % LANES & 1;
        const uint32_t time = own ? w->clock : times[t];
        if (time > shadow->base && time > of_warp[t / LANES]) add_known(to, cta + 1 + m->warp_count + t, time);
    }
}

/* Combined clock of a warp's lanes; itself: including their last accesses. */
static vector_clock *gather(cta *m, const warp *w, uint32_t lanes, bool itself) {
    const cluster *c = m->cluster;
    vector_clock *known = make(m, (size_t)c->count * (1 + m->warp_count) + m->warp_count * LANES);
    for (uint32_t rank = 0; known && rank < c->count; rank++) {
        if (rank == m->rank) {
            add_own_cta(m, w, lanes, itself, known);
            continue;
        }
        const uint32_t *tail = tail_of(m, row_of(m, w, first_lane(lanes))) + rank * m->warp_count;
        for (uint32_t k = 0; k < m->warp_count; k++)
            if (tail[k]) add_known(known, number_of(m, c->index, rank) + 1 + k, tail[k]);
    }
    event_list *learned = &m->checks->order->learned;
    settle(m, learned, false);
    known = join(m, known, learned->settled);
    for (int i = 0; i < learned->count; i++)
        if (any_is_after(m, w, lanes, &learned->items[i])) known = join(m, known, learned->items[i].what);
    return known;
}

/* Clock released by the fences that precede a thread; narrow: including those of CTA scope. */
static vector_clock *gather_released(cta *m, const warp *w, int lane, bool narrow) {
    event_list *fences = &m->checks->order->fences;
    settle(m, fences, true);
    vector_clock *known = keep(fences->settled);
    for (int i = 0; i < fences->count; i++) {
        const event *e = &fences->items[i];
        uint32_t lanes = 0;
        if (e->narrow && !narrow) continue;
        for (uint32_t rest = e->lanes; rest; rest &= rest - 1) {
            const uint32_t other = (uint32_t)first_lane(rest);
            if (ordered(m, w, lane, e->warp * LANES + other, e->time)) lanes |= 1u << other;
        }
        if (!lanes) continue;
        known = join_and_drop(m, known, released_by(m, e, lanes));
        known = join(m, known, e->what);
    }
    return known;
}

/* ---- addresses ---- */

static size_t slot_of(const races *r, uint64_t address, uint64_t cta) {
    size_t at = (size_t)((address ^ cta << 48) * 0x9e3779b97f4a7c15ull >> 32) & r->address_mask;
    while (r->addresses[at].told && (r->addresses[at].address != address || r->addresses[at].cta != cta))
        at = (at + 1) & r->address_mask;
    return at;
}

static bool make_room(races *r) {
    if (r->addresses && 2 * r->address_count < r->address_mask) return true;
    const size_t mask = r->addresses ? 2 * r->address_mask + 1 : 63, old_mask = r->address_mask;
    told_address *old = r->addresses, *addresses = calloc(mask + 1, sizeof *addresses);
    if (!addresses) return false;
    r->addresses = addresses;
    r->address_mask = mask;
    for (size_t i = 0; old && i <= old_mask; i++)
        if (old[i].told) addresses[slot_of(r, old[i].address, old[i].cta)] = old[i];
    free(old);
    return true;
}

static void tell(cta *m, uint64_t address, uint64_t cta, const vector_clock *what) {
    races *r = races_of(m);
    if (!make_room(r)) {
        m->out_of_memory = m->faulted = true;
        return;
    }
    told_address *slot = &r->addresses[slot_of(r, address, cta)];
    if (!slot->told) r->address_count++;
    *slot = (told_address){address, cta, join(m, slot->told ? slot->told : make(m, 0), what)};
}

void emu_forget_addresses(races *r) {
    for (size_t i = 0; r->addresses && i <= r->address_mask; i++) drop(r->addresses[i].told);
    free(r->addresses);
}

/* The event by which lanes of a warp have what was told; of the instruction at work, or one of the lane alone. */
static event *find_event(event_list *list, const warp *w, int lane, const vector_clock *what) {
    for (int i = 0; i < list->count; i++) {
        event *e = &list->items[i];
        if (e->what == what && e->warp == (uint32_t)w->index && (e->time == w->clock || e->lanes >> lane & 1)) return e;
    }
    return NULL;
}

static void learn(cta *m, warp *w, int lane, unsigned order, uint64_t address, uint64_t cta) {
    checks *const shadow = m->checks;
    const races *r = races_of(m);
    if (!r->addresses) return;
    vector_clock *told = r->addresses[slot_of(r, address, cta)].told;
    event_list *list = order & ORDER_ACQUIRE ? &shadow->order->learned : &shadow->order->read;
    event *known = told ? find_event(list, w, lane, told) : NULL;
    if (known) known->lanes |= 1u << lane;
    if (known || !told) return;
    const uint32_t time = emu_clock_tick(m, w); /* what it told before knows nothing of this */
    add_event(m, list, &(event){(uint32_t)w->index, 1u << lane, time, false, keep(told)}, false);
}

/* ---- instructions ---- */

void emu_global_learn(cta *m, warp *w, int lane, uint64_t address, unsigned order) {
    if (order & ORDER_ACQUIRE) emu_stale_synced(m, w);
    if (!m->checks->order || races_of(m)->merged > MOST_MERGED) return;
    learn(m, w, lane, order, address, 1 + global_cta(races_of(m), m->cluster->index, m->rank));
    if (!(order & ORDER_CTA)) learn(m, w, lane, order, address, 0);
}

struct vector_clock *emu_global_to_tell(cta *m, warp *w, int lane, unsigned order) {
    if (!m->checks->order || races_of(m)->merged > MOST_MERGED) return NULL;
    return order & ORDER_RELEASE ? gather(m, w, 1u << lane, true) : gather_released(m, w, lane, order & ORDER_CTA);
}

void emu_global_told(cta *m, uint64_t address, unsigned order, const struct vector_clock *what) {
    if (!what) return;
    tell(m, address, 1 + global_cta(races_of(m), m->cluster->index, m->rank), what);
    if (!(order & ORDER_CTA)) tell(m, address, 0, what);
}

void emu_global_forget(struct vector_clock *what) {
    drop(what);
}

void emu_global_tell(cta *m, warp *w, int lane, uint64_t address, unsigned order) {
    vector_clock *what = emu_global_to_tell(m, w, lane, order);
    emu_global_told(m, address, order, what);
    drop(what);
}

void emu_global_fence(cta *m, warp *w, uint32_t lanes, unsigned order) {
    checks *const shadow = m->checks;
    if (!shadow->order || !lanes || races_of(m)->merged > MOST_MERGED) return;
    const uint32_t time = emu_clock_tick(m, w);
    event_list *read = &shadow->order->read;
    for (int i = 0; i < read->count; i++) {
        uint32_t after = 0;
        for (uint32_t rest = lanes; rest; rest &= rest - 1)
            if (is_after(m, w, first_lane(rest), &read->items[i])) after |= 1u << first_lane(rest);
        if (!after) continue;
        const event e = {(uint32_t)w->index, after, time, false, keep(read->items[i].what)};
        add_event(m, &shadow->order->learned, &e, false);
    }
    if (read->settled) {
        const event e = {(uint32_t)w->index, lanes, time, false, keep(read->settled)};
        add_event(m, &shadow->order->learned, &e, false);
    }
    const event e = {(uint32_t)w->index, lanes, time, order & ORDER_CTA, gather(m, w, lanes, false)};
    add_event(m, &shadow->order->fences, &e, true);
    emu_clock_tick(m, w);
}
