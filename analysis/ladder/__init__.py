"""What the source files say: header blocks, configurations, the rules of a version, its instances."""
