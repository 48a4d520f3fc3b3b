/* locations.h - where instructions come from: .file and .loc. */
#ifndef FL_EMU_LOCATIONS_H
#define FL_EMU_LOCATIONS_H

#include "reader.h"

void emu_parse_file(parser *p);
/* From the token .loc itself. */
void emu_parse_loc(parser *p);
void emu_forget_locations(parser *p);
/* Until its end, the locations of a body hold the numbers of files. */
void emu_name_files(parser *p);

#endif
