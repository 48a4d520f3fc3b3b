"""Sentences of documents that no generator writes: their numbers are those of the records."""

import csv
import json
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from functools import cache

from analysis.files import read_text, root
from analysis.ladder.headers import load_attention
from analysis.predict.machine import read_machine, read_values
from analysis.predict.tiles import read_tiles
from analysis.publish.overview import Step, read_steps
from analysis.publish.side_ladders import backward_peers
from analysis.tests.support.validation import cases_of, leave_one_out, mean_error, of_fit, order


@cache
def steps() -> list[Step]:
    return read_steps(root())


def page(name: str) -> str:
    """A page in one line."""
    return " ".join(read_text(root() / name).split())


def recorded(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(read_text(root() / "logs" / name).splitlines()))


def span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def ends(ratios: Sequence[str]) -> tuple[str, str]:
    """The smallest and the largest of recorded ratios, rounded as on paper."""
    low, high = (str(end(map(Decimal, ratios)).quantize(Decimal("0.01"), ROUND_HALF_UP)) for end in (min, max))
    return low, high


def percent(error: float) -> str:
    return f"{100 * abs(error):.1f} %"


def test_predict_states_the_errors_of_the_model() -> None:
    text, known = page("docs/internals.md"), read_tiles(root())
    cases = {gpu: cases_of(root(), gpu, known) for gpu in ("h200", "h100")}
    found, h100 = leave_one_out(of_fit(cases["h200"]), read_machine("h200")), read_machine("h100")
    errors, own = found.cycles, of_fit(cases["h100"])
    worst = max(errors, key=lambda case: abs(errors[case]))
    assert f"predicts {len(errors)} launches" in text
    assert f"**mean error of {percent(mean_error(errors.values()))}**" in text
    at_4096 = percent(max(abs(error) for case, error in errors.items() if case.shape.seq == 4096))
    largest = f"{percent(errors[worst])}, for {worst.version} at {worst.shape.seq} keys, and {at_4096} at 4096"
    assert f"largest error is {largest}" in text
    cycles, times = ([getattr(case, name)(h100) for case in own] for name in ("error", "error_of_time"))
    assert f"the mean over {len(own)} launches is {percent(mean_error(cycles))}" in text
    mine = percent(mean_error(found.time.values()))
    assert f"error in time is {mine} on the H200 and {percent(mean_error(times))} on the H100" in text
    pairs = order(errors)
    assert f"orders {100 * pairs.share:.1f} % of the {pairs.pairs} pairs" in text


def test_predict_states_the_errors_of_other_kernels() -> None:
    text, known, machine = page("docs/internals.md"), read_tiles(root()), read_machine("h200")
    cases = cases_of(root(), "h200", known)
    errors = {case: case.error(machine) for case in cases if case not in set(of_fit(cases))}
    worst = max(errors, key=lambda case: abs(errors[case]))
    largest = f"{percent(errors[worst])}, for {worst.version} at {worst.shape.seq} keys"
    assert f"mean error is {percent(mean_error(errors.values()))} and its largest {largest}" in text
    assert f"Over {len(errors)} launches" in text
    missing = {f"attention/{name}" for name in ("decode", "decode_mma_sync", "fp8_mma_scaled", "fp8_mma_sync")}
    assert {name for name in load_attention(root()) if name not in known} == missing
    assert "attention/decode is not modeled" in text
    by_kernel: dict[str, list[float]] = {}
    for row in recorded("bench/foreign.h200.csv"):
        measured = 1e3 * float(row["ms"]) * float(row["sm_clock_mhz"])
        by_kernel.setdefault(row["kernel"], []).append(float(row["predicted_cycles"]) / measured - 1)
    near = sum(max(map(abs, errors)) <= 0.1 for errors in by_kernel.values())
    assert (near, len(by_kernel)) == (5, 8) and "Five of eight kernels are within 10 %" in text
    every = [error for found in by_kernel.values() for error in found]
    assert f"mean error over {len(every)} launches is {percent(mean_error(every))}" in text
    kinds = [value.how for value in read_values()[1]]
    of = {how: kinds.count(how) for how in ("measured", "published", "fitted", "assumed")}
    assert f"{of['measured']} numbers are measured, {of['published']} are published" in text
    assert f"{of['fitted']} are fitted and {of['assumed']} are assumed" in text


def test_general_attention_has_the_recorded_errors_of_fp8() -> None:
    table = read_text(root() / "docs/general-attention.md").partition("## Accuracy of fp8")[2]
    shown = {(row[0], row[1]): row[2:] for line in table.splitlines() if len(row := line.strip("| ").split(" | ")) == 5}
    errors = json.loads(read_text(root() / "logs/fp8/errors.h200.json"))["errors"]
    assert len(shown) == 1 + sum(map(len, errors.values()))
    for inputs, of_kernels in errors.items():
        for kernel, by_keys in of_kernels.items():
            assert shown[inputs, kernel] == [f"{error:.2e} ({more:+.2%})" for error, more in by_keys.values()]


def test_fp8_states_its_ratios() -> None:
    text, runs = page("kernels/fp8/README.md"), json.loads(read_text(root() / "logs/fp8/states.h200.json"))["TFLOP/s"]
    cudnn, fa3, accurate = "cuDNN, O in e4m3", "FlashAttention-3", "attention/fp8, accurate"

    def ratios(mask: str, name: str, state: str) -> list[float]:
        return [of["attention/fp8"][state] / of[name][state] for of in runs[mask].values() if name in of]

    cases = (("full", cudnn), ("full", fa3), ("causal", cudnn))
    hot, cool = ([span(ratios(*case, state)) for case in cases] for state in ("sustained", "first"))
    assert (f"attention/fp8 is {hot[0]} × as fast as cuDNN at the power limit, and {hot[1]} × as fast as "
            f"FlashAttention-3. With the causal mask it is {hot[2]} × as fast as cuDNN.") in text  # fmt: skip
    assert f"these ratios are {cool[0]}, {cool[1]} and {cool[2]}." in text
    slow = [one for mask in runs for one in ratios(mask, accurate, "sustained")]
    assert f"Accurate sums take {span(slow)} × the time" in text


def test_the_story_is_titled_by_the_speeds_of_its_first_and_last_step() -> None:
    table = read_text(root() / "README.md").partition("<!-- /steps -->")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("| [v")]
    assert f"to {float(rows[-1][5]) / 100:.1f} × the speed of FlashAttention-3" in page("README.md")
    title = f"From {rows[0][4]} to {rows[-1][4]} TFLOP/s"
    assert read_text(root() / "docs/story.md").startswith(f"# {title}\n") and rows[-1][1].startswith("[v37]")
    assert all(f"[{title}]" in read_text(root() / name).replace("\n", " ") for name in ("README.md", "docs/index.md"))


def test_the_readme_states_what_one_step_removes_and_how_fast_gradients_are() -> None:
    parts = [next(step for step in steps() if step.name == name).parts["sm_90"] for name in ("v10", "v11")]
    counts = [len(one.regions["epilogue"]) for one in parts]
    assert f"removes {counts[0] - counts[1]} of the {counts[0]} instructions after it" in page("README.md")
    rows = [" ".join(map(str, row[3:])) for row in backward_peers(root()).rows if row[2] == "FlashAttention-3"]
    ratios = [float(ratio) for row in rows for ratio in re.findall(r"\(([\d.]+)\)", row)]
    assert f"The backward pass reaches {span(ratios)} × FlashAttention-3's speed" in page("README.md")


def times_of_decode(cache: str = "") -> list[str]:
    """Time of attention/decode_mma_sync divided by that of attention/decode, for each case with that type of cache."""
    rows = [row for row in recorded("general/sm80.h200.csv") if "attention/" in row["subject"]]
    us = [float(row["us"]) for row in rows if cache in row["case"]]  # of the two kernels, by turns
    return [str(ours / hopper) for hopper, ours in zip(us[::2], us[1::2], strict=True)]


def test_the_readme_states_where_kernels_for_every_gpu_are_slow() -> None:
    rows = [row for row in recorded("general/sm80.h200.csv") if row["subject"] == "mma_sync"]
    varlen = [row["ratio"] for row in rows if row["case"].startswith("varlen ") and "causal=False" in row["case"]]
    text = page("README.md")
    assert f"`attention/mma_sync` reaches {' to '.join(ends(varlen))} × FlashAttention-2" in text
    assert f"`attention/decode_mma_sync` takes {' to '.join(ends(times_of_decode()))} × `decode`'s time" in text


def test_the_page_of_gpus_states_what_the_record_holds() -> None:
    """The lowest and the highest ratio to FlashAttention-2 by kind of problem; times next to attention/decode."""
    text = page("docs/your-gpu.md")
    found: dict[tuple[str, str, str], list[str]] = {}
    reads: list[float] = []
    for row in recorded("general/sm80.h200.csv"):
        kind, d_head, rest = row["case"].split(" ", 2)
        if row["subject"] == "mma_sync":
            found.setdefault((kind, d_head, rest.rpartition("causal=")[2]), []).append(row["ratio"])
        elif row["subject"] == "attention/decode":
            reads.append(float(row["speed"]) / 1e3)

    def ratios(kind: str, d_head: str, *causal: str) -> str:
        return "–".join(ends([each for one in causal for each in found[kind, d_head, one]]))

    for name, kind, causal in (
        ("512 to 16,384 keys", "plain", ["False"]),
        ("the same, causal", "plain", ["True"]),
        ("windows of 256 to 4,096 keys", "window", sorted({one for at, _, one in found if at == "window"})),
        ("packed sequences, causal", "varlen", ["True"]),
        ("packed sequences, no mask", "varlen", ["False"]),
    ):
        assert f"| {name} | {ratios(kind, 'd128', *causal)} | {ratios(kind, 'd64', *causal)} |" in text, name
    assert f"`decode` reads up to {max(reads):.1f} TB/s on the H200" in text
    halves, bytes_of_cache = (" to ".join(ends(times_of_decode(cache))) for cache in ("bf16", "e4m3"))
    assert f"[{halves} × its time]" in text and f"and {bytes_of_cache} × with an e4m3 cache" in text


def test_the_page_of_gradients_states_what_features_cost() -> None:
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in recorded("backward/mma_sync_features.h200.csv"):
        _, d_head, kind, *_ = row["case"].split(" ")
        kind = kind if kind in ("varlen", "window") else "plain"
        found.setdefault((d_head, row["subject"], kind), []).append(row["ratio"])

    def ratios(d_head: str, subject: str, *kinds: str) -> str:
        return "–".join(ends([one for kind in kinds for one in found[d_head, subject, kind]]))

    text, each = page("kernels/backward/README.md"), ("plain", "varlen", "window")
    for d_head in ("d128", "d64", "d256"):
        cells = [ratios(d_head, "mma_sync", kind) for kind in ("varlen", "window")]
        cells += [ratios(d_head, subject, *each) for subject in ("mma_sync in order", "fa2 in order")]
        assert f"| {d_head[1:]} | {' | '.join(cells)} |" in text


def test_the_page_of_general_attention_states_the_speed_of_other_rows() -> None:
    rows, us = [row for row in recorded("general/extended.h200.csv") if row["us"]], dict[str, dict[str, float]]()
    for row in rows:
        us.setdefault(row["case"], {})[row["subject"]] = float(row["us"])

    def cost(kind: str, subject: str, base: str, part: str = "") -> str:
        return span([t[subject] / t[base] for case, t in us.items() if kind in case and part in case and subject in t])

    def speeds(kind: str, subject: str, part: str = "") -> str:
        of_kind = [r for r in rows if kind in r["case"] and part in r["case"] and r["unit"] == "TFLOP/s"]
        found = [float(r["speed"]) for r in of_kind if r["subject"] == subject]
        return f"{min(found):.0f} to {max(found):.0f}"

    def of_read(*kinds: str) -> str:
        found = ends([r["ratio"] for r in rows if any(k in r["case"] for k in kinds) and r["subject"] == "flashladder"])
        return " to ".join(dict.fromkeys(found))

    full = {case: re.sub(r"d(80|96) dv\1", "d128 dv128", case) for case in us if re.search("dv(80|96)", case)}
    far = {d: of_read(f"d{d} 1x3", f"d{d} 8x", f"d{d} 32x", f"d{d} 128x") for d in (256, 512)}
    masks = [float(r["speed"]) for r in rows if "masks" in r["case"] and r["subject"] in ("plain", "block mask")]
    e4m3 = [row["ratio"] for row in recorded("fp8/mma_sync.h200.csv") if row["subject"] == "fp8_mma_sync" and row["us"]]
    for words in (
        f"lacks e4m3: {' to '.join(ends(e4m3))} × FlashAttention-2's speed",
        f"reaches {speeds('sizes d512', 'flashladder')} TFLOP/s",
        f"batch 128 reaches {of_read('mla 64 heads 128x')} of read bandwidth",
        f"and {speeds('mla 128 heads 128x', 'flashladder')} TFLOP/s for 128",
        f"reaches {far[256]} of read bandwidth, 512 {far[512]}, and {of_read('d256 1x4')} and {of_read('d512 1x4')}",
        f"{speeds('s d192', 'flashladder', '=False')}, {cost('s d192', 'cudnn', 'flashladder', '=False')} × cuDNN",
        f"causal {speeds('s d192', 'flashladder', '=True')}, {cost('s d192', 'cudnn', 'flashladder', '=True')} ×.",
        f"80 and 96 take {span([us[c]['flashladder'] / us[full[c]]['flashladder'] for c in full])} × the time of 128",
        f"take {cost('features', 'shorter rows', 'plain')} × the next size's",
        f"Largest scores take {cost('features', 'largest', 'plain')} × the plain time",
        f"dropout {cost('features', 'dropout', 'plain')} ×, biases {cost('features', 'bias', 'plain')} ×.",
        f"{span([m / p for p, m in zip(masks[::2], masks[1::2], strict=True)])} of the speed of their visible "
        f"blocks, {cost('masks', 'flex', 'block mask')} ×",
    ):
        assert words in page("docs/general-attention.md")
