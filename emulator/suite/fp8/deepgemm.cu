/* deepgemm.cu - DeepGEMM's products in e4m3 for sm_90a on small problems, compared with float64 of the same inputs and
 * scales. fp8_kernels.py runs it. Blocks and stages are such as DeepGEMM itself would choose. */

#include "host.cuh"

#include <cuda_bf16.h>
#include <deep_gemm/impls/sm90_fp8_gemm_1d1d.cuh>
#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>
#include <deep_gemm/impls/sm90_fp8_mqa_logits.cuh>
#include <deep_gemm/impls/sm90_fp8_paged_mqa_logits.cuh>

using cute::UMMA::Major;
using deep_gemm::GemmType;
using Identity = deep_gemm::epilogue::transform::EpilogueIdentity;

constexpr int BLOCK_K = 128, PRODUCER = 128;
constexpr double CUT = 1.0 / 1024; // wgmma keeps 13 bits of fraction of a sum of e4m3 products, and cuts the rest
constexpr int CTAS = 4;            // fewer than blocks: each computes several

static CUtensorMap elements_map(Array<__nv_fp8_e4m3> &elements, int rows, int columns, int block) {
    return tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, elements.device, {cuuint64_t(columns), cuuint64_t(rows)},
                      {BLOCK_K, cuuint32_t(block)}, CU_TENSOR_MAP_SWIZZLE_128B);
}

// Of floats [rows, columns].
static CUtensorMap floats_map(Array<float> &floats, int rows, int columns, int box_rows, int box_columns) {
    return tensor_map(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, floats.device, {cuuint64_t(columns), cuuint64_t(rows)},
                      {cuuint32_t(box_columns), cuuint32_t(box_rows)}, CU_TENSOR_MAP_SWIZZLE_NONE);
}

// The sum of products of row i of a and row j of b over columns [from, to), and the sum of their absolute values.
struct Sum {
    double value = 0, magnitude = 0;
    Sum(const Quantized &a, int i, const Quantized &b, int j, int from, int to) {
        for (int k = from; k < to; k++) {
            double term = a.at(i, k) * b.at(j, k);
            value += term;
            magnitude += std::fabs(term);
        }
    }
};

// ---- D = A Bᵀ in bf16, scales of 1 x 128 and of 128 x 128 ----

// Bytes of a dynamically shared memory as the kernel lays it out: D, stages of A, B and A's scales, B's scales,
// barriers.
template <int BLOCK_M, int BLOCK_N, int STAGES>
constexpr size_t bytes_of_1d2d(int k) {
    return BLOCK_M * BLOCK_N * 2 + STAGES * (BLOCK_M * BLOCK_K + BLOCK_N * BLOCK_K + BLOCK_M * 4 + 16) +
           k / BLOCK_K * 8;
}

template <GemmType TYPE, int GROUPS, int BLOCK_M, int BLOCK_N, int STAGES, int CLUSTER, Major SCALES>
static std::vector<__nv_bfloat16> product_1d2d(const Quantized &a, const Quantized &b, int m, int n,
                                               std::vector<int> layout) {
    constexpr int SWIZZLE = BLOCK_N % 64 == 0 ? 128 : 64, CONSUMERS = BLOCK_M <= 64 ? 128 : 256;
    Array<__nv_fp8_e4m3> a_elements(a.elements), b_elements(b.elements);
    Array<float> b_scales(SCALES == Major::MN ? b.scales_by_block() : b.scales);
    Array<int> groups(layout);
    Array<__nv_bfloat16> d(std::vector<__nv_bfloat16>(a.rows * n));
    // Each group has scales of its own, [group, k / 128, m].
    std::vector<float> turned;
    for (int row = 0; row < a.rows; row += m)
        for (int block = 0; block < a.blocks(); block++)
            for (int i = row; i < row + m; i++) turned.push_back(a.scales[i * a.blocks() + block]);
    Array<float> a_scales(turned);
    CUtensorMap d_map =
        tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, d.device, {cuuint64_t(n), cuuint64_t(a.rows)},
                   {SWIZZLE / 2, BLOCK_M}, SWIZZLE == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
    auto kernel = deep_gemm::sm90_fp8_gemm_1d2d_impl<SCALES, 0, 0, 0, GROUPS, BLOCK_M, BLOCK_N, BLOCK_K, 128, 128,
                                                     SWIZZLE, STAGES, PRODUCER, CONSUMERS, CLUSTER, false, CTAS, TYPE,
                                                     cutlass::bfloat16_t, Identity>;
    launch(kernel, CTAS, CLUSTER, PRODUCER + CONSUMERS, bytes_of_1d2d<BLOCK_M, BLOCK_N, STAGES>(a.columns),
           b_scales.device, groups.device, m, n, a.columns, elements_map(a_elements, a.rows, a.columns, BLOCK_M),
           elements_map(b_elements, b.rows, b.columns, BLOCK_N), d_map,
           floats_map(a_scales, a.blocks() * (a.rows / m), m, 1, BLOCK_M));
    return d.read();
}

// Rows of a that belong to no group, whose b is -1, are not looked at.
static bool right_1d2d(const char *problem, const Quantized &a, const Quantized &b, int n,
                       const std::vector<int> &group, const std::vector<__nv_bfloat16> &d) {
    Check check(CUT);
    for (int i = 0; i < a.rows; i++) {
        for (int j = 0; j < n && group[i] >= 0; j++) {
            Sum sum(a, i, b, group[i] * n + j, 0, a.columns);
            check.element(__bfloat162float(d[i * n + j]), sum.value, sum.magnitude);
        }
    }
    return check.right(problem);
}

static bool plain() {
    Random random;
    const int m = 200, n = 256, k = 512;
    Quantized a(m, k, 1, random), b(n, k, 128, random);
    auto d = product_1d2d<GemmType::Normal, 1, 128, 128, 3, 1, Major::K>(a, b, m, n, {0});
    return right_1d2d("200 x 256 x 512", a, b, n, std::vector<int>(m, 0), d);
}

static bool multicast() {
    Random random;
    const int m = 256, n = 384, k = 512;
    Quantized a(m, k, 1, random), b(n, k, 128, random);
    auto d = product_1d2d<GemmType::Normal, 1, 64, 96, 4, 2, Major::MN>(a, b, m, n, {0});
    return right_1d2d("256 x 384 x 512", a, b, n, std::vector<int>(m, 0), d);
}

static bool contiguous() {
    Random random;
    const int m = 384, n = 256, k = 256;
    std::vector<int> group(m, 0);
    for (int i = 128; i < m; i++) group[i] = i < 256 ? 2 : i < 320 ? 1 : -1; // the last 64 rows pad a block
    Quantized a(m, k, 1, random), b(3 * n, k, 128, random);
    auto d = product_1d2d<GemmType::MGroupedContiguous, 3, 128, 128, 3, 1, Major::K>(a, b, m, n, group);
    return right_1d2d("384 x 256 x 256, 3 groups", a, b, n, group, d);
}

static bool masked() {
    Random random;
    const int m = 128, n = 256, k = 256;
    const std::vector<int> rows = {100, 0, 128};
    std::vector<int> group(3 * m, -1);
    for (int g = 0; g < 3; g++) std::fill_n(group.begin() + g * m, rows[g], g);
    Quantized a(3 * m, k, 1, random), b(3 * n, k, 128, random);
    auto d = product_1d2d<GemmType::MGroupedMasked, 3, 64, 128, 4, 1, Major::K>(a, b, m, n, rows);
    return right_1d2d("228 x 256 x 256, 3 groups", a, b, n, group, d);
}

// ---- D += A Bᵀ in fp32, scales of 1 x 128 ----

constexpr int BLOCK_M_1D1D = 128, BLOCK_N_1D1D = 120, STAGES_1D1D = 3;

template <GemmType TYPE, int GROUPS>
static void product_1d1d(const Quantized &a, const Quantized &b, int m, int n, int first_k,
                         const std::vector<__nv_fp8_e4m3> &a_groups, const std::vector<__nv_fp8_e4m3> &b_groups,
                         const std::vector<int> &layout, Array<float> &d) {
    constexpr int CONSUMERS = 256, BLOCK_M = BLOCK_M_1D1D, BLOCK_N = BLOCK_N_1D1D, STAGES = STAGES_1D1D;
    Array<__nv_fp8_e4m3> a_elements(a_groups), b_elements(b_groups);
    Array<float> a_scales(a.scales_by_block()), b_scales(b.scales_by_block());
    Array<int> groups(layout);
    Array<CUtensorMap> maps(std::vector<CUtensorMap>(2 * CTAS));
    const size_t bytes = 2 * sizeof(CUtensorMap) + BLOCK_M * BLOCK_N * 4 +
                         STAGES * (BLOCK_M * BLOCK_K + BLOCK_N * BLOCK_K + BLOCK_M * 4 + 512 + 16);
    auto kernel = deep_gemm::sm90_fp8_gemm_1d1d_impl<0, 0, 0, GROUPS, BLOCK_M, BLOCK_N, BLOCK_K, 128, 128, STAGES,
                                                     PRODUCER, CONSUMERS, 1, false, CTAS, TYPE, float>;
    launch(kernel, CTAS, 1, PRODUCER + CONSUMERS, bytes, a_elements.device, b_elements.device, groups.device,
           reinterpret_cast<cute::TmaDescriptor *>(maps.device), m, n, a.columns,
           elements_map(a_elements, m, first_k, BLOCK_M), elements_map(b_elements, n, first_k, BLOCK_N),
           floats_map(a_scales, a.blocks(), m, 1, BLOCK_M), floats_map(b_scales, b.blocks(), n, 1, BLOCK_N),
           floats_map(d, m * GROUPS, n, 64, BLOCK_N));
    d.read();
}

// Group g sums over columns [ends[g - 1], ends[g]), and is added to what D held.
static bool right_1d1d(const char *problem, const Quantized &a, const Quantized &b, const std::vector<int> &ends,
                       const std::vector<float> &before, const std::vector<float> &d) {
    Check check(CUT);
    for (size_t g = 0, at = 0; g < ends.size(); g++)
        for (int i = 0; i < a.rows; i++)
            for (int j = 0; j < b.rows; j++, at++) {
                Sum sum(a, i, b, j, g ? ends[g - 1] : 0, ends[g]);
                check.element(d[at], before[at] + sum.value, std::fabs(before[at]) + sum.magnitude);
            }
    return check.right(problem);
}

static std::vector<float> numbers(size_t count, Random &random) {
    std::vector<float> values(count);
    for (float &value : values) value = random();
    return values;
}

static bool accumulating() {
    Random random;
    const int m = 256, n = 240, k = 512;
    Quantized a(m, k, 1, random), b(n, k, 1, random);
    Array<float> d(numbers(m * n, random));
    const std::vector<float> before = d.host;
    product_1d1d<GemmType::Normal, 1>(a, b, m, n, k, a.elements, b.elements, {0}, d);
    return right_1d1d("256 x 240 x 512", a, b, {k}, before, d.host);
}

// Columns of a group after those of the group before it, each group [rows, columns].
static std::vector<__nv_fp8_e4m3> group_by_group(const Quantized &a, const std::vector<int> &ends) {
    std::vector<__nv_fp8_e4m3> grouped;
    for (size_t g = 0; g < ends.size(); g++)
        for (int row = 0; row < a.rows; row++)
            for (int column = g ? ends[g - 1] : 0; column < ends[g]; column++)
                grouped.push_back(a.elements[row * a.columns + column]);
    return grouped;
}

static bool groups_of_k() {
    Random random;
    const int m = 128, n = 240;
    const std::vector<int> lengths = {256, 0, 384}, ends = {256, 256, 640};
    Quantized a(m, 640, 1, random), b(n, 640, 1, random);
    Array<float> d(numbers(3 * m * n, random));
    const std::vector<float> before = d.host;
    product_1d1d<GemmType::KGroupedContiguous, 3>(a, b, m, n, lengths[0], group_by_group(a, ends),
                                                  group_by_group(b, ends), lengths, d);
    return right_1d1d("128 x 240 x 640, 3 groups", a, b, ends, before, d.host);
}

// ---- logits: of a query and a key the sum over heads of a weight and the product, where that is positive ----

constexpr int HEADS = 64, D_HEAD = 128, SPLIT = 256, MATH = 512, LOGIT_STAGES = 3;

struct LogitInputs {
    Quantized q, keys;           // [queries, HEADS, D_HEAD], [keys, D_HEAD]
    std::vector<double> weights; // [queries, HEADS], without q's scales
    Array<__nv_fp8_e4m3> q_elements, key_elements;
    Array<float> key_scales, scaled_weights;

    LogitInputs(int queries, int keys, Random &random)
        : q(queries * HEADS, D_HEAD, 1, random), keys(keys, D_HEAD, 1, random), q_elements(q.elements),
          key_elements(this->keys.elements), key_scales(this->keys.scales), scaled_weights(weigh(random)) {}

    // Key `key` for query `query`.
    void compare(int query, int key, float got, Check &check) const {
        double sum = 0, magnitude = 0;
        for (int row = query * HEADS; row < (query + 1) * HEADS; row++) {
            Sum product(q, row, keys, key, 0, D_HEAD);
            sum += weights[row] * std::fmax(product.value, 0);
            magnitude += std::fabs(weights[row]) * product.magnitude;
        }
        check.element(got, sum, magnitude);
    }

  private:
    std::vector<float> weigh(Random &random) {
        std::vector<float> scaled;
        for (int row = 0; row < q.rows; row++) {
            weights.push_back(random());
            scaled.push_back(static_cast<float>(weights.back() * q.scale(row, 0)));
        }
        return scaled;
    }
};

static bool logits() {
    const int queries = 8, count = 512, stride = count + SPLIT;
    constexpr int BLOCK_Q = 2;
    Random random;
    LogitInputs in(queries, count, random);
    std::vector<uint32_t> first, end;
    for (int i = 0; i < queries; i++) first.push_back(i * 10), end.push_back(300 + i * 30);
    Array<uint32_t> starts(first), ends(end);
    Array<float> out(std::vector<float>(queries * stride));
    auto kernel = deep_gemm::sm90_fp8_mqa_logits<HEADS, D_HEAD, false, BLOCK_Q, SPLIT, LOGIT_STAGES, LOGIT_STAGES, CTAS,
                                                 PRODUCER, MATH, float>;
    const size_t bytes = LOGIT_STAGES * (BLOCK_Q * HEADS * (D_HEAD + 4) + SPLIT * (D_HEAD + 4) + 32);
    launch(kernel, CTAS, 1, PRODUCER + MATH, bytes, queries, count, 0, stride, starts.device, ends.device, out.device,
           elements_map(in.q_elements, queries * HEADS, D_HEAD, BLOCK_Q * HEADS),
           elements_map(in.key_elements, count, D_HEAD, SPLIT), floats_map(in.key_scales, 1, count, 1, SPLIT),
           floats_map(in.scaled_weights, queries, HEADS, BLOCK_Q, HEADS));
    out.read();
    Check check(CUT);
    for (int query = 0; query < queries; query++)
        for (uint32_t key = first[query]; key < end[query]; key++)
            in.compare(query, key, out.host[query * stride + key], check);
    return check.right("8 queries of 64 heads, 300 to 440 of 512 keys");
}

static bool paged_logits() {
    constexpr int BATCH = 3, QUERIES = 2, PAGE = 64, PAGES = 12, MOST = 8, STRIDE = 512;
    Random random;
    LogitInputs in(BATCH * QUERIES, PAGES * PAGE, random);
    Array<uint32_t> lengths({200, 64, 333}), plan(std::vector<uint32_t>(2 * (CTAS + 1)));
    std::vector<uint32_t> pages(BATCH * MOST);
    for (int i = 0; i < BATCH * MOST; i++) pages[i] = i * 5 % PAGES;
    Array<uint32_t> table(pages);
    Array<float> out(std::vector<float>(BATCH * QUERIES * STRIDE));
    deep_gemm::sched::sm90_paged_mqa_logits_metadata<32, SPLIT, CTAS>
        <<<1, 32, 128>>>(BATCH, QUERIES, false, lengths.device, nullptr, plan.device);
    auto kernel = deep_gemm::sm90_fp8_paged_mqa_logits<QUERIES, HEADS, D_HEAD, PAGE, false, false, LOGIT_STAGES,
                                                       LOGIT_STAGES, SPLIT, PRODUCER, MATH, float>;
    // Weights, scales and mbarriers of a pipeline begin at multiples of 1 KB; one for Q and four for keys.
    const size_t bytes = LOGIT_STAGES * (QUERIES * HEADS * D_HEAD + 1024) + 1024 +
                         SPLIT / PAGE * (LOGIT_STAGES * (PAGE * D_HEAD + 1024) + 1024);
    launch(kernel, CTAS, 1, PRODUCER + MATH, bytes, BATCH, STRIDE, MOST, lengths.device, out.device, table.device,
           nullptr, plan.device, elements_map(in.q_elements, in.q.rows, D_HEAD, QUERIES * HEADS),
           tensor_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, in.key_elements.device, {D_HEAD, PAGE, PAGES},
                      {D_HEAD, PAGE, 1}, CU_TENSOR_MAP_SWIZZLE_128B),
           floats_map(in.key_scales, PAGES, PAGE, 1, PAGE),
           floats_map(in.scaled_weights, BATCH * QUERIES, HEADS, QUERIES, HEADS));
    out.read();
    Check check(CUT);
    for (int query = 0; query < BATCH * QUERIES; query++)
        for (uint32_t i = 0; i < lengths.host[query / QUERIES]; i++) {
            int key = pages[query / QUERIES * MOST + i / PAGE] * PAGE + i % PAGE;
            in.compare(query, key, out.host[query * STRIDE + i], check);
        }
    return check.right("batch 3, 2 queries of 64 heads, 64 to 333 keys");
}

struct Problem {
    const char *name;
    bool (*right)();
};

int main(int argc, char **argv) {
    const Problem problems[] = {
        {"sm90_fp8_gemm_1d2d", plain},
        {"sm90_fp8_gemm_1d2d, clusters of 2", multicast},
        {"sm90_fp8_gemm_1d2d, groups of rows", contiguous},
        {"sm90_fp8_gemm_1d2d, masked groups", masked},
        {"sm90_fp8_gemm_1d1d", accumulating},
        {"sm90_fp8_gemm_1d1d, groups of columns", groups_of_k},
        {"sm90_fp8_mqa_logits", logits},
        {"sm90_fp8_paged_mqa_logits", paged_logits},
    };
    return run_named(problems, argc, argv);
}
