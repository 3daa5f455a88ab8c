"""The only place that formats and parses SI prefixes.

Everywhere else numbers are floats or integers in SI base units (seconds, bytes, FLOP, watts, hertz). Memory
sizes use binary prefixes (GiB) because that is how memory is sold and reported; rates use decimal ones
(GB/s).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial

_DECIMAL = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)
_BINARY = ((1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"), (1, ""))


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant figures and no exponent: 0.0123, 1.23, 12.3, 1230."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - magnitude)
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, digits - 1 - magnitude)}f}"


def si(value: float, unit: str, digits: int = 3) -> str:
    """``value`` in ``unit`` with a decimal prefix: ``si(4.6e11, "FLOP/s")`` is ``460 GFLOP/s``."""
    if value == 0 or not math.isfinite(value):
        return f"{significant(value)} {unit}".rstrip()
    for factor, prefix in _DECIMAL:
        if abs(value) < 0.9 * factor:  # rounds to less than one
            continue
        scaled = significant(value / factor, digits)
        if abs(float(scaled)) >= 1:
            return f"{scaled} {prefix}{unit}".rstrip()
    factor, prefix = _DECIMAL[-1]
    return f"{significant(value / factor, digits)} {prefix}{unit}"


def scale(value: float) -> tuple[float, str]:
    """The factor and prefix to show a whole column or axis in, chosen for its largest ``value``: ``(1e9,
    "G")`` for 4.6e11."""
    if value == 0 or not math.isfinite(value):
        return 1.0, ""
    return next(((factor, prefix) for factor, prefix in _DECIMAL if abs(value) >= factor), _DECIMAL[-1])


def binary_bytes(value: float, digits: int = 3) -> str:
    """A memory size with a binary prefix: ``binary_bytes(2**30)`` is ``1.00 GiB``."""
    factor, prefix = binary_scale(value)
    return f"{significant(value / factor, digits)} {prefix}B"


def binary_scale(value: float) -> tuple[float, str]:
    """The binary prefix of a memory size with its factor; 1 and no prefix below 1 KiB."""
    return next(((factor, prefix) for factor, prefix in _BINARY if abs(value) >= factor), (1.0, ""))


def seconds(value: float, digits: int = 3) -> str:
    """A duration: ``1.43 s``, ``12.3 ms``, ``4.50 µs``, ``2 min 05 s``."""
    if value >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest:02d} s"
    if value >= 1:
        return f"{significant(value, digits)} s"
    return si(value, "s", digits)


def percent(fraction: float, digits: int = 0) -> str:
    """A share: ``percent(0.783)`` is ``78 %``; a share that rounds to nothing but is not nothing is ``<1
    %``."""
    smallest = 10.0**-digits
    if 0 < fraction * 100 < smallest / 2:
        return f"<{smallest:.{digits}f} %"
    return f"{fraction * 100:.{digits}f} %"


def known_to(error: float) -> str:
    """How well a value with this relative ``error`` is known: ``known to ±40 % only``, ``not known`` of more
    than ±100 %."""
    return f"known to ±{percent(error)} only" if error <= 1 else "not known"


def plus_minus(value: float, low: float, high: float, text: Callable[[float], str]) -> str:
    """The interval of a positive ``value``: ``±2 %``; of more than ±100 % its ends: ``95 % interval 8.00 ms
    to 130 ms``."""
    error = max(high - value, value - low) / value
    return f"±{percent(error)}" if error <= 1 else f"95 % interval {interval(low, high, text)}"


def interval(low: float | None, high: float | None, text: Callable[[float], str] = significant) -> str:
    """The ends of an interval of a positive value: ``1.20 to 3.40``, ``at most 3.40``, ``at least 1.20``;
    empty without any."""
    if low and high:
        return f"{text(low)} to {text(high)}"
    return f"at most {text(high)}" if high else f"at least {text(low)}" if low else ""


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 step``, ``3 steps``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sentence(text: str) -> str:
    """``text`` with a capital letter and a full stop; empty for nothing."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _plain(value: float) -> str:
    """Three significant figures, with separators of thousands."""
    return f"{float(significant(value)):,.0f}" if abs(value) >= 100 else significant(value)


# The units that ``quantity`` has a form of its own for.
UNITS: dict[str, Callable[[float], str]] = {
    "": lambda value: f"{value:,}" if isinstance(value, int) else _plain(value),
    "1": percent,
    "B": binary_bytes,
    "s": seconds,
    "cores": lambda value: f"{significant(value, 2)} cores",
    "°C": lambda value: f"{value:.0f} °C",
    **{unit: partial(si, unit=unit) for unit in ("W", "J", "Hz", "B/s", "FLOP", "FLOP/s")},
}


def quantity(value: float, unit: str) -> str:
    """``value`` in ``unit`` as tables show it: ``quantity(0.78, "1")`` is ``78 %``. An unknown unit is
    appended without a prefix."""
    written = UNITS.get(unit)
    return written(value) if written is not None else f"{significant(value)} {unit}"


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTPE]?)(i?)[bB]?\s*\Z")


def parse_bytes(text: str) -> int:
    """The number of bytes that a person writes: ``800MB``, ``4 GiB``, ``1e9`` is none. Raises ValueError for
    anything else."""
    found = _SIZE.match(text)
    if found is None or (found[3] and not found[2]):
        raise ValueError("expected a number followed by B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    factor: int = (1024 if found[3] else 1000) ** " KMGTPE".index(found[2].upper() or " ")
    return round(float(found[1]) * factor)
