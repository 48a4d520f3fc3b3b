/* deepgemm.cu - DeepGEMM's kernels for sm_100a on small problems of whole numbers. host_programs.py runs it. Blocks and
 * stages are such as DeepGEMM itself would choose. */

#include "whole.cuh"

#include <deep_gemm/impls/sm100_bf16_gemm.cuh>
#include <deep_gemm/impls/sm100_bmk_bnk_mn.cuh>
#include <deep_gemm/impls/sm100_fp8_fp4_gemm_1d1d.cuh>
#include <deep_gemm/impls/sm100_mqa_logits.cuh>
#include <deep_gemm/impls/sm100_tf32_hc_prenorm_gemm.cuh>

using cute::UMMA::Major;
using deep_gemm::GemmType;
using Bf16 = __nv_bfloat16;
using Fp8 = __nv_fp8_e4m3;
using Map = CUtensorMap;

constexpr int CTAS = 4; // fewer than blocks: each computes several
constexpr CUtensorMapDataType BF16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, FP32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                              BYTES = CU_TENSOR_MAP_DATA_TYPE_UINT8, WORDS = CU_TENSOR_MAP_DATA_TYPE_INT32;

// Of rows of `columns` elements, in boxes.
static Map map(CUtensorMapDataType type, double bytes, void *at, int rows, int columns, int box_rows, int box_columns,
               CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
    return tensor_map(type, bytes, at, {cuuint64_t(columns), cuuint64_t(rows)},
                      {cuuint32_t(box_columns), cuuint32_t(box_rows)}, swizzle);
}

// The blocks of a product: with SWAP the tensor core multiplies B by A, and a pair shares A instead of B.
template <int M_, int N_, int STAGES_, int PAIR_, bool SWAP_>
struct Blocks {
    static constexpr int M = M_, N = N_, STAGES = STAGES_, PAIR = PAIR_;
    static constexpr bool SWAP = SWAP_, ON_A = SWAP && PAIR == 2;
    static constexpr int A_ROWS = ON_A ? M / PAIR : M, B_ROWS = ON_A ? N : N / PAIR, D_ROWS = SWAP ? 16 : M;
    static constexpr int OF_D = SWAP ? 16 * N * 4 * 2 : M * 128 * 2; // bytes, as for floats
    static constexpr size_t bytes(int stage) { return OF_D + STAGES * (stage + 24) + 1024; }
};

template <class B, class D, bool ADDS>
static bool bf16() {
    constexpr int m = 256, n = 256, k = 256, in_swizzle = 128 / sizeof(D);
    Array<Bf16> a = matrix<Bf16>(m, k, left), b = matrix<Bf16>(n, k, right);
    Array<D> d = matrix<D>(m, n, right);
    if (ADDS) d = Array<D>(std::vector<D>(m * n, D(2.0f)));
    auto kernel =
        deep_gemm::sm100_bf16_gemm_impl<Major::K, Major::K, 0, 0, 0, B::M, B::N, 64, 1, 128, 128, 128, B::STAGES, 128,
                                        128, B::PAIR, B::ON_A, CTAS, 64, B::SWAP, false, GemmType::Normal, ADDS,
                                        std::conditional_t<sizeof(D) == 2, cutlass::bfloat16_t, float>, 100>;
    launch(kernel, CTAS, B::PAIR, 256, B::bytes((B::A_ROWS + B::B_ROWS) * 128), nullptr, m, n, k,
           map(BF16, 2, a.device, m, k, B::A_ROWS, 64), map(BF16, 2, b.device, n, k, B::B_ROWS, 64),
           map(sizeof(D) == 2 ? BF16 : FP32, sizeof(D), d.device, m, n, B::D_ROWS, in_swizzle));
    return equal("256 x 256 x 256", d, m, n, k, 0, 0, ADDS ? 2 : 0);
}

// Exponents of the scales of four blocks along k in a word, [k / block / 4, rows].
static Array<uint32_t> scales(int rows, int k, int block) {
    std::vector<uint32_t> words(rows * ((k / block + 3) / 4));
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < k / block; i++) words[i / 4 * rows + row] |= (126 + scale(row, i)) << i % 4 * 8;
    return Array<uint32_t>(words);
}

template <class B, class D, int A_BLOCK, bool B_IS_FP4>
static bool scaled() {
    constexpr int m = 256, n = 256, k = 512, in_swizzle = 128 / sizeof(D), b_block = B_IS_FP4 ? 32 : 128;
    Array<Fp8> a = matrix<Fp8>(m, k, left), b = matrix<Fp8>(n, k, right);
    Array<__nv_fp4x2_e2m1> b_pairs = pairs(n, k, right);
    Array<uint32_t> of_a = scales(m, k, A_BLOCK), of_b = scales(n, k, b_block);
    Array<D> d = matrix<D>(m, n, right);
    auto kernel = deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<
        Major::K, Major::K, A_BLOCK, b_block, A_BLOCK, 0, 0, 0, B::M, B::N, 128, 1, 128, 128, 128, B::STAGES, 128, 128,
        B::PAIR, B::ON_A, CTAS, B::SWAP, false, GemmType::Normal, false, cutlass::float_e4m3_t,
        std::conditional_t<B_IS_FP4, cutlass::detail::float_e2m1_unpacksmem_t, cutlass::float_e4m3_t>,
        std::conditional_t<sizeof(D) == 2, cutlass::bfloat16_t, float>,
        deep_gemm::epilogue::transform::EpilogueIdentity>;
    const size_t stage = (B::A_ROWS + B::B_ROWS) * 128 + ((B::M + 127) / 128 + (B::N + 127) / 128) * 512;
    launch(kernel, CTAS, B::PAIR, 256, B::bytes(stage), nullptr, m, n, k, map(BYTES, 1, a.device, m, k, B::A_ROWS, 128),
           B_IS_FP4 ? map(CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B, 0.5, b_pairs.device, n, k, B::B_ROWS, 128)
                    : map(BYTES, 1, b.device, n, k, B::B_ROWS, 128),
           map(WORDS, 4, of_a.device, (k / A_BLOCK + 3) / 4, m, 1, B::M, CU_TENSOR_MAP_SWIZZLE_NONE),
           map(WORDS, 4, of_b.device, (k / b_block + 3) / 4, n, 1, B::N, CU_TENSOR_MAP_SWIZZLE_NONE),
           map(sizeof(D) == 2 ? BF16 : FP32, sizeof(D), d.device, m, n, B::D_ROWS, in_swizzle));
    return equal("256 x 256 x 512", d, m, n, k, A_BLOCK, b_block);
}

// D += the sum of A Bᵀ over a batch; rows of A and B follow those of the matrix before.
static bool batched() {
    constexpr int m = 128, n = 128, k = 128, batch = 2, STAGES = 4, SPLIT = 2;
    std::vector<Bf16> of_a, of_b;
    for (int s = 0; s < batch; s++)
        for (int i = 0; i < 128 * k; i++) {
            of_a.push_back(float(left(i / k, s * k + i % k)));
            of_b.push_back(float(right(i / k, s * k + i % k)));
        }
    Array<Bf16> a(of_a), b(of_b);
    Array<float> d(std::vector<float>(m * n, 2.0f));
    auto kernel = deep_gemm::sm100_bmn_bnk_mn_gemm_impl<m, n, k, 128, 128, 64, SPLIT, 128, 128, STAGES, 128>;
    launch(kernel, batch * k / 64 / SPLIT, 1, 128, 2 * 16384 + STAGES * 32768 + 1024, batch,
           map(BF16, 2, a.device, batch * m, k, 128, 64), map(BF16, 2, b.device, batch * n, k, 128, 64),
           map(FP32, 4, d.device, m, n, 128, 32));
    return equal("2 x 128 x 128 x 128", d, m, n, batch * k, 0, 0, 2);
}

// D = A Bᵀ of A in bf16 and B in tf32, and the sums of squares of A's rows.
static bool prenorm() {
    constexpr int m = 128, n = 32, k = 256, STAGES = 4;
    Array<Bf16> a = matrix<Bf16>(m, k, left);
    Array<float> b = matrix<float>(n, k, right), d = matrix<float>(m, n, right), squares = matrix<float>(m, 1, right);
    auto kernel = deep_gemm::sm100_tf32_hc_prenorm_gemm_impl<n, k, 64, n, 64, 1, 128, STAGES, 128, 128>;
    launch(kernel, m / 64, 1, 256, 64 * 128 + STAGES * (64 * 128 + n * 256) + 1024, m,
           map(BF16, 2, a.device, m, k, 64, 64), map(CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 4, b.device, n, k, n, 32),
           map(FP32, 4, d.device, m, n, 64, n), squares.device);
    squares.read();
    bool are_right = true;
    for (int i = 0; i < m; i++) {
        int sum = 0;
        for (int j = 0; j < k; j++) sum += left(i, j) * left(i, j);
        are_right &= squares.host[i] == sum;
    }
    return equal("128 x 32 x 256, and sums of squares", d, m, n, k, 0, 0, 0, are_right);
}

// Logits: of a query and a key the sum over heads of a weight and the product, where that is positive.
template <bool IS_FP4>
static bool logits() {
    constexpr int HEADS = 64, D_HEAD = 128, QUERIES = 8, KEYS = 512, STRIDE = KEYS + 256, BLOCK_Q = 2, SPLIT = 256,
                  STAGES = IS_FP4 ? 10 : 5;
    constexpr int bytes = IS_FP4 ? 64 : 128; // of a row
    using Storage = deep_gemm::layout::MQALogitsSharedStorage<IS_FP4, HEADS, D_HEAD, BLOCK_Q, SPLIT, 3, STAGES, 3>;
    Array<Fp8> q = matrix<Fp8>(QUERIES * HEADS, D_HEAD, left), keys = matrix<Fp8>(KEYS, D_HEAD, right);
    Array<__nv_fp4x2_e2m1> q_pairs = pairs(QUERIES * HEADS, D_HEAD, left), key_pairs = pairs(KEYS, D_HEAD, right);
    Array<uint32_t> q_scales = scales(QUERIES * HEADS, D_HEAD, 32), key_scales = scales(KEYS, D_HEAD, 32);
    std::vector<float> of_keys(KEYS);
    for (int i = 0; i < KEYS; i++) of_keys[i] = float(scale(i, 0));
    Array<float> scales_of_keys(of_keys), weights = matrix<float>(QUERIES, HEADS, right);
    Array<float> out = matrix<float>(QUERIES, STRIDE, right);
    std::vector<uint32_t> first, end;
    for (int i = 0; i < QUERIES; i++) first.push_back(i * 10), end.push_back(300 + i * 30);
    Array<uint32_t> starts(first), ends(end);
    const auto type = IS_FP4 ? CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B : BYTES;
    const auto swizzle = IS_FP4 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
    void *of_q = IS_FP4 ? static_cast<void *>(q_pairs.device) : q.device;
    void *of_k = IS_FP4 ? static_cast<void *>(key_pairs.device) : keys.device;
    const Map key_map = IS_FP4 ? map(WORDS, 4, key_scales.device, 1, KEYS, 1, SPLIT, CU_TENSOR_MAP_SWIZZLE_NONE)
                               : map(FP32, 4, scales_of_keys.device, 1, KEYS, 1, SPLIT, CU_TENSOR_MAP_SWIZZLE_NONE);
    auto kernel =
        deep_gemm::sm100_mqa_logits<IS_FP4, HEADS, D_HEAD, false, BLOCK_Q, SPLIT, 3, STAGES, CTAS, 128, 256, float>;
    launch(kernel, CTAS, 1, 384, sizeof(Storage), QUERIES, KEYS, STRIDE, starts.device, ends.device, out.device,
           map(type, bytes / 128.0, of_q, QUERIES * HEADS, D_HEAD, BLOCK_Q * HEADS, D_HEAD, swizzle),
           IS_FP4 ? map(WORDS, 4, q_scales.device, QUERIES, HEADS, BLOCK_Q, HEADS, CU_TENSOR_MAP_SWIZZLE_NONE)
                  : key_map,
           map(type, bytes / 128.0, of_k, KEYS, D_HEAD, SPLIT, D_HEAD, swizzle), key_map,
           map(FP32, 4, weights.device, QUERIES, HEADS, BLOCK_Q, HEADS, CU_TENSOR_MAP_SWIZZLE_NONE));
    Check check(0);
    out.read();
    for (int i = 0; i < QUERIES; i++)
        for (int key = int(first[i]); key < int(end[i]); key++) {
            int sum = 0;
            for (int head = 0; head < HEADS; head++) {
                int product = 0;
                for (int k = 0; k < D_HEAD; k++)
                    product += left(i * HEADS + head, k) * right(key, k) *
                               (IS_FP4 ? scale(i * HEADS + head, k / 32) * scale(key, k / 32) : 1);
                sum += right(i, head) * std::max(product, 0);
            }
            check.compare(out.host[i * STRIDE + key], sum * (IS_FP4 ? 1 : scale(key, 0)), 0);
        }
    return check.right("8 queries of 64 heads, 300 to 440 of 512 keys");
}

using Plain = Blocks<128, 128, 3, 1, false>;
using Pair = Blocks<128, 128, 4, 2, false>;
using Swapped = Blocks<64, 128, 4, 1, true>;
using SwappedPair = Blocks<128, 128, 4, 2, true>;

struct Problem {
    const char *name;
    bool (*right)();
};

int main(int argc, char **argv) {
    const Problem problems[] = {
        {"bf16_gemm", bf16<Plain, Bf16, false>},
        {"bf16_gemm-fp32", bf16<Plain, float, true>},
        {"bf16_gemm-pair", bf16<Pair, Bf16, false>},
        {"bf16_gemm-swapped", bf16<Swapped, Bf16, false>},
        {"bf16_gemm-swapped-pair", bf16<SwappedPair, Bf16, false>},
        {"fp8_gemm", scaled<Plain, Bf16, 128, false>},
        {"fp8_gemm-pair", scaled<Pair, Bf16, 128, false>},
        {"fp8_gemm-swapped", scaled<Swapped, Bf16, 32, false>},
        {"fp8_fp4_gemm", scaled<Plain, Bf16, 128, true>},
        {"fp8_fp4_gemm-swapped-pair", scaled<SwappedPair, float, 32, true>},
        {"bmk_bnk_mn_gemm", batched},
        {"tf32_hc_prenorm_gemm", prenorm},
        {"fp8_mqa_logits", logits<false>},
        {"fp4_mqa_logits", logits<true>},
    };
    return run_named(problems, argc, argv);
}
