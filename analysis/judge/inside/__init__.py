"""Modules that run in the jail, in the process of the submission. They import nothing of the judge."""
