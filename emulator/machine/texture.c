/* texture.c - texture and surface objects: texels at coordinates, as the CUDA C++ Programming Guide has it in "Texture
 * Fetching".
 *
 * A texel is chosen by the whole part of its coordinate, or mixed of those around: with the fraction of x - 0.5, of
 * which eight bits are kept. The rounding of that fraction and of the interpolation is undocumented: here the
 * fraction is rounded to nearest, and the interpolation, computed in f64, to the nearest f32.
 */
#include "machine.h"
#include "numbers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The number of an object; a pointer is never one. */
#define OBJECTS (1ull << 57)

typedef struct texture {
    emu_texture_info info;
    bool alive;
} texture;

/* ---- objects ---- */

uint64_t emu_make_texture(emu_device *device, const emu_texture_info *info) {
    texture *all =
        emu_reserve(device->textures, device->texture_count + 1, &device->texture_capacity, sizeof *device->textures);
    if (!all) return 0;
    device->textures = all;
    all[device->texture_count] = (texture){*info, true};
    return OBJECTS + ++device->texture_count;
}

static texture *find(const emu_device *device, uint64_t object) {
    const uint64_t number = object - OBJECTS;
    return number >= 1 && number <= device->texture_count ? &device->textures[number - 1] : NULL;
}

const emu_texture_info *emu_find_texture(const emu_device *device, uint64_t object) {
    const texture *t = find(device, object);
    return t && t->alive ? &t->info : NULL;
}

bool emu_free_texture(emu_device *device, uint64_t object) {
    texture *t = find(device, object);
    if (!t || !t->alive) return false;
    t->alive = false;
    return true;
}

/* ---- what a lane reads ---- */

typedef struct lane_access {
    cta *m;
    warp *w;
    const op *o;
    int lane;
    const emu_texture_info *info;
    int64_t layer;
} lane_access;

static int dimensions_of(const op *o) {
    return o->vector == TEXTURE_3D                                                            ? 3
           : o->vector == TEXTURE_2D || o->vector == TEXTURE_A2D || o->vector == TEXTURE_CUBE ? 2
                                                                                              : 1;
}

static bool has_layer(const op *o) {
    return o->vector == TEXTURE_A1D || o->vector == TEXTURE_A2D;
}

static void report(const lane_access *a, uint64_t address, const char *what) {
    emu_report(a->m, EMU_OUT_OF_BOUNDS, UINT32_MAX, a->w, a->lane, -1, address,
               "%s.\nThe emulator loads zeros from there and drops stores; a device may fault or corrupt other data.",
               what);
}

/* The object of a lane, of the kind and the form that the instruction wants; NULL after a report. */
static const emu_texture_info *object_of(lane_access *a, bool surface) {
    const uint64_t object = slot64(a->w, a->o->r[a->o->dests])[a->lane];
    const emu_texture_info *info = emu_find_texture(a->m->device, object);
    const char *kind = surface ? "surface" : "texture";
    char text[200] = "";
    if (!info) {
        snprintf(text, sizeof text, "0x%" PRIx64 " is no %s object%s", object, kind,
                 find(a->m->device, object) ? " anymore: it was destroyed" : "");
    } else if (info->surface != surface) {
        snprintf(text, sizeof text, "This instruction takes a %s object, and gets one of a %s", kind,
                 info->surface ? "surface" : "texture");
    } else {
        int dimensions = 0;
        while (dimensions < 3 && info->sizes[dimensions]) dimensions++;
        const bool layers = info->layers && !info->cube, cube = a->o->vector == TEXTURE_CUBE;
        if (dimensions != dimensions_of(a->o) || layers != has_layer(a->o) || info->cube != cube)
            snprintf(text, sizeof text, "The %s has %d dimensions%s: this instruction takes others", kind, dimensions,
                     info->cube ? " and six faces"
                     : layers   ? " and layers"
                                : "");
        else if (info->linear && !surface && !(a->o->detail & TEXTURE_INDEXED))
            snprintf(text, sizeof text, "A texture over linear memory takes integer coordinates alone: tex1Dfetch()");
    }
    if (text[0]) report(a, object, text);
    a->info = info;
    return text[0] ? NULL : info;
}

/* Host bytes of `bytes` in a row, at coordinates that are within the sizes; NULL after a report. */
static uint8_t *bytes_at(const lane_access *a, uint64_t x_bytes, uint64_t y, uint64_t z, uint32_t bytes,
                         uint64_t *address) {
    const emu_texture_info *t = a->info;
    const uint64_t rows = t->sizes[1] ? t->sizes[1] : 1;
    *address = t->address + x_bytes + t->pitch * (y + rows * (z + (uint64_t)a->layer));
    uint8_t *first = emu_host_bytes(a->m->device, *address);
    if (first && emu_host_bytes(a->m->device, *address + bytes - 1)) return first;
    report(a, *address, "The memory of this object was freed");
    return NULL;
}

static uint32_t texel_bytes(const emu_texture_info *t) {
    static const uint8_t sizes[] = {1, 2, 4, 1, 2, 4, 2, 4};
    return sizes[t->texel];
}

/* A texel as floats. */
typedef struct color {
    double channels[4];
} color;

static double number_of(const emu_texture_info *t, const uint8_t *at) {
    uint16_t half;
    float single;
    switch (t->texel) {
    case EMU_TEXEL_U8:
        return at[0] / 255.0;
    case EMU_TEXEL_S8:
        return fmax((int8_t)at[0] / 127.0, -1);
    case EMU_TEXEL_F32:
        memcpy(&single, at, sizeof single);
        return single;
    default:
        memcpy(&half, at, sizeof half);
        return t->texel == EMU_TEXEL_U16   ? half / 65535.0
               : t->texel == EMU_TEXEL_S16 ? fmax((int16_t)half / 32767.0, -1)
                                           : (double)half_value(half);
    }
}

static bool stays_integer(const emu_texture_info *t) {
    return t->texel == EMU_TEXEL_U32 || t->texel == EMU_TEXEL_S32 || (t->as_integer && t->texel < EMU_TEXEL_F16);
}

/* Map an index past the edges; -1 for the border. */
static int64_t at_edge(const emu_texture_info *t, int dimension, double index) {
    const int64_t size = t->sizes[dimension];
    emu_texture_edge edge = t->edge[dimension];
    if (!t->normalized && (edge == EMU_EDGE_WRAP || edge == EMU_EDGE_MIRROR)) edge = EMU_EDGE_CLAMP;
    if (index >= 0 && index < (double)size) return (int64_t)index;
    if (t->linear || edge == EMU_EDGE_BORDER) return -1;
    if (edge == EMU_EDGE_CLAMP) return index < 0 ? 0 : size - 1;
    const double period = edge == EMU_EDGE_WRAP ? (double)size : 2.0 * (double)size;
    double within = fmod(index, period);
    if (within < 0) within += period;
    const int64_t i = (int64_t)within;
    return i < size ? i : 2 * size - 1 - i;
}

/* Bytes of the texel at these indices; NULL for the border and after a report. */
static const uint8_t *texel_at(const lane_access *a, const double *indices, bool *border) {
    const emu_texture_info *t = a->info;
    int64_t at[3] = {0};
    *border = false;
    for (int i = 0; i < dimensions_of(a->o); i++) {
        at[i] = at_edge(t, i, indices[i]);
        if (at[i] < 0) *border = true;
    }
    if (*border) return NULL;
    const uint32_t bytes = texel_bytes(t) * t->channels;
    uint64_t address;
    const uint8_t *found = bytes_at(a, (uint64_t)at[0] * bytes, (uint64_t)at[1], (uint64_t)at[2], bytes, &address);
    if (found && a->m->checks) emu_on_global_read(a->m, a->w, a->lane, address, bytes, a->o);
    a->m->counts[a->o->instruction].bytes += bytes;
    return found;
}

static color color_at(const lane_access *a, const double *indices) {
    const emu_texture_info *t = a->info;
    bool border;
    const uint8_t *bytes = texel_at(a, indices, &border);
    color c = {{0}};
    for (uint32_t i = 0; i < t->channels; i++)
        c.channels[i] = border ? (t->linear ? 0 : t->border[i]) : bytes ? number_of(t, bytes + i * texel_bytes(t)) : 0;
    return c;
}

/* ---- textures ---- */

/* The mix of the 2, 4 or 8 texels around. */
static color filter(const lane_access *a, const double *at) {
    const int dimensions = dimensions_of(a->o);
    double whole[3], part[3];
    color sum = {{0}};
    for (int i = 0; i < dimensions; i++) {
        whole[i] = floor(at[i] - 0.5);
        part[i] = floor((at[i] - 0.5 - whole[i]) * 256 + 0.5) / 256;
    }
    for (int corner = 0; corner < 1 << dimensions; corner++) {
        double indices[3], weight = 1;
        for (int i = 0; i < dimensions; i++) {
            const int next = corner >> i & 1;
            indices[i] = whole[i] + next;
            weight *= next ? part[i] : 1 - part[i];
        }
        if (weight == 0) continue;
        const color c = color_at(a, indices);
        for (int i = 0; i < 4; i++) sum.channels[i] += weight * c.channels[i];
    }
    return sum;
}

/* The face of a cube that a direction meets, and the two coordinates there: the table of "Cubemap Textures". */
static int face_of(const float direction[3], double at[2]) {
    const double x = direction[0], y = direction[1], z = direction[2];
    const double ax = fabs(x), ay = fabs(y), az = fabs(z);
    double m = az, s = z < 0 ? -x : x, t = -y;
    int face = z < 0 ? 5 : 4;
    if (ax >= ay && ax >= az)
        face = x < 0, m = ax, s = x < 0 ? z : -z;
    else if (ay >= az)
        face = 2 + (y < 0), m = ay, s = x, t = y < 0 ? -z : z;
    at[0] = (s / m + 1) / 2;
    at[1] = (t / m + 1) / 2;
    return face;
}

/* Coordinates that a lane reads, in texels, clamped to the range of an index. NaN: at 0. */
static double in_texels(double value) {
    const double most = 1ll << 40;
    return isnan(value) ? 0 : fmin(fmax(value, -most), most);
}

/* The coordinates after the object and its layer, in texels. */
static void read_coordinates(lane_access *a, double *at) {
    const op *o = a->o;
    const emu_texture_info *t = a->info;
    const int dimensions = dimensions_of(o);
    const uint16_t *coordinates = &o->r[o->dests + 1 + has_layer(o)];
    if (o->vector == TEXTURE_CUBE) {
        float direction[3];
        for (int i = 0; i < 3; i++) direction[i] = float_of(slot32(a->w, coordinates[i])[a->lane]);
        a->layer = face_of(direction, at);
        for (int i = 0; i < 2; i++) at[i] = in_texels(at[i] * t->sizes[i]);
        return;
    }
    for (int i = 0; i < dimensions; i++) {
        const uint32_t bits = slot32(a->w, coordinates[i])[a->lane];
        if (o->detail & TEXTURE_INDEXED)
            at[i] = (int32_t)bits + (t->filtered ? 0.5 : 0);
        else
            at[i] = in_texels((double)float_of(bits) * (t->normalized ? t->sizes[i] : 1));
    }
}

/* The words of a texel; channels that it has not are 0. */
static void fetch(lane_access *a, uint32_t words[4]) {
    const emu_texture_info *t = a->info;
    double at[3] = {0};
    read_coordinates(a, at);
    if (a->layer < 0 || a->layer >= (t->layers ? t->layers : 1)) {
        report(a, (uint64_t)a->layer, "The texture has no such layer");
        return;
    }
    if (!t->filtered)
        for (int i = 0; i < 3; i++) at[i] = floor(at[i]);
    if (!stays_integer(t)) {
        const color c = t->filtered ? filter(a, at) : color_at(a, at);
        for (uint32_t i = 0; i < t->channels; i++) {
            const float value = (float)c.channels[i];
            memcpy(&words[i], &value, sizeof value);
        }
        return;
    }
    bool border;
    const uint8_t *bytes = texel_at(a, at, &border);
    const uint32_t size = texel_bytes(t);
    for (uint32_t i = 0; bytes && i < t->channels; i++) {
        memcpy(&words[i], bytes + i * size, size);
        if (t->texel == EMU_TEXEL_S8) words[i] = (uint32_t)(int8_t)words[i];
        if (t->texel == EMU_TEXEL_S16) words[i] = (uint32_t)(int16_t)words[i];
    }
}

void emu_exec_texture(cta *m, warp *w, const op *o, uint32_t mask) {
    for (; mask; mask &= mask - 1) {
        lane_access a = {.m = m, .w = w, .o = o, .lane = first_lane(mask)};
        uint32_t words[4] = {0};
        if (has_layer(o)) a.layer = slot32(w, o->r[o->dests + 1])[a.lane];
        if (object_of(&a, false)) fetch(&a, words);
        for (int i = 0; i < 4; i++) slot32(w, o->r[i])[a.lane] = words[i];
    }
}

/* ---- surfaces ---- */

/* Address that a lane reads or writes; NULL if it does neither, after a report if that is an error. */
static uint8_t *surface_bytes(const lane_access *a, uint32_t bytes, uint64_t *address) {
    const op *o = a->o;
    const emu_texture_info *t = a->info;
    const int mode = o->detail & ~SURFACE_STORES;
    const uint16_t *coordinates = &o->r[o->dests + 1 + has_layer(o)];
    int64_t at[3] = {0};
    bool outside = a->layer >= (t->layers ? t->layers : 1);
    for (int i = 0; i < dimensions_of(o); i++) {
        at[i] = (int32_t)slot32(a->w, coordinates[i])[a->lane];
        const int64_t last = i ? (int64_t)t->sizes[i] - 1 : (int64_t)t->sizes[0] * texel_bytes(t) * t->channels - bytes;
        if (i == 0 && at[0] % bytes) {
            emu_report(a->m, EMU_MISALIGNED, UINT32_MAX, a->w, a->lane, -1, (uint64_t)at[0],
                       "The first coordinate of a surface counts bytes: %" PRId64 " is no multiple of %u.", at[0],
                       bytes);
            return NULL;
        }
        if (mode == SURFACE_CLAMPS) at[i] = at[i] < 0 ? 0 : at[i] > last ? last : at[i];
        outside |= at[i] < 0 || at[i] > last;
    }
    if (outside) {
        char text[160];
        snprintf(text, sizeof text, "Byte %" PRId64 ", row %" PRId64 ", slice %" PRId64 " are outside of the surface",
                 at[0], at[1], at[2] + a->layer);
        if (mode != SURFACE_ZEROS) report(a, 0, text);
        return NULL;
    }
    return bytes_at(a, (uint64_t)at[0], (uint64_t)at[1], (uint64_t)at[2], bytes, address);
}

static void store_elements(const lane_access *a, uint8_t *to, uint64_t address, uint32_t bytes) {
    const op *o = a->o;
    const int elements = (int)o->immediate, first = o->sources - elements;
    uint8_t data[16];
    for (int i = 0; i < elements; i++) {
        const uint16_t slot = o->r[first + i];
        const uint64_t value = o->bytes == 8 ? slot64(a->w, slot)[a->lane] : slot32(a->w, slot)[a->lane];
        memcpy(data + i * o->bytes, &value, o->bytes);
    }
    if (a->m->checks) emu_on_global_write(a->m, a->w, a->lane, address, bytes, o, data, to);
    memcpy(to, data, bytes);
    a->m->changes++;
}

static void load_elements(const lane_access *a, const uint8_t *from) {
    const op *o = a->o;
    for (int i = 0; i < o->immediate; i++) {
        uint64_t value = 0;
        if (from) memcpy(&value, from + i * o->bytes, o->bytes);
        if (o->bytes == 8)
            slot64(a->w, o->r[i])[a->lane] = value;
        else
            slot32(a->w, o->r[i])[a->lane] = (uint32_t)value;
    }
}

void emu_exec_surface(cta *m, warp *w, const op *o, uint32_t mask) {
    const uint32_t bytes = o->bytes * (uint32_t)o->immediate;
    m->counts[o->instruction].bytes += (uint64_t)population(mask) * bytes;
    for (; mask; mask &= mask - 1) {
        lane_access a = {.m = m, .w = w, .o = o, .lane = first_lane(mask)};
        uint64_t address = 0;
        if (has_layer(o)) a.layer = slot32(w, o->r[o->dests + 1])[a.lane];
        uint8_t *at = object_of(&a, true) ? surface_bytes(&a, bytes, &address) : NULL;
        if (o->detail & SURFACE_STORES) {
            if (at) store_elements(&a, at, address, bytes);
            continue;
        }
        if (at && m->checks) emu_on_global_read(m, w, a.lane, address, bytes, NULL);
        load_elements(&a, at);
    }
}
