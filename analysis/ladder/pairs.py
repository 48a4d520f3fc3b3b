"""The config that each side of a comparison of two versions uses.

    pair = pair_named("v09", "v10")
    print(pair.a, pair.b, pair.rule)

A step is judged on one config: that of the later version, where the earlier one supports it. Otherwise the step is a
flag of the config, and each side uses the config of its own header.
"""

from dataclasses import dataclass

from analysis.files import root
from analysis.ladder.config import KernelConfig, parse_config
from analysis.ladder.headers import Version, load, refusals


@dataclass(frozen=True)
class Pair:
    a: KernelConfig
    b: KernelConfig
    rule: str  # one sentence


def pair_configs(a: Version, b: Version, override: KernelConfig | None = None) -> Pair:
    if override is not None:
        return Pair(override, override, "both sides: the config asked for")
    wanted = b.header.config
    reasons = refusals(a, wanted)
    if not reasons:
        return Pair(wanted, wanted, f"both sides: the config of {b.version}")
    return Pair(
        a.header.config, wanted, f"each side its own config: {a.version} refuses that of {b.version}: {reasons[0]}"
    )


def pair_named(a: str, b: str, config: str | None = None) -> Pair:
    """The configs of two versions by name; a config overrides the rule."""
    return pair_configs(load(root(), a), load(root(), b), parse_config(config) if config else None)
