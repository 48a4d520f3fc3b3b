/* program.c - questions about a loaded program: its entries, where an instruction is, the name of a register. */
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int emu_entry_count(const emu_module *module) {
    return (int)module->entry_count;
}

int emu_find_entry(const emu_module *module, const char *name) {
    for (size_t i = 0; i < module->entry_count; i++)
        if (strcmp(module->entries[i].info.name, name) == 0) return (int)i;
    return -1;
}

const emu_entry_info *emu_entry(const emu_module *module, int index) {
    return index >= 0 && (size_t)index < module->entry_count ? &module->entries[index].info : NULL;
}

emu_location emu_location_of(const entry *code, uint32_t instruction_index) {
    emu_location location = {.ptx = ""};
    if (instruction_index >= code->instruction_count) return location;
    const instruction *in = &code->instructions[instruction_index];
    location.ptx_line = in->line;
    location.ptx = in->text;
    if (in->location < 0) return location;
    location.frame = &code->locations[in->location].frame;
    location.own = code->locations[in->location].own;
    return location;
}

bool emu_same_line(const entry *code, uint32_t a, uint32_t b) {
    if (a == b) return true;
    if (a >= code->instruction_count || b >= code->instruction_count) return false;
    const int at = code->instructions[a].location, bt = code->instructions[b].location;
    if (at < 0 || bt < 0) return false;
    const emu_frame *x = code->locations[at].own, *y = code->locations[bt].own;
    return x->line == y->line && x->file == y->file;
}

static const char *const special_names[SPECIAL_COUNT] = {"%tid.x",
                                                         "%tid.y",
                                                         "%tid.z",
                                                         "%ntid.x",
                                                         "%ntid.y",
                                                         "%ntid.z",
                                                         "%ctaid.x",
                                                         "%ctaid.y",
                                                         "%ctaid.z",
                                                         "%nctaid.x",
                                                         "%nctaid.y",
                                                         "%nctaid.z",
                                                         "%laneid",
                                                         "%warpid",
                                                         "%nwarpid",
                                                         "%lanemask_eq",
                                                         "%lanemask_le",
                                                         "%lanemask_lt",
                                                         "%lanemask_ge",
                                                         "%lanemask_gt",
                                                         "%smid",
                                                         "%nsmid",
                                                         "%gridid",
                                                         "%dynamic_smem_size",
                                                         "%total_smem_size",
                                                         "%clusterid.x",
                                                         "%clusterid.y",
                                                         "%clusterid.z",
                                                         "%nclusterid.x",
                                                         "%nclusterid.y",
                                                         "%nclusterid.z",
                                                         "%cluster_ctaid.x",
                                                         "%cluster_ctaid.y",
                                                         "%cluster_ctaid.z",
                                                         "%cluster_nctaid.x",
                                                         "%cluster_nctaid.y",
                                                         "%cluster_nctaid.z",
                                                         "%cluster_ctarank",
                                                         "%cluster_nctarank",
                                                         "%is_explicit_cluster",
                                                         "%clock",
                                                         "%clock_hi",
                                                         "%clock64",
                                                         "%globaltimer",
                                                         "%globaltimer_lo",
                                                         "%globaltimer_hi",
                                                         "%reserved_smem_offset_begin",
                                                         "%reserved_smem_offset_end",
                                                         "%reserved_smem_offset_cap",
                                                         "%reserved_smem_offset_0",
                                                         "%reserved_smem_offset_1"};

const char *emu_special_name(special_register which) {
    return special_names[which];
}

void emu_register_name(const virtual_register *reg, char *out, size_t bytes) {
    if (reg->kind == REGISTER_SPECIAL)
        snprintf(out, bytes, "%s", special_names[reg->value]);
    else if (reg->kind == REGISTER_CONSTANT || reg->kind == REGISTER_SHARED_ADDRESS)
        snprintf(out, bytes, "0x%" PRIx64, reg->value);
    else if (reg->value == UINT64_MAX)
        snprintf(out, bytes, "%s", reg->prefix);
    else
        snprintf(out, bytes, "%s%" PRIu64, reg->prefix, reg->value);
}

void *emu_reserve(void *array, size_t wanted, size_t *capacity, size_t element_bytes) {
    size_t larger = *capacity ? *capacity : 16;
    if (wanted <= *capacity) return array;
    while (larger < wanted) larger *= 2;
    void *moved = realloc(array, larger * element_bytes);
    if (moved) *capacity = larger;
    return moved;
}

char *emu_copy_text(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
