/* Moving average over rows that arrive by asynchronous copies, two stages ahead of their use. */

#ifndef KEEP
#define KEEP 1 /* groups that may be in flight when a row is used; 2 is a defect */
#endif

struct job {
    const float *rows; /* [count][128] */
    float *averages;   /* [count - 1][128] of a row and the one after it */
    int count;
};

/* 16 bytes from global to shared memory, asynchronously (PTX ISA, cp.async). */
__device__ void copy_async(float *shared, const float *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(__cvta_generic_to_global(global))
                 : "memory");
}
__device__ void commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int groups>
__device__ void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

__global__ void average(const job work) {
    __shared__ float stages[4][128];
    int column = threadIdx.x;
    for (int row = 0; row < 2; row++) {
        if (column < 32) {
            copy_async(&stages[row][column * 4], &work.rows[row * 128 + column * 4]);
        }
        commit_group();
    }
    for (int row = 0; row + 1 < work.count; row++) {
        if (row + 2 < work.count && column < 32) {
            copy_async(&stages[(row + 2) % 4][column * 4], &work.rows[(row + 2) * 128 + column * 4]);
        }
        commit_group();
        wait_group<KEEP>();
        __syncthreads();
        work.averages[row * 128 + column] = 0.5f * (stages[row % 4][column] + stages[(row + 1) % 4][column]);
    }
}
