"""Programs for those who develop this project: notebooks, and what the parsers recognize in a file."""
