# mypy: ignore-errors
# ruff: noqa: E501
"""Attention and its gradients in plain CUDA C++, a CTA per row, and a barrier between two CTAs."""

PLAIN = r"""
#include <cuda_fp16.h>
extern "C" __global__ void f(const __half *Q, const __half *K, const __half *V, __half *O, int seq_q, int seq_k, int heads,
                             int KV_heads, int offset, const int *lengths) { // attends to keys up to q + offset
    int q = blockIdx.x, d = threadIdx.x, h = blockIdx.y;
    const __half *row = Q + (((size_t)blockIdx.z * seq_q + q) * heads + h) * 128;
    size_t first = ((size_t)blockIdx.z * seq_k * KV_heads + h / (heads / KV_heads)) * 128, step = KV_heads * 128;
    int keys = lengths ? lengths[blockIdx.z] : min(seq_k, q + offset + 1);
    __shared__ float s[1024];
    for (int k = d; k < keys; k += 128) {
        float dot = 0;
        for (int i = 0; i < 128; i++) dot += __half2float(row[i]) * __half2float(K[first + k * step + i]);
        s[k] = dot * 0.08838834764831845f;
    }
    __syncthreads();
    float m = -1e30f, l = 0, o = 0;
    for (int k = 0; k < keys; k++) m = fmaxf(m, s[k]);
    __syncthreads();
    for (int k = d; k < keys; k += 128) s[k] = __expf(s[k] - m);
    __syncthreads();
    for (int k = 0; k < keys; k++) l += s[k], o += s[k] * __half2float(V[first + k * step + d]);
    O[(((size_t)blockIdx.z * seq_q + q) * heads + h) * 128 + d] = __float2half(o / l);
}
"""
BACKWARD = r"""
#include <cuda_fp16.h>
enum { D_HEAD = 64 };
struct rows { const __half *base; int step; __device__ float operator()(int row, int i) { return __half2float(base[(size_t)row * step + i]); } };
__device__ rows rows_of(const __half *t, int seq, int heads) {
    return {t + ((size_t)blockIdx.z * seq * heads + blockIdx.y) * D_HEAD, heads * D_HEAD};
}
__device__ float sum(float v, float *part) { // of 64 threads
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    return part[0] + part[1];
}
extern "C" __global__ void row_sums(const __half *O, const __half *dO, float *D, int seq, int heads) {
    __shared__ float part[2];
    float v = sum(rows_of(O, seq, heads)(blockIdx.x, threadIdx.x) * rows_of(dO, seq, heads)(blockIdx.x, threadIdx.x), part);
    if (!threadIdx.x) D[(blockIdx.z * heads + blockIdx.y) * seq + blockIdx.x] = v;
}
__device__ void products(rows Q, rows K, rows V, rows dO, const float *LSE, const float *D, int q, int k, float *part, float &P, float &dS) {
    int i = threadIdx.x;
    P = expf(sum(Q(q, i) * K(k, i), part) * 0.125f - LSE[q]);
    dS = P * (sum(dO(q, i) * V(k, i), part) - D[q]);
}
extern "C" __global__ void queries(const __half *q, const __half *k, const __half *v, const __half *o, const __half *go, const float *LSE,
                                   const float *D, __half *dQ, int seq, int heads) {
    __shared__ float part[2];
    rows Q = rows_of(q, seq, heads), K = rows_of(k, seq, heads), V = rows_of(v, seq, heads), dO = rows_of(go, seq, heads);
    size_t head = (size_t)(blockIdx.z * heads + blockIdx.y) * seq;
    float total = 0, P, dS;
    for (int key = 0; key < seq; key++) {
        products(Q, K, V, dO, LSE + head, D + head, blockIdx.x, key, part, P, dS);
        total += dS * K(key, threadIdx.x);
    }
    dQ[(((size_t)blockIdx.z * seq + blockIdx.x) * heads + blockIdx.y) * D_HEAD + threadIdx.x] = __float2half(total * 0.125f);
}
extern "C" __global__ void keys(const __half *q, const __half *k, const __half *v, const __half *o, const __half *go, const float *LSE,
                                const float *D, __half *dK, __half *dV, int seq, int heads) {
    __shared__ float part[2];
    rows Q = rows_of(q, seq, heads), K = rows_of(k, seq, heads), V = rows_of(v, seq, heads), dO = rows_of(go, seq, heads);
    size_t head = (size_t)(blockIdx.z * heads + blockIdx.y) * seq;
    float of_K = 0, of_V = 0, P, dS;
    for (int query = 0; query < seq; query++) {
        products(Q, K, V, dO, LSE + head, D + head, query, blockIdx.x, part, P, dS);
        of_K += dS * Q(query, threadIdx.x), of_V += P * dO(query, threadIdx.x);
    }
    size_t at = (((size_t)blockIdx.z * seq + blockIdx.x) * heads + blockIdx.y) * D_HEAD + threadIdx.x;
    dK[at] = __float2half(of_K * 0.125f), dV[at] = __float2half(of_V);
}
"""
EIGHT_BITS = r"""
#include <cuda_fp8.h>
#include <cuda_fp16.h>
__device__ float value(const __nv_fp8_storage_t *p) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(*p, __NV_E4M3))); }
extern "C" __global__ void f(const __nv_fp8_storage_t *Q, const __nv_fp8_storage_t *K, const __nv_fp8_storage_t *V, __half *O, int seq,
                             int heads, float scale, float v_scale) {
    int d = threadIdx.x, step = heads * 128;
    size_t base = ((size_t)blockIdx.z * seq * heads + blockIdx.y) * 128, row = base + (size_t)blockIdx.x * step;
    __shared__ float s[1024];
    for (int k = d; k < seq; k += 128) {
        float dot = 0;
        for (int i = 0; i < 128; i++) dot += value(Q + row + i) * value(K + base + (size_t)k * step + i);
        s[k] = dot * scale * 0.08838834764831845f;
    }
    __syncthreads();
    float m = -1e30f, l = 0, o = 0;
    for (int k = 0; k < seq; k++) m = fmaxf(m, s[k]);
    __syncthreads();
    for (int k = d; k < seq; k += 128) s[k] = __expf(s[k] - m);
    __syncthreads();
    for (int k = 0; k < seq; k++) l += s[k], o += s[k] * value(V + base + (size_t)k * step + d);
    O[row + d] = __float2half(o / l * v_scale);
}
"""
BARRIER = r"""
#define INFINITY __int_as_float(0x7f800000)
extern "C" __global__ void f(const float *x, float *y, float *w, unsigned *arrived, int c, int pitch) {
    const float *r = x + blockIdx.y * pitch;
    float *part = w + 4 * blockIdx.y;
    int half = (c + 1) / 2, first = blockIdx.x * half, last = min(c, first + half);
    float most = -INFINITY, sum = 0;
    bool bad = false;
    for (int i = first + threadIdx.x; i < last; i += 32) most = fmaxf(most, r[i]), bad |= r[i] != r[i];
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (__any_sync(~0u, bad)) most = __int_as_float(0x7fffffff);
    float safe = most == -INFINITY ? 0 : most;
    for (int i = first + threadIdx.x; i < last; i += 32) sum += expf(r[i] - safe);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (!threadIdx.x) {
        part[2 * blockIdx.x] = most, part[2 * blockIdx.x + 1] = sum;
        __threadfence();
        unsigned mine = atomicAdd(&arrived[blockIdx.y], 1), goal = mine / 2 * 2 + 2;
        while (*(volatile unsigned *)&arrived[blockIdx.y] < goal)
            ;
        __threadfence();
    }
    __syncwarp();
    float a = __ldcg(&part[0]), b = __ldcg(&part[2]), m = a != a ? a : b != b ? b : fmaxf(a, b);
    float s = (a == -INFINITY ? 0 : __ldcg(&part[1]) * expf(a - m)) + (b == -INFINITY ? 0 : __ldcg(&part[3]) * expf(b - m));
    for (int i = first + threadIdx.x; i < last; i += 32) y[blockIdx.y * c + i] = expf(r[i] - m) / s;
}
"""
