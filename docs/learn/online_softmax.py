"""Online softmax by hand: one row of attention, two keys at a time, in plain Python.

python3 docs/learn/online_softmax.py
"""

from math import exp, inf

SCORES = (1.0, 3.0, 2.0, 5.0, 4.0, 0.0)  # of one query with six keys
VALUES = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0)  # one column of V
BLOCK = 2  # keys


def at_once() -> float:
    """The softmax-weighted mean of the values, with all scores at hand."""
    most = max(SCORES)
    weights = [exp(score - most) for score in SCORES]
    return sum(weight * value for weight, value in zip(weights, VALUES, strict=True)) / sum(weights)


def main() -> None:
    m, l, O = -inf, 0.0, 0.0  # noqa: E741 - the names of the kernels
    print("block  scores        m   factor       l        O    O / l")
    for block in range(len(SCORES) // BLOCK):
        S = SCORES[BLOCK * block : BLOCK * (block + 1)]
        V = VALUES[BLOCK * block : BLOCK * (block + 1)]
        m_old, m = m, max(m, *S)
        factor = exp(m_old - m)
        P = [exp(score - m) for score in S]
        l = l * factor + sum(P)  # noqa: E741
        O = O * factor + sum(p * v for p, v in zip(P, V, strict=True))  # noqa: E741
        print(f"{block:5}  {S[0]:.0f} {S[1]:.0f}  {m:9.0f} {factor:8.3f} {l:7.3f} {O:8.3f} {O / l:8.3f}")
    print(f"all scores at once: {at_once():.3f}")


if __name__ == "__main__":
    main()
