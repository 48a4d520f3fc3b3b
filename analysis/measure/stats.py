"""Statistics of timings: medians with intervals, ratios by round, and the verdict of a comparison.

    verdict = compare(before, after)     # FASTER, SLOWER, SAME or UNSURE, with the ratio's interval and the reason

Clocks of a GPU drift with heat and power, so what counts is the ratio taken within a round, where both sides were run
within seconds of each other. Several rounds give several independent ratios, and their spread is the interval. The
spread of three rounds may be zero by chance, since clocks move by steps: where a run holds more subjects, the spread
is that of all of them. Times are in nanoseconds, clocks in hertz, intervals at 95 % confidence.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95  # of intervals
SURE = 0.99  # of those that FASTER and SLOWER need, so that one of a hundred comparisons of equals is called either
# Looks at a measurement under way: after which share of its rounds, and which share of the errors that 95 % and 99 %
# leave is spent there. The shares add up to one, so that all looks together are wrong as often as a single one may be.
LOOKS = ((0.4, 0.1), (0.7, 0.2), (1.0, 0.7))
MOST_FREEDOM = 30  # of quantiles: from there on the last value is close enough
MOST_ROUNDS = 1000  # that are said to be needed
BOOTSTRAP_DRAWS = 1000
SAME_WITHIN = 0.01  # ratios this near to 1 are called the same
UNLIKE = 3.0  # a subject whose rounds spread this many times as far as the others' is not like them
DISCARDED_MOST = 0.5  # with more samples than this share thrown away for low clocks, nothing is concluded


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its 95 % interval."""

    low: float
    mid: float
    high: float

    def inverse(self) -> "Interval":
        return Interval(1 / self.high, 1 / self.mid, 1 / self.low)

    def __str__(self) -> str:
        return f"{self.mid:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def plus_minus(self) -> str:
        """For tables: the estimate ± half the width of the interval."""
        half = (self.high - self.low) / 2
        return f"{self.mid:.3f} ± {half:.3f}" if half >= 0.0005 else f"{self.mid:.3f} ± < 0.0005"


@dataclass(frozen=True)
class Round:
    """The samples of one side in one round."""

    samples_ns: tuple[float, ...]
    sm_clock_hz: tuple[float, ...] = ()
    discarded: int = 0
    timed: int = 0  # how many samples samples_ns was chosen from; 0: it holds all of them

    def median_ns(self) -> float:
        return median(self.samples_ns)

    def median_cycles(self) -> float | None:
        """Median of time times clock; None without clocks."""
        if len(self.sm_clock_hz) != len(self.samples_ns):
            return None
        return median([ns * hz / 1e9 for ns, hz in zip(self.samples_ns, self.sm_clock_hz, strict=True)])


# A side of a comparison: its rounds by (run id, round number). Equal keys were measured side by side.
Series = Mapping[tuple[str, int], Round]


@dataclass(frozen=True)
class Scatter:
    """Standard deviation of the logarithms of times, and the degrees of freedom that it is known with."""

    deviation: float
    freedom: int


@dataclass(frozen=True)
class Verdict:
    """`word` is about the second side; `speedup` is time of the first over time of the second."""

    word: str
    speedup: Interval
    rounds: int
    paired: bool
    clock_ratio: float | None  # median SM clock of the second side over that of the first
    same_within: float  # the tolerance: how far from 1 the interval of SAME may reach
    reason: str


def quantile(values: Sequence[float], fraction: float) -> float:
    """Linear interpolation between order statistics (type 7 of Hyndman and Fan)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    location = fraction * (len(ordered) - 1)
    below = math.floor(location)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (location - below)


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def noise(values: Sequence[float]) -> float:
    """Relative standard error of the median, the executables' own rule: 1.2533·σ/√n with σ = IQR/1.349."""
    if len(values) < 3:
        return math.inf
    spread = (quantile(values, 0.75) - quantile(values, 0.25)) / 1.349
    return 1.2533 * spread / math.sqrt(len(values)) / median(values)


@cache
def student_t(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The two-sided quantile of Student's t: what its absolute value stays below with this probability."""
    low, high = 0.0, 1.0
    while student_within(high, freedom) < confidence:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_within(middle, freedom) < confidence else (low, middle)
    return high


def student_within(t: float, freedom: int) -> float:
    """The probability of an absolute value of at most t: Abramowitz and Stegun 26.7.3 and 26.7.4."""
    freedom = min(freedom, MOST_FREEDOM)
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    term = total = math.cos(angle) if freedom % 2 else 1.0
    if freedom == 1:
        total = 0.0
    for k in range(2 + freedom % 2, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    part = math.sin(angle) * total
    return 2 / math.pi * (angle + part) if freedom % 2 else part


def surer(interval: Interval, rounds: int, confidence: float = SURE) -> Interval:
    """The interval of another confidence, of an estimate from some rounds, or from the samples of one."""
    freedom = rounds - 1 or 30
    wider = student_t(freedom, confidence) / student_t(freedom)
    low, high = (interval.mid * (end / interval.mid) ** wider for end in (interval.low, interval.high))
    return Interval(low, interval.mid, high)


def looks(rounds: int) -> dict[int, float]:
    """After which rounds to look, and the share of the errors to spend there; a single look where there are few."""
    if rounds < 2 / LOOKS[0][0]:
        return {rounds: 1.0}
    return {math.ceil(part * rounds): share for part, share in LOOKS}


def rounds_needed(interval: Interval, rounds: int, same_within: float) -> int | None:
    """Rounds that decide at the scatter of these: whose 95 % interval fits into the tolerance, and whose 99 % interval
    leaves 1 out if the estimate is beyond it. None for more than MOST_ROUNDS, or after a single round.
    """
    if rounds < 2:
        return None
    deviation = math.log(interval.high / interval.low) / 2 / student_t(rounds - 1) * math.sqrt(rounds)
    shift = abs(math.log(interval.mid))
    beyond = shift > math.log(1 + same_within)
    room, confidence = (shift, SURE) if beyond else (math.log(1 + same_within) - shift, CONFIDENCE)
    least = (student_t(MOST_FREEDOM, confidence) * deviation / room) ** 2 if room else math.inf
    if least > MOST_ROUNDS:
        return None
    for count in range(max(rounds, math.floor(least)) + 1, MOST_ROUNDS + 1):
        if student_t(min(count - 1, MOST_FREEDOM), confidence) * deviation <= room * math.sqrt(count):
            return count
    return None


def geometric_interval(ratios: Sequence[float], of_run: Scatter | None = None) -> Interval:
    """Geometric mean of ratios and its t interval on the logarithms; needs two ratios or more.

    `of_run` is the scatter of the times of the other subjects in the same rounds. It gives the width, unless the ratios
    themselves spread so much further that the subject is not like the others.
    """
    logs = [math.log(ratio) for ratio in ratios]
    count = len(logs)
    if count < 2:
        raise ValueError("an interval from rounds needs at least two of them")
    mean = sum(logs) / count
    spread = Scatter(math.sqrt(sum((value - mean) ** 2 for value in logs) / (count - 1)), count - 1)
    if of_run is not None and of_run.freedom > spread.freedom:
        of_ratio = Scatter(math.sqrt(2) * of_run.deviation, of_run.freedom)  # both of its times scatter
        spread = spread if spread.deviation > UNLIKE * of_ratio.deviation else of_ratio
    half = student_t(spread.freedom) * spread.deviation / math.sqrt(count)
    return Interval(math.exp(mean - half), math.exp(mean), math.exp(mean + half))


def scatter(sides: Sequence[Series]) -> Scatter | None:
    """The residual of the times that neither the side nor the round explains, over sides that were measured in the same
    rounds.

    The residual of a randomized complete block design, whose blocks are the rounds; with two sides it is the deviation
    of their paired ratios over √2. None with fewer than two sides or two rounds.
    """
    keys = sorted(sides[0]) if sides else []
    if len(sides) < 2 or len(keys) < 2:
        return None
    logs = [[math.log(side[key].median_ns()) for key in keys] for side in sides]
    of_side = [sum(row) / len(keys) for row in logs]
    of_round = [sum(column) / len(sides) for column in zip(*logs, strict=True)]
    middle = sum(of_side) / len(sides)
    squares = sum(
        (value - mine - common + middle) ** 2
        for row, mine in zip(logs, of_side, strict=True)
        for value, common in zip(row, of_round, strict=True)
    )
    freedom = (len(sides) - 1) * (len(keys) - 1)
    return Scatter(math.sqrt(squares / freedom), freedom)


def bootstrap_ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 1) -> Interval:
    """Ratio of medians, with the interval of its bootstrap distribution. Knows nothing of drift between the two."""
    top, bottom = sorted(numerator), sorted(denominator)
    ratios = [(top[a] + top[b]) / (bottom[c] + bottom[d]) for a, b, c, d in _middles_drawn(len(top), len(bottom), seed)]
    return Interval(quantile(ratios, 0.025), median(numerator) / median(denominator), quantile(ratios, 0.975))


@cache
def _middles_drawn(tops: int, bottoms: int, seed: int) -> list[tuple[int, int, int, int]]:
    """The ranks, among sorted values, of the two middle values of either side in each resampling (one twice, if odd).

    They depend on the numbers of values alone: most rounds have as many.
    """
    draw = random.Random(seed)

    def middle(count: int) -> tuple[int, int]:
        locations = sorted(draw.choices(range(count), k=count))
        return locations[(count - 1) // 2], locations[count // 2]

    return [(*middle(tops), *middle(bottoms)) for _ in range(BOOTSTRAP_DRAWS)]


def welch_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Interval:
    """Ratio of geometric means of two unpaired groups, each of two values or more, with Welch's interval."""
    logs = [[math.log(value) for value in group] for group in (numerator, denominator)]
    means = [sum(group) / len(group) for group in logs]
    errors = [
        sum((value - mean) ** 2 for value in group) / (len(group) - 1) / len(group)
        for group, mean in zip(logs, means, strict=True)
    ]
    total = sum(errors)
    spread = sum(error**2 / (len(group) - 1) for error, group in zip(errors, logs, strict=True))
    freedom = max(1, int(total**2 / spread)) if spread else MOST_FREEDOM
    half = student_t(freedom) * math.sqrt(total)
    middle = means[0] - means[1]
    return Interval(math.exp(middle - half), math.exp(middle), math.exp(middle + half))


def ratio(
    numerator: Series, denominator: Series, cycles: bool = False, of_run: Scatter | None = None
) -> tuple[Interval, int, bool] | None:
    """Time (or cycles) of one side over the other's: interval, number of rounds, and whether the rounds were paired.

    Rounds with the same key are paired, and `of_run` is as in geometric_interval. Without two pairs, unpaired rounds
    are compared (Welch), and with a single round a side its samples are. None when there is nothing to compare, or no
    clocks for cycles.
    """

    def figure(one: Round) -> float | None:
        return one.median_cycles() if cycles else one.median_ns()

    common = [key for key in numerator if key in denominator]
    pairs = [(figure(numerator[key]), figure(denominator[key])) for key in common]
    ratios = [a / b for a, b in pairs if a is not None and b is not None]
    if len(ratios) >= 2:
        return geometric_interval(ratios, of_run), len(ratios), True
    tops = [value for value in map(figure, numerator.values()) if value is not None]
    bottoms = [value for value in map(figure, denominator.values()) if value is not None]
    if len(tops) >= 2 and len(bottoms) >= 2:
        return welch_ratio(tops, bottoms), min(len(tops), len(bottoms)), False
    if not tops or not bottoms:
        return None
    top, bottom = next(iter(numerator.values())), next(iter(denominator.values()))
    return bootstrap_ratio(_samples(top, cycles), _samples(bottom, cycles)), 1, False


def _samples(one: Round, cycles: bool) -> list[float]:
    if not cycles:
        return list(one.samples_ns)
    return [ns * hz / 1e9 for ns, hz in zip(one.samples_ns, one.sm_clock_hz, strict=True)]


def speed_word(
    speedup: Interval, same_within: float = SAME_WITHIN, rounds: int | None = None, share: float = 1.0
) -> str:
    """SAME when the entire interval is within the tolerance of 1; else FASTER or SLOWER when all of it is on one
    side of 1 and its middle outside of the tolerance; else UNSURE. With a number of rounds the side needs the 99 %
    interval, and with a share of the errors both need intervals that leave no more than that.
    """
    same = speedup if share == 1 or rounds is None else surer(speedup, rounds, 1 - share * (1 - CONFIDENCE))
    if 1 - same_within <= same.low and same.high <= 1 + same_within:
        return "SAME"
    one_side = speedup if rounds is None else surer(speedup, rounds, 1 - share * (1 - SURE))
    if one_side.low > 1 and speedup.mid > 1 + same_within:
        return "FASTER"
    return "SLOWER" if one_side.high < 1 and speedup.mid < 1 - same_within else "UNSURE"


def compare(first: Series, second: Series, same_within: float = SAME_WITHIN, share: float = 1.0) -> Verdict:
    """Is the second side faster? Raises ValueError when a side holds no samples. `share` is as in speed_word.

    Within paired rounds a lasting difference of clocks is the kernels' own doing (power), so time decides; where time
    can't tell and is near 1, equal cycles do. Between runs a difference of clocks may be the machine's state: then time
    and cycles must agree, or the verdict is UNSURE.
    """
    measured = ratio(first, second)
    if measured is None:
        raise ValueError("nothing to compare")
    speedup, rounds, paired = measured
    clock_ratio = _clock_ratio(first, second)
    within = f"within {100 * same_within:g} % of 1"

    def verdict(word: str, reason: str) -> Verdict:
        return Verdict(word, speedup, rounds, paired, clock_ratio, same_within, reason)

    for name, side in (("first", first), ("second", second)):
        lost = _discarded_share(side)
        if lost > DISCARDED_MOST:
            return verdict("UNSURE", f"{lost:.0%} of the {name} side's samples were discarded because of low clocks")
    word = speed_word(speedup, same_within, rounds, share)
    if word == "UNSURE":
        in_cycles = ratio(first, second, cycles=True) if paired and abs(speedup.mid - 1) <= same_within else None
        if in_cycles is None or speed_word(in_cycles[0], same_within, in_cycles[1], share) != "SAME":
            needed = rounds_needed(speedup, rounds, same_within)
            measure = f"about {needed} rounds would decide" if needed else "measure more rounds"
            return verdict(word, f"the 99 % interval holds 1, the 95 % interval is not {within}: {measure}")
        clock = "the times differ with the clock, which moves by steps"
        return verdict("SAME", f"the same number of cycles, {within} ({in_cycles[0]}); {clock}")
    said = f"by {100 * abs(speedup.mid - 1):.1f} %; " if word != "SAME" else f"the whole interval is {within}; "
    if paired:
        return verdict(word, f"{said}{rounds} rounds measured side by side")
    in_cycles = ratio(first, second, cycles=True)
    if in_cycles is None:
        return verdict("UNSURE", "not measured side by side, and without clocks a change of clock can't be told from a "
                                 "change of speed")  # fmt: skip
    cycles_word = speed_word(in_cycles[0], same_within, rounds)
    if cycles_word != word:
        reason = f"not measured side by side: {word} in time but {cycles_word} in cycles ({in_cycles[0]})"
        return verdict("UNSURE", reason)
    return verdict(word, f"{said}not measured side by side; time and cycles agree")


def _clock_ratio(first: Series, second: Series) -> float | None:
    clocks = [[hz for one in side.values() for hz in one.sm_clock_hz] for side in (first, second)]
    return median(clocks[1]) / median(clocks[0]) if all(clocks) else None


def _discarded_share(side: Series) -> float:
    discarded = sum(one.discarded for one in side.values())
    used = sum(one.timed or len(one.samples_ns) for one in side.values())
    return discarded / (discarded + used) if discarded else 0.0
