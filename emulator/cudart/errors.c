/* errors.c - results of the runtime: the name in driver_types.h, and the driver's sentence where it has the result. */
#include "cudart.h"

#include <stddef.h>

typedef struct error_name {
    cudaError_t error;
    const char *name, *text; /* NULL: the text of the driver */
} error_name;

/* clang-format off */
#define NAMED(error, text) {error, #error, text}
static const error_name errors[] = {
    NAMED(cudaSuccess, NULL), NAMED(cudaErrorInvalidValue, "invalid argument"), NAMED(cudaErrorMemoryAllocation, NULL),
    NAMED(cudaErrorInitializationError, "initialization error"), NAMED(cudaErrorCudartUnloading, NULL),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorInvalidPitchValue, "invalid pitch argument"), NAMED(cudaErrorInvalidSymbol, "invalid device symbol"),
    NAMED(cudaErrorInvalidChannelDescriptor, "invalid channel descriptor"),
    NAMED(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    NAMED(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    NAMED(cudaErrorInvalidDeviceFunction, "invalid device function"), NAMED(cudaErrorNoDevice, NULL),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"), NAMED(cudaErrorInvalidKernelImage, NULL),
    NAMED(cudaErrorDeviceUninitialized, NULL),
    NAMED(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    NAMED(cudaErrorUnsupportedLimit, NULL), NAMED(cudaErrorInvalidPtx, NULL),
    NAMED(cudaErrorUnsupportedPtxVersion, NULL),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"), NAMED(cudaErrorIllegalState, NULL),
    NAMED(cudaErrorSymbolNotFound, "named symbol not found"), NAMED(cudaErrorNotReady, NULL),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorLaunchOutOfResources, NULL), NAMED(cudaErrorLaunchTimeout, NULL), NAMED(cudaErrorAssert, NULL),
    NAMED(cudaErrorHostMemoryAlreadyRegistered, NULL), NAMED(cudaErrorHostMemoryNotRegistered, NULL),
    NAMED(cudaErrorIllegalInstruction, NULL), NAMED(cudaErrorMisalignedAddress, NULL),
    NAMED(cudaErrorLaunchFailure, NULL), NAMED(cudaErrorCooperativeLaunchTooLarge, NULL),
    NAMED(cudaErrorNotPermitted, NULL), NAMED(cudaErrorNotSupported, NULL),
    NAMED(cudaErrorStreamCaptureUnsupported, NULL), NAMED(cudaErrorStreamCaptureInvalidated, NULL),
    NAMED(cudaErrorStreamCaptureUnmatched, NULL), NAMED(cudaErrorStreamCaptureUnjoined, NULL),
    NAMED(cudaErrorStreamCaptureImplicit, NULL), NAMED(cudaErrorCapturedEvent, NULL),
    NAMED(cudaErrorInvalidClusterSize, NULL), NAMED(cudaErrorUnknown, NULL),
};
/* clang-format on */

static const error_name *find(cudaError_t error) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].error == error) return &errors[i];
    return NULL;
}

const char *cudaGetErrorName(cudaError_t error) {
    const error_name *e = find(error);
    return e ? e->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const error_name *e = find(error);
    const char *text = e ? e->text : NULL;
    if (!text) cuGetErrorString((CUresult)error, &text);
    return text ? text : "unrecognized error code";
}

/* ---- the last error of a thread ---- */

static _Thread_local cudaError_t last;

cudaError_t runtime_failed(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last = error;
    return error;
}

cudaError_t runtime_leave(CUresult status) {
    return runtime_failed((cudaError_t)status);
}

cudaError_t cudaPeekAtLastError(void) {
    return last;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}
