/* number_list.h - the lists and ranges of numbers that people type.
 *
 *     struct number_list list;
 *     number_list_parse("--seq", "512:16384:*2", &list, &failure); // list.values[0] ... list.values[list.count - 1]
 */
#ifndef FL_NUMBER_LIST_H
#define FL_NUMBER_LIST_H

#include "runtime/status.h"

#include <stdint.h>

enum { MAX_NUMBERS = 256 };

/* Numbers read from lists such as `512,1024` and ranges such as `512:16384:*2` and `128:1024:+128`. */
struct number_list {
    int count;
    int64_t values[MAX_NUMBERS];
};

/* Read a list of positive numbers and ranges; STATUS_USAGE names the option and the part that is wrong. */
enum status number_list_parse(const char *option, const char *text, struct number_list *list, struct failure *failure);

/* Parse lengths, which may be 0. */
enum status length_list_parse(const char *option, const char *text, struct number_list *list, struct failure *failure);

#endif
