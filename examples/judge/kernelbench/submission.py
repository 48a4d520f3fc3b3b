"""Adapter for a task in the style of KernelBench: its submission is a class ModelNew with a method forward.

Put the submission next to this file as user.py, change INPUTS to the arguments of forward, and judge the folder:

    flashladder-judge matmul examples/judge/kernelbench
"""

import user

INPUTS = ("a", "b")
model = user.ModelNew()


def custom_kernel(data):
    return model.forward(*(data[name] for name in INPUTS))
