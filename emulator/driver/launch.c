/* launch.c - kernel launches, attributes of functions, occupancy, and tensor maps. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

static const emu_entry_info *info_of(CUfunction function) {
    return emu_entry(function->module->module, function->entry);
}

/* ---- launches ---- */

/* The block of parameters: each by a pointer, or all as they are. */
static CUresult fill_parameters(uint8_t *block, const emu_entry_info *info, void **parameters, void **extra) {
    if (parameters) {
        for (int i = 0; i < info->params; i++) {
            if (!parameters[i]) return CUDA_ERROR_INVALID_VALUE;
            memcpy(block + info->param_offsets[i], parameters[i], info->param_sizes[i]);
        }
        return CUDA_SUCCESS;
    }
    const void *from = NULL;
    size_t bytes = 0;
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) from = extra[i + 1];
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)extra[i + 1];
    }
    if (info->param_bytes && (!from || bytes < info->param_bytes)) return CUDA_ERROR_INVALID_VALUE;
    if (info->param_bytes) memcpy(block, from, info->param_bytes);
    return CUDA_SUCCESS;
}

CUresult fill_kernel(operation *o, CUfunction function, const unsigned grid[3], const unsigned block[3],
                     unsigned dynamic_shared, void **parameters, void **extra) {
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    CUresult status = prepare_function(function);
    if (status != CUDA_SUCCESS) return status;
    const emu_entry_info *info = info_of(function);
    for (int i = 0; i < 3; i++)
        if (!block[i]) return CUDA_ERROR_INVALID_VALUE; /* a node may have no grid until it is launched */
    if (dynamic_shared > (unsigned)function->dynamic_shared) {
        driver_say("kernel %s is launched with %u bytes of dynamic shared memory and may have %d: set "
                   "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES first",
                   info->name, dynamic_shared, function->dynamic_shared);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (dynamic_shared + info->shared_bytes > (unsigned)the_driver()->architecture->shared_per_block) {
        driver_say("kernel %s needs %u bytes of shared memory: a block of %s has at most %d", info->name,
                   dynamic_shared + info->shared_bytes, the_driver()->architecture->name,
                   the_driver()->architecture->shared_per_block);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *o = (operation){.kind = DO_KERNEL, .kernel = {.function = function, .dynamic_shared = dynamic_shared}};
    memcpy(o->kernel.grid, grid, sizeof o->kernel.grid);
    memcpy(o->kernel.block, block, sizeof o->kernel.block);
    for (int i = 0; i < 3 && function->cluster[0]; i++) o->kernel.cluster[i] = (uint32_t)function->cluster[i];
    o->kernel.parameters = calloc(1, (size_t)info->param_bytes + 16);
    if (!o->kernel.parameters) return CUDA_ERROR_OUT_OF_MEMORY;
    status = fill_parameters(o->kernel.parameters, info, parameters, extra);
    if (status != CUDA_SUCCESS) free_operation(o);
    return status;
}

CUresult fill_kernel_node(operation *o, const CUDA_KERNEL_NODE_PARAMS *p) {
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    CUfunction function = p->func ? p->func : (CUfunction)(void *)p->kern;
    return fill_kernel(o, function, (const unsigned[]){p->gridDimX, p->gridDimY, p->gridDimZ},
                       (const unsigned[]){p->blockDimX, p->blockDimY, p->blockDimZ}, p->sharedMemBytes, p->kernelParams,
                       p->extra);
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned dynamic_shared, CUstream stream, void **parameters,
                        void **extra) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS)
        status = fill_kernel(&o, function, (const unsigned[]){grid_x, grid_y, grid_z},
                             (const unsigned[]){block_x, block_y, block_z}, dynamic_shared, parameters, extra);
    return driver_leave(status == CUDA_SUCCESS ? submit(stream, &o) : status);
}

/* CTAs of any grid can wait for each other on the emulator. */
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_shared,
                                   CUstream stream, void **parameters) {
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, dynamic_shared, stream,
                          parameters, NULL);
}

CUresult apply_attribute(operation *o, const CUlaunchAttribute *a) {
    switch ((int)a->id) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        o->kernel.cluster[0] = a->value.clusterDim.x;
        o->kernel.cluster[1] = a->value.clusterDim.y;
        o->kernel.cluster[2] = a->value.clusterDim.z;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        o->kernel.overlaps = a->value.programmaticStreamSerializationAllowed != 0;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_IGNORE: /* these change no result: each launch is done before the next begins */
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return CUDA_SUCCESS;
    default:
        driver_say("attribute %d of a launch is not supported", (int)a->id);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !config) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    status = fill_kernel(&o, function, (const unsigned[]){config->gridDimX, config->gridDimY, config->gridDimZ},
                         (const unsigned[]){config->blockDimX, config->blockDimY, config->blockDimZ},
                         config->sharedMemBytes, parameters, extra);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    for (unsigned i = 0; i < config->numAttrs && status == CUDA_SUCCESS; i++)
        status = apply_attribute(&o, &config->attrs[i]);
    if (status == CUDA_SUCCESS)
        status = submit(config->hStream, &o);
    else
        free_operation(&o);
    return driver_leave(status);
}

/* ---- attributes of functions ---- */

static CUresult get_attribute(int *value, CUfunction_attribute which, CUfunction f) {
    CUresult status = prepare_function(f);
    if (status != CUDA_SUCCESS) return status;
    const emu_entry_info *info = info_of(f);
    const architecture *a = the_driver()->architecture;
    enum { REGISTERS = 64 }; /* of a thread: the emulator allocates none, and ptxas did not run */
    switch ((int)which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = info->max_threads ? (int)info->max_threads : 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)info->shared_bytes;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = REGISTERS;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 10 * a->major + a->minor;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = f->dynamic_shared;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: {
        const int axis = (int)which - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
        *value = f->cluster[0] ? f->cluster[axis] : (int)info->cluster[axis];
        return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *value = f->must_cluster;
        return CUDA_SUCCESS;
    default:
        *value = 0;
        return (unsigned)which < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(value && function)) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status == CUDA_SUCCESS ? get_attribute(value, which, function) : status);
}

static CUresult set_attribute(CUfunction f, CUfunction_attribute which, int value) {
    switch ((int)which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value + (int)info_of(f)->shared_bytes > the_driver()->architecture->shared_per_block) {
            driver_say("kernel %s asks for %d bytes of dynamic shared memory: a block of %s has %d in all",
                       info_of(f)->name, value, the_driver()->architecture->name,
                       the_driver()->architecture->shared_per_block);
            return CUDA_ERROR_INVALID_VALUE;
        }
        f->dynamic_shared = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        if (value < 0) return CUDA_ERROR_INVALID_VALUE;
        f->cluster[(int)which - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        f->must_cluster = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: /* these change no result */
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = function ? prepare_function(function) : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status == CUDA_SUCCESS ? set_attribute(function, which, value) : status);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    (void)config;
    return function ? driver_leave(driver_enter()) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel, CUdevice device) {
    (void)device;
    return cuFuncGetAttribute(value, which, (CUfunction)(void *)kernel);
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice device) {
    (void)device;
    return cuFuncSetAttribute((CUfunction)(void *)kernel, which, value);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    (void)device;
    return cuFuncSetCacheConfig((CUfunction)(void *)kernel, config);
}

/* ---- occupancy: by threads and shared memory; the emulator knows no registers ---- */

static int blocks_per_multiprocessor(CUfunction f, int threads, size_t dynamic_shared) {
    const architecture *a = the_driver()->architecture;
    enum { RESERVED = 1024 };
    const size_t shared = info_of(f)->shared_bytes + dynamic_shared;
    if (threads < 1 || threads > 1024 || shared > (size_t)a->shared_per_block) return 0;
    const int warps = (threads + 31) / 32, by_warps = a->warps / warps, most = a->warps / 2;
    const int by_shared = a->shared_per_multiprocessor / (int)(shared + RESERVED);
    const int blocks = by_warps < by_shared ? by_warps : by_shared;
    return blocks < most ? blocks : most;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                              size_t dynamic_shared, unsigned flags) {
    (void)flags;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(blocks && function && threads > 0)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = prepare_function(function);
    if (status == CUDA_SUCCESS) *blocks = blocks_per_multiprocessor(function, threads, dynamic_shared);
    return driver_leave(status);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_shared, 0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t dynamic_shared, int limit,
                                                   unsigned flags) {
    (void)flags;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(grid && block && function)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = prepare_function(function);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    int most = info_of(function)->max_threads ? (int)info_of(function)->max_threads : 1024, best = 0;
    if (limit > 0 && limit < most) most = limit;
    for (int threads = (most + 31) / 32 * 32; threads > 0; threads -= 32) {
        const int asked = threads < most ? threads : most;
        const int blocks = blocks_per_multiprocessor(function, asked, shared_of ? shared_of(asked) : dynamic_shared);
        if (blocks * asked <= best) continue;
        best = blocks * asked;
        *block = asked;
        *grid = blocks * the_driver()->model->multiprocessors;
    }
    return driver_leave(best ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function, CUoccupancyB2DSize shared_of,
                                          size_t dynamic_shared, int limit) {
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, dynamic_shared, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int threads) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(bytes && function && blocks > 0 && threads > 0)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = prepare_function(function);
    if (status == CUDA_SUCCESS) {
        const architecture *a = the_driver()->architecture;
        const int share = a->shared_per_multiprocessor / blocks - 1024 - (int)info_of(function)->shared_bytes;
        *bytes = (size_t)(share < 0 ? 0 : share > a->shared_per_block ? a->shared_per_block : share);
    }
    return driver_leave(status);
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(clusters && function && config)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = prepare_function(function);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    unsigned size = 1;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];
        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            size = a->value.clusterDim.x * a->value.clusterDim.y * a->value.clusterDim.z;
    }
    const int threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
    *clusters = the_driver()->model->multiprocessors *
                blocks_per_multiprocessor(function, threads, config->sharedMemBytes) / (int)(size ? size : 1);
    return driver_leave(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const CUlaunchConfig *config) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(size && function && config)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *size = 8;
    return driver_leave(status);
}

/* ---- tensor maps ---- */

/* Fill the fields that both kinds of tensor maps have. */
static CUresult begin_map(CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
                          const cuuint64_t *strides, const cuuint32_t *steps, CUtensorMapInterleave interleave,
                          CUtensorMapSwizzle swizzle, CUtensorMapFloatOOBfill fill, emu_tensor_info *info) {
    /* of an element, by data type; its numbers as emu_tensor_info has them */
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 1, 1, 1};
    static const uint8_t numbers[] = {0, 0, 0, 0, 0, 0, 3, 1, 2, 4, 1, 1, 1, 0, 0, 0};
    enum { FIRST_PACKED = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B };
    const bool tf32_ftz = type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
    if ((size_t)type >= sizeof bytes / sizeof bytes[0] || interleave || swizzle > CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B) {
        driver_say("a tensor map of data type %d, interleave %d and swizzle %d is not supported", (int)type,
                   (int)interleave, (int)swizzle);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    *info =
        (emu_tensor_info){.address = (uintptr_t)address,
                          .rank = rank,
                          .element_bytes = bytes[type],
                          .swizzle = (emu_swizzle)swizzle,
                          .numbers = numbers[type],
                          .is_signed = type == CU_TENSOR_MAP_DATA_TYPE_INT32 || type == CU_TENSOR_MAP_DATA_TYPE_INT64,
                          .rounds = type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 || tf32_ftz,
                          .packing = (int)type >= FIRST_PACKED ? (uint8_t)((int)type - FIRST_PACKED + EMU_FOURS) : 0,
                          .flushes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ || tf32_ftz,
                          .fills_NaN = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA};
    for (unsigned i = 0; i < rank; i++) {
        info->sizes[i] = (uint32_t)sizes[i] / (info->packing == EMU_FOURS && !i ? 2 : 1);
        info->steps[i] = (uint8_t)(steps[i] > UINT8_MAX ? UINT8_MAX : steps[i]);
        if (i + 1 < rank) info->strides[i] = strides[i];
        if (i && !steps[i]) {
            driver_say("a tensor map is refused: element stride %u is 0: it must be from 1 to 8", i);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult finish_map(const emu_tensor_info *info, CUtensorMap *map) {
    emu_error error;
    if (emu_make_tensor_map(info, map, &error)) return CUDA_SUCCESS;
    driver_say("a tensor map is refused: %s", error.text);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    emu_tensor_info info;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS &&
        !(map && sizes && box && element_strides && rank && rank <= EMU_TENSOR_RANK && fill <= 1))
        status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    status = begin_map(type, rank, address, sizes, strides, element_strides, interleave, swizzle, fill, &info);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    bool steps = false;
    for (unsigned i = 0; i < rank; i++) {
        info.box[i] = box[i] / (info.packing == EMU_FOURS && !i ? 2 : 1);
        steps |= i && element_strides[i] != 1;
    }
    status = finish_map(&info, map);
    if (status == CUDA_SUCCESS && steps) record_refused("a tensor map with strides between elements");
    if (status == CUDA_SUCCESS && !steps)
        record_tensor_map(
            map, &(tensor_map_request){type, rank, address, sizes, strides, box, interleave, swizzle, promotion, fill});
    return driver_leave(status);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower, const int *upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    emu_tensor_info info;
    (void)promotion;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(map && sizes && strides && lower && upper && element_strides && rank >= 3 &&
                                    rank <= EMU_TENSOR_RANK && fill <= 1))
        status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    status = begin_map(type, rank, address, sizes, strides, element_strides, interleave, swizzle, fill, &info);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    info.im2col = true;
    info.box[0] = channels / (info.packing == EMU_FOURS ? 2 : 1);
    info.box[1] = pixels;
    for (unsigned i = 0; i + 2 < rank; i++) {
        info.lower[i] = (int16_t)lower[i];
        info.upper[i] = (int16_t)upper[i];
    }
    status = finish_map(&info, map);
    if (status == CUDA_SUCCESS) record_refused("a tensor map of cuTensorMapEncodeIm2col");
    return driver_leave(status);
}
