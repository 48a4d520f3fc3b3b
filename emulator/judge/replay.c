/* replay.c - the operations of a recording, by calls of the driver API. */
#include "replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_MEMORY (16ull << 30)
#define RESERVED (64ull << 20)
enum { MOST_MODULES = 1000, MOST_MEMORIES = 20000, MOST_SHARED = 1 << 20, LONGEST_NAME = 4096 };

/* ---- errors ---- */

bool replay_fail(replay *r, replay_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->error, sizeof r->error, format, arguments);
    va_end(arguments);
    r->status = status;
    return false;
}

bool replay_check(replay *r, CUresult result, const char *of) {
    const char *name = NULL;
    if (result == CUDA_SUCCESS) return true;
    if (r->cuda->cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "an unknown error";
    switch ((int)result) {
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_ASSERT:
        return replay_fail(r, REPLAY_STOPPED, "a kernel was stopped: %s at %s", name, of);
    case CUDA_ERROR_OUT_OF_MEMORY:
        return replay_fail(r, REPLAY_NO_MEMORY, "%s: %s", of, name);
    default:
        return replay_fail(r, REPLAY_REFUSED, "the driver refused %s: %s", of, name);
    }
}

static bool no_memory(replay *r) {
    return replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
}

/* ---- memory ---- */

memory *replay_find(replay *r, uint64_t address, uint64_t bytes) {
    for (size_t i = r->memory_count; i-- > 0;) {
        memory *m = &r->memories[i];
        if (m->live && address >= m->address && address - m->address <= m->bytes &&
            bytes <= m->bytes - (address - m->address))
            return m;
    }
    return NULL;
}

CUdeviceptr replay_address(const memory *m, uint64_t address) {
    return m->there + (address - m->address);
}

/* The same with a sentence where a record names other memory. */
static memory *expect_memory(replay *r, uint64_t address, uint64_t bytes, const char *of) {
    memory *found = replay_find(r, address, bytes);
    if (!found)
        replay_fail(r, REPLAY_MALFORMED, "%s of %" PRIu64 " bytes at 0x%" PRIx64 ", where no memory is", of, bytes,
                    address);
    return found;
}

bool replay_write(replay *r, uint64_t address, const void *data, uint64_t bytes) {
    const memory *m = expect_memory(r, address, bytes, "a write");
    return m && (!bytes || replay_check(r, r->cuda->cuMemcpyHtoD(replay_address(m, address), data, bytes), "a write"));
}

bool replay_read(replay *r, uint64_t address, void *data, uint64_t bytes) {
    const memory *m = expect_memory(r, address, bytes, "a read");
    return m && (!bytes || replay_check(r, r->cuda->cuMemcpyDtoH(data, replay_address(m, address), bytes), "a read"));
}

bool replay_poison(replay *r, const memory *m, uint64_t address, uint64_t bytes) {
    const CUdeviceptr there = replay_address(m, address);
    if (!bytes) return true;
    if (r->cuda->poison) return replay_check(r, r->cuda->poison(there, bytes, &r->poison, sizeof r->poison), "poison");
    const size_t words = (size_t)bytes / 4, rest = (size_t)bytes % 4;
    return (!words || replay_check(r, r->cuda->cuMemsetD2D32(there, 0, r->poison, words, 1), "poison")) &&
           (!rest || replay_check(r, r->cuda->cuMemcpyHtoD(there + 4 * words, &r->poison, rest), "poison"));
}

static memory *add_memory(replay *r, uint64_t address, uint64_t bytes, memory_kind kind) {
    memory *more = realloc(r->memories, (r->memory_count + 1) * sizeof *more);
    if (!more) {
        no_memory(r);
        return NULL;
    }
    r->memories = more;
    more[r->memory_count] = (memory){
        .address = address, .bytes = bytes, .kind = kind, .live = true, .in_call = r->in_call, .there = address};
    return &more[r->memory_count++];
}

/* Memory of the GPU at the address of the recording. An H200's driver (580) puts small reservations elsewhere, and
 * gives those of 64 MiB the address that is asked for. What is reserved and not mapped guards the memory. Pinned and
 * managed memory is memory of the GPU, too: no host is there that would look at it. */
static CUresult allocate_at(const driver_api *cuda, memory *m) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t page = 1;
    CUresult result = cuda->cuMemGetAllocationGranularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    m->mapped = (m->bytes + page - 1) / page * page;
    m->reserved = (m->mapped + RESERVED - 1) / RESERVED * RESERVED;
    if (result == CUDA_SUCCESS) result = cuda->cuMemAddressReserve(&m->there, m->reserved, 0, m->address, 0);
    if (result == CUDA_SUCCESS) result = cuda->cuMemCreate(&m->handle, m->mapped, &properties, 0);
    if (result == CUDA_SUCCESS) result = cuda->cuMemMap(m->there, m->mapped, 0, m->handle, 0);
    return result == CUDA_SUCCESS ? cuda->cuMemSetAccess(m->there, m->mapped, &access, 1) : result;
}

static CUresult release_at(const driver_api *cuda, memory *m) {
    CUresult result = cuda->cuMemUnmap(m->there, m->mapped);
    if (result == CUDA_SUCCESS) result = cuda->cuMemRelease(m->handle);
    return result == CUDA_SUCCESS ? cuda->cuMemAddressFree(m->there, m->reserved) : result;
}

/* Memory of a kind. The emulator chooses the address, which is that of the recording if all went as it did there. */
static CUresult allocate(const driver_api *cuda, memory *m) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!cuda->poison) return allocate_at(cuda, m);
    switch (m->kind) {
    case MEMORY_DEVICE:
        return cuda->cuMemAlloc(&m->there, m->bytes);
    case MEMORY_MANAGED:
        return cuda->cuMemAllocManaged(&m->there, m->bytes, CU_MEM_ATTACH_GLOBAL);
    case MEMORY_PINNED:
        result = cuda->cuMemHostAlloc(&m->host, m->bytes, CU_MEMHOSTALLOC_DEVICEMAP);
        break;
    case MEMORY_REGISTERED:
        m->host = malloc(m->bytes);
        result = m->host ? cuda->cuMemHostRegister(m->host, m->bytes, CU_MEMHOSTREGISTER_DEVICEMAP)
                         : CUDA_ERROR_OUT_OF_MEMORY;
        break;
    case MEMORY_VARIABLE:
        break;
    }
    return result == CUDA_SUCCESS ? cuda->cuMemHostGetDevicePointer(&m->there, m->host, 0) : result;
}

static CUresult release(const driver_api *cuda, memory *m) {
    if (!cuda->poison) return release_at(cuda, m);
    switch (m->kind) {
    case MEMORY_DEVICE:
    case MEMORY_MANAGED:
        return cuda->cuMemFree(m->there);
    case MEMORY_PINNED:
        return cuda->cuMemFreeHost(m->host);
    case MEMORY_REGISTERED: {
        const CUresult result = cuda->cuMemHostUnregister(m->host);
        free(m->host);
        return result;
    }
    case MEMORY_VARIABLE:
        break;
    }
    return CUDA_SUCCESS;
}

/* A call that runs again has its buffers already. */
static memory *kept_memory(replay *r, uint64_t address, uint64_t bytes) {
    for (size_t i = 0; i < r->memory_count && r->keeps; i++) {
        memory *m = &r->memories[i];
        if (m->in_call && m->address == address && m->bytes == bytes && m->kind != MEMORY_VARIABLE) return m;
    }
    return NULL;
}

static bool run_alloc(replay *r, const record *at) {
    const uint64_t address = at->numbers[0], bytes = at->numbers[1], kind = at->numbers[2];
    memory *m = kept_memory(r, address, bytes);
    if (m) return r->is_timed || replay_poison(r, m, address, bytes);
    if (kind < MEMORY_DEVICE || kind > MEMORY_REGISTERED || !bytes || bytes > MOST_MEMORY - r->allocated ||
        r->memory_count == MOST_MEMORIES || address > UINT64_MAX - bytes)
        return replay_fail(r, REPLAY_MALFORMED, "an allocation of %" PRIu64 " bytes of kind %" PRIu64, bytes, kind);
    m = add_memory(r, address, bytes, (memory_kind)kind);
    if (!m) return false;
    const CUresult result = allocate(r->cuda, m);
    m->live = result == CUDA_SUCCESS;
    if (!replay_check(r, result, "an allocation")) return false;
    r->allocated += bytes;
    if (m->there != address)
        return replay_fail(r, REPLAY_REFUSED,
                           "an allocation is at 0x%" PRIx64 " and was at 0x%" PRIx64 " when it was recorded",
                           (uint64_t)m->there, address);
    return replay_poison(r, m, address, bytes);
}

/* Note bytes of memory that the call read before anything wrote them. */
static bool note_unset(replay *r, const memory *m) {
    uint8_t *how = r->cuda->touched ? malloc(m->bytes) : NULL;
    if (!r->cuda->touched) return true;
    if (!how) return no_memory(r);
    observation seen = {.of = *m};
    bool done = replay_check(r, r->cuda->touched(how, replay_address(m, m->address), m->bytes), "a look at memory");
    for (uint64_t i = 0; done && i < m->bytes; i++)
        if (how[i] == 2 && !seen.bytes++) seen.first = i;
    free(how);
    observation *more = done && seen.bytes ? realloc(r->unset, (r->unset_count + 1) * sizeof *more) : NULL;
    if (!done || !seen.bytes) return done;
    if (!more) return no_memory(r);
    r->unset = more;
    more[r->unset_count++] = seen;
    return true;
}

static bool run_free(replay *r, const record *at) {
    memory *m = replay_find(r, at->numbers[0], 1);
    if (!m || m->address != at->numbers[0] || m->kind == MEMORY_VARIABLE)
        return replay_fail(r, REPLAY_MALFORMED, "memory at 0x%" PRIx64 " is freed that is not there", at->numbers[0]);
    if (r->keeps && r->in_call) return true;
    if (m->in_call && r->in_call && !note_unset(r, m)) return false;
    m->live = false;
    r->allocated -= m->bytes;
    return replay_check(r, release(r->cuda, m), "a release");
}

/* ---- copies ---- */

static bool run_copy(replay *r, const record *at) {
    const memory *to = expect_memory(r, at->numbers[0], at->numbers[2], "a copy");
    const memory *from = to ? expect_memory(r, at->numbers[1], at->numbers[2], "a copy") : NULL;
    if (!from || !at->numbers[2]) return from != NULL;
    const CUdeviceptr target = replay_address(to, at->numbers[0]), source = replay_address(from, at->numbers[1]);
    return replay_check(r, r->cuda->cuMemcpyDtoDAsync(target, source, at->numbers[2], r->stream), "a copy");
}

static bool run_set(replay *r, const record *at) {
    const uint64_t address = at->numbers[0], element = at->numbers[3], width = at->numbers[4], height = at->numbers[5];
    const uint64_t pitch = height > 1 ? at->numbers[1] : width * element;
    if ((element != 1 && element != 2 && element != 4) || !width || !height || width > MOST_MEMORY ||
        height > MOST_MEMORY || pitch > MOST_MEMORY || (height - 1) > MOST_MEMORY / (pitch + 1) || address % element ||
        pitch < width * element)
        return replay_fail(r, REPLAY_MALFORMED, "a memset of %" PRIu64 " x %" PRIu64 " elements", width, height);
    const memory *m = expect_memory(r, address, (height - 1) * pitch + width * element, "a memset");
    if (!m) return false;
    const CUdeviceptr there = replay_address(m, address);
    const unsigned value = (unsigned)at->numbers[2];
    const driver_api *cuda = r->cuda;
    const CUresult result =
        element == 1   ? cuda->cuMemsetD2D8Async(there, pitch, (uint8_t)value, width, height, r->stream)
        : element == 2 ? cuda->cuMemsetD2D16Async(there, pitch, (uint16_t)value, width, height, r->stream)
                       : cuda->cuMemsetD2D32Async(there, pitch, value, width, height, r->stream);
    return replay_check(r, result, "a memset");
}

/* ---- modules ---- */

static loaded_module *find_module(const replay *r, uint64_t id) {
    for (size_t i = 0; i < r->module_count; i++)
        if (r->modules[i].id == id && r->modules[i].module) return &r->modules[i];
    return NULL;
}

static const void *cubin_of(const replay *r, uint64_t id) {
    for (size_t i = 0; i < r->cubin_count; i++)
        if (r->cubins[i].id == id) return r->cubins[i].data;
    return NULL;
}

static bool run_module(replay *r, const record *at) {
    if (r->keeps && find_module(r, at->numbers[0])) return true;
    if (r->module_count == MOST_MODULES || find_module(r, at->numbers[0]))
        return replay_fail(r, REPLAY_MALFORMED, "module %" PRIu64 " is one too many", at->numbers[0]);
    loaded_module *more = realloc(r->modules, (r->module_count + 1) * sizeof *more);
    char *text = more ? malloc(at->bytes + 1) : NULL;
    if (more) r->modules = more;
    if (!text) return no_memory(r);
    memcpy(text, at->data, at->bytes);
    text[at->bytes] = 0;
    CUmodule module = NULL;
    const void *cubin = cubin_of(r, at->numbers[0]);
    const bool is_ptx = strlen(text) == at->bytes && strstr(text, ".version");
    const CUresult result = cubin    ? r->cuda->cuModuleLoadDataEx(&module, cubin, 0, NULL, NULL)
                            : is_ptx ? r->cuda->cuModuleLoadDataEx(&module, text, 0, NULL, NULL)
                                     : CUDA_ERROR_INVALID_PTX;
    free(text);
    if (!replay_check(r, result, "a module")) return false;
    r->modules[r->module_count++] = (loaded_module){at->numbers[0], module};
    return true;
}

static bool run_variable(replay *r, const record *at) {
    const loaded_module *of = find_module(r, at->numbers[0]);
    char name[LONGEST_NAME];
    if (!of || !record_text(at, 0, name, sizeof name) || r->memory_count == MOST_MEMORIES)
        return replay_fail(r, REPLAY_MALFORMED, "a variable of module %" PRIu64, at->numbers[0]);
    CUdeviceptr there = 0;
    size_t bytes = 0;
    if (r->cuda->cuModuleGetGlobal(&there, &bytes, of->module, name) != CUDA_SUCCESS || !bytes) return true;
    const bool moved = r->cuda->poison && there != at->numbers[1];
    if (bytes != at->numbers[2] || moved)
        return replay_fail(r, REPLAY_MALFORMED, "a variable of module %" PRIu64 " is another one", at->numbers[0]);
    const memory *known = replay_find(r, at->numbers[1], bytes);
    if (known && known->kind == MEMORY_VARIABLE) return true;
    memory *m = add_memory(r, at->numbers[1], bytes, MEMORY_VARIABLE);
    if (!m) return false;
    m->there = there;
    m->module = at->numbers[0];
    m->name = strdup(name);
    m->in_call = false; /* it has a value from the beginning */
    return m->name || no_memory(r);
}

static bool run_unload(replay *r, const record *at) {
    loaded_module *of = find_module(r, at->numbers[0]);
    if (!of) return replay_fail(r, REPLAY_MALFORMED, "module %" PRIu64 " is not loaded", at->numbers[0]);
    if (r->keeps && r->in_call) return true;
    for (size_t i = 0; i < r->memory_count; i++)
        if (r->memories[i].kind == MEMORY_VARIABLE && r->memories[i].module == of->id) r->memories[i].live = false;
    const CUmodule module = of->module;
    of->module = NULL;
    return replay_check(r, r->cuda->cuModuleUnload(module), "the end of a module");
}

/* ---- launches ---- */

static unsigned unsigned_of(uint64_t number) {
    return number > UINT32_MAX ? 0 : (unsigned)number;
}

/* The configuration of a launch, with up to two attributes. */
static CUlaunchConfig configuration(const replay *r, const record *at, CUlaunchAttribute attributes[2]) {
    const uint64_t *n = at->numbers;
    CUlaunchConfig config = {.gridDimX = unsigned_of(n[1]),
                             .gridDimY = unsigned_of(n[2]),
                             .gridDimZ = unsigned_of(n[3]),
                             .blockDimX = unsigned_of(n[4]),
                             .blockDimY = unsigned_of(n[5]),
                             .blockDimZ = unsigned_of(n[6]),
                             .sharedMemBytes = unsigned_of(n[10]),
                             .hStream = r->stream,
                             .attrs = attributes};
    if (n[7] || n[8] || n[9]) {
        CUlaunchAttribute *cluster = &attributes[config.numAttrs++];
        *cluster = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
        cluster->value.clusterDim.x = unsigned_of(n[7]);
        cluster->value.clusterDim.y = unsigned_of(n[8]);
        cluster->value.clusterDim.z = unsigned_of(n[9]);
    }
    if (n[11] && !r->is_timed) { /* a sample does not overlap what came before it */
        CUlaunchAttribute *overlap = &attributes[config.numAttrs++];
        *overlap = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
        overlap->value.programmaticStreamSerializationAllowed = 1;
    }
    return config;
}

static bool note_launch(replay *r, const record *at) {
    const record **more = realloc(r->launched, (r->launches + 1) * sizeof *more);
    if (!more) return no_memory(r);
    r->launched = more;
    more[r->launches++] = at;
    return true;
}

static bool run_launch(replay *r, const record *at) {
    enum { WITHOUT_ASKING = 48 << 10 };
    const loaded_module *of = find_module(r, at->numbers[0]);
    char name[LONGEST_NAME];
    if (!of || at->numbers[10] > MOST_SHARED || !record_text(at, (size_t)at->numbers[12], name, sizeof name))
        return replay_fail(r, REPLAY_MALFORMED, "a launch of module %" PRIu64 " is malformed", at->numbers[0]);
    CUfunction function = NULL;
    if (!replay_check(r, r->cuda->cuModuleGetFunction(&function, of->module, name), "a kernel by its name"))
        return false;
    CUlaunchAttribute attributes[2];
    const CUlaunchConfig config = configuration(r, at, attributes);
    if (config.sharedMemBytes > WITHOUT_ASKING &&
        !replay_check(r,
                      r->cuda->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                  (int)config.sharedMemBytes),
                      "the shared memory of a launch"))
        return false;
    size_t bytes = (size_t)at->numbers[12];
    uint8_t *parameters = malloc(bytes + 1);
    if (!parameters || !note_launch(r, at)) {
        free(parameters);
        return no_memory(r);
    }
    memcpy(parameters, at->data, bytes);
    relocate(r, parameters, bytes);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, parameters, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    void **places = NULL;
    const bool apart = relocate_parameters(r, at, name, function, parameters, &places);
    const CUresult result = r->cuda->cuLaunchKernelEx(&config, function, apart ? places : NULL, apart ? NULL : extra);
    if (apart) free(places);
    free(parameters);
    return replay_check(r, result, "a launch");
}

/* ---- all ---- */

static bool run_host(replay *r, const record *at) {
    (void)at;
    r->host_functions++;
    return true;
}

static bool run_read(replay *r, const record *at) {
    r->host_reads += at->numbers[1] < MOST_MEMORY ? at->numbers[1] : MOST_MEMORY;
    return true;
}

/* The write of a timed call: its bytes are on the device already. */
static bool run_staged_write(replay *r, const record *at) {
    const memory *m = expect_memory(r, at->numbers[0], at->bytes, "a write");
    if (!m || !at->bytes) return m != NULL;
    const CUdeviceptr from = r->staged[at - (r->recorded->records + r->recorded->call)];
    return replay_check(r, r->cuda->cuMemcpyDtoDAsync(replay_address(m, at->numbers[0]), from, at->bytes, r->stream),
                        "a write");
}

static bool run_write(replay *r, const record *at) {
    if (r->is_timed) return run_staged_write(r, at);
    uint8_t *data = malloc(at->bytes + 1);
    if (!data) return no_memory(r);
    memcpy(data, at->data, at->bytes);
    relocate(r, data, at->bytes);
    const bool done = replay_write(r, at->numbers[0], data, at->bytes);
    free(data);
    return done;
}

/* The operations run one after another on one stream, which is what the emulator did when they were recorded. So
 * streams and events need nothing; marks, races and refusals are for others. */
static bool (*const RUN[RECORD_KINDS])(replay *, const record *) = {
    [RECORD_ALLOC] = run_alloc,   [RECORD_FREE] = run_free,         [RECORD_MODULE] = run_module,
    [RECORD_UNLOAD] = run_unload, [RECORD_VARIABLE] = run_variable, [RECORD_WRITE] = run_write,
    [RECORD_COPY] = run_copy,     [RECORD_READ] = run_read,         [RECORD_SET] = run_set,
    [RECORD_LAUNCH] = run_launch, [RECORD_HOST] = run_host,         [RECORD_TENSOR_MAP] = relocate_tensor_map,
};

static bool queue(replay *r, size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        const record *at = &r->recorded->records[i];
        if (RUN[at->kind] && !RUN[at->kind](r, at)) return false;
    }
    return true;
}

static bool run(replay *r, size_t first, size_t end) {
    return queue(r, first, end) && replay_check(r, r->cuda->cuCtxSynchronize(), "the end");
}

bool replay_setup(replay *r) {
    return run(r, 0, r->recorded->call);
}

bool replay_call(replay *r) {
    r->launches = r->host_functions = r->host_reads = 0;
    r->unset_count = 0;
    r->in_call = true;
    if (!run(r, r->recorded->call, r->recorded->end)) return false;
    for (size_t i = 0; i < r->memory_count; i++) {
        const memory *m = &r->memories[i];
        if (m->live && m->in_call && !note_unset(r, m)) return false;
    }
    return true;
}

/* Put the bytes of a write of the call onto the device. */
static bool stage(replay *r, const record *at, CUdeviceptr *there) {
    uint8_t *data = malloc(at->bytes);
    if (!data) return no_memory(r);
    memcpy(data, at->data, at->bytes);
    relocate(r, data, at->bytes);
    const bool done = replay_check(r, r->cuda->cuMemAlloc(there, at->bytes), "memory of a write") &&
                      replay_check(r, r->cuda->cuMemcpyHtoD(*there, data, at->bytes), "a write");
    free(data);
    return done;
}

bool replay_prepare_again(replay *r) {
    const recording *recorded = r->recorded;
    r->staged = calloc(recorded->end - recorded->call + 1, sizeof *r->staged);
    if (!r->staged) return no_memory(r);
    for (size_t i = recorded->call; i < recorded->end; i++) {
        const record *at = &recorded->records[i];
        if (at->kind == RECORD_WRITE && at->bytes && !stage(r, at, &r->staged[i - recorded->call])) return false;
    }
    r->is_timed = true;
    return replay_check(r, r->cuda->cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING), "a stream");
}

bool replay_again(replay *r) {
    r->launches = r->host_functions = r->host_reads = 0;
    return queue(r, r->recorded->call, r->recorded->end);
}

bool replay_start(replay *r, const recording *recorded, const driver_api *cuda, uint32_t poison) {
    CUcontext context = NULL;
    CUdevice device = 0;
    *r = (replay){.recorded = recorded, .cuda = cuda, .poison = poison};
    return replay_check(r, cuda->cuInit(0), "cuInit") && replay_check(r, cuda->cuDeviceGet(&device, 0), "a device") &&
           replay_check(r, cuda->cuDeviceGetName(r->device, sizeof r->device, device), "a device") &&
           replay_check(r, cuda->cuDevicePrimaryCtxRetain(&context, device), "a context") &&
           replay_check(r, cuda->cuCtxSetCurrent(context), "a context");
}

void replay_free(replay *r) {
    for (size_t i = 0; i < r->memory_count; i++) {
        free(r->memories[i].before);
        free(r->memories[i].name);
    }
    free(r->memories);
    free(r->modules);
    free(r->staged);
    free(r->maps);
    free(r->launched);
    free(r->unset);
    *r = (replay){0};
}
