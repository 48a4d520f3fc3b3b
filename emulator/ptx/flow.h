/* flow.h - the control flow of a decoded entry: where lanes meet again, its loops and regions, slots of its registers.
 */
#ifndef FL_EMU_FLOW_H
#define FL_EMU_FLOW_H

#include "loader.h"

void emu_analyse_flow(loader *load, entry *code);

#endif
