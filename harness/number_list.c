#include "harness/number_list.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>

static const int64_t MAX_NUMBER = 1 << 30; /* of one dimension of a problem */

struct cursor {
    const char *option, *text, *at;
    struct failure *failure;
    bool zero; /* a number of the list may be 0 */
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
        if ((*value = 10 * *value + (*cursor->at - '0')) > MAX_NUMBER) {
            cursor->at = start;
            return bad_list(cursor, "a number of at most 1073741824");
        }
    if (*value > 0 || cursor->zero) return STATUS_OK;
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

/* "last:*factor" or "last:+step" after "first:" */
static enum status read_range(struct cursor *cursor, int64_t first, struct number_list *list) {
    int64_t last, by;
    cursor->zero = false;
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

static enum status parse(struct cursor cursor, bool zero, struct number_list *list) {
    list->count = 0;
    for (;;) {
        int64_t first;
        cursor.zero = zero;
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

enum status number_list_parse(const char *option, const char *text, struct number_list *list, struct failure *failure) {
    return parse((struct cursor){.option = option, .text = text, .at = text, .failure = failure}, false, list);
}

enum status length_list_parse(const char *option, const char *text, struct number_list *list, struct failure *failure) {
    return parse((struct cursor){.option = option, .text = text, .at = text, .failure = failure}, true, list);
}
