/* overlap.c - which operations may overlap on a GPU, though they run one after another here, and races between those.
 *
 * An operation happens after what its stream did, after what the stream waited for by an event, and after what the host
 * had waited for when it enqueued the operation. Streams that are not CU_STREAM_NON_BLOCKING also wait for the legacy
 * default stream, which waits for all of them. Operations are numbered. A lane is a sequence of operations that do not
 * overlap: a stream, or a branch of a graph. A clock has the number of the last operation of each lane that happened
 * before. What the host has waited for happens before all that follows, and is forgotten.
 *
 * Rules that CUDA does not promise but that programs rely on are taken for granted: a copy that the host starts without
 * a stream has happened when it returns, freeing memory waits for all work, and a callback tells the host.
 */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LANES = 1024, MOST_KEPT = 1024 }; /* then branches become one; operations of a lane that are kept */

typedef struct kept_operation {
    uint64_t number;
    emu_footprint *footprint; /* owned */
    struct kept_operation *before;
} kept_operation;

typedef struct lane {
    order_clock clock;    /* of its end */
    kept_operation *last; /* owned: those that the host has not waited for */
    unsigned count;
    bool used, blocking;
} lane;

enum { NO_LANE, LEGACY_LANE };

static lane lanes[MOST_LANES];
static unsigned lane_count = LEGACY_LANE + 1, current = LEGACY_LANE;
static order_clock host;
static uint64_t last_number;
static bool watches; /* there is more than the legacy stream */

/* ---- clocks ---- */

static uint64_t time_in(const order_clock *c, unsigned lane) {
    return lane < c->count ? c->times[lane] : 0;
}

static void set_time(order_clock *c, unsigned lane, uint64_t time) {
    if (lane >= c->count) {
        uint64_t *more = realloc(c->times, (lane + 1) * sizeof *more);
        if (!more) return;
        memset(more + c->count, 0, (lane + 1 - c->count) * sizeof *more);
        c->times = more;
        c->count = lane + 1;
    }
    if (c->times[lane] < time) c->times[lane] = time;
}

static void join(order_clock *to, const order_clock *from) {
    for (unsigned i = 0; i < from->count; i++)
        if (from->times[i]) set_time(to, i, from->times[i]);
}

void free_clock(order_clock *c) {
    free(c->times);
    *c = (order_clock){0};
}

/* ---- lanes ---- */

static void forget(kept_operation **from) {
    while (*from) {
        kept_operation *each = *from;
        *from = each->before;
        emu_footprint_free(each->footprint);
        free(each);
    }
}

/* Forget what the host has waited for: it happened before all that follows. */
static void forget_known(void) {
    for (unsigned i = LEGACY_LANE; i < lane_count; i++) {
        kept_operation **at = &lanes[i].last;
        unsigned left = 0;
        for (; *at && (*at)->number > time_in(&host, i); at = &(*at)->before) left++;
        forget(at);
        lanes[i].count = left;
    }
}

/* A lane that no stream has and nothing is kept of; NO_LANE if there is none. */
static unsigned new_lane(bool blocking) {
    unsigned i = LEGACY_LANE + 1;
    while (i < lane_count && (lanes[i].used || lanes[i].last)) i++;
    if (i == MOST_LANES) return NO_LANE;
    if (i == lane_count) lane_count++;
    free_clock(&lanes[i].clock);
    lanes[i] = (lane){.used = true, .blocking = blocking};
    return i;
}

static unsigned lane_of(CUstream stream) {
    if (stream == find_stream(CU_STREAM_LEGACY)) return LEGACY_LANE;
    if (!stream->lane) stream->lane = new_lane(!(stream->flags & CU_STREAM_NON_BLOCKING));
    return stream->lane ? stream->lane : LEGACY_LANE;
}

void overlap_streams_exist(void) {
    watches = true;
}

void overlap_stream_ends(CUstream stream) {
    if (stream->lane) lanes[stream->lane].used = false; /* its work goes on */
}

/* ---- order ---- */

void overlap_enter(CUstream stream) {
    if (!watches) return;
    current = lane_of(stream);
    order_clock *clock = &lanes[current].clock;
    join(clock, &host);
    if (current != LEGACY_LANE && lanes[current].blocking) join(clock, &lanes[LEGACY_LANE].clock);
    for (unsigned i = LEGACY_LANE + 1; i < lane_count && current == LEGACY_LANE; i++)
        if (lanes[i].blocking) join(clock, &lanes[i].clock);
}

void overlap_join(const order_clock *clock) {
    join(&lanes[current].clock, clock);
}

void overlap_snapshot(order_clock *clock) {
    free_clock(clock);
    join(clock, &lanes[current].clock);
}

void overlap_wait(CUstream stream, const order_clock *clock) {
    overlap_enter(stream);
    overlap_join(clock);
}

void overlap_wait_for_all(CUstream stream) {
    overlap_enter(stream);
    for (unsigned i = LEGACY_LANE; i < lane_count; i++) overlap_join(&lanes[i].clock);
}

void overlap_host_waits(const order_clock *clock) {
    join(&host, clock);
    forget_known();
}

void overlap_host_waits_for_current(void) {
    overlap_host_waits(&lanes[current].clock);
}

void overlap_host_waits_for_stream(CUstream stream) {
    overlap_enter(stream);
    overlap_host_waits_for_current();
}

void overlap_host_waits_for_all(void) {
    for (unsigned i = LEGACY_LANE; i < lane_count; i++) join(&host, &lanes[i].clock);
    forget_known();
}

/* ---- graphs ---- */

unsigned overlap_current(void) {
    return current;
}

unsigned overlap_branch(void) {
    const unsigned made = new_lane(false);
    return made ? made : current;
}

void overlap_continue(unsigned lane) {
    current = lane;
}

void overlap_branch_ends(unsigned lane) {
    lanes[lane].used = false;
}

/* ---- operations ---- */

bool overlap_is_watched(void) {
    return watches;
}

/* Findings of the operation with those of other lanes that are not ordered before it. A recording has the first. */
static void compare(const emu_footprint *now, const char *name) {
    bool is_recorded = false;
    for (unsigned i = LEGACY_LANE; i < lane_count; i++) {
        const uint64_t known = time_in(&lanes[current].clock, i);
        for (const kept_operation *k = lanes[i].last; i != current && k && k->number > known; k = k->before) {
            emu_finding found;
            if (!emu_compare_footprints(the_driver()->device, now, k->footprint, getenv("EMULATED_GPU_IGNORE"), &found))
                continue;
            note_finding_of(&found, name);
            if (!is_recorded) record_race(name, found.message);
            is_recorded = true;
            free((void *)(uintptr_t)found.message);
        }
    }
}

/* Keep only the last operations of a lane. */
static void forget_oldest(lane *of) {
    kept_operation **at = &of->last;
    for (unsigned i = 0; i < MOST_KEPT / 2 && *at; i++) at = &(*at)->before;
    forget(at);
    of->count = MOST_KEPT / 2;
}

void overlap_note(emu_footprint *footprint, const char *name) {
    kept_operation *kept = footprint ? malloc(sizeof *kept) : NULL;
    if (!kept) {
        emu_footprint_free(footprint);
        return;
    }
    lane *own = &lanes[current];
    *kept = (kept_operation){++last_number, footprint, own->last};
    set_time(&own->clock, current, kept->number);
    compare(footprint, name);
    own->last = kept;
    if (++own->count > MOST_KEPT) forget_oldest(own);
}
