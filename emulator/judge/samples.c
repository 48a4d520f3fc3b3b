/* samples.c - samples of the last call's time.
 *
 * All work of a sample is queued while the stream waits for a word of the host, so that launches follow each other
 * without gaps. Events and a global timer on the GPU both take the time, and so does the host: a kernel that writes the
 * memory of an event would have to fool all three.
 */
#include "samples.h"

#include "gpu_state.h"
#include "json.h"
#include "report.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* stamp: the global timer to memory. scrub: ones to all dynamic shared memory of a CTA, so many bytes. */
static const char HELPERS[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry stamp(.param .u64 to)\n{\n"
    ".reg .b64 %t<2>;\nld.param.u64 %t0, [to];\nmov.u64 %t1, %globaltimer;\nst.global.u64 [%t0], %t1;\nret;\n}\n"
    ".extern .shared .align 16 .b8 all[];\n"
    ".visible .entry scrub(.param .u32 bytes)\n{\n"
    ".reg .pred %p;\n.reg .b32 %r<6>;\nld.param.u32 %r0, [bytes];\nmov.u32 %r1, %tid.x;\nshl.b32 %r1, %r1, 2;\n"
    "mov.u32 %r2, %ntid.x;\nshl.b32 %r2, %r2, 2;\nmov.u32 %r3, all;\n"
    "AGAIN:\nsetp.ge.u32 %p, %r1, %r0;\n@%p bra DONE;\nadd.u32 %r4, %r3, %r1;\nmov.u32 %r5, -1;\n"
    "st.shared.u32 [%r4], %r5;\nadd.u32 %r1, %r1, %r2;\nbra AGAIN;\nDONE:\nret;\n}\n";

enum { MOST_HELD = 500 }; /* operations that a stream queues for sure while it waits */
#define MOST_RESTORED (256ull << 20)

/* Memory that host and GPU see. */
typedef struct shared_words {
    volatile uint32_t released;
    volatile uint64_t begin, end; /* of the global timer */
} shared_words;

typedef struct clock_set {
    CUmodule helpers;
    CUfunction stamp, scrub;
    CUevent begin, end;
    shared_words *shared;
    CUdeviceptr shared_address, flush;
    size_t flush_bytes;
    int multiprocessors, shared_bytes; /* of a CTA */
    bool holds;
    gpu_state *gpu;
} clock_set;

typedef struct sample {
    double event_ns, stamps_ns, host_ns;
    uint64_t set, hash;
    bool same; /* as the first sample of its set */
    gpu_reading gpu;
} sample;

static double host_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

/* ---- the clocks ---- */

static int attribute(const replay *r, CUdevice_attribute which) {
    int value = 0;
    r->cuda->cuDeviceGetAttribute(&value, which, 0);
    return value;
}

static bool open_helpers(replay *r, clock_set *c) {
    const driver_api *cuda = r->cuda;
    return replay_check(r, cuda->cuModuleLoadDataEx(&c->helpers, HELPERS, 0, NULL, NULL), "the judge's own kernels") &&
           replay_check(r, cuda->cuModuleGetFunction(&c->stamp, c->helpers, "stamp"), "its clock") &&
           replay_check(r, cuda->cuModuleGetFunction(&c->scrub, c->helpers, "scrub"), "its scrubber") &&
           replay_check(
               r, cuda->cuFuncSetAttribute(c->scrub, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, c->shared_bytes),
               "its shared memory");
}

static bool open_clocks(replay *r, clock_set *c) {
    const driver_api *cuda = r->cuda;
    char bus_id[32] = "";
    void *shared = NULL;
    *c = (clock_set){.multiprocessors = attribute(r, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                     .shared_bytes = attribute(r, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                     .flush_bytes = 2 * (size_t)attribute(r, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
                     .holds = !cuda->poison && r->recorded->end - r->recorded->call <= MOST_HELD};
    if (!open_helpers(r, c) || !replay_check(r, cuda->cuEventCreate(&c->begin, CU_EVENT_DEFAULT), "an event") ||
        !replay_check(r, cuda->cuEventCreate(&c->end, CU_EVENT_DEFAULT), "an event") ||
        !replay_check(r, cuda->cuMemHostAlloc(&shared, sizeof *c->shared, CU_MEMHOSTALLOC_DEVICEMAP), "shared words") ||
        !replay_check(r, cuda->cuMemHostGetDevicePointer(&c->shared_address, shared, 0), "shared words") ||
        !replay_check(r, cuda->cuMemAlloc(&c->flush, c->flush_bytes), "memory that flushes the L2 cache"))
        return false;
    c->shared = shared;
    if (cuda->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) == CUDA_SUCCESS) c->gpu = gpu_state_open(bus_id);
    return true;
}

static bool launch_helper(replay *r, CUfunction function, unsigned CTAs, unsigned threads, int shared, void *value) {
    const CUlaunchConfig config = {CTAs, 1, 1, threads, 1, 1, (unsigned)shared, r->stream, NULL, 0};
    void *parameters[] = {value};
    return replay_check(r, r->cuda->cuLaunchKernelEx(&config, function, parameters, NULL), "the judge's own kernel");
}

static bool stamp(replay *r, const clock_set *c, size_t offset) {
    CUdeviceptr to = c->shared_address + offset;
    return launch_helper(r, c->stamp, 1, 1, 0, &to);
}

/* ---- before a sample ---- */

/* Which memory to restore: all of it, or only what the first call changed where all would take too long. */
static bool choose_restored(replay *r) {
    uint64_t bytes = 0;
    bool done = true;
    for (size_t i = 0; i < r->memory_count; i++) bytes += r->memories[i].before ? r->memories[i].bytes : 0;
    for (size_t i = 0; done && i < r->memory_count && bytes > MOST_RESTORED; i++) {
        memory *m = &r->memories[i];
        uint8_t *now = m->before ? malloc(m->bytes) : NULL;
        if (!now) continue;
        done = replay_read(r, m->address, now, m->bytes);
        if (done && !memcmp(now, m->before, m->bytes)) {
            free(m->before);
            m->before = NULL;
        }
        free(now);
    }
    return done;
}

static bool restore(replay *r, uint64_t set, uint8_t *const *given) {
    const marked_buffers *inputs = &r->recorded->inputs, *outputs = &r->recorded->outputs;
    bool done = true;
    for (size_t i = 0; done && i < r->memory_count; i++) {
        const memory *m = &r->memories[i];
        if (!m->live) continue;
        if (m->before) done = replay_write(r, m->address, m->before, m->bytes);
        if (done && m->in_call) done = replay_poison(r, m, m->address, m->bytes);
    }
    for (size_t i = 0; done && i < outputs->count; i++) {
        const memory *m = replay_find(r, outputs->all[i].address, outputs->all[i].bytes);
        if (m) done = replay_poison(r, m, outputs->all[i].address, outputs->all[i].bytes);
    }
    for (size_t i = 0; done && i < inputs->count; i++) {
        const marked_buffer *b = &inputs->all[i];
        if (given[i]) done = replay_write(r, b->address, given[i] + set * b->bytes, b->bytes);
    }
    return done;
}

/* No line of the call's memory stays in the L2 cache, and no residue in shared memory. */
static bool make_cold(replay *r, const clock_set *c, uint64_t number) {
    const driver_api *cuda = r->cuda;
    uint32_t bytes = (uint32_t)c->shared_bytes;
    if (!cuda->poison && !replay_check(r, cuda->cuCtxResetPersistingL2Cache(), "the end of persisting L2 lines"))
        return false;
    if (!launch_helper(r, c->scrub, (unsigned)c->multiprocessors, 256, c->shared_bytes, &bytes)) return false;
    for (uint8_t i = 0; i < 2 && !cuda->poison; i++)
        if (!replay_check(r,
                          cuda->cuMemsetD2D8Async(c->flush, 0, (uint8_t)(2 * number + i), c->flush_bytes, 1, r->stream),
                          "the flush of the L2 cache"))
            return false;
    return true;
}

/* ---- a sample ---- */

static bool queue(replay *r, const clock_set *c, uint64_t number) {
    const driver_api *cuda = r->cuda;
    c->shared->released = 0;
    if (!replay_check(r, cuda->cuCtxSynchronize(), "the time before a sample") || !make_cold(r, c, number))
        return false;
    if (c->holds &&
        !replay_check(r, cuda->cuStreamWaitValue32(r->stream, c->shared_address, 1, CU_STREAM_WAIT_VALUE_EQ),
                      "a stream that waits"))
        return false;
    return stamp(r, c, offsetof(shared_words, begin)) &&
           replay_check(r, cuda->cuEventRecord(c->begin, r->stream), "an event") && replay_again(r) &&
           replay_check(r, cuda->cuEventRecord(c->end, r->stream), "an event") &&
           stamp(r, c, offsetof(shared_words, end));
}

static bool take(replay *r, const clock_set *c, uint64_t number, sample *s) {
    float milliseconds = 0;
    const bool queued = queue(r, c, number);
    const double begin = host_ns();
    c->shared->released = 1; /* also after a failure: nothing must wait for ever */
    if (!queued || !replay_check(r, r->cuda->cuStreamSynchronize(r->stream), "the end of a sample")) return false;
    s->host_ns = host_ns() - begin;
    if (!replay_check(r, r->cuda->cuEventElapsedTime(&milliseconds, c->begin, c->end), "the time between events"))
        return false;
    s->event_ns = 1e6 * (double)milliseconds;
    s->stamps_ns = (double)c->shared->end - (double)c->shared->begin;
    s->gpu = gpu_state_read(c->gpu);
    return true;
}

static uint64_t hash_of(uint64_t hash, const uint8_t *data, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) hash = (hash ^ data[i]) * 1099511628211ull;
    return hash;
}

/* The outputs of a sample leave the GPU. They are kept where they are the first of their set, or others than those. */
static bool keep_outputs(replay *r, const char *folder, sample *all, uint64_t number, uint64_t sets) {
    const marked_buffers *outputs = &r->recorded->outputs;
    sample *s = &all[number];
    uint8_t *data[MOST_BUFFERS] = {NULL};
    bool done = true;
    s->hash = 14695981039346656037ull;
    for (size_t i = 0; done && i < outputs->count; i++) {
        data[i] = malloc(outputs->all[i].bytes + 1);
        done = data[i] && replay_read(r, outputs->all[i].address, data[i], outputs->all[i].bytes);
        if (done) s->hash = hash_of(s->hash, data[i], outputs->all[i].bytes);
    }
    s->same = number < sets || s->hash == all[s->set].hash;
    for (size_t i = 0; i < outputs->count; i++) {
        char kind[40];
        snprintf(kind, sizeof kind, ".out.%" PRIu64, number);
        if (done && (number < sets || !s->same))
            done = report_save(r, folder, outputs->all[i].name, kind, data[i], outputs->all[i].bytes);
        free(data[i]);
    }
    return done || (!r->status && replay_fail(r, REPLAY_NO_MEMORY, "out of memory"));
}

/* ---- the file ---- */

static void write_sample(FILE *to, const sample *s) {
    fprintf(to,
            "{\"event_ns\": %.0f, \"stamps_ns\": %.0f, \"host_ns\": %.0f, \"set\": %" PRIu64 ", \"hash\": \"%016" PRIx64
            "\", \"same\": %s, \"sm_MHz\": %d, \"memory_MHz\": %d, \"milliwatts\": %d, \"celsius\": %d, \"slowdowns\": "
            "%" PRIu64 "}",
            s->event_ns, s->stamps_ns, s->host_ns, s->set, s->hash, s->same ? "true" : "false", s->gpu.sm_MHz,
            s->gpu.memory_MHz, s->gpu.milliwatts, s->gpu.celsius, s->gpu.slowdowns);
}

static bool write_times(replay *r, const char *folder, const clock_set *c, const sample *all, uint64_t count) {
    char *text = NULL;
    size_t bytes = 0;
    int driver = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
    r->cuda->cuDriverGetVersion(&driver);
    fputs("{\"device\": ", to);
    json_text(to, r->device, strlen(r->device));
    fprintf(to,
            ", \"driver\": %d, \"multiprocessors\": %d, \"l2_bytes\": %zu, \"bus_bits\": %d, \"memory_kHz\": %d,\n"
            " \"held\": %s, \"launches\": %" PRIu64 ",\n \"samples\": [",
            driver, c->multiprocessors, c->flush_bytes / 2, attribute(r, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
            attribute(r, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE), c->holds ? "true" : "false", r->launches);
    for (uint64_t i = 0; i < count; i++) {
        fputs(i ? ",\n  " : "\n  ", to);
        write_sample(to, &all[i]);
    }
    fputs("]}\n", to);
    const bool done = !fclose(to) && report_save(r, folder, "times", ".json", text, bytes);
    free(text);
    return done;
}

bool time_samples(replay *r, uint64_t samples, uint64_t sets, uint8_t *const *given, const char *folder) {
    clock_set clocks;
    sample *all = calloc(samples, sizeof *all);
    if (!all) return replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
    r->keeps = true;
    /* the first call allocates, loads code, and is not timed */
    bool done = restore(r, 0, given) && report_before(r) && replay_call(r) && choose_restored(r) &&
                replay_prepare_again(r) && open_clocks(r, &clocks);
    uint64_t taken = 0;
    for (; done && taken < samples; taken++) {
        all[taken].set = taken % sets;
        done = restore(r, all[taken].set, given) && take(r, &clocks, taken, &all[taken]) &&
               keep_outputs(r, folder, all, taken, sets);
    }
    if (done) done = write_times(r, folder, &clocks, all, taken);
    free(all);
    return done;
}
