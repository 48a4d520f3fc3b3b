/* relocate.c - what has another value on a GPU than in the recording: addresses of variables, and tensor maps.
 *
 * Memory is allocated at its recorded address, but the driver places the variables of a module. So each aligned word
 * that is an address within a recorded variable becomes that of the variable here. A tensor map is opaque. Its recorded
 * arguments make a new one, which replaces the 128 bytes that the emulator had made. Parameters of a kernel are passed
 * one by one, because machine code aligns them otherwise than PTX.
 */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

static uint64_t word_here(const replay *r, uint64_t word) {
    for (size_t i = 0; i < r->memory_count; i++) {
        const memory *m = &r->memories[i];
        if (m->kind == MEMORY_VARIABLE && m->live && word - m->address < m->bytes) return replay_address(m, word);
    }
    return word;
}

static const moved_map *map_at(const replay *r, const uint8_t *data, size_t bytes) {
    for (size_t i = r->map_count; i-- > 0 && bytes >= sizeof r->maps->recorded;)
        if (!memcmp(r->maps[i].recorded, data, sizeof r->maps->recorded)) return &r->maps[i];
    return NULL;
}

void relocate(const replay *r, uint8_t *data, size_t bytes) {
    if (r->cuda->poison) return;
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        const moved_map *map = map_at(r, data + at, bytes - at);
        if (map) {
            memcpy(data + at, map->made, sizeof map->made);
            at += sizeof map->made - sizeof(uint64_t);
            continue;
        }
        uint64_t word;
        memcpy(&word, data + at, sizeof word);
        word = word_here(r, word);
        memcpy(data + at, &word, sizeof word);
    }
}

/* ---- parameters ---- */

/* The record that has the parameters of a kernel of this module, and its text after the numbers; NULL if there is none.
 */
static const record *find_parameters(const replay *r, const record *launch, const char *name, char *text,
                                     size_t bytes) {
    const size_t length = strlen(name);
    for (const record *at = launch; at-- > r->recorded->records;) {
        if (at->kind != RECORD_PARAMETERS || at->numbers[0] != launch->numbers[0]) continue;
        if (!record_text(at, 0, text, bytes) || at->bytes < length || strcmp(text + at->bytes - length, name) != 0)
            continue;
        text[at->bytes - length] = 0;
        return at;
    }
    return NULL;
}

bool relocate_parameters(const replay *r, const record *launch, const char *name, CUfunction function, uint8_t *block,
                         void ***places) {
    enum { LONGEST_TEXT = 1 << 16, MOST_PARAMETERS = 4096 };
    size_t offset, size;
    char *text = malloc(LONGEST_TEXT), *next = text;
    const record *found = text ? find_parameters(r, launch, name, text, LONGEST_TEXT) : NULL;
    const uint64_t count = found ? found->numbers[1] : 0;
    bool fits = found && count <= MOST_PARAMETERS && (*places = calloc((size_t)count + 1, sizeof **places));
    for (uint64_t i = 0; fits && i < count; i++) {
        const uint64_t at = strtoull(next, &next, 10), bytes = strtoull(next, &next, 10);
        fits = at <= launch->numbers[12] && bytes <= launch->numbers[12] - at &&
               r->cuda->cuFuncGetParamInfo(function, (size_t)i, &offset, &size) == CUDA_SUCCESS && size == bytes;
        if (fits) (*places)[i] = block + at;
    }
    fits = fits && r->cuda->cuFuncGetParamInfo(function, (size_t)count, &offset, &size) != CUDA_SUCCESS;
    if (!fits && found) free(*places);
    free(text);
    return fits;
}

/* ---- tensor maps ---- */

bool relocate_tensor_map(replay *r, const record *at) {
    enum {
        TYPE,
        RANK,
        ADDRESS,
        SIZES,
        STRIDES = SIZES + 5,
        BOX = STRIDES + 4,
        INTERLEAVE = BOX + 5,
        SWIZZLE,
        PROMOTION,
        FILL
    };
    const uint64_t *n = at->numbers;
    cuuint32_t box[5], ones[5] = {1, 1, 1, 1, 1};
    cuuint64_t sizes[5], strides[4];
    CUtensorMap made;
    if (r->cuda->poison) return true;
    if (at->bytes != sizeof made || !n[RANK] || n[RANK] > 5 || !replay_find(r, n[ADDRESS], 1))
        return replay_fail(r, REPLAY_MALFORMED, "a tensor map is malformed");
    for (int i = 0; i < 5; i++) box[i] = (cuuint32_t)n[BOX + i];
    for (int i = 0; i < 5; i++) sizes[i] = n[SIZES + i];
    for (int i = 0; i < 4; i++) strides[i] = n[STRIDES + i];
    const CUdeviceptr address = word_here(r, n[ADDRESS]);
    const CUresult result = r->cuda->cuTensorMapEncodeTiled(
        &made, (CUtensorMapDataType)n[TYPE], (cuuint32_t)n[RANK], (void *)(uintptr_t)address, sizes, strides, box, ones,
        (CUtensorMapInterleave)n[INTERLEAVE], (CUtensorMapSwizzle)n[SWIZZLE], (CUtensorMapL2promotion)n[PROMOTION],
        (CUtensorMapFloatOOBfill)n[FILL]);
    if (!replay_check(r, result, "a tensor map")) return false;
    moved_map *more = realloc(r->maps, (r->map_count + 1) * sizeof *more);
    if (!more) return replay_fail(r, REPLAY_NO_MEMORY, "out of memory");
    r->maps = more;
    memcpy(more[r->map_count].recorded, at->data, sizeof made);
    memcpy(more[r->map_count++].made, &made, sizeof made);
    return true;
}
