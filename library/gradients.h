/* gradients.h - a backward call: its arguments read and checked, which instance of attention/backward runs it, and what
 * its kernels are given.
 *
 *     struct gradient_call asked;
 *     if (gradients_read(problem, tensors, gradients, &asked, failure)) return FL_INVALID;
 *     if (gradients_choose(library, &asked, &target, &choice, failure)) return FL_UNSUPPORTED;
 */
#ifndef FL_LIBRARY_GRADIENTS_H
#define FL_LIBRARY_GRADIENTS_H

#include "library/call.h"
#include "library/choice.h"
#include "library/opened.h"
#include "runtime/config.h"

struct gradient_call {
    struct call call;       /* O and log-sum-exp of its tensors are inputs */
    fl_gradients gradients; /* strides are filled in, as those of the problem */
};

enum { N_GRADIENTS = 3 };

/* "dq", "dk", "dv"; the tensor that it is the gradient by; its address and its strides. */
const char *gradient_name(int i);
enum tensor gradient_of(int i);
void *gradient_address(const struct gradient_call *asked, int i);
tensor_strides gradient_strides(const struct gradient_call *asked, int i);

/* Bytes of the gradients of sinks, 0 if they are not wanted. */
size_t gradients_dsinks_bytes(const struct gradient_call *asked);

/* Read and check a problem: FL_UNSUPPORTED for what the forward pass alone takes. */
fl_status gradients_read_problem(const fl_problem *problem, struct call *call, struct failure *failure);

/* The parameters with the addresses. */
fl_status gradients_read(const fl_problem *problem, const fl_tensors *tensors, const fl_gradients *gradients,
                         struct gradient_call *asked, struct failure *failure);

/* True if there is no gradient that has an element, or nothing that they could depend on: they are 0. */
bool gradients_are_zero(const struct gradient_call *asked);

/* The instance for the type and the head size; target is NULL on the emulator. */
fl_status gradients_choose(const struct fl_library *library, const struct call *call, bool deterministic,
                           const struct gpu_target *target, struct choice *choice, struct failure *failure);

/* The instance without `deterministic`, and in choice->workspace_bytes what a call needs with it or without it. */
fl_status gradients_query(const struct fl_library *library, const struct call *call, const struct gpu_target *target,
                          struct choice *choice, struct failure *failure);

/* Bytes of the workspace that an instance needs. */
int64_t gradients_workspace_bytes(const struct kernel_config *config, const struct call *call);

/* The parameters of the kernels. Tensor maps are made of the strides of Q, K and V; a kernel that has them then takes
 * those of the gradients instead. */
backward_strided_args gradients_args(const struct gradient_call *asked, const struct kernel_config *config,
                                     uint64_t workspace);
void gradients_write_strides(const struct kernel_config *config, backward_strided_args *args);

/* ---- host memory ---- */

/* dout as contiguous memory, a gradient from it, and all gradients set to 0. */
void gradients_pack(const struct gradient_call *asked, uint16_t *contiguous);
void gradients_unpack(const struct gradient_call *asked, int i, const uint16_t *contiguous);
void gradients_clear(const struct gradient_call *asked);

/* The call as the kernels get it where host memory was packed. */
void gradients_make_contiguous(struct gradient_call *asked);

#endif
