/* minimal.c - attention of one sequence in host memory: the first row of O, and what computed it. */
#include "flashladder.h"

#include <stdio.h>

enum { SEQ = 10, HEADS = 2, D_HEAD = 64 };
static uint16_t q[SEQ * HEADS * D_HEAD], k[sizeof q / 2], v[sizeof q / 2], o[sizeof q / 2];
static float lse[HEADS * SEQ];

static int failed(void) {
    fprintf(stderr, "%s\n", fl_error());
    return 1;
}

int main(void) {
    fl_library *library;
    fl_support support = {.size = sizeof support};
    fl_problem problem = {.size = sizeof problem, .dtype = FL_FP16, .memory = FL_HOST_MEMORY, .device = -1};
    fl_tensors tensors = {.size = sizeof tensors, .q = q, .k = k, .v = v, .o = o, .lse = lse};
    problem.batch = 1, problem.heads = problem.kv_heads = HEADS, problem.d_head = D_HEAD;
    problem.seq_q = problem.seq_k = SEQ, problem.causal = 1;
    for (int i = 0; i < SEQ * HEADS * D_HEAD; i++) v[i] = 0x3c00; /* ones: then every element of O is one */
    if (fl_open(FL_AUTO, &library)) return failed();
    if (fl_query(library, &problem, &support) || fl_forward(library, &problem, &tensors, NULL)) return failed();
    printf("%s\nO[0] 0x%04x, log-sum-exp of the last row %.4f\n", support.order, o[0], lse[SEQ - 1]);
    fl_close(library);
    return 0;
}
