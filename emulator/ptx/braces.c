/* braces.c - see braces.h
 *
 * A module is loaded without its bodies, so nearly all of its text passes here: 16 bytes at a time where there is SSE2,
 * which every x86-64 has, and byte by byte elsewhere. Both ways stop at the same byte with the same counts.
 */
#include "braces.h"

static const char *follow_bytes(const char *at, const char *end, int *depth, int *line) {
    for (; at < end && *depth && *at != '"' && *at != '/'; at++) {
        *line += *at == '\n';
        *depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
    }
    return at;
}

#ifdef __SSE2__
#include <emmintrin.h>

enum { BLOCK = 16 };

/* A bit for each byte of a block that is the character. */
static unsigned where(__m128i bytes, char character) {
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(character)));
}

/* Whole blocks: the braces of each are looked at one by one, its line breaks counted up to where it ends or stops. */
static const char *follow_blocks(const char *at, const char *end, int *depth, int *line) {
    for (; end - at >= BLOCK; at += BLOCK) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        unsigned marks = where(bytes, '"') | where(bytes, '/') | where(bytes, '{') | where(bytes, '}');
        unsigned stop = BLOCK; /* bytes of the block that are passed */
        for (; marks && stop == BLOCK; marks &= marks - 1) {
            unsigned i = (unsigned)__builtin_ctz(marks);
            if (at[i] == '{')
                ++*depth;
            else if (at[i] != '}')
                stop = i;
            else if (!--*depth)
                stop = i + 1;
        }
        *line += __builtin_popcount(where(bytes, '\n') & ((1u << stop) - 1));
        if (stop < BLOCK || !*depth) return at + stop;
    }
    return at;
}
#else
static const char *follow_blocks(const char *at, const char *end, int *depth, int *line) {
    (void)end, (void)depth, (void)line;
    return at;
}
#endif

const char *emu_follow_braces(const char *at, const char *end, int *depth, int *line) {
    return follow_bytes(follow_blocks(at, end, depth, line), end, depth, line);
}
