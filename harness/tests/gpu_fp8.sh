#!/bin/bash
# What attention/fp8 owes on an H100 or H200, within 200 s; JSON lines and texts into a folder:
#
#     make attention.fp8 && harness/tests/gpu_fp8.sh FOLDER
#     BACKEND=emu harness/tests/gpu_fp8.sh FOLDER          # the same commands on small problems, without a GPU
#
# Fast and accurate sums, and instances that serve beside the plain ones on one length (predicted: 0.97 of their speed),
# with and without the causal mask; both states of the chip (--energy); random problems of several lengths against
# float64; compute-sanitizer where it is. Configs of one call are measured in turn, with the same inputs.
set -eu
out=${1:?a folder}
backend=${BACKEND:-gpu}
mkdir -p "$out"
tail=any_length+causal+persistent+tickets+grouped
fast="(BF16, 128, 192, 96, 12): fp8_wgmma+stages_2+$tail"
accurate="(BF16, 128, 192, 96, 12): fp8_wgmma+stages_2+flush_5+rounded_l+$tail"
fast_64="(BF16, 64, 192, 128, 12): fp8_wgmma+stages_3+$tail"
all=(--config "$fast" --config "$fast+serve" --config "$accurate" --config "$accurate+serve")
run() { timeout 90 bin/attention.fp8 --backend "$backend" "$@"; }
if [ "$backend" = gpu ]; then
    sizes=(--seq '512:16384:*2' --tokens 16384 --check 16 --min-time 0.2 --timeout 4) state=(--energy) brief=(--min-time 0.02) count=60
else
    sizes=(--seq 200 --heads 1) state=() brief=() count=1
fi
run "${all[@]}" "${sizes[@]}" --quiet --json - >>"$out/speed.jsonl"
run "${all[@]}" "${sizes[@]}" --quiet --json - --causal >>"$out/speed.jsonl"
[ "$backend" != gpu ] || sizes=(--seq '1024:16384:*4' --tokens 16384 --check 16 --min-time 0.2 --timeout 4)
run --config "$fast_64" --config "$fast_64+serve" "${sizes[@]}" --quiet --json - >>"$out/speed.jsonl"
run --config "$fast" --config "$accurate" "${sizes[@]}" --quiet ${state[@]+"${state[@]}"} --json - >>"$out/states.jsonl"
seed=1
while [ $seed -le "$count" ] && [ $SECONDS -lt 150 ]; do
    RANDOM=$seed q='' k=''
    for _ in 1 2 3; do
        rows=$((RANDOM % (count * 20) + 1)) more=$((RANDOM % 300))
        q=$q,$rows k=$k,$((rows + more))
    done
    run --config "$fast+serve" --config "$accurate+serve" --layout packed --seqlens-q "${q#,}" --seqlens-k "${k#,}" \
        --causal --lse --seed $seed --heads 4 --kv-heads 2 --check all ${brief[@]+"${brief[@]}"} --json - >>"$out/random.jsonl" ||
        echo "wrong: ${q#,} ${k#,}"
    seed=$((seed + 1))
done
if [ "$backend" = gpu ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        timeout 40 compute-sanitizer --tool $tool bin/attention.fp8 --backend gpu --config "$fast+serve" --layout packed \
            --seqlens-q 70,200 --seqlens-k 90,330 --heads 2 --runs 1 >"$out/$tool.txt" 2>&1 || true
    done
fi
wc -l "$out"/*.jsonl
