"""A region of the terminal that is drawn again and again, and the lines that it shows of device samples."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from rooflines.profiler.samplers.fields import DeviceSample
from rooflines.profiler.samplers.storage import new_samples
from rooflines.units import binary_bytes, percent, si

# A curve is the last minute: a character for each of these.
_COLUMN_NS, _COLUMNS = 5_000_000_000, 12
# A device that has not been read for so long, while others were, is not shown.
_LOST_NS = 10_000_000_000
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*|.)")
_ROW = "{:10} {:>5}  {:12}  {:>6}  {:12}  {:>8}  {:>5}  {:>8}"
_HEAD = _ROW.format("", "busy", "last minute", "power", "last minute", "memory", "temp", "clock")


def has_screen() -> bool:
    """Whether standard error is a terminal on which lines can be replaced."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and os.name == "posix"


def plain(text: str) -> str:
    """``text`` of a program without what would control the terminal."""
    return "".join(character if character.isprintable() else " " for character in _ESCAPES.sub("", text.expandtabs()))


class Region:
    """Lines at the bottom of the terminal. What Python prints while the context is open appears above them. No thread draws."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True, vertical_overflow="crop")

    @property
    def width(self) -> int:
        """The width of the terminal in characters."""
        return self._live.console.width

    def __enter__(self) -> Region:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def draw(self, lines: Iterable[str]) -> None:
        """Replace the lines; those for which there is no room are cut."""
        from rich.text import Text

        with contextlib.suppress(OSError):  # the terminal has gone, which is no reason to stop
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="crop"), refresh=True)


class Readings:
    """The latest samples of a journal that is being written, and their course over the last minute, as lines."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._next_byte = journal, 0
        self._values: dict[str, dict[str, Any]] = defaultdict(dict)  # by device and field
        self._curves: dict[tuple[str, str], deque[list[float]]] = defaultdict(partial(deque, maxlen=_COLUMNS))
        self._read_ns: dict[str, int] = defaultdict(int)

    def lines(self) -> list[str]:
        """The host's lines, then a table of GPUs."""
        samples, self._next_byte = new_samples(self._journal, self._next_byte)
        for sample in samples:
            self._take(sample)
        read = [device for device, read_ns in self._read_ns.items() if read_ns > self._newest_ns - _LOST_NS]
        gpus = sorted(device for device in read if device != "host" and self._values[device].keys() & _OF_GPUS)
        return [*self._host(), *([_HEAD, *map(self._gpu, gpus)] if gpus else [])]

    @property
    def _newest_ns(self) -> int:
        return max(self._read_ns.values(), default=0)

    def _take(self, sample: DeviceSample) -> None:
        self._read_ns[sample.device] = max(sample.time_ns, self._read_ns[sample.device])
        for key in _SHOWN:
            if (value := getattr(sample, key)) is None:
                continue
            self._values[sample.device][key] = value
            if key in _DRAWN:
                curve, column = self._curves[sample.device, key], sample.time_ns // _COLUMN_NS
                if not curve or curve[-1][0] != column:
                    curve.append([column, 0.0, 0])
                curve[-1][1] += value
                curve[-1][2] += 1

    def _curve(self, device: str, key: str, highest: float = 0.0) -> str:
        """The course of a field, from zero to the ``highest`` possible value or the highest that was read."""
        means = {int(column): total / count for column, total, count in self._curves[device, key]}
        top, last = max([highest, 1e-9, *means.values()]), self._newest_ns // _COLUMN_NS
        blocks = ("▁▂▃▄▅▆▇█"[min(7, int(8 * means[at] / top))] if at in means else " " for at in range(last - _COLUMNS + 1, last + 1))
        return "".join(blocks).lstrip()

    def _host(self) -> list[str]:
        values, cores = self._values["host"], os.cpu_count() or 1
        lines = []
        if "process_cpu_utilization" in values:
            busy = f"{values['process_cpu_utilization']:.2f} of {cores}"
            lines.append(line("cores busy", busy, self._curve("host", "process_cpu_utilization", cores)))
        if "process_rss_bytes" in values:
            lines.append(line("memory", binary_bytes(values["process_rss_bytes"]), self._curve("host", "process_rss_bytes")))
        if "process_read_bytes" in values and "process_written_bytes" in values:
            read, written = (si(values[f"process_{what}_bytes"], "B") for what in ("read", "written"))
            lines.append(line("disk", f"{read} read, {written} written"))
        if "power_w" in values:
            lines.append(line("CPU power", si(values["power_w"], "W"), self._curve("host", "power_w")))
        return lines

    def _gpu(self, device: str) -> str:
        values = self._values[device]
        held = values.get("process_memory_bytes", values.get("memory_used_bytes"))
        return _ROW.format(
            device, *(_cell(values.get("gpu_utilization"), percent), self._curve(device, "gpu_utilization", 1.0)),
            *(_cell(values.get("power_w"), "{:.0f} W".format), self._curve(device, "power_w", values.get("power_limit_w", 0.0))),
            _cell(held, binary_bytes), _cell(values.get("temperature_c"), "{:.0f} °C".format),
            _cell(values.get("sm_clock_hz"), lambda hertz: f"{hertz / 1e6:.0f} MHz"),
        ).rstrip()  # fmt: skip


_OF_GPUS = {"gpu_utilization", "process_memory_bytes", "memory_used_bytes", "sm_clock_hz"}
_DRAWN = {"process_cpu_utilization", "process_rss_bytes", "gpu_utilization", "power_w"}
_SHOWN = _OF_GPUS | _DRAWN | {"power_limit_w", "temperature_c", "process_read_bytes", "process_written_bytes"}


def line(label: str, value: str, curve: str = "") -> str:
    """A line of a screen: a label, a value and its course over the last minute."""
    return f"{label:12} {value:28} {curve}".rstrip()


def _cell(value: Any, form: Any) -> str:
    return "" if value is None else form(value)
