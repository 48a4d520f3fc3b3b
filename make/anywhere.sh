#!/bin/bash
# anywhere.sh BUSY CMD...: runs CMD as if on another machine: without what NumPy, OpenBLAS and glibc know of this processor,
# in another locale and time zone, on one core that BUSY endless loops share with it.
set -eu
busy=$1; shift
export NPY_DISABLE_CPU_FEATURES='AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR'
export OPENBLAS_CORETYPE=Prescott OPENBLAS_NUM_THREADS=2 LC_ALL=C TZ=Asia/Kathmandu
export GLIBC_TUNABLES=${GLIBC_TUNABLES:+$GLIBC_TUNABLES:}glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-FMA,-FMA_Usable,-AVX512F
core=$(taskset -cp $$ | sed 's/.*[ ,-]//') # the last one that is allowed
taskset -cp "$core" $$ >/dev/null
loops=()
trap '[ ${#loops[@]} -eq 0 ] || kill "${loops[@]}"' EXIT
for ((i = 0; i < busy; i++)); do
    while :; do :; done &
    loops+=($!)
done
"$@"
