/* names.c - functions by name for cuGetProcAddress, and results: each has its name in cuda.h, and the same in lower
 * case as its description. */
#include "driver.h"
#include "entry_points.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct result_name {
    CUresult result;
    const char *name;
} result_name;

/* clang-format off */
#define RESULT(name) {name, #name}
static const result_name names[] = {
    RESULT(CUDA_SUCCESS), RESULT(CUDA_ERROR_INVALID_VALUE), RESULT(CUDA_ERROR_OUT_OF_MEMORY),
    RESULT(CUDA_ERROR_NOT_INITIALIZED), RESULT(CUDA_ERROR_DEINITIALIZED), RESULT(CUDA_ERROR_PROFILER_DISABLED),
    RESULT(CUDA_ERROR_PROFILER_NOT_INITIALIZED), RESULT(CUDA_ERROR_PROFILER_ALREADY_STARTED),
    RESULT(CUDA_ERROR_PROFILER_ALREADY_STOPPED), RESULT(CUDA_ERROR_STUB_LIBRARY),
    RESULT(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER), RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE),
    RESULT(CUDA_ERROR_MULTICAST_RESOURCE_FULL), RESULT(CUDA_ERROR_NO_DEVICE), RESULT(CUDA_ERROR_INVALID_DEVICE),
    RESULT(CUDA_ERROR_DEVICE_NOT_LICENSED), RESULT(CUDA_ERROR_INVALID_IMAGE), RESULT(CUDA_ERROR_INVALID_CONTEXT),
    RESULT(CUDA_ERROR_CONTEXT_ALREADY_CURRENT), RESULT(CUDA_ERROR_MAP_FAILED), RESULT(CUDA_ERROR_UNMAP_FAILED),
    RESULT(CUDA_ERROR_ARRAY_IS_MAPPED), RESULT(CUDA_ERROR_ALREADY_MAPPED), RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU),
    RESULT(CUDA_ERROR_ALREADY_ACQUIRED), RESULT(CUDA_ERROR_NOT_MAPPED), RESULT(CUDA_ERROR_NOT_MAPPED_AS_ARRAY),
    RESULT(CUDA_ERROR_NOT_MAPPED_AS_POINTER), RESULT(CUDA_ERROR_ECC_UNCORRECTABLE),
    RESULT(CUDA_ERROR_UNSUPPORTED_LIMIT), RESULT(CUDA_ERROR_CONTEXT_ALREADY_IN_USE),
    RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED), RESULT(CUDA_ERROR_INVALID_PTX),
    RESULT(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT), RESULT(CUDA_ERROR_NVLINK_UNCORRECTABLE),
    RESULT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND), RESULT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
    RESULT(CUDA_ERROR_JIT_COMPILATION_DISABLED), RESULT(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY),
    RESULT(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC), RESULT(CUDA_ERROR_CONTAINED),
    RESULT(CUDA_ERROR_INSUFFICIENT_LOADER_VERSION), RESULT(CUDA_ERROR_INVALID_SOURCE),
    RESULT(CUDA_ERROR_FILE_NOT_FOUND), RESULT(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND),
    RESULT(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED), RESULT(CUDA_ERROR_OPERATING_SYSTEM),
    RESULT(CUDA_ERROR_INVALID_HANDLE), RESULT(CUDA_ERROR_ILLEGAL_STATE), RESULT(CUDA_ERROR_LOSSY_QUERY),
    RESULT(CUDA_ERROR_NOT_FOUND), RESULT(CUDA_ERROR_NOT_READY), RESULT(CUDA_ERROR_ILLEGAL_ADDRESS),
    RESULT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), RESULT(CUDA_ERROR_LAUNCH_TIMEOUT),
    RESULT(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING), RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
    RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED), RESULT(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
    RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED), RESULT(CUDA_ERROR_ASSERT), RESULT(CUDA_ERROR_TOO_MANY_PEERS),
    RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED), RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    RESULT(CUDA_ERROR_HARDWARE_STACK_ERROR), RESULT(CUDA_ERROR_ILLEGAL_INSTRUCTION),
    RESULT(CUDA_ERROR_MISALIGNED_ADDRESS), RESULT(CUDA_ERROR_INVALID_ADDRESS_SPACE), RESULT(CUDA_ERROR_INVALID_PC),
    RESULT(CUDA_ERROR_LAUNCH_FAILED), RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
    RESULT(CUDA_ERROR_TENSOR_MEMORY_LEAK), RESULT(CUDA_ERROR_NOT_PERMITTED), RESULT(CUDA_ERROR_NOT_SUPPORTED),
    RESULT(CUDA_ERROR_SYSTEM_NOT_READY), RESULT(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
    RESULT(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE), RESULT(CUDA_ERROR_MPS_CONNECTION_FAILED),
    RESULT(CUDA_ERROR_MPS_RPC_FAILURE), RESULT(CUDA_ERROR_MPS_SERVER_NOT_READY),
    RESULT(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED), RESULT(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED),
    RESULT(CUDA_ERROR_MPS_CLIENT_TERMINATED), RESULT(CUDA_ERROR_CDP_NOT_SUPPORTED),
    RESULT(CUDA_ERROR_CDP_VERSION_MISMATCH), RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED), RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE),
    RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED), RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
    RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION), RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
    RESULT(CUDA_ERROR_CAPTURED_EVENT), RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD), RESULT(CUDA_ERROR_TIMEOUT),
    RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE), RESULT(CUDA_ERROR_EXTERNAL_DEVICE),
    RESULT(CUDA_ERROR_INVALID_CLUSTER_SIZE), RESULT(CUDA_ERROR_FUNCTION_NOT_LOADED),
    RESULT(CUDA_ERROR_INVALID_RESOURCE_TYPE), RESULT(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION),
    RESULT(CUDA_ERROR_KEY_ROTATION), RESULT(CUDA_ERROR_STREAM_DETACHED), RESULT(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE),
    RESULT(CUDA_ERROR_FABRIC_NOT_READY), RESULT(CUDA_ERROR_UNKNOWN),
};
/* clang-format on */

enum { RESULTS = sizeof names / sizeof names[0], LONGEST = 64 };

CUresult cuGetErrorName(CUresult error, const char **name) {
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    *name = NULL;
    for (int i = 0; i < RESULTS; i++)
        if (names[i].result == error) *name = names[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* "CUDA_ERROR_INVALID_VALUE" is an "invalid value". */
CUresult cuGetErrorString(CUresult error, const char **text) {
    static _Thread_local char described[LONGEST];
    const char *name;
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = NULL;
    if (cuGetErrorName(error, &name)) return CUDA_ERROR_INVALID_VALUE;
    if (error == CUDA_SUCCESS) {
        *text = "no error";
        return CUDA_SUCCESS;
    }
    name += strlen("CUDA_ERROR_");
    size_t i = 0;
    for (; name[i] && i < LONGEST - 1; i++) described[i] = name[i] == '_' ? ' ' : (char)tolower(name[i]);
    described[i] = 0;
    *text = described;
    return CUDA_SUCCESS;
}

/* There are no entries: what is wrong is said on stderr. */
CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data, CUlogsCallbackHandle *handle) {
    static char entry;
    (void)data;
    if (!callback || !handle) return CUDA_ERROR_INVALID_VALUE;
    *handle = (CUlogsCallbackHandle)(void *)&entry;
    return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
    return handle ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Flags choose between the two default streams, which are one here. */
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *result) {
    (void)flags;
    bool too_new;
    if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
    *function = find_entry_point(name, version, &too_new);
    if (result) {
        *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS
                  : too_new ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    return *function || result ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* Compilers ask for the tables of the runtime in them, and need none. */
static bool is_compiler(const char *library) {
    static const char *const compilers[] = {"/libnvrtc", "/libnvJitLink", "/libnvvm"};
    for (size_t i = 0; i < sizeof compilers / sizeof compilers[0]; i++)
        if (strstr(library, compilers[i])) return true;
    return false;
}

/* CUPTI, the profiler, calls itself without end where there is no table, so the program ends at its second call. */
static bool is_profiler(const char *library) {
    static _Atomic int asked;
    if (!strstr(library, "/libcupti")) return false;
    if (!asked++) return true;
    driver_say(
        "%s, NVIDIA's profiler, needs tables of the driver that are documented nowhere (cuGetExportTable). Without "
        "them it calls itself without end, so the program ends here: run it without the profiler, such as "
        "torch.profiler without ProfilerActivity.CUDA",
        library);
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

/* The toolkit's runtime asks for tables that are documented nowhere, at its first call: f8cff951-2146-8b4e-b9e2-
 * fb469e7c0dd9 and 6bd5fb6c-5bf4-e74a-8987-d93912fd9df9 in release 13.2. The user is told which file brings it, and
 * that it ends there. */
CUresult cuGetExportTable(const void **table, const CUuuid *which) {
    static _Atomic int said;
    Dl_info caller;
    (void)which;
    if (table) *table = NULL;
    const bool is_known = dladdr(__builtin_return_address(0), &caller) && caller.dli_fname;
    if (is_known && (is_compiler(caller.dli_fname) || is_profiler(caller.dli_fname))) return CUDA_ERROR_NOT_SUPPORTED;
    if (!said++)
        driver_say(
            "%s brings NVIDIA's CUDA runtime, which cannot start here: it asks for tables of the driver that are "
            "documented nowhere (cuGetExportTable). What nvcc links with `-cudart shared` runs, where no other "
            "libcudart.so.13 comes first",
            is_known ? caller.dli_fname : "the program");
    return CUDA_ERROR_NOT_SUPPORTED;
}
