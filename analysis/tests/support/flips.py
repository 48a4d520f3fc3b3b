"""Each field of a configuration flipped once, for tests of what versions refuse.

flipped(config, "tickets")     # the configuration without tickets, or the sentence of the rule that it breaks
"""

from analysis.ladder.config import FIELDS, TYPES, ConfigError, Dtype, KernelConfig

HALVED = ("d_head", "B_r", "B_c", "n_warps")
WHERE_ZERO = {"stages": 2, "slack": 1, "exp_columns": 16}  # of ints that may be 0; 2 for the others


def another(name: str, value: int) -> int:
    """The other value of a bool, else one that is plain for the field."""
    if TYPES[FIELDS[name].type] is bool:
        return not value
    if TYPES[FIELDS[name].type] is Dtype:
        return Dtype.BF16 if value == Dtype.FP16 else Dtype.FP16
    if name in HALVED or (name == "exp_columns" and value):
        return value // 2
    return 0 if value and name != "stages" else value + 1 if value else WHERE_ZERO.get(name, 2)


def flipped(config: KernelConfig, name: str) -> KernelConfig | str:
    """The configuration with another value of one field, and zero in those that a rule then forbids.

    The sentence of the rule that forbids the value itself.
    """
    values = {name: another(name, getattr(config, name))}
    while True:
        try:
            return config.replace(**values)
        except ConfigError as error:
            broken = str(error).split(" = ", 1)[0]
            if broken in values or broken in HALVED or not getattr(config, broken):
                return str(error)
            values[broken] = TYPES[FIELDS[broken].type](0)
