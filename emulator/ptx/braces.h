/* braces.h - to the brace that closes a body, without making tokens.
 *
 *     int depth = 1, line = 1;
 *     at = emu_follow_braces(at, end, &depth, &line);     // past the closing brace where depth is 0 then
 */
#ifndef FL_EMU_BRACES_H
#define FL_EMU_BRACES_H

/* From at past the brace that brings *depth to zero, or to a quote or slash, after which braces may not count, or
 * to the end. *line counts the line breaks that were passed. */
const char *emu_follow_braces(const char *at, const char *end, int *depth, int *line);

#endif
