#include "harness/peer.h"

#include "common/backward.h"
#include "common/fp8.h"
#include "harness/about.h"

#include <stdlib.h>
#include <string.h>

enum status peer_instances(struct instance_table *table, int d_head, struct failure *failure) {
    static const enum dtype types[] = {FP16, BF16};
    enum { COUNT = sizeof types / sizeof *types };
    *table = (struct instance_table){.instances = calloc(COUNT, sizeof *table->instances)};
    if (!table->instances) return fail_memory(failure, COUNT * sizeof *table->instances, "the table of instances");
    for (size_t i = 0; i < COUNT; i++) {
        /* Which problems it has a kernel for, the library says. */
        const KernelConfig forward = {.dtype = types[i],
                                      .d_head = d_head,
                                      .instruction = about_peer()->e4m3 ? FP8_WGMMA : MMA_SYNC,
                                      .B_r = 1,
                                      .B_c = 1,
                                      .any_length = true,
                                      .causal = true,
                                      .grouped_heads = true};
        const KernelConfig backward = {.dtype = types[i],
                                       .d_head = d_head,
                                       .B_r = 1,
                                       .B_c = 1,
                                       .instruction = WGMMA,
                                       .any_rows = true,
                                       .causal = true,
                                       .grouped_heads = true};
        table->instances[i].config = about_peer()->backward ? backward : forward;
        if (!(table->instances[i].symbol = strdup(about_version())))
            return fail_memory(failure, strlen(about_version()), "a peer's name");
        table->count++;
    }
    return STATUS_OK;
}
