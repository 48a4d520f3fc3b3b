"""Tests of the judge of submitted kernels."""
