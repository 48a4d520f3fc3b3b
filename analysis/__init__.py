"""Tools that read what the build and the executables produce: `python3 -m analysis COMMAND`.

Each folder is a floor: its modules import their own floor, lower floors and the ground (errors, files, table), and no
two modules import each other, however indirectly. ladder/ runs at build time and measure/ on GPU machines as they are:
they use the standard library alone. tests/test_imports.py holds every module to that.
"""
