/* flashladder.h - computes attention and its gradients with one C call, in device memory or in host memory.
 *
 *     fl_library *library;
 *     if (fl_open(FL_AUTO, &library)) return puts(fl_error()), 1;
 *     fl_problem problem = {.size = sizeof problem, .dtype = FL_FP16, .memory = FL_HOST_MEMORY, .device = -1,
 *                           .batch = 1, .heads = 8, .kv_heads = 2, .seq_q = 100, .seq_k = 100, .d_head = 128};
 *     fl_tensors tensors = {.size = sizeof tensors, .q = q, .k = k, .v = v, .o = o};
 *     if (fl_forward(library, &problem, &tensors, NULL)) return puts(fl_error()), 1;
 *     fl_close(library);
 *
 *   $ make lib
 *   $ cc -std=c11 -Iinclude program.c -Llib -lflashladder -Wl,-rpath,"$PWD/lib" -o program
 *
 * O = softmax(scale * Q K^T) V for each sequence and each head. Head h of Q reads head h / (heads / kv_heads) of K and
 * V. With the causal mask row i of Q attends to the keys up to i + seq_k - seq_q. A row that attends to no key has O =
 * 0 and a log-sum-exp of -infinity. fl_backward() computes the gradients.
 *
 * A NaN or infinity in a row of Q affects only the results of that row. In a row of K or V it affects the rows of Q
 * that attend to it. In a row of V it may also affect O of fewer than B_r + B_c rows before those (the third and
 * fourth entry of a config), in all heads that share the KV head, because these rows multiply it by 0. In
 * attention/decode it may affect all rows before, and one in a row of K may change the last bit of rows next to those
 * that attend to it. With a window, rows of V before the first key that a Q block attends to have no effect. Neither
 * has memory past seq_k or between rows. Scores of 16-bit Q and K may reach 1e38: O stays finite.
 *
 * The library depends only on libc. It reaches a GPU through the driver, libcuda.so.1 of CUDA 12 or newer, which
 * fl_open() looks for. Without a GPU the emulator runs the kernels' PTX on the CPU, slowly but with the bits of a GPU.
 *
 * Any thread may call any function at any time, but fl_close() must be the last call on its library. A call that fails
 * changes nothing, and fl_error() returns the reason. The library never prints and never exits.
 *
 * FL_ABI counts additions to the ABI; nothing else in it changes. Each struct begins with its size, which the caller
 * sets to sizeof. A newer library accepts the shorter struct of an older caller. An older library accepts the longer
 * struct of a newer caller if the bytes that it does not know are 0.
 */
#ifndef FLASHLADDER_H
#define FLASHLADDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define FL_ABI 10           /* of this header; fl_abi() returns the library's */
#define FL_RELEASE "0.22.0" /* of this header; fl_release() returns the library's */
#define FL_MAX_CONFIG 1024  /* bytes of a config's short form, including the zero byte */
#define FL_MAX_TEXT 512     /* bytes of a sentence in a struct, including the zero byte */

/* Return value of every call that can fail. */
typedef enum fl_status {
    FL_OK = 0,          /* done, or the launch is enqueued */
    FL_ERROR = 1,       /* the driver or the emulator failed, or memory ran out */
    FL_INVALID = 2,     /* an argument is wrong: fl_error() names it, its value and the allowed values */
    FL_UNSUPPORTED = 3, /* no embedded version, or not the one asked for, computes this problem */
    FL_UNAVAILABLE = 4  /* no GPU, no machine code for it, or too little shared memory for the kernel */
} fl_status;

/* The back end that runs kernels. FL_AUTO: a GPU if there is one for which the library has machine code, else the
 * emulator. */
typedef enum fl_backend { FL_AUTO = 0, FL_GPU = 1, FL_EMULATOR = 2 } fl_backend;

/* Type of the elements of Q, K, V and O: IEEE binary16 or bfloat16. Kernels accumulate in float. FL_E4M3, since FL_ABI
 * 5, is only for fl_problem.kv_dtype, q_dtype and o_dtype: a sign, 4 exponent bits with bias 7 and 3 fraction bits;
 * 0x7f and 0xff are NaN. FL_INT8, since FL_ABI 10, is only for kv_dtype. */
typedef enum fl_dtype { FL_FP16 = 0, FL_BF16 = 1, FL_E4M3 = 2, FL_INT8 = 3 } fl_dtype;

/* Memory that holds the tensors of a call. Host memory works on both back ends, and the call returns when O is
 * complete; device memory needs a GPU, and the call returns when the launch is enqueued. */
typedef enum fl_memory { FL_DEVICE_MEMORY = 0, FL_HOST_MEMORY = 1 } fl_memory;

/* Features of a kernel beyond contiguous tensors of one shape with a length that is a multiple of its blocks. */
typedef enum fl_feature {
    FL_ANY_LENGTH = 1, /* any seq_q and seq_k, strides, a scale, log-sum-exp */
    FL_CAUSAL = 2,     /* the causal mask */
    FL_GROUPED = 4,    /* heads that share KV heads */
    FL_SERVING = 8     /* some of the fields that FL_ABI 3 added to fl_problem */
} fl_feature;

/* Optional arrays of fl_tensors: bits of fl_problem.arrays. */
typedef enum fl_array {
    FL_CU_SEQLENS_Q = 1,
    FL_CU_SEQLENS_K = 2,
    FL_SEQLENS_Q = 4,
    FL_SEQLENS_K = 8,
    FL_BLOCK_TABLE = 16,
    FL_SINKS = 32,
    FL_K_SCALES = 64, /* since FL_ABI 5 */
    FL_V_SCALES = 128,
    FL_Q_SCALES = 256, /* since FL_ABI 6 */
    FL_O_SCALES = 512, /* since FL_ABI 7 */
    FL_BIAS = 1024,    /* since FL_ABI 9 */
    FL_ALIBI_SLOPES = 2048,
    FL_MAX_LOGITS = 4096, /* since FL_ABI 10; an output */
    FL_RNG_STATE = 8192,
    FL_BLOCK_MASK = 16384
} fl_array;

/* Elements of a bias: bytes (0 hides the key, other values add nothing), fl_problem.dtype, or float. */
typedef enum fl_bias { FL_BIAS_BYTES = 1, FL_BIAS_DTYPE = 2, FL_BIAS_FLOAT = 3 } fl_bias;

/* Accumulation for e4m3 Q, K and V (docs/general-attention.md). With FL_SUMS_FAST attention/fp8 accumulates in the
 * tensor cores, which truncate to 13 fraction bits: if V has a nonzero mean, O is 5 % too small at 4096 keys and 18 %
 * at 16384. FL_SUMS_ACCURATE adds partial results in float: 0.4 % at any length, in 1.1 to 1.2 times the time.
 * attention/fp8_mma_sync and attention/fp8_mma_scaled, for GPUs other than Hopper, always do. */
typedef enum fl_sums { FL_SUMS_FAST = 0, FL_SUMS_ACCURATE = 1 } fl_sums;

/* The handle that fl_open() returns. Any thread may use it. */
typedef struct fl_library fl_library;

/* Strides of a tensor in elements. The elements of a row are contiguous. In device memory, strides are positive
 * multiples of 8 (16 bytes); in host memory, any number. The stride of a dimension of size 1 is ignored. */
typedef struct fl_strides {
    int64_t batch, seq, head; /* from one sequence, position or head to the next */
} fl_strides;

/* One attention problem. A field set to 0 selects its default. */
typedef struct fl_problem {
    size_t size;           /* sizeof(fl_problem) */
    const char *version;   /* "attention/wgmma", "v37"; NULL or "best": the fastest measured one that computes the
                              problem on this GPU */
    const char *config;    /* short form of an embedded instance of `version`, which must be set, from fl_kernel();
                              NULL: the version's own for d_head */
    int32_t dtype;         /* fl_dtype */
    int32_t memory;        /* fl_memory */
    int32_t device;        /* ordinal of the GPU. -1: the GPU of the stream, else of the current context, else of Q; for
                              host memory, the first for which the library has machine code. On the emulator -1 or 0 */
    int32_t batch;         /* sequences, 0 to 65535; 0: the call does nothing */
    int32_t heads;         /* of Q and O, 1 to 65535 */
    int32_t kv_heads;      /* of K and V; heads must be a multiple of it */
    int32_t seq_q;         /* rows of Q and O per sequence and head, 0 to 2^30; 0: the call does nothing */
    int32_t seq_k;         /* rows of K and V per sequence and head, 0 to 2^30; 0: O = 0 and log-sum-exp = -infinity */
    int32_t d_head;        /* elements of a row of Q and K: a multiple of 8 up to 576 */
    int32_t causal;        /* 1: the causal mask, aligned to the bottom right; 0: none */
    float scale;           /* positive factor of the scores; 0: 1 / sqrt(d_head) */
    int32_t unused;        /* 0 */
    fl_strides q, k, v, o; /* all three 0: contiguous [batch, seq, heads, d_head], V and O with d_head_v */

    /* Since FL_ABI 3. No kernel supports all of these fields together; fl_error() states which supports which. */
    uint32_t arrays;           /* bits of fl_array: the arrays of fl_tensors that the call passes */
    int32_t total_q, total_k;  /* with cu_seqlens_q or cu_seqlens_k: the rows of all sequences together. Q and O are
                                  [total_q, heads, d_head], K and V [total_k, kv_heads, d_head], strides.batch is
                                  ignored, and seq_q and seq_k are the maximum number of rows of a sequence */
    int32_t n_pages;           /* with block_table: K and V are [n_pages, page_rows, kv_heads, d_head] */
    int32_t page_rows;         /* a power of two from 16 on. strides.batch is the stride of pages, and seq_k the maximum
                                  number of keys of a sequence */
    int32_t pages_of_sequence; /* columns of block_table */
    int32_t windowed;          /* 1: row i of a sequence attends only to its keys i + seq_k - seq_q - window_left to
                                  i + seq_k - seq_q + window_right, with the lengths of that sequence; 0: no window */
    int32_t window_left;       /* -1: unlimited */
    int32_t window_right;      /* -1: unlimited. The causal mask also hides keys after i + seq_k - seq_q */
    float softcap;             /* scores become softcap * tanh(scale * score / softcap); 0: no soft cap */
    int32_t split_keys;        /* not 0: the result of a sequence has the same bits whatever else is in the batch.
                                  In attention/decode, the minimum number of keys of a split, a multiple of 128.
                                  0: the fastest split */
    int32_t kv_dtype;   /* since FL_ABI 5. FL_E4M3 or FL_INT8: type of K and V, for attention/decode with d_head 128;
                           strides and addresses are multiples of 16 bytes. Offsets and lengths of queries are allowed,
                           but every 16 or 64 rows read their keys again, so long prefills are slow. 0: dtype */
    int32_t q_dtype;    /* since FL_ABI 6. FL_E4M3, together with kv_dtype: type of Q; from compute capability 8.9 on,
                           d_head 64, 128 or 256. O has dtype. The only arrays allowed are lengths, offsets and scales.
                           0: dtype */
    int32_t sums;       /* fl_sums, with q_dtype */
    int32_t scale_keys; /* since FL_ABI 7, with q_dtype: number of keys, a power of two from 32 on, that share a scale
                           in k_scales and v_scales; 0: all keys of a head share one */
    int32_t o_dtype;    /* since FL_ABI 7, with q_dtype. FL_E4M3: type of O, whose strides are multiples of 16 elements;
                           0: dtype */
    int32_t bias_dtype; /* since FL_ABI 9, with FL_BIAS: fl_bias; 0: no bias */
    int32_t alibi_batch; /* with FL_ALIBI_SLOPES: stride of sequences, which is heads; 0: all have the same slopes */
    fl_strides bias;     /* with FL_BIAS: 0 or positive; 0 repeats the rows. The elements of a row are contiguous */
    float dropout_p;  /* since FL_ABI 10: probability, from 0 and less than 1, with which a weight becomes 0; the others
                         are divided by 1 - dropout_p, and log-sum-exp has all. Kernels round it to a multiple of 2^-14.
                         It has no fl_backward() */
    int32_t d_head_v; /* elements of a row of V and O, a multiple of 8 up to 512; 0: d_head. Another number than d_head
                         has no fl_backward() and no e4m3 */
    int64_t rng_seed, rng_offset; /* of dropout without FL_RNG_STATE. With the same seed and offset the same weights are
                                     dropped, whatever the kernel (kernels/attention/dropout.cuh) */
    int32_t mask_queries, mask_keys; /* since FL_ABI 10, with FL_BLOCK_MASK: the queries and keys of a block, powers of
                                        two from 128 on */
    fl_strides block_mask; /* with FL_BLOCK_MASK: of sequences, rows of blocks and heads; 0 or positive, 0 repeats
                              the blocks. The blocks of a row are contiguous */
} fl_problem;

/* Addresses of a call. Q and O hold batch x seq_q x heads rows, K and V batch x seq_k x kv_heads rows; O must not
 * overlap another tensor, but V may be a part of the rows of K. Device addresses are multiples of 16 bytes on the GPU
 * of the call. Managed memory counts as device memory, but host memory that the GPU can access does not. */
typedef struct fl_tensors {
    size_t size;           /* sizeof(fl_tensors) */
    const void *q, *k, *v; /* element 0 of each; k and v may be NULL if seq_k is 0 */
    void *o;               /* the result; like q, NULL is allowed if there is nothing to do */
    float *lse;            /* [batch, heads, seq_q], contiguous: the natural logarithm of the sum of exp(scale * score);
                              [heads, total_q] with cu_seqlens_q; NULL: not computed */
    void *workspace; /* fl_support.workspace_bytes of device memory at a multiple of 16 bytes, zero before its first
                        use. A kernel leaves it ready for the next launch; no other launch in flight may use it. NULL:
                        the library allocates one per stream and per capture. Ignored for host memory */

    /* Since FL_ABI 3. Arrays that fl_problem.arrays does not name are NULL; the others are in the same memory as Q. In
     * device memory the kernel reads them, so a captured launch may run again with other contents; entries that do not
     * fit the tensors are clamped, and pages that do not exist read as zeros. In host memory both are errors. */
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* [batch + 1]: sequence b has rows [b] to [b + 1] - 1 */
    const int32_t *seqlens_q, *seqlens_k; /* [batch]: number of first rows that a sequence uses. Later rows have no
                                             effect, and the corresponding rows of O and lse are not written */
    const int32_t *block_table;       /* [batch, pages_of_sequence]: row r of sequence b is row r % page_rows of page
                                         [b][r / page_rows]. Entries past the last page in use are not read */
    const float *sinks;               /* [heads]: an additional score of every row, not scaled and without a value. The
                                         log-sum-exp includes it */
    const float *k_scales, *v_scales; /* since FL_ABI 5, with kv_dtype, [kv_heads]: the scales that dequantize K and V,
                                         positive and finite (checked only in host memory); NULL: 1. With scale_keys
                                         they are [batch, kv_heads, ceil(seq_k / scale_keys)] */
    const float *q_scales;            /* since FL_ABI 6, with q_dtype, [heads]: the scales that dequantize Q */
    const float *o_scales;            /* since FL_ABI 7, with o_dtype, [heads]: the scales that dequantize O. The kernel
                                         stores O / scale, and magnitudes above 448 become 448 */
    const void *bias; /* since FL_ABI 9, [batch, heads, seq_q, seq_k] with strides fl_problem.bias: added to the score
                         after scale and softcap; -infinity hides the key. Queries and keys count from 0 in each
                         sequence, also in packed sequences and pages */
    const float *alibi_slopes; /* since FL_ABI 9, [heads] or [batch, heads]: slope * |i + seq_k - seq_q - j| is
                                  subtracted from the score of query i and key j */
    float *max_logits;         /* since FL_ABI 10, with FL_MAX_LOGITS, [batch, heads]: becomes the largest score of each
                                  sequence and head, after scale and softcap and before bias and slopes, of the keys
                                  that queries attend to; -infinity where there is none. NaN is ignored */
    const int64_t *rng_state;  /* since FL_ABI 10, [2]: seed and offset, instead of rng_seed and rng_offset */
    const uint8_t
        *block_mask; /* since FL_ABI 10, [batch, heads, ceil(seq_q / mask_queries), ceil(seq_k / mask_keys)] with
                        strides fl_problem.block_mask. 0: no query of the block attends to a key of it, and
                        attention/wgmma neither reads nor multiplies it; 1: a bias is added to the block; 2: the
                        bias is not read, because it is 0 there. It has no pages and no fl_backward() */
} fl_tensors;

/* Addresses of a backward call in addition to those of fl_tensors. Device addresses are multiples of 16 bytes on the
 * GPU of the call. The results must not overlap another tensor. Since FL_ABI 4. */
typedef struct fl_gradients {
    size_t size;        /* sizeof(fl_gradients) */
    const void *dout;   /* the gradient of a scalar loss with respect to O, with the strides o of the problem */
    void *dq, *dk, *dv; /* the gradients of the loss with respect to Q, K and V */
    fl_strides dq_strides, dk_strides, dv_strides; /* all three 0: contiguous [batch, seq, heads, d_head] */
    int32_t deterministic; /* 1: dq has the same bits in every run, but takes longer; 0: any order of its sums */
    int32_t unused;        /* 0 */
    float *dsinks;         /* since FL_ABI 9, [heads]: the gradients with respect to the sinks, with the same bits in
                              every run; NULL: not computed */
} fl_gradients;

/* The version and back end that would run a problem. */
typedef struct fl_support {
    size_t size;     /* sizeof(fl_support), set by the caller */
    char version[8]; /* `kernel` in at most 7 characters: "wgmma", "mma_syn"; fl_problem.version accepts it */
    char config[FL_MAX_CONFIG]; /* short form */
    int64_t workspace_bytes;    /* of fl_tensors.workspace; 0: none is needed */
    int32_t measured;           /* 1: "best" was measured on this compute capability and kind of problem */
    int32_t unused;             /* 0 */
    char order[FL_MAX_TEXT];    /* reason for this version, a sentence */
    char kernel[32];            /* for fl_problem.version: "attention/wgmma", "v37"; since FL_ABI 2 */
} fl_support;

/* One embedded kernel: an instance of a version or of a production kernel, which counts as a version here. */
typedef struct fl_kernel_info {
    size_t size;     /* sizeof(fl_kernel_info), set by the caller */
    char version[8]; /* `kernel` in at most 7 characters: "wgmma", "mma_syn"; fl_problem.version accepts it */
    char name[32];   /* of the version: "any length" */
    char config[FL_MAX_CONFIG]; /* short form */
    char archs[64];             /* embedded machine code: "sm_80 sm_90", "sm_90a" */
    int32_t dtype;              /* fl_dtype */
    int32_t d_head;             /* elements of a row */
    uint32_t features;          /* bits of fl_feature */
    int32_t own;                /* 1: the version's own config for this dtype and d_head */
    char kernel[32];            /* for fl_problem.version: "attention/wgmma", "v37"; since FL_ABI 2 */
} fl_kernel_info;

/* The back end and GPUs of a library. */
typedef struct fl_description {
    size_t size;                  /* sizeof(fl_description), set by the caller */
    int32_t backend;              /* FL_GPU or FL_EMULATOR */
    int32_t devices;              /* GPUs that the process may use; 0 on the emulator */
    int32_t kernels;              /* embedded instances: fl_kernel() accepts 0 to kernels - 1 */
    int32_t unused;               /* 0 */
    char why_no_gpu[FL_MAX_TEXT]; /* reason why FL_AUTO chose the emulator; else "" */
} fl_description;

/* One GPU. */
typedef struct fl_device_info {
    size_t size;          /* sizeof(fl_device_info), set by the caller */
    char name[128];       /* "NVIDIA H200" */
    int32_t major, minor; /* compute capability */
    int32_t sms;          /* multiprocessors */
    int32_t usable;       /* 1: the library has machine code for it */
    int64_t memory_bytes; /* total */
} fl_device_info;

/* The ABI of the library. A program with a larger FL_ABI must not use later additions. */
uint32_t fl_abi(void);

/* "0.22.0 (revision 4fd1b27)" */
const char *fl_release(void);

/* Error message of this thread's last failed call, valid until its next failed call; "" before. */
const char *fl_error(void);

/* Open a back end, without creating a context or loading code. FL_UNAVAILABLE: FL_GPU, but no GPU is usable. */
fl_status fl_open(fl_backend backend, fl_library **library);

/* Release all resources. All calls on the library must have returned and its launches ended. Graphs that contain its
 * launches must not run any more, and the contexts of its calls must still exist. NULL is allowed. */
void fl_close(fl_library *library);

/* Return the back end and the number of GPUs and kernels. */
fl_status fl_describe(fl_library *library, fl_description *description);

/* Describe GPU number `device`, from 0. FL_INVALID past the last. */
fl_status fl_device(fl_library *library, int32_t device, fl_device_info *info);

/* Describe embedded instance number `kernel`, from 0. FL_INVALID past the last. */
fl_status fl_kernel(fl_library *library, int32_t kernel, fl_kernel_info *info);

/* Query the version that would run the problem, without log-sum-exp, on GPU problem.device (-1: of the current context,
 * else the first usable one). All kernels of the default library return log-sum-exp; versions v00 to v37 do not.
 * FL_UNSUPPORTED or FL_UNAVAILABLE if there is none; fl_error() has the reason. */
fl_status fl_query(fl_library *library, const fl_problem *problem, fl_support *support);

/* Load the code for the problem, so that fl_forward() neither loads nor allocates for this problem on that GPU. The
 * exception is a workspace of more than 16 MiB, which a stream's first call with many splits or a capture may need. The
 * context is the current one if it belongs to the GPU, else the GPU's primary context. */
fl_status fl_prepare(fl_library *library, const fl_problem *problem);

/* Compute O and, unless tensors->lse is NULL, the log-sum-exp. Device memory: the call enqueues the launch on `stream`,
 * a CUstream (cudaStream_t) or NULL for the default stream, and does not wait for the GPU. The stream must exist,
 * because the driver may stop the process if it was destroyed. A CUDA graph can capture the call. The thread's current
 * context is the same after the call. Host memory: `stream` must be NULL, and the call waits for O. */
fl_status fl_forward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors, void *stream);

/* Query the version that would compute the gradients of the problem, and the bytes of fl_tensors.workspace that a call
 * of fl_backward() with device memory needs. Otherwise like fl_query(). Since FL_ABI 4. */
fl_status fl_query_backward(fl_library *library, const fl_problem *problem, fl_support *support);

/* Compute dq, dk and dv from dout, q, k, v and the o and lse of fl_forward(); all of them are required. Elements are
 * fp16 or bf16, and d_head is 64, 128 or 256. Since FL_ABI 8 both cu_seqlens_q and cu_seqlens_k may be passed together
 * and must not decrease; since FL_ABI 9 also seqlens_q, seqlens_k, windows, soft caps and sinks, but no pages.
 * Gradients of rows that no sequence uses become 0, and the contents of these rows have no effect. With device memory,
 * tensors->workspace must have the bytes of fl_query_backward(), with any contents, and no other launch in flight may
 * use it; the call enqueues up to three kernels. Otherwise like fl_forward(). Since FL_ABI 4. */
fl_status fl_backward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                      const fl_gradients *gradients, void *stream);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
