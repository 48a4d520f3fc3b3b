/* locations.h - where instructions come from: .file and .loc. */
#ifndef FL_EMU_LOCATIONS_H
#define FL_EMU_LOCATIONS_H

#include "reader.h"

void emu_parse_file(parser *p);
/* From the token .loc itself. */
void emu_parse_loc(parser *p);
void emu_forget_locations(parser *p);
/* At the end of a body, before which its locations hold the numbers of files: name the files and link the frames. */
void emu_link_locations(parser *p);

#endif
