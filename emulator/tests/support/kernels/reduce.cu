/* Sum of an array: shuffles within a warp, shared memory between warps, one partial sum per CTA. */
__global__ void reduce(const float *input, float *sums, int count) {
    __shared__ float partial[32];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        sum += input[i];
    }
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, step);
    }
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        for (int step = 16; step > 0; step /= 2) {
            sum += __shfl_down_sync(0xffffffff, sum, step);
        }
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}
