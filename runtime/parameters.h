/* parameters.h - parameters of flash_forward, for the driver and the emulator, for harness and library.
 *
 *     struct parameter_block block;
 *     parameters_of_emulator(&config, &args, &block, &failure); // block.bytes, block.size
 *
 * A kernel takes attention_args, the first part of them or, if it serves, serving_args, or extended_args, which begin
 * with these; followed by the tensor maps if it has tensor copies. A kernel of a backward pass takes backward_args or,
 * if it serves, backward_serving_args or, with strides for the gradients, backward_strided_args, one of fp8 fp8_args.
 * Functions here that take attention_args take those at the front of the other ones where the configuration is for
 * these.
 */
#ifndef FL_PARAMETERS_H
#define FL_PARAMETERS_H

#include "runtime/config.h"
#include "runtime/status.h"
#include "runtime/tensor_maps.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

/* The parameters as constant memory stores them. */
struct parameter_block {
    alignas(tensor_maps) unsigned char bytes[sizeof(extended_args) + sizeof(tensor_maps)];
    size_t size;
};

/* The first parameter, of whatever type it is. */
union kernel_args {
    attention_args attention;
    serving_args serving;
    extended_args extended;
    backward_args backward;
    backward_serving_args backward_serving;
    backward_strided_args backward_strided;
    fp8_args fp8;
};

/* Bytes of all parameters of a kernel, including padding. */
size_t parameters_bytes(const struct kernel_config *config);

/* The whole block. The addresses of args are those of the emulator's device. STATUS_ERROR where a tensor map is
 * refused. */
enum status parameters_of_emulator(const struct kernel_config *config, const attention_args *args,
                                   struct parameter_block *block, struct failure *failure);

#endif
