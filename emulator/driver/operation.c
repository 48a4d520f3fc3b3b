/* operation.c - what a stream does, and a node of a graph: one after another, each in the call that brings it. */
#include "driver.h"

#include <fenv.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

typedef struct side {
    CUmemorytype type;
    uint64_t address;
    size_t x, y, z, pitch, height;
} side;

static size_t plane_bytes(const side *s, size_t rows) {
    return s->pitch * (s->height ? s->height : rows);
}

static uint64_t first_address(const side *s, size_t rows) {
    return s->address + s->z * plane_bytes(s, rows) + s->y * s->pitch + s->x;
}

/* The first byte; NULL if some row is not in memory of that type. */
static uint8_t *bytes_of(const side *s, size_t width, size_t rows, size_t planes) {
    const size_t plane = plane_bytes(s, rows);
    const uint64_t first = first_address(s, rows);
    const size_t span = (planes - 1) * plane + (rows - 1) * s->pitch + width;
    if ((rows > 1 || planes > 1) && s->pitch < width) return NULL;
    if (s->type == CU_MEMORYTYPE_DEVICE) return device_bytes(first, span);
    if (s->type == CU_MEMORYTYPE_HOST) return first >> 47 || first < 4096 ? NULL : (uint8_t *)(uintptr_t)first;
    return s->type == CU_MEMORYTYPE_UNIFIED ? any_bytes(first, span) : NULL;
}

/* The side of an array: its memory. */
static bool enter_array(side *s, CUarray array) {
    if (s->type != CU_MEMORYTYPE_ARRAY) return true;
    s->type = CU_MEMORYTYPE_DEVICE;
    return array_memory(array, &s->address, &s->pitch, &s->height);
}

/* The rows of a side, in the order of their addresses: memory that no call allocated is no other operation's. */
static void note_side(emu_footprint *f, const side *s, const CUDA_MEMCPY3D *c, bool writes) {
    for (size_t z = 0; z < c->Depth; z++)
        for (size_t y = 0; y < c->Height; y++) {
            const uint64_t at = first_address(s, c->Height) + z * plane_bytes(s, c->Height) + y * s->pitch;
            const uint64_t address = device_address(at, c->WidthInBytes);
            if (address) emu_footprint_add(f, address, c->WidthInBytes, writes);
        }
}

/* Footprints are sorted, so each side has its own. */
static void note_copy(const side *source, const side *target, const CUDA_MEMCPY3D *c) {
    emu_footprint *reads = emu_footprint_new("cuMemcpy"), *writes = emu_footprint_new("cuMemcpy");
    if (reads) note_side(reads, source, c, false);
    if (writes) note_side(writes, target, c, true);
    overlap_note(reads, "cuMemcpy");
    overlap_note(writes, "cuMemcpy");
    if (target->type == CU_MEMORYTYPE_HOST && !device_address(target->address, 1))
        overlap_host_waits_for_current(); /* copies to memory that is not pinned end before the call does */
}

static CUresult run_copy(const CUDA_MEMCPY3D *c) {
    if (!c->WidthInBytes || !c->Height || !c->Depth) return CUDA_SUCCESS;
    const bool from_host = c->srcMemoryType == CU_MEMORYTYPE_HOST, to_host = c->dstMemoryType == CU_MEMORYTYPE_HOST;
    side source = {.type = c->srcMemoryType,
                   .address = from_host ? (uintptr_t)c->srcHost : c->srcDevice,
                   .x = c->srcXInBytes,
                   .y = c->srcY,
                   .z = c->srcZ,
                   .pitch = c->srcPitch,
                   .height = c->srcHeight};
    side target = {.type = c->dstMemoryType,
                   .address = to_host ? (uintptr_t)c->dstHost : c->dstDevice,
                   .x = c->dstXInBytes,
                   .y = c->dstY,
                   .z = c->dstZ,
                   .pitch = c->dstPitch,
                   .height = c->dstHeight};
    if (!enter_array(&source, c->srcArray) || !enter_array(&target, c->dstArray)) return CUDA_ERROR_INVALID_HANDLE;
    const uint8_t *from = bytes_of(&source, c->WidthInBytes, c->Height, c->Depth);
    uint8_t *to = bytes_of(&target, c->WidthInBytes, c->Height, c->Depth);
    if (!from || !to) {
        driver_say("a copy of %zu bytes a row %s 0x%" PRIx64 ": some of them are outside of allocated memory",
                   c->WidthInBytes, from ? "to" : "from", (uint64_t)(from ? target : source).address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    emu_device *device = the_driver()->device;
    const uint64_t first_read = first_address(&source, c->Height), first_written = first_address(&target, c->Height);
    for (size_t z = 0; z < c->Depth; z++) {
        for (size_t y = 0; y < c->Height; y++) {
            const size_t source_rows = z * (source.height ? source.height : c->Height) + y;
            const size_t target_rows = z * (target.height ? target.height : c->Height) + y;
            const uint64_t written = first_written + target_rows * target.pitch;
            record_copy(written, first_read + source_rows * source.pitch, from + source_rows * source.pitch,
                        c->WidthInBytes);
            memmove(to + target_rows * target.pitch, from + source_rows * source.pitch, c->WidthInBytes);
            if (to_host) continue;
            if (from_host)
                emu_note_written(device, written, c->WidthInBytes);
            else
                emu_note_copied(device, written, first_read + source_rows * source.pitch, c->WidthInBytes);
        }
    }
    note_copy(&source, &target, c);
    return CUDA_SUCCESS;
}

/* ---- memset ---- */

CUresult fill_set(operation *o, CUdeviceptr address, size_t pitch, unsigned value, unsigned element, size_t width,
                  size_t height) {
    if ((element != 1 && element != 2 && element != 4) || address % element || (height > 1 && pitch < width * element))
        return CUDA_ERROR_INVALID_VALUE;
    *o = (operation){.kind = DO_SET, .set = {address, pitch, width, height, value, element}};
    return CUDA_SUCCESS;
}

static void note_set(const memory_set *s) {
    emu_footprint *f = emu_footprint_new("cuMemset");
    for (size_t y = 0; f && y < s->height; y++)
        emu_footprint_add(f, s->address + y * s->pitch, s->width * s->element, true);
    overlap_note(f, "cuMemset");
}

/* By copies of what is set already, up to a page at once. */
static void set_row(uint8_t *to, const memory_set *s) {
    enum { PAGE = 4096 };
    const size_t bytes = s->width * s->element;
    memcpy(to, &s->value, s->element);
    for (size_t done = s->element; done < bytes;) {
        size_t count = done < PAGE ? done : PAGE;
        if (count > bytes - done) count = bytes - done;
        memcpy(to + done, to, count);
        done += count;
    }
}

static CUresult run_set(const memory_set *s) {
    if (!s->width || !s->height) return CUDA_SUCCESS;
    uint8_t *to = device_bytes(s->address, (s->height - 1) * s->pitch + s->width * s->element);
    if (!to) {
        driver_say("a memset of %zu bytes a row at 0x%" PRIx64 ": some of them are outside of allocated memory",
                   s->width * s->element, (uint64_t)s->address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    record_set(s);
    for (size_t y = 0; y < s->height; y++) {
        set_row(to + y * s->pitch, s);
        emu_note_written(the_driver()->device, s->address + y * s->pitch, s->width * s->element);
    }
    note_set(s);
    return CUDA_SUCCESS;
}

/* ---- kernels ---- */

static operation_kind last_kind; /* of the operation before: a launch can overlap a kernel only */

/* Error of the context after the findings of a launch: `otherwise` if none of them has its own.
 */
static CUresult failure_of(const emu_device *device, CUresult otherwise) {
    size_t count;
    const emu_finding *findings = emu_findings(device, &count);
    CUresult failure = otherwise;
    for (size_t i = 0; i < count; i++) {
        const emu_class class_ = findings[i].class_;
        if (class_ == EMU_ASSERT) failure = CUDA_ERROR_ASSERT;
        if (class_ == EMU_STEP_LIMIT || class_ == EMU_LIVELOCK || class_ == EMU_DEADLOCK)
            failure = CUDA_ERROR_LAUNCH_TIMEOUT;
    }
    return failure;
}

/* Run a launch in one order or, with EMULATED_GPU_ORDERS, in others, where its CTAs fit the GPU together. A GPU's
 * arithmetic does not follow the mode of the caller's thread: XLA's threads flush subnormal numbers. */
static emu_status run_launch(const emu_module *module, const emu_launch *launch, emu_exploration *seen,
                             emu_error *error) {
    const driver *d = the_driver();
    fenv_t callers;
    fegetenv(&callers);
    fesetenv(FE_DFL_ENV);
    emu_status status = d->orders ? emu_run_orders(d->device, module, launch, d->orders, seen, error) : EMU_REFUSED;
    if (status == EMU_REFUSED) status = emu_run(d->device, module, launch, error);
    fesetenv(&callers);
    return status;
}

static CUresult run_kernel(const kernel_launch *k) {
    driver *d = the_driver();
    if (!k->grid[0] || !k->grid[1] || !k->grid[2]) return CUDA_ERROR_INVALID_VALUE;
    const emu_module *module = k->function->module->module;
    const emu_entry_info *info = emu_entry(module, k->function->entry);
    emu_launch launch = {.entry = k->function->entry,
                         .dynamic_shared = k->dynamic_shared,
                         .params = info->param_bytes ? k->parameters : NULL,
                         .param_bytes = info->param_bytes,
                         .checks = true,
                         .schedule = d->schedule,
                         .step_limit = d->step_limit,
                         .sample = d->sample,
                         .overlaps = k->overlaps && last_kind == DO_KERNEL,
                         .footprint = overlap_is_watched(),
                         .ignore = getenv("EMULATED_GPU_IGNORE"),
                         .stale = d->schedule && getenv("EMULATED_GPU_STALE"),
                         .strict_tcgen05 = getenv("EMULATED_GPU_STRICT_TCGEN05") != NULL,
                         .output = stdout};
    memcpy(launch.grid, k->grid, sizeof launch.grid);
    memcpy(launch.block, k->block, sizeof launch.block);
    memcpy(launch.cluster, k->cluster, sizeof launch.cluster);
    record_launch(k);
    if (is_recording() && getenv("EMULATED_GPU_RECORD_ONLY")) return CUDA_SUCCESS;
    emu_error error;
    emu_exploration seen = {0};
    const emu_status status = run_launch(module, &launch, &seen, &error);
    fflush(stdout);
    if (status == EMU_REFUSED) {
        driver_say("kernel %s cannot be launched: %s", info->name, error.text);
        return CUDA_ERROR_INVALID_VALUE;
    }
    d->steps += emu_counts(d->device)->steps;
    write_counts(info->name, emu_counts(d->device), &seen);
    if (seen.difference[0])
        driver_say("kernel %s gives other results in another order: %s", info->name, seen.difference);
    note_findings(d->device, info->name);
    overlap_note(emu_take_footprint(d->device), info->name);
    d->failure = failure_of(d->device, status == EMU_FAULT ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
    return CUDA_SUCCESS; /* a launch does not wait for its kernel: what follows fails */
}

/* ---- all kinds ---- */

static CUresult run(const operation *o) {
    switch (o->kind) {
    case DO_KERNEL:
        return run_kernel(&o->kernel);
    case DO_COPY:
        return run_copy(&o->copy);
    case DO_SET:
        return run_set(&o->set);
    case DO_HOST:
        record_host_function();
        o->host.fn(o->host.userData);
        overlap_host_waits_for_current(); /* it may have told the host */
        return CUDA_SUCCESS;
    case DO_GRAPH:
        return run_graph(o->graph);
    case DO_RECORD:
        o->event->recorded = true;
        o->event->steps = the_driver()->steps;
        overlap_snapshot(&o->event->clock);
        return CUDA_SUCCESS;
    case DO_WAIT:
    case DO_NOTHING:
        break;
    }
    return CUDA_SUCCESS;
}

CUresult run_operation(const operation *o) {
    if (the_driver()->failure) return CUDA_SUCCESS; /* nothing runs any more */
    record_shared_changes();
    const CUresult status = run(o);
    forget_shared_changes();
    last_kind = o->kind;
    return status;
}

CUresult copy_operation(const operation *from, operation *to) {
    *to = *from;
    if (from->kind == DO_GRAPH) return copy_graph(from->graph, &to->graph);
    if (from->kind != DO_KERNEL) return CUDA_SUCCESS;
    const emu_entry_info *info = emu_entry(from->kernel.function->module->module, from->kernel.function->entry);
    to->kernel.pointers = NULL;
    to->kernel.parameters = malloc((size_t)info->param_bytes + 1);
    if (!to->kernel.parameters) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(to->kernel.parameters, from->kernel.parameters, info->param_bytes);
    return CUDA_SUCCESS;
}

void free_operation(operation *o) {
    if (o->kind == DO_KERNEL) {
        free(o->kernel.parameters);
        free(o->kernel.pointers);
    }
    if (o->kind == DO_GRAPH) delete_graph(o->graph);
    *o = (operation){0};
}
