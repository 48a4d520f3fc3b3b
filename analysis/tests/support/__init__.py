"""Shared parts of several tests: small compiled kernels, fake programs, copies of the checkout."""
