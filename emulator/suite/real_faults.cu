/* real_faults.cu - faults of public projects, cut down to kernels of a screen each: docs/internals.md.
 *
 *     ptxrun real_faults.cu --entry store_ring_faulty --block 128 --arg out:u32:512 -- -arch=compute_90a -std=c++17
 *
 * Each is a template that is instantiated twice: as it was, and repaired. All is written anew.
 */
#include <cstdint>

#define BOUNDS
#define FAULT(name, parameters, ...)                                                                                   \
    extern "C" __global__ void BOUNDS name##_faulty parameters {                                                       \
        name<false>(__VA_ARGS__);                                                                                      \
    }                                                                                                                  \
    extern "C" __global__ void BOUNDS name##_repaired parameters {                                                     \
        name<true>(__VA_ARGS__);                                                                                       \
    }

__device__ uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ void mbarrier_init(uint64_t *bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void mbarrier_arrive(uint64_t *bar) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(shared_address(bar)) : "memory");
}

__device__ void mbarrier_arrive_expect_tx(uint64_t *bar, int bytes) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(shared_address(bar)),
                 "r"(bytes)
                 : "memory");
}

__device__ void mbarrier_wait(uint64_t *bar, int parity) {
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(bar)), "r"(parity)
                     : "memory");
}

__device__ void bulk_load(void *to, const void *from, int bytes, uint64_t *bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(bar))
                 : "memory");
}

__device__ void bulk_store(void *to, const void *from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
                 "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int pending>
__device__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

__device__ void fence_proxy_async() {
    asm volatile("fence.proxy.async;" ::: "memory");
}

#define MAP_FIELD(map, field, type, operands, constraint, value)                                                       \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type " [%0], " operands                         \
                 "%1;" ::"r"(shared_address(map)),                                                                     \
                 constraint(value)                                                                                     \
                 : "memory")

/* A tensor of 32 words in a row, as one box: all fields of 128 bytes that are zeros. */
__device__ void make_map(uint64_t *map, const void *tensor) {
    MAP_FIELD(map, "global_address", "b64", "", "l", tensor);
    MAP_FIELD(map, "rank", "b32", "", "n", 0);
    MAP_FIELD(map, "box_dim", "b32", "0, ", "r", 32);
    MAP_FIELD(map, "global_dim", "b32", "0, ", "r", 32);
    MAP_FIELD(map, "element_stride", "b32", "0, ", "r", 1);
    MAP_FIELD(map, "elemtype", "b32", "", "n", 2);
    MAP_FIELD(map, "interleave_layout", "b32", "", "n", 0);
    MAP_FIELD(map, "swizzle_mode", "b32", "", "n", 0);
    MAP_FIELD(map, "fill_mode", "b32", "", "n", 0);
}

/* By all lanes: the copy in global memory, and that the copy engine sees it. */
__device__ void publish_map(uint64_t *to, const uint64_t *from) {
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
                 "128;" ::"l"(to),
                 "r"(shared_address(from))
                 : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(to) : "memory");
}

__device__ void tensor_store(const uint64_t *map, const void *from) {
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];" ::"l"(map), "r"(0),
                 "r"(shared_address(from))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* ---- copies between shared and global memory ---- */

/* All threads fill a buffer, one stores it and waits for that: the others do not know when to fill it again. */
template <bool repaired>
__device__ void store_ring(uint32_t *out) {
    __shared__ alignas(128) uint32_t tile[128];
    for (int i = 0; i < 4; i++) {
        bulk_wait_read<0>(); /* in a thread that has stored nothing this is no wait */
        if (repaired) __syncthreads();
        tile[threadIdx.x] = i * 1000 + threadIdx.x;
        fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) bulk_store(out + 128 * i, tile, sizeof tile);
    }
    bulk_wait_read<0>();
}
FAULT(store_ring, (uint32_t *out), out)

/* The copy engine stores a state of zeros after nothing but a barrier. */
template <bool repaired>
__device__ void zero_state(uint32_t *out) {
    __shared__ alignas(128) uint32_t state[128];
    state[threadIdx.x] = 0;
    if (repaired) fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) bulk_store(out, state, sizeof state);
    bulk_wait_read<0>();
}
FAULT(zero_state, (uint32_t *out), out)

/* Two stages copy memory to memory. After a store, the next load of the same stage is issued. */
template <bool repaired>
__device__ void staged_copy(uint32_t *out, const uint32_t *in) {
    enum { STAGES = 2, WORDS = 64, BLOCKS = 4 };
    __shared__ alignas(128) uint32_t stages[STAGES][WORDS];
    __shared__ uint64_t full[STAGES];
    if (threadIdx.x) return;
    const auto load = [&](int block) {
        mbarrier_arrive_expect_tx(&full[block % STAGES], WORDS * 4);
        bulk_load(stages[block % STAGES], in + block * WORDS, WORDS * 4, &full[block % STAGES]);
    };
    for (int i = 0; i < STAGES; i++) mbarrier_init(&full[i], 1);
    for (int i = 0; i < STAGES; i++) load(i);
    for (int i = 0; i < BLOCKS; i++) {
        mbarrier_wait(&full[i % STAGES], i / STAGES % 2);
        bulk_store(out + i * WORDS, stages[i % STAGES], WORDS * 4);
        bulk_wait_read<repaired ? 0 : STAGES - 1>();
        if (i + STAGES < BLOCKS) load(i + STAGES);
    }
    bulk_wait_read<0>();
}
FAULT(staged_copy, (uint32_t *out, const uint32_t *in), out, in)

/* Threads read a stage, and tell the one that lets the copy engine fill it again. */
template <bool repaired>
__device__ void stage_read(uint32_t *out, const uint32_t *in) {
    enum { WORDS = 32, BLOCKS = 4 };
    __shared__ alignas(128) uint32_t stage[WORDS];
    __shared__ uint64_t full, empty;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        mbarrier_init(&empty, WORDS);
    }
    __syncthreads();
    for (int i = 0; i < BLOCKS; i++) {
        if (threadIdx.x == 0) {
            if (i) mbarrier_wait(&empty, (i - 1) % 2);
            mbarrier_arrive_expect_tx(&full, sizeof stage);
            bulk_load(stage, in + i * WORDS, sizeof stage, &full);
        }
        __syncwarp();
        mbarrier_wait(&full, i % 2);
        out[i * WORDS + threadIdx.x] = stage[threadIdx.x];
        if (repaired) fence_proxy_async();
        mbarrier_arrive(&empty);
    }
}
FAULT(stage_read, (uint32_t *out, const uint32_t *in), out, in)

/* A tensor map in global memory becomes that of the next tensor while a store by it may be under way. */
template <bool repaired>
__device__ void next_tensor(uint32_t *out, uint64_t *map) {
    __shared__ alignas(128) uint32_t tiles[2][32];
    __shared__ alignas(128) uint64_t built[16];
    for (int i = 0; i < 2; i++) {
        tiles[i][threadIdx.x] = 100 * i + threadIdx.x;
        if (threadIdx.x < 16) built[threadIdx.x] = 0;
        fence_proxy_async();
        __syncwarp();
        if (threadIdx.x == 0) make_map(built, out + 32 * i);
        if (repaired) bulk_wait_read<0>();
        __syncwarp();
        publish_map(map, built);
        if (threadIdx.x == 0) tensor_store(map, tiles[i]);
        __syncwarp();
    }
    bulk_wait_read<0>();
}
FAULT(next_tensor, (uint32_t *out, uint64_t *map), out, map)

/* One CTA writes by ordinary stores and sets a flag. The other one polls it, and the copy engine reads. */
template <bool repaired>
__device__ void polled_copy(uint32_t *out, uint32_t *mail, int *flag) {
    __shared__ alignas(128) uint32_t tile[32];
    __shared__ uint64_t full;
    if (blockIdx.x == 0) {
        mail[threadIdx.x] = threadIdx.x;
        __syncwarp();
        if (threadIdx.x == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flag) : "memory");
        return;
    }
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        int set = 0;
        while (!set) asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
        if (repaired) fence_proxy_async();
        mbarrier_arrive_expect_tx(&full, sizeof tile);
        bulk_load(tile, mail, sizeof tile, &full);
    }
    __syncwarp();
    mbarrier_wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}
FAULT(polled_copy, (uint32_t *out, uint32_t *mail, int *flag), out, mail, flag)

/* An mbarrier waits for one arrival, and every lane of the warp arrives. */
template <bool repaired>
__device__ void lanes_arrive(uint32_t *out, const uint32_t *in) {
    __shared__ alignas(128) uint32_t tile[32];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) mbarrier_init(&full, 1);
    __syncwarp();
    if (threadIdx.x == 0) bulk_load(tile, in, sizeof tile, &full);
    if (!repaired || threadIdx.x == 0) mbarrier_arrive_expect_tx(&full, threadIdx.x ? 0 : sizeof tile);
    __syncwarp();
    mbarrier_wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}
FAULT(lanes_arrive, (uint32_t *out, const uint32_t *in), out, in)

/* ---- shared memory that is used again ---- */

/* Rounds of a radix selection: the next one clears the histogram that the last one may still be read from. */
template <bool repaired>
__device__ void histogram_rounds(uint32_t *out) {
    __shared__ uint32_t histogram[64];
    uint32_t remain = 100;
    for (int round = 0; round < 3; round++) {
        if (threadIdx.x < 64) histogram[threadIdx.x] = 0;
        __syncthreads();
        atomicAdd(&histogram[threadIdx.x * (round + 1) % 64], 1);
        __syncthreads();
        remain -= histogram[round + 1];
        if (repaired) __syncthreads();
    }
    out[threadIdx.x] = remain;
}
FAULT(histogram_rounds, (uint32_t *out), out)

/* Four warps find a maximum through a word each, for one score and then for the next. */
template <bool repaired>
__device__ void maximum_scratch(float *out, const float *in) {
    __shared__ float scratch[4];
    for (int score = 0; score < 2; score++) {
        float m = in[score * 128 + threadIdx.x];
        for (int by = 16; by; by /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, by));
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = m;
        __syncthreads();
        m = fmaxf(fmaxf(scratch[0], scratch[1]), fmaxf(scratch[2], scratch[3]));
        out[score * 128 + threadIdx.x] = m;
        if (repaired) __syncthreads();
    }
}
FAULT(maximum_scratch, (float *out, const float *in), out, in)

/* A softmax of four warps: a thread puts the maximum into the first word, which then takes the sum of the first warp.
 */
template <bool repaired>
__device__ void sum_over_maximum(float *out, const float *in) {
    __shared__ float scratch[4];
    float value = in[threadIdx.x], m = value;
    for (int by = 16; by; by /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, by));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = m;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < 4; warp++) scratch[0] = fmaxf(scratch[0], scratch[warp]);
    __syncthreads();
    float sum = value = __expf(value - scratch[0]);
    if (repaired) __syncthreads();
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    out[threadIdx.x] = value / (scratch[0] + scratch[1] + scratch[2] + scratch[3]);
}
FAULT(sum_over_maximum, (float *out, const float *in), out, in)

/* The first warp clears 32 sums, of which each of four warps then sets one and every warp adds all. */
template <bool repaired>
__device__ void cleared_sums(float *out, const float *in) {
    __shared__ float sums[32];
    if (threadIdx.x < 32) sums[threadIdx.x] = 0;
    if (repaired) __syncthreads();
    float sum = in[threadIdx.x];
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = sums[threadIdx.x % 32];
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    out[threadIdx.x] = sum;
}
FAULT(cleared_sums, (float *out, const float *in), out, in)

/* A warp copies two stages and tells another when each is full; a wait for all but two groups waits for none. */
template <bool repaired>
__device__ void early_commit(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t stages[2][32];
    __shared__ uint64_t full[2];
    const uint32_t lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (int stage = 0; stage < 2; stage++) mbarrier_init(&full[stage], 32);
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int stage = 0; stage < 2; stage++) {
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&stages[stage][lane])),
                         "l"(in + 32 * stage + lane)
                         : "memory");
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(repaired ? 1 : 2) : "memory");
        mbarrier_arrive(&full[0]);
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        mbarrier_arrive(&full[1]);
    } else {
        for (int stage = 0; stage < 2; stage++) {
            mbarrier_wait(&full[stage], 0);
            out[32 * stage + lane] = stages[stage][lane];
        }
    }
}
FAULT(early_commit, (uint32_t *out, const uint32_t *in), out, in)

/* A warp lists what it finds in shared memory, and then other lanes read the list. */
template <bool repaired>
__device__ void warp_list(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t list[32];
    list[31 - threadIdx.x] = in[threadIdx.x] % 8;
    if (repaired) __syncwarp();
    uint32_t before = 0;
    for (int i = 0; i < 32; i++) before += list[i] < list[threadIdx.x];
    out[threadIdx.x] = before;
}
FAULT(warp_list, (uint32_t *out, const uint32_t *in), out, in)

/* A warp quantizes 16 words, and two lanes store their scales after them. */
template <bool repaired>
__device__ void scales_behind(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t row[32];
    const uint32_t packed = threadIdx.x < 16 ? in[threadIdx.x] : 0;
    if (!repaired || threadIdx.x < 16) row[threadIdx.x] = packed;
    if (threadIdx.x < 16 && threadIdx.x % 8 == 0) row[16 + threadIdx.x / 8] = 7 + threadIdx.x;
    __syncwarp();
    if (threadIdx.x < 18) out[threadIdx.x] = row[threadIdx.x];
}
FAULT(scales_behind, (uint32_t *out, const uint32_t *in), out, in)

/* All threads read what the first one published, and the first one publishes the next value. */
template <bool repaired>
__device__ void leader_rewrites(uint32_t *out) {
    __shared__ uint32_t bound;
    uint32_t sum = 0;
    if (threadIdx.x == 0) bound = 8;
    for (int round = 0; round < 3; round++) {
        __syncthreads();
        sum += bound;
        if (repaired) __syncthreads();
        if (threadIdx.x == 0) bound = sum;
    }
    out[threadIdx.x] = sum;
}
FAULT(leader_rewrites, (uint32_t *out), out)

/* A buffer is copied in, and then a part that begins at another thread's word is overwritten. */
template <bool repaired>
__device__ void offset_fill(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    if (repaired) __syncthreads();
    if (threadIdx.x < 20) tile[threadIdx.x + 40] = 7;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}
FAULT(offset_fill, (uint32_t *out, const uint32_t *in), out, in)

/* ---- misplaced barriers ---- */

/* One thread sums up, and all read the sum. */
template <bool repaired>
__device__ void sum_of_one(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t parts[4], sum;
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) sum = parts[0] + parts[1] + parts[2] + parts[3];
    if (repaired) __syncthreads();
    out[threadIdx.x] = sum;
}
FAULT(sum_of_one, (uint32_t *out, const uint32_t *in), out, in)

/* Only two of four warps come to a barrier: what they do next meets the others one barrier off. */
template <bool repaired>
__device__ void barrier_of_some(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t tile[128];
    const int warp = threadIdx.x / 32;
    tile[threadIdx.x] = in[threadIdx.x];
    if (repaired || warp < 2) __syncthreads();
    if (warp < 2) tile[threadIdx.x] += tile[threadIdx.x + 64];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x % 64];
}
FAULT(barrier_of_some, (uint32_t *out, const uint32_t *in), out, in)

/* A barrier within a condition of single threads, and another one after it. */
template <bool repaired>
__device__ void barrier_in_branch(uint32_t *out, const uint32_t *in, int count) {
    __shared__ uint32_t tile[64], turned[64];
    tile[threadIdx.x] = in[threadIdx.x];
    turned[threadIdx.x] = 0;
    if (repaired) __syncthreads();
    if ((int)threadIdx.x < count) {
        if (!repaired) __syncthreads();
        turned[threadIdx.x] = tile[63 - threadIdx.x];
    }
    __syncthreads();
    out[threadIdx.x] = turned[threadIdx.x] + turned[0];
}
FAULT(barrier_in_branch, (uint32_t *out, const uint32_t *in, int count), out, in, count)

/* A compiler moves the barrier of a guarded loop in front of the guard. */
template <bool repaired>
__device__ void hoisted_barrier(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t tile[64];
    uint32_t sum = 0;
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        if (threadIdx.x % 4 == 0) tile[threadIdx.x] = in[threadIdx.x] + i;
        if (repaired) __syncthreads();
        if (threadIdx.x % 4 == 0) sum += tile[(threadIdx.x + 4) % 64];
        if (repaired) __syncthreads();
    }
    out[threadIdx.x] = sum;
}
FAULT(hoisted_barrier, (uint32_t *out, const uint32_t *in), out, in)

/* 48 threads exchange words. A compiler drops their barrier, because 48 is not a multiple of a warp. */
template <bool repaired>
__device__ void guard_of_48(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t tile[48];
    if (threadIdx.x < 48) tile[threadIdx.x] = in[threadIdx.x];
    if (repaired) __syncthreads();
    if (threadIdx.x < 48) out[threadIdx.x] = tile[47 - threadIdx.x];
}
FAULT(guard_of_48, (uint32_t *out, const uint32_t *in), out, in)

/* ---- several CTAs ---- */

__device__ void arrive_for_group(uint32_t *arrived) {
    asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}

__device__ void wait_for_group(const uint32_t *arrived, uint32_t count) {
    uint32_t seen = 0;
    while (seen < count) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
}

/* All threads clear their part of a buffer, and thread 0 publishes that for the CTA. Other warps may still clear. */
template <bool repaired>
__device__ void group_arrival(uint32_t *out, uint32_t *cleared, uint32_t *arrived) {
    cleared[blockIdx.x * 64 + threadIdx.x] = blockIdx.x + 1;
    if (repaired) __syncthreads();
    if (threadIdx.x == 0) {
        arrive_for_group(arrived);
        wait_for_group(arrived, 2);
    }
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = cleared[(1 - blockIdx.x) * 64 + threadIdx.x];
}
FAULT(group_arrival, (uint32_t *out, uint32_t *cleared, uint32_t *arrived), out, cleared, arrived)

/* The first CTA sets a counter to 0 and the other one counts, with nothing between them. Repaired: the host sets it. */
template <bool repaired>
__device__ void counter_reset(uint32_t *out, uint32_t *arrived) {
    if (threadIdx.x == 0) {
        if (!repaired && blockIdx.x == 0) *arrived = 0;
        arrive_for_group(arrived);
        wait_for_group(arrived, 2);
        out[blockIdx.x] = 1;
    }
}
FAULT(counter_reset, (uint32_t *out, uint32_t *arrived), out, arrived)

/* A CTA stores into shared memory of another one, which may not have started. */
template <bool repaired>
__device__ void peer_store(uint32_t *out) {
    __shared__ uint32_t mail[32];
    uint32_t peer;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(peer)
        : "r"(shared_address(mail + threadIdx.x)), "r"(blockIdx.x ^ 1));
    if (repaired) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer), "r"(blockIdx.x * 100 + threadIdx.x) : "memory");
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    out[blockIdx.x * 32 + threadIdx.x] = mail[threadIdx.x];
}
#undef BOUNDS
#define BOUNDS __cluster_dims__(2, 1, 1)
FAULT(peer_store, (uint32_t *out), out)

/* An mbarrier is initialized after the fence that publishes the others to the cluster, and a relaxed barrier follows.
 */
template <bool repaired>
__device__ void late_init(uint32_t *out) {
    __shared__ uint64_t first, done;
    if (threadIdx.x == 0) {
        mbarrier_init(&first, 1);
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(shared_address(&done)) : "memory");
        if (repaired) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    asm volatile("{ .reg .b32 peer; mapa.shared::cluster.u32 peer, %0, %1; mbarrier.arrive.shared::cluster.b64 _, "
                 "[peer]; }" ::"r"(shared_address(&done)),
                 "r"(blockIdx.x ^ 1)
                 : "memory");
    mbarrier_wait(&done, 0);
    out[blockIdx.x * 32 + threadIdx.x] = threadIdx.x;
}
FAULT(late_init, (uint32_t *out), out)

/* A thread copies a number for its CTA. The relaxed barrier, meant for mbarriers, does not publish it. */
template <bool repaired>
__device__ void relaxed_barrier(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t length;
    if (threadIdx.x == 0) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&length)), "l"(in) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
    if (repaired)
        asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    out[blockIdx.x * 64 + threadIdx.x] = length;
}
FAULT(relaxed_barrier, (uint32_t *out, const uint32_t *in), out, in)

/* A CTA clears its mailbox, and another one may have sent into it by then. */
template <bool repaired>
__device__ void cleared_mailbox(uint32_t *out) {
    __shared__ uint32_t mail[32];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        mbarrier_arrive_expect_tx(&full, 4);
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    mail[threadIdx.x] = 0;
    fence_proxy_async();
    if (repaired) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0)
        asm volatile("{ .reg .b32 to, bar; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 bar, %1, %2;\n"
                     "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [to], %3, [bar]; }" ::"r"(
                         shared_address(mail)),
                     "r"(shared_address(&full)), "r"(blockIdx.x ^ 1), "r"(blockIdx.x + 7)
                     : "memory");
    mbarrier_wait(&full, 0);
    out[blockIdx.x * 32 + threadIdx.x] = mail[threadIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
FAULT(cleared_mailbox, (uint32_t *out), out)
#undef BOUNDS
#define BOUNDS

/* ---- phases ---- */

/* One thread completes a phase after the other, and all wait for each: the other warp may sleep through two phases. */
template <bool repaired>
__device__ void missed_phase(uint32_t *out) {
    __shared__ uint64_t copied;
    if (threadIdx.x == 0) mbarrier_init(&copied, 1);
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x == 0) mbarrier_arrive(&copied);
        mbarrier_wait(&copied, i % 2);
        out[i * 64 + threadIdx.x] = i;
        if (repaired) __syncthreads();
    }
}
FAULT(missed_phase, (uint32_t *out), out)

/* The copy brings the bytes that the mbarrier expects, but the phase also waits for an arrival. */
template <bool repaired>
__device__ void no_arrival(uint32_t *out, const uint32_t *in) {
    __shared__ alignas(128) uint32_t tile[32];
    __shared__ uint64_t full;
    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        if (repaired)
            mbarrier_arrive_expect_tx(&full, sizeof tile);
        else
            asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&full)),
                         "n"(sizeof tile)
                         : "memory");
        bulk_load(tile, in, sizeof tile, &full);
    }
    __syncwarp();
    mbarrier_wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}
FAULT(no_arrival, (uint32_t *out, const uint32_t *in), out, in)

/* ---- a launch that may begin before the one before it has ended ---- */

/* The kernel before partitions the keys. This one waits for it, but has read the partition by then. */
extern "C" __global__ void early_partition_before(uint32_t *out, const uint32_t *keys, uint32_t *partition) {
    partition[threadIdx.x] = 63 - threadIdx.x;
}

template <bool repaired>
__device__ void early_partition(uint32_t *out, const uint32_t *keys, const uint32_t *partition) {
    if (repaired) asm volatile("griddepcontrol.wait;" ::: "memory");
    const uint32_t from = *(const volatile uint32_t *)(partition + threadIdx.x);
    if (!repaired) asm volatile("griddepcontrol.wait;" ::: "memory");
    out[threadIdx.x] = keys[from % 64];
}
FAULT(early_partition, (uint32_t *out, const uint32_t *keys, const uint32_t *partition), out, keys, partition)

/* ---- global memory that a CTA reads back ---- */

/* A row that another warp stored is read through the path for constant data. */
template <bool repaired>
__device__ void constant_load(float *out, float *row) {
    row[threadIdx.x] = 2.0f * threadIdx.x;
    __syncthreads();
    float value;
    if (repaired)
        asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(row + (threadIdx.x ^ 32)) : "memory");
    else
        asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(value) : "l"(row + (threadIdx.x ^ 32)));
    out[threadIdx.x] = value;
}
FAULT(constant_load, (float *out, float *row), out, row)

/* All threads store a table of offsets, and then each reads the entry of its block, which another warp stores. */
template <bool repaired>
__device__ void table_read_back(uint32_t *out, uint32_t *offsets) {
    offsets[threadIdx.x] = 3 * threadIdx.x;
    if (repaired) __syncthreads();
    out[threadIdx.x] = offsets[40] + threadIdx.x;
}
FAULT(table_read_back, (uint32_t *out, uint32_t *offsets), out, offsets)

/* ---- wgmma ---- */

__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)(shared_address(tile) >> 4) | (uint64_t)8 << 16 | (uint64_t)16 << 32;
}

/* D += A B: A is 64 x 16, and B 16 x 8. The caller waits for the group. */
__device__ __forceinline__ void start_product(float (&d)[4], const void *A, const void *B) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(descriptor(A)), "l"(descriptor(B)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* The only buffer of A is copied again while the product of the last step may still read it. */
template <bool repaired>
__device__ void single_buffer(float *out, const uint4 *in) {
    __shared__ alignas(128) uint4 A[128], B[16];
    const int t = threadIdx.x;
    float d[4] = {0, 0, 0, 0};
    if (t < 16) B[t] = in[t];
    for (int step = 0; step < 3; step++) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&A[t])), "l"(in + t) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        fence_proxy_async();
        __syncthreads();
        start_product(d, A, B);
        if (repaired) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (repaired) __syncthreads();
    }
    if (!repaired) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) out[4 * t + i] = d[i];
}
FAULT(single_buffer, (float *out, const uint4 *in), out, in)

/* Two warpgroups multiply by one copy of A, each waits for its own product, and both copy the next A. */
template <bool repaired>
__device__ void two_groups(float *out, const uint4 *in) {
    __shared__ alignas(128) uint4 A[128], B[16];
    const int t = threadIdx.x;
    float d[4] = {0, 0, 0, 0};
    if (t < 16) B[t] = in[t];
    for (int step = 0; step < 3; step++) {
        if (t % 2 == 0) A[t / 2] = in[t / 2];
        fence_proxy_async();
        __syncthreads();
        start_product(d, A, B);
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (repaired) __syncthreads();
    }
    for (int i = 0; i < 4; i++) out[4 * t + i] = d[i];
}
FAULT(two_groups, (float *out, const uint4 *in), out, in)

/* Threads store both tiles, and the product reads them through the async proxy after nothing but a barrier. */
template <bool repaired>
__device__ void stored_tiles(float *out, const uint4 *in) {
    __shared__ alignas(128) uint4 A[128], B[16];
    const int t = threadIdx.x;
    float d[4] = {0, 0, 0, 0};
    A[t] = in[t];
    if (t < 16) B[t] = in[t];
    if (repaired) fence_proxy_async();
    __syncthreads();
    start_product(d, A, B);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 4; i++) out[4 * t + i] = d[i];
}
FAULT(stored_tiles, (float *out, const uint4 *in), out, in)

/* B has 24 columns, and its rows follow each other. The descriptor describes panels of 8 columns, with 16 bytes a row.
 */
template <bool repaired>
__device__ void narrow_tile(float *out, const uint4 *A_rows, const uint4 *B_rows) {
    __shared__ alignas(128) uint4 A[128], B[48];
    const int t = threadIdx.x, row = t / 2, panel = t % 3;
    float d[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    A[row / 8 * 16 + t % 2 * 8 + row % 8] = A_rows[t];
    if (t < 48) B[repaired ? panel * 16 + t / 3 : t] = B_rows[t];
    fence_proxy_async();
    __syncthreads();
    const uint64_t panels = (uint64_t)(shared_address(B) >> 4) | (uint64_t)8 << 16 | (uint64_t)16 << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
                 "%11}, %12, %13, 1, 1, 1, 0, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
                 : "l"(descriptor(A)), "l"(panels));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 12; i++) {
        const int m = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, n = i / 4 * 8 + t % 4 * 2 + i % 2;
        out[24 * m + n] = d[i];
    }
}
FAULT(narrow_tile, (float *out, const uint4 *A, const uint4 *B), out, A, B)

/* Thread 0 counts its CTA as done while other threads still add to the counts that the last CTA reads. */
template <bool repaired>
__device__ void retired_early(uint32_t *out, uint32_t *counts, uint32_t *retired) {
    __shared__ bool is_last;
    atomicAdd(&counts[threadIdx.x % 2], 1);
    if (repaired) __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(retired, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (is_last) out[threadIdx.x] = counts[threadIdx.x % 2];
}
FAULT(retired_early, (uint32_t *out, uint32_t *counts, uint32_t *retired), out, counts, retired)

/* A thread reads what its neighbor adds by an atomic, without a barrier between the two. */
template <bool repaired>
__device__ void neighbor_adds(uint32_t *out) {
    __shared__ uint32_t sums[64];
    sums[threadIdx.x ^ 1] = threadIdx.x;
    __syncthreads();
    atomicAdd(&sums[threadIdx.x], 1);
    if (repaired) __syncthreads();
    out[threadIdx.x] = sums[threadIdx.x ^ 1];
}
FAULT(neighbor_adds, (uint32_t *out), out)

/* A loop uses a buffer and copies the next values into it; the pipelined loop starts that copy before the use. */
template <bool repaired>
__device__ void copied_too_early(uint32_t *out, const uint32_t *in) {
    __shared__ uint32_t buffer[64];
    const int t = threadIdx.x;
    uint32_t sum = 0;
    buffer[t] = in[t];
    __syncthreads();
    for (int i = 1; i < 4; i++) {
        if (repaired) sum += buffer[63 - t], __syncthreads();
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(buffer + t)), "l"(in + 64 * i + t)
                     : "memory");
        if (!repaired) sum += buffer[63 - t];
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
    }
    out[t] = sum;
}
FAULT(copied_too_early, (uint32_t *out, const uint32_t *in), out, in)

/* ---- who is right: compute-sanitizer's racecheck or the emulator ---- */

/* A warp reads a slot, and its lane 0 tells the writer after a __syncwarp. Not repaired: without the __syncwarp. */
template <bool repaired>
__device__ void one_lane_tells(uint32_t *out) {
    __shared__ uint32_t slot[32];
    __shared__ uint64_t full, empty;
    if (threadIdx.x == 0) mbarrier_init(&full, 32), mbarrier_init(&empty, 1);
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x < 32) {
            if (i) mbarrier_wait(&empty, (i - 1) % 2);
            slot[threadIdx.x] = i * 100 + threadIdx.x;
            mbarrier_arrive(&full);
        } else {
            mbarrier_wait(&full, i % 2);
            out[i * 32 + threadIdx.x % 32] = slot[63 - threadIdx.x];
            if (repaired) __syncwarp();
            if (threadIdx.x == 32) mbarrier_arrive(&empty);
        }
    }
}
FAULT(one_lane_tells, (uint32_t *out), out)
