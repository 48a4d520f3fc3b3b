/* record.c - writes everything that reaches the device into the file that EMULATED_GPU_RECORD names.
 *
 *     bin/emulated-gpu --record softmax.recording python3 softmax.py
 *     bin/judge-replay softmax.recording results
 *
 * emulator/judge/README.md describes the format. A recording is a program for the GPU, so nothing depends on its
 * integrity: a program that forges its own recording has only written another program. Memory that the host and the
 * device share is compared before and after each operation, and what the host changed becomes a write.
 */
#include "driver.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* The file, which belongs to the first process that opens it: the records of two processes would not make sense. */
static FILE *open_recording(void) {
    const char *path = getenv("EMULATED_GPU_RECORD");
    if (!path || !*path) return NULL;
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB)) {
        driver_say("this process is not recorded: %s %s", path,
                   file < 0 ? "cannot be written" : "holds the recording of another process");
        if (file >= 0) close(file);
        return NULL;
    }
    FILE *to = fdopen(file, "a");
    if (to) fputs("flashladder-recording 1 0\n\n", to);
    return to;
}

static FILE *recording(void) {
    static FILE *file;
    static bool tried;
    if (!tried) {
        tried = true;
        file = open_recording();
    }
    return file;
}

bool is_recording(void) {
    return recording() != NULL;
}

/* One record. It is flushed, because the process may end at any time. */
__attribute__((format(printf, 3, 4))) static void record(const void *data, size_t bytes, const char *format, ...) {
    FILE *to = recording();
    if (!to) return;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(to, format, arguments);
    va_end(arguments);
    fprintf(to, " %zu\n", bytes);
    if (bytes) fwrite(data, 1, bytes, to);
    fputc('\n', to);
    fflush(to);
}

/* ---- memory ---- */

void record_allocation(CUdeviceptr address, size_t bytes, int kind) {
    record(NULL, 0, "alloc %" PRIu64 " %zu %d", (uint64_t)address, bytes, kind);
}

void record_release(CUdeviceptr address) {
    record(NULL, 0, "free %" PRIu64, (uint64_t)address);
}

void record_write(CUdeviceptr to, const void *data, size_t bytes) {
    record(data, bytes, "write %" PRIu64, (uint64_t)to);
}

/* Memory that the host shares is a side of a copy like any other: its contents are recorded as writes. */
void record_copy(CUdeviceptr to, CUdeviceptr from, const void *data, size_t bytes) {
    emu_device *device = the_driver()->device;
    const bool reads = emu_host_bytes(device, from), writes = emu_host_bytes(device, to);
    if (reads && writes)
        record(NULL, 0, "copy %" PRIu64 " %" PRIu64 " %zu", (uint64_t)to, (uint64_t)from, bytes);
    else if (writes)
        record_write(to, data, bytes);
    else if (reads)
        record(NULL, 0, "read %" PRIu64 " %zu", (uint64_t)from, bytes);
}

void record_set(const memory_set *s) {
    const unsigned value = s->element == 4 ? s->value : s->value & ((1u << 8 * s->element) - 1);
    record(NULL, 0, "set %" PRIu64 " %zu %u %u %zu %zu", (uint64_t)s->address, s->pitch, value, s->element, s->width,
           s->height);
}

/* ---- modules ---- */

void record_module(CUmodule module) {
    static int last_id;
    emu_variable variable;
    if (!is_recording()) return;
    module->id = ++last_id;
    record(module->text, strlen(module->text), "module %d", module->id);
    for (size_t i = 0; emu_variable_at(module->module, i, &variable); i++) {
        const char *name = variable.name;
        if (emu_find_variable(the_driver()->device, module->module, name, &variable))
            record(name, strlen(name), "variable %d %" PRIu64 " %" PRIu64, module->id, variable.address,
                   variable.bytes);
    }
}

void record_unload(CUmodule module) {
    if (module->id) record(NULL, 0, "unload %d", module->id);
}

void record_refused(const char *sentence) {
    record(sentence, strlen(sentence), "refused");
}

/* ---- launches ---- */

/* Offsets of a kernel's parameters in the block of a launch. Machine code may expect them at other offsets. */
static void record_parameters(CUfunction function, const emu_entry_info *info) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = function->recorded ? NULL : open_memstream(&text, &bytes);
    if (!to) return;
    function->recorded = true;
    for (int i = 0; i < info->params; i++) fprintf(to, "%u %u ", info->param_offsets[i], info->param_sizes[i]);
    fputs(info->name, to);
    if (!fclose(to)) record(text, bytes, "parameters %d %d", function->module->id, info->params);
    free(text);
}

void record_launch(const kernel_launch *k) {
    if (!is_recording()) return;
    const emu_entry_info *info = emu_entry(k->function->module->module, k->function->entry);
    record_parameters(k->function, info);
    const size_t name_bytes = strlen(info->name), bytes = info->param_bytes + name_bytes;
    uint8_t *data = malloc(bytes + 1);
    if (!data) return;
    if (info->param_bytes) memcpy(data, k->parameters, info->param_bytes);
    memcpy(data + info->param_bytes, info->name, name_bytes);
    record(data, bytes, "launch %d %u %u %u %u %u %u %u %u %u %u %d %u", k->function->module->id, k->grid[0],
           k->grid[1], k->grid[2], k->block[0], k->block[1], k->block[2], k->cluster[0], k->cluster[1], k->cluster[2],
           k->dynamic_shared, k->overlaps, info->param_bytes);
    free(data);
}

void record_tensor_map(const CUtensorMap *map, const tensor_map_request *r) {
    char *line = NULL;
    size_t bytes = 0;
    FILE *to = is_recording() ? open_memstream(&line, &bytes) : NULL;
    if (!to) return;
    fprintf(to, "tensormap %d %u %" PRIu64, (int)r->type, r->rank, (uint64_t)(uintptr_t)r->address);
    for (unsigned i = 0; i < EMU_TENSOR_RANK; i++) fprintf(to, " %" PRIu64, i < r->rank ? r->sizes[i] : 0);
    for (unsigned i = 0; i + 1 < EMU_TENSOR_RANK; i++) fprintf(to, " %" PRIu64, i + 1 < r->rank ? r->strides[i] : 0);
    for (unsigned i = 0; i < EMU_TENSOR_RANK; i++) fprintf(to, " %u", i < r->rank ? r->box[i] : 0);
    fprintf(to, " %d %d %d %d", (int)r->interleave, (int)r->swizzle, (int)r->promotion, (int)r->fill);
    if (!fclose(to)) record(map, sizeof *map, "%s", line);
    free(line);
}

/* ---- streams, which give the dependencies ---- */

void record_stream(uint64_t id) {
    static uint64_t last = 1; /* the legacy default stream */
    if (id == last || !is_recording()) return;
    last = id;
    record(NULL, 0, "stream %" PRIu64, id);
}

void record_event(const char *kind, uint64_t id) {
    record(NULL, 0, "%s %" PRIu64, kind, id);
}

void record_host_function(void) {
    record(NULL, 0, "host");
}

void record_race(const char *name, const char *message) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = is_recording() ? open_memstream(&text, &bytes) : NULL;
    if (!to) return;
    fprintf(to, "%s: %s", name, message);
    if (!fclose(to)) record(text, bytes, "race");
    free(text);
}

/* ---- marks ---- */

/* A mark of the recorded program: where a call begins and ends, and what its inputs and outputs are. */
__attribute__((visibility("default"))) CUresult cuEmulatedGpuMark(const char *text);
CUresult cuEmulatedGpuMark(const char *text) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !text) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        record_shared_changes();
        record(text, strlen(text), "mark");
    }
    return driver_leave(status);
}
