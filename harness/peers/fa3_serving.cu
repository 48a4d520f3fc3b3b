/* fa3_serving.cu - FlashAttention-3 as servers call it, for bf16 and heads of 128: parameters as its flash_api.cpp sets
 * them. For python/tools/gpu_serving.py and gpu_fp8_errors.py, which load what peers.mk makes of it.
 *
 * Rows of all tensors are packed: [..., heads, 128]. `meta` are 8 * batch + 64 ints, zero at first.
 */
#include <algorithm>
#include <tuple>

#include "flash.h"
#include "heuristics.h"

using kernel = void(Flash_fwd_params *, cudaStream_t);
extern "C" {
kernel fa3_causal, fa3_window, fa3_packed, fa3_packed_group, fa3_packed_pages; /* prefill */
kernel fa3_few, fa3_few_split, fa3_few_lengths, fa3_few_pages, fa3_combine;    /* not causal, heads of a group packed */
kernel fa3_e4m3;                                                               /* not causal, O of bf16 */
}

namespace {

constexpr int d_head = 128;

int rounded_up(int length, int to) {
    return (length + to - 1) / to * to;
}

struct tensors {
    void *q, *k, *v, *o;
    float *lse;
};

Flash_fwd_params params_of(const tensors &at, int batch, int seq_q, int seq_k, int heads, int KV_heads, int sms) {
    Flash_fwd_params p = {};
    p.q_ptr = at.q, p.k_ptr = at.k, p.v_ptr = at.v, p.o_ptr = at.o, p.softmax_lse_ptr = at.lse;
    p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = d_head;
    p.q_row_stride = p.o_row_stride = heads * d_head;
    p.k_row_stride = p.v_row_stride = KV_heads * d_head;
    p.v_dim_stride = 1;
    p.b = p.b_k = batch, p.h = heads, p.h_k = KV_heads;
    p.seqlen_q = seq_q, p.seqlen_k = seq_k;
    p.seqlen_q_rounded = rounded_up(seq_q, 128), p.seqlen_k_rounded = rounded_up(seq_k, 128);
    p.d = p.d_rounded = p.dv = p.dv_rounded = d_head;
    p.scale_softmax = 0.08838834764831845f;
    p.is_bf16 = true;
    p.p_dropout = p.rp_dropout = 1.f;
    p.arch = 90, p.num_sm = sms;
    p.num_splits = 1, p.page_size = 1;
    return p;
}

void set_batch_strides(Flash_fwd_params &p, int rows_q, int rows_k) {
    p.q_batch_stride = p.o_batch_stride = (int64_t)rows_q * p.q_row_stride;
    p.k_batch_stride = p.v_batch_stride = (int64_t)rows_k * p.k_row_stride;
}

/* What the kernel before the main one finds out of lengths. */
void set_meta(Flash_fwd_params &p, int *meta, bool swizzle) {
    const int step = rounded_up(p.b, 4), vectors = swizzle ? 4 : 3;
    p.prepare_varlen_pdl = p.b <= 992;
    p.varlen_sort_batches = true, p.head_swizzle = swizzle;
    p.num_splits_dynamic_ptr = meta, p.num_m_blocks_ptr = meta + step, p.varlen_batch_idx_ptr = meta + 2 * step;
    if (swizzle) p.num_nheads_in_l2_ptr = meta + 3 * step;
    p.tile_count_semaphore = meta + vectors * step, p.tile_count_semaphore_offset = vectors * step;
}

void set_pages(Flash_fwd_params &p, int *table, int of_sequence, int page, int pages) {
    p.page_table = table, p.page_table_batch_stride = of_sequence;
    p.page_size = page, p.num_pages = pages;
}

} // namespace

/* Prefill. kind 0: packed sequences, causal, at most `seq` rows, `total` in all; 1: one length, causal; 2: one length
 * with a window of `left` keys before the own, causal. */
extern "C" void fa3_prefill(int kind, void *q, void *k, void *v, void *o, float *lse, int *meta, int batch, int seq,
                            int total, int heads, int KV_heads, int *offsets, int left, int sms, cudaStream_t stream) {
    Flash_fwd_params p = params_of({q, k, v, o, lse}, batch, seq, seq, heads, KV_heads, sms);
    p.total_q = p.total_k = total;
    p.is_causal = kind < 2, p.is_local = kind == 2, p.varlen_sort_batches = !p.is_local;
    p.window_size_left = kind == 2 ? left : seq - 1;
    if (kind) {
        set_batch_strides(p, seq, seq);
        p.head_swizzle = true, p.tile_count_semaphore = meta, p.skip_scheduler_metadata_computation = true;
        cudaMemsetAsync(meta, 0, sizeof *meta, stream);
        (kind == 1 ? fa3_causal : fa3_window)(&p, stream);
    } else {
        p.cu_seqlens_q = p.cu_seqlens_k = offsets;
        set_meta(p, meta, true);
        fa3_packed(&p, stream);
    }
}

/* Packed queries, at most seq_q of a sequence, over pages, causal. seq_k: the keys that a row of the table can name. */
extern "C" void fa3_mixed(void *q, void *k, void *v, void *o, float *lse, int *meta, int *offsets, int *lengths,
                          int *table, int batch, int seq_q, int total, int seq_k, int heads, int KV_heads,
                          int of_sequence, int page, int pages, int sms, cudaStream_t stream) {
    constexpr int B_r = 128, B_c = 128;
    Flash_fwd_params p = params_of({q, k, v, o, lse}, batch, seq_q, seq_k, heads, KV_heads, sms);
    set_batch_strides(p, 0, page);
    set_pages(p, table, of_sequence, page, pages);
    p.total_q = total, p.total_k = pages * page;
    p.cu_seqlens_q = offsets, p.seqused_k = lengths;
    p.is_causal = true, p.window_size_left = seq_k - 1;
    p.pagedkv_tma = page % B_c == 0 && seq_q * (heads / KV_heads) > B_r;
    p.pack_gqa = !p.pagedkv_tma || heads > KV_heads;
    set_meta(p, meta, true);
    (!p.pagedkv_tma ? fa3_packed_pages : p.pack_gqa ? fa3_packed_group : fa3_packed)(&p, stream);
}

/* Few queries on many keys, of a cache or of pages, not causal. o_parts: splits * batch * heads * seq_q rows of floats;
 * lse_parts as many floats. splits 0: as many as FlashAttention-3 takes. Returns their number. */
extern "C" int fa3_decode(void *q, void *k, void *v, void *o, float *lse, float *o_parts, float *lse_parts, int *meta,
                          int batch, int seq_q, int seq_k, int heads, int KV_heads, int *lengths, int *table,
                          int of_sequence, int page, int pages, int sms, int splits, cudaStream_t stream) {
    Flash_fwd_params p = params_of({q, k, v, o, lse}, batch, seq_q, seq_k, heads, KV_heads, sms);
    set_batch_strides(p, seq_q, table ? page : seq_k);
    if (table) set_pages(p, table, of_sequence, page, pages);
    p.total_q = batch * seq_q;
    p.window_size_left = seq_k - 1, p.window_size_right = seq_q - 1;
    p.pack_gqa = true;
    p.seqused_k = lengths;
    p.varlen_sort_batches = true;
    if (lengths) set_meta(p, meta, false);
    const int blocks = (seq_q * (heads / KV_heads) + 127) / 128, B_c = table ? 128 : 176;
    p.num_splits = splits > 0 ? splits
                              : num_splits_heuristic((lengths ? 1 : batch) * KV_heads * blocks, sms,
                                                     (seq_k + B_c - 1) / B_c, blocks, seq_k * 4 * d_head, false, 128);
    p.oaccum_ptr = o_parts, p.softmax_lseaccum_ptr = lse_parts;
    p.oaccum_row_stride = d_head, p.oaccum_head_stride = (int64_t)seq_q * d_head;
    p.oaccum_batch_stride = heads * p.oaccum_head_stride, p.oaccum_split_stride = batch * p.oaccum_batch_stride;
    p.lseaccum_head_stride = seq_q, p.lseaccum_batch_stride = heads * seq_q;
    p.lseaccum_split_stride = (int64_t)batch * heads * seq_q;
    (lengths ? (table ? fa3_few_pages : fa3_few_lengths) : p.num_splits > 1 ? fa3_few_split : fa3_few)(&p, stream);
    if (p.num_splits > 1) fa3_combine(&p, stream);
    return p.num_splits;
}

/* Q, K and V of e4m3 without scales, one length, not causal; O of bf16. */
extern "C" void fa3_full_e4m3(void *q, void *k, void *v, void *o, float *lse, int batch, int seq, int heads, int sms,
                              cudaStream_t stream) {
    Flash_fwd_params p = params_of({q, k, v, o, lse}, batch, seq, seq, heads, heads, sms);
    set_batch_strides(p, seq, seq);
    p.is_bf16 = false, p.is_e4m3 = true;
    p.window_size_left = p.window_size_right = seq - 1;
    p.skip_scheduler_metadata_computation = true;
    fa3_e4m3(&p, stream);
}
