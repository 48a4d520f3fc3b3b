"""Shared parts of several tests: small compiled kernels, stand-ins for programs, copies of the checkout."""
