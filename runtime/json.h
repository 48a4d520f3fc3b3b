/* json.h - build one JSON text in memory.
 *
 *     struct json json = {0};
 *     json_open(&json, NULL, '{');
 *     json_int(&json, "schema", 1);
 *     json_close(&json, '}');
 *     write(fd, json.text, json.length);
 *     json_free(&json);
 *
 * Names are NULL within arrays. Running out of memory is remembered in `failed`; nothing is added from then on.
 */
#ifndef FL_JSON_H
#define FL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    char *text; /* owned */
    size_t length, capacity;
    bool comma; /* the next item needs one before it */
    bool failed;
};

void json_open(struct json *json, const char *name, char bracket);
void json_close(struct json *json, char bracket);
void json_string(struct json *json, const char *name, const char *value); /* bytes that are no UTF-8 become U+FFFD */
void json_int(struct json *json, const char *name, int64_t value);
void json_number(struct json *json, const char *name, double value, int digits); /* null unless finite */
void json_bool(struct json *json, const char *name, bool value);
void json_null(struct json *json, const char *name);
void json_free(struct json *json);

#endif
