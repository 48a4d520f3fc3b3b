/* arguments.c - see arguments.h */
#include "arguments.h"

#include "../machine/numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXCESS = 1 << 20 /* a file that is too big by less than that is read to say its size */ };

typedef enum number_kind { UNSIGNED, SIGNED, FLOATING } number_kind;

struct number_type {
    const char *name;
    int bytes;
    number_kind kind;
};

static const number_type number_types[] = {
    {"u8", 1, UNSIGNED},  {"i8", 1, SIGNED},     {"u16", 2, UNSIGNED}, {"i16", 2, SIGNED},
    {"u32", 4, UNSIGNED}, {"i32", 4, SIGNED},    {"u64", 8, UNSIGNED}, {"i64", 8, SIGNED},
    {"f16", 2, FLOATING}, {"bf16", 2, FLOATING}, {"f32", 4, FLOATING}, {"f64", 8, FLOATING},
};

/* The bytes of one argument as they grow. */
typedef struct packed {
    unsigned char bytes[MAX_ARGUMENT_BYTES];
    size_t size, alignment;
} packed;

/* ---- numbers ---- */

bool emu_parse_unsigned(const char *text, uint64_t limit, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && *value <= limit;
}

/* Stores a floating value as the type's bytes. */
static void store_floating(const number_type *type, double value, unsigned char *to) {
    float single = (float)value;
    uint16_t half = (uint16_t)(type->name[0] == 'b' ? bfloat_bits(single) : half_bits(single));
    const void *from = type->bytes == 8 ? (void *)&value : type->bytes == 4 ? (void *)&single : (void *)&half;
    memcpy(to, from, (size_t)type->bytes);
}

/* Parses a number of the type and stores its bytes. */
static bool store_number(const number_type *type, const char *text, unsigned char *to) {
    char *end;
    errno = 0;
    if (type->kind == FLOATING) {
        double value = strtod(text, &end);
        store_floating(type, value, to);
        return end != text && *end == 0;
    }
    int bits = type->bytes * 8;
    uint64_t value;
    bool in_range;
    if (type->kind == SIGNED) {
        int64_t number = strtoll(text, &end, 0), limit = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - 1)) - 1;
        in_range = number <= limit && number >= -limit - 1;
        value = (uint64_t)number;
    } else {
        value = strtoull(text, &end, 0);
        in_range = text[0] != '-' && (bits == 64 || value >> bits == 0);
    }
    memcpy(to, &value, (size_t)type->bytes);
    return end != text && *end == 0 && errno == 0 && in_range;
}

static double floating_value(const number_type *type, uint64_t bits) {
    double real;
    float single;
    memcpy(&real, &bits, sizeof real);
    memcpy(&single, &bits, sizeof single); /* little-endian */
    if (type->bytes > 2) return type->bytes == 8 ? real : single;
    return type->name[0] == 'b' ? bfloat_value((uint32_t)bits) : half_value((uint32_t)bits);
}

static int64_t signed_value(const number_type *type, uint64_t bits) {
    const int unused = 64 - type->bytes * 8;
    return (int64_t)(bits << unused) >> unused;
}

static void print_number(FILE *to, const number_type *type, const unsigned char *from) {
    uint64_t bits = 0;
    memcpy(&bits, from, (size_t)type->bytes);
    if (type->kind == UNSIGNED)
        fprintf(to, " %" PRIu64, bits);
    else if (type->kind == SIGNED)
        fprintf(to, " %" PRId64, signed_value(type, bits));
    else
        fprintf(to, " %.*g", type->bytes == 8 ? 17 : type->bytes == 4 ? 9 : 5, floating_value(type, bits));
}

/* True if two numbers differ by at most tolerance x max(1, |expected|); the same bytes always do, NaN too. */
static bool is_near(const number_type *type, const unsigned char *got, const unsigned char *expected,
                    double tolerance) {
    uint64_t bits[2] = {0, 0};
    double values[2];
    if (!memcmp(got, expected, (size_t)type->bytes)) return true;
    memcpy(&bits[0], got, (size_t)type->bytes);
    memcpy(&bits[1], expected, (size_t)type->bytes);
    for (int i = 0; i < 2; i++)
        values[i] = type->kind == FLOATING ? floating_value(type, bits[i])
                    : type->kind == SIGNED ? (double)signed_value(type, bits[i])
                                           : (double)bits[i];
    if (type->kind != FLOATING && tolerance == 0) return false; /* a double holds 53 bits */
    return isfinite(values[1]) && fabs(values[0] - values[1]) <= tolerance * fmax(1, fabs(values[1]));
}

/* splitmix64: the element's value depends on the seed, the argument and the index only. */
static uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    uint64_t x = seed * 0x9e3779b97f4a7c15 + stream * 0xd1b54a32d192ed03 + index * 0x8cb92ba72f3d8dd7;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* ---- arguments ---- */

static const number_type *find_type(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof number_types / sizeof number_types[0]; i++)
        if (strlen(number_types[i].name) == length && memcmp(number_types[i].name, name, length) == 0)
            return &number_types[i];
    return NULL;
}

/* Appends bytes at their natural alignment, as a C compiler lays out a struct. */
static bool append(packed *to, const void *bytes, size_t size, size_t alignment, const char *label, emu_error *error) {
    size_t at = (to->size + alignment - 1) / alignment * alignment;
    if (at + size > MAX_ARGUMENT_BYTES)
        return emu_fail(error, "argument %s: parameters take at most %d bytes", label, MAX_ARGUMENT_BYTES);
    memcpy(to->bytes + at, bytes, size);
    to->size = at + size;
    to->alignment = alignment > to->alignment ? alignment : to->alignment;
    return true;
}

static bool fill_buffer(const argument_list *list, const argument_buffer *buffer, const char *how, unsigned char *to,
                        emu_error *error) {
    size_t step = (size_t)buffer->type->bytes, bytes = (size_t)buffer->bytes;
    uint64_t stream = (uint64_t)(list->buffer_count + 1);
    if (how[0] == '@') {
        size_t size = 0;
        char *data = emu_read_file(how + 1, bytes + MAX_EXCESS, &size, error);
        bool fits = data && size == bytes;
        if (data && !fits) {
            emu_fail(error, "argument %s: %s has %zu bytes, but %" PRIu64 " x %s takes %zu", buffer->label, how + 1,
                     size, buffer->count, buffer->type->name, bytes);
        } else if (fits) {
            memcpy(to, data, bytes);
        }
        free(data);
        return fits;
    }
    if (strcmp(how, "zero") == 0) return true; /* as allocated */
    if (strcmp(how, "poison") == 0) {
        memset(to, 0xff, bytes); /* NaN in every floating type */
        return true;
    }
    bool ramp = strcmp(how, "ramp") == 0;
    if (!ramp && strcmp(how, "rand") != 0) {
        return emu_fail(error, "argument %s: '%s': is not a fill; use zero, ramp, rand, poison or @FILE", buffer->label,
                        how);
    }
    for (uint64_t i = 0; i < buffer->count; i++, to += step) {
        uint64_t bits = ramp ? i : random_bits(list->seed, stream, i);
        if (buffer->type->kind == FLOATING)
            store_floating(buffer->type, ramp ? (double)i : (double)(int64_t)bits * 0x1p-63, to);
        else
            memcpy(to, &bits, step);
    }
    return true;
}

/* TYPE:COUNT[:HOW] of a "buf:" or "out:" argument: makes the buffer and appends its address. */
static bool pack_buffer(argument_list *list, packed *to, const char *spec, const char *label, emu_buffer_kind kind,
                        emu_error *error) {
    const char *count = strchr(spec, ':');
    const number_type *type = find_type(spec, count ? (size_t)(count - spec) : strlen(spec));
    if (!type) {
        return emu_fail(error, "argument %s: '%s': must be TYPE:COUNT[:FILL], with TYPE one of " ARGUMENT_TYPES, label,
                        spec);
    }
    char number[32] = "";
    const char *how = count ? strchr(count + 1, ':') : NULL;
    if (count) {
        size_t length = how ? (size_t)(how - count - 1) : strlen(count + 1);
        snprintf(number, sizeof number, "%.*s", (int)(length < 31 ? length : 31), count + 1);
    }
    argument_buffer made = {.type = type};
    snprintf(made.label, sizeof made.label, "%s", label);
    if (!emu_parse_unsigned(number, UINT64_C(1) << 34, &made.count) || made.count == 0) {
        return emu_fail(error, "argument %s: '%s': must be a number of elements, for example buf:%s:1024", label,
                        number, type->name);
    }
    if (list->buffer_count == MAX_ARGUMENT_BUFFERS)
        return emu_fail(error, "argument %s: must be one of at most %d buffers", label, MAX_ARGUMENT_BUFFERS);
    made.bytes = made.count * (uint64_t)type->bytes;
    char name[48];
    snprintf(name, sizeof name, "argument %s", label);
    made.address = emu_alloc(list->device, name, made.bytes, kind);
    if (!made.address)
        return emu_fail(error, "argument %s: out of memory for %" PRIu64 " x %s", label, made.count, type->name);
    how = how ? how + 1 : kind == EMU_OUTPUT ? "poison" : "zero";
    if (!fill_buffer(list, &made, how, emu_host_bytes(list->device, made.address), error)) return false;
    list->buffers[list->buffer_count++] = made;
    return append(to, &made.address, 8, 8, label, error);
}

/* Numbers up to a limit with an x between them. Returns how many, 0 where it is anything else. */
static uint32_t parse_sizes(const char *text, size_t length, uint64_t limit, uint64_t *values, uint32_t most) {
    char part[256];
    uint32_t count = 0;
    if (length >= sizeof part) return 0;
    memcpy(part, text, length);
    part[length] = 0;
    for (char *at = part, *next; at; at = next) {
        next = strchr(at, 'x');
        if (next) *next++ = 0;
        if (count == most || !emu_parse_unsigned(at, limit, &values[count++])) return 0;
    }
    return count;
}

/* The parts of a "tmap:" argument before its buffer. */
static bool parse_tensor(const char *spec, emu_tensor_info *info, const char **buffer) {
    static const char *const swizzles[] = {"none", "32B", "64B", "128B"};
    uint64_t sizes[EMU_TENSOR_RANK], strides[EMU_TENSOR_RANK], box[EMU_TENSOR_RANK];
    const size_t first = strcspn(spec, ":"), whole = strcspn(spec, "/:");
    if (!spec[first]) return false;
    const char *second = spec + first + 1, *third = strchr(second, ':'),
               *fourth = third ? strchr(third + 1, ':') : NULL;
    if (!fourth) return false;
    *info = (emu_tensor_info){.rank = parse_sizes(spec, whole, UINT32_MAX, sizes, EMU_TENSOR_RANK)};
    bool right =
        info->rank && parse_sizes(second, (size_t)(third - second), UINT32_MAX, box, EMU_TENSOR_RANK) == info->rank;
    const bool strided = whole < first;
    if (strided)
        right &=
            parse_sizes(spec + whole + 1, first - whole - 1, UINT64_C(1) << 40, strides, EMU_TENSOR_RANK - 1) + 1 ==
            info->rank;
    int swizzle = 3;
    const size_t length = (size_t)(fourth - third - 1);
    while (swizzle >= 0 && (strlen(swizzles[swizzle]) != length || memcmp(third + 1, swizzles[swizzle], length) != 0))
        swizzle--;
    if (!right || swizzle < 0) return false;
    info->swizzle = (emu_swizzle)swizzle;
    for (uint32_t i = 0; i < info->rank; i++) {
        info->sizes[i] = (uint32_t)sizes[i];
        info->box[i] = (uint32_t)box[i];
        if (i && strided) info->strides[i - 1] = strides[i - 1];
    }
    *buffer = fourth + 1;
    return true;
}

/* The buffer of a "tmap:" argument: a new one, or "of:" the label of an earlier one. NULL where there is none. */
static const argument_buffer *find_tensor_buffer(argument_list *list, const char *spec, const char *label,
                                                 emu_error *error) {
    packed ignored = {.alignment = 1};
    if (strncmp(spec, "of:", 3) != 0) {
        const emu_buffer_kind kind = spec[0] == 'o' ? EMU_OUTPUT : EMU_BUFFER;
        return pack_buffer(list, &ignored, spec + 4, label, kind, error) ? &list->buffers[list->buffer_count - 1]
                                                                         : NULL;
    }
    for (int i = 0; i < list->buffer_count; i++)
        if (strcmp(list->buffers[i].label, spec + 3) == 0) return &list->buffers[i];
    emu_fail(error, "argument %s: '%s': must be the number of an earlier argument with a buffer", label, spec);
    return NULL;
}

/* As emu_tensor_info has them. */
static uint8_t numbers_of(const number_type *type) {
    if (type->kind != FLOATING) return 0;
    return type->bytes == 4 ? 1 : type->bytes == 8 ? 2 : type->name[0] == 'b' ? 4 : 3;
}

/* SIZES[/STRIDES]:BOX:SWIZZLE:BUFFER of a "tmap:" argument: appends the map of a tensor in that buffer. */
static bool pack_tensor(argument_list *list, packed *to, const char *spec, const char *label, emu_error *error) {
    emu_tensor_info info;
    const char *buffer;
    unsigned char map[EMU_TENSOR_MAP_BYTES];
    if (!parse_tensor(spec, &info, &buffer) ||
        (strncmp(buffer, "buf:", 4) != 0 && strncmp(buffer, "out:", 4) != 0 && strncmp(buffer, "of:", 3) != 0)) {
        return emu_fail(error,
                        "argument %s: 'tmap:%s': must be tmap:SIZES[/STRIDES]:BOX:SWIZZLE:BUFFER, for example "
                        "tmap:64x512:64x128:128B:buf:f16:32768:rand",
                        label, spec);
    }
    const argument_buffer *made = find_tensor_buffer(list, buffer, label, error);
    if (!made) return false;
    info.address = made->address;
    info.element_bytes = (uint32_t)made->type->bytes;
    info.numbers = numbers_of(made->type);
    info.is_signed = made->type->kind == SIGNED;
    uint64_t stride = info.element_bytes, last = 0;
    for (uint32_t i = 0; i < info.rank; i++) {
        if (i && info.strides[i - 1]) stride = info.strides[i - 1];
        if (i) info.strides[i - 1] = stride;
        last += (uint64_t)(info.sizes[i] - 1) * stride;
        stride *= info.sizes[i];
    }
    if (last + info.element_bytes > made->bytes) {
        return emu_fail(error, "argument %s: the tensor reaches byte %" PRIu64 " of a buffer of %" PRIu64, label,
                        last + info.element_bytes, made->bytes);
    }
    for (uint32_t i = 0; i < info.rank && !list->note[0]; i++)
        if (info.box[i] > info.sizes[i])
            snprintf(list->note, sizeof list->note,
                     "argument %s: size %u of the box is %u, that of the tensor %u: the rest of a box is zeros", label,
                     i, info.box[i], info.sizes[i]);
    emu_error why;
    if (!emu_make_tensor_map(&info, map, &why)) return emu_fail(error, "argument %s: %s", label, why.text);
    return append(to, map, sizeof map, 64, label, error);
}

static bool pack_bytes(packed *to, const char *spec, const char *label, emu_error *error) {
    size_t size = 0;
    if (spec[0] != '@') return emu_fail(error, "argument %s: 'bytes:%s': must be bytes:@FILE", label, spec);
    char *data = emu_read_file(spec + 1, MAX_ARGUMENT_BYTES, &size, error);
    bool done = data && append(to, data, size, 1, label, error);
    free(data);
    return done;
}

static bool pack(argument_list *list, packed *to, const char *spec, const char *label, emu_error *error);

/* [MEMBER,MEMBER,...] of an argument of this kind, "struct" or "addresses". */
static bool pack_members(argument_list *list, packed *inner, const char *kind, const char *spec, const char *label,
                         emu_error *error) {
    size_t length = strlen(spec);
    if (length < 2 || spec[0] != '[' || spec[length - 1] != ']')
        return emu_fail(error, "argument %s: '%s:%s': must be %s:[MEMBER,MEMBER,...]", label, kind, spec, kind);
    const char *member = spec + 1, *last = spec + length - 1;
    for (int i = 0; member <= last; i++) {
        size_t size = strcspn(member, ",]");
        char text[512], member_label[32];
        snprintf(member_label, sizeof member_label, "%.20s.%d", label, i);
        if (size >= sizeof text)
            return emu_fail(error, "argument %s: is too long; write the value as bytes:@FILE", member_label);
        memcpy(text, member, size);
        text[size] = 0;
        if (strncmp(text, "struct:", 7) == 0 || strncmp(text, "addresses:", 10) == 0)
            return emu_fail(error, "argument %s: must not nest structs; write the members of the inner struct",
                            member_label);
        if (!pack(list, inner, text, member_label, error)) return false;
        member += size + 1;
    }
    return true;
}

static bool pack_struct(argument_list *list, packed *to, const char *spec, const char *label, emu_error *error) {
    packed inner = {.alignment = 1};
    if (!pack_members(list, &inner, "struct", spec, label, error)) return false;
    size_t whole = (inner.size + inner.alignment - 1) / inner.alignment * inner.alignment;
    memset(inner.bytes + inner.size, 0, MAX_ARGUMENT_BYTES - inner.size);
    return append(to, inner.bytes, whole < MAX_ARGUMENT_BYTES ? whole : MAX_ARGUMENT_BYTES, inner.alignment, label,
                  error);
}

/* "addresses:[BUFFER,...]": the address of a new buffer that holds the addresses of others, as a grouped GEMM has. */
static bool pack_addresses(argument_list *list, packed *to, const char *spec, const char *label, emu_error *error) {
    packed inner = {.alignment = 1};
    const int first = list->buffer_count;
    if (!pack_members(list, &inner, "addresses", spec, label, error)) return false;
    if (inner.size != 8 * (size_t)(list->buffer_count - first))
        return emu_fail(error, "argument %s: 'addresses:%s': must only have members buf:... and out:...", label, spec);
    char own[64];
    snprintf(own, sizeof own, "u64:%zu", inner.size / 8);
    if (!pack_buffer(list, to, own, label, EMU_BUFFER, error)) return false;
    memcpy(emu_host_bytes(list->device, list->buffers[list->buffer_count - 1].address), inner.bytes, inner.size);
    return true;
}

/* Appends one argument, or one member of a struct. */
static bool pack(argument_list *list, packed *to, const char *spec, const char *label, emu_error *error) {
    const char *colon = strchr(spec, ':');
    size_t length = colon ? (size_t)(colon - spec) : 0;
    const char *rest = colon ? colon + 1 : "";
    const number_type *type = find_type(spec, length);
    if (type) {
        unsigned char bytes[8];
        return store_number(type, rest, bytes)
                   ? append(to, bytes, (size_t)type->bytes, (size_t)type->bytes, label, error)
                   : emu_fail(error, "argument %s: '%s': must be a value of type %s", label, rest, type->name);
    }
    if (strncmp(spec, "buf:", 4) == 0 || strncmp(spec, "out:", 4) == 0)
        return pack_buffer(list, to, rest, label, spec[0] == 'o' ? EMU_OUTPUT : EMU_BUFFER, error);
    if (strncmp(spec, "tmap:", 5) == 0) return pack_tensor(list, to, rest, label, error);
    if (strncmp(spec, "bytes:", 6) == 0) return pack_bytes(to, rest, label, error);
    if (strncmp(spec, "struct:", 7) == 0) return pack_struct(list, to, rest, label, error);
    if (strncmp(spec, "addresses:", 10) == 0) return pack_addresses(list, to, rest, label, error);
    return emu_fail(error,
                    "argument %s: '%s': must begin with buf:, out:, tmap:, bytes:, struct:, addresses: or a type "
                    "(" ARGUMENT_TYPES ")",
                    label, spec);
}

bool emu_arguments_pack(argument_list *list, const emu_entry_info *entry, const char *const *specs, int count,
                        unsigned char *block, emu_error *error) {
    if (count != entry->params) {
        return emu_fail(error, "%s: has %d parameters, but %d --arg options were given; --list shows the parameters",
                        entry->name, entry->params, count);
    }
    for (int i = 0; i < count; i++) {
        packed value = {.alignment = 1};
        char label[16];
        snprintf(label, sizeof label, "%d", i);
        if (!pack(list, &value, specs[i], label, error)) return false;
        const char *colon = strchr(specs[i], ':'), *wanted = entry->param_types[i];
        const number_type *type = colon ? find_type(specs[i], (size_t)(colon - specs[i])) : NULL;
        if (type && wanted[0] != 'b' && (type->kind == FLOATING) != (wanted[0] == 'f'))
            return emu_fail(
                error, "argument %d: '%s' is a number of another kind than parameter %d of %s; write %c%s%s%s%s", i,
                specs[i], i, entry->name, wanted[0] == 's' ? 'i' : wanted[0], wanted + 1, colon,
                strcmp(wanted, "u64") ? "" : ", or for a buffer buf:", strcmp(wanted, "u64") ? "" : specs[i]);
        if (value.size != entry->param_sizes[i]) {
            return emu_fail(error, "argument %d: '%s' has %zu bytes, but parameter %d of %s has %" PRIu32, i, specs[i],
                            value.size, i, entry->name, entry->param_sizes[i]);
        }
        memcpy(block + entry->param_offsets[i], value.bytes, value.size);
    }
    return true;
}

/* ---- variables ---- */

/* The variable of a name, whole or in a part that fits one only. */
static bool find_variable(const emu_module *module, const char *name, size_t length, emu_variable *found) {
    emu_variable each;
    int fitting = 0;
    for (size_t i = 0; emu_variable_at(module, i, &each); i++) {
        if (strlen(each.name) == length && !memcmp(each.name, name, length)) {
            *found = each;
            return true;
        }
        if (!memmem(each.name, strlen(each.name), name, length)) continue;
        *found = each;
        fitting++;
    }
    return fitting == 1;
}

/* Print format of elements of a PTX type. */
static const number_type *type_of_ptx(const char *type) {
    char name[8];
    snprintf(name, sizeof name, "%s", type);
    if (*name == 's') *name = 'i';
    if (*name == 'b' && name[1] != 'f') *name = 'u';
    const number_type *known = find_type(name, strlen(name));
    return known ? known : find_type("u8", 2);
}

/* The index of a variable in the list of buffers. */
static argument_buffer *add_variable(argument_list *list, const emu_variable *variable, const number_type *type) {
    argument_buffer *at = NULL;
    for (int i = 0; i < list->buffer_count; i++)
        if (list->buffers[i].address == variable->address) at = &list->buffers[i];
    if (!at && list->buffer_count < MAX_ARGUMENT_BUFFERS) at = &list->buffers[list->buffer_count++];
    if (!at) return NULL;
    *at = (argument_buffer){.type = type,
                            .address = variable->address,
                            .count = variable->bytes / (uint64_t)type->bytes,
                            .bytes = variable->bytes};
    snprintf(at->label, sizeof at->label, "%s", variable->name);
    return at;
}

/* TYPE:COUNT:FILL of a variable: as many elements as it has. */
static bool fill_variable(argument_list *list, const emu_variable *variable, const number_type *type, const char *count,
                          emu_error *error) {
    const char *how = strchr(count, ':');
    const argument_buffer *made = add_variable(list, variable, type);
    char number[32];
    uint64_t wanted;
    snprintf(number, sizeof number, "%.*s", (int)(how - count < 31 ? how - count : 31), count);
    if (!made)
        return emu_fail(error, "--data %s: must be one of at most %d buffers", variable->name, MAX_ARGUMENT_BUFFERS);
    if (!emu_parse_unsigned(number, UINT64_MAX, &wanted) || wanted != made->count ||
        variable->bytes % (uint64_t)type->bytes)
        return emu_fail(error, "--data %s: '%s' x %s does not match the variable, which has %" PRIu64 " bytes",
                        variable->name, number, type->name, variable->bytes);
    unsigned char *bytes = emu_host_bytes(list->device, variable->address);
    memset(bytes, 0, (size_t)variable->bytes);
    return fill_buffer(list, made, how + 1, bytes, error);
}

bool emu_arguments_set(argument_list *list, const emu_module *module, const char *text, emu_error *error) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) return emu_fail(error, "--data %s: must be NAME=SPEC", text);
    emu_variable variable;
    if (!find_variable(module, text, (size_t)(equals - text), &variable))
        return emu_fail(error, "--data %s: %.*s does not match exactly one variable; --list shows all", text,
                        (int)(equals - text), text);
    const char *spec = equals + 1, *colon = strchr(spec, ':');
    const number_type *type = find_type(spec, colon ? (size_t)(colon - spec) : 0);
    if (type && strchr(colon + 1, ':')) return fill_variable(list, &variable, type, colon + 1, error);
    packed value = {.alignment = 1};
    char label[64];
    snprintf(label, sizeof label, "%.60s", variable.name);
    if (!pack(list, &value, spec, label, error)) return false;
    if (value.size != variable.bytes)
        return emu_fail(error, "--data %s: '%s' has %zu bytes, but the variable has %" PRIu64, variable.name, spec,
                        value.size, variable.bytes);
    memcpy(emu_host_bytes(list->device, variable.address), value.bytes, value.size);
    if (type && !add_variable(list, &variable, type))
        return emu_fail(error, "--data %s: must be one of at most %d buffers", variable.name, MAX_ARGUMENT_BUFFERS);
    return true;
}

const argument_buffer *emu_arguments_find(argument_list *list, const emu_module *module, const char *label) {
    for (int i = 0; i < list->buffer_count; i++)
        if (strcmp(list->buffers[i].label, label) == 0) return &list->buffers[i];
    emu_variable variable;
    if (!find_variable(module, label, strlen(label), &variable)) return NULL;
    for (int i = 0; i < list->buffer_count; i++)
        if (list->buffers[i].address == variable.address) return &list->buffers[i];
    return add_variable(list, &variable, type_of_ptx(variable.type));
}

bool emu_arguments_compare(FILE *to, const argument_list *list, const argument_buffer *buffer, const char *path,
                           double tolerance, uint64_t *different, emu_error *error) {
    size_t size = 0, step = (size_t)buffer->type->bytes;
    const unsigned char *got = emu_host_bytes(list->device, buffer->address);
    char *data = emu_read_file(path, (size_t)buffer->bytes + MAX_EXCESS, &size, error);
    const unsigned char *expected = (const unsigned char *)data;
    const bool fits = data && size == buffer->bytes;
    uint64_t first = 0;
    *different = 0;
    if (data && !fits)
        emu_fail(error, "--expect %s=%s: the file has %zu bytes, but %" PRIu64 " x %s takes %" PRIu64, buffer->label,
                 path, size, buffer->count, buffer->type->name, buffer->bytes);
    for (uint64_t i = 0; fits && i < buffer->count; i++) {
        if (is_near(buffer->type, got + i * step, expected + i * step, tolerance)) continue;
        if (!(*different)++) first = i;
    }
    if (*different) {
        fprintf(to, "--expect %s=%s: %" PRIu64 " of %" PRIu64 " elements differ; the first, element %" PRIu64 ", is",
                buffer->label, path, *different, buffer->count, first);
        print_number(to, buffer->type, got + first * step);
        fputs(" where the file has", to);
        print_number(to, buffer->type, expected + first * step);
        fputc('\n', to);
    }
    free(data);
    return fits;
}

void emu_arguments_print(FILE *to, const argument_list *list, const argument_buffer *buffer, uint64_t count) {
    const unsigned char *bytes = emu_host_bytes(list->device, buffer->address);
    count = count < buffer->count ? count : buffer->count;
    bool argument = buffer->label[0] >= '0' && buffer->label[0] <= '9';
    fprintf(to, "%s %s: %" PRIu64 " x %s\n", argument ? "argument" : "variable", buffer->label, buffer->count,
            buffer->type->name);
    for (uint64_t i = 0; i < count; i++) {
        if (i % 8 == 0) fprintf(to, "%8" PRIu64 ":", i);
        print_number(to, buffer->type, bytes + i * (uint64_t)buffer->type->bytes);
        if (i % 8 == 7 || i + 1 == count) fputc('\n', to);
    }
    if (count < buffer->count) {
        fprintf(to, "   and %" PRIu64 " more; --print %s:COUNT shows more, --dump %s=FILE writes all\n",
                buffer->count - count, buffer->label, buffer->label);
    }
}
