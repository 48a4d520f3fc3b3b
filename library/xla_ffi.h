/* xla_ffi.h - attention as a foreign function of XLA, so that JAX can call it in compiled programs.
 *
 *     jax.ffi.register_ffi_target("flashladder_attention", jax.ffi.pycapsule(library.fl_xla_ffi_attention),
 * platform="CUDA")
 *
 * XLA calls a handler with a frame that holds arguments, results, attributes and a table of functions. This header
 * declares the part of that C interface (version 0.1, which newer ones contain) that a handler needs. All names are
 * ours; fields follow XLA's in order and type. Each struct begins with its size, as its maker knows it.
 *
 * Arguments: Q, K and V, contiguous [batch, seq, heads, d_head], fp16 or bf16. Results: O, and log-sum-exp if there is
 * a second one. Attributes: causal (int32), scale (float32, 0: 1 / sqrt(d_head)), version (string).
 */
#ifndef FL_XLA_FFI_H
#define FL_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { XLA_API_MAJOR = 0, XLA_API_MINOR = 1 };

typedef enum xla_code {
    XLA_OK = 0,
    XLA_INVALID_ARGUMENT = 3,
    XLA_UNIMPLEMENTED = 12,
    XLA_INTERNAL = 13,
    XLA_UNAVAILABLE = 14
} xla_code;

typedef enum xla_type {
    XLA_PRED = 1,
    XLA_S8 = 2,
    XLA_S32 = 4,
    XLA_U8 = 6,
    XLA_F16 = 10,
    XLA_F32 = 11,
    XLA_BF16 = 16,
    XLA_F8E4M3FN = 20
} xla_type;

enum { XLA_BUFFER = 1 };                 /* kind of an argument and of a result */
enum { XLA_SCALAR = 3, XLA_STRING = 4 }; /* kinds of an attribute */
enum { XLA_METADATA = 1 };               /* kind of an extension */
enum { XLA_EXECUTE = 3 };                /* stage of a call */

typedef struct xla_extension {
    size_t size;
    int kind;
    struct xla_extension *next;
} xla_extension;

typedef struct xla_version {
    size_t size;
    xla_extension *extensions;
    int major, minor;
} xla_version;

/* A handler that is called with this extension says which version of the interface it speaks, and nothing else. */
typedef struct xla_metadata {
    size_t size;
    xla_version version;
    uint32_t traits; /* 1: its launches may become part of a CUDA graph that is updated */
} xla_metadata;

typedef struct xla_metadata_extension {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

typedef struct xla_bytes {
    const char *data;
    size_t size;
} xla_bytes;

typedef struct xla_scalar {
    int type; /* xla_type */
    void *value;
} xla_scalar;

typedef struct xla_buffer {
    size_t size;
    xla_extension *extensions;
    int type; /* xla_type */
    void *data;
    int64_t rank;
    int64_t *dims;
} xla_buffer;

/* Arguments, and likewise results. */
typedef struct xla_values {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    int *kinds;
    void **values;
} xla_values;

typedef struct xla_attributes {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    int *kinds;
    xla_bytes **names;
    void **values;
} xla_attributes;

typedef struct xla_error xla_error;
typedef struct xla_context xla_context;

typedef struct xla_make_error {
    size_t size;
    xla_extension *extensions;
    const char *message;
    int code; /* xla_code */
} xla_make_error;

typedef struct xla_get_stream {
    size_t size;
    xla_extension *extensions;
    xla_context *context;
    void *stream; /* filled in: a CUstream */
} xla_get_stream;

typedef struct xla_api {
    size_t size;
    xla_extension *extensions;
    xla_version version;
    void *internal;
    xla_error *(*make_error)(xla_make_error *);
    void (*error_message)(void *);
    void (*free_error)(void *);
    xla_error *(*register_handler)(void *);
    xla_error *(*get_stream)(xla_get_stream *);
} xla_api;

typedef struct xla_frame {
    size_t size;
    xla_extension *extensions;
    const xla_api *api;
    xla_context *context;
    int stage;
    xla_values arguments;
    xla_values results;
    xla_attributes attributes;
} xla_frame;

#pragma GCC visibility push(default)

/* The handler for arrays in device memory: it launches into XLA's stream. NULL: all is well. */
xla_error *fl_xla_ffi_attention(xla_frame *frame);

/* The handler for arrays in host memory: it returns when O is complete. */
xla_error *fl_xla_ffi_attention_host(xla_frame *frame);

/* Likewise of the gradients: from dout, q, k, v, o and log-sum-exp to dq, dk and dv, and a workspace of float32. Since
 * FL_ABI 4. Since FL_ABI 8 also of packed sequences: tensors have 3 dimensions, cu_seqlens_q and
 * cu_seqlens_k follow log-sum-exp, and seq_q and seq_k are attributes. */
xla_error *fl_xla_ffi_backward(xla_frame *frame);
xla_error *fl_xla_ffi_backward_host(xla_frame *frame);

/* Likewise with arrays after q, k and v: those of fl_array that the attribute arrays names, in their order. q, k, v
 * and o have 3 dimensions with FL_CU_SEQLENS_Q, and k and v are pages with FL_BLOCK_TABLE. Both results are there.
 * Attributes in addition to those above: arrays, seq_q, seq_k (read with FL_CU_SEQLENS_Q), windowed, window_left,
 * window_right, split_keys (all int32), softcap (float32). K and V may be float8_e4m3fn, and with them Q: then O is of
 * any type, and there may be the attributes sums and scale_keys (int32). Since FL_ABI 5. Since FL_ABI 10 K and V may be
 * int8, FL_MAX_LOGITS makes max_logits the third result, rng_state is int32 [4], and there may be the attributes
 * dropout_p (float32), mask_queries and mask_keys (int32). */
xla_error *fl_xla_ffi_serve(xla_frame *frame);
xla_error *fl_xla_ffi_serve_host(xla_frame *frame);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
