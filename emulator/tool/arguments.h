/* arguments.h - the arguments of a launch as text, for ptxrun: "i32:7", "buf:f32:1024:ramp", "struct:[...]".
 *
 *     argument_list list = {.device = device, .seed = 1};
 *     bool right = emu_arguments_pack(&list, entry, specs, count, block, &error);
 */
#ifndef FL_ARGUMENTS_H
#define FL_ARGUMENTS_H

#include "files.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MAX_ARGUMENT_BUFFERS = 256, MAX_ARGUMENT_BYTES = 4352 };
#define ARGUMENT_TYPES "u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32 or f64"

typedef struct number_type number_type;

enum { LABEL_BYTES = 256 };

/* A buffer made for an argument, or a variable of the module. */
typedef struct argument_buffer {
    char label[LABEL_BYTES]; /* "3", "3.1" for the second member of a struct, or the name of a variable */
    const number_type *type;
    uint64_t address, count, bytes;
} argument_buffer;

/* The buffers of a launch, in the order of the arguments. */
typedef struct argument_list {
    emu_device *device; /* borrowed */
    uint64_t seed;      /* of buffers filled with rand */
    argument_buffer buffers[MAX_ARGUMENT_BUFFERS];
    int buffer_count;
    char note[LABEL_BYTES]; /* about arguments that are accepted, but unusual; "" for none */
} argument_list;

/* Fills the parameter block of an entry: param_bytes bytes, at most MAX_ARGUMENT_BYTES. */
bool emu_arguments_pack(argument_list *list, const emu_entry_info *entry, const char *const *specs, int count,
                        unsigned char *block, emu_error *error);
/* Gives a variable of the module its value: "NAME=f32:2", "NAME=f32:64:ramp" and whatever else an argument may be. NAME
 * may be a part that fits one variable only. The module's variables must be on the device. */
bool emu_arguments_set(argument_list *list, const emu_module *module, const char *text, emu_error *error);
/* The buffer of an argument or member, or the variable; NULL where there is none. The name of a variable may be a part
 * that fits one only; it is added to the list. */
const argument_buffer *emu_arguments_find(argument_list *list, const emu_module *module, const char *label);
/* Counts the elements that differ from those of a file by more than tolerance x max(1, |expected|), and tells of the
 * first. False where the file cannot be read or has another size. */
bool emu_arguments_compare(FILE *to, const argument_list *list, const argument_buffer *buffer, const char *path,
                           double tolerance, uint64_t *different, emu_error *error);
/* The first elements of a buffer, eight in a line. */
void emu_arguments_print(FILE *to, const argument_list *list, const argument_buffer *buffer, uint64_t count);

/* Text of digits, decimal or 0x..., at most limit. */
bool emu_parse_unsigned(const char *text, uint64_t limit, uint64_t *value);

#ifdef __cplusplus
}
#endif

#endif
