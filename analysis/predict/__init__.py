"""Cycles of kernels without a GPU: an issue model of one multiprocessor, and of a launch on all of them."""
