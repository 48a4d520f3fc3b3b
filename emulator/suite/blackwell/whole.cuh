/* whole.cuh - products of whole numbers for programs of Blackwell, so small that bf16 has each sum: any order of the
 * terms gives the same bits.
 *
 *     Array<__nv_bfloat16> a = matrix<__nv_bfloat16>(M, K, left), b = matrix<__nv_bfloat16>(N, K, right), d(…);
 *     … kernel<<<…>>>(…) …
 *     return equal(d, M, N, K, 0);                              // 1 if D = A Bᵀ
 */

#ifndef FL_SUITE_WHOLE_CUH
#define FL_SUITE_WHOLE_CUH

#include "../fp8/host.cuh"

#include <cuda_bf16.h>
#include <cuda_fp4.h>

// Element (row, k) of A and of B, and the scale of a block of its row.
inline int left(int i, int k) {
    return (i * 3 + k * 7) % 29 == 0 ? 1 + i % 2 : 0;
}
inline int right(int j, int k) {
    return (j * 5 + k * 3) % 7 - 3;
}
inline int scale(int row, int block) {
    return 1 + (row + block) % 2;
}

template <class T>
Array<T> matrix(int rows, int columns, int number(int, int)) {
    std::vector<T> values(size_t(rows) * columns);
    for (int i = 0; i < rows * columns; i++) values[i] = T(float(number(i / columns, i % columns)));
    return Array<T>(values);
}

// Two numbers of 4 bits in a byte.
inline Array<__nv_fp4x2_e2m1> pairs(int rows, int columns, int number(int, int)) {
    std::vector<__nv_fp4x2_e2m1> values;
    for (int i = 0; i < rows * columns; i += 2)
        values.emplace_back(
            float2{float(number(i / columns, i % columns)), float(number(i / columns, i % columns + 1))});
    return Array<__nv_fp4x2_e2m1>(values);
}

inline float number_of(float value) {
    return value;
}
inline float number_of(__nv_bfloat16 value) {
    return __bfloat162float(value);
}

// Compares all outputs, and returns whether they are right, as `others_are_right` says of the problem's other outputs.
// A scale belongs to a block of a_block or b_block numbers along k, and one of B to b_rows rows; a block of 0 means
// that there are none. D held `before`.
template <class T>
bool equal(const char *problem, Array<T> &d, int rows, int columns, int depth, int a_block = 0, int b_block = 0,
           int before = 0, bool others_are_right = true, int b_rows = 1) {
    Check check(0);
    check.compare(others_are_right, 1, 0);
    d.read();
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            int sum = before;
            for (int k = 0; k < depth; k++)
                sum += left(i, k) * right(j, k) * (a_block ? scale(i, k / a_block) : 1) *
                       (b_block ? scale(j / b_rows, k / b_block) : 1);
            check.compare(number_of(d.host[size_t(i) * columns + j]), sum, 0);
        }
    return check.right(problem);
}

#endif
