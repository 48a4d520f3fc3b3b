/* recording.h - reads recordings of what reached a GPU, which a hostile program may have written.
 *
 *     recording r;
 *     char error[RECORDING_ERROR];
 *     if (!recording_read(&r, "softmax.recording", error)) puts(error);
 *     for (size_t i = r.call; i < r.end; i++) puts(record_name(r.records[i].kind)); // the operations of the last call
 *     recording_free(&r);
 *
 * README.md describes the format. A recording that was read has only records of known kinds, each with its count of
 * numbers and with its data inside the file. Nothing else is known: addresses, sizes and names may be anything.
 */
#ifndef FL_JUDGE_RECORDING_H
#define FL_JUDGE_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORDING_ERROR = 200, RECORD_NUMBERS = 24, NAME_BYTES = 65 };

typedef enum record_kind {
    RECORD_VERSION,
    RECORD_ALLOC,
    RECORD_FREE,
    RECORD_MODULE,
    RECORD_UNLOAD,
    RECORD_VARIABLE,
    RECORD_REFUSED,
    RECORD_WRITE,
    RECORD_COPY,
    RECORD_READ,
    RECORD_SET,
    RECORD_PARAMETERS,
    RECORD_LAUNCH,
    RECORD_TENSOR_MAP,
    RECORD_STREAM,
    RECORD_EVENT,
    RECORD_WAIT,
    RECORD_HOST,
    RECORD_RACE,
    RECORD_MARK,
    RECORD_KINDS
} record_kind;

typedef struct record {
    record_kind kind;
    uint64_t numbers[RECORD_NUMBERS];
    const uint8_t *data; /* borrowed from the recording */
    size_t bytes;
} record;

/* An input or an output that a mark names. */
typedef struct marked_buffer {
    char name[NAME_BYTES];
    uint64_t address, bytes;
} marked_buffer;

enum { MOST_BUFFERS = 64 };
typedef struct marked_buffers {
    marked_buffer all[MOST_BUFFERS];
    size_t count;
} marked_buffers;

typedef struct recording {
    uint8_t *text;   /* owned */
    record *records; /* owned */
    size_t count;
    size_t call, end; /* the records of the last call; call is 0 without a call that returned */
    marked_buffers inputs, outputs;
} recording;

/* False with a sentence in `error`, and nothing to free, where the file is no recording. */
bool recording_read(recording *r, const char *path, char error[RECORDING_ERROR]);
void recording_free(recording *r);
const char *record_name(record_kind kind);
/* Copy the text of a record, such as the name of a kernel, from an offset of its data to `text`, which ends in a zero
 * byte. False where the text is too long, is empty or holds a zero byte. */
bool record_text(const record *r, size_t offset, char *text, size_t bytes);
/* Print one line of JSON for each record. */
void recording_list(const recording *r);

#endif
