/* fa3_checks.cuh - to be included first: FlashAttention-3 ends the process where a call fails. Here its macros throw
 * the reason.
 */
#ifndef FL_PEERS_FA3_CHECKS_CUH
#define FL_PEERS_FA3_CHECKS_CUH

#include "cuda_check.h"
#undef CHECK_CUDA
#undef CHECK_CUTLASS
#define CHECK_CUDA(call)                                                                                               \
    do {                                                                                                               \
        const cudaError_t check_status = (call);                                                                       \
        if (check_status != cudaSuccess) throw cudaGetErrorString(check_status);                                       \
    } while (0)
#define CHECK_CUTLASS(call)                                                                                            \
    do {                                                                                                               \
        const cutlass::Status check_status = (call);                                                                   \
        if (check_status != cutlass::Status::kSuccess) throw cutlass::cutlassGetStatusString(check_status);            \
    } while (0)

#endif
