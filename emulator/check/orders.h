/* orders.h - what keeps a run from standing for all orders: orders.c finds it, print.c says it.
 *
 *     if (gaps & GAP_HEAP) puts("malloc");
 */
#ifndef FL_EMU_ORDERS_H
#define FL_EMU_ORDERS_H

/* What the argument does not cover, by bit. */
enum order_gap {
    GAP_UNCHECKED = 1,  /* the checks are off */
    GAP_MEMORY = 2,     /* flags, counters and sums in memory */
    GAP_POLLS = 4,      /* a wait whose answer "no" does more than ask again */
    GAP_RELAXED = 8,    /* arrivals that order nothing */
    GAP_MBARRIERS = 16, /* more mbarriers of copies than there are clocks */
    GAP_COPIES = 32,    /* st.async and red.async */
    GAP_REGISTERS = 64, /* registers that go from warp to warp more than once */
    GAP_TIME = 128,     /* the program reads a clock */
    GAP_HEAP = 256,     /* malloc */
    GAP_RACES = 512,    /* races in global memory went unseen */
    GAP_PARTED = 1024   /* lanes of a warp that wait apart */
};

#endif
