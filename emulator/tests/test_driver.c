/* test_driver.c - the driver API over the emulator: lib/emulated/libcuda.so.1, to which this program is linked. */
#include "common/tests/tap.h"

#define CUDA_ENABLE_DEPRECATED /* functions that programs still call */
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEADING ".version 8.0\n.target sm_80\n.address_size 64\n"

/* Each thread adds `by` to its element; the variable counts launches. */
static const char adding[] = HEADING ".visible .global .u32 launches = 7;\n"
                                     ".visible .entry add(.param .u64 at, .param .u32 by) {\n"
                                     "  .reg .u64 %p<4>; .reg .u32 %r<6>; .reg .pred %q;\n"
                                     "  ld.param.u64 %p0, [at]; ld.param.u32 %r0, [by]; mov.u32 %r1, %tid.x;\n"
                                     "  mad.wide.u32 %p1, %r1, 4, %p0; ld.global.u32 %r2, [%p1];\n"
                                     "  add.u32 %r2, %r2, %r0; st.global.u32 [%p1], %r2;\n"
                                     "  setp.ne.u32 %q, %r1, 0; @%q bra done;\n"
                                     "  mov.u64 %p2, launches; ld.global.u32 %r3, [%p2]; add.u32 %r3, %r3, 1;\n"
                                     "  st.global.u32 [%p2], %r3;\n"
                                     "done: ret;\n}\n";

/* The rank in the cluster, and the sum of the dynamic shared memory that the CTA wrote there. */
static const char ranking[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".extern .shared .align 4 .b8 dynamic[];\n"
    ".visible .entry rank(.param .u64 at) {\n"
    "  .reg .u64 %p<3>; .reg .u32 %r<5>;\n"
    "  ld.param.u64 %p0, [at]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %cluster_ctarank;\n"
    "  mov.u32 %r2, dynamic; st.shared.u32 [%r2+49152], %r1; ld.shared.u32 %r3, [%r2+49152];\n"
    "  mad.wide.u32 %p1, %r0, 4, %p0; st.global.u32 [%p1], %r3; ret;\n}\n";

static const char racing[] = HEADING ".visible .entry race() {\n"
                                     "  .shared .align 4 .b8 s[4]; .reg .u32 %r<3>;\n"
                                     "  mov.u32 %r0, %tid.x; mov.u32 %r1, s; st.shared.u32 [%r1], %r0; ret;\n}\n"
                                     ".visible .entry endless() {\n"
                                     "  .reg .u32 %r<2>; mov.u32 %r0, 0;\n"
                                     "again: add.u32 %r0, %r0, 1; bra again;\n}\n";

static CUcontext context;

/* ---- what was said ---- */

static int said_file;
static char said_text[4096];

/* The text on stderr since the last call. */
static const char *said(void) {
    const off_t end = lseek(said_file, 0, SEEK_END);
    static off_t before;
    const ssize_t bytes = pread(said_file, said_text, sizeof said_text - 1, before);
    said_text[bytes > 0 ? bytes : 0] = 0;
    before = end;
    return said_text;
}

static bool is(CUresult result, CUresult expected, const char *what) {
    const char *name = "?", *wanted = "?";
    cuGetErrorName(result, &name);
    cuGetErrorName(expected, &wanted);
    return ok(result == expected, "%s: %s, as %s", what, name, wanted);
}

static bool works(CUresult result, const char *what) {
    return is(result, CUDA_SUCCESS, what);
}

/* ---- topics ---- */

/* Kernels that are stopped: by the limit of steps, by themselves, and at a barrier that nobody completes. */
static const char stopping[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".entry endless() {\nL: bra L;\n}\n"
    ".entry traps() {\ntrap;\n}\n"
    ".entry waits() {\n.reg .u32 %t;\n.reg .pred %p;\nmov.u32 %t, %tid.x;\nsetp.lt.u32 %p, %t, 32;\n"
    "@%p bar.sync 1, 64;\nret;\n}\n";

static void test_start(void) {
    int count;
    is(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED, "a call before cuInit");
    setenv("EMULATED_GPU_ARCH", "sm_91", 1);
    is(cuInit(0), CUDA_ERROR_INVALID_VALUE, "cuInit for an unknown architecture");
    says(said(), "sm_91 is none of sm_80", "architecture");
    setenv("EMULATED_GPU_ARCH", "sm_90a", 1);
    setenv("EMULATED_GPU_STEPS", "many", 1);
    is(cuInit(0), CUDA_ERROR_INVALID_VALUE, "cuInit with a limit that is no number");
    says(said(), "EMULATED_GPU_STEPS=many is not a number", "limit");
    setenv("EMULATED_GPU_STEPS", "10000", 1);
    works(cuInit(0), "cuInit");
    works(cuInit(0), "cuInit again");
}

static void test_devices(void) {
    int count = 0, major = 0, shared = 0;
    CUdevice device;
    works(cuDeviceGetCount(&count), "cuDeviceGetCount");
    ok(count == 1, "one device");
    is(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE, "a second device");
    says(said(), "device 1 was asked for: there is one emulated GPU", "second device");
    works(cuDeviceGet(&device, 0), "cuDeviceGet");
    cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device);
    ok(major == 9 && shared == 227 * 1024, "sm_90a: %d, %d bytes of shared memory a block", major, shared);
    is(cuDeviceGetAttribute(&major, (CUdevice_attribute)100000, device), CUDA_ERROR_INVALID_VALUE, "no attribute");
}

static void test_contexts(void) {
    CUcontext now = NULL, made = NULL;
    is(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, "no context is current");
    works(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    works(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    works(cuCtxCreate(&made, NULL, 0, 0), "cuCtxCreate");
    cuCtxGetCurrent(&now);
    ok(now == made, "what is created is current");
    works(cuCtxDestroy(made), "cuCtxDestroy");
    cuCtxGetCurrent(&now);
    ok(now == context, "the one before is current again");
    is(cuCtxPushCurrent(made), CUDA_ERROR_INVALID_CONTEXT, "a destroyed context");
    works(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void test_entry_points(void) {
    void *address = NULL, *other = NULL;
    CUdriverProcAddressQueryResult result;
    works(cuGetProcAddress_v2("cuMemAlloc", &address, 12000, 0, &result), "cuGetProcAddress");
    cuGetProcAddress_v2("cuMemAlloc_v2", &other, 12000, 0, NULL);
    ok(address && address == other && result == CU_GET_PROC_ADDRESS_SUCCESS, "cuMemAlloc is cuMemAlloc_v2");
    cuGetProcAddress_v2("cuCtxCreate", &address, 11040, 0, NULL);
    cuGetProcAddress_v2("cuCtxCreate_v3", &other, 11040, 0, NULL);
    ok(address && address == other, "cuCtxCreate of release 11.4 is cuCtxCreate_v3");
    cuGetProcAddress_v2("cuTensorMapEncodeTiled", &address, 11000, 0, &result);
    ok(!address && result == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, "no tensor maps in release 11.0");
    is(cuGetProcAddress_v2("cuDance", &address, 13000, 0, NULL), CUDA_ERROR_NOT_FOUND, "a name that no driver has");
    said();
    is(cuMipmappedArrayDestroy(NULL), CUDA_ERROR_NOT_SUPPORTED, "cuMipmappedArrayDestroy");
    says(said(), "cuMipmappedArrayDestroy is not supported: it returns CUDA_ERROR_NOT_SUPPORTED", "refusal");
    cuMipmappedArrayDestroy(NULL);
    ok(!*said(), "a refusal is said once");
    const char *text;
    works(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text), "cuGetErrorString");
    ok(!strcmp(text, "invalid value"), "'%s'", text);
    is(cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE, "no result");
}

static void test_memory(void) {
    CUdeviceptr at, base;
    size_t bytes, free_before, free_after, total;
    uint32_t host[64];
    cuMemGetInfo(&free_before, &total);
    works(cuMemAlloc(&at, 256), "cuMemAlloc");
    cuMemGetInfo(&free_after, &total);
    ok(free_before - free_after == 256, "256 bytes fewer are free");
    is(cuMemAlloc(&base, 100ull << 30), CUDA_ERROR_OUT_OF_MEMORY, "100 GiB");
    says(said(), "107374182400 bytes of memory were asked for: the emulated GPU has 17179869184", "100 GiB");
    works(cuMemsetD32(at, 0x01020304, 64), "cuMemsetD32");
    works(cuMemsetD2D8(at + 4, 16, 9, 4, 2), "cuMemsetD2D8");
    works(cuMemcpyDtoH(host, at, 256), "cuMemcpyDtoH");
    ok(host[0] == 0x01020304 && host[1] == 0x09090909 && host[2] == 0x01020304 && host[5] == 0x09090909, "two rows");
    is(cuMemcpyDtoH(host, at + 1, 256), CUDA_ERROR_INVALID_VALUE, "a copy past the end");
    says(said(), "a copy of 256 bytes a row from 0x", "copy past the end");
    is(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)host, host, 4), CUDA_ERROR_INVALID_VALUE, "a copy to the host as a device");
    works(cuMemGetAddressRange(&base, &bytes, at + 100), "cuMemGetAddressRange");
    ok(base == at && bytes == 256, "the whole buffer");
    is(cuMemFree(at + 4), CUDA_ERROR_INVALID_VALUE, "cuMemFree of a middle");
    works(cuMemFree(at), "cuMemFree");
    is(cuMemFree(at), CUDA_ERROR_INVALID_VALUE, "cuMemFree again");
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = host,
                                .srcPitch = 32,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = host + 32,
                                .dstPitch = 8,
                                .WidthInBytes = 8,
                                .Height = 2};
    for (uint32_t i = 0; i < 64; i++) host[i] = i;
    works(cuMemcpy2D(&rows), "cuMemcpy2D");
    ok(host[32] == 0 && host[33] == 1 && host[34] == 8 && host[35] == 9 && host[36] == 36, "two rows of eight bytes");
}

static void test_pointers(void) {
    uint32_t *pinned, own[8] = {0};
    CUdeviceptr managed, at, start = 0;
    unsigned long long ids[3] = {0};
    size_t size = 0;
    unsigned type = 0;
    int is_managed = 0;
    works(cuMemHostAlloc((void **)&pinned, 4096, 0), "cuMemHostAlloc");
    works(cuMemHostGetDevicePointer(&at, pinned, 0), "cuMemHostGetDevicePointer");
    ok(at == (CUdeviceptr)(uintptr_t)pinned, "pinned memory has one address");
    cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 8);
    ok(type == CU_MEMORYTYPE_HOST, "it is the host's");
    works(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
    cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed);
    ok(is_managed == 1, "managed memory says so");
    cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_BUFFER_ID, managed);
    cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_BUFFER_ID, managed + 64);
    cuPointerGetAttribute(&ids[2], CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
    ok(ids[0] == ids[1] && ids[0] != ids[2], "each allocation has a number of its own");
    cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, managed + 64);
    cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, managed + 64);
    ok(start == managed && size == 4096, "an address inside names the whole of it");
    *(uint32_t *)(uintptr_t)managed = 5;
    works(cuMemcpy(at, managed, 4), "cuMemcpy between the two");
    ok(pinned[0] == 5, "5 arrived");
    works(cuMemHostRegister(own, sizeof own, 0), "cuMemHostRegister");
    is(cuMemHostRegister(own, sizeof own, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "again");
    works(cuMemHostGetDevicePointer(&at, own + 1, 0), "its address");
    works(cuMemsetD32(at, 3, 1), "cuMemsetD32 there");
    ok(own[1] == 3 && own[0] == 0, "the host sees it");
    works(cuMemHostUnregister(own), "cuMemHostUnregister");
    is(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)own),
       CUDA_ERROR_INVALID_VALUE, "a pointer that CUDA does not know");
    works(cuMemFree(managed), "cuMemFree of managed memory");
    works(cuMemFreeHost(pinned), "cuMemFreeHost");
}

static CUresult add(CUstream stream, CUfunction function, CUdeviceptr at, uint32_t by) {
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){&at, &by}, NULL);
}

static uint32_t element(CUdeviceptr at, unsigned index) {
    uint32_t value = 0xdead;
    cuMemcpyDtoH(&value, at + 4ull * index, 4);
    return value;
}

static void test_modules(void) {
    CUmodule first, second;
    CUfunction function, other;
    CUdeviceptr at, one, two;
    size_t bytes;
    char log[200] = "";
    works(cuModuleLoadData(&first, adding), "cuModuleLoadData");
    works(cuModuleLoadData(&second, adding), "the same module again");
    works(cuModuleGetFunction(&function, first, "add"), "cuModuleGetFunction");
    works(cuModuleGetFunction(&other, second, "add"), "that of the other module");
    is(cuModuleGetFunction(&function, first, "subtract"), CUDA_ERROR_NOT_FOUND, "no such function");
    works(cuModuleGetGlobal(&one, &bytes, first, "launches"), "cuModuleGetGlobal");
    cuModuleGetGlobal(&two, NULL, second, "launches");
    ok(bytes == 4 && one != two, "each module has its own variable");
    cuMemAlloc(&at, 128);
    cuMemsetD32(at, 0, 32);
    works(add(NULL, function, at, 1), "a launch");
    works(add(NULL, other, at, 10), "a launch of the other module");
    works(add(NULL, function, at, 100), "a launch of the first again");
    ok(element(at, 31) == 111, "all three added");
    ok(element(one, 0) == 9 && element(two, 0) == 8, "both variables kept their values");
    struct {
        CUdeviceptr at;
        uint32_t by;
    } block = {at, 1000};
    size_t block_bytes = 12;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &block_bytes,
                     CU_LAUNCH_PARAM_END};
    works(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra), "parameters as a block");
    ok(element(at, 0) == 1111, "they arrived");
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    is(cuModuleLoadDataEx(&first, HEADING ".entry e() { ret; }\n.dance;\n", 2, options, values), CUDA_ERROR_INVALID_PTX,
       "what is no PTX");
    says(log, ".dance", "error log");
    const char cubin[64] = "\177ELF\2\1\1";
    is(cuModuleLoadData(&first, cubin), CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code");
    says(said(), "the emulator runs PTX", "machine code");
    CUlinkState link;
    works(cuLinkCreate(0, NULL, NULL, &link), "cuLinkCreate");
    works(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)adding, sizeof adding, "a", 0, NULL, NULL),
          "one text");
    works(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)racing, sizeof racing, "b", 0, NULL, NULL),
          "another");
    is(cuLinkAddData(link, CU_JIT_INPUT_NVVM, log, 1, "c.bc", 0, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED, "NVVM IR");
    is(cuLinkAddData(link, CU_JIT_INPUT_CUBIN, log, 1, "c", 0, NULL, NULL), CUDA_ERROR_INVALID_IMAGE, "no cubin");
    void *image;
    works(cuLinkComplete(link, &image, &bytes), "cuLinkComplete");
    works(cuModuleUnload(first), "cuModuleUnload of the first");
    works(cuModuleLoadData(&first, image), "the linked module");
    works(cuModuleGetFunction(&function, first, "race"), "a function of the second text");
    works(cuLinkDestroy(link), "cuLinkDestroy");
    works(cuModuleUnload(first), "cuModuleUnload");
    is(cuMemcpyDtoH(log, two + 4, 4), CUDA_ERROR_INVALID_VALUE, "past a variable");
    works(cuModuleUnload(second), "cuModuleUnload of the second");
    is(cuMemcpyDtoH(log, two, 4), CUDA_ERROR_INVALID_VALUE, "a variable of an unloaded module");
    cuMemFree(at);
}

/* A fatbin of one program of PTX: as it is, or as LZ4 makes it of literals alone. */
static void fill_fatbin(uint8_t *fatbin, const char *ptx, bool compressed) {
    const size_t length = strlen(ptx);
    size_t bytes = length;
    uint8_t *payload = fatbin + 16 + 64;
    if (compressed) {
        uint8_t *to = payload;
        *to++ = 0xf0;
        size_t more = length - 15;
        for (; more >= 255; more -= 255) *to++ = 255;
        *to++ = (uint8_t)more;
        for (size_t i = 0; i < length; i++) to[i] = (uint8_t)ptx[i];
        bytes = (size_t)(to - payload) + length;
    } else {
        for (size_t i = 0; i < length; i++) payload[i] = (uint8_t)ptx[i];
    }
    const uint64_t all = 64 + bytes, flags = compressed ? 0x2000 : 0, expanded = length, size = bytes;
    const uint32_t head[] = {0xba55ed50, 0x00100001}, program[] = {0x01010001, 64}, packed = (uint32_t)bytes;
    memcpy(fatbin, head, 8);
    memcpy(fatbin + 8, &all, 8);
    memcpy(fatbin + 16, program, 8);
    memcpy(fatbin + 24, &size, 8);
    memcpy(fatbin + 32, &packed, 4);
    memcpy(fatbin + 16 + 40, &flags, 8);
    memcpy(fatbin + 16 + 56, &expanded, 8);
}

static void test_fatbins(void) {
    static uint8_t fatbin[8192];
    CUlibrary library;
    CUkernel kernel;
    for (int compressed = 0; compressed < 2; compressed++) {
        memset(fatbin, 0, sizeof fatbin);
        fill_fatbin(fatbin, adding, compressed);
        if (works(cuLibraryLoadData(&library, fatbin, NULL, NULL, 0, NULL, NULL, 0), compressed ? "LZ4" : "plain")) {
            works(cuLibraryGetKernel(&kernel, library, "add"), "cuLibraryGetKernel");
            works(cuLibraryUnload(library), "cuLibraryUnload");
        }
    }
    fatbin[16 + 64 + 3] ^= 0x40; /* more literals than there are */
    memset(fatbin + 16 + 64 + 1, 255, 64);
    is(cuLibraryLoadData(&library, fatbin, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_NO_BINARY_FOR_GPU, "broken LZ4");
    memset(fatbin, 0, sizeof fatbin);
    fill_fatbin(fatbin, ".version 8.8\n.target sm_100\n.address_size 64\n", false);
    is(cuLibraryLoadData(&library, fatbin, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_NO_BINARY_FOR_GPU,
       "PTX for a later architecture");
    says(said(), "a program in a fatbin is PTX for sm_100, which does not run on sm_90a", "later architecture");
}

static void test_launches(void) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr at;
    int blocks = 0;
    cuModuleLoadData(&module, ranking);
    works(cuModuleGetFunction(&function, module, "rank"), "cuModuleGetFunction");
    cuMemAlloc(&at, 16);
    void *parameters[] = {&at};
    enum { SHARED = 50000 };
    is(cuLaunchKernel(function, 4, 1, 1, 1, 1, 1, SHARED, NULL, parameters, NULL), CUDA_ERROR_INVALID_VALUE,
       "more than 48 KiB of dynamic shared memory");
    says(said(), "50000 bytes of dynamic shared memory and may have 49152", "dynamic shared memory");
    is(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000), CUDA_ERROR_INVALID_VALUE,
       "more than a block has");
    works(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED), "cuFuncSetAttribute");
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    cluster.value.clusterDim.x = 2;
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    CUlaunchConfig config = {.gridDimX = 4,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = SHARED,
                             .attrs = &cluster,
                             .numAttrs = 1};
    works(cuLaunchKernelEx(&config, function, parameters, NULL), "cuLaunchKernelEx with clusters");
    ok(element(at, 0) == 0 && element(at, 1) == 1 && element(at, 2) == 0 && element(at, 3) == 1, "ranks 0 1 0 1");
    config.gridDimX = 3;
    is(cuLaunchKernelEx(&config, function, parameters, NULL), CUDA_ERROR_INVALID_VALUE, "3 CTAs in clusters of 2");
    cluster.id = (CUlaunchAttributeID)99;
    is(cuLaunchKernelEx(&config, function, parameters, NULL), CUDA_ERROR_NOT_SUPPORTED, "an unknown attribute");
    is(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), CUDA_ERROR_INVALID_VALUE, "no CTA");
    works(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 100000), "occupancy");
    ok(blocks == 2, "two CTAs of 100,000 bytes fit: %d", blocks);
    cuMemFree(at);
    cuModuleUnload(module);
}

/* Boxes of `rows` rows of 64 elements of 2 bytes. */
static CUresult encode(CUdeviceptr at, CUtensorMapDataType type, unsigned rows, CUtensorMapFloatOOBfill fill) {
    CUtensorMap map;
    const cuuint64_t sizes[] = {64, 64}, strides[] = {128};
    const cuuint32_t box[] = {64, rows}, ones[] = {1, 1};
    return cuTensorMapEncodeTiled(&map, type, 2, (void *)(uintptr_t)at, sizes, strides, box, ones,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, fill);
}

/* Pools count what is theirs; prefetch and advice by device number, as before CUDA 12.2. */
static void test_pools(void) {
    CUmemoryPool pool, ours, now;
    CUdeviceptr a, b;
    cuuint64_t bytes = 1;
    CUmemAccess_flags access = 0;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    works(cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool");
    works(cuMemPoolCreate(&ours, &properties), "cuMemPoolCreate");
    works(cuMemAllocFromPoolAsync(&a, 1000, ours, NULL), "cuMemAllocFromPoolAsync");
    works(cuMemPoolGetAttribute(ours, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes), "cuMemPoolGetAttribute");
    ok(bytes == 1000, "%llu bytes of ours are used", (unsigned long long)bytes);
    works(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes), "cuMemPoolGetAttribute");
    ok(bytes == 0, "%llu bytes of the default pool", (unsigned long long)bytes);
    works(cuDeviceSetMemPool(0, ours), "cuDeviceSetMemPool");
    works(cuDeviceGetMemPool(&now, 0), "cuDeviceGetMemPool");
    ok(now == ours, "the pool of the device is ours");
    works(cuMemAllocAsync(&b, 24, NULL), "cuMemAllocAsync");
    works(cuMemFreeAsync(a, NULL), "cuMemFreeAsync");
    works(cuMemPoolGetAttribute(ours, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes), "cuMemPoolGetAttribute");
    ok(bytes == 24, "%llu bytes are left", (unsigned long long)bytes);
    works(cuMemPoolGetAttribute(ours, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &bytes), "the most");
    ok(bytes == 1024, "%llu bytes at most", (unsigned long long)bytes);
    works(cuMemPoolGetAccess(&access, ours, &properties.location), "cuMemPoolGetAccess");
    ok(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the device reads and writes it");
    works(cuMemPoolDestroy(ours), "cuMemPoolDestroy");
    is(cuMemPoolDestroy(ours), CUDA_ERROR_INVALID_VALUE, "once more");
    is(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE, "the default pool");
    works(cuDeviceGetMemPool(&now, 0), "cuDeviceGetMemPool");
    ok(now == pool, "the default pool is the device's again");
    works(cuMemFree(b), "memory of a pool that is gone");
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    said();
    is(cuMemPoolCreate(&ours, &properties), CUDA_ERROR_NOT_SUPPORTED, "a pool to share");
    says(said(), "a memory pool for other processes", "a pool to share");

    CUresult (*prefetch)(CUdeviceptr, size_t, CUdevice, CUstream);
    CUresult (*advise)(CUdeviceptr, size_t, CUmem_advise, CUdevice);
    works(cuGetProcAddress("cuMemPrefetchAsync", (void **)&prefetch, 8000, 0, NULL), "cuMemPrefetchAsync of CUDA 8");
    works(cuGetProcAddress("cuMemAdvise", (void **)&advise, 8000, 0, NULL), "cuMemAdvise of CUDA 8");
    works(cuMemAllocManaged(&a, 4096, CU_MEM_ATTACH_GLOBAL), "managed memory");
    works(prefetch(a, 4096, CU_DEVICE_CPU, NULL), "to the host");
    works(advise(a, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), "advice");
    is(prefetch(a, 4097, 0, NULL), CUDA_ERROR_INVALID_VALUE, "one byte more");
    cuMemFree(a);
}

/* A graph that is built node by node: memory is set to 1, two kernels add 2 and 3, and a copy brings the result. */
static void test_graphs_by_hand(void) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr at;
    CUgraph graph, child, found;
    CUgraphNode set, first, second, copy, record, from[8], to[8], nodes[8];
    CUgraphExec executable;
    CUevent event, other, recorded;
    unsigned there[4] = {0}, by = 2;
    size_t count;
    works(cuModuleLoadData(&module, adding), "adding");
    works(cuModuleGetFunction(&function, module, "add"), "add");
    works(cuMemAlloc(&at, sizeof there), "its memory");
    works(cuGraphCreate(&graph, 0), "cuGraphCreate");
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMSET,
                           .memset = {.dst = at, .value = 1, .elementSize = 4, .width = 4, .height = 1}};
    works(cuGraphAddNode(&set, graph, NULL, NULL, 0, &p), "a node that sets memory");
    void *parameters[] = {&at, &by};
    p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_KERNEL,
                            .kernel = {.func = function,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 4,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = parameters}};
    works(cuGraphAddNode(&first, graph, &set, NULL, 1, &p), "a kernel");
    by = 3;
    works(cuGraphAddNode(&second, graph, &first, NULL, 1, &p), "another kernel");
    const CUDA_MEMCPY3D back = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = at,
                                .dstMemoryType = CU_MEMORYTYPE_HOST,
                                .dstHost = there,
                                .WidthInBytes = sizeof there,
                                .Height = 1,
                                .Depth = 1};
    works(cuGraphAddMemcpyNode(&copy, graph, &second, 1, &back, context), "a copy");

    count = 8;
    works(cuGraphGetEdges(graph, from, to, NULL, &count), "cuGraphGetEdges");
    ok(count == 3 && from[0] == set && to[0] == first && from[2] == second && to[2] == copy, "%zu edges", count);
    works(cuGraphNodeGetDependentNodes(first, NULL, NULL, &count), "how many depend on the first kernel");
    works(cuGraphNodeGetDependentNodes(first, nodes, NULL, &count), "cuGraphNodeGetDependentNodes");
    ok(count == 1 && nodes[0] == second, "the second kernel does");
    works(cuGraphRemoveDependencies(graph, &first, &second, NULL, 1), "cuGraphRemoveDependencies");
    is(cuGraphRemoveDependencies(graph, &first, &second, NULL, 1), CUDA_ERROR_INVALID_VALUE,
       "an edge that is not there");
    works(cuGraphNodeGetDependentNodes(first, NULL, NULL, &count), "cuGraphNodeGetDependentNodes");
    ok(count == 0, "nothing depends on it any more");
    works(cuGraphAddDependencies(graph, &first, &second, NULL, 1), "the edge again");

    CUDA_KERNEL_NODE_PARAMS kernel;
    works(cuGraphKernelNodeGetParams(second, &kernel), "cuGraphKernelNodeGetParams");
    ok(kernel.func == function && kernel.blockDimX == 4 && *(unsigned *)kernel.kernelParams[1] == 3, "its parameters");
    is(cuGraphKernelNodeGetParams(set, &kernel), CUDA_ERROR_INVALID_VALUE, "no kernel");
    CUDA_MEMSET_NODE_PARAMS setting;
    works(cuGraphMemsetNodeGetParams(set, &setting), "cuGraphMemsetNodeGetParams");
    ok(setting.dst == at && setting.value == 1 && setting.width == 4, "what it sets");
    CUDA_MEMCPY3D copied;
    works(cuGraphMemcpyNodeGetParams(copy, &copied), "cuGraphMemcpyNodeGetParams");
    ok(copied.dstHost == there && copied.WidthInBytes == sizeof there, "what it copies");

    works(cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
    works(cuGraphLaunch(executable, NULL), "cuGraphLaunch");
    ok(there[0] == 6 && there[3] == 6, "1 + 2 + 3 is %u", there[3]);
    p.kernel.kernelParams = (void *[]){&at, &(unsigned){30}};
    works(cuGraphExecNodeSetParams(executable, second, &p), "cuGraphExecNodeSetParams");
    works(cuGraphLaunch(executable, NULL), "cuGraphLaunch");
    ok(there[0] == 33, "1 + 2 + 30 is %u", there[0]);
    p.kernel.gridDimX = 0;
    works(cuGraphExecNodeSetParams(executable, second, &p), "a node without a grid");
    is(cuGraphLaunch(executable, NULL), CUDA_ERROR_INVALID_VALUE, "its launch");
    p.kernel.gridDimX = 1;
    p.kernel.kernelParams = (void *[]){&at, &(unsigned){40}};
    works(cuGraphNodeSetParams(first, &p), "cuGraphNodeSetParams");
    CUgraphExecUpdateResultInfo result;
    works(cuGraphExecUpdate(executable, graph, &result), "cuGraphExecUpdate");
    works(cuGraphLaunch(executable, NULL), "cuGraphLaunch");
    ok(there[0] == 44, "1 + 40 + 3 is %u", there[0]);
    works(cuGraphDestroyNode(copy), "a graph without its copy");
    is(cuGraphExecUpdate(executable, graph, &result), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "another graph");
    ok(result.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "as its nodes are others");

    works(cuEventCreate(&event, 0), "an event");
    works(cuEventCreate(&other, 0), "another");
    works(cuGraphCreate(&child, 0), "a child");
    works(cuGraphAddEventRecordNode(&record, child, NULL, 0, event), "a record in it");
    works(cuGraphEventRecordNodeSetEvent(record, other), "cuGraphEventRecordNodeSetEvent");
    works(cuGraphEventRecordNodeGetEvent(record, &recorded), "cuGraphEventRecordNodeGetEvent");
    ok(recorded == other, "the other event");
    p = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = child}};
    works(cuGraphAddNode(&record, graph, &second, NULL, 1, &p), "the child as a node");
    works(cuGraphChildGraphNodeGetGraph(record, &found), "cuGraphChildGraphNodeGetGraph");
    works(cuGraphGetNodes(found, NULL, &count), "its nodes");
    ok(count == 1, "%zu", count);
    p.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    said();
    is(cuGraphAddNode(&record, graph, NULL, NULL, 0, &p), CUDA_ERROR_NOT_SUPPORTED, "a conditional node");
    says(said(), "a node of type 13 is not supported in a graph", "conditional");
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    cuGraphDestroy(child);
    cuEventDestroy(event);
    cuEventDestroy(other);
    cuMemFree(at);
    cuModuleUnload(module);
}

/* A launch as before cuLaunchKernel(). */
static void test_launches_by_steps(void) {
    const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .b8 s[];\n"
        ".entry fill(.param .u64 out, .param .u32 value, .param .f32 more) {\n.reg .u64 %p;\n.reg .u32 %v, %t, %n;\n"
        ".reg .f32 %f;\nld.param.u64 %p, [out];\nld.param.u32 %v, [value];\nld.param.f32 %f, [more];\n"
        "cvt.rzi.u32.f32 %t, %f;\nadd.u32 %v, %v, %t;\nmov.u32 %n, %dynamic_smem_size;\nadd.u32 %v, %v, %n;\n"
        "mov.u32 %t, %ctaid.y;\nmov.u32 %n, %nctaid.x;\nmul.lo.u32 %t, %t, %n;\nmov.u32 %n, %ctaid.x;\n"
        "add.u32 %t, %t, %n;\nmov.u32 %n, %ntid.x;\nmul.lo.u32 %t, %t, %n;\nmov.u32 %n, %tid.x;\n"
        "add.u32 %t, %t, %n;\nmad.wide.u32 %p, %t, 4, %p;\nst.global.u32 [%p], %v;\nret;\n}\n";
    CUmodule module;
    CUfunction function;
    CUdeviceptr at;
    unsigned there[8] = {0};
    works(cuModuleLoadData(&module, text), "fill");
    works(cuModuleGetFunction(&function, module, "fill"), "fill");
    works(cuMemAlloc(&at, sizeof there), "its memory");
    is(cuLaunch(function), CUDA_ERROR_INVALID_VALUE, "without a block");
    is(cuFuncSetBlockShape(function, 2, 0, 1), CUDA_ERROR_INVALID_VALUE, "an empty block");
    works(cuFuncSetBlockShape(function, 2, 1, 1), "cuFuncSetBlockShape");
    works(cuFuncSetSharedSize(function, 16), "cuFuncSetSharedSize");
    works(cuParamSetv(function, 0, &at, sizeof at), "cuParamSetv");
    works(cuParamSeti(function, 8, 300), "cuParamSeti");
    works(cuParamSetf(function, 12, 5.5f), "cuParamSetf");
    is(cuParamSetv(function, 4090, &at, sizeof at), CUDA_ERROR_INVALID_VALUE, "a parameter beyond 4096 bytes");
    is(cuLaunchGrid(function, 2, 2), CUDA_ERROR_INVALID_VALUE, "fewer bytes of parameters than the kernel takes");
    works(cuParamSetSize(function, 16), "cuParamSetSize");
    works(cuLaunchGrid(function, 2, 2), "cuLaunchGrid");
    works(cuMemcpyDtoH(there, at, sizeof there), "its result");
    for (int i = 0; i < 8; i++) ok(there[i] == 321, "thread %d stored %u", i, there[i]);
    works(cuParamSeti(function, 8, 400), "another value");
    works(cuLaunch(function), "cuLaunch");
    works(cuMemcpyDtoH(there, at, sizeof there), "its result");
    ok(there[1] == 421 && there[2] == 321, "one CTA stored %u", there[1]);
    cuMemFree(at);
    cuModuleUnload(module);
}

static void test_tensor_maps(void) {
    CUdeviceptr at;
    const CUtensorMapDataType half = CU_TENSOR_MAP_DATA_TYPE_FLOAT16, word = CU_TENSOR_MAP_DATA_TYPE_UINT16;
    const CUtensorMapFloatOOBfill zeros = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    const CUtensorMapFloatOOBfill NaN = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    cuMemAlloc(&at, 8192);
    works(encode(at, half, 8, zeros), "cuTensorMapEncodeTiled");
    works(encode(at, half, 8, NaN), "NaN outside of it");
    is(encode(at, half, 300, zeros), CUDA_ERROR_INVALID_VALUE, "a box of 300 rows");
    says(said(), "is 300: it must be from 1 to 256", "box");
    is(encode(at, word, 8, NaN), CUDA_ERROR_INVALID_VALUE, "NaN outside of integers");
    says(said(), "of integers cannot become NaN", "fill");
    is(encode(at, half, 8, (CUtensorMapFloatOOBfill)2), CUDA_ERROR_INVALID_VALUE, "an unknown fill");
    cuMemFree(at);
}

static void CUDA_CB note_call(void *data) {
    ++*(int *)data;
}

static void test_streams(void) {
    CUmodule module;
    CUfunction function;
    CUdeviceptr at;
    CUstream one, two;
    CUevent forked, joined;
    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode nodes[8];
    size_t count = 8;
    int calls = 0;
    float milliseconds = -1;
    cuModuleLoadData(&module, adding);
    cuModuleGetFunction(&function, module, "add");
    cuMemAlloc(&at, 128);
    cuMemsetD32(at, 0, 32);
    works(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    cuStreamCreate(&two, CU_STREAM_NON_BLOCKING);
    cuEventCreate(&forked, 0);
    cuEventCreate(&joined, 0);
    works(cuEventRecord(forked, one), "cuEventRecord");
    works(add(one, function, at, 1), "a launch on a stream");
    cuEventRecord(joined, one);
    works(cuEventElapsedTime(&milliseconds, forked, joined), "cuEventElapsedTime");
    ok(milliseconds > 0, "the clock went on");
    works(cuLaunchHostFunc(one, note_call, &calls), "cuLaunchHostFunc");
    ok(calls == 1 && element(at, 0) == 1, "both are done");

    works(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
    cuEventRecord(forked, one);
    works(cuStreamWaitEvent(two, forked, 0), "another stream joins the capture");
    works(add(two, function, at, 10), "a launch on that");
    cuEventRecord(joined, two);
    cuStreamWaitEvent(one, joined, 0);
    works(add(one, function, at, 100), "a launch after both");
    works(cuMemcpyDtoDAsync(at + 4, at, 4, one), "a copy after that");
    is(cuStreamSynchronize(one), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "waiting for what is captured");
    works(cuStreamEndCapture(one, &graph), "cuStreamEndCapture");
    ok(element(at, 0) == 1, "nothing of it ran");
    cuGraphGetNodes(graph, nodes, &count);
    ok(count == 3, "three nodes: %zu", count);
    works(cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
    works(cuGraphLaunch(executable, one), "cuGraphLaunch");
    ok(element(at, 0) == 111 && element(at, 1) == 111, "all three ran");
    uint32_t by = 2;
    CUDA_KERNEL_NODE_PARAMS changed = {.func = function,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 32,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = (void *[]){&at, &by}};
    works(cuGraphExecKernelNodeSetParams(executable, nodes[0], &changed), "cuGraphExecKernelNodeSetParams");
    cuGraphLaunch(executable, one);
    ok(element(at, 0) == 213, "2 instead of 10: %u", element(at, 0));
    is(cuGraphExecKernelNodeSetParams(executable, nodes[2], &changed), CUDA_ERROR_INVALID_VALUE,
       "the copy is no kernel");

    cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL);
    cuEventRecord(forked, one);
    cuStreamWaitEvent(two, forked, 0);
    add(two, function, at, 10);
    CUgraph unjoined;
    is(cuStreamEndCapture(one, &unjoined), CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream that did not come back");
    CUgraphNode extra_node;
    works(cuGraphAddHostNode(&extra_node, graph, &nodes[2], 1,
                             &(CUDA_HOST_NODE_PARAMS){.fn = note_call, .userData = &calls}),
          "cuGraphAddHostNode");
    works(cuGraphAddDependencies(graph, &extra_node, &nodes[0], NULL, 1), "a circle");
    CUgraphExec none;
    is(cuGraphInstantiate(&none, graph, 0), CUDA_ERROR_INVALID_VALUE, "a graph that goes in circles");
    is(cuStreamWaitValue32(one, at, 5, CU_STREAM_WAIT_VALUE_EQ), CUDA_ERROR_LAUNCH_TIMEOUT, "a value that never comes");
    cuGraphExecDestroy(executable);
    cuGraphDestroy(graph);
    cuEventDestroy(forked);
    cuEventDestroy(joined);
    works(cuStreamDestroy(two), "cuStreamDestroy");
    is(cuStreamQuery(two), CUDA_ERROR_INVALID_HANDLE, "a destroyed stream");
    cuStreamDestroy(one);
    cuMemFree(at);
    cuModuleUnload(module);
}

/* ---- findings, limits, threads and processes ---- */

static void test_findings(void) {
    CUmodule module;
    CUfunction race, endless;
    char path[] = P_tmpdir "/test_driver.XXXXXX", notes[4096] = "";
    const int file = mkstemp(path);
    cuModuleLoadData(&module, racing);
    cuModuleGetFunction(&race, module, "race");
    cuModuleGetFunction(&endless, module, "endless");
    said();
    works(cuLaunchKernel(race, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), "a race is no error of the launch");
    says(said(), "kernel race: race at PTX line", "without a file of notes");
    setenv("EMULATED_GPU_NOTES", path, 1);
    for (int i = 0; i < 2; i++) {
        works(cuLaunchKernel(endless, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), "a launch does not wait for its kernel");
        works(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
    }
    const ssize_t bytes = read(file, notes, sizeof notes - 1);
    ok(bytes > 0 && notes[bytes - 1] == '\n' && strchr(notes, '\n') == notes + bytes - 1, "one line for one cause");
    says(notes, "{\"finding\": \"step-limit\", \"kernel\": \"endless\"", "note");
    unsetenv("EMULATED_GPU_NOTES");
    close(file);
    unlink(path);
    cuModuleUnload(module);
}

/* After a kernel was stopped, all work fails with the same error until the context is destroyed. */
static void test_failures(void) {
    static const struct {
        const char *kernel;
        CUresult failure;
    } kernels[] = {{"endless", CUDA_ERROR_LAUNCH_TIMEOUT},
                   {"traps", CUDA_ERROR_LAUNCH_FAILED},
                   {"waits", CUDA_ERROR_LAUNCH_TIMEOUT}};
    CUmodule module, other;
    CUfunction function;
    CUdeviceptr at, more;
    CUevent event;
    CUstream stream;
    int value = 5, there = 0, major;
    cuModuleLoadData(&module, stopping);
    cuMemAlloc(&at, 4);
    cuEventCreate(&event, 0);
    cuStreamCreate(&stream, 0);
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        const CUresult failure = kernels[i].failure;
        const char *name = kernels[i].kernel;
        works(cuModuleGetFunction(&function, module, name), name);
        works(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, NULL, NULL), name);
        is(cuStreamSynchronize(stream), failure, "cuStreamSynchronize");
        is(cuCtxSynchronize(), failure, "cuCtxSynchronize");
        is(cuMemcpyHtoD(at, &value, 4), failure, "cuMemcpyHtoD");
        is(cuMemcpyDtoH(&there, at, 4), failure, "cuMemcpyDtoH");
        is(cuMemsetD8(at, 1, 4), failure, "cuMemsetD8");
        is(cuMemAlloc(&more, 4), failure, "cuMemAlloc");
        is(cuMemFree(at), failure, "cuMemFree");
        is(cuEventRecord(event, stream), failure, "cuEventRecord");
        is(cuEventSynchronize(event), failure, "cuEventSynchronize");
        is(cuModuleLoadData(&other, stopping), failure, "cuModuleLoadData");
        is(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL), failure, "another launch");
        works(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0), "attributes remain");
        works(cuDevicePrimaryCtxReset(0), "the context is destroyed");
        works(cuCtxSynchronize(), "and begins again");
    }
    works(cuMemcpyHtoD(at, &value, 4), "memory remains here");
    cuMemFree(at);
    cuEventDestroy(event);
    cuStreamDestroy(stream);
    cuModuleUnload(module);
}

typedef struct job {
    CUfunction function;
    CUdeviceptr at;
    CUresult result;
} job;

static void *add_often(void *data) {
    job *j = data;
    j->result = cuCtxSetCurrent(context);
    for (int i = 0; i < 50 && j->result == CUDA_SUCCESS; i++) j->result = add(NULL, j->function, j->at, 1);
    return NULL;
}

static void test_threads(void) {
    CUmodule module;
    pthread_t threads[4];
    job jobs[4] = {0};
    CUdeviceptr at;
    cuModuleLoadData(&module, adding);
    cuMemAlloc(&at, 128);
    cuMemsetD32(at, 0, 32);
    for (int i = 0; i < 4; i++) {
        cuModuleGetFunction(&jobs[i].function, module, "add");
        jobs[i].at = at;
        pthread_create(&threads[i], NULL, add_often, &jobs[i]);
    }
    bool all = true;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        all &= jobs[i].result == CUDA_SUCCESS;
    }
    ok(all && element(at, 7) == 200, "four threads added 200 times: %u", element(at, 7));
    cuMemFree(at);
    cuModuleUnload(module);
}

static void test_fork(void) {
    fflush(stdout);
    const pid_t child = fork();
    int count, status = -1;
    if (!child) _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 5 : 6);
    waitpid(child, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 5, "a forked process cannot use the GPU of its parent");
    says(said(), "this process was forked from one that uses the GPU", "fork");
    works(cuDeviceGetCount(&count), "its parent can");
}

int main(void) {
    char path[] = P_tmpdir "/test_driver.XXXXXX";
    said_file = mkstemp(path);
    unlink(path);
    if (said_file < 0 || dup2(said_file, STDERR_FILENO) < 0) return 2;
    test_start();
    test_devices();
    test_contexts();
    test_entry_points();
    test_memory();
    test_pointers();
    test_modules();
    test_fatbins();
    test_launches();
    test_launches_by_steps();
    test_graphs_by_hand();
    test_pools();
    test_tensor_maps();
    test_streams();
    test_findings();
    test_failures();
    test_threads();
    test_fork();
    return tap_done();
}
