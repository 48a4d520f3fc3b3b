/* gpu.h - the GPUs of the process, the contexts that calls came with, and launches in the caller's streams.
 *
 *     gpus_open(library, &failure);
 *     gpu_forward(library, &call, stream, &failure);
 *
 * Nothing of the thread's state is changed by a call: where another context than the current one is needed, it is
 * pushed and popped.
 */
#ifndef FL_LIBRARY_GPU_H
#define FL_LIBRARY_GPU_H

#include "library/call.h"
#include "library/choice.h"
#include "library/opened.h"

/* Open the driver and look at its GPUs. FL_UNAVAILABLE where there is none with machine code in the library. */
fl_status gpus_open(struct fl_library *library, struct failure *failure);
void gpus_close(struct fl_library *library);

int gpus_count(const struct fl_library *library);

/* GPU number `device`, which exists. */
void gpus_describe(const struct fl_library *library, int device, fl_device_info *info);

/* Query the version that would run the problem, without loading it. */
fl_status gpu_query(struct fl_library *library, const struct call *call, struct choice *choice,
                    struct failure *failure);

/* Load it, and make the workspaces of the context. */
fl_status gpu_prepare(struct fl_library *library, const struct call *call, struct failure *failure);

/* Device memory: into the caller's stream. Host memory: to the end. */
fl_status gpu_forward(struct fl_library *library, const fl_problem *problem, const fl_tensors *tensors, void *stream,
                      struct failure *failure);

/* fl_query_backward() and fl_backward(). */
fl_status gpu_query_backward(struct fl_library *library, const struct call *call, struct choice *choice,
                             struct failure *failure);
fl_status gpu_backward(struct fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                       const fl_gradients *gradients, void *stream, struct failure *failure);

#endif
