/* flashmla.cu - FlashMLA's decoding over a sparse e4m3 KV cache on small problems, compared with float64 of that cache.
 * It is built together with FlashMLA's own files: for sm_90a fp8_kernels.py runs it, and for sm_100a (FL_SM_100A)
 * host_programs.py, with FlashMLA's sparse prefill of bf16 as well. */

#include "host.cuh"

#include <cuda_bf16.h>

#include <algorithm>
#include <functional>

#include "params.h"
#ifdef FL_SM_100A
#include "sm100/decode/head64/kernel.h"
#include "sm100/prefill/sparse/fwd/head128/phase1.h"
#include "sm100/prefill/sparse/fwd/head64/phase1.h"
#include "sm100/prefill/sparse/fwd_for_small_topk/head128/phase1.h"
#else
#include "sm90/decode/sparse_fp8/splitkv_mla.h"
#endif
#include "smxx/decode/combine/combine.h"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h"

constexpr int D_V = 512, D_ROPE = 64; // elements of V, the first of a key; of a key's end, which stays bf16
constexpr int PAGES = 4, PAGE = 64, TOKENS = PAGES * PAGE;
constexpr int PAGE_BYTES = 82 * 576;        // room for either format, and a multiple of the bytes of either token
constexpr int BLOCK = 64, REQUEST_COST = 5; // tokens of a block; fixed cost of a request, in blocks
constexpr float SCALE = 0.0625f;            // of the scores

// A token in the cache is e4m3 with a scale for each tile, then D_ROPE elements in bf16. Scales are 4 floats between
// the two, or 8 exponents per token after all tokens of the page.
struct Format {
    ModelType type;
    int d_qk, tile;
    bool floats() const { return type == ModelType::V32; }
    int d_nope() const { return d_qk - D_ROPE; }
    int rope_at() const { return d_nope() + (floats() ? 16 : 0); }
    int token_bytes() const { return rope_at() + D_ROPE * 2; }
    int row_bytes() const { return token_bytes() + (floats() ? 0 : 8); }
};
constexpr Format V32 = {ModelType::V32, 576, 128}, MODEL1 = {ModelType::MODEL1, 512, 64};

static double bf16_of(float value, unsigned char *at) {
    __nv_bfloat16 rounded = __float2bfloat16(value);
    std::memcpy(at, &rounded, 2);
    return __bfloat162float(rounded);
}

struct Cache {
    std::vector<unsigned char> bytes;
    std::vector<double> keys; // [TOKENS, d_qk], the values of the bytes

    Cache(const Format &format, Random &random) : bytes(PAGES * PAGE_BYTES), keys(TOKENS * format.d_qk) {
        for (int token = 0; token < TOKENS; token++) fill(format, token, random);
    }

  private:
    void fill(const Format &format, int token, Random &random) {
        unsigned char *page = &bytes[token / PAGE * PAGE_BYTES], *at = page + token % PAGE * format.token_bytes();
        double *key = &keys[token * format.d_qk];
        for (int i = 0; i < format.d_nope(); i++) {
            int tile = i / format.tile, exponent = (token + tile) % 3 - 8;
            float scale = std::ldexp(1.0f, exponent);
            __nv_fp8_e4m3 value((random() + 0.25f) / scale);
            key[i] = scale * static_cast<float>(value);
            at[i] = value.__x;
            if (format.floats())
                std::memcpy(at + format.d_nope() + tile * 4, &scale, 4);
            else
                page[PAGE * format.token_bytes() + token % PAGE * 8 + tile] = exponent + 127;
        }
        for (int i = 0; i < D_ROPE; i++) key[format.d_nope() + i] = bf16_of(random(), at + format.rope_at() + 2 * i);
    }
};

// Tokens of the cache that each request looks at: [batch, count]; some slots are empty.
static std::vector<int> choose(int batch, int count, Random &random) {
    std::vector<int> indices(batch * count);
    for (int i = 0; i < batch * count; i++) indices[i] = i % 7 == 3 ? -1 : random.engine() % TOKENS;
    return indices;
}

struct Problem {
    const char *name, *size;
    Format format;
    int heads, batch, topk, extra_topk;
    std::vector<int> lengths; // of topk, for each request; empty: all
    bool sinks;
    bool right() const;
};

struct Inputs {
    Cache cache, extra;
    Array<unsigned char> kv, extra_kv;
    Array<int> indices, extra_indices, lengths;
    Array<float> sinks;
    std::vector<double> q;
    std::vector<cutlass::bfloat16_t> q_bits;

    Inputs(const Problem &problem, Random &random)
        : cache(problem.format, random), extra(problem.format, random), kv(cache.bytes), extra_kv(extra.bytes),
          indices(choose(problem.batch, problem.topk, random)),
          extra_indices(choose(problem.batch, problem.extra_topk, random)), lengths(problem.lengths),
          sinks(std::vector<float>(problem.heads)) {
        for (int i = 0; i < problem.batch * problem.heads * problem.format.d_qk; i++) {
            q_bits.emplace_back(random());
            q.push_back(static_cast<float>(q_bits.back()));
        }
        for (float &sink : sinks.host) sink = random();
        sinks = Array<float>(sinks.host);
    }
};

// ---- the three launches of a decoding step, as FlashMLA's own interface makes them ----

static SparseAttnDecodeParams parameters(const Problem &problem, Inputs &in, cutlass::bfloat16_t *q) {
    const Format &format = problem.format;
    const int heads = problem.heads;
    SparseAttnDecodeParams p{};
    p.b = problem.batch, p.s_q = 1, p.h_q = heads, p.h_kv = 1, p.d_qk = format.d_qk, p.d_v = D_V;
    p.sm_scale = SCALE, p.sm_scale_div_log2 = SCALE * static_cast<float>(M_LOG2E);
    p.num_blocks = PAGES, p.page_block_size = PAGE, p.topk = problem.topk, p.model_type = format.type;
    p.q = q, p.kv = reinterpret_cast<cutlass::bfloat16_t *>(in.kv.device), p.indices = in.indices.device;
    p.topk_length = problem.lengths.empty() ? nullptr : in.lengths.device;
    p.attn_sink = problem.sinks ? in.sinks.device : nullptr;
    p.stride_q_b = heads * format.d_qk, p.stride_q_s_q = heads * format.d_qk, p.stride_q_h_q = format.d_qk;
    p.stride_kv_block = PAGE_BYTES, p.stride_kv_row = format.row_bytes();
    p.stride_indices_b = p.stride_indices_s_q = problem.topk;
    p.stride_lse_b = p.stride_lse_s_q = heads;
    p.stride_o_b = p.stride_o_s_q = heads * D_V, p.stride_o_h_q = D_V;
    if (problem.extra_topk) {
        p.extra_num_blocks = PAGES, p.extra_page_block_size = PAGE, p.extra_topk = problem.extra_topk;
        p.extra_kv = reinterpret_cast<cutlass::bfloat16_t *>(in.extra_kv.device);
        p.extra_indices = in.extra_indices.device;
        p.stride_extra_kv_block = PAGE_BYTES, p.stride_extra_kv_row = format.row_bytes();
        p.stride_extra_indices_b = p.stride_extra_indices_s_q = problem.extra_topk;
    }
    return p;
}

static void schedule(const SparseAttnDecodeParams &p) {
    GetDecodeSchedMetaParams meta{};
    meta.b = p.b, meta.s_q = 1, meta.block_size_n = BLOCK, meta.fixed_overhead_num_blocks = REQUEST_COST;
    meta.topk = p.topk, meta.extra_topk = p.extra_topk, meta.topk_length = p.topk_length;
    meta.tile_scheduler_metadata_ptr = p.tile_scheduler_metadata_ptr, meta.num_splits_ptr = p.num_splits_ptr;
    meta.num_sm_parts = p.num_sm_parts;
    smxx::decode::run_get_decoding_sched_meta_kernel(meta);
}

#ifdef FL_SM_100A
// As FlashMLA chooses: 128 heads of MODEL1 in a pair of CTAs, of V3.2 by two launches.
static int ctas_of_split(const Problem &problem) {
    return problem.heads == 128 && !problem.format.floats() ? 2 : 1;
}

static void attend(SparseAttnDecodeParams p) {
    using namespace sm100::decode::head64;
    if (p.h_q == 128 && p.model_type == ModelType::MODEL1) {
        using namespace sm100::fwd_for_small_topk::head128;
        run_fwd_for_small_topk_phase1_kernel<SparseAttnFwdMode::DecodeWithSplitKV, 512>(p);
        return;
    }
    for (int left = p.h_q; left > 0; left -= 64) {
        p.h_q = 64;
        if (p.model_type == ModelType::V32)
            run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32>(p);
        else
            run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::MODEL1>(p);
        p.q += 64 * p.stride_q_h_q, p.out += 64 * p.stride_o_h_q, p.o_accum += 64 * p.stride_o_accum_h_q;
        p.lse += 64, p.lse_accum += 64, p.attn_sink += p.attn_sink ? 64 : 0;
    }
}
#else
static int ctas_of_split(const Problem &problem) {
    return problem.heads / BLOCK;
}

static void attend(const SparseAttnDecodeParams &p) {
    using namespace sm90::decode::sparse_fp8;
    if (p.model_type == ModelType::V32 && p.h_q == 64)
        run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32, 64>(p);
    else if (p.model_type == ModelType::V32)
        run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::V32, 128>(p);
    else if (p.h_q == 64)
        run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::MODEL1, 64>(p);
    else
        run_flash_splitkv_mla_fp8_sparse_kernel<ModelType::MODEL1, 128>(p);
}

#endif

static void combine(const SparseAttnDecodeParams &p) {
    CombineParams c{};
    c.b = p.b, c.s_q = 1, c.h_q = p.h_q, c.d_v = D_V, c.lse = p.lse, c.out = p.out;
    c.stride_lse_b = p.stride_lse_b, c.stride_lse_s_q = p.stride_lse_s_q;
    c.stride_o_b = p.stride_o_b, c.stride_o_s_q = p.stride_o_s_q, c.stride_o_h_q = p.stride_o_h_q;
    c.lse_accum = p.lse_accum, c.o_accum = p.o_accum;
    c.stride_lse_accum_split = p.stride_lse_accum_split, c.stride_lse_accum_s_q = p.stride_lse_accum_s_q;
    c.stride_o_accum_split = p.stride_o_accum_split, c.stride_o_accum_s_q = p.stride_o_accum_s_q;
    c.stride_o_accum_h_q = p.stride_o_accum_h_q;
    c.tile_scheduler_metadata_ptr = p.tile_scheduler_metadata_ptr, c.num_splits_ptr = p.num_splits_ptr;
    c.num_sm_parts = p.num_sm_parts, c.attn_sink = p.attn_sink;
    smxx::decode::run_flash_mla_combine_kernel<cutlass::bfloat16_t>(c);
}

struct Outputs {
    std::vector<cutlass::bfloat16_t> o; // [batch, heads, D_V]
    std::vector<float> lse;             // [batch, heads]
};

static Outputs decode(const Problem &problem, Inputs &in) {
    const int heads = problem.heads, batch = problem.batch;
    cudaDeviceProp device;
    require(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    const int parts = std::max(device.multiProcessorCount / ctas_of_split(problem), 1), splits = batch + parts;
    Array<cutlass::bfloat16_t> q(in.q_bits), o(std::vector<cutlass::bfloat16_t>(batch * heads * D_V));
    Array<float> lse(std::vector<float>(batch * heads)), lse_parts(std::vector<float>(splits * heads));
    Array<float> o_parts(std::vector<float>(splits * heads * D_V));
    Array<DecodingSchedMeta> plan{std::vector<DecodingSchedMeta>(parts)};
    Array<int> first_splits(std::vector<int>(batch + 1));
    SparseAttnDecodeParams p = parameters(problem, in, q.device);
    p.lse = lse.device, p.out = o.device, p.lse_accum = lse_parts.device, p.o_accum = o_parts.device;
    p.stride_lse_accum_split = p.stride_lse_accum_s_q = heads;
    p.stride_o_accum_split = p.stride_o_accum_s_q = heads * D_V, p.stride_o_accum_h_q = D_V;
    p.tile_scheduler_metadata_ptr = plan.device, p.num_splits_ptr = first_splits.device, p.num_sm_parts = parts;
    schedule(p);
    attend(p);
    combine(p);
    return {o.read(), lse.read()};
}

// ---- float64 ----

// The keys that a request looks at.
static std::vector<const double *> keys_of(const Problem &problem, const Inputs &in, int request) {
    std::vector<const double *> keys;
    const int d = problem.format.d_qk, topk = problem.topk, extra = problem.extra_topk;
    const int *first = &in.indices.host[request * topk], *more = in.extra_indices.host.data() + request * extra;
    for (int i = 0; i < (problem.lengths.empty() ? topk : problem.lengths[request]); i++)
        if (first[i] >= 0) keys.push_back(&in.cache.keys[first[i] * d]);
    for (int i = 0; i < extra; i++)
        if (more[i] >= 0) keys.push_back(&in.extra.keys[more[i] * d]);
    return keys;
}

static void compare(const Problem &problem, const Inputs &in, const Outputs &out, int row, Check &check) {
    auto keys = keys_of(problem, in, row / problem.heads);
    std::vector<double> p;
    double sum = 0;
    for (const double *key : keys) {
        double score = 0;
        for (int i = 0; i < problem.format.d_qk; i++) score += in.q[row * problem.format.d_qk + i] * key[i];
        sum += p.emplace_back(std::exp(score * SCALE));
    }
    check.compare(out.lse[row], std::log(sum), 1e-3);
    if (problem.sinks) sum += std::exp(in.sinks.host[row % problem.heads]);
    for (int column = 0; column < D_V; column++) {
        double value = 0, magnitude = 0;
        for (size_t i = 0; i < keys.size(); i++) {
            value += p[i] / sum * keys[i][column];
            magnitude += std::fabs(p[i] / sum * keys[i][column]);
        }
        check.element(static_cast<float>(out.o[row * D_V + column]), value, magnitude);
    }
}

bool Problem::right() const {
    Random random;
    Inputs in(*this, random);
    Outputs out = decode(*this, in);
    Check check(1.0 / 256); // weights are rounded to bf16
    for (int row = 0; row < batch * heads; row++) compare(*this, in, out, row, check);
    return check.right(size);
}

#ifdef FL_SM_100A
// ---- sparse prefill: keys in bf16, V their first elements ----

template <int D, void RUN(const SparseAttnFwdParams &), int HEADS>
static bool prefill() {
    constexpr int QUERIES = 3, TOPK = 256;
    Random random;
    std::vector<cutlass::bfloat16_t> q_bits, k_bits;
    for (int i = 0; i < QUERIES * HEADS * D; i++) q_bits.emplace_back(random());
    for (int i = 0; i < TOKENS * D; i++) k_bits.emplace_back(random());
    Array<cutlass::bfloat16_t> q(q_bits), keys(k_bits), out(std::vector<cutlass::bfloat16_t>(QUERIES * HEADS * D_V));
    Array<int> indices(choose(QUERIES, TOPK, random)), lengths({TOPK, 200, 100});
    Array<float> lse(std::vector<float>(QUERIES * HEADS)), most(lse.host), sinks(lse.host);
    SparseAttnFwdParams p{};
    p.s_q = QUERIES, p.s_kv = TOKENS, p.h_q = HEADS, p.h_kv = 1, p.d_qk = D, p.d_v = D_V, p.topk = TOPK;
    p.sm_scale = SCALE, p.sm_scale_div_log2 = SCALE * static_cast<float>(M_LOG2E);
    p.q = q.device, p.kv = keys.device, p.indices = indices.device, p.attn_sink = sinks.device;
    p.topk_length = lengths.device, p.stride_q_s_q = HEADS * D, p.stride_q_h_q = D;
    p.stride_kv_s_kv = p.stride_kv_h_kv = D, p.stride_indices_s_q = p.stride_indices_h_kv = TOPK;
    p.out = out.device, p.max_logits = most.device, p.lse = lse.device, p.num_sm = 8;
    RUN(p);
    out.read(), lse.read();
    Check check(1.0 / 256); // weights are rounded to bf16
    for (int row = 0; row < QUERIES * HEADS; row++) {
        std::vector<double> scores;
        std::vector<const cutlass::bfloat16_t *> chosen;
        double sum = 0;
        for (int i = 0; i < lengths.host[row / HEADS]; i++) {
            const int key = indices.host[row / HEADS * TOPK + i];
            double score = 0;
            if (key < 0) continue;
            for (int k = 0; k < D; k++) score += double(q_bits[row * D + k]) * double(k_bits[key * D + k]);
            sum += scores.emplace_back(std::exp(score * SCALE));
            chosen.push_back(&k_bits[key * D]);
        }
        check.compare(lse.host[row], std::log(sum), 1e-3);
        for (int column = 0; column < D_V; column++) {
            double value = 0, magnitude = 0;
            for (size_t i = 0; i < chosen.size(); i++) {
                const double term = scores[i] / (sum + 1) * double(chosen[i][column]); // the sink of each head is 0
                value += term, magnitude += std::fabs(term);
            }
            check.element(static_cast<float>(out.host[row * D_V + column]), value, magnitude);
        }
    }
    return check.right("3 queries, 86 to 219 keys");
}
#endif

struct Entry {
    const char *name;
    std::function<bool()> right;
};

int main(int argc, char **argv) {
    using enum SparseAttnFwdMode;
    const Problem decoding[] = {
        {"sparse decoding, V3.2, 64 heads", "batch 2, 256 keys", V32, 64, 2, 256, 0, {}, false},
        {"sparse decoding, V3.2, 128 heads", "batch 8, 128 keys", V32, 128, 8, 128, 0, {}, true},
        {"sparse decoding, MODEL1, 64 heads", "batch 2, 328 or 384 keys", MODEL1, 64, 2, 256, 128, {200, 256}, true},
        {"sparse decoding, MODEL1, 128 heads", "batch 2, 576 keys", MODEL1, 128, 2, 512, 64, {}, false},
    };
    std::vector<Entry> entries;
    for (const Problem &each : decoding) entries.push_back({each.name, [&each] { return each.right(); }});
#ifdef FL_SM_100A
    using namespace sm100;
    entries.push_back({"sparse prefill, 64 heads of 512", prefill<512, fwd::head64::run_fwd_phase1_kernel<512>, 64>});
    entries.push_back({"sparse prefill, 64 heads of 576", prefill<576, fwd::head64::run_fwd_phase1_kernel<576>, 64>});
    entries.push_back(
        {"sparse prefill, 128 heads of 512", prefill<512, fwd::head128::run_fwd_phase1_kernel<512>, 128>});
    entries.push_back(
        {"sparse prefill, 128 heads of 576", prefill<576, fwd::head128::run_fwd_phase1_kernel<576>, 128>});
    entries.push_back(
        {"sparse prefill, few keys",
         prefill<512, fwd_for_small_topk::head128::run_fwd_for_small_topk_phase1_kernel<Prefill, 512>, 128>});
#endif
    return run_named(entries, argc, argv);
}
