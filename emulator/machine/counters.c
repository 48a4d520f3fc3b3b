/* counters.c - what accesses cost by the documented rules: shared-memory wavefronts and global sectors.
 *
 * Shared memory has 32 banks of 4 bytes. A request is served in phases of 32, 16 or 8 lanes for 4, 8 or 16 bytes a
 * lane; a phase needs as many wavefronts as the bank with the most different words. Lanes that read the same word share
 * it.
 */
#include "machine.h"

/* Wavefronts of one phase of 16-byte rows: rows that share the four banks of a row need a wavefront each. */
static uint32_t row_wavefronts(const uint32_t *rows, int count) {
    uint32_t seen = 0;
    for (int i = 0; i < count; i++) seen |= 1u << (rows[i] >> 4 & 7);
    if (population(seen) == (uint32_t)count) return 1;
    uint32_t most = 1;
    uint8_t different[8] = {0};
    for (int i = 0; i < count; i++) {
        uint32_t known = 0;
        for (int j = 0; j < i; j++) known |= rows[j] >> 4 == rows[i] >> 4;
        different[rows[i] >> 4 & 7] += known ? 0 : 1;
    }
    for (int bank = 0; bank < 8; bank++) most = different[bank] > most ? different[bank] : most;
    return most;
}

static uint32_t word_wavefronts(const uint32_t *addresses, const bool *on, int lanes, uint32_t bytes) {
    uint32_t words[64], most = 0, count = 0;
    uint8_t load[32] = {0};
    for (int i = 0; i < lanes; i++) {
        if (!on[i]) continue;
        for (uint32_t word = addresses[i] >> 2; word <= (addresses[i] + bytes - 1) >> 2; word++) {
            bool known = false;
            for (uint32_t k = 0; k < count && !known; k++) known = words[k] == word;
            if (known) continue;
            words[count++] = word;
            if (++load[word & 31] > most) most = load[word & 31];
        }
    }
    return most;
}

void emu_count_shared(cta *m, const op *o, const uint32_t *addresses, uint32_t bytes, uint32_t mask) {
    op_counts *counts = &m->counts[o->instruction];
    int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    counts->requests++;
    counts->bytes += (uint64_t)population(mask) * bytes;
    for (int first = 0; first < LANES; first += lanes) {
        uint32_t phase = mask >> first & (lanes == 32 ? ALL_LANES : (1u << lanes) - 1);
        if (!phase) continue;
        counts->ideal++;
        if (bytes == 16 && phase == 0xff) {
            counts->wavefronts += row_wavefronts(addresses + first, 8);
            continue;
        }
        bool on[LANES];
        uint32_t banks = 0;
        for (int i = 0; i < lanes; i++) {
            on[i] = phase >> i & 1;
            if (on[i]) banks |= 1u << (addresses[first + i] >> 2 & 31);
        }
        bool each_own_bank = bytes == 4 && population(banks) == population(phase);
        counts->wavefronts += each_own_bank ? 1 : word_wavefronts(addresses + first, on, lanes, bytes);
    }
}

void emu_count_ldmatrix(cta *m, const op *o, const uint32_t *addresses, unsigned matrices) {
    op_counts *counts = &m->counts[o->instruction];
    counts->requests++;
    counts->bytes += matrices * 128ull;
    counts->ideal += matrices;
    for (unsigned k = 0; k < matrices; k++) counts->wavefronts += row_wavefronts(addresses + 8 * k, 8);
}

void emu_count_global(cta *m, const op *o, const uint64_t *addresses, uint32_t bytes, uint32_t mask) {
    op_counts *counts = &m->counts[o->instruction];
    uint64_t sectors[2 * LANES], last = UINT64_MAX;
    int count = 0;
    for (; mask; mask &= mask - 1) {
        int lane = first_lane(mask);
        uint64_t sector = addresses[lane] >> 5;
        counts->bytes += bytes;
        if (sector == last) continue; /* neighbors mostly share theirs */
        last = sector;
        bool known = false;
        for (int k = count - 1; k >= 0 && !known; k--) known = sectors[k] == sector;
        if (!known) sectors[count++] = sector;
    }
    counts->requests++;
    counts->sectors += (uint64_t)count;
}

void emu_try_again(cta *m, warp *w, const op *o, uint32_t mask) {
    w->pc--;
    w->tries_again = true;
    if (!(o->flags & FLAG_FIRST)) return;
    m->steps--;
    m->counts[o->instruction].executed--;
    m->counts[o->instruction].lanes -= population(mask);
}
