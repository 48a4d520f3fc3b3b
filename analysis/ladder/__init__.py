"""The contents of the source files: header blocks, configurations, the rules of a version, its instances."""
