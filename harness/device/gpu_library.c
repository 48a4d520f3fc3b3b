/* gpu_library.c - the library on a real GPU: times of the first call and of every call, and bits.
 *
 *     make build/tests/gpu_library && build/tests/gpu_library
 *
 * Prints one JSON object a line and ends with status 1 where one of them is not as it should be. The kernel to compare
 * with is attention/wgmma through the harness: the same machine code is linked in.
 */
#include "harness/about.h"
#include "harness/device/on_gpu.h"
#include "include/flashladder.h"
#include "runtime/config.h"
#include "runtime/gpu_kernel.h"
#include "runtime/launch.h"
#include "runtime/tensor_maps.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static struct cuda_driver cuda;
static char gpu_name[128];
static bool all_good = true;

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        const int must_result = (int)(call);                                                                           \
        if (must_result) {                                                                                             \
            fprintf(stderr, "%s: %d, %s\n", #call, must_result, fl_error());                                           \
            exit(3);                                                                                                   \
        }                                                                                                              \
    } while (0)

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

/* One line: a figure, its numbers or words as JSON, and whether it is as it should be. */
static void __attribute__((format(printf, 3, 4))) say(const char *figure, bool good, const char *format, ...) {
    va_list arguments;
    printf("{\"figure\": \"%s\", \"gpu\": \"%s\", ", figure, gpu_name);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(", \"good\": %s}\n", good ? "true" : "false");
    fflush(stdout);
    all_good = all_good && good;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

static struct problem problem_of(int64_t seq, int64_t heads, bool causal) {
    struct problem problem = problem_square(1, heads, seq);
    problem.KV_heads = heads > 2 ? heads / 2 : heads;
    problem.dtype = BF16;
    problem.causal = causal;
    return problem;
}

static CUstream new_stream(void) {
    CUstream stream;
    MUST(cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* ---- first call ---- */

/* In a fresh process, with the context of the caller. */
static fl_library *first_call(void) {
    struct attention attention;
    fl_library *library;
    attention_on_gpu(&cuda, &attention, problem_of(1024, 4, true), NULL);
    const CUstream stream = new_stream();
    const double start = now_us();
    MUST(fl_open(FL_GPU, &library));
    const double opened = now_us();
    MUST(fl_prepare(library, &attention.asked));
    const double prepared = now_us();
    MUST(fl_forward(library, &attention.asked, &attention.tensors, stream));
    const double queued = now_us();
    MUST(cuda.cuStreamSynchronize(stream));
    const double ended = now_us();
    say("first call", ended - start <= 150e3,
        "\"open_ms\": %.2f, \"prepare_ms\": %.2f, \"forward_ms\": %.2f, \"kernel_ms\": %.2f, \"total_ms\": %.2f, "
        "\"most_ms\": 150",
        (opened - start) / 1e3, (prepared - opened) / 1e3, (queued - prepared) / 1e3, (ended - queued) / 1e3,
        (ended - start) / 1e3);
    const bool right = attention_right_after(&cuda, &attention, stream);
    say("first result", right, "\"max_error_over_bound\": %.3f", attention.verdict.max_over_bound);
    attention_free_on_gpu(&cuda, &attention);
    return library;
}

/* ---- overhead ---- */

enum { CALLS = 4000, TOGETHER = 20 };

/* The bare launch of the harness: everything but cuLaunchKernel was made before. */
struct bare {
    CUmodule module;
    struct gpu_kernel kernel;
    launch_shape shape;
    attention_args args;
    tensor_maps maps;
};

static void make_bare(struct bare *bare, const struct attention *attention, CUdeviceptr tickets, int sms) {
    const struct problem *const problem = &attention->inputs.problem;
    const struct code_image *const image = image_find(fl_images, fl_image_count, "sm_90a");
    struct instance_table table;
    struct failure failure;
    struct tensor_layout layouts[N_TENSORS];
    const struct instance *instance = NULL;
    struct kernel_config own;
    MUST(instance_table_read(&table, fl_images, fl_image_count, &failure));
    MUST(config_parse(about_config(), &own, &failure));
    own.dtype = problem->dtype;
    if (!(instance = instance_find(&table, &own)) || !image) exit(3);
    MUST(cuda.cuModuleLoadData(&bare->module, image->bytes));
    MUST(gpu_kernel_find(&cuda, bare->module, instance, &bare->kernel, &failure));
    bare->args = problem_args(problem);
    bare->args.Q = attention->tensors.q;
    bare->args.K = attention->tensors.k;
    bare->args.V = attention->tensors.v;
    bare->args.O = attention->tensors.o;
    bare->args.tickets = (int32_t *)(uintptr_t)tickets;
    bare->shape = launch_of(&own, &bare->args, sms);
    tensor_layouts(&bare->args, &own, layouts);
    MUST(tensor_maps_of_driver(&cuda, problem->dtype, layouts, &bare->maps, &failure));
    bare->kernel.symbol = "attention/wgmma";
}

/* Host time of each call, the medians of calls that take turns; the stream is emptied every TOGETHER calls of each, so
 * that no call waits for room in its queue. */
static void overhead(fl_library *library, int sms) {
    static double bare_us[CALLS], library_us[CALLS];
    struct attention attention;
    struct bare bare;
    struct failure failure;
    const CUstream stream = new_stream();
    attention_on_gpu(&cuda, &attention, problem_of(128, 1, false), "attention/wgmma");
    make_bare(&bare, &attention, on_gpu(&cuda, NULL, TICKETS_BYTES), sms);
    MUST(fl_prepare(library, &attention.asked));
    for (int round = 0; round < 2; round++) /* the first warms up */
        for (int i = 0; i < CALLS; i++) {
            const double start = now_us();
            MUST(gpu_kernel_launch(&cuda, &bare.kernel, &bare.shape, &bare.args, &bare.maps, stream, &failure));
            const double between = now_us();
            MUST(fl_forward(library, &attention.asked, &attention.tensors, stream));
            library_us[i] = now_us() - between;
            bare_us[i] = between - start;
            if (i % TOGETHER == TOGETHER - 1) MUST(cuda.cuStreamSynchronize(stream));
        }
    const double bare_median = median_of(bare_us, CALLS), library_median = median_of(library_us, CALLS);
    say("overhead", library_median - bare_median <= 2,
        "\"bare_us\": %.3f, \"fl_forward_us\": %.3f, \"overhead_us\": %.3f, \"most_us\": 2, \"calls\": %d", bare_median,
        library_median, library_median - bare_median, CALLS);
    attention_free_on_gpu(&cuda, &attention);
}

/* ---- bits ---- */

/* O and log-sum-exp of the harness's own launch of attention/wgmma. */
static void bits_of_the_harness(fl_library *library) {
    struct failure failure;
    struct backend *backend;
    struct instance_table table;
    struct kernel_code code;
    struct attention attention;
    struct problem problem = problem_of(1000, 4, true);
    struct kernel_config own;
    const CUstream stream = new_stream();
    problem.lse = true;
    problem.layout = LAYOUT_PADDED;
    attention_on_gpu(&cuda, &attention, problem, "attention/wgmma");
    MUST(fl_forward(library, &attention.asked, &attention.tensors, stream));
    const bool right = attention_right_after(&cuda, &attention, stream);
    const size_t bytes = (size_t)problem_bytes(&problem, TENSOR_O), lse_bytes = (size_t)problem_lse_bytes(&problem);
    uint16_t *const O = malloc(bytes);
    float *const lse = malloc(lse_bytes);
    memcpy(O, attention.output.O, bytes);
    memcpy(lse, attention.lse, lse_bytes);
    MUST(gpu_open(&backend, 0, true, &failure));
    MUST(instance_table_read(&table, fl_images, fl_image_count, &failure));
    MUST(config_parse(about_config(), &own, &failure));
    own.dtype = problem.dtype;
    MUST(backend->ops->set_problem(backend, &attention.inputs, &failure));
    MUST(backend->ops->set_instance(backend, instance_find(&table, &own), &code, &failure));
    MUST(backend->ops->poison(backend, &failure));
    MUST(backend->ops->launch(backend, &failure));
    MUST(backend->ops->read_output(backend, &attention.output, &failure));
    const bool same = !memcmp(O, attention.output.O, bytes) && !memcmp(lse, attention.lse, lse_bytes);
    say("bits of the harness", same && right, "\"same_bits\": %s, \"right\": %s, \"max_error_over_bound\": %.3f",
        same ? "true" : "false", right ? "true" : "false", attention.verdict.max_over_bound);
    backend->ops->close(backend);
    free(O);
    free(lse);
    attention_free_on_gpu(&cuda, &attention);
}

/* ---- a graph together with its stream, and streams together ---- */

static CUresult (*begin_capture)(CUstream stream, int how);
static CUresult (*end_capture)(CUstream stream, void **graph);
static CUresult (*instantiate)(void **launched, void *graph, unsigned long long flags);
static CUresult (*launch_graph)(void *launched, CUstream stream);

static void look_up(const char *name, void *function) {
    void *const address = dlsym(cuda.library, name);
    if (!address) exit(3);
    memcpy(function, &address, sizeof address);
}

/* Calls on one problem, each of which must leave the bits of the first. */
struct stream_work {
    fl_library *library;
    struct attention attention;
    CUstream stream;
    void *graph; /* launched instead of calls; NULL for calls */
    int launches, wrong;
    uint16_t *O;
};

static void prepare_work(struct stream_work *work, fl_library *library, int64_t seq) {
    *work = (struct stream_work){.library = library, .stream = new_stream(), .launches = 400};
    attention_on_gpu(&cuda, &work->attention, problem_of(seq, 4, true), "attention/wgmma");
    MUST(fl_forward(library, &work->attention.asked, &work->attention.tensors, work->stream));
    if (!attention_right_after(&cuda, &work->attention, work->stream)) work->wrong++;
    const size_t bytes = (size_t)problem_bytes(&work->attention.inputs.problem, TENSOR_O);
    if (!(work->O = malloc(bytes))) exit(3);
    memcpy(work->O, work->attention.memory[TENSOR_O], bytes);
}

static void *run_work(void *context) {
    struct stream_work *const work = context;
    struct attention *const attention = &work->attention;
    const size_t bytes = (size_t)problem_bytes(&attention->inputs.problem, TENSOR_O);
    CUcontext current;
    MUST(cuda.cuStreamGetCtx(work->stream, &current));
    MUST(cuda.cuCtxSetCurrent(current));
    for (int i = 0; i < work->launches; i++) {
        if (work->graph)
            MUST(launch_graph(work->graph, work->stream));
        else
            MUST(fl_forward(work->library, &attention->asked, &attention->tensors, work->stream));
        if (i % 20 != 19) continue;
        if (!attention_read(&cuda, attention, work->stream)) work->wrong++;
        work->wrong += memcmp(work->O, attention->memory[TENSOR_O], bytes) != 0;
        MUST(cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)attention->tensors.o, POISON_BYTE, bytes, work->stream));
    }
    return NULL;
}

static void concurrently(fl_library *library, const char *figure, bool with_graph) {
    struct stream_work works[3];
    pthread_t threads[3];
    void *graph;
    int wrong = 0;
    for (int i = 0; i < 3; i++) prepare_work(&works[i], library, 300 + 100 * i);
    if (with_graph) { /* of the problem and the stream that the first work has, but launched in a stream of its own */
        struct stream_work *const captured = &works[1];
        MUST(begin_capture(captured->stream, 0));
        for (int i = 0; i < 3; i++)
            MUST(fl_forward(library, &captured->attention.asked, &captured->attention.tensors, captured->stream));
        MUST(end_capture(captured->stream, &graph));
        MUST(instantiate(&captured->graph, graph, 0));
        cuda.cuStreamDestroy_v2(works[0].stream);
        works[0].stream = captured->stream; /* calls go where the capture was */
        captured->stream = new_stream();
    }
    for (int i = 0; i < 3; i++) MUST(pthread_create(&threads[i], NULL, run_work, &works[i]));
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        wrong += works[i].wrong;
        free(works[i].O);
        attention_free_on_gpu(&cuda, &works[i].attention);
    }
    say(figure, !wrong, "\"threads\": 3, \"launches\": %d, \"wrong\": %d", 3 * works[0].launches, wrong);
}

/* ---- another GPU, where there is one ---- */

static void two_gpus(fl_library *library, CUcontext first) {
    CUcontext context, current;
    CUdevice device;
    struct attention attention;
    MUST(cuda.cuDeviceGet(&device, 1));
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuda.cuCtxSetCurrent(context));
    attention_on_gpu(&cuda, &attention, problem_of(700, 4, true), "attention/wgmma");
    const CUstream stream = new_stream();
    MUST(cuda.cuCtxSetCurrent(first));
    MUST(fl_forward(library, &attention.asked, &attention.tensors, stream));
    MUST(cuda.cuCtxGetCurrent(&current));
    bool right = attention_right_after(&cuda, &attention, stream);
    say("a stream of another GPU", right && current == first, "\"max_error_over_bound\": %.3f, \"context\": \"%s\"",
        attention.verdict.max_over_bound, current == first ? "as before" : "changed");
    attention.asked.device = 1;
    MUST(cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)attention.tensors.o, POISON_BYTE,
                              (size_t)problem_bytes(&attention.inputs.problem, TENSOR_O), stream));
    MUST(cuda.cuStreamSynchronize(stream));
    MUST(fl_forward(library, &attention.asked, &attention.tensors, NULL));
    MUST(cuda.cuCtxGetCurrent(&current));
    MUST(cuda.cuCtxSetCurrent(context));
    right = attention_right_after(&cuda, &attention, NULL);
    MUST(cuda.cuCtxSetCurrent(first));
    say("no stream, another GPU by its number", right && current == first, "\"max_error_over_bound\": %.3f",
        attention.verdict.max_over_bound);
    attention_free_on_gpu(&cuda, &attention);
}

int main(void) {
    struct failure failure;
    CUdevice device;
    CUcontext context;
    fl_library *library;
    int sms, gpus;
    const double start = now_us();
    MUST(cuda_driver_open(&cuda, &failure));
    MUST(cuda.cuInit(0));
    MUST(cuda.cuDeviceGetCount(&gpus));
    MUST(cuda.cuDeviceGet(&device, 0));
    MUST(cuda.cuDeviceGetName(gpu_name, sizeof gpu_name, device));
    MUST(cuda.cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuda.cuCtxSetCurrent(context));
    say("context", true, "\"ms\": %.1f", (now_us() - start) / 1e3);
    look_up("cuStreamBeginCapture_v2", &begin_capture);
    look_up("cuStreamEndCapture", &end_capture);
    look_up("cuGraphInstantiateWithFlags", &instantiate);
    look_up("cuGraphLaunch", &launch_graph);
    library = first_call();
    overhead(library, sms);
    concurrently(library, "three threads, three streams", false);
    concurrently(library, "a graph beside its stream", true);
    bits_of_the_harness(library);
    if (gpus > 1) two_gpus(library, context);
    fl_close(library);
    return all_good ? 0 : 1;
}
