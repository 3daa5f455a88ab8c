"""A part of the package, which is a program, too."""

import sys

from small import train

NAME = __name__


def end():
    print("end", __package__)


if __name__ == "__main__":
    from . import __doc__ as about

    print(about, __package__, __spec__.name, sys.argv[1:])
    train()
    end()
