/* context.c - contexts: which is current to which thread. All of them share the device's memory. */
#include "driver.h"

#include <stdlib.h>

struct CUctx_st {
    unsigned flags;
    unsigned long long id;
    int references;
    size_t limits[CU_LIMIT_MAX];
    CUcontext next;
};

enum { DEEPEST = 64 };

static struct CUctx_st primary = {.id = 1};
static CUcontext created; /* those of cuCtxCreate() */
static unsigned long long last_id = 1;
static _Thread_local CUcontext stack[DEEPEST];
static _Thread_local int depth;

static bool exists(CUcontext context) {
    if (context == &primary) return primary.references > 0;
    for (CUcontext c = created; c; c = c->next)
        if (c == context) return true;
    return false;
}

static CUcontext current(void) {
    return depth ? stack[depth - 1] : NULL;
}

/* A call that needs a current context, and writes an answer. */
static CUresult enter_context(const void *answer) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !answer) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !(current() && exists(current()))) status = CUDA_ERROR_INVALID_CONTEXT;
    return status;
}

/* ---- the primary context ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !context) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS) {
        primary.references++;
        *context = &primary;
    }
    return driver_leave(status);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS && !primary.references) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS && !--primary.references) the_driver()->failure = CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) overlap_host_waits_for_all();
    return driver_leave(status);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS) the_driver()->failure = CUDA_SUCCESS;
    if (status == CUDA_SUCCESS) overlap_host_waits_for_all();
    return driver_leave(status);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(flags && active)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS) {
        *flags = primary.flags;
        *active = primary.references > 0;
    }
    return driver_leave(status);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS) primary.flags = flags;
    return driver_leave(status);
}

/* ---- contexts of a program ---- */

static CUresult push(CUcontext context) {
    if (depth == DEEPEST) return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !context) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    CUcontext made = calloc(1, sizeof *made);
    if (!made) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    *made = (struct CUctx_st){.flags = flags, .id = ++last_id, .next = created};
    status = push(made);
    if (status == CUDA_SUCCESS) {
        created = *context = made;
    } else {
        free(made);
    }
    return driver_leave(status);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device) {
    if (affinity || count) {
        driver_say("a context with an affinity to some multiprocessors is not supported");
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *parameters, unsigned flags, CUdevice device) {
    if (parameters && parameters->cigParams) return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v3(context, parameters ? parameters->execAffinityParams : NULL,
                          parameters ? parameters->numExecAffinityParams : 0, flags, device);
}

CUresult cuCtxDestroy(CUcontext context) {
    CUresult status = driver_enter();
    CUcontext *at = &created;
    while (status == CUDA_SUCCESS && *at && *at != context) at = &(*at)->next;
    if (status == CUDA_SUCCESS && !*at) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) {
        *at = context->next;
        overlap_host_waits_for_all();
        if (current() == context) depth--;
        free(context);
        the_driver()->failure = CUDA_SUCCESS;
    }
    return driver_leave(status);
}

CUresult cuCtxPushCurrent(CUcontext context) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = exists(context) ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
    return driver_leave(status);
}

CUresult cuCtxPopCurrent(CUcontext *context) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !depth) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) {
        depth--;
        if (context) *context = stack[depth];
    }
    return driver_leave(status);
}

CUresult cuCtxSetCurrent(CUcontext context) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && context && !exists(context)) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) {
        if (depth) depth--;
        if (context) status = push(context);
    }
    return driver_leave(status);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !context) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *context = current();
    return driver_leave(status);
}

/* ---- what a context says ---- */

CUresult cuCtxGetDevice(CUdevice *device) {
    CUresult status = enter_context(device);
    if (status == CUDA_SUCCESS) *device = 0;
    return driver_leave(status);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !device) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !exists(context)) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) *device = 0;
    return driver_leave(status);
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !id) status = CUDA_ERROR_INVALID_VALUE;
    if (!context) context = current();
    if (status == CUDA_SUCCESS && !exists(context)) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) *id = context->id;
    return driver_leave(status);
}

CUresult cuCtxGetFlags(unsigned *flags) {
    CUresult status = enter_context(flags);
    if (status == CUDA_SUCCESS) *flags = current()->flags;
    return driver_leave(status);
}

CUresult cuCtxSetFlags(unsigned flags) {
    CUresult status = enter_context(&flags);
    if (status == CUDA_SUCCESS) current()->flags = flags;
    return driver_leave(status);
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !version) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && context && !exists(context)) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) *version = 3020;
    return driver_leave(status);
}

CUresult cuCtxSynchronize(void) {
    CUresult status = enter_context(&primary);
    overlap_host_waits_for_all();
    return driver_leave(status == CUDA_SUCCESS ? the_driver()->failure : status);
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
    CUresult status = driver_enter_work();
    if (status == CUDA_SUCCESS && !exists(context)) status = CUDA_ERROR_INVALID_CONTEXT;
    if (status == CUDA_SUCCESS) overlap_host_waits_for_all();
    return driver_leave(status);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CUresult status = enter_context(&primary);
    if (status == CUDA_SUCCESS) {
        if (least) *least = 0;
        if (greatest) *greatest = -5;
    }
    return driver_leave(status);
}

/* Limits are kept, and bind nothing: the emulator has those of emu.h. */
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    CUresult status = enter_context(value);
    if (status == CUDA_SUCCESS && (unsigned)limit >= CU_LIMIT_MAX) status = CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (status == CUDA_SUCCESS) *value = current()->limits[limit] ? current()->limits[limit] : 1 << 20;
    return driver_leave(status);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    CUresult status = enter_context(&primary);
    if (status == CUDA_SUCCESS && (unsigned)limit >= CU_LIMIT_MAX) status = CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (status == CUDA_SUCCESS) current()->limits[limit] = value;
    return driver_leave(status);
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    CUresult status = enter_context(config);
    if (status == CUDA_SUCCESS) *config = CU_FUNC_CACHE_PREFER_NONE;
    return driver_leave(status);
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    (void)config;
    return driver_leave(enter_context(&primary));
}

CUresult cuCtxResetPersistingL2Cache(void) {
    return driver_leave(enter_context(&primary));
}

CUresult cuProfilerStart(void) {
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void) {
    return CUDA_SUCCESS;
}
