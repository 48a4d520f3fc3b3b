"""Programs for those who develop this project: mutants of the code, and what the parsers recognise in a file."""
