/* config.h - configurations of kernels: the kind, its fields, the forms that they are written in, and what kernels
 * have.
 *
 *     struct kernel_config config;
 *     config_parse("(FP16, 128, 64, 64, 4): async+load_0_0_0_tiles", &config, &failure);
 *     causal = config_has(&config, CAUSAL);
 *
 * Everything follows from common/families.h: a new kind of kernel is a fields file and a row there. Python asks these
 * functions through lib/libflconfig.so (analysis/ladder/config_library.c).
 */
#ifndef FL_HARNESS_CONFIG_H
#define FL_HARNESS_CONFIG_H

#include "common/families.h"
#include "runtime/json.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stddef.h>

enum family_id {
#define FAMILY(id, ...) FAMILY_##id,
#include "common/families.h"
    N_FAMILIES
};

struct kernel_config {
    enum family_id family;
    union {
        struct { /* the fields that every family begins with */
            enum dtype dtype;
            int d_head, B_r, B_c, n_warps;
        };
#define FAMILY(id, name, type, ...) type name;
#include "common/families.h"
    };
};

/* The abilities of a kernel. Each row names the feature as Python does. */
#define FEATURES(FEATURE)                                                                                              \
    FEATURE(ANY_LENGTH)     /* any numbers of queries and keys, strides, a softmax scale, log-sum-exp */               \
    FEATURE(CAUSAL)         /* the causal mask */                                                                      \
    FEATURE(GROUPED_HEADS)  /* heads that share KV heads */                                                            \
    FEATURE(PACKED_HEADS)   /* a Q block may have the rows of all heads that share a KV head */                        \
    FEATURE(TICKETS)        /* attention_args.tickets: tile counters, or the workspace of SHARES_KEYS */               \
    FEATURE(TENSOR_COPIES)  /* a second parameter, the tensor maps */                                                  \
    FEATURE(SERVES)         /* sequences of several lengths: a first parameter of its own */                           \
    FEATURE(SERVES_ALL)     /* the kernel serves with pages or without, and with a soft cap or without */              \
    FEATURE(EXTENDED)       /* rows may have fewer elements than d_head */                                             \
    FEATURE(BIAS)           /* biases, block masks and largest scores */                                               \
    FEATURE(DROPOUT)        /* weights that are always dropped at random */                                            \
    FEATURE(LATENT)         /* V is the first columns of K */                                                          \
    FEATURE(CAP)            /* a soft cap of the scores */                                                             \
    FEATURE(PAGED_KV)       /* K and V are in pages, always; with SHARES_KEYS every kernel that serves accepts both */ \
    FEATURE(PACKS)          /* PACKED_HEADS by tensor copies of groups, which a caller chooses by packs_group() */     \
    FEATURE(SHARES_KEYS)    /* CTAs share the keys of a KV head (split-KV) */                                          \
    FEATURE(SPLITS_KEYS)    /* CTAs share the keys of a Q block if asked to; a second launch adds up the parts */      \
    FEATURE(E4M3_INPUTS)    /* Q, K and V are e4m3 */                                                                  \
    FEATURE(E4M3_CACHE)     /* K and V are */                                                                          \
    FEATURE(INT8_CACHE)     /* K and V are int8 */                                                                     \
    FEATURE(RAGGED_QUERIES) /* with a cache of bytes: sequences have queries of several numbers */                     \
    FEATURE(BACKWARD_PASS)  /* a backward pass */                                                                      \
    FEATURE(OWN_STRIDES)    /* gradients have strides of their own: a first parameter with them */                     \
    FEATURE(PERSISTENT)     /* persistent CTAs */                                                                      \
    FEATURE(SPLIT_TAIL)     /* the last Q blocks may be split into slices */                                           \
    FEATURE(PRODUCER)       /* warps that only issue copies */                                                         \
    FEATURE(DOUBLE_BUFFER_Q) /* two Q blocks in shared memory */                                                       \
    FEATURE(LAZY_RESCALE)    /* l and O are rescaled only where the maximum exceeds a threshold */                     \
    FEATURE(FIRST_MAX)       /* the maximum of the first KV block stays in use until a row's sum exceeds one */        \
    FEATURE(PADDED_ROWS)     /* rows in shared memory have 16 bytes of padding */
enum feature {
#define FEATURE(name) name,
    FEATURES(FEATURE)
#undef FEATURE
        N_FEATURES
};

bool config_has(const struct kernel_config *config, enum feature feature);

/* True if a kernel that serves is for problems with the feature, CAP or PAGED_KV, or without it, as it is asked for. */
static inline bool config_takes(const struct kernel_config *config, enum feature feature, bool asked) {
    return config_has(config, SERVES_ALL) || config_has(config, feature) == asked;
}
/* The same for DROPOUT, which attention/mma_sync has at run time. */
static inline bool config_takes_dropout(const struct kernel_config *config, bool asked) {
    return !config_has(config, TENSOR_COPIES) || config_has(config, DROPOUT) == asked;
}

/* The same for BIAS: a bias, a block mask or the largest scores. */
static inline bool config_takes_bias(const struct kernel_config *config, bool asked) {
    return !config_has(config, TENSOR_COPIES) || config_has(config, BIAS) == asked;
}

/* Elements of a row of V and O. */
static inline int config_d_head_v(const struct kernel_config *config) {
    return config->family == FAMILY_ATTENTION ? attention_d_head_v(&config->attention) : config->d_head;
}

/* True if rows of Q and K may have d_head elements and those of V d_head_v: those of the configuration, or with
 * EXTENDED any multiples of 8 up to them. */
static inline bool config_fits(const struct kernel_config *config, int d_head, int d_head_v) {
    const int most = config_d_head_v(config);
    if (d_head == config->d_head && d_head_v == most) return true;
    return config_has(config, EXTENDED) && d_head > 0 && d_head <= config->d_head && d_head % 8 == 0 && d_head_v > 0 &&
           d_head_v <= most && d_head_v % 8 == 0;
}

/* True if packing the heads of a group is of use: a tensor copy has 64 rows. With KV_heads 0 there are as many as
 * heads. */
static inline bool packs_group(int64_t heads, int64_t KV_heads) {
    return KV_heads > 0 && heads > KV_heads && heads <= 64 * KV_heads;
}

enum field_type { TYPE_DTYPE, TYPE_INSTRUCTION, TYPE_INT, TYPE_BOOL };
enum { FIELD_NOTES = 3 };
struct field {
    const char *name, *word;
    enum field_type type;
    size_t offset;                  /* in its family's struct */
    const char *notes[FIELD_NOTES]; /* help, and of the ladder the first versions; NULL after the last */
};

struct rule {
    const char *field, *holds, *sentence;
};

/* A kind of kernel: the row of common/families.h. */
struct family {
    const char *name, *type, *mark, *function;
    const struct field *(*fields)(int *count);
    const struct rule *(*broken)(const struct kernel_config *config); /* the first rule; NULL where all hold */
    unsigned (*features)(const struct kernel_config *config);         /* a bit for each */
    launch_shape (*launch)(const struct kernel_config *config, const attention_args *args, int64_t multiprocessors);
    struct parameter {
        const char *type;
        size_t bytes;
    } args, serving_args;
};
extern const struct family FAMILIES[N_FAMILIES];

/* The first parameter of the kernel. */
const struct parameter *config_args(const struct kernel_config *config);

/* Enough for every short form: the word of each field, its number and what parts it from the next. */
union config_text {
#define FAMILY(id, name, ...) char name[1
#define FIELD(type, name, word, ...) +sizeof word + sizeof "-2147483648, "
#define END_FAMILY ];
#include "common/families.h"
};
enum { CONFIG_TEXT_SIZE = sizeof(union config_text) };

/* Read a short form, up to the first '|' so that a row of a table works. dtype is a name in any case or its number;
 * features may appear in any order, each once. STATUS_USAGE names the part that is wrong, or field, value and rule of
 * the first broken rule; of another family's flag, that family. */
enum status config_parse(const char *text, struct kernel_config *config, struct failure *failure);

/* True if the rules hold; STATUS_USAGE names field, value and rule of the first broken one, after "config 'TEXT': "
 * where there is a text. */
enum status config_check(const struct kernel_config *config, const char *text, struct failure *failure);

/* Write the short form into text, which holds CONFIG_TEXT_SIZE bytes; returns text. */
char *config_format(const struct kernel_config *config, char *text);

/* Decode the mangled name of a kernel (Itanium C++ ABI 5.1.5, braced list `tl`). Fields after the parenthesis may be
 * missing, and are zero; those that are not known here must be zero. The parameters are those of the configuration.
 * False for any other symbol. */
bool config_from_symbol(const char *symbol, size_t length, struct kernel_config *config);

/* Write the mangled name into symbol, CONFIG_SYMBOL_SIZE bytes; returns it. */
enum { CONFIG_SYMBOL_SIZE = CONFIG_TEXT_SIZE + 400 };
char *config_symbol(const struct kernel_config *config, char *symbol);

/* The kernel of a backward pass that a symbol names, with its configuration: row_sums, flash_backward, round_dQ. A
 * flash_forward is PART_MAIN, what is none of ours PART_NONE. */
enum kernel_part { PART_NONE, PART_BEFORE, PART_MAIN, PART_AFTER };
enum kernel_part config_part_from_symbol(const char *symbol, size_t length, struct kernel_config *config);

/* Add an object with every field under its name, for a reader that does not want to parse short forms. */
void config_json(struct json *json, const char *name, const struct kernel_config *config);

bool config_equal(const struct kernel_config *a, const struct kernel_config *b);

/* A field by its number, as an int of any type. */
int config_value(const struct kernel_config *config, const struct field *field);
void config_set(struct kernel_config *config, const struct field *field, int value);

/* "fp16" or "bf16". */
const char *dtype_name(enum dtype dtype);

#endif
