"""The widths of a network as text: ``784-10-10``, with the number of samples ``784-10-10@59000``."""

from __future__ import annotations

from rooflines.arguments import arg
from rooflines.errors import UsageError

CLASSES = 10


def parse_widths(text: str, name: str = "widths") -> tuple[int, ...]:
    """Return the widths of the input, the hidden layers and the classes in ``text``, the option ``name``; raises UsageError."""
    given = arg("set", f"{name}={text}")
    widths = tuple(_positive(width, f"{given}: a width") for width in text.split("-"))
    if len(widths) < 2:
        raise UsageError(f"{given} has too few layers.", hint="Give at least inputs and classes, for example 784-10-10.")
    if widths[-1] < CLASSES:
        raise UsageError(
            f"{given}: the last width must be {CLASSES} (the number of classes), got {widths[-1]}.", hint="For example: 784-10-10"
        )
    return widths


def parse_size(text: str) -> tuple[tuple[int, ...], int]:
    """Return the widths and the number of samples in ``784-10-10@59000``; raises UsageError for anything else."""
    widths, _, samples = text.partition("@")
    return parse_widths(widths, "size"), _positive(samples, f"{arg('set', f'size={text}')}: the samples behind @")


def _positive(text: str, what: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"{what} must be a positive integer, got {text!r}.", hint="For example: 784-10-10@59000")
    return number
