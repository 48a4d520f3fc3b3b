/* undefined.c - values that nothing gave: followed from where they come to where they matter.
 *
 * A register that its lane never wrote, or that was loaded from shared memory that nothing had written, holds an
 * undefined value in that lane. Reading it is harmless, as in the last tile of a matrix, whose surplus elements are
 * computed and dropped. So a mask of lanes goes with the register from instruction to instruction, and it is a finding
 * where an undefined value becomes an address, decides a branch or whether an instruction has an effect, goes to global
 * memory. Through shared memory, shuffles and mma it is followed, by cell, by lane and by row and column. Votes and
 * their like, which ask all lanes, are an end too.
 *
 * A warp counts the registers with such a mask: as long as there are none, nothing is done.
 */
#include "races.h"

#include <inttypes.h>
#include <string.h>

enum { FROM_REGISTER = 1u << 30, FROM_TENSOR = 1u << 29, FROM_SHUFFLE = 1u << 28, WHAT = FROM_SHUFFLE - 1 };

static undefined *of_predicate(const cta *m, const warp *w, unsigned p) {
    return &w->undefined[m->code->slot_count + p];
}

/* Some lanes of a register, or none; where there are any, from tells where they come from. */
static void set_lanes(warp *w, undefined *to, uint32_t lanes, const undefined *from) {
    w->undefined_count += (lanes != 0) - (to->lanes != 0);
    if (lanes && from != to) to->origin = from->origin, to->address = from->address, to->given = 0;
    to->lanes = lanes;
}

/* The lanes of a mask get what from has of them. */
static void put_lanes(warp *w, undefined *to, uint32_t mask, uint32_t lanes, const undefined *from) {
    uint32_t whole = (to->lanes & ~mask) | (lanes & mask);
    if (whole | to->lanes) set_lanes(w, to, whole, lanes & mask ? from : to);
}

void emu_on_call(const entry *code, warp *w, const routine *to, uint32_t mask) {
    for (uint32_t i = 0; i < code->unset_count; i++) {
        const uint32_t v = code->unset[i];
        const bool predicate = v >= code->register_count;
        const uint32_t p = predicate ? v - (uint32_t)code->register_count : 0;
        const uint32_t first = predicate ? to->predicate_begin : to->register_begin;
        const uint32_t end = predicate ? to->predicate_end : to->register_end, own = predicate ? p : v;
        if (own < first || own >= end) continue;
        const undefined from = {.origin = FROM_REGISTER | (predicate ? code->predicate_names[p] : v)};
        undefined *value = &w->undefined[predicate ? code->slot_count + p : code->registers[v].slot];
        set_lanes(w, value, value->lanes | mask, &from);
    }
}

void emu_start_undefined(cta *m, warp *w) {
    w->undefined_count = w->undefined_stores = 0;
    memset(w->undefined, 0, (m->code->slot_count + m->code->predicate_count + 1) * sizeof *w->undefined);
    emu_on_call(m->code, w, &m->code->routines[0], w->present);
}

void emu_save_undefined(const entry *code, const warp *w, const routine *of, uint32_t *saved) {
    for (uint32_t slot = of->slot_begin; slot < of->slot_end; slot++) *saved++ = w->undefined[slot].lanes;
    for (uint32_t p = of->predicate_begin; p < of->predicate_end; p++)
        *saved++ = w->undefined[code->slot_count + p].lanes;
}

void emu_restore_undefined(const entry *code, warp *w, const routine *of, const uint32_t *saved, uint32_t mask) {
    const uint32_t slots = of->slot_end - of->slot_begin, predicates = of->predicate_end - of->predicate_begin;
    for (uint32_t i = 0; i < slots + predicates; i++) {
        undefined *value =
            &w->undefined[i < slots ? of->slot_begin + i : code->slot_count + of->predicate_begin + i - slots];
        put_lanes(w, value, mask, saved[i], value);
    }
}

void emu_on_undefined_load(cta *m, warp *w, unsigned slot, uint32_t lanes, uint64_t address, bool stored) {
    const undefined read = {.origin = m->here, .address = address};
    if (lanes) set_lanes(w, &w->undefined[slot], w->undefined[slot].lanes | lanes, stored ? &m->checks->stored : &read);
}

void emu_on_undefined_tensor_load(cta *m, warp *w, unsigned slot, uint32_t lanes, uint32_t address) {
    const undefined read = {.origin = FROM_TENSOR | m->here, .address = address};
    set_lanes(w, &w->undefined[slot], w->undefined[slot].lanes | lanes, &read);
}

void emu_on_undefined_shuffle(cta *m, warp *w, unsigned slot, uint32_t lanes) {
    const undefined read = {.origin = FROM_SHUFFLE | m->here};
    set_lanes(w, &w->undefined[slot], w->undefined[slot].lanes | lanes, &read);
}

/* ---- where a value matters ---- */

static void report_use(cta *m, warp *w, undefined *value, uint32_t lanes, const char *use) {
    const uint32_t what = value->origin & WHAT;
    if (value->origin & FROM_REGISTER) {
        char name[64];
        emu_register_name(&m->code->registers[what], name, sizeof name);
        emu_report(
            m, EMU_UNINITIALISED_REGISTER, UINT32_MAX, w, first_lane(lanes), -1, 0,
            "This instruction uses an uninitialized value %s.\n"
            "It comes from register %s, which %u lane%s of the warp never wrote: on a device it holds whatever was "
            "left in it.\n"
            "Assign it on every path that leads here.",
            use, name, population(lanes), population(lanes) == 1 ? "" : "s");
    } else if (value->origin & FROM_SHUFFLE) {
        emu_report(m, EMU_DIVERGENT_SYNC, what, w, first_lane(lanes), -1, 0,
                   "This instruction uses an undefined value %s.\n"
                   "A shuffle read it from a lane that does not take part in the shuffle.\n"
                   "Let all lanes that are read execute the shuffle, or drop the value.",
                   use);
    } else if (value->address >> BUFFER_SHIFT) {
        char where[160];
        emu_describe_global(m, value->address, where, sizeof where);
        emu_report(m, EMU_UNINITIALISED_GLOBAL, what, w, first_lane(lanes), -1, value->address,
                   "This instruction uses an uninitialized value %s.\n"
                   "It was read from global memory at %s, which nothing has written since it was allocated.\n"
                   "Set it first, for example by cudaMemset().",
                   use, where);
    } else if (value->origin & FROM_TENSOR) {
        emu_report(m, EMU_TMEM_UNINITIALISED, what, w, first_lane(lanes), -1, value->address,
                   "This instruction uses an uninitialized value %s.\n"
                   "It was read from tensor memory, lane %u of column %u, which was not written since the columns were "
                   "allocated, or only with an uninitialized value.",
                   use, (unsigned)(value->address >> 16), (unsigned)(value->address & 0xffff));
    } else {
        for (uint32_t rest = lanes; rest; rest &= rest - 1)
            emu_report(m, EMU_UNINITIALISED_SHARED, what, w, first_lane(rest), -1, value->address,
                       "This instruction uses an uninitialized value %s.\n"
                       "It was read from shared memory at 0x%x, which this CTA has not written: it holds data of "
                       "an earlier CTA.",
                       use, (uint32_t)value->address);
    }
    set_lanes(w, value, value->lanes & ~lanes, value); /* once is enough */
}

static void use_source(cta *m, warp *w, const op *o, int source, uint32_t mask, const char *use) {
    undefined *value = &w->undefined[o->r[o->dests + source]];
    if (value->lanes & mask) report_use(m, w, value, value->lanes & mask, use);
}

static void use_sources(cta *m, warp *w, const op *o, int first, uint32_t mask, const char *use) {
    for (int i = first; i < o->sources; i++) use_source(m, w, o, i, mask, use);
}

static void use_predicates(cta *m, warp *w, const op *o, uint32_t mask, const char *use) {
    const unsigned read[2] = {o->p[1], o->p[2]};
    for (int i = 0; i < 2; i++) {
        if (read[i] == NO_PREDICATE || (i == 0 && o->kind != OP_PREDICATE)) continue;
        undefined *value = of_predicate(m, w, read[i]);
        if (value->lanes & mask) report_use(m, w, value, value->lanes & mask, use);
    }
}

/* ---- what passes a value on ---- */

static void set_results(cta *m, warp *w, const op *o, uint32_t mask, uint32_t lanes, const undefined *from) {
    for (int i = 0; i < o->dests; i++) put_lanes(w, &w->undefined[o->r[i]], mask, lanes, from);
    if (o->p[0] != NO_PREDICATE) put_lanes(w, of_predicate(m, w, o->p[0]), mask, lanes, from);
    if (o->kind == OP_COMPARE && o->p[1] != NO_PREDICATE) put_lanes(w, of_predicate(m, w, o->p[1]), mask, lanes, from);
}

/* Lanes in which a predicate has this value and a defined one; none where there is no predicate. */
static uint32_t known_lanes(const cta *m, const warp *w, unsigned p, bool negated, bool value) {
    if (p == NO_PREDICATE) return 0;
    uint32_t is = w->predicates[p] ^ (negated ? ALL_LANES : 0);
    return (value ? is : ~is) & ~of_predicate(m, w, p)->lanes;
}

/* Lanes whose result is defined though a source is not: false and x, true or x. */
static uint32_t decided_lanes(const cta *m, const warp *w, const op *o) {
    bool negated = o->flags & FLAG_PREDICATE_NEGATED;
    if (o->kind == OP_COMPARE && o->detail == COMBINE_AND) return known_lanes(m, w, o->p[2], negated, false);
    if (o->kind == OP_COMPARE && o->detail == COMBINE_OR) return known_lanes(m, w, o->p[2], negated, true);
    if (o->kind != OP_PREDICATE || (o->detail != PREDICATE_AND && o->detail != PREDICATE_OR)) return 0;
    bool value = o->detail == PREDICATE_OR;
    return known_lanes(m, w, o->p[1], false, value) | known_lanes(m, w, o->p[2], false, value);
}

/* Bits of a part, where the op puts two side by side. */
static uint32_t packed_bits(const op *o) {
    if (o->kind != OP_LANES) return 0;
    return o->run.lanes == emu_lanes_pack_8    ? 8
           : o->run.lanes == emu_lanes_pack_16 ? 16
           : o->run.lanes == emu_lanes_pack_32 ? 32
                                               : 0;
}

static void pass_on(cta *m, warp *w, const op *o, uint32_t mask) {
    uint32_t lanes = 0;
    const undefined *from = NULL;
    for (int i = 0; i < o->sources; i++) {
        const undefined *value = &w->undefined[o->r[o->dests + i]];
        uint32_t taken = value->lanes;
        if (o->run.lanes == emu_lanes_pack_32 && o->kind == OP_LANES && m->code->uses_f32x2)
            taken &= w->undefined[o->r[1]].lanes & w->undefined[o->r[2]].lanes; /* half of a pair of f32 */
        if (o->kind == OP_SELECT) taken &= i == 0 ? w->predicates[o->p[2]] : ~w->predicates[o->p[2]];
        if (taken & mask) lanes |= taken, from = value;
    }
    for (int i = 1; i < 3; i++) {
        if (o->p[i] == NO_PREDICATE || (i == 1 && o->kind == OP_COMPARE)) continue;
        const undefined *value = of_predicate(m, w, o->p[i]);
        if (value->lanes & mask) lanes |= value->lanes, from = value;
    }
    lanes &= ~decided_lanes(m, w, o);
    const undefined origin = from ? *from : (undefined){0}; /* a destination may be the very source */
    const uint32_t part = packed_bits(o);
    const undefined *low = part ? &w->undefined[o->r[1]] : NULL;
    const uint32_t given = low && low->lanes & mask ? low->given : part;
    set_results(m, w, o, mask, lanes, &origin);
    if (part && !(w->undefined[o->r[0]].lanes & ~mask)) w->undefined[o->r[0]].given = given;
}

/* Each lane gets what it takes; a lane that is asked for by an undefined number is a use. */
static void follow_shuffle(cta *m, warp *w, const op *o, uint32_t mask) {
    for (int i = 1; i < o->sources; i++) use_source(m, w, o, i, mask, "as a lane of a shuffle");
    const undefined from = w->undefined[o->r[o->dests]];
    uint32_t lanes = 0;
    bool within;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        lanes |= (from.lanes >> shuffled_from(w, o, lane, &within) & 1) << lane;
    }
    put_lanes(w, &w->undefined[o->r[0]], mask, lanes, &from);
    if (o->p[0] != NO_PREDICATE) put_lanes(w, of_predicate(m, w, o->p[0]), mask, 0, &from);
}

/* An element of the result is undefined where one of its row of A, its column of B or its own summand is. */
static void follow_mma(warp *w, const op *o) {
    const int others = o->sources - o->dests, count_a = others == 2 ? 1 : others * 2 / 3;
    const undefined *from = NULL;
    uint32_t rows = 0, columns = 0, results[MAX_OPERANDS];
    for (int i = 0; i < others; i++) {
        const undefined *value = &w->undefined[o->r[o->dests + i]];
        if (value->lanes) from = value;
        for (uint32_t rest = value->lanes; rest; rest &= rest - 1) {
            int group = first_lane(rest) / 4;
            if (i < count_a)
                rows |= 1u << (group + 8 * (i & 1));
            else
                columns |= 1u << group;
        }
    }
    for (int i = 0; i < o->dests; i++) {
        const undefined *sum = &w->undefined[o->r[o->dests + others + i]];
        if (sum->lanes) from = sum;
        results[i] = sum->lanes;
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t row = 1u << (lane / 4 + (o->dests == 4 ? 8 * (i / 2) : 0));
            uint32_t column = o->dests == 4 ? 1u << (lane % 4 * 2 + i % 2) : 3u << lane % 4 * 2;
            if (o->dests != 4) row |= row << 8;
            if (rows & row || columns & column) results[i] |= 1u << lane;
        }
    }
    const undefined origin = from ? *from : (undefined){0};
    for (int i = 0; i < o->dests; i++) put_lanes(w, &w->undefined[o->r[i]], ALL_LANES, results[i], &origin);
}

/* Likewise for eight columns of a wgmma: A in registers has rows, and B is in shared memory. */
static void follow_wgmma(cta *m, warp *w, const op *o, uint32_t mask) {
    const bool fragments = o->detail & WGMMA_A_REGISTERS;
    const bool adds = o->p[2] == NO_PREDICATE ? o->detail & WGMMA_ADDS : w->predicates[o->p[2]] & mask;
    uint32_t rows[2] = {0};
    undefined from = {0};
    use_source(m, w, o, WGMMA_B, mask, "as a descriptor");
    if (!fragments) use_source(m, w, o, WGMMA_A, mask, "as a descriptor");
    use_predicates(m, w, o, mask, "as scale-d");
    for (int i = 0; i < 4 && fragments; i++) {
        const undefined *value = &w->undefined[o->r[o->dests + WGMMA_A + i]];
        for (uint32_t rest = value->lanes; rest; rest &= rest - 1) {
            rows[i % 2] |= 0xfu << first_lane(rest) / 4 * 4;
            from = *value;
        }
    }
    for (int i = 0; i < o->dests; i++) {
        undefined *sum = &w->undefined[o->r[i]];
        const uint32_t lanes = rows[o->dests == 4 ? i / 2 : i];
        if (lanes)
            put_lanes(w, sum, ALL_LANES, lanes | (adds ? sum->lanes : 0), &from);
        else if (!adds)
            set_lanes(w, sum, 0, sum);
    }
}

/* A struct is passed with the bytes between and behind its members, which nothing gives: single bytes may be those. */
static void follow_store(cta *m, warp *w, const op *o, uint32_t mask) {
    use_source(m, w, o, 0, mask, "as an address");
    if (o->flags & FLAG_PASSES && o->bytes > 1) use_sources(m, w, o, 1, mask, "as a parameter or result of a function");
    const bool matters = o->space == SPACE_GLOBAL || o->space == SPACE_GENERIC || o->space == SPACE_CLUSTER;
    for (int i = 1; i < o->sources; i++) {
        const undefined *value = &w->undefined[o->r[o->dests + i]];
        if (!(value->lanes & mask) || value->given >= 8u * o->bytes) continue;
        if (matters)
            use_source(m, w, o, i, mask,
                       o->space == SPACE_CLUSTER ? "as data stored to another CTA" : "as data stored to global memory");
        if (o->space != SPACE_SHARED) continue;
        w->undefined_stores |= value->lanes & mask;
        m->checks->stored = *value;
    }
}

typedef enum role {
    PASSES,
    ADDRESS_FIRST,
    ADDRESSES,
    STORES,
    MULTIPLIES,
    WARPGROUP,
    SHUFFLES,
    TELLS_LANES,
    TENSOR_STORES,
    USES
} role;

static role role_of(op_kind kind) {
    switch (kind) {
    case OP_LANES:
    case OP_LANES_4:
    case OP_ROUNDED:
    case OP_CARRY:
    case OP_COMPARE:
    case OP_SELECT:
    case OP_PREDICATE:
    case OP_TEXTURE:
        return PASSES;
    case OP_LOAD:
    case OP_LDMATRIX:
    case OP_TENSOR_LOAD:
        return ADDRESS_FIRST;
    case OP_TENSOR_STORE: /* what is stored: see tensor_memory.c */
        return TENSOR_STORES;
    case OP_COPY_ASYNC:
    case OP_ADDRESS:
    case OP_SURFACE:
        return ADDRESSES;
    case OP_STORE:
        return STORES;
    case OP_MMA:
        return MULTIPLIES;
    case OP_WGMMA:
        return WARPGROUP;
    case OP_SHUFFLE:
        return SHUFFLES;
    case OP_VOTE:
    case OP_REDUX:
    case OP_MATCH:
    case OP_MOVMATRIX:
    case OP_STMATRIX:
        return TELLS_LANES;
    default:
        return USES;
    }
}

static bool touches_undefined(const cta *m, const warp *w, const op *o) {
    uint32_t any = 0;
    for (int i = 0; i < o->dests + o->sources; i++) any |= w->undefined[o->r[i]].lanes;
    for (int i = 0; i < 3; i++) any |= o->p[i] == NO_PREDICATE ? 0 : of_predicate(m, w, o->p[i])->lanes;
    return any || (o->guard != NO_PREDICATE && of_predicate(m, w, o->guard)->lanes);
}

void emu_on_op(cta *m, warp *w, const op *o, uint32_t mask) {
    if (!touches_undefined(m, w, o)) return;
    const role role = role_of((op_kind)o->kind);
    undefined *guard = o->guard == NO_PREDICATE ? NULL : of_predicate(m, w, o->guard);
    uint32_t guarded = guard ? guard->lanes & w->active : 0;
    const undefined doubt = guard ? *guard : (undefined){0};
    bool passes = role == PASSES || role == ADDRESS_FIRST || role == MULTIPLIES;
    if (guarded && !passes)
        report_use(m, w, guard, guarded,
                   o->kind == OP_BRANCH || o->kind == OP_EXIT ? "to choose a branch" : "as its guard");
    if (mask) {
        if (role == PASSES) {
            pass_on(m, w, o, mask);
        } else if (role == MULTIPLIES) {
            follow_mma(w, o);
        } else if (role == WARPGROUP) {
            follow_wgmma(m, w, o, mask);
        } else if (role == SHUFFLES) {
            follow_shuffle(m, w, o, mask);
        } else if (role == STORES) {
            follow_store(m, w, o, mask);
        } else if (role == TENSOR_STORES) {
            use_source(m, w, o, 0, mask, "as an address");
        } else {
            bool addresses = role == ADDRESS_FIRST || role == ADDRESSES;
            use_sources(m, w, o, 0, mask,
                        addresses             ? "as an address"
                        : role == TELLS_LANES ? "as data for other lanes"
                                              : "as an operand");
            use_predicates(m, w, o, mask, role == TELLS_LANES ? "as data for other lanes" : "as an operand");
            set_results(m, w, o, mask, 0, &doubt);
        }
    }
    if (guarded && passes) set_results(m, w, o, guarded, ALL_LANES, &doubt);
}
