/* decode.h - an entry is decoded statement by statement, each after its instruction was kept.
 *
 *     decoder *dec = emu_decode_begin(load, code);
 *     emu_decode_statement(dec, &in);                // for each
 *     emu_decode_routine_end(dec);
 *     emu_decode_routine(dec, 1);                    // and so on with each function that is called
 *     emu_decode_end(dec);
 */
#ifndef FL_EMU_DECODE_H
#define FL_EMU_DECODE_H

#include "builder.h"

decoder *emu_decode_begin(loader *load, entry *code);
void emu_decode_statement(decoder *dec, const statement *in);
/* The statements of a function follow: it is a routine of the entry already. */
void emu_decode_routine(decoder *dec, int index);
/* Once its parameters are declared, ahead of its body. */
void emu_decode_entrance(decoder *dec);
void emu_decode_routine_end(decoder *dec);
/* Labels and dynamic shared memory get their addresses. */
void emu_decode_end(decoder *dec);

#endif
