"""Tools that read what the build and the executables produce: `python3 -m analysis COMMAND`.

config, ladder and instances run at build time and on machines without packages, so they use the standard library alone.
"""
