/* backward_schedule.cuh - assigns tiles to CTAs and orders the Q blocks of a tile.
 *
 *     const work<cfg> all = find_work<cfg>(args, fetch_tile<cfg>(args));      a tile from the counter
 *     const own_work<cfg> all(args);                                        or the one tile of this CTA
 *     for (q_block<cfg> here; here.is_in(all, heads); here.advance(all))      the Q blocks that see its keys
 *
 * A tile is a KV block of a KV head.
 */
#ifndef FL_ATTENTION_BACKWARD_SCHEDULE_CUH
#define FL_ATTENTION_BACKWARD_SCHEDULE_CUH

#include "common/ptx_sm90a.cuh"
#include "kernels/attention/backward_sequences.cuh"

/* True if CTAs fetch tiles from a counter; otherwise each has one tile. */
template <backward_config cfg>
constexpr bool is_dynamic = backward_draws(&cfg);

/* True if two warpgroups compute everything, dQ of a Q block beside dV of the next one. */
template <backward_config cfg>
constexpr bool late_dQ = backward_late_dQ(&cfg);

/* Number of KV blocks of all heads, which are divided among the CTAs. */
template <backward_config cfg>
__device__ __forceinline__ int count_tiles(const backward_args &args) {
    return count_KV_blocks<cfg>(args) * args.KV_heads * (cfg.serves ? 1 : args.batch);
}

/* Fetch the number of a CTA's next tile, or -1 past the last. A CTA waits only for tiles that another CTA has already
 * fetched. */
template <backward_config cfg>
__device__ __forceinline__ int fetch_tile(const backward_args &args) {
    const int fetched = atomicAdd(args.turns, 1);
    return fetched < count_tiles<cfg>(args) ? fetched : -1;
}

/* A KV block, and the Q blocks of all heads that attend to its keys. */
template <backward_config cfg>
struct work {
    int KV_block, KV_head, sample; /* KV_block -1: there is none */
    int first_block, blocks, start;
    [[no_unique_address]] own_sequence<cfg> seq;
};

/* The sample of the tensors: 0 if sequences are packed. */
template <backward_config cfg>
__device__ __forceinline__ int sample_of(const work<cfg> &of) {
    if constexpr (cfg.serves) return of.seq.Q_sample;
    return of.sample;
}

/* True if no other sequence has one of the blocks of queries or keys. If offsets decreased, a CTA could wait for a turn
 * that is never passed on. The sequence that is found never decreases with the block number, so comparing the first and
 * the last block suffices. */
template <backward_config cfg>
__device__ __forceinline__ bool owns_its_blocks(const backward_serving_args &args, const own_sequence<cfg> &seq,
                                                int sample) {
    const int first_q = first_Q_block<cfg>(args, seq, sample), Q_blocks = (seq.seq_q + cfg.B_r - 1) / cfg.B_r;
    const int first_k = first_KV_block<cfg>(args, seq, sample), KV_blocks = (seq.seq_k + cfg.B_c - 1) / cfg.B_c;
    const auto of_Q = [&](int number) { return queries_of_all(args).sequence_of_block(cfg.B_r, number); };
    const auto of_K = [&](int number) { return keys_of_all(args).sequence_of_block(cfg.B_c, number); };
    return of_K(first_k) == sample && of_K(first_k + max(KV_blocks, 1) - 1) == sample && of_Q(first_q) == sample &&
           of_Q(first_q + max(Q_blocks, 1) - 1) == sample;
}

/* Sequences of several lengths: find KV block `number` of a head. */
template <backward_config cfg>
__device__ __forceinline__ work<cfg> find_packed_work(const pass_args<cfg> &args, int number, int KV_head) {
    const int sample = keys_of_all(args).sequence_of_block(cfg.B_c, number);
    const sequence seq = find_sequence(args, sample);
    const int KV_block = number - first_KV_block<cfg>(args, seq, sample);
    if (KV_block < 0 || KV_block * cfg.B_c >= seq.seq_k) return {-1};
    if (cfg.in_order && !owns_its_blocks<cfg>(args, seq, sample)) return {-1};
    const int KV_blocks = (seq.seq_k + cfg.B_c - 1) / cfg.B_c;
    const int first = first_seeing<cfg>(args, seq, KV_block);
    const int blocks = max(0, end_seeing<cfg>(args, seq, KV_block) - first);
    const int start = cfg.in_order || args.causal ? 0 : (unsigned)KV_block * blocks / KV_blocks;
    return {KV_block, KV_head, sample, first, blocks, start, seq};
}

/* A tile of a KV head and a batch entry, and its number within the head. */
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

/* Number of heads whose tensors and accumulators take `bytes` bytes. */
template <backward_config cfg>
__device__ __forceinline__ int heads_of(const backward_args &args, int bytes) {
    const int bytes_of_row = cfg.d_head * (4 + 8 * (args.heads / args.KV_heads));
    return max(1, bytes / bytes_of_row / max(args.seq_q, args.seq_k));
}

/* In order, tiles are numbered across the heads of a section, so that successive CTAs of a head start one after the
 * other. More heads mean shorter waits, as long as all of them stay in the L2 cache. With the mask, tiles run from the
 * last KV block, to which the fewest queries attend, to the first: each begins with Q blocks that the CTAs before it
 * have already finished. */
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

/* Without a mask, tiles are numbered along a head and then across heads. With the mask, the first KV block of a head
 * has the most queries, so tiles are numbered across the KV heads of a section, whose tensors stay in the L2 cache,
 * from the first KV block to the last. With serve, they are numbered along a head, which has the tiles of all
 * sequences. */
template <backward_config cfg>
__device__ __forceinline__ work<cfg> find_work(const pass_args<cfg> &args, int tile) {
    if constexpr (cfg.in_order) return find_work_in_order<cfg>(args, tile);
    const int KV_blocks = count_KV_blocks<cfg>(args);
    int pair = tile / KV_blocks, KV_block = tile - pair * KV_blocks; /* pair: of a KV head and a sample */
    if (tile < 0) return {-1};
    if constexpr (cfg.serves) return find_packed_work<cfg>(args, KV_block, pair);
    const bool in_sections = !late_dQ<cfg> || KV_blocks > 8; /* shorter heads are faster one after the other */
    if (args.causal && in_sections) {
        const int pairs = args.KV_heads * args.batch;
        constexpr int bytes = late_dQ<cfg> ? 24 << 20 : 32 << 20; /* 24 MiB: equal sections for powers of two */
        const tile_number found = along_heads(tile, KV_blocks, pairs, heads_of<cfg>(args, bytes));
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

/* Read the tile that the fetching thread stored in shared memory. */
template <backward_config cfg>
__device__ __forceinline__ void post_work(uint32_t smem, const work<cfg> &of) {
    store_shared_v4(smem, of.KV_block, of.KV_head, of.sample, of.first_block);
    if constexpr (!cfg.serves) {
        store_shared_v4(smem + 16, of.blocks, of.start, 0, 0);
    } else {
        store_shared_v4(smem + 16, of.blocks, of.start, of.seq.seq_q, of.seq.seq_k);
        store_shared_v4(smem + 32, of.seq.first_q, of.seq.first_k, of.seq.Q_sample, of.seq.KV_sample);
    }
}
template <backward_config cfg>
__device__ __forceinline__ work<cfg> read_work(uint32_t smem) {
    work<cfg> of;
    load_shared_v4(smem, of.KV_block, of.KV_head, of.sample, of.first_block);
    if constexpr (!cfg.serves) {
        int unused[2];
        load_shared_v4(smem + 16, of.blocks, of.start, unused[0], unused[1]);
    } else {
        load_shared_v4(smem + 16, of.blocks, of.start, of.seq.seq_q, of.seq.seq_k);
        load_shared_v4(smem + 32, of.seq.first_q, of.seq.first_k, of.seq.Q_sample, of.seq.KV_sample);
    }
    return of;
}

/* One step of a tile: a Q block of a head. The CTAs of a head begin at different blocks, so that they do not add to the
 * same rows; in order, or with the mask, they begin with the first. */
template <backward_config cfg>
struct q_block {
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

/* The KV block of the CTA, and the remaining steps: the Q blocks of one head after those of the other. */
template <backward_config cfg>
struct own_work : work<cfg> {
    using work<cfg>::KV_block, work<cfg>::KV_head, work<cfg>::sample, work<cfg>::seq;
    using work<cfg>::first_block, work<cfg>::blocks, work<cfg>::start;
    int heads;

    __device__ __forceinline__ own_work(const pass_args<cfg> &args) : heads(args.heads / args.KV_heads) {
        if constexpr (cfg.serves) {
            (work<cfg> &)*this = find_packed_work<cfg>(args, blockIdx.x, blockIdx.y);
        } else if constexpr (late_dQ<cfg>) {
            (work<cfg> &)*this = find_work<cfg>(args, blockIdx.x);
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

#endif
