/* stream.c - streams and events, and the capture of what is put on a stream into a graph. */
#include "driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LEGACY, PER_THREAD, DEFAULTS };

static struct CUstream_st defaults[DEFAULTS] = {{.id = 1}, {.id = 2}};
static CUstream streams; /* those of cuStreamCreate() */
static unsigned long long last_id = DEFAULTS, last_capture;

CUstream find_stream(CUstream handle) {
    if (!handle || handle == CU_STREAM_LEGACY) return &defaults[LEGACY];
    if (handle == CU_STREAM_PER_THREAD) {
        overlap_streams_exist();
        return &defaults[PER_THREAD];
    }
    for (CUstream s = streams; s; s = s->next)
        if (s == handle) return s;
    return NULL;
}

/* A call about a stream, with what it is to write. */
static CUresult enter_stream(CUstream *stream, const void *answer) {
    CUresult status = driver_enter_work();
    if (status == CUDA_SUCCESS && !answer) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return status;
    *stream = find_stream(*stream);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

bool list_add(node_list *list, CUgraphNode node) {
    for (size_t i = 0; i < list->count; i++)
        if (list->nodes[i] == node) return true;
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 4;
        CUgraphNode *nodes = realloc(list->nodes, capacity * sizeof *nodes);
        if (!nodes) return false;
        list->nodes = nodes;
        list->capacity = capacity;
    }
    list->nodes[list->count++] = node;
    return true;
}

static bool list_add_all(node_list *list, const node_list *more) {
    bool complete = true;
    for (size_t i = 0; i < more->count; i++) complete &= list_add(list, more->nodes[i]);
    return complete;
}

CUresult submit(CUstream handle, operation *o) {
    CUstream stream = find_stream(handle);
    CUresult status = stream ? the_driver()->failure : CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS && stream->captured) {
        CUgraphNode node;
        status = add_node(stream->captured, stream->last.nodes, stream->last.count, o, &node);
        if (status != CUDA_SUCCESS) return status;
        stream->last.count = 0;
        return list_add(&stream->last, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (status == CUDA_SUCCESS) status = run_on_stream(stream, o);
    free_operation(o);
    return status;
}

CUresult run_on_stream(CUstream stream, const operation *o) {
    record_stream(stream->id);
    overlap_enter(stream);
    return run_operation(o);
}

/* ---- streams ---- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && (!stream || flags > CU_STREAM_NON_BLOCKING)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        CUstream made = calloc(1, sizeof *made);
        if (!made) return driver_leave(CUDA_ERROR_OUT_OF_MEMORY);
        *made = (struct CUstream_st){.flags = flags, .priority = priority, .id = ++last_id, .next = streams};
        *stream = streams = made;
        overlap_streams_exist();
    }
    return driver_leave(status);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy(CUstream stream) {
    CUresult status = driver_enter();
    CUstream *at = &streams;
    while (status == CUDA_SUCCESS && *at && *at != stream) at = &(*at)->next;
    if (status == CUDA_SUCCESS && (!stream || !*at)) status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS) {
        *at = stream->next;
        if (stream->captured && !stream->joined) delete_graph(stream->captured);
        free(stream->last.nodes);
        overlap_stream_ends(stream);
        free(stream);
    }
    return driver_leave(status);
}

/* Waiting for a stream is not allowed while it is captured. */
static CUresult wait_for(CUstream stream) {
    CUresult status = enter_stream(&stream, &stream);
    if (status == CUDA_SUCCESS && stream->captured) status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (status == CUDA_SUCCESS) overlap_host_waits_for_stream(stream);
    return driver_leave(status);
}

CUresult cuStreamSynchronize(CUstream stream) {
    return wait_for(stream);
}

CUresult cuStreamQuery(CUstream stream) {
    return wait_for(stream);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
    CUresult status = enter_stream(&stream, flags);
    if (status == CUDA_SUCCESS) *flags = stream->flags;
    return driver_leave(status);
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    CUresult status = enter_stream(&stream, priority);
    if (status == CUDA_SUCCESS) *priority = stream->priority;
    return driver_leave(status);
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
    CUresult status = enter_stream(&stream, id);
    if (status == CUDA_SUCCESS) *id = stream->id;
    return driver_leave(status);
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device) {
    CUresult status = enter_stream(&stream, device);
    if (status == CUDA_SUCCESS) *device = 0;
    return driver_leave(status);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    CUresult status = enter_stream(&stream, context);
    if (status == CUDA_SUCCESS) status = cuCtxGetCurrent(context);
    return driver_leave(status);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    operation o = {.kind = DO_HOST, .host = {.fn = function, .userData = data}};
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !function) status = CUDA_ERROR_INVALID_VALUE;
    return driver_leave(status == CUDA_SUCCESS ? submit(stream, &o) : status);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags) {
    CUstream found = stream;
    CUresult status = enter_stream(&found, data ? data : &found);
    if (status == CUDA_SUCCESS && (!callback || flags)) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && found->captured) status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (status == CUDA_SUCCESS) {
        record_host_function();
        callback(stream, CUDA_SUCCESS, data);
        overlap_host_waits_for_stream(found);
    }
    return driver_leave(status);
}

/* ---- values in memory that a stream writes, or waits for ---- */

static CUresult write_value(CUstream stream, CUdeviceptr address, uint64_t value, size_t bytes) {
    CUresult status = enter_stream(&stream, &stream);
    void *to = status == CUDA_SUCCESS ? device_bytes(address, bytes) : NULL;
    if (status == CUDA_SUCCESS && stream->captured) status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (status == CUDA_SUCCESS && !to) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        record_stream(stream->id);
        record_write(address, &value, bytes);
        memcpy(to, &value, bytes);
        emu_note_written(the_driver()->device, address, bytes);
    }
    return driver_leave(status);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    (void)flags;
    return write_value(stream, address, value, sizeof value);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    (void)flags;
    return write_value(stream, address, value, sizeof value);
}

/* Nothing runs during the call, so data that has not arrived yet would never arrive. */
static CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, size_t bytes) {
    CUresult status = enter_stream(&stream, &stream);
    const void *from = status == CUDA_SUCCESS ? device_bytes(address, bytes) : NULL;
    if (status == CUDA_SUCCESS && stream->captured) status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (status == CUDA_SUCCESS && !from) status = CUDA_ERROR_INVALID_VALUE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    uint64_t there = 0;
    memcpy(&there, from, bytes);
    const int64_t distance = bytes == 4 ? (int32_t)(uint32_t)(there - value) : (int64_t)(there - value);
    const uint64_t mask = bytes == 4 ? UINT32_MAX : UINT64_MAX;
    bool holds = distance >= 0;
    if ((flags & 3) == CU_STREAM_WAIT_VALUE_EQ) holds = there == value;
    if ((flags & 3) == CU_STREAM_WAIT_VALUE_AND) holds = there & value;
    if ((flags & 3) == CU_STREAM_WAIT_VALUE_NOR) holds = (~(there | value) & mask) != 0;
    if (holds) {
        overlap_wait_for_all(stream); /* among others for the stream that wrote it */
        return driver_leave(CUDA_SUCCESS);
    }
    driver_say("a stream is to wait for a value at 0x%" PRIx64
               " that nothing has written: work runs here as it is put on a "
               "stream, so put what writes it first",
               (uint64_t)address);
    return driver_leave(CUDA_ERROR_LAUNCH_TIMEOUT);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    return wait_value(stream, address, value, flags, sizeof value);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    return wait_value(stream, address, value, flags, sizeof value);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags) {
    (void)address;
    (void)bytes;
    (void)flags;
    return driver_leave(enter_stream(&stream, &stream));
}

/* ---- capture ---- */

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    const CUstream handle = stream;
    CUresult status = enter_stream(&stream, &stream);
    if (status == CUDA_SUCCESS && (unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && stream->captured) status = CUDA_ERROR_ILLEGAL_STATE;
    if (status == CUDA_SUCCESS && (!handle || handle == CU_STREAM_LEGACY))
        status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (status == CUDA_SUCCESS) status = new_graph(&stream->captured);
    if (status == CUDA_SUCCESS) {
        stream->capture_id = ++last_capture;
        stream->joined = false;
        stream->last.count = 0;
    }
    return driver_leave(status);
}

static void leave_capture(CUstream stream) {
    stream->captured = NULL;
    stream->joined = false;
    stream->last.count = 0;
}

/* All that joined a capture must have come back to its first stream. */
static bool is_unjoined(CUstream stream, const node_list *last) {
    for (size_t i = 0; i < stream->last.count; i++)
        if (!comes_before(stream->last.nodes[i], last)) return true;
    return false;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CUresult status = enter_stream(&stream, graph);
    if (status == CUDA_SUCCESS && (!stream->captured || stream->joined)) status = CUDA_ERROR_ILLEGAL_STATE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    *graph = stream->captured;
    for (CUstream s = streams; s; s = s->next) {
        if (s == stream || s->captured != *graph) continue;
        if (is_unjoined(s, &stream->last)) status = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        leave_capture(s);
    }
    leave_capture(stream);
    if (status != CUDA_SUCCESS) {
        delete_graph(*graph);
        *graph = NULL;
    }
    return driver_leave(status);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *capture) {
    CUresult status = enter_stream(&stream, capture);
    if (status == CUDA_SUCCESS)
        *capture = stream->captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return driver_leave(status);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *capture, cuuint64_t *id, CUgraph *graph,
                                const CUgraphNode **last, const CUgraphEdgeData **edges, size_t *count) {
    CUresult status = enter_stream(&stream, capture);
    if (status != CUDA_SUCCESS) return driver_leave(status);
    *capture = stream->captured ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (!stream->captured) return driver_leave(status);
    if (id) *id = stream->capture_id;
    if (graph) *graph = stream->captured;
    if (last) *last = stream->last.nodes;
    if (edges) *edges = NULL;
    if (count) *count = stream->last.count;
    return driver_leave(status);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges,
                                           size_t count, unsigned flags) {
    (void)edges;
    CUresult status = enter_stream(&stream, nodes ? (const void *)nodes : &stream);
    if (status == CUDA_SUCCESS && !stream->captured) status = CUDA_ERROR_ILLEGAL_STATE;
    if (status == CUDA_SUCCESS && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->last.count = 0;
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++)
        if (!list_add(&stream->last, nodes[i])) status = CUDA_ERROR_OUT_OF_MEMORY;
    return driver_leave(status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    const CUstreamCaptureMode before = current;
    current = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS) {
        *event = calloc(1, sizeof **event);
        static unsigned long long last_event;
        if (*event) **event = (struct CUevent_st){.flags = flags, .id = ++last_event};
        status = *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    return driver_leave(status);
}

CUresult cuEventDestroy(CUevent event) {
    CUresult status = driver_enter();
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS) {
        free(event->last.nodes);
        free_clock(&event->clock);
        free(event);
    }
    return driver_leave(status);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    (void)flags;
    CUresult status = enter_stream(&stream, &stream);
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_HANDLE;
    if (status != CUDA_SUCCESS) return driver_leave(status);
    event->last.count = 0;
    event->captured = stream->captured;
    event->capture_id = stream->capture_id;
    if (stream->captured) {
        if (!list_add_all(&event->last, &stream->last)) status = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        record_stream(stream->id);
        record_event("event", event->id);
        status = run_on_stream(stream, &(operation){.kind = DO_RECORD, .event = event});
    }
    return driver_leave(status);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, 0);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    CUresult status = enter_stream(&stream, &stream);
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS && event->recorded && !event->captured) {
        record_stream(stream->id);
        record_event("wait", event->id);
        overlap_wait(stream, &event->clock);
    }
    if (status != CUDA_SUCCESS || !event->captured) return driver_leave(status);
    if (!stream->captured) {
        stream->captured = event->captured;
        stream->capture_id = event->capture_id;
        stream->joined = true;
        stream->last.count = 0;
    }
    if (stream->capture_id != event->capture_id)
        status = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    else if (!list_add_all(&stream->last, &event->last))
        status = CUDA_ERROR_OUT_OF_MEMORY;
    return driver_leave(status);
}

static CUresult check_event(CUevent event) {
    CUresult status = driver_enter_work();
    if (status == CUDA_SUCCESS && !event) status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS && event->captured) status = CUDA_ERROR_CAPTURED_EVENT;
    if (status == CUDA_SUCCESS) overlap_host_waits(&event->clock);
    return driver_leave(status);
}

CUresult cuEventSynchronize(CUevent event) {
    return check_event(event);
}

CUresult cuEventQuery(CUevent event) {
    return check_event(event);
}

/* No time: a nanosecond for each warp instruction that was executed between the two, so that runs agree. */
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUresult status = driver_enter_work();
    if (status == CUDA_SUCCESS && !milliseconds) status = CUDA_ERROR_INVALID_VALUE;
    if (status == CUDA_SUCCESS && !(start && end && start->recorded && end->recorded))
        status = CUDA_ERROR_INVALID_HANDLE;
    if (status == CUDA_SUCCESS) *milliseconds = (float)(1e-6 * ((double)end->steps - (double)start->steps));
    return driver_leave(status);
}
