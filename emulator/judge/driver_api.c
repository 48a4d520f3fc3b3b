/* driver_api.c - finds the functions of libcuda. */
#include "driver_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Function pointers and void * are of one size on every system that has CUDA; C has no conversion between them. */
static bool find(void *library, const char *name, void *function) {
    void *const found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

/* cuda.h defines cuMemAlloc as cuMemAlloc_v2: the name that is looked up is the one after the macro is expanded. */
#define TEXT(name) TEXT_AS_IS(name)
#define TEXT_AS_IS(name) #name

bool driver_api_open(driver_api *cuda, const char *path) {
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "judge-replay: %s\n", dlerror());
        return false;
    }
#define FIND(function)                                                                                                 \
    if (!find(library, TEXT(function), &cuda->function)) {                                                             \
        fprintf(stderr, "judge-replay: %s has no " TEXT(function) "\n", path ? path : "libcuda.so.1");                 \
        return false;                                                                                                  \
    }
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    find(library, "cuEmulatedGpuPoison", &cuda->poison);
    find(library, "cuEmulatedGpuTouchBegin", &cuda->touch_begin);
    find(library, "cuEmulatedGpuTouched", &cuda->touched);
    return true;
}
