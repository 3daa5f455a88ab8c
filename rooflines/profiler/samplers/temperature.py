"""Temperatures of the CPU packages, from the sensors of Linux."""

from __future__ import annotations

import re
from pathlib import Path

from rooflines.profiler.samplers.procfs import line_of

HWMON = Path("/sys/class/hwmon")

# The driver, the label of its sensor for a whole package, and the step it counts in, in degrees: the kernel's documentation of
# coretemp (Intel) and k10temp (AMD); zenpower is an alternative to the latter; the rest are of ARM boards, without labels.
# Tdie is the temperature; Tctl is what the fan follows, which on some processors lies above it.
_SENSORS: tuple[tuple[str, str, float | None], ...] = (
    ("coretemp", r"Package id \d+", 1.0),
    ("k10temp", r"Tdie", 0.125),
    ("k10temp", r"Tctl", 0.125),
    ("zenpower", r"Tdie", 0.125),
    ("cpu_thermal", r"", None),
)


class CpuTemperature:
    """The sensors of the packages, looked for once. ``resolution_c`` is the step they count in, None where that is not known."""

    def __init__(self, hwmon: Path = HWMON) -> None:
        self.resolution_c: float | None = None
        self._inputs: list[Path] = []
        drivers = [(directory, line_of(directory / "name")) for directory in sorted(hwmon.glob("hwmon*"))]
        for driver, label, resolution_c in _SENSORS:
            for directory, name in drivers:
                if name == driver:
                    self._inputs += [path for path in sorted(directory.glob("temp*_input")) if re.fullmatch(label, _label(path))]
            if self._inputs:
                self.resolution_c = resolution_c
                return

    @property
    def exists(self) -> bool:
        """Whether there is a sensor at all."""
        return bool(self._inputs)

    def read(self) -> float | None:
        """The hottest package in degrees Celsius, None where nothing can be read."""
        readings = [int(text) for path in self._inputs if (text := line_of(path)).lstrip("-").isdigit()]
        return max(readings) / 1e3 if readings else None


def _label(path: Path) -> str:
    return line_of(path.with_name(path.name.replace("_input", "_label")))
