/* orders.h - what keeps a run from standing for all orders: orders.c finds it, print.c says it.
 *
 *     if (gaps & GAP_CLUSTERS) puts("CTAs of a cluster tell each other");
 */
#ifndef FL_EMU_ORDERS_H
#define FL_EMU_ORDERS_H

/* What the argument does not cover, by bit. */
enum order_gap {
    GAP_UNCHECKED = 1,   /* the checks are off */
    GAP_CLUSTERS = 2,    /* CTAs of a cluster tell each other */
    GAP_MEMORY = 4,      /* flags, counters and sums in memory */
    GAP_POLLS = 8,       /* a wait whose answer "no" does more than ask again */
    GAP_RELAXED = 16,    /* arrivals that order nothing */
    GAP_MBARRIERS = 32,  /* more mbarriers of copies than there are clocks */
    GAP_COPIES = 64,     /* st.async and red.async */
    GAP_REGISTERS = 128, /* registers that go from warp to warp more than once */
    GAP_TIME = 256,      /* the program reads a clock */
    GAP_HEAP = 512,      /* malloc */
    GAP_RACES = 1024,    /* races in global memory went unseen */
    GAP_PARTED = 2048    /* lanes of a warp that wait apart */
};

#endif
