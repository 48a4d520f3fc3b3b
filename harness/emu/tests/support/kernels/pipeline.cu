/* Moving average over rows that arrive by asynchronous copies, two stages ahead of their use. */
#include <cuda_pipeline_primitives.h>

#ifndef KEEP
#define KEEP 1 /* groups that may be in flight when a row is used; 2 is a defect */
#endif

struct job {
    const float *rows; /* [count][128] */
    float *averages;   /* [count - 1][128] of a row and the one after it */
    int count;
};

__global__ void average(const job work) {
    __shared__ float stages[4][128];
    int column = threadIdx.x;
    for (int row = 0; row < 2; row++) {
        if (column < 32) {
            __pipeline_memcpy_async(&stages[row][column * 4], &work.rows[row * 128 + column * 4], 16);
        }
        __pipeline_commit();
    }
    for (int row = 0; row + 1 < work.count; row++) {
        if (row + 2 < work.count && column < 32) {
            __pipeline_memcpy_async(&stages[(row + 2) % 4][column * 4], &work.rows[(row + 2) * 128 + column * 4], 16);
        }
        __pipeline_commit();
        __pipeline_wait_prior(KEEP);
        __syncthreads();
        work.averages[row * 128 + column] = 0.5f * (stages[row % 4][column] + stages[(row + 1) % 4][column]);
    }
}
