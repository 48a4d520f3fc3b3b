/* attention/backward - the gradients of attention on Hopper
 *
 * config    (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * others    (FP16, 64, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length;
 *           (FP16, 256, 64, 64, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length
 * ordered   (FP16, 128, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length;
 *           (FP16, 64, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length;
 *           (FP16, 256, 64, 64, 16): backward_wgmma+dq_sums+in_order+stages_2+tensor+causal+grouped+any_length
 * serving   (FP16, 128, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length+serve;
 *           (FP16, 64, 64, 128, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 12): backward_wgmma+dq_sums+stages_2+tensor+causal+grouped+any_length+serve;
 *           (FP16, 128, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length+serve;
 *           (FP16, 64, 64, 128, 16): backward_wgmma+dq_sums+in_order+stages_3+tensor+causal+grouped+any_length+serve;
 *           (FP16, 256, 64, 64, 16): backward_wgmma+dq_sums+in_order+stages_2+tensor+causal+grouped+any_length+serve
 * arch      sm_90a
 */
#include "common/backward.h"
#include "common/ptx_backward.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/lengths.cuh"

/* Three kernels make a pass: row_sums computes what each query row has of the forward pass, flash_backward the
 * gradients by K and V and the sums of dQ, and round_dQ rounds these.
 *
 * A tile is a KV block of a KV head: 128 keys, with d_head 256 64. dK and dV are sums over the queries of all heads
 * that share the keys: a CTA goes through the Q blocks of one head after the other, from the first that sees one of the
 * keys, and adds to each head's dQ. CTAs of a head begin at blocks of their own where there is no mask.
 *
 *     warpgroups 1, 2    Sᵀ = K Qᵀ, dPᵀ = V dOᵀ, dV += Pᵀ dO, dK += dSᵀ Q, of 64 keys each; dSᵀ goes to shared memory.
 *                        dS is computed beside dV
 *     warpgroup 0        dQ = dS K, 64 columns at a time, added to the sums; its first thread starts all copies
 *     warpgroup 3        with in_order: one warp starts all copies, and one for each stage has the turn of its Q block
 *
 * A CTA has one tile. With in_order or d_head 256 CTAs draw tiles from a counter, which is behind what a CTA waits for:
 * whoever has a smaller number has drawn it. With in_order exponentials run beside dV, and dS beside dK of the block
 * before, which reads dS from shared memory. With d_head 256 warpgroups 1 and 2 have the same keys, half of the queries
 * of S and dP, half of the columns of dK, dV.
 *
 * Who waits for whom, at mbarriers, each of a stage of the ring:
 *
 *     full       the bytes of Q, dO, log-sum-exp and delta have come          8 warps wait
 *     empty      the 8 warps have read them                                   the copying thread waits
 *     dS_full    the 8 warps have stored dS                                   warpgroup 0 waits
 *     dS_empty   warpgroup 0 has multiplied it                                8 warps wait
 *
 * KV_full of a tile's K and V; where CTAs draw, KV_empty, for which the last product of each side arrives.
 *
 * With in_order each Q block has a turn, the place in the order of the CTA that may add to it: the sums get the same
 * bits in every run. The first stores its part, so that nothing sets the sums to 0; the last adds its own to them and
 * rounds dQ, so that there is no third kernel. find_work_in_order() has tiles begin when the turns that they wait for
 * are there. Neither a turn nor the arrival of what was added, on which it is passed on, is waited for by who computes:
 *
 *     turn_there   it is the CTA's turn at the block of a stage             warpgroup 0 waits, before it adds
 *     added        warpgroup 0 has added                                    the warp that passes the turn on waits
 *
 * Any number of rows: the copy engine fills up blocks with zeros. A query behind the last has a log-sum-exp of
 * infinity, so that P and dS are 0, and so has one that sees no key. P of keys behind the last is set to 0 as that of
 * masked ones.
 *
 * With serve the sequences lie one behind the other. Blocks of a sequence are numbered behind those of the sequences
 * before it, from first_block_at() on: each may have left one number over, for which there is nothing to do. A block's
 * rows behind the sequence are those of the next one, and count as zeros do.
 *
 * Who holds what: warp w of a warpgroup has rows 16w ... of its 64; a tile of 8 columns is held as with mma.sync. In
 * shared memory a block is a row of tiles of 64 elements, whose 16-byte chunks are swizzled (common/ptx_sm90a.cuh).
 * Accumulators and what wgmma reads of them must fit 192 registers at any time: P is kept in 16 bits alone, where dS is
 * computed beside dV twice: wgmma reads one of them while the other becomes dS. */

/* Refuse what this kernel can't run, and every flag that it would not act on. */
template <backward_config cfg>
__device__ constexpr void check_config() {
    static_assert(cfg.instruction == WGMMA, "instruction must be backward_wgmma");
    static_assert(cfg.d_head == 64 || cfg.d_head == 128 || cfg.d_head == 256, "d_head must be 64, 128 or 256");
    static_assert(cfg.B_r == 64 && cfg.B_c == (cfg.d_head == 256 ? 64 : 128),
                  "B_r and B_c must be 64 and 128, with d_head 256 64");
    static_assert(cfg.n_warps == (cfg.in_order ? 16 : 12),
                  "n_warps must be 12: two warpgroups for dK and dV; 16 with in_order: one copies");
    static_assert(cfg.dQ_sums, "dQ_sums must be on: every CTA adds its part of dQ");
    static_assert(cfg.stages == (cfg.d_head < 256 && cfg.in_order ? 3 : 2),
                  "stages must be 2, with in_order 3 where shared memory has room, with d_head 64 and 128");
    static_assert(cfg.tensor_copies, "tensor_copies must be on: the copy engine copies blocks");
    static_assert(cfg.causal, "causal must be on: a launch decides whether there is a mask");
    static_assert(cfg.grouped_heads, "grouped_heads must be on: a CTA goes through all heads of a KV head");
    static_assert(cfg.any_rows, "any_rows must be on: blocks may have fewer rows");
}

/* Whether CTAs draw tiles; else each has one. */
template <backward_config cfg>
constexpr bool draws = backward_draws(&cfg);

/* The first parameter of the kernels. */
template <bool serves>
struct pass_args_type {
    using type = backward_args;
};
template <>
struct pass_args_type<true> {
    using type = backward_serving_args;
};
template <backward_config cfg>
using pass_args = typename pass_args_type<cfg.serves>::type;

enum {
    WARPGROUP = 128,
    KEY_WARPS = 8,
    DQ_WARPS = 4,
    TILE_ROW = 128 /* bytes */,
    SPAN = 64 /* elements of a row of a tile */
};

/* dK or dV of a warp's 16 keys. */
template <backward_config cfg>
using key_sums = tiles<cfg.d_head == 64 ? 8 : 16>;

/* ---- rows: the kernels before and behind ---- */

/* Two elements as floats. */
template <backward_config cfg>
__device__ __forceinline__ void widen_pair(uint32_t pair, float &low, float &high) {
    low = cfg.dtype == FP16 ? cvt_f32_f16((uint16_t)pair) : __uint_as_float(pair << 16);
    high = cfg.dtype == FP16 ? cvt_f32_f16((uint16_t)(pair >> 16)) : __uint_as_float(pair & 0xffff0000);
}

/* The rows of a sequence. Without offsets it is a sample, whose rows the parameters have. */
struct no_sequence {};
template <bool serves>
struct sequence_type {
    using type = no_sequence;
};
template <>
struct sequence_type<true> {
    using type = sequence;
};
template <backward_config cfg>
using own_sequence = typename sequence_type<cfg.serves>::type;

__device__ __forceinline__ sequence find_sequence(const backward_serving_args &args, int sample) {
    const rows_of_tensor Q = find_rows(args.Q_offsets, nullptr, sample, args.all_Q_rows, args.seq_q);
    const rows_of_tensor KV = find_rows(args.KV_offsets, nullptr, sample, args.all_KV_rows, args.seq_k);
    return {Q.rows, KV.rows, Q.first, KV.first, Q.sample, KV.sample};
}
template <backward_config cfg>
__device__ __forceinline__ int queries_of(const backward_args &args, const own_sequence<cfg> &seq) {
    if constexpr (cfg.serves) return seq.seq_q;
    return args.seq_q;
}
template <backward_config cfg>
__device__ __forceinline__ int keys_of(const backward_args &args, const own_sequence<cfg> &seq) {
    if constexpr (cfg.serves) return seq.seq_k;
    return args.seq_k;
}

/* The number of a sequence's first block of `rows` rows, where its first row is number `first`. No block has a number
 * of another sequence: floor(a) + ceil(b) <= floor(a + b) + 1. */
__device__ __forceinline__ int first_block_at(int first, int sample, int rows) {
    return first / rows + sample;
}

/* The sequence that has a block: the last whose first one has this number or one before. Offsets of `all` rows. */
__device__ __forceinline__ int sequence_of_block(const int32_t *offsets, int batch, int all, int rows, int number) {
    int found = 0, behind = batch;
    while (behind - found > 1) {
        const int sample = found + (behind - found) / 2;
        const int first = first_block_at(min(max(offsets[sample], 0), all), sample, rows);
        (first <= number ? found : behind) = sample;
    }
    return found;
}

/* Blocks of a head, as backward_Q_blocks() and backward_KV_blocks() have them. */
template <backward_config cfg>
__device__ __forceinline__ int count_Q_blocks(const backward_args &args) {
    return cfg.serves ? args.all_Q_rows / cfg.B_r + args.batch : (args.seq_q + cfg.B_r - 1) / cfg.B_r;
}
template <backward_config cfg>
__device__ __forceinline__ int count_KV_blocks(const backward_args &args) {
    return cfg.serves ? args.all_KV_rows / cfg.B_c + args.batch : (args.seq_k + cfg.B_c - 1) / cfg.B_c;
}

/* Where the first of a head's Q blocks is among those of all heads. */
template <backward_config cfg>
__device__ __forceinline__ int64_t first_block_of(const pass_args<cfg> &args, const own_sequence<cfg> &seq, int sample,
                                                  int head) {
    if constexpr (cfg.serves)
        return (int64_t)head * count_Q_blocks<cfg>(args) + first_block_at(seq.first_q, sample, cfg.B_r);
    else
        return ((int64_t)sample * args.heads + head) * ((args.seq_q + cfg.B_r - 1) / cfg.B_r);
}

/* The first Q block with a query that sees one of the keys of a KV block. */
template <backward_config cfg>
__device__ __forceinline__ int first_seeing(const backward_args &args, const own_sequence<cfg> &seq, int KV_block) {
    const int unseen = KV_block * cfg.B_c - (keys_of<cfg>(args, seq) - queries_of<cfg>(args, seq)); /* before any */
    return args.causal && unseen > 0 ? unseen / cfg.B_r : 0;
}

/* The last KV block with a key that a query of a Q block sees. */
template <backward_config cfg>
__device__ __forceinline__ int last_seen(const backward_args &args, const own_sequence<cfg> &seq, int Q_block) {
    const int last = (keys_of<cfg>(args, seq) - 1) / cfg.B_c;
    const int behind_first = (Q_block + 1) * cfg.B_r - 1; /* queries of this block and those before, but one */
    return args.causal ? min(last, (behind_first + keys_of<cfg>(args, seq) - queries_of<cfg>(args, seq)) / cfg.B_c)
                       : last;
}

/* A query row for a thread of the small kernels, which have rows of whole Q blocks: its block among those of all heads,
 * and the row within the sequence. Rows of numbers that are left over are not `there`. */
template <backward_config cfg>
struct query {
    int row;
    [[no_unique_address]] own_sequence<cfg> seq;
    int64_t of_all; /* with serve */

    __device__ __forceinline__ query(const pass_args<cfg> &args, int number) : row(number) {
        if constexpr (cfg.serves) {
            const int of_head = number / cfg.B_r;
            const int sample = sequence_of_block(args.Q_offsets, args.batch, args.all_Q_rows, cfg.B_r, of_head);
            seq = find_sequence(args, sample);
            row -= first_block_at(seq.first_q, sample, cfg.B_r) * cfg.B_r;
            of_all = (int64_t)blockIdx.y * count_Q_blocks<cfg>(args) + of_head;
        }
    }
    __device__ __forceinline__ bool there(const pass_args<cfg> &args) const {
        return (!cfg.serves || row >= 0) && row < queries_of<cfg>(args, seq);
    }
    __device__ __forceinline__ int64_t block(const pass_args<cfg> &args) const {
        if constexpr (cfg.serves) return of_all;
        return first_block_of<cfg>(args, seq, blockIdx.z, blockIdx.y) + row / cfg.B_r;
    }
    /* Of 8 elements of a tensor with these strides. */
    __device__ __forceinline__ int64_t offset(const tensor_strides &strides, int chunk) const {
        if constexpr (cfg.serves) return (seq.first_q + row) * strides.seq + blockIdx.y * strides.head + 8 * chunk;
        return blockIdx.z * strides.batch + row * strides.seq + blockIdx.y * strides.head + 8 * chunk;
    }
    /* Among the rows of log-sum-exp. */
    __device__ __forceinline__ int64_t number(const pass_args<cfg> &args) const {
        if constexpr (cfg.serves) return (int64_t)blockIdx.y * args.all_Q_rows + seq.first_q + row;
        return ((int64_t)blockIdx.z * args.heads + blockIdx.y) * args.seq_q + row;
    }
};

/* Gradients of rows of no sequence, before the first and behind the last, are 0. */
template <backward_config cfg>
__device__ __forceinline__ void clear_others(void *gradient, const tensor_strides &strides, const int32_t *offsets,
                                             int batch, int all) {
    constexpr int lanes = cfg.d_head / 8, rows = BACKWARD_SMALL_THREADS / lanes;
    const int first = offsets[0], end = offsets[batch], chunk = threadIdx.x % lanes;
    const uint32_t zeros[4] = {};
    for (int row = blockIdx.x * rows + threadIdx.x / lanes; row < all; row += gridDim.x * rows)
        if (row < first || row >= end)
            st_global_v4((uint16_t *)gradient + row * strides.seq + blockIdx.y * strides.head + 8 * chunk, zeros);
}
template <backward_config cfg>
__device__ __forceinline__ void clear_other_rows(const backward_serving_args &args) {
    clear_others<cfg>(args.dQ, args.Q_strides, args.Q_offsets, args.batch, args.all_Q_rows);
    if (blockIdx.y >= args.KV_heads) return;
    clear_others<cfg>(args.dK, args.K_strides, args.KV_offsets, args.batch, args.all_KV_rows);
    clear_others<cfg>(args.dV, args.V_strides, args.KV_offsets, args.batch, args.all_KV_rows);
}

/* 16 bytes of O and dO for each thread, a row for d_head / 8 lanes. Rows behind the last get what makes P and dS 0. */
template <backward_config cfg>
__device__ __forceinline__ void sum_rows(const pass_args<cfg> &args) {
    constexpr int lanes = cfg.d_head / 8;
    const int number = blockIdx.x * (BACKWARD_SMALL_THREADS / lanes) + threadIdx.x / lanes, chunk = threadIdx.x % lanes;
    const query<cfg> own(args, number);
    const bool there = own.there(args);
    float sum = 0;
    if (there) {
        const tensor_strides &strides = args.O_strides;
        const int64_t at = own.offset(strides, chunk);
        uint32_t O[4], dO[4];
        ld_global_v4(O, (const uint16_t *)args.O + at);
        ld_global_v4(dO, (const uint16_t *)args.dO + at);
        for (int i = 0; i < 4; i++) {
            float a, b, c, d;
            widen_pair<cfg>(O[i], a, b);
            widen_pair<cfg>(dO[i], c, d);
            sum += a * c + b * d;
        }
    }
    for (int distance = lanes / 2; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    const int64_t block = own.block(args);
    const uint32_t zeros[4] = {};
    if constexpr (!cfg.in_order) {
        float *const sums = args.sums + (block * cfg.B_r + number % cfg.B_r) * cfg.d_head;
        for (int half = 0; half < 2; half++) st_global_v4(sums + (half * lanes + chunk) * 4, zeros);
    } else if (there && (own.row / cfg.B_r < first_seeing<cfg>(args, own.seq, 0) ||
                         (cfg.serves && !keys_of<cfg>(args, own.seq)))) {
        st_global_v4((uint16_t *)args.dQ + own.offset(args.Q_strides, chunk), zeros);
    }
    if constexpr (cfg.serves) clear_other_rows<cfg>(args);
    if (chunk) return;
    const int64_t of_lse = own.number(args);
    const float lse = there ? args.LSE[of_lse] : -INFINITY;
    float *const kept = args.delta + block * 2 * cfg.B_r + number % cfg.B_r;
    kept[0] = lse == -INFINITY ? INFINITY : lse * 1.44269504f;
    kept[cfg.B_r] = sum;
    if (cfg.in_order && number % cfg.B_r == 0) args.turns[BACKWARD_COUNTERS + block] = 0;
    if (block == 0 && number == 0) args.turns[0] = 0;
}

/* 8 columns of dQ for each thread: a half warp has those of 16 rows, 512 bytes of sums that lie one behind the other.
 */
template <backward_config cfg>
__device__ __forceinline__ void round_rows(const pass_args<cfg> &args) {
    constexpr int chunks = cfg.d_head / 8;
    const int thread = blockIdx.x * BACKWARD_SMALL_THREADS + threadIdx.x;
    const int number = thread / 16 / chunks * 16 + thread % 16, chunk = thread / 16 % chunks;
    const query<cfg> own(args, number);
    if (!own.there(args)) return;
    const int64_t block = own.block(args);
    const int tile = (chunk / 8 * (cfg.B_r / 16) + number % cfg.B_r / 16) * 8 + chunk % 8;
    const float *const sums =
        args.sums + block * (cfg.B_r * cfg.d_head) + tile * 128 + number % 8 * 16 + number % 16 / 8 * 2;
    uint32_t pairs[4];
    for (int i = 0; i < 4; i++) {
        const float2 pair = *(const float2 *)(sums + 4 * i);
        pairs[i] = round_pair<cfg.dtype>(args.softmax_scale * pair.x, args.softmax_scale * pair.y);
    }
    const tensor_strides &strides = args.Q_strides;
    const int64_t at = own.offset(strides, chunk);
    st_global_v4((uint16_t *)args.dQ + at, pairs);
}

/* ---- shared memory ---- */

/* Where everything is; what belongs to a block is there once for each stage. */
template <backward_config cfg>
struct places {
    static constexpr uint32_t KV_tile = cfg.B_c * TILE_ROW, Q_tile = cfg.B_r * TILE_ROW;
    static constexpr uint32_t KV_bytes = cfg.d_head / SPAN * KV_tile, Q_bytes = cfg.d_head / SPAN * Q_tile;
    static constexpr uint32_t dS_bytes = cfg.B_c * TILE_ROW, row_bytes = cfg.B_r * sizeof(float);
    static constexpr uint32_t P_bytes = cfg.d_head == 256 ? dS_bytes : 0;
    uint32_t K, V, Q, dO, dS, P, lse; /* dS: the B_c keys are the rows of one tile, queries their elements; delta is
                                      behind log-sum-exp */
    uint32_t KV_full, KV_empty, full, empty, dS_full, dS_empty, tile;
    uint32_t turn, turn_there, added; /* with in_order */

    __device__ __forceinline__ places(uint32_t smem)
        : K((smem + 1023) / 1024 * 1024), V(K + KV_bytes), Q(V + KV_bytes), dO(Q + cfg.stages * Q_bytes),
          dS(dO + cfg.stages * Q_bytes), P(dS + cfg.stages * dS_bytes), lse(P + cfg.stages * P_bytes),
          KV_full(lse + cfg.stages * 2 * row_bytes), KV_empty(KV_full + 8), full(KV_empty + 8),
          empty(full + 8 * cfg.stages), dS_full(empty + 8 * cfg.stages), dS_empty(dS_full + 8 * cfg.stages),
          tile((dS_empty + 8 * cfg.stages + 15) / 16 * 16), turn(tile + 128), turn_there(turn + 16 * cfg.stages),
          added(turn_there + 8 * cfg.stages) {}

    /* What is posted of the CTA's tile number `turn`: of the one at hand and the next. */
    __device__ __forceinline__ uint32_t posted(int turn) const { return tile + turn % 2 * (cfg.serves ? 64 : 32); }
};

/* ---- what a CTA computes ---- */

/* KV blocks of all heads: what the CTAs share out. */
template <backward_config cfg>
__device__ __forceinline__ int count_tiles(const backward_args &args) {
    return count_KV_blocks<cfg>(args) * args.KV_heads * (cfg.serves ? 1 : args.batch);
}

/* The number of a CTA's next tile, -1 behind the last. Whoever waits for the CTA of a tile waits for one that has drawn
 * it. */
template <backward_config cfg>
__device__ __forceinline__ int draw_tile(const backward_args &args) {
    const int drawn = atomicAdd(args.turns, 1);
    return drawn < count_tiles<cfg>(args) ? drawn : -1;
}

/* A KV block, and the Q blocks of all heads that see its keys. */
template <backward_config cfg>
struct work {
    int KV_block, KV_head, sample; /* KV_block -1: there is none */
    int first_block, blocks, start;
    [[no_unique_address]] own_sequence<cfg> seq;
};

/* The sample of the tensors. */
template <backward_config cfg>
__device__ __forceinline__ int sample_of(const work<cfg> &of) {
    return cfg.serves ? 0 : of.sample;
}

/* Whether no other sequence has one of the blocks: where offsets decrease, a turn would be waited for that nobody
 * passes on. Which sequence is found never decreases with the number, so the first and the last block tell. */
template <backward_config cfg>
__device__ __forceinline__ bool owns_its_blocks(const backward_serving_args &args, const own_sequence<cfg> &seq,
                                                int sample) {
    const int first_q = first_block_at(seq.first_q, sample, cfg.B_r), Q_blocks = (seq.seq_q + cfg.B_r - 1) / cfg.B_r;
    const int first_k = first_block_at(seq.first_k, sample, cfg.B_c);
    const auto of_Q = [&](int number) {
        return sequence_of_block(args.Q_offsets, args.batch, args.all_Q_rows, cfg.B_r, number);
    };
    return sequence_of_block(args.KV_offsets, args.batch, args.all_KV_rows, cfg.B_c, first_k) == sample &&
           of_Q(first_q) == sample && of_Q(first_q + max(Q_blocks, 1) - 1) == sample;
}

/* Where sequences lie one behind the other: KV block `number` of all that a head has. */
template <backward_config cfg>
__device__ __forceinline__ work<cfg> find_packed_work(const backward_serving_args &args, int number, int KV_head) {
    const int sample = sequence_of_block(args.KV_offsets, args.batch, args.all_KV_rows, cfg.B_c, number);
    const sequence seq = find_sequence(args, sample);
    const int KV_block = number - first_block_at(seq.first_k, sample, cfg.B_c);
    if (KV_block < 0 || KV_block * cfg.B_c >= seq.seq_k) return {-1};
    if (cfg.in_order && !owns_its_blocks<cfg>(args, seq, sample)) return {-1};
    const int KV_blocks = (seq.seq_k + cfg.B_c - 1) / cfg.B_c;
    const int first = first_seeing<cfg>(args, seq, KV_block), blocks = (seq.seq_q + cfg.B_r - 1) / cfg.B_r - first;
    const int start = cfg.in_order || args.causal ? 0 : (unsigned)KV_block * blocks / KV_blocks;
    return {KV_block, KV_head, sample, first, blocks, start, seq};
}

/* A tile of a KV head and a sample, and its number among those of the head. */
struct tile_number {
    int pair, of_head;
};

/* Tiles along the heads of a section, then along a head. `fitting`: heads that a section may have. */
__device__ __forceinline__ tile_number along_heads(int tile, int of_head, int pairs, int fitting) {
    const int sections = (pairs + fitting - 1) / fitting, most = (pairs + sections - 1) / sections;
    const int section = tile / (most * of_head), in_section = tile - section * most * of_head;
    const int size = min(most, pairs - section * most), number = in_section / size;
    return {section * most + in_section - number * size, number};
}

/* Heads whose tensors and sums are so many bytes. */
template <backward_config cfg>
__device__ __forceinline__ int heads_of(const backward_args &args, int bytes) {
    const int bytes_of_row = cfg.d_head * (4 + 8 * (args.heads / args.KV_heads));
    return max(1, bytes / bytes_of_row / max(args.seq_q, args.seq_k));
}

/* In order tiles go along the heads of a section, so that CTAs that follow one another in a head begin one after the
 * other; the more heads, the shorter they wait, as long as all stay in the L2 cache. With the mask they go from the
 * last KV block, which sees the fewest queries, to the first: each begins with Q blocks of its own, which those that it
 * waits for have left. */
template <backward_config cfg>
__device__ __forceinline__ work<cfg> find_work_in_order(const pass_args<cfg> &args, int tile) {
    if (tile < 0) return {-1};
    const int KV_blocks = count_KV_blocks<cfg>(args), pairs = args.KV_heads * (cfg.serves ? 1 : args.batch);
    const int bytes = (args.causal ? 32 : 48) << 20; /* without the mask the CTAs of a head are close together */
    const auto [pair, number] = along_heads(tile, KV_blocks, pairs, heads_of<cfg>(args, bytes));
    const int KV_block = args.causal ? KV_blocks - 1 - number : number;
    if constexpr (cfg.serves) return find_packed_work<cfg>(args, KV_block, pair);
    const int first = first_seeing<cfg>(args, {}, KV_block), blocks = (args.seq_q + cfg.B_r - 1) / cfg.B_r - first;
    return {KV_block, pair % args.KV_heads, pair / args.KV_heads, first, blocks, 0};
}

/* Tiles are numbered along a head, then along the heads. With the mask, the first of a head sees the most: then along
 * the KV heads of a section, whose tensors stay in the L2 cache, from the first KV block to the last. With serve they
 * are numbered along a head, which has those of all sequences. */
template <backward_config cfg>
__device__ __forceinline__ work<cfg> find_work(const pass_args<cfg> &args, int tile) {
    if constexpr (cfg.in_order) return find_work_in_order<cfg>(args, tile);
    const int KV_blocks = count_KV_blocks<cfg>(args);
    int pair = tile / KV_blocks, KV_block = tile - pair * KV_blocks; /* pair: of a KV head and a sample */
    if (tile < 0) return {-1};
    if constexpr (cfg.serves) return find_packed_work<cfg>(args, KV_block, pair);
    if (args.causal) {
        const int pairs = args.KV_heads * args.batch;
        const tile_number found = along_heads(tile, KV_blocks, pairs, heads_of<cfg>(args, 32 << 20));
        KV_block = found.of_head;
        pair = found.pair;
    }
    const int first = first_seeing<cfg>(args, {}, KV_block), blocks = (args.seq_q + cfg.B_r - 1) / cfg.B_r - first;
    return {KV_block,
            pair % args.KV_heads,
            pair / args.KV_heads,
            first,
            blocks,
            args.causal ? 0 : (int)((unsigned)KV_block * blocks / KV_blocks)};
}

/* The thread that draws leaves it in shared memory. */
template <backward_config cfg>
__device__ __forceinline__ void post_work(uint32_t smem, const work<cfg> &of) {
    store_shared_v4(smem, of.KV_block, of.KV_head, of.sample, of.first_block);
    if constexpr (!cfg.serves) {
        store_shared_v4(smem + 16, of.blocks, of.start, 0, 0);
    } else {
        store_shared_v4(smem + 16, of.blocks, of.start, of.seq.seq_q, of.seq.seq_k);
        store_shared_v4(smem + 32, of.seq.first_q, of.seq.first_k, 0, 0);
    }
}
template <backward_config cfg>
__device__ __forceinline__ work<cfg> read_work(uint32_t smem) {
    work<cfg> of;
    int unused[2];
    load_shared_v4(smem, of.KV_block, of.KV_head, of.sample, of.first_block);
    if constexpr (!cfg.serves) {
        load_shared_v4(smem + 16, of.blocks, of.start, unused[0], unused[1]);
    } else {
        load_shared_v4(smem + 16, of.blocks, of.start, of.seq.seq_q, of.seq.seq_k);
        load_shared_v4(smem + 32, of.seq.first_q, of.seq.first_k, unused[0], unused[1]);
    }
    return of;
}

/* One of the steps of a tile: a Q block of a head. CTAs of a head begin at blocks of their own, so that they don't add
 * to the same rows; in order, and with the mask, with the first. */
template <backward_config cfg>
struct place {
    int head = 0, number = 0;

    __device__ __forceinline__ int block(const work<cfg> &of) const {
        const int from_first = of.start + number;
        return of.first_block + (from_first < of.blocks ? from_first : from_first - of.blocks);
    }
    __device__ __forceinline__ bool is_in(const work<cfg> &of, int heads) const {
        return head < heads && of.blocks > 0;
    }
    __device__ __forceinline__ void advance(const work<cfg> &of) {
        if (++number == of.blocks) number = 0, head++;
    }
};

/* A stage of a ring and the number of its phase. */
template <int stages>
struct ring_place {
    int stage = 0, phase = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == stages) stage = 0, phase++;
    }
};

/* ---- mbarriers ---- */

/* One thread sets them up. Full ones have one arrival, of the thread that starts the copies. */
template <backward_config cfg>
__device__ __forceinline__ void init_mbarriers(const places<cfg> &at) {
    if (threadIdx.x == 0) {
        mbarrier_init(at.KV_full, 1);
        if (draws<cfg>) mbarrier_init(at.KV_empty, KEY_WARPS + (cfg.in_order ? DQ_WARPS : 0));
        for (int stage = 0; stage < cfg.stages; stage++) {
            mbarrier_init(at.full + 8 * stage, 1);
            mbarrier_init(at.empty + 8 * stage, KEY_WARPS + cfg.in_order);
            mbarrier_init(at.dS_full + 8 * stage, KEY_WARPS);
            mbarrier_init(at.dS_empty + 8 * stage, DQ_WARPS);
            if (cfg.in_order) mbarrier_init(at.turn_there + 8 * stage, 1);
            if (cfg.in_order) mbarrier_init(at.added + 8 * stage, DQ_WARPS);
        }
        fence_mbarrier_init();
    }
    __syncthreads(); /* they are set up */
}

/* Wait until phase number `phase` of an mbarrier is complete; it may be at most one phase behind. Number -1, before the
 * first, is. */
__device__ __forceinline__ void wait_for_phase(uint32_t mbarrier, int phase) {
    while (!mbarrier_try_wait_parity(mbarrier, phase & 1)) {
    }
}

/* Arrive once for the warp, when all of its lanes are here. */
__device__ __forceinline__ void arrive_as_warp(uint32_t mbarrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(mbarrier);
}

/* ---- copies: one thread ---- */

/* Who adds to a Q block: in order the KV blocks from the first, with the mask from the last that a query sees. Who
 * copies the block leaves for its turn: where the word is, which CTA of the order this is, and which the last. */
template <backward_config cfg>
__device__ __forceinline__ int place_in_order(const backward_args &args, const work<cfg> &of, int last_seen) {
    return args.causal ? last_seen - of.KV_block : of.KV_block;
}
template <backward_config cfg>
__device__ __forceinline__ void post_turn(const pass_args<cfg> &args, uint32_t smem, const work<cfg> &of, int head,
                                          int block) {
    const int last = last_seen<cfg>(args, of.seq, block);
    const int number = (int)first_block_of<cfg>(args, of.seq, of.sample, head) + block;
    store_shared_v4(smem, number, place_in_order<cfg>(args, of, last), last, 0);
}

/* It draws tiles, and copies K and V of one when those before are read, Q blocks as far ahead as there are stages, into
 * the next tile. */
template <backward_config cfg>
struct copier {
    using of = places<cfg>;
    const pass_args<cfg> &args;
    const tensor_maps &maps;
    const places<cfg> &at;
    int turn = 0; /* number of the tile that the next Q block belongs to */
    place<cfg> ahead;
    int count = 0; /* of Q blocks copied */

    __device__ __forceinline__ void draw(int number) {
        int tile = draw_tile<cfg>(args);
        work<cfg> found = find_work<cfg>(args, tile);
        while (cfg.serves && tile >= 0 && found.KV_block < 0) /* a number that is left over */
            found = find_work<cfg>(args, tile = draw_tile<cfg>(args));
        post_work<cfg>(at.posted(number), found);
    }

    /* K and V of a tile, once those of the one before are read; without a tile, that it is known. */
    __device__ __forceinline__ void copy_KV(int number) {
        const work<cfg> all = read_work<cfg>(at.posted(number));
        wait_for_phase(at.KV_empty, number - 1);
        if (all.KV_block < 0) {
            mbarrier_arrive(at.KV_full);
            return;
        }
        mbarrier_arrive_expect_tx(at.KV_full, 2 * of::KV_bytes);
        int row = all.KV_block * cfg.B_c;
        if constexpr (cfg.serves) row += all.seq.first_k;
        copy_tensor_to_smem(at.K, maps.K, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
        copy_tensor_to_smem(at.V, maps.V, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
    }

    __device__ __forceinline__ void copy_queries(const work<cfg> &all) {
        const int head = all.KV_head * (args.heads / args.KV_heads) + ahead.head, block = ahead.block(all);
        const float *const kept =
            args.delta + (first_block_of<cfg>(args, all.seq, all.sample, head) + block) * 2 * cfg.B_r;
        const int stage = count % cfg.stages;
        const uint32_t full = at.full + 8 * stage;
        wait_for_phase(at.empty + 8 * stage, count / cfg.stages - 1);
        if constexpr (cfg.in_order) post_turn<cfg>(args, at.turn + 16 * stage, all, head, block);
        mbarrier_arrive_expect_tx(full, 2 * (of::Q_bytes + of::row_bytes));
        int row = block * cfg.B_r;
        if constexpr (cfg.serves) row += all.seq.first_q;
        copy_tensor_to_smem(at.Q + stage * of::Q_bytes, maps.Q, full, row, head, sample_of<cfg>(all));
        copy_bytes_to_smem(at.lse + stage * 2 * of::row_bytes, kept, 2 * of::row_bytes, full);
        copy_tensor_to_smem(at.dO + stage * of::Q_bytes, maps.O, full, row, head, sample_of<cfg>(all));
        count++;
    }

    /* Copy Q blocks until so many are copied, as far as the tile behind number `now`. */
    __device__ __forceinline__ void copy_ahead(int until, int now) {
        while (count < until) {
            const work<cfg> all = read_work<cfg>(at.posted(turn));
            if (all.KV_block < 0) return;
            if (ahead.is_in(all, args.heads / args.KV_heads)) {
                copy_queries(all);
                ahead.advance(all);
                continue;
            }
            if (turn > now) return;
            draw(++turn);
            ahead = place<cfg>();
        }
    }

    /* Tile number `now` is done. */
    __device__ __forceinline__ void begin_next(int now) {
        if (turn == now) {
            draw(++turn);
            ahead = place<cfg>();
        }
        copy_KV(now + 1);
    }

    /* In order: all tiles, one after the other. As many Q blocks of a tile as there are stages but one come beside the
     * last products of the tile before, which read K and V. */
    __device__ __forceinline__ void copy_all() {
        for (int number = 0;; number++) {
            draw(number);
            const work<cfg> all = read_work<cfg>(at.posted(number));
            const int steps = all.KV_block < 0 ? 0 : args.heads / args.KV_heads * all.blocks;
            const int beside = min(steps, cfg.stages - 1);
            ahead = place<cfg>();
            for (int step = 0;; step++) {
                if (step == beside) copy_KV(number);
                if (step == steps) break;
                copy_queries(all);
                ahead.advance(all);
            }
            if (all.KV_block < 0) break;
        }
        for (int end = count + cfg.stages; count < end; count++) {
            const int stage = count % cfg.stages;
            wait_for_phase(at.empty + 8 * stage, count / cfg.stages - 1);
            store_shared_v4(at.turn + 16 * stage, -1, 0, 0, 0);
            mbarrier_arrive(at.full + 8 * stage);
        }
    }
};

/* ---- products: each is started and closed as a group ---- */

/* d = 64 rows of a block of B_c rows times all rows of a block of B_r rows, transposed. */
template <backward_config cfg>
__device__ __forceinline__ void start_scores(tiles<8> &d, uint32_t own, uint32_t other) {
    const uint64_t a = wgmma_descriptor(own, 0), b = wgmma_descriptor(other, 0);
#pragma unroll
    for (int k = 0; k < cfg.d_head / 16; k++) {
        const uint64_t of_a = a + k / 4 * (places<cfg>::KV_tile / 16) + k % 4 * 2;
        const uint64_t of_b = b + k / 4 * (places<cfg>::Q_tile / 16) + k % 4 * 2;
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16(d, of_a, of_b, k > 0);
        else
            wgmma_m64n64k16_bf16(d, of_a, of_b, k > 0);
    }
    wgmma_commit_group();
}

/* sums += coefficients (64 keys by B_r queries) times the rows of Q or dO. */
template <backward_config cfg>
__device__ __forceinline__ void start_sums(key_sums<cfg> &sums, const fragments<4> &coefficients, uint32_t other) {
    const uint64_t b = wgmma_descriptor(other, places<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16)
            wgmma_m64n64k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16)
            wgmma_m64n64k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == FP16)
            wgmma_m64n128k16_f16_trans(sums, coefficients[k], b + 128 * k, 1);
        if constexpr (cfg.d_head == 128 && cfg.dtype == BF16)
            wgmma_m64n128k16_bf16_trans(sums, coefficients[k], b + 128 * k, 1);
    }
    wgmma_commit_group();
}

/* sums += coefficients, 64 keys by B_r queries in shared memory, times the rows of Q. */
template <backward_config cfg>
__device__ __forceinline__ void start_dK(key_sums<cfg> &sums, uint32_t coefficients, uint32_t other) {
    const uint64_t a = wgmma_descriptor(coefficients, 0), b = wgmma_descriptor(other, places<cfg>::Q_tile);
#pragma unroll
    for (int k = 0; k < cfg.B_r / 16; k++) {
        if constexpr (cfg.d_head == 64 && cfg.dtype == FP16)
            wgmma_m64n64k16_f16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        if constexpr (cfg.d_head == 64 && cfg.dtype == BF16)
            wgmma_m64n64k16_bf16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        if constexpr (cfg.d_head != 64 && cfg.dtype == FP16)
            wgmma_m64n128k16_f16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        if constexpr (cfg.d_head != 64 && cfg.dtype == BF16)
            wgmma_m64n128k16_bf16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
    }
    wgmma_commit_group();
}

/* dQ of B_r queries and the 64 columns of a tile of K, over B_c keys. */
template <backward_config cfg>
__device__ __forceinline__ void start_dQ(tiles<8> &dQ, uint32_t dS, uint32_t K_tile) {
    const uint64_t a = wgmma_descriptor(dS, 0), b = wgmma_descriptor(K_tile, 0);
#pragma unroll
    for (int k = 0; k < cfg.B_c / 16; k++)
        if constexpr (cfg.dtype == FP16)
            wgmma_m64n64k16_f16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
        else
            wgmma_m64n64k16_bf16_both_trans(dQ, a + 128 * k, b + 128 * k, k > 0);
    wgmma_commit_group();
}

/* ---- the softmax and its gradient ---- */

/* Scores as the first operand of a product. */
template <backward_config cfg>
__device__ __forceinline__ void round_scores(fragments<4> &a, const tiles<8> &scores) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) {
            const float (&from)[4] = scores[2 * k + i / 2];
            a[k][i] = round_pair<cfg.dtype>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
}

/* Two neighbouring floats in shared memory: those of the queries of elements 0 and 1 of a tile, and of 2 and 3. */
__device__ __forceinline__ float2 load_pair(uint32_t smem_addr, int tile) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(smem_addr + 4 * (8 * tile + threadIdx.x % 4 * 2))
                 : "memory");
    return pair;
}

__device__ __forceinline__ void take_exponentials(tiles<8> &P, float exponent_scale, uint32_t lse) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(lse, tile);
        for (int i = 0; i < 4; i++) P[tile][i] = ex2_approx(P[tile][i] * exponent_scale - (i % 2 ? of.y : of.x));
    }
}

/* P = 0 of keys behind `last`, the last that the first query of the block sees, from the first key of the CTA on. With
 * the causal mask each query sees one key more than the one before it. */
__device__ __forceinline__ void mask(tiles<8> &P, int last, bool causal) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane / 4;
    for (int tile = 0; tile < 8; tile++)
        for (int i = 0; i < 4; i++)
            if (key + i / 2 * 8 > last + (causal ? 8 * tile + lane % 4 * 2 + i % 2 : 0)) P[tile][i] = 0;
}

/* Registers of their own with the same values: the compiler would take one register for both. */
__device__ __forceinline__ void copy_registers(fragments<4> &to, const fragments<4> &from) {
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 4; i++) asm volatile("mov.b32 %0, %1;" : "=r"(to[k][i]) : "r"(from[k][i]));
}

/* dP to dS, in place; P as it was rounded. */
template <backward_config cfg>
__device__ __forceinline__ void differentiate(tiles<8> &dS, const fragments<4> &P, uint32_t delta) {
    for (int tile = 0; tile < 8; tile++) {
        const float2 of = load_pair(delta, tile);
        for (int half = 0; half < 2; half++) {
            float p[2];
            widen_pair<cfg>(P[tile / 2][tile % 2 * 2 + half], p[0], p[1]);
            dS[tile][2 * half] = p[0] * (dS[tile][2 * half] - of.x);
            dS[tile][2 * half + 1] = p[1] * (dS[tile][2 * half + 1] - of.y);
        }
    }
}

/* Put dSᵀ of the warpgroup's keys into shared memory. Lanes give the addresses of keys 0-7 and 8-15 of eight queries,
 * and of the same of the next eight. */
__device__ __forceinline__ void store_dS(uint32_t dS, const fragments<4> &a) {
    const int lane = threadIdx.x % 32, key = (threadIdx.x - WARPGROUP) / 32 * 16 + lane % 16;
    for (int k = 0; k < 4; k++) stmatrix_x4(dS + key * TILE_ROW + ((2 * k + lane / 16) ^ key % 8) * 16, a[k]);
}

/* ---- results ---- */

/* Add 64 columns of dQ to the sums of a Q block. */
__device__ __forceinline__ void add_dQ(float *sums, const tiles<8> &dQ) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < 8; tile++) red_add_v4(sums + ((warp * 8 + tile) * 32 + lane) * 4, dQ[tile]);
}

/* The first in order leaves its part as the sums, the last takes them up. */
__device__ __forceinline__ void store_sums(float *sums, const tiles<8> &dQ) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < 8; tile++)
        *(float4 *)(sums + ((warp * 8 + tile) * 32 + lane) * 4) =
            make_float4(dQ[tile][0], dQ[tile][1], dQ[tile][2], dQ[tile][3]);
}
__device__ __forceinline__ void take_sums(tiles<8> &dQ, const float *sums) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = 0; tile < 8; tile++) {
        const float4 sum = *(const float4 *)(sums + ((warp * 8 + tile) * 32 + lane) * 4);
        dQ[tile][0] += sum.x, dQ[tile][1] += sum.y, dQ[tile][2] += sum.z, dQ[tile][3] += sum.w;
    }
}

/* Write 64 columns of dQ, of the queries of a block. */
template <backward_config cfg>
__device__ __forceinline__ void store_dQ(const backward_args &args, const work<cfg> &of, int head, int block,
                                         int column, const tiles<8> &dQ) {
    const tensor_strides &strides = args.Q_strides;
    const int lane = threadIdx.x % 32, own = block * cfg.B_r + threadIdx.x / 32 * 16 + lane / 4;
    int row = own;
    if constexpr (cfg.serves) row += of.seq.first_q;
    uint16_t *const first = (uint16_t *)args.dQ + sample_of<cfg>(of) * strides.batch + head * strides.head +
                            row * strides.seq + column + lane % 4 * 2;
    for (int half = 0; half < 2; half++)
        for (int tile = 0; tile < 8 && own + 8 * half < queries_of<cfg>(args, of.seq); tile++)
            *(uint32_t *)(first + 8 * half * strides.seq + 8 * tile) = round_pair<cfg.dtype>(
                args.softmax_scale * dQ[tile][2 * half], args.softmax_scale * dQ[tile][2 * half + 1]);
}

/* Acquire and release: what a CTA added before it passed the turn is there for the one that sees it (8.9). */
__device__ __forceinline__ int ld_acquire(const int *gmem) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(gmem) : "memory");
    return value;
}
__device__ __forceinline__ void st_release(int *gmem, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(gmem), "r"(value) : "memory");
}

__device__ __forceinline__ void wait_for_turn(const int *turn, int own) {
    while (ld_acquire(turn) != own) {
    }
}

/* Write the warp's 16 keys of a gradient, times a factor: all columns, or with d_head 256 half of them. */
template <backward_config cfg>
__device__ __forceinline__ void store_rows(void *gmem, const tensor_strides &strides, int seq_k, const work<cfg> &of,
                                           const key_sums<cfg> &sums, float factor) {
    const int lane = threadIdx.x % 32, warp = (threadIdx.x - WARPGROUP) / 32;
    const int row = of.KV_block * cfg.B_c + warp % (cfg.B_c / 16) * 16 + lane / 4;
    const int column = (cfg.d_head == 256 ? warp / 4 * 128 : 0) + lane % 4 * 2;
    int in_tensor = row;
    if constexpr (cfg.serves) in_tensor += of.seq.first_k;
    const int64_t first =
        sample_of<cfg>(of) * strides.batch + of.KV_head * strides.head + in_tensor * strides.seq + column;
    for (int half = 0; half < 2; half++)
        for (int tile = 0; tile < (int)(sizeof sums / sizeof *sums) && row + 8 * half < seq_k; tile++)
            *(uint32_t *)((uint16_t *)gmem + first + 8 * half * strides.seq + 8 * tile) =
                round_pair<cfg.dtype>(factor * sums[tile][2 * half], factor * sums[tile][2 * half + 1]);
}

/* ---- the roles ---- */

/* Where a head's block of dQ is. */
template <backward_config cfg>
struct block_of_dQ {
    const work<cfg> &of;
    int head, Q_block;
    int64_t number;

    __device__ __forceinline__ block_of_dQ(const pass_args<cfg> &args, const work<cfg> &all, const place<cfg> &here)
        : of(all), head(all.KV_head * (args.heads / args.KV_heads) + here.head), Q_block(here.block(all)),
          number(first_block_of<cfg>(args, all.seq, all.sample, head) + Q_block) {}
    __device__ __forceinline__ float *sums(const backward_args &args) const {
        return args.sums + number * (cfg.B_r * cfg.d_head);
    }
};

/* dQ of a block, from dS in a stage. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dQ(const backward_args &args, const places<cfg> &at,
                                            const block_of_dQ<cfg> &block, int stage) {
    constexpr int spans = cfg.d_head / SPAN;
    float *sums = block.sums(args);
#pragma unroll 1
    for (int span = 0; span < spans; span++, sums += cfg.B_r * SPAN) {
        tiles<8> dQ;
        wgmma_fence();
        start_dQ<cfg>(dQ, at.dS + stage * places<cfg>::dS_bytes, at.K + span * places<cfg>::KV_tile);
        wgmma_wait_group<0>(dQ);
        if (span == spans - 1) arrive_as_warp(at.dS_empty + 8 * stage);
        add_dQ(sums, dQ);
    }
}

/* Warpgroup 0: copies, and dQ of the block at hand. */
template <backward_config cfg>
__device__ __forceinline__ void copy_and_multiply_dQ(const pass_args<cfg> &args, const tensor_maps &maps,
                                                     const places<cfg> &at) {
    const bool copies = threadIdx.x == 0;
    copier<cfg> copier{args, maps, at};
    int step = 0;
    if (copies) {
        copier.draw(0);
        copier.copy_KV(0);
    }
    for (int turn = 0;; turn++) {
        __syncwarp();
        wait_for_phase(at.KV_full, turn);
        if (read_work<cfg>(at.posted(turn)).KV_block < 0) break;
        for (place<cfg> here; here.is_in(read_work<cfg>(at.posted(turn)), args.heads / args.KV_heads); step++) {
            const int stage = step % cfg.stages;
            if (copies) copier.copy_ahead(step + cfg.stages, turn);
            const work<cfg> all = read_work<cfg>(at.posted(turn));
            const block_of_dQ<cfg> block(args, all, here);
            __syncwarp();
            wait_for_phase(at.dS_full + 8 * stage, step / cfg.stages);
            multiply_dQ<cfg>(args, at, block, stage);
            here.advance(all);
        }
        bar_sync(1, WARPGROUP); /* all have multiplied with K */
        if (copies) copier.begin_next(turn);
    }
}

/* ---- in order: dQ and its turns ---- */

/* A warp for each stage has the turn of the Q block there: it waits for it, and passes it on when what the CTA adds has
 * arrived. So warpgroup 0 does neither. One thread. */
template <backward_config cfg>
__device__ __forceinline__ void keep_turns(const backward_args &args, const places<cfg> &at, int stage) {
    for (int phase = 0;; phase++) {
        int number, own, last, unused;
        wait_for_phase(at.full + 8 * stage, phase);
        load_shared_v4(at.turn + 16 * stage, number, own, last, unused);
        mbarrier_arrive(at.empty + 8 * stage);
        if (number < 0) break;
        int *const turn = args.turns + BACKWARD_COUNTERS + number;
        wait_for_turn(turn, own);
        mbarrier_arrive(at.turn_there + 8 * stage);
        wait_for_phase(at.added + 8 * stage, phase);
        if (own < last) st_release(turn, own + 1);
    }
}

/* What the CTA adds to 64 columns of a block: the first leaves its part, the last takes up what the others have added
 * and rounds dQ. */
template <backward_config cfg>
__device__ __forceinline__ void add_in_order(const pass_args<cfg> &args, const block_of_dQ<cfg> &block, int span,
                                             tiles<8> &dQ) {
    float *const sums = block.sums(args) + span * (cfg.B_r * SPAN);
    const int last = last_seen<cfg>(args, block.of.seq, block.Q_block);
    const int own = place_in_order<cfg>(args, block.of, last);
    if (own == last) {
        if (last > 0) take_sums(dQ, sums);
        store_dQ<cfg>(args, block.of, block.head, block.Q_block, span * SPAN, dQ);
    } else if (own == 0) {
        store_sums(sums, dQ);
    } else {
        add_dQ(sums, dQ);
    }
}

/* dQ of a block, from dS in a stage. `ends`: nothing reads the tile's K after it. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dQ_in_order(const pass_args<cfg> &args, const places<cfg> &at,
                                                     const block_of_dQ<cfg> &block, const ring_place<cfg.stages> &now,
                                                     bool ends) {
    constexpr int spans = cfg.d_head / SPAN;
    const int stage = now.stage;
    wait_for_phase(at.dS_full + 8 * stage, now.phase);
#pragma unroll 1
    for (int span = 0; span < spans; span++) {
        tiles<8> dQ;
        wgmma_fence();
        start_dQ<cfg>(dQ, at.dS + stage * places<cfg>::dS_bytes, at.K + span * places<cfg>::KV_tile);
        wgmma_wait_group<0>(dQ);
        if (span == spans - 1) {
            arrive_as_warp(at.dS_empty + 8 * stage);
            if (ends) arrive_as_warp(at.KV_empty);
        }
        if (span == 0) wait_for_phase(at.turn_there + 8 * stage, now.phase);
        add_in_order<cfg>(args, block, span, dQ);
    }
    arrive_as_warp(at.added + 8 * stage);
}

/* Warpgroup 0. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_all_dQ(const pass_args<cfg> &args, const places<cfg> &at) {
    ring_place<cfg.stages> now;
    for (int turn = 0;; turn++) {
        wait_for_phase(at.KV_full, turn);
        const work<cfg> all = read_work<cfg>(at.posted(turn));
        if (all.KV_block < 0) break;
        if (cfg.serves && !all.blocks) arrive_as_warp(at.KV_empty);
        place<cfg> here;
#pragma unroll 1
        for (int left = args.heads / args.KV_heads * all.blocks; left; left--) {
            multiply_dQ_in_order<cfg>(args, at, block_of_dQ<cfg>(args, all, here), now, left == 1);
            here.advance(all);
            now.advance();
        }
    }
}

/* Warpgroup 3: one warp copies, others have the turns. */
template <backward_config cfg>
__device__ __forceinline__ void copy_and_keep_turns(const pass_args<cfg> &args, const tensor_maps &maps,
                                                    const places<cfg> &at) {
    const int warp = warp_uniform(threadIdx.x % WARPGROUP / 32);
    if (threadIdx.x % 32) return;
    if (warp == 0)
        copier<cfg>{args, maps, at}.copy_all();
    else if (warp <= cfg.stages)
        keep_turns<cfg>(args, at, warp - 1);
}

/* Warpgroups 1 and 2: dK and dV of 64 keys. P of a Q block is computed beside dK of the one before. */
template <backward_config cfg>
struct keys {
    using of = places<cfg>;
    const pass_args<cfg> &args;
    const places<cfg> &at;
    const uint32_t own; /* the warpgroup's keys within a tile */
    fragments<4> &P;
    key_sums<cfg> &dK, &dV;
    ring_place<cfg.stages> now, before;

    __device__ __forceinline__ uint32_t Q(int stage) const { return at.Q + stage * of::Q_bytes; }
    __device__ __forceinline__ uint32_t dO(int stage) const { return at.dO + stage * of::Q_bytes; }
    __device__ __forceinline__ uint32_t lse(int stage) const { return at.lse + stage * 2 * of::row_bytes; }

    /* P of the block in a stage from its scores. */
    __device__ __forceinline__ void finish_P(tiles<8> &scores, int stage, const work<cfg> &all, int Q_block) {
        const int last_key =
            keys_of<cfg>(args, all.seq) - 1 - all.KV_block * cfg.B_c; /* of the last query, from the CTA's first */
        const int last = args.causal ? last_key - (queries_of<cfg>(args, all.seq) - 1) + Q_block * cfg.B_r : last_key;
        take_exponentials(scores, args.softmax_scale * 1.44269504f, lse(stage));
        if (last < cfg.B_c - 1) mask(scores, last, args.causal);
    }

    __device__ __forceinline__ void first_P(const work<cfg> &all, int Q_block) {
        tiles<8> scores;
        wait_for_phase(at.full + 8 * now.stage, now.phase);
        wgmma_fence();
        start_scores<cfg>(scores, at.K + own, Q(now.stage));
        wgmma_wait_group<0>(scores);
        finish_P(scores, now.stage, all, Q_block);
        round_scores<cfg>(P, scores);
    }

    /* dS of the block at hand, and dK of the one before beside it. */
    template <bool first>
    __device__ __forceinline__ void compute_dS() {
        tiles<8> dP;
        if constexpr (!first) bar_sync(2 + own / (64 * TILE_ROW), WARPGROUP); /* dS of the block before is there */
        wgmma_fence();
        start_scores<cfg>(dP, at.V + own, dO(now.stage));
        if constexpr (!first) start_dK<cfg>(dK, at.dS + before.stage * of::dS_bytes + own, Q(before.stage));
        wgmma_wait_group<first ? 0 : 1>(dP);
        differentiate<cfg>(dP, P, lse(now.stage) + of::row_bytes);
        fragments<4> dS;
        round_scores<cfg>(dS, dP);
        wait_for_phase(at.dS_empty + 8 * now.stage, now.phase - 1);
        store_dS(at.dS + now.stage * of::dS_bytes, dS);
        fence_proxy_async(); /* wgmma sees what this thread has stored */
        arrive_as_warp(at.dS_full + 8 * now.stage);
        if constexpr (!first) {
            wgmma_wait_group<0>(dK);
            arrive_as_warp(at.empty + 8 * before.stage);
        }
    }

    /* dV, and P of the next block beside it. */
    __device__ __forceinline__ void compute_P(const work<cfg> &all, int next_block) {
        before = now;
        now.advance();
        wait_for_phase(at.full + 8 * now.stage, now.phase);
        tiles<8> scores;
        wgmma_fence();
        start_scores<cfg>(scores, at.K + own, Q(now.stage));
        start_sums<cfg>(dV, P, dO(before.stage));
        wgmma_wait_group<1>(scores);
        finish_P(scores, now.stage, all, next_block);
        wgmma_wait_group<0>(dV);
        round_scores<cfg>(P, scores);
    }

    __device__ __forceinline__ void finish() {
        bar_sync(2 + own / (64 * TILE_ROW), WARPGROUP);
        wgmma_fence();
        start_sums<cfg>(dV, P, dO(now.stage));
        start_dK<cfg>(dK, at.dS + now.stage * of::dS_bytes + own, Q(now.stage));
        arrive_as_warp(at.KV_empty);
        wgmma_wait_group<0>(dV);
        wgmma_wait_group<0>(dK);
        arrive_as_warp(at.empty + 8 * now.stage);
        now.advance();
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_keys(const pass_args<cfg> &args, const places<cfg> &at) {
    key_sums<cfg> dK, dV;
    fragments<4> P;
    const uint32_t first = (warp_uniform(threadIdx.x / WARPGROUP) - 1) * 64 * TILE_ROW;
    keys<cfg> own{args, at, first, P, dK, dV};
    for (int turn = 0;; turn++) {
        wait_for_phase(at.KV_full, turn);
        const work<cfg> all = read_work<cfg>(at.posted(turn));
        if (all.KV_block < 0) break;
        for (int i = 0; i < cfg.d_head / 8; i++)
            for (int j = 0; j < 4; j++) dK[i][j] = dV[i][j] = 0;
        place<cfg> here;
        if (!cfg.serves || all.blocks) {
            own.first_P(all, here.block(all));
            own.template compute_dS<true>();
#pragma unroll 1
            for (int left = args.heads / args.KV_heads * all.blocks - 1; left; left--) {
                here.advance(all);
                own.compute_P(all, here.block(all));
                own.template compute_dS<false>();
            }
            own.finish();
        } else {
            arrive_as_warp(at.KV_empty);
        }
        store_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
        store_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
    }
}

/* With d_head 256 dK and dV of 64 keys and of 128 columns are what a thread has registers for. Each warpgroup computes
 * P and dS of 32 of the queries and leaves them in shared memory, then both read all of them: dV += Pᵀ dO, dK += dSᵀ Q
 * for half of the columns. */
template <backward_config cfg>
struct columns {
    using of = places<cfg>;
    const pass_args<cfg> &args;
    const places<cfg> &at;
    const int half; /* 0 or 1 */
    tiles<4> &S, &dP;
    key_sums<cfg> &dK, &dV;
    ring_place<cfg.stages> now;

    /* d = 64 keys times 32 queries. */
    __device__ __forceinline__ void start_half(tiles<4> &d, uint32_t keys, uint32_t queries) const {
        const uint64_t a = wgmma_descriptor(keys, 0), b = wgmma_descriptor(queries + half * 32 * TILE_ROW, 0);
#pragma unroll
        for (int k = 0; k < cfg.d_head / 16; k++) {
            const uint64_t of_a = a + k / 4 * (of::KV_tile / 16) + k % 4 * 2;
            const uint64_t of_b = b + k / 4 * (of::Q_tile / 16) + k % 4 * 2;
            if constexpr (cfg.dtype == FP16)
                wgmma_m64n32k16_f16(d, of_a, of_b, k > 0);
            else
                wgmma_m64n32k16_bf16(d, of_a, of_b, k > 0);
        }
        wgmma_commit_group();
    }

    /* sums += coefficients (64 keys by B_r queries, in shared memory) times 128 columns of the rows of Q or dO. */
    __device__ __forceinline__ void start_columns(key_sums<cfg> &sums, uint32_t coefficients, uint32_t other) const {
        const uint64_t a = wgmma_descriptor(coefficients, 0);
        const uint64_t b = wgmma_descriptor(other + half * 2 * of::Q_tile, of::Q_tile);
#pragma unroll
        for (int k = 0; k < cfg.B_r / 16; k++)
            if constexpr (cfg.dtype == FP16)
                wgmma_m64n128k16_f16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
            else
                wgmma_m64n128k16_bf16_b_trans(sums, a + 2 * k, b + 128 * k, 1);
        wgmma_commit_group();
    }

    /* Put 64 keys by 32 queries into a tile of 64 by 64 in shared memory. */
    __device__ __forceinline__ void store_half(uint32_t smem, const uint32_t (&a)[2][4]) const {
        const int lane = threadIdx.x % 32, key = threadIdx.x % WARPGROUP / 32 * 16 + lane % 16;
        for (int k = 0; k < 2; k++)
            stmatrix_x4(smem + key * TILE_ROW + ((4 * half + 2 * k + lane / 16) ^ key % 8) * 16, a[k]);
    }

    /* P and dS of the warpgroup's queries from S and dP. */
    __device__ __forceinline__ void round_half(uint32_t (&of_P)[2][4], uint32_t (&of_dS)[2][4], uint32_t lse,
                                               const work<cfg> &all, int Q_block) const {
        const int lane = threadIdx.x % 32;
        const int last_key =
            keys_of<cfg>(args, all.seq) - 1 - all.KV_block * cfg.B_c - (threadIdx.x % WARPGROUP / 32 * 16 + lane / 4);
        const int of_first =
            args.causal ? last_key - (queries_of<cfg>(args, all.seq) - 1) + Q_block * cfg.B_r + half * 32 : last_key;
        for (int tile = 0; tile < 4; tile++) {
            const float2 of_row = load_pair(lse, tile), delta = load_pair(lse + of::row_bytes, tile);
            float P[4];
            for (int i = 0; i < 4; i++) {
                const int behind = args.causal ? 8 * tile + lane % 4 * 2 + i % 2 : 0;
                P[i] = ex2_approx(S[tile][i] * (args.softmax_scale * 1.44269504f) - (i % 2 ? of_row.y : of_row.x));
                if (i / 2 * 8 > of_first + behind) P[i] = 0;
            }
            for (int i = 0; i < 2; i++) {
                uint32_t &pair = of_P[tile / 2][tile % 2 * 2 + i];
                float p[2];
                pair = round_pair<cfg.dtype>(P[2 * i], P[2 * i + 1]);
                widen_pair<cfg>(pair, p[0], p[1]);
                of_dS[tile / 2][tile % 2 * 2 + i] =
                    round_pair<cfg.dtype>(p[0] * (dP[tile][2 * i] - delta.x), p[1] * (dP[tile][2 * i + 1] - delta.y));
            }
        }
    }

    /* The stage holds a Q block: P and dS of the warpgroup's queries, then its columns of dV and dK. */
    __device__ __forceinline__ void step(const work<cfg> &all, int Q_block, bool last) {
        const int stage = now.stage;
        const uint32_t lse = at.lse + stage * 2 * of::row_bytes + half * 32 * sizeof(float);
        const uint32_t Q = at.Q + stage * of::Q_bytes, dO = at.dO + stage * of::Q_bytes;
        uint32_t of_P[2][4], of_dS[2][4];
        wait_for_phase(at.full + 8 * stage, now.phase);
        wgmma_fence();
        start_half(S, at.K, Q);
        start_half(dP, at.V, dO);
        wgmma_wait_group<0>(S);
        wgmma_wait_group<0>(dP);
        if (last) arrive_as_warp(at.KV_empty);
        round_half(of_P, of_dS, lse, all, Q_block);
        wait_for_phase(at.dS_empty + 8 * stage, now.phase - 1);
        store_half(at.P + stage * of::P_bytes, of_P);
        store_half(at.dS + stage * of::dS_bytes, of_dS);
        fence_proxy_async(); /* wgmma sees what this thread has stored */
        arrive_as_warp(at.dS_full + 8 * stage);
        bar_sync(2, 2 * WARPGROUP); /* the other half is there, and what both read of the block before is read */
        wgmma_fence();
        start_columns(dV, at.P + stage * of::P_bytes, dO);
        start_columns(dK, at.dS + stage * of::dS_bytes, Q);
        wgmma_wait_group<0>(dV);
        wgmma_wait_group<0>(dK);
        arrive_as_warp(at.empty + 8 * stage);
        now.advance();
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_columns(const pass_args<cfg> &args, const places<cfg> &at) {
    key_sums<cfg> dK, dV;
    tiles<4> S, dP;
    columns<cfg> own{args, at, warp_uniform(threadIdx.x / WARPGROUP) - 1, S, dP, dK, dV};
    for (int turn = 0;; turn++) {
        wait_for_phase(at.KV_full, turn);
        const work<cfg> all = read_work<cfg>(at.posted(turn));
        if (all.KV_block < 0) break;
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 4; j++) dK[i][j] = dV[i][j] = 0;
        place<cfg> here;
        if (cfg.serves && !all.blocks) arrive_as_warp(at.KV_empty);
#pragma unroll 1
        for (int left = args.heads / args.KV_heads * all.blocks; left; left--) {
            own.step(all, here.block(all), left == 1);
            here.advance(all);
        }
        store_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
        store_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
    }
}

/* ---- one tile a CTA: heads of 64 and 128, in any order ---- */

/* The KV block of the CTA, and the steps to go: the Q blocks of one head behind those of the other. */
template <backward_config cfg>
struct own_work : work<cfg> {
    using work<cfg>::KV_block, work<cfg>::KV_head, work<cfg>::sample, work<cfg>::seq;
    using work<cfg>::first_block, work<cfg>::blocks, work<cfg>::start;
    int heads;

    __device__ __forceinline__ own_work(const pass_args<cfg> &args) : heads(args.heads / args.KV_heads) {
        if constexpr (cfg.serves) {
            (work<cfg> &)*this = find_packed_work<cfg>(args, blockIdx.x, blockIdx.y);
        } else {
            const unsigned KV_blocks = (args.seq_k + cfg.B_c - 1) / cfg.B_c;
            KV_block = blockIdx.x % KV_blocks;
            KV_head = blockIdx.x / KV_blocks % (unsigned)args.KV_heads;
            sample = blockIdx.x / KV_blocks / (unsigned)args.KV_heads;
            first_block = first_seeing<cfg>(args, seq, KV_block);
            blocks = (args.seq_q + cfg.B_r - 1) / cfg.B_r - first_block;
            start = args.causal ? 0 : (unsigned)KV_block * blocks / KV_blocks;
        }
    }
    __device__ __forceinline__ int steps() const { return heads * blocks; }
    __device__ __forceinline__ int head(int step) const { return KV_head * heads + step / blocks; }
    __device__ __forceinline__ int block(int step) const {
        const int from_first = step % blocks + start;
        return first_block + (from_first < blocks ? from_first : from_first - blocks);
    }
};

/* The Q block of a step and the statistics of its queries, once the block that had the stage before is read. */
template <backward_config cfg>
__device__ __forceinline__ void copy_step(const pass_args<cfg> &args, const tensor_maps &maps, const places<cfg> &at,
                                          const own_work<cfg> &all, int step) {
    using of = places<cfg>;
    const int stage = step % cfg.stages, of_sequence = all.block(step) * cfg.B_r, head = all.head(step);
    const float *const kept =
        args.delta + (first_block_of<cfg>(args, all.seq, all.sample, head) + all.block(step)) * 2 * cfg.B_r;
    const uint32_t full = at.full + 8 * stage;
    wait_for_phase(at.empty + 8 * stage, step / cfg.stages - 1);
    mbarrier_arrive_expect_tx(full, 2 * (of::Q_bytes + of::row_bytes));
    int row = of_sequence;
    if constexpr (cfg.serves) row += all.seq.first_q;
    copy_tensor_to_smem(at.Q + stage * of::Q_bytes, maps.Q, full, row, head, sample_of<cfg>(all));
    copy_bytes_to_smem(at.lse + stage * 2 * of::row_bytes, kept, 2 * of::row_bytes, full);
    copy_tensor_to_smem(at.dO + stage * of::Q_bytes, maps.O, full, row, head, sample_of<cfg>(all));
}

/* K and V, and the Q block of the first step. */
template <backward_config cfg>
__device__ __forceinline__ void copy_first(const pass_args<cfg> &args, const tensor_maps &maps, const places<cfg> &at,
                                           const own_work<cfg> &all) {
    mbarrier_arrive_expect_tx(at.KV_full, 2 * places<cfg>::KV_bytes);
    int row = all.KV_block * cfg.B_c;
    if constexpr (cfg.serves) row += all.seq.first_k;
    copy_tensor_to_smem(at.K, maps.K, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
    copy_tensor_to_smem(at.V, maps.V, at.KV_full, row, all.KV_head, sample_of<cfg>(all));
    if (!cfg.serves || all.steps()) copy_step<cfg>(args, maps, at, all, 0);
}

/* Warpgroup 0: copies one block ahead, dQ of the block at hand. */
template <backward_config cfg>
__device__ __forceinline__ void multiply_dQ_of_tile(const pass_args<cfg> &args, const tensor_maps &maps,
                                                    const places<cfg> &at) {
    constexpr int spans = cfg.d_head / SPAN;
    const own_work<cfg> all(args);
    const bool copies = threadIdx.x == 0;
    if (cfg.serves && all.KV_block < 0) return;
    if (copies) copy_first<cfg>(args, maps, at, all);
    __syncwarp();
    wait_for_phase(at.KV_full, 0);
    for (int step = 0; step < all.steps(); step++) {
        const int stage = step % cfg.stages;
        if (copies && step + 1 < all.steps()) copy_step<cfg>(args, maps, at, all, step + 1);
        __syncwarp();
        wait_for_phase(at.dS_full + 8 * stage, step / cfg.stages);
        const int64_t block = first_block_of<cfg>(args, all.seq, all.sample, all.head(step)) + all.block(step);
#pragma unroll 1
        for (int span = 0; span < spans; span++) {
            tiles<8> dQ;
            wgmma_fence();
            start_dQ<cfg>(dQ, at.dS + stage * places<cfg>::dS_bytes, at.K + span * places<cfg>::KV_tile);
            wgmma_wait_group<0>(dQ);
            if (span == spans - 1) arrive_as_warp(at.dS_empty + 8 * stage);
            add_dQ(args.sums + (block * spans + span) * (cfg.B_r * SPAN), dQ);
        }
    }
}

/* Warpgroups 1 and 2: dK and dV of 64 keys. */
template <backward_config cfg>
struct own_keys {
    using of = places<cfg>;
    const pass_args<cfg> &args;
    const places<cfg> &at;
    const uint32_t own; /* the warpgroup's keys within a tile */
    key_sums<cfg> &dK, &dV;

    /* P of a block, rounded. `last`: the last key that its first query sees, from the CTA's first. */
    __device__ __forceinline__ void compute_P(fragments<4> &rounded, uint32_t Q, uint32_t lse, int last) const {
        tiles<8> P;
        wgmma_fence();
        start_scores<cfg>(P, at.K + own, Q);
        wgmma_wait_group<0>(P);
        take_exponentials(P, args.softmax_scale * 1.44269504f, lse);
        if (last < cfg.B_c - 1) mask(P, last, args.causal);
        round_scores<cfg>(rounded, P);
    }

    /* dV beside dS, then dK. */
    __device__ __forceinline__ void step(int stage, int phase, int last) const {
        const uint32_t Q = at.Q + stage * of::Q_bytes, dO = at.dO + stage * of::Q_bytes;
        const uint32_t lse = at.lse + stage * 2 * of::row_bytes, delta = lse + of::row_bytes;
        fragments<4> of_P, of_dS;
        wait_for_phase(at.full + 8 * stage, phase);
        compute_P(of_P, Q, lse, last);
        tiles<8> dS;
        wgmma_fence();
        start_scores<cfg>(dS, at.V + own, dO);
        copy_registers(of_dS, of_P);
        start_sums<cfg>(dV, of_P, dO);
        wgmma_wait_group<1>(dS);
        differentiate<cfg>(dS, of_dS, delta);
        round_scores<cfg>(of_dS, dS);
        wait_for_phase(at.dS_empty + 8 * stage, phase - 1);
        store_dS(at.dS + stage * of::dS_bytes, of_dS);
        fence_proxy_async(); /* wgmma sees what this thread has stored */
        arrive_as_warp(at.dS_full + 8 * stage);
        wgmma_fence();
        start_sums<cfg>(dK, of_dS, Q);
        wgmma_wait_group<0>(dK);
        wgmma_wait_group<0>(dV);
        arrive_as_warp(at.empty + 8 * stage);
    }
};

template <backward_config cfg>
__device__ __forceinline__ void multiply_keys_of_tile(const pass_args<cfg> &args, const places<cfg> &at) {
    const own_work<cfg> all(args);
    if (cfg.serves && all.KV_block < 0) return;
    key_sums<cfg> dK = {}, dV = {};
    const uint32_t first = (warp_uniform(threadIdx.x / WARPGROUP) - 1) * 64 * TILE_ROW;
    const own_keys<cfg> own{args, at, first, dK, dV};
    const int last_key =
        keys_of<cfg>(args, all.seq) - 1 - all.KV_block * cfg.B_c; /* of the last query, from the CTA's first */
    const int first_last =
        args.causal ? last_key - (queries_of<cfg>(args, all.seq) - 1) + all.first_block * cfg.B_r : last_key;
    wait_for_phase(at.KV_full, 0);
#pragma unroll 1
    for (int step = 0, block = 0; step < all.steps(); step++) {
        own.step(step % cfg.stages, step / cfg.stages, args.causal ? first_last + block * cfg.B_r : last_key);
        block = block + 1 < all.blocks ? block + 1 : 0;
    }
    store_rows<cfg>(args.dK, args.K_strides, keys_of<cfg>(args, all.seq), all, dK, args.softmax_scale);
    store_rows<cfg>(args.dV, args.V_strides, keys_of<cfg>(args, all.seq), all, dV, 1);
}

/* ---- the kernels: grid (CTAs with a tile each, or that draw tiles), 32 * n_warps threads ---- */

/* Registers of warpgroup 0, of 1 and 2, and in order of 3: what the CTA is launched with, shared out anew. */
template <backward_config cfg>
struct registers {
    static constexpr int dQ = cfg.in_order ? 64 : draws<cfg> ? 88 : 72, keys = draws<cfg> ? 208 : 216, copies = 32;
};

template <backward_config cfg>
__device__ __forceinline__ void differentiate_attention(const pass_args<cfg> &args, const tensor_maps &maps) {
    check_config<cfg>();
    extern __shared__ char smem_bytes[];
    const places<cfg> at(__cvta_generic_to_shared(smem_bytes));
    init_mbarriers<cfg>(at);
    const int warpgroup = warp_uniform(threadIdx.x / WARPGROUP);
    if (warpgroup == 0) {
        setmaxnreg_dec<registers<cfg>::dQ>();
        if constexpr (cfg.in_order)
            multiply_all_dQ<cfg>(args, at);
        else if constexpr (draws<cfg>)
            copy_and_multiply_dQ<cfg>(args, maps, at);
        else
            multiply_dQ_of_tile<cfg>(args, maps, at);
    } else if (cfg.in_order && warpgroup == 3) {
        setmaxnreg_dec<registers<cfg>::copies>();
        copy_and_keep_turns<cfg>(args, maps, at);
    } else {
        setmaxnreg_inc<registers<cfg>::keys>();
        if constexpr (cfg.d_head == 256)
            multiply_columns<cfg>(args, at);
        else if constexpr (cfg.in_order)
            multiply_keys<cfg>(args, at);
        else
            multiply_keys_of_tile<cfg>(args, at);
    }
}

template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_args args) {
    sum_rows<cfg>(args);
}
template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps, 1)
    flash_backward(const __grid_constant__ backward_args args, const __grid_constant__ tensor_maps maps) {
    differentiate_attention<cfg>(args, maps);
}
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_args args) {
    round_rows<cfg>(args);
}

/* Those that serve. */
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) row_sums(const __grid_constant__ backward_serving_args args) {
    sum_rows<cfg>(args);
}
template <backward_config cfg>
__global__ void __launch_bounds__(32 * cfg.n_warps, 1)
    flash_backward(const __grid_constant__ backward_serving_args args, const __grid_constant__ tensor_maps maps) {
    differentiate_attention<cfg>(args, maps);
}
template <backward_config cfg>
__global__ void __launch_bounds__(BACKWARD_SMALL_THREADS) round_dQ(const __grid_constant__ backward_serving_args args) {
    round_rows<cfg>(args);
}

#include "instances.cuh"
