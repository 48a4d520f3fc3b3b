/* launch_by_steps.c - launches as CUDA had them before cuLaunchKernel(); PyCUDA still makes them.
 *
 *     cuFuncSetBlockShape(function, 64, 1, 1);
 *     cuParamSeti(function, 0, 42);
 *     cuParamSetSize(function, sizeof(int));
 *     cuLaunchGrid(function, 8, 1);
 *
 * A function keeps what was set for it until it is set again.
 */
#define CUDA_ENABLE_DEPRECATED /* these functions */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMETER_BYTES = 4096 };

struct launch_by_steps {
    unsigned block[3], dynamic_shared, bytes; /* bytes of parameters */
    uint8_t parameters[MAX_PARAMETER_BYTES];
};

/* Attributes set for a function; created at its first use. */
static CUresult enter_steps(CUfunction function, struct launch_by_steps **steps) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !function) status = CUDA_ERROR_INVALID_HANDLE;
    if (status != CUDA_SUCCESS) return status;
    if (!function->steps) function->steps = calloc(1, sizeof *function->steps);
    *steps = function->steps;
    return *steps ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    struct launch_by_steps *steps;
    CUresult status = enter_steps(function, &steps);
    if (status == CUDA_SUCCESS && (x < 1 || y < 1 || z < 1)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) memcpy(steps->block, (unsigned[]){(unsigned)x, (unsigned)y, (unsigned)z}, 12);
    return driver_leave(status);
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
    struct launch_by_steps *steps;
    CUresult status = enter_steps(function, &steps);
    if (status == CUDA_SUCCESS) steps->dynamic_shared = bytes;
    return driver_leave(status);
}

CUresult cuParamSetSize(CUfunction function, unsigned bytes) {
    struct launch_by_steps *steps;
    CUresult status = enter_steps(function, &steps);
    if (status == CUDA_SUCCESS && bytes > MAX_PARAMETER_BYTES) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) steps->bytes = bytes;
    return driver_leave(status);
}

CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned bytes) {
    struct launch_by_steps *steps;
    CUresult status = enter_steps(function, &steps);
    if (status == CUDA_SUCCESS &&
        (offset < 0 || bytes > MAX_PARAMETER_BYTES || (unsigned)offset > MAX_PARAMETER_BYTES - bytes || !value))
        status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) memcpy(steps->parameters + offset, value, bytes);
    return driver_leave(status);
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
    return cuParamSetv(function, offset, &value, sizeof value);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    struct launch_by_steps *steps;
    CUresult status = enter_steps(function, &steps);
    if (status == CUDA_SUCCESS && (width < 1 || height < 1)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    size_t bytes = steps->bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, steps->parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    return driver_leave(cuLaunchKernel(function, (unsigned)width, (unsigned)height, 1, steps->block[0], steps->block[1],
                                       steps->block[2], steps->dynamic_shared, stream, NULL, extra));
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
    return cuLaunchGridAsync(function, width, height, NULL);
}

CUresult cuLaunch(CUfunction function) {
    return cuLaunchGrid(function, 1, 1);
}
