// A whole program as nvcc takes it, with the runtime API: test_emulated_gpu.py links it with -cudart shared.
#include <cstdio>
#include <vector>

__device__ int launches;
__constant__ float factor;

__global__ void saxpy(int n, float a, const float *x, float *y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * a * x[i];
    if (i == 0) launches++;
}

static bool failed(cudaError_t error) {
    if (error != cudaSuccess) printf("%s\n", cudaGetErrorString(error));
    return error != cudaSuccess;
}

int main() {
    const int n = 1000;
    const float two = 2;
    int count = 0;
    float *x, *y;
    std::vector<float> from(n), to(n, 1);
    for (int i = 0; i < n; i++) from[i] = i;
    cudaStream_t stream;
    if (failed(cudaStreamCreate(&stream)) || failed(cudaMalloc(&x, n * 4)) || failed(cudaMalloc(&y, n * 4))) return 1;
    cudaMemcpyToSymbol(factor, &two, sizeof two);
    cudaMemcpyAsync(x, from.data(), n * 4, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(y, to.data(), n * 4, cudaMemcpyHostToDevice, stream);
    saxpy<<<(n + 255) / 256, 256, 0, stream>>>(n, 3, x, y);
    if (failed(cudaGetLastError()) || failed(cudaStreamSynchronize(stream))) return 1;
    cudaMemcpy(to.data(), y, n * 4, cudaMemcpyDeviceToHost);
    cudaMemcpyFromSymbol(&count, launches, sizeof count);
    for (int i = 0; i < n; i++)
        if (to[i] != 6 * from[i] + 1) return 2;
    printf("right: %d elements, %d launch\n", n, count);
}
