/* flashladder.h - attention and its gradients by the kernels of flashladder: one C call on device pointers or on host
 * memory.
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
 * V. With the causal mask row i of Q sees the keys up to i + seq_k - seq_q. A row that sees no key has O = 0 and a
 * log-sum-exp of -infinity. fl_backward() computes the gradients. There is no dropout.
 *
 * A NaN or an infinity in a row of Q affects the results of that row alone, one in a row of K those of the rows that
 * see it. One in a row of V affects O of the rows that see it. It may also affect O of rows before them, which multiply
 * it by 0: of fewer than B_r + B_c rows before (the third and the fourth number of a config), in the heads that share
 * the KV head. In attention/decode these are all rows before, and one in a row of K may change the last bit of rows
 * next to those that attend to it. With a window, rows of V before the first key that a Q block sees have no effect.
 * Memory past seq_k or between rows has none either. Scores of 16-bit Q and K may reach 1e38: O stays finite.
 *
 * The library needs libc alone. A GPU is reached through the driver, libcuda.so.1 of CUDA 12 or newer, which fl_open()
 * looks for; without a GPU the emulator runs the PTX of the kernels on the CPU, slowly and bit by bit as a GPU would.
 *
 * Every function may be called by any thread at any time; only fl_close() must be the last call on its library. A call
 * that fails changes nothing, and fl_error() has a sentence. Nothing is printed and nothing exits.
 *
 * The ABI grows and does not change: FL_ABI counts its additions. Each struct begins with its size, which the caller
 * sets to sizeof. A newer library takes the shorter struct of an older caller; an older library takes the longer struct
 * of a newer caller if the bytes that it does not know are 0.
 */
#ifndef FLASHLADDER_H
#define FLASHLADDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define FL_ABI 9            /* of this header; fl_abi() tells that of the library */
#define FL_RELEASE "0.22.0" /* of this header; fl_release() tells that of the library */
#define FL_MAX_CONFIG 1024  /* bytes of a config's short form, with its zero byte */
#define FL_MAX_TEXT 512     /* bytes of a sentence in a struct, with its zero byte */

/* Return value of every call that can fail. */
typedef enum fl_status {
    FL_OK = 0,          /* done, or the launch is in the stream */
    FL_ERROR = 1,       /* the driver or the emulator failed, or memory is used up */
    FL_INVALID = 2,     /* an argument is wrong: fl_error() names it, its value and what would be right */
    FL_UNSUPPORTED = 3, /* no embedded version, or not the one asked for, computes this problem */
    FL_UNAVAILABLE = 4  /* there is no GPU, or no machine code for it, or it cannot hold the kernel */
} fl_status;

/* The back end that runs kernels. FL_AUTO: on GPUs where there is one that the library has machine code for, else the
 * emulator. */
typedef enum fl_backend { FL_AUTO = 0, FL_GPU = 1, FL_EMULATOR = 2 } fl_backend;

/* Type of the elements of Q, K, V and O: IEEE binary16 or bfloat16. Sums are float. FL_E4M3, since FL_ABI 5, is one of
 * fl_problem.kv_dtype, q_dtype and o_dtype alone: a sign, 4 bits of exponent with bias 7, 3 of fraction; 0x7f and 0xff
 * are NaN.
 */
typedef enum fl_dtype { FL_FP16 = 0, FL_BF16 = 1, FL_E4M3 = 2 } fl_dtype;

/* Memory that holds the tensors of a call. Host memory works on both back ends, and the call returns when O is
 * complete; device memory needs a GPU, and the call returns when the launch is in the stream. */
typedef enum fl_memory { FL_DEVICE_MEMORY = 0, FL_HOST_MEMORY = 1 } fl_memory;

/* Abilities of a kernel beyond contiguous tensors of one shape whose length is a multiple of its blocks. */
typedef enum fl_feature {
    FL_ANY_LENGTH = 1, /* any seq_q and seq_k, strides, a scale, log-sum-exp */
    FL_CAUSAL = 2,     /* the causal mask */
    FL_GROUPED = 4,    /* heads that share KV heads */
    FL_SERVING = 8     /* some of what fl_problem has since FL_ABI 3 */
} fl_feature;

/* Arrays of fl_tensors that say how the rows of Q, K and V make up sequences, and sinks. Bits of fl_problem.arrays. */
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
    FL_ALIBI_SLOPES = 2048
} fl_array;

/* Elements of a bias: bytes, of which 0 hides the key and others add 0; numbers of fl_problem.dtype; or floats. */
typedef enum fl_bias { FL_BIAS_BYTES = 1, FL_BIAS_DTYPE = 2, FL_BIAS_FLOAT = 3 } fl_bias;

/* Accumulation in attention/fp8 for e4m3 Q, K and V (docs/general-attention.md). FL_SUMS_FAST leaves O in the tensor
 * cores, which keep 13 bits of fraction and cut: where V has a mean, O is 5 % too small at 4096 keys, 18 % at 16384.
 * FL_SUMS_ACCURATE adds it up in float: 0.4 % at any length, in 1.1 to 1.2 times the time. */
typedef enum fl_sums { FL_SUMS_FAST = 0, FL_SUMS_ACCURATE = 1 } fl_sums;

/* The handle that fl_open() returns. Any thread may use it. */
typedef struct fl_library fl_library;

/* Steps of a tensor from one sequence, position or head to the next, in elements. The elements of a row are stored side
 * by side. Device memory: multiples of 8 (16 bytes), positive. Host memory: any number. The step of a dimension of size
 * 1 is not read. */
typedef struct fl_strides {
    int64_t batch, seq, head; /* from one sequence, position or head to the next */
} fl_strides;

/* One attention problem. Zeros mean what is usual, so that a field that is not set does no harm. */
typedef struct fl_problem {
    size_t size;         /* sizeof(fl_problem) */
    const char *version; /* "attention/wgmma", "v37"; NULL or "best": the fastest that computes the problem on this
                            GPU, as measured */
    const char *config;  /* short form of an embedded instance, see fl_kernel(); NULL: the version's own for d_head.
                            It requires a version */
    int32_t dtype;       /* fl_dtype */
    int32_t memory;      /* fl_memory */
    int32_t device;      /* ordinal of the GPU; -1: that of the stream, else of the current context, else of Q; for host
                            memory the first that the library has machine code for. On the emulator -1 or 0 */
    int32_t batch;       /* sequences, 0 to 65535; 0: nothing is done */
    int32_t heads;       /* of Q and O, 1 to 65535 */
    int32_t kv_heads;    /* of K and V: divides heads */
    int32_t seq_q;       /* rows of Q and O of a sequence and head, 0 to 2^30; 0: nothing is done */
    int32_t seq_k;       /* rows of K and V, 0 to 2^30; 0: O = 0 and log-sum-exp = -infinity */
    int32_t d_head;      /* elements of a row: a multiple of 8 up to 256 */
    int32_t causal;      /* 1: the causal mask, aligned to the bottom right; 0: none */
    float scale;         /* of the scores, positive; 0: 1 / sqrt(d_head) */
    int32_t unused;      /* 0 */
    fl_strides q, k, v, o; /* all three 0: contiguous [batch, seq, heads, d_head] */

    /* Since FL_ABI 3. One kernel does not take all of them together: fl_error() says which takes what. */
    uint32_t arrays;           /* bits of fl_array: the arrays that a call passes in fl_tensors */
    int32_t total_q, total_k;  /* with cu_seqlens_q, cu_seqlens_k: the rows of all sequences together. Q and O are
                                  [total_q, heads, d_head], K and V [total_k, kv_heads, d_head], strides.batch is not
                                  read, and seq_q and seq_k are the most rows of a sequence */
    int32_t n_pages;           /* with block_table: K and V are [n_pages, page_rows, kv_heads, d_head], strides.batch */
    int32_t page_rows;         /* is the step from page to page, and seq_k is the most keys of a sequence; a power of */
    int32_t pages_of_sequence; /* two from 16 on; the width of the table */
    int32_t windowed;          /* 1: row i sees keys from i + seq_k - seq_q - window_left to i + seq_k - seq_q + */
    int32_t window_left;       /* window_right alone; -1: no end. Lengths are those of the sequence. With the causal */
    int32_t window_right;      /* mask it attends to none after i + seq_k - seq_q. 0: there is no window */
    float softcap;             /* scores are softcap * tanh(scale * score / softcap); 0: they are not */
    int32_t split_keys;        /* not 0: the result of a sequence has the same bits whatever else is in the batch.
                                  attention/decode: keys of the smallest part of a sequence, a multiple of 128; 0: the
                                  fastest split */
    int32_t kv_dtype;   /* since FL_ABI 5, FL_E4M3: K and V are of that type, for attention/decode with d_head 128;
                           strides and addresses are multiples of 16 bytes. Offsets and lengths of queries are allowed:
                           then each 16 or 64 rows read their keys again, so long prefills are slow. 0: of dtype */
    int32_t q_dtype;    /* since FL_ABI 6, FL_E4M3 together with kv_dtype: Q has that type and O has dtype, for
                           attention/fp8, d_head 64, 128 or 256. Only lengths and scales of the arrays are supported;
                           0: of dtype */
    int32_t sums;       /* fl_sums, with q_dtype */
    int32_t scale_keys; /* since FL_ABI 7, with q_dtype: each so many keys of a sequence, a power of two from 32 on,
                           have a factor of their own in k_scales and in v_scales; 0: each head has one */
    int32_t o_dtype;    /* since FL_ABI 7, FL_E4M3, with q_dtype: O is of that type, and strides of o are multiples of
                           16 elements; 0: O is of dtype */
    int32_t bias_dtype; /* since FL_ABI 9, fl_bias, with FL_BIAS; 0: there is none */
    int32_t
        alibi_batch; /* with FL_ALIBI_SLOPES: the step from sequence to sequence, heads; 0: all have the same slopes */
    fl_strides
        bias; /* with FL_BIAS, 0 or more: 0 repeats the rows. Those of a row, one for each key, lie side by side */
} fl_problem;

/* Addresses of a call. Q and O hold batch x seq_q x heads rows, K and V batch x seq_k x kv_heads rows; O must not
 * overlap another tensor. Device memory: multiples of 16 bytes, on the GPU of the call. Managed memory counts as device
 * memory; host memory that the GPU can see does not. */
typedef struct fl_tensors {
    size_t size;           /* sizeof(fl_tensors) */
    const void *q, *k, *v; /* element 0 of each; k and v may be NULL where seq_k is 0 */
    void *o;               /* the result; NULL, as q, where there is nothing to do */
    float *lse;            /* [batch, heads, seq_q], contiguous: the natural logarithm of the sum of exp(scale * score);
                              [heads, total_q] with cu_seqlens_q; NULL: not wanted */
    void *workspace; /* device memory of fl_support.workspace_bytes bytes, a multiple of 16 bytes, zero before its first
                        use, which no other launch in flight uses: a kernel leaves it for the next launch. NULL: the
                        library has some for each stream, and for each captured launch. Not read for host memory */

    /* Since FL_ABI 3: NULL but for those of fl_problem.arrays. They are in the same memory as Q. In device memory they
     * are read by the kernel, so a captured launch may run again with other contents; what does not fit the tensors is
     * cut, and a page that is not there has zeros. In host memory that is refused. */
    const int32_t *cu_seqlens_q, *cu_seqlens_k; /* [batch + 1]: sequence b has rows from [b] to [b + 1] - 1 */
    const int32_t *seqlens_q, *seqlens_k; /* [batch]: how many of its rows a sequence uses, from 0 on. Others have no
                                             effect. Rows of O and of lse past the used queries are not written */
    const int32_t *block_table; /* [batch, pages_of_sequence]: row r of sequence b is row r % page_rows of this page.
                                   Entries past the last page in use are not read */
    const float *sinks;         /* [heads]: a score that each row of the head sees too, not scaled and without a value.
                                   The log-sum-exp has it in */
    const float *k_scales, *v_scales; /* since FL_ABI 5, with FL_E4M3, [kv_heads]: the scales that dequantize K and V:
                                         positive and finite, which is checked in host
                                         memory alone; NULL: 1 */
    const float *q_scales;            /* since FL_ABI 6, with q_dtype, [heads]: likewise of Q. With scale_keys k_scales
                                         and v_scales are [batch, kv_heads, ceil(seq_k / scale_keys)] */
    const float *o_scales;            /* since FL_ABI 7, with o_dtype, [heads]: the scales that dequantize O:
                                         O / scale is stored, and values beyond 448 become 448 */
    const void *bias; /* since FL_ABI 9, [batch, heads, seq_q, seq_k] with the strides bias of the problem: it is
                         added to the score after scale and softcap, and -infinity hides the key. Sequences,
                         queries and keys count from 0, in packed sequences and pages, too */
    const float *alibi_slopes; /* since FL_ABI 9, [heads] or [batch, heads]: slope * |i + seq_k - seq_q - j| is
                                  subtracted from the score of query i and key j */
} fl_tensors;

/* Addresses of a backward call in addition to those of fl_tensors. Device memory: multiples of 16 bytes, on the GPU of
 * the call. The results must overlap no other tensor. Since FL_ABI 4. */
typedef struct fl_gradients {
    size_t size;        /* sizeof(fl_gradients) */
    const void *dout;   /* the gradient of a scalar loss with respect to O, with the strides o of the problem */
    void *dq, *dk, *dv; /* the gradients of that number by Q, K and V */
    fl_strides dq_strides, dk_strides, dv_strides; /* all three 0: contiguous [batch, seq, heads, d_head] */
    int32_t deterministic; /* 1: dq has the same bits in every run, slower; 0: the order of its sums is free */
    int32_t unused;        /* 0 */
    float *dsinks;         /* since FL_ABI 9, [heads]: the gradients of that number by the sinks, with the same bits in
                              every run; NULL: not wanted */
} fl_gradients;

/* The version and back end that would run a problem. */
typedef struct fl_support {
    size_t size;                /* sizeof(fl_support), set by the caller */
    char version[8];            /* as below, with 7 characters at most: "wgmma", "mma_syn"; a call takes it, too */
    char config[FL_MAX_CONFIG]; /* short form */
    int64_t workspace_bytes;    /* of fl_tensors.workspace; 0: none is needed */
    int32_t measured;           /* 1: "best" follows times measured on this compute capability and kind of problem */
    int32_t unused;             /* 0 */
    char order[FL_MAX_TEXT];    /* why this version, in a sentence */
    char kernel[32];            /* what fl_problem.version takes: "attention/wgmma", "v37"; since FL_ABI 2 */
} fl_support;

/* One embedded kernel: an instance of a version, or of a kernel of kernels/attention/, which counts as one here. */
typedef struct fl_kernel_info {
    size_t size;                /* sizeof(fl_kernel_info), set by the caller */
    char version[8];            /* as below, with 7 characters at most: "wgmma", "mma_syn"; a call takes it, too */
    char name[32];              /* of the version: "any length" */
    char config[FL_MAX_CONFIG]; /* short form */
    char archs[64];             /* machine code that is embedded: "sm_80 sm_90", "sm_90a" */
    int32_t dtype;              /* fl_dtype */
    int32_t d_head;             /* elements of a row */
    uint32_t features;          /* bits of fl_feature */
    int32_t own;                /* 1: the version's own config for this dtype and d_head */
    char kernel[32];            /* what fl_problem.version takes: "attention/wgmma", "v37"; since FL_ABI 2 */
} fl_kernel_info;

/* The back end and GPUs of a library. */
typedef struct fl_description {
    size_t size;                  /* sizeof(fl_description), set by the caller */
    int32_t backend;              /* FL_GPU or FL_EMULATOR */
    int32_t devices;              /* GPUs that the process may use; 0 on the emulator */
    int32_t kernels;              /* embedded instances: fl_kernel() takes 0 to kernels - 1 */
    int32_t unused;               /* 0 */
    char why_no_gpu[FL_MAX_TEXT]; /* on the emulator that FL_AUTO chose: why; else "" */
} fl_description;

/* One GPU. */
typedef struct fl_device_info {
    size_t size;          /* sizeof(fl_device_info), set by the caller */
    char name[128];       /* "NVIDIA H200" */
    int32_t major, minor; /* compute capability */
    int32_t sms;          /* multiprocessors */
    int32_t usable;       /* 1: the library has machine code for it */
    int64_t memory_bytes; /* in all */
} fl_device_info;

/* The ABI of the library. A program whose FL_ABI is larger must not use what came later. */
uint32_t fl_abi(void);

/* "0.22.0 (revision 4fd1b27)" */
const char *fl_release(void);

/* Error message of this thread's last failed call, valid until its next failed call; "" before. */
const char *fl_error(void);

/* Open a back end. FL_UNAVAILABLE: FL_GPU, and no GPU can be used. No context is made and nothing is loaded. */
fl_status fl_open(fl_backend backend, fl_library **library);

/* Give everything back. All calls on the library must have returned and its launches ended; graphs that hold its
 * launches must not run any more, and the contexts of its calls must still exist. NULL is allowed. */
void fl_close(fl_library *library);

/* The back end in use, how many GPUs there are and how many kernels. */
fl_status fl_describe(fl_library *library, fl_description *description);

/* GPU number `device`, from 0. FL_INVALID past the last. */
fl_status fl_device(fl_library *library, int32_t device, fl_device_info *info);

/* Embedded instance number `kernel`, from 0. FL_INVALID past the last. */
fl_status fl_kernel(fl_library *library, int32_t kernel, fl_kernel_info *info);

/* Query the version that would run the problem, without log-sum-exp, on GPU problem.device (-1: of the current context,
 * else the first usable one). All kernels of the default library return log-sum-exp; versions v00 to v37 do not.
 * FL_UNSUPPORTED or FL_UNAVAILABLE where nothing does, with the reason. */
fl_status fl_query(fl_library *library, const fl_problem *problem, fl_support *support);

/* Load what runs the problem, so that fl_forward() neither loads nor allocates for this problem on that GPU, but for a
 * workspace of more than 16 MiB, which a stream's first call with many split_keys or a capture may need. The GPU's
 * context is the current one if it belongs to the GPU, else the primary context. */
fl_status fl_prepare(fl_library *library, const fl_problem *problem);

/* Compute O, and log-sum-exp where it is wanted. Device memory: the launch goes to `stream`, a CUstream (cudaStream_t)
 * or NULL for the default stream, and the call does not wait for the GPU. The stream must exist: with the handle of a
 * destroyed one the driver may stop the process. The call may be captured into a CUDA graph. The thread's current
 * context is the same after the call. Host memory: `stream` must be NULL; the call waits for O. */
fl_status fl_forward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors, void *stream);

/* Query the version that would compute the gradients of the problem, and the bytes of fl_tensors.workspace that a call
 * of fl_backward() with device memory needs. As fl_query(). Since FL_ABI 4. */
fl_status fl_query_backward(fl_library *library, const fl_problem *problem, fl_support *support);

/* Compute dq, dk and dv from dout, q, k, v and what fl_forward() left in o and lse; all of them are needed. Elements
 * are fp16 or bf16, d_head 64 or 128, on compute capability 9.0 or the emulator also 256. Since FL_ABI 8 there may be
 * cu_seqlens_q and cu_seqlens_k, together, which must not decrease; since FL_ABI 9 also seqlens_q, seqlens_k, windows,
 * soft caps and sinks, but no pages. Gradients of rows that no sequence uses become 0, and what these rows hold has no
 * effect. `deterministic` also needs compute capability 9.0 or the emulator. Device memory: tensors.workspace is
 * needed, of fl_query_backward() bytes with any contents, and no other launch in flight may use it; up to three kernels
 * go to the stream. The rest as fl_forward(). Since FL_ABI 4. */
fl_status fl_backward(fl_library *library, const fl_problem *problem, const fl_tensors *tensors,
                      const fl_gradients *gradients, void *stream);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
