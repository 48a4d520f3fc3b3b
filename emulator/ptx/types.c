/* types.c - see types.h */
#include "types.h"

#include <string.h>

static const type_info types[] = {
    {"pred", 1, 'p'},    {"b8", 8, 'b'},      {"u8", 8, 'u'},      {"s8", 8, 's'},      {"b16", 16, 'b'},
    {"u16", 16, 'u'},    {"s16", 16, 's'},    {"f16", 16, 'h'},    {"bf16", 16, 'g'},   {"b32", 32, 'b'},
    {"u32", 32, 'u'},    {"s32", 32, 's'},    {"f32", 32, 'f'},    {"f16x2", 32, 'H'},  {"bf16x2", 32, 'G'},
    {"b64", 64, 'b'},    {"u64", 64, 'u'},    {"s64", 64, 's'},    {"f64", 64, 'f'},    {"b128", 128, 'b'},
    {"tf32", 32, 't'},   {"e4m3x2", 16, 'E'}, {"e5m2x2", 16, 'E'}, {"u16x2", 32, 'x'},  {"s16x2", 32, 'x'},
    {"e4m3", 8, 'e'},    {"e5m2", 8, 'e'},    {"s4", 4, 's'},      {"u4", 4, 'u'},      {"b1", 1, 'b'},
    {"f32x2", 64, 'F'},  {"e2m1x2", 8, 'E'},  {"e2m3x2", 16, 'E'}, {"e3m2x2", 16, 'E'}, {"ue8m0x2", 16, 'E'},
    {"u8x4", 32, 'x'},   {"s8x4", 32, 'x'},   {"e4m3x4", 32, 'E'}, {"e5m2x4", 32, 'E'}, {"e2m3x4", 32, 'E'},
    {"e3m2x4", 32, 'E'}, {"e2m1x4", 16, 'E'},
};

const type_info *emu_find_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (*types[i].name == *name && !strcmp(types[i].name, name)) return &types[i];
    }
    return NULL;
}

state_space emu_find_space(const char *modifier) {
    static const struct {
        const char *name;
        state_space space;
    } spaces[] = {{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},     {"shared::cta", SPACE_SHARED},
                  {"local", SPACE_LOCAL},        {"const", SPACE_CONST},       {"param", SPACE_PARAM},
                  {"param::entry", SPACE_PARAM}, {"param::func", SPACE_PARAM}, {"shared::cluster", SPACE_CLUSTER}};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        if (!strcmp(spaces[i].name, modifier)) return spaces[i].space;
    }
    return SPACE_GENERIC;
}
