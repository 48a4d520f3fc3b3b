/* tensor_memory.c - tensor memory of sm_100a: its allocation, and the loads and stores of warps.
 *
 * A CTA has 128 lanes of 512 columns of 32 bits. Each warp reaches the 32 lanes that follow 32 * (its number mod 4).
 * Here every CTA has a tensor memory of its own, whatever else the multiprocessor runs: an allocation waits only for
 * columns of the same CTA. A load and a store happen as they are issued; the checks know that a program may not rely on
 * it (check/tensor_memory.c).
 */
#include "tensor_memory.h"

#include <stdlib.h>

enum { ALLOCATION = 32 /* columns, at least */ };

/* ---- lifecycle ---- */

bool emu_tensor_create(cta *m) {
    m->tensor = calloc(1, sizeof *m->tensor);
    if (m->tensor) m->tensor->words = malloc((size_t)TENSOR_LANES * TENSOR_COLUMNS * sizeof *m->tensor->words);
    return m->tensor && m->tensor->words;
}

static void forget_jobs(tensor_memory *t) {
    for (size_t i = 0; i < t->job_count; i++) free(t->jobs[i].known);
    t->job_count = 0;
}

void emu_tensor_start(cta *m) {
    enum { REMAINS = 0x7fc0dead }; /* of an earlier CTA: a NaN */
    tensor_memory *t = m->tensor;
    if (!t) return;
    for (size_t i = 0; i < (size_t)TENSOR_LANES * TENSOR_COLUMNS; i++) t->words[i] = REMAINS;
    memset(t->allocated, 0, sizeof t->allocated);
    memset(t->issued, 0, sizeof t->issued);
    t->relinquished = false;
    forget_jobs(t);
}

void emu_tensor_free(cta *m) {
    if (!m->tensor) return;
    forget_jobs(m->tensor);
    free(m->tensor->jobs);
    free(m->tensor->words);
    free(m->tensor);
    m->tensor = NULL;
}

/* ---- allocation ---- */

/* The first free columns from `begin` on; -1 where there are none. */
static int find_columns(const tensor_memory *t, uint32_t columns, uint32_t begin) {
    for (uint32_t first = begin; first + columns <= TENSOR_COLUMNS; first += ALLOCATION) {
        bool free_all = true;
        for (uint32_t i = 0; i < columns && free_all; i++) free_all = !t->allocated[first + i];
        if (free_all) return (int)first;
    }
    return -1;
}

static bool check_columns(cta *m, const warp *w, int lane, uint32_t columns, const char *what) {
    if (columns >= ALLOCATION && columns <= TENSOR_COLUMNS && !(columns & (columns - 1))) return true;
    emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, lane, -1, 0,
               "tcgen05.%s of %u columns: their number is a power of two from 32 to 512.", what, columns);
    return false;
}

/* With a seed not at the first columns, as after another CTA of the SM. The CTAs of a pair get the same. */
static int choose_columns(const cta *m, uint32_t columns) {
    const bool elsewhere = m->launch->schedule && m->cluster->count == 1 && columns <= TENSOR_COLUMNS / 2;
    const uint32_t begin = elsewhere ? ALLOCATION * (uint32_t)(m->random >> 33 & 7) : 0;
    const int first = find_columns(m->tensor, columns, begin);
    return first < 0 && begin ? find_columns(m->tensor, columns, 0) : first;
}

static void allocate(cta *m, warp *w, const op *o, uint32_t mask) {
    tensor_memory *t = m->tensor;
    const int lane = first_lane(mask);
    const uint32_t columns = slot32(w, o->r[1])[lane];
    if (!check_columns(m, w, lane, columns, "alloc")) return;
    if (t->relinquished) {
        emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, lane, -1, 0,
                   "tcgen05.alloc after tcgen05.relinquish_alloc_permit: this CTA may not allocate anymore.");
        return;
    }
    const int first = choose_columns(m, columns);
    if (first < 0) {
        emu_try_again(m, w, o, mask); /* when columns have been freed */
        w->state = WARP_AT_TENSOR;
        return;
    }
    uint64_t address = slot64(w, o->r[0])[lane];
    if (address & SHARED_WINDOW) address -= SHARED_WINDOW;
    address = relative_address(w, address);
    uint8_t *bytes = emu_translate(m, w, SPACE_SHARED, address, 4, lane, "writes the address of tensor memory to");
    if (!bytes) return;
    for (uint32_t i = 0; i < columns; i++) t->allocated[first + (int)i] = (uint16_t)(1 + first);
    if (m->checks) emu_on_shared_write(m, w, lane, (uint32_t)address, 4, NULL);
    const uint32_t value = (uint32_t)first;
    memcpy(bytes, &value, sizeof value);
    if (m->checks) emu_on_warp_barrier(m, w, mask); /* all its lanes write it */
    m->changes++;
}

static void deallocate(cta *m, warp *w, const op *o, int lane) {
    tensor_memory *t = m->tensor;
    const uint32_t address = slot32(w, o->r[0])[lane], columns = slot32(w, o->r[1])[lane];
    const uint32_t first = tensor_column(address);
    if (!check_columns(m, w, lane, columns, "dealloc")) return;
    bool own = first + columns <= TENSOR_COLUMNS &&
               (first + columns == TENSOR_COLUMNS || t->allocated[first + columns] != first + 1);
    for (uint32_t i = 0; i < columns && own; i++) own = t->allocated[first + i] == first + 1;
    if (!own) {
        emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, lane, -1, address,
                   "tcgen05.dealloc of %u columns at 0x%x: no tcgen05.alloc of this CTA gave these, or they are free "
                   "already.",
                   columns, address);
        return;
    }
    if (m->checks) emu_on_tensor_dealloc(m, w, lane, first, columns);
    memset(t->allocated + first, 0, columns * sizeof *t->allocated);
    for (uint32_t i = 0; i < m->warp_count; i++)
        if (m->warps[i].state == WARP_AT_TENSOR) m->warps[i].state = WARP_READY;
}

void emu_exec_tensor_alloc(cta *m, warp *w, const op *o, uint32_t mask) {
    if (o->detail == TENSOR_ALLOC)
        allocate(m, w, o, mask);
    else if (o->detail == TENSOR_DEALLOC)
        deallocate(m, w, o, first_lane(mask));
    else
        m->tensor->relinquished = true;
}

void emu_describe_tensor(const cta *m, const warp *w, char *out, size_t bytes) {
    const op *o = &m->code->ops[w->pc];
    uint32_t taken = 0;
    for (uint32_t i = 0; i < TENSOR_COLUMNS; i++) taken += m->tensor->allocated[i] != 0;
    snprintf(out, bytes, "\n  it requests %u adjacent columns of tensor memory; %u of the 512 are allocated",
             slot32(w, o->r[1])[first_lane(w->active)], taken);
}

void emu_check_tensor_exit(cta *m) {
    tensor_memory *t = m->tensor;
    if (!t) return;
    for (size_t i = 0; i < t->job_count; i++) {
        const tensor_job *job = &t->jobs[i];
        if (job->o->kind == OP_TENSOR_COMMIT) continue;
        m->here = job->o->instruction;
        emu_report(m, EMU_TMEM_IN_FLIGHT, UINT32_MAX, &m->warps[job->warp], job->lane, -1, 0,
                   "The CTA ends while this tcgen05 instruction may still be at work.\n"
                   "tcgen05.commit must follow it, and a wait for the phase of its mbarrier.");
        break;
    }
    for (uint32_t i = 0; i < TENSOR_COLUMNS; i++) {
        if (!t->allocated[i]) continue;
        emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, NULL, -1, -1, i,
                   "The CTA ends with tensor memory from column %u on allocated: tcgen05.dealloc is missing.\n"
                   "Another CTA of the multiprocessor would wait for it forever.",
                   i);
        break;
    }
}

/* ---- loads and stores ---- */

/* PTX ISA, "Tensor Memory and Register load/store": which element a register of a lane has. The distance of the halves
 * of 16x32bx2 counts columns, packed or not: Triton's sums in f16 with 64 rows rely on it. */
void emu_tensor_element(const op *o, uint32_t reg, uint32_t lane, uint32_t *row, uint32_t *column) {
    switch (o->detail & 7) {
    case SHAPE_16X64:
        *row = lane / 4 + 8 * (lane % 2), *column = lane / 2 % 2 + 2 * reg;
        break;
    case SHAPE_16X128:
        *row = lane / 4 + 8 * (reg % 2), *column = lane % 4 + 4 * (reg / 2);
        break;
    case SHAPE_16X256:
        *row = lane / 4 + 8 * (reg / 2 % 2), *column = reg % 2 + 2 * (lane % 4) + 8 * (reg / 4);
        break;
    case SHAPE_16X32X2:
        *row = lane % 16, *column = reg;
        break;
    default:
        *row = lane, *column = reg;
    }
    if (o->detail & TENSOR_PACKED) *column *= 2;
    if ((o->detail & 7) == SHAPE_16X32X2) *column += lane / 16 * (uint32_t)o->immediate;
}

/* True if an access is inside of what is allocated; false after a report. A warp reaches its own 32 lanes only. In
 * DeepGEMM, FlashMLA and CUTLASS's example 93 every warp names lanes of the first one, and the hardware takes those of
 * the warp. PTX does not allow it, and code of `ptxas -g-tensor-memory-access-check` traps. No published code shows
 * what the lanes of another warp do, so they are always reported. */
static bool check_access(cta *m, const warp *w, const op *o, uint32_t *at) {
    const bool stores = o->kind == OP_TENSOR_STORE, packed = o->detail & TENSOR_PACKED;
    const uint32_t rows = (o->detail & 7) == SHAPE_32X32 ? 32 : 16, slab = 32 * ((uint32_t)w->index % 4);
    const uint32_t lane = tensor_lane(*at), address = (slab + lane % 32) << 16 | tensor_column(*at);
    const bool fits = lane % rows == 0, names_first = lane < 32 && !m->launch->strict_tcgen05;
    const char *name = stores ? "tcgen05.st" : "tcgen05.ld";
    if (!fits)
        emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, 0, -1, *at,
                   "%s begins at lane %u of tensor memory: with this shape it begins at a multiple of %u lanes.", name,
                   lane, rows);
    else if (lane % TENSOR_LANES / 32 != slab / 32 && !names_first)
        emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, 0, -1, *at,
                   "%s of warp %d touches lanes %u to %u of tensor memory: that warp reaches lanes %u to %u.", name,
                   w->index, lane, lane + rows - 1, slab, slab + 31);
    if (!fits) return false;
    *at = address;
    for (uint32_t k = 0; k < o->vector; k++) {
        for (uint32_t l = 0; l < LANES; l++) {
            uint32_t row, column;
            emu_tensor_element(o, (uint32_t)o->target + k, l, &row, &column);
            column += tensor_column(address);
            const uint32_t last = column + packed;
            if (last < TENSOR_COLUMNS && m->tensor->allocated[column] && m->tensor->allocated[last]) continue;
            emu_report(m, EMU_OUT_OF_BOUNDS, UINT32_MAX, w, (int)l, -1, address,
                       last < TENSOR_COLUMNS
                           ? "%s at 0x%x touches column %u of tensor memory, which is not allocated (or was freed)."
                           : "%s at 0x%x touches column %u of tensor memory, which has columns 0 to 511.",
                       name, address, last < TENSOR_COLUMNS && m->tensor->allocated[column] ? last : column);
            return false;
        }
    }
    return true;
}

/* The address that the lanes give. All must give the same: the instruction counts the lanes itself. */
static uint32_t address_of(cta *m, const warp *w, uint16_t slot, uint32_t mask) {
    const uint32_t *values = slot32(w, slot), first = values[first_lane(mask)];
    for (; mask; mask &= mask - 1) {
        const int lane = first_lane(mask);
        if (values[lane] == first) continue;
        emu_report(m, EMU_TMEM_MISUSE, UINT32_MAX, w, lane, -1, first,
                   "Lanes of the warp give different addresses in tensor memory: 0x%x and, in lane %d, 0x%x.\n"
                   "Each lane must give that of the warp: the instruction itself goes to the row of each lane.",
                   first, lane, values[lane]);
        break;
    }
    return first;
}

void emu_exec_tensor_load(cta *m, warp *w, const op *o, uint32_t mask) {
    uint32_t address = address_of(m, w, o->r[o->dests], mask);
    const bool packed = o->detail & TENSOR_PACKED;
    if (!check_access(m, w, o, &address)) return;
    for (uint32_t k = 0; k < o->vector; k++) {
        uint32_t *values = slot32(w, o->r[k]);
        for (uint32_t l = 0; l < LANES; l++) {
            uint32_t row, column;
            emu_tensor_element(o, (uint32_t)o->target + k, l, &row, &column);
            const uint32_t *word = tensor_word(m->tensor, tensor_lane(address) + row, tensor_column(address) + column);
            values[l] = packed ? (word[0] & 0xffff) | word[1] << 16 : word[0];
        }
    }
    m->counts[o->instruction].bytes += (uint64_t)o->vector * LANES * sizeof(uint32_t);
    if (m->checks) emu_on_tensor_access(m, w, o, address);
}

void emu_exec_tensor_store(cta *m, warp *w, const op *o, uint32_t mask) {
    uint32_t address = address_of(m, w, o->r[0], mask);
    const bool packed = o->detail & TENSOR_PACKED;
    if (!check_access(m, w, o, &address)) return;
    for (uint32_t k = 0; k < o->vector; k++) {
        const uint32_t *values = slot32(w, o->r[1 + k]);
        for (uint32_t l = 0; l < LANES; l++) {
            uint32_t row, column;
            emu_tensor_element(o, (uint32_t)o->target + k, l, &row, &column);
            uint32_t *word = tensor_word(m->tensor, tensor_lane(address) + row, tensor_column(address) + column);
            word[0] = packed ? values[l] & 0xffff : values[l];
            if (packed) word[1] = values[l] >> 16;
        }
    }
    m->counts[o->instruction].bytes += (uint64_t)o->vector * LANES * sizeof(uint32_t);
    if (m->checks) emu_on_tensor_access(m, w, o, address);
}

void emu_exec_tensor_wait(cta *m, warp *w, const op *o, uint32_t mask) {
    if (m->checks) emu_on_tensor_wait(m, w, o->detail, mask);
}

void emu_exec_tensor_fence(cta *m, warp *w, const op *o, uint32_t mask) {
    (void)mask;
    if (m->checks) emu_on_tensor_fence(m, w, o->detail == FENCE_AFTER_SYNC);
}
