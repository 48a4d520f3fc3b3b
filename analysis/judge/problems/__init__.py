"""The problems that the judge ships, one file each."""
