/* cute_dsl_runtime.c - the functions by which host code of the CuTe DSL reaches CUDA, on top of the driver.
 *
 *     CUTE_DSL_LIBS=cute_dsl_runtime.so bin/emulated-gpu --arch sm_100a python flash_attention_programs.py FOLDER
 *
 * NVIDIA's library of these functions holds its CUDA runtime, which cannot start on the emulated GPU. The DSL writes
 * tensor maps without the driver, in the GPU's own form: convert() makes them anew by the driver. The form was read off
 * the maps of FlashAttention-4, so it serves no more than these.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PARAMETERS = 32, MOST_RANK = 5 };

CUresult _cudaLibraryLoadData(CUlibrary *library, const void *code) {
    return cuLibraryLoadData(library, code, NULL, NULL, 0, NULL, NULL, 0);
}

CUresult _cudaLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    return cuLibraryGetKernel(kernel, library, name);
}

CUresult _cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    return cuLibraryGetKernel(kernel, library, name);
}

CUresult _cudaLibraryUnload(CUlibrary library) {
    return cuLibraryUnload(library);
}

CUresult _cudaKernelSetAttributeForDevice(CUkernel kernel, CUfunction_attribute attribute, int value, int device) {
    return cuKernelSetAttribute(attribute, value, kernel, device);
}

CUresult _cudaFuncSetAttribute(CUkernel kernel, CUfunction_attribute attribute, int value) {
    return cuKernelSetAttribute(attribute, value, kernel, 0);
}

CUresult _cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    return cuKernelGetAttribute(value, attribute, kernel, device);
}

CUresult _cudaGetDevice(int *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult _cudaDeviceGetAttribute(int *value, CUdevice_attribute attribute, int device) {
    return cuDeviceGetAttribute(value, attribute, device);
}

static uint32_t word_at(const unsigned char *map, int offset) {
    uint32_t word;
    memcpy(&word, map + offset, sizeof word);
    return word;
}

/* Bytes 0 to 7: the address; 8: rank - 1 at bit 4, type at 7, swizzle at 13; from 12 strides of 16 bytes, from 32 sizes
 * less 1, and from 55 bytes of the box, less 1. */
static CUtensorMap *convert(const unsigned char *map, CUtensorMap *to) {
    cuuint64_t sizes[MOST_RANK], strides[MOST_RANK], address;
    cuuint32_t box[MOST_RANK], ones[MOST_RANK];
    const uint32_t form = word_at(map, 8), rank = (form >> 4 & 7) + 1, type = form >> 7 & 15;
    memcpy(&address, map, sizeof address);
    for (uint32_t i = 0; i < rank && rank <= MOST_RANK; i++) {
        sizes[i] = (cuuint64_t)word_at(map, 32 + 4 * (int)i) + 1;
        strides[i] = (cuuint64_t)word_at(map, 12 + 4 * (int)i) * 16;
        box[i] = map[55 + i] + 1u, ones[i] = 1;
    }
    const CUresult status = cuTensorMapEncodeTiled(
        to, type == 10 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank,
        (void *)(uintptr_t)address, sizes, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
        (CUtensorMapSwizzle)(form >> 13 & 3), CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if ((type != 6 && type != 10) || status != CUDA_SUCCESS) fprintf(stderr, "an unknown tensor map: 0x%x\n", form);
    return to;
}

/* A parameter of 128 bytes is a tensor map. */
CUresult _cudaLaunchKernelEx(const cudaLaunchConfig_t *c, CUkernel kernel, void **arguments) {
    static CUtensorMap maps[MOST_PARAMETERS];
    CUfunction function;
    size_t offset, bytes;
    for (size_t i = 0; i < MOST_PARAMETERS && !cuKernelGetParamInfo(kernel, i, &offset, &bytes); i++)
        if (bytes == sizeof(CUtensorMap)) arguments[i] = convert(arguments[i], &maps[i]);
    const CUresult status = cuKernelGetFunction(&function, kernel);
    const CUlaunchConfig config = {.gridDimX = c->gridDim.x,
                                   .gridDimY = c->gridDim.y,
                                   .gridDimZ = c->gridDim.z,
                                   .blockDimX = c->blockDim.x,
                                   .blockDimY = c->blockDim.y,
                                   .blockDimZ = c->blockDim.z,
                                   .sharedMemBytes = (unsigned)c->dynamicSmemBytes,
                                   .hStream = c->stream,
                                   .attrs = (CUlaunchAttribute *)(void *)c->attrs,
                                   .numAttrs = c->numAttrs};
    return status ? status : cuLaunchKernelEx(&config, function, arguments, NULL);
}
