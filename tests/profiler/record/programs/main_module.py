"""What a program sees of itself."""

import inspect
import os
import sys

from small import train

import __main__


def function():
    """Of the program."""


class Class:
    field: int = 3


folder = os.path.dirname(os.path.abspath(__file__))
print(__name__, __file__, __doc__, __package__, __spec__, type(__loader__).__name__, __builtins__ is sys.modules["builtins"])
print(sys.argv, sys.path[0] == folder, sys.path.count(folder), sys.orig_argv[-1] != "")
print(__main__.__dict__ is globals(), sys.modules["__main__"] is __main__, sorted(vars(__main__)))
print(Class.__module__, function.__module__, function.__globals__ is globals(), inspect.getsource(function), inspect.getfile(Class))
print(inspect.getmodule(Class) is __main__, function.__code__.co_filename, inspect.currentframe().f_code.co_name)
train()
