"""Impossible records: faster than the GPU, contradicting their own samples, of machine code that changed in a run.

    for fault in implausible(read(path).records): print(fault)

Times in microseconds where nanoseconds belong make a kernel a thousand times faster than the tensor cores are, and no
field of the schema tells.
"""

from collections.abc import Iterable, Iterator

from analysis.measure.records import EMULATOR, Record, RecordError
from analysis.measure.stats import median

# Multiply-adds of 16-bit elements a clock and SM by compute capability, dense (NVIDIA's architecture whitepapers).
MULTIPLY_ADDS = {"8.0": 1024, "8.6": 512, "8.9": 512, "9.0": 2048, "10.0": 4096, "10.3": 4096, "12.0": 512}
NARROW = {"e4m3": 2, "e5m2": 2}  # elements that multiply so many times as fast
HIGHEST_CLOCK = 3.0e9  # Hz, above that of any GPU, for records without clocks
ROUNDING = 0.005  # of figures that were written with few digits


def implausible(records: Iterable[Record]) -> Iterator[str]:
    """One sentence for each thing that cannot be."""
    hashes: dict[tuple[str, str, str], str] = {}
    for record in records:
        what = f"{record.subject} on {record.problem}, run {record.run_id or 'none'}, round {record.round}"
        for fault in (*_too_fast(record), *_contradictions(record)):
            yield f"{what}: {fault}"
        code = record.raw.get("code_hash")
        if code and record.run_id:
            first = hashes.setdefault((record.run_id, record.subject, record.config), code)
            if first != code:
                yield f"{what}: its code hash is {code}, and was {first} before in this run"


def refuse_implausible(records: Iterable[Record], name: str) -> None:
    """RecordError that tells what cannot be, the first of it."""
    found = list(implausible(records))
    if found:
        more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
        raise RecordError(f"{name}: {found[0]}{more}")


def highest_tflops(record: Record) -> float | None:
    """The peak of the tensor cores at the highest clock of the samples; None if the GPU is unknown."""
    device = record.raw.get("device") or {}
    per_clock = MULTIPLY_ADDS.get(str(device.get("cc")))
    if record.device == EMULATOR or not per_clock or not device.get("sms"):
        return None
    sms, clock = float(device["sms"]), max(record.sm_clock_hz, default=HIGHEST_CLOCK)
    return 2e-12 * sms * per_clock * NARROW.get(record.problem.dtype, 1) * clock


def _too_fast(record: Record) -> Iterator[str]:
    most = highest_tflops(record)
    if most and record.samples_ns:
        reached = record.problem.flop() / median(record.samples_ns) / 1e3
        if reached > most * (1 + ROUNDING):
            yield (
                f"{median(record.samples_ns):g} ns would be {reached:.0f} TFLOP/s, and its GPU does at most "
                f"{most:.0f}: is a time in another unit than ns?"
            )


def _contradictions(record: Record) -> Iterator[str]:
    """Figures of all samples against the samples that were kept, and against each other."""
    timing, derived = (record.raw.get(name) or {} for name in ("timing", "derived"))
    said = timing.get("median")
    if not record.samples_ns or not said:
        return
    kept_all = timing.get("kept_of") in (None, len(record.samples_ns)) and timing.get("kept_every") in (None, 1)
    of_samples = median(record.samples_ns)
    if kept_all and abs(of_samples / said - 1) > ROUNDING:
        yield f"the median is {said:g} ns, that of its samples {of_samples:g}"
    least = timing.get("min")
    if least and (min(record.samples_ns) < least * (1 - ROUNDING) or least > said):
        yield f"the shortest sample is {min(record.samples_ns):g} ns, its minimum {least:g} and its median {said:g}"
    tflops = derived.get("tflops")
    computed = record.problem.flop() / said / 1e3
    if tflops and abs(tflops / computed - 1) > ROUNDING:
        yield f"tflops is {tflops:g}, but its median of {said:g} ns makes {computed:g}"
