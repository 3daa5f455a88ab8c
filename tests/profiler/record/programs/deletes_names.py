"""A program that clears its own module at its end and is imported by its functions."""

import sys

from small import train


def work():
    import __main__

    return __main__.value, sys.modules["__main__"].__name__


value = 5
train()
print(work())
for name in [name for name in list(globals()) if not name.startswith("__") and name not in ("sys", "name")]:
    del globals()[name]
print(sorted(globals()))
