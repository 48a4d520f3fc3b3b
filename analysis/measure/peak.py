"""The speed of wgmma on this GPU: `python3 -m analysis peak` runs bin/peak and keeps its output.

The record, logs/bench/wgmma.GPU.json, is what bounds of machine code for sm_90a are made of.
"""

import argparse
import sys

from analysis.errors import DONE
from analysis.measure import microbenchmarks
from analysis.measure.executables import CANNOT_RUN, NoGpu


def add_peak_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the record and save nothing")


def run_peak(args: argparse.Namespace) -> int:
    try:
        record = microbenchmarks.measured("peak")
    except NoGpu as error:
        print(error, file=sys.stderr)
        return CANNOT_RUN
    if args.json:
        print(microbenchmarks.record_text(record), end="")
    else:
        print(f"{microbenchmarks.keep('wgmma', record)}: {len(record['wgmma'])} measurements")
    return DONE
