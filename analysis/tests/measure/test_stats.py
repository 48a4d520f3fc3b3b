"""Statistics on synthetic samples: known shifts, drift, throttling, and the honesty of the intervals."""

import math
import random
import statistics

import pytest

from analysis.measure import stats
from analysis.measure.compare import ROUNDS
from analysis.measure.stats import Round

HZ = 1.7e9


def rounds(
    ns: float,
    count: int,
    seed: int,
    run: str = "r",
    noise: float = 0.003,
    hz: float = HZ,
    drift: float = 0.0,
    discarded: int = 0,
    samples: int = 12,
) -> dict[tuple[str, int], Round]:
    """Rounds around one time: noise from round to round, less within a round; drift a round slows clock and kernel."""
    draw = random.Random(seed)
    table = {}
    for number in range(1, count + 1):
        slow = (1 + drift) ** number
        middle = ns * slow * draw.gauss(1, noise)
        times = tuple(middle * draw.gauss(1, noise / 3) for _ in range(samples))
        table[run, number] = Round(times, (hz / slow,) * samples, discarded)
    return table


@pytest.mark.parametrize(
    ("freedom", "confidence", "t"),
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (10, 0.95, 2.228), (1, 0.99, 63.657), (9, 0.99, 3.250), (3, 0.999, 12.924)],
)
def test_quantiles_of_printed_tables(freedom: int, confidence: float, t: float) -> None:
    assert stats.student_t(freedom, confidence) == pytest.approx(t, abs=6e-4)
    assert stats.student_t(10_000) == stats.student_t(stats.MOST_FREEDOM)


def test_noise_by_hand() -> None:
    """√(π/2)·σ/√n of normal values, whose quartiles are 1.349 σ apart."""
    told = math.sqrt(math.pi / 2) * (4 - 2) / 1.349 / math.sqrt(5) / 3
    assert stats.noise([5.0, 1.0, 3.0, 2.0, 4.0]) == pytest.approx(told, rel=1e-4)
    assert stats.noise([1.0, 2.0, 3.0]) == pytest.approx(told * math.sqrt(5 / 3) * 1.5 / 2, rel=1e-4)


def test_geometric_interval_covers_the_true_ratio() -> None:
    draw = random.Random(11)
    held = 0
    for _ in range(400):
        interval = stats.geometric_interval([1.05 * draw.gauss(1, 0.01) for _ in range(5)])
        held += interval.low <= 1.05 <= interval.high
    assert 0.92 <= held / 400 <= 0.98


def stepped(ns: float, steps: list[int]) -> dict[tuple[str, int], Round]:
    """A kernel whose clock was lower by 1 % in the rounds that are 1."""
    return {("r", number): Round((ns * (1.01 if low else 1.0),) * 5) for number, low in enumerate(steps)}


def test_intervals_with_the_scatter_of_the_run_cover_the_true_ratio() -> None:
    """Clocks that step by 1 % in a third of the rounds: all intervals of the run are about as wide, and cover."""
    draw = random.Random(2)
    covered, widths, count = 0, [], 300
    true = 10 / 9
    for _ in range(count):
        sides = [stepped(1000 - 100 * (i == 1), [draw.random() < 1 / 3 for _ in range(3)]) for i in range(12)]
        found = stats.ratio(sides[0], sides[1], of_run=stats.scatter([sides[0], *sides[2:]]))
        assert found
        covered += found[0].low <= true <= found[0].high
        widths.append(found[0].high - found[0].low)
    assert covered / count >= 0.93
    assert max(widths) < 2 * min(widths)


@pytest.mark.parametrize(("shift", "word"), [(1.0, "SAME"), (0.9, "FASTER"), (1.1, "SLOWER"), (0.97, "FASTER")])
def test_known_shifts_are_found(shift: float, word: str) -> None:
    verdict = stats.compare(rounds(1000, 6, 1), rounds(1000 * shift, 6, 2))
    assert verdict.word == word
    assert verdict.paired and verdict.rounds == 6
    assert verdict.speedup.low <= 1 / shift * 1.004 and verdict.speedup.high >= 1 / shift * 0.996


def test_same_means_that_the_whole_interval_is_within_the_tolerance() -> None:
    assert stats.speed_word(stats.Interval(0.991, 0.993, 0.996)) == "SAME"
    assert stats.speed_word(stats.Interval(0.991, 0.993, 0.996), 0.004) == "SLOWER"
    assert stats.speed_word(stats.Interval(0.989, 0.993, 0.996)) == "UNSURE", "0.993 for sure would be SAME"
    assert stats.speed_word(stats.Interval(0.985, 0.989, 0.996)) == "SLOWER"
    assert stats.speed_word(stats.Interval(1.0002, 1.006, 1.012)) == "UNSURE"
    assert stats.speed_word(stats.Interval(1.0002, 1.011, 1.022)) == "FASTER"
    assert stats.speed_word(stats.Interval(1.001, 1.012, 1.021)) == "FASTER"
    assert stats.speed_word(stats.Interval(0.989, 1.0, 1.004)) == "UNSURE"


SCATTER = 0.0052  # of the rounds of an H200


def words_of(shift: float, count: int, runs: int) -> list[str]:
    draw = random.Random(7)

    def side(ns: float) -> dict[tuple[str, int], Round]:
        return {("r", number): Round((ns * draw.gauss(1, SCATTER),)) for number in range(count)}

    return [stats.compare(side(1000), side(1000 / shift)).word for _ in range(runs)]


@pytest.mark.parametrize("count", [3, 6, 10])
def test_of_a_thousand_comparisons_of_equals_one_percent_is_wrong(count: int) -> None:
    words = words_of(1.0, count, 1000)
    assert words.count("FASTER") + words.count("SLOWER") <= 10


def looked_at(shift: float, runs: int, same_within: float = stats.SAME_WITHIN) -> list[tuple[str, int]]:
    """The word of each measurement and after how many rounds it ended."""
    draw = random.Random(11)
    found = []
    for _ in range(runs):
        sides = [
            {("r", number): Round((ns * draw.gauss(1, SCATTER),)) for number in range(ROUNDS)}
            for ns in (1000, 1000 / shift)
        ]
        for count, share in stats.looks(ROUNDS).items():
            one, other = ({key: side[key] for key in list(side)[:count]} for side in sides)
            word = stats.compare(one, other, same_within, share).word
            if word != "UNSURE" or count == ROUNDS:
                found.append((word, count))
                break
    return found


def test_looking_early_is_wrong_no_more_often() -> None:
    """Also where SAME is hardly ever said, so that every look may err."""
    for same_within in (stats.SAME_WITHIN, 1e-6):
        words = [word for word, _ in looked_at(1.0, 1000, same_within)]
        assert words.count("FASTER") + words.count("SLOWER") <= 10


def test_the_rounds_that_are_needed_are_enough() -> None:
    """Scatter and mean, computed by hand: 0.5 % and 0, whose half-width at 3 rounds is 4.303 · 0.5 % / √3."""
    half = math.exp(4.303 * 0.005 / math.sqrt(3))
    assert stats.rounds_needed(stats.Interval(1 / half, 1.0, half), 3, 0.01) == 4
    assert stats.rounds_needed(stats.Interval(0.5, 1.0, 2.0), 3, 1e-4) is None
    assert stats.rounds_needed(stats.Interval(0.99, 1.0, 1.01), 1, 0.01) is None
    wide = stats.Interval(1.02 / half**2, 1.02, 1.02 * half**2)  # 1 % scatter: 4 rounds have 5.841 · 1 % / 2
    assert stats.rounds_needed(wide, 3, 0.01) == 6


def stepping(ns: float, clocks: list[float]) -> dict[tuple[str, int], Round]:
    """Rounds of a kernel with a fixed number of cycles at clocks that step from round to round."""
    return {("r", i): Round((ns * HZ / hz,) * 5, (hz,) * 5) for i, hz in enumerate(clocks)}


def test_equal_cycles_at_clocks_that_step_are_the_same() -> None:
    clocks = [1.635e9, 1.665e9, 1.649e9, 1.665e9, 1.635e9]
    verdict = stats.compare(stepping(1000, clocks), stepping(1001, clocks[::-1][1:] + clocks[:1]))
    assert verdict.word == "SAME"
    assert "same number of cycles" in verdict.reason
    assert not (verdict.speedup.low > 0.99 and verdict.speedup.high < 1.01)
    other = stats.compare(stepping(1000, clocks), stepping(1015, clocks[::-1][1:] + clocks[:1]))
    assert other.word != "SAME"


def test_between_runs_without_clocks_nothing_is_concluded() -> None:
    strip = {key: Round(one.samples_ns) for key, one in rounds(900, 6, 2, run="b").items()}
    verdict = stats.compare(rounds(1000, 6, 1, run="a"), strip)
    assert verdict.word == "UNSURE"
    assert "without clocks" in verdict.reason


def test_a_clock_that_follows_the_kernel_counts_within_rounds() -> None:
    verdict = stats.compare(rounds(1000, 6, 1), rounds(1100, 6, 2, hz=HZ / 1.1))
    assert verdict.word == "SLOWER"
    assert verdict.clock_ratio == pytest.approx(1 / 1.1)


def test_throttled_samples_give_no_verdict() -> None:
    verdict = stats.compare(rounds(1000, 6, 1), rounds(800, 6, 2, discarded=20))
    assert verdict.word == "UNSURE"
    assert "discarded" in verdict.reason


def test_welch_interval_by_hand() -> None:
    """The textbook's degrees of freedom, (a + b)² / (a²/(m-1) + b²/(n-1)) with a and b the squared standard errors."""
    first, second = [1.0, 1.1, 1.3], [2.0, 2.1, 2.05, 2.2]
    a, b = (statistics.variance([math.log(value) for value in group]) / len(group) for group in (first, second))
    freedom = (a + b) ** 2 / (a**2 / 2 + b**2 / 3)
    assert 2 < freedom < 3
    half = 4.30265273 * math.sqrt(a + b)  # t(2)
    interval = stats.welch_ratio(first, second)
    assert interval.high / interval.mid == pytest.approx(math.exp(half), rel=1e-9)
    assert interval.mid / interval.low == pytest.approx(math.exp(half), rel=1e-9)


def test_the_bootstrap_interval_by_hand() -> None:
    """The median of n draws of 1 to n is at most k where more than half of them are: a binomial tail."""
    n = 17

    def at_most(k: int) -> float:
        return sum(math.comb(n, hits) * (k / n) ** hits * (1 - k / n) ** (n - hits) for hits in range(9, n + 1))

    assert at_most(4) < 0.01 and 0.03 < at_most(5) < 0.04  # so 2.5 % of the medians are below 5, and as many above 13
    interval = stats.bootstrap_ratio([2.0 * value for value in range(1, n + 1)], [2.0, 2.0])
    assert (interval.low, interval.mid, interval.high) == (5, 9, 13)


def test_two_rounds_side_by_side_are_paired() -> None:
    """Clocks fell by a third between the rounds: within each the second is faster by exactly a tenth."""
    first = {("r", number): Round((ns,) * 5) for number, ns in ((1, 1000.0), (2, 1500.0))}
    second = {key: Round(tuple(0.9 * ns for ns in one.samples_ns)) for key, one in first.items()}
    verdict = stats.compare(first, second)
    assert (verdict.word, verdict.rounds, verdict.paired) == ("FASTER", 2, True)
