"""Tools that read what the build and the executables produce: `python3 -m analysis COMMAND`.

Each folder is a floor, and imports go down only: ladder, machine_code, measure, emulate, publish. What all floors share
stands beside them: errors, files, table. ladder/ runs at build time and measure/ on GPU machines as they are: they use
the standard library alone.
"""
