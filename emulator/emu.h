/* emu.h - a PTX emulator to link in: load PTX text, launch an entry, read results, findings and counters.
 *
 *     emu_error error;
 *     emu_module *module = emu_load(text, strlen(text), &error);
 *     emu_device *device = emu_device_new();
 *     uint64_t out = emu_alloc(device, "out", 4096, EMU_OUTPUT);
 *     emu_launch launch = {.entry = 0, .grid = {1, 1, 1}, .block = {128, 1, 1}, .params = &out, .param_bytes = 8,
 *                          .checks = true};
 *     emu_status status = emu_run(device, module, &launch, &error);
 *     const float *host = emu_host_bytes(device, out);
 *
 * `make emu-lib` puts this header, the library and a Python module into lib/. A program of plain C11 or C++ needs
 * nothing else:
 *
 *   $ cc -std=c11 -Ilib program.c -Llib -lflemu -Wl,-rpath,lib -o program
 *
 * Without the library: compile your program with the .c files of the folders ptx, machine, check, explore and cuda next
 * to this header, and link them with `-pthread -lm`. They need no include folder and no macro.
 *
 * In the order of use: emu_compile() makes PTX of CUDA, emu_load() reads PTX, emu_find_entry() and emu_entry() tell
 * what is in it, emu_device_new() and emu_alloc() make memory, emu_run() launches, emu_findings() and emu_counts() tell
 * what happened, emu_print_findings() and emu_print_counters() say it, emu_free(), emu_device_free() and emu_unload()
 * release.
 *
 * Whatever the emulator does not know it refuses by line and name; it never guesses. It is no timing model: counters
 * are PTX instructions, modeled wavefronts and sectors, never times. Results, findings and counters depend on the
 * arguments and on the schedule seed only, not on the number of threads. A module may be shared by threads once it is
 * loaded; a device serves one thread at a time. Nothing here writes to stdout or stderr, and nothing exits.
 */
#ifndef FL_EMU_H
#define FL_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The following symbols are exported from a shared library that contains the emulator; all others are hidden by
 * -fvisibility=hidden. */
#pragma GCC visibility push(default)

typedef struct emu_module emu_module; /* PTX; what it says of an entry does not change once that is decoded */
typedef struct emu_device emu_device; /* buffers, and findings and counters of the last launch */

typedef enum emu_status {
    EMU_OK = 0,       /* ran to the end, nothing found */
    EMU_FINDINGS = 1, /* ran to the end; emu_findings() says what is wrong */
    EMU_REFUSED = 2,  /* PTX or launch arguments not accepted; the error says why */
    EMU_FAULT = 3 /* a CTA could not continue (deadlock, livelock, step limit, trap, assert); emu_findings() says why */
} emu_status;

typedef struct emu_error {
    int line;       /* of the PTX text, from 1; 0 where the error is not about a line */
    char text[400]; /* one sentence, without a line break */
} emu_error;

/* One .entry of a module. All pointers are borrowed from the module. */
typedef struct emu_entry_info {
    const char *name;               /* symbol as in the PTX, mangled */
    int params;                     /* number of parameters */
    uint32_t param_bytes;           /* size of the parameter block, every parameter at its natural alignment */
    const uint32_t *param_offsets;  /* [params] of each parameter in the block */
    const uint32_t *param_sizes;    /* [params] bytes of each parameter */
    const char *const *param_types; /* [params] as in the PTX: "f32", "u64"; "b8" for a struct */
    uint32_t shared_bytes;          /* static shared memory; 0 until emu_decode() */
    uint32_t max_threads;           /* of .maxntid or .reqntid; 0 where the PTX states none */
    uint32_t cluster[3];            /* CTAs of a cluster, of .reqnctapercluster; 0 likewise */
    uint32_t instructions;          /* PTX instructions in the body; 0 until emu_decode() */
} emu_entry_info;

/* One .global or .const variable: __device__ or __constant__ in CUDA. Borrowed from the module. */
typedef struct emu_variable {
    const char *name; /* symbol as in the PTX, mangled */
    const char *type; /* of an element, as in the PTX: "f32"; nvcc writes most arrays and all structs as "b8" */
    uint64_t address; /* as the program sees it */
    uint64_t bytes;
} emu_variable;

/* Purpose of a buffer. An output is expected to be written exactly once, and a launch with checks reports bytes that
 * were written never or twice. */
typedef enum emu_buffer_kind { EMU_BUFFER = 0, EMU_OUTPUT = 1 } emu_buffer_kind;

/* Bytes of host memory that a launch with checks takes for each byte of an output, in addition to the buffers. */
enum { EMU_OUTPUT_COST = 6 };

/* Trace of launches for ui.perfetto.dev: a row for each CTA, warp, mbarrier and TMA copy. A unit of its time is one
 * warp instruction of a CTA, in the emulator's order, which is no time of a GPU. _begin() writes to a borrowed file and
 * gives NULL when out of memory; _end() frees, and is false where something could not be written. */
typedef struct emu_events emu_events;
emu_events *emu_events_begin(FILE *file);
bool emu_events_end(emu_events *events);

/* Selects the executed instructions that are printed, with their operand values. Used when file is not NULL. */
typedef struct emu_trace {
    FILE *file;         /* borrowed */
    emu_events *events; /* borrowed; NULL: none. They are of all instructions */
    int64_t cta;        /* linear index x + grid_x * (y + grid_y * z); -1 for all */
    int32_t warp;       /* -1 for all */
    int32_t lane;       /* whose values are shown; -1 shows all lanes, compactly */
    int32_t line_first; /* lines of the CUDA source, both ends included; 0, 0 for all */
    int32_t line_last;
} emu_trace;

typedef struct emu_launch {
    int entry;                /* index, 0 <= entry < emu_entry_count() */
    uint32_t grid[3];         /* CTAs */
    uint32_t block[3];        /* threads; at most 1024 in all, and 64 in z */
    uint32_t cluster[3];      /* CTAs, at most 16 in all, which divide the grid; all 0: as the entry says, or none */
    uint32_t dynamic_shared;  /* bytes */
    const void *params;       /* the parameter block, borrowed; NULL where the entry has no parameters */
    size_t param_bytes;       /* must equal that of the entry */
    bool checks;              /* races, uninitialised data, data in flight, outputs; bounds are always checked */
    uint64_t schedule;        /* 0: each warp runs until it must wait; other seeds shuffle and preempt warps */
    bool stale;               /* with a schedule and checks: loads may return earlier values, as PTX allows */
    int delay_warp;           /* of each CTA: it waits before an instruction until nothing else can happen */
    int delay_line;           /* PTX line of that; 0 for none */
    bool wgmma_wait_per_warp; /* a wgmma.wait_group says nothing of the other three warps' reads of shared memory */
    bool strict_tcgen05;      /* rules of PTX that published code breaks are checked, too: see docs/emulator.md */
    bool fence_behind_reads;  /* a bulk copy that overwrites data also needs a fence.proxy.async after ordinary reads */
    bool overlaps;            /* it may begin before the launch before has ended: programmatic stream serialization */
    bool footprint;           /* with checks: keep what it does to global memory for emu_take_footprint() */
    uint64_t race_memory;     /* bytes that the search for races in global memory may take; 0 for 1 GiB */
    int threads;              /* of the host; 0 for one per core; one where CTAs tell each other more than tickets */
    uint64_t step_limit;      /* warp instructions of one CTA; 0 for the default of 4e9 */
    bool first_finding_only;  /* a finding ends the run, like a fault */
    uint64_t sample;          /* CTAs to run, spread over the grid, if they tell each other nothing; 0 for all */
    const char *ignore;       /* findings not to report: "race@12,misaligned", CLASS or CLASS@LINE; NULL for none */
    FILE *output;             /* what device printf writes, CTA by CTA; borrowed, NULL drops it */
    emu_trace trace;          /* tracing runs the CTAs in order on one thread */
} emu_launch;

/* Classes of findings. The names that emu_class_name() gives are part of the interface. */
typedef enum emu_class {
    EMU_RACE,                   /* "race": two threads, one writes, no order between them */
    EMU_ASYNC_IN_FLIGHT,        /* "async-in-flight": a cp.async may still be writing there */
    EMU_UNINITIALISED_SHARED,   /* "uninitialised-shared": a value from there matters; dropped ones do not */
    EMU_UNINITIALISED_REGISTER, /* "uninitialised-register": likewise */
    EMU_UNINITIALISED_GLOBAL, /* "uninitialised-global": likewise, of a buffer that emu_mark_uninitialized() was called
                                 for */
    EMU_OUT_OF_BOUNDS,        /* "out-of-bounds"; the load gives 0, the store is dropped */
    EMU_MISALIGNED,           /* "misaligned"; likewise */
    EMU_BARRIER_MISUSE,       /* "barrier-misuse" */
    EMU_DIVERGENT_SYNC,       /* "divergent-sync": a .sync instruction without all of its lanes */
    EMU_DEADLOCK,             /* "deadlock" */
    EMU_LIVELOCK,             /* "livelock": threads poll memory that nothing changes any more */
    EMU_STEP_LIMIT,           /* "step-limit" */
    EMU_OUTPUT_NEVER_WRITTEN, /* "output-never-written" */
    EMU_OUTPUT_WRITTEN_TWICE, /* "output-written-twice" */
    EMU_ASSERT,               /* "assert": a device assert failed */
    EMU_TRAP,                 /* "trap" */
    EMU_REGISTER_IN_FLIGHT,   /* "register-in-flight": a register of an unfinished wgmma is touched */
    EMU_WGMMA_MISUSE,         /* "wgmma-misuse" */
    EMU_BAD_TENSOR_MAP,       /* "bad-tensor-map" */
    EMU_MISSING_PROXY_FENCE,  /* "missing-proxy-fence": the async proxy may not see what was stored */
    EMU_CTA_EXITED,           /* "cta-exited": shared memory of a CTA of the cluster that may have ended */
    EMU_CTA_NOT_STARTED,      /* "cta-not-started": likewise, that may not have started */
    EMU_MISSING_INIT_FENCE,   /* "missing-init-fence": a copy counts at an mbarrier that it may not see yet */
    EMU_PHASE_OVERRUN,        /* "phase-overrun": in another order a barrier counts or answers in a wrong phase */
    EMU_ORDER_DEPENDENT,      /* "order-dependent": in another order a phase completes without what belongs to it */
    EMU_TMEM_MISUSE,          /* "tmem-misuse": tcgen05 with a wrong number of columns, descriptor or order of calls */
    EMU_TMEM_RACE,            /* "tmem-race": nothing orders two accesses to tensor memory, one of which writes */
    EMU_TMEM_IN_FLIGHT,       /* "tmem-in-flight": a tcgen05 instruction may still be at work there */
    EMU_TMEM_UNINITIALISED,   /* "tmem-uninitialised": a value from there matters; dropped ones do not */
    EMU_CLASSES
} emu_class;

/* A line of CUDA source, and the line that its function was inlined at: from `.loc ... inlined_at`. */
typedef struct emu_frame {
    const char *file; /* as .file says it */
    int line;
    const struct emu_frame *caller; /* NULL in the kernel itself */
} emu_frame;

/* A location in the program. Its pointers are borrowed from the module. */
typedef struct emu_location {
    int ptx_line;           /* 0 where there is none */
    const char *ptx;        /* text of the instruction, "" where there is none */
    const emu_frame *frame; /* the innermost; NULL where there is no .loc */
    const emu_frame *own;   /* of these frames the innermost in the file of the kernel itself; NULL likewise */
} emu_location;

/* Findings are grouped by class and the source lines of the two positions, those of a race in either order (by the
 * instructions where there are no lines): a loop that is unrolled 64 times has one finding for a missing barrier. The
 * first in CTA order is described. */
typedef struct emu_finding {
    emu_class class_;
    uint64_t count;     /* occurrences, of all instructions of the lines */
    emu_location here;  /* the instruction at which it was found */
    emu_location other; /* its counterpart: the other access of a race, the cp.async in flight */
    uint32_t cta[3];
    int warp, lane; /* -1 where the finding is not about one */
    int other_warp, other_lane;
    uint64_t address;    /* as the program sees it; 0 where there is none */
    const char *message; /* several sentences for a person, lines broken by '\n', no color; owned by the device */
} emu_finding;

/* One static instruction and what the launch did with it, summed over all warps. */
typedef struct emu_counter {
    emu_location location;
    const char *group;   /* class of the instruction: "mma", "ldmatrix", "memory", "barrier", ... (emu_form.group) */
    int region;          /* index into emu_counters.regions */
    uint64_t executed;   /* warp instructions with at least one lane on */
    uint64_t lanes;      /* lanes of them */
    uint64_t wavefronts; /* shared memory: modeled from the bank rules */
    uint64_t ideal;      /* wavefronts without conflict */
    uint64_t sectors;    /* global memory: 32-byte sectors touched, request by request */
    uint64_t requests;   /* shared or global memory: warp instructions with at least one lane on */
    uint64_t bytes;      /* moved by the lanes, in every memory; a cp.async moves its bytes once */
} emu_counter;

/* A region is a loop (innermost) or the code before, between and after the loops. */
typedef struct emu_region {
    const char *name; /* such as "loop at v01_base.cu:210", "before loops"; owned by the module */
    int depth;        /* 0 outside of loops */
} emu_region;

typedef struct emu_counters {
    const emu_counter *rows; /* in program order */
    size_t count;
    const emu_region *regions;
    size_t region_count;
    emu_counter total; /* sums; location and group are empty */
    uint64_t steps;    /* warp instructions, those with every lane off included */
    uint64_t traced;   /* warp instructions that the trace printed */
    uint64_t ctas;     /* that ran: fewer than the grid has if the launch asked for a sample */
    bool races_unseen; /* the memory or time for races in global memory was spent: some accesses were not checked */
    uint32_t orders;   /* what keeps this run from standing for all orders, by bit; 0: nothing. emu_describe_orders() */
    int entry;
} emu_counters;

/* Fidelity of the bits that a PTX form computes, compared with those of a GPU. */
typedef enum emu_fidelity {
    EMU_EXACT,    /* the PTX ISA defines every bit, and the emulator computes these */
    EMU_RECORDED, /* the PTX ISA leaves bits open; the emulator computes those that an H200 gave */
    EMU_FORMULA,  /* the PTX ISA leaves bits open; the emulator has a rule of its own, and a GPU may differ */
    EMU_NO_BITS   /* the form computes no value: it synchronizes, branches or gives a hint */
} emu_fidelity;

/* One row of the table of PTX forms. The emulator rejects what no row accepts. */
typedef struct emu_form {
    const char *opcode;    /* "add" */
    const char *modifiers; /* tokens in order, alternatives by '|', optional ones ending in '?': "rn? ftz? sat? f32" */
    const char *operands;  /* such as "d, a, b" */
    const char *group;
    const char *note; /* "" or a remark for the reader of the table */
    emu_fidelity fidelity;
} emu_form;

/* ---- from CUDA to PTX ---- */

/* Options of emu_compile() for nvcc. */
typedef struct emu_compiler {
    const char *toolkit; /* folder that holds bin/nvcc, used unless the environment has CUDA=FOLDER; NULL for none */
    const char *const *flags; /* further flags, ended by NULL; NULL for none */
} emu_compiler;

/* Compile a CUDA file by `nvcc -ptx -lineinfo`, for compute_80 unless the flags say otherwise. path receives the name
 * of the PTX file, which is in a cache ($XDG_CACHE_HOME or ~/.cache, folder flashladder): nvcc runs only if the
 * flags, the toolkit, the file or a file that it includes has changed. False with *error filled where that fails; path
 * then names the file with what nvcc said, and is empty where nvcc did not run. */
bool emu_compile(const char *file, const emu_compiler *compiler, char *path, size_t path_bytes, emu_error *error);

/* ---- modules ---- */

/* Read PTX text except the bodies of its entries, which wait for emu_decode(). The text is borrowed until emu_unload()
 * and need not end in a zero byte. NULL, with *error filled, where anything else is refused, or a brace, comment or
 * string does not end. Owned: emu_unload(). */
emu_module *emu_load(const char *ptx, size_t bytes, emu_error *error);
/* Decode an entry. False, with *error filled, where its body is refused: then, and each time it is asked for again. The
 * first emu_run() of an entry does it too; other entries of the module are not looked at. Any thread may call it. */
bool emu_decode(const emu_module *module, int index, emu_error *error);
void emu_unload(emu_module *module);

int emu_entry_count(const emu_module *module);
/* Borrowed from the module; NULL where index is out of range. */
const emu_entry_info *emu_entry(const emu_module *module, int index);

/* Index of the entry of this name, as emu_entry_info has it (mangled, for C++); -1 where there is none. */
int emu_find_entry(const emu_module *module, const char *name);

/* The variables of a module, those of a body once that is decoded. False where index is past the last. */
bool emu_variable_at(const emu_module *module, size_t index, emu_variable *variable);

/* ---- memory ---- */

/* emu_load() for a device on which several modules are at work: their variables are all in memory, and keep their
 * values while others run. Owned: emu_unload_from(). */
emu_module *emu_load_on(emu_device *device, const char *ptx, size_t bytes, emu_error *error);
void emu_unload_from(emu_device *device, emu_module *module);
/* A variable of such a module by its name, ready for emu_host_bytes(); false where there is none. */
bool emu_find_variable(emu_device *device, const emu_module *module, const char *name, emu_variable *variable);

/* The architecture that a device has, such as 90: addresses in shared memory begin at 1024 from 90 on, else at 0. 0,
 * the default: what the .target of a module names. For modules loaded afterwards. */
void emu_set_architecture(emu_device *device, unsigned architecture);
/* Draw from now on what PTX leaves open: last digits of approximations, bits of NaNs, %clock, %globaltimer, %smid and
 * %nsmid. It concerns entries that are decoded afterwards, in the whole process. 0, the default: the emulator's own. */
void emu_set_noise(uint64_t seed);
/* A device with an empty address space. NULL when out of memory. Owned: emu_device_free() frees its buffers too. */
emu_device *emu_device_new(void);
void emu_device_free(emu_device *device);

/* A buffer of zeros, 256-byte aligned, with unmapped guards on both sides. Returns its device address, 0 when out of
 * memory or bytes is 0. The name (copied) is used in messages. At most 65536 buffers of up to 16 GiB a device. */
uint64_t emu_alloc(emu_device *device, const char *name, uint64_t bytes, emu_buffer_kind kind);
/* Free one buffer by the address that emu_alloc() gave; false where that is no buffer. An access to it is out of bounds
 * from then on, and later launches report nothing about it. */
bool emu_free(emu_device *device, uint64_t address);
/* A buffer over memory of the host, borrowed until emu_free(). If the host's address is (n << 36) + (1 << 28) with an n
 * from 1 to 65536, and no other buffer has it, it is also the device address. Returns the device address, 0 when out of
 * memory or bytes is 0. */
uint64_t emu_map(emu_device *device, const char *name, void *host, uint64_t bytes);
/* Declare the bytes of a buffer uninitialized, as those of cudaMalloc() are: kernels that run with checks report where
 * a value matters that nothing has written. Up to 16 MiB the bytes become 0xcd; larger buffers keep their zeros. A
 * launch without checks ends this for all buffers. False when out of memory. */
bool emu_mark_uninitialized(emu_device *device, uint64_t address);
/* The host has written bytes of such a buffer, or copied them from another address, whose uninitialized bytes remain
 * so. Nothing happens for other memory. */
void emu_note_written(emu_device *device, uint64_t address, uint64_t bytes);
void emu_note_copied(emu_device *device, uint64_t to, uint64_t from, uint64_t bytes);
/* How a byte was touched first, by a kernel or by the two functions above. An atomic reads. */
typedef enum emu_touch { EMU_UNTOUCHED, EMU_WRITTEN_FIRST, EMU_READ_FIRST } emu_touch;
/* Note from now on, as if nothing had been touched before, how launches with checks touch each byte of all buffers: it
 * takes a byte for each. False when out of memory. */
bool emu_watch_touches(emu_device *device);
/* An emu_touch for each of some bytes of one buffer, as a uint8_t; NULL without emu_watch_touches(), and outside of a
 * buffer. Borrowed until the buffer is freed. */
const uint8_t *emu_touches_of(const emu_device *device, uint64_t address, uint64_t bytes);
/* Host bytes of a device address, up to the end of its buffer; NULL outside of all buffers. Borrowed; those of a
 * variable until the next emu_run(). */
void *emu_host_bytes(emu_device *device, uint64_t address);
/* Give the variables of a module their initial values on the device. emu_run() does it where the module is not the one
 * that ran last; otherwise variables keep what launches and the host wrote, as on a GPU. False when out of memory. */
bool emu_reset_variables(emu_device *device, const emu_module *module);

/* ---- textures and surfaces ---- */

/* Description of a texture or surface object, as for cuTexObjectCreate and cuSurfObjectCreate. Coordinate 0 is the one
 * whose texels are contiguous. */
typedef enum emu_texel {
    EMU_TEXEL_U8,
    EMU_TEXEL_U16,
    EMU_TEXEL_U32,
    EMU_TEXEL_S8,
    EMU_TEXEL_S16,
    EMU_TEXEL_S32,
    EMU_TEXEL_F16,
    EMU_TEXEL_F32
} emu_texel;
typedef enum emu_texture_edge { EMU_EDGE_WRAP, EMU_EDGE_CLAMP, EMU_EDGE_MIRROR, EMU_EDGE_BORDER } emu_texture_edge;
typedef struct emu_texture_info {
    uint64_t address;         /* of the device: the first texel */
    uint64_t pitch;           /* bytes from a row to the next */
    uint32_t sizes[3];        /* texels, 0 for a dimension that it has not */
    uint32_t layers;          /* each of all sizes; 0 where it has none, six in a cube */
    uint32_t channels;        /* 1, 2 or 4 numbers in a texel, side by side */
    emu_texel texel;          /* what they are */
    emu_texture_edge edge[3]; /* beyond an edge; wrap and mirror of normalized coordinates alone, else clamp */
    float border[4];
    bool linear;     /* memory for integer coordinates alone, and zeros beyond its end */
    bool cube;       /* six layers are its faces */
    bool surface;    /* bytes are read and written: what follows means nothing */
    bool filtered;   /* between texels, of texels that are read as floats */
    bool normalized; /* coordinates from 0 to 1 */
    bool as_integer; /* integers stay, else those of 8 and 16 bits become floats from 0 or -1 to 1 */
} emu_texture_info;
/* Handle of a texture or surface object for a kernel; 0 when out of memory. The memory is borrowed. */
uint64_t emu_make_texture(emu_device *device, const emu_texture_info *info);
/* NULL where that is none, or no more. Borrowed until the next emu_make_texture(). */
const emu_texture_info *emu_find_texture(const emu_device *device, uint64_t object);
/* False where that is none. */
bool emu_free_texture(emu_device *device, uint64_t object);

/* ---- launches ---- */

/* Description of a tensor map, as for cuTensorMapEncodeTiled, or with im2col for cuTensorMapEncodeIm2col (no
 * interleave). The elements of dimension 0 are adjacent. */
enum { EMU_TENSOR_MAP_BYTES = 128, EMU_TENSOR_RANK = 5 };
typedef enum emu_swizzle {
    EMU_SWIZZLE_NONE,
    EMU_SWIZZLE_32B,
    EMU_SWIZZLE_64B,
    EMU_SWIZZLE_128B,
    EMU_SWIZZLE_128B_BY_32B /* permutes chunks of 32 bytes, not of 16 */
} emu_swizzle;
/* Elements of 4 and 6 bits, of sm_100: in shared memory two of 4 bits are a byte (then an element of the map is such a
 * pair), or 16 elements take 16 bytes and their padding is zeros. */
typedef enum emu_packing { EMU_UNPACKED, EMU_FOURS, EMU_FOURS_PADDED, EMU_SIXES_PADDED } emu_packing;
typedef struct emu_tensor_info {
    uint64_t address;                      /* of the device, a multiple of 16 */
    uint64_t strides[EMU_TENSOR_RANK - 1]; /* bytes from an element to the next of dimension 1, 2, ... */
    uint32_t sizes[EMU_TENSOR_RANK];       /* elements of the tensor */
    uint32_t box[EMU_TENSOR_RANK];         /* elements that a copy moves, at most 256 a dimension */
    uint32_t rank, element_bytes;
    emu_swizzle swizzle;
    uint8_t numbers; /* of the elements, for reductions: 0 integers, 1 f32, 2 f64, 3 f16, 4 bf16 */
    bool is_signed;  /* integers */
    bool rounds;     /* f32 that a copy to shared memory rounds to tf32 */
    bool flushes;    /* f32 of which a reduction takes subnormals for zeros */
    uint8_t packing; /* an emu_packing */
    bool fills_NaN;  /* elements outside of the tensor are NaN, 0x7ff7 in each half word; else zeros */
    bool im2col;     /* a box is box[1] pixels with box[0] channels each, one after the other in memory */
    uint8_t steps[EMU_TENSOR_RANK]; /* from an element of a box to the next one in each dimension; 0: 1 */
    int16_t lower[EMU_TENSOR_RANK - 2], upper[EMU_TENSOR_RANK - 2]; /* im2col, of dimension 1, 2, 3: the first pixel,
                                                                     * and the last one less the tensor's last */
} emu_tensor_info;
/* Write the 128 bytes that a kernel takes as a CUtensorMap. False, with *error filled, where the driver would refuse.
 */
bool emu_make_tensor_map(const emu_tensor_info *info, void *map, emu_error *error);

/* Set the parts of a trace that a text names, in any order; those it leaves out stay as they are, and "lines=7" is one
 * line. False, with what is wrong in *error, where the text is anything else. */
#define EMU_TRACE_FORM "cta=0,warp=1[,lane=2][,lines=100-120]"
bool emu_parse_trace(const char *text, emu_trace *trace, emu_error *error);
/* True if the CTA and the warp that the trace of a launch names exist in it. False with *error filled where they do
 * not: emu_run() refuses such a launch. */
bool emu_check_trace(const emu_launch *launch, emu_error *error);
/* Run one launch to its end. Fills the findings and counters of the device; *error on EMU_REFUSED. */
emu_status emu_run(emu_device *device, const emu_module *module, const emu_launch *launch, emu_error *error);

/* Results of emu_run_orders(). Two runs are of one class where each access to a flag or a counter comes after the same
 * others. */
typedef struct emu_exploration {
    uint64_t classes, runs; /* that ran to their end, including those that others represent */
    uint64_t left;          /* orders that are known and have not run */
    bool by_tickets;        /* a class is a CTA that draws one ticket from a state: see docs/internals.md */
    char difference[400];   /* outputs that are not those of the first run; "" where all have the same bits */
} emu_exploration;

/* Run one launch in every order of its accesses to flags and counters that can matter, up to a number of runs. It ends
 * at the first run with findings, and at the first difference: the status is EMU_FINDINGS then. Device memory holds the
 * results of the last run, which repeats the first one if nothing was found. Each run begins with the memory that the
 * device has now. */
emu_status emu_run_orders(emu_device *device, const emu_module *module, const emu_launch *launch, uint64_t most_runs,
                          emu_exploration *seen, emu_error *error);

/* CTAs that the emu_run() at work has ended, of grid[0] * grid[1] * grid[2]: any thread may ask meanwhile. */
uint64_t emu_ctas_done(const emu_device *device);

/* Results of the last emu_run(), borrowed until the next; positions point into the module. */
const emu_finding *emu_findings(const emu_device *device, size_t *count);
const emu_counters *emu_counts(const emu_device *device);

/* ---- operations that may overlap ---- */

/* The bytes of global memory that an operation reads and writes: of a launch with emu_launch.footprint, or of a copy.
 * That of a launch borrows its module. Owned: emu_footprint_free(). */
typedef struct emu_footprint emu_footprint;
/* The footprint of the last launch, or a new one to which emu_footprint_add() adds bytes in the order of their
 * addresses; NULL where there is none, or when out of memory. The name is used in messages (copied). */
emu_footprint *emu_take_footprint(emu_device *device);
emu_footprint *emu_footprint_new(const char *name);
void emu_footprint_add(emu_footprint *footprint, uint64_t address, uint64_t bytes, bool writes);
void emu_footprint_free(emu_footprint *footprint);
/* Compare an operation with one that began before it and may still be at work. True with the finding filled, whose
 * message is owned: free(), where both access a byte, one of them writes it, and not both by strong accesses. Nothing
 * is found where the second has read a flag that the first wrote by a strong access: it may order the two. ignore: as
 * of emu_launch. */
bool emu_compare_footprints(emu_device *device, const emu_footprint *now, const emu_footprint *before,
                            const char *ignore, emu_finding *found);

/* ---- names ---- */

/* Name of a class of findings, "race" and so on. */
const char *emu_class_name(emu_class class_);
/* Row of the table of forms; NULL past its end. */
const emu_form *emu_form_at(size_t index);

/* ---- as text ---- */

/* The messages of all findings, and a line that counts them; nothing where there are none. A note where races in
 * global memory went unseen. */
void emu_print_findings(FILE *to, const emu_device *device);

/* Sums of counters under one heading: a line of the source, a region, a group of instructions, or what tensor cores and
 * copy engine do in parallel with the warps: a shape of wgmma, or a kind of copies. */
typedef enum emu_tally_key { EMU_BY_LINE, EMU_BY_REGION, EMU_BY_GROUP, EMU_BY_ENGINE } emu_tally_key;
typedef struct emu_tally {
    const char *name; /* of the file, the region, the group, the shape or the copies; borrowed from the module */
    int name_bytes;   /* which end the name: the text of the module continues after that of a shape */
    int line;         /* of the source; 0 for all but lines */
    int depth;        /* of a region */
    emu_counter sum;  /* of its rows; its location and group are empty */
} emu_tally;

/* Headings under which something was executed: lines in order, the others as they first come. Owned: free(). NULL when
 * out of memory. */
emu_tally *emu_tally_counters(const emu_counters *counters, emu_tally_key key, size_t *count);
/* Statement of a launch without findings about other interleavings: "no race, no deadlock in any order", or the reason
 * why that is not proven. Returns out. */
const char *emu_describe_orders(uint32_t orders, char *out, size_t bytes);
/* Statement after emu_run_orders(): "1 class", "N classes, all run", which may be "of tickets", or "N run, M left".
 * Returns out. */
const char *emu_describe_classes(const emu_exploration *seen, uint32_t orders, char *out, size_t bytes);
/* Tables by source line, by region, by group and, where there is any, by engine, and the total. False when out of
 * memory. */
bool emu_print_counters(FILE *to, const emu_counters *counters);
/* CSV with a heading, one row per PTX instruction in program order. */
void emu_write_counters(FILE *to, const emu_counters *counters);
/* The table of accepted PTX forms, as Markdown. */
void emu_print_forms(FILE *to);
/* Explain the forms with an opcode and modifiers such as "ex2.approx.f32": what they do, how their bits compare with a
 * GPU's, and what the emulator does not check; false if there is none. "limits" lists everything that it does not
 * check. */
bool emu_explain_form(FILE *to, const char *form, emu_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
