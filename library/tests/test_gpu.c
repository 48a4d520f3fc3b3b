/* test_gpu.c - the library on the emulated driver, with the GPUs and faults of faulty_cuda.c: contexts, streams,
 * captures, workspaces, loading, and what it rejects. gpu_library.c runs on a real GPU.
 *
 * The driver is in the folder of the plain tests. Once it is loaded, dlopen() finds it under its name, libcuda.so.1.
 */
#include "common/tests/tap.h"
#include "harness/device/on_gpu.h"
#include "harness/tests/faulty_cuda.h"
#include "include/flashladder.h"
#include "runtime/cuda_driver.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static struct cuda_driver cuda;
static struct fake_log *(*fake_log)(void);
static CUresult (*begin_capture)(CUstream stream, int how);
static CUresult (*end_capture)(CUstream stream, void **graph);
static CUresult (*instantiate)(void **launched, void *graph, unsigned long long flags);
static CUresult (*launch_graph)(void *launched, CUstream stream);
static CUresult (*destroy_graph)(void *graph);
static CUresult (*destroy_launched)(void *launched);
static CUcontext contexts[2]; /* the primary ones */

static void look_up(void *library, const char *name, void *function) {
    void *const address = dlsym(library, name);
    if (!address) abort();
    memcpy(function, &address, sizeof address);
}

static void fake(const char *how) {
    setenv("FAKE_CUDA", how, 1);
}

/* The driver with two GPUs, and their contexts; none is current. */
static void open_driver(void) {
    struct failure failure;
    char path[4096];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 40);
    if (length < 0) abort();
    path[length] = 0;
    strcpy(strrchr(path, '/'), "/../tests/libcuda.so.1");
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("Bail out! %s\n", dlerror());
        exit(1);
    }
    fake("devices=2");
    if (cuda_driver_open(&cuda, &failure) || cuda.cuInit(0)) abort();
    look_up(library, "fake_log", &fake_log);
    look_up(library, "cuStreamBeginCapture_v2", &begin_capture);
    look_up(library, "cuStreamEndCapture", &end_capture);
    look_up(library, "cuGraphInstantiateWithFlags", &instantiate);
    look_up(library, "cuGraphLaunch", &launch_graph);
    look_up(library, "cuGraphDestroy", &destroy_graph);
    look_up(library, "cuGraphExecDestroy", &destroy_launched);
    for (int i = 0; i < 2; i++)
        if (cuda.cuDevicePrimaryCtxRetain(&contexts[i], i)) abort();
}

static const struct fake_launch *last_launch(void) {
    const struct fake_log *const log = fake_log();
    return &log->launches[(log->n_launches - 1) % FAKE_LAUNCHES];
}

static CUcontext current(void) {
    CUcontext context;
    cuda.cuCtxGetCurrent(&context);
    return context;
}

/* ---- problems in device memory ---- */

static CUstream stream_of(int device) {
    CUcontext popped;
    CUstream stream;
    cuda.cuCtxPushCurrent_v2(contexts[device]);
    if (cuda.cuStreamCreate(&stream, 0)) abort();
    cuda.cuCtxPopCurrent_v2(&popped);
    return stream;
}

static struct attention attention_on(int device, struct problem problem, const char *version) {
    CUcontext popped;
    struct attention attention;
    cuda.cuCtxPushCurrent_v2(contexts[device]);
    attention_on_gpu(&cuda, &attention, problem, version);
    cuda.cuCtxPopCurrent_v2(&popped);
    return attention;
}

static bool right_after(struct attention *attention, CUstream stream) {
    return attention_right_after(&cuda, attention, stream);
}

static void free_on(struct attention *attention) {
    attention_free_on_gpu(&cuda, attention);
}

static struct problem small_problem(void) {
    struct problem problem = problem_square(1, 2, 5);
    problem.KV_heads = 1;
    problem.seq_k = 9;
    problem.d_head = 64;
    return problem;
}

static void rejected(fl_library *library, const struct attention *attention, const fl_tensors *tensors, CUstream stream,
                     const char *words) {
    const fl_status status = fl_forward(library, &attention->asked, tensors, stream);
    ok(status == FL_INVALID || status == FL_UNSUPPORTED, "rejected: status %d", status);
    says(fl_error(), words, words);
}

/* ---- streams and contexts ---- */

static void streams_and_contexts(fl_library *library) {
    struct problem problem = small_problem();
    problem.lse = problem.causal = true;
    struct attention attention = attention_on(1, problem, NULL);
    const CUstream stream = stream_of(1);
    fl_status status = fl_forward(library, &attention.asked, &attention.tensors, stream);
    ok(!status && !current(), "a stream of GPU 1, no context is current: %s", fl_error());
    ok(last_launch()->stream == stream && last_launch()->device == 1, "the launch is in that stream");
    ok(right_after(&attention, stream), "O and log-sum-exp are right");
    status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
    ok(!status && last_launch()->device == 1 && !current(), "no stream, no context: the GPU of the tensors");
    cuda.cuCtxSetCurrent(contexts[0]);
    status = fl_forward(library, &attention.asked, &attention.tensors, stream);
    ok(!status && current() == contexts[0], "the current context, of GPU 0, stays current");
    status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
    ok(status == FL_INVALID && current() == contexts[0], "no stream: the current context, whose GPU is another");
    says(fl_error(), "is memory of GPU 1; must be memory of GPU 0, Fake GPU, which runs the call", "the other GPU");
    attention.asked.device = 1;
    status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
    ok(!status && last_launch()->device == 1 && current() == contexts[0], "unless the GPU is named");
    status = fl_forward(library, &attention.asked, &attention.tensors, (CUstream)(uintptr_t)2);
    ok(!status && last_launch()->stream == (CUstream)(uintptr_t)2, "the default stream of a thread has a number");
    attention.asked.device = 0;
    status = fl_forward(library, &attention.asked, &attention.tensors, stream);
    ok(status == FL_INVALID, "a GPU that is not that of the stream");
    says(fl_error(), "device 0: the stream is of GPU 1", "the stream's GPU");
    attention.asked.device = 2;
    rejected(library, &attention, &attention.tensors, stream, "device 2: must be below 2, the number of GPUs");
    attention.asked.device = -1;
    cuda.cuStreamDestroy_v2(stream);
    rejected(library, &attention, &attention.tensors, stream, "the driver does not recognize it");
    free_on(&attention);
    cuda.cuCtxSetCurrent(NULL);
}

static void layouts(fl_library *library) {
    struct problem problem = small_problem();
    const CUstream stream = stream_of(0);
    for (problem.layout = LAYOUT_BHSD; problem.layout <= LAYOUT_PADDED; problem.layout++) {
        struct attention attention = attention_on(0, problem, NULL);
        const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, stream);
        ok(!status && right_after(&attention, stream), "layout %s: %s", layout_name(problem.layout), fl_error());
        free_on(&attention);
    }
    struct attention attention = attention_on(0, small_problem(), NULL);
    attention.asked.q = attention.asked.o = (fl_strides){0, 132, 64};
    attention.asked.k = attention.asked.v = (fl_strides){0, 64, 0};
    rejected(library, &attention, &attention.tensors, stream,
             "q.seq 132: must be a positive multiple of 8 elements (16 bytes)");
    attention.asked.q = attention.asked.o = (fl_strides){0, INT64_C(1) << 31, 64};
    rejected(library, &attention, &attention.tensors, NULL, "q.seq 2147483648: must be at most 2147483647 elements");
    attention.asked.q = attention.asked.o = (fl_strides){0};
    fl_tensors tensors = attention.tensors;
    tensors.v = (const char *)tensors.v + 8;
    rejected(library, &attention, &tensors, stream, "must be a multiple of 16 bytes");
    attention.asked.seq_k = 0;
    attention.asked.k = attention.asked.v = (fl_strides){0};
    ok(!fl_forward(library, &attention.asked, &attention.tensors, stream) &&
           attention_read(&cuda, &attention, stream) && !attention.memory[TENSOR_O][0],
       "no key: O is 0");
    static const struct {
        int batch, seq_q;
        fl_strides o;
    } gaps[] = {{1, 5, {0, 136, 64}}, {1, 1, {0, 0, 72}}, {2, 2, {264, 128, 64}}};
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++) {
        attention.asked.batch = gaps[i].batch;
        attention.asked.seq_q = gaps[i].seq_q;
        attention.asked.o = gaps[i].o;
        rejected(library, &attention, &attention.tensors, stream, "can only be written to a contiguous o");
    }
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

/* A thread reuses the state of its last call only for the same version and config. */
static void calls_that_differ_in_a_word(fl_library *library) {
    struct problem problem = small_problem();
    problem.d_head = 128, problem.KV_heads = problem.heads;
    struct attention attention = attention_on(0, problem, "attention/mma_sync");
    const CUstream stream = stream_of(0);
    fl_support support = {.size = sizeof support};
    char other[sizeof support.config];
    ok(!fl_forward(library, &attention.asked, &attention.tensors, stream) && last_launch()->tickets,
       "attention/mma_sync is dynamically scheduled");
    const char *const by_name = last_launch()->symbol;
    attention.asked.version = NULL;
    ok(!fl_forward(library, &attention.asked, &attention.tensors, stream) && strcmp(last_launch()->symbol, by_name),
       "and by the fastest, where none is named");
    attention.asked.version = "attention/mma_sync";
    ok(!fl_query(library, &attention.asked, &support) &&
           !fl_forward(library, &attention.asked, &attention.tensors, stream),
       "by the config of attention/mma_sync, %s", support.config);
    const char *const own = last_launch()->symbol;
    fl_kernel_info info = {.size = sizeof info};
    for (int32_t i = 0; !fl_kernel(library, i, &info); i++)
        if (!strcmp(info.kernel, "attention/mma_sync") && info.d_head == 128 && info.dtype == FL_FP16 && !info.own)
            break;
    attention.asked.config = info.config;
    ok(!fl_forward(library, &attention.asked, &attention.tensors, stream) && strcmp(last_launch()->symbol, own),
       "by another config of attention/mma_sync, %s", info.config);
    attention.asked.config = NULL;
    ok(!fl_forward(library, &attention.asked, &attention.tensors, stream) && !strcmp(last_launch()->symbol, own),
       "and by its own, where none is named");
    strcpy(other, support.config);
    char *const size = strstr(other, ", 128, ");
    memcpy(size, ", 999, ", 7);
    attention.asked.config = other;
    ok(fl_forward(library, &attention.asked, &attention.tensors, stream) == FL_INVALID && last_launch()->symbol == own,
       "not by another one, which it has not: %s", fl_error());
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

/* ---- memory that is not the GPU's ---- */

static void memory_of_others(fl_library *library) {
    struct attention attention = attention_on(0, small_problem(), NULL);
    const CUstream stream = stream_of(0);
    fl_tensors tensors = attention.tensors;
    void *pinned;
    ok(!fl_forward(library, &attention.asked, &tensors, stream), "its own memory");
    tensors.k = attention.memory[TENSOR_K];
    rejected(library, &attention, &tensors, stream, "must be device memory of GPU 0: the driver does not recognize it");
    if (cuda.cuMemHostAlloc(&pinned, 4096, 0)) abort();
    tensors.k = pinned;
    rejected(library, &attention, &tensors, stream, "it is host memory mapped for the GPU");
    tensors = attention.tensors;
    tensors.workspace = attention.memory[TENSOR_Q];
    rejected(library, &attention, &tensors, stream, "workspace 0x");
    tensors = attention.tensors;
    cuda.cuMemFree_v2((CUdeviceptr)(uintptr_t)tensors.v);
    attention.tensors.v = NULL;
    rejected(library, &attention, &tensors, stream, "or was freed");
    cuda.cuMemFreeHost(pinned);
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

/* ---- workspaces and captures ---- */

static const int32_t *tickets_of(fl_library *library, const struct attention *attention, CUstream stream) {
    return fl_forward(library, &attention->asked, &attention->tensors, stream) ? NULL : last_launch()->tickets;
}

static int counters_set(const int32_t *counters, int count) {
    int32_t copy[1024];
    int set = 0;
    if (cuda.cuMemcpyDtoH_v2(copy, (CUdeviceptr)(uintptr_t)counters, (size_t)count * sizeof *copy)) abort();
    for (int i = 0; i < count; i++) set += copy[i] != 0;
    return set;
}

struct own_stream {
    fl_library *library;
    const struct attention *attention;
    const int32_t *tickets;
};

static void *use_own_stream(void *context) {
    struct own_stream *const own = context;
    cuda.cuCtxSetCurrent(contexts[0]);
    own->tickets = tickets_of(own->library, own->attention, (CUstream)(uintptr_t)CU_STREAM_PER_THREAD);
    return NULL;
}

/* One handle means the default streams of all threads. */
static void streams_of_threads(fl_library *library) {
    struct attention attention = attention_on(0, small_problem(), "attention/wgmma");
    struct own_stream owns[2];
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        owns[i] = (struct own_stream){library, &attention, NULL};
        if (pthread_create(&thread, NULL, use_own_stream, &owns[i])) abort();
        pthread_join(thread, NULL);
    }
    ok(owns[0].tickets && owns[1].tickets && owns[0].tickets != owns[1].tickets,
       "the default stream of each thread has a workspace of its own");
    free_on(&attention);
}

static void workspaces(fl_library *library) {
    struct attention attention = attention_on(0, small_problem(), "attention/wgmma");
    const CUstream one = stream_of(0), other = stream_of(0);
    fl_support support = {.size = sizeof support};
    ok(!fl_query(library, &attention.asked, &support) && support.workspace_bytes == 8, "attention/wgmma wants 8 bytes");
    const int32_t *const of_one = tickets_of(library, &attention, one), *const of_other =
                                                                            tickets_of(library, &attention, other);
    ok(of_one && of_other && of_one != of_other, "each stream has a workspace of its own");
    ok(tickets_of(library, &attention, one) == of_one, "the same in each call");
    ok(!counters_set(of_one, 2), "it is zero");
    cuda.cuCtxSetCurrent(contexts[0]);
    attention.tensors.workspace = (void *)(uintptr_t)on_gpu(&cuda, NULL, 16);
    cuda.cuCtxSetCurrent(NULL);
    ok(tickets_of(library, &attention, one) == attention.tensors.workspace, "one that is given is used");
    cuda.cuMemFree_v2((CUdeviceptr)(uintptr_t)attention.tensors.workspace);
    attention.tensors.workspace = NULL;
    free_on(&attention);
    cuda.cuStreamDestroy_v2(one);
    cuda.cuStreamDestroy_v2(other);
}

/* Workspace of a kernel whose CTAs exchange partial results: counters and parts. */
static void large_workspaces(fl_library *library) {
    enum { COUNTERS = 4096 };
    struct problem problem = small_problem();
    problem.seq_q = 3, problem.seq_k = 1000;
    struct attention attention = attention_on(0, problem, "attention/decode");
    const CUstream streams[] = {stream_of(0), stream_of(0)};
    const int32_t *of[2], *captured[2];
    fl_support support = {.size = sizeof support};
    void *graph;
    ok(!fl_query(library, &attention.asked, &support) && support.workspace_bytes > COUNTERS, "%d bytes",
       (int)support.workspace_bytes);
    for (int i = 0; i < 2; i++) {
        of[i] = tickets_of(library, &attention, streams[i]);
        ok(of[i] && right_after(&attention, streams[i]), "right in stream %d: %s", i, fl_error());
        ok(tickets_of(library, &attention, streams[i]) == of[i], "the same in each call");
    }
    ok(llabs((const char *)of[0] - (const char *)of[1]) >= support.workspace_bytes, "they do not overlap");
    ok(!counters_set(of[0], COUNTERS / 4), "the counters are zero again");
    for (int i = 0; i < 2; i++) {
        begin_capture(streams[0], 0);
        captured[i] = tickets_of(library, &attention, streams[0]);
        ok(captured[i] && captured[i] != of[0] && tickets_of(library, &attention, streams[0]) == captured[i], "shared");
        end_capture(streams[0], &graph);
        destroy_graph(graph);
    }
    ok(llabs((const char *)captured[0] - (const char *)captured[1]) >= support.workspace_bytes, "each capture has one");
    attention.tensors.workspace = (void *)(uintptr_t)on_gpu(&cuda, NULL, (size_t)support.workspace_bytes);
    ok(tickets_of(library, &attention, streams[0]) == attention.tensors.workspace, "one that is given is used");
    ok(right_after(&attention, streams[0]), "it is large enough");
    cuda.cuMemFree_v2((CUdeviceptr)(uintptr_t)attention.tensors.workspace);
    attention.tensors.workspace = NULL;
    free_on(&attention);
    for (int i = 0; i < 2; i++) cuda.cuStreamDestroy_v2(streams[i]);
}

/* A stream whose launches need more and more; the memory of launches in flight stays. */
static void growing_workspaces(fl_library *library) {
    enum { SEQUENCES = 4200, PIECE = 16 << 20 };
    struct problem problem = small_problem();
    problem.batch = SEQUENCES, problem.heads = 16, problem.seq_q = problem.seq_k = 1;
    struct attention attention = attention_on(0, problem, "attention/decode");
    const CUstream stream = stream_of(0);
    fl_support support = {.size = sizeof support};
    fake("devices=2,idle");
    const int32_t *const small = tickets_of(library, &attention, stream);
    const int64_t held = fake_log()->held_bytes;
    attention.asked.split_keys = 128; /* nothing is computed: that would take a minute */
    ok(!fl_query(library, &attention.asked, &support) && support.workspace_bytes > PIECE,
       "parts of a size need more than one piece of memory: %s", fl_error());
    const int32_t *const large = tickets_of(library, &attention, stream);
    ok(large && large != small && fake_log()->held_bytes - held >= support.workspace_bytes, "allocated: %s",
       fl_error());
    attention.asked.split_keys = 0;
    ok(tickets_of(library, &attention, stream) == large, "what is large enough is used again");
    fake("devices=2");
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

/* Sequences of several lengths, pages and windows, each in a stream and in a captured launch that runs again. */
static void serving(fl_library *library) {
    static const struct number_list queries = {2, {5, 3}}, keys = {2, {9, 0}};
    struct problem problem = small_problem();
    problem.batch = 2;
    problem.lse = true;
    problem.KV_lengths = &keys;
    problem.Q_lengths = &queries;
    problem.layout = LAYOUT_PACKED;
    problem.windowed = problem.sinks = true;
    problem.window_left = 2, problem.window_right = 1;
    struct attention packed = attention_on(1, problem, NULL);
    fl_support support = {.size = sizeof support};
    fl_problem empty = packed.asked;
    empty.total_q = 0;
    empty.q = empty.o = (fl_strides){0, 64, 0};
    ok(!fl_query(library, &empty, &support), "any strides of tensors without rows: %s", fl_error());
    problem = small_problem();
    problem.batch = 2;
    problem.page_rows = 16;
    problem.KV_lengths = &keys;
    struct attention paged = attention_on(1, problem, NULL);
    problem.layout = LAYOUT_PACKED;
    problem.Q_lengths = &queries;
    problem.seq_q = 5;
    struct attention ragged = attention_on(1, problem, NULL);
    const CUstream stream = stream_of(1);
    static const char *const names[] = {"packed, a window, sinks", "pages", "packed queries over pages"};
    struct attention *const all[] = {&packed, &paged, &ragged};
    for (int i = 0; i < 3; i++) {
        void *graph;
        const fl_status status = fl_forward(library, &all[i]->asked, &all[i]->tensors, stream);
        ok(!status && right_after(all[i], stream), "%s: %s", names[i], fl_error());
        begin_capture(stream, 0);
        ok(!fl_forward(library, &all[i]->asked, &all[i]->tensors, stream) && last_launch()->captured, "captured: %s",
           fl_error());
        end_capture(stream, &graph);
        destroy_graph(graph);
    }
    const int synchronized = fake_log()->synchronizations;
    ok(!fl_forward(library, &paged.asked, &paged.tensors, stream) && fake_log()->synchronizations == synchronized,
       "nothing waits for the GPU");
    fl_tensors tensors = paged.tensors;
    tensors.block_table = paged.served;
    ok(fl_forward(library, &paged.asked, &tensors, stream) == FL_INVALID, "a table on the host");
    says(fl_error(), "block_table 0x", "a table on the host");
    says(fl_error(), "must be device memory of GPU 1", "a table on the host");
    for (int i = 0; i < 3; i++) free_on(all[i]);
    cuda.cuStreamDestroy_v2(stream);
}

/* A capture before anything was loaded: the fake driver refuses loading, allocating and waiting as part of it. */
static void captures(void) {
    fl_library *library;
    struct attention attention = attention_on(0, small_problem(), "attention/wgmma");
    const CUstream stream = stream_of(0);
    const int32_t *tickets[3];
    void *graph, *launched;
    if (fl_open(FL_GPU, &library)) abort();
    begin_capture(stream, 0);
    fl_status status = fl_forward(library, &attention.asked, &attention.tensors, stream);
    ok(!status && last_launch()->captured, "the first call of all is captured: %s", fl_error());
    tickets[0] = last_launch()->tickets;
    tickets[1] = tickets_of(library, &attention, stream);
    end_capture(stream, &graph);
    tickets[2] = tickets_of(library, &attention, stream);
    ok(tickets[0] && tickets[1] && tickets[2] && tickets[0] != tickets[1] && tickets[1] != tickets[2] &&
           tickets[0] != tickets[2],
       "captured launches share no workspace, with each other or with the stream");
    const size_t bytes = (size_t)problem_bytes(&attention.inputs.problem, TENSOR_O);
    cuda.cuMemsetD8Async((CUdeviceptr)(uintptr_t)attention.tensors.o, POISON_BYTE, bytes, stream);
    instantiate(&launched, graph, 0);
    launch_graph(launched, stream);
    ok(right_after(&attention, stream), "the graph computes O");
    fl_close(library);
    destroy_launched(launched);
    destroy_graph(graph);
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

/* More streams at once than there are workspaces. */
static void workspaces_used_up(fl_library *library) {
    enum { MOST = 4097 };
    static CUstream streams[MOST];
    struct problem problem = small_problem();
    problem.seq_q = problem.seq_k = 1;
    struct attention attention = attention_on(0, problem, "attention/wgmma");
    int good = 0;
    fake("devices=2,idle");
    for (int i = 0; i < MOST; i++) {
        streams[i] = stream_of(0);
        good += !fl_forward(library, &attention.asked, &attention.tensors, streams[i]);
        if (i % 500 == 0) cuda.cuStreamSynchronize(streams[i]);
    }
    ok(good > 4080 && good < MOST, "workspaces for %d streams in all", good);
    fake("devices=2");
    says(fl_error(), "all 4096 workspaces for streams are in use; pass your own", "used up");
    struct attention on_host;
    attention_new(&on_host, problem);
    on_host.asked.version = "attention/wgmma";
    on_host.asked.device = 0;
    ok(!fl_forward(library, &on_host.asked, &on_host.tensors, NULL) && attention_right(&on_host),
       "a call with host memory brings its own: %s", fl_error());
    attention_free(&on_host);
    for (int i = 0; i < MOST; i++) cuda.cuStreamDestroy_v2(streams[i]);
    free_on(&attention);
}

/* ---- loading ---- */

static void prepared(fl_library *library) {
    struct problem problem = small_problem();
    problem.d_head = 256;
    struct attention attention = attention_on(1, problem, "attention/wgmma");
    const CUstream stream = stream_of(1);
    attention.asked.device = 1;
    ok(!fl_prepare(library, &attention.asked) && !current(), "prepared: %s", fl_error());
    const struct fake_log before = *fake_log();
    const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, stream);
    const struct fake_log *const after = fake_log();
    ok(!status && after->modules == before.modules && after->allocations == before.allocations &&
           after->synchronizations == before.synchronizations,
       "then a call loads nothing, allocates nothing and waits for nothing");
    attention.asked.device = 2;
    ok(fl_prepare(library, &attention.asked) == FL_INVALID, "nothing is prepared for a GPU that is not there");
    says(fl_error(), "device 2: must be below 2, the number of GPUs", "no such GPU");
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

struct worker {
    fl_library *library;
    struct attention attention;
    CUstream stream;
    fl_status status;
    pthread_barrier_t *barrier;
};

static void *work(void *context) {
    struct worker *const worker = context;
    pthread_barrier_wait(worker->barrier);
    for (int i = 0; i < 5 && !worker->status; i++)
        worker->status =
            fl_forward(worker->library, &worker->attention.asked, &worker->attention.tensors, worker->stream);
    return NULL;
}

static void eight_threads(void) {
    enum { THREADS = 8 };
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    fl_library *library;
    if (fl_open(FL_AUTO, &library)) abort();
    pthread_barrier_init(&barrier, NULL, THREADS);
    const int modules = fake_log()->modules;
    for (int i = 0; i < THREADS; i++)
        workers[i] = (struct worker){.library = library,
                                     .attention = attention_on(i % 2, small_problem(), "attention/wgmma"),
                                     .stream = stream_of(i % 2),
                                     .barrier = &barrier};
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, &workers[i])) abort();
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ok(!workers[i].status && right_after(&workers[i].attention, workers[i].stream), "thread %d: right", i);
        free_on(&workers[i].attention);
        cuda.cuStreamDestroy_v2(workers[i].stream);
    }
    ok(fake_log()->modules == modules + 2, "attention/wgmma was loaded once in each of two contexts: %d",
       fake_log()->modules - modules);
    fl_close(library);
    pthread_barrier_destroy(&barrier);
}

/* ---- host memory ---- */

static void host_memory(fl_library *library) {
    struct problem problem = small_problem();
    struct attention attention;
    problem.lse = true;
    for (problem.layout = LAYOUT_BSHD; problem.layout <= LAYOUT_PADDED; problem.layout++) {
        attention_new(&attention, problem);
        attention.asked.device = 1;
        const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, NULL);
        ok(!status && attention_right(&attention) && last_launch()->device == 1 && !current(),
           "host memory, layout %s: right, on GPU 1: %s", layout_name(problem.layout), fl_error());
        ok(fl_forward(library, &attention.asked, &attention.tensors, (void *)64) == FL_INVALID, "a stream");
        says(fl_error(), "must be NULL with host memory", "a stream");
        attention_free(&attention);
    }
}

/* ---- other GPUs ---- */

static void with_driver(const char *how, fl_backend backend, fl_status expected, const char *word) {
    fl_library *library = NULL;
    fl_description description = {.size = sizeof description};
    fake(how);
    const fl_status status = fl_open(backend, &library);
    ok(status == expected && !library == (status != FL_OK), "%s: status %d", how, status);
    if (library) fl_describe(library, &description);
    says(library ? description.why_no_gpu : fl_error(), word, how);
    ok(!library || description.backend == FL_EMULATOR, "%s: a library that opens is the emulator", how);
    fl_close(library);
    fake("devices=2");
}

static void other_gpus(void) {
    static const struct {
        const char *gpus, *version;
        int32_t device, d_head;
        fl_status status;
        const char *words; /* of the config and its reason, or of the error */
        int32_t seq_q, seq_k, windowed;
    } cases[] = {
        {"cc=86,smem=101376", NULL, -1, 128, FL_OK, "(FP16, 128, 128, 32, 8): mma_sync+stages_2", 100, 100, 0},
        {"cc=89,smem=101376", NULL, -1, 256, FL_OK, "(FP16, 256, 64, 16, 4): mma_sync+stages_2", 100, 100, 0},
        {"cc=89,smem=101376", NULL, -1, 96, FL_OK, "(FP16, 96, 128, 64, 8): mma_sync+stages_2", 100, 100, 0},
        {"cc=80,smem=166912", NULL, -1, 128, FL_OK, "(FP16, 128, 256, 32, 8): mma_sync+stages_4", 1000, 1000, 0},
        {"cc=80,smem=166912", NULL, -1, 192, FL_OK, "(FP16, 192, 128, 32, 8): mma_sync+stages_2", 1000, 1000, 0},
        {"cc=86,smem=101376", NULL, -1, 192, FL_OK, "(FP16, 192, 64, 32, 4): mma_sync+stages_2+serve", 100, 100, 1},
        {"cc=80,smem=166912", NULL, -1, 64, FL_OK, "(FP16, 64, 256, 64, 8): mma_sync+stages_4+serve", 256, 256, 1},
        {"cc=80,smem=166912", NULL, -1, 64, FL_OK, "(FP16, 64, 128, 32, 8): mma_sync+stages_4+serve", 100, 100, 1},
        {"cc=80", NULL, -1, 64, FL_OK, "(FP16, 64, 256, 64, 8): mma_sync+stages_4+serve", 300, 300, 1},
        {"cc=80", NULL, -1, 64, FL_OK, "(FP16, 64, 256, 128, 8): mma_sync+stages_4+serve", 2048, 2048, 1},
        {"cc=80,smem=166912", NULL, -1, 128, FL_OK, "(FP16, 128, 16, 64, 4): mma_sync+stages_3+cp_async", 1, 4096, 0},
        {"cc=86,smem=101376", NULL, -1, 128, FL_OK, "(FP16, 128, 16, 64, 2): mma_sync+stages_2+cp_async", 1, 4096, 0},
        {"cc=90", NULL, -1, 128, FL_OK, "(FP16, 128, 16, 64, 4): mma_sync+tensor+stages_3", 1, 4096, 0},
        {"cc=86,smem=49152", NULL, -1, 256, FL_UNAVAILABLE, "of them static: Fake GPU has 49152", 100, 100, 0},
        {"cc=86,smem=101376", "attention/wgmma", -1, 128, FL_UNAVAILABLE, "attention/wgmma was built for", 100, 100, 0},
        {"devices=3,old=2", NULL, -1, 128, FL_OK, "(FP16, 128", 100, 100, 0}, /* the first that has code */
        {"devices=3,old=2", NULL, 1, 128, FL_UNAVAILABLE, "has compute capability 7.5", 100, 100, 0},
        {"cc=120", NULL, -1, 128, FL_UNAVAILABLE, "build with: make ARCHS=\"80 90 120\" lib", 100, 100, 0},
        {"cc=80", NULL, -1, 128, FL_OK, "for the nearest measured problem on compute capability 9.0", 100, 100, 0},
    };
    with_driver("no_device", FL_GPU, FL_UNAVAILABLE, "no GPU");
    with_driver("hidden", FL_AUTO, FL_OK, "no GPU it may use");
    with_driver("cc=75", FL_GPU, FL_UNAVAILABLE, "has compute capability 7.5; the kernels need at least 8.0");
    with_driver("cc=100", FL_GPU, FL_UNAVAILABLE, "build with: make ARCHS=\"80 90 100\" lib");
    with_driver("cc=110", FL_AUTO, FL_OK, "compute capability");
    with_driver("broken", FL_AUTO, FL_ERROR, "cuInit: CUDA_ERROR_UNKNOWN");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_library *library;
        fl_support support = {.size = sizeof support};
        fl_problem problem = {
            .size = sizeof problem, .batch = 1, .heads = 1, .kv_heads = 1, .windowed = cases[i].windowed};
        char text[2 * sizeof support.config + sizeof support.order];
        problem.seq_q = cases[i].seq_q, problem.seq_k = cases[i].seq_k;
        problem.version = cases[i].version, problem.device = cases[i].device, problem.d_head = cases[i].d_head;
        fake(cases[i].gpus);
        if (fl_open(FL_GPU, &library)) abort();
        const fl_status status = fl_query(library, &problem, &support);
        snprintf(text, sizeof text, "%s: %s", support.config, support.order);
        ok(status == cases[i].status, "%s, d_head %d: status %d", cases[i].gpus, cases[i].d_head, status);
        says(status ? fl_error() : text, cases[i].words, cases[i].gpus);
        fl_close(library);
    }
    fake("devices=2");
}

/* A failure does no harm to the next call. */
static void failures(void) {
    static const char *const calls[] = {"cuModuleLoadData",    "cuModuleGetFunction", "cuFuncSetAttribute",
                                        "cuFuncLoad",          "cuMemAlloc_v2",       "cuStreamCreate",
                                        "cuMemsetD8Async",     "cuCtxGetId",          "cuCtxPushCurrent_v2",
                                        "cuStreamIsCapturing", "cuLaunchKernel",      "cuTensorMapEncodeTiled",
                                        "cuCtxGetCurrent"};
    struct attention attention = attention_on(0, small_problem(), "attention/wgmma");
    const CUstream stream = stream_of(0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fl_library *library;
        char how[80];
        snprintf(how, sizeof how, "devices=2,fails=%s:0", calls[i]);
        if (fl_open(FL_GPU, &library)) abort();
        fake(how);
        const fl_status status = fl_forward(library, &attention.asked, &attention.tensors, stream);
        ok(status == FL_ERROR && !current(), "%s fails: status %d", calls[i], status);
        says(fl_error(), "CUDA_ERROR_UNKNOWN", calls[i]);
        fake("devices=2");
        ok(!fl_forward(library, &attention.asked, &attention.tensors, stream) && right_after(&attention, stream),
           "the next call is right: %s", fl_error());
        fl_close(library);
    }
    free_on(&attention);
    cuda.cuStreamDestroy_v2(stream);
}

/* ---- gradients ---- */

static fl_gradients gradients_on(const struct problem *problem, fl_tensors *tensors, int64_t workspace_bytes) {
    const size_t of_Q = (size_t)problem_bytes(problem, TENSOR_Q), of_K = (size_t)problem_bytes(problem, TENSOR_K);
    tensors->workspace = (void *)(uintptr_t)on_gpu(&cuda, NULL, (size_t)workspace_bytes);
    return (fl_gradients){.size = sizeof(fl_gradients),
                          .dout = (const void *)(uintptr_t)on_gpu(&cuda, NULL, of_Q),
                          .dq = (void *)(uintptr_t)on_gpu(&cuda, NULL, 2 * of_Q),
                          .dk = (void *)(uintptr_t)on_gpu(&cuda, NULL, of_K),
                          .dv = (void *)(uintptr_t)on_gpu(&cuda, NULL, of_K)};
}

static void free_gradients(struct attention *attention, const fl_gradients *gradients) {
    const void *const all[] = {gradients->dout, gradients->dq, gradients->dk, gradients->dv,
                               attention->tensors.workspace};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cuda.cuMemFree_v2((CUdeviceptr)(uintptr_t)all[i]);
    attention->tensors.workspace = NULL;
    free_on(attention);
}

static void gradients_of_device_memory(fl_library *library) {
    struct problem problem = small_problem();
    problem.lse = true;
    struct attention attention = attention_on(0, problem, NULL);
    const CUstream stream = stream_of(0);
    fl_support support = {.size = sizeof support};
    ok(!fl_query_backward(library, &attention.asked, &support) && support.workspace_bytes > 0, "%d bytes: %s",
       (int)support.workspace_bytes, support.kernel);
    cuda.cuCtxSetCurrent(contexts[0]);
    fl_gradients gradients = gradients_on(&problem, &attention.tensors, support.workspace_bytes);
    cuda.cuCtxSetCurrent(NULL);
    gradients.dq_strides = (fl_strides){.batch = 8 * 320, .seq = 320, .head = 80};
    for (gradients.deterministic = 0; gradients.deterministic <= 1; gradients.deterministic++) {
        ok(!fl_backward(library, &attention.asked, &attention.tensors, &gradients, stream) && !current(),
           "in a stream: %s", fl_error());
    }
    gradients.deterministic = 1;
    const fl_tensors right = attention.tensors;
    attention.tensors.workspace = NULL;
    says(fl_backward(library, &attention.asked, &attention.tensors, &gradients, stream) ? fl_error() : "",
         "workspace: must be", "workspace: must be");
    attention.tensors = right;
    void *const dq = gradients.dq;
    gradients.dq = attention.inputs.tensors[TENSOR_Q];
    says(fl_backward(library, &attention.asked, &attention.tensors, &gradients, stream) ? fl_error() : "", "dq ",
         "dq ");
    gradients.dq = dq;
    gradients.dq_strides.seq = 12;
    says(fl_backward(library, &attention.asked, &attention.tensors, &gradients, stream) ? fl_error() : "",
         "dq_strides.seq 12: must be a positive multiple of 8 elements",
         "dq_strides.seq 12: must be a positive multiple of 8 elements");
    free_gradients(&attention, &gradients);
    cuda.cuStreamDestroy_v2(stream);
}

/* Bit for bit those of the emulator without a driver: the maps and the workspace of the launches are right. */
static void gradients_of_host_memory(fl_library *library) {
    enum { Q = 2 * 5 * 64, K = 9 * 64 };
    static uint16_t all[2][Q + 2 * K];
    struct problem problem = small_problem();
    struct attention attention;
    fl_library *emulator;
    problem.lse = true;
    attention_new(&attention, problem);
    memset(attention.lse, 0, sizeof(float) * 2 * 5);
    if (fl_open(FL_EMULATOR, &emulator)) abort();
    const int64_t held = fake_log()->held_bytes;
    const int launches = fake_log()->n_launches;
    for (int i = 0; i < 2; i++) {
        const fl_gradients gradients = {.size = sizeof gradients,
                                        .dout = attention.memory[TENSOR_Q],
                                        .dq = all[i],
                                        .dk = all[i] + Q,
                                        .dv = all[i] + Q + K,
                                        .deterministic = 1};
        memcpy(attention.memory[TENSOR_O], attention.memory[TENSOR_Q], sizeof(uint16_t) * Q);
        ok(!fl_backward(i ? emulator : library, &attention.asked, &attention.tensors, &gradients, NULL),
           "host memory: %s", fl_error());
    }
    ok(all[0][0] && !memcmp(all[0], all[1], sizeof all[0]), "the gradients are those of the emulator");
    ok(fake_log()->n_launches == launches + 2 && fake_log()->held_bytes == held, "two launches, nothing is kept");
    fl_close(emulator);
    attention_free(&attention);
}

int main(void) {
    fl_library *library;
    fl_description description = {.size = sizeof description};
    fl_device_info info = {.size = sizeof info};
    open_driver();
    const struct fake_log before = *fake_log();
    if (!ok(!fl_open(FL_AUTO, &library), "the GPUs open: %s", fl_error())) return tap_done();
    ok(!fl_describe(library, &description) && description.backend == FL_GPU && description.devices == 2, "two GPUs");
    ok(!fl_device(library, 1, &info) && info.major == 9 && info.sms == 4 && info.usable, "GPU 1: %s", info.name);
    ok(fl_device(library, 2, &info) == FL_INVALID, "no GPU 2");
    says(fl_error(), "device 2: must be at least 0 and less than 2", "no GPU 2");
    streams_and_contexts(library);
    layouts(library);
    calls_that_differ_in_a_word(library);
    memory_of_others(library);
    workspaces(library);
    large_workspaces(library);
    growing_workspaces(library);
    serving(library);
    streams_of_threads(library);
    captures();
    workspaces_used_up(library);
    prepared(library);
    eight_threads();
    host_memory(library);
    gradients_of_device_memory(library);
    gradients_of_host_memory(library);
    other_gpus();
    failures();
    fl_close(library);
    const struct fake_log *const after = fake_log();
    ok(after->held == before.held && after->held_bytes == before.held_bytes, "everything was given back: %d, %d bytes",
       after->held - before.held, (int)(after->held_bytes - before.held_bytes));
    return tap_done();
}
