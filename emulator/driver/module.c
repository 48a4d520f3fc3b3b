/* module.c - modules, libraries and what is in them; cuLink, which joins texts of PTX. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

/* A library is a module that belongs to no context, and a kernel is a function of one. */
static CUmodule of_library(CUlibrary library) {
    return (CUmodule)(void *)library;
}

/* ---- options of cuModuleLoadDataEx and cuLinkCreate: a buffer for what was wrong is all that matters ---- */

static void fill_logs(unsigned count, const CUjit_option *options, void **values, const char *text) {
    char *log = NULL;
    size_t bytes = 0;
    for (unsigned i = 0; options && values && i < count; i++) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = NULL;
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
        if (options[i] != CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) continue;
        bytes = (size_t)(uintptr_t)values[i];
        values[i] = (void *)(uintptr_t)strlen(text);
    }
    if (log && bytes) snprintf(log, bytes, "%s", text);
}

/* ---- loading ---- */

static void unload(CUmodule module) {
    record_unload(module);
    emu_unload_from(the_driver()->device, module->module);
    for (int i = 0; module->functions && i < module->count; i++) free(module->functions[i].steps);
    free(module->functions);
    free(module->text);
    free(module);
}

/* The text is taken over. */
static CUresult load_text(CUmodule *loaded, char *text, emu_error *error) {
    CUmodule module = calloc(1, sizeof *module);
    if (!module) {
        free(text);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *module = (struct CUmod_st){.text = text, .references = 1};
    module->module = emu_load_on(the_driver()->device, text, strlen(text), error);
    if (!module->module) {
        unload(module);
        driver_say("a module is refused at PTX line %d: %s", error->line, error->text);
        return CUDA_ERROR_INVALID_PTX;
    }
    module->count = emu_entry_count(module->module);
    module->functions = calloc((size_t)module->count + 1, sizeof *module->functions);
    if (!module->functions) {
        unload(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    enum { WITHOUT_ASKING = 48 << 10 }; /* dynamic shared memory that every launch may have */
    for (int i = 0; i < module->count; i++)
        module->functions[i] = (struct CUfunc_st){.module = module, .entry = i, .dynamic_shared = WITHOUT_ASKING};
    record_module(module);
    *loaded = module;
    return CUDA_SUCCESS;
}

static CUresult load_image(CUmodule *module, const void *image, emu_error *error) {
    CUresult status = the_driver()->failure;
    *error = (emu_error){0};
    if (status != CUDA_SUCCESS) return status;
    char *text = image_ptx(image, &status);
    if (!text) record_refused("a module without PTX");
    return text ? load_text(module, text, error) : status;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    emu_error error = {0};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(module && image)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = load_image(module, image, &error);
    fill_logs(count, options, values, error.text);
    return driver_leave(status);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatbin) {
    return cuModuleLoadData(module, fatbin);
}

/* A file as text that ends in a zero byte; owned. */
static char *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = NULL;
    if (!fseek(file, 0, SEEK_END)) {
        const long length = ftell(file);
        rewind(file);
        text = length >= 0 ? calloc(1, (size_t)length + 1) : NULL;
        if (text) *bytes = fread(text, 1, (size_t)length, file);
    }
    fclose(file);
    return text;
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    size_t bytes;
    char *image = path ? read_file(path, &bytes) : NULL;
    if (!image) {
        driver_say("the module %s cannot be read", path ? path : "(null)");
        return CUDA_ERROR_FILE_NOT_FOUND;
    }
    CUresult status = cuModuleLoadData(module, image);
    free(image);
    return status;
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !module) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !--module->references) {
        overlap_host_waits_for_all(); /* footprints of its kernels name its lines */
        unload(module);
    }
    return driver_leave(status);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- functions and variables ---- */

CUresult prepare_function(CUfunction function) {
    emu_error error;
    const emu_module *module = function->module->module;
    if (emu_decode(module, function->entry, &error)) return CUDA_SUCCESS;
    enum { SAID_OF_NAME = 120 }; /* names of templates have thousands of characters, and the reason follows */
    const char *name = emu_entry(module, function->entry)->name;
    driver_say("kernel %.*s%s is refused at PTX line %d: %s", SAID_OF_NAME, name,
               strlen(name) > SAID_OF_NAME ? "..." : "", error.line, error.text);
    return CUDA_ERROR_INVALID_PTX;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name) {
    if (!function || !module || !name) return CUDA_ERROR_INVALID_VALUE;
    const int entry = emu_find_entry(module->module, name);
    if (entry < 0) return CUDA_ERROR_NOT_FOUND;
    *function = &module->functions[entry];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = get_function(function, module, name);
    if (status == CUDA_SUCCESS) status = prepare_function(*function);
    return driver_leave(status);
}

CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(count && module)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *count = (unsigned)module->count;
    return driver_leave(status);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned count, CUmodule module) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(functions && module)) status = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; status == CUDA_SUCCESS && i < count; i++)
        functions[i] = (int)i < module->count ? &module->functions[i] : NULL;
    return driver_leave(status);
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    emu_variable variable;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(module && name)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !emu_find_variable(the_driver()->device, module->module, name, &variable))
        status = CUDA_ERROR_NOT_FOUND;
    if (status == CUDA_SUCCESS) {
        if (address) *address = variable.address;
        if (bytes) *bytes = variable.bytes;
    }
    return driver_leave(status);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    if (!module || !function) return CUDA_ERROR_INVALID_VALUE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
    if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
    *name = emu_entry(function->module->module, function->entry)->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
    if (!function || !offset) return CUDA_ERROR_INVALID_VALUE;
    const emu_entry_info *info = emu_entry(function->module->module, function->entry);
    if (index >= (size_t)info->params) return CUDA_ERROR_INVALID_VALUE;
    *offset = info->param_offsets[index];
    if (bytes) *bytes = info->param_sizes[index];
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamCount(CUfunction function, size_t *count) {
    if (!function || !count) return CUDA_ERROR_INVALID_VALUE;
    *count = (size_t)emu_entry(function->module->module, function->entry)->params;
    return CUDA_SUCCESS;
}

/* Lazily, as CUDA loads: a function that is refused says so when it is asked for. */
CUresult cuFuncIsLoaded(CUfunctionLoadingState *loading, CUfunction function) {
    if (!loading || !function) return CUDA_ERROR_INVALID_VALUE;
    *loading = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = function ? prepare_function(function) : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

/* ---- libraries ---- */

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned count,
                           CUlibraryOption *library_options, void **library_values, unsigned library_count) {
    (void)library_options;
    (void)library_values;
    (void)library_count;
    CUmodule module = NULL;
    CUresult status = library ? cuModuleLoadDataEx(&module, code, count, options, values) : CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *library = (CUlibrary)(void *)module;
    return status;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                               unsigned count, CUlibraryOption *library_options, void **library_values,
                               unsigned library_count) {
    size_t bytes;
    char *image = path ? read_file(path, &bytes) : NULL;
    if (!image) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult status =
        cuLibraryLoadData(library, image, options, values, count, library_options, library_values, library_count);
    free(image);
    return status;
}

CUresult cuLibraryUnload(CUlibrary library) {
    return cuModuleUnload(of_library(library));
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    if (!module || !library) return CUDA_ERROR_INVALID_VALUE;
    *module = of_library(library);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUfunction function = NULL;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !kernel) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = get_function(&function, of_library(library), name);
    if (status == CUDA_SUCCESS) *kernel = (CUkernel)(void *)function;
    return driver_leave(status);
}

CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
    return cuModuleGetFunctionCount(count, of_library(library));
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library) {
    return cuModuleEnumerateFunctions((CUfunction *)(void *)kernels, count, of_library(library));
}

CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    return cuModuleGetGlobal(address, bytes, of_library(library), name);
}

CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
    (void)address;
    (void)bytes;
    (void)library;
    (void)name;
    return CUDA_ERROR_NOT_FOUND; /* PTX with managed variables is refused when it is loaded */
}

static CUfunction of_kernel(CUkernel kernel) {
    return (CUfunction)(void *)kernel;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(function && kernel)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = prepare_function(of_kernel(kernel));
    if (status == CUDA_SUCCESS) *function = of_kernel(kernel);
    return driver_leave(status);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    if (!library || !kernel) return CUDA_ERROR_INVALID_VALUE;
    *library = (CUlibrary)(void *)of_kernel(kernel)->module;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    return cuFuncGetName(name, of_kernel(kernel));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *bytes) {
    return cuFuncGetParamInfo(of_kernel(kernel), index, offset, bytes);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) {
    return cuFuncGetParamCount(of_kernel(kernel), count);
}

/* ---- cuLink ---- */

struct CUlinkState_st {
    char *text;
    size_t bytes;
    unsigned count;
    CUjit_option *options; /* borrowed, as CUDA says */
    void **values;
};

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *link) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !link) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        *link = calloc(1, sizeof **link);
        if (*link) **link = (struct CUlinkState_st){.count = count, .options = options, .values = values};
        status = *link ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return driver_leave(status);
}

CUresult cuLinkAddData(CUlinkState link, CUjitInputType type, void *data, size_t bytes, const char *name,
                       unsigned count, CUjit_option *options, void **values) {
    (void)count;
    (void)options;
    (void)values;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(link && data)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY &&
        type != CU_JIT_INPUT_CUBIN) {
        driver_say(
            "%s cannot be linked: the emulator links PTX, fatbins and cubins that hold PTX, and this is input of "
            "type %d",
            name ? name : "the input", (int)type);
        status = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (status == CUDA_SUCCESS && type == CU_JIT_INPUT_CUBIN && (bytes < 4 || memcmp(data, "\177ELF", 4) != 0))
        status = CUDA_ERROR_INVALID_IMAGE;
    char *text = NULL;
    if (status == CUDA_SUCCESS && type == CU_JIT_INPUT_PTX) {
        text = strndup(data, bytes);
        if (!text) status = CUDA_ERROR_OUT_OF_MEMORY;
    } else if (status == CUDA_SUCCESS) {
        text = image_ptx(data, &status);
    }
    if (text && !image_join(&link->text, &link->bytes, text)) status = CUDA_ERROR_OUT_OF_MEMORY;
    return driver_leave(status);
}

CUresult cuLinkAddFile(CUlinkState link, CUjitInputType type, const char *path, unsigned count, CUjit_option *options,
                       void **values) {
    size_t bytes = 0;
    char *image = path ? read_file(path, &bytes) : NULL;
    if (!image) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult status = cuLinkAddData(link, type, image, bytes, path, count, options, values);
    free(image);
    return status;
}

CUresult cuLinkComplete(CUlinkState link, void **image, size_t *bytes) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(link && image && link->text)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        *image = link->text;
        if (bytes) *bytes = link->bytes + 1;
        fill_logs(link->count, link->options, link->values, "");
    }
    return driver_leave(status);
}

CUresult cuLinkDestroy(CUlinkState link) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !link) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        free(link->text);
        free(link);
    }
    return driver_leave(status);
}
