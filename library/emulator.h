/* emulator.h - a call on the emulator: tensors of the host are copied in, and O and log-sum-exp out.
 *
 *     fl_status status = emulator_forward(library, &choice, &call, failure);
 */
#ifndef FL_LIBRARY_EMULATOR_H
#define FL_LIBRARY_EMULATOR_H

#include "library/call.h"
#include "library/choice.h"
#include "library/gradients.h"
#include "library/opened.h"

/* Read the PTX of the version and decode the entry. */
fl_status emulator_prepare(struct fl_library *library, const struct choice *choice, struct failure *failure);

/* Run to the end. */
fl_status emulator_forward(struct fl_library *library, const struct choice *choice, const struct call *call,
                           struct failure *failure);

/* All kernels of a backward pass. */
fl_status emulator_backward(struct fl_library *library, const struct choice *choice, const struct gradient_call *asked,
                            struct failure *failure);

#endif
