/* thunderkittens.cu - the products of ThunderKittens for a B200, its levels and its library's, against sums of whole
 * numbers, which bf16 has. host_programs.py runs it.
 *
 * Each source is in a namespace, because all of them define `matmul` or `kernel`, and `main`.
 */
#include <chrono>
#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <iostream>
#include <random>

#include "common.cuh"
#include "whole.cuh"

namespace level_04 {
#include "educational_b200/level_04.cu"
}
namespace level_05 {
#include "educational_b200/level_05.cu"
}
namespace level_06 {
#include "educational_b200/level_06.cu"
}
namespace level_07 {
#include "educational_b200/level_07.cu"
}
namespace level_08 {
#include "educational_b200/level_08.cu"
}
namespace level_09 {
#include "educational_b200/level_09.cu"
}
namespace of_bf16 {
#include "bf16_b200/bf16_b200_gemm.cu"
}
namespace of_fp8 {
#include "fp8_b200/fp8_b200_gemm.cu"
}
namespace of_mxfp8 {
#include "mxfp8_b200/mxfp8_b200_gemm.cu"
}
namespace of_nvfp4 {
#include "nvfp4_b200/nvfp4_b200_gemm.cu"
}

constexpr int SIZE = 512;

template <class T>
static Array<T> square(int number(int, int)) {
    return matrix<T>(SIZE, SIZE, number);
}
// Element (k, j) of B, of which whole.cuh has rows of j.
static int right_by_rows(int k, int j) {
    return right(j, k);
}

static bool equal(Array<__nv_bfloat16> &d, int block) {
    return equal("512 x 512 x 512", d, SIZE, SIZE, SIZE, block, block);
}

template <void MATMUL(__nv_bfloat16 *, __nv_bfloat16 *, __nv_bfloat16 *, int)>
static bool level() {
    Array<__nv_bfloat16> a = square<__nv_bfloat16>(left), b = square<__nv_bfloat16>(right_by_rows),
                         d = square<__nv_bfloat16>(scale);
    MATMUL(a.device, b.device, d.device, SIZE);
    require(cudaGetLastError(), "the launch");
    return equal(d, 0);
}

template <class C, class GLOBALS>
static void launch(void kernel(GLOBALS), GLOBALS g) {
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, g.dynamic_shared_memory()),
            "cudaFuncSetAttribute");
    kittens::LaunchConfig<true, true> config(g.grid(), g.block(), g.dynamic_shared_memory(), 0, C::CLUSTER_SIZE);
    require(cudaLaunchKernelEx(config, kernel, g), "cudaLaunchKernelEx");
}

template <class T, class C, template <class> class GLOBALS>
static bool plain(void kernel(GLOBALS<C>)) {
    using G = GLOBALS<C>;
    const size_t size = SIZE;
    Array<T> a = square<T>(left), b = square<T>(right);
    Array<__nv_bfloat16> d = square<__nv_bfloat16>(scale);
    launch<C>(kernel, G{typename G::a_gl{a.device, nullptr, nullptr, size, size},
                        typename G::b_gl{b.device, nullptr, nullptr, size, size},
                        typename G::d_gl{d.device, nullptr, nullptr, size, size}});
    return equal(d, 0);
}

// Scales of rows as the tensor core takes them: blocks of 128 rows and of four scales, of 32 rows each in 16 bytes.
template <class T>
static Array<T> scales(int block) {
    const int blocks = SIZE / block;
    std::vector<T> values(SIZE * blocks);
    for (int row = 0; row < SIZE; row++)
        for (int i = 0; i < blocks; i++)
            values[(row / 128 * (blocks / 4) + i / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + i % 4] =
                T(float(scale(row, i)));
    return Array<T>(values);
}

template <bool OVERLAPS>
static bool mxfp8() {
    using C = of_mxfp8::mxfp8_gemm::config<OVERLAPS ? 128 : 256, 5, OVERLAPS ? 4 : 8, 12, 2, OVERLAPS>;
    using G = of_mxfp8::mxfp8_gemm::globals<C>;
    const size_t size = SIZE;
    Array<__nv_fp8_e4m3> a = square<__nv_fp8_e4m3>(left), b = square<__nv_fp8_e4m3>(right);
    Array<__nv_fp8_e8m0> of_a = scales<__nv_fp8_e8m0>(32), of_b = scales<__nv_fp8_e8m0>(32);
    Array<__nv_bfloat16> d = square<__nv_bfloat16>(scale);
    launch<C>(of_mxfp8::kernel_entrypoint<C>,
              G{typename G::A_gl{a.device, nullptr, nullptr, size, size},
                typename G::A_sc_gl{of_a.device, size / 128, size / 128, nullptr, nullptr},
                typename G::B_gl{b.device, nullptr, nullptr, size, size},
                typename G::B_sc_gl{of_b.device, size / 128, size / 128, nullptr, nullptr},
                typename G::D_gl{d.device, nullptr, nullptr, size, size}});
    return equal(d, 32);
}

template <bool OVERLAPS>
static bool nvfp4() {
    using C = of_nvfp4::nvfp4_gemm::config<OVERLAPS ? 128 : 256, 5, OVERLAPS ? 4 : 8, 12, 2, OVERLAPS>;
    using G = of_nvfp4::nvfp4_gemm::globals<C>;
    const size_t size = SIZE;
    Array<__nv_fp4x2_e2m1> a = pairs(SIZE, SIZE, left), b = pairs(SIZE, SIZE, right);
    Array<__nv_fp8_e4m3> of_a = scales<__nv_fp8_e4m3>(16), of_b = scales<__nv_fp8_e4m3>(16);
    Array<float> whole({1.0f});
    Array<__nv_bfloat16> d = square<__nv_bfloat16>(scale);
    launch<C>(of_nvfp4::kernel_entrypoint<C>,
              G{typename G::A_fp4x2_gl{a.device, nullptr, nullptr, size, size / 2},
                typename G::A_sc_gl{reinterpret_cast<half *>(of_a.device), nullptr, size / 128, size / 64, nullptr},
                typename G::A_sc_global_gl{whole.device, nullptr, nullptr, nullptr, nullptr},
                typename G::B_fp4x2_gl{b.device, nullptr, nullptr, size, size / 2},
                typename G::B_sc_gl{reinterpret_cast<half *>(of_b.device), nullptr, size / 128, size / 64, nullptr},
                typename G::B_sc_global_gl{whole.device, nullptr, nullptr, nullptr, nullptr},
                typename G::D_gl{d.device, nullptr, nullptr, size, size}});
    return equal(d, 16);
}

static bool bf16() {
    return plain<__nv_bfloat16>(of_bf16::kernel<of_bf16::config<256, 64, 128, 4, true, 5, 2>>);
}
static bool bf16_of_two() {
    return plain<__nv_bfloat16>(of_bf16::kernel<of_bf16::config<256, 256, 64, 4, false, 4, 8>>);
}
static bool fp8() {
    return plain<__nv_fp8_e4m3>(of_fp8::kernel<of_fp8::config<256, 64, 256, 4, true, 5, 2>>);
}
static bool fp8_of_two() {
    return plain<__nv_fp8_e4m3>(of_fp8::kernel<of_fp8::config<256, 256, 128, 8, false, 4, 8>>);
}

struct Problem {
    const char *name;
    bool (*right)();
};

int main(int argc, char **argv) {
    const Problem problems[] = {
        {"level_04", level<level_04::matmul>},
        {"level_05", level<level_05::matmul>},
        {"level_06", level<level_06::matmul>},
        {"level_07", level<level_07::matmul>},
        {"level_08", level<level_08::matmul>},
        {"level_09", level<level_09::matmul>},
        {"bf16_b200", bf16},
        {"bf16_b200-2", bf16_of_two},
        {"fp8_b200", fp8},
        {"fp8_b200-2", fp8_of_two},
        {"mxfp8_b200", mxfp8<true>},
        {"mxfp8_b200-2", mxfp8<false>},
        {"nvfp4_b200", nvfp4<true>},
        {"nvfp4_b200-2", nvfp4<false>},
    };
    return run_named(problems, argc, argv);
}
