"""The program of the package: relative imports, its names and arguments."""

import sys

from small import train

from . import part

print(__name__, __package__, __spec__.name, __file__, sys.argv, part.NAME, __spec__.parent)
print(repr(sys.path[0]), sys.modules["__main__"].__dict__ is globals())
train()
part.end()
