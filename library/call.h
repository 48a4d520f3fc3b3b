/* call.h - the arguments of a call: read with their sizes, checked, and completed.
 *
 *     struct call call;
 *     if (call_read(problem, &call, failure)) return FL_INVALID;
 *     if (call_read_tensors(tensors, &call, failure)) return FL_INVALID;
 */
#ifndef FL_LIBRARY_CALL_H
#define FL_LIBRARY_CALL_H

#include "common/abi.h"
#include "common/config.h"
#include "common/serving.h"
#include "include/flashladder.h"
#include "library/refuse.h"
#include "runtime/tensors.h"

#include <stdbool.h>

struct call {
    fl_problem
        problem; /* strides, scale and d_head_v are filled in; strides of dimensions of size 1 are contiguous ones */
    fl_tensors tensors;   /* all zero where only a problem is given */
    extended_args args;   /* without addresses */
    bool scaled, strided; /* a scale is asked for; tensors are not contiguous */
};

/* Largest size of a caller's struct. A size that was never set is often larger, and its bytes are not the caller's. */
#define MOST_STRUCT_BYTES 4096

/* Copy a struct of the caller, which begins with its size: bytes that it lacks become 0. FL_INVALID where it has bytes
 * that are not known here and not 0, is shorter than the first that there was, or longer than MOST_STRUCT_BYTES. */
fl_status read_struct(const void *from, void *to, size_t size, size_t least, const char *name, struct failure *failure);

/* Give a struct back to a caller whose struct may be shorter or longer; its size stays. */
void write_struct(void *to, const void *from, size_t size);

/* FL_INVALID where rows of a result surely overlap: a stride below d_head, or two axes with one stride. `sizes` are
 * those of the axes batch, seq and head. */
fl_status call_check_apart(const char *name, fl_strides strides, const int64_t sizes[3], int64_t d_head,
                           struct failure *failure);

struct named_address {
    const char *name;
    const void *address; /* NULL: there is no such tensor */
};

/* FL_INVALID where a result, from number `first_result` on, has the address of a tensor before it. */
fl_status call_check_addresses(const struct named_address *all, size_t count, size_t first_result,
                               struct failure *failure);

/* Read and check a problem. */
fl_status call_read(const fl_problem *problem, struct call *call, struct failure *failure);

/* Read and check the addresses: alignment and what must not be NULL. The back end checks the kind of memory. */
fl_status call_read_tensors(const fl_tensors *tensors, struct call *call, struct failure *failure);

/* True if there is nothing to compute: no sequence or no query. */
bool call_is_empty(const struct call *call);

enum dtype call_dtype(const struct call *call);

/* The strides of Q, K, V and O, and the address of element 0. */
tensor_strides call_strides(const struct call *call, enum tensor tensor);
const void *call_address(const struct call *call, enum tensor tensor);

/* True if V is the first elements of the rows of K, as in MLA, and one copy of both is enough. */
bool call_is_latent(const struct call *call);

/* Samples of a tensor, rows and heads of each, elements of a row, and those of its contiguous copy: with cu_seqlens a
 * tensor is one sample, with pages each page is. */
int64_t call_samples(const struct call *call, enum tensor tensor);
int64_t call_rows(const struct call *call, enum tensor tensor);
int64_t call_heads(const struct call *call, enum tensor tensor);
int64_t call_d_head(const struct call *call, enum tensor tensor);
int64_t call_elements(const struct call *call, enum tensor tensor);

/* Bytes of a tensor without gaps; an e4m3 element is one byte. */
size_t call_element_bytes(const struct call *call, enum tensor tensor);
size_t call_bytes(const struct call *call, enum tensor tensor);
int64_t call_lse_elements(const struct call *call);

/* True if a tensor has no gaps, so that it is its own contiguous copy. */
bool call_is_contiguous(const struct call *call, enum tensor tensor);

/* Copy a tensor of the host into contiguous memory, and O back. */
void call_pack(const struct call *call, enum tensor tensor, void *contiguous);
void call_unpack(const struct call *call, const void *contiguous);

/* O = 0 and log-sum-exp = -infinity, in host memory. */
void call_clear(const struct call *call);

/* Strides of the contiguous copies: the call as the kernel gets it where host memory was packed. */
void call_make_contiguous(struct call *call);

#endif
