#!/bin/sh
# Replaces ptxas when emulated-gpu runs Triton: hands the PTX through instead of machine code, as the emulator
# runs PTX. The version is part of Triton's cache keys.
out= in=
while [ $# -gt 0 ]; do
  case $1 in
    --version)
      printf 'ptxas: PTX for the emulator of flashladder\nCuda compilation tools, release 12.9, V12.9.0\n'
      exit ;;
    -o) out=$2; shift ;;
    -*) ;;
    *) in=$1 ;;
  esac
  shift
done
[ -n "$in" ] && [ -n "$out" ] || { echo 'ptxas (emulator): which file, and -o where?' >&2; exit 1; }
cp "$in" "$out" && printf '\0' >>"$out"
