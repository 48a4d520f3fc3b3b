"""nearest.py WORD NAME...: prints the names that WORD may mean, the best first; none if it resembles none.

A version may be written in capitals or without its zero: V7 means v07.
"""

import difflib
import re
import sys


def nearest(word: str, names: list[str]) -> list[str]:
    plain = re.sub(r"^([vbf])([0-9][a-z]?)$", r"\g<1>0\2", word.lower())
    return [plain] if plain in names else difflib.get_close_matches(plain, names)


if __name__ == "__main__":
    print(*nearest(sys.argv[1], sys.argv[2:]))
