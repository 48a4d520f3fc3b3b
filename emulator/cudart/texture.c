/* texture.c - arrays, textures and surfaces, as the driver has them. */
#include "cudart.h"

#include <stdint.h>
#include <string.h>

/* ---- formats ---- */

static enum cudaChannelFormatKind kind_of(CUarray_format format) {
    return format >= CU_AD_FORMAT_HALF ? cudaChannelFormatKindFloat
           : format == CU_AD_FORMAT_SIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT16 ||
                   format == CU_AD_FORMAT_SIGNED_INT32
               ? cudaChannelFormatKindSigned
               : cudaChannelFormatKindUnsigned;
}

static int bits_of(CUarray_format format) {
    return format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8 ? 8
           : format == CU_AD_FORMAT_UNSIGNED_INT32 || format == CU_AD_FORMAT_SIGNED_INT32 ||
                   format == CU_AD_FORMAT_FLOAT
               ? 32
               : 16;
}

/* False where the channels differ in their widths, or no format has them. */
static bool read_channels(const struct cudaChannelFormatDesc *channels, CUarray_format *format, unsigned *count) {
    static const CUarray_format all[] = {
        CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT8,
        CU_AD_FORMAT_SIGNED_INT16,  CU_AD_FORMAT_SIGNED_INT32,   CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
    const int bits[] = {channels->x, channels->y, channels->z, channels->w};
    *count = 0;
    while (*count < 4 && bits[*count]) ++*count;
    for (unsigned i = 0; i < 4; i++)
        if (bits[i] != (i < *count ? bits[0] : 0)) return false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *format = all[i];
        if (kind_of(all[i]) == channels->f && bits_of(all[i]) == bits[0]) return *count != 0;
    }
    return false;
}

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind kind) {
    return (struct cudaChannelFormatDesc){x, y, z, w, kind};
}

/* ---- arrays ---- */

cudaError_t cudaMalloc3DArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channels,
                              struct cudaExtent extent, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR form = {extent.width, extent.height, extent.depth, CU_AD_FORMAT_FLOAT, 0, flags};
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !(channels && read_channels(channels, &form.Format, &form.NumChannels)))
        return runtime_failed(cudaErrorInvalidChannelDescriptor);
    if (status == CUDA_SUCCESS) status = cuArray3DCreate((CUarray *)array, &form);
    return runtime_leave(status);
}

cudaError_t cudaMallocArray(cudaArray_t *array, const struct cudaChannelFormatDesc *channels, size_t width,
                            size_t height, unsigned flags) {
    return cudaMalloc3DArray(array, channels, (struct cudaExtent){width, height, 0}, flags);
}

cudaError_t cudaFreeArray(cudaArray_t array) {
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && array) status = cuArrayDestroy((CUarray)array);
    return runtime_leave(status);
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *channels, struct cudaExtent *extent, unsigned *flags,
                             cudaArray_t array) {
    CUDA_ARRAY3D_DESCRIPTOR form;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuArray3DGetDescriptor(&form, (CUarray)array);
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    const int bits = bits_of(form.Format);
    if (channels)
        *channels = cudaCreateChannelDesc(bits, form.NumChannels > 1 ? bits : 0, form.NumChannels > 2 ? bits : 0,
                                          form.NumChannels > 3 ? bits : 0, kind_of(form.Format));
    if (extent) *extent = (struct cudaExtent){form.Width, form.Height, form.Depth};
    if (flags) *flags = form.Flags;
    return runtime_leave(status);
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *channels, cudaArray_const_t array) {
    return cudaArrayGetInfo(channels, NULL, NULL, (cudaArray_t)(uintptr_t)array);
}

/* Copies of which one side is an array; the kind of copy says nothing that the pointers do not. */
cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                .srcDevice = (CUdeviceptr)(uintptr_t)from,
                                .srcPitch = pitch,
                                .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                .dstArray = (CUarray)to,
                                .dstXInBytes = x,
                                .dstY = y,
                                .WidthInBytes = width,
                                .Height = height};
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuMemcpy2DAsync(&copy, stream);
    return runtime_leave(status);
}

cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                size_t height, enum cudaMemcpyKind kind) {
    return cudaMemcpy2DToArrayAsync(to, x, y, from, pitch, width, height, kind, NULL);
}

/* Contiguous bytes in one row. */
cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t bytes,
                              enum cudaMemcpyKind kind) {
    struct cudaChannelFormatDesc channels = {0};
    struct cudaExtent extent = {0};
    const cudaError_t error = cudaArrayGetInfo(&channels, &extent, NULL, to);
    const size_t row = extent.width * (size_t)(channels.x + channels.y + channels.z + channels.w) / 8;
    if (error != cudaSuccess) return error;
    if (x || bytes % row) return cudaMemcpy2DToArray(to, x, y, from, bytes, bytes, 1, kind);
    return cudaMemcpy2DToArray(to, 0, y, from, row, row, bytes / row, kind);
}

/* In a copy between arrays, or with one, positions and widths count elements; else bytes. */
cudaError_t cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream) {
    if (!p) return runtime_failed(cudaErrorInvalidValue);
    size_t element = 1;
    if (p->srcArray || p->dstArray) {
        struct cudaChannelFormatDesc channels = {0};
        const cudaError_t error = cudaGetChannelDesc(&channels, p->dstArray ? p->dstArray : p->srcArray);
        if (error != cudaSuccess) return error;
        element = (size_t)(channels.x + channels.y + channels.z + channels.w) / 8;
    }
    const CUDA_MEMCPY3D copy = {
        .srcXInBytes = p->srcPos.x * (p->srcArray ? element : 1),
        .srcY = p->srcPos.y,
        .srcZ = p->srcPos.z,
        .srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
        .srcArray = (CUarray)p->srcArray,
        .srcDevice = (CUdeviceptr)(uintptr_t)p->srcPtr.ptr,
        .srcPitch = p->srcPtr.pitch,
        .srcHeight = p->srcPtr.ysize,
        .dstXInBytes = p->dstPos.x * (p->dstArray ? element : 1),
        .dstY = p->dstPos.y,
        .dstZ = p->dstPos.z,
        .dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED,
        .dstArray = (CUarray)p->dstArray,
        .dstDevice = (CUdeviceptr)(uintptr_t)p->dstPtr.ptr,
        .dstPitch = p->dstPtr.pitch,
        .dstHeight = p->dstPtr.ysize,
        .WidthInBytes = p->extent.width * element,
        .Height = p->extent.height,
        .Depth = p->extent.depth,
    };
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS) status = cuMemcpy3DAsync(&copy, stream);
    return runtime_leave(status);
}

cudaError_t cudaMemcpy3D(const struct cudaMemcpy3DParms *p) {
    return cudaMemcpy3DAsync(p, NULL);
}

/* ---- objects ---- */

/* False where a format has no counterpart. */
static bool read_resource(const struct cudaResourceDesc *from, CUDA_RESOURCE_DESC *to) {
    memset(to, 0, sizeof *to);
    switch (from->resType) {
    case cudaResourceTypeArray:
        to->resType = CU_RESOURCE_TYPE_ARRAY;
        to->res.array.hArray = (CUarray)from->res.array.array;
        return true;
    case cudaResourceTypeLinear:
        to->resType = CU_RESOURCE_TYPE_LINEAR;
        to->res.linear.devPtr = (CUdeviceptr)(uintptr_t)from->res.linear.devPtr;
        to->res.linear.sizeInBytes = from->res.linear.sizeInBytes;
        return read_channels(&from->res.linear.desc, &to->res.linear.format, &to->res.linear.numChannels);
    case cudaResourceTypePitch2D:
        to->resType = CU_RESOURCE_TYPE_PITCH2D;
        to->res.pitch2D.devPtr = (CUdeviceptr)(uintptr_t)from->res.pitch2D.devPtr;
        to->res.pitch2D.width = from->res.pitch2D.width;
        to->res.pitch2D.height = from->res.pitch2D.height;
        to->res.pitch2D.pitchInBytes = from->res.pitch2D.pitchInBytes;
        return read_channels(&from->res.pitch2D.desc, &to->res.pitch2D.format, &to->res.pitch2D.numChannels);
    default: /* the driver says what it does not take */
        to->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        return true;
    }
}

cudaError_t cudaCreateTextureObject(cudaTextureObject_t *object, const struct cudaResourceDesc *resource,
                                    const struct cudaTextureDesc *wanted, const struct cudaResourceViewDesc *view) {
    CUDA_RESOURCE_DESC over;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !(object && resource && wanted)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    if (!read_resource(resource, &over)) return runtime_failed(cudaErrorInvalidChannelDescriptor);
    CUDA_TEXTURE_DESC form = {.filterMode = (CUfilter_mode)wanted->filterMode,
                              .flags = (wanted->readMode == cudaReadModeElementType ? CU_TRSF_READ_AS_INTEGER : 0) |
                                       (wanted->normalizedCoords ? CU_TRSF_NORMALIZED_COORDINATES : 0) |
                                       (wanted->sRGB ? CU_TRSF_SRGB : 0) |
                                       (wanted->seamlessCubemap ? CU_TRSF_SEAMLESS_CUBEMAP : 0),
                              .maxAnisotropy = wanted->maxAnisotropy};
    for (int i = 0; i < 3; i++) form.addressMode[i] = (CUaddress_mode)wanted->addressMode[i];
    memcpy(form.borderColor, wanted->borderColor, sizeof form.borderColor);
    CUtexObject made = 0;
    status = view ? CUDA_ERROR_NOT_SUPPORTED : cuTexObjectCreate(&made, &over, &form, NULL);
    if (status == CUDA_SUCCESS) *object = made;
    return runtime_leave(status);
}

cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
    const CUresult status = runtime_enter();
    return runtime_leave(status == CUDA_SUCCESS ? cuTexObjectDestroy(object) : status);
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *object, const struct cudaResourceDesc *resource) {
    CUDA_RESOURCE_DESC over;
    CUsurfObject made = 0;
    CUresult status = runtime_enter();
    if (status == CUDA_SUCCESS && !(object && resource)) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return runtime_leave(status);
    if (!read_resource(resource, &over)) return runtime_failed(cudaErrorInvalidChannelDescriptor);
    status = cuSurfObjectCreate(&made, &over);
    if (status == CUDA_SUCCESS) *object = made;
    return runtime_leave(status);
}

cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t object) {
    const CUresult status = runtime_enter();
    return runtime_leave(status == CUDA_SUCCESS ? cuSurfObjectDestroy(object) : status);
}
