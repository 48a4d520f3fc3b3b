"""Runs executables on the emulator and reads what it counts and dumps."""
