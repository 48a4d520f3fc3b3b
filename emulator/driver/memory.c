/* memory.c - memory: of the device, of the host that the device sees, and of both; pools, copies, what a pointer is.
 *
 * Every allocation is a buffer of the emulator, whose number is in its address. Pinned and managed memory is at a
 * host address that is the device's too; registered memory stays where it is and gets an address of its own.
 */
#include "driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef enum allocation_kind { NONE, DEVICE, PINNED, MANAGED, REGISTERED } allocation_kind;

typedef struct allocation {
    allocation_kind kind;
    CUdeviceptr address;
    size_t bytes;
    uint8_t *host; /* NULL of device memory */
    unsigned flags;
    unsigned long long id;
    uint64_t recorded; /* sum of the bytes that a recording has, of memory that the host shares */
    CUmemoryPool pool; /* NULL where it is of none */
} allocation;

struct CUmemPoolHandle_st {
    cuuint64_t threshold;
    cuuint64_t used, most; /* bytes now, and at most since a program set it to 0 */
    CUmemoryPool next;
};

enum { NUMBERS = 65537, ADDRESS_SHIFT = 36, FIRST_SHARED = 256, END_SHARED = 1280 };

static allocation allocations[NUMBERS];
static unsigned long long last_id;
static struct CUmemPoolHandle_st default_pool;
static CUmemoryPool pools, current_pool = &default_pool; /* those of cuMemPoolCreate(); the device's */

static allocation *find(CUdeviceptr address) {
    const uint64_t number = address >> ADDRESS_SHIFT;
    allocation *a = number < NUMBERS ? &allocations[number] : NULL;
    return a && a->kind != NONE && address >= a->address && address - a->address < a->bytes ? a : NULL;
}

/* Device address of a host pointer; they are equal except for registered memory. */
static allocation *find_host(const void *host) {
    allocation *a = find((CUdeviceptr)(uintptr_t)host);
    for (int i = 0; !a && i < NUMBERS; i++) {
        allocation *each = &allocations[i];
        if (each->kind == REGISTERED && (uintptr_t)host - (uintptr_t)each->host < each->bytes) a = each;
    }
    return a;
}

void *device_bytes(CUdeviceptr address, size_t bytes) {
    emu_device *device = the_driver()->device;
    uint8_t *first = emu_host_bytes(device, address);
    const uint8_t *last = bytes ? emu_host_bytes(device, address + bytes - 1) : first;
    return first && last && (!bytes || last == first + bytes - 1) ? first : NULL;
}

void *any_bytes(CUdeviceptr address, size_t bytes) {
    void *found = device_bytes(address, bytes);
    if (found || emu_host_bytes(the_driver()->device, address) || address >> 47 || address < 4096) return found;
    return (void *)(uintptr_t)address;
}

uint64_t device_address(uint64_t address, size_t bytes) {
    if (device_bytes(address, bytes)) return address;
    const allocation *a = find_host((const void *)(uintptr_t)address);
    return a && a->host ? a->address + (address - (uintptr_t)a->host) : 0;
}

/* ---- memory that the host shares with the device, for recordings ---- */

static uint64_t sum_of(const uint8_t *bytes, size_t count) {
    uint64_t sum = 14695981039346656037ull;
    for (size_t i = 0; i < count; i++) sum = (sum ^ bytes[i]) * 1099511628211ull;
    return sum;
}

/* Put the sums in order again; writes: record what has changed since. */
static void compare_shared(bool writes) {
    for (int i = 0; i < NUMBERS && is_recording(); i++) {
        allocation *a = &allocations[i];
        if (a->kind == NONE || a->kind == DEVICE) continue;
        const uint64_t sum = sum_of(a->host, a->bytes);
        if (writes && sum != a->recorded) record_write(a->address, a->host, a->bytes);
        a->recorded = sum;
    }
}

void record_shared_changes(void) {
    compare_shared(true);
}

void forget_shared_changes(void) {
    compare_shared(false);
}

bool is_uninitialized_whole(CUdeviceptr address, size_t bytes) {
    const allocation *a = find(address);
    return a && a->kind == DEVICE && a->address == address && a->bytes == bytes;
}

/* ---- allocations ---- */

static CUresult check_size(size_t bytes) {
    if (the_driver()->failure) return the_driver()->failure;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (bytes <= DEVICE_MEMORY - the_driver()->used) return CUDA_SUCCESS;
    driver_say("%zu bytes of memory were asked for: the emulated GPU has %" PRIu64 ", of which %" PRIu64 " are free",
               bytes, (uint64_t)DEVICE_MEMORY, (uint64_t)(DEVICE_MEMORY - the_driver()->used));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void note_allocation(allocation_kind kind, CUdeviceptr address, size_t bytes, uint8_t *host, unsigned flags) {
    allocations[address >> ADDRESS_SHIFT] = (allocation){kind, address, bytes, host, flags, ++last_id, 0, NULL};
    if (kind == DEVICE) the_driver()->used += bytes;
    record_allocation(address, bytes, kind);
}

CUresult allocate_memory(CUdeviceptr *address, size_t bytes) {
    CUresult status = address ? check_size(bytes) : CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return status;
    *address = emu_alloc(the_driver()->device, "cuMemAlloc", bytes, EMU_BUFFER);
    if (!*address || !emu_mark_uninitialized(the_driver()->device, *address)) return CUDA_ERROR_OUT_OF_MEMORY;
    note_allocation(DEVICE, *address, bytes, NULL, 0);
    return CUDA_SUCCESS;
}

/* Memory at an address that host and device can share; NULL where there is none. */
static uint8_t *share(size_t bytes) {
    static int last = FIRST_SHARED;
    for (int i = 0; i < END_SHARED - FIRST_SHARED; i++) {
        last = last + 1 < END_SHARED ? last + 1 : FIRST_SHARED;
        const uintptr_t wanted = ((uintptr_t)last << ADDRESS_SHIFT) + (1ull << 28);
        if (allocations[last].kind != NONE) continue;
        void *got = mmap((void *)wanted, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if ((uintptr_t)got == wanted) return got;
        if (got != MAP_FAILED) munmap(got, bytes);
    }
    return NULL;
}

static CUresult allocate_shared(allocation_kind kind, uint8_t **host, size_t bytes, unsigned flags) {
    CUresult status = host ? check_size(bytes) : CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return status;
    uint8_t *shared = share(bytes);
    const char *name = kind == MANAGED ? "cuMemAllocManaged" : "cuMemHostAlloc";
    const uint64_t address = shared ? emu_map(the_driver()->device, name, shared, bytes) : 0;
    if (!address) {
        if (shared) munmap(shared, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    note_allocation(kind, address, bytes, shared, flags);
    *host = shared;
    return CUDA_SUCCESS;
}

static CUresult release(allocation *a) {
    overlap_host_waits_for_all();
    if (!emu_free(the_driver()->device, a->address)) return CUDA_ERROR_INVALID_VALUE;
    record_release(a->address);
    if (a->kind == PINNED || a->kind == MANAGED) munmap(a->host, a->bytes);
    if (a->kind == DEVICE) the_driver()->used -= a->bytes;
    if (a->pool) a->pool->used -= a->bytes;
    *a = (allocation){0};
    return CUDA_SUCCESS;
}

CUresult release_memory(CUdeviceptr address) {
    if (!address) return CUDA_SUCCESS;
    allocation *a = find(address);
    const bool whole = a && a->address == address && (a->kind == DEVICE || a->kind == MANAGED);
    return whole ? release(a) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? allocate_memory(address, bytes) : status);
}

CUresult cuMemAllocPitch(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    enum { PITCH = 512 };
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!pitch || (element != 4 && element != 8 && element != 16)))
        status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        *pitch = (width + PITCH - 1) / PITCH * PITCH;
        status = height && *pitch > DEVICE_MEMORY / height ? CUDA_ERROR_OUT_OF_MEMORY
                                                           : allocate_memory(address, *pitch * height);
    }
    return driver_leave(status);
}

CUresult cuMemFree(CUdeviceptr address) {
    CUresult status = driver_enter_work();
    return driver_leave(status == CUDA_SUCCESS ? release_memory(address) : status);
}

static bool exists(CUmemoryPool pool) {
    for (CUmemoryPool each = pools; each; each = each->next)
        if (each == pool) return true;
    return pool == &default_pool;
}

/* Memory begins or ends in the order of a stream: as a write. */
static void note_in_order(CUstream stream, CUdeviceptr address, size_t bytes, const char *name) {
    if (stream->captured) return;
    emu_footprint *f = emu_footprint_new(name);
    if (f) emu_footprint_add(f, address, bytes, true);
    overlap_enter(stream);
    overlap_note(f, name);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUresult status = driver_enter();
    stream = find_stream(stream);
    if (status == CUDA_SUCCESS && !stream) status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS && !exists(pool)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = allocate_memory(address, bytes);
    if (status == CUDA_SUCCESS) {
        find(*address)->pool = pool;
        pool->used += bytes;
        if (pool->used > pool->most) pool->most = pool->used;
        note_in_order(stream, *address, bytes, "cuMemAllocAsync");
    }
    return driver_leave(status);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    return cuMemAllocFromPoolAsync(address, bytes, current_pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    CUresult status = driver_enter_work();
    stream = find_stream(stream);
    if (status == CUDA_SUCCESS && !stream) status = CUDA_ERROR_INVALID_HANDLE;
    const allocation *a = status == CUDA_SUCCESS ? find(address) : NULL;
    if (a) note_in_order(stream, a->address, a->bytes, "cuMemFreeAsync");
    return driver_leave(status == CUDA_SUCCESS ? release_memory(address) : status);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    CUresult status = driver_enter();
    uint8_t *host = NULL;
    if (status == CUDA_SUCCESS && !address) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = allocate_shared(MANAGED, &host, bytes, flags);
    if (status == CUDA_SUCCESS) *address = (CUdeviceptr)(uintptr_t)host;
    return driver_leave(status);
}

CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
    CUresult status = driver_enter();
    uint8_t *shared = NULL;
    if (status == CUDA_SUCCESS && !host) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = allocate_shared(PINNED, &shared, bytes, flags | CU_MEMHOSTALLOC_DEVICEMAP);
    if (status == CUDA_SUCCESS) *host = shared;
    return driver_leave(status);
}

CUresult cuMemAllocHost(void **host, size_t bytes) {
    return cuMemHostAlloc(host, bytes, 0);
}

CUresult cuMemFreeHost(void *host) {
    CUresult status = driver_enter();
    allocation *a = status == CUDA_SUCCESS ? find((CUdeviceptr)(uintptr_t)host) : NULL;
    if (status == CUDA_SUCCESS)
        status = a && a->kind == PINNED && a->host == host ? release(a) : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

CUresult cuMemHostRegister(void *host, size_t bytes, unsigned flags) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!host || !bytes)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && find_host(host)) status = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (status == CUDA_SUCCESS) {
        const uint64_t address = emu_map(the_driver()->device, "cuMemHostRegister", host, bytes);
        if (address)
            note_allocation(REGISTERED, address, bytes, host, flags);
        else
            status = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return driver_leave(status);
}

CUresult cuMemHostUnregister(void *host) {
    CUresult status = driver_enter();
    allocation *a = status == CUDA_SUCCESS ? find_host(host) : NULL;
    if (status == CUDA_SUCCESS)
        status = a && a->kind == REGISTERED && a->host == host ? release(a) : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    return driver_leave(status);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned flags) {
    CUresult status = driver_enter();
    const allocation *a = status == CUDA_SUCCESS ? find_host(host) : NULL;
    if (status == CUDA_SUCCESS && (!address || flags || !a || !a->host)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *address = a->address + (CUdeviceptr)((uint8_t *)host - a->host);
    return driver_leave(status);
}

CUresult cuMemHostGetFlags(unsigned *flags, void *host) {
    CUresult status = driver_enter();
    const allocation *a = status == CUDA_SUCCESS ? find_host(host) : NULL;
    if (status == CUDA_SUCCESS && (!flags || !a || a->kind != PINNED)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) *flags = a->flags;
    return driver_leave(status);
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(free_bytes && total)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        *total = DEVICE_MEMORY;
        *free_bytes = DEVICE_MEMORY - the_driver()->used;
    }
    return driver_leave(status);
}

/* The location of managed memory makes no difference here. */
CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
    (void)advice;
    (void)location;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !any_bytes(address, bytes)) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
                               CUstream stream) {
    (void)flags;
    (void)stream;
    return cuMemAdvise_v2(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location);
}

/* ---- pools: they count what is allocated from them, and keep nothing that was freed ---- */

static CUresult give_pool(CUmemoryPool *pool, CUdevice device, CUmemoryPool which) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !pool) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS) *pool = which;
    return driver_leave(status);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    return give_pool(pool, device, &default_pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    return give_pool(pool, device, current_pool);
}

/* The device of a location; pools of the host are not supported. */
static CUdevice device_of(const CUmemLocation *location) {
    return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : CU_DEVICE_INVALID;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return type == CU_MEM_ALLOCATION_TYPE_PINNED ? cuDeviceGetDefaultMemPool(pool, device_of(location))
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type) {
    return type == CU_MEM_ALLOCATION_TYPE_PINNED ? cuDeviceGetMemPool(pool, device_of(location))
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

/* A call about a pool, with what it reads or writes. */
static CUresult enter_pool(CUmemoryPool pool, const void *other) {
    CUresult status = driver_enter();
    return status == CUDA_SUCCESS && !(other && exists(pool)) ? CUDA_ERROR_INVALID_VALUE : status;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    CUresult status = enter_pool(pool, &pool);
    if (status == CUDA_SUCCESS) status = check_device(device);
    if (status == CUDA_SUCCESS) current_pool = pool;
    return driver_leave(status);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    return type == CU_MEM_ALLOCATION_TYPE_PINNED ? cuDeviceSetMemPool(device_of(location), pool)
                                                 : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(pool && properties)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && (properties->handleTypes || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)) {
        driver_say("a memory pool for other processes, or of memory that is not pinned, is not supported");
        status = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (status == CUDA_SUCCESS) status = check_device(device_of(&properties->location));
    if (status != CUDA_SUCCESS) return driver_leave(status);
    CUmemoryPool made = calloc(1, sizeof *made);
    if (!made) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
    made->next = pools;
    *pool = pools = made;
    return driver_leave(status);
}

/* Memory that is allocated from it stays until it is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUresult status = enter_pool(pool, &pool);
    if (status == CUDA_SUCCESS && pool == &default_pool) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    CUmemoryPool *at = &pools;
    while (*at != pool) at = &(*at)->next;
    *at = pool->next;
    for (int i = 0; i < NUMBERS; i++)
        if (allocations[i].pool == pool) allocations[i].pool = NULL;
    if (current_pool == pool) current_pool = &default_pool;
    free(pool);
    return driver_leave(status);
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    (void)keep;
    return driver_leave(enter_pool(pool, &pool));
}

/* There is one device, which may read and write all pools. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    CUresult status = enter_pool(pool, access);
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++) status = check_device(device_of(&access[i].location));
    return driver_leave(status);
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *access, CUmemoryPool pool, CUmemLocation *location) {
    CUresult status = enter_pool(pool, access);
    if (status == CUDA_SUCCESS) status = check_device(device_of(location));
    if (status == CUDA_SUCCESS) *access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver_leave(status);
}

/* Address of a pool's attribute; NULL for those that control reuse of memory, which change nothing here. */
static cuuint64_t *pool_number(CUmemoryPool pool, CUmemPool_attribute attribute) {
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->most;
    default:
        return NULL;
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult status = enter_pool(pool, value);
    cuuint64_t *number = status == CUDA_SUCCESS ? pool_number(pool, attribute) : NULL;
    if (number == &pool->used) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && number) memcpy(number, value, sizeof *number);
    if (number == &pool->most) pool->most = pool->used; /* a program can only set it back */
    return driver_leave(status);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    CUresult status = enter_pool(pool, value);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    const cuuint64_t *number = pool_number(pool, attribute);
    if (number)
        memcpy(value, number, sizeof *number);
    else
        memset(value, 0, sizeof(int));
    return driver_leave(status);
}

/* ---- copies ---- */

static operation copy_rows(CUmemorytype to, uint64_t target, CUmemorytype from, uint64_t source, size_t bytes) {
    operation o = {.kind = DO_COPY};
    o.copy = (CUDA_MEMCPY3D){.srcMemoryType = from,
                             .srcHost = from == CU_MEMORYTYPE_HOST ? (const void *)(uintptr_t)source : NULL,
                             .srcDevice = from == CU_MEMORYTYPE_HOST ? 0 : source,
                             .dstMemoryType = to,
                             .dstHost = to == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)target : NULL,
                             .dstDevice = to == CU_MEMORYTYPE_HOST ? 0 : target,
                             .WidthInBytes = bytes,
                             .Height = 1,
                             .Depth = 1};
    return o;
}

static bool is_on_device(CUmemorytype type, CUdeviceptr address) {
    const allocation *a = type == CU_MEMORYTYPE_HOST ? NULL : find(address);
    return a && a->kind == DEVICE;
}

/* The host waits, except for a copy within the device. */
static CUresult run_now(operation o) {
    CUresult status = driver_enter_work();
    if (status == CUDA_SUCCESS) status = run_on_stream(find_stream(CU_STREAM_LEGACY), &o);
    if (status == CUDA_SUCCESS &&
        !(is_on_device(o.copy.srcMemoryType, o.copy.srcDevice) && is_on_device(o.copy.dstMemoryType, o.copy.dstDevice)))
        overlap_host_waits_for_current();
    return driver_leave(status);
}

static CUresult run_on(CUstream stream, operation o) {
    CUresult status = driver_enter();
    return driver_leave(status == CUDA_SUCCESS ? submit(stream, &o) : status);
}

static const CUmemorytype HOST = CU_MEMORYTYPE_HOST, GPU = CU_MEMORYTYPE_DEVICE, ANY = CU_MEMORYTYPE_UNIFIED;

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    return run_now(copy_rows(GPU, to, HOST, (uintptr_t)from, bytes));
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    return run_now(copy_rows(HOST, (uintptr_t)to, GPU, from, bytes));
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return run_now(copy_rows(GPU, to, GPU, from, bytes));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return run_now(copy_rows(ANY, to, ANY, from, bytes));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return run_on(stream, copy_rows(GPU, to, HOST, (uintptr_t)from, bytes));
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return run_on(stream, copy_rows(HOST, (uintptr_t)to, GPU, from, bytes));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return run_on(stream, copy_rows(GPU, to, GPU, from, bytes));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return run_on(stream, copy_rows(ANY, to, ANY, from, bytes));
}

static operation copy_box(const CUDA_MEMCPY3D *box) {
    return (operation){.kind = DO_COPY, .copy = *box};
}

static CUDA_MEMCPY3D of_two_dimensions(const CUDA_MEMCPY2D *c) {
    return (CUDA_MEMCPY3D){.srcXInBytes = c->srcXInBytes,
                           .srcY = c->srcY,
                           .srcMemoryType = c->srcMemoryType,
                           .srcHost = c->srcHost,
                           .srcDevice = c->srcDevice,
                           .srcArray = c->srcArray,
                           .srcPitch = c->srcPitch,
                           .dstXInBytes = c->dstXInBytes,
                           .dstY = c->dstY,
                           .dstMemoryType = c->dstMemoryType,
                           .dstHost = c->dstHost,
                           .dstDevice = c->dstDevice,
                           .dstArray = c->dstArray,
                           .dstPitch = c->dstPitch,
                           .WidthInBytes = c->WidthInBytes,
                           .Height = c->Height,
                           .Depth = 1};
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D *copy) {
    if (!copy) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D box = of_two_dimensions(copy);
    return run_now(copy_box(&box));
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *copy) {
    return cuMemcpy2D(copy);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream) {
    if (!copy) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_MEMCPY3D box = of_two_dimensions(copy);
    return run_on(stream, copy_box(&box));
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D *copy) {
    return copy ? run_now(copy_box(copy)) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream) {
    return copy ? run_on(stream, copy_box(copy)) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- memset ---- */

static CUresult set_now(CUdeviceptr address, size_t pitch, unsigned value, unsigned element, size_t width,
                        size_t height) {
    operation o;
    CUresult status = driver_enter_work();
    if (status == CUDA_SUCCESS) status = fill_set(&o, address, pitch, value, element, width, height);
    return driver_leave(status == CUDA_SUCCESS ? run_on_stream(find_stream(CU_STREAM_LEGACY), &o) : status);
}

static CUresult set_on(CUstream stream, CUdeviceptr address, size_t pitch, unsigned value, unsigned element,
                       size_t width, size_t height) {
    operation o;
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS) status = fill_set(&o, address, pitch, value, element, width, height);
    return driver_leave(status == CUDA_SUCCESS ? submit(stream, &o) : status);
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, size_t count) {
    return set_now(address, 0, value, 1, count, 1);
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, size_t count) {
    return set_now(address, 0, value, 2, count, 1);
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, size_t count) {
    return set_now(address, 0, value, 4, count, 1);
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t count, CUstream stream) {
    return set_on(stream, address, 0, value, 1, count, 1);
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, size_t count, CUstream stream) {
    return set_on(stream, address, 0, value, 2, count, 1);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
    return set_on(stream, address, 0, value, 4, count, 1);
}

CUresult cuMemsetD2D8(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height) {
    return set_now(address, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D16(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height) {
    return set_now(address, pitch, value, 2, width, height);
}

CUresult cuMemsetD2D32(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height) {
    return set_now(address, pitch, value, 4, width, height);
}

CUresult cuMemsetD2D8Async(CUdeviceptr address, size_t pitch, unsigned char value, size_t width, size_t height,
                           CUstream stream) {
    return set_on(stream, address, pitch, value, 1, width, height);
}

CUresult cuMemsetD2D16Async(CUdeviceptr address, size_t pitch, unsigned short value, size_t width, size_t height,
                            CUstream stream) {
    return set_on(stream, address, pitch, value, 2, width, height);
}

CUresult cuMemsetD2D32Async(CUdeviceptr address, size_t pitch, unsigned value, size_t width, size_t height,
                            CUstream stream) {
    return set_on(stream, address, pitch, value, 4, width, height);
}

/* ---- pointers ---- */

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    CUresult status = driver_enter();
    const allocation *a = status == CUDA_SUCCESS ? find(address) : NULL;
    if (status == CUDA_SUCCESS && !a) status = CUDA_ERROR_NOT_FOUND;
    if (status == CUDA_SUCCESS) {
        if (base) *base = a->address;
        if (bytes) *bytes = a->bytes;
    }
    return driver_leave(status);
}

static CUresult pointer_attribute(void *data, CUpointer_attribute which, CUdeviceptr pointer, const allocation *a) {
    const uint64_t address = a->kind == REGISTERED && pointer - a->address >= a->bytes
                                 ? a->address + (pointer - (uintptr_t)a->host)
                                 : pointer;
    const bool on_host = a->kind == PINNED || a->kind == REGISTERED;
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return cuCtxGetCurrent(data);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!a->host) return CUDA_ERROR_INVALID_VALUE;
        *(uint8_t **)data = a->host + (address - a->address);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = a->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = a->address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = a->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned char *)data = a->kind == MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned char *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned char *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = NULL;
        return CUDA_SUCCESS;
    default:
        driver_say("attribute %d of a pointer is not supported", (int)which);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static const allocation *find_pointer(CUdeviceptr pointer) {
    const allocation *a = find(pointer);
    return a ? a : find_host((const void *)(uintptr_t)pointer);
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr pointer) {
    CUresult status = driver_enter();
    const allocation *a = status == CUDA_SUCCESS && data ? find_pointer(pointer) : NULL;
    if (status == CUDA_SUCCESS) status = a ? pointer_attribute(data, which, pointer, a) : CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status);
}

/* A pointer that CUDA does not know has attributes of zeros. */
static void clear_attribute(void *data, CUpointer_attribute which) {
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        memset(data, 0, 1);
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        memset(data, 0, 4);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = CU_DEVICE_INVALID;
        break;
    default:
        memset(data, 0, 8);
    }
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr pointer) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(which && data)) status = CUDA_ERROR_INVALID_VALUE;
    const allocation *a = status == CUDA_SUCCESS ? find_pointer(pointer) : NULL;
    for (unsigned i = 0; i < count && status == CUDA_SUCCESS; i++) {
        clear_attribute(data[i], which[i]);
        if (a && (which[i] != CU_POINTER_ATTRIBUTE_HOST_POINTER || a->host))
            status = pointer_attribute(data[i], which[i], pointer, a);
    }
    return driver_leave(status);
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr pointer) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !(value && find(pointer))) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && which != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) status = CUDA_ERROR_NOT_SUPPORTED;
    return driver_leave(status);
}
