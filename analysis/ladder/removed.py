"""The versions that the ladder no longer has, and the kernel that replaces each: common/removed_versions.h.

replacement_of("v44")       # "attention/wgmma"
"""

import re
from collections.abc import Mapping
from functools import cache

from analysis.errors import AnalysisError
from analysis.files import read_text, root

LIST = "common/removed_versions.h"


@cache
def removed_versions() -> Mapping[str, str]:
    """Removed version to the kernel that replaces it."""
    found: dict[str, str] = {}
    for row in re.findall(r"^REMOVED\b.*", read_text(root() / LIST), re.MULTILINE):
        match = re.fullmatch(r'REMOVED\(([0-9]{2}), ([0-9]{2}), "([a-z0-9_/]+)"\)', row)
        if not match:
            raise AnalysisError(f'{LIST}: expected REMOVED(first, last, "replacement"), found {row}')
        found |= {f"v{number:02}": match[3] for number in range(int(match[1]), int(match[2]) + 1)}
    return found


def replacement_of(version: str) -> str:
    """The kernel that replaces a removed version; "" for any other name."""
    return removed_versions().get(version, "")
