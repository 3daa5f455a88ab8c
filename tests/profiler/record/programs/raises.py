"""An exception in a function that is not caught."""

from small import train


def inner(value):
    return 1 / value


train(10)
inner(0)
