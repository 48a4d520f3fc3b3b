"""Runs executables and keeps records. The standard library alone: it runs on GPU machines as they are."""
