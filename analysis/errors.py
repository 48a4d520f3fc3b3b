"""The exit statuses of `python3 -m analysis` and the one exception that carries a message to the person typing.

raise AnalysisError(f"{path}:{line}: unknown key 'idae': expected one of parent, idea, ...")
"""

DONE = 0  # whatever was found
DIFFERENT = 1  # only with --exit-code: a regression or a difference
REFUSED = 2  # bad usage, input that is not understood, a tool that is not there
FAILED = 3  # the operating system or this package failed: never DIFFERENT
LEFT = 141  # the reader of standard output left, as head does: what a shell shows of a program that SIGPIPE ends


class AnalysisError(Exception):
    """Input, usage or environment that a command can't work with; ends the command with status REFUSED."""
