/* decode.h - an entry is decoded statement by statement, each after its instruction was kept.
 *
 *     decoder *dec = emu_decode_begin(load, code);
 *     emu_decode_statement(dec, &in);                // for each
 *     emu_decode_end(dec);
 */
#ifndef FL_EMU_DECODE_H
#define FL_EMU_DECODE_H

#include "builder.h"

decoder *emu_decode_begin(loader *load, entry *code);
void emu_decode_statement(decoder *dec, const statement *in);
/* Labels and dynamic shared memory find their places. */
void emu_decode_end(decoder *dec);

#endif
