/* decode_consumer.cuh - the computing warps of attention/decode and attention/decode_mma_sync.
 *
 *     consumer<cfg>{args, at, line, Q, O, m, l, scale, scales}.attend();
 *
 * Each warp has all rows of a row block, and the keys of one box of each KV block, so that no two warps read the same K
 * and V. At the end of a piece they add up their O and l, scaled to the largest of their m. If this is only a partial
 * result, it goes to the workspace, and the last CTA that stores one for a row block combines them in the order of the
 * keys (parts.cuh).
 *
 * K and V in e4m3 or int8 are converted to fp16, without rounding, before mma: half the bytes take half the time. Q in
 * bf16 becomes fp16 as well: each row is multiplied by a power of two, because fp16 has fewer exponents. ldmatrix gives
 * a lane four neighboring columns of 16 of K, so Q is read in that order. ldmatrix.trans moves pairs of columns of V,
 * so the even ones of 16 columns of O form one tile and the odd ones the next, and a lane's four are neighbors.
 */
#ifndef FL_ATTENTION_DECODE_CONSUMER_CUH
#define FL_ATTENTION_DECODE_CONSUMER_CUH

#include "common/ptx_fp8.cuh"
#include "common/ptx_wgmma_boxes.cuh"
#include "common/serving.h"
#include "kernels/attention/decode_smem.cuh"
#include "kernels/attention/fragments.cuh"
#include "kernels/attention/heads.cuh"
#include "kernels/attention/mask.cuh"
#include "kernels/attention/parts.cuh"
#include "kernels/attention/ragged.cuh"
#include "kernels/attention/softmax.cuh"

/* ---- the other warps ---- */

/* m may lag behind the largest score, as long as exponentials are at most 2^8: it cancels out in O / l. */
constexpr float most_lag = 8;

/* Scale of the elements of K or V of a KV head. */
template <decode_config cfg>
__device__ __forceinline__ float scale_of(const attention_args &args, const float *serving_args::*scales, int head) {
    const float *const of_heads = static_cast<const serving_args &>(args).*scales;
    return of_heads ? of_heads[head] : 1;
}

/* Type of the operands of mma: fp16 represents every e4m3 and int8 value. */
template <decode_config cfg>
constexpr dtype mma_type = has_bytes<cfg> ? FP16 : cfg.dtype;

/* GPUs before 8.9 convert e4m3 by other instructions, which leave a factor in K and V as operands. These, and those for
 * int8, convert bytes 0 and 2, and 1 and 3, of four. */
template <decode_config cfg>
constexpr bool has_factor = cfg.e4m3_cache && cfg.cp_async;
template <decode_config cfg>
constexpr bool converts_by_integers = has_factor<cfg> || cfg.int8_cache;
template <decode_config cfg>
constexpr float KV_factor = has_factor<cfg> ? e4m3_factor : 1;

/* An infinity becomes a NaN: by that factor the NaN of e4m3 is infinite. */
__device__ __forceinline__ void infinity_to_nan(float &x) {
    x = fmaf(x, 0.0f, x);
}

/* Slots of the workspace to which a part of a row block goes: that of the sum that it is added to, and its own. With
 * `ends` the sum is the result. */
struct part_position {
    int64_t slot, own_slot;
    bool adds, ends;
};

/* Arrays that live in registers are variables of their own, to which the struct refers (wgmma.cu). */
template <decode_config cfg>
struct consumer {
    const attention_args &args;
    const smem_layout<cfg> &at;
    const line_of<cfg> &line;
    Q_fragments<cfg> &Q;
    O_tiles<cfg> &O;
    row_values &m, &l;
    row_values &scale, &scales; /* of each row, exponentials having base 2: log2(e); of its scores (softmax.cuh) */

    const int warp = threadIdx.x / 32 - copy_warps<cfg>, lane = threadIdx.x % 32;
    const int key_group = warp / row_groups<cfg>, first_row = warp % row_groups<cfg> * 16;
    const int group = heads_in_group(args), all_rows = args.seq_q * group;
    const float scale_of_all = scale_of_scores();
    piece own;
    query_rows own_queries; /* of the piece's sequence, if lengths differ */

    __device__ __forceinline__ query_rows queries() const {
        if constexpr (cfg.ragged_queries) return own_queries;
        return {0, args.seq_q, own.sample, args.seq_q};
    }

    __device__ __forceinline__ float scale_of_scores() const {
        const float scale = 1.44269504f * args.softmax_scale;
        if constexpr (has_bytes<cfg>)
            return scale * scale_of<cfg>(args, &serving_args::K_scales, line.head) / KV_factor<cfg>;
        return scale;
    }

    /* ---- operands: ldmatrix names a row of 8 columns with each lane ---- */

    /* The rows of a Q block are tiles of 64 columns next to each other; the swizzle counts their 128 bytes. */
    __device__ __forceinline__ void load_Q(uint32_t Q_smem) {
        for (int k = 0; k < d_steps<cfg>; k++) {
            const int tile_row = (first_row + lane % 16) * (cfg.d_head / 64) + k / 4, chunk = k % 4 * 2 + lane / 16;
            ldmatrix_x4(Q[k], Q_smem + tile_row * tile_row_bytes + (chunk ^ tile_row % 8) * 16);
        }
    }
    /* The lane has four neighboring columns of 16, as with K. */
    __device__ __forceinline__ void load_Q_for_bytes(uint32_t Q_smem) {
        for (int k = 0; k < d_steps<cfg>; k++)
            for (int half = 0; half < 2; half++) {
                const int row = first_row + lane / 4 + 8 * half, tile_row = row * (cfg.d_head / 64) + k / 4;
                const int chunk = k % 4 * 2 + lane % 4 / 2;
                load_pair(Q_smem + tile_row * tile_row_bytes + (chunk ^ tile_row % 8) * 16 + lane % 2 * 8, Q[k][half],
                          Q[k][2 + half]);
            }
        if constexpr (cfg.dtype == BF16)
            for (int half = 0; half < 2; half++) scale[half] = scale_of_all * round_Q_to_fp16(half);
        if constexpr (converts_by_integers<cfg>) /* pairs of columns 0 and 2, 1 and 3 */
            for (int k = 0; k < d_steps<cfg>; k++)
                for (int half = 0; half < 2; half++) {
                    const uint32_t low = Q[k][half], high = Q[k][2 + half];
                    Q[k][half] = __byte_perm(low, high, 0x5410), Q[k][2 + half] = __byte_perm(low, high, 0x7632);
                }
    }
    /* Multiply the lane's row by a power of two, so that its largest element is between 2^14 and 2^15 and those down to
     * 2^-28 of it are exact, and return the reciprocal. */
    __device__ __forceinline__ float round_Q_to_fp16(int half) {
        const auto pairs = [&](const auto &use) {
            for (int k = 0; k < d_steps<cfg>; k++)
                for (int r = half; r < 4; r += 2) {
                    float low, high;
                    widen_pair<BF16>(Q[k][r], low, high);
                    use(Q[k][r], low, high);
                }
        };
        float largest = 0;
        pairs([&](uint32_t, float low, float high) { largest = fmaxf(largest, fmaxf(fabsf(low), fabsf(high))); });
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
        const uint32_t exponent = min(268 - (__float_as_uint(largest) >> 23), 250); /* with the bias, 127 */
        const float factor = __uint_as_float(exponent << 23);
        pairs([&](uint32_t &pair, float low, float high) { pair = cvt_f16x2(low * factor, high * factor); });
        return __uint_as_float(254 - exponent << 23);
    }
    /* Address of 16-byte chunk `chunk` of a key's row in the boxes of a warp. */
    __device__ __forceinline__ static uint32_t box_address(uint32_t first_box, int key, int chunk) {
        const uint32_t box = first_box + key / box_keys<cfg> * box_bytes<cfg>;
        return box + (chunk / 8 * box_keys<cfg> + key % box_keys<cfg>)*tile_row_bytes + (chunk % 8 ^ key % 8) * 16;
    }

    /* S = Q K^T over the warp's keys. A row of K is a column of K^T: nothing is transposed. */
    __device__ __forceinline__ void multiply_QK(S_tiles<cfg> &S, uint32_t K) const {
        const int key = lane / 16 * 8 + lane % 8, right = lane / 8 % 2;
        for (int k = 0; k < d_steps<cfg>; k++)
            for (int n = 0; n < key_steps<cfg>; n++) {
                uint32_t b[4];
                ldmatrix_x4(b, box_address(K, 16 * n + key, 2 * k + right));
                mma<cfg.dtype>(S[2 * n], Q[k], b[0], b[1]);
                mma<cfg.dtype>(S[2 * n + 1], Q[k], b[2], b[3]);
            }
    }
    __device__ __forceinline__ void multiply_QK_of_bytes(S_tiles<cfg> &S, uint32_t K) const {
        const int key = lane / 16 * 8 + lane % 8, right = lane / 8 % 2;
#pragma unroll
        for (int k = 0; k < d_steps<cfg>; k += 2)
#pragma unroll
            for (int n = 0; n < key_steps<cfg>; n++) {
                uint32_t b[4]; /* keys 0-7 of columns 16k and 16k + 16, keys 8-15 of the same */
                ldmatrix_x4(b, box_address(K, 16 * n + key, k + right));
                for (int r = 0; r < 4; r++) {
                    uint32_t pairs[2];
                    if constexpr (converts_by_integers<cfg>)
                        widen(b[r], pairs);
                    else
                        pairs[0] = cvt_f16x2_e4m3x2(b[r]), pairs[1] = cvt_f16x2_e4m3x2(b[r] >> 16);
                    mma<FP16>(S[2 * n + r / 2], Q[k + r % 2], pairs[0], pairs[1]);
                }
            }
        if constexpr (has_factor<cfg>)
            for (auto &tile : S)
                for (float &score : tile) infinity_to_nan(score);
    }
    /* O += P V. A column of V is a column of the operand: ldmatrix transposes. Rows of V from `end` on become zeros,
     * because they follow the sequence and a NaN multiplied by 0 stays a NaN. */
    template <bool has_end>
    __device__ __forceinline__ void multiply_PV(const fragments<key_steps<cfg>> &P, uint32_t V, int end) {
        const int key = lane % 16, right = lane / 16;
#pragma unroll
        for (int k = 0; k < key_steps<cfg>; k++)
            for (int n = 0; n < d_steps<cfg>; n++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, box_address(V, 16 * k + key, 2 * n + right));
                if constexpr (has_end)
                    for (int r = 0; r < 4; r++) b[r] &= elements_before(end - (16 * k + r % 2 * 8 + lane % 4 * 2));
                mma<cfg.dtype>(O[2 * n], P[k], b[0], b[1]);
                mma<cfg.dtype>(O[2 * n + 1], P[k], b[2], b[3]);
            }
    }

    template <bool has_end>
    __device__ __forceinline__ void multiply_PV_of_bytes(const fragments<key_steps<cfg>> &P, uint32_t V, int end) {
        const int key = lane % 16, right = lane / 16;
#pragma unroll
        for (int k = 0; k < key_steps<cfg>; k++)
            for (int n = 0; n < d_steps<cfg>; n += 2) {
                uint32_t b[4]; /* pairs of columns of keys 0-7 and 8-15, of columns 16n ..., then 16n + 16 ... */
                ldmatrix_x4_trans(b, box_address(V, 16 * k + key, n + right));
                for (int side = 0; side < 2; side++) {
                    uint32_t v[2][2]; /* of the even columns, of the odd ones */
                    widen_V(v, b[2 * side], b[2 * side + 1]);
                    for (int odd = 0; odd < 2; odd++) {
                        if constexpr (has_end)
                            for (int r = 0; r < 2; r++)
                                v[odd][r] &= elements_before(end - (16 * k + r * 8 + lane % 4 * 2));
                        mma<FP16>(O[2 * (n + side) + odd], P[k], v[odd][0], v[odd][1]);
                    }
                }
            }
    }
    __device__ __forceinline__ static void widen(uint32_t bytes, uint32_t (&pairs)[2]) {
        if constexpr (cfg.int8_cache)
            widen_int8x4(bytes, pairs);
        else
            widen_e4m3x4(bytes, pairs);
    }
    /* For each column the pair of keys 0-7, then of keys 8-15. */
    __device__ __forceinline__ static void widen_V(uint32_t (&v)[2][2], uint32_t first, uint32_t second) {
        if constexpr (converts_by_integers<cfg>) {
            uint32_t pairs[2][2];
            widen(first, pairs[0]), widen(second, pairs[1]);
            for (int odd = 0; odd < 2; odd++) v[odd][0] = pairs[0][odd], v[odd][1] = pairs[1][odd];
        } else {
            for (int odd = 0; odd < 2; odd++) {
                const uint32_t bytes = __byte_perm(first, second, odd ? 0x7531 : 0x6420);
                v[odd][0] = cvt_f16x2_e4m3x2(bytes), v[odd][1] = cvt_f16x2_e4m3x2(bytes >> 16);
            }
        }
    }

    /* ---- the same by wgmma: of all keys of a block, and the rows of a warpgroup ---- */

    /* Tiles of S for the first eight keys of each box, and for the last eight. */
    using half_S = float[key_steps<cfg>][4];

    __device__ __forceinline__ void start_S(half_S &first, half_S &others, int n) const {
        const uint64_t boxes = box_descriptor(at.K_box(n, 0), box_bytes<cfg>);
        wgmma_fence();
        for (int k = 0; k < d_steps<cfg>; k++) {
            const uint64_t from = boxes + box_columns(k);
            wgmma_of_boxes<cfg.dtype>(first, Q[k], from, k != 0);
            wgmma_of_boxes<cfg.dtype>(others, Q[k], from + box_keys_8, k != 0);
        }
        wgmma_commit_group();
    }
    /* Wait for S, but for `pending` groups after it. */
    template <int pending>
    __device__ __forceinline__ static void take_S(S_tiles<cfg> &S, half_S &first, half_S &others) {
        wgmma_wait_group<pending>(first);
        wgmma_wait_group<pending>(others);
        for (int n = 0; n < key_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) S[2 * n][e] = first[n][e], S[2 * n + 1][e] = others[n][e];
    }
    __device__ __forceinline__ void start_O(const fragments<key_steps<cfg>> &P, int n) {
        wgmma_fence();
        for (int k = 0; k < key_steps<cfg>; k++)
            wgmma_of_rows<cfg.dtype>(O, P[k], wgmma_descriptor(at.V_box(n, k), DECODE_PAGE_KEYS * tile_row_bytes));
        wgmma_commit_group();
    }
    /* O is computed, and block n read by all lanes. */
    __device__ __forceinline__ void finish_O(int n) {
        wgmma_wait_group<0>(O);
        __syncwarp();
        if (lane == 0) mbarrier_arrive(at.KV.empty(n));
    }

    /* Zero the rows of V from `end` to the end of their box; later rows of the block were copied as zeros. */
    __device__ __forceinline__ void clear_rows(int n, int end) const {
        constexpr int chunks = cfg.d_head / 8; /* of a row, 16 bytes */
        const int rows = -end & box_keys<cfg> - 1;
        for (int i = 32 * warp + lane; i < rows * chunks; i += 32 * cfg.n_warps)
            store_shared_v4(box_address(at.V_box(n, 0), end + i / chunks, i % chunks), 0, 0, 0, 0);
        fence_proxy_async(); /* wgmma reads by the async proxy */
        meet();
    }

    /* A mask of the first `count` of two elements. */
    __device__ __forceinline__ static uint32_t elements_before(int count) {
        return count >= 2 ? 0xffffffff : count == 1 ? 0xffff : 0;
    }

    /* ---- one KV block ---- */

    /* Keys of the sequence. */
    __device__ __forceinline__ int seq_k() const { return cfg.serves ? own.keys : args.seq_k; }

    /* First key that a row of the warp does not attend to. */
    __device__ __forceinline__ int row_end(int row) const {
        const int query = (own.row + first_row + row) / group;
        return args.causal ? min(seq_k(), query + 1 + seq_k() - queries().count) : seq_k();
    }
    /* End of the keys that the warp's last row, and therefore any of its rows, attends to. */
    __device__ __forceinline__ int keys_end() const { return cfg.ragged_queries ? row_end(15) : seq_k(); }

    /* Update m if an exponential would exceed 2^most_lag: in the first block, and for a NaN. */
    __device__ __forceinline__ void catch_up(const S_tiles<cfg> &S) {
        row_values lane_max, factor;
        find_lane_max(lane_max, S);
        if (!lags(lane_max)) return;
        update_m(m, l, factor, lane_max, scale);
        find_scales(scales, m, scale);
        rescale(O, factor);
    }
    /* Update m while O is being computed. Return true if O must then be multiplied by `factor`. */
    __device__ __forceinline__ bool lags(const S_tiles<cfg> &S, row_values &factor) {
        row_values lane_max;
        find_lane_max(lane_max, S);
        if (!lags(lane_max)) return false;
        update_m(m, l, factor, lane_max, scale);
        find_scales(scales, m, scale);
        return true;
    }
    /* Whether an exponential of the warp would be more than 2^most_lag. */
    __device__ __forceinline__ bool lags(const row_values &lane_max) const {
        const float lag = fmaxf(fmaf(lane_max[0], scales[0], m[0]), fmaf(lane_max[1], scales[1], m[1]));
        return __any_sync(0xffffffff, !(lag <= most_lag));
    }

    /* The warp's keys of KV block number n of the CTA, from `key` on. */
    __device__ __forceinline__ void use_keys(int n, int key) {
        const int first_box = key_group * (warp_keys<cfg> / box_keys<cfg>);
        const uint32_t V = at.V_box(n, first_box);
        S_tiles<cfg> S = {};
        fragments<key_steps<cfg>> P;
        if constexpr (has_bytes<cfg>)
            multiply_QK_of_bytes(S, at.K_box(n, first_box));
        else
            multiply_QK(S, at.K_box(n, first_box));
        if (key + warp_keys < cfg >> row_end(0)) mask(S, [&](int row) { return row_end(row) - key; }, lane);
        catch_up(S);
        exponentiate<warp_keys<cfg>>(S, l, m, scales);
        round_to_P<mma_type<cfg>>(P, S);
        const bool has_end = cfg.serves && key + warp_keys<cfg> > seq_k();
        if constexpr (has_bytes<cfg>)
            has_end ? multiply_PV_of_bytes<true>(P, V, seq_k() - key) : multiply_PV_of_bytes<false>(P, V, 0);
        else
            has_end ? multiply_PV<true>(P, V, seq_k() - key) : multiply_PV<false>(P, V, 0);
    }

    /* Turn S of a block into P while O of the block before is computed. Return true if O must then be multiplied by
     * `factor`. */
    __device__ __forceinline__ bool turn_to_P(S_tiles<cfg> &S, row_values &factor, int key) {
        if (key + cfg.B_c > row_end(0)) mask(S, [&](int row) { return row_end(row) - key; }, lane);
        const bool outgrown = lags(S, factor);
        exponentiate<cfg.B_c / 2>(S, l, m, scales);
        return outgrown;
    }

    __device__ __forceinline__ void clear_sums() {
        for (int half = 0; half < 2; half++) m[half] = no_maximum, l[half] = 0, scales[half] = scale[half];
        for (int n = 0; n < 2 * d_steps<cfg>; n++)
            for (int e = 0; e < 4; e++) O[n][e] = 0;
    }

    /* Process all keys of the blocks by wgmma: S of each block overlaps with O of the block before. */
    __device__ __forceinline__ void use_blocks_by_wgmma(int read, int first_block, int blocks) {
        clear_sums();
        half_S first, others;
        S_tiles<cfg> S;
        fragments<key_steps<cfg>> P;
        row_values factor;
        const int first_key = first_block * cfg.B_c;
        at.KV.wait_until_full(read);
        if (first_key >= seq_k()) { /* a sequence without keys has a block */
            if (lane == 0) mbarrier_arrive(at.KV.empty(read));
            return;
        }
        start_S(first, others, read);
        take_S<0>(S, first, others);
        turn_to_P(S, factor, first_key);
        round_to_P<cfg.dtype>(P, S);
#pragma unroll 1
        for (int i = 1; i < blocks; i++) {
            at.KV.wait_until_full(read + i);
            start_S(first, others, read + i);
            start_O(P, read + i - 1);
            take_S<1>(S, first, others);
            const bool outgrown = turn_to_P(S, factor, first_key + i * cfg.B_c);
            finish_O(read + i - 1);
            if (outgrown) rescale(O, factor);
            round_to_P<cfg.dtype>(P, S);
        }
        const int last = blocks - 1, end = seq_k() - first_key - last * cfg.B_c;
        if (end < cfg.B_c) clear_rows(read + last, end);
        start_O(P, read + last);
        finish_O(read + last);
    }

    /* O, m and l of `blocks` KV blocks from `first` on; the CTA has read `read` before. */
    __device__ __forceinline__ void use_blocks(int read, int first, int blocks) {
        clear_sums();
#pragma unroll 1
        for (int i = 0; i < blocks; i++) {
            const int key = (first + i) * cfg.B_c + key_group * warp_keys<cfg>;
            at.KV.wait_until_full(read + i);
            if (key < keys_end()) use_keys(read + i, key);
            __syncwarp(); /* all lanes have read K and V */
            /* The arrival of copies tells only what their thread did, and not that it saw the stage empty. */
            if constexpr (cfg.cp_async) at.KV.wait_until_empty(read + i);
            if (lane == 0) mbarrier_arrive(at.KV.empty(read + i));
        }
    }

    /* ---- the end of a piece ---- */

    /* All warps that compute meet. */
    __device__ __forceinline__ static void meet() { bar_sync(1, 32 * cfg.n_warps); }

    __device__ __forceinline__ void store_sums() const {
        warp_sums<cfg> &sums = *at.sums;
        for (int half = 0; half < 2; half++) {
            const int row = first_row + lane / 4 + 8 * half;
            float *const O_row = &sums.O[key_group][row][lane % 4 * (has_bytes<cfg> ? 4 : 2)];
            float l_row = l[half];
            l_row += __shfl_xor_sync(0xffffffff, l_row, 2); /* the quad's partial sums */
            l_row += __shfl_xor_sync(0xffffffff, l_row, 1);
            if constexpr (has_factor<cfg>)
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    infinity_to_nan(O[n][2 * half]), infinity_to_nan(O[n][2 * half + 1]);
            if constexpr (has_bytes<cfg>)
                for (int n = 0; n < 2 * d_steps<cfg>; n += 2)
                    *(float4 *)(O_row + 8 * n) =
                        make_float4(O[n][2 * half], O[n + 1][2 * half], O[n][2 * half + 1], O[n + 1][2 * half + 1]);
            else
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    *(float2 *)(O_row + 8 * n) = make_float2(O[n][2 * half], O[n][2 * half + 1]);
            if (lane % 4 == 0)
                sums.m[key_group][row] = rescaled_m(m[half], scale[half]), sums.l[key_group][row] = l_row;
        }
    }
    /* A row of all key groups' sums. */
    __device__ __forceinline__ row_part<lane_columns<cfg>> add_sums(int row) const {
        const warp_sums<cfg> &sums = *at.sums;
        row_sum<lane_columns<cfg>> sum;
        float m_least = sums.m[0][row];
        for (int g = 1; g < key_groups<cfg>; g++) m_least = fminf(m_least, sums.m[g][row]);
        for (int g = 0; g < key_groups<cfg>; g++) {
            float O_row[lane_columns<cfg>];
            for (int i = 0; i < lane_columns<cfg>; i++) O_row[i] = sums.O[g][row][lane_columns<cfg> * lane + i];
            sum.add(O_row, sums.l[g][row], ex2_approx(m_least - sums.m[g][row]));
        }
        return sum.result(m_least);
    }
    __device__ __forceinline__ void store_whole(int row, row_part<lane_columns<cfg>> whole) const {
        const int query = (own.row + row) / group, head = line.head * group + (own.row + row) % group;
        if constexpr (has_bytes<cfg>) {
            const float factor = scale_of<cfg>(args, &serving_args::V_scales, line.head) / KV_factor<cfg>;
            for (float &element : whole.O) element *= factor;
        }
        const query_rows of = queries();
        store_row<cfg.dtype>(args, whole, of.all, of.first + query, head, of.sample, lane);
    }

    /* A row that is stored in a quad of lanes, two columns of each tile in a lane. */
    __device__ __forceinline__ void store_in_quads(const part_slots &slots, const part_position &at, int last_row) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = first_row + lane / 4 + 8 * half;
            float l_row = l[half];
            l_row += __shfl_xor_sync(0xffffffff, l_row, 2); /* the quad's partial sums */
            l_row += __shfl_xor_sync(0xffffffff, l_row, 1);
            if (row >= last_row) continue;
            const float inverse = l_row == 0 ? 0 : 1 / l_row;
            float lse = lg2_approx(l_row) - rescaled_m(m[half], scale[half]);
            for (int n = 0; n < 2 * d_steps<cfg>; n++)
                for (int e = 2 * half; e < 2 * half + 2; e++) O[n][e] = __fmul_rn(O[n][e], inverse);
            const int64_t slot = at.slot * slots.rows + row;
            float *const O_slot = slots.O + slot * cfg.d_head + lane % 4 * 2;
            if (at.adds) {
                float sum[2 * d_steps<cfg>][2], lse_of_sum[1];
                load_past_L1(lse_of_sum, slots.lse + slot);
                for (int n = 0; n < 2 * d_steps<cfg>; n++) load_past_L1(sum[n], O_slot + 8 * n);
                const part_factors factors(lse_of_sum[0], lse);
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    for (int e = 0; e < 2; e++) O[n][2 * half + e] = factors.add(sum[n][e], O[n][2 * half + e]);
                lse = factors.lse;
                if (lane % 4 == 0) slots.lse[at.own_slot * slots.rows + row] = -INFINITY;
            }
            if (at.ends) {
                const int query = (own.row + row) / group, head = line.head * group + (own.row + row) % group;
                uint16_t *const O_row = find_O_row(args, query, head, own.sample);
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    *(uint32_t *)(O_row + 8 * n + lane % 4 * 2) =
                        round_pair<cfg.dtype>(O[n][2 * half], O[n][2 * half + 1]);
                if (lane % 4 == 0) store_lse(args, lse, args.seq_q, query, head, own.sample);
            } else {
                for (int n = 0; n < 2 * d_steps<cfg>; n++)
                    *(float2 *)(O_slot + 8 * n) = make_float2(O[n][2 * half], O[n][2 * half + 1]);
                if (lane % 4 == 0) slots.lse[slot] = lse;
            }
        }
    }

    /* Add up the key groups' results of the row block, or of a part of it. Warps alternate rows. */
    __device__ __forceinline__ void finish_part(const part_slots &slots, const part_position &at, int last_row) const {
        constexpr int rows = (cfg.B_r + cfg.n_warps - 1) / cfg.n_warps; /* of a warp */
        row_part<lane_columns<cfg>> sums[rows];
        if (cfg.serves && at.adds)
#pragma unroll
            for (int i = 0; i < rows; i++)
                if (warp + i * cfg.n_warps < last_row)
                    sums[i] = load_part<lane_columns<cfg>>(slots, at.slot, warp + i * cfg.n_warps, lane);
        store_sums();
        meet();
#pragma unroll
        for (int i = 0; i < rows; i++) {
            const int row = warp + i * cfg.n_warps;
            if (row >= last_row) break;
            row_part<lane_columns<cfg>> part = add_sums(row);
            if (cfg.serves && at.adds) {
                add_part(sums[i], part);
                part = sums[i];
                if (lane == 0) slots.lse[at.own_slot * slots.rows + row] = -INFINITY;
            }
            if (at.ends)
                store_whole(row, part);
            else
                store_part(slots, at.slot, row, lane, part);
        }
    }

    /* Return true if this CTA is the last to store its `stored` parts of the row block. All threads can then read what
     * the other CTAs stored, and the count is zero again. */
    __device__ __forceinline__ bool arrive_last(const part_slots &slots, int stored) const {
        int *const count = slots.arrived + line.cta(own.first_share, args.KV_heads);
        __threadfence(); /* the parts, before the count */
        meet();
        if (warp == 0 && lane == 0) {
            const int before = atomicAdd(count, stored);
            if (before == own.parts - stored) atomicExch(count, 0);
            store_shared(at.arrived, before);
        }
        meet();
        __threadfence(); /* the count, before the parts of others */
        return load_shared(at.arrived) == own.parts - stored;
    }

    /* Process the KV blocks of a piece, which is one part of its row block, or several if parts have a fixed size. If
     * these are the first ones, they are added up in the slot of the first: the result is stored once the piece has
     * all of them. */
    __device__ __forceinline__ void use_piece(int read) {
        const int rows = cfg.ragged_queries ? own_queries.count * group : all_rows;
        const int most = line.most_blocks(own), last_row = min(cfg.B_r, rows - own.row);
        const part_slots slots = find_slots<cfg>(args, line.slots(), cfg.ragged_queries ? cfg.B_r : rows);
        int first = 0, stored = 0;
        do {
            if (!by_wgmma<cfg> && stored) meet(); /* the sums are read: they may be written again */
            const int part_blocks = min(most, own.blocks - first);
            if constexpr (by_wgmma<cfg>)
                use_blocks_by_wgmma(read + first, own.block + first, part_blocks);
            else
                use_blocks(read + first, own.block + first, part_blocks);
            const int64_t slot = line.slot(own, own.block + first);
            const bool adds = line.has_parts_of_fixed_size() && own.block == 0 && stored > 0;
            stored++;
            const part_position at = {adds ? line.slot(own, 0) : slot, slot, adds, stored == own.parts};
            if constexpr (by_wgmma<cfg>)
                store_in_quads(slots, at, last_row);
            else
                finish_part(slots, at, last_row);
            first += most;
        } while (cfg.serves && first < own.blocks);
        if (stored < own.parts && arrive_last(slots, stored))
            for (int row = warp; row < last_row; row += cfg.n_warps)
                store_whole(row, line.has_parts_of_fixed_size()
                                     ? add_parts_in_order<lane_columns<cfg>>(slots, line.slots_of(own), row, lane)
                                     : combine_parts<lane_columns<cfg>>(slots, line.slots_of(own), row, lane));
        meet(); /* the sums are read, and the count: both may be written again */
    }

    __device__ __forceinline__ void attend() {
        scale[0] = scale[1] = scale_of_all;
        for (int turn = 0, read = 0;; turn++, read += own.blocks) {
            at.Q.wait_until_full(turn);
            own = read_piece(at.piece(turn));
            if (own.row < 0) break;
            if constexpr (cfg.ragged_queries)
                own_queries = find_queries(static_cast<const serving_args &>(args), own.sample);
            if constexpr (has_bytes<cfg>)
                load_Q_for_bytes(at.Q.stage(turn));
            else
                load_Q(at.Q.stage(turn));
            __syncwarp(); /* all lanes have read the piece and Q */
            if (lane == 0) mbarrier_arrive(at.Q.empty(turn));
            use_piece(read);
        }
    }
};

#endif
