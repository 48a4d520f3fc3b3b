/* The matmuls of gau-nernst/learn-cuda, 02e_matmul_sm100, against sums of whole numbers.
 *
 *     program NAME      // prints "right" or the first wrong output; without a name, all names
 */
#include <cuda_bf16.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef void Matmul(const nv_bfloat16 *A, const nv_bfloat16 *B, nv_bfloat16 *C, int M, int N, int K);
Matmul matmul_v0, matmul_v1a, matmul_v1b, matmul_v2a, matmul_v2b, matmul_v3, matmul_v4, matmul_v5, matmul_v6,
    matmul_v7a, matmul_v7b, matmul_v7c;

static const struct {
    const char *name;
    Matmul *function;
} ALL[] = {{"v0", matmul_v0},   {"v1a", matmul_v1a}, {"v1b", matmul_v1b}, {"v2a", matmul_v2a},
           {"v2b", matmul_v2b}, {"v3", matmul_v3},   {"v4", matmul_v4},   {"v5", matmul_v5},
           {"v6", matmul_v6},   {"v7a", matmul_v7a}, {"v7b", matmul_v7b}, {"v7c", matmul_v7c}};

/* A and B have rows along k; numbers so small that each output is one that bf16 has. */
int main(int argc, char **argv) {
    if (argc < 2) {
        for (const auto &each : ALL) puts(each.name);
        return 0;
    }
    enum { M = 512, N = 512, K = 512 };
    std::vector<nv_bfloat16> A(M * K), B(N * K), C(M * N);
    for (int i = 0; i < M * K; i++) A[i] = __float2bfloat16((float)((i * 7 + i / K * 3) % 29 == 0));
    for (int i = 0; i < N * K; i++) B[i] = __float2bfloat16((float)((i * 5 + i / K) % 7 - 3));
    nv_bfloat16 *a, *b, *c;
    if (cudaMalloc(&a, sizeof(nv_bfloat16) * A.size()) || cudaMalloc(&b, sizeof(nv_bfloat16) * B.size()) ||
        cudaMalloc(&c, sizeof(nv_bfloat16) * C.size()))
        return 2;
    cudaMemcpy(a, A.data(), sizeof(nv_bfloat16) * A.size(), cudaMemcpyHostToDevice);
    cudaMemcpy(b, B.data(), sizeof(nv_bfloat16) * B.size(), cudaMemcpyHostToDevice);
    for (const auto &each : ALL) {
        if (argc != 2 || strcmp(each.name, argv[1])) continue;
        each.function(a, b, c, M, N, K);
        if (cudaDeviceSynchronize() != cudaSuccess) return 2;
        cudaMemcpy(C.data(), c, sizeof(nv_bfloat16) * C.size(), cudaMemcpyDeviceToHost);
        for (int i = 0; i < M * N; i++) {
            float want = 0;
            for (int k = 0; k < K; k++) want += __bfloat162float(A[i / N * K + k]) * __bfloat162float(B[i % N * K + k]);
            if (__bfloat162float(C[i]) == want) continue;
            printf("output %d is %g, not %g\n", i, __bfloat162float(C[i]), want);
            return 1;
        }
        printf("right\n");
        return 0;
    }
    fprintf(stderr, "%s: names no matmul\n", argc == 2 ? argv[1] : "the argument");
    return 2;
}
