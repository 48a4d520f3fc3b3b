"""kernels/README.md, the table of the ladder: `python3 -m analysis ladder --write`.

Everything in it comes from committed files, so that a test can say whether it is stale.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict

from .errors import DIFFERENT, DONE
from .files import root, write_if_changed
from .overview import ARCHS, Speed, Step, read_steps
from .published import differences, family_counts, nearest_listing, percent_on_h200, speeds
from .table import Cell, Table, add_output_arguments, emit

MISSING = "–"
MOST_DIFFERENCES = 6


def ladder_table(steps: Sequence[Step], links: bool = True) -> Table:
    """One row a version, its name a link to its source on request."""
    gpus = sorted({gpu for step in steps for gpu in step.speeds})
    columns = ("version", "idea", "parent", "lines changed", *(f"registers {arch}" for arch in ARCHS))
    columns += (*(f"loop / HMMA {arch}" for arch in ARCHS), "wavefronts / ideal")
    columns += tuple(f"of FA2, {gpu}" for gpu in gpus)
    rows: list[list[Cell]] = []
    for step in steps:
        header = step.version.header
        name = f"[{step.name}]({step.version.path.name})" if links else step.name
        row: list[Cell] = [name, header.title, header.parent or MISSING]
        row += [shown(step.changed), *(registers(step, arch) for arch in ARCHS)]
        row += [shown(step.loop_per_matrix(arch), 2) for arch in ARCHS]
        row += [wavefronts(step), *(ratio(step.speeds.get(gpu)) for gpu in gpus)]
        rows.append(row)
    return Table(columns, rows)


def shown(value: float | int | None, digits: int = 0) -> str:
    """A number with so many digits after the point, or the sign for a missing one."""
    return MISSING if value is None else f"{value:.{digits}f}"


def registers(step: Step, arch: str) -> str:
    """Registers, with spills and other local memory named."""
    row = step.rows.get(arch)
    if row is None:
        return MISSING
    spills = f", spills {row.spill_stores}/{row.spill_loads} B" if row.spill_stores or row.spill_loads else ""
    local = ", local memory" if not spills and (row.ldl or row.stl) else ""
    return f"{row.registers}{spills}{local}"


def wavefronts(step: Step) -> str:
    """Modelled shared-memory wavefronts over those of the same accesses without bank conflicts."""
    return f"{step.traffic.wavefronts / step.traffic.ideal:.2f}" if step.traffic and step.traffic.ideal else MISSING


def ratio(speed: Speed | None) -> str:
    """Speed over FlashAttention-2's with half the width of its interval."""
    if speed is None or speed.ratio is None:
        return MISSING
    return f"{speed.ratio.mid:.3f} ± {(speed.ratio.high - speed.ratio.low) / 2:.3f}"


def outcome(step: Step, parent: Step | None) -> str:
    """What became of a prediction: figures of the parent and of the version, each at its own config."""
    parts = []
    for arch in ARCHS:
        before, after = (parent.loop(arch) if parent else None), step.loop(arch)
        if after is not None:
            ratios = [each.loop_per_matrix(arch) for each in (parent, step) if each]
            per = " -> ".join(shown(value, 2) for value in ratios if value is not None)
            loops = f"{before} -> {after}" if before is not None else f"{after}"
            parts.append(f"{arch}: loop {loops} instructions ({per} a HMMA)")
        after_row = step.rows.get(arch)
        before_row = parent.rows.get(arch) if parent else None
        if after_row:
            old = f"{before_row.registers} -> " if before_row else ""
            parts.append(f"{'' if after is not None else f'{arch}: '}registers {old}{after_row.registers}")
    if step.traffic and parent and parent.traffic:
        parts.append(f"wavefronts / ideal {wavefronts(parent)} -> {wavefronts(step)}")
    for gpu, speed in sorted(step.speeds.items()):
        old_speed = parent.speeds.get(gpu) if parent else None
        if speed.ratio:
            old = f"{old_speed.ratio.mid:.3f} -> " if old_speed and old_speed.ratio else ""
            parts.append(f"{gpu}: {old}{speed.ratio.mid:.3f} of FA2")
    if parts and parent and parent.version.header.config != step.version.header.config:
        parts.append("the config changed too")
    return "; ".join(parts) or "nothing recorded yet"


def published_table(steps: Sequence[Step]) -> Table:
    """Our KV loop for sm_80 beside the published one of the same step."""
    rows: list[list[Cell]] = []
    for step in steps:
        listing = nearest_listing(step.version.header.config, step.name)
        parts = step.parts.get("sm_80")
        if listing is None or parts is None:
            continue
        same = listing.config == step.version.header.config
        ours = family_counts(at.opcode for at in parts.loop)
        if listing.loop_hmma == parts.matrix_count:
            named = [f"{name} {a}/{b}" for name, a, b in differences(ours, listing)]
            more = len(named) - MOST_DIFFERENCES
            text = ", ".join(named[:MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        else:
            text = "other block sizes: compare per HMMA"
        rows.append(
            [
                step.name,
                len(parts.loop),
                listing.loop,
                f"{len(parts.loop) / parts.matrix_count:.2f}",
                f"{listing.loop / listing.loop_hmma:.2f}",
                listing.name + ("" if same else ", another config"),
                text or "none",
            ]
        )
    columns = (
        "version",
        "loop",
        "published loop",
        "loop / HMMA",
        "published loop / HMMA",
        "published listing",
        "opcodes",
    )
    return Table(columns, rows)


def published_speed_table(steps: Sequence[Step]) -> Table:
    """Our ratio on the H200 beside the published kernels' on an H200, an A100 and an RTX 3090."""
    rows: list[list[Cell]] = []
    for step in steps:
        number = int(step.name[1:])
        published = speeds().get(number)
        if published:
            ours = step.speeds.get("h200")
            mine = f"{100 * ours.ratio.mid:.1f}" if ours and ours.ratio else MISSING
            theirs = percent_on_h200().get(number)
            rows.append([step.name, mine, shown(theirs, 1), published.a100_4096, published.rtx3090_4096])
    return Table(("version", "ours, H200", "published code, H200", "published, A100", "published, RTX 3090"), rows)


INTRODUCTION = """# The ladder

Generated by `make ladder` from the header blocks, regs/, sass/ and logs/bench/; edits here are lost.

Each version is its parent with one idea added: `make diff A=v01 B=v02` shows it. Registers and loop are those of the
version's own config; loop / HMMA is the number of instructions of the KV loop for each matrix instruction in it.
Wavefronts are those of shared memory that the emulator models, over the same accesses without bank conflicts. Speed is
that of fp16, batch 16, 16 heads, seq 4096 over FlashAttention-2's in the same run, with half of its 95 % interval.
"""
PUBLISHED = """## Beside the published ladder

KV loops for sm_80, next to the published listing whose config is nearest; opcodes that differ are given as
ours/published. Sources: analysis/data/README.md.
"""


def readme_text(steps: Sequence[Step]) -> str:
    """The whole of kernels/README.md."""
    by_name = {step.name: step for step in steps}
    parts = [INTRODUCTION, ladder_table(steps).markdown(), "## Predictions and what came of them\n"]
    for step in steps:
        header = step.version.header
        parts.append(
            f"### {step.name} - {header.title}\n\n"
            f"- idea: {header.idea}\n"
            f"- predicted: {header.predict or 'nothing'}\n"
            f"- came: {outcome(step, by_name.get(header.parent))}\n"
        )
    parts += [PUBLISHED, published_table(steps).markdown()]
    parts += ["Percent of FlashAttention-2 at seq 4096:\n", published_speed_table(steps).markdown()]
    return "\n".join(parts)


def ladder_record(steps: Sequence[Step]) -> list[dict[str, object]]:
    """The same figures as JSON values."""
    return [
        {
            "version": step.name,
            "title": step.version.header.title,
            "idea": step.version.header.idea,
            "parent": step.version.header.parent,
            "predict": step.version.header.predict,
            "config": str(step.version.header.config),
            "changed_lines": step.changed,
            "registers": {arch: row.registers for arch, row in step.rows.items()},
            "loop": {arch: len(parts.loop) for arch, parts in step.parts.items()},
            "loop_hmma": {arch: parts.matrix_count for arch, parts in step.parts.items()},
            "traffic": asdict(step.traffic) if step.traffic else None,
            "speed": {gpu: asdict(speed) for gpu, speed in step.speeds.items()},
        }
        for step in steps
    ]


def add_ladder_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write kernels/README.md instead of printing")
    parser.add_argument("--exit-code", action="store_true", help="status 1 when kernels/README.md is stale")
    add_output_arguments(parser)


def run_ladder(args: argparse.Namespace) -> int:
    path = root() / "kernels/README.md"
    steps = read_steps(root())
    text = readme_text(steps)
    stale = not path.exists() or path.read_text(encoding="utf-8") != text
    if args.write:
        write_if_changed(path, text)
    elif args.json:
        emit(json.dumps(ladder_record(steps), indent=1) + "\n", args.output)
    else:
        emit(text, args.output)
    return DIFFERENT if stale and args.exit_code else DONE
