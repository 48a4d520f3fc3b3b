/* all.cu - the small kernels for sm_90a in one PTX file. */
#include "fragments.cu"
#include "pieces.cu"
#include "ring.cu"
#include "roles.cu"
#include "staged.cu"
#include "stores.cu"
#include "turns.cu"
