/* A softmax as a .cu submission, a warp per row: flashladder-judge softmax examples/judge/softmax.cu */
#include <cuda_runtime.h>

__global__ void softmax(const float *x, float *y, int columns, int pitch) {
    const float *row = x + (size_t)blockIdx.x * pitch;
    float m = -INFINITY, sum = 0;
    bool has_nan = false;
    for (int i = threadIdx.x; i < columns; i += 32) {
        m = fmaxf(m, row[i]);
        has_nan |= isnan(row[i]);
    }
    for (int d = 16; d; d /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
    if (__any_sync(~0u, has_nan)) m = NAN;
    for (int i = threadIdx.x; i < columns; i += 32) sum += expf(row[i] - m);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    for (int i = threadIdx.x; i < columns; i += 32) y[(size_t)blockIdx.x * columns + i] = expf(row[i] - m) / sum;
}

/* Pointers of the inputs and outputs, then the extents and the strides of each input. */
extern "C" void launch(const float *x, float *y, int rows, int columns, int pitch, int, cudaStream_t stream) {
    softmax<<<rows, 32, 0, stream>>>(x, y, columns, pitch);
}
