"""The exit statuses of `python3 -m analysis` and the one exception that carries a message to the person typing.

raise AnalysisError(f"{path}:{line}: unknown key 'idae': expected one of parent, idea, ...")
"""

DONE = 0  # whatever was found
DIFFERENT = 1  # only with --exit-code: a regression or a difference
REFUSED = 2  # bad usage, input that is not understood, a tool that is not there
FAILED = 3  # the operating system or this package failed: never DIFFERENT
UNKNOWN_ARCH, DAMAGED, NO_DEVICE_CODE, NOTHING_BELOW, NOTHING_IN_COMMON = 4, 5, 6, 7, 8  # kinds of bad input, below
LEFT = 141  # the reader of standard output left, as head does: what a shell shows of a program that SIGPIPE ends


class AnalysisError(Exception):
    """Input, usage or environment that a command can't work with; ends the command with its status."""

    status = REFUSED


class UnknownArchitecture(AnalysisError):
    """Machine code of an architecture that nobody here knows."""

    status = UNKNOWN_ARCH


class DamagedFile(AnalysisError):
    """A cubin that is cut short or contradicts itself."""

    status = DAMAGED


class NoDeviceCode(AnalysisError):
    """A file of neither cubins nor PTX, such as an object or an archive of host code."""

    status = NO_DEVICE_CODE


class NothingBelow(AnalysisError):
    """A folder without device code."""

    status = NOTHING_BELOW


class NothingInCommon(AnalysisError):
    """Two builds of which no kernel has a counterpart in the other."""

    status = NOTHING_IN_COMMON
