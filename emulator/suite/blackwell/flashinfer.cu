/* flashinfer.cu - FlashInfer's CUTLASS kernels for sm_100a on small problems: scaled products of whole numbers, and
 * attention and MLA decoding, which are compared with float64. host_programs.py runs it. */

#include "whole.cuh"

#include <flashinfer/attention/blackwell/fmha_cutlass_sm100.cuh>
#include <flashinfer/attention/blackwell/plan.cuh>
#include <flashinfer/attention/cutlass_mla.cuh>
#include <flashinfer/gemm/gemm_groupwise_sm100.cuh>
#include <flashinfer/gemm/group_gemm_fp8_groupwise_sm100.cuh>

using Bf16 = __nv_bfloat16;
using Fp8 = __nv_fp8_e4m3;
using E4m3 = cutlass::float_e4m3_t;
using Number = cutlass::bfloat16_t;

constexpr int BLOCK = 128, N = 256, K = 256; // elements that share a scale; columns; depth of a product
constexpr size_t WORKSPACE = 16 << 20;       // bytes

static Array<char> workspace() {
    return Array<char>(std::vector<char>(WORKSPACE));
}

template <class T>
static T *as(void *device) {
    return static_cast<T *>(device);
}

// ---- products in e4m3 ----

// The scales of rows or of blocks of rows, [rows, K / 128] or its transpose.
static std::vector<float> scales(int rows, bool by_row) {
    std::vector<float> values(rows * K / BLOCK);
    for (int row = 0; row < rows; row++)
        for (int block = 0; block < K / BLOCK; block++)
            values[by_row ? row * (K / BLOCK) + block : block * rows + row] = float(scale(row, block));
    return values;
}

// D = A Bᵀ; PAIR CTAs compute a tile. FEW: the kernel for at most 32 rows.
template <int M, int PAIR, bool BY_ROW, bool FEW>
static bool product() {
    namespace gemm = flashinfer::gemm;
    Array<Fp8> a = matrix<Fp8>(M, K, left), b = matrix<Fp8>(N, K, right);
    Array<float> of_a(scales(M, BY_ROW)), of_b(scales(N / BLOCK, BY_ROW));
    Array<Bf16> d = matrix<Bf16>(M, N, right);
    Array<char> memory = workspace();
    auto run = [] {
        if constexpr (FEW)
            return gemm::CutlassGroupwiseScaledGEMMSM100LowLatency<1, BLOCK, BLOCK, BY_ROW, PAIR, E4m3, Number>;
        else
            return gemm::CutlassGroupwiseScaledGEMMSM100<1, BLOCK, BLOCK, BY_ROW, PAIR, E4m3, Number>;
    }();
    require(run(memory.device, WORKSPACE, as<E4m3>(a.device), as<E4m3>(b.device), of_a.device, of_b.device,
                as<Number>(d.device), M, N, K, 1, nullptr),
            "the product");
    return equal("256 columns, k = 256", d, M, N, K, BLOCK, BLOCK, 0, true, BLOCK);
}

// The rows of each group multiply a B of its own; `ends` are where the groups end.
template <int PAIR>
static bool grouped() {
    constexpr int ROWS = 200, GROUPS = 2;
    const int ends[] = {128, ROWS};
    Array<Fp8> a = matrix<Fp8>(ROWS, K, left), b = matrix<Fp8>(GROUPS * N, K, right);
    std::vector<float> b_scales;
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < N / BLOCK * (K / BLOCK); i++) b_scales.push_back(float(1 + (group + i) % 2));
    Array<float> of_a(scales(ROWS, true)), of_b(b_scales);
    Array<Bf16> d = matrix<Bf16>(ROWS, N, right);
    Array<int> offsets({0, ends[0], ends[1]});
    Array<char> memory = workspace(), more = workspace();
    auto run =
        flashinfer::group_gemm::CutlassFP8GroupwiseScaledGroupGEMMSM100<1, BLOCK, BLOCK, true, PAIR, E4m3, Number>;
    require(run(memory.device, WORKSPACE, more.device, WORKSPACE, as<E4m3>(a.device), as<E4m3>(b.device), of_a.device,
                of_b.device, as<Number>(d.device), offsets.device, ROWS, N, K, GROUPS, nullptr),
            "the products");
    Check check(0);
    d.read();
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++) {
            const int group = i >= ends[0];
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += left(i, k) * right(group * N + j, k) * scale(i, k / BLOCK) *
                       b_scales[(group * (N / BLOCK) + j / BLOCK) * (K / BLOCK) + k / BLOCK];
            check.compare(number_of(d.host[i * N + j]), sum, 0);
        }
    return check.right("groups of 128 and 72 rows, 256 columns, k = 256");
}

// ---- attention ----

static Array<Bf16> random_numbers(size_t count, Random &random) {
    std::vector<Bf16> values;
    for (size_t i = 0; i < count; i++) values.push_back(Bf16(random()));
    return Array<Bf16>(values);
}

// Compares a row of O, and its log-sum-exp unless it is null.
static void compare(Check &check, const Bf16 *o, const float *lse, const Bf16 *q, const Bf16 *k, size_t k_stride,
                    const Bf16 *v, size_t v_stride, int keys, int d_qk, int d_v, double factor) {
    std::vector<double> weights;
    double sum = 0;
    for (int key = 0; key < keys; key++) {
        double score = 0;
        for (int i = 0; i < d_qk; i++) score += double(number_of(q[i])) * double(number_of(k[key * k_stride + i]));
        sum += weights.emplace_back(std::exp(score * factor));
    }
    if (lse) check.compare(*lse, std::log2(sum), 1e-3);
    for (int column = 0; column < d_v; column++) {
        double value = 0, magnitude = 0;
        for (int key = 0; key < keys; key++) {
            const double term = weights[key] / sum * double(number_of(v[key * v_stride + column]));
            value += term, magnitude += std::fabs(term);
        }
        check.element(number_of(o[column]), value, magnitude);
    }
}

// Two sequences of different lengths, and two heads of Q for one of K and V. FlashInfer plans which CTA computes what.
template <int D_QK, int D_V, bool CAUSAL>
static bool attention() {
    using namespace cute;
    using Mask =
        std::conditional_t<CAUSAL, cutlass::fmha::collective::CausalMask, cutlass::fmha::collective::ResidualMask>;
    constexpr int HEADS = 2, TILE = 256, QUERIES = 270, KEYS = 500, BEFORE = 200; // BEFORE: rows that O needs before it
    const int q_ends[] = {0, 200, QUERIES}, k_ends[] = {0, 200, KEYS};
    constexpr double SCALE = 0.0625;
    cudaDeviceProp device;
    require(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    const int ctas = device.multiProcessorCount;
    Random random;
    Array<Bf16> q = random_numbers(QUERIES * HEADS * D_QK, random), k = random_numbers(KEYS * D_QK, random),
                v = random_numbers(KEYS * D_V, random), o = random_numbers((BEFORE + QUERIES) * HEADS * D_V, random);
    Array<float> lse(std::vector<float>(QUERIES * HEADS));
    Array<int> q_offsets({0, 200, QUERIES}), k_offsets({0, 200, KEYS}), first(std::vector<int>(ctas + 1));
    Array<int> tiles(std::vector<int>(64)), heads(tiles.host), sequences(tiles.host);
    Array<char> memory = workspace();
    require(flashinfer::plan_kernel_wrapper(q_offsets.device, k_offsets.device, nullptr, nullptr, first.device,
                                            tiles.device, heads.device, sequences.device, TILE, 2, HEADS, ctas, CAUSAL,
                                            false, nullptr),
            "the plan");
    auto run = flashinfer::run_fmha_fwd<Number, Number, int, Shape<_256, _128, cute::Int<D_QK>>,
                                        Shape<_256, cute::Int<D_V>, _128>, Mask>;
    require(run(memory.device, as<Number>(q.device), as<Number>(k.device), as<Number>(v.device), q_offsets.device,
                k_offsets.device, first.device, tiles.device, heads.device, sequences.device,
                as<Number>(o.device) + BEFORE * HEADS * D_V, lse.device, CAUSAL, SCALE, 1, 1, 1, 1, HEADS, 1, D_QK, D_V,
                HEADS * D_QK, D_QK, D_QK, D_QK, D_V, D_V, 2, QUERIES, KEYS, BEFORE, nullptr),
            "attention");
    o.read(), lse.read();
    Check check(1.0 / 128); // weights are rounded to bf16
    for (int row = 0; row < QUERIES * HEADS; row++) {
        const int query = row / HEADS, s = query >= q_ends[1];
        const int after = q_ends[s + 1] - 1 - query, keys = k_ends[s + 1] - k_ends[s] - (CAUSAL ? after : 0);
        compare(check, &o.host[(BEFORE * HEADS + row) * D_V], &lse.host[row], &q.host[row * D_QK],
                &k.host[k_ends[s] * D_QK], D_QK, &v.host[k_ends[s] * D_V], D_V, keys, D_QK, D_V, SCALE);
    }
    return check.right("200 queries of 200 keys and 70 of 300, 2 heads");
}

// Decoding of 128 heads over a paged cache of latent vectors, whose first 512 elements are V.
static bool mla() {
    constexpr int BATCH = 2, HEADS = 128, D = 576, D_V = 512, PAGE = 64, PAGES = 4;
    Random random;
    Array<Bf16> q = random_numbers(BATCH * HEADS * D, random), o = random_numbers(BATCH * HEADS * D_V, random),
                cache = random_numbers(BATCH * PAGES * PAGE * D, random);
    Array<int> lengths({256, 150}), pages({5, 0, 3, 6, 1, 7, 4, 2});
    Array<char> memory = workspace();
    require(flashinfer::attention::runMla<Number>(memory.device, o.device, nullptr, q.device, cache.device,
                                                  lengths.device, pages.device, BATCH, PAGES, BATCH * PAGES, PAGE, 0,
                                                  nullptr),
            "decoding");
    o.read();
    Check check(1.0 / 128); // weights are rounded to bf16
    for (int row = 0; row < BATCH * HEADS; row++) {
        const int *own = &pages.host[row / HEADS * PAGES];
        std::vector<Bf16> keys;
        for (int i = 0; i < PAGES; i++)
            keys.insert(keys.end(), &cache.host[own[i] * PAGE * D], &cache.host[own[i] * PAGE * D] + PAGE * D);
        compare(check, &o.host[row * D_V], nullptr, &q.host[row * D], keys.data(), D, keys.data(), D,
                lengths.host[row / HEADS], D, D_V, 1 / std::sqrt(128.0 + 64));
    }
    return check.right("256 and 150 keys");
}

struct Problem {
    const char *name;
    bool (*right)();
};

int main(int argc, char **argv) {
    const Problem problems[] = {
        {"fp8_gemm", product<256, 1, false, false>},         {"fp8_gemm-pair", product<256, 2, true, false>},
        {"fp8_gemm-few-rows", product<32, 1, false, true>},  {"fp8_grouped_gemm", grouped<1>},
        {"attention", attention<128, 128, false>},           {"attention-causal", attention<128, 128, true>},
        {"attention-192-causal", attention<192, 128, true>}, {"mla_decoding", mla},
    };
    return run_named(problems, argc, argv);
}
