/* json.h - texts of unknown origin as JSON. */
#ifndef FL_JUDGE_JSON_H
#define FL_JUDGE_JSON_H

#include <stdio.h>

/* Print a text with its quotes. Bytes that are not printable ASCII become escapes of one byte each, so that the JSON is
 * valid whatever the text holds. */
static inline void json_text(FILE *to, const char *text, size_t bytes) {
    fputc('"', to);
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < ' ' || c > '~')
            fprintf(to, "\\u%04x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

#endif
