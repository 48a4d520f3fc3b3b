/* dropout.cuh - dropout of attention weights by Philox 4x32-10 (Salmon et al. 2011).
 *
 *     const dropout_key random{args};
 *     drop(P, random, key, queries, sample * args.heads + head, args.keep_from, lane);
 *
 * Whether a weight is dropped depends only on seed, offset, sequence, head, query and key, so that all kernels drop the
 * same weights, whatever their blocks. The counter of Philox is (key / 64 * 4 + key % 8 / 2, query, sequence * heads +
 * head, offset % 2^32), and its key is the seed, whose upper half is combined with that of the offset by XOR. One call
 * serves the 16 weights that a lane has of a row and 64 keys: word s is for the keys from 16 s to 16 s + 15 of them.
 *
 * A byte has seven random bits: its top bit is cleared. The number of a weight has 14 bits, those of one byte of the
 * word and below them those of the next lower byte, the highest byte below the lowest one. Bytes 1 and 3 are for the
 * even and the odd key of the first eight, bytes 0 and 2 for those of the second eight. A weight is dropped if its
 * number is less than the probability times 2^14. Two weights whose bytes are neighbors share bits, but the lower ones
 * of a number matter only if the upper ones are equal to those of the threshold.
 */
#ifndef FL_ATTENTION_DROPOUT_CUH
#define FL_ATTENTION_DROPOUT_CUH

#include "common/serving.h"
#include "kernels/attention/fragments.cuh"

/* The words of Philox that are the same for a launch. */
struct dropout_key {
    uint32_t low, high, offset;

    __device__ __forceinline__ explicit dropout_key(const extended_args &args) {
        uint64_t seed = args.rng_seed, all = args.rng_offset;
        if (args.rng_state) seed = args.rng_state[0], all = args.rng_state[1];
        low = (uint32_t)seed, high = (uint32_t)(seed >> 32) ^ (uint32_t)(all >> 32), offset = (uint32_t)all;
    }

    /* Words that the compiler does not know to be the same for all blocks: it would compute the keys of all rounds
     * ahead of the loop, for which there are no registers. */
    __device__ __forceinline__ dropout_key for_this_block() const {
        dropout_key words = *this;
        asm volatile("" : "+r"(words.low), "+r"(words.high), "+r"(words.offset));
        return words;
    }
};

/* For configurations without dropout. */
struct no_dropout {
    __device__ __forceinline__ explicit no_dropout(const attention_args &) {}
};

/* Words for 64 keys from `key` on, those of the lane's columns in a row. */
struct random_words {
    uint32_t word[4];
};
__device__ __forceinline__ random_words find_random_words(const dropout_key &key_of_launch, int key, int query,
                                                          uint32_t sequence_and_head, int lane) {
    uint32_t a = key / 64 * 4 + lane % 4, b = query, c = sequence_and_head, d = key_of_launch.offset;
    uint32_t low = key_of_launch.low, high = key_of_launch.high;
    for (int round = 0; round < 10; round++) {
        const uint64_t first = 0xd2511f53ull * a, second = 0xcd9e8d57ull * c;
        a = (uint32_t)(second >> 32) ^ b ^ low, c = (uint32_t)(first >> 32) ^ d ^ high;
        b = (uint32_t)second, d = (uint32_t)first;
        low += 0x9e3779b9, high += 0xbb67ae85;
    }
    return {{a, b, c, d}};
}

/* 9.7.9.7 prmt */
__device__ __forceinline__ uint32_t permute_bytes(uint32_t bytes, uint32_t selector) {
    uint32_t permuted;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(permuted) : "r"(bytes), "r"(selector));
    return permuted;
}

/* Drop weights of a row, of 16 keys, which are registers r and r + 2 of an A operand. */
__device__ __forceinline__ void drop_pairs(uint32_t &first, uint32_t &second, uint32_t word, uint32_t keep_from) {
    constexpr uint32_t next_byte = 0x2103, signs = 0xbb99; /* each half becomes copies of its top bit */
    const uint32_t bytes = word & 0x7f7f7f7f;
    first &= permute_bytes(bytes + keep_from, signs);
    second &= permute_bytes(permute_bytes(bytes, next_byte) + keep_from, signs);
}

/* Drop weights of the lane's two rows, of the keys from `key` on, a multiple of 64 or, for blocks of 32 keys, of 32. */
template <int steps>
__device__ __forceinline__ void drop(fragments<steps> &P, const dropout_key &key_of_launch, int key,
                                     const int (&queries)[2], uint32_t sequence_and_head, uint32_t keep_from,
                                     int lane) {
    static_assert(steps % 4 == 0 || steps == 2, "a call of Philox is for 64 keys: those of a block, or half of them");
    constexpr int at_once = steps == 2 ? 2 : 4;
    const bool last_half = steps == 2 && key % 64;
    for (int first = 0; first < steps; first += 4)
        for (int half = 0; half < 2; half++) {
            const random_words random =
                find_random_words(key_of_launch, key + 16 * first, queries[half], sequence_and_head, lane);
            for (int s = 0; s < at_once; s++)
                drop_pairs(P[first + s][half], P[first + s][2 + half],
                           last_half ? random.word[(2 + s) % 4] : random.word[s], keep_from);
        }
}

#endif
