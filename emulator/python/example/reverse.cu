/* reverse.cu - two kernels that reverse the 64 numbers of each CTA; one of them lacks a barrier. */

__global__ void reverse(int *data) {
    __shared__ int copy[64];
    int *own = data + blockIdx.x * 64;
    copy[threadIdx.x] = own[threadIdx.x];
    __syncthreads();
    own[threadIdx.x] = copy[63 - threadIdx.x];
}

__global__ void reverse_racy(int *data) {
    __shared__ int copy[64];
    int *own = data + blockIdx.x * 64;
    copy[threadIdx.x] = own[threadIdx.x];
    own[threadIdx.x] = copy[63 - threadIdx.x];
}
