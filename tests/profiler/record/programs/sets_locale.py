"""A locale of the program's own, and numbers that depend on it."""

import locale

from small import train

print(locale.setlocale(locale.LC_ALL))
for name in ("C.UTF-8", "de_DE.UTF-8", "C"):
    try:
        print(locale.setlocale(locale.LC_ALL, name))
    except locale.Error as error:
        print(error)
    print(f"{1234567.5:n}", locale.localeconv()["decimal_point"], locale.getpreferredencoding(False))
    train(6)
