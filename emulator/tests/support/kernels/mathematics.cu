/* mathematics.cu - the functions of CUDA's math library without --use_fast_math, which use directed roundings, f64
 * approximations, and calls. */

__global__ void single(const float *x, float *out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float a = x[i], size = fabsf(a);
    const float results[] = {expf(a),  logf(size), sinf(a), cosf(a),    powf(size, 1.7f),
                             tanhf(a), erff(a),    1 / a,   sqrtf(size)};
    for (int k = 0; k < 9; k++) out[k * count + i] = results[k];
}

__global__ void wide(const double *x, double *out, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double a = x[i], size = fabs(a);
    const double results[] = {exp(a), log(size), sin(a), cos(a), pow(size, 1.7), tanh(a), erf(a), 1 / a, sqrt(size)};
    for (int k = 0; k < 9; k++) out[k * count + i] = results[k];
}
