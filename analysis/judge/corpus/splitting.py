# mypy: ignore-errors
"""Products whose K is split over CTAs: by atomics, and by a workspace with a counter for each tile."""

ATOMICS = r"""
#include <cuda_fp16.h>
extern "C" __global__ void part(const __half *a, const __half *b, float *w, int M, int N, int K, int step) {
    int n = blockIdx.x * 16 + threadIdx.x % 16, m = blockIdx.y * 16 + threadIdx.x / 16;
    if (m >= M || n >= N) return;
    float sum = 0;
    for (int k = blockIdx.z * step; k < min(K, (int)(blockIdx.z + 1) * step); k++)
        sum += __half2float(a[m * K + k]) * __half2float(b[k * N + n]);
    atomicAdd(&w[m * N + n], sum);
}
extern "C" __global__ void convert(const float *w, __half *c, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) c[i] = __float2half(w[i]);
}
"""
COUNTED = r"""
#include <cuda_fp16.h>
extern "C" __global__ void split(const __half *a, const __half *b, __half *c, float *w, unsigned *arrived, int M, int N,
                                 int K, int parts) {
    int n = blockIdx.x * 16 + threadIdx.x % 16, m = blockIdx.y * 16 + threadIdx.x / 16;
    int tile = blockIdx.y * gridDim.x + blockIdx.x, step = (K + parts - 1) / parts;
    int first = blockIdx.z * step, last = min(K, first + step);
    bool inside = m < M && n < N;
    float sum = 0;
    if (inside)
        for (int k = first; k < last; k++) sum += __half2float(a[m * K + k]) * __half2float(b[k * N + n]);
    if (inside) w[((size_t)blockIdx.z * M + m) * N + n] = sum;
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (!threadIdx.x) is_last = atomicAdd(&arrived[tile], 1) == parts - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    sum = 0;
    if (inside) {
        for (int p = 0; p < parts; p++) sum += __ldcg(&w[((size_t)p * M + m) * N + n]);
        c[m * N + n] = __float2half(sum);
    }
    if (!threadIdx.x) arrived[tile] = 0;
}
"""
