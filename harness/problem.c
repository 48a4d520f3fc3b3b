#include "harness/problem.h"

#include "harness/config.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const int64_t MAX_SIZE = 1 << 30; /* of one dimension */

const char *distribution_name(enum distribution dist) {
    static const char *const names[] = {"normal", "uniform", "large", "ramp"};
    return names[dist];
}

bool problem_equal(const struct problem *a, const struct problem *b) {
    return a->batch == b->batch && a->heads == b->heads && a->seq == b->seq && a->d_head == b->d_head &&
           a->dtype == b->dtype && a->dist == b->dist && a->seed == b->seed;
}

int64_t problem_elements(const struct problem *problem) {
    return problem->batch * problem->heads * problem->seq * problem->d_head;
}

int64_t problem_bytes(const struct problem *problem) {
    return 2 * problem_elements(problem);
}

int64_t problem_row_offset(const struct problem *problem, int64_t batch, int64_t head, int64_t row) {
    return ((batch * problem->seq + row) * problem->heads + head) * problem->d_head;
}

double problem_flop(const struct problem *problem) {
    const double seq = (double)problem->seq;
    return 4.0 * (double)(problem->batch * problem->heads) * seq * seq * problem->d_head;
}

double problem_attn_flop(const struct problem *problem) {
    const double seq = (double)problem->seq;
    return problem_flop(problem) + 6.0 * (double)(problem->batch * problem->heads) * seq * seq;
}

int64_t problem_default_batch(int64_t seq) {
    return seq <= 4096 ? 16 : seq <= 8192 ? 8 : 4;
}

forward_args problem_args(const struct problem *problem) {
    return (forward_args){.batch_stride = problem->seq * problem->heads * problem->d_head,
                          .seq_stride = problem->heads * problem->d_head,
                          .head_stride = problem->d_head,
                          .seq = (int32_t)problem->seq,
                          .heads = (int32_t)problem->heads,
                          .batch = (int32_t)problem->batch};
}

enum status problem_check(const struct problem *problem, const KernelConfig *config, struct failure *failure) {
    static const int64_t max_grid = 65535, max_elements = (int64_t)1 << 36;
    const struct {
        const char *option;
        int64_t value, most;
    } sizes[] = {{"--batch", problem->batch, max_grid},
                 {"--heads", problem->heads, max_grid},
                 {"--seq", problem->seq, MAX_SIZE}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value < 1)
            return fail(failure, STATUS_USAGE, "%s %" PRId64 ": must be positive", sizes[i].option, sizes[i].value);
        if (sizes[i].value > sizes[i].most)
            return fail(failure, STATUS_USAGE, "%s %" PRId64 ": must be at most %" PRId64, sizes[i].option,
                        sizes[i].value, sizes[i].most);
    }
    if (problem->d_head != D_HEAD) return fail(failure, STATUS_USAGE, "d_head %d: must be %d", problem->d_head, D_HEAD);
    if (problem->batch * problem->heads > max_elements / D_HEAD / problem->seq)
        return fail(failure, STATUS_USAGE,
                    "batch %" PRId64 " x heads %" PRId64 " x seq %" PRId64
                    " x d_head %d: the product must be at most %" PRId64 " elements",
                    problem->batch, problem->heads, problem->seq, problem->d_head, max_elements);
    const struct {
        const char *name;
        int size;
    } blocks[] = {{"B_r", config->B_r}, {"B_c", config->B_c}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (problem->seq % blocks[i].size) {
            char text[CONFIG_TEXT_SIZE];
            const int64_t below = problem->seq / blocks[i].size * blocks[i].size;
            return fail(failure, STATUS_USAGE,
                        "--seq %" PRId64 ": must be a multiple of %s = %d of %s; the nearest are %" PRId64
                        " and %" PRId64,
                        problem->seq, blocks[i].name, blocks[i].size, config_format(config, text),
                        (below ? below : blocks[i].size), (below ? below + blocks[i].size : 2 * blocks[i].size));
        }
    return STATUS_OK;
}

/* ---- lists and ranges ---- */

struct cursor {
    const char *option, *text, *at;
    struct failure *failure;
};

static enum status bad_list(const struct cursor *cursor, const char *expected) {
    return fail(
        cursor->failure, STATUS_USAGE,
        "%s '%s': expected %s at '%s'; write a number, a list 512,1024 or a range 512:16384:*2 or 128:1024:+128",
        cursor->option, cursor->text, expected, cursor->at);
}

static enum status read_number(struct cursor *cursor, int64_t *value) {
    const char *const start = cursor->at;
    *value = 0;
    if (!isdigit((unsigned char)*start)) return bad_list(cursor, "a positive number");
    for (; isdigit((unsigned char)*cursor->at); cursor->at++)
        if ((*value = 10 * *value + (*cursor->at - '0')) > MAX_SIZE) {
            cursor->at = start;
            return bad_list(cursor, "a number of at most 1073741824");
        }
    if (*value > 0) return STATUS_OK;
    cursor->at = start;
    return bad_list(cursor, "a positive number");
}

static enum status add_number(const struct cursor *cursor, struct number_list *list, int64_t value) {
    if (list->count == MAX_NUMBERS)
        return fail(cursor->failure, STATUS_USAGE, "%s '%s': more than %d values", cursor->option, cursor->text,
                    MAX_NUMBERS);
    list->values[list->count++] = value;
    return STATUS_OK;
}

/* "last:*factor" or "last:+step" behind "first:" */
static enum status read_range(struct cursor *cursor, int64_t first, struct number_list *list) {
    int64_t last, by;
    enum status status = read_number(cursor, &last);
    if (status) return status;
    if (last < first)
        return fail(cursor->failure, STATUS_USAGE,
                    "%s '%s': the range ends at %" PRId64 ", before it begins at %" PRId64, cursor->option,
                    cursor->text, last, first);
    if (*cursor->at != ':') return bad_list(cursor, "':*factor' or ':+step'");
    cursor->at++;
    const char kind = *cursor->at;
    if (kind != '*' && kind != '+') return bad_list(cursor, "'*factor' or '+step'");
    cursor->at++;
    const char *const start = cursor->at;
    if ((status = read_number(cursor, &by))) return status;
    if (kind == '*' && by == 1) {
        cursor->at = start;
        return bad_list(cursor, "a factor of at least 2");
    }
    for (int64_t value = first; value <= last; value = kind == '*' ? value * by : value + by)
        if ((status = add_number(cursor, list, value))) return status;
    return STATUS_OK;
}

enum status number_list_parse(const char *option, const char *text, struct number_list *list, struct failure *failure) {
    struct cursor cursor = {option, text, text, failure};
    list->count = 0;
    for (;;) {
        int64_t first;
        enum status status = read_number(&cursor, &first);
        if (status) return status;
        if (*cursor.at == ':') {
            cursor.at++;
            status = read_range(&cursor, first, list);
        } else {
            status = add_number(&cursor, list, first);
        }
        if (status) return status;
        if (!*cursor.at) return STATUS_OK;
        if (*cursor.at != ',') return bad_list(&cursor, "',' or the end");
        cursor.at++;
    }
}
