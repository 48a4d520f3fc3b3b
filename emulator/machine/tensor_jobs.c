/* tensor_jobs.c - what the tensor core of a CTA has to do: products, copies and shifts, and commits that tell of them.
 *
 * The jobs of a CTA are done as late as the program allows: when no warp can run without them. Then the first commit
 * that a warp waits for is chosen, and all that its warp issued before it is done, with what that must follow. PTX
 * promises an order for few pairs of jobs (keep_order()); with a schedule seed the others are done in any order, and
 * commits come early.
 */
#include "tensor_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- issue ---- */

static tensor_job *new_job(cta *m, const warp *w, const op *o, int lane) {
    tensor_memory *t = m->tensor;
    tensor_job *jobs = cta_reserve(m, t->jobs, t->job_count + 1, &t->job_capacity, sizeof *jobs);
    if (!jobs) return NULL;
    t->jobs = jobs;
    tensor_job *job = &jobs[t->job_count++];
    *job = (tensor_job){
        .o = o, .serial = ++t->issued[w->index], .stamp = w->clock, .warp = w->index, .lane = (uint8_t)lane};
    return job;
}

static void drop_last(tensor_memory *t) {
    tensor_job *job = &t->jobs[--t->job_count];
    t->issued[job->warp]--;
}

/* .cta_group::2 needs the other CTA of the pair; without it the CTA cannot continue. */
static bool has_peer(cta *m, const warp *w, const op *o, int lane) {
    if (!(o->detail & TENSOR_PAIR) || (m->rank | 1u) < m->cluster->count) return true;
    emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, lane, -1, 0,
               "This instruction is .cta_group::2, and the CTA has no partner: the cluster has %u CTA%s.",
               m->cluster->count, m->cluster->count == 1 ? "" : "s");
    m->faulted = true;
    return false;
}

/* True if a region is allocated in a CTA; false after a report. */
static bool check_region(cta *m, const cta *at, const warp *w, const tensor_job *job, const tensor_region *region) {
    for (uint32_t c = region->column; c < region->column + region->columns; c++) {
        if (c < TENSOR_COLUMNS && at->tensor->allocated[c]) continue;
        char whose[40] = "";
        if (at != m) snprintf(whose, sizeof whose, " of the CTA with rank %u", at->rank);
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, job->lane, -1, c,
                   c < TENSOR_COLUMNS
                       ? "%s: columns %u to %u of tensor memory%s; column %u is not allocated (or was freed)."
                       : "%s: columns %u to %u of tensor memory%s; there is no column %u, only 0 to 511.",
                   region->name, region->column, region->column + region->columns - 1, whose, c);
        return false;
    }
    return true;
}

/* PTX ISA, "Shared memory descriptor": bits 46 to 48 are 1, which a descriptor of wgmma does not have. */
static bool check_descriptor(cta *m, const warp *w, const tensor_job *job, const char *name, uint64_t descriptor) {
    const uint64_t unused = 3ull << 14 | 3ull << 30 | 0xffull << 53, version = descriptor >> 46 & 7;
    const unsigned swizzle = (unsigned)(descriptor >> 61);
    char error[160];
    if (descriptor & unused)
        snprintf(error, sizeof error,
                 "its bits 0x%" PRIx64 " belong to no field; addresses and offsets are (value & 0x3ffff) >> 4",
                 descriptor & unused);
    else if (version != 1)
        snprintf(error, sizeof error, "its bits 46 to 48 are %" PRIu64 ", and tcgen05 needs 1 there", version);
    else if (swizzle % 2 && swizzle != 1)
        snprintf(error, sizeof error,
                 "its bits 61 to 63 are %u; swizzles are 0 (none), 1 (128 bytes by 32), 2 (128), 4 (64) and 6 (32)",
                 swizzle);
    else
        return true;
    emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, job->lane, -1, 0, "The descriptor of %s is 0x%" PRIx64 ": %s.", name,
               descriptor, error);
    return false;
}

/* The lane at which an operand in tensor memory begins is a multiple of `unit` up to `last`: all of its lanes exist. */
static bool check_lane(cta *m, const warp *w, const tensor_job *job, const char *name, uint32_t address, uint32_t unit,
                       uint32_t last) {
    const uint32_t lane = tensor_lane(address) % TENSOR_LANES;
    if (lane <= last && lane % unit == 0) return true;
    char rule[48] = "lane 0";
    if (last) snprintf(rule, sizeof rule, "a multiple of %u lanes up to %u", unit, last);
    emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, job->lane, -1, address,
               "The address of %s is 0x%x, lane %u of tensor memory: it must be in %s.", name, address, lane, rule);
    return false;
}

static bool check_operands(cta *m, const warp *w, const tensor_job *job) {
    const unsigned detail = job->o->detail;
    if (job->o->kind == OP_TENSOR_SHIFT) return check_lane(m, w, job, "the rows", job->d, LANES, TENSOR_LANES - LANES);
    if (job->o->kind == OP_TENSOR_COPY) {
        const bool four = job->o->vector == COPY_4X256;
        return check_descriptor(m, w, job, "the source", job->b) &&
               (four || check_lane(m, w, job, "the copy", job->d, 1, 0));
    }
    const tensor_product p = emu_tensor_product(job);
    const uint32_t last = p.rows == 64 && emu_tensor_parts(&p) == 1 ? 16 : 0; /* 64 rows take 16 lanes of each 32 */
    if (!check_lane(m, w, job, "D", job->d, 16, last) || !check_descriptor(m, w, job, "B", job->b)) return false;
    return detail & TENSOR_A_THERE ? check_lane(m, w, job, "A", job->a_there, 16, last)
                                   : check_descriptor(m, w, job, "A", job->a);
}

/* True if D is apart from what the product reads, whose order within one instruction nothing promises. */
static bool check_apart(cta *m, const warp *w, const tensor_job *job, const tensor_region *d,
                        const tensor_region *other) {
    if (!(d->lanes & other->lanes) || d->column + d->columns <= other->column ||
        other->column + other->columns <= d->column)
        return true;
    emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, job->lane, -1, other->column,
               "%s is in columns %u to %u of tensor memory, and %s in columns %u to %u: the two overlap.", d->name,
               d->column, d->column + d->columns - 1, other->name, other->column, other->column + other->columns - 1);
    return false;
}

static bool check_chunks(cta *m, const cta *at, const warp *w, const tensor_job *job, bool of_a) {
    uint32_t addresses[MOST_TENSOR_CHUNKS];
    const uint32_t count = emu_tensor_chunks(job, of_a, addresses);
    for (uint32_t i = 0; i < count; i++) {
        if (inside_shared(at, addresses[i])) continue;
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, job->lane, -1, addresses[i],
                   "The descriptor of %s leads to 0x%x, outside of the %u bytes of shared memory of the CTA%s.",
                   job->o->kind == OP_TENSOR_COPY ? "the source"
                   : of_a                         ? "A"
                                                  : "B",
                   addresses[i], at->shared_bytes, at == m ? "" : " that is its partner");
        return false;
    }
    return true;
}

/* A job whose operands are known: false after a report, where it is dropped. */
static bool check_job(cta *m, const warp *w, const tensor_job *job) {
    tensor_region regions[MOST_TENSOR_REGIONS];
    const uint32_t count = emu_tensor_regions(job, regions);
    if (!check_operands(m, w, job)) return false;
    for (uint32_t i = 1; i < count; i++)
        if (!check_apart(m, w, job, &regions[0], &regions[i])) return false;
    for (uint32_t which = 0; which <= is_pair_job(job); which++) {
        const cta *at = cta_of_job(m, job, which);
        for (uint32_t i = 0; i < count; i++)
            if (!check_region(m, at, w, job, &regions[i])) return false;
        if (!check_chunks(m, at, w, job, true) || !check_chunks(m, at, w, job, false)) return false;
    }
    return true;
}

static void finish_issue(cta *m, warp *w, const tensor_job *job) {
    if (!check_job(m, w, job))
        drop_last(m->tensor);
    else if (m->checks)
        emu_on_tensor_issue(m, w, job);
}

void emu_exec_tensor_mma(cta *m, warp *w, const op *o, uint32_t mask) {
    const uint32_t adds = w->predicates[o->p[2]] ^ (o->flags & FLAG_PREDICATE_NEGATED ? ALL_LANES : 0);
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (!has_peer(m, w, o, lane)) return;
        tensor_job *job = new_job(m, w, o, lane);
        if (!job) return;
        int at = 0;
        job->d = slot32(w, o->r[at++])[lane];
        if (o->detail & TENSOR_A_THERE)
            job->a_there = slot32(w, o->r[at++])[lane];
        else
            job->a = slot64(w, o->r[at++])[lane];
        job->b = slot64(w, o->r[at++])[lane];
        job->how = slot32(w, o->r[at++])[lane];
        if (o->detail & TENSOR_SPARSE) job->indices = slot32(w, o->r[at++])[lane];
        for (int i = 0; i < 2 && o->detail & TENSOR_SCALED; i++) job->scales[i] = slot32(w, o->r[at++])[lane];
        if (o->detail & TENSOR_STATIONARY && at < o->sources) job->zero_columns = slot64(w, o->r[at++])[lane];
        for (int i = 0; at < o->sources; i++) job->lanes_off[i] = slot32(w, o->r[at++])[lane];
        job->adds = adds >> lane & 1;
        const tensor_product p = emu_tensor_product(job);
        char error[160];
        if (emu_tensor_product_error(job, &p, error, sizeof error)) {
            emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, lane, -1, job->how,
                       "The instruction descriptor is 0x%x, with M = %u and N = %u: %s.", job->how, p.m, p.n, error);
            drop_last(m->tensor);
            continue;
        }
        finish_issue(m, w, job);
    }
    if (m->checks) emu_on_epoch(m, w);
}

static void issue_at(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (!has_peer(m, w, o, lane)) return;
        tensor_job *job = new_job(m, w, o, lane);
        if (!job) return;
        job->d = slot32(w, o->r[0])[lane];
        if (o->kind == OP_TENSOR_COPY) job->b = slot64(w, o->r[1])[lane];
        finish_issue(m, w, job);
    }
    if (m->checks) emu_on_epoch(m, w);
}

void emu_exec_tensor_copy(cta *m, warp *w, const op *o, uint32_t mask) {
    issue_at(m, w, o, mask);
}

void emu_exec_tensor_shift(cta *m, warp *w, const op *o, uint32_t mask) {
    issue_at(m, w, o, mask);
}

/* The CTAs whose mbarriers a commit arrives at; 0 after a report. */
static uint32_t ranks_of_commit(cta *m, const warp *w, const op *o, int lane, uint32_t *local) {
    const uint64_t address = relative_address(w, slot64(w, o->r[0])[lane] & ~SHARED_WINDOW);
    const cta *at = emu_expect_owner(m, w, lane, address, "commits to the mbarrier in", local);
    const uint32_t all = (uint32_t)((1ull << m->cluster->count) - 1);
    if (!at) return 0;
    uint32_t ranks = o->detail & TENSOR_MULTICAST ? slot32(w, o->r[1])[lane] & 0xffff : 1u << at->rank;
    if (!ranks || ranks & ~all) {
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, lane, -1, address,
                   "The mask of this tcgen05.commit is 0x%x: it names some of the %u CTAs of the cluster, by rank.",
                   ranks, m->cluster->count);
        ranks &= all;
    }
    for (uint32_t rest = ranks; rest; rest &= rest - 1) {
        const uint32_t rank = (uint32_t)first_lane(rest);
        if (emu_find_mbarrier(&m->cluster->ctas[rank], *local)) continue;
        emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, w, lane, -1, *local,
                   "There is no mbarrier at 0x%x of the CTA with rank %u for this tcgen05.commit: mbarrier.init must "
                   "come first.",
                   *local, rank);
        ranks &= ~(1u << rank);
    }
    return ranks;
}

/* A commit counts what its own thread issued. Reports one whose thread issued nothing that is under way, while another
 * lane of its warp did: the phase may end before that is done. */
static void check_issuer(cta *m, const warp *w, int lane) {
    const tensor_job *other = NULL;
    for (size_t i = m->tensor->job_count; i-- > 0;) {
        const tensor_job *job = &m->tensor->jobs[i];
        if (job->warp != w->index) continue;
        if (job->lane == lane || job->o->kind == OP_TENSOR_COMMIT) return;
        other = job;
    }
    if (other)
        emu_report(m, EMU_TMEM_MISUSE, other->o->instruction, w, lane, w->index * LANES + other->lane, 0,
                   "This tcgen05.commit is executed by lane %d, but lane %u issued what it should wait for.\n"
                   "A commit counts the tcgen05 instructions of its own thread only: one thread must execute both.",
                   lane, other->lane);
}

void emu_exec_tensor_commit(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        uint32_t local;
        const uint32_t ranks = has_peer(m, w, o, lane) ? ranks_of_commit(m, w, o, lane, &local) : 0;
        if (ranks) check_issuer(m, w, lane);
        tensor_job *job = ranks ? new_job(m, w, o, lane) : NULL;
        if (!job) continue;
        job->mbarrier = local;
        job->ranks = ranks;
        if (m->checks) job->known = emu_on_tensor_commit(m, w, job);
    }
    if (m->checks) emu_on_epoch(m, w);
}

/* ---- order ---- */

bool emu_keeps_order(const tensor_job *first, const tensor_job *second, bool strict) {
    const op_kind a = (op_kind)first->o->kind, b = (op_kind)second->o->kind;
    if (a == OP_TENSOR_COMMIT) return false;
    if (b == OP_TENSOR_COMMIT) return first->warp == second->warp;
    if (is_pair_job(first) != is_pair_job(second)) return false;
    if (b == OP_TENSOR_MMA && a != OP_TENSOR_MMA) return true;
    if (a == OP_TENSOR_MMA && b == OP_TENSOR_MMA) { /* into the same accumulators */
        /* PTX promises nothing of A in tensor memory, and CUTLASS's attention writes D there next. */
        if (!strict && first->o->detail & TENSOR_A_THERE) return true;
        const uint32_t shape = 0x1f7e0030; /* M, N and the type of D */
        const bool scaled = first->o->detail & TENSOR_SCALED;
        return first->d == second->d && first->o->bytes == second->o->bytes &&
               !((first->how ^ second->how) & (scaled ? shape & ~0x30u : shape));
    }
    if (b == OP_TENSOR_SHIFT) return a == OP_TENSOR_MMA;
    if (a == OP_TENSOR_SHIFT) return second->o->vector == COPY_4X256;
    return !strict; /* a product or a copy, then a copy: PTX promises nothing, and all code relies on it */
}

/* ---- done ---- */

static void copy_chunk(tensor_memory *t, const tensor_job *job, const uint8_t *from, uint32_t lane, uint32_t column) {
    uint8_t wide[TENSOR_CHUNK];
    const uint32_t bits = job->o->bytes;
    for (uint32_t i = 0; i < TENSOR_CHUNK && bits < 8; i++) { /* numbers of 4 bits are the middle ones of a byte */
        const uint32_t at = i * bits, pair = from[at / 8] | (uint32_t)(at / 8 + 1 < TENSOR_CHUNK ? from[at / 8 + 1] : 0)
                                                                << 8;
        const uint32_t number = pair >> at % 8 & ((1u << bits) - 1);
        wide[i] = (uint8_t)(bits == 4 ? number << 2 : number);
    }
    for (uint32_t i = 0; i < 4; i++) memcpy(tensor_word(t, lane, column + i), (bits < 8 ? wide : from) + 4 * i, 4);
}

static void copy(const cta *at, const tensor_job *job) {
    static const uint32_t rows[] = {128, 4, 128, 64, 64, 32};
    const enum tensor_copy_shape shape = (enum tensor_copy_shape)job->o->vector;
    const tensor_layout l = emu_tensor_layout(job->b, false, 1);
    const uint32_t chunks = shape <= COPY_4X256 ? 2 : 1, base = tensor_lane(job->d);
    for (uint32_t r = 0; r < rows[shape]; r++) {
        for (uint32_t c = 0; c < chunks; c++) {
            const uint8_t *from = emu_tensor_chunk_bytes(at, emu_tensor_chunk(&l, r, c));
            uint32_t lane = r, step = 0, times = 1;
            if (shape == COPY_4X256) lane = 32 * r;
            if (shape == COPY_32X128) step = 32, times = 4;
            if (shape == COPY_64X128_02_13) step = 64, times = 2;
            if (shape == COPY_64X128_01_23) lane = r / 32 * 64 + r % 32, step = 32, times = 2;
            for (uint32_t k = 0; k < times; k++)
                copy_chunk(at->tensor, job, from, base + lane + k * step, tensor_column(job->d) + 4 * c);
        }
    }
}

static void shift(const cta *at, const tensor_job *job) {
    enum { WORDS = 8 };
    const uint32_t first = tensor_lane(job->d), column = tensor_column(job->d);
    for (uint32_t lane = first + LANES - 1; lane > first; lane--)
        for (uint32_t c = 0; c < WORDS; c++)
            *tensor_word(at->tensor, lane, column + c) = *tensor_word(at->tensor, lane - 1, column + c);
}

/* after_all: all CTAs of the cluster have ended, and the arrival shows what it would complete in another order. */
static void arrive(cta *m, const tensor_job *job, bool after_all) {
    for (uint32_t rest = job->ranks; rest; rest &= rest - 1) {
        cta *at = &m->cluster->ctas[first_lane(rest)];
        mbarrier *bar = at->ended && !after_all ? NULL : emu_find_mbarrier(at, job->mbarrier);
        if (!bar) continue;
        if (!bar->pending) {
            emu_report(m, EMU_BARRIER_MISUSE, UINT32_MAX, &m->warps[job->warp], job->lane, -1, bar->address,
                       "The mbarrier at 0x%x gets an arrival by tcgen05.commit in a phase that waits for none.",
                       bar->address);
            continue;
        }
        if (m->checks) emu_on_tensor_arrive(m, job, at, bar);
        const uint32_t here = at->here;
        at->here = job->o->instruction;
        emu_mbarrier_arrive(at, bar, 1);
        at->here = here;
    }
}

static void do_job(cta *m, const tensor_job *job) {
    const uint32_t here = m->here;
    m->here = job->o->instruction;
    m->changes++;
    if (job->o->kind == OP_TENSOR_COMMIT) {
        arrive(m, job, false);
    } else {
        if (job->o->kind == OP_TENSOR_MMA) emu_tensor_multiply(m, job);
        for (uint32_t which = 0; which <= is_pair_job(job) && job->o->kind != OP_TENSOR_MMA; which++) {
            const cta *at = cta_of_job(m, job, which);
            if (job->o->kind == OP_TENSOR_COPY)
                copy(at, job);
            else
                shift(at, job);
        }
        if (m->checks) emu_on_tensor_done(m, job);
    }
    m->here = here;
}

static bool waits_at(const cta *at, uint32_t mbarrier) {
    for (uint32_t i = 0; i < at->warp_count; i++) {
        const warp *w = &at->warps[i];
        if ((w->state == WARP_AT_MBARRIER || w->state == WARP_POLLING) && w->mbarrier_address == mbarrier) return true;
    }
    return false;
}

static bool is_waited_for(const cta *m, const tensor_job *commit) {
    bool waited = false;
    for (uint32_t rest = commit->ranks; rest; rest &= rest - 1)
        waited |= waits_at(&m->cluster->ctas[first_lane(rest)], commit->mbarrier);
    return waited;
}

/* The commit to arrive next: the first that a warp waits for, else the first; with a seed any of the first of a warp.
 */
static size_t choose_commit(const cta *m) {
    const tensor_memory *t = m->tensor;
    size_t first = t->job_count, chosen = t->job_count;
    for (size_t i = t->job_count; i-- > 0;) {
        if (t->jobs[i].o->kind != OP_TENSOR_COMMIT) continue;
        first = i;
        if (is_waited_for(m, &t->jobs[i])) chosen = i;
    }
    return chosen < t->job_count ? chosen : first;
}

/* Marks what must be done for a job: with each what must come before it. */
static void mark_needed(const tensor_memory *t, size_t last, bool strict, bool *needed) {
    needed[last] = true;
    for (size_t i = last; i-- > 0;) {
        for (size_t k = i + 1; k <= last && !needed[i]; k++)
            needed[i] = needed[k] && emu_keeps_order(&t->jobs[i], &t->jobs[k], strict);
    }
}

/* A job that nothing must come before, of those needed: the first, or with a seed any. */
static size_t choose_job(const cta *m, size_t count, const bool *needed) {
    const tensor_memory *t = m->tensor;
    const bool strict = m->launch->strict_tcgen05;
    size_t free_jobs = 0, chosen = 0;
    for (size_t i = 0; i < count; i++) {
        if (!needed[i]) continue;
        bool waits = false;
        for (size_t k = 0; k < i && !waits; k++) waits = needed[k] && emu_keeps_order(&t->jobs[k], &t->jobs[i], strict);
        if (waits) continue;
        if (!free_jobs++) chosen = i;
        if (!m->launch->schedule) break;
        if (emu_mix(m->random ^ i) % free_jobs == 0) chosen = i;
    }
    return chosen;
}

bool emu_land_next_tensor(cta *m) {
    enum { MOST_AT_ONCE = 256 };
    tensor_memory *t = m->tensor;
    if (!t || !t->job_count) return false;
    const size_t commit = choose_commit(m), found = commit < t->job_count ? commit : t->job_count - 1;
    bool few[MOST_AT_ONCE] = {false}, *needed = found < MOST_AT_ONCE ? few : calloc(found + 1, sizeof *needed);
    if (!needed) {
        m->out_of_memory = m->faulted = true;
        return false;
    }
    mark_needed(t, found, m->launch->strict_tcgen05, needed);
    for (size_t count = found + 1, left = count; left;) {
        const size_t next = choose_job(m, count, needed);
        if (!needed[next]) break; /* all are done */
        tensor_job job = t->jobs[next];
        memmove(&t->jobs[next], &t->jobs[next + 1], (--t->job_count - next) * sizeof *t->jobs);
        memmove(&needed[next], &needed[next + 1], (--count - next) * sizeof *needed);
        left--;
        do_job(m, &job);
        free(job.known);
        if (!count) break;
    }
    if (needed != few) free(needed);
    return true;
}

void emu_land_last_commits(cta *m) {
    for (size_t i = 0; m->tensor && i < m->tensor->job_count; i++) {
        const tensor_job *job = &m->tensor->jobs[i];
        if (job->o->kind != OP_TENSOR_COMMIT) continue;
        m->here = job->o->instruction;
        arrive(m, job, true);
    }
}
