"""The name of a kernel: the short form of one of ours, else its demangled symbol, with its library.

    for symbol, name in names_of(symbols).items(): print(name, library_of(symbol))

`filter_by_name` chooses kernels by a regular expression, `file_part` names a file after one.
"""

import argparse
import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeVar

from analysis.errors import AnalysisError
from analysis.ladder.config import ConfigError, KernelConfig, library_of, parse_config, parse_small_kernel
from analysis.machine_code.ptxas_log import MANGLED, demangled_names

FILE_PART = 60  # characters of a name in a file name
HASH_DIGITS = 12  # of a symbol that its file name does not spell out

T = TypeVar("T")


def config_of(symbol: str) -> KernelConfig | None:
    """The configuration that a kernel's symbol spells, None when the kernel is not ours."""
    try:
        return parse_config(symbol)
    except ConfigError:
        return None


def names_of(symbols: Iterable[str]) -> dict[str, str]:
    """The name of each symbol, from one run of c++filt; where that is missing, foreign kernels keep their symbols."""
    own = {symbol: own_name(symbol) for symbol in symbols}
    foreign = "\n".join(symbol for symbol, name in own.items() if name is None)
    can = shutil.which("cu++filt") or shutil.which("c++filt")
    plain = demangled_names(foreign) if can and MANGLED.search(foreign) else {}
    return {
        symbol: name or MANGLED.sub(lambda found: plain.get(found[0], found[0]), symbol) for symbol, name in own.items()
    }


def own_name(symbol: str) -> str | None:
    """The short form of a kernel's configuration, of a small kernel with its name before it; None for others' kernels.

    "(FP16, 128, 64, 64, 4): backward_mma_sync", "row_sums of (FP16, 128, 64, 64, 4): backward_mma_sync"
    """
    config = config_of(symbol)
    small = None if config else parse_small_kernel(symbol)
    if small:
        return f"{small[0]} of {small[1].short_form()}"
    return config.short_form() if config else None


@cache  # a run of c++filt
def name_of(symbol: str) -> str:
    return names_of([symbol])[symbol]


def add_filter_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--filter", metavar="REGEX", help=f"only {what} whose symbol, name or library matches")


def filter_by_name(items: Sequence[T], symbol: Callable[[T], str], pattern: str | None, where: str) -> list[T]:
    """The kernels in whose symbol, name or library the regular expression is found; AnalysisError if there are none."""
    if pattern is None:
        return list(items)
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise AnalysisError(f"--filter {pattern}: not a regular expression: {error}") from error
    names = names_of(symbol(item) for item in items)
    fit = {each for each, name in names.items() if any(wanted.search(text) for text in (each, name, library_of(each)))}
    if not fit:
        raise AnalysisError(f"{where}: --filter {pattern} fits none of {len(items)} kernels")
    return [item for item in items if symbol(item) in fit]


def file_part(symbol: str, name: str) -> str:
    """A kernel's name as part of a file name: always the same for a symbol, and another one for each symbol.

    Symbols of C stay as they are. Other names, and long ones, are cut, and a hash of the symbol follows.
    """
    if config_of(symbol):
        return re.sub(r"[^\w+]", "_", name)
    if re.fullmatch(rf"(?!_Z)\w{{1,{FILE_PART}}}", symbol, re.ASCII):
        return symbol
    words = re.sub(r"\W+", "_", name.removeprefix("void "), flags=re.ASCII)[:FILE_PART].strip("_")
    return f"{words}.{hashlib.sha256(symbol.encode()).hexdigest()[:HASH_DIGITS]}"
