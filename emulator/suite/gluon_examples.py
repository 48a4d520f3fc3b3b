# mypy: ignore-errors
"""Gluon's examples for Blackwell, from a checkout of Triton: small cases of their own tests.

python gluon_examples.py FOLDER
"""

import sys

from gluon_tutorials import main

# File to the cases that take seconds here, as pytest selects them by -k.
EXAMPLES = {
    "01-attention-forward.py": "test_op and False-64-1024-32-1 and (1cta or 2ctas) and not dtype1",
    "03-matmul-multicta.py": "2-2-CGA and 8-0-",
    "04-2cta-block-scale-matmul.py": "256-256-640 and scheduler0",
}

if __name__ == "__main__":
    main(sys.argv[1], "python/examples/gluon", EXAMPLES)
