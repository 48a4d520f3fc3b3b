/* host.cuh - what the host programs in this folder share: e4m3 inputs with scales, memory of the GPU, tensor maps, and
 * the comparison with float64.
 *
 *     Quantized a(rows, columns, 1, random);                       // a scale for 1 x 128 elements
 *     Array<float> scales(a.scales);  … kernel<<<…>>>(scales.device) …
 *     Check check(1.0 / 1024);  check.element(got, expected, magnitude);  check.right("200 x 256 x 512");
 *     int main(int argc, char **argv) { return run_named(problems, argc, argv); }
 */

#ifndef FL_SUITE_FP8_HOST_CUH
#define FL_SUITE_FP8_HOST_CUH

#include <cuda.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

inline void require(cudaError_t status, const char *what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(3);
}

// Launches `ctas` CTAs in clusters, with dynamic shared memory.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int ctas, int cluster, int threads, size_t bytes, Arguments... arguments) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = ctas;
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.attrs = &attribute;
    config.numAttrs = 1;
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
            "cudaFuncSetAttribute");
    require(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx");
}

// Nearly normal, and the same with every C++ library.
struct Random {
    std::mt19937 engine{1};
    float operator()() {
        double sum = 0;
        for (int i = 0; i < 12; i++) sum += engine() * 0x1p-32;
        return static_cast<float>(sum - 6);
    }
};

// A copy of the values in the GPU's memory, never freed.
template <class T>
struct Array {
    T *device;
    std::vector<T> host;
    explicit Array(std::vector<T> values) : host(std::move(values)) {
        require(cudaMalloc(&device, host.size() * sizeof(T)), "cudaMalloc");
        require(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    }
    const std::vector<T> &read() {
        require(cudaDeviceSynchronize(), "the kernel");
        require(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
        return host;
    }
};

constexpr int SCALE_COLUMNS = 128;

// A matrix in e4m3 with a scale for tall x 128 elements; its values have a mean of 1/4.
struct Quantized {
    int rows, columns, tall;
    std::vector<__nv_fp8_e4m3> elements; // [rows, columns]
    std::vector<float> scales;           // [rows / tall, columns / 128]

    Quantized(int rows, int columns, int tall, Random &random)
        : rows(rows), columns(columns), tall(tall), elements(rows * columns), scales(rows / tall * blocks()) {
        for (int row = 0; row < rows; row += tall)
            for (int block = 0; block < blocks(); block++) fill(row, block, random);
    }
    int blocks() const { return columns / SCALE_COLUMNS; }
    double scale(int row, int column) const { return scales[row / tall * blocks() + column / SCALE_COLUMNS]; }
    double at(int row, int column) const {
        return scale(row, column) * static_cast<float>(elements[row * columns + column]);
    }
    // [columns / 128, rows / tall]
    std::vector<float> scales_by_block() const {
        std::vector<float> turned;
        for (int block = 0; block < blocks(); block++)
            for (int row = 0; row < rows / tall; row++) turned.push_back(scales[row * blocks() + block]);
        return turned;
    }

  private:
    void fill(int row, int block, Random &random) {
        std::vector<float> values(tall * SCALE_COLUMNS);
        float largest = 0;
        for (float &value : values) largest = std::fmax(largest, std::fabs(value = random() + 0.25f));
        float scale = scales[row / tall * blocks() + block] = largest / 448; // 448: the largest number of e4m3
        for (int i = 0; i < tall * SCALE_COLUMNS; i++) {
            int at = (row + i / SCALE_COLUMNS) * columns + block * SCALE_COLUMNS + i % SCALE_COLUMNS;
            elements[at] = __nv_fp8_e4m3(values[i] / scale);
        }
    }
};

// Of an array without gaps; sizes and box begin with the innermost dimension.
inline CUtensorMap tensor_map(CUtensorMapDataType type, double bytes, void *at, std::vector<cuuint64_t> sizes,
                              std::vector<cuuint32_t> box, CUtensorMapSwizzle swizzle) {
    CUtensorMap map;
    std::vector<cuuint64_t> strides;
    for (size_t i = 0; i + 1 < sizes.size(); i++)
        strides.push_back(static_cast<cuuint64_t>((i ? static_cast<double>(strides.back()) : bytes) * sizes[i]));
    std::vector<cuuint32_t> steps(sizes.size(), 1);
    CUresult status = cuTensorMapEncodeTiled(
        &map, type, static_cast<cuuint32_t>(sizes.size()), at, sizes.data(), strides.data(), box.data(), steps.data(),
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (status != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", status);
        std::exit(3);
    }
    return map;
}

// Of one output: its largest error and its largest element. An element may be wrong by the rounding of bf16 and by a
// share of its magnitude, which is the sum of its terms' absolute values.
struct Check {
    double share, error = 0, largest = 0, worst = 0;
    explicit Check(double share) : share(share) {}

    void element(double got, double expected, double magnitude) {
        double wrong = std::isfinite(got) ? std::fabs(got - expected) : INFINITY;
        double allowed = std::fabs(expected) / 256 + magnitude * share;
        error = std::fmax(error, wrong);
        largest = std::fmax(largest, std::fabs(expected));
        if (wrong > 0) worst = std::fmax(worst, wrong / allowed);
    }
    // Of another output, which has a bound of its own.
    void compare(double got, double expected, double allowed) {
        worst = std::fmax(worst, std::isfinite(got) ? std::fabs(got - expected) / allowed : INFINITY);
    }
    // Prints the line that fp8_kernels.py reads.
    bool right(const char *problem) const {
        std::printf("KERNEL %s, error %.2g of %.3g, problem %s\n", worst <= 1 ? "right" : "wrong", error, largest,
                    problem);
        std::fprintf(stderr, "the largest error is %.2g of what is allowed\n", worst);
        return worst <= 1;
    }
};

// Without an argument prints the names of the problems, with one runs the problem of that name; the exit status.
template <class Problems>
int run_named(const Problems &problems, int argc, char **argv) {
    for (const auto &problem : problems) {
        if (argc < 2)
            std::puts(problem.name);
        else if (!std::strcmp(argv[1], problem.name))
            return problem.right() ? 0 : 1;
    }
    if (argc > 1) std::fprintf(stderr, "there is no problem %s\n", argv[1]);
    return argc > 1 ? 2 : 0;
}

#endif
