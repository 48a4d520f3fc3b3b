/* stale.c - loads that return an earlier value, where the memory model of PTX lets them: emu_launch.stale, and the runs
 * of an explorer, which chooses the values of strong loads.
 *
 * Each 4 bytes of global and shared memory that a kernel writes keep their last writes. A load that does not happen
 * after a write may return what was there before it, unless something that happens before the load has seen the write
 * or a later one. So a fence or barrier that is missing gives wrong results too, in some runs. Rules stricter than
 * those of PTX are simple here: writes reach memory in one order, a load never returns a later value, atomics and
 * copies use the last value, elements of 8 and 16 bytes are never stale, and a fence.sc shows all writes before it to
 * those who are ordered after a later one. A strong load of an earlier value acquires all that was published there,
 * unless it returns what was there before the launch: then it acquires nothing.
 */
#include "stale.h"
#include "../check/races.h"
#include "../machine/addresses.h"
#include "../machine/crew.h"
#include "../machine/interleaving.h"

#include <stdlib.h>
#include <string.h>

enum { WRITES = 4, READERS = 8, MOST_STALE = 16, GRANULE = 4, MOST_GRANULES = 1 << 20 };

/* A thread's access: by its clock. */
typedef struct seen_by {
    access_note note;
    uint32_t rank;
} seen_by;

typedef struct kept_write {
    seen_by writer;
    uint32_t before, fences; /* the value that it replaced; fence.sc until then */
    uint32_t transition;     /* of an explored run */
    bool strong;
} kept_write;

/* Version n is what write n left; version 0 was there before the launch. */
typedef struct granule {
    uint64_t key;         /* 0: none */
    uint32_t last, least; /* versions: in memory; that loads may still return */
    uint32_t stale;       /* loads that may still be stale */
    kept_write writes[WRITES];
    struct {
        seen_by by;
        uint32_t version;
    } readers[READERS]; /* that saw a version whose write they are not ordered after; version 0: none */
    uint32_t next_reader;
} granule;

struct stale_values {
    granule *granules;
    size_t mask, count;
    uint32_t fences; /* fence.sc so far */
    uint64_t random;
    bool explored;            /* the explorer chooses */
    earlier_value chosen;     /* by it, for the next load */
    uint32_t transition;      /* in progress */
    uint8_t bytes[LANES][16]; /* that loads of a warp read instead */
};

struct stale_values *emu_stale_new(uint64_t seed, bool explored) {
    struct stale_values *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->random = emu_mix(seed ^ 0x5bd1e995);
    s->explored = explored;
    return s;
}

void emu_stale_free(struct stale_values *s) {
    if (!s) return;
    free(s->granules);
    free(s);
}

/* ---- granules ---- */

static granule *slot_of(granule *granules, size_t mask, uint64_t key) {
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15ull >> 32) & mask;
    while (granules[at].key && granules[at].key != key) at = (at + 1) & mask;
    return &granules[at];
}

static bool make_room(struct stale_values *s) {
    if (s->granules && 2 * s->count < s->mask) return true;
    const size_t mask = s->granules ? 2 * s->mask + 1 : 1023;
    granule *more = s->count < MOST_GRANULES ? calloc(mask + 1, sizeof *more) : NULL;
    if (!more) return false;
    for (size_t i = 0; s->granules && i <= s->mask; i++)
        if (s->granules[i].key) *slot_of(more, mask, s->granules[i].key) = s->granules[i];
    free(s->granules);
    s->granules = more;
    s->mask = mask;
    return true;
}

/* NULL where nothing has written, or if there is no room for another. */
static granule *find_granule(struct stale_values *s, uint64_t key, bool add) {
    if (add && !make_room(s)) return NULL;
    granule *g = s->granules ? slot_of(s->granules, s->mask, key) : NULL;
    if (!g || g->key) return g;
    if (!add) return NULL;
    *g = (granule){.key = key, .stale = MOST_STALE};
    s->count++;
    return g;
}

/* Addresses of global memory, and of the shared memory of a CTA. */
static uint64_t key_of(cta *m, const op *o, uint64_t address) {
    if (is_in_global(o, address)) return address / GRANULE + 1;
    uint32_t local = (uint32_t)address;
    const cta *at = o->space == SPACE_SHARED ? m : emu_owner(m, local, &local);
    return 1ull << 63 | (at->cta_index << 20 | local / GRANULE);
}

static bool is_kept(const op *o, uint64_t address) {
    return is_in_global(o, address) || effective_space(o, address) == SPACE_SHARED;
}

/* ---- order ---- */

static seen_by seen_at(const cta *m, const warp *w, int lane, uint32_t clock) {
    return (seen_by){{clock, pack_who(m, w, lane), (uint32_t)m->cluster->index}, m->rank};
}

static bool happens_before(cta *m, const warp *w, int lane, const seen_by *each) {
    return emu_is_before(m, w, lane, &each->note, each->rank);
}

/* True if a load cannot ignore a write. */
static bool must_see(cta *m, const warp *w, int lane, const kept_write *write) {
    return w->fences_known > write->fences || happens_before(m, w, lane, &write->writer);
}

static const kept_write *write_of(const granule *g, uint32_t version) {
    return &g->writes[version % WRITES];
}

/* The earliest version that a load may return: each one that is kept where no fence orders it after the writes. */
static uint32_t least_version(cta *m, const warp *w, int lane, const op *o, const granule *g) {
    uint32_t least = g->last;
    if (o->flags & FLAG_CONSTANT) return g->last - g->least < WRITES ? g->least : g->last - WRITES;
    while (least > g->least && g->last - least < WRITES && !must_see(m, w, lane, write_of(g, least))) least--;
    for (int i = 0; i < READERS; i++)
        if (g->readers[i].version > least && happens_before(m, w, lane, &g->readers[i].by))
            least = g->readers[i].version;
    return least;
}

static void note_reader(cta *m, const warp *w, int lane, granule *g, uint32_t version) {
    if (!version || g->last - version >= WRITES || must_see(m, w, lane, write_of(g, version))) return;
    const uint32_t i = g->next_reader++ % READERS;
    if (g->readers[i].version > g->least) g->least = g->readers[i].version;
    g->readers[i].by = seen_at(m, w, lane, w->clock);
    g->readers[i].version = version;
}

/* ---- accesses ---- */

void emu_stale_write(cta *m, const warp *w, uint32_t clock, int lane, const op *o, uint64_t address,
                     const uint8_t *there, uint32_t bytes) {
    struct stale_values *s = m->stale;
    const bool strong = o->kind == OP_ATOMIC || o->order & ORDER_STRONG;
    if (!is_kept(o, address)) return;
    for (uint64_t at = address / GRANULE * GRANULE; at < address + bytes; at += GRANULE) {
        granule *g = find_granule(s, key_of(m, o, at), strong || !s->explored);
        if (!g) continue;
        kept_write *write = &g->writes[++g->last % WRITES];
        *write = (kept_write){
            .writer = seen_at(m, w, lane, clock), .fences = s->fences, .transition = s->transition, .strong = strong};
        memcpy(&write->before, there - (address - at),
               GRANULE); /* buffers and shared memory begin at multiples of it */
        if (g->last - g->least > WRITES) g->least = g->last - WRITES;
    }
}

/* The version that a load returns. */
static uint32_t choose_explored(cta *m, const warp *w, int lane, granule *g) {
    const uint32_t version = g->key == m->stale->chosen.key ? m->stale->chosen.version : g->last;
    if (m->checks) note_reader(m, w, lane, g, version); /* else the explorer only asks */
    return version;
}

static uint32_t choose(cta *m, const warp *w, int lane, const op *o, granule *g) {
    if (m->stale->explored) return choose_explored(m, w, lane, g);
    const uint32_t least = g->stale ? least_version(m, w, lane, o, g) : g->last;
    struct stale_values *s = m->stale;
    s->random = emu_mix(s->random);
    uint32_t version = g->last;
    if (least < g->last && s->random & 1) version = least + (uint32_t)(s->random >> 8) % (g->last - least);
    if (!(o->flags & FLAG_CONSTANT)) note_reader(m, w, lane, g, version);
    g->stale -= version < g->last;
    return version;
}

/* True if some of a lane's bytes are stale; then they are in s->bytes. */
static bool read_lane(cta *m, warp *w, int lane, const op *o, uint64_t address, const uint8_t *there, uint32_t bytes) {
    struct stale_values *s = m->stale;
    bool any = false;
    for (uint64_t at = address / GRANULE * GRANULE; at < address + bytes; at += GRANULE) {
        granule *g = find_granule(s, key_of(m, o, at), false);
        const uint32_t version = g ? choose(m, w, lane, o, g) : 0;
        if (!g || version == g->last) continue;
        if (!any) memcpy(s->bytes[lane], there, bytes);
        any = true;
        if (!version) w->stale |= 1u << lane;
        const uint8_t *old = (const uint8_t *)&write_of(g, version + 1)->before;
        for (uint32_t i = 0; i < GRANULE; i++)
            if (at + i >= address && at + i < address + bytes) s->bytes[lane][at + i - address] = old[i];
    }
    return any;
}

void emu_stale_load(cta *m, warp *w, const op *o, uint32_t mask, const uint64_t *addresses, uint8_t **bytes) {
    const uint32_t size = (uint32_t)o->bytes * o->vector;
    w->stale = 0;
    for (; o->bytes <= GRANULE && mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (!bytes[lane] || !is_kept(o, addresses[lane])) continue;
        if (!read_lane(m, w, lane, o, addresses[lane], bytes[lane], size)) continue;
        bytes[lane] = m->stale->bytes[lane];
        m->changes += !m->stale->explored; /* a poll that finds the value of before is to ask again */
    }
}

/* ---- what an explorer chooses ---- */

static bool is_listed(const earlier_value *values, size_t count, uint64_t key) {
    for (size_t i = 0; i < count; i++)
        if (values[i].key == key) return true;
    return false;
}

size_t emu_stale_list(cta *m, const warp *w, const op *o, uint32_t lanes, const uint64_t *addresses,
                      earlier_value *values, size_t room) {
    const uint32_t bytes = (uint32_t)o->bytes * o->vector;
    size_t count = 0;
    for (; o->bytes <= GRANULE && lanes; lanes &= lanes - 1) {
        const int lane = first_lane(lanes);
        if (!is_kept(o, addresses[lane]) || emu_own_delayed(m, w, UINT32_MAX, lane, addresses[lane], bytes)) continue;
        for (uint64_t at = addresses[lane] / GRANULE * GRANULE; at < addresses[lane] + bytes; at += GRANULE) {
            const granule *g = find_granule(m->stale, key_of(m, o, at), false);
            if (!g || is_listed(values, count, g->key)) continue;
            for (uint32_t v = least_version(m, w, lane, o, g); v < g->last && count < room; v++) {
                const kept_write *next = write_of(g, v + 1);
                if (next->strong) values[count++] = (earlier_value){g->key, v, next->transition};
            }
        }
    }
    return count;
}

void emu_stale_choose(struct stale_values *s, const earlier_value *value, uint32_t transition) {
    s->chosen = value ? *value : (earlier_value){0};
    s->transition = transition;
}

/* ---- fences ---- */

void emu_stale_synced(const cta *m, warp *w) {
    if (m->stale) w->fences_known = m->stale->fences;
}

void emu_stale_fence(const cta *m, warp *w, const op *o) {
    emu_stale_synced(m, w);
    if (m->stale && o->order & ORDER_SC) m->stale->fences++;
}
