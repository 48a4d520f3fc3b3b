/* addresses.h - what a lane accesses.
 *
 *     if (touches_global(w, o, lane, &address)) puts("in global memory");
 */
#ifndef FL_EMU_ADDRESSES_H
#define FL_EMU_ADDRESSES_H

#include "machine.h"

/* The actual memory space of an access, for checks and counters. */
static inline state_space effective_space(const op *o, uint64_t address) {
    if (o->space == SPACE_CLUSTER) return SPACE_SHARED;
    if (o->space != SPACE_GENERIC) return (state_space)o->space;
    return address & SHARED_WINDOW  ? SPACE_SHARED
           : address & LOCAL_WINDOW ? SPACE_LOCAL
           : address & PARAM_WINDOW ? SPACE_PARAM
           : address & CONST_WINDOW ? SPACE_CONST
                                    : SPACE_GLOBAL;
}

/* A shared address is relative: see relative_address(). */
static inline uint64_t lane_address(const warp *w, const op *o, unsigned source, int lane) {
    uint64_t base = o->flags & FLAG_WIDE_ADDRESS ? slot64(w, o->r[source])[lane] : slot32(w, o->r[source])[lane];
    const uint64_t address = base + (uint64_t)o->immediate;
    return w->rank_bits && effective_space(o, address) == SPACE_SHARED ? relative_address(w, address) : address;
}

/* True if an access is one of global memory, where the constants are too. */
static inline bool is_in_global(const op *o, uint64_t address) {
    const state_space space = effective_space(o, address);
    return space == SPACE_GLOBAL || space == SPACE_CONST;
}

/* The address that a load, a store or an atomic accesses; whether it is one of global memory. */
static inline bool touches_global(const warp *w, const op *o, int lane, uint64_t *address) {
    *address = lane_address(w, o, o->kind == OP_STORE ? 0 : o->dests, lane);
    return effective_space(o, *address) == SPACE_GLOBAL;
}

#endif
