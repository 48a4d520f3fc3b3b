/* serving.h - what kernels take as serving_args: read from a problem, checked, and which kernel takes it.
 *
 *     fl_status status = serving_check(problem, failure);
 *     const extended_args args = serving_of_problem(problem, attention);
 */
#ifndef FL_LIBRARY_SERVING_H
#define FL_LIBRARY_SERVING_H

#include "common/serving.h"
#include "library/refuse.h"
#include "runtime/config.h"
#include "runtime/parameters.h"

enum { N_ARRAYS = 15 }; /* those of enum fl_array, by number */

/* The field of the problem that only kernels with serving_args support; NULL if there is none. */
const char *serving_asked(const fl_problem *problem);

/* "bias", "alibi_slopes", "dropout_p", "max_logits" or "block_mask", which only kernels with the feature BIAS support;
 * NULL if there is none. */
const char *serving_extended(const fl_problem *problem);

/* True if Q, K and V are of e4m3, which kernels with fp8_args take, and whether K and V alone are of bytes, with
 * queries of several numbers or packed sequences. */
bool serving_all_e4m3(const fl_problem *problem);
bool serving_ragged_bytes(const fl_problem *problem);

/* The kv_dtype of a cache that the kernel reads; 0: it has the type of Q. */
int32_t serving_cache_dtype(const struct kernel_config *config);

/* The fields since FL_ABI 3. FL_INVALID where they are wrong, alone or together. */
fl_status serving_check(const fl_problem *problem, struct failure *failure);

/* The arguments of a kernel, without addresses. */
extended_args serving_of_problem(const fl_problem *problem, attention_args attention);

/* True if each array is there that the problem names and no other, and in host memory what it holds. */
fl_status serving_check_arrays(const fl_problem *problem, const fl_tensors *tensors, struct failure *failure);

/* The feature that the kernel lacks. FL_UNSUPPORTED. */
fl_status serving_check_kernel(const fl_problem *problem, const char *version, const struct kernel_config *config,
                               struct failure *failure);

/* Number of the array max_logits, which kernels write: its elements are -infinity before. */
enum { MAX_LOGITS = 12 };

/* Array number i: its name, its address (NULL where there is none) and its bytes up to the last element. */
const char *serving_array_name(int i);
const void *serving_array(const fl_tensors *tensors, int i);
int64_t serving_array_bytes(const fl_problem *problem, int i);
void serving_set_array(fl_tensors *tensors, int i, uint64_t address);

/* Tell the kernel where the arrays are. */
void serving_pass_arrays(const fl_tensors *tensors, extended_args *args);

/* Fit the arguments to a kernel and a GPU. With one query in each sequence the heads of a group attend to the same
 * keys: they become rows of one head, for kernels that pack no heads, unless something else in the problem depends on
 * the head. Then keys are split into parts, if that is faster and the bits may depend on the batch. */
void serving_fit(const struct kernel_config *config, const fl_problem *problem, int multiprocessors,
                 extended_args *args);

/* The first parameter of a kernel with that configuration. */
union kernel_args serving_kernel_args(const struct kernel_config *config, const extended_args *args);

#endif
