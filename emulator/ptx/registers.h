/* registers.h - which registers live where, and the slots that they get. */
#ifndef FL_EMU_REGISTERS_H
#define FL_EMU_REGISTERS_H

#include "blocks.h"

/* In this order, once the blocks are known. */
void emu_find_exposed(flow *f);
void emu_find_liveness(flow *f);
/* List registers that may be read before they are written. */
void emu_find_unset(flow *f);
void emu_assign_slots(flow *f);
/* A register takes 2 to the power of its class slots. */
int emu_slot_class(const virtual_register *reg);

#endif
