// A condition that all lanes share is threaded through one that they do not: nvcc -O3 sends lane 0 along a path of
// its own up to the barriers, and only after them do all paths meet again by control flow.

__global__ void barriers(int *out, int n) {
    __shared__ int s[64];
    int tid = threadIdx.x;
    bool last = n > 3;
    s[tid] = tid;
    if (tid == 0) {
        if (last) out[64] = 1;
        else out[65] = 2;
    }
    if (last) {
        __syncthreads();
        out[tid] = s[tid ^ 33];
    } else {
        s[tid] *= 2;
        __syncthreads();
        out[tid] = s[tid ^ 34];
    }
}
