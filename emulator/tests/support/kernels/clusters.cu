/* clusters.cu - kernels whose CTAs work together in clusters.
 *
 * The kernels make their inputs themselves, and all numbers are integers: test_clusters.py compares with NumPy and with
 * hashes of what an H200 computed (records/clusters.csv). The last argument of a kernel takes one step out of it, for
 * the checks to find.
 */
#include <cuda.h>

#include <cstdint>

enum broken {
    NOTHING_BROKEN,
    RELEASED_EARLY, /* multicast: a slot is given back before it was read */
    WRONG_MASK,     /* multicast: one CTA is left out */
    NO_END_BARRIER, /* multicast: a CTA may end while others arrive at its mbarriers */
    NO_ZERO_BARRIER /* histogram: bins are counted before they are cleared */
};

/* ---- one PTX instruction each ---- */

__device__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ uint32_t cluster_size() {
    uint32_t size;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}
__device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ void cluster_barrier_relaxed() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ uint32_t shared_address(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}
__device__ uint32_t map_to_cta(uint32_t smem_addr, uint32_t rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(smem_addr), "r"(rank));
    return mapped;
}
__device__ uint32_t load_from_cta(uint32_t cluster_addr) {
    uint32_t value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(cluster_addr) : "memory");
    return value;
}
__device__ void add_in_cta(uint32_t cluster_addr, uint32_t value) {
    asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(cluster_addr), "r"(value) : "memory");
}
__device__ void mbarrier_init(uint32_t smem_addr, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_addr), "r"(arrivals) : "memory");
}
__device__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ void arrive_expecting(uint32_t smem_addr, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_addr), "r"(bytes) : "memory");
}
__device__ void arrive_in_cta(uint32_t cluster_addr) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(cluster_addr) : "memory");
}
__device__ void wait_parity(uint32_t smem_addr, uint32_t parity) {
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(smem_addr), "r"(parity)
                     : "memory");
}
__device__ void copy_multicast(uint32_t smem_addr, const void *global, uint32_t bytes, uint32_t mbarrier,
                               uint16_t mask) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(smem_addr),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(mbarrier), "h"(mask)
                 : "memory");
}
__device__ void copy_box_multicast(uint32_t smem_addr, const CUtensorMap *map, int32_t x, int32_t y, uint32_t mbarrier,
                                   uint16_t mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem_addr),
                 "l"(map), "r"(x), "r"(y), "r"(mbarrier), "h"(mask)
                 : "memory");
}
__device__ void copy_to_cta(uint32_t cluster_addr, uint32_t smem_addr, uint32_t bytes, uint32_t cluster_mbarrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     cluster_addr),
                 "r"(smem_addr), "r"(bytes), "r"(cluster_mbarrier)
                 : "memory");
}

/* ---- kernels ---- */

__device__ uint32_t scrambled(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Each CTA sums 1024 numbers; then each reads the sums of all and writes their prefix sum. out: [CTAs] */
extern "C" __global__ void __launch_bounds__(128) reduce(uint32_t *out, uint32_t broken) {
    __shared__ uint32_t sums[4], total;
    uint32_t sum = 0;
    for (uint32_t i = threadIdx.x; i < 1024; i += 128) sum += scrambled(blockIdx.x * 1024 + i);
    sum = __reduce_add_sync(0xffffffff, sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) total = sums[0] + sums[1] + sums[2] + sums[3];
    cluster_barrier();
    if (threadIdx.x == 0) {
        uint32_t prefix = 0;
        for (uint32_t rank = 0; rank <= cluster_rank(); rank++)
            prefix += load_from_cta(map_to_cta(shared_address(&total), rank));
        out[blockIdx.x] = prefix;
    }
    cluster_barrier();
}

constexpr uint32_t TILES = 7, TILE_WORDS = 512, SLOTS = 2, WARPS = 4;

/* Every CTA fetches its part of each tile for all CTAs of the cluster, through two slots. A slot is free when all warps
 * of all CTAs have read it, which they tell every CTA. out: [CTAs][128] */
extern "C" __global__ void __launch_bounds__(160) multicast(const uint32_t *tiles, uint32_t *out, uint32_t broken) {
    __shared__ __align__(128) uint32_t slots[SLOTS][TILE_WORDS];
    __shared__ __align__(8) uint64_t full[SLOTS], empty[SLOTS];
    const uint32_t ctas = cluster_size(), rank = cluster_rank(), part = TILE_WORDS / ctas;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            mbarrier_init(shared_address(&full[i]), 1);
            mbarrier_init(shared_address(&empty[i]), WARPS * ctas);
        }
        fence_mbarrier_init();
    }
    cluster_barrier_relaxed();
    if (threadIdx.x >= 32 * WARPS) {
        for (uint32_t tile = 0; tile < TILES && threadIdx.x == 32 * WARPS; tile++) {
            const uint32_t slot = tile % SLOTS, mbarrier = shared_address(&full[slot]);
            if (tile >= SLOTS) wait_parity(shared_address(&empty[slot]), (tile / SLOTS - 1) & 1);
            arrive_expecting(mbarrier, TILE_WORDS * 4);
            const uint32_t mask = (1u << ctas) - 1 - (broken == WRONG_MASK && tile == 3 ? 1 : 0);
            copy_multicast(shared_address(&slots[slot][rank * part]), tiles + tile * TILE_WORDS + rank * part, part * 4,
                           mbarrier, (uint16_t)mask);
        }
        __syncwarp();
    } else {
        uint32_t sum = blockIdx.x;
        for (uint32_t tile = 0; tile < TILES; tile++) {
            const uint32_t slot = tile % SLOTS, lane = threadIdx.x % 32;
            wait_parity(shared_address(&full[slot]), tile / SLOTS & 1);
            if (broken == RELEASED_EARLY && lane < ctas) arrive_in_cta(map_to_cta(shared_address(&empty[slot]), lane));
            for (uint32_t i = threadIdx.x; i < TILE_WORDS; i += 32 * WARPS) sum = sum * 31 + slots[slot][i];
            __syncwarp();
            if (broken != RELEASED_EARLY && lane < ctas) arrive_in_cta(map_to_cta(shared_address(&empty[slot]), lane));
        }
        out[blockIdx.x * 32 * WARPS + threadIdx.x] = sum;
    }
    if (broken != NO_END_BARRIER) cluster_barrier();
}

/* One box of a tensor for all CTAs, each of which fetches some of its rows. out: [CTAs][512] */
extern "C" __global__ void __launch_bounds__(128)
    boxes_multicast(const __grid_constant__ CUtensorMap map, uint32_t *out, uint32_t broken) {
    __shared__ __align__(1024) uint32_t box[16 * 32]; /* 16 rows of 64 halves */
    __shared__ __align__(8) uint64_t full;
    const uint32_t ctas = cluster_size(), rank = cluster_rank(), rows = 4;
    if (threadIdx.x == 0) {
        mbarrier_init(shared_address(&full), 1);
        fence_mbarrier_init();
    }
    cluster_barrier();
    if (threadIdx.x == 0) {
        arrive_expecting(shared_address(&full), sizeof box);
        for (uint32_t part = rank; part < 16 / rows; part += ctas)
            copy_box_multicast(shared_address(&box[part * rows * 32]), &map, -8, (int32_t)(part * rows) - 2,
                               shared_address(&full), (uint16_t)((1u << ctas) - 1));
    }
    wait_parity(shared_address(&full), 0);
    for (uint32_t i = threadIdx.x; i < 16 * 32; i += 128) out[blockIdx.x * 16 * 32 + i] = box[i] + rank;
    cluster_barrier();
}

constexpr uint32_t BINS = 256;

/* The bins are distributed evenly over the CTAs of a cluster; each CTA counts 2048 numbers. out: [clusters][BINS] */
extern "C" __global__ void __launch_bounds__(128) histogram(uint32_t *out, uint32_t broken) {
    __shared__ uint32_t bins[BINS];
    const uint32_t ctas = cluster_size(), rank = cluster_rank(), own = BINS / ctas;
    for (uint32_t i = threadIdx.x; i < own; i += 128) bins[i] = 0;
    if (broken != NO_ZERO_BARRIER) cluster_barrier();
    for (uint32_t i = threadIdx.x; i < 2048; i += 128) {
        const uint32_t bin = scrambled(blockIdx.x * 2048 + i) % BINS;
        add_in_cta(map_to_cta(shared_address(&bins[bin % own]), bin / own), 1);
    }
    cluster_barrier();
    for (uint32_t i = threadIdx.x; i < own; i += 128) out[blockIdx.x / ctas * BINS + rank * own + i] = bins[i];
}

/* Each CTA stores 256 words and lets the copy engine bring them to the next CTA of the ring. out: [CTAs][256] */
extern "C" __global__ void __launch_bounds__(128) exchange(uint32_t *out, uint32_t broken) {
    __shared__ __align__(128) uint32_t outbox[256], inbox[256];
    __shared__ __align__(8) uint64_t arrived;
    const uint32_t next = (cluster_rank() + 1) % cluster_size(), mbarrier = shared_address(&arrived);
    for (uint32_t i = threadIdx.x; i < 256; i += 128) outbox[i] = scrambled(blockIdx.x * 256 + i);
    if (threadIdx.x == 0) {
        mbarrier_init(mbarrier, 1);
        fence_mbarrier_init();
        arrive_expecting(mbarrier, sizeof inbox);
    }
    fence_proxy_async();
    cluster_barrier();
    if (threadIdx.x == 0)
        copy_to_cta(map_to_cta(shared_address(inbox), next), shared_address(outbox), sizeof inbox,
                    map_to_cta(mbarrier, next));
    wait_parity(mbarrier, 0);
    for (uint32_t i = threadIdx.x; i < 256; i += 128) out[blockIdx.x * 256 + i] = inbox[i];
    cluster_barrier();
}
