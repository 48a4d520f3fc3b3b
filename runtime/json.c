#include "runtime/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct json *json, const char *bytes, size_t count) {
    if (json->failed) return;
    if (json->capacity - json->length <= count) {
        const size_t capacity = 2 * json->capacity + count + 256;
        char *grown = realloc(json->text, capacity);
        if (!grown) {
            json->failed = true;
            return;
        }
        json->text = grown;
        json->capacity = capacity;
    }
    memcpy(json->text + json->length, bytes, count);
    json->length += count;
    json->text[json->length] = 0;
}

static void add_text(struct json *json, const char *text) {
    add(json, text, strlen(text));
}

/* Bytes of the UTF-8 character at text, 0 where there is none (RFC 3629: no overlong forms, no surrogates). */
static size_t character(const unsigned char *text) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (text[0] < 0x80) return 1;
    const size_t bytes = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    uint32_t value = text[0] & (0x7fu >> bytes);
    if (text[0] < 0xc0 || text[0] > 0xf4) return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0; /* the zero byte at the end stops here too */
        value = value << 6 | (text[i] & 0x3f);
    }
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    return value < least[bytes] || surrogate || value > 0x10ffff ? 0 : bytes;
}

static void add_quoted(struct json *json, const char *text) {
    add_text(json, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        const size_t bytes = character(at);
        char escaped[8];
        if (!bytes) {
            add_text(json, "\\ufffd");
        } else if (*at < 0x20 || *at == 0x7f) {
            snprintf(escaped, sizeof escaped, "\\u%04x", *at);
            add_text(json, escaped);
        } else {
            if (*at == '"' || *at == '\\') add_text(json, "\\");
            add(json, (const char *)at, bytes);
        }
        at += bytes ? bytes : 1;
    }
    add_text(json, "\"");
}

static void begin(struct json *json, const char *name) {
    if (json->comma) add_text(json, ",");
    if (name) {
        add_quoted(json, name);
        add_text(json, ":");
    }
    json->comma = true;
}

void json_open(struct json *json, const char *name, char bracket) {
    begin(json, name);
    add(json, &bracket, 1);
    json->comma = false;
}

void json_close(struct json *json, char bracket) {
    add(json, &bracket, 1);
    json->comma = true;
}

void json_string(struct json *json, const char *name, const char *value) {
    begin(json, name);
    add_quoted(json, value);
}

void json_int(struct json *json, const char *name, int64_t value) {
    char text[32];
    begin(json, name);
    snprintf(text, sizeof text, "%" PRId64, value);
    add_text(json, text);
}

void json_number(struct json *json, const char *name, double value, int digits) {
    char text[64];
    begin(json, name);
    snprintf(text, sizeof text, "%.*g", digits, value);
    add_text(json, isfinite(value) ? text : "null");
}

void json_bool(struct json *json, const char *name, bool value) {
    begin(json, name);
    add_text(json, value ? "true" : "false");
}

void json_null(struct json *json, const char *name) {
    begin(json, name);
    add_text(json, "null");
}

void json_free(struct json *json) {
    free(json->text);
    *json = (struct json){0};
}
