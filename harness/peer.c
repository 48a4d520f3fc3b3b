#include "harness/peer.h"

#include "harness/about.h"

#include <stdlib.h>
#include <string.h>

enum status peer_instances(struct instance_table *table, int d_head, struct failure *failure) {
    static const enum dtype types[] = {FP16, BF16};
    enum { COUNT = sizeof types / sizeof *types };
    *table = (struct instance_table){.instances = calloc(COUNT, sizeof *table->instances)};
    if (!table->instances) return fail_memory(failure, COUNT * sizeof *table->instances, "the table of instances");
    for (size_t i = 0; i < COUNT; i++) {
        /* The library reports the problems for which it has a kernel. */
        struct kernel_config *const config = &table->instances[i].config;
        const attention_config attention = {types[i], d_head, .B_r = 1, .B_c = 1, .instruction = MMA_SYNC};
        const backward_config backward = {.dtype = types[i],
                                          .d_head = d_head,
                                          .B_r = 1,
                                          .B_c = 1,
                                          .instruction = WGMMA,
                                          .causal = true,
                                          .grouped_heads = true,
                                          .any_rows = true};
        const fp8_config fp8 = {.dtype = types[i],
                                .d_head = d_head,
                                .B_r = 1,
                                .B_c = 1,
                                .instruction = FP8_WGMMA,
                                .any_length = true,
                                .causal = true,
                                .grouped_heads = true};
        *config = about_peer()->backward ? (struct kernel_config){FAMILY_BACKWARD, .backward = backward}
                  : about_peer()->e4m3   ? (struct kernel_config){FAMILY_FP8, .fp8 = fp8}
                                         : (struct kernel_config){FAMILY_ATTENTION, .attention = attention};
        if (!(table->instances[i].symbol = strdup(about_version())))
            return fail_memory(failure, strlen(about_version()), "a peer's name");
        table->count++;
    }
    return STATUS_OK;
}
